#!/usr/bin/env python3
"""Compare what borrowed names do here with what they do in torchvision, timm, PyTorch and Keras, and print the table of
docs/results/conformance.md.

Usage: PYTHON_WITH_THE_PACKAGES scripts/parity/conformance.py TOWERS > docs/results/conformance.md
       ... --check TOWERS PAGE     also compare the verdicts with those of the page
       ... --weights TOWERS PAGE   of --check, the rows of inception/models/weights.json alone: any torchvision and timm will do

A row is `equal` (compared with the package itself), `alias` (another spelling of an option of ours: --print-config shows the same settings),
`cited` (a recipe whose source is in no package), `refused` (towers ends with exit code 2 and says what to use instead) or `differs` (the
names are ours, and the page says how). Without Keras its rows are left out. Exit status 1: a row is none of these, or the page has
other verdicts."""
import csv
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


def timm_rates(name, **settings):
    """The rates of the epochs, with the flags' defaults."""
    import torch
    from timm.scheduler import create_scheduler_v2
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    schedule, rates = create_scheduler_v2(optimizer, name, num_epochs=EPOCHS, **settings)[0], []
    for epoch in range(EPOCHS):
        rates.append(optimizer.param_groups[0]["lr"])
        schedule.step(epoch + 1)
    return rates


def timm_cosine():
    wanted, found = timm_rates("cosine", min_lr=0.001), rates_of("--sched", "cosine", "--min-lr", "0.001")
    worst = max(abs(a - b) for a, b in zip(wanted, found))
    assert worst < 1e-7, f"wanted {wanted}, found {found}"
    return "equal", f"at the beginning of each epoch, largest difference {worst:.0e}; here the rate changes in each step"


WARMUP = {"warmup_epochs": 2, "warmup_lr": 0.01}


def warmup(name, equal, ours=(), **settings):
    """The rates at the beginning of each epoch with a warm-up; those of the first `equal` epochs are timm's."""
    wanted, found = timm_rates(name, **WARMUP, **settings), rates_of("--sched", name, "--warmup-epochs", "2", "--warmup-lr", "0.01", *ours)
    differ = [epoch for epoch in range(EPOCHS) if abs(wanted[epoch] - found[epoch]) > 1e-7]
    assert differ == list(range(equal, EPOCHS)), f"wanted {wanted}, found {found}"
    if not differ:
        return "equal", f"at the beginning of each of {EPOCHS} epochs"
    return "differs", (f"the rise is timm's; the whole curve follows it here, in timm what is left of it by then: the rate of epoch {equal + 1} "
                       f"of {EPOCHS} is {found[equal]:.3g} here and {wanted[equal]:.3g} in timm")


