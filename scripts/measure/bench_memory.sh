#!/usr/bin/env bash
# Memory of a training step of inception_v3 (299x299, auxiliary head, SGD with momentum, f32 and bf16) beside PyTorch from PyPI: the
# largest resident memory of all processes of a side (PSS, read every 50 ms, so that shared pages count once), which no other program
# on the machine disturbs. The table goes to docs/results/cpu.md. Five minutes on two cores.
# usage: scripts/measure/bench_memory.sh [--torch pip|debian] [--batches 8,16,32]    (with --batches: standard output only)
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/measure/peers.sh
table=$(mktemp)
trap 'rm -f "$table"' EXIT
/usr/bin/python3 scripts/measure/bench_memory.py "${more[@]}" | tee "$table"
[ ${#more[@]} -gt 0 ] || scripts/pages/fill_section.sh docs/results/cpu.md memory <"$table"
