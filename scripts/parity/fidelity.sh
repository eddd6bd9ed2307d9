#!/usr/bin/env bash
# Compare the networks with torchvision and timm: parameter counts, the first loss of the original recipe, and every logit, gradient
# and running statistic. Writes a table to standard output and docs/results/fidelity.md. See fidelity.py.
#   scripts/parity/fidelity.sh [BUILD_DIR] [counts] [loss] [export] [reference] [optimizers] [inception_v3] [inception_v3_tf2016]
#                       [googlenet] [inception_v4] [inception_resnet_v2] [resnet18] [resnet34] [resnet50]
#                       [resnet101] [mobilenet_v3_small] [mobilenet_v3_large] [efficientnet_b0] [efficientnet_lite0]
#                       [convnext_tiny] [inception_v2] [xception] [kinks] [training]
# Without names: everything, more than an hour on two cores. With names the table goes to standard output only. Without
# BUILD_DIR, build-test/ is brought up to date first. Needs the system's python3-torch and python3-torchvision; timm is installed
# once from PyPI into a virtual environment in the user's cache.
set -euo pipefail
cd "$(dirname "$0")/../.."

build=build-test
if [ $# -gt 0 ] && [ -d "$1" ]; then
    build=$1
    shift
fi
if [ "$build" = build-test ]; then
    scripts/setup.sh test
    scripts/build.sh "$build" --preset test -- towers fidelity_driver reference_driver optimizer_driver
fi
for program in towers tests/fidelity_driver tests/reference_driver tests/optimizer_driver; do
    if [ ! -x "$build/$program" ]; then
        echo "fidelity: $build/$program does not exist; build it, or omit the build folder" >&2
        exit 2
    fi
done

python=${TOWERS_SYSTEM_PYTHON:-/usr/bin/python3}
"$python" -c 'import torch, torchvision' 2>/dev/null || scripts/setup.sh bench
python=$(scripts/venv.sh timm --system-site-packages)

report=docs/results/fidelity.md
[ $# -eq 0 ] || report=/dev/null
export OPENBLAS_NUM_THREADS=1 GOMP_SPINCOUNT=1000
exec "$python" scripts/parity/fidelity.py "$build/tests/fidelity_driver" "$build/towers" "$report" "$@"