def plateau_row():
    """ReduceLROnPlateau on the test losses that a run found gives the rates that the run had; and on the values of the golden file."""
    import torch
    page = os.path.join(HERE, "..", "..", "tests", "unit", "golden_plateau.h")
    found = subprocess.run([sys.executable, os.path.join(HERE, "..", "..", "tests", "golden", "plateau.py"), "--check", page], capture_output=True, text=True)
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
    page = os.path.join(HERE, "..", "..", "tests", "unit", "golden_images.h")
    found = subprocess.run([sys.executable, os.path.join(HERE, "..", "..", "tests", "golden", "images.py"), "--check", page], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    return "equal", "50 JPEGs to the network's input and targets; with Pillow 10 or newer pixels differ by up to 4 levels of 255 (resizing order)"


def crop_row(side, flags, make):
    """The pixels of evaluation with these flags, and those that make(an image) gives as [3][side][side] in 0 to 1."""
    from PIL import Image
    with tempfile.TemporaryDirectory() as work:
        os.mkdir(f"{work}/a")
        image = Image.effect_mandelbrot((200, 100), (-2, -1, 1, 1), 90).convert("RGB")
        image.save(f"{work}/a/0.png")
        sheet = f"{work}/sheet.png"
        found = run("data", "show", work, "--img-size", str(side), *flags, "-o", sheet)
        assert found.returncode == 0, found.stderr
        ours = Image.open(sheet).convert("RGB").crop((0, 0, side, side))
        theirs = (make(image) * 255).round().permute(1, 2, 0).numpy().astype("uint8").tobytes()
    worst = max(abs(a - b) for a, b in zip(ours.tobytes(), theirs))
    assert worst <= 2, f"pixels differ by {worst}"
    return "equal", f"evaluation pixels of an oblong image, largest difference {worst} levels of 255"


def crop_pct():
    from timm.data import create_transform
    return crop_row(80, ["--crop-pct", "0.875"], create_transform(80, is_training=False, crop_pct=0.875, interpolation="bilinear", mean=(0, 0, 0), std=(1, 1, 1)))


def resize_size():
    from torchvision import transforms
    return crop_row(80, ["--val-resize-size", "90"], transforms.Compose([transforms.Resize(90), transforms.CenterCrop(80), transforms.ToTensor()]))


def erasing():
    from timm.data.random_erasing import RandomErasing
    import torch
    torch.manual_seed(1)
    filled = RandomErasing(1.0, mode="pixel", device="cpu")(torch.zeros(3, 32, 32))
    assert filled.std() > 0, "timm's default fills with a color"
    return refused("--reprob", "0.25", "random-erase")


# ---- weight decay and learning rates of parameters

def modules_of(model, *arguments):
    """What `towers info` says of each top-level module: {module: (parameters, learning rate, parameters with weight decay)}."""
    found = run("info", model, "--device", "cpu", "--opt", "adamw", "--lr", "1", "--weight-decay", "0.05", "--lr-mult", "*=1", *arguments)
    assert found.returncode == 0, found.stderr
    rows = found.stdout.split("weight decay           of\n")[1].split("\n\n")[0].splitlines()
    return {row[0]: (int(row[1]), float(row[3]), int(row[5])) for row in map(str.split, rows)}


def network(name):
    import torchvision
    whole = {} if name.startswith("resnet") else {"init_weights": False, "aux_logits": True}
    return torchvision.models.get_model(name, weights=None, **whole)


DECAYED_MODELS = ("resnet18", "resnet50", "googlenet", "inception_v3")


def decay_row(flags, decayed):
    """decayed: the parameters of a network that have weight decay."""
    for name in DECAYED_MODELS:
        model = network(name)
        wanted, chosen = {}, {id(p) for p in decayed(model)}
        for path, p in model.named_parameters():
            part = wanted.setdefault(path.split(".")[0], [0, 0])
            part[0] += p.numel()
            part[1] += p.numel() * (id(p) in chosen)
        found = {module: [all, part] for module, (all, _, part) in modules_of(name, *flags).items()}
        assert found == wanted, f"{name}: wanted {wanted}, found {found}"
    return "equal", f"parameters with weight decay in each module of {', '.join(DECAYED_MODELS)}"


def timm_decayed(model):
    from timm.optim import param_groups_weight_decay
    return [p for group in param_groups_weight_decay(model, 0.05) if group["weight_decay"] for p in group["params"]]


def torchvision_decayed(model):
    """set_weight_decay of its references with norm_weight_decay and bias_weight_decay 0."""
    from torch import nn
    norms = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm, nn.modules.instancenorm._InstanceNorm, nn.LocalResponseNorm)
    return [p for module in model.modules() if not isinstance(module, norms) for name, p in module.named_parameters(recurse=False) if name != "bias"]


def layer_decay():
    import timm
    from timm.optim import param_groups_layer_decay
    model = timm.create_model("resnet18")
    names = {id(p): name.split(".")[0] for name, p in model.named_parameters()}
    theirs = {}
    for group in param_groups_layer_decay(model, 0.05, layer_decay=0.5):
        for p in group["params"]:
            theirs.setdefault(names[id(p)], set()).add(group["lr_scale"])
    ours = {module: {rate} for module, (_, rate, _) in modules_of("resnet18", "--layer-decay", "0.5").items()}
    assert max(theirs["fc"]) == max(ours["fc"]) == 1 and theirs.keys() == ours.keys(), f"{theirs}, {ours}"
    if ours == theirs:
        return "equal", "the rate of each module of resnet18"
    first, layers = min(min(rates) for rates in theirs.values()), sum(len(rates) for rates in theirs.values()) - 1
    return "differs", (f"a layer is a top-level module here, in timm what the network's matcher says: with 0.5 the first layer of resnet18 has the factor "
                       f"{min(ours['conv1']):.4g} here and {first:.4g} in timm, whose {layers} layers are the stem, each block, and the classifier")


# ---- the average of the weights

AVERAGE_DECAY, AVERAGE_STEPS = 0.3, 5


def averages():
    """The averages of weights and running statistics after each step, by both packages with the decay that towers documents."""
    import torch
    from safetensors.torch import load_file
    from timm.utils import ModelEmaV3

    def after(work, name, steps, *arguments):
        found = run("train", "inception_mini", "--device", "cpu", "--data-path", work, "-b", str(BATCH), "--opt", "sgd", "--lr", "0.05", "--sched", "constant",
                    "--no-augment", "--dropout", "0", "--seed", "3", "--max-steps", str(steps), "--epochs", "9", "--eval-interval", "0", "--output-dir", work, "--experiment", name,
                    "--quiet", *arguments)
        assert found.returncode == 0, found.stderr
        return {key.replace(".", "/"): tensor for key, tensor in load_file(f"{work}/{name}/last.safetensors").items()}

    class Weights(torch.nn.Module):
        def __init__(self, tensors):
            super().__init__()
            for name, tensor in tensors.items():
                floats = tensor.is_floating_point() and "running" not in name
                (self.register_parameter if floats else self.register_buffer)(name, torch.nn.Parameter(tensor.clone()) if floats else tensor.clone())

    with tempfile.TemporaryDirectory() as work:
        data_write(work)
        first = after(work, "first", 1)
        start = ["--pretrained", f"{work}/first/last.safetensors"]
        model, now = Weights(first), [0.0]
        timms = ModelEmaV3(model)
        torchs = torch.optim.swa_utils.AveragedModel(model, avg_fn=lambda average, p, _: now[0] * average + (1 - now[0]) * p, use_buffers=True)
        torchs.n_averaged.fill_(1)  # it copies in its first update
        worst = moved = 0.0
        for n in range(AVERAGE_STEPS):
            model.load_state_dict(after(work, f"plain{n}", n + 1, *start))
            ours = after(work, f"average{n}", n + 1, *start, "--ema-decay", str(AVERAGE_DECAY))
            timms.decay = now[0] = min(AVERAGE_DECAY, (1 + n) / (10 + n))
            timms.update(model)
            torchs.update_parameters(model)
            for name, tensor in ours.items():
                if tensor.is_floating_point():
                    for theirs in (timms.module, torchs.module):
                        worst = max(worst, (theirs.state_dict()[name] - tensor).abs().max().item())
                    moved = max(moved, (model.state_dict()[name] - tensor).abs().max().item())
    assert moved > 0.01 and worst < 1e-6, f"the averages differ by {worst}; weights and averages by {moved}"
    return "equal", (f"averages of weights and running statistics in {AVERAGE_STEPS} steps, largest difference {worst:.0e}, when both are given the decay of step n, "
                     "min(D, (1 + n) / (10 + n)) from n = 0; their own are another (the next rows)")


