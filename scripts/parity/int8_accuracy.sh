#!/usr/bin/env bash
# Train two networks on Fashion-MNIST and compare their accuracy in int8 with f32: the table of docs/guide/elsewhere.md. Two minutes on two
# cores.
# usage: scripts/parity/int8_accuracy.sh [BINARY]
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/measure/common.sh

towers=$(towers_of "${1:-}")
python=$(scripts/venv.sh onnx)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for model in fashion_cnn inception_mini; do
    "$towers" train $model --epochs 2 --device cpu --output-dir "$work" --experiment $model --quiet >&2
done
"$python" scripts/parity/int8_accuracy.py "$towers" "${FASHION_MNIST:-/usr/share/datasets/fashion-mnist}" "$work"/{fashion_cnn,inception_mini} |
    tee /dev/stderr | scripts/pages/fill_section.sh docs/guide/elsewhere.md int8
