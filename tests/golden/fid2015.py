#!/usr/bin/env python3
"""Write tests/unit/golden_fid2015.h: features of the network behind FID as PyTorch computes them, on made-up weights. Needs torch.

The network is written out below from the description of pt_inception-2015-12-05 (pytorch-fid, inception.py): average pools without
padding in the divisor, a max pool in Mixed_7c, 1,008 outputs; the input is resized bilinearly to 299 x 299 with
align_corners=False and no antialiasing, and scaled to [-1, 1]. Element i of the tensor NAME is a number u(i) in [0, 1) made of the
CRC-32 of its name; convolution weights are (u - 1/2) sqrt(24 / fan in), gamma 0.75 + u / 2, beta and running mean u / 4 - 1/8,
running variance 0.75 + u / 2. tests/unit/test_features.c uses the same formulas.
Usage: PYTHON_WITH_TORCH tests/golden/fid2015.py > tests/unit/golden_fid2015.h
"""
import zlib

import numpy as np
import torch
import torch.nn.functional as F

SIDE, SHOWN = 24, 256  # of the test image; every 8th feature


def u(name, count):
    i = np.arange(1, count + 1, dtype=np.uint64)
    return ((i * 2654435761 + zlib.crc32(name.encode())) % 2**32 >> 8).astype(np.float32) / np.float32(2**24)


def tensor(name, shape, scale, shift):
    values = (u(name, int(np.prod(shape))) - np.float32(shift)) * np.float32(scale)
    return torch.from_numpy(values.reshape(shape))


def conv(x, name, out, kernel, stride=1, padding=0):
    kh, kw = (kernel, kernel) if isinstance(kernel, int) else kernel
    c = x.shape[1]
    w = tensor(name + ".conv.weight", (out, c, kh, kw), np.sqrt(24 / (c * kh * kw)), 0.5)
    x = F.conv2d(x, w, stride=stride, padding=padding)
    bn = name + ".bn."
    x = F.batch_norm(x, tensor(bn + "running_mean", (out,), 0.25, 0.5), tensor(bn + "running_var", (out,), 0.5, -1.5),
                     tensor(bn + "weight", (out,), 0.5, -1.5), tensor(bn + "bias", (out,), 0.25, 0.5), eps=1e-3)
    return F.relu(x)


def average(x):
    return F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)


def block_a(x, n, pool):
    a = conv(x, n + ".branch1x1", 64, 1)
    b = conv(conv(x, n + ".branch5x5_1", 48, 1), n + ".branch5x5_2", 64, 5, padding=2)
    c = conv(conv(conv(x, n + ".branch3x3dbl_1", 64, 1), n + ".branch3x3dbl_2", 96, 3, padding=1), n + ".branch3x3dbl_3", 96, 3, padding=1)
    return torch.cat([a, b, c, conv(average(x), n + ".branch_pool", pool, 1)], 1)


def block_b(x, n):
    a = conv(x, n + ".branch3x3", 384, 3, 2)
    b = conv(conv(conv(x, n + ".branch3x3dbl_1", 64, 1), n + ".branch3x3dbl_2", 96, 3, padding=1), n + ".branch3x3dbl_3", 96, 3, 2)
    return torch.cat([a, b, F.max_pool2d(x, 3, 2)], 1)


def block_c(x, n, c7):
    wide, high = dict(kernel=(1, 7), padding=(0, 3)), dict(kernel=(7, 1), padding=(3, 0))
    a = conv(x, n + ".branch1x1", 192, 1)
    b = conv(conv(conv(x, n + ".branch7x7_1", c7, 1), n + ".branch7x7_2", c7, **wide), n + ".branch7x7_3", 192, **high)
    c = conv(conv(x, n + ".branch7x7dbl_1", c7, 1), n + ".branch7x7dbl_2", c7, **high)
    c = conv(conv(c, n + ".branch7x7dbl_3", c7, **wide), n + ".branch7x7dbl_4", c7, **high)
    c = conv(c, n + ".branch7x7dbl_5", 192, **wide)
    return torch.cat([a, b, c, conv(average(x), n + ".branch_pool", 192, 1)], 1)


def block_d(x, n):
    a = conv(conv(x, n + ".branch3x3_1", 192, 1), n + ".branch3x3_2", 320, 3, 2)
    b = conv(conv(x, n + ".branch7x7x3_1", 192, 1), n + ".branch7x7x3_2", 192, (1, 7), padding=(0, 3))
    b = conv(conv(b, n + ".branch7x7x3_3", 192, (7, 1), padding=(3, 0)), n + ".branch7x7x3_4", 192, 3, 2)
    return torch.cat([a, b, F.max_pool2d(x, 3, 2)], 1)


def block_e(x, n, pool):
    wide, high = dict(kernel=(1, 3), padding=(0, 1)), dict(kernel=(3, 1), padding=(1, 0))
    a = conv(x, n + ".branch1x1", 320, 1)
    b = conv(x, n + ".branch3x3_1", 384, 1)
    c = conv(conv(x, n + ".branch3x3dbl_1", 448, 1), n + ".branch3x3dbl_2", 384, 3, padding=1)
    parts = [a, conv(b, n + ".branch3x3_2a", 384, **wide), conv(b, n + ".branch3x3_2b", 384, **high),
             conv(c, n + ".branch3x3dbl_3a", 384, **wide), conv(c, n + ".branch3x3dbl_3b", 384, **high)]
    return torch.cat([*parts, conv(pool(x), n + ".branch_pool", 192, 1)], 1)


def features(image):
    x = F.interpolate(image, size=(299, 299), mode="bilinear", align_corners=False) * 2 - 1
    x = conv(conv(conv(x, "Conv2d_1a_3x3", 32, 3, 2), "Conv2d_2a_3x3", 32, 3), "Conv2d_2b_3x3", 64, 3, padding=1)
    x = F.max_pool2d(x, 3, 2)
    x = F.max_pool2d(conv(conv(x, "Conv2d_3b_1x1", 80, 1), "Conv2d_4a_3x3", 192, 3), 3, 2)
    for name, pool in ("Mixed_5b", 32), ("Mixed_5c", 64), ("Mixed_5d", 64):
        x = block_a(x, name, pool)
    x = block_b(x, "Mixed_6a")
    for name, c7 in ("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192):
        x = block_c(x, name, c7)
    x = block_e(block_d(x, "Mixed_7a"), "Mixed_7b", average)
    x = block_e(x, "Mixed_7c", lambda x: F.max_pool2d(x, 3, 1, 1))
    return x.mean((2, 3))


pixels = np.array([(i * 73 + i * i * 5 + i // 7) % 256 for i in range(SIDE * SIDE * 3)], np.uint8)
image = torch.from_numpy(pixels.reshape(1, SIDE, SIDE, 3).transpose(0, 3, 1, 2).astype(np.float32) / 255)
with torch.no_grad():
    found = features(image)[0].numpy()
print("/* Made by tests/golden/fid2015.py with PyTorch %s; do not edit. Every %dth feature. */" % (torch.__version__.split("+")[0], 2048 // SHOWN))
print("// clang-format off")
print("enum { GOLDEN_SIDE = %d, GOLDEN_SHOWN = %d };" % (SIDE, SHOWN))
print("static const float golden_fid2015[GOLDEN_SHOWN] = {")
shown = found[:: 2048 // SHOWN]
for i in range(0, SHOWN, 8):
    print("    " + " ".join("%.8gf," % v if "." in "%.8g" % v or "e" in "%.8g" % v else "%.8g.0f," % v for v in shown[i:i + 8]))
print("};")