def clipped():
    """One update of SGD with the norm of the gradients clipped, and torch's clip_grad_norm_ of the gradients of one without."""
    import torch
    from safetensors.torch import load_file

    def weights_of(*flags):
        with tempfile.TemporaryDirectory() as work:
            found = run("train", "fashion_cnn", "--device", "cpu", "--dataset", "synthetic", "-b", "8", "--opt", "sgd", "--max-steps", "1",
                        "--eval-interval", "0", "--output-dir", work, "--experiment", "run", "--quiet", *flags)
            assert found.returncode == 0, found.stderr
            return load_file(f"{work}/run/last.safetensors")

    start, plain, ours = weights_of("--lr", "0"), weights_of("--lr", "1"), weights_of("--lr", "1", "--clip-grad-norm", "0.5")
    names = [name for name in start if not torch.equal(start[name], plain[name])]
    moved = [torch.nn.Parameter(start[name].double()) for name in names]
    for name, p in zip(names, moved):
        p.grad = (start[name] - plain[name]).double()
    norm = torch.nn.utils.clip_grad_norm_(moved, 0.5)
    worst = max(((start[name] - ours[name]).double() - p.grad).abs().max().item() for name, p in zip(names, moved))
    assert norm > 0.6 and worst < 1e-6, f"gradients of norm {norm}: updates differ by {worst}"
    return "equal", f"clip_grad_norm_(0.5) of gradients of norm {norm:.2f}, largest difference of a weight {worst:.0e}"


# ---- the optimizers, step by step

UPDATES, RATE, LARS_RATE, DECAY = 30, 0.01, 10, 0.05  # LARS multiplies its rate by about a thousandth


def settings_of(*flags, model="fashion_cnn"):
    """The values of a run's options, as --print-config shows them."""
    found = run("train", model, "--dataset", "synthetic", "--print-config", *flags)
    assert found.returncode == 0, found.stderr
    return dict(re.findall(r"^([a-z0-9-]+): ([^ #]+)", found.stdout, re.M))


def updates_of(flags, param, grads, decay, rate):
    """What the CPU's kernel makes of `param`, with the settings of these flags."""
    import numpy
    from safetensors.numpy import load_file, save_file
    driver = os.path.join(os.path.dirname(towers), "tests", "optimizer_driver")
    assert os.path.exists(driver), f"{driver} is missing: build the preset 'test'"
    settings = settings_of(*flags)
    name = settings["opt"]
    kind, epsilon = ("sgd" if name in ("momentum", "nesterov") else name), settings.get("opt-eps")
    words = {"kind": kind, "momentum": settings["momentum"], "nesterov": int(name == "nesterov"), "beta1": settings["beta1"], "beta2": settings["beta2"],
             "decay": settings["opt-decay"], "trust": settings["trust-coefficient"], "lr": rate, "weight_decay": decay,
             "eps": epsilon_of(kind.upper().replace("-", "_")) if epsilon is None else epsilon}
    with tempfile.TemporaryDirectory() as work:
        save_file({"param": param.astype(numpy.float32), "grad": grads.astype(numpy.float32)}, f"{work}/in")
        subprocess.run([driver, f"input={work}/in", f"output={work}/out"] + [f"{k}={v}" for k, v in words.items()], check=True)
        return load_file(f"{work}/out")["after.param"]


