# shellcheck shell=bash
# Source this, from the root of the tree, in a script that measures: on what, from what, with what.

processor() { lscpu | sed -n 's/^Model name: *//p' | head -n 1; }

# "commit 1234567 and changes, 2026-11-29 08:00"
this_commit() {
    echo "commit $(git rev-parse --short HEAD)$(git diff --quiet HEAD -- kernels nccl_sync towers inception || echo ' and changes')," \
        "$(date -u '+%Y-%m-%d %H:%M')"
}

# towers_of BINARY: it, or if that is empty the program of build/, which is brought up to date
towers_of() {
    [ -n "$1" ] || { scripts/setup.sh build && scripts/build.sh build --preset cpu -DTOWERS_TESTS=OFF -- towers; } >&2 || exit
    echo "${1:-build/towers}"
}
