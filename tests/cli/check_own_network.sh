#!/usr/bin/env bash
# A network in an ONNX file is trained as one of this program: with 1 and with 2 towers, killed and resumed with the same bits; its run
# keeps the structure, so that evaluations, predictions, replays and exports need no other file; the user's graph comes back with
# trained weights and says the same as the run, in ONNX Runtime, too. What cannot be right is refused.
. "$1/tests/support/check.sh"
. "$source_dir/tests/support/hosts.sh"
needs_python
small_data data 256 100 || exit 77
needs_faults data

train() { # NAME ARGUMENT...
    timeout 200 "$towers" train "${@:2}" --data-path data --device cpu --threads 1 --summary-interval 0 --experiment "$1" --quiet >"$out" 2>"$err" </dev/null ||
        complain "train $*: $(tail -n 3 "$err")"
}

# ---- a file: what this program exports, whose first nodes normalize
train base fashion_cnn --epochs 1 --batch-size 16
"$towers" export runs/base/last.safetensors net.onnx --quiet || complain "no file to begin with"
"$towers" info net.onnx >info || complain "info: $?"
grep -q '^file  *net.onnx: 10 classes, with trained values' info || complain "info does not say what the file is: $(head -n 3 info)"
grep -q '^input .*normalized as the file says' info || complain "info does not know the input: $(head -n 3 info)"
grep -q '^total.* 121930 ' info || complain "info has other parameters: $(grep '^total' info)"
grep -q "^model  *fashion_cnn" info || complain "info does not show the metadata"

# ---- its values are the weights to start from: evaluated as they are, they say what the run said
"$towers" eval net.onnx --data-path data --json >theirs 2>"$err" || complain "eval net.onnx: $(cat "$err")"
"$towers" eval runs/base/last.safetensors --data-path data --json >ours 2>"$err"
python3 - <<'PYTHON' || complain "the file and the run that it was exported from score differently"
import json
a, b = json.load(open("theirs")), json.load(open("ours"))
assert a["loss"] == b["loss"] and a["mean_f1"] == b["mean_f1"], (a["loss"], b["loss"])
PYTHON

# ---- towers, a kill, a resume
train one net.onnx --towers 1 --batch-size 16 --max-steps 24 --bn-stats pooled
train two net.onnx --towers 2 --batch-size 8 --max-steps 24 --processes 2
train turns net.onnx --towers 2 --batch-size 8 --max-steps 24 --processes 1
cmp <(tensors runs/two/last.safetensors) <(tensors runs/turns/last.safetensors) || complain "one process and two have other bits"
[[ -s runs/two/network.onnx ]] || complain "the run does not keep the network"
(($(stat -c %s runs/two/network.onnx) < 30000)) || complain "the structure has trained values: $(stat -c %s runs/two/network.onnx) bytes"
kill_at_row cut 10 "$towers" train net.onnx --data-path data --device cpu --threads 1 --towers 2 --batch-size 8 --max-steps 24 --checkpoint-steps 4 \
    --experiment cut --quiet >"$out" 2>"$err" </dev/null
mv net.onnx away.onnx
timeout 200 "$towers" train --resume runs/cut --quiet >"$out" 2>"$err" || complain "resume without the file: $(cat "$err")"
cmp <(tensors runs/two/last.safetensors) <(tensors runs/cut/last.safetensors) || complain "killed and resumed, it has other bits"
cmp runs/two/last.safetensors runs/cut/last.safetensors || complain "killed and resumed, the file differs"

