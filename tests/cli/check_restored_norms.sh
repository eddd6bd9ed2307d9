#!/usr/bin/env bash
# --norms restore: a network whose exporter has folded its batch norms gets them back. It computes what it did, to rounding; its norms have
# the mean and variance of what convolutions compute from the training images; towers, processes, kills and resumes change no
# bit; what follows the run knows the norms. What has no meaning is refused.
. "$1/tests/support/check.sh"
. "$source_dir/tests/support/hosts.sh"
needs_python
small_data data 600 100 || exit 77
needs_faults data
python_of onnx

# A stem, squeeze and excitation, a depthwise and a residual branch, one channel of zeros: as folding leaves them.
"$python" - <<'PYTHON'
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper
random = np.random.default_rng(1)
values, nodes = {}, []

def conv(name, x, y, *shape, bias=True, **attributes):
    values[f"{name}.weight"] = (random.standard_normal(shape) * (2 / np.prod(shape[1:])) ** 0.5).astype(np.float32)
    if bias:
        values[f"{name}.bias"] = (random.standard_normal(shape[0]) / 2).astype(np.float32)
    inputs = [x, f"{name}.weight"] + [f"{name}.bias"] * bias
    nodes.append(helper.make_node("Conv", inputs, [y], name, kernel_shape=shape[2:], pads=[shape[2] // 2] * 4, **attributes))

def node(kind, x, y, **attributes):
    nodes.append(helper.make_node(kind, x.split(), [y], **attributes))

conv("stem", "x", "a", 8, 1, 3, 3)
values["stem.weight"][2] = 0
node("Relu", "a", "b"); node("MaxPool", "b", "c", kernel_shape=[2, 2], strides=[2, 2])
node("GlobalAveragePool", "c", "d"); conv("se.down", "d", "e", 4, 8, 1, 1); node("Relu", "e", "f"); conv("se.up", "f", "g", 8, 4, 1, 1)
node("Sigmoid", "g", "h"); node("Mul", "h c", "i")
conv("deep", "i", "j", 8, 1, 3, 3, group=8); node("Relu", "j", "k")
conv("plain", "k", "l", 8, 8, 1, 1, bias=False)
conv("point", "l", "m", 8, 8, 1, 1); node("Add", "i m", "n"); node("Relu", "n", "o")
node("GlobalAveragePool", "o", "p"); node("Flatten", "p", "q"); node("Gemm", "q head.weight head.bias", "y", transB=1)
values["head.weight"] = random.standard_normal((10, 8)).astype(np.float32)
values["head.bias"] = np.zeros(10, np.float32)
graph = helper.make_graph(nodes, "folded", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1, 28, 28])],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10])],
                          [numpy_helper.from_array(v, k) for k, v in values.items()])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
helper.set_model_props(model, {"mean": "0.25", "std": "0.5"})
onnx.checker.check_model(model, full_check=True)
onnx.save(model, "folded.onnx")

nodes, values = [], {"head.weight": random.standard_normal((10, 784)).astype(np.float32), "head.bias": np.zeros(10, np.float32)}
node("Flatten", "x", "q"); node("Gemm", "q head.weight head.bias", "y", transB=1)
flat = helper.make_graph(nodes, "flat", graph.input, graph.output, [numpy_helper.from_array(v, k) for k, v in values.items()])
onnx.save(helper.make_model(flat, opset_imports=model.opset_import, ir_version=8), "flat.onnx")
PYTHON

train() { # NAME ARGUMENT...
    timeout 200 "$towers" train "${@:2}" --data-path data --device cpu --threads 1 --summary-interval 0 --experiment "$1" >"$out" 2>&1 </dev/null ||
        complain "train $*: $(tail -n 3 "$out")"
}
same() { cmp <(tensors "runs/$1/last.safetensors") <(tensors "runs/$2/last.safetensors") || complain "$3"; }

# ---- the network without: the header knows what to do; with: it says what was done
train without folded.onnx --max-steps 1 --batch-size 8
grep -q 'folded.onnx has no batch norms and trains without; .* --norms restore' "$out" || complain "the header does not name --norms restore: $(head -n 3 "$out")"
train start folded.onnx --epochs 0 --norms restore
grep -q '^folded.onnx: mean and variance for 3 norms from training images' "$out" || complain "nothing says that images are measured: $(head -n 5 "$out")"
grep -q '^folded.onnx: a batch norm behind each of 3 convolutions that had none (--norms restore)' "$out" || complain "the header does not name the norms: $(head -n 5 "$out")"
grep -q 'has no batch norms' "$out" && complain "a network with norms restored is said to have none"
"$towers" info folded.onnx --norms restore >info && grep -q '^norms .*--norms restore' info && (($(grep -c batchnorm info) == 3)) || complain "info: $(head -n 5 info)"

