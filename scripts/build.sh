#!/usr/bin/env bash
# Bring a build folder up to date without output; if that fails, show the end of the log.
# usage: scripts/build.sh FOLDER CMAKE_OPTION... [-- TARGET...]        without targets: everything
#   scripts/build.sh build --preset cpu -- towers
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$1
shift
options=() targets=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    options+=("$1")
    shift
done
[ $# -le 1 ] || targets=(--target "${@:2}")

log=$(mktemp)
trap 'rm -f "$log"' EXIT
{ cmake "${options[@]}" && cmake --build "$folder" "${targets[@]}"; } >"$log" 2>&1 || { tail -n 40 "$log" >&2; exit 1; }