cp away.onnx renamed.onnx
cp -r runs/two runs/longer
"$towers" train renamed.onnx --resume runs/longer --max-steps 26 --quiet >"$out" 2>"$err" || complain "the same network under another name: $(cat "$err")"
mpirun_find
if ((${#mpirun[@]})); then # rank 0 knows what the network is called
    cp -r runs/cut runs/ranks
    "${mpirun[@]}" 2 "$towers" train --resume runs/ranks --max-steps 26 --quiet >"$out" 2>"$err" || complain "resumed by two programs: $(tail -n 5 "$err")"
    cmp <(tensors runs/longer/last.safetensors) <(tensors runs/ranks/last.safetensors) || complain "two programs have other bits than one"
else
    left_out "a network from a file in several programs: this build has no MPI, or mpirun is missing"
fi

# ---- the run needs no other file
"$towers" eval runs/two --json >ours 2>"$err" || complain "eval of the run: $(cat "$err")"
"$towers" card runs/two | head -n 1 | grep -q 'net.onnx' || complain "the card does not name the network"
"$towers" export runs/two trained.onnx --quiet 2>"$err" || complain "export: $(cat "$err")"
"$towers" export runs/two bytes.onnx --preprocess --quiet 2>"$err" || complain "export --preprocess: $(cat "$err")"
"$towers" export runs/two trained.safetensors --quiet 2>"$err" || complain "export as safetensors: $(cat "$err")"
"$towers" eval trained.onnx --data-path data --json >theirs 2>"$err" || complain "eval of the export: $(cat "$err")"
python3 - <<'PYTHON' || complain "the export and its run score differently"
import json
a, b = json.load(open("theirs")), json.load(open("ours"))
assert a["loss"] == b["loss"] and a["mean_f1"] == b["mean_f1"], (a["loss"], b["loss"])
PYTHON
refuses 2 "holds weights of the network 'net.onnx', which came from a file" "$towers" eval trained.safetensors --data-path data
cp runs/two/network.onnx .
"$towers" eval trained.safetensors --data-path data --json >theirs 2>"$err" || complain "weights beside their structure: $(cat "$err")"
rm network.onnx
"$towers" train trained.onnx --data-path data --epochs 0 --threads 1 --experiment again --quiet 2>"$err" || complain "the export as a network: $(cat "$err")"
TOWERS_FAULT=nan:tower=1,step=5,layer=conv2,activity=forward,index=7 "$towers" train away.onnx --data-path data --threads 1 --towers 2 --batch-size 8 \
    --max-steps 8 --experiment nan --quiet >"$out" 2>"$err"
mv runs/nan/nan-step-5-tower-1 capsule
"$towers" replay capsule >"$out" 2>&1
grep -q 'as in the run' "$out" || complain "the capsule is not replayed by itself: $(tail -n 2 "$out")"

# ---- weights: the file's, drawn, another file's; a new head for other classes
mv away.onnx net.onnx
train start net.onnx --epochs 0
cmp <(tensors runs/start/last.safetensors) <(tensors runs/base/last.safetensors) || complain "a run does not begin with the file's values"
train drawn net.onnx --epochs 0 --from-scratch
cmp -s <(tensors runs/drawn/last.safetensors) <(tensors runs/base/last.safetensors) && complain "--from-scratch begins with the file's values"
train other net.onnx --epochs 0 --pretrained runs/two
cmp <(tensors runs/other/last.safetensors) <(tensors runs/two/best.safetensors) || complain "--pretrained does not begin with the weights that it names"
"$towers" train net.onnx --dataset synthetic --classes 12 --max-steps 2 --batch-size 8 --threads 1 --experiment more >"$out" 2>&1 || complain "12 classes: $(tail -n 2 "$out")"
grep -q 'the classifier of net.onnx has 10 classes, the data 12: a new one begins at random' "$out" || complain "a new head is not announced"
pets() { # CLASS...
    local class i part
    for class in "$@"; do
        for part in train val; do
            mkdir -p "pets/$part/$class"
            for i in 1 2 3 4; do { printf 'P5 28 28 255\n' && head -c 784 /dev/zero | tr '\0' "$i"; } >"pets/$part/$class/$i.pgm"; done
        done
    done
}
pets cat dog
"$towers" train fashion_cnn --data-path pets --max-steps 1 --batch-size 4 --threads 1 --experiment two-pets >"$out" 2>"$err" && "$towers" export runs/two-pets pets.onnx --quiet || complain "two classes: $(cat "$err")"
pets bird
sed 's/class_names/class_namez/' pets.onnx >unnamed.onnx # as a file from elsewhere
"$towers" train unnamed.onnx --data-path pets --max-steps 1 --batch-size 4 --threads 1 --experiment pets >"$out" 2>&1 || complain "3 classes: $(tail -n 2 "$out")"
grep -q 'a new one begins at random' "$out" && ! grep -q 'goes on as it is' "$out" || complain "a new head is announced as a kept one: $(grep classifier "$out")"
"$towers" eval runs/more --dataset synthetic >"$out" 2>"$err" || complain "eval with a new head: $(cat "$err")"
"$towers" export runs/more more.onnx --quiet 2>"$err" && "$towers" info more.onnx | grep -q ': 12 classes' || complain "the export has other classes: $(cat "$err")"
"$towers" train net.onnx --data-path data --max-steps 1 --threads 1 --experiment header >"$out" 2>&1
grep -q '^pixels  *in \[0, 1\]' "$out" || complain "the header does not say how pixels are normalized"
grep -q '^net.onnx has no batch norms and trains without' "$out" || complain "a network without norms is not announced: $(head -n 4 "$out")"

# ---- and the other commands
"$towers" bench net.onnx --batch-size 4 --threads 1 --batches 2 --warmup-batches 1 >"$out" 2>&1 || complain "bench: $(tail -n 1 "$out")"
printf 'model: net.onnx\ndata-path: data\nlr: choices(0.01 | 0.001)\nmax-steps: 2\nthreads: 1\n' >rates.yaml
"$towers" sweep rates.yaml >"$out" 2>&1 && [[ -s runs/rates/t002/network.onnx ]] || complain "sweep: $(tail -n 1 "$out")"
"$towers" lr-find net.onnx --data-path data --batch-size 16 --threads 1 >"$out" 2>"$err" && grep -q "^suggestion: --lr" "$out" || complain "lr-find: $(tail -n 1 "$err")"

# ---- refused
refuses 2 "--drop-path has no effect" "$towers" train net.onnx --data-path data --drop-path 0.5 --experiment none
train deep inception_mini --max-steps 1
"$towers" export runs/deep/last.safetensors deep.onnx --quiet
refuses 2 "is a run of another model: then model: net.onnx, network" "$towers" train deep.onnx --resume runs/two --data-path data
mv net.onnx away.onnx && mv deep.onnx net.onnx
refuses 2 "then network: " "$towers" train net.onnx --resume auto --experiment two --data-path data --threads 1 --towers 2 --batch-size 8
refuses 4 "holds weights of the model net.onnx, network " "$towers" export net.onnx x.safetensors --weights runs/two
mv away.onnx net.onnx
cmp runs/two/network.onnx runs/cut/network.onnx || complain "a refused resume has written another network"
refuses 2 "cannot open the network 'absent.onnx'" "$towers" train absent.onnx --data-path data
refuses 2 "is neither a model of this program nor the file of a network" "$towers" train trained.safetensors --data-path data
refuses 2 "export: net.onnx is the file of the network" "$towers" export net.onnx net.onnx
refuses 2 "is a network of this program" "$towers" train fashion_cnn --from-scratch --data-path data

# ---- a network as PyTorch writes it, with norms, a branch and metadata of its own: trained, given back, and run by ONNX Runtime
if ! python=$("$source_dir/scripts/venv.sh" onnx 2>"$work/pip"); then
    left_out "the same network in ONNX Runtime: pip could not get the packages of scripts/requirements/onnx.txt: $(tail -n 1 "$work/pip")"
    check_end "networks from ONNX files: the same bits for towers and after a kill, runs that need no other file, exports, refusals"
    exit
fi
"$python" - <<'PYTHON'
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper
random = np.random.default_rng(1)
values = {}

def weight(name, *shape):
    values[name] = (random.standard_normal(shape) * (2 / np.prod(shape[1:])) ** 0.5).astype(np.float32)
    return name

def norm(name, c):
    for part, start in (("weight", 1), ("bias", 0), ("running_mean", 0), ("running_var", 1)):
        values[f"{name}.{part}"] = np.full(c, start, np.float32)
    return [f"{name}.{part}" for part in ("weight", "bias", "running_mean", "running_var")]

nodes = [helper.make_node("Conv", ["pixels", weight("stem.conv.weight", 8, 1, 3, 3)], ["a"], "stem", kernel_shape=[3, 3], pads=[1] * 4),
         helper.make_node("BatchNormalization", ["a", *norm("stem.bn", 8)], ["b"]),
         helper.make_node("Relu", ["b"], ["c"]), helper.make_node("MaxPool", ["c"], ["d"], kernel_shape=[2, 2], strides=[2, 2]),
         helper.make_node("Conv", ["d", weight("body.conv.weight", 8, 8, 3, 3)], ["e"], "body", kernel_shape=[3, 3], pads=[1] * 4),
         helper.make_node("BatchNormalization", ["e", *norm("body.bn", 8)], ["f"]), helper.make_node("Add", ["d", "f"], ["g"], "branch"),
         helper.make_node("Relu", ["g"], ["h"]), helper.make_node("GlobalAveragePool", ["h"], ["i"]), helper.make_node("Flatten", ["i"], ["j"]),
         helper.make_node("Gemm", ["j", weight("head.weight", 10, 8), "head.bias"], ["answer"], "head", transB=1)]
values["head.bias"] = np.zeros(10, np.float32)
graph = helper.make_graph(nodes, "mine", [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["batch", 1, 28, 28])],
                          [helper.make_tensor_value_info("answer", TensorProto.FLOAT, ["batch", 10])],
                          [numpy_helper.from_array(v, k) for k, v in values.items()])
model = helper.make_model(graph, producer_name="a test", opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
helper.set_model_props(model, {"owner": "somebody"})
onnx.save(model, "mine.onnx")
PYTHON
refuses 2 "mine.onnx does not say how its images are normalized: give both, --mean and --std" "$towers" eval mine.onnx --data-path data
refuses 2 "give both, --mean and --std" "$towers" train mine.onnx --data-path data --mean 0.5
"$towers" train mine.onnx --data-path data --threads 1 --epochs 0 --experiment guess >"$out" 2>&1
grep -q 'mine.onnx does not say how its images are normalized: pixels are left in' "$out" || complain "a guess at the input is not announced: $(cat "$out")"
! grep -q 'has no batch norms' "$out" || complain "norms are not seen: $(cat "$out")"
refuses 2 "give both, --mean and --std" "$towers" export mine.onnx mine.safetensors
"$towers" export mine.onnx same.onnx --mean 0.3 --std 0.4 --quiet || complain "export of the file itself"
train mine mine.onnx --towers 2 --batch-size 8 --epochs 2 --mean 0.3 --std 0.4
"$towers" export runs/mine back.onnx --quiet 2>"$err" || complain "export of a network with norms: $(cat "$err")"
"$python" - data <<'PYTHON'
import sys, numpy as np
bytes = np.fromfile(sys.argv[1] + "/t10k-images-idx3-ubyte", np.uint8)[16:16 + 8 * 784].reshape(8, 28, 28)
for k, image in enumerate(bytes):
    open(f"image-{k}.pgm", "wb").write(b"P5\n28 28\n255\n" + image.tobytes())
PYTHON
"$towers" predict runs/mine image-?.pgm --json --top 10 >said 2>"$err" || complain "predict: $(cat "$err")"
"$towers" predict back.onnx image-?.pgm --json --top 10 >again 2>"$err" || complain "predict with the export: $(cat "$err")"
cmp said again || complain "the run and its export predict otherwise"
"$python" - <<'PYTHON' || complain "ONNX Runtime says otherwise"
import json, numpy as np, onnx, onnxruntime
before, after = onnx.load("mine.onnx"), onnx.load("back.onnx")
onnx.checker.check_model(after, full_check=True)
assert [(n.op_type, n.name, list(n.input), list(n.output)) for n in before.graph.node] == [(n.op_type, n.name, list(n.input), list(n.output)) for n in after.graph.node]
assert [(t.name, t.dims) for t in before.graph.initializer] == [(t.name, t.dims) for t in after.graph.initializer] and after.producer_name == "a test"
about = {p.key: p.value for p in after.metadata_props}
assert about["owner"] == "somebody" and about["mean"] == "0.3" and about["std"] == "0.4" and about["classes"] == "10", about
changed = [a.name for a, b in zip(after.graph.initializer, before.graph.initializer) if a.raw_data != b.raw_data]
assert len(changed) == len(before.graph.initializer), changed
images = np.stack([np.frombuffer(open(f"image-{k}.pgm", "rb").read()[-784:], np.uint8).reshape(1, 28, 28) for k in range(8)])
x = ((images.astype(np.float32) / 255 - 0.3) / 0.4).astype(np.float32)
(logits,) = onnxruntime.InferenceSession("back.onnx", providers=["CPUExecutionProvider"]).run(None, {"pixels": x})
theirs = np.exp(logits - logits.max(1, keepdims=True))
theirs /= theirs.sum(1, keepdims=True)
for row, line in zip(theirs, open("said")):
    ours = {p["class"]: p["probability"] for p in json.loads(line)["predictions"]}
    error = max(abs(ours[k] - row[int(k)]) for k in ours)
    assert len(ours) == 10 and error < 1e-5 and max(ours.values()) > 0.15, (error, ours, row)
PYTHON

# ---- names that begin alike, and a convolution as the classifier: only its weight and its bias are drawn anew
"$python" - <<'PYTHON'
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper
random = np.random.default_rng(2)
values = {name: random.standard_normal(shape).astype(np.float32) for name, shape in
          (("net.weight", (6, 1, 3, 3)), ("net.bias", (6,)), ("net.w", (10, 6, 1, 1)), ("net.b", (10,)))}
nodes = [helper.make_node("Conv", ["x", "net.weight", "net.bias"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
         helper.make_node("Conv", ["b", "net.w", "net.b"], ["c"]), helper.make_node("Relu", ["c"], ["d"]),
         helper.make_node("GlobalAveragePool", ["d"], ["e"]), helper.make_node("Flatten", ["e"], ["f"])]
graph = helper.make_graph(nodes, "odd", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 28, 28])],
                          [helper.make_tensor_value_info("f", TensorProto.FLOAT, [1, 10])],
                          [numpy_helper.from_array(v, k) for k, v in values.items()])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), "odd.onnx")