def updates_compare(flags, make, decay=DECAY, rate=RATE):
    """The largest difference from a torch optimizer in double precision, as a part of the largest move of a weight."""
    import numpy
    import torch
    random = numpy.random.default_rng(7)
    param = random.uniform(-1, 1, 6000).astype(numpy.float32)
    grads = (random.normal(0, 1, (UPDATES, param.size)) * 10.0 ** random.uniform(-6, 0, param.size)).astype(numpy.float32)
    weight = torch.nn.Parameter(torch.from_numpy(param).double().clone())
    optimizer = make([weight], rate, decay)
    for grad in grads:
        weight.grad = torch.from_numpy(grad).double()
        optimizer.step()
    wanted = weight.detach().numpy()
    return abs(updates_of(flags, param, grads, decay, rate) - wanted).max() / abs(wanted - param).max()


def updates_row(flags, make, instead=None, why="", rate=RATE):
    """instead: flags that make them equal if the name alone does not, and `why` it does not."""
    found = updates_compare(flags, make, rate=rate)
    assert found <= 1e-5 or instead, f"{flags}: updates differ by {found} of the largest move"
    if found <= 1e-5:
        return "equal", f"{UPDATES} updates, largest difference {found:.0e} of the largest move{why and ': ' + why}"
    worst = updates_compare(instead, make, rate=rate)
    assert worst <= 1e-5, f"{instead}: updates differ by {worst} of the largest move"
    return "differs", f"{why}: give `{' '.join(instead)}` ({UPDATES} updates then differ by {worst:.0e} of the largest move)"


def keras_adam():
    """Keras adds epsilon to the root of the second moment before its bias is corrected."""
    import keras
    import numpy
    weight = keras.Variable(numpy.zeros(1, "float32"))
    keras.optimizers.Adam(1.0).apply([keras.ops.convert_to_tensor(numpy.full(1, 1e-6, "float32"))], [weight])
    theirs = -float(keras.ops.convert_to_numpy(weight)[0])
    ours = -float(updates_of(["--opt", "adam"], numpy.zeros(1), numpy.full((1, 1), 1e-6), 0, 1)[0])
    if abs(ours - theirs) < 1e-5:
        return "equal", "the first update"
    return "differs", (f"epsilon {epsilon_of('ADAM'):g} in both, but Keras adds it before the bias is corrected: gradients of 1e-6 move a weight by "
                       f"{ours:.2f} of the rate here and by {theirs:.2f} in Keras in the first step; gradients far above 1e-5 move it alike")


# ---- names that mean something else, and defaults

def refused(flag, value, instead):
    found = run("train", "fashion_cnn", "--dataset", "synthetic", flag, value, "--dry-run")
    assert found.returncode == 2 and instead in found.stderr, f"{flag} {value}: exit {found.returncode}: {found.stderr}"
    said = " ".join(found.stderr.split())
    return "refused", re.sub(r"^error: ", "", said).replace("|", "/")


def alias(said, *pairs, command="train"):
    """pairs: (a borrowed name with a value, ours): the same settings, or the same refusal with the name that was typed."""
    for theirs, ours in pairs:
        wanted, found = (run(command, "fashion_cnn", "--print-config", *(["--dataset", "synthetic"] if command == "train" else []), *flags.split())
                         for flags in (ours, theirs))
        said_of = [re.sub(r" +# from .*", "", one.stdout) + one.stderr for one in (wanted, found)]
        for typed, name in zip(theirs.split(), ours.split()):
            said_of[1] = said_of[1].replace(typed, name) if found.returncode else said_of[1]
        assert said_of[0] == said_of[1], f"{theirs} is not {ours}: {said_of}"
    return "alias", said


def recipe(name, model, wanted, said):
    """wanted: settings of the recipe, as the package has them."""
    found = settings_of("--recipe", name, model=model)
    for key, value in wanted.items():
        same = found[key] == value if isinstance(value, str) else abs(float(found[key]) - value) < 1e-9
        assert same, f"recipe {name}: {key} is {found[key]}, expected {value}"
    return "equal" if wanted else "cited", said + ", ".join(f"`{key}`" for key in wanted)


def recipe_rows():
    import inspect
    import timm.data
    import timm.optim
    import torch
    from torchvision import transforms
    crop, norm = transforms.RandomResizedCrop(8), torch.nn.BatchNorm2d(1)
    step = inspect.signature(torch.optim.lr_scheduler.StepLR).parameters
    scripts = {"bn-decay": 1 - norm.momentum, "crop-area": crop.scale[0], "decay-rate": step["gamma"].default,
               "smoothing": torch.nn.CrossEntropyLoss().label_smoothing, "interpolation": crop.interpolation.value, "flip": "random"}
    script = "its script is in no package; of what that takes from torchvision and PyTorch equal: "
    yield "`--recipe torchvision`", "torchvision", lambda: recipe("torchvision", "inception_v3", scripts, script)
    yield "`--recipe torchvision-v3`", "torchvision", lambda: recipe("torchvision-v3", "inception_v3", scripts, script)
    group = timm.optim.create_optimizer_v2([torch.nn.Parameter(torch.zeros(1))], "sgd").param_groups[0]
    jitter = inspect.signature(timm.data.create_transform).parameters["color_jitter"].default
    yield "`--recipe timm`", "timm", lambda: recipe("timm", "inception_v3", {
        "opt": "nesterov" if group["nesterov"] else "momentum", "momentum": group["momentum"], "color-jitter": jitter, "bn-decay": 1 - norm.momentum,
        "flip": "random"}, "its script is in no package; of what that takes from timm and PyTorch equal: ")
    for name, model, whose in (("tf2016", "inception_v3", "tensorflow/models"), ("tpu2018", "inception_v3", "tensorflow/tpu"),
                               ("mlperf-lars", "resnet50", "MLPerf training"), ("iwt", "wgan_gp", "improved_wgan_training")):
        yield f"`--recipe {name}`", whose, lambda name=name, model=model: recipe(name, model, {}, f"no package has its source, which inception/recipes/{name}.yaml names")


