#!/usr/bin/env bash
# Time one critic update of wgan_gp (batch 50, widths 16 and 64) on this machine's CPU beside PyTorch, eager and compiled where
# double backward compiles, in both memory layouts. All sides run alternately in one call. Medians and ranges are written to
# docs/results/cpu.md. Four minutes on two idle cores.
# usage: scripts/bench_wgan.sh [--torch pip|debian] [--repetitions N] [--updates N] [--widths 16,64] [--check] [--processor-time]
#   --torch pip      the newest PyTorch of PyPI (default), in the virtual environment of scripts/bench_cpu.sh
#   --torch debian   the system's package
#   --processor-time one thread on every side, and processor time instead of the clock's, for a machine with other work
#   --check          fail if Towers is not 2.5 times as fast at width 16 and 1.5 times at width 64
set -euo pipefail
cd "$(dirname "$0")/.."

torch=pip more=()
while [ $# -gt 0 ]; do
    case $1 in
    --torch) torch=${2:-} && shift ;;
    --torch=*) torch=${1#*=} ;;
    *) more+=("$1") ;;
    esac
    shift
done
case $torch in
debian)
    scripts/setup.sh build bench
    export TORCH_PYTHON=/usr/bin/python3
    ;;
pip)
    venv=${XDG_CACHE_HOME:-$HOME/.cache}/towers/torch
    export TORCH_PYTHON=$venv/bin/python
    "$TORCH_PYTHON" -c 'import torch, numpy' 2>/dev/null || {
        echo "getting PyTorch from PyPI into $venv (3 GB)" >&2
        /usr/bin/python3 -m venv "$venv"
        "$TORCH_PYTHON" -m pip install -q torch torchvision numpy
    }
    ;;
*) echo "bench_wgan: --torch is pip or debian, not '$torch'" >&2; exit 2 ;;
esac

if [ -z "${TOWERS:-}" ]; then
    scripts/build.sh build --preset cpu -DTOWERS_TESTS=OFF -- towers
    export TOWERS=build/towers
fi
exec /usr/bin/python3 scripts/bench_wgan.py "${more[@]}"
