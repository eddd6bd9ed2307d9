#!/usr/bin/env bash
# 'towers export --int8': ONNX Runtime computes every layer in integers, with the accuracy of f32 within a percent and a file of a quarter
# of its size; weights and ranges are right to the rounding; the bytes do not depend on the cores; what it cannot do is refused.
. "$1/tests/support/check.sh"
needs_python
python_of onnx
small_data data 3000 1000 || exit $?

# ---- accuracy, size, and what ONNX Runtime makes of it
"$towers" train fashion_cnn --data-path data --epochs 6 --batch-size 32 --experiment cnn --quiet >/dev/null || complain "cnn"
"$towers" train inception_mini --data-path data --epochs 3 --batch-size 32 --experiment mini --quiet >/dev/null || complain "mini"
"$python" "$source_dir/scripts/parity/int8_accuracy.py" --json "$towers" data runs/cnn runs/mini >rows || complain "accuracy"
"$python" - rows <<'PYTHON' || complain "int8 beside f32"
import json, sys
wanted = {"fashion_cnn": {"QLinearConv": 2, "QGemm": 2}, "inception_mini": {"QLinearConv": 28, "QGemm": 1, "QLinearAveragePool": 4, "QLinearConcat": 4}}
rows = [json.loads(line) for line in open(sys.argv[1])]
assert [r["model"] for r in rows] == list(wanted), rows
for r in rows:
    print(r)
    assert r["f32"] > 0.7 and abs(r["f32"] - r["int8"]) <= 0.01 and 0.9 < r["same"], r
    assert 0.2 < r["bytes"][1] / r["bytes"][0] < 0.3, r
    assert all(r["kinds"].get(kind) == count for kind, count in wanted[r["model"]].items()), r
    assert r["kinds"]["QuantizeLinear"] == 1 and not {"Conv", "Gemm", "MaxPool", "AveragePool", "Relu"} & r["kinds"].keys(), r
PYTHON

# ---- the numbers: weights and biases to half a unit of their scales, the range of the first value that of the pixels
"$towers" export runs/cnn f32.onnx --quiet && "$towers" export runs/cnn int8.onnx --int8 >out || complain "export"
grep -q 'int8.onnx: ONNX of fashion_cnn in int8, 10 classes, from runs/cnn/best.safetensors, ranges from 500 images of data' out || complain "$(cat out)"
"$python" - <<'PYTHON' || complain "numbers"
import numpy as np, onnx
from onnx.numpy_helper import to_array
f32, int8 = (onnx.load(name).graph for name in ("f32.onnx", "int8.onnx"))
plain, made = ({t.name: to_array(t) for t in graph.initializer} for graph in (f32, int8))
assert not any(t.dtype == np.float32 and t.size > 1000 for t in made.values())
layers = [node for node in f32.node if node.op_type in ("Conv", "Gemm")]
by_output = {node.output[0]: node for node in int8.node}
for before, after in zip(layers, [node for node in int8.node if node.op_type in ("Conv", "Gemm")], strict=True):
    for k in (1, 2):
        q, scale = (made[name] for name in by_output[after.input[k]].input[:2])
        unit = scale.reshape(-1, *[1] * (q.ndim - 1)).astype(np.float64)
        assert q.dtype == (np.int8, np.int32)[k - 1] and (np.abs(q * unit - plain[before.input[k]]) <= unit * 0.50001).all(), before.name
        assert k == 2 or (np.abs(q).reshape(len(q), -1).max(1) == 127).all(), before.name
first = next(node for node in int8.node if node.op_type == "QuantizeLinear")
assert np.isclose(made[first.input[1]] * 255, 1) and made[first.input[2]] == 0 and made[first.input[2]].dtype == np.uint8, first
PYTHON

# ---- the same bytes on one core, of the file alone with the data, and of a run in bf16 whose weights are these
taskset -c "$(taskset -cp $$ | grep -o '[0-9]*$')" "$towers" export runs/cnn one.onnx --int8 --quiet && cmp one.onnx int8.onnx || complain "one core"
"$towers" export runs/cnn/best.safetensors file.onnx --int8 --data-path data --quiet && cmp file.onnx int8.onnx || complain "a file"
sed -i 's/^amp: false/amp: true/' runs/cnn/args.yaml; grep -q '^amp: true' runs/cnn/args.yaml || complain "no amp in args.yaml"
"$towers" export runs/cnn bf16.onnx --int8 --quiet && cmp bf16.onnx int8.onnx || complain "bf16"

# ---- of the run's fold the training images only: a sixth of 2700
"$towers" train fashion_cnn --data-path data --fold 1/10 --max-steps 2 --experiment fold --quiet >/dev/null || complain "fold"
"$towers" export runs/fold fold.onnx --int8 >out && grep -q 'ranges from 450 images' out || complain "fold: $(cat out)"

