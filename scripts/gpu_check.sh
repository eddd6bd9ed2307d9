#!/usr/bin/env bash
# Build on a machine with a GPU, verify the CUDA backend there, and measure it. Needs nvcc, CMake, a C compiler and python3, PyTorch
# for the comparison, and no network. Other missing libraries come from scripts/gpu_bundle.sh.
# usage: scripts/gpu_check.sh [--only PART] [--out DIR] [--seconds N] [--total N] [--continue PLACE] [--dry-run]
#   --only PART   bench    inception_v3 in bf16, its convolutions alone, its batch norms alone: speed, clock, power, what slows it down
#                 nccl     2, 4 and 8 ranks that share one GPU: the bits of one process, how runs end, other numbers of processes; in a
#                          build with fault points (three files know of them, none that computes)
#                 ops      op cases on the GPU against the reference, in f32, bf16, f16, those of the newest kernels first; memory checker
#                 profile  the time of every operation against the device's limits
#                 counters hardware counters of eight kernels, by Nsight Compute
#                 models   ResNet-50 and small networks, beside PyTorch's compiler, batch 256 and 400
#                 batches  other batches and types of inception_v3
#                 loss     its loss on ten batches, beside PyTorch's
#                 compile  inception_v3 beside PyTorch's compiler
#                 resume   a run that was stopped and went on against one that was not: the same bits
#                 model    inception_mini on Fashion-MNIST in f16: accuracy; inception_v3 against PyTorch in f16, bf16, TF32, f32: logits,
#                          loss, gradients, ten steps; then inception_mini in the other types, and on virtual towers
#                 scale    1, 2, 4 and 8 towers, a process and a GPU each: images per second, and that they learn
#                 (may be repeated; default: all, in this order; with --total: those before resume)
#   --out DIR     folder for results: one JSON file per part, written as soon as results are known (default docs/results/gpu; if $OUT is
#                 set, a folder beside the build, and the same files as $OUT/results.tar); also plans.txt, the fastest plan of every
#                 convolution, from which the next call begins, gpu.md, the tables, and build.log if the build fails
#   --seconds N   time limit of each part, without the build (default: 9 minutes)
#   --total N     seconds for everything, the build and the tables included: the parts in order of value, each with its own seconds
#                 (PLAN in gpu_check.py), what is left over to those that had too few
#   --continue PLACE  go on behind the results in this folder or results.tar, of the same commit and GPU: what is finished is not done
#                 again, also if the earlier call was killed; what was begun is
#   --dry-run     build everything, print what would run, with its seconds, run nothing
# On a machine that is rented by the minute: one call with --total, then others with --continue. The build, the plans and
# what PyTorch has compiled are kept in $TOWERS_GPU_BUILD (default build-gpu). The tables of docs/results/gpu.md are made from the results;
# with --out they are written to DIR/gpu.md instead.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
root=$PWD out= page= seconds= total= earlier= dry=no parts=()
build=${TOWERS_GPU_BUILD:-$root/build-gpu}
while [ $# -gt 0 ]; do
    case $1 in
    --only) parts+=("${2:?--only needs a part}"); shift 2 ;;
    --out) out=${2:?--out needs a folder}; shift 2 ;;
    --seconds) seconds=${2:?--seconds needs a number}; shift 2 ;;
    --total) total=${2:?--total needs a number}; shift 2 ;;
    --continue) earlier=${2:?--continue needs a folder or a file}; shift 2 ;;
    --dry-run) dry=yes; shift ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "gpu_check: unknown option '$1' (see --help)" >&2; exit 2 ;;
    esac
done
known=(bench nccl ops profile counters models batches loss compile resume model scale)
[ ${#parts[@]} -gt 0 ] || parts=("${known[@]:0:$([ -n "$total" ] && echo 9 || echo 12)}")
for part in "${parts[@]}"; do
    case " ${known[*]} " in *" $part "*) ;; *) echo "gpu_check: unknown part '$part'; use one of ${known[*]}" >&2; exit 2 ;; esac
