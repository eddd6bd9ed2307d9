#!/usr/bin/env bash
# The cost of observing a run: steps with norms, ledger and digests against steps without, alternating within one run
# (tests/bench/bench_ledger.c). Writes the table between the markers of docs/results/cpu.md.
# usage: scripts/measure/bench_ledger.sh [BUILD_DIRECTORY]     (configured with tests; default: a directory of its own)
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/measure/common.sh

build=${1:-build-bench}
[ $# -gt 0 ] || { scripts/setup.sh build && cmake --preset cpu -B "$build" -DTOWERS_TESTS=ON; } >/dev/null
cmake --build "$build" --target bench_ledger >/dev/null
table=$(mktemp)
trap 'rm -f "$table"' EXIT
{
    echo
    echo "$(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg) at the start, $(this_commit)."
    echo
    echo "| run | step, ms | processor time of a step, ms | norms, % of the step | norms, % of processor time | digests every 500 steps, % | ledger, % | all, % of processor time |"
    echo "|---|---:|---:|---:|---:|---:|---:|---:|"
    export GOMP_SPINCOUNT=1000
    "$build/tests/bench_ledger" fashion_cnn 32 2 240
    "$build/tests/bench_ledger" inception_mini 32 2 48
} | tee "$table"
scripts/pages/fill_section.sh docs/results/cpu.md ledger <"$table"
