#!/usr/bin/env bash
# Files written by 'towers export', run by onnxruntime and read by safetensors: logits, or the images of a generator, agree to 1e-4, for
# one image and for several (the batch is dynamic); with --preprocess, probabilities of the bytes of a picture. So do those of a network
# from a file. The packages are installed once into a virtual environment in the user's cache.
. "$1/tests/support/check.sh"
needs_python
python_of onnx
driver=$(dirname "$towers")/tests/logits_driver

# exported MODEL SIDE VARIANT ARGUMENT...: a few steps of training (on made-up data), both exports, the comparison
exported() {
    local model=$1 side=$2 variant=$3 run=runs/$1$3
    shift 3
    "$towers" train "$model" --dataset synthetic --batch-size 4 --max-steps 3 --eval-interval 0 --experiment "$model$variant" \
        --img-size "$side" ${variant:+--variant "$variant"} --classes 7 --lr 0.001 --workers 0 --quiet "$@" || return 1
    "$towers" export "$model" "$model.onnx" --weights "$run/last.safetensors" --img-size "$side" --quiet || return 1
    "$towers" export "$model" "$model-bytes.onnx" --preprocess --weights "$run/last.safetensors" --img-size "$side" --quiet || return 1
    "$towers" export "$model" --weights "$run/last.safetensors" --img-size "$side" --quiet || return 1
    "$driver" "$model" "$side" 7 "$variant" "$run/last.safetensors" 3 ours || return 1
    "$python" - "$model" "$side" "$run/last.safetensors" <<'PYTHON' || return 1
import sys
import numpy as np, onnx, onnxruntime
from safetensors.numpy import load_file

model, side, weights = sys.argv[1], int(sys.argv[2]), sys.argv[3]
proto = onnx.load(model + ".onnx")
onnx.checker.check_model(proto, full_check=True)
assert proto.opset_import[0].version == 17 and proto.ir_version == 8
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 2
session = onnxruntime.InferenceSession(model + ".onnx", options, providers=["CPUExecutionProvider"])
(entry,), (out,) = session.get_inputs(), session.get_outputs()
channels = entry.shape[1]
assert entry.name == "image" and out.name == "logits" and isinstance(entry.shape[0], str), (entry, out)
pixels = np.fromfile("ours.pixels", np.uint8).reshape(3, side, side, channels)
ours = np.fromfile("ours.logits", np.float32).reshape(3, 7)
image = (pixels.astype(np.float32) / 255).transpose(0, 3, 1, 2)
for n in (3, 1):
    (theirs,) = session.run(None, {"image": image[:n]})
    error = np.abs(theirs - ours[:n]).max() / np.abs(ours).max()
    print(f"{model} {side}x{side}, batch {n}: largest difference {error:.1e} of the largest logit {np.abs(ours).max():.3g}")
    assert theirs.shape == (n, 7) and error < 1e-4, error

# with --preprocess: from the bytes to the probabilities
proto = onnx.load(model + "-bytes.onnx")
onnx.checker.check_model(proto, full_check=True)
session = onnxruntime.InferenceSession(model + "-bytes.onnx", options, providers=["CPUExecutionProvider"])
(entry,), (out,) = session.get_inputs(), session.get_outputs()
assert (entry.name, entry.type, entry.shape[1:]) == ("image", "tensor(uint8)", [side, side, channels]), entry
assert out.name == "probabilities" and "divides by 255" in session.get_modelmeta().custom_metadata_map["input"], out
(theirs,) = session.run(None, {"image": pixels})
wanted = np.exp(ours - ours.max(1, keepdims=True))
wanted /= wanted.sum(1, keepdims=True)
error = np.abs(theirs - wanted).max()
print(f"{model}, from bytes: largest difference of a probability {error:.1e}")
assert theirs.shape == (3, 7) and error < 1e-4 and wanted.std() > 1000 * error and wanted.std() > 1e-4, (error, wanted.std())

# the other export is what the run wrote, name by name
a, b = load_file(model + ".safetensors"), load_file(weights)
assert a.keys() == b.keys() and all((a[k] == b[k]).all() for k in a), a.keys() ^ b.keys()
tracked = [k for k in a if k.endswith("num_batches_tracked")]
assert all(a[k] == 3 and a[k].dtype == np.int64 for k in tracked)
assert len(tracked) == sum(k.endswith("running_mean") for k in a)
PYTHON
}