# ---- weights

def checkpoint():
    """Which of two state dicts in a file timm's load_state_dict takes, and export takes here."""
    import torch
    from timm.models import load_state_dict
    from torchvision.models import resnet18
    keys = ("state_dict_ema", "model_ema", "state_dict", "model")
    states = [resnet18(num_classes=2).state_dict() for _ in range(2)]
    with tempfile.TemporaryDirectory() as work:
        path, to = f"{work}/checkpoint.pth.tar", f"{work}/taken.safetensors"
        for pair in ((a, b) for a in keys for b in keys if a != b):
            torch.save(dict(zip(pair, states)), path)
            for flags, wanted in ((), load_state_dict(path)), (("--weights-key", pair[0]), states[0]), (("--weights-key", pair[1]), states[1]):
                found = run("export", "resnet18", to, "--weights", path, *flags)
                assert found.returncode == 0, found.stderr
                with open(to, "rb") as file:
                    head = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
                    first, last = head["fc.weight"]["data_offsets"]
                    taken = file.read()[first:last]
                assert taken == wanted["fc.weight"].numpy().tobytes(), f"{pair} {flags}: another one than timm's"
    return "equal", "of two among `state_dict_ema`, `model_ema`, `state_dict` and `model` the one that timm takes, in all 12 pairs; `--weights-key` takes the other"


def weights_table():
    with open(os.path.join(HERE, "..", "..", "inception", "models", "weights.json"), encoding="utf-8") as table:
        return json.load(table)


def of_timm(row, name):
    """A row of inception/models/weights.json against timm's configuration of these weights."""
    from timm.models import get_pretrained_cfg
    cfg, settings = get_pretrained_cfg(name), row["settings"]
    mean, std, side = numbers_of(settings["mean"]), numbers_of(settings["std"]), int(settings["img_size"])
    assert (settings["interpolation"], side, int(settings["eval_resize"]), settings["crop"]) == (
        cfg.interpolation, cfg.input_size[1], int(cfg.input_size[1] / cfg.crop_pct), cfg.crop_mode), (settings, cfg)
    if (mean, std) != (cfg.mean, cfg.std):
        assert (mean, std) == (lite_numbers(127 / 255), lite_numbers(128 / 255)) and "normalized as TensorFlow" in row["title"], (settings, cfg)
        assert row["address"] == cfg.url and cfg.num_classes == classes_of(row), (row, cfg)
        return "differs", (f"address, size and crop are timm's, which normalizes with {cfg.mean[0]} and {cfg.std[0]}; here it is TensorFlow's (pixel - 127) / 128, "
                           "as the weights were trained")
    if cfg.url:
        assert row["address"] == cfg.url and cfg.num_classes == classes_of(row), (row, cfg)
        return "equal", "address, size, crop, interpolation, mean, std and classes"
    assert cfg.hf_hub_id and "up to 0.6" in row["title"], f"{name}: timm has another source of its weights, and the title of ours does not say so: {cfg}"
    return "differs", (f"size, crop, interpolation, mean and std are timm's; today it takes the file of {cfg.hf_hub_id}, {cfg.num_classes} classes, here it is the file "
                       f"of timm up to 0.6, {classes_of(row)} classes")


def numbers_of(text):
    return tuple(float(value) for value in text.split(","))


def lite_numbers(value):
    return (round(value, 6),) * 3


def classes_of(row):
    with open(os.path.join(HERE, "..", "..", "inception", "models", "imagenet.txt"), encoding="utf-8") as names:
        return len(names.read().splitlines()) + (row["class_names"] == "imagenet-background")


RENAMED = {  # an address of older versions of torchvision: that of today
    "https://download.pytorch.org/models/efficientnet_b0_rwightman-3dd342df.pth": "https://download.pytorch.org/models/efficientnet_b0_rwightman-7f5810bc.pth"}


