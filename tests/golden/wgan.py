#!/usr/bin/env python3
"""Write tests/unit/golden_wgan.h: gradients of critics with gradient penalty as PyTorch computes them, in float64, with the distance of
its float32 from them. Needs torch.

The loss is sum D(fake) - sum D(real) + 10 sum (|dD/dx| - 1)^2 at x = real + alpha (fake - real), by torch.autograd.grad with
create_graph=True. A critic is a list of layers: "half C" is a 5x5 convolution of stride 2 with C outputs and TensorFlow's "same"
padding, with bias, then leaky ReLU 0.2; "drop RATE" is dropout; "pad N" a border of zeros; at the end dense to one score. Element i of
the tensor NAME is a number u(i) in [0, 1) made of the CRC-32 of its name, counted with channels innermost; images are u, weights
(u - 1/2) sqrt(24 / fan in), biases (u - 1/2) / 2. alpha and the masks are the project's own random numbers: word e % 4 of
Philox4x32-10(seed; e / 4, step, 0, stream) for element e of the step, streams counted in the order of use. tests/unit/test_wgan.c
uses the same formulas.
Usage: PYTHON_WITH_TORCH tests/golden/wgan.py > tests/unit/golden_wgan.h
"""
import zlib

import numpy as np
import torch
import torch.nn.functional as F

N, SEED, STEP, FIRST = 4, 5, 3, 2
CRITICS = [
    (16, 2, ["half 3", "half 4"]),
    (9, 1, ["half 4", "drop 0.3", "half 5", "drop 0.2"]),
    (12, 3, ["pad 2", "half 3", "half 4", "drop 0.3", "half 5", "drop 0.3", "half 6", "drop 0.2"]),
]


def u(name, shape):
    """NHWC values as an NCHW array, or those of a vector."""
    n, c, h, w = shape
    i = np.arange(1, n * c * h * w + 1, dtype=np.uint64)
    values = ((i * 2654435761 + zlib.crc32(name.encode())) % 2**32 >> 8).astype(np.float32) / np.float32(2**24)
    return values.reshape(n, h, w, c).transpose(0, 3, 1, 2)


def philox(group, stream):
    mask = 0xFFFFFFFF
    c0, c1, c2, c3, k0, k1 = group, STEP, 0, stream, SEED, 0
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & mask, (p0 >> 32) ^ c3 ^ k1, p0 & mask
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    return c0, c1, c2, c3


def random_units(shape, stream):
    n, c, h, w = shape
    first = FIRST * c * h * w
    units = [np.float32(philox(e // 4, stream)[e % 4] >> 8) / np.float32(2**24) for e in range(first, first + n * c * h * w)]
    return np.array(units, np.float32).reshape(n, h, w, c).transpose(0, 3, 1, 2)


def parameters(side, channels, layers):
    """Names and values in the order in which the critic uses them; channels innermost is the order of the list that is printed."""
    made, c, convs = [], channels, 0
    for layer in layers:
        kind, value = layer.split()
        side += 2 * int(value) if kind == "pad" else 0
        if kind != "half":
            continue
        convs, out = convs + 1, int(value)
        made.append((f"conv{convs}.weight", (out, c, 5, 5), np.sqrt(24 / (c * 25))))
        made.append((f"conv{convs}.bias", (1, out, 1, 1), 0.5))
        side, c = (side + 1) // 2, out
    made.append(("score.weight", (1, c, side, side), np.sqrt(24 / (c * side * side))))
    made.append(("score.bias", (1, 1, 1, 1), 0.5))
    return [(name, (u(name, shape) - np.float32(0.5)) * np.float32(scale)) for name, shape, scale in made]


class Critic:
    def __init__(self, layers, params, dtype):
        self.layers, self.params, self.dtype, self.stream = layers, params, dtype, 1  # stream 1 is that of z

    def next_stream(self):
        self.stream += 1
        return self.stream

    def drop(self, x, rate):
        keep = np.float32(1) - np.float32(rate)
        kept = torch.from_numpy((random_units(tuple(x.shape), self.next_stream()) < keep).copy())
        return x * kept * (1 / torch.tensor(keep).to(self.dtype))

    def score(self, x):
        params = iter(self.params)
        for layer in self.layers:
            kind, value = layer.split()
            if kind == "pad":
                x = F.pad(x, [int(value)] * 4)
            elif kind == "drop":
                x = self.drop(x, float(value))
            else:
                side = x.shape[2]
                border = ((side + 1) // 2 - 1) * 2 + 5 - side
                before, behind = border // 2, border - border // 2
                x = F.conv2d(F.pad(x, [before, behind, before, behind]), next(params), next(params).flatten(), stride=2)
                x = F.leaky_relu(x, 0.2)
        return F.conv2d(x, next(params), next(params).flatten()).flatten()


def gradients(side, channels, layers, dtype):
    params = [torch.from_numpy(value.copy()).to(dtype).requires_grad_(True) for _, value in parameters(side, channels, layers)]
    critic = Critic(layers, params, dtype)
    shape = (N, channels, side, side)
    real, fake = [torch.from_numpy(u(name, shape).copy()).to(dtype) for name in ("real", "fake")]
    real_score, fake_score = critic.score(real), critic.score(fake)
    alpha = torch.from_numpy(random_units((N, 1, 1, 1), critic.next_stream() ^ 0x80000000).copy()).to(dtype)
    between = (real + alpha * (fake - real)).requires_grad_(True)
    slope, = torch.autograd.grad(critic.score(between).sum(), between, create_graph=True)
    norm = (slope.square().flatten(1).sum(1) + 1e-12).sqrt()
    loss = fake_score.sum() - real_score.sum() + 10 * (norm - 1).square().sum()
    found = torch.autograd.grad(loss, params)
    return float(loss.detach()), torch.cat([g.permute(0, 2, 3, 1).flatten() for g in found])


print(f"/* Made by tests/golden/wgan.py with PyTorch {torch.__version__.split('+')[0]}; do not edit. */")
print("// clang-format off")
rows = []
for k, (side, channels, layers) in enumerate(CRITICS):
    loss, exact = gradients(side, channels, layers, torch.float64)
    _, f32 = gradients(side, channels, layers, torch.float32)
    distance = float((f32.double() - exact).norm() / exact.norm())
    print(f"static const double golden_gradients_{k}[{len(exact)}] = {{")
    for i in range(0, len(exact), 6):
        print("    " + " ".join(f"{float(value):.15e}," for value in exact[i:i + 6]))
    print("};")
    text = ", ".join('"' + layer + '"' for layer in layers)
    rows.append(f"    {{{side}, {channels}, {{{text}}}, {loss:.15e}, {distance:.2e}, golden_gradients_{k}, {len(exact)}}},")
print("""static const struct {
    int side, channels;
    const char *layers[9];
    double loss, distance; /* of PyTorch's float32 gradients, relative to the length of all */
    const double *gradients;
    int count;
} golden_critics[] = {""")
print("\n".join(rows))
print("};\n// clang-format on")
