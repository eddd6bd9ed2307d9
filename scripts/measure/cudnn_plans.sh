#!/usr/bin/env bash
# Write docs/results/cudnn-plans.md: which kernels cuDNN has for which convolutions, determined on this machine without a GPU.
# usage: scripts/measure/cudnn_plans.sh BUILD_FOLDER [CUDNN_FOLDER...]
# A build with CUDA and tests; further versions of cuDNN, each a folder with its libcudnn.so.9, are asked whether a step starts.
# Versions that need the driver's libcuda.so.1 (9.28) take CUDA's stub of it.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/setup.sh python
test=${1:?usage: scripts/measure/cudnn_plans.sh BUILD_FOLDER [CUDNN_FOLDER...]}/tests/test_cudnn_plans
[ -x "$test" ] || { echo "cudnn_plans: $test does not exist; build with -DTOWERS_CUDA=ON" >&2; exit 2; }
cuda=$(sed -n 's/^CUDNN_INCLUDE_DIR:PATH=//p' "$1/CMakeCache.txt")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ln -s "$(find -L "$cuda/.." -name libcuda.so -path '*stubs*' | head -n 1)" "$work/libcuda.so.1"

# ask NUMBER FOLDER: the version of a library, and its rows
ask() {
    export LD_LIBRARY_PATH=$2
    python3 -c 'import ctypes; v = ctypes.CDLL("libcudnn.so.9").cudnnGetVersion(); print(f"{v // 10000}.{v // 100 % 100}.{v % 100}")' >"$work/$1.version"
    [ "$1" = 0 ] || export LD_LIBRARY_PATH=$2:$work TOWERS_TEST_ONLY=test_steps_start
    TOWERS_PLANS_TABLE=$work/$1.table "$test" >"$work/$1.log" 2>&1 || { cat "$work/$1.log" >&2; return 1; }
}
folders=("$cuda/../lib" "${@:2}")
for i in "${!folders[@]}"; do
    ask "$i" "${folders[i]}" &
    asked+=($!)
done
for process in "${asked[@]}"; do wait "$process"; done
version=$(cat "$work/0.version")
table=$work/0.table
{
    cat <<TEXT
# Which convolutions cuDNN has a kernel for

Made by \`scripts/measure/cudnn_plans.sh\` with cuDNN $version, which builds plans for a GPU from its description: no GPU was
used, and nothing here says how fast a plan is. \`tests/gpu/test_cudnn_plans.c\` asks the same and fails if a convolution loses a plan.
Only engines that are compiled in advance and not marked as nondeterministic are counted.

*Forward*, *data*, *filter*: a convolution and its two gradients. The first convolution has no gradient of its input. The image's
channels are padded to 8. *As written* is the model without the joining of sibling convolutions.

| model | batch | GPU | type | convolutions | forward | data | filter |
|---|---|---|---|---|---|---|---|
TEXT
    grep '^|' "$table"
    cat <<'TEXT'

## Does a step start

Every operation that a step at batch 256 needs a plan for: convolutions and matrix products, forward and both gradients, as they lie in
memory, by the rules of a run (f32 without tensor cores, the same bits every time). *all*: each has a plan of an engine that
comes compiled. *slow*: so many have only engines that compile at the start or need more than 512 MiB; *without*: so many have none,
and a run ends at its start. For products and convolutions by a pixel a run asks cuBLASLt first, which describes no device; that
cuDNN has a plan for each is enough.
TEXT
    for i in "${!folders[@]}"; do
        grep ^start "$work/$i.table" >"$work/$i.start"
        first=0
        while ! cmp -s "$work/$first.start" "$work/$i.start"; do first=$((first + 1)); done
        names[first]+=${names[first]:+, }$(cat "$work/$i.version")
    done
    for i in "${!names[@]}"; do
        printf '\ncuDNN %s:\n\n| model | type | operations | A100 | H100 | H200 | B200 | L40S |\n|---|---|---|---|---|---|---|---|\n' "${names[i]}"
        sed 's/^start//' "$work/$i.start"
    done
    cat <<'TEXT'

The deterministic plans, and the gradient of the input that adds to what is there, exist for every convolution of Inception v3
on the H200 (tested, not listed).
TEXT
} >docs/results/cudnn-plans.md
echo "wrote docs/results/cudnn-plans.md"
