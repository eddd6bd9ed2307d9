#!/usr/bin/env bash
# Compare training on this machine's CPU with PyTorch, eager and compiled, in both memory layouts, f32 and bf16, with DDP and with a
# tuned malloc: fashion_cnn and inception_mini on Fashion-MNIST, inception_v3 on synthetic images. All sides run alternately in one
# call. Medians, ranges and ratios are written to docs/results/cpu.md, the best of each to README.md, every single run to
# docs/results/cpu-PROCESSOR.json: each kind of processor has tables of its own, and those without AVX-512, which have no bf16
# arithmetic, none in README.md. Cases beside TensorFlow itself are measured on demand (--only tutorial,keras_v3,keras_v3_bf16). Runs disturbed by other programs are marked. Cases can be run separately (--only) and an interrupted
# comparison continued (--resume); each case records its commit, date and PyTorch version. 25 minutes on two idle cores.
# usage: scripts/measure/bench_cpu.sh [--torch pip|debian] [--only CASE,...] [--all] [--resume] [--repetitions N] [--steps N] [--no-profile]
#                             [--list]        (see bench_cpu.py)
#   --torch pip      PyTorch from PyPI (default) as scripts/requirements/torch.txt names it, in a virtual environment in the user's
#                    cache; 3 GB, mostly GPU libraries that it does not load without
#   --torch debian   the system's package
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/measure/peers.sh
case " ${more[*]} " in *tutorial* | *keras* | *--all*) TENSORFLOW_PYTHON=$(scripts/venv.sh tensorflow) && export TENSORFLOW_PYTHON ;; esac
exec /usr/bin/python3 scripts/measure/bench_cpu.py "${more[@]}"