PYTHON
timeout 200 "$towers" train odd.onnx --dataset synthetic --classes 12 --epochs 0 --experiment odd --quiet >"$out" 2>"$err" || complain "a convolution as the classifier: $(cat "$err")"
"$towers" export runs/odd oddly.onnx --quiet 2>"$err" || complain "export of other classes: $(cat "$err")"
"$python" - <<'PYTHON' || complain "a new classifier is not all that is new"
import numpy as np, onnx
from onnx import numpy_helper
before, after = ({t.name: numpy_helper.to_array(t) for t in onnx.load(f).graph.initializer} for f in ("odd.onnx", "oddly.onnx"))
assert all((before[name] == after[name]).all() for name in ("net.weight", "net.bias")), "other weights are new, too"
assert after["net.w"].shape == (12, 6, 1, 1) and after["net.b"].shape == (12,)
assert not np.isin(after["net.w"], before["net.w"]).any(), "the old classifier is there"
PYTHON

# ---- single numbers: the gain of a branch is trained from 0, what may be one or not is said; the classifier standardizes its weights
"$python" - <<'PYTHON'
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper
random = np.random.default_rng(3)
values = {name: random.standard_normal(shape).astype(np.float32) / 4 for name, shape in
          (("stem.weight", (6, 1, 3, 3)), ("body.weight", (6, 6, 1, 1)), ("head.weight", (10, 6, 1, 1)), ("head.gain", (10, 1, 1, 1)), ("se.weight", (6, 6)))}
