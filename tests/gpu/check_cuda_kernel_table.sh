#!/usr/bin/env bash
# No CUDA kernel of this project spills registers or uses local memory on the architectures of this build, and docs/results/cuda-kernels.md is
# up to date. Skipped without nvcc and in builds without CUDA. usage: check_cuda_kernel_table.sh SOURCE_FOLDER BINARY
set -u
logs=$(dirname "$2")/cuda
bash "$1/scripts/measure/cuda_kernel_table.sh" --logs "$logs"
status=$?
[ $status -eq 0 ] || exit $status

# A spill in a log is found.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$logs"/*.log "$work"
sed -i '0,/ 0 bytes spill stores/s// 8 bytes spill stores/' "$work/pool.log"
if bash "$1/scripts/measure/cuda_kernel_table.sh" --logs "$work" >"$work/out" 2>&1 || ! grep -q 'pool.cu .* 8 + 0 spilled' "$work/out"; then
    echo "check_cuda_kernel_table: a spill went unseen: $(cat "$work/out")" >&2
    exit 1
fi
cp "$logs/pool.log" "$work"
echo "ptxas info    : (C7512) Potential Performance Loss: wgmma.mma_async instructions are serialized" >>"$work/conv_wgmma_dw.log"
if bash "$1/scripts/measure/cuda_kernel_table.sh" --logs "$work" >"$work/out" 2>&1 || ! grep -q 'conv_wgmma_dw.cu: .* serialized' "$work/out"; then
    echo "check_cuda_kernel_table: products that wait for each other went unseen: $(cat "$work/out")" >&2
    exit 1
fi
cp "$logs/conv_wgmma_dw.log" "$work"
sed -i 's/max_pool_kernel/min_pool_kernel/; 0,/Used [0-9]*/s//Used 250/' "$work/pool.log"
if bash "$1/scripts/measure/cuda_kernel_table.sh" --logs "$work" >"$work/out" 2>&1; then
    grep -q "$(nvcc --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\),.*/by CUDA \1 /p')" "$1/docs/results/cuda-kernels.md" &&
        { echo "check_cuda_kernel_table: other kernels than on the page, and many registers, went unseen" >&2; exit 1; }
fi
echo "ok"
