#!/usr/bin/env python3
"""Write tests/unit/golden_distort.h: the distortions of TensorFlow's Inception trainer as numpy computes them from the formulas in
TensorFlow's sources (core/kernels: sample_distorted_bounding_box_op.cc, resize_*_op.cc, adjust_*_op.cc). Needs numpy.

Pixel number i of a case is (i * 73 + i * i * 5 + i // 7) % 256; tests/unit/test_distort.c uses the same formula. With --tensorflow
nothing is written: TensorFlow itself (from PyPI) computes every case, the worst difference of each kind is printed, and crops are
compared by Kolmogorov-Smirnov; exits with 1 if one is too large.
Usage: /usr/bin/python3 tests/golden/distort.py > tests/unit/golden_distort.h
       PYTHON_WITH_TENSORFLOW tests/golden/distort.py --tensorflow
"""
import math, random, sys
import numpy as np

f32 = np.float32
rint = lambda x: int(np.rint(x))  # half to even, as lrintf
AREA, RATIO, COVERED = (0.05, 1.0), (0.75, 1.33), 0.1


# ---- crops

def crop(h, w, words, area=AREA, ratio=RATIO):
    """One attempt of GenerateRandomCrop: (y, x, height, width) or None."""
    uniform = lambda n, word: word * n >> 32
    aspect = f32(f32(words[0] >> 8) * f32(2.0 ** -24) * f32(f32(ratio[1]) - f32(ratio[0]))) + f32(ratio[0])
    smallest, largest = f32(area[0]) * f32(w) * f32(h), f32(area[1]) * f32(w) * f32(h)
    height, limit = rint(np.sqrt(smallest / aspect)), rint(np.sqrt(largest / aspect))
    if rint(f32(limit) * aspect) > w:
        limit = int((w + 0.5 - float(f32(1e-7))) / float(aspect))
        limit -= rint(f32(limit) * aspect) > w
    limit = min(limit, h)
    height = min(height, limit)
    if height < limit:
        height += uniform(limit - height + 1, words[1])
    width = rint(f32(height) * aspect)
    if f32(width * height) < smallest:
        height += 1
        width = rint(f32(height) * aspect)
    if f32(width * height) > largest:
        height -= 1
        width = rint(f32(height) * aspect)
    if not (smallest <= f32(width * height) <= largest and 0 < width <= w and 0 < height <= h):
        return None
    return (uniform(h - height, words[2]) if height < h else 0, uniform(w - width, words[3]) if width < w else 0, height, width)


def covers(c, boxes, h, w, least=COVERED):
    """SatisfiesOverlapConstraints; boxes of (ymin, xmin, ymax, xmax)."""
    pixels = [(int(f32(b[0]) * f32(h)), int(f32(b[1]) * f32(w)), int(f32(b[2]) * f32(h)), int(f32(b[3]) * f32(w))) for b in boxes]
    for y0, x0, y1, x1 in pixels or [(0, 0, h, w)]:
        if (x1 - x0) * (y1 - y0) < 1 or x1 < x0:
            continue
        high, wide = min(y1, c[0] + c[2]) - max(y0, c[0]), min(x1, c[1] + c[3]) - max(x0, c[1])
        if f32(max(high, 0) * max(wide, 0)) / f32((x1 - x0) * (y1 - y0)) >= f32(least):
            return True
    return False


def sample(h, w, boxes, draw):
    for _ in range(100):
        c = crop(h, w, [draw() for _ in range(4)])
        if c and covers(c, boxes, h, w):
            return c
    return 0, 0, h, w


# ---- resizing, of [h][w][c] float32

def axis(method, size, out):
    """Matrix [out][size] of one direction."""
    m = np.zeros((out, size))
    scale = f32(size) / f32(out)
    clamp = lambda i: min(max(i, 0), size - 1)
    for x in range(out):
        at = f32(x) * scale
        low = int(math.floor(at))
        if method == "nearest":
            m[x, clamp(low)] = 1
        elif method == "bilinear":
            lerp = float(at - f32(low))
            m[x, clamp(low)] += 1 - lerp
            m[x, clamp(math.ceil(at))] += lerp
        elif method == "bicubic":
            t = rint((at - f32(low)) * f32(1024)) / 1024
            near = lambda d: 1.25 * d ** 3 - 2.25 * d ** 2 + 1
            far = lambda d: -0.75 * (d ** 3 - 5 * d ** 2 + 8 * d - 4)
            for i, weight in enumerate((far(1 + t), near(t), near(1 - t), far(2 - t))):
                m[x, clamp(low - 1 + i)] += weight
        else:
            end = f32(x + 1) * scale
            for i in range(low, math.ceil(end)):
                m[x, clamp(i)] += (min(i + 1, float(end)) - max(i, float(at))) / float(scale)
    return m


