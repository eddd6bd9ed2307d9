#!/usr/bin/env bash
# Compare training on this machine's CPU with PyTorch eager: whole epochs of fashion_cnn and inception_mini on Fashion-MNIST, some
# steps of inception_v3 and googlenet on made-up images. All sides run in turn, in one call; medians, ranges and ratios go into
# docs/performance.md, every single run into docs/results/cpu.json. Runs during which other programs took the cores are marked.
# Cases can be run one by one (--only): the others keep their rows, each with its commit and date.
# usage: scripts/bench_cpu.sh [--quick] [--only CASE,...] [--repetitions N] [--steps N] [--no-profile] [--list]  (see bench_cpu.py)
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh build bench
if [ -z "${TOWERS:-}" ]; then
    scripts/build.sh build --preset cpu -DTOWERS_TESTS=OFF -- towers
    export TOWERS=build/towers
fi
exec /usr/bin/python3 scripts/bench_cpu.py "$@" # Debian's PyTorch belongs to Debian's Python
