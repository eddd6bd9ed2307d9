#!/usr/bin/env python3
"""Write tests/unit/golden_images.h: what torchvision makes of the 50 JPEGs in tests/unit/golden_images.tar.

Usage: PYTHON_WITH_TORCHVISION tests/golden/images.py > tests/unit/golden_images.h
       ... --check HEADER     compare a header with what the installed versions compute
       ... --photos FOLDER    write the tar again from the JPEGs of a folder (Debian's opencv-doc, examples/)

Every transform is torchvision's own code (transforms.RandomResizedCrop, RandomHorizontalFlip, ColorJitter, RandomErasing, Resize,
CenterCrop; transforms.v2.MixUp and CutMix), and targets come from the gradient of torch's CrossEntropyLoss. Only their random numbers
are replaced, by those that Towers draws: Philox4x32-10 with the keys and counters of towers/data/images/transform.c and mix.c.
"""
import io
import math
import os
import re
import sys
import tarfile

SIDE, RESIZE, CLASSES, IMAGES, TOWERS, SEED = 16, 18, 5, 50, 2, 7
PLACES = 12  # pixels of each image that are written, besides the sums of its channels
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HERE = os.path.dirname(os.path.abspath(__file__))
TAR = os.path.join(HERE, "..", "unit", "golden_images.tar")
# name, step, evaluation, EXIF, jitter, erase, mixup, cutmix, smoothing, weights; the steps are one with mixup and one with cutmix
CASES = [("plain", 0, False, False, False, 0.0, 0.0, 0.0, 0.0, False),
         ("mixup", 1, False, True, True, 0.5, 0.8, 1.0, 0.1, True),
         ("cutmix", 2, False, True, True, 0.5, 0.8, 1.0, 0.1, True),
         ("evaluation", 0, True, True, False, 0.0, 0.0, 0.0, 0.0, False)]


