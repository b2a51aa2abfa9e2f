#!/usr/bin/env bash
# Unpacks a program that Debian packages with a LuaJIT inside: scripts/host.sh
# NAME, one of luajit, nvim, tarantool, nginx. Prints the folder, which is laid
# out like /. Exits with 69, and says why, where it can't be had or run.
#
# Each has a folder of its own: two of the packages exclude each other. Those that
# run a Lua program as LuaJIT does are linked to from build/luajit, too, by the
# names debian and tarantool: what runs in a LuaJIT of ours runs in them.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
name=${1-}

case $name in
luajit) program=usr/bin/luajit packages=(luajit libluajit-5.1-common) ;;
nvim)
    program=usr/bin/nvim
    packages=(neovim neovim-runtime libluajit-5.1-2 lua-luv libuv1 libmsgpackc2
        libvterm0 libtermkey1 libunibilium4 libtree-sitter0)
    ;;
tarantool) program=usr/bin/tarantool packages=(tarantool tarantool-common) ;;
nginx)
    program=usr/sbin/nginx
    packages=(nginx libnginx-mod-http-lua libnginx-mod-http-ndk libluajit2-5.1-2
        lua-resty-core lua-resty-lrucache libpcre3)
    ;;
*)
    echo "usage: scripts/host.sh luajit|nvim|tarantool|nginx" >&2
    exit 2
    ;;
esac

unavailable() {
    echo "scripts/host.sh: $*" >&2
    exit 69
}

folder=$root/build/hosts/$name
"$root/scripts/debian.sh" "$folder" "${packages[@]}" || unavailable "$name could not be unpacked from Debian's packages"

# What a package depends on is the machine's own, but for what is listed above.
LD_LIBRARY_PATH=$folder/usr/lib/x86_64-linux-gnu:$folder/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH
files=("$folder/$program")
[ "$name" != nginx ] || files+=("$folder"/usr/lib/nginx/modules/*.so)
missing=$(ldd "${files[@]}" | sed -n 's/^\s*\(\S*\) => not found.*/\1/p' | sort -u | tr '\n' ' ')
[ -z "$missing" ] || unavailable "$name needs libraries that are not here: $missing"

# Links to the program and to LuaJIT's own modules, which tarantool has built in.
link() {
    local as=$root/build/luajit/$1 modules
    mkdir -p "$as/bin" "$as/share/lua/5.1"
    ln -sfn "$folder/$program" "$as/bin/luajit"
    for modules in "$folder"/usr/share/luajit-*/jit; do
        [ ! -d "$modules" ] || ln -sfn "$modules" "$as/share/lua/5.1/jit"
    done
}
case $name in
luajit) link debian ;;
tarantool) link tarantool ;;
esac
echo "$folder"
