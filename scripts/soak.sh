#!/usr/bin/env bash
# Runs every program of spec/programs under the profiler, in mode C, with the JIT
# on and off: scripts/soak.sh seconds=N|signals=N INTERVAL [PROGRAM...]
#
# Each runs for so many seconds, or until it has had so many signals, one every
# INTERVAL milliseconds. What each round prints has to be what the program prints
# without a profiler, and the stream has to hold as many samples as were counted.
# Run by `make soak` and `make million`.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
[ $# -ge 2 ] || {
    echo "usage: scripts/soak.sh seconds=N|signals=N INTERVAL [PROGRAM...]" >&2
    exit 2
}
length=$1 interval=$2
shift 2
[ $# -gt 0 ] || set -- spec/programs/*.lua
eval "$(scripts/env.sh)"
export PATH="$root/build/luajit/$HOST/bin:$PATH"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 signals=0

# One program, one JIT setting; what went wrong is its output.
soak() {
    local program=$1 jit=$2 counted
    luajit -j"$jit" spec/support/rounds.lua "$program" rounds=1 >"$work/plain" 2>"$work/err" ||
        { echo "fails without the profiler:"; cat "$work/err"; return 1; }
    luajit -j"$jit" spec/support/rounds.lua "$program" "$length" \
        "profile=$work/profile" "interval=$interval" >"$work/profiled" 2>"$work/err" ||
        { echo "exit code $? under the profiler:"; cat "$work/err"; return 1; }
    cmp -s "$work/plain" "$work/profiled" ||
        { echo "prints something else under the profiler:"; diff "$work/plain" "$work/profiled"; return 1; }
    counted=$(sed -n 's/^rounds .* samples //p' "$work/err")
    [ "$counted" -gt 0 ] || { echo "no sample was taken"; return 1; }
    luajit spec/support/streamed.lua "$work/profile" "$counted"
}

for program in "$@"; do
    for jit in on off; do
        printf '%-32s -j%-4s' "$program" "$jit"
        if message=$(soak "$program" "$jit" 2>&1); then
            echo "$(tr '\n' ' ' <"$work/err") ok"
            passed=$((passed + 1))
            signals=$((signals + $(sed -n 's/.* signals \([0-9]*\) .*/\1/p' "$work/err")))
        else
            echo "FAILED"
            echo "$message"
            failed=$((failed + 1))
        fi
    done
done
echo "soak: $passed passed, $failed failed, $signals signals in LuaJIT $HOST"
[ "$failed" = 0 ]