values["body.skipinit_gain"], values["two"], values["temperature_2"] = np.array(0, np.float32), np.array(2, np.float32), np.array([0.5], np.float32)
for name, dims in (("factors", [0, 6, 1, 1]), ("view", [1, 10, -1]), ("whole", [10, 6, 1, 1]), ("line", [-1])): values[name] = np.array(dims, np.int64)
values["zeros"] = np.zeros(10, np.float32)
node = helper.make_node
nodes = [node("Conv", ["x", "stem.weight"], ["s"], strides=[3, 3]), node("GlobalAveragePool", ["s"], ["t"]), node("Flatten", ["t"], ["u"]),
         node("Gemm", ["u", "se.weight"], ["v"]), node("Sigmoid", ["v"], ["z"]), node("Reshape", ["z", "factors"], ["factor"]), node("Mul", ["s", "factor"], ["a"]),
         node("Conv", ["a", "body.weight"], ["b"]), node("Relu", ["b"], ["c"]),
         node("Mul", ["c", "body.skipinit_gain"], ["d"]), node("Add", ["a", "d"], ["e"]), node("Mul", ["e", "two"], ["f"]),
         node("GlobalAveragePool", ["f"], ["g"]),
         node("Reshape", ["head.weight", "view"], ["rows"]), node("Reshape", ["head.gain", "line"], ["gains"]),
         node("ReduceMean", ["rows"], ["mean"], axes=[0, 2], keepdims=0), node("ReduceMean", ["rows"], ["kept"], axes=[0, 2]),
         node("Sub", ["rows", "kept"], ["apart"]), node("Mul", ["apart", "apart"], ["square"]),
         node("ReduceMean", ["square"], ["var"], axes=[0, 2], keepdims=0),
         node("BatchNormalization", ["rows", "gains", "zeros", "mean", "var"], ["normed"]), node("Reshape", ["normed", "whole"], ["w"]),
         node("Conv", ["g", "w"], ["h"]), node("Flatten", ["h"], ["i"]), node("Div", ["i", "temperature_2"], ["y"])]
