#!/usr/bin/env bash
# Makes sure that busted is there and prints the two lines that a Lua 5.1 needs
# to load it: LUA_PATH entries, then LUA_CPATH entries.
#
# Debian's packages, unpacked into build/, come first; then a busted that is
# installed; then LuaRocks, into build/.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

# Prints the entries of a folder laid out like / or like a LuaRocks tree.
entries() {
    local share=$1/share/lua/5.1 lib
    echo "$share/?.lua;$share/?/init.lua"
    for lib in "$1"/lib/lua/5.1 "$1"/lib/*-linux-gnu/lua/5.1; do
        [ ! -d "$lib" ] || printf '%s;' "$lib/?.so"
    done
    echo
}

debian=$root/build/debian
packages=(lua-busted lua-cliargs lua-dkjson lua-filesystem lua-luassert lua-mediator
    lua-penlight lua-say lua-system lua-term)
if command -v apt-get >/dev/null && "$root/scripts/debian.sh" "$debian" "${packages[@]}"; then
    entries "$debian/usr"
    exit
fi
for prefix in /usr /usr/local; do
    if [ -f "$prefix/share/lua/5.1/busted/runner.lua" ]; then
        entries "$prefix"
        exit
    fi
done
rocks=$root/build/rocks
if [ -f "$rocks/share/lua/5.1/busted/runner.lua" ] ||
    { command -v luarocks >/dev/null && luarocks --lua-version 5.1 --tree "$rocks" install busted >&2; }; then
    entries "$rocks"
    exit
fi
cat >&2 <<'TEXT'
scripts/busted.sh: the Lua specs need busted, and it can't be had here: Debian's
package lua-busted could not be fetched, none is installed for Lua 5.1, and
LuaRocks is not there or could not install it. Install one of the two, then try again.
TEXT
exit 1