def photos_write(folder):
    from PIL import Image
    names = sorted(os.path.join(top, name) for top, _, files in os.walk(folder) for name in files if name.lower().endswith(".jpg"))
    assert len(names) >= IMAGES, f"{folder} has {len(names)} JPEGs, expected at least {IMAGES}"
    sizes = [(64, 48), (48, 64), (57, 57), (81, 20), (19, 77), (40, 30), (33, 49), (17, 16)]
    with tarfile.open(TAR, "w", format=tarfile.USTAR_FORMAT) as tar:
        for i in range(IMAGES):
            image = Image.open(names[i * len(names) // IMAGES]).convert("RGB").resize(sizes[i % len(sizes)], Image.BICUBIC)
            image = image.convert("L") if i % 10 == 3 else image.convert("CMYK") if i % 10 == 7 else image
            exif = Image.Exif()
            exif[0x0112] = i % 9 or 1
            packed = io.BytesIO()
            image.save(packed, "JPEG", quality=60 + i % 4 * 10, subsampling=i % 3, progressive=i % 5 == 0, exif=exif)
            label = min(CLASSES - 1, i * i * CLASSES // 1800) # of unequal sizes
            for name, data in ((f"{i:02d}.jpg", packed.getvalue()), (f"{i:02d}.cls", b"%d" % label)):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def samples_read():
    with tarfile.open(TAR) as tar:
        data = {member.name: tar.extractfile(member).read() for member in tar}
    return [(data[f"{i:02d}.jpg"], int(data[f"{i:02d}.cls"])) for i in range(IMAGES)]


# ---- random words

def philox(key, c0, c1, c2, c3):
    k0, k1, low = key & 0xffffffff, key >> 32, 0xffffffff
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & low, (p0 >> 32) ^ c3 ^ k1, p0 & low
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    return c0, c1, c2, c3


SHIFT, CROP, _, JITTER, _, ERASE = range(6)


def draw(epoch, sample, stream, block):
    return philox(SEED ^ 0x63726f7000000000, epoch, sample, 0, stream << 8 | block)


def below(bound, word):
    return word * bound >> 32


class Torch:
    """Stands for the module torch inside torchvision: the same, but for the functions that draw."""

    def __init__(self, torch, uniforms=(), integers=(), rand=0.0, permutation=None):
        self.torch, self.uniforms, self.integers, self.value, self.permutation = torch, iter(uniforms), list(integers), rand, permutation

    def __getattr__(self, name):
        return getattr(self.torch, name)

    def tensor(self, values):
        return self.torch.tensor(values, dtype=self.torch.float64)

    def empty(self, *_):
        return self

    def uniform_(self, low, high):
        word, *places = next(self.uniforms)
        self.integers = places or self.integers
        return self.torch.tensor(float(low) + (float(high) - float(low)) * word * 2.0 ** -32, dtype=self.torch.float64)

    def randint(self, *bounds, size):
        return self.torch.tensor([below(bounds[-1], self.integers.pop(0))])

    def rand(self, *_):
        return self.value

    def randperm(self, count):
        return self.torch.tensor(self.permutation)


def rectangles(epoch, sample, stream, first):
    """The words of one attempt after the other: area, aspect ratio; each with those of the place."""
    for block in range(first, first + 10):
        words = draw(epoch, sample, stream, block)
        yield words[0], words[2], words[3]
        yield words[1], words[2], words[3]


def jitter_order(words):
    left, order = [0, 1, 2, 3], []
    for n in range(4, 0, -1):
        at = below(n, words[n - 1])
        order.append(left[at])
        left[at] = left[n - 1]
    return order


# ---- one sample, one batch

def sample_make(data, case, epoch, sample):
    import torch
    from PIL import Image, ImageOps
    from torchvision.transforms import transforms as T
    name, _, evaluation, exif, jitter, erase, *_ = case
    stored = Image.open(io.BytesIO(data))
    image = (ImageOps.exif_transpose(stored) if exif else stored).convert("RGB")
    normalize = [T.ToTensor(), T.Normalize(MEAN, STD)]
    if evaluation:
        return T.Compose([T.Resize(RESIZE), T.CenterCrop(SIDE), *normalize])(image)
    try:
        T.torch = Torch(torch, rectangles(epoch, sample, CROP, 0))
        image = T.RandomResizedCrop(SIDE)(image)
        T.torch = Torch(torch, rand=0.0 if draw(epoch, sample, SHIFT, 0)[2] & 1 else 1.0)
        image = T.RandomHorizontalFlip()(image)
        if jitter:
            amounts = draw(epoch, sample, JITTER, 1)
            T.torch = Torch(torch, [(word,) for word in amounts], permutation=jitter_order(draw(epoch, sample, JITTER, 0)))
            image = T.ColorJitter(0.4, 0.4, 0.4, 0.1)(image)
        T.torch = torch
        values = T.Compose(normalize)(image)
        if erase:
            T.torch = Torch(torch, rectangles(epoch, sample, ERASE, 1), rand=draw(epoch, sample, ERASE, 0)[0] * 2.0 ** -32)
            values = T.RandomErasing(p=erase)(values)
    finally:
        T.torch = torch
    return values


def share_draw(words, alpha):
    """1 - lambda: a beta variate from two gamma variates (Marsaglia & Tsang), as logarithms."""
    def unit(word):
        return (word + 0.5) * 2.0 ** -32

    def gamma_log(stream):
        shape = alpha + 1 if alpha < 1 else alpha
        d = shape - 1 / 3
        c, block = 1 / math.sqrt(9 * d), 0
        while True:
            v = words(stream, block)
            x = math.sqrt(-2 * math.log(unit(v[0]))) * math.cos(2 * math.pi * unit(v[1]))
            cube = (1 + c * x) ** 3
            block += 1
            if 1 + c * x > 0 and math.log(unit(v[2])) < x * x / 2 + d * (1 - cube + math.log(cube)):
                return math.log(d * cube) + (math.log(unit(v[3])) / alpha if alpha < 1 else 0)
    return 1 / (1 + math.exp(gamma_log(2) - gamma_log(3)))


def batch_mix(values, labels, step, mixup, cutmix):
    """The batch mixed, with the targets; whether it was cut."""
    import torch
    from torchvision.transforms.v2 import _augment

    def words(stream, block):
        return philox(SEED ^ 0x6d69780000000000, step, 0, stream, block)
    cut = bool(words(0, 0)[0] & 1)
    share = share_draw(words, cutmix if cut else mixup)
    mix = (_augment.CutMix if cut else _augment.MixUp)(alpha=cutmix if cut else mixup, num_classes=CLASSES)
    mix._dist = type("Drawn", (), {"sample": lambda self, shape: torch.tensor(1 - share, dtype=torch.float64)})()
    centre = words(1, 0)
    try:
        _augment.torch = Torch(torch, integers=centre[:2])
        return (*mix(values, labels), cut)
    finally:
        _augment.torch = torch


def targets_make(target, smoothing, weights):
    """What CrossEntropyLoss takes from the targets, from its gradient at logits of 0."""
    import torch
    rows = []
    for row in target.double():
        logits = torch.zeros(1, CLASSES, dtype=torch.float64, requires_grad=True)
        loss = torch.nn.CrossEntropyLoss(weight=weights, label_smoothing=smoothing, reduction="sum")(logits, row[None])
        loss.backward()
        rows.append(float(loss.detach()) / math.log(CLASSES) / CLASSES - logits.grad[0])
    return torch.stack(rows)


def place_of(image, k):
    """Pixel k of those that are written: row, column, channel."""
    at = (image * 97 + k * 61) % (SIDE * SIDE * 3)
    return at // 3 // SIDE, at // 3 % SIDE, at % 3


def cases_compute():
    import torch
    samples = samples_read()
    labels = torch.tensor([label for _, label in samples])
    counts = torch.bincount(labels, minlength=CLASSES).double()
    made = []
    for case in CASES:
        name, step, _, _, _, _, mixup, cutmix, smoothing, weighted = case
        values = torch.stack([sample_make(data, case, step, i) for i, (data, _) in enumerate(samples)]) # a step is an epoch
        target = torch.nn.functional.one_hot(labels, CLASSES).double()
        if mixup:
            values, target, cut = batch_mix(values, labels, step, mixup, cutmix)
            assert cut == (name == "cutmix"), f"step {step} is one with {'cutmix' if cut else 'mixup'}"
        target = targets_make(target, smoothing, IMAGES / (CLASSES * counts) if weighted else None)
        rows = []
        for i, image in enumerate(values.double()):
            pixels = [float(image[c, y, x]) for y, x, c in (place_of(i, k) for k in range(PLACES))]
            rows.append([float(v) for v in image.sum((1, 2))] + pixels + [float(v) for v in target[i]])
        made.append(rows)
    return made


def header_print(made):
    import PIL
    import torchvision
    print(f"/* Made by tests/golden/images.py with torchvision {torchvision.__version__.split('+')[0]} and Pillow {PIL.__version__}; do not edit. */")
    print("// clang-format off")
    print(f"enum {{ GOLDEN_SIDE = {SIDE}, GOLDEN_RESIZE = {RESIZE}, GOLDEN_CLASSES = {CLASSES}, GOLDEN_IMAGES = {IMAGES}, GOLDEN_PLACES = {PLACES}, GOLDEN_SEED = {SEED} }};")
    print("""static const struct {
    const char *name;
    int64_t step;
    bool evaluation, exif, jitter;
    double erase, mixup, cutmix;
    float smoothing;
    bool weighted;
    struct {
        float sums[3], pixels[GOLDEN_PLACES], targets[GOLDEN_CLASSES];
    } image[GOLDEN_IMAGES];
} golden_images[] = {""")
    for case, rows in zip(CASES, made):
        words = [f'"{case[0]}"', *(str(v).lower() for v in case[1:])]
        print("    {" + ", ".join(words) + ", {")
        for row in rows:
            parts = row[:3], row[3:3 + PLACES], row[3 + PLACES:]
            print("        {" + ", ".join("{" + ", ".join(f"{v:.6g}" if v else "0" for v in part) + "}" for part in parts) + "},")
        print("    }},")
    print("};\n// clang-format on")


def header_check(path, made):
    """Pixels may differ by two levels of 255 if Pillow resizes columns first, which versions from 10 on do for some sizes; color jitter
    makes up to four of them."""
    import PIL
    import torchvision
    numbers = [[float(v) for v in re.findall(r"[-+.\deE]+", line)] for line in open(path) if line.startswith("        {{")]
    rows = [row for case in made for row in case]
    assert len(numbers) == len(rows) and all(len(a) == len(b) for a, b in zip(numbers, rows)), f"{path} has other rows"
    level = 1 / 255 / min(STD)
    pixels = 4.01 * level if int(PIL.__version__.split(".")[0]) > 9 else 1e-4
    worst = [0.0, 0.0, 0.0]
    for ours, theirs in zip(numbers, rows):
        for k, (a, b) in enumerate(zip(ours, theirs)):
            part = 0 if k < 3 else 1 if k < 3 + PLACES else 2
            worst[part] = max(worst[part], abs(a - b))
    print(f"torchvision {torchvision.__version__}, Pillow {PIL.__version__}: {len(rows)} images; sums of {SIDE * SIDE} pixels differ by "
          f"{worst[0]:.3g}, pixels by {worst[1] / level:.3g} levels, targets by {worst[2]:.2g}")
    return worst[0] <= SIDE * SIDE * pixels / 4 and worst[1] <= pixels and worst[2] < 1e-5


if len(sys.argv) == 3 and sys.argv[1] == "--photos":
    photos_write(sys.argv[2])
elif len(sys.argv) == 3 and sys.argv[1] == "--check":
    sys.exit(not header_check(sys.argv[2], cases_compute()))
else:
    header_print(cases_compute())
