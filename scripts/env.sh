#!/usr/bin/env bash
# Prints the export lines that make `luajit`, `sysprof` and `require "sysprof"`
# work in any folder: eval "$(make -s env)". What the user has set is kept,
# after ours, and Lua's own defaults (`;;`) come last.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
host=$root/build/luajit/${HOST:?is set by the Makefile}

# Prints NAME's export line: what is ours in front of what is there, once.
put_first() {
    local name=$1 separator=$2 ours=$3 last=$4
    local theirs=${!name-}
    case "$theirs" in
    "$ours$separator"*) theirs=${theirs#"$ours$separator"} ;;
    "$ours") theirs= ;;
    esac
    local value=$ours${theirs:+$separator$theirs}
    [[ -z $last || $value == *"$last" ]] || value+=$last
    printf 'export %s=%q\n' "$name" "$value"
}

put_first PATH : "$root/build/bin" ''
put_first LUA_PATH ';' "$root/lua/?.lua;$host/share/lua/5.1/?.lua" ';;'
put_first LUA_CPATH ';' "$root/build/lib/?.so" ';;'