graph = helper.make_graph(nodes, "gains", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1, 28, 28])],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10])],
                          [numpy_helper.from_array(v, k) for k, v in values.items()])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), "gains.onnx")
PYTHON
"$towers" info gains.onnx >info 2>"$err" || complain "info of single numbers: $(cat "$err")"
grep -q '^single numbers 2 trained, being named like parameters: body.skipinit_gain, temperature_2$' info || complain "info does not name a trained number: $(cat info)"
grep -q '^held constant  1 single number that your network may have trained: two$' info || complain "info does not name a number that stays: $(cat info)"
"$towers" train gains.onnx --data-path data --threads 1 --max-steps 12 --mean 0 --std 1 --lr 0.1 --towers 2 --batch-size 8 --experiment gains >"$out" 2>&1 || complain "single numbers: $(tail -n 2 "$out")"
grep -q 'trained, being named like parameters: 2 single numbers of gains.onnx (body.skipinit_gain, temperature_2); --freeze NAME' "$out" || complain "the header does not name a trained number: $(head "$out")"
grep -q 'held constant, .*: 1 single number of gains.onnx (two)' "$out" || complain "the header does not name a number that stays: $(head "$out")"
train still gains.onnx --max-steps 4 --mean 0 --std 1 --freeze body.skipinit_gain
train fresh gains.onnx --epochs 0 --mean 0 --std 1 --reset-head
"$towers" train gains.onnx --dataset synthetic --classes 12 --max-steps 2 --batch-size 8 --threads 1 --mean 0 --std 1 --experiment dozen --quiet >"$out" 2>&1 || complain "12 classes of standardized weights: $(tail -n 2 "$out")"
python3 - <<'PYTHON' # a state dict of PyTorch, where a single number has no dimensions
import json
data = open("runs/gains/last.safetensors", "rb").read()
begin = 8 + int.from_bytes(data[:8], "little")
about = json.loads(data[8:begin])
assert about["body.skipinit_gain"]["shape"] == [1], about
about["body.skipinit_gain"]["shape"] = []
text = json.dumps({k: v for k, v in about.items() if k != "__metadata__"}).encode()
open("state.safetensors", "wb").write(len(text).to_bytes(8, "little") + text + data[begin:])
PYTHON
train taken gains.onnx --epochs 0 --mean 0 --std 1 --pretrained state.safetensors
cmp <(tensors runs/taken/last.safetensors) <(tensors runs/gains/last.safetensors) || complain "a single number is not taken from a state dict"
for run in gains still fresh; do "$towers" export runs/$run $run-back.onnx --quiet 2>"$err" || complain "export of single numbers: $(cat "$err")"; done
"$towers" export runs/gains whole.onnx --preprocess --quiet 2>"$err" || complain "export --preprocess of single numbers: $(cat "$err")"
"$towers" predict runs/gains image-?.pgm --json --top 10 >said 2>"$err" || complain "predict with single numbers: $(cat "$err")"
"$python" - <<'PYTHON' || complain "single numbers are not trained, kept or exported as they are"
import json, numpy as np, onnx, onnxruntime
from onnx import numpy_helper
read = lambda f: {t.name: numpy_helper.to_array(t) for t in onnx.load(f).graph.initializer}
first, gains, still, fresh = map(read, ("gains.onnx", "gains-back.onnx", "still-back.onnx", "fresh-back.onnx"))
assert gains["body.skipinit_gain"].shape == () and gains["temperature_2"] != 0.5 and gains["body.skipinit_gain"] != 0 and gains["two"] == 2, gains
assert still["body.skipinit_gain"] == 0 and (still["stem.weight"] != first["stem.weight"]).any()
assert not np.isin(fresh["head.weight"], first["head.weight"]).any() and (fresh["head.gain"] == 1).all(), fresh
assert (fresh["body.weight"] == first["body.weight"]).all()
images = np.stack([np.frombuffer(open(f"image-{k}.pgm", "rb").read()[-784:], np.uint8).reshape(1, 28, 28) for k in range(8)])
run = lambda f, x: (s := onnxruntime.InferenceSession(f, providers=["CPUExecutionProvider"])).run(None, {s.get_inputs()[0].name: x})[0]
logits = run("gains-back.onnx", images.astype(np.float32) / 255)
theirs = np.exp(logits - logits.max(1, keepdims=True))
theirs /= theirs.sum(1, keepdims=True)
for k, (row, line) in enumerate(zip(theirs, open("said"))):
    ours = {int(p["class"]): p["probability"] for p in json.loads(line)["predictions"]}
    assert all(abs(ours[c] - row[c]) < 1e-5 for c in ours) and len(ours) == 10, (ours, row)
    whole = run("whole.onnx", images[k:k + 1].transpose(0, 2, 3, 1))
    assert whole.shape == (1, 10) and np.abs(whole - row).max() < 1e-5, (whole, row)
