#!/usr/bin/python3
"""Compare our decoders, resizing and augmentations with Pillow's, as used by torchvision's loader. Needs Pillow.

Usage: scripts/parity/data_parity.py IMAGE_DRIVER [DIR...]   (DIR: more images to decode)
Images in every format that Pillow can write are made in a temporary folder; 200 geometries are resized; every operation is
applied at many strengths. Every pixel must be equal; 16-bit gray, which Pillow clips at 255, must be scaled."""
import io, os, random, struct, subprocess, sys, tempfile
from PIL import Image, ImageEnhance, ImageOps
import PIL

class Driver:
    def __init__(self, path):
        self.run = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    def ask(self, line):
        self.run.stdin.write((line + "\n").encode())
        self.run.stdin.flush()
        head = self.run.stdout.readline().decode().strip()
        if head.startswith("error"):
            return head
        h, w, c = map(int, head.split())
        return (w, h), self.run.stdout.read(h * w * c)

def difference(a, b):
    if isinstance(a, str):
        return a
    if a[0] != b[0]:
        return "size %s, wanted %s" % (a[0], b[0])
    if a[1] == b[1]:
        return 0
    return max(abs(x - y) for x, y in zip(a[1], b[1]))

def of(image):
    return image.size, image.tobytes()

failed = total = 0
worst = {}
lacking = set()
def check(group, what, ours, theirs, limit):
    global failed, total
    if isinstance(ours, str) and "which this build does not read" in ours:
        lacking.add(ours.split(" which")[0].split()[-1].rstrip(","))
        return
    total += 1
    d = difference(ours, of(theirs))
    if isinstance(d, str) or d > limit:
        failed += 1
        if failed < 30: print("%s: %s: %s (at most %d)" % (group, what, d, limit))
    else:
        worst[group] = max(worst.get(group, 0), d)

def rgb_of(image, path):
    """What torchvision's loader makes of it, except that gray of 16 bits is scaled as colors are: a PNG and a TIFF keep the high byte, a
    PGM, whose maximum Pillow has made 65535, is rounded."""
    if not image.mode.startswith("I"):
        return image.convert("RGB")
    wide = image.convert("I")
    gray = Image.new("L", image.size)
    gray.putdata([v >> 8 if path.endswith((".png", ".tiff")) else round(v / 65535 * 255) for v in wide.getdata()])
    return gray.convert("RGB")

def photo(rng, w, h, mode="RGB"):
    """Smooth shapes and some noise, to compress like a photograph."""
    small = Image.new("RGB", (9, 7))
    small.putdata([tuple(rng.randrange(256) for _ in range(3)) for _ in range(63)])
    image = small.resize((w, h), Image.BICUBIC)
    noise = Image.effect_noise((w, h), 40).convert("RGB")
    return Image.blend(image, noise, 0.2).convert(mode)

