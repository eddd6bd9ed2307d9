#!/usr/bin/env bash
# Real photographs, from files to a confusion matrix: inception_v3 learns from random weights to tell 821 defective solar cells from
# 1,803 functional ones (PyPI package elpv-dataset, pictures CC BY-NC-SA 4.0: fetched into the user's cache, and no part of this
# project), at 149x149 from JPEG files, with the recipe `photos`; beside it what PyTorch makes of the same recipe and the same split.
# A seed takes at most 20 minutes on two idle cores. The table goes to standard output and into docs/recipes.md; every run into
# docs/results/photos.json, where those of PyTorch stay until they are made again.
# usage: scripts/train_photos.sh [--torch] [--seeds 1,2,3] [--epochs N] [--steps N] [BINARY]
#   --torch     trains PyTorch's side (the newest of PyPI, in an environment in the user's cache; 3 GB) instead of ours
#   --epochs N  of both sides (default: 10; the recipe itself says 30)
#   --steps N   ends after N steps, to try it out; the results are printed and not kept
set -euo pipefail
cd "$(dirname "$0")/.."

side=towers seeds=1,2,3 epochs=10 steps=0 binary=
while [ $# -gt 0 ]; do
    case $1 in
    --torch) side=torch ;;
    --seeds | --epochs | --steps) [ $# -gt 1 ] || { echo "train_photos: $1 needs a value" >&2; exit 2; }; declare "${1#--}=$2"; shift ;;
    -*) sed -n '/^# usage/,/^set/p' "$0" | grep '^#' >&2; exit 2 ;;
    *) binary=$1 ;;
    esac
    shift
done

cache=${XDG_CACHE_HOME:-$HOME/.cache}/towers
results=docs/results/photos.json
bf16=()
grep -qwE 'avx512_bf16|amx_bf16' /proc/cpuinfo && bf16=(--bf16)

# The package as it is on PyPI, and Pillow beside it, which makes JPEG files of its PNG files.
photos=$cache/photos/elpv
if [ ! -e "$photos/made" ]; then
    scripts/setup.sh peers
    python=$(scripts/venv.sh elpv)
    rm -rf "$photos"
    "$python" scripts/train_photos.py folder "$(echo "$cache"/elpv/lib/python3*/site-packages)" "$photos"
    touch "$photos/made"
fi

if [ $side = torch ]; then
    scripts/setup.sh peers
    python=$(scripts/venv.sh torch)
    train=("$python" scripts/train_photos.py torch "$photos")
else
    if [ -z "$binary" ]; then
        scripts/setup.sh build
        scripts/build.sh build --preset cpu -DTOWERS_TESTS=OFF -- towers
        binary=build/towers
    fi
    train=(/usr/bin/python3 scripts/train_photos.py towers "$binary" "$photos")
fi

for seed in ${seeds//,/ }; do
    run=$("${train[@]}" --seed "$seed" --epochs "$epochs" --steps "$steps" "${bf16[@]}")
    echo "$run"
    [ "$steps" != 0 ] || /usr/bin/python3 scripts/train_photos.py keep "$results" <<<"$run"
done
[ "$steps" = 0 ] || exit 0
same=0
table=$(/usr/bin/python3 scripts/train_photos.py table "$results") || same=1
echo "$table" | tee /dev/stderr | scripts/fill_section.sh docs/recipes.md photos
exit $same