PYTHON

# ---- a run of a version that trained no single numbers: they are among the constants of its network, with which the same file goes on
"$python" - <<'PYTHON'
import onnx
file, kept = onnx.load("gains.onnx"), onnx.load("runs/gains/network.onnx")
values = {t.name: t.raw_data for t in file.graph.initializer}
for t in kept.graph.initializer:
    if t.name == "temperature_2": t.raw_data = values[t.name]
onnx.save(kept, "older.onnx")
for t in file.graph.initializer:
    if t.name == "temperature_2": t.raw_data = values["two"]
onnx.save(file, "colder.onnx")
PYTHON
train older older.onnx --max-steps 2 --mean 0 --std 1
"$towers" train gains.onnx --resume runs/older --max-steps 4 --quiet >"$out" 2>"$err" || complain "a run of an older version is refused beside its own file: $(cat "$err")"
python3 - runs/older/last.safetensors <<'PYTHON' || complain "the resumed run trains other numbers than before"
import json, sys
data = open(sys.argv[1], "rb").read()
about = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
assert "body.skipinit_gain" in about and "temperature_2" not in about, list(about)
PYTHON
refuses 2 "is a run of another model: then model: older.onnx, network" "$towers" train colder.onnx --resume runs/older --data-path data

# ---- a Sigmoid at the end is another loss, and outputs behind the first are auxiliary
"$python" - <<'PYTHON'
import onnx
from onnx import TensorProto, helper
model = onnx.load("back.onnx")
model.graph.output[0].name = "chances"
model.graph.node.append(helper.make_node("Sigmoid", ["answer"], ["chances"]))
onnx.save(model, "chances.onnx")
model.graph.output.append(helper.make_tensor_value_info("answer", TensorProto.FLOAT, ["batch", 10]))
onnx.save(model, "two.onnx")
PYTHON
"$towers" predict chances.onnx image-?.pgm --json --top 10 >said 2>"$err" || complain "predict with a Sigmoid at the end: $(cat "$err")"
"$python" - <<'PYTHON' || complain "the probabilities of a Sigmoid at the end are not those of the file"
import json, numpy as np, onnxruntime
images = np.stack([np.frombuffer(open(f"image-{k}.pgm", "rb").read()[-784:], np.uint8).reshape(1, 28, 28) for k in range(8)])
x = ((images.astype(np.float32) / 255 - 0.3) / 0.4).astype(np.float32)
(theirs,) = onnxruntime.InferenceSession("chances.onnx", providers=["CPUExecutionProvider"]).run(None, {"pixels": x})
for row, line in zip(theirs, open("said")):
    ours = {int(p["class"]): p["probability"] for p in json.loads(line)["predictions"]}
    assert all(abs(ours[k] - row[k]) < 1e-5 for k in ours) and ours, (ours, row)
PYTHON
ends() { # EXPERIMENT FILE ARGUMENT...
    "$towers" train "$2" --data-path data --threads 1 --max-steps 1 --experiment "$1" "${@:3}" >"$out" 2>&1 || complain "$1: $(tail -n 2 "$out")"
}
ends single chances.onnx
grep -q 'chances.onnx ends in a Sigmoid, .*: --loss bce' "$out" && grep -q '^loss: bce' runs/single/args.yaml || complain "a Sigmoid at the end says nothing: $(cat "$out")"
ends softmax chances.onnx --loss softmax
grep -q 'ends in a Sigmoid' "$out" || grep -q '^loss: bce' runs/softmax/args.yaml && complain "--loss softmax is not taken: $(cat "$out")"
ends auxiliary two.onnx
grep -q 'two.onnx has 2 outputs: the first is taken for the logits' "$out" || complain "a second output is taken without a word: $(cat "$out")"
check_end "networks from ONNX files: the same bits for towers and after a kill, runs that need no other file, exports, refusals"