def make(folder, rng):
    made = []
    def save(image, name, **options):
        path = os.path.join(folder, name)
        image.save(path, **options)
        made.append(path)
    rgb = photo(rng, 123, 77)
    for s in (0, 1, 2):
        for p in (False, True):
            save(rgb, "s%d%d.jpg" % (s, p), quality=85, subsampling=s, progressive=p)
    save(photo(rng, 61, 50, "L"), "gray.jpg")
    save(rgb.convert("CMYK"), "cmyk.jpg", quality=90)
    save(rgb, "q20.jpg", quality=20)
    rgba = rgb.convert("RGBA"); rgba.putalpha(photo(rng, 123, 77, "L"))
    la = rgb.convert("LA"); la.putalpha(photo(rng, 123, 77, "L"))
    save(rgb, "rgb.png"); save(rgba, "rgba.png"); save(la, "la.png"); save(rgb.convert("L"), "l.png")
    save(rgb.convert("P"), "p.png"); save(rgb.convert("1"), "one.png")
    save(rgb.quantize(4), "p2.png", bits=2); save(rgb.quantize(13), "p4.png", bits=4)
    save(rgb.convert("P"), "trns.png", transparency=3)
    deep = Image.frombytes("I;16", (40, 30), b"".join(rng.randrange(65536).to_bytes(2, "little") for _ in range(1200)))
    save(deep, "deep.png")
    save(rgb, "lossy.webp", quality=80); save(rgb, "lossless.webp", lossless=True); save(rgba, "alpha.webp", lossless=True, exact=True)
    save(rgb, "c.ppm"); save(rgb.convert("L"), "g.pgm")
    with open(os.path.join(folder, "text.ppm"), "w") as f: f.write("P3\n# a comment\n2 2 15\n0 1 2 15 15 15 3 4 5 9 8 7\n")
    with open(os.path.join(folder, "low.pgm"), "wb") as f: f.write(b"P5 3 2 100\n" + bytes([0, 50, 100, 33, 77, 99]))
    with open(os.path.join(folder, "deep.pgm"), "wb") as f: f.write(b"P5 2 2 65535\n" + bytes([0, 50, 1, 0, 0, 254, 200, 99]))
    with open(os.path.join(folder, "deep.ppm"), "wb") as f: f.write(b"P6 2 1 1000\n" + bytes([0, 50, 1, 0, 3, 232, 2, 99, 0, 0, 0, 1]))
    made += [os.path.join(folder, n) for n in ("text.ppm", "low.pgm", "deep.pgm", "deep.ppm")]
    for name, image in (("rgb", rgb), ("rgba", rgba), ("l", rgb.convert("L")), ("p", rgb.convert("P")), ("one", rgb.convert("1"))):
        save(image, name + ".bmp")
    crafted = {name + ".bmp": content for name, content in bmps(rng).items()}
    crafted.update({"tiles%d.tiff" % planes: tiles(rng, planes) for planes in (0, 1)})
    for name, content in crafted.items():
        made.append(os.path.join(folder, name))
        with open(made[-1], "wb") as f: f.write(content)
    save(rgb.convert("L"), "l.gif"); save(rgb.convert("P"), "p.gif", interlace=0); save(rgb.quantize(5), "p5.gif")
    save(rgb.convert("P"), "trns.gif", transparency=7)
    save(rgb.convert("P"), "frames.gif", save_all=True, append_images=[rgb.rotate(90).convert("P")])
    for name in ("p5.gif", "trns.gif", "l.gif"): # a screen larger than its first image, and one that is smaller
        with open(os.path.join(folder, name), "rb") as f: content = bytearray(f.read())
        for w, h, what in ((140, 90, "wide-"), (50, 20, "narrow-")):
            content[6:10] = struct.pack("<HH", w, h)
            made.append(os.path.join(folder, what + name))
            with open(made[-1], "wb") as f: f.write(content)
    for compression in (None, "packbits", "tiff_lzw", "tiff_adobe_deflate"):
        for name, image in (("rgb", rgb), ("rgba", rgba), ("l", rgb.convert("L")), ("la", la), ("p", rgb.convert("P")), ("one", rgb.convert("1")),
                            ("cmyk", rgb.convert("CMYK")), ("deep", deep)):
            save(image, "%s-%s.tiff" % (name, compression), compression=compression)
    save(rgb, "jpeg.tiff", compression="jpeg"); save(rgb.convert("L"), "jpeg-l.tiff", compression="jpeg")
    save(rgb.convert("1"), "fax.tiff", compression="group4"); save(rgb, "strips.tiff", compression="tiff_lzw", strip_size=400)
    save(rgb, "pages.tiff", save_all=True, append_images=[rgb.rotate(90)])
    for turn in range(2, 9):
        exif = Image.Exif()
        exif[0x0112] = turn
        save(rgb, "turned%d.tiff" % turn, exif=exif, compression="tiff_lzw")
    return made

