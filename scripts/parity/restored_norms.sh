#!/usr/bin/env bash
# Train inception_mini for an epoch on 12,000 images of Fashion-MNIST, export it to ONNX with its batch norms, fold them away as other
# exporters do, and train two epochs more from each file, from the folded one also with --norms restore. Writes a table of
# docs/guide/your_network.md. Eight minutes on two cores.
# usage: scripts/parity/restored_norms.sh [BINARY]
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/measure/common.sh

towers=$(realpath "$(towers_of "${1:-}")") from=${FASHION_MNIST:-/usr/share/datasets/fashion-mnist} page=$PWD/docs/guide/your_network.md fill=$PWD/scripts/pages/fill_section.sh
commit=$(this_commit)
python=$(scripts/venv.sh onnx)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 - "$from" <<'PYTHON'
import gzip, os, struct, sys
os.mkdir("data")
for part, count in (("train", 12000), ("t10k", 10000)):
    for name, axes in ("images-idx3", 3), ("labels-idx1", 1):
        data = gzip.open(f"{sys.argv[1]}/{part}-{name}-ubyte.gz").read()
        bytes_each = 784 if axes == 3 else 1
        head = 4 + 4 * axes
        open(f"data/{part}-{name}-ubyte", "wb").write(data[:4] + struct.pack(">I", count) + data[8:head + count * bytes_each])
PYTHON

train() { # EXPERIMENT MODEL ARGUMENT...: prints the accuracy of its last epoch, or where it ended
    if "$towers" train "$2" --data-path data --recipe none --device cpu --no-amp --batch-size 64 --opt momentum --experiment "$1" --quiet "${@:3}" >&2 2>"$1.err"; then
        python3 -c 'import csv, sys; print("%.1f %%" % (100 * float(list(csv.DictReader(open(sys.argv[1])))[-1]["test_top1"])))' "runs/$1/results.csv"
    else
        grep -q 'not finite' "$1.err" || { cat "$1.err" >&2; return 1; }
        echo "not finite in step $(sed -n '1s/.*, step \([0-9]*\):.*/\1/p' "$1.err")"
    fi
}

train base inception_mini --epochs 1 --lr 0.1 >&2
"$towers" export runs/base/last.safetensors norms.onnx --quiet
"$python" - <<'PYTHON'
import numpy, onnx
from onnx import helper, numpy_helper
model = onnx.load("norms.onnx")
graph = model.graph
values = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
norms = {n.input[0]: n for n in graph.node if n.op_type == "BatchNormalization"}
for conv in [n for n in graph.node if n.op_type == "Conv" and n.output[0] in norms]:
    norm = norms.pop(conv.output[0])
    scale, shift, mean, var = (values[name] for name in norm.input[1:])
    epsilon = next(helper.get_attribute_value(a) for a in norm.attribute if a.name == "epsilon")
    factor = scale / numpy.sqrt(var + numpy.float32(epsilon))
    bias = values[conv.input[2]] if len(conv.input) > 2 else 0
    values[conv.input[1]] = values[conv.input[1]] * factor.reshape(-1, 1, 1, 1)
    values[f"{conv.name}.folded"] = (bias - mean) * factor + shift
    conv.input[2:] = [f"{conv.name}.folded"]
    conv.output[0] = norm.output[0]
    graph.node.remove(norm)
assert not norms, "a norm is not behind a convolution"
used = {name for n in graph.node for name in n.input}
del graph.initializer[:]
graph.initializer.extend(numpy_helper.from_array(value.astype(value.dtype), name) for name, value in values.items() if name in used)
onnx.checker.check_model(model, full_check=True)
onnx.save(model, "folded.onnx")
PYTHON

row() { # WORDS ARGUMENT...: a training with each rate
    local fast slow
    fast=$(train "fast-$rows" "${@:2}" --epochs 2 --lr 0.1)
    slow=$(train "slow-$rows" "${@:2}" --epochs 2 --lr 0.01)
    rows=$((rows + 1))
    echo "| $1 | $fast | $slow |" >>table
}
rows=0
printf '%s\n' "$commit:" '' "| the file | \`--lr 0.1\` | \`--lr 0.01\` |" '|---|---|---|' >table
row "with its norms" norms.onnx
row "folded" folded.onnx
row "folded, \`--norms restore\`" folded.onnx --norms restore
cat table >&2
"$fill" "$page" norms <table