# generator MODEL: made-up weights, both exports, and images from the same noise
generator() {
    local model=$1
    "$(dirname "$driver")/generator_driver" "$model" 3 "$model" || return 1
    "$towers" export "$model" "$model.onnx" --weights "$model.safetensors" --quiet || return 1
    "$towers" export "$model" "$model-again.safetensors" --weights "$model.safetensors" --quiet || return 1
    "$python" - "$model" <<'PYTHON' || return 1
import sys
import numpy as np, onnx, onnxruntime
from safetensors.numpy import load_file

def transposed(x, w, b, side): # PyTorch's conv_transpose2d of 5x5, stride 2, with TensorFlow's "same" border
    half = x.shape[2]
    before = (2 * (half - 1) + 5 - side) // 2
    y = np.zeros((len(x), w.shape[1], 2 * half + 3, 2 * half + 3))
    for k in range(25):
        y[:, :, k // 5:k // 5 + 2 * half:2, k % 5:k % 5 + 2 * half:2] += np.einsum("nchw,co->nohw", x, w[:, :, k // 5, k % 5])
    return y[:, :, before:before + side, before:before + side] + b.reshape(1, -1, 1, 1)

def enlarged(x, w, name): # twice as many pixels, a convolution, the batch norm of Keras
    x = np.pad(x.repeat(2, 2).repeat(2, 3), ((0, 0), (0, 0), (1, 1), (1, 1)))
    side = x.shape[2] - 2
    y = sum(np.einsum("nchw,oc->nohw", x[:, :, k // 3:k // 3 + side, k % 3:k % 3 + side], w[name + ".weight"][:, :, k // 3, k % 3])
            for k in range(9))
    return normed(y, w, name)

def normed(x, w, name):
    mean, var, gamma, beta = (w[f"{name}.bn.{part}"].reshape(-1, *[1] * (x.ndim - 2))
                              for part in ("running_mean", "running_var", "weight", "bias"))
    return (x - mean) / np.sqrt(var + 1e-3) * gamma + beta

def images_of(model, w, z): # as a network in PyTorch computes them that has loaded the file strictly: `view` numbers channels first
    leaky = lambda x: np.where(x > 0, x, 0.2 * x)
    w = {name.removeprefix("generator."): value.astype(np.float64) for name, value in w.items()}
    x = z @ w["fc.weight"].T
    if model == "wgan_gp":
        x = np.maximum(x + w["fc.bias"], 0).reshape(len(z), -1, 4, 4)
        for k, side in ((1, 7), (2, 14), (3, 28)):
            x = transposed(x, w[f"deconv{k}.weight"], w[f"deconv{k}.bias"], side)
            x = np.maximum(x, 0) if k < 3 else 1 / (1 + np.exp(-x))
        return x
    x = leaky(normed(x, w, "fc")).reshape(len(z), -1, 4, 4)
    for k in (1, 2, 3):
        x = enlarged(x, w, f"up{k}")
        x = leaky(x) if k < 3 else np.tanh(x)
    return x[:, :, 2:-2, 2:-2] / 2 + 0.5

model = sys.argv[1]
proto = onnx.load(model + ".onnx")
onnx.checker.check_model(proto, full_check=True)
session = onnxruntime.InferenceSession(model + ".onnx", providers=["CPUExecutionProvider"])
(entry,), (out,) = session.get_inputs(), session.get_outputs()
assert entry.name == "z" and out.name == "image" and isinstance(entry.shape[0], str), (entry, out)
assert "standard normal" in session.get_modelmeta().custom_metadata_map["input"], session.get_modelmeta().custom_metadata_map
channels, side = out.shape[1:3]
z = np.fromfile(model + ".z", np.float32).reshape(3, entry.shape[1])
ours = np.fromfile(model + ".images", np.float32).reshape(3, side, side, channels).transpose(0, 3, 1, 2)
for n in (3, 1):
    (theirs,) = session.run(None, {"z": z[:n]})
    error = np.abs(theirs - ours[:n]).max()
    print(f"generator of {model}, batch {n}: largest difference {error:.1e}, pixels from {ours.min():.2f} to {ours.max():.2f}")
    assert theirs.shape == (n, channels, side, side) and error < 1e-4, error
assert ours.std() > 0.01 and ((ours > 0.02) & (ours < 0.98)).mean() > 0.5, ours.std()
a, b = load_file(model + "-again.safetensors"), load_file(model + ".safetensors")
assert a.keys() == b.keys() and all((a[k] == b[k]).all() for k in a), a.keys() ^ b.keys()
assert all(k.startswith("generator.") for k in a)
error = np.abs(images_of(model, a, z.astype(np.float64)) - ours).max()
print(f"generator of {model}, its safetensors by numpy: largest difference {error:.1e}")
assert error < 1e-4, error
PYTHON
}

status=0
exported fashion_cnn 28 "" || status=1
exported inception_mini 28 "" || status=1
exported inception_v3 75 "" --no-aux || status=1
exported inception_v3 75 tf2016 --no-aux || status=1
exported inception_resnet_v2 75 "" || status=1
exported inception_v4 75 "" || status=1
exported googlenet 33 "" || status=1
exported resnet18 40 "" || status=1
exported mobilenet_v3_small 64 "" || status=1
exported efficientnet_b0 64 "" || status=1
exported efficientnet_lite0 64 "" || status=1
exported convnext_tiny 64 "" || status=1
exported inception_v2 50 "" || status=1
exported xception 75 "" || status=1
generator wgan_gp || status=1
generator wgan_gp_keras || status=1

small_data data 512 128 || status=1

# a network from a file, of parts that are several ops here: what it says itself, read, and written as this program's graph
"$python" - parts.onnx <<'PYTHON' || status=1
import sys
import numpy as np
from onnx import TensorProto, helper, numpy_helper, save_model
nodes, tensors, random = [], [], np.random.default_rng(0)

def node(kind, inputs, out, **attributes):
    nodes.append(helper.make_node(kind, inputs.split(), out.split(), **attributes))

def given(name, value, dtype=np.float32):
    tensors.append(numpy_helper.from_array(np.asarray(value, dtype), name))

def weights(name, *shape):
    given(name, random.standard_normal(shape) / np.sqrt(np.prod(shape[1:])))

def ints(name, *values):
    given(name, values, np.int64)

def standardized(name, out, shape): # weights of a convolution, with a gain
    weights(name + ".weight", *shape)
    given(name + ".gain", random.random((shape[0], 1, 1, 1)) + 1)
    given(name + ".times", 0.7)
    given(name + ".zeros", np.zeros(shape[0]))
    ints(name + ".rows", 1, shape[0], -1)
    ints(name + ".shape", *shape)
    node("Reshape", f"{name}.weight {name}.rows", name + ".r")
    node("ReduceMean", name + ".r", name + ".mean", axes=[0, 2], keepdims=0)
    node("ReduceMean", name + ".r", name + ".kept", axes=[0, 2], keepdims=1)
    node("Sub", f"{name}.r {name}.kept", name + ".apart")
    node("Mul", f"{name}.apart {name}.apart", name + ".square")
    node("ReduceMean", name + ".square", name + ".var", axes=[0, 2], keepdims=0)
    node("Mul", f"{name}.gain {name}.times", name + ".g")
    node("Reshape", f"{name}.g line", name + ".scale")
    node("BatchNormalization", f"{name}.r {name}.scale {name}.zeros {name}.mean {name}.var", name + ".normed", epsilon=1e-3)
    node("Reshape", f"{name}.normed {name}.shape", out)

ints("line", -1)
standardized("stem", "w", (8, 3, 3, 3))
node("Conv", "x w", "a", pads=[1, 1, 1, 1])
ints("around", 0, 0, 1, 1, 0, 0, 1, 1)
given("filt", np.tile(np.outer([1, 2, 1], [1, 2, 1]) / 16, (8, 1, 1, 1)))
node("Pad", "a around", "b", mode="reflect")
node("Conv", "b filt", "c", group=8, strides=[2, 2])
ints("groups", 0, 2, -1)
ints("image", 0, 8, 8, 8)
given("ones", np.ones(2))
given("none", np.zeros(2))
given("norm.weight", random.random((8, 1, 1)) + 1)
node("Reshape", "c groups", "d")
node("InstanceNormalization", "d ones none", "e")
node("Reshape", "e image", "f")
node("Mul", "f norm.weight", "g")
ints("row", 0, 1, -1)
ints("column", 0, -1, 1, 1)
weights("eca.weight", 1, 1, 3)
node("ReduceMean", "g", "h", axes=[2, 3], keepdims=0)
node("Reshape", "h row", "i")
node("Conv", "i eca.weight", "j", pads=[1, 1])
node("Sigmoid", "j", "k")
node("Reshape", "k column", "l")
node("Mul", "g l", "m")
given("eps", 1e-6)
given("grn.weight", random.standard_normal((8, 1, 1)))
node("ReduceL2", "m", "n1", axes=[2, 3])
node("ReduceMean", "n1", "n2", axes=[1])
node("Add", "n2 eps", "n3")
node("Div", "n1 n3", "n4")
node("Mul", "m n4", "n5")
node("Mul", "n5 grn.weight", "n6")
node("Add", "m n6", "o")
weights("other.weight", 8, 8, 3, 3)
node("Conv", "o other.weight", "p", pads=[1, 1, 1, 1])
ints("branch", 1)
node("Unsqueeze", "o branch", "q1")
node("Unsqueeze", "p branch", "q2")
node("Concat", "q1 q2", "q", axis=1)
node("ReduceSum", "q branch", "r", keepdims=0)
node("GlobalAveragePool", "r", "s")
weights("select.weight", 16, 8, 1, 1)
ints("two", 0, 2, 8, 1, 1)
node("Conv", "s select.weight", "t")
node("Reshape", "t two", "u")
node("Softmax", "u", "v", axis=1)
node("Mul", "q v", "y1")
node("ReduceSum", "y1 branch", "y2", keepdims=0)
weights("attn.weight", 1, 8, 1, 1)
ints("flat", 0, 1, 64)
ints("last", 3)
ints("all", 0, 8, 64)
node("Conv", "y2 attn.weight", "z1")
node("Reshape", "z1 flat", "z2")
node("Softmax", "z2", "z3", axis=2)
node("Unsqueeze", "z3 last", "z4")
node("Reshape", "y2 all", "z5")
node("Unsqueeze", "z5 branch", "z6")
node("MatMul", "z6 z4", "z7")
node("Reshape", "z7 column", "z8")
node("Mul", "y2 z8", "z9")
node("GlobalAveragePool", "z9", "pooled")
node("Flatten", "pooled", "features")
weights("fc.weight", 10, 8)
node("Gemm", "features fc.weight", "logits", transB=1)
ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", ["N", 3, 16, 16]), ("logits", ["N", 10]))]
save_model(helper.make_model(helper.make_graph(nodes, "parts", ends[:1], ends[1:], tensors), opset_imports=[helper.make_opsetid("", 17)], ir_version=8), sys.argv[1])
PYTHON
normalized=(--mean 0.485,0.456,0.406 --std 0.229,0.224,0.225 --quiet)
"$driver" parts.onnx 0 0 "" - 3 parts >/dev/null || status=1
"$towers" export parts.onnx parts-bytes.onnx --preprocess "${normalized[@]}" || status=1
"$python" - <<'PYTHON' || status=1
import numpy as np, onnx, onnxruntime
pixels, ours = np.fromfile("parts.pixels", np.uint8).reshape(3, 16, 16, 3), np.fromfile("parts.logits", np.float32).reshape(3, 10)
mean, std = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
images = ((pixels / np.float32(255) - mean) / std).transpose(0, 3, 1, 2)
wanted = {"parts": ours, "parts-bytes": np.exp(ours) / np.exp(ours).sum(1, keepdims=True)}
for name, entry in (("parts", images), ("parts-bytes", pixels)):
    onnx.checker.check_model(onnx.load(name + ".onnx"), full_check=True)
    session = onnxruntime.InferenceSession(name + ".onnx", providers=["CPUExecutionProvider"])
    (theirs,) = session.run(None, {session.get_inputs()[0].name: entry})
    error = np.abs(theirs - wanted[name]).max() / np.abs(wanted[name]).max()
    print(f"{name}: largest difference {error:.1e} of the largest, which differ by {wanted[name].std(0).max():.2g} among images")
    assert error < 1e-5 and wanted[name].std(0).max() > 1000 * error, (error, wanted[name])
PYTHON
"$towers" export parts.onnx parts-int8.onnx --int8 --data-path data "${normalized[@]}" 2>err && status=1
grep -q "its weights are computed from others" err || { cat err; status=1; }

# --preprocess of a calibrated run divides by its temperature; with several classes for an image it has a sigmoid; what it cannot do
probabilities() { # FILE.onnx FORMULA
    "$python" - "$@" <<'PYTHON'
import sys
import numpy as np, onnxruntime
pixels, x = np.fromfile("ours.pixels", np.uint8).reshape(3, 28, 28, 1), np.fromfile("ours.logits", np.float32).reshape(3, 10)
(theirs,) = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"]).run(None, {"image": pixels})
wanted = eval(sys.argv[2])
assert np.abs(theirs - wanted).max() < 1e-6, (theirs, wanted)
PYTHON
}
run=runs/calibrated
"$towers" train fashion_cnn --data-path data --epochs 4 --batch-size 16 --experiment calibrated --quiet 2>/dev/null || status=1
"$towers" eval $run --calibrate --quiet >/dev/null || status=1
"$driver" fashion_cnn 28 10 "" $run/best.safetensors 3 ours || status=1
"$towers" export $run calibrated.onnx --preprocess --quiet || status=1
temperature=$(grep -o '"temperature": *[0-9.]*' $run/calibration.json | grep -o '[0-9.]*$')
[[ $temperature != 1 ]] && probabilities calibrated.onnx "np.exp(x / $temperature) / np.exp(x / $temperature).sum(1, keepdims=True)" || status=1
for fact in several_classes=true loss=bce; do # the first alone, as in earlier files
    "$python" - $run/best.safetensors $fact.safetensors "$fact" <<'PYTHON' || status=1
import sys
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
with safe_open(sys.argv[1], "np") as file:
    save_file(load_file(sys.argv[1]), sys.argv[2], {**file.metadata(), **dict([sys.argv[3].split("=")])})
PYTHON
    "$towers" export fashion_cnn $fact.onnx --preprocess --weights $fact.safetensors --quiet || status=1
    probabilities $fact.onnx "1 / (1 + np.exp(-x))" || status=1
done
"$towers" export $run x.safetensors --preprocess 2>err && status=1
grep -q "expected a classifier as ONNX, found safetensors" err || { cat err; status=1; }
"$towers" export wgan_gp x.onnx --preprocess --weights wgan_gp.safetensors 2>err && status=1
grep -q "found a generator" err || { cat err; status=1; }
exit $status