def of_torchvision(row, name):
    """A row of inception/models/weights.json against torchvision's weights of that name."""
    import torch
    import torchvision
    family, version = name.split(".")
    weights = getattr(getattr(torchvision.models, family), version)
    settings, transform = row["settings"], weights.transforms()
    assert row["address"] == RENAMED.get(weights.url, weights.url), (row["address"], weights.url)
    assert (settings["img_size"], settings["eval_resize"], settings["interpolation"], settings["crop"]) == (
        str(transform.crop_size[0]), str(transform.resize_size[0]), transform.interpolation.value, "center"), (settings, transform)
    assert classes_of(row) == len(weights.meta["categories"]), row
    # The builders of two networks set transform_input with these weights: their first operation takes ImageNet's normalization back.
    mean, std = torch.tensor(transform.mean)[:, None, None], torch.tensor(transform.std)[:, None, None]
    pixels = torch.rand(2, 3, 5, 5, generator=torch.Generator().manual_seed(1))
    wanted, again = (pixels - mean) / std, ""
    build = {"googlenet": torchvision.models.GoogLeNet, "inception_v3": torchvision.models.Inception3}.get(row["model"])
    if build:
        with torch.no_grad():
            wanted = build(transform_input=True, init_weights=False)._transform_input(wanted)
        again = " (with transform_input, which its builder sets)"
    ours = (pixels - torch.tensor(numbers_of(settings["mean"]))[:, None, None]) / torch.tensor(numbers_of(settings["std"]))[:, None, None]
    assert (ours - wanted).abs().max() < 1e-5, (settings, transform)
    return "equal", f"address, size, crop, interpolation, mean, std{again} and the number of classes"


def weights_rows():
    for row in weights_table():
        package, name = re.match(r"(timm|torchvision) ([\w.]+)", row["title"]).groups()
        compare = {"timm": of_timm, "torchvision": of_torchvision}[package]
        yield f"`--pretrained {row['name']}` of {row['model']}", package, lambda row=row, name=name, compare=compare: compare(row, name)


def alias_rows():
    yield "`--num-gpus`, `--gpu-indices`, `--data-dir`, `--train-dir`, `--num-epochs`, `--num-batches`, `--optimizer`", "tf_cnn_benchmarks", lambda: alias(
        "other spellings of `--towers`, `--gpus`, `--data-path`, `--output-dir`, `--epochs`, `--max-steps`, `--opt`",
        ("--num-gpus 2", "--towers 2"), ("--gpu-indices 0,1", "--gpus 0,1"), ("--data-dir x", "--data-path x"), ("--train-dir x", "--output-dir x"),
        ("--num-epochs 3", "--epochs 3"), ("--num-batches 7", "--max-steps 7"), ("--optimizer adamw", "--opt adamw"))
    yield "`--num-warmup-batches`", "tf_cnn_benchmarks", lambda: alias("another spelling of `--warmup-batches` of towers bench",
                                                                       ("--num-warmup-batches 3", "--warmup-batches 3"), command="bench")
    yield "`--output`, `--checkpoint-hist`, `--initial-checkpoint`, `--pretrained-path`, `--num-classes`, `--validation-batch-size`, `--grad-accum-steps`, `--drop`", "timm", lambda: alias(
        "other spellings of `--output-dir`, `--keep`, `--pretrained` (two), `--classes`, `--eval-batch-size`, `--accumulate`, `--dropout`",
        ("--output x", "--output-dir x"), ("--checkpoint-hist 5", "--keep 5"), ("--initial-checkpoint x", "--pretrained x"), ("--pretrained-path x", "--pretrained x"),
        ("--num-classes 7", "--classes 7"), ("--validation-batch-size 9", "--eval-batch-size 9"), ("--grad-accum-steps 2", "--accumulate 2"), ("--drop 0.3", "--dropout 0.3"))
    yield "`--dist-bn reduce`, `--dist-bn broadcast`", "timm", lambda: alias(
        "`--bn-stats mean` and `first`: the mean of the towers' running statistics, or the first tower's; timm does this once an epoch, before evaluation",
        ("--dist-bn reduce", "--bn-stats mean"), ("--dist-bn broadcast", "--bn-stats first"))
    yield "`--hflip 0.5`", "timm", lambda: alias("its default; `--flip random`, and no other probability", ("--augment --hflip 0.5", "--augment --flip random"))
    yield "`--auto-augment ra`, `--auto-augment ta_wide`", "torchvision", lambda: alias(
        "`randaugment` and `trivialaugment`, whose operations `scripts/parity/data_parity.py` compares with Pillow pixel by pixel; the random choices are our own",
        ("--augment --auto-augment ra", "--augment --auto-augment randaugment"), ("--augment --auto-augment ta_wide", "--augment --auto-augment trivialaugment"))
    yield "`--print-freq`, `--use-deterministic-algorithms`", "torchvision", lambda: alias(
        "other spellings of `--log-interval`, `--deterministic`", ("--print-freq 3", "--log-interval 3"), ("--use-deterministic-algorithms", "--deterministic"))
    yield "`--stochastic-depth`, `--stochastic-depth-prob`", "torchvision", lambda: alias(
        "other spellings of `--drop-path`, which is timm's name", ("--stochastic-depth 0.3", "--drop-path 0.3"), ("--stochastic-depth-prob 0.3", "--drop-path 0.3"))
    yield "`--learning-rate`, `--wd`, `--n-critic`, `--gp-weight`", "several", lambda: alias(
        "other spellings of `--lr`, `--weight-decay`, `--critic-steps`, `--penalty-weight`", ("--learning-rate 0.2", "--lr 0.2"), ("--wd 0.2", "--weight-decay 0.2"),
        ("--n-critic 3", "--critic-steps 3"), ("--gp-weight 5", "--penalty-weight 5"))
    yield "`--device gpu`, `--flip true`, `--flip false`, `--flip 0`, `--flip 0.0`, `--amp-dtype bfloat16`, `--amp-dtype float16`", "several", lambda: alias(
        "`cuda`, `random`, `none` (three), `bf16`, `fp16`", ("--device gpu", "--device cuda"), ("--augment --flip true", "--augment --flip random"),
        *((f"--augment --flip {none}", "--augment --flip none") for none in ("false", "0", "0.0")), ("--amp --amp-dtype bfloat16", "--amp --amp-dtype bf16"),
        ("--amp --amp-dtype float16", "--amp --amp-dtype fp16"))
    yield from recipe_rows()
    yield "`--initial-checkpoint` of a file with averaged weights", "timm", checkpoint
    yield from weights_rows()


