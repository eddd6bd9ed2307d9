#!/usr/bin/env bash
# Train to an accuracy beside PyTorch and TensorFlow from PyPI, on the same cores: inception_mini with the recipe `mini` beside PyTorch,
# eager and compiled, in f32 and bf16; fashion_cnn beside TensorFlow with the tutorial's loop, and with the fastest recipe that was found
# for both. Sides take turns, seed by seed; each run is kept in docs/results/accuracy-PROCESSOR.json, so that a killed comparison goes on.
# Writes docs/results/accuracy.md and its picture. 50 minutes on two idle cores.
# usage: scripts/measure/time_to_accuracy.sh [--torch pip|debian] [--only mini,tutorial,cycle] [--seeds N] [--minutes N] [--processor-time] [--table]
#   --minutes N       begins no run after N minutes
#   --processor-time  one thread on every side, and processor time instead of the clock's, for a machine with other work
#   --table           writes page and picture of the runs that are there
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/measure/peers.sh
TENSORFLOW_PYTHON=$(scripts/venv.sh tensorflow)
export TENSORFLOW_PYTHON
exec /usr/bin/python3 scripts/measure/time_to_accuracy.py "${more[@]}"
