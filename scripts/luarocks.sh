#!/usr/bin/env bash
# Runs LuaRocks: scripts/luarocks.sh ARGUMENTS... One that is installed comes
# first, then Debian's package, unpacked into build/ and run by the default
# host. Exits with 69, and says why, where there is none.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

if command -v luarocks >/dev/null; then
    exec luarocks --lua-version 5.1 "$@"
fi
debian=$root/build/debian
modules=$debian/usr/share/lua/5.1
if ! command -v apt-get >/dev/null || ! "$root/scripts/debian.sh" "$debian" luarocks lua-filesystem; then
    echo "scripts/luarocks.sh: LuaRocks is not installed, and Debian's package can't be had" >&2
    exit 69
fi
export LUA_PATH="$modules/?.lua;$modules/?/init.lua;;"
# It looks for an installed Lua's headers, even where nothing is compiled.
luajit=$(readlink -f "$root/build/bin/luajit")
exec "$luajit" "$debian/usr/bin/luarocks" "$@" "LUA_INCDIR=${luajit%/bin/luajit}/include"
