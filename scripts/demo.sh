#!/usr/bin/env bash
# The demo: a real program that we did not write, Debian's luacheck, checks its
# own sources and those of a few packages more inside an unpatched LuaJIT, while
# sysprof records it. Prints where the time went and leaves flamegraph.svg.
#
# Run by `make demo`, which has built the recorder, the command and the host.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
demo=$root/build/demo

scripts/debian.sh "$demo" lua-check lua-argparse lua-filesystem \
    lua-ldoc lua-penlight lua-busted lua-luassert

eval "$(scripts/env.sh)"
libraries=("$demo"/usr/lib/*/lua/5.1)
# Relative, as a program finds modules in its own folder: names stay short.
export LUA_PATH="?.lua;?/init.lua;$LUA_PATH"
export LUA_CPATH="${libraries[0]}/?.so;$LUA_CPATH"

profile=$demo/luacheck.bin
modules=$demo/usr/share/lua/5.1
echo "sysprof record --interval 1 -- luajit luacheck . ($(find -L "$modules" -name '*.lua' | wc -l) files)"
status=0
(cd "$modules" &&
    sysprof record -o "$profile" --interval 1 -- \
        luajit ../../../bin/luacheck --no-config --no-color --quiet . >"$demo/luacheck.out") || status=$?
# Luacheck's own codes up to 2 say that it found something in what it read.
if [ "$status" -gt 2 ]; then
    tail -n 20 "$demo/luacheck.out" >&2
    echo "scripts/demo.sh: luacheck under sysprof record ended with exit code $status" >&2
    exit 1
fi
tail -n 1 "$demo/luacheck.out"

for by in function line state; do
    echo
    echo "sysprof report --by $by --limit 12 ${profile#"$root/"}"
    sysprof report --by "$by" --limit 12 "$profile"
done
sysprof flamegraph "$profile" -o flamegraph.svg
echo
echo "flamegraph.svg is written: open it in a browser and click into it."