# ---- the same function, the statistics of 512 of the 600 images, and no norm elsewhere
"$towers" export runs/start/last.safetensors start.onnx --quiet 2>"$err" || complain "export: $(cat "$err")"
"$python" - data <<'PYTHON' || complain "the norms are not those of the training images"
import sys, numpy as np, onnx, onnxruntime
from onnx import helper, numpy_helper, TensorProto

def logits(model, x, *outputs):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(list(outputs) or None, {"x": x})

before, after = onnx.load("folded.onnx"), onnx.load("start.onnx")
onnx.checker.check_model(after, full_check=True)
pixels = np.fromfile(sys.argv[1] + "/train-images-idx3-ubyte", np.uint8)[16:].reshape(-1, 1, 28, 28)
assert len(pixels) == 600
x = ((pixels / np.float32(255) - np.float32(0.25)) / np.float32(0.5)).astype(np.float32)
a, b = logits(before, x)[0], logits(after, x)[0]
print(f"logits of {len(x)} images: largest {abs(a).max():.3g}, largest difference {abs(a - b).max():.3g}")
assert abs(a - b).max() < 2e-5 * abs(a).max(), abs(a - b).max()
norms = [n for n in after.graph.node if n.op_type == "BatchNormalization"]
values = {t.name: numpy_helper.to_array(t) for t in after.graph.initializer}
old = {t.name: numpy_helper.to_array(t) for t in before.graph.initializer}
writers = {n.output[0]: n for n in after.graph.node}
assert [writers[n.input[0]].input[1] for n in norms] == ["stem.weight", "deep.weight", "point.weight"]
assert [n.op_type for n in after.graph.node if n.op_type != "BatchNormalization"] == [n.op_type for n in before.graph.node]
assert all((values[k] == old[k]).all() for k in old if k not in ("stem.bias", "deep.bias", "point.bias"))
used = x[[i * 600 // 512 for i in range(512)]]
before.graph.output.extend(helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "ajm")
for name, y, norm in zip(("stem", "deep", "point"), logits(before, used, "a", "j", "m"), norms):
    y = y.astype(np.float64) - old[f"{name}.bias"][None, :, None, None]
    gamma, beta, mean, var = (values[k] for k in norm.input[1:])
    assert norm.input[2] == f"{name}.bias" and norm.input[3] == f"{name}.norm.running_mean"
    assert np.allclose(mean, y.mean((0, 2, 3)), atol=1e-5) and np.allclose(var, y.var((0, 2, 3)), rtol=1e-4, atol=1e-6), (name, var, y.var((0, 2, 3)))
    assert np.allclose(gamma, np.sqrt(var + 1e-5), rtol=1e-6) and np.allclose(beta, old[f"{name}.bias"] + mean, atol=1e-6)
assert values["stem.norm.running_var"][2] == 0 and values["stem.norm.weight"].min() > 0.003
PYTHON

# ---- the same bits for towers and processes, killed, resumed; the run needs no other file
train two-start folded.onnx --epochs 0 --norms restore --towers 2 --batch-size 8 --processes 2 --threads 2 --bn-stats first
same start two-start "two towers begin with other values"
train two folded.onnx --towers 2 --batch-size 8 --max-steps 20 --processes 2 --norms restore
train turns folded.onnx --towers 2 --batch-size 8 --max-steps 20 --processes 1 --norms restore
same two turns "one process and two have other bits"
kill_at_row cut 10 "$towers" train folded.onnx --data-path data --device cpu --threads 1 --towers 2 --batch-size 8 --max-steps 20 --checkpoint-steps 4 \
    --norms restore --experiment cut --quiet >"$out" 2>"$err" </dev/null
cp -r runs/cut runs/again
timeout 200 "$towers" train folded.onnx --resume runs/again --quiet >"$out" 2>"$err" || complain "resumed with the file that it was made of: $(cat "$err")"
same two again "resumed with its file, it has other bits"
mv folded.onnx away.onnx
timeout 200 "$towers" train --resume runs/cut --quiet >"$out" 2>"$err" || complain "resume without the file: $(cat "$err")"
same two cut "killed and resumed, it has other bits"
"$towers" info runs/two >info || complain "info of the run: $?"
"$towers" eval runs/two --json >ours 2>"$err" || complain "eval: $(cat "$err")"
"$towers" export runs/two trained.onnx --quiet 2>"$err" && "$towers" eval trained.onnx --data-path data --json >theirs 2>"$err" || complain "export: $(cat "$err")"
python3 -c 'import json; a, b = (json.load(open(f)) for f in ("ours", "theirs")); assert a["loss"] == b["loss"], (a["loss"], b["loss"])' || complain "the export and its run score differently"
mv away.onnx folded.onnx
timeout 200 "$towers" train folded.onnx --resume auto --experiment two --data-path data --threads 1 --towers 2 --batch-size 8 --max-steps 22 --quiet 2>"$err" ||
    complain "--resume auto: $(cat "$err")"
refuses 2 "runs/two: then norms: restore, now norms: keep" "$towers" train folded.onnx --resume auto --experiment two --data-path data --threads 1 --towers 2 --batch-size 8 --norms keep
refuses 2 "runs/without: then norms: keep, now norms: restore" "$towers" train folded.onnx --resume auto --experiment without --data-path data --threads 1 --batch-size 8 --norms restore
refuses 2 "runs/without: then norms: keep, now norms: restore" "$towers" train --resume runs/without --norms restore
"$towers" train --resume runs/two --norms restore --max-steps 23 --quiet 2>"$err" || complain "--norms restore said again: $(cat "$err")"
mpirun_find
if ((${#mpirun[@]})); then
    "${mpirun[@]}" 2 "$towers" train folded.onnx --data-path data --device cpu --threads 1 --batch-size 8 --max-steps 20 --towers 2 --norms restore --experiment ranks --quiet >"$out" 2>"$err" || complain "two programs: $(tail -n 5 "$err")"
    same turns ranks "two programs have other bits than one"
else
    left_out "norms restored in several programs: this build has no MPI, or mpirun is missing"
fi

# ---- weights: drawn, of another run, with a new head
train drawn folded.onnx --epochs 0 --norms restore --from-scratch
grep -q 'mean and variance' "$out" && complain "--from-scratch measures images"
train other folded.onnx --epochs 0 --norms restore --pretrained runs/two
grep -q 'mean and variance' "$out" && complain "--pretrained measures images"
"$python" - <<'PYTHON' || complain "--pretrained does not begin with the norms that it has"
import json
def tensors(name):
    data = open(f"runs/{name}.safetensors", "rb").read()
    end = 8 + int.from_bytes(data[:8], "little")
    return {k: data[end + v["data_offsets"][0]:end + v["data_offsets"][1]] for k, v in json.loads(data[8:end]).items() if "tracked" not in k and k != "__metadata__"}
assert tensors("two/best") == tensors("other/last") and len(tensors("two/best")) > 15
PYTHON
"$towers" export runs/drawn/last.safetensors drawn.onnx --quiet
"$python" - <<'PYTHON' || complain "norms that are drawn are not plain"
import onnx
from onnx import numpy_helper
values = {t.name: numpy_helper.to_array(t) for t in onnx.load("drawn.onnx").graph.initializer}
for name, plain in (("norm.weight", 1), ("bias", 0), ("norm.running_mean", 0), ("norm.running_var", 1)):
    assert (values[f"stem.{name}"] == plain).all(), (name, values[f"stem.{name}"])
PYTHON
"$towers" train folded.onnx --dataset synthetic --classes 12 --max-steps 2 --batch-size 8 --threads 1 --norms restore --experiment more >"$out" 2>&1 || complain "12 classes: $(tail -n 2 "$out")"

# ---- and the other commands
train rate folded.onnx --norms restore --lr auto --batch-size 8 --max-steps 4
rate=$(sed -n 's/^lr: \([^ ]*\).*/\1/p' runs/rate/args.yaml)
train given folded.onnx --norms restore --lr "$rate" --batch-size 8 --max-steps 4
same rate given "a run whose rate was found begins otherwise than one that is given it"
"$towers" lr-find folded.onnx --data-path data --norms restore --batch-size 8 --lr-steps 20 --threads 1 >"$out" 2>"$err" || complain "lr-find: $(tail -n 1 "$err")"
"$towers" bench folded.onnx --norms restore --batch-size 4 --threads 1 --batches 2 --warmup-batches 1 >"$out" 2>&1 || complain "bench: $(tail -n 1 "$out")"
"$towers" train folded.onnx --data-path data --norms restore --dry-run >"$out" 2>&1 && ! grep -q 'mean and variance' "$out" || complain "--dry-run: $(tail -n 2 "$out")"
refuses 2 "--norms restore: no convolution of trained.onnx can have had" "$towers" train trained.onnx --data-path data --norms restore
# without convolutions nothing is promised that would be refused
refuses 2 "--norms restore: flat.onnx has no convolutions" "$towers" train flat.onnx --data-path data --norms restore
train flat flat.onnx --max-steps 1 --batch-size 8
grep -q 'norms restore' "$out" && complain "norms are offered to a network without convolutions: $(cat "$out")"
"$towers" info flat.onnx >"$out" 2>"$err" && grep -q '^norms  *none$' "$out" || complain "info of a network without convolutions: $(cat "$out" "$err")"
refuses 2 "is a network of this program" "$towers" train fashion_cnn --norms restore --data-path data
refuses 2 "--norms" "$towers" eval folded.onnx --norms restore --data-path data
check_end "batch norms restored: the same function, the statistics of the images, the same bits for towers, processes and after a kill, refusals"
