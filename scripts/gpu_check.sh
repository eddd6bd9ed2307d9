#!/usr/bin/env bash
# Build on a machine with a GPU, verify the CUDA backend there, and measure it. Needs nvcc, CMake, a C compiler and python3, PyTorch
# for the comparison, and no network. Other missing libraries come from scripts/gpu_bundle.sh.
# usage: scripts/gpu_check.sh [--only PART] [--out DIR] [--seconds N] [--total N] [--dry-run]
#   --only PART   ops      every op case on the GPU against the reference, in f32, bf16, f16; memory checker on a few
#                 model    inception_mini on Fashion-MNIST in f16: accuracy; inception_v3 against PyTorch in f16, bf16, TF32, f32: logits,
#                          loss, gradients, ten steps; then inception_mini in the other types, and on virtual towers
#                 bench    inception_v3, ours and eager PyTorch alternately, with plans searched before; device memory
#                 resume   a run that was stopped and went on against one that was not: the same bits
#                 compile  the same against PyTorch's compiler, which searches for minutes
#                 profile  time of every kind of operation against the device's limits
#                 nccl     2, 4 and 8 ranks that share one GPU: the bits of one process, how runs end, other numbers of processes (not in
#                          the default)
#                 scale    1, 2, 4 and 8 towers, a process and a GPU each: images per second, and that they learn
#                 (may be repeated; default: all, in this order)
#   --out DIR     folder for results: one JSON file per part, written as soon as results are known (default $OUT, else
#                 docs/results/gpu); also plans.txt, the fastest plan of every convolution, from which the next call begins, and
#                 build.log if the build fails
#   --seconds N   time limit of each part, without the build (default: a budget per part, at most 9 minutes)
#   --total N     seconds for everything, the build and the tables included: the parts in order of value, each with a share
#   --dry-run     build everything, print what would run, run nothing
# On a machine that is available for a few minutes at a time, run one part per call: the build and the plans are kept in
# $TOWERS_GPU_BUILD (default build-gpu). The tables of docs/results/gpu.md are made from the results; with --out they are written
# to DIR/gpu.md instead.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
root=$PWD out=${OUT:-docs/results/gpu} page=${OUT:+$OUT/gpu.md} seconds= total= dry=no parts=()
page=${page:-$PWD/docs/results/gpu.md}
while [ $# -gt 0 ]; do
    case $1 in
    --only) parts+=("${2:?--only needs a part}"); shift 2 ;;
    --out) out=${2:?--out needs a folder} page=; shift 2 ;;
    --seconds) seconds=${2:?--seconds needs a number}; shift 2 ;;
    --total) total=${2:?--total needs a number}; shift 2 ;;
    --dry-run) dry=yes; shift ;;
    -h | --help) sed -n '2,24s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "gpu_check: unknown option '$1' (see --help)" >&2; exit 2 ;;
    esac
done
[ ${#parts[@]} -gt 0 ] || if [ -n "$total" ]; then parts=(model bench resume ops profile scale compile); else parts=(ops model bench resume compile profile scale); fi
for part in "${parts[@]}"; do
    case $part in ops | model | bench | resume | compile | profile | scale | nccl) ;; *) echo "gpu_check: unknown part '$part'; use ops, model, bench, resume, compile, profile, scale or nccl" >&2; exit 2 ;; esac
