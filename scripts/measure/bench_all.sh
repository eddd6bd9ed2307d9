#!/usr/bin/env bash
# Every comparison of speed and memory with other programs on this machine's CPU, one after the other, and the table that shows the
# kinds of processors side by side (bench_processors.py). Each writes where its own script says. About an hour on two idle cores; what
# was measured at this commit is not repeated by bench_cpu.sh, so an interrupted call can be continued.
# usage: scripts/measure/bench_all.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -eq 0 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }

cases=fashion_cnn,inception_mini,inception_v3_16,tutorial
! grep -qwE 'avx512_bf16|amx_bf16' /proc/cpuinfo || cases+=,inception_v3_16_bf16
scripts/measure/bench_cpu.sh --resume --only "$cases"
scripts/measure/bench_inference.sh
scripts/measure/bench_memory.sh
scripts/measure/bench_wgan.sh
scripts/measure/bench_data.sh
scripts/measure/bench_processors.py
