#!/usr/bin/python3
"""Write tests/unit/golden_resize.h: small images resized by Pillow (BILINEAR, antialiased). Needs python3-pil.

The input pixel number i of a case is (i * 73 + i * i * 5 + i // 7) % 256; tests/unit/test_resize.c uses the same formula.
Usage: tests/golden/resize.py > tests/unit/golden_resize.h
"""
import PIL
from PIL import Image

CASES = [  # in_h, in_w, out_h, out_w, channels
    (7, 5, 3, 4, 1), (5, 5, 9, 7, 1), (8, 8, 8, 8, 1), (28, 28, 12, 12, 1), (28, 28, 5, 40, 1),
    (64, 3, 3, 5, 1), (1, 1, 3, 3, 1), (1, 9, 4, 2, 1), (9, 6, 4, 5, 3), (4, 5, 9, 8, 3), (40, 50, 1, 1, 3),
]

print("/* Made by tests/golden/resize.py with Pillow %s; do not edit. */" % PIL.__version__)
print("// clang-format off")
print("static const struct { int32_t in_h, in_w, out_h, out_w, c; uint8_t out[600]; } golden[] = {")
for in_h, in_w, out_h, out_w, c in CASES:
    data = bytes((i * 73 + i * i * 5 + i // 7) % 256 for i in range(in_h * in_w * c))
    image = Image.frombytes("L" if c == 1 else "RGB", (in_w, in_h), data)
    out = image.resize((out_w, out_h), Image.BILINEAR).tobytes()
    print("    {%d, %d, %d, %d, %d, {" % (in_h, in_w, out_h, out_w, c))
    for i in range(0, len(out), 24):
        print("        " + "".join("%d," % v for v in out[i:i + 24]))
    print("    }},")
print("};")