def epsilon_of(name):
    """The usual value of --opt-eps, from the table in the code."""
    with open(os.path.join(HERE, "..", "..", "kernels", "optimizers.def")) as table:
        return float(re.search(rf"^OPTIMIZER\w*\({name}, .* ([-0-9.e]+)f?,$", table.read(), re.M).group(1))


def optimizer_rows():
    import timm.optim
    import torch

    def timms(name, **more):
        return lambda weights, rate, decay: timm.optim.create_optimizer_v2(weights, name, lr=rate, weight_decay=decay, momentum=0.9, **more)

    def torchs(make, **more):
        return lambda weights, rate, decay: make(weights, lr=rate, weight_decay=decay, **more)

    def lamb():
        unclipped = updates_row(["--opt", "lamb"], torchs(timm.optim.Lamb, max_grad_norm=None))[1]
        assert updates_compare(["--opt", "lamb"], torchs(timm.optim.Lamb)) > 1e-5
        return "differs", f"timm clips the norm of all gradients to 1: give `--clip-norm 1` (with max_grad_norm=None in timm {unclipped})"

    def adapts(name, rate, **more):
        assert updates_compare(["--opt", name], timms(name, always_adapt=True, **more), 0, rate) <= 1e-5 < updates_compare(["--opt", name], timms(name, **more), 0, rate)
        return "differs", "here each weight that is no bias or norm has its trust ratio, in timm only one with weight decay (equal to timm's always_adapt)"

    sgd = torch.optim.SGD
    for name, whose, make, instead, why in (
            ("sgd", "PyTorch", torchs(sgd), None, ""),
            ("sgd", "torchvision", torchs(sgd, momentum=0.9), ["--opt", "momentum"], "without momentum here unless --momentum is given"),
            ("sgd", "timm", timms("sgd"), ["--opt", "nesterov"], "without momentum here unless --momentum is given; timm's is Nesterov's"),
            ("momentum", "timm", timms("momentum"), None, ""),
            ("nesterov", "timm", timms("nesterov"), None, ""),
            ("sgd_nesterov", "torchvision", torchs(sgd, momentum=0.9, nesterov=True), None, ""),
            ("rmsprop", "PyTorch", torchs(torch.optim.RMSprop), ["--opt", "rmsprop", "--opt-decay", "0.99", "--momentum", "0"], "decay rate 0.9 and momentum 0.9 here"),
            ("rmsprop", "torchvision", torchs(torch.optim.RMSprop, eps=0.0316, alpha=0.9, momentum=0.9), ["--opt", "rmsprop", "--opt-eps", "0.0316"], "epsilon 1e-8 here"),
            ("rmsprop", "timm", timms("rmsprop"), None, ""),
            ("rmsproptf", "timm", timms("rmsproptf"), ["--opt", "rmsproptf", "--opt-eps", "1e-10"], "epsilon 1 here, as in TensorFlow's Inception"),
            ("adam", "PyTorch, timm", timms("adam"), ["--opt", "adam", "--opt-eps", "1e-8"], "epsilon 1e-7 here, as in Keras"),
            ("adamw", "PyTorch, torchvision, timm", timms("adamw"), None, "")):
        yield f"`--opt {name}`", whose, lambda name=name, make=make, instead=instead, why=why: updates_row(["--opt", name], make, instead, why)
    yield "`--opt lars`", "timm", lambda: updates_row(["--opt", "lars"], timms("lars"), None, "with weight decay and a constant rate; after a change the old rate stays in "
                                                      "the momentum here", LARS_RATE)
    yield "`--lars-eta 0.02`", "timm", lambda: updates_row(["--opt", "lars", "--lars-eta", "0.02"], timms("lars", trust_coeff=0.02), rate=LARS_RATE / 20)
    yield "`--opt lamb`", "timm", lamb
    yield "`--opt lars` without weight decay", "timm", lambda: adapts("lars", LARS_RATE)
    yield "`--opt lamb` without weight decay", "timm", lambda: adapts("lamb", RATE, max_grad_norm=None)