METHODS = ("bilinear", "nearest", "bicubic", "area")


def resize(method, image, oh, ow):
    return np.einsum("yi,xj,ijc->yxc", axis(method, image.shape[0], oh), axis(method, image.shape[1], ow), image.astype(float), optimize=True)


# ---- colors, of [h][w][3] in [0, 1]

def hsv(rgb):
    r, g, b = rgb[..., 0], rgb[..., 1], rgb[..., 2]
    v, least = rgb.max(-1), rgb.min(-1)
    span = v - least
    safe = np.where(span > 0, span, 1)
    h = np.where(r == v, (g - b) / safe, np.where(g == v, 2 + (b - r) / safe, 4 + (r - g) / safe)) / 6
    s = np.where(v > 0, span / np.where(v > 0, v, 1), 0)
    return np.where(span > 0, h % 1, 0), s, v, least


def chroma(h, v, least):
    """From hue, largest and smallest channel."""
    six = h * 6
    part = np.stack([abs(six - 3) - 1, 2 - abs(six - 2), 2 - abs(six - 4)], -1).clip(0, 1)
    return least[..., None] + part * (v - least)[..., None]


def brightness(x, d): return x + d
def saturation(x, f):
    h, s, v, _ = hsv(x)
    return chroma(h, v, v - v * np.clip(s * f, 0, 1))
def hue(x, d):
    h, _, v, least = hsv(x)
    return chroma((h + d) % 1, v, least)
def contrast(x, f):
    mean = x.mean((0, 1))
    return (x - mean) * f + mean


def colors(x, second, b, s, h, c):
    x = brightness(x, b)
    x = hue(saturation(contrast(x, c), s), h) if second else contrast(hue(saturation(x, s), h), c)
    return x.clip(0, 1)


# ---- the cases

