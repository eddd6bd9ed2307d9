#!/usr/bin/env bash
# No CUDA kernel of our own spills registers or uses local memory, on any architecture. Skipped without nvcc.
set -u
bash "$1/scripts/cuda_kernel_table.sh" >/dev/null
status=$?
[ $status -ne 77 ] || echo "skipped: no nvcc"
exit $status
