#!/usr/bin/env python3
"""Take two networks of Keras to ONNX and through towers, compare each step, and print a table of docs/guide/your_network.md.

Usage: "$(scripts/venv.sh keras)" scripts/parity/keras_networks.py TOWERS [NAME]...

MobileNetV2 and EfficientNetB0 of keras.applications are made with random weights and random statistics of their batch norms, as of trained
networks, and written by model.export(format="onnx") and by tf2onnx.convert. Of each file: the largest difference of a probability that
`towers predict` and Keras give to eight images, as the file is and with --norms restore; whether four steps of training with two towers have
the same weights as two steps and two resumed ones; and the largest difference between `towers predict` of the run and ONNX Runtime with its
export."""
import json
import os
import subprocess
import sys
import tempfile

SIDE, CLASSES, IMAGES = 96, 10, 8
NETWORKS = {"MobileNetV2": ("--mean", "0.5", "--std", "0.5"), "EfficientNetB0": ()}  # the second one normalizes by itself


def network_of(name, random):
    import keras
    keras.utils.set_random_seed(1)
    network = getattr(keras.applications, name)(weights=None, input_shape=(SIDE, SIDE, 3), classes=CLASSES)
    for layer in network.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            shape = layer.weights[0].shape
            layer.set_weights([random.uniform(0.5, 1, shape), random.normal(0, 0.1, shape), random.normal(0, 0.1, shape), random.uniform(0.5, 1.5, shape)])
        elif isinstance(layer, (keras.layers.Conv2D, keras.layers.Dense)):
            layer.set_weights([random.normal(0, 0.1, w.shape) if w.ndim == 1 else w for w in layer.get_weights()])
    return network


def exported(network, form, path):
    if form == "model.export":
        network.export(path, format="onnx", verbose=False)
    else:
        network.export("saved", verbose=False)
        subprocess.run([sys.executable, "-m", "tf2onnx.convert", "--saved-model", "saved", "--output", path], check=True, capture_output=True)


def towers(*arguments):
    said = subprocess.run([TOWERS, *arguments], capture_output=True, text=True, env=os.environ | {"TOWERS_RECIPE": "none"})
    if said.returncode:
        sys.exit(f"towers {' '.join(arguments)}: {said.stderr}")
    return said.stdout


def predicted(*arguments):
    """Probabilities {images, classes} in the order of the classes."""
    lines = towers("predict", *arguments, *(f"image-{k}.ppm" for k in range(IMAGES)), "--json", "--top", str(CLASSES)).splitlines()
    rows = [sorted((int(p["class"]), p["probability"]) for p in json.loads(line)["predictions"]) for line in lines]
    return [[probability for _, probability in row] for row in rows]


def tensors(path):
    data = open(path, "rb").read()
    return data[8 + int.from_bytes(data[:8], "little"):]


def row(name, form, network, pixels):
    import numpy
    import onnxruntime
    own = NETWORKS[name]
    path = f"{name}-{form}.onnx".lower().replace("model.", "")
    x = pixels.astype(numpy.float32) if not own else ((pixels / numpy.float32(255) - 0.5) / 0.5).astype(numpy.float32)
    truth = network(x, training=False).numpy()
    exported(network, form, path)
    cells = [name, form, f"{abs(numpy.array(predicted(path, *own)) - truth).max():.0e}"]
    common = ("--data-path", "data", "--device", "cpu", "--no-amp", "--batch-size", "4", "--lr", "0.001", "--eval-resize", str(SIDE), "--quiet", *own)
    for norms in ("keep", "restore"):
        run = f"{path[:-5]}-{norms}"
        towers("train", path, *common, "--norms", norms, "--epochs", "0", "--experiment", f"{run}-start")
        if norms == "restore":
            cells.append(f"{abs(numpy.array(predicted(f'runs/{run}-start')) - truth).max():.0e}")
        towers("train", path, *common, "--norms", norms, "--towers", "2", "--max-steps", "4", "--experiment", f"{run}-whole")
        towers("train", path, *common, "--norms", norms, "--towers", "2", "--max-steps", "2", "--experiment", run)
        towers("train", "--resume", f"runs/{run}", "--max-steps", "4", "--quiet")
        same = tensors(f"runs/{run}/last.safetensors") == tensors(f"runs/{run}-whole/last.safetensors")
        towers("export", f"runs/{run}/last.safetensors", f"{run}-out.onnx", "--quiet")
        session = onnxruntime.InferenceSession(f"{run}-out.onnx", providers=["CPUExecutionProvider"])
        (theirs,) = session.run(None, {session.get_inputs()[0].name: x})
        difference = abs(numpy.array(predicted(f"runs/{run}/last.safetensors")) - theirs).max()
        cells += ["the same" if same else "others", f"{difference:.0e}"]
    return "| " + " | ".join(cells) + " |"


def main():
    import numpy
    versions = ", ".join(f"{name} {__import__(name).__version__}" for name in ("keras", "tensorflow", "tf2onnx", "onnxruntime"))
    random = numpy.random.default_rng(0)
    pixels = random.integers(0, 256, (IMAGES, SIDE, SIDE, 3), numpy.uint8)
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        for k, image in enumerate(pixels):
            open(f"image-{k}.ppm", "wb").write(b"P6\n%d %d\n255\n" % (SIDE, SIDE) + image.tobytes())
        for part in ("train", "val"):
            for label in range(CLASSES):
                os.makedirs(f"data/{part}/{label}")
                for k in range(4):
                    image = random.integers(0, 256, (SIDE, SIDE, 3), numpy.uint8)
                    open(f"data/{part}/{label}/{k}.ppm", "wb").write(b"P6\n%d %d\n255\n" % (SIDE, SIDE) + image.tobytes())
        lines = [f"{versions}; `scripts/parity/keras_networks.py`:", "",
                 "| network | written by | the file as it is | with `--norms restore` | resumed weights | export, ONNX Runtime | resumed, norms restored | its export |",
                 "|---|---|---|---|---|---|---|---|"]
        for name in sys.argv[2:] or NETWORKS:
            network = network_of(name, random)
            for form in ("model.export", "tf2onnx"):
                found = row(name, form, network, pixels).split(" | ")
                lines.append(" | ".join([*found[:3], found[5], found[3], found[4], *found[6:]]))
                print(lines[-1], file=sys.stderr, flush=True)
        print("\n".join(lines))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        sys.exit(2)
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    TOWERS = os.path.realpath(sys.argv[1])
    main()
