#!/usr/bin/env bash
# Files written by 'towers export', run by onnxruntime and read by safetensors: logits, or the images of a generator, agree to 1e-4, for
# one image and for several (the batch is dynamic); with --preprocess, probabilities of the bytes of a picture. The packages are installed once into a virtual environment in the user's cache.
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
small_data data 512 128 || status=1
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
