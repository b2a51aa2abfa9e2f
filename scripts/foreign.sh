#!/usr/bin/env bash
# Builds a LuaJIT that is laid out as no LuaJIT is: scripts/foreign.sh NAME, one of
# the cases below. It works as any other, but what the recorder looks for is not
# where, or not what, it is elsewhere: `start` has to refuse it.
#
# Leaves the program in build/foreign/NAME/src and prints its path.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
name=${1-}
version=210.7.4-gc64

fail() {
    echo "scripts/foreign.sh: $*" >&2
    exit 1
}

# Changes a file of the sources; a change that finds nothing to change is an error.
change() {
    local file=$1 script=$2
    cp "$file" "$file.before"
    sed -i "$script" "$file"
    ! cmp -s "$file" "$file.before" || fail "$name: nothing to change in $file"
}

lay_out() {
    case $name in
    # As it is: accepted, so that the others are refused for what they change.
    none) ;;
    # The number of the function and the fake one of threads are one byte on.
    header)
        change lj_obj.h 's/uint8_t ffid; uint8_t nupvalues;/uint8_t nupvalues; uint8_t ffid;/'
        change lj_obj.h '/^  uint8_t dummy_ffid;/{h;d};/^  uint8_t status;.*Thread status/{G}'
        ;;
    # A field of another's in lua_State, before the base.
    state) change lj_obj.h 's/^  TValue \*base;/  void *foreign;\n&/' ;;
    # A state more before that of C functions.
    vmstate) change lj_obj.h 's/^  LJ_VMST_C,/  LJ_VMST_FOREIGN,\n&/' ;;
    # Two words that both go with the VM's state.
    twice)
        change lj_obj.h 's/^  volatile int32_t vmstate;/&\n  volatile int32_t foreign;/'
        change lj_obj.h 's/((g)->vmstate = ~LJ_VMST_##st)/((g)->foreign = (g)->vmstate = ~LJ_VMST_##st)/'
        change vm_x64.dasc 's/^|  mov dword \[DISPATCH+DISPATCH_GL(vmstate)\], ~LJ_VMST_..st/&\n|  mov dword [DISPATCH+DISPATCH_GL(foreign)], ~LJ_VMST_..st/'
        ;;
    # A C frame of the VM that is 32 bytes larger.
    frame)
        change vm_x64.dasc 's/^|.define CFRAME_SPACE,\taword\*5/|.define CFRAME_SPACE,\taword*9/'
        change lj_frame.h 's/^#define CFRAME_SIZE\t\t(10\*8)/#define CFRAME_SIZE\t\t(14*8)/'
        ;;
    # Strings with a second length.
    string)
        change lj_obj.h 's/^  MSize len;.*Size of string/  MSize foreign;\n&/'
        change lj_str.c 's/^  s->len = len;/  s->len = s->foreign = len;/'
        ;;
    # A field of another's in prototypes, before the name of the chunk.
    proto) change lj_obj.h 's/^  GCRef chunkname;/  uint64_t foreign;\n&/' ;;
    *)
        echo "usage: scripts/foreign.sh none|header|state|vmstate|twice|frame|string|proto" >&2
        exit 2
        ;;
    esac
}

out=$root/build/foreign/$name
log=$root/build/foreign/$name.log
stamp=$(cksum <"$root/scripts/foreign.sh")
if [ "$(cat "$out/.stamp" 2>/dev/null || true)" != "$stamp" ]; then
    sources=$("$root/scripts/luajit.sh" "$version")/src
    rm -rf "$out"
    mkdir -p "${out%/*}"
    cp -R "$sources" "$out"
    cd "$out/src"
    lay_out
    # Quick to build is all that it has to be.
    env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make clean >"$log" 2>&1
    env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS \
        make -j "$(nproc)" BUILDMODE=static CCOPT=-O0 TARGET_STRIP=@: >>"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        fail "$name did not build; the lines above are the end of $log"
    }
    echo "$stamp" >"$out/.stamp"
fi
echo "$out/src/luajit"