def pixels(h, w, c):
    i = np.arange(h * w * c, dtype=np.int64)
    return ((i * 73 + i * i * 5 + i // 7) % 256).astype(np.uint8).reshape(h, w, c)


RESIZES = [(1, 500, 1, 299, 1), (1, 100, 1, 299, 1), (375, 1, 107, 1, 1), (1, 7, 1, 7, 1), (7, 5, 3, 4, 3), (5, 6, 12, 7, 3), (9, 33, 4, 5, 1),
           (1, 1, 3, 3, 1), (40, 30, 2, 3, 3)]
rng = random.Random(2016)
COLORS = [(k % 2, rng.uniform(-32 / 255, 32 / 255), rng.uniform(0.5, 1.5), rng.uniform(-0.2, 0.2), rng.uniform(0.5, 1.5)) for k in range(12)]
COLORS += [(0, 0, 1, 0, 1), (1, -32 / 255, 1.5, -0.2, 1.5), (0, 32 / 255, 0.5, 0.2, 0.5)]
SIZES = [(375, 500), (500, 375), (299, 299), (32, 32), (1, 40), (40, 1), (3, 3), (1000, 90), (2000, 3001), (7, 6)]
CROPS = [(h, w, [rng.getrandbits(32) for _ in range(4)]) for h, w in SIZES for _ in range(30)]
CROPS += [(h, w, words) for h, w in SIZES for words in ([0] * 4, [2**32 - 1] * 4, [0, 2**32 - 1, 0, 2**32 - 1])]
BOXES = [(0.1, 0.2, 0.4, 0.5), (0.62, 0.7, 0.93, 0.81)]


def reference_draws(boxes, count):
    """Height, width and position of crops of a 375 x 500 image: fractions, [4][count]."""
    draw = random.Random(5)
    rows = np.array([sample(375, 500, boxes, lambda: draw.getrandbits(32)) for _ in range(count)], float)
    return np.stack([rows[:, 2] / 375, rows[:, 3] / 500, rows[:, 0] / 375, rows[:, 1] / 500])


def write():
    def row(values, form="%.4f"): return ", ".join(form % v for v in values)
    print("/* Made by tests/golden/distort.py with numpy; do not edit. */")
    print("// clang-format off")
    print("static const struct { int32_t h, w; uint32_t words[4]; bool fits; int32_t y, x, crop_h, crop_w; bool covers[2]; } golden_crops[] = {")
    for h, w, words in CROPS:
        c = crop(h, w, words)
        both = [int(covers(c, b, h, w)) if c else 0 for b in ([], BOXES)]
        print("    {%d, %d, {%s}, %d, %d, %d, %d, %d, {%d, %d}}," % (h, w, row(words, "%du"), c is not None, *(c or (0, 0, 0, 0)), *both))
    print("};")
    print("static const float golden_boxes[] = {%s}; /* by sides */" % row([b[k] for k in range(4) for b in BOXES], "%.2ff"))
    print("/* Of 20,000 crops of 375 x 500, without boxes and with them: the (k + 1/2) / 100 quantiles of height, width, y, x. */")
    print("static const float golden_quantiles[2][4][100] = {")
    for boxes in ([], BOXES):
        print("    {")
        for values in reference_draws(boxes, 20000):
            print("        {%s}," % row(np.sort(values)[100::200], "%.4ff"))
        print("    },")
    print("};")
    print("static const struct { int32_t in_h, in_w, out_h, out_w, c; float out[4][320]; } golden_resize_tf[] = {")
    for h, w, oh, ow, c in RESIZES:
        print("    {%d, %d, %d, %d, %d, {" % (h, w, oh, ow, c))
        for method in METHODS:
            print("        {%s}," % row(resize(method, pixels(h, w, c), oh, ow).ravel(), "%.3ff"))
        print("    }},")
    print("};")
    print("enum { COLORS_H = 6, COLORS_W = 8 };")
    print("static const struct { bool contrast_first; float brightness, saturation, hue, contrast, out[COLORS_H * COLORS_W * 3]; } golden_colors[] = {")
    for case in COLORS:
        out = 255 * colors(pixels(6, 8, 3) / 255, *case)
        print("    {%d, %s, {%s}}," % (case[0], row(case[1:], "%.9ff"), row(out.ravel(), "%.3ff")))
    print("};")


def against_tensorflow():
    import tensorflow as tf
    v1, raw, failed = tf.compat.v1, tf.raw_ops, []

    def report(what, difference, most):
        print("%-24s %.3g (at most %.3g)" % (what, difference, most), flush=True)
        if not difference <= most:
            failed.append(what)

    # resizes and colors in float, of values in [0, 255] and [0, 1]; the sizes of photographs too. TensorFlow sums in float32.
    for method, number in zip(METHODS, range(4)):
        worst = 0
        for h, w, oh, ow, c in RESIZES + [(375, 500, 299, 299, 3), (181, 96, 299, 299, 3), (200, 301, 107, 107, 3)]:
            image = pixels(h, w, c)
            theirs = v1.image.resize_images(image[None].astype(f32), (oh, ow), method=number, align_corners=False)[0].numpy()
            worst = max(worst, abs(resize(method, image, oh, ow) - theirs).max())
        report("resize " + method, worst, 2e-2)
    worst = 0
    for case in COLORS:
        second, b, s, h, c = case
        x = tf.constant(pixels(37, 53, 3) / 255, tf.float32)
        steps = [lambda x: tf.image.adjust_saturation(x, s), lambda x: tf.image.adjust_hue(x, h)]
        stretch = lambda x: tf.image.adjust_contrast(x, c)
        x = tf.image.adjust_brightness(x, b)
        for step in ([stretch] + steps if second else steps + [stretch]):
            x = step(x)
        theirs = tf.clip_by_value(x, 0.0, 1.0).numpy()
        worst = max(worst, 255 * abs(colors(pixels(37, 53, 3) / 255, *case) - theirs).max())
    report("colors, levels of 255", worst, 0.5)
    count = 1500
    for name, boxes in (("no boxes", []), ("boxes", BOXES)):
        ours = reference_draws(boxes, count)
        theirs = np.zeros((4, count))
        tf.random.set_seed(7)
        for i in range(count):
            begin, size, _ = tf.image.sample_distorted_bounding_box((375, 500, 3), np.array([boxes], f32).reshape(1, -1, 4), min_object_covered=COVERED,
                                                                    aspect_ratio_range=RATIO, area_range=AREA, max_attempts=100,
                                                                    use_image_if_no_bounding_boxes=True)
            theirs[:, i] = size[0] / 375, size[1] / 500, begin[0] / 375, begin[1] / 500
        for what, a, b in zip(("height", "width", "y", "x"), ours, theirs):
            every = np.concatenate([a, b])
            distance = abs(np.searchsorted(np.sort(a), every, "right") - np.searchsorted(np.sort(b), every, "right")).max() / count
            report("crop, %s, %s" % (name, what), distance, 1.95 * math.sqrt(2 / count))
    print("TensorFlow %s: %s" % (tf.__version__, "failed: " + ", ".join(failed) if failed else "agrees"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(against_tensorflow() if "--tensorflow" in sys.argv else write())
