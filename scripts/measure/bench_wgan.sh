#!/usr/bin/env bash
# Time one critic update of wgan_gp (batch 50, widths 16 and 64) on this machine's CPU beside TensorFlow and beside PyTorch, eager and
# compiled where double backward compiles, in both memory layouts. All sides run alternately in one call. Medians and ranges are written to
# docs/results/cpu.md. Four minutes on two idle cores.
# usage: scripts/measure/bench_wgan.sh [--torch pip|debian] [--repetitions N] [--updates N] [--widths 16,64] [--check] [--processor-time]
#   --torch pip      PyTorch from PyPI (default), in the virtual environment of scripts/measure/bench_cpu.sh
#   --torch debian   the system's package
#   --processor-time one thread on every side, and processor time instead of the clock's, for a machine with other work
#   --check          fail if Towers is not 2.5 times as fast at width 16 and 1.5 times at width 64
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/measure/peers.sh
TENSORFLOW_PYTHON=$(scripts/venv.sh tensorflow)
export TENSORFLOW_PYTHON
exec /usr/bin/python3 scripts/measure/bench_wgan.py "${more[@]}"
