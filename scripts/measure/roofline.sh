#!/usr/bin/env bash
# Write docs/results/roofline.md: what a training step of inception_v3 costs a described GPU at its practical limits, from the op
# list and the plan of the program itself. No GPU is used, and nothing is computed.
#   scripts/measure/roofline.sh BUILD                 write the page; BUILD: with tests (build-test)
#   scripts/measure/roofline.sh BUILD --check         fail if the page says something else
#   scripts/measure/roofline.sh BUILD NAME=VALUE...   one table on standard output; names: tests/support/drivers/roofline_driver.c
set -euo pipefail
driver=${1:?usage: scripts/measure/roofline.sh BUILD [--check | NAME=VALUE...]}/tests/roofline_driver
[ -x "$driver" ] || { echo "roofline: $driver does not exist; build it (cmake --build $1 --target roofline_driver)" >&2; exit 2; }
page=$(dirname "$0")/../../docs/results/roofline.md
made=$(mktemp)
trap 'rm -f "$made"' EXIT

groups() {
    echo "| layers | launches | MB an image | GFLOP an image | ms | % |"
    echo "|---|---:|---:|---:|---:|---:|"
    "$driver" "$@"
}

if [ $# -gt 1 ] && [ "$2" != --check ]; then
    groups "${@:2}"
    exit
fi

{
    cat <<'TEXT'
# What a training step costs a GPU

Written by `scripts/measure/roofline.sh` from the op list that the program makes, joins and plans for a GPU; no GPU was used. A kernel reads each
operand from memory once and writes each result once, and takes the time of its bytes or of its products, whichever is longer, and
2 us. An H200 copies 4.3 TB/s and multiplies 790 TFLOP/s in bf16 (both read on one); kernels are taken to reach 85 % of the first
and 70 % of the second, with products in tiles of 64 rows and columns. Max pools normalize their input, as if that were always faster.
Gradients of weights are cast to f32 where cuDNN computes them from 16 bits, but not where a convolution is a product alone, which
cuBLASLt writes in f32. The update of the weights, the sum over towers and the input are not included. So this is not a measurement: it
shows where the bytes go, and what a change of the op list saves.

`tests/cli/check_roofline.sh` fails if a change moves any of these numbers; `scripts/measure/roofline.sh BUILD gpu=H100 n=64 model=resnet50`
prints another table.

## inception_v3, 299x299, auxiliary head, on an H200

| type | batch | launches | casts of gradients | their ms | MB an image | ms | images/s | MB an image in memory |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
TEXT
    for row in "f16 256" "f16 64" "bf16 256" "bf16 64" "f32 256"; do
        read -r dtype batch <<<"$row"
        echo "| $dtype | $batch | $("$driver" dtype="$dtype" n="$batch" print=total) |"
    done
    printf '\n## Layer by layer, 16 bits, batch 256\n\n'
    groups
} >"$made"

if [ "${2:-}" = --check ]; then
    diff "$page" "$made" && exit
    echo "roofline: the step costs something else than docs/results/roofline.md says (<); if that is meant: scripts/measure/roofline.sh $1" >&2
    exit 1
fi
cp "$made" "$page"
echo "wrote docs/results/roofline.md"
