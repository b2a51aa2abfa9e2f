#!/usr/bin/env bash
# Fuzzes the decoder: scripts/fuzz.sh SECONDS. New inputs gather in build/fuzz;
# those that are worth keeping go to fuzz/corpus (`scripts/fuzz.sh keep`), small
# ones only, from where CI reads them.
#
# cargo-fuzz is the fuzzer of Rust's own projects. Without a sanitizer, which the
# decoder's safe code has little use for, it needs no nightly compiler.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo fuzz --version >/dev/null 2>&1 || {
    echo "scripts/fuzz.sh: cargo-fuzz is not there; cargo install cargo-fuzz --locked" >&2
    exit 1
}
# Its own target folder: it compiles everything with its own flags.
export CARGO_TARGET_DIR=$PWD/build/fuzz/target
inputs=build/fuzz/decode corpus=fuzz/corpus/decode
mkdir -p "$inputs" build/fuzz/artifacts
fuzz() { cargo fuzz run --sanitizer none decode "$@"; }

case ${1:?how many seconds?} in
keep)
    # Inputs for every edge that was reached; what is named stays.
    small=$(mktemp -d) merged=$(mktemp -d)
    trap 'rm -rf "$small" "$merged"' EXIT
    find "$inputs" -type f -size -2k -exec cp -t "$small" {} +
    cp "$corpus"/*-* "$merged"
    fuzz "$merged" "$small" -- -merge=1 -use_counters=0
    cp "$merged"/* "$corpus"
    ;;
*)
    # 1 MiB is what the limit of memory, in the target, is about.
    fuzz "$inputs" "$corpus" -- -max_total_time="$1" -max_len=1048576 -timeout=10 \
        -artifact_prefix=build/fuzz/artifacts/ -print_final_stats=1
    ;;
esac
