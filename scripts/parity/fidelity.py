#!/usr/bin/env python3
"""Compare the networks of this project with torchvision and timm: equal weights and images go through PyTorch in float64,
PyTorch in float32, and the trainer; every logit, loss, gradient and running statistic is compared. The error of a tensor is
|t - t64| / |t64| (2-norms). Called by fidelity.sh, which finds the packages.

usage: fidelity.py DRIVER TOWERS MARKDOWN [CASE...]
"""
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np
import torch
import torchvision
from torch import nn
from torch.nn import functional

try:
    import timm
except ImportError:  # without it only torchvision's networks are checked
    timm = None

warnings.filterwarnings("ignore")
DEVICE = "cpu"  # for PyTorch
THREADS = 2
ORDERS = 12
GRADIENT_BOUND, LOGIT_BOUND, RATIO_BOUND = 1e-3, 1e-4, 2.0

# ---- safetensors: u64 length, JSON header, data

NAMES = {"F32": np.float32, "F64": np.float64, "I64": np.int64, "I32": np.int32, "U8": np.uint8}


def tensors_write(path, tensors):
    header, at = {}, 0
    kinds = {np.dtype(kind): name for name, kind in NAMES.items()}
    for name, array in tensors.items():
        header[name] = {"dtype": kinds[array.dtype], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())


def tensors_read(path):
    with open(path, "rb") as file:
        data = file.read()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    tensors = {}
    for name, info in header.items():
        if name != "__metadata__":
            first, end = (8 + length + offset for offset in info["data_offsets"])
            tensors[name] = np.frombuffer(data[first:end], NAMES[info["dtype"]]).reshape(info["shape"])
    return tensors


# ---- the networks in PyTorch


def inception_v3(case):
    return torchvision.models.inception_v3(weights=None, init_weights=False, num_classes=case.classes,
                                           transform_input=True, aux_logits=case.aux_weight > 0)  # fmt: skip


def googlenet(case):
    return torchvision.models.googlenet(weights=None, init_weights=False, num_classes=case.classes,
                                        aux_logits=case.aux_weight > 0)  # fmt: skip


def of_torchvision(name):
    return lambda case: getattr(torchvision.models, name)(weights=None, num_classes=case.classes)


def of_timm(name):
    return lambda case: timm.create_model(name, num_classes=case.classes)


class Shifted(nn.BatchNorm2d):
    """Without gamma: the ones in its place are no parameter."""

    def __init__(self, channels):
        super().__init__(channels, eps=1e-3)
        del self.weight
        self.register_buffer("weight", torch.ones(channels), persistent=False)


