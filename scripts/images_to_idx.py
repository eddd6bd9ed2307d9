#!/usr/bin/env python3
"""Convert folders of images, laid out as for torchvision's ImageFolder, to a data set for --data-path.

usage: scripts/images_to_idx.py IMAGES OUT [--side 299] [--grey]

IMAGES/train/CLASS/* and IMAGES/val/CLASS/* (or test/): every file is an image; classes are the folders of train, by name.
Each image is scaled so that its shorter side fits, and center-cropped: SIDE x SIDE pixels of red, green and blue, or of grey. OUT
receives train- and t10k-images-idx4-ubyte (idx3: grey), their labels, and classes.txt. A run keeps all images of a split in memory:
1,000 images of 299 x 299 in color take 268 MB. Needs Pillow (Debian: python3-pil; pip: pillow).

Exit codes: 2 usage; 3 an invalid image or folder, nothing in OUT was replaced; 5 Pillow is missing; 6 a file could not be written.
"""
import argparse
import os
import struct
import sys
from pathlib import Path

CLASSES_MAX = 256  # a label is a byte


def refuse(message, code=3):
    sys.exit(print(f"images_to_idx: {message}", file=sys.stderr) or code)


try:
    from PIL import Image, ImageOps
except ImportError:
    refuse("Pillow is missing (Debian: apt install python3-pil; pip: pip install pillow)", 5)


def visible(folder):
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def samples_of(folder, classes, bad):
    """[(file, label)] of IMAGES/train or IMAGES/val; problems are appended to `bad`."""
    samples = []
    for label, name in enumerate(classes):
        files = visible(folder / name) if (folder / name).is_dir() else []
        if not files:
            bad.append(f"{folder / name}: no images of class '{name}'")
        samples += [(file, label) for file in files]
    for extra in visible(folder):
        if extra.name not in classes:
            bad.append(f"{extra}: not the folder of a class (train has: {', '.join(classes[:20])})")
    return samples


def eight_bits(image):
    """Grey values of 16 bits (Pillow's modes I;16 and I) scaled to 8; convert() would clip them at 255."""
    if not image.mode.startswith("I"):
        return image
    wide = image.convert("I")
    if wide.getextrema()[0] < 0 or wide.getextrema()[1] > 65535:
        raise ValueError(f"values from {wide.getextrema()[0]} to {wide.getextrema()[1]}, but 8 or 16 bits were expected")
    return wide.point(lambda value: value * (255 / 65535) + 0.5).convert("L")


def pixels_of(file, side, mode):
    with Image.open(file) as image:
        if image.mode == "F":
            raise ValueError("floating-point pixels, but 8 or 16 bits were expected")
        upright = eight_bits(ImageOps.exif_transpose(image)).convert(mode)
        return ImageOps.fit(upright, (side, side), Image.BICUBIC).tobytes()


def split_write(out, prefix, samples, side, mode, bad):
    """Write both files of a split under temporary names; returns {temporary name: name}. Unreadable images go to `bad`."""
    kind = "idx4" if mode == "RGB" else "idx3"
    sizes = [len(samples), side, side] + ([3] if mode == "RGB" else [])
    labels, images = f"{prefix}-labels-idx1-ubyte", f"{prefix}-images-{kind}-ubyte"
    (out / f".{labels}").write_bytes(struct.pack(">II", 0x801, len(samples)) + bytes(label for _, label in samples))
    with open(out / f".{images}", "wb") as to:
        to.write(struct.pack(f">I{len(sizes)}I", 0x800 + len(sizes), *sizes))
        for file, _ in samples:
            try:
                to.write(pixels_of(file, side, mode))
            except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
                bad.append(f"{file}: {error}")
    return {f".{name}": name for name in (labels, images)}


def rivals_refuse(out, mode):
    """Other files that a reader could mistake for these: of the other kind, or compressed."""
    other = "idx3" if mode == "RGB" else "idx4"
    rivals = [path for split in ("train", "t10k") for path in (*out.glob(f"{split}-images-{other}-ubyte"), *out.glob(f"{split}-*.gz"))]
    if rivals:
        refuse(f"{rivals[0]} is there already, of another data set; name another folder than {out}, or remove it")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--side", type=int, default=299, help="pixels of each side (default: 299)")
    parser.add_argument("--grey", action="store_true", help="one channel instead of three")
    args = parser.parse_args()
    if not 1 <= args.side <= 4096:
        refuse(f"--side {args.side}: wanted 1 to 4096", 2)
    train = args.images / "train"
    test = args.images / "val" if (args.images / "val").is_dir() else args.images / "test"
    for folder in (train, test):
        if not folder.is_dir():
            refuse(f"{folder}: no such folder (wanted {args.images}/train/CLASS/* and {args.images}/val/CLASS/*)", 2)
    mode = "L" if args.grey else "RGB"
    rivals_refuse(args.out, mode)
    classes = [path.name for path in visible(train) if path.is_dir()]
    if not 1 <= len(classes) <= CLASSES_MAX:
        refuse(f"{train}: wanted 1 to {CLASSES_MAX} folders, one for each class, found {len(classes)}")
    bad = []
    splits = {"train": samples_of(train, classes, bad), "t10k": samples_of(test, classes, bad)}
    written = {}
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        for prefix, samples in splits.items():
            written.update(split_write(args.out, prefix, samples, args.side, mode, bad))
        if bad:
            refuse(f"{len(bad)} of the files cannot be used, so nothing was written:\n  " + "\n  ".join(bad))
        (args.out / ".classes.txt").write_text("".join(name + "\n" for name in classes), encoding="utf-8")
        written[".classes.txt"] = "classes.txt"
        for temporary, name in written.items():
            os.replace(args.out / temporary, args.out / name)
    except OSError as error:
        refuse(f"{error}", 6)
    finally:
        for leftover in (*args.out.glob(".*-ubyte"), args.out / ".classes.txt"):
            leftover.unlink(missing_ok=True)
    counts = {prefix: len(samples) for prefix, samples in splits.items()}
    print(f"{args.out}: {len(classes)} classes, {counts['train']} training and {counts['t10k']} test images")


if __name__ == "__main__":
    main()
