#!/usr/bin/env python3
"""Compare what borrowed names do here with what they do in torchvision, timm, PyTorch and Keras, and print the table of
docs/results/conformance.md.

Usage: PYTHON_WITH_THE_PACKAGES scripts/conformance.py TOWERS > docs/results/conformance.md
       ... --check TOWERS PAGE     also compare the verdicts with those of the page

A row is `equal` (compared with the package itself), `refused` (towers ends with exit code 2 and says what to use instead) or `differs`
(the names are ours, and the page says how). Without Keras its rows are left out. Exit status 1: a row is none of these, or the page has
other verdicts."""
import csv
import inspect
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
EPOCHS, STEPS, BATCH = 6, 4, 4


def run(*arguments):
    return subprocess.run([towers, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)


# ---- learning rates

def data_write(folder):
    for name, images in (("train", STEPS * BATCH), ("t10k", BATCH)):
        with open(f"{folder}/{name}-images-idx3-ubyte", "wb") as to:
            to.write(struct.pack(">4I", 0x803, images, 28, 28) + bytes(i % 251 for i in range(images * 784)))
        with open(f"{folder}/{name}-labels-idx1-ubyte", "wb") as to:
            to.write(struct.pack(">2I", 0x801, images) + bytes(i % 10 for i in range(images)))


def rates_of(*arguments):
    """The learning rate of the first step of each epoch."""
    with tempfile.TemporaryDirectory() as work:
        data_write(work)
        found = run("train", "fashion_cnn", "--device", "cpu", "--data-path", work, "-b", str(BATCH), "--epochs", str(EPOCHS), "--eval-interval",
                    "0", "--opt", "sgd", "--lr", "0.1", "--output-dir", work, "--experiment", "run", "--quiet", *arguments)
        assert found.returncode == 0, found.stderr
        steps = [json.loads(line) for line in open(f"{work}/run/metrics.jsonl")]
    return [step["lr"] for step in steps if "lr" in step][::STEPS]


def rates_row(ours, make):
    import torch
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    schedule, wanted = make(torch.optim.lr_scheduler, optimizer), []
    for _ in range(EPOCHS):
        wanted.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    found = rates_of(*ours)
    worst = max(abs(a - b) for a, b in zip(wanted, found))
    assert len(found) == EPOCHS and worst < 1e-7, f"{ours}: wanted {wanted}, found {found}"
    return "equal", f"rates of {EPOCHS} epochs, largest difference {worst:.0e}"


def timm_cosine():
    import torch
    from timm.scheduler import CosineLRScheduler
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    schedule = CosineLRScheduler(optimizer, t_initial=EPOCHS, lr_min=0.001)
    wanted = []
    for epoch in range(EPOCHS):
        wanted.append(optimizer.param_groups[0]["lr"])
        schedule.step(epoch + 1)
    found = rates_of("--sched", "cosine", "--min-lr", "0.001")
    worst = max(abs(a - b) for a, b in zip(wanted, found))
    assert worst < 1e-7, f"wanted {wanted}, found {found}"
    return "equal", f"at the beginning of each epoch, largest difference {worst:.0e}; here the rate changes in each step"


def plateau_row():
    """ReduceLROnPlateau on the test losses that a run found gives the rates that the run had; and on the values of the golden file."""
    import torch
    page = os.path.join(HERE, "..", "tests", "unit", "golden_plateau.h")
    found = subprocess.run([sys.executable, os.path.join(HERE, "..", "tests", "golden", "plateau.py"), "--check", page], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    epochs, patience, cooldown, factor, threshold = 12, 1, 1, 0.3, 0.2
    with tempfile.TemporaryDirectory() as work:
        data_write(work)
        found = run("train", "fashion_cnn", "--device", "cpu", "--data-path", work, "-b", str(BATCH), "--epochs", str(epochs), "--opt", "momentum",
                    "--lr", "0.05", "--output-dir", work, "--experiment", "run", "--quiet", "--sched", "plateau", "--monitor", "loss", "--patience-epochs",
                    str(patience), "--cooldown-epochs", str(cooldown), "--decay-rate", str(factor), "--plateau-threshold", str(threshold))
        assert found.returncode == 0, found.stderr
        rows = list(csv.DictReader(open(f"{work}/run/results.csv")))
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.05)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=factor, patience=patience, cooldown=cooldown, threshold=threshold)
    wanted = []
    for row in rows:
        wanted.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step(float(row["test_loss"]))
    ours = [float(row["lr"]) for row in rows]
    assert len(ours) == epochs and len(set(wanted)) > 1 and max(map(lambda a, b: abs(a - b), wanted, ours)) < 1e-7, f"wanted {wanted}, found {ours}"
    return "equal", f"rates of {epochs} epochs with the test losses of a run, {len(set(wanted))} different; 10 settings with 40 made-up values each"


