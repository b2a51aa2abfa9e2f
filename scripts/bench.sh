#!/usr/bin/env bash
# Measures what profiling costs and what it delivers, and prints each measure
# next to its aim. Run by `make bench`, on a machine that does nothing else.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
eval "$(scripts/env.sh)"
export LUA_PATH="$root/?.lua;$LUA_PATH"
for measure in truth delivered cost inlined slowdown size libraries start; do
    luajit "benches/lua/$measure.lua"
done
