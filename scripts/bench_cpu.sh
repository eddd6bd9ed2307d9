#!/usr/bin/env bash
# Compare training on this machine's CPU with PyTorch, eager and compiled, in both memory layouts, f32 and bf16, with DDP and with a
# tuned malloc: fashion_cnn and inception_mini on Fashion-MNIST, inception_v3 on synthetic images. All sides run alternately in one
# call. Medians, ranges and ratios are written to docs/results/cpu.md, the best of each to README.md, every single run to
# docs/results/cpu.json; on processors without AVX-512, which have no bf16 arithmetic, to tables and a file of their own. Runs disturbed by other programs are marked. Cases can be run separately (--only) and an interrupted
# comparison continued (--resume); each case records its commit, date and PyTorch version. 25 minutes on two idle cores.
# usage: scripts/bench_cpu.sh [--torch pip|debian] [--only CASE,...] [--all] [--resume] [--repetitions N] [--steps N] [--no-profile]
#                             [--list]        (see bench_cpu.py)
#   --torch pip      the newest PyTorch of PyPI (default), in a virtual environment in the user's cache; 3 GB, mostly GPU libraries
#                    that it does not load without. Remove ~/.cache/towers/torch to get a newer version
#   --torch debian   the system's package
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
    export TORCH_PYTHON=/usr/bin/python3 # Debian's PyTorch belongs to Debian's Python
    ;;
pip)
    scripts/setup.sh build peers
    venv=${XDG_CACHE_HOME:-$HOME/.cache}/towers/torch
    export TORCH_PYTHON=$venv/bin/python
    if ! "$TORCH_PYTHON" -c 'import torch, torchvision, numpy' 2>/dev/null; then
        echo "getting PyTorch from PyPI into $venv (3 GB)" >&2
        /usr/bin/python3 -m venv "$venv"
        "$TORCH_PYTHON" -m pip install -q torch torchvision numpy
    fi
    ;;
*) echo "bench_cpu: --torch is pip or debian, not '$torch'" >&2; exit 2 ;;
esac

if [ -z "${TOWERS:-}" ]; then
    scripts/build.sh build --preset cpu -DTOWERS_TESTS=OFF -- towers
    export TOWERS=build/towers
fi
exec /usr/bin/python3 scripts/bench_cpu.py "${more[@]}"