def lacking(side, k, stride):
    """TensorFlow's SAME: what a side lacks for windows over all of its pixels, before and behind."""
    lacks = max((-(-side // stride) - 1) * stride + k - side, 0)
    return lacks // 2, lacks - lacks // 2


class SlimUnit(nn.Module):
    """Convolution, batch norm, ReLU; a separable one, of `times` windows for each channel, has a bias instead."""

    def __init__(self, ins, outs, k, stride=1, times=0):
        super().__init__()
        self.k, self.stride, self.times = k, stride, times
        if times:
            self.depthwise = nn.Conv2d(ins, times * ins, k, stride, groups=ins, bias=False)
            self.pointwise = nn.Conv2d(times * ins, outs, 1)
        else:
            self.conv = nn.Conv2d(ins, outs, k, stride, bias=False)
            self.bn = Shifted(outs)

    def forward(self, x):
        x = functional.pad(x, lacking(x.shape[3], self.k, self.stride) + lacking(x.shape[2], self.k, self.stride))
        return functional.relu(self.pointwise(self.depthwise(x)) if self.times else self.bn(self.conv(x)))


def slim_max(x):
    """SAME of stride 2, on an even side."""
    assert x.shape[2] % 2 == 0
    return functional.max_pool2d(x, 3, 2, 0, ceil_mode=True)


class SlimBlock(nn.Module):
    """halves: without the branch of 1x1, the last convolutions of stride 2. pool: "avg" or "max" before a 1x1, or nothing."""

    def __init__(self, ins, one, narrow, three, narrow2, three2, out=0, pool="avg", halves=False):
        super().__init__()
        self.pool, first, stride = pool, 0 if halves else 1, 2 if halves else 1
        branches = [] if halves else [[("0a_1x1", SlimUnit(ins, one, 1))]]
        last = "1a_3x3" if halves else "0b_3x3"
        branches += [[("0a_1x1", SlimUnit(ins, narrow, 1)), (last, SlimUnit(narrow, three, 3, stride))]]
        branches += [[("0a_1x1", SlimUnit(ins, narrow2, 1)), ("0b_3x3", SlimUnit(narrow2, three2, 3)),
                      (last if halves else "0c_3x3", SlimUnit(three2, three2, 3, stride))]]  # fmt: skip
        branches += [] if halves else [[("0b_1x1", SlimUnit(ins, out, 1))]]
        for number, branch in enumerate(branches):
            named = nn.Sequential()
            for name, unit in branch:
                named.add_module(f"Conv2d_{name}", unit)
            self.add_module(f"Branch_{number}", named)
        self.convolved = len(branches) - (0 if halves else 1)

    def forward(self, x):
        made = [getattr(self, f"Branch_{number}")(x) for number in range(self.convolved)]
        if self.pool == "":
            return torch.cat(made + [slim_max(x)], 1)
        pooled = functional.max_pool2d(x, 3, 1, 1) if self.pool == "max" else functional.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
        return torch.cat(made + [getattr(self, f"Branch_{self.convolved}")(pooled)], 1)


class SlimInceptionV2(nn.Module):
    """TF-slim's nets/inception_v2.py."""

    def __init__(self, classes):
        super().__init__()
        self.Conv2d_1a_7x7 = SlimUnit(3, 64, 7, 2, times=8)
        self.Conv2d_2b_1x1 = SlimUnit(64, 64, 1)
        self.Conv2d_2c_3x3 = SlimUnit(64, 192, 3)
        halving = {"pool": "", "halves": True}
        self.Mixed_3b = SlimBlock(192, 64, 64, 64, 64, 96, 32)
        self.Mixed_3c = SlimBlock(256, 64, 64, 96, 64, 96, 64)
        self.Mixed_4a = SlimBlock(320, 0, 128, 160, 64, 96, **halving)
        self.Mixed_4b = SlimBlock(576, 224, 64, 96, 96, 128, 128)
        self.Mixed_4c = SlimBlock(576, 192, 96, 128, 96, 128, 128)
        self.Mixed_4d = SlimBlock(576, 160, 128, 160, 128, 160, 96)
        self.Mixed_4e = SlimBlock(576, 96, 128, 192, 160, 192, 96)
        self.Mixed_5a = SlimBlock(576, 0, 128, 192, 192, 256, **halving)
        self.Mixed_5b = SlimBlock(1024, 352, 192, 320, 160, 224, 128)
        self.Mixed_5c = SlimBlock(1024, 352, 192, 320, 192, 224, 128, pool="max")
        self.Logits = nn.ModuleDict({"Conv2d_1c_1x1": nn.Linear(1024, classes)})

    def forward(self, x):
        x = self.Conv2d_2c_3x3(self.Conv2d_2b_1x1(slim_max(self.Conv2d_1a_7x7(x))))
        x = self.Mixed_3c(self.Mixed_3b(slim_max(x)))
        for name in ("4a", "4b", "4c", "4d", "4e", "5a", "5b", "5c"):
            x = getattr(self, f"Mixed_{name}")(x)
        return self.Logits["Conv2d_1c_1x1"](x.mean((2, 3)))


class Case:
    """One network at one size. aux_weight 0: without auxiliary heads. gamma: batch norm has one."""

    def __init__(self, model, make, side, seed=1, batch=4, variant="", classes=1000, aux_weight=0.0, smoothing=0.0,
                 gamma=True):  # fmt: skip
        self.model, self.make, self.side, self.seed, self.variant = model, make, side, seed, variant
        self.classes, self.aux_weight, self.smoothing, self.gamma = classes, aux_weight, smoothing, gamma
        self.batch = batch
        self.name = f"{model} {variant}".strip()

    def title(self):
        return f"{self.name}, {self.side}x{self.side}, batch {self.batch}"


CASES = [
    Case("inception_v3", inception_v3, 107),
    Case("inception_v3", inception_v3, 299, aux_weight=0.4),
    Case("inception_v3", inception_v3, 107, variant="tf2016", classes=1001, smoothing=0.1, gamma=False),
    Case("googlenet", googlenet, 64, aux_weight=0.3),
    Case("inception_v4", of_timm("inception_v4"), 107),
    Case("inception_resnet_v2", of_timm("inception_resnet_v2"), 107),
    Case("resnet18", of_torchvision("resnet18"), 96),
    Case("resnet34", of_torchvision("resnet34"), 96),
    Case("resnet50", of_torchvision("resnet50"), 96),
    Case("resnet101", of_torchvision("resnet101"), 96),
    Case("mobilenet_v3_small", of_torchvision("mobilenet_v3_small"), 128, seed=2),
    Case("mobilenet_v3_large", of_torchvision("mobilenet_v3_large"), 128),
    Case("efficientnet_b0", of_torchvision("efficientnet_b0"), 128),
    Case("efficientnet_lite0", of_timm("tf_efficientnet_lite0"), 128),
    Case("convnext_tiny", of_torchvision("convnext_tiny"), 96),
    Case("inception_v2", lambda case: SlimInceptionV2(case.classes), 128, gamma=False),
    Case("xception", of_timm("legacy_xception"), 107),
]
KINKED = [Case("resnet18", of_torchvision("resnet18"), 32, batch=8), Case("resnet18", of_torchvision("resnet18"), 96, batch=8)]
KINKED_SEEDS, KINK_BOUND = 20, 1e-4
SETTLED = {}  # states by title and seed: one step and ten steps start from the same state
TRAINING_SEEDS = 3  # of which the median counts: in some steps an input of a ReLU crosses zero in one float32 and not in another
TRAINING = [(Case("inception_v3", inception_v3, 299, aux_weight=0.4), 10),
            (Case("efficientnet_b0", of_torchvision("efficientnet_b0"), 128), 5),
            (Case("convnext_tiny", of_torchvision("convnext_tiny"), 96), 5),
            (Case("inception_v2", lambda case: SlimInceptionV2(case.classes), 128, gamma=False), 5),
            (Case("xception", of_timm("legacy_xception"), 107), 5)]  # fmt: skip


@contextlib.contextmanager
def average_of(case):
    """tf2016 does not count padding in the divisor; torchvision calls the function through its module."""
    plain = functional.avg_pool2d
    if case.variant == "tf2016":
        functional.avg_pool2d = lambda *args, **kwargs: plain(*args, **{**kwargs, "count_include_pad": False})
    try:
        yield
    finally:
        functional.avg_pool2d = plain


def fresh_model(case):
    """PyTorch's initial values, no dropout or stochastic depth, and running statistics whose use can be detected."""
    torch.manual_seed(case.seed)
    model = case.make(case)
    for module in model.modules():
        if isinstance(module, (nn.Dropout, torchvision.ops.StochasticDepth)):
            module.p = 0.0
        if hasattr(module, "layer_scale"):
            nn.init.uniform_(module.layer_scale, 0.5, 1.5)  # at 1e-6 a block would be lost in rounding
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.1  # the driver's; MobileNets have another default
            nn.init.uniform_(module.running_mean, -0.5, 0.5)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
            if case.gamma:
                nn.init.uniform_(module.weight, 0.5, 1.5)
    return model


# If rounding moves the input of a ReLU across zero, a gradient passes in one computation and not in the other, and such accidents,
# not arithmetic, would determine the result. So biases are chosen, layer by layer, such that 5 to 30 % of the inputs of each ReLU
# are negative and none is close to zero.


def middle_of_gap(values, least=0.05, most=0.3):
    """For each row, the middle of the widest gap between two of its quantiles."""
    ordered, _ = values.sort(1)
    count = ordered.shape[1]
    first = min(int(least * count), max(count - 2, 0))
    last = max(int(most * count), first + 1)
    gaps = ordered[:, first + 1 : last + 1] - ordered[:, first:last]
    at = gaps.argmax(1, keepdim=True)
    return (ordered.gather(1, first + at) + gaps.gather(1, at) / 2)[:, 0]


def by_channel(x):
    return x.detach().transpose(0, 1).reshape(x.shape[1], -1)


def settle_norm(module, inputs):
    x = by_channel(inputs[0])
    deviation = (x.var(1, unbiased=False, keepdim=True) + module.eps).sqrt()
    module.bias.data = -middle_of_gap((x - x.mean(1, keepdim=True)) / deviation * module.weight[:, None])


def settle_dense(module, inputs):
    """A dense layer, or a convolution of one pixel."""
    module.bias.data = -middle_of_gap(functional.linear(inputs[0].flatten(1), module.weight.flatten(1)).detach().T)


def settle_residual(block, conv, out):
    """The ReLU of Inception-ResNet follows the sum."""
    if getattr(block, "act", None) is None and getattr(block, "relu", None) is None:
        return out
    shift = middle_of_gap(by_channel(out * block.scale + block.held)) / block.scale
    conv.bias.data -= shift
    return out - shift.view(1, -1, 1, 1)


def settle_bias(conv, out, writers):
    """A convolution whose bias is followed by a ReLU and a max pool: if no window were 0, the norm behind would cancel the bias."""
    shift = middle_of_gap(by_channel(out), 0.85, 0.95)
    conv.bias.data -= shift
    writers.add(conv, out - shift.view(1, -1, 1, 1))
    return out - shift.view(1, -1, 1, 1)


def hold_input(block, inputs):
    block.held = inputs[0].detach()


# The same applies to max pools: if the two largest values of a window are equal within rounding, rounding decides which pixel gets
# the gradient. In 3 million windows that happens ten times and would dominate the errors. So the weights of a channel are drawn
# again until the two largest values of every window differ by more than TIE of the channel's standard deviation.
TIE, DRAWS = 2e-5, 400


def tied_channels(x, kernel, stride, padding, ceil_mode):
    """Exactly equal values are not ties: zeros have no gradient, and overlapping pools pass on one value twice."""
    more = stride - 1 if ceil_mode else 0
    padded = functional.pad(x, (padding, padding + more, padding, padding + more), value=-np.inf)
    windows = padded.unfold(2, kernel, stride).unfold(3, kernel, stride)
    best = windows.flatten(4).topk(2).values
    gap = best[..., 0] - best[..., 1]
    near = (gap > 0) & (gap < TIE * x.std((0, 2, 3), keepdim=True))
    return near.any(3).any(2).any(0).nonzero()[:, 0].tolist()


class Tied(Exception):
    """Channels [(convolution, channel)] with a tie, in the first max pool that has one."""


class Writers:
    """The convolution and channel that a channel of a pool's input comes from: the one with the same largest value."""

    def __init__(self):
        self.conv, self.found = None, {}

    def convolved(self, conv, inputs, out):
        self.conv = conv

    def normalized(self, module, inputs, out):
        self.add(self.conv, out)

    def add(self, conv, out):
        for channel, largest in enumerate(out.amax((0, 2, 3)).tolist()):
            self.found[largest] = (conv, channel)

    def check_pool(self, x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, **rest):
        largest = x.amax((0, 2, 3)).tolist()
        tied = [self.found[largest[c]] for c in tied_channels(x, kernel_size, stride or kernel_size, padding, ceil_mode)]
        if tied:
            raise Tied(tied)


@contextlib.contextmanager
def pools_seen(see):
    """Calls see(input, **how) before every max pool."""
    plain = functional.max_pool2d

    def seen(x, *args, **kwargs):
        see(x, **dict(zip(("kernel_size", "stride", "padding", "dilation", "ceil_mode"), args)), **kwargs)
        return plain(x, *args, **kwargs)

    functional.max_pool2d = seen
    try:
        yield
    finally:
        functional.max_pool2d = plain


def settle(model, writers):
    """Hooks that choose biases while the model runs."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(writers.convolved)
        if isinstance(module, nn.BatchNorm2d):
            module.register_forward_pre_hook(settle_norm)
            module.register_forward_hook(writers.normalized)
        if name.endswith("fc1"):
            module.register_forward_pre_hook(settle_dense)
        if name.endswith("pointwise") and module.bias is not None:
            module.register_forward_hook(lambda conv, inputs, out: settle_bias(conv, out, writers))
        if hasattr(module, "scale") and hasattr(module, "conv2d"):
            module.register_forward_pre_hook(hold_input)
            module.conv2d.register_forward_hook(lambda conv, inputs, out, block=module: settle_residual(block, conv, out))
            module.register_forward_hook(lambda block, inputs, out: writers.add(block.conv2d, out))


def settled_state(case, image):
    """The state dict of a new model with weights and biases chosen for these images."""
    model, writers = fresh_model(case).double().to(DEVICE).train(), Writers()
    settle(model, writers)
    for draw in range(DRAWS):
        try:
            with torch.no_grad(), average_of(case), pools_seen(writers.check_pool):
                model(image.to(DEVICE))
            break
        except Tied as tied:
            for conv, channel in tied.args[0]:
                weight = conv.weight.data[channel]
                weight.copy_(torch.empty(weight.shape).uniform_(-1, 1) * weight.abs().max().item())
            writers.found.clear()
    else:
        sys.exit(f"{case.title()}: after {DRAWS} draws of the weights there are still ties at a max pool")
    print(f"  ({case.title()}: {draw} draws until no max pool had a tie)", file=sys.stderr)
    state = {name: value.clone() for name, value in fresh_model(case).state_dict().items()}
    return {**state, **{name: parameter.detach().float().cpu() for name, parameter in model.named_parameters()}}


def image_of(pixels, case, dtype):
    """The network's input: torchvision's ResNets, MobileNets, EfficientNets and ConvNeXts, and its inception_v3 with transform_input, expect ImageNet's mean and deviation,
    EfficientNet-Lite (pixel - 127) / 128."""
    x = torch.from_numpy(pixels.copy()).permute(0, 3, 1, 2).to(dtype) / 255
    if case.model == "efficientnet_lite0":
        mean, std = ([float(np.float32(127) / np.float32(255))] * 3, [float(np.float32(128) / np.float32(255))] * 3)
    elif case.model == "inception_v3" or case.model.startswith(("resnet", "mobilenet", "efficientnet", "convnext")):
        mean, std = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    else:
        mean, std = ([0.5] * 3, [0.5] * 3)
    view = lambda values: torch.tensor(values, dtype=dtype).view(1, 3, 1, 1)
    return (x - view(mean)) / view(std)


def heads_of(outputs):
    """Main logits, then auxiliary ones in the network's order (torchvision's googlenet swaps their names)."""
    if torch.is_tensor(outputs):
        return [outputs]
    if hasattr(outputs, "aux_logits1"):
        return [outputs.logits, outputs.aux_logits2, outputs.aux_logits1]
    if outputs.aux_logits is None:
        return [outputs.logits]
    return [outputs.logits, outputs.aux_logits]


def biased_variances(model, before, momentum=0.1):
    """The running variances as they would be if updated with biased variances, as TensorFlow does."""
    found = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.BatchNorm2d):
            old = before[f"{name}.running_var"].to(module.running_var)
            fed = (module.running_var - (1 - momentum) * old) * (module.count - 1) / module.count
            found[f"state.{name}.running_var"] = (1 - momentum) * old + fed
    return found


def count_pixels(module, inputs):
    module.count = inputs[0].numel() / inputs[0].shape[1]


def pixels_chosen(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, **rest):
    return functional.max_pool2d_with_indices(x.detach(), kernel_size, stride or kernel_size, padding, dilation, ceil_mode)[1]


def forward(case, model, pixels, labels, dtype, layout):
    with average_of(case):
        heads = heads_of(model(image_of(pixels, case, dtype).to(DEVICE).contiguous(memory_format=layout)))
    target = torch.from_numpy(labels.astype(np.int64)).to(DEVICE)
    heads = [head.to(dtype) for head in heads]  # as autocast does for a loss
    losses = [functional.cross_entropy(head, target, label_smoothing=case.smoothing) for head in heads]
    return heads, losses[0] + case.aux_weight * sum(losses[1:])


def pytorch_run(case, state, pixels, labels, dtype, lr, momentum, layout=torch.contiguous_format, half=None, scale=1):
    """The same values as the driver, under the same names. half: the type of autocast; scale: that of the loss."""
    model = fresh_model(case)
    model.load_state_dict(state)
    model = model.to(DEVICE, dtype).to(memory_format=layout).train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.register_forward_pre_hook(count_pixels)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    found, chosen = {}, []
    for step in range(pixels.shape[0]):
        optimizer.zero_grad()
        with pools_seen(lambda x, **how: step or chosen.append(pixels_chosen(x, **how))), torch.autocast(DEVICE, half, half is not None):
            heads, loss = forward(case, model, pixels[step], labels[step], dtype, layout)
        (loss * scale).backward()
        for p in model.parameters():
            p.grad = p.grad / scale
        if step == 0:
            found["loss"] = loss.detach()
            found.update({f"chosen.{i}": pixels for i, pixels in enumerate(chosen)})
            found["logits"] = heads[0].detach()
            found.update({f"aux_logits.{i}": head.detach() for i, head in enumerate(heads[1:])})
            found.update({f"grad.{name}": p.grad.clone() for name, p in model.named_parameters()})
        if not case.gamma:
            for module in model.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.weight.grad = None
        optimizer.step()
        if step == 0:
            running = {k: v for k, v in model.named_buffers() if k.endswith(("running_mean", "running_var"))}
            found.update({f"state.{name}": value.clone() for name, value in running.items()})
            if case.variant == "tf2016":
                found.update(biased_variances(model, state))
    found.update({f"after.{name}": value for name, value in model.state_dict().items()})
    return {name: value.detach().double().cpu().numpy() for name, value in found.items()}


def pytorch_singles(case, state, pixels, labels, lr, momentum, **more):
    """float32 in both memory formats."""
    return [pytorch_run(case, state, pixels, labels, torch.float32, lr, momentum, layout, **more)
            for layout in (torch.contiguous_format, torch.channels_last)]  # fmt: skip


def pytorch_orders(case, state, pixels, labels, lr, momentum):
    """float32 runs with the images in other orders, for values that do not depend on the order: one error may be small by luck,
    several show the size of rounding errors."""
    found = []
    for turn in range(ORDERS):
        layout = (torch.contiguous_format, torch.channels_last)[turn % 2]
        order = np.random.default_rng(turn).permutation(case.batch)
        run = pytorch_run(case, state, pixels[:, order], labels[:, order], torch.float32, lr, momentum, layout)
        found.append({name: value for name, value in run.items() if name.startswith(("loss", "grad.", "state."))})
    return found


# ---- the networks in the trainer


def driver_run(driver, case, work, passes, lr, momentum, **more):
    output = f"{work}/out-{passes}.safetensors"
    arguments = {
        "model": case.model, "variant": case.variant, "side": case.side, "classes": case.classes, "passes": passes,
        "lr": lr, "momentum": momentum, "smoothing": case.smoothing, "threads": THREADS,
        "aux": int(case.aux_weight > 0), "winograd": 1, "input": f"{work}/input.safetensors", "weights": f"{work}/weights.safetensors", "output": output,
    }  # fmt: skip
    arguments.update(more)
    if case.aux_weight:
        arguments["aux_weight"] = case.aux_weight
    subprocess.run([driver] + [f"{k}={v}" for k, v in arguments.items() if v != ""], check=True)
    return tensors_read(output)


def batch_draw(case, random):
    pixels = random.integers(0, 256, (case.batch, case.side, case.side, 3), dtype=np.uint8)
    smooth = np.linspace(0, 255, case.side)  # add a slope that differs from image to image, since noise has no structure
    for image in pixels:
        slope = random.uniform(-1, 1, (2, 3))
        ramp = smooth[:, None, None] * slope[0] + smooth[None, :, None] * slope[1]
        image[...] = np.clip(image * 0.5 + ramp * 0.5 + 64, 0, 255)
    return pixels, random.integers(0, case.classes, case.batch, dtype=np.int32)


def case_write(case, work, steps):
    random = np.random.default_rng(case.seed)
    batches = [batch_draw(case, random) for _ in range(steps)]
    pixels, labels = (np.stack(part) for part in zip(*batches))
    start = case.title(), case.seed
    if start not in SETTLED:
        SETTLED[start] = settled_state(case, image_of(pixels[0], case, torch.float64))
    state = SETTLED[start]
    gamma = lambda name: not case.gamma and name.replace(".bn.weight", "") != name
    tensors_write(f"{work}/weights.safetensors", {k: v.numpy() for k, v in state.items() if not gamma(k)})
    tensors_write(f"{work}/input.safetensors", {"pixels": pixels, "labels": labels})
    return state, pixels, labels


# ---- comparing


def error(have, wanted):
    norm = np.linalg.norm(wanted)
    return np.linalg.norm(have.astype(np.float64) - wanted) / norm if norm else np.linalg.norm(have)


def vanishing(double):
    """Gradients that are zero except for rounding: a bias before a batch norm."""
    norms = {name: np.linalg.norm(value) for name, value in double.items() if name.startswith("grad.")}
    return {name for name, norm in norms.items() if norm < 1e-9 * max(norms.values())}


class Table:
    def __init__(self):
        self.lines, self.failed = [], 0

    def say(self, line=""):
        print(line, flush=True)
        self.lines.append(line)

    def row(self, cells, passed=None):
        if passed is not None:
            cells = cells + ["ok" if passed else "**outside**"]
            self.failed += not passed
        self.say("| " + " | ".join(cells) + " |")


def errors_beside(prefix, ours, single, double):
    """Of all tensors with the prefix: our error, that of PyTorch's float32, and the ratio."""
    nothing = vanishing(double)
    names = [n for n in double if n.startswith(prefix) and n in ours and n not in nothing]
    mine = {n: error(ours[n], double[n]) for n in names}
    theirs = {n: max(error(run[n], double[n]) for run in single if n in run) for n in names}
    return mine, theirs, {n: mine[n] / max(theirs[n], np.finfo(np.float32).eps) for n in names}


def compare(table, title, groups, ours, single, double):
    """A row per group of tensors: worst error, and worst ratio to the error of PyTorch's float32."""
    for label, prefix, bound in groups:
        mine, theirs, ratios = errors_beside(prefix, ours, single, double)
        if not mine:
            continue
        far = max(ratios, key=ratios.get)
        passed = max(mine.values()) <= bound and ratios[far] <= RATIO_BOUND
        table.row([title, label, str(len(mine)), f"{max(mine.values()):.1e}", f"{max(theirs.values()):.1e}",
                   f"{np.median(list(ratios.values())):.2f}", f"{ratios[far]:.2f} ({far.split('.', 1)[-1]})"],
                  passed)  # fmt: skip


def missing(table, case, ours, double):
    """Every tensor of PyTorch exists here, and vice versa."""
    parts = ("grad.", "state.", "logits", "aux_logits")
    gamma = lambda n: not case.gamma and n.endswith(".bn.weight")
    theirs = {n for n in double if n.startswith(parts) and not gamma(n)}
    mine = {n for n in ours if n.startswith(parts)}
    if theirs != mine:
        table.failed += 1
        table.say(f"{case.name}: tensors that only one side has: {sorted(theirs ^ mine)[:8]}")


def compare_choices(table, title, single, double):
    """The test point is valid: at no max pool does rounding decide."""
    names = [n for n in double if n.startswith("chosen.")]
    windows = sum(double[n].size for n in names)
    others = sum(int((run[n] != double[n]).sum()) for n in names for run in single if n in run)
    table.row([title, f"max pools: {windows:,} windows", str(len(names)), "", f"{others} choose otherwise", "", ""],
              others == 0)  # fmt: skip


def compare_case(table, driver, case):
    with tempfile.TemporaryDirectory() as work:
        state, pixels, labels = case_write(case, work, 1)
        started = time.time()
        double = pytorch_run(case, state, pixels, labels, torch.float64, 0.01, 0)
        single = pytorch_singles(case, state, pixels, labels, 0.01, 0) + pytorch_orders(case, state, pixels, labels, 0.01, 0)
        print(f"  ({case.title()}: PyTorch took {time.time() - started:.0f} s)", file=sys.stderr)
        groups = [("logits", "logits", LOGIT_BOUND), ("auxiliary logits", "aux_logits", LOGIT_BOUND),
                  ("loss", "loss", LOGIT_BOUND), ("gradients", "grad.", GRADIENT_BOUND),
                  ("running statistics", "state.", LOGIT_BOUND)]  # fmt: skip
        compare_choices(table, case.title(), single, double)
        for passes in (0, 1):
            ours = driver_run(driver, case, work, passes, 0.01, 0)
            missing(table, case, ours, double)
            compare(table, f"{case.title()}, passes {'on' if passes else 'off'}", groups, ours, single, double)


def kink_errors(driver, case):
    """Of one step from PyTorch's initial weights: the errors of all gradients, of every way to compute in float32."""
    SETTLED[case.title(), case.seed] = fresh_model(case).state_dict()
    with tempfile.TemporaryDirectory() as work:
        state, pixels, labels = case_write(case, work, 1)
        double = pytorch_run(case, state, pixels, labels, torch.float64, 0.01, 0)
        contiguous, channels_last = pytorch_singles(case, state, pixels, labels, 0.01, 0)
        found = {
            "PyTorch, contiguous": contiguous,
            "PyTorch, channels last": channels_last,
            "`--winograd`": driver_run(driver, case, work, 1, 0.01, 0),
            "neither": driver_run(driver, case, work, 1, 0.01, 0, winograd=0),
            "`--no-winograd-f32`": driver_run(driver, case, work, 1, 0.01, 0, winograd=0, winograd_f32=0),
        }
    zero = vanishing(double)
    names = [name for name in double if name.startswith("grad.") and name not in zero]
    return {way: [error(one[name], double[name]) for name in names] for way, one in found.items()}


def compare_kinks(table, driver, case):
    """How often rounding moves an input of a ReLU across zero, and what that does to the gradients."""
    steps = []
    for case.seed in range(1, KINKED_SEEDS + 1):
        steps.append(kink_errors(driver, case))
    for way in steps[0]:
        errors = [step[way] for step in steps]
        crossed = [one for one in errors if max(one) > KINK_BOUND]
        smooth = [max(one) for one in errors if max(one) <= KINK_BOUND]
        table.row([case.title(), way, f"{len(crossed)} of {len(errors)}", f"{max(map(max, crossed)):.1e}" if crossed else "-",
                   f"{np.median(smooth):.1e}" if smooth else "-"])  # fmt: skip


def trained(driver, case, steps):
    """Some steps of SGD with momentum from a state dict; then our weights are loaded back."""
    with tempfile.TemporaryDirectory() as work:
        state, pixels, labels = case_write(case, work, steps)
        double = pytorch_run(case, state, pixels, labels, torch.float64, 0.001, 0.9)
        single = pytorch_singles(case, state, pixels, labels, 0.001, 0.9)
        ours = driver_run(driver, case, work, 1, 0.001, 0.9)
    moved = {n: v for n, v in ours.items() if n.startswith("after.") and not n.endswith("num_batches_tracked")}
    back = {n[len("after.") :]: torch.from_numpy(v.copy()) for n, v in ours.items() if n.startswith("after.")}
    fresh = fresh_model(case)
    fresh.load_state_dict(back, strict=True)
    counted = all(int(v) == steps for n, v in fresh.state_dict().items() if n.endswith("num_batches_tracked"))
    return errors_beside("after.", moved, single, {n: v for n, v in double.items() if n in moved}), len(back), counted


def compare_training(table, driver, case, steps):
    """Medians of several seeds, and the worst ratio of each."""
    found = []
    for case.seed in range(1, TRAINING_SEEDS + 1):
        found.append(trained(driver, case, steps))
    errors = [errors for errors, _, _ in found]
    mine, theirs = (np.median([max(e[side].values()) for e in errors]) for side in (0, 1))
    ratios = [max(ratios.values()) for _, _, ratios in errors]
    usual = np.median([np.median(list(ratios.values())) for _, _, ratios in errors])
    title = f"{case.title()}, {steps} steps"
    table.row([title, "weights and statistics", str(len(errors[0][0])), f"{mine:.1e}", f"{theirs:.1e}", f"{usual:.2f}",
               ", ".join(f"{ratio:.2f}" for ratio in ratios)], np.median(ratios) <= RATIO_BOUND)  # fmt: skip
    table.row([title, "loads back, strict", str(found[0][1]), "", "", "", ""], all(counted for _, _, counted in found))


def export_rows(table, towers):
    """The file that `towers export` writes for a run of one step."""
    cases = {case.model: case for case in CASES if not case.variant}
    with tempfile.TemporaryDirectory() as work:
        for model, case in cases.items():
            run = ["--img-size", str(case.side), "--classes", str(case.classes), "--batch-size", "2", "--max-steps", "1",
                   "--dataset", "synthetic", "--eval-interval", "0", "--summary-interval", "0", "--quiet", "--device", "cpu",
                   "--output-dir", work, "--experiment", model]  # fmt: skip
            subprocess.run([towers, "train", model] + run, check=True)
            subprocess.run([towers, "export", model, f"{work}/file.safetensors", "--weights", f"{work}/{model}", "--quiet"], check=True)
            state = {name: torch.from_numpy(value.copy()) for name, value in tensors_read(f"{work}/file.safetensors").items()}
            try:
                fresh_model(case).load_state_dict(state, strict=True)
                passed = all(int(v) == 1 for n, v in state.items() if n.endswith("num_batches_tracked"))
            except RuntimeError as refusal:
                print(refusal, file=sys.stderr)
                passed = False
            table.row([f"{case.name}{', with auxiliary heads' if case.aux_weight else ''}", str(len(state))], passed)


# ---- counts, and the first loss of the original recipe


def count_rows(table, towers):
    wanted = [
        ("inception_v3", [], 27161264, 5.72), ("inception_v3", ["--no-aux"], 23834568, 5.71),
        ("inception_v3", ["--variant", "tf2016"], 27145970, 5.72),
        ("inception_v3", ["--variant", "tf2016", "--no-aux"], 23819401, 5.71),
        ("googlenet", [], 13004888, 1.51), ("googlenet", ["--no-aux"], 6624904, 1.50),
        ("inception_v4", [], 42679816, 12.25), ("inception_resnet_v2", [], 55843464, 13.16),
        ("resnet18", [], 11689512, 1.81), ("resnet34", [], 21797672, 3.66), ("resnet50", [], 25557032, 4.09),
        ("resnet101", [], 44549160, 7.80), ("mobilenet_v3_small", [], 2542856, 0.06), ("mobilenet_v3_large", [], 5483032, 0.22),
        ("efficientnet_b0", [], 5288548, 0.39),
        ("efficientnet_lite0", [], 4652008, 0.39),
        ("convnext_tiny", [], 28589128, 4.46),
        ("inception_v2", [], 11178336, 1.93), ("xception", [], 22855952, 8.36),
    ]  # fmt: skip
    cases = {case.model: case for case in CASES if not case.variant}  # the last case of a model has auxiliary heads
    table.row(["network", "parameters", "PyTorch's", "multiply-adds, one image", "verdict"])
    table.row(["---"] * 5)
    for model, options, parameters, giga in wanted:
        text = subprocess.run([towers, "info", model, "--batch-size", "1"] + options, check=True, capture_output=True,
                              text=True).stdout  # fmt: skip
        total = re.search(r"^total, forward pass of one image\s+(\d+)\s+(\d+)$", text, re.M)
        have, macs = int(total[1]), int(total[2])
        theirs = ""
        if "--variant" not in options:
            made = fresh_model(cases[model]).named_parameters()
            side = "--no-aux" in options
            count = sum(p.numel() for n, p in made if not (side and n.startswith(("AuxLogits", "aux"))))
            theirs = f"{count:,}"
            parameters = count if count == parameters else -1
        passed = have == parameters and abs(macs / 1e9 - giga) <= 0.01
        table.row([" ".join([model] + options), f"{have:,}", theirs, f"{macs / 1e9:.3f} G"], passed)


def first_loss(table, driver):
    """1.4 ln 1001 and the L2 term of the initial values."""
    case = Case("inception_v3", inception_v3, 299, seed=3, batch=8, variant="tf2016", classes=1001, aux_weight=0.4, smoothing=0.1)
    with tempfile.TemporaryDirectory() as work:
        random = np.random.default_rng(case.seed)
        pixels = random.integers(0, 256, (1, case.batch, case.side, case.side, 3), dtype=np.uint8)
        labels = random.integers(1, case.classes, (1, case.batch), dtype=np.int32)
        tensors_write(f"{work}/input.safetensors", {"pixels": pixels, "labels": labels})
        arguments = ["model=inception_v3", "variant=tf2016", "classes=1001", "smoothing=0.1", "aux_weight=0.4",
                     "weight_decay=4e-5", "lr=0", "winograd=1", f"threads={THREADS}", f"input={work}/input.safetensors",
                     f"output={work}/out.safetensors"]  # fmt: skip
        subprocess.run([driver] + arguments, check=True)
        out = tensors_read(f"{work}/out.safetensors")
    main, aux, l2 = (float(out[name]) for name in ("main_loss", "aux_loss.0", "l2"))
    total = float(out["loss"]) + l2
    table.row(["part", "value", "expected", "verdict"])
    table.row(["---"] * 4)
    table.row(["main", f"{main:.3f}", "6.909 (ln 1001)"], abs(main - 6.909) < 0.15)
    table.row(["auxiliary, times 0.4", f"{0.4 * aux:.3f}", "2.764"], abs(0.4 * aux - 2.764) < 0.06)
    table.row(["L2", f"{l2:.3f}", "3.388"], abs(l2 - 3.388) < 0.02)
    table.row(["in all", f"{total:.3f}", "13.06 +- 0.3"], abs(total - 13.06) < 0.3)


# ---- the references of our own tests: the double-precision interpreter of op lists, and the optimizers

REFERENCE_BOUND = 1e-9
OPTIMIZER_STEPS, OPTIMIZER_BOUND = 50, 1e-5
REFERENCE = Case("googlenet", googlenet, 33, seed=2, aux_weight=float(np.float32(0.3)), classes=10)


def flat(tensor):
    """In the order of our arenas: {out, rows, columns, in}."""
    tensor = tensor.detach().double()
    if tensor.shape[1:] == (2048,):  # after the flattened 128 x 4 x 4 of an auxiliary head
        tensor = tensor.view(-1, 128, 4, 4)
    return (tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor).contiguous().flatten().numpy()


def reference_rows(table, driver, case):
    """Two programs in double precision, which may differ only in the order of sums."""
    random = np.random.default_rng(case.seed)
    pixels, labels = batch_draw(case, random)
    model = fresh_model(case).double().train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = float(np.float32(module.eps))  # as an op's attribute has it
    heads, loss = forward(case, model, pixels, labels, torch.float64, torch.contiguous_format)
    loss.backward()
    double = {"logits": flat(heads[0]), "loss": flat(loss)}
    double.update({f"grad.{name}": flat(p.grad) for name, p in model.named_parameters()})
    with tempfile.TemporaryDirectory() as work:
        tensors_write(f"{work}/weights.safetensors", {name: flat(p) for name, p in model.named_parameters()})
        tensors_write(f"{work}/input.safetensors", {"pixels": pixels, "labels": labels})
        for passes in (0, 1):
            arguments = {"model": case.model, "side": case.side, "classes": case.classes, "passes": passes,
                         "input": f"{work}/input.safetensors", "weights": f"{work}/weights.safetensors",
                         "output": f"{work}/out.safetensors"}  # fmt: skip
            subprocess.run([driver] + [f"{k}={v}" for k, v in arguments.items()], check=True)
            ours = tensors_read(f"{work}/out.safetensors")
            wanted = {name: value for name, value in double.items() if name not in vanishing(double)}
            worst = {name: error(ours[name], value) for name, value in wanted.items()}
            name = max(worst, key=worst.get)
            table.row([f"{case.title()}, passes {'on' if passes else 'off'}", str(len(wanted)), f"{worst[name]:.1e} ({name})"],
                      worst[name] <= REFERENCE_BOUND)  # fmt: skip


class RMSpropTF(torch.optim.Optimizer):
    """TensorFlow's: epsilon inside the root, mean square initially one, learning rate inside the momentum."""

    def __init__(self, parameters, lr, alpha, momentum, eps, weight_decay):
        super().__init__(parameters, {"lr": lr, "alpha": alpha, "momentum": momentum, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state.setdefault("square", torch.ones_like(p))
                state.setdefault("moved", torch.zeros_like(p))
                grad = p.grad + group["weight_decay"] * p
                state["square"] += (1 - group["alpha"]) * (grad * grad - state["square"])
                state["moved"] = group["momentum"] * state["moved"] + group["lr"] * grad / (state["square"] + group["eps"]).sqrt()
                p -= state["moved"]


def optimizer_cases():
    """(title, ours, PyTorch's class and arguments)"""
    sgd, adam = torch.optim.SGD, {"kind": "adam", "beta1": 0.9, "beta2": 0.999, "eps": 1e-7}
    rms = {"decay": 0.9, "momentum": 0.9}
    return [
        ("SGD", {"kind": "sgd"}, sgd, {}),
        ("SGD, momentum", {"kind": "sgd", "momentum": 0.9}, sgd, {"momentum": 0.9}),
        ("SGD, Nesterov", {"kind": "sgd", "momentum": 0.9, "nesterov": 1}, sgd, {"momentum": 0.9, "nesterov": True}),
        ("RMSProp of PyTorch", {"kind": "rmsprop", "eps": 1e-3, **rms}, torch.optim.RMSprop,
         {"alpha": 0.9, "eps": 1e-3, "momentum": 0.9}),
        ("RMSProp of TensorFlow", {"kind": "rmsprop-tf", "eps": 1.0, **rms}, RMSpropTF, {"alpha": 0.9, "momentum": 0.9, "eps": 1.0}),
        ("RMSProp of TensorFlow, epsilon 0.001", {"kind": "rmsprop-tf", "eps": 1e-3, **rms}, RMSpropTF,
         {"alpha": 0.9, "momentum": 0.9, "eps": 1e-3}),
        ("Adam", adam, torch.optim.Adam, {"betas": (0.9, 0.999), "eps": 1e-7}),
        ("AdamW", {**adam, "kind": "adamw"}, torch.optim.AdamW, {"betas": (0.9, 0.999), "eps": 1e-7}),
    ]  # fmt: skip


def pytorch_optimized(make, options, param, grads, dtype, lr, decay):
    weight = torch.nn.Parameter(torch.from_numpy(param.copy()).to(dtype))
    optimizer = make([weight], lr=lr, weight_decay=decay, **options)
    for grad in grads:
        weight.grad = torch.from_numpy(grad).to(dtype)
        optimizer.step()
    return {"after.param": weight.detach().double().numpy()}


def optimizer_rows(table, driver):
    random = np.random.default_rng(5)
    param = random.uniform(-1, 1, 20000).astype(np.float32)
    grads = random.normal(0, 1, (OPTIMIZER_STEPS, param.size)).astype(np.float32)
    lr, decay = 0.01, 0.05
    with tempfile.TemporaryDirectory() as work:
        tensors_write(f"{work}/input.safetensors", {"param": param, "grad": grads})
        for title, ours, make, options in optimizer_cases():
            arguments = {**ours, "lr": lr, "weight_decay": decay, "input": f"{work}/input.safetensors",
                         "output": f"{work}/out.safetensors"}  # fmt: skip
            subprocess.run([driver] + [f"{k}={v}" for k, v in arguments.items()], check=True)
            double, single = (pytorch_optimized(make, options, param, grads, dtype, lr, decay)
                              for dtype in (torch.float64, torch.float32))  # fmt: skip
            compare(table, title, [("weights", "after.", OPTIMIZER_BOUND)], tensors_read(f"{work}/out.safetensors"), [single], double)


INTRODUCTION = """# Fidelity

Written by `scripts/parity/fidelity.sh`: the networks of this project against torchvision {vision} and timm {timm} under PyTorch
{torch}. Equal weights and images go through PyTorch in float64, PyTorch in float32 and the trainer in float32 (dropout and
stochastic depth off, batch norm on the batch). The error of a tensor is the 2-norm of its difference from the float64 result, divided by
the 2-norm of that. No tensor may be more than {ratio:g} times as far from float64 as PyTorch's own float32 is (at least one
unit in the last place), and none beyond {gradient:g} (gradients) or {logit:g} (all else). PyTorch's own error depends on the
order of its sums, and in one order it may be small by chance. So the largest error of its two memory formats is used; for
loss, gradients and statistics, to which the order of the images does not matter, also of {orders} other orders of the images.

The test point is chosen such that the gradient exists there. At a ReLU whose input is zero within rounding, and at a max
pool whose two largest values are equal within rounding, rounding decides where the gradient goes, and two correct
programs differ by 1e-3 or more (10 of 2,834,560 windows caused 2.6e-3 of a gradient of inception_v3 at 299x299). So, in
float64, biases are chosen to lie in the widest gap between the inputs of each ReLU, and the weights of a channel that a
max pool reads are drawn again until no window has two largest values closer than {tie:g} of the channel's standard
deviation. All networks are treated alike, with the same seed; the rows *max pools* count the windows in which PyTorch's
float32 still chooses another pixel than its float64. Steps of training leave that point, so after them only the
comparison with PyTorch's float32 counts.

*Passes* are the rewrites of the op list (`--fuse-siblings`, `--pool-behind-conv`). `--winograd` is on, as these networks'
own settings have it. LARS and LAMB, which PyTorch does not
have, are compared with their papers' formulas by `test_optimizer`.

{machine}
"""


KINKS = f"""
The networks above were settled first, so that no input of a ReLU lies near zero. In training nothing keeps them away: where one
lies within rounding of zero, its gradient passes in one computation and not in the other, and the gradients of all layers in
front of it move by far more than rounding. These are {KINKED_SEEDS} steps from PyTorch's initial weights, each with another seed; *crossed* are
those with a gradient that is off by more than {KINK_BOUND:g} of float64's. *neither* is without `--winograd` and `--no-winograd-f32`.
How often that happens grows with the size of the images and with how coarsely sums round; how far it moves the gradients does not.
No float32 is free of it, so these rows have no bound; whether it matters to training, five seeds of a network say
(`scripts/measure/accuracy.sh winograd`)."""


def machine(towers):
    """The processor, what it computes with, and the commit."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        name = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "a processor without a name")
    doctor = subprocess.run([towers, "doctor"], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False).stdout
    kernels = next((" ".join(line.split()[3:]) for line in doctor.splitlines() if line.split()[1:3] == ["cpu", "backend"]), "")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    return f"Computed on {name}" + (f" ({kernels})" if kernels else "") + f" at commit {commit or 'unknown'}, {time.strftime('%Y-%m-%d')}."


def main():
    driver, towers, markdown, only = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
    torch.set_num_threads(THREADS)
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    table = Table()
    table.say(INTRODUCTION.format(vision=torchvision.__version__, timm=timm.__version__, torch=torch.__version__,
                                  gradient=GRADIENT_BOUND, logit=LOGIT_BOUND, ratio=RATIO_BOUND, tie=TIE, orders=ORDERS, machine=machine(towers)))  # fmt: skip
    wanted = lambda name: not only or name in only
    if wanted("counts"):
        table.say("## Sizes\n")
        count_rows(table, towers)
    if wanted("loss"):
        table.say("\n## The first loss of `inception_v3 --variant tf2016` (smoothing 0.1, weight decay 4e-5)\n")
        first_loss(table, driver)
    if wanted("export"):
        table.say("\n## `towers export`, taken by `load_state_dict(strict=True)`\n")
        table.row(["network", "tensors", "verdict"])
        table.row(["---"] * 3)
        export_rows(table, towers)
    drivers = os.path.dirname(driver)
    if wanted("reference"):
        table.say("\n## The double-precision interpreter of our tests, compared with PyTorch in float64\n")
        table.row(["network", "logits, loss, gradients", "worst error", "verdict"])
        table.row(["---"] * 4)
        reference_rows(table, f"{drivers}/reference_driver", REFERENCE)
    if wanted("optimizers"):
        table.say(f"\n## Optimizers, {OPTIMIZER_STEPS} steps of the same gradients (rate 0.01, weight decay 0.05)\n")
        head = ["optimizer", "tensors", "number", "worst error", "worst of PyTorch", "median ratio", "worst ratio", "verdict"]
        table.row(head)
        table.row(["---"] * len(head))
        optimizer_rows(table, f"{drivers}/optimizer_driver")
    head = ["network", "tensors", "number", "worst error", "worst of PyTorch", "median ratio", "worst ratio", "verdict"]
    table.say("\n## One step: forward, loss, backward, statistics\n")
    table.row(head)
    table.row(["---"] * len(head))
    for case in CASES:
        if wanted(case.name.replace(" ", "_")):
            compare_case(table, driver, case)
    if wanted("kinks"):
        table.say("\n## Where the gradient has kinks\n")
        kinks = ["network", "float32 by", "crossed", "largest error of those", "median of the others"]
        table.row(kinks)
        table.row(["---"] * len(kinks))
        for case in KINKED:
            compare_kinks(table, driver, case)
        table.say(KINKS)
    if wanted("training"):
        table.say("\n## Steps of SGD (rate 0.001, momentum 0.9) from a torchvision state dict\n")
        table.say(f"Medians of {TRAINING_SEEDS} seeds, each with other weights and images, and the worst ratio of each seed: the median counts.\n")
        table.row(head)
        table.row(["---"] * len(head))
        for case, steps in TRAINING:
            compare_training(table, driver, case, steps)
    table.say(f"\n{table.failed} rows outside their bounds." if table.failed else "\nAll rows inside their bounds.")
    with open(markdown, "w") as file:
        file.write("\n".join(table.lines) + "\n")
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main())
