#!/usr/bin/env bash
# Builds the module of tests/native once and prints the folder that it is in:
# C, C++ and Rust in one library. Frame pointers are left out, so that nothing but
# unwind tables leads through it; three functions have no tables, and one of these
# a frame pointer.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
source=$root/tests/native
out=$root/build/native
headers=$("$root/scripts/luajit.sh" "${HOST:?is set by the Makefile}")/include

mkdir -p "$out"
exec 9>"$out/.lock"
flock 9
stamp=$(cat "$0" "$source"/* | cksum)
if [ "$(cat "$out/.stamp" 2>/dev/null || true)" != "$stamp" ]; then
    cd "$out"
    flags=(-O2 -g -fPIC -fomit-frame-pointer -fno-reorder-blocks-and-partition -fexceptions -fno-optimize-sibling-calls
        -fvisibility=hidden -finstrument-functions -Wall -Wextra -Werror -I "$headers")
    gcc -std=gnu11 "${flags[@]}" -c "$source/native.c" -o native.o
    g++ -std=c++17 "${flags[@]}" -c "$source/cpp.cpp" -o cpp.o
    without=(-O2 -fPIC -fno-asynchronous-unwind-tables -fno-unwind-tables -fno-exceptions
        -fcf-protection=none -c "$source/bare.c")
    gcc -DBARE=native_framed -fno-omit-frame-pointer "${without[@]}" -o framed.o
    gcc -DBARE=native_bare -fomit-frame-pointer "${without[@]}" -o bare.o
    gcc -DBARE=native_winding -DWINDING -fomit-frame-pointer "${without[@]}" -o winding.o
    rustc --edition 2024 -O -g -C relocation-model=pic "$source/rust.rs" -o librust.a
    g++ -shared -Wl,--gc-sections,--exclude-libs,ALL native.o cpp.o framed.o bare.o winding.o librust.a -o native.so
    echo "$stamp" >.stamp
fi
echo "$out"
