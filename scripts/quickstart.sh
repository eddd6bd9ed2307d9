#!/usr/bin/env bash
# From a fresh clone to a trained network: set up, build, train two towers on Fashion-MNIST, in bf16 where the processor multiplies
# it, which takes half the time. Arguments go to `towers train`.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh build
cmake --preset cpu >build.log 2>&1 || { cat build.log >&2; exit 1; }
# Ninja's "[12/340] ..." lines become one line that counts, on a terminal, or a line for every tenth part
cmake --build build 2>&1 | tee -a build.log | awk -v terminal="$([ -t 2 ] && echo 1)" '
    match($0, /^\[[0-9]+\/[0-9]+\]/) {
        split(substr($0, 2, RLENGTH - 2), part, "/")
        if (terminal) printf "\rbuilding build/towers: %d of %d files", part[1], part[2]
        else if (int(10 * part[1] / part[2]) > tenth || part[1] == 1) {
            tenth = int(10 * part[1] / part[2])
            printf "building build/towers: %d of %d files\n", part[1], part[2]
        }
        fflush()
        shown = 1
    }
    END { if (terminal && shown) print "" }' >&2 || { tail -n 40 build.log >&2; exit 1; }
rm -f build.log
amp=()
! grep -qwE 'avx512_bf16|amx_bf16' /proc/cpuinfo || amp=(--amp)
exec build/towers train inception_mini --towers 2 "${amp[@]}" "$@"
