#!/usr/bin/env bash
# Runs the busted specs inside LuaJITs that we built: scripts/specs.sh HOST...
# Those of spec/, or of the folder that SPECS names.
#
# Busted itself runs in the host, so that what the specs profile is the very
# process that they run in. Ends with `specs: N passed, N failed, N skipped`
# over all hosts, and fails if any failed.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
[ $# -gt 0 ] || {
    echo "usage: scripts/specs.sh HOST... (names as in scripts/luajit.sh)" >&2
    exit 2
}

{
    read -r lua_path
    read -r lua_cpath
} < <(scripts/busted.sh)
[ -n "${lua_path-}" ] || exit 1
native=$(HOST=${HOST:-$1} scripts/native.sh)

counts=$(mktemp)
trap 'rm -f "$counts"' EXIT
failed=0
for host in "$@"; do
    echo "specs in LuaJIT $host"
    (
        eval "$(HOST=$host scripts/env.sh)"
        export PATH="$root/build/luajit/$host/bin:$PATH"
        export LUA_PATH="$root/?.lua;$lua_path;$LUA_PATH" LUA_CPATH="$native/?.so;$lua_cpath$LUA_CPATH"
        export SPEC_COUNTS=$counts SPEC_HOST=$host
        luajit spec/support/busted.lua --output=spec.support.counted --pattern=_spec "${SPECS:-spec}"
    ) || failed=1
done
awk '{ p += $1; f += $2; s += $3 } END { printf "specs: %d passed, %d failed, %d skipped\n", p, f, s }' "$counts"
[ "$failed" = 0 ] && [ "$(wc -l <"$counts")" = $# ]
