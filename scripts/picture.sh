#!/usr/bin/env bash
# Turns the flamegraph.svg that the last `make demo` left into the picture that
# README.md shows: docs/flamegraph.png. Needs rsvg-convert (Debian: librsvg2-bin).
set -euo pipefail
cd "$(dirname "$0")/.."
command -v rsvg-convert >/dev/null || {
    echo "scripts/picture.sh: rsvg-convert is not here; install librsvg2-bin" >&2
    exit 1
}
rsvg-convert --width 1200 --background-color white --output docs/flamegraph.png flamegraph.svg
