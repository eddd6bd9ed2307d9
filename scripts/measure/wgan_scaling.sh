#!/usr/bin/env bash
# One WGAN-GP run on 1, 2 and 4 towers with the same global batch, and the critic's loss of one step as several formulas print it: the
# table of docs/guide/wgan.md. A minute on two cores.
# usage: scripts/measure/wgan_scaling.sh [BINARY]
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/measure/common.sh
scripts/setup.sh python

towers=$(towers_of "${1:-}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for n in 1 2 4; do
    "$towers" train wgan_gp --recipe iwt --width 16 --global-batch-size 64 --lr 0.0005 --max-steps 60 --seed 1 --towers $n \
        --summary-interval 0 --output-dir "$work" --experiment "$n" --quiet 2>"$work/err" || { cat "$work/err" >&2; exit 1; }
done
python3 scripts/train_wgan.py scaling "$work/1" "$work/2" "$work/4" 57 | tee /dev/stderr | scripts/pages/fill_section.sh docs/guide/wgan.md scaling
