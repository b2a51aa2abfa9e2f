#!/usr/bin/env bash
# Steps through every program of tests/step/programs one machine instruction at
# a time, JIT off and on, in each of the LuaJITs named: scripts/step.sh HOST...
#
# At each instruction the stack that the recorder sees is held against the truth
# (tests/stepper). Ends with the sums over all programs and hosts, and fails if
# a stack was wrong or missing, or a run did not come to its end.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
[ $# -gt 0 ] || {
    echo "usage: scripts/step.sh HOST... (names as in scripts/luajit.sh)" >&2
    exit 2
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/counts"
passed=0 failed=0
native=$(HOST=${HOST:-$1} scripts/native.sh)

# One run; its counts, `name number` a line, and what was wrong go to files.
step() {
    local host=$1 program=$2 jit=$3
    eval "$(HOST=$host scripts/env.sh)"
    export LUA_CPATH="$native/?.so;$LUA_CPATH"
    # $jit is a word or nothing.
    # shellcheck disable=SC2086
    "build/luajit/$host/bin/luajit" tests/step/run.lua "$program" $jit >"$work/out" 2>"$work/err" </dev/null
}

for host in "$@"; do
    for program in tests/step/programs/*.lua; do
        for jit in '' jit; do
            status=0
            (step "$host" "$program" "$jit") || status=$?
            grep -E '^[a-z_]+	[0-9]+$' "$work/out" >"$work/run" || true
            bad=$(awk '$1 == "wrong" || $1 == "without_stack" || $1 == "unfinished" || $1 == "unjoined" || $1 == "wrong_native" || $1 == "wrong_exits" { n += $2 } END { print n + 0 }' "$work/run")
            # A run without counts has proved nothing.
            stepped=$(awk '$1 == "instructions" { print $2 }' "$work/run")
            cat "$work/run" >>"$work/counts"
            if [ "$status" = 0 ] && [ "$bad" = 0 ] && [ "${stepped:-0}" -gt 0 ]; then
                passed=$((passed + 1))
                continue
            fi
            failed=$((failed + 1))
            echo "FAILED: $host, $program, JIT ${jit:-off}: exit code $status"
            cat "$work/out" "$work/err"
        done
    done
    echo "stepped through $host"
done

echo "step: $passed passed, $failed failed"
awk '{ n[$1] += $2 } END {
    printf "traces by their ends:"
    for (name in n) if (sub(/^traces_/, "", name)) printf " %s %d", name, n["traces_" name]
    print ""
    if (n["in_traces"] > 0)
        printf "in traces %d, of which %d (%.1f %%) with ancestors only\n",
            n["in_traces"], n["ancestors"], 100 * n["ancestors"] / n["in_traces"]
    if (n["exits"] > 0)
        printf "leaving traces %d, of which %d (%.1f %%) do not say which\n",
            n["exits"], n["nameless_exits"], 100 * n["nameless_exits"] / n["exits"]
    printf "instructions %d, wrong %d, without stack %d, faults %d\n",
        n["instructions"], n["wrong"] + n["wrong_native"] + n["wrong_exits"], n["without_stack"], n["faults"] }' "$work/counts"
[ "$failed" = 0 ]
