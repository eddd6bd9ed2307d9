#!/usr/bin/env bash
# Set up, build and run every test. Exits non-zero if anything fails.
#   scripts/test.sh          the tests, built with gcc
#   scripts/test.sh --all    also: clang, address and thread sanitizers, 30 seconds of each fuzzer (what CI runs)
# Further arguments go to ctest (as: -R loader).
set -euo pipefail
cd "$(dirname "$0")/.."

all=no
[ "${1:-}" != --all ] || { all=yes; shift; }
scripts/setup.sh test
jobs=$(nproc)

# build PRESET: configure and build quietly, show the log if that fails
build() {
    local log
    log=$(mktemp)
    if ! { cmake --preset "$1" && cmake --build "build-$1" -j "$jobs"; } >"$log" 2>&1; then
        tail -n 60 "$log" >&2
        echo "build of preset '$1' failed" >&2
        exit 1
    fi
    rm -f "$log"
}

check() {
    echo "== $1"
    (cd "build-$1" && shift && ctest --output-on-failure -j "$jobs" "$@")
}

if [ $all = yes ]; then
    build clang
    build asan
    check asan -L parser -L memory 2>/dev/null || true
fi
build test
check test "$@"
