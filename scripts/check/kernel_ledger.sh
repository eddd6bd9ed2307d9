#!/usr/bin/env bash
# What each way to compute a convolution gains on this processor, and as an older one: every call of a network by the kernel that is
# chosen for it and, in turn with that, by the one that is chosen without it. A kernel that gains less than 1 % everywhere can go.
# Needs an idle machine: beside other programs a kernel that waits for its threads more often loses more, and gains turn into losses.
# Usage: scripts/check/kernel_ledger.sh BUILD_FOLDER [NETWORK]    NETWORK: inception (default) or small, of tests/bench/bench_conv.c
set -euo pipefail
[[ $# -ge 1 && -f $1/build.ninja ]] || { echo "usage: $0 BUILD_FOLDER [NETWORK]" >&2; exit 2; }
busy=$(awk '{ print $1 > 0.5 ? $1 : "" }' /proc/loadavg)
[ -z "$busy" ] || echo "kernel_ledger: warning: other programs run here (load $busy); measure again when the machine is idle" >&2
cmake --build "$1" --target bench_conv >/dev/null
for isa in DEFAULT AVX512_CORE AVX2; do
    for dtype in f32 bf16; do
        [[ $isa-$dtype == DEFAULT-* || $dtype == f32 ]] || continue
        echo "## $isa, $dtype"
        ONEDNN_MAX_CPU_ISA=$isa "$1/tests/bench_conv" "$dtype" "$(nproc)" "${2:-inception}" ledger
    done
done
