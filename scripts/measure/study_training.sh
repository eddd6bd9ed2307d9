#!/usr/bin/env bash
# What smaller images first (--img-size-schedule) and stochastic weight averaging (SWA) gain, with three seeds each on one thread: runs what
# docs/results/training.json lacks, and writes the table of docs/results/training.md. The pictures are those of scripts/measure/train_photos.sh.
# usage: scripts/measure/study_training.sh [BINARY]
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/setup.sh python

binary=${1:-build/towers} results=docs/results/training.json
[ $# -gt 0 ] || { scripts/setup.sh build && scripts/build.sh build --preset cpu -DTOWERS_TESTS=OFF -- towers; }
scripts/measure/train_photos.sh --minutes 0 "$binary" # the pictures
python3 scripts/measure/study_training.py run "$binary" "${XDG_CACHE_HOME:-$HOME/.cache}/towers/photos" "$results"
python3 scripts/measure/study_training.py table "$results" | scripts/pages/fill_section.sh docs/results/training.md training
