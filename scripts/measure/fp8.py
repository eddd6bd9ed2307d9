#!/usr/bin/env python3
"""The parts of scripts/measure/fp8.sh; see there.

usage: fp8.py mini RECORDS [SEED]...     five seeds of inception_mini in each arithmetic, as far as RECORDS lacks them
       fp8.py v3 RECORDS FOLDER SECONDS  steps of inception_v3 at 139 pixels on the pictures of FOLDER/train, for so long
       fp8.py section RECORDS NAME       a table of docs/results/fp8.md: speed, mini, gradients or v3

The networks are PyTorch's: that of bench_torch.py and that of torchvision. A convolution rounds its operands, the input and the weights
before it multiplies forward, the gradient of its output before it multiplies backward, and adds in f32, as tensor cores do. What it writes
is rounded to bf16. The rest computes in f32.
"""
import collections
import json
import math
import os
import statistics
import sys
import time

KINDS = ("f32", "bf16", "fp8 current", "fp8 delayed")
SEEDS, IMAGES, TESTS, EPOCHS, BATCH = (1, 2, 3, 4, 5), 2560, 2000, 2, 64  # of Fashion-MNIST
V3_SIDE, V3_BATCH, V3_RATE, V3_WARMUP = 139, 16, 0.001, 10
HISTORY = 16  # largest values that delayed scaling remembers
LARGEST = {"e4m3fn": 448.0, "e5m2": 57344.0}
H200_TFLOPS, H200_TB, REACHED_FLOPS, REACHED_BYTES, TILE = 790.0, 4.3, 0.70, 0.85, 64  # as scripts/measure/roofline.sh has them
V3_STEP_MS, V3_CONV_MS, V3_GPU_BATCH = 36.25, 7.02 + 7.68 + 8.99, 256  # measured on an H200 in bf16, docs/results/gpu.md


# ---- rounding

def to_bf16(x):
    import torch
    return x.to(torch.bfloat16).float()


class Eighth:
    """Rounds one operand of one convolution to 8 bits. The scale brings the largest magnitude to the largest value of the type: that of
    this tensor, or with delayed scaling that of the last steps; then a larger value saturates, and the first step has the scale 1."""

    def __init__(self, form, delayed):
        self.form, self.seen = form, collections.deque(maxlen=HISTORY) if delayed else None

    def __call__(self, x, learns):
        import torch
        now = float(x.abs().max())
        most = now if self.seen is None else max(self.seen, default=LARGEST[self.form])
        if self.seen is not None and learns:
            self.seen.append(now)
        if not (0 < most < math.inf):
            return x  # of zeros; what is not finite stays so
        scale, largest = LARGEST[self.form] / most, LARGEST[self.form]
        return (x * scale).clamp_(-largest, largest).to(getattr(torch, f"float8_{self.form}")).float().div_(scale)


def rounders(kind, ends):
    """Of the input, the weights and the gradient; `ends`: the first convolution."""
    if kind == "bf16" or ends:
        return [lambda x, learns: to_bf16(x)] * 3
    return [Eighth(form, kind == "fp8 delayed") for form in ("e4m3fn", "e4m3fn", "e5m2")]