def tiles(rng, planes):
    """A TIFF of 40 x 30 pixels in tiles of 16 x 16, the samples together or in planes, big-endian: Pillow reads it and does not write it."""
    parts = [bytes(rng.randrange(256) for _ in range(256 * (1 if planes else 3))) for _ in range(6 * (3 if planes else 1))]
    count, tags = len(parts), 11
    lists = 8 + 2 + 12 * tags + 4
    data = lists + 8 * count + 6
    def tag(number, kind, n, value): return struct.pack(">HHI", number, kind, n) + (struct.pack(">HH", value, 0) if kind == 3 and n == 1 else struct.pack(">I", value))
    entries = [tag(256, 3, 1, 40), tag(257, 3, 1, 30), tag(258, 3, 3, lists + 8 * count), tag(259, 3, 1, 1), tag(262, 3, 1, 2), tag(277, 3, 1, 3),
               tag(284, 3, 1, 2 if planes else 1), tag(322, 3, 1, 16), tag(323, 3, 1, 16), tag(324, 4, count, lists), tag(325, 4, count, lists + 4 * count)]
    at = [data + sum(map(len, parts[:i])) for i in range(count)]
    return (b"MM\0*" + struct.pack(">IH", 8, tags) + b"".join(entries) + bytes(4) + struct.pack(">%dI" % count, *at) +
            struct.pack(">%dI" % count, *map(len, parts)) + struct.pack(">HHH", 8, 8, 8) + b"".join(parts))

