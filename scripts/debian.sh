#!/usr/bin/env bash
# Unpacks Debian packages into a folder, without installing them and without
# their dependencies: scripts/debian.sh FOLDER PACKAGE...
#
# What the tests and the demo need besides a toolchain comes in this way, so
# that they change nothing on the machine. Packages that are there already are
# not fetched again. Fails with a message where there is no apt or no package.
set -euo pipefail

[ $# -ge 2 ] || {
    echo "usage: scripts/debian.sh FOLDER PACKAGE..." >&2
    exit 2
}
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift

fail() {
    echo "scripts/debian.sh: $*" >&2
    exit 1
}

exec 9>"$folder/.lock"
flock 9

missing=()
for package in "$@"; do
    [ -e "$folder/.unpacked/$package" ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

for tool in apt-get dpkg-deb; do
    command -v "$tool" >/dev/null || fail "no $tool here, which is needed to fetch ${missing[*]}"
done

download=$folder/.download
log=$folder/.log
rm -rf "$download"
mkdir -p "$download" "$folder/.unpacked"

# apt's own sandbox user may not enter the folder: it says so, and goes on.
fetch() {
    (cd "$download" && apt-get download "${missing[@]}") >>"$log" 2>&1
}

# A new machine has no package lists; only root can get them.
update() {
    local become=()
    [ "$(id -u)" = 0 ] || become=(sudo -n)
    "${become[@]}" apt-get update >>"$log" 2>&1
}

: >"$log"
if ! fetch && ! { update && fetch; }; then
    tail -n 10 "$log" >&2
    fail "could not fetch ${missing[*]}; the lines above are apt's (not root? then run: sudo apt-get update)"
fi
for package in "${missing[@]}"; do
    dpkg-deb -x "$download/$package"_*.deb "$folder"
    : >"$folder/.unpacked/$package"
done
rm -rf "$download"