done
for number in "--seconds=$seconds" "--total=$total"; do
    case ${number#*=} in *[!0-9]*) echo "gpu_check: ${number%%=*} expects a whole number (got '${number#*=}')" >&2; exit 2 ;; esac
done
[ "${total:-60}" -gt 20 ] || { echo "gpu_check: --total expects more than 20 seconds, which are kept for what follows the build (got $total)" >&2; exit 2; }
mkdir -p "$out"
out=$(cd "$out" && pwd)
page=${page:-$out/gpu.md}

# ---- build
bundle=$root/third_party/bundle
build=${TOWERS_GPU_BUILD:-$root/build-gpu}
# For the GPUs that are here: code for 8.0 runs on 8.9, but not on 9.0, whose driver would have to compile it, nor code for 9.0 on 8.0.
here=$(timeout 60 nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sed -nE 's/^7\.5$/75/p; s/^([89]|1[0-9])\.[0-9]+$/\10/p' | sort -nu | paste -sd ';')
settings=(-DTOWERS_CUDA=ON -DTOWERS_DNNL=OFF -DTOWERS_WERROR=OFF -DCMAKE_BUILD_TYPE=Release "-DTOWERS_CUDA_ARCHITECTURES=${TOWERS_GPU_ARCHITECTURES:-${here:-90}}")
# Part nccl lets ranks share a GPU and makes towers fail, which only builds with fault points can; what is measured has none.
case " ${parts[*]} " in *' nccl '*) settings+=(-DTOWERS_FAULTS=ON) ;; *) settings+=(-DTOWERS_FAULTS=OFF) ;; esac
if [ -d "$bundle" ]; then
    export PKG_CONFIG_PATH=$bundle/lib/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH} PATH=$PATH:$bundle/bin
    export LD_LIBRARY_PATH=$bundle/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    settings+=("-DCMAKE_PREFIX_PATH=$bundle")
fi
command -v ninja >/dev/null && settings+=(-G Ninja)
command -v pkg-config >/dev/null || settings+=("-DPKG_CONFIG_EXECUTABLE=$bundle/bin/bundle-pkg-config")
echo "== building in $build"
mkdir -p "$build"
limited() { # COMMAND...: what is built by the end of the time is kept
    local left=$((${total:-3620} - SECONDS - 20))
    timeout -k 5 "$((left > 1 ? left : 1))" "$@"
}
limited cmake -S "$root" -B "$build" "${settings[@]}" >"$build/log" 2>&1 &&
    limited cmake --build "$build" -j "$(nproc)" --target towers test_ops gpu_driver fidelity_driver >>"$build/log" 2>&1
status=$?
if [ $status -ne 0 ]; then
    cp "$build/log" "$out/build.log"
    [ $status -ne 124 ] || { echo "gpu_check: the build was cut off after $SECONDS s; the next call continues it in $build" >&2; exit 1; }
    grep -n -i -E -A 3 'error[: ]|not found|undefined reference' "$build/log" | head -n 40 >&2
    echo "..." >&2
    tail -n 20 "$build/log" >&2
    [ -d "$bundle" ] || echo "gpu_check: third_party/bundle does not exist; make it with scripts/gpu_bundle.sh on a machine that has the libraries" >&2
    echo "gpu_check: the build failed (log: $out/build.log)" >&2
    exit 1
fi
grep -A 4 '^-- Towers' "$build/log" | sed 's/^-- //'

echo "built after $SECONDS s"
check=("${PYTHON:-python3}" "$root/scripts/gpu_check.py" --build "$build" --data "$bundle/data" --out "$out" --page "$page" ${seconds:+--seconds "$seconds"})
if [ $dry = yes ]; then
    echo "== dry run: would run ${parts[*]}"
    "${check[@]}" --dry-run "${parts[@]}"
    exit $?
fi
timeout 120 "$build/tests/gpu_driver" describe # the first call reads the libraries, a gigabyte
status=$?
if [ $status -ne 0 ]; then
    [ $status -ne 124 ] || echo "gpu_check: the GPU was not opened within 120 s: see nvidia-smi and dmesg" >&2
    echo "gpu_check: no GPU can be used; --dry-run builds without one" >&2
    exit 5
fi
left=$((${total:-0} - SECONDS - 5))
[ -z "$total" ] || check+=(--total "$((left > 1 ? left : 1))")
XDG_CACHE_HOME=${XDG_CACHE_HOME:-$build/cache} exec "${check[@]}" "${parts[@]}"
