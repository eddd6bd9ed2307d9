#!/usr/bin/env bash
# All C code of the CUDA backend compiles against the oldest headers that docs/building.md promises and the newest that were tried, and the NCCL
# communicator against each version at which the code asks for another one. Needs no CUDA toolkit, but PyPI: tests/support/wheel_headers.py
# takes the headers out of NVIDIA's wheels.
# usage: check_gpu_headers.sh SOURCE_FOLDER BINARY
. "$1/tests/support/check.sh"
needs_python
kept=${HOME:-/root}/.cache/towers/headers
mkdir -p "$kept"
cc=${CC:-cc} tried=0

oldest=(nvidia-cuda-runtime-cu12==12.0.107 nvidia-cuda-nvcc-cu12==12.0.76 nvidia-cublas-cu12==12.0.1.189 nvidia-cudnn-cu12==9.0.0.312 nvidia-nccl-cu12==2.18.1)
newest=(nvidia-cuda-runtime==13.5.37 nvidia-cuda-crt==13.5.37 nvidia-cublas==13.10.0.20 nvidia-cudnn-cu13==9.28.1.4 nvidia-nccl-cu13==2.32.3)
# Each is the first whose header has, or the last that lacks, what an #if of nccl_sync asks for.
nccl=(2.18.3 2.19.3 2.22.3 2.23.4 2.24.3 2.26.5 2.27.3 2.29.7)

# compiles WHAT FILES... -- WHEELS...: the C files, with warnings as errors
compiles() {
    local what=$1 files=() include=() file folder
    shift
    while [ "$1" != -- ]; do files+=("$1") && shift; done
    folders=$(python3 "$source_dir/tests/support/wheel_headers.py" "$kept" "${@:2}" 2>"$err") ||
        { left_out "headers of $what: pip cannot get NVIDIA's wheels"; return; }
    while read -r folder; do include+=(-isystem "$folder"); done <<<"$folders"
    for file in "${files[@]}"; do
        "$cc" -std=gnu11 -fsyntax-only -Wall -Wextra -Wno-missing-field-initializers -Werror -D_GNU_SOURCE -DTOWERS_HAVE_CUDA=1 \
            -DTOWERS_HAVE_CPU=1 -I"$source_dir" "${include[@]}" "$source_dir/$file" 2>"$err" ||
            complain "$file does not compile with $what: $(grep -m 1 error "$err")"
    done
    tried=$((tried + 1))
}

communicator=("$source_dir"/nccl_sync/comm_nccl*.c)
communicator=("${communicator[@]#"$source_dir/"}")
backend=("$source_dir"/kernels/cuda/*.c "$source_dir"/kernels/cuda/*/*.c)
backend=("${backend[@]#"$source_dir/"}" "${communicator[@]}")
[ ${#backend[@]} -gt 20 ] || complain "wanted the C files of kernels/cuda and nccl_sync, found ${#backend[@]}"

compiles "the oldest CUDA, cuDNN and NCCL" "${backend[@]}" -- "${oldest[@]}"
compiles "the newest CUDA, cuDNN and NCCL" "${backend[@]}" -- "${newest[@]}"
for version in "${nccl[@]}"; do
    compiles "NCCL $version" "${communicator[@]}" -- "${oldest[@]:0:4}" "nvidia-nccl-cu12==$version"
done
[ $tried -gt 0 ] || exit 77
check_end "the CUDA backend compiles with $tried sets of headers"