def bmps(rng):
    """Kinds of BMP that Pillow reads and does not write: {name: bytes}"""
    def file(w, h, bits, kind, pixels, palette=b"", masks=b"", core=False):
        header = struct.pack("<IHHHH", 12, w, h, 1, bits) if core else struct.pack("<IiiHHIIiiII", 40, w, h, 1, bits, kind, len(pixels), 0, 0, len(palette) // 4, 0)
        offset = 14 + len(header) + len(masks) + len(palette)
        return b"BM" + struct.pack("<IHHI", offset + len(pixels), 0, 0, offset) + header + masks + palette + pixels
    def noise(count): return bytes(rng.randrange(256) for _ in range(count))
    def colors(count, size=4): return b"".join(noise(3) + bytes(size - 3) for _ in range(count))
    runs8 = b"".join(bytes([c, rng.randrange(16)]) for c in (5, 6)) + b"\0\0" + b"\0\3\1\2\3\0" + b"\0\4\5\6\7\x08" + bytes([4, 9]) + b"\0\0" + bytes([11, 3]) + b"\0\1"
    runs4 = bytes([11, 0x3a]) + b"\0\0" + b"\0\5\x12\x34\x50\0" + bytes([6, 0xbc]) + b"\0\0" + bytes([11, 0x07]) + b"\0\1"
    odd = file(11, 3, 4, 2, runs4, colors(16))
    keeps_odd = Image.open(io.BytesIO(odd)).getpixel((4, 1)) == 5 # until 11.1 at least, the last of an odd number of pixels is dropped
    if not keeps_odd: print(f"left out: BMP with runs of 4 bits, which Pillow {PIL.__version__} does not read whole")
    return {"rows": file(10, -7, 24, 0, noise(32 * 7)), "four": file(11, 5, 4, 0, noise(8 * 5), colors(16)), "old": file(11, 5, 24, 0, noise(36 * 5), core=True),
            "old8": file(9, 5, 8, 0, noise(12 * 5), colors(256, 3), core=True), "five": file(11, 5, 16, 0, noise(24 * 5)),
            "six": file(11, 5, 16, 3, noise(24 * 5), masks=struct.pack("<III", 0xf800, 0x7e0, 0x1f)),
            "wide": file(11, 5, 32, 0, noise(44 * 5)), "masks": file(11, 5, 32, 3, noise(44 * 5), masks=struct.pack("<III", 0xff0000, 0xff00, 0xff)),
            "runs8": file(11, 3, 8, 1, runs8, colors(16)),
            **({"runs4": odd} if keeps_odd else {})}

def operations(rng, image):
    """(kind in towers/data/images/augment.h, amount, Pillow's result)"""
    w, h = image.size
    def affine(m): return image.transform((w, h), Image.AFFINE, m, Image.NEAREST)
    for m in (0.09, -0.3, 0.99, 0.03):
        yield 1, m, affine((1, m, 0, 0, 1, 0))
        yield 2, m, affine((1, 0, 0, m, 1, 0))
    for m in (3, -17, 40):
        yield 3, m, affine((1, 0, -m, 0, 1, 0))
        yield 4, m, affine((1, 0, 0, 0, 1, -m))
    for m in (9, -30, 90, -90, 135, 4.5):
        yield 5, m, image.rotate(m, Image.NEAREST)
    for m in (0.1, 0.73, 1, 1.27, 1.9):
        yield 6, m, ImageEnhance.Brightness(image).enhance(m)
        yield 7, m, ImageEnhance.Color(image).enhance(m)
        yield 8, m, ImageEnhance.Contrast(image).enhance(m)
        yield 9, m, ImageEnhance.Sharpness(image).enhance(m)
    for m in range(2, 9):
        yield 10, m, ImageOps.posterize(image, m)
    for m in (0, 100, 178.5, 255):
        yield 11, m, ImageOps.solarize(image, m)
    yield 12, 0, ImageOps.autocontrast(image)
    yield 13, 0, ImageOps.equalize(image)
    for m in (-0.5, -0.1, 0.03, 0.2, 0.5):
        hue, s, v = image.convert("HSV").split()
        hue = hue.point([(i + int(m * 255)) % 256 for i in range(256)])
        yield 14, m, Image.merge("HSV", (hue, s, v)).convert("RGB")

def main():
    rows_first = int(PIL.__version__.split(".")[0]) < 10 # newer versions choose the order by the picture's shape
    driver, rng = Driver(sys.argv[1]), random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        files = make(folder, rng)
        for top in sys.argv[2:]:
            files += [os.path.join(d, n) for d, _, names in os.walk(top) for n in sorted(names)
                      if n.lower().endswith((".jpg", ".jpeg", ".png", ".webp", ".ppm", ".pgm", ".bmp", ".gif", ".tif", ".tiff")) and " " not in d + n]
        for path in files:
            try:
                theirs = rgb_of(Image.open(path), path)
            except Exception as e:
                print("%s: Pillow: %s; ours: %s" % (path, e, str(driver.ask("decode %s 0 0 0 0" % path))[:100]))
                continue
            check("decode", os.path.basename(path), driver.ask("decode %s 0 0 0 0" % path), theirs, 0)
        for i in range(200):
            w, h = rng.randrange(1, 500), rng.randrange(1, 500)
            ow, oh = rng.randrange(1, 400), rng.randrange(1, 400)
            image = photo(rng, w, h)
            path = os.path.join(folder, "r.png")
            image.save(path, compress_level=0)
            for f, name in enumerate((Image.BILINEAR, Image.BICUBIC)):
                check("resize", "%dx%d to %dx%d filter %d" % (w, h, ow, oh, f),
                      driver.ask("resize %d 0 0 %d %d %s" % (f, oh, ow, path)), image.resize((ow, oh), name), 0 if rows_first else 1 + f)
        for size in ((97, 97), (64, 48)):
            image = photo(rng, *size)
            path = os.path.join(folder, "a.png")
            image.save(path)
            for kind, amount, theirs in operations(rng, image):
                check("augment", "kind %d amount %g" % (kind, amount),
                      driver.ask("augment %d %g %s" % (kind, amount, path)), theirs, 0)
    for name in sorted(lacking): print("SKIPPED: this build does not read", name)
    for group in sorted(worst): print("%-8s largest difference %d" % (group, worst[group]))
    print("Pillow %s: %d of %d differ by more than allowed" % (PIL.__version__, failed, total))
    return 1 if failed else 0

sys.exit(main())