# ---- pixels

def pixels_and_targets():
    page = os.path.join(HERE, "..", "tests", "unit", "golden_images.h")
    found = subprocess.run([sys.executable, os.path.join(HERE, "..", "tests", "golden", "images.py"), "--check", page], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    return "equal", "50 JPEGs to the network's input and targets; with Pillow 10 or newer pixels differ by up to 4 levels of 255 (resizing order)"


def crop_pct():
    from PIL import Image
    from timm.data import create_transform
    side, part = 80, 0.875
    with tempfile.TemporaryDirectory() as work:
        os.mkdir(f"{work}/a")
        image = Image.effect_mandelbrot((200, 100), (-2, -1, 1, 1), 90).convert("RGB")
        image.save(f"{work}/a/0.png")
        sheet = f"{work}/sheet.png"
        found = run("data", "show", work, "--img-size", str(side), "--crop-pct", str(part), "-o", sheet)
        assert found.returncode == 0, found.stderr
        ours = Image.open(sheet).convert("RGB").crop((0, 0, side, side))
        make = create_transform(side, is_training=False, crop_pct=part, interpolation="bilinear", mean=(0, 0, 0), std=(1, 1, 1))
        theirs = (make(image) * 255).round().permute(1, 2, 0).numpy().astype("uint8").tobytes()
    worst = max(abs(a - b) for a, b in zip(ours.tobytes(), theirs))
    assert worst <= 2, f"pixels differ by {worst}"
    return "equal", f"evaluation pixels of an oblong image, largest difference {worst} levels of 255"


def erasing():
    from timm.data.random_erasing import RandomErasing
    import torch
    torch.manual_seed(1)
    filled = RandomErasing(1.0, mode="pixel", device="cpu")(torch.zeros(3, 32, 32))
    assert filled.std() > 0, "timm's default fills with a color"
    return refused("--reprob", "0.25", "random-erase")


# ---- names that mean something else, and defaults

def refused(flag, value, instead):
    found = run("train", "fashion_cnn", "--dataset", "synthetic", flag, value, "--dry-run")
    assert found.returncode == 2 and instead in found.stderr, f"{flag} {value}: exit {found.returncode}: {found.stderr}"
    said = " ".join(found.stderr.split())
    return "refused", re.sub(r"^error: ", "", said).replace("|", "/")


def epsilon_of(name):
    """The usual value of --opt-eps, from the table in the code."""
    with open(os.path.join(HERE, "..", "kernels", "optimizers.def")) as table:
        return float(re.search(rf"^OPTIMIZER\w*\({name}, .* ([-0-9.e]+)f\)$", table.read(), re.M).group(1))


def epsilon_row(ours, theirs, name):
    value = inspect.signature(theirs.__init__).parameters["eps" if name != "Keras" else "epsilon"].default
    if abs(epsilon_of(ours) - value) < 1e-3 * value:
        return "equal", f"epsilon {value:g}"
    return "differs", f"epsilon {epsilon_of(ours):g} here, {value:g} in {name}: give `--opt-eps {value:g}`"


def rows():
    import timm.optim
    import torch
    yield "`--lr-scheduler steplr --lr-step-size 2 --lr-gamma 0.5`", "torchvision", lambda: rates_row(
        ["--lr-scheduler", "steplr", "--lr-step-size", "2", "--lr-gamma", "0.5"], lambda lib, o: lib.StepLR(o, 2, 0.5))
    yield "`--lr-scheduler cosineannealinglr`", "torchvision", lambda: rates_row(
        ["--lr-scheduler", "cosineannealinglr"], lambda lib, o: lib.CosineAnnealingLR(o, EPOCHS))
    yield "`--sched step --decay-epochs 1 --decay-rate 0.5`, for ExponentialLR", "torchvision", lambda: rates_row(
        ["--sched", "step", "--decay-epochs", "1", "--decay-rate", "0.5"], lambda lib, o: lib.ExponentialLR(o, 0.5))
    yield "`--sched multistep`, as `--lr-schedule '0.1;2;0.01;4;0.001'`", "timm", lambda: rates_row(
        ["--sched", "multistep", "--lr-schedule", "0.1;2;0.01;4;0.001"], lambda lib, o: lib.MultiStepLR(o, [2, 4], 0.1))
    yield "`--sched poly --power 2`", "timm", lambda: rates_row(
        ["--sched", "poly", "--power", "2"], lambda lib, o: lib.PolynomialLR(o, EPOCHS, 2))
    yield "`--sched cosine --min-lr 0.001`", "timm", timm_cosine
    yield "`--lr-scheduler reducelronplateau`, `--sched plateau --patience-epochs --cooldown-epochs --decay-rate`", "PyTorch", plateau_row
    yield "`--lr-scheduler exponentiallr`", "torchvision", lambda: refused("--lr-scheduler", "exponentiallr", "--decay-epochs 1")
    yield "`--lr-warmup-epochs`", "torchvision", lambda: refused("--lr-warmup-epochs", "5", "--warmup-epochs")
    yield "`--model-ema-decay`", "torchvision, timm", lambda: refused("--model-ema-decay", "0.999", "--ema-decay")
    yield "crop, flip, color jitter, erasing, `--mixup-alpha`, `--cutmix-alpha`, `--label-smoothing`, weights of classes", "torchvision, PyTorch", pixels_and_targets
    yield "`--crop-pct 0.875`", "timm", crop_pct
    yield "`--reprob`", "timm", erasing
    yield "`--opt adam`", "PyTorch", lambda: epsilon_row("ADAM", torch.optim.Adam, "PyTorch")
    yield "`--opt adamw`", "PyTorch", lambda: epsilon_row("ADAMW", torch.optim.AdamW, "PyTorch")
    yield "`--opt rmsprop`", "PyTorch", lambda: epsilon_row("RMSPROP", torch.optim.RMSprop, "PyTorch")
    yield "`--opt rmsproptf`", "timm", lambda: epsilon_row("RMSPROP_TF", timm.optim.RMSpropTF, "timm")
    yield "`--opt lamb`", "timm", lambda: epsilon_row("LAMB", timm.optim.Lamb, "timm")
    try:
        import keras
    except ImportError:
        return
    yield "`--opt adam`", "Keras", lambda: epsilon_row("ADAM", keras.optimizers.Adam, "Keras")


def versions():
    found = []
    for name in ("torch", "torchvision", "timm", "keras", "PIL"):
        try:
            module = __import__(name)
            found.append(f"{ {'torch': 'PyTorch', 'PIL': 'Pillow', 'keras': 'Keras'}.get(name, name)} {module.__version__.split('+')[0]}")
        except ImportError:
            pass
    return ", ".join(found)


checks = sys.argv[1:2] == ["--check"]
if len(sys.argv) != (4 if checks else 2):
    print(__doc__.strip().split("\n\n")[1], file=sys.stderr)
    sys.exit(2)
towers = os.path.abspath(sys.argv[2 if checks else 1])
os.environ.setdefault("KERAS_BACKEND", "torch")
lines, bad = [], 0
for name, whose, compare in rows():
    try:
        verdict, what = compare()
    except AssertionError as error:
        verdict, what, bad = "WRONG", str(error), bad + 1
    lines.append(f"| {name} | {whose} | {verdict} | {what} |")
page = f"""# Borrowed names

Written by `scripts/conformance.py`: what options with names of other programs do, compared with {versions()}. The updates of the optimizers themselves are compared in [fidelity](fidelity.md).

| name | of | verdict | compared |
|---|---|---|---|
""" + "\n".join(lines)
print(page)
if checks:
    known = {tuple(line.split(" | ")[:3]) for line in open(sys.argv[3]) if line.startswith("| ")}
    for line in lines:
        if tuple(line.split(" | ")[:3]) not in known:
            print(f"not in {sys.argv[3]}: {line}", file=sys.stderr)
            bad += 1
sys.exit(bad > 0)
