#!/usr/bin/env bash
# Time a training step and a forward pass of every network for photographs, and of twelve that come from torchvision as ONNX files, in f32
# and bf16, beside PyTorch from PyPI (eager and compiled, both layouts, the best again with jemalloc), ONNX Runtime and OpenVINO. Writes
# docs/results/models.md and every single run to docs/results/models-PROCESSOR.json. Each row names its commit and its date, and rows that
# are not measured keep what they had, so it can be called for a few at a time. About three minutes for a kind of a network on two idle
# cores, less with --seconds 2.
# usage: scripts/measure/bench_models.sh [--torch pip|debian] [--only NETWORK,...|files] [--kinds KIND,...] [--missing] [--repetitions N]
#        [--seconds S] [--list]
#        (see bench_models.py)
#        scripts/measure/bench_models.sh --gpu [--continue PLACE]      ResNet-50 and small networks on a GPU, in bf16, beside PyTorch's
#        compiler, at 256 and 400 images: part models of scripts/gpu_check.sh, whose options follow; writes docs/results/gpu.md
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "${1:-}" != --gpu ] || exec scripts/gpu_check.sh --only models "${@:2}"
. scripts/measure/peers.sh
ONNX_PYTHON=$(scripts/venv.sh onnx) OPENVINO_PYTHON=$(scripts/venv.sh openvino) TRAINERS_PYTHON=$(scripts/venv.sh trainers)
export ONNX_PYTHON OPENVINO_PYTHON TRAINERS_PYTHON
exec /usr/bin/python3 scripts/measure/bench_models.py "${more[@]}"