def rows():
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
    yield "`--sched cosine --warmup-epochs 2 --warmup-lr 0.01`", "timm", lambda: warmup("cosine", 2, min_lr=0)
    yield "`--sched step --warmup-epochs 2 --warmup-lr 0.01`", "timm", lambda: warmup(
        "step", EPOCHS, ("--decay-epochs", "2", "--decay-rate", "0.5"), decay_epochs=2, decay_rate=0.5)
    yield "`--lr-scheduler cosineannealinglr --lr-min 0.001`", "torchvision", lambda: rates_row(
        ["--lr-scheduler", "cosineannealinglr", "--lr-min", "0.001"], lambda lib, o: lib.CosineAnnealingLR(o, EPOCHS, 0.001))
    yield "`--lr-scheduler reducelronplateau`, `--sched plateau --patience-epochs --cooldown-epochs --decay-rate`", "PyTorch", plateau_row
    yield "`--lr-scheduler exponentiallr`", "torchvision", lambda: refused("--lr-scheduler", "exponentiallr", "--decay-epochs 1")
    yield "`--lr-warmup-epochs`", "torchvision", lambda: refused("--lr-warmup-epochs", "5", "--warmup-epochs")
    yield "`--model-ema-decay`", "torchvision, timm", lambda: refused("--model-ema-decay", "0.999", "--ema-decay")
    yield "crop, flip, color jitter, erasing, `--mixup-alpha`, `--cutmix-alpha`, `--label-smoothing`, weights of classes", "torchvision, PyTorch", pixels_and_targets
    yield "`--crop-pct 0.875`", "timm", crop_pct
    yield "`--val-resize-size 90`", "torchvision", resize_size
    yield "`--reprob`", "timm", erasing
    yield "`--weight-decay` (filter_bias_and_bn, its default)", "timm", lambda: decay_row([], timm_decayed)
    yield "`--weight-decay` (norm-weight-decay 0, bias-weight-decay 0)", "torchvision", lambda: decay_row([], torchvision_decayed)
    yield "`--decay-all` (its default)", "torchvision", lambda: decay_row(["--decay-all"], lambda model: model.parameters())
    yield "`--norm-weight-decay`", "torchvision", lambda: refused("--norm-weight-decay", "0", "--decay-all")
    yield "`--bias-weight-decay`", "torchvision", lambda: refused("--bias-weight-decay", "0", "--decay-all")
    yield "`--layer-decay`", "timm", layer_decay
    yield "`--ema-decay`", "torchvision, timm", averages
    yield "`--model-ema`", "torchvision, timm", lambda: refused("--model-ema", "1", "--ema-decay")
    yield "`--model-ema-steps`", "torchvision", lambda: refused("--model-ema-steps", "32", "--ema-decay")
    yield "`--model-ema-warmup`", "timm", lambda: refused("--model-ema-warmup", "1", "--ema-decay")
    yield "`--clip-grad-norm`, `--clip-grad`", "torchvision, timm", clipped
    yield from optimizer_rows()
    yield from alias_rows()
    try:
        import keras
    except ImportError:
        return
    adam, norm = keras.optimizers.Adam(), keras.layers.BatchNormalization()
    yield "`--recipe tutorial`", "Keras", lambda: recipe("tutorial", "fashion_cnn", {
        "lr": float(adam.learning_rate), "beta1": adam.beta_1, "beta2": adam.beta_2, "opt-eps": adam.epsilon}, "defaults of Adam: ")
    yield "`--recipe keras`", "Keras", lambda: recipe("keras", "wgan_gp_keras", {
        "opt-eps": adam.epsilon, "bn-decay": norm.momentum}, "its script is in no package; of what that takes from Keras equal: ")
    yield "`--opt adam`", "Keras", keras_adam


def versions():
    found = []
    for name in ("torch", "torchvision", "timm", "keras", "PIL"):
        try:
            module = __import__(name)
            found.append(f"{ {'torch': 'PyTorch', 'PIL': 'Pillow', 'keras': 'Keras'}.get(name, name)} {module.__version__.split('+')[0]}")
        except ImportError:
            pass
    return ", ".join(found)


checks = sys.argv[1:2] in (["--check"], ["--weights"])
if len(sys.argv) != (4 if checks else 2):
    print(__doc__.strip().split("\n\n")[1], file=sys.stderr)
    sys.exit(2)
towers = os.path.abspath(sys.argv[2 if checks else 1])
os.environ.setdefault("KERAS_BACKEND", "torch")
lines, bad = [], 0
for name, whose, compare in (weights_rows() if sys.argv[1] == "--weights" else rows()):
    try:
        verdict, what = compare()
    except AssertionError as error:
        verdict, what, bad = "WRONG", str(error), bad + 1
    lines.append(f"| {name} | {whose} | {verdict} | {what} |")
page = f"""# Borrowed names

Written by `scripts/parity/conformance.py`: what options with names of other programs do, compared with {versions()}. Updates of the optimizers that PyTorch has are compared to the last bits in [fidelity](fidelity.md). `alias` is another spelling of an option here, with the same settings; `cited` a recipe whose source is in no package.

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
