#!/usr/bin/env bash
# Builds one unpatched LuaJIT out of the sources that the `luajit-src` crate
# ships: scripts/luajit.sh NAME, where NAME is VERSION-VARIANT (210.7.4-gc64).
#
# Leaves in build/luajit/NAME: bin/luajit, include/, lib/ (static and shared),
# share/lua/5.1/jit/ and src/, the tree that it was built in. Nothing is
# stripped: tests look for the VM's symbols. Prints that folder, last.
set -euo pipefail

usage() {
    cat >&2 <<'TEXT'
usage: scripts/luajit.sh VERSION-VARIANT
  VERSION  of the luajit-src crate: 210.0.0, 210.1.4, 210.4.8, 210.5.4, 210.7.4
  VARIANT  gc64    64-bit references
           gc32    32-bit references
           assert  gc64, and LuaJIT's own assertions and API checks
           52      gc64, and the Lua 5.2 compatibility switch
TEXT
    exit 2
}

fail() {
    echo "scripts/luajit.sh: $*" >&2
    exit 1
}

[ $# -eq 1 ] || usage
name=$1
version=${name%-*}
variant=${name##*-}
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || usage

# Until 2020 references of 32 bits were the default on x86-64, since then it is
# those of 64; a switch that a version does not know is without effect there.
wide=
[[ $version == 210.0.* ]] && wide=-DLUAJIT_ENABLE_GC64
case $variant in
gc64) flags=$wide ;;
gc32) flags=-DLUAJIT_DISABLE_GC64 ;;
assert) flags="$wide -DLUA_USE_ASSERT -DLUA_USE_APICHECK" ;;
52) flags="$wide -DLUAJIT_ENABLE_LUA52COMPAT" ;;
*) usage ;;
esac

root=$(cd "$(dirname "$0")/.." && pwd)
recipe=$root/scripts/luajit.sh
cache=$root/build/luajit
out=$cache/$name
log=$cache/$name.log

mkdir -p "$cache"
exec 9>"$cache/$name.lock"
flock 9

# The stamp is the recipe's checksum: a build by another recipe is made anew.
stamp=$(cksum <"$recipe")
if [ "$(cat "$out/.stamp" 2>/dev/null || true)" = "$stamp" ]; then
    echo "$out"
    exit 0
fi

# Prints the folder where cargo unpacked the crate. The project that depends on
# it is a workspace of its own, or cargo would look for it in ours.
crate_folder() {
    local project=$cache/fetch/$name manifest
    mkdir -p "$project/src"
    : >"$project/src/lib.rs"
    cat >"$project/Cargo.toml" <<TOML
[package]
name = "fetch"
version = "0.0.0"
edition = "2021"
[dependencies]
luajit-src = "=$version"
[workspace]
TOML
    manifest=$(cargo metadata --format-version 1 --manifest-path "$project/Cargo.toml" |
        grep -o '"manifest_path":"[^"]*/luajit-src-[^"]*/Cargo.toml"' | head -n 1 | cut -d '"' -f 4)
    [ -n "$manifest" ] || return 1
    dirname "$manifest"
}

build() {
    local crate
    crate=$(crate_folder)
    rm -rf "$out"
    mkdir -p "$out/bin" "$out/include" "$out/lib" "$out/share/lua/5.1"
    # Older crates call the folder luajit, and name no release.
    if [ -d "$crate/luajit2" ]; then
        cp -R "$crate/luajit2" "$out/src"
    else
        cp -R "$crate/luajit" "$out/src"
    fi
    [ ! -f "$crate/luajit_relver.txt" ] || cp "$crate/luajit_relver.txt" "$out/src/.relver"

    # MAKEFLAGS of a make that called this script would change the build.
    env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS \
        make -C "$out/src/src" -j "$(nproc)" PREFIX="$out" TARGET_STRIP=@: XCFLAGS="$flags"

    cp "$out/src/src/luajit" "$out/bin/"
    cp "$out"/src/src/{lua.h,lualib.h,lauxlib.h,luaconf.h,luajit.h,lua.hpp} "$out/include/"
    cp "$out/src/src/libluajit.a" "$out/lib/"
    cp "$out/src/src/libluajit.so" "$out/lib/libluajit-5.1.so.2"
    cp -R "$out/src/src/jit" "$out/share/lua/5.1/jit"
    "$out/bin/luajit" -e 'require "jit.vmdef"; print(jit.version)'
}

echo "building LuaJIT $name" >&2
# Not as the condition of an `if`: that would switch `set -e` off inside.
set +e
(
    set -e
    build
) >"$log" 2>&1
status=$?
set -e
if [ "$status" -ne 0 ]; then
    tail -n 40 "$log" >&2
    fail "LuaJIT $name did not build; the lines above are the end of $log"
fi
echo "$stamp" >"$out/.stamp"
echo "$out"
