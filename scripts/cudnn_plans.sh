#!/usr/bin/env bash
# Write docs/results/cudnn-plans.md: which kernels cuDNN has for which convolutions, determined on this machine without a GPU.
# usage: scripts/cudnn_plans.sh BUILD_FOLDER   (a build with CUDA and tests)
set -euo pipefail
cd "$(dirname "$0")/.."
test=${1:?usage: scripts/cudnn_plans.sh BUILD_FOLDER}/tests/test_cudnn_plans
[ -x "$test" ] || { echo "cudnn_plans: $test does not exist; build with -DTOWERS_CUDA=ON" >&2; exit 2; }
table=$(mktemp)
trap 'rm -f "$table"' EXIT
TOWERS_PLANS_TABLE=$table "$test" >"$table.log" 2>&1 || { cat "$table.log" >&2; exit 1; }
rm -f "$table.log"
version=$(cmake -L -N "${1}" 2>/dev/null | sed -n 's/^CUDNN_INCLUDE_DIR:PATH=//p')
version=$(sed -n 's/^#define CUDNN_\(MAJOR\|MINOR\|PATCHLEVEL\) *\([0-9]*\).*/\2/p' "${version:-$CUDA_HOME/include}/cudnn_version.h" | paste -sd.)
{
    cat <<TEXT
# Which convolutions cuDNN has a kernel for

Made by \`scripts/cudnn_plans.sh\` with cuDNN $version, which builds plans for a GPU from its description: no GPU was
used, and nothing here says how fast a plan is. \`tests/gpu/test_cudnn_plans.c\` asks the same and fails if a convolution loses a plan.
Only engines that are compiled in advance and not marked as nondeterministic are counted.

- *forward*, *data*, *filter*: a convolution and its two gradients. These are what the trainer runs.
- *statistics*: convolution with the sums that batch normalization needs in its epilogue (\`--fuse ii-s\`).
- *apply+statistics*: the same, with the normalization and ReLU of its input in its prologue (\`--fuse iii-h\`).
- *data+sums*: gradient of the input with the ReLU's mask and the sums of batch normalization's gradient (\`iii-h\`).
- *apply+filter*: gradient of the weights, with the normalization and ReLU of its input in its prologue (\`iii-h\`).

The joined forms need f16; in bf16 cuDNN has none for Inception v3 on the H200, and was not asked elsewhere. The first convolution has no gradient of
its input and no normalization before it, so it counts only where it applies. Strides are those of the trained graph:
normalized inputs that are slices of a joined convolution's output keep their pitch. The image's channels are padded to
8. *As written* is the model without the joining of sibling convolutions.

| model | batch | GPU | type | convolutions | forward | data | filter | statistics | apply+statistics | data+sums | apply+filter |
|---|---|---|---|---|---|---|---|---|---|---|---|
TEXT
    grep -v '^step' "$table"
    cat <<'TEXT'

## What a training step joins

The joined ops that `--fuse auto` makes of each model (siblings joined, pools moved), each asked for with the strides
that the memory plan gives it.

| model | batch | GPU | type | convolutions | with sums | that normalize their input | gradients with sums |
|---|---|---|---|---|---|---|---|
TEXT
    sed -n 's/^step//p' "$table"
    cat <<'TEXT'

What is missing, and what runs instead:

- bf16, all joined forms: the separate kernels (convolution, then statistics, then apply).
- B200, *statistics* and *apply+statistics*: the separate kernels. All that cuDNN has of the first are marked as nondeterministic.
- GoogLeNet's first convolution (7x7, stride 2), *statistics*: the separate statistics kernel.

That a plan exists is one thing, that it is faster another: on a GPU each joined op is timed against the separate
kernels at its first start, and the winner runs.

The deterministic plans of the plain forms, and the gradient of the input that adds to what is there, exist for every
convolution of Inception v3 on the H200 (tested, not listed).
TEXT
} >docs/results/cudnn-plans.md
echo "wrote docs/results/cudnn-plans.md"