def rounded(network, kind):
    """Its convolutions and its classifier compute in `kind`; the first convolution and the classifier in 16 bits, if it has fewer."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Convolution(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w, module):
            x, w = module.rounders[0](x, module.training), module.rounders[1](w, module.training)
            ctx.save_for_backward(x, w)
            ctx.module = module
            return to_bf16(F.conv2d(x, w, None, module.stride, module.padding, module.dilation, module.groups))

        @staticmethod
        def backward(ctx, g):
            (x, w), m = ctx.saved_tensors, ctx.module
            asked = [ctx.needs_input_grad[0], True, False]
            dx, dw, _ = torch.ops.aten.convolution_backward(m.rounders[2](g, True), x, w, None, m.stride, m.padding, m.dilation, False,
                                                            [0, 0], m.groups, asked)
            return None if dx is None else to_bf16(dx), dw, None

    class Bf16(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return to_bf16(x)

        @staticmethod
        def backward(ctx, g):
            return to_bf16(g)

    first = True
    for module in network.modules():
        if kind != "f32" and isinstance(module, nn.Conv2d):
            module.rounders, first = rounders(kind, first), False
            module.forward = lambda x, m=module: Convolution.apply(x, m.weight, m)
        elif kind != "f32" and isinstance(module, nn.Linear):
            module.forward = lambda x, m=module: Bf16.apply(F.linear(Bf16.apply(x), Bf16.apply(m.weight), m.bias))
    return network


# ---- records

def records_read(path):
    return [json.loads(line) for line in open(path)] if os.path.exists(path) else []


def record_add(path, **values):
    with open(path, "a") as file:
        file.write(json.dumps(values) + "\n")
    print(values if len(str(values)) < 200 else str(values)[:200], flush=True)


def begin(seed):
    import torch
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)


def gradient(network, images, labels):
    import torch
    from torch.nn import functional as F
    network.zero_grad(set_to_none=True)
    F.cross_entropy(network(images), labels).backward()
    return torch.cat([p.grad.reshape(-1) for p in network.parameters()]).double()


def gradient_errors(make, state, images, labels):
    """{kind: |g - f32's| / |f32's|} at the same weights on the same images."""
    found = {}
    for kind in KINDS[:3]:
        network = make()
        network.load_state_dict(state)
        found[kind] = gradient(rounded(network, kind).train(), images, labels)
    truth = found.pop("f32")
    return {kind: float((g - truth).norm() / truth.norm()) for kind, g in found.items()}


# ---- inception_mini

def mini_make():
    from bench_torch import InceptionMini
    from train_torch import initialize
    network = InceptionMini()
    initialize(network)
    network.dropout = 0.0
    return network


def mini_train(kind, seed, data):
    import torch
    from torch.nn import functional as F
    from train_torch import DECAY, MOMENTUM, SMOOTHING, one_cycle
    images, labels, test, truth = data
    begin(seed)
    network = rounded(mini_make(), kind)
    groups = [{"params": [p for p in network.parameters() if (p.dim() > 1) == many], "weight_decay": DECAY * many} for many in (True, False)]
    optimizer = torch.optim.SGD(groups, 0.1, MOMENTUM, nesterov=True)
    steps, losses = EPOCHS * math.ceil(len(labels) / BATCH), []
    for ids in (ids for _ in range(EPOCHS) for ids in torch.randperm(len(labels)).split(BATCH)):
        for group in optimizer.param_groups:
            group["lr"] = one_cycle(len(losses), steps)
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(network(images[ids]), labels[ids], label_smoothing=SMOOTHING)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    network.eval()
    with torch.inference_mode():
        right = torch.cat([network(part).argmax(1) for part in test.split(500)]) == truth
    return network, 100 * float(right.float().mean()), statistics.mean(losses[-20:])


def mini(path, *seeds):
    from train_torch import part_read
    import torch
    data = (*part_read("train", IMAGES), *part_read("t10k", TESTS))
    for seed in map(int, seeds or SEEDS):
        for kind in KINDS:
            row = {"what": "mini", "kind": kind, "seed": seed, "images": IMAGES, "epochs": EPOCHS, "tests": TESTS}
            if any(row.items() <= r.items() for r in records_read(path)):
                continue
            before = time.process_time()
            network, accuracy, loss = mini_train(kind, seed, data)
            record_add(path, **row, accuracy=accuracy, loss=loss, seconds=round(time.process_time() - before, 1),
                       torch=torch.__version__.split("+")[0])
            if seed == 1 and kind == "f32":
                begin(seed)
                for when, state in (("with initial values", mini_make().state_dict()), ("trained", network.state_dict())):
                    record_add(path, what="gradient", network="inception_mini", when=when,
                               errors=gradient_errors(mini_make, state, data[0][:256], data[1][:256]))


# ---- inception_v3

def v3_make(classes):
    import torchvision
    from train_torch import initialize
    network = torchvision.models.inception_v3(num_classes=classes, aux_logits=False, init_weights=False, dropout=0.0)
    initialize(network)
    return network


def pictures(folder):
    """All of FOLDER/train, resized to squares, as one tensor of bytes, with the labels; and the number of classes."""
    import numpy
    import torch
    from PIL import Image
    names = sorted(os.listdir(os.path.join(folder, "train")))
    paths = [(os.path.join(folder, "train", name, file), i) for i, name in enumerate(names) for file in sorted(os.listdir(os.path.join(folder, "train", name)))]
    pixels = [numpy.asarray(Image.open(path).convert("RGB").resize((V3_SIDE, V3_SIDE), Image.BILINEAR)) for path, _ in paths]
    return torch.from_numpy(numpy.stack(pixels)), torch.tensor([label for _, label in paths]), len(names)


def v3(path, folder, seconds):
    """The kinds of arithmetic take turns at each step, so that all have equally many when the time is over."""
    import torch
    from torch.nn import functional as F
    begin(1)
    pixels, labels, classes = pictures(folder)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))

    def batch(ids):
        return ((pixels[ids].permute(0, 3, 1, 2).float() / 255 - mean) / std).contiguous(memory_format=torch.channels_last)

    state = v3_make(classes).state_dict()
    networks, end = {}, time.monotonic() + float(seconds)
    for kind in KINDS[:3]:
        network = v3_make(classes)
        network.load_state_dict(state)
        networks[kind] = rounded(network.to(memory_format=torch.channels_last).train(), kind)
    optimizers = {kind: torch.optim.AdamW(network.parameters(), V3_RATE, weight_decay=0.05) for kind, network in networks.items()}
    order = torch.Generator().manual_seed(1)
    losses, name = {kind: [] for kind in networks}, os.path.basename(os.path.normpath(folder))
    while time.monotonic() < end:
        ids = torch.randperm(len(labels), generator=order)[:V3_BATCH]
        images = batch(ids)
        for kind, network in networks.items():
            for group in optimizers[kind].param_groups:
                group["lr"] = V3_RATE * min(1, (len(losses[kind]) + 1) / V3_WARMUP)
            optimizers[kind].zero_grad(set_to_none=True)
            loss = F.cross_entropy(network(images), labels[ids])
            loss.backward()
            if not losses[kind]:
                g = torch.cat([p.grad.reshape(-1) for p in network.parameters()]).double()
                truth = g if kind == "f32" else truth
                losses.setdefault("errors", {})[kind] = float((g - truth).norm() / truth.norm())
            optimizers[kind].step()
            losses[kind].append(float(loss.detach()))
        print(len(losses["f32"]), [round(losses[k][-1], 3) for k in networks], flush=True)
    errors = losses.pop("errors")
    record_add(path, what="gradient", network="inception_v3, 139 pixels", when="with initial values", errors={k: e for k, e in errors.items() if k != "f32"})
    record_add(path, what="v3", folder=name, images=len(labels), classes=classes, seconds=float(seconds), losses=losses)


# ---- what it could win

def convolutions():
    """(positions in, positions out of an image, channels in and out, taps) of each convolution of inception_v3 at 299 pixels."""
    import torch
    import torchvision
    found = []
    with torch.device("meta"):
        network = torchvision.models.inception_v3(init_weights=False, aux_logits=False).eval()
        for module in network.modules():
            if isinstance(module, torch.nn.Conv2d):
                module.register_forward_hook(lambda m, x, y: found.append(
                    (x[0][0, 0].numel(), y[0, 0].numel(), m.in_channels, m.out_channels, m.kernel_size[0] * m.kernel_size[1])))
        network(torch.empty(1, 3, 299, 299))
    return found


def milliseconds(layers, eight):
    """Of forward, dx and dw at the practical limits: each operand read once, each result written once in 16 bits, gradients of weights
    in 32. The first layer has no dx and stays in 16 bits."""
    def up(n):
        return -(-n // TILE) * TILE

    def time_of(size, rate, rows, columns, depth, reads, writes):
        return max((reads * size + writes) / (H200_TB * REACHED_BYTES * 1e9), 2 * up(rows) * up(columns) * depth / (rate * REACHED_FLOPS * 1e9))

    total = [0.0, 0.0, 0.0]
    for at, (ins, outs, i, o, taps) in enumerate(layers):
        size, rate = (1, 2 * H200_TFLOPS) if eight and at else (2, H200_TFLOPS)
        x, y, w, rows = V3_GPU_BATCH * ins * i, V3_GPU_BATCH * outs * o, i * o * taps, V3_GPU_BATCH * outs
        total[0] += time_of(size, rate, rows, o, i * taps, x + w, 2 * y)
        total[1] += time_of(size, rate, V3_GPU_BATCH * ins, i, o * taps * outs / ins, y + w, 2 * x) if at else 0
        total[2] += time_of(size, rate, i * taps, o, rows, x + y, 4 * w)
    return total


def rewritten(layers):
    """Milliseconds to read in 16 bits and to write twice in 8 the inputs and the gradients of the outputs of all layers but the first."""
    elements = sum(V3_GPU_BATCH * (ins * i + outs * o) for ins, outs, i, o, _ in layers[1:])
    return 4 * elements / (H200_TB * REACHED_BYTES * 1e9)


def speed_lines(_):
    layers = convolutions()
    wide, narrow = milliseconds(layers, False), milliseconds(layers, True)
    factor, rest = sum(narrow) / sum(wide), V3_STEP_MS - V3_CONV_MS
    copies = "another kernel reads what the norms wrote in 16 bits, and writes both layouts"
    ways = [("bf16, as measured", V3_CONV_MS, 0.0), ("bf16, convolutions at their limits", sum(wide), 0.0),
            ("8 bits, delayed scaling: the norms write both layouts in place of 16 bits", V3_CONV_MS * factor, 0.0),
            (f"8 bits, current scaling: {copies}", V3_CONV_MS * factor, rewritten(layers)),
            ("convolutions in no time at all", 0.0, 0.0)]
    lines = ["| | forward | dx | dw | all |", "|---|---:|---:|---:|---:|"]
    lines += [f"| {name} | {' | '.join(f'{ms:.2f}' for ms in (*each, sum(each)))} |" for name, each in (("bf16", wide), ("8 bits", narrow))]
    lines += ["", "| step of batch 256 | convolutions, ms | rounding, ms | step, ms | images/s |", "|---|---:|---:|---:|---:|"]
    for name, conv, more in ways:
        step = rest + conv + more
        lines.append(f"| {name} | {conv:.1f} | {more:.1f} | {step:.1f} | {V3_GPU_BATCH / step * 1000:,.0f} |")
    return lines


# ---- the page

def mean_or_nothing(values):
    return f"{statistics.mean(values):.2f}" if values else ""


def mini_lines(records):
    row = {"what": "mini", "images": IMAGES, "epochs": EPOCHS, "tests": TESTS}
    runs = {(r["kind"], r["seed"]): r for r in records if row.items() <= r.items()}
    lines = [f"| | {' | '.join(f'seed {seed}' for seed in SEEDS)} | mean | mean loss at the end |", f"|---|{'---:|' * (len(SEEDS) + 2)}"]
    for kind in KINDS:
        of_kind = [runs.get((kind, seed)) for seed in SEEDS]
        cells = [f"{r['accuracy']:.2f}" if r else "" for r in of_kind]
        whole = [r for r in of_kind if r] if all(of_kind) else []
        lines.append(f"| {kind} | {' | '.join(cells)} | {mean_or_nothing([r['accuracy'] for r in whole])} | "
                     f"{mean_or_nothing([r['loss'] for r in whole])} |")
    missing = len(KINDS) * len(SEEDS) - len(runs)
    return lines + ["", f"{missing} of {len(KINDS) * len(SEEDS)} runs are not measured yet; no mean is taken of fewer than {len(SEEDS)} seeds."] * (missing > 0)


def gradient_lines(records):
    rows = {(r["network"], r["when"]): r["errors"] for r in records if r["what"] == "gradient"}
    lines = ["| network | weights | bf16 | 8 bits, current scaling | ratio |", "|---|---|---:|---:|---:|"]
    for (network, when), errors in rows.items():
        bf16, eight = errors["bf16"], errors["fp8 current"]
        lines.append(f"| {network} | {when} | {bf16:.3f} | {eight:.3f} | {eight / bf16:.1f} |")
    return lines


def v3_lines(records):
    runs = [r for r in records if r["what"] == "v3"]
    if not runs:
        return ["Not measured yet."]
    run = max(runs, key=lambda r: len(r["losses"]["f32"]))
    steps = len(run["losses"]["f32"])
    shown = sorted({at for at in (1, 2, 5, 10, 20, 50, 100, 200, 500, steps) if at <= steps})
    lines = [f"{steps} steps of {V3_BATCH} pictures from {run['images']} in {run['classes']} classes, one seed, the same pictures in each arithmetic; "
             f"the loss at a step. So few steps show whether it diverges at once, and nothing of the accuracy.", "",
             f"| | {' | '.join(f'step {at}' for at in shown)} |", f"|---|{'---:|' * len(shown)}"]
    return lines + [f"| {kind} | {' | '.join(f'{values[at - 1]:.3f}' for at in shown)} |" for kind, values in run["losses"].items()]


SECTIONS = {"speed": speed_lines, "mini": mini_lines, "gradients": gradient_lines, "v3": v3_lines}


def section(path, name):
    print("\n".join(SECTIONS[name](records_read(path))))


if __name__ == "__main__":
    parts = {"mini": mini, "v3": v3, "section": section}
    if len(sys.argv) < 3 or sys.argv[1] not in parts:
        sys.exit(__doc__.split("\n\n")[1])
    parts[sys.argv[1]](*sys.argv[2:])