done
[ -z "$earlier" ] || [ -e "$earlier" ] || { echo "gpu_check: --continue: $earlier does not exist" >&2; exit 2; }
for number in "--seconds=$seconds" "--total=$total"; do
    case ${number#*=} in *[!0-9]*) echo "gpu_check: ${number%%=*} expects a whole number (got '${number#*=}')" >&2; exit 2 ;; esac
done
[ "${total:-60}" -gt 20 ] || { echo "gpu_check: --total expects more than 20 seconds, which are kept for what follows the build (got $total)" >&2; exit 2; }
pack=
if [ -n "$out" ]; then
    page=$out/gpu.md
elif [ -n "${OUT:-}" ]; then # one file is easier to fetch
    out=$build/results pack=$OUT/results.tar page=$build/results/gpu.md
    mkdir -p "$OUT"
    if [ $dry = yes ] || { [ -n "$earlier" ] && [ -d "$earlier" ] && [ "$(realpath "$earlier")" = "$(realpath -m "$out")" ]; }; then :; else rm -rf "$out"; fi
else
    out=docs/results/gpu page=docs/results/gpu.md
fi
mkdir -p "$out"
out=$(cd "$out" && pwd) page=$(realpath -m "$page") earlier=${earlier:+$(realpath "$earlier")}

# ---- build
bundle=$root/third_party/bundle
# For the GPUs that are here: code for 8.0 runs on 8.9, but not on 9.0, whose driver would have to compile it, nor code for 9.0 on 8.0.
here=$(timeout 60 nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sed -nE 's/^7\.5$/75/p; s/^([89]|1[0-9])\.[0-9]+$/\10/p' | sort -nu | paste -sd ';')
settings=(-DTOWERS_CUDA=ON -DTOWERS_DNNL=OFF -DTOWERS_WERROR=OFF -DCMAKE_BUILD_TYPE=Release "-DTOWERS_CUDA_ARCHITECTURES=${TOWERS_GPU_ARCHITECTURES:-${here:-90}}")
# Part nccl lets ranks share a GPU and makes towers fail, which only builds with fault points can. What is measured is the same code: where
# they are, main.c, hooks.c and fault.c, nothing of a step is computed.
case " ${parts[*]} " in *' nccl '*) settings+=(-DTOWERS_FAULTS=ON) ;; *) settings+=(-DTOWERS_FAULTS=OFF) ;; esac
if [ -d "$bundle" ]; then
    export PKG_CONFIG_PATH=$bundle/lib/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH} PATH=$PATH:$bundle/bin
    export LD_LIBRARY_PATH=$bundle/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    settings+=("-DCMAKE_PREFIX_PATH=$bundle")
fi
command -v ninja >/dev/null && settings+=(-G Ninja)
command -v pkg-config >/dev/null || settings+=("-DPKG_CONFIG_EXECUTABLE=$bundle/bin/bundle-pkg-config")
newer=$bundle/nccl/libnccl.so.2
if [ -f "$newer.xz" ] && [ ! -f "$newer" ]; then
    "${PYTHON:-python3}" -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.argv[1]), open(sys.argv[2], "wb"), 1 << 24)' "$newer.xz" "$newer.new" && mv "$newer.new" "$newer" ||
        echo "gpu_check: $newer.xz cannot be unpacked: part nccl goes without a newer NCCL" >&2
fi
echo "== building in $build"
mkdir -p "$build"
limited() { # COMMAND...: what is built by the end of the time is kept
    local left=$((${total:-3620} - SECONDS - 20))
    timeout -k 5 "$((left > 1 ? left : 1))" "$@"
}
limited cmake -S "$root" -B "$build" "${settings[@]}" >"$build/log" 2>&1 &&
    limited cmake --build "$build" -j "$(nproc)" --target towers test_ops gpu_driver ops_driver fidelity_driver >>"$build/log" 2>&1
status=$?
if [ $status -ne 0 ]; then
    cp "$build/log" "$out/build.log"
    [ -z "$pack" ] || cp "$build/log" "$OUT/build.log"
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
check=("${PYTHON:-python3}" "$root/scripts/gpu_check.py" --build "$build" --data "$bundle/data" --out "$out" --page "$page" ${seconds:+--seconds "$seconds"} ${earlier:+--continue "$earlier"} ${pack:+--pack "$pack"})
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