# ---- images are seen as the run evaluates them: without their white border; the loss is the run's
for n in {1..4}; do
    mkdir -p photos/{train,val}/$((n % 2))
    python3 -c "import sys; sys.stdout.buffer.write(b'P5\\n40 40\\n255\\n' + bytes(64 if 10 <= i // 40 < 30 and 10 <= i % 40 < 30 else 255 for i in range(1600)))" |
        tee photos/train/$((n % 2))/$n.pgm >photos/val/$((n % 2))/$n.pgm
done
"$towers" train fashion_cnn --data-path photos --eval-crop 0.5 --loss bce --max-steps 2 --recipe none --batch-size 2 --experiment border --quiet >/dev/null || complain "border"
"$towers" export runs/border border.onnx --int8 --quiet || complain "export of pictures"
"$python" - <<'PYTHON' || complain "the border is seen"
import onnx
from onnx.numpy_helper import to_array
graph = onnx.load("border.onnx").graph
scale = next(node for node in graph.node if node.op_type == "QuantizeLinear").input[1]
scale = next(to_array(t) for t in graph.initializer if t.name == scale)
assert abs(scale * 255 - 64 / 255) < 1e-3, scale * 255
PYTHON

# ---- a channel whose weights are almost 0 and whose bias is not: the bias fits into 32 bits, as the channel has a larger scale for it
python3 - runs/cnn/last.safetensors faint.safetensors <<'PYTHON'
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
size = struct.unpack_from("<Q", data)[0]
header = json.loads(data[8:8 + size])
for name, values in (("conv1.weight", 9 * [1e-9]), ("conv1.bias", [-3])):
    struct.pack_into(f"<{len(values)}f", data, 8 + size + header[name]["data_offsets"][0], *values)
open(sys.argv[2], "wb").write(data)
PYTHON
"$towers" export faint.safetensors faint.onnx --int8 --data-path data --quiet || complain "export of faint weights"
"$python" - <<'PYTHON' || complain "the bias of faint weights"
import onnx
from onnx.numpy_helper import to_array
graph = onnx.load("faint.onnx").graph
made = {t.name: to_array(t) for t in graph.initializer}
conv = next(node for node in graph.node if node.op_type == "Conv")
q, scale = (made[name] for name in next(node for node in graph.node if node.output[0] == conv.input[2]).input[:2])
assert abs(q[0] * float(scale.ravel()[0]) + 3) < 1e-6, (q[0], scale.ravel()[0])
PYTHON

# ---- what it cannot do
refused() { refuses '[1-9]' "$1" "$towers" export "${@:2}"; } # TEXT ARGUMENT...
refused "towers export --int8: expected a classifier as ONNX, found safetensors; name the file .onnx" runs/cnn x.safetensors --int8
refused "--int8 has no effect" wgan_gp x.onnx --int8 --weights runs/cnn
refused "--data-path has no effect without --int8" runs/cnn x.onnx --data-path data
python3 - runs/cnn/last.safetensors huge.safetensors <<'PYTHON' # all weights but biases: sums of both signs overflow to NaN
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
size = struct.unpack_from("<Q", data)[0]
for name, tensor in json.loads(data[8:8 + size]).items():
    if name.endswith(".weight"):
        for at in range(8 + size + tensor["data_offsets"][0], 8 + size + tensor["data_offsets"][1], 4):
            struct.pack_into("<f", data, at, 3e38 if at % 8 else -3e38)
open(sys.argv[2], "wb").write(data)
PYTHON
refused "computes numbers that are not finite" huge.safetensors x.onnx --int8 --data-path data
refuses 8 "'huge.safetensors' computes numbers that are not finite from 1000 of 1000 images, the first of them" "$towers" eval huge.safetensors --data-path data
[[ -s $out ]] && complain "scores of answers that are not finite: $(cat "$out")"
for format in "" --json --csv; do
    refuses 8 "'huge.safetensors' computes numbers that are not finite from photos/train/0/" "$towers" predict huge.safetensors photos/train $format
    grep -q '/' "$out" && complain "predictions that are not finite: $(cat "$out")"
done
refused "no data given: towers export finds" runs/cnn/best.safetensors x.onnx --int8
mv photos/train/1 photos/train/n02 && mv photos/val/1 photos/val/n02
"$towers" export runs/border/best.safetensors renamed.onnx --int8 --data-path photos >out 2>&1 || complain "other names: $(cat out)"
refused "data has 10 classes, but the network has 2; give the data of its training" runs/border/best.safetensors x.onnx --int8 --data-path data
mv data away
refused "data directory 'data': No such file or directory" runs/cnn x.onnx --int8
[ ! -e x.onnx ] || complain "a refused export wrote a file"
check_end "ONNX Runtime computes networks of towers export --int8 in integers, as exactly as wanted"
