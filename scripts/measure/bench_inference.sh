#!/usr/bin/env bash
# Compare forward passes on this machine's CPU, in f32, with ONNX Runtime and OpenVINO (both on files of `towers export`) and with
# PyTorch, eager in inference_mode and compiled with frozen weights: inception_v3 at 299x299 and inception_mini. All sides run
# alternately in one call. Medians, ranges and ratios are written to docs/results/cpu.md, every single run to
# docs/results/inference.json. Eight minutes on two idle cores.
# usage: scripts/measure/bench_inference.sh [--torch pip|debian] [--only CASE,...] [--repetitions N] [--list]     (see bench_inference.py)
#   --torch pip      PyTorch from PyPI (default), in the virtual environment of scripts/measure/bench_cpu.sh
#   --torch debian   the system's package
# The other peers are installed into virtual environments in the user's cache, as scripts/requirements/ names them.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/measure/peers.sh
ONNX_PYTHON=$(scripts/venv.sh onnx) OPENVINO_PYTHON=$(scripts/venv.sh openvino)
export ONNX_PYTHON OPENVINO_PYTHON
exec /usr/bin/python3 scripts/measure/bench_inference.py "${more[@]}"
