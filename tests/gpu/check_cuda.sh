#!/usr/bin/env bash
# A build with the CUDA backend on a machine without a GPU: it starts, prints in one line what is missing, and trains on the CPU unless
# told otherwise; no start pays for cuBLASLt. Builds have code for all GPUs that run. Skipped in other builds and on other machines.
# usage: check_cuda.sh SOURCE_FOLDER BINARY
set -uo pipefail
towers=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export GOMP_SPINCOUNT=1000

fail() {
    echo "check_cuda: $*" >&2
    exit 1
}

# fault: F41
"$towers" train fashion_cnn --device cuda --dataset synthetic --max-steps 1 >out 2>err
code=$?
if grep -q 'no cuda backend' err; then
    echo "SKIPPED: this build has no CUDA backend" >&2
    exit 77
fi
[ $code -ne 0 ] || { echo "SKIPPED: there is a GPU here: scripts/gpu_check.sh tests it" >&2; exit 77; }
[ $code -eq 5 ] || fail "--device cuda without a GPU: exit code $code, wanted 5"
[ "$(wc -l <err)" -eq 1 ] || fail "--device cuda without a GPU: wanted one line, got: $(cat err)"
grep -q '^error: ' err || fail "no error line: $(cat err)"
[ ! -s out ] || fail "something on standard output: $(cat out)"
LD_TRACE_LOADED_OBJECTS=1 "$towers" | grep -q cublasLt && fail "a start loads cuBLASLt, which takes 100 ms and 100 MiB"

"$towers" doctor >out 2>err
grep -q 'cuda backend.*NVIDIA driver' out || fail "doctor does not say what the GPU lacks: $(cat out)"

if "$towers" train fashion_cnn --device cpu --dry-run --dataset synthetic >out 2>err; then
    "$towers" train fashion_cnn --dataset synthetic --epochs 1 --max-steps 1 --output-dir runs >out 2>err || fail "auto: $(cat err)"
    [ "$(grep -c 'running on the CPU: ' out err | awk -F: '{n += $2} END {print n}')" -eq 1 ] || fail "auto does not say once why it uses the CPU: $(cat out err)"
fi

cmake -S "$1" -B build -DTOWERS_CUDA=ON -DTOWERS_DNNL=OFF -DTOWERS_TESTS=OFF >out 2>&1 || fail "$(tail -n 20 out)"
new=' 100 120' # Blackwell
grep -qE 'CUDA 12\.[0-7],' out && new=''
grep -q "for sm 75 80$new 90\$" out || fail "a build lacks code: $(grep 'for sm' out)"
grep -rqF -- '-gencode=arch=compute_90,code=compute_90' build || fail "no PTX of 9.0, for other GPUs"

# Without a C++ compiler for nvcc a build ends before its first object.
cmake -S "$1" -B other -DTOWERS_CUDA=ON -DTOWERS_DNNL=OFF -DTOWERS_TESTS=OFF -DTOWERS_CUDA_HOST_COMPILER="$work/no-compiler" >out 2>&1 &&
    fail "configured without a C++ compiler"
tr -s ' \n' ' ' <out | grep -q 'install g++, or set TOWERS_CUDA_HOST_COMPILER' || fail "no word about the C++ compiler: $(cat out)"
echo "ok"
