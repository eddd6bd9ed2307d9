#!/usr/bin/env bash
# The original Inception trainer's recipe on TFRecords of real photographs: 1,968 solar cells (PyPI package elpv-dataset, pictures
# CC BY-NC-SA 4.0, in the user's cache and no part of this project; fetched if they are not there) as TFRecords in the layout of
# the original builders, then `towers train inception_v3 --recipe tf2016` for 200 steps of 32 images at 107x107, which two idle
# cores do in about four minutes. Fails unless every tenth step has a line in the original's form and the first loss is within 0.2 of
# what equal probabilities of three classes (one is the background) and the L2 term make: ln 3 + 3.34.
# usage: scripts/train_tf2016.sh [STEPS [BINARY]]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/measure/common.sh

steps=${1:-200}
photos=${XDG_CACHE_HOME:-$HOME/.cache}/towers/photos/elpv
scripts/setup.sh python
towers=$(towers_of "${2:-}")
[ -e "$photos/made" ] || scripts/measure/train_photos.sh --minutes 0 "$towers" # fetches the photographs
work=$(mktemp -d "${TMPDIR:-/tmp}/towers-tf2016.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 tests/support/tfrecords_write.py "$photos" "$work/records" 4
"$towers" train inception_v3 --recipe tf2016 --data-path "$work/records" --img-size 107 --device cpu --towers 1 --max-steps "$steps" --eval-interval 0 \
    --output-dir "$work/runs" --experiment run 2>&1 | tee "$work/log"
lines=$(grep -cE '^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}\.[0-9]{6}: step [0-9]*0, loss = [0-9]+\.[0-9]{2} \([0-9]+\.[0-9] examples/sec; [0-9]+\.[0-9]{3} sec/batch\)$' "$work/log")
[ "$lines" = $(((steps + 9) / 10)) ] || { echo "train_tf2016: $lines lines in the original's form, expected $(((steps + 9) / 10))" >&2; exit 1; }
loss=$(sed -n 's/.*: step 0, loss = \([0-9.]*\) .*/\1/p' "$work/log")
awk -v loss="$loss" 'BEGIN { expected = log(3) + 3.34; printf "first loss %.2f, expected %.2f\n", loss, expected; exit !(loss - expected < 0.2 && expected - loss < 0.2) }'
