#!/usr/bin/env bash
# Are own FP8 kernels worth building? Trains inception_mini and inception_v3 with operands of convolutions rounded to 8 bits, on the CPU, on
# one thread: runs what docs/results/fp8.jsonl lacks, and writes the tables of docs/results/fp8.md. A run that is stopped goes on where it
# was. The small network takes about ten minutes of a core; the pictures are those of scripts/measure/train_photos.sh.
# usage: scripts/measure/fp8.sh [SECONDS]    (of inception_v3; default: none)
set -euo pipefail
cd "$(dirname "$0")/../.."

python=$(scripts/venv.sh torch) records=docs/results/fp8.jsonl page=docs/results/fp8.md
"$python" scripts/measure/fp8.py mini "$records"
if [ "${1:-0}" -gt 0 ]; then
    "$python" scripts/measure/fp8.py v3 "$records" "${XDG_CACHE_HOME:-$HOME/.cache}/towers/photos/stamps" "$1"
fi
for section in speed mini gradients v3; do
    "$python" scripts/measure/fp8.py section "$records" "$section" | scripts/pages/fill_section.sh "$page" "$section"
done
