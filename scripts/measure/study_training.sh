#!/usr/bin/env bash
# What smaller images first (--img-size-schedule) and stochastic weight averaging (SWA) gain, with three seeds each on one thread: runs what
# docs/results/training.json lacks, and writes the table of docs/results/training.md. The pictures are those of scripts/measure/train_photos.sh.
# usage: scripts/measure/study_training.sh [BINARY]
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/measure/common.sh
scripts/setup.sh python

binary=$(towers_of "${1:-}") results=docs/results/training.json
scripts/measure/train_photos.sh --minutes 0 "$binary" # the pictures
python3 scripts/measure/study_training.py run "$binary" "${XDG_CACHE_HOME:-$HOME/.cache}/towers/photos" "$results"
python3 scripts/measure/study_training.py table "$results" | scripts/pages/fill_section.sh docs/results/training.md training
