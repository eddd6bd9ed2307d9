#!/usr/bin/env python3
"""Broken images, made from whole ones: broken_images.py CORPUS OUT

CORPUS holds the pictures of tests/fuzz/corpus/image. Every file of OUT is damaged in another way; prints a line for each: its name, a
tab, and what a message about it must contain (an extended regular expression)."""
import os
import struct
import sys
import zlib

corpus, out = sys.argv[1:]


def whole(name):
    with open(os.path.join(corpus, name), "rb") as file:
        return file.read()


def make(name, data, message):
    with open(os.path.join(out, name), "wb") as file:
        file.write(data)
    print(name, message, sep="\t")


# ---- JPEG (ITU-T T.81): segments of marker, length and content


def segments(data):
    """(offset, end, marker) of each segment up to the start of the scan's data."""
    at = 2
    while True:
        marker, length = data[at + 1], struct.unpack(">H", data[at + 2:at + 4])[0]
        yield at, at + 2 + length, marker
        if marker == 0xDA:
            return
        at += 2 + length


def jpegs():
    for kind in "baseline", "progressive":
        data = whole(kind + ".jpg")
        parts = list(segments(data))
        for number, (start, end, marker) in enumerate(parts):
            make("%s-%02d-%02x-head.jpg" % (kind, number, marker), data[:start + 3], "JPEG.*(cut off|ends)")
            make("%s-%02d-%02x-half.jpg" % (kind, number, marker), data[:(start + 4 + end) // 2], "JPEG.*(cut off|ends)")
        scan = parts[-1][1]
        make(kind + "-scan-start.jpg", data[:scan], "JPEG.*cut off")
        make(kind + "-scan-half.jpg", data[:(scan + len(data)) // 2], "JPEG.*cut off")
    data = bytearray(whole("baseline.jpg"))
    frame = next(start for start, _, marker in segments(data) if marker == 0xC0)
    tables = next(start for start, _, marker in segments(data) if marker == 0xC4)

    def changed(at, *values):
        copy = bytearray(data)
        copy[at:at + len(values)] = bytes(values)
        return copy

    make("sides-65535.jpg", changed(frame + 5, 255, 255, 255, 255), "65535 x 65535")
    make("sides-0.jpg", changed(frame + 5, 0, 0, 0, 0), "0 x 0")
    make("sides-too-many-pixels.jpg", changed(frame + 5, 250, 0, 250, 0), "64000 x 64000 pixels: expected at most")
    make("two-frames.jpg", data[:frame] + data[frame:frame + 19] + changed(frame + 5, 0, 3, 0, 3)[frame:], "JPEG")
    make("components-200.jpg", changed(frame + 9, 200), "JPEG")
    make("precision-12.jpg", changed(frame + 4, 12), "JPEG.*precision")
    make("huffman-too-long.jpg", changed(tables + 5, *[255] * 16), "JPEG.*Huffman")
    make("segment-of-0.jpg", changed(4, 0, 0), "JPEG.*segment of 0 bytes")
    make("segment-of-65535.jpg", changed(4, 255, 255), "JPEG.*segment of 65535 bytes")
    make("only-start.jpg", data[:2] + b"\xff", "JPEG.*ends after")
    make("lossless.jpg", changed(frame + 1, 0xC3), "JPEG.*SOF")


# ---- PNG (ISO/IEC 15948): chunks of length, type, content and CRC


def chunk(kind, content, crc=None):
    crc = zlib.crc32(kind + content) if crc is None else crc
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", crc)


SIGNATURE = b"\x89PNG\r\n\x1a\n"


def header(w, h, depth=8, color=2, interlace=0, crc=None):
    return chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, depth, color, 0, 0, interlace), crc)


def png(*chunks):
    return SIGNATURE + b"".join(chunks)


def pngs():
    rows = zlib.compress(b"".join(b"\0" + bytes([y] * 24) for y in range(8)))
    pixels, end = chunk(b"IDAT", rows), chunk(b"IEND", b"")
    palette = chunk(b"PLTE", bytes(range(6)))
    indices = chunk(b"IDAT", zlib.compress(b"".join(b"\0" + bytes([0, 1] * 4) for _ in range(8))))
    make("crc-header.png", png(header(8, 8, crc=1), pixels, end), "PNG.*checksum")
    make("crc-palette.png", png(header(8, 8, color=3), chunk(b"PLTE", bytes(6), 1), indices, end), "PNG.*checksum")
    make("crc-pixels.png", png(header(8, 8), chunk(b"IDAT", rows, 1), end), "PNG.*checksum")
    make("bit-in-pixels.png", png(header(8, 8), pixels, end).replace(rows, rows[:-5] + bytes([rows[-5] ^ 1]) + rows[-4:]), "PNG.*checksum")
    make("crc-text.png", png(header(8, 8), chunk(b"tEXt", b"a\0b", 1), pixels, end), "PNG.*checksum")
    make("signature-only.png", SIGNATURE, "PNG without an IHDR")
    make("cut-header.png", png(header(8, 8))[:20], "PNG without an IHDR")
    make("cut-before-pixels.png", png(header(8, 8)), "PNG")
    make("cut-in-pixels.png", png(header(8, 8), pixels)[:-20], "PNG")
    make("cut-in-palette.png", png(header(8, 8, color=3), palette)[:-6], "PNG")
    make("no-palette.png", png(header(8, 8, color=3), indices, end), "PNG")
    make("no-pixels.png", png(header(8, 8), end), "PNG")
    make("too-few-rows.png", png(header(8, 8), chunk(b"IDAT", zlib.compress(bytes(75))), end), "PNG")
    make("no-zlib.png", png(header(8, 8), chunk(b"IDAT", b"nothing that inflates"), end), "PNG")
    make("filter-9.png", png(header(8, 8), chunk(b"IDAT", zlib.compress(b"\x09" * 200)), end), "PNG")
    make("color-type-5.png", png(header(8, 8, color=5), pixels, end), "PNG")
    make("depth-3.png", png(header(8, 8, depth=3), pixels, end), "PNG")
    make("interlace-7.png", png(header(8, 8, interlace=7), pixels, end), "PNG")
    make("length-of-4-gib.png", png(header(8, 8), struct.pack(">I", 0xFFFFFFF0) + b"IDAT" + rows), "PNG")
    make("width-0.png", png(header(0, 8), pixels, end), "0 x 8")
    make("sides-2-31.png", png(header(0x7FFFFFFF, 0x7FFFFFFF), pixels, end), "PNG of 2147483647 x 2147483647")
    # Bombs: a header that promises gigabytes; pixels that do expand to a thousand times the file, in an image with too many of them;
    # a color profile of 200 MB in 200 KB.
    make("bomb-sides.png", png(header(65000, 65000), pixels, end), "65000 x 65000 pixels: expected at most")
    make("bomb-pixels.png", png(header(20000, 20000, 1, 0), chunk(b"IDAT", zlib.compress(bytes(2501 * 20000), 9)), end),
         "20000 x 20000 pixels: expected at most")
    make("bomb-profile.png", png(header(8, 8), chunk(b"iCCP", b"x\0\0" + zlib.compress(bytes(200 << 20), 9)), chunk(b"IDAT", rows[:9])), "PNG")


# ---- WebP, PNM, and what is no image at all


def others():
    lossy, lossless = whole("lossy.webp"), whole("lossless.webp")
    make("cut-riff.webp", lossy[:16], "WebP.*cut off")
    make("cut-half.webp", lossy[:len(lossy) // 2], "WebP.*cut off")
    make("cut-lossless.webp", lossless[:len(lossless) // 2], "WebP.*cut off")
    make("wrong-chunk.webp", lossy[:12] + b"XXXX" + lossy[16:], "WebP")
    make("animation.webp", b"RIFF" + struct.pack("<I", 4 + 18 + 14) + b"WEBPVP8X" + struct.pack("<IB3x", 10, 2) + bytes([7, 0, 0, 7, 0, 0])
         + b"ANIM" + struct.pack("<I", 6) + bytes(6), "WebP")
    make("no-size.ppm", b"P6\n", "PNM: expected the width")
    make("no-height.pgm", b"P5 8 ", "PNM: expected the height")
    make("letters.ppm", b"P3 2 1 255\n1 2 three 4 5 6\n", "PNM")
    make("too-few.ppm", b"P6 8 8 255\n" + bytes(100), "PNM")
    make("too-large.ppm", b"P3 1 1 255\n1 2 999999999999999999999\n", "PNM")
    make("most-0.pgm", b"P5 1 1 0\n\0", "PNM: .*largest value")
    make("sides.pgm", b"P5 99999999999999999999 1 255\n\0", "PNM: expected the width")
    make("pixels.pgm", b"P5 60000 60000 255\n\0", "60000 x 60000 pixels: expected at most")
    make("bitmap.pgm", b"P4 8 8\n" + bytes(8), "PNM of kind P4")
    make("empty.jpg", b"", "empty")
    make("one-byte.png", b"\x89", "expected an image .JPEG, PNG, WebP, PNM, BMP")
    make("text.jpg", b"<html>404 Not Found</html>\n", "expected an image .JPEG, PNG, WebP, PNM, BMP")
    make("zeros.png", bytes(4096), "expected an image .JPEG, PNG, WebP, PNM, BMP")
    make("bmp.jpg", b"BM" + bytes(60), "BMP: the header has 0 bytes")
    make("tiff.jpg", b"II*\0" + bytes(60), "(TIFF: .*the file is cut off or damaged|a TIFF, which this build does not read)")
    make("gif.png", b"GIF89a" + bytes(60), "(GIF: .*the file is cut off or damaged|a GIF, which this build does not read)")
    make("heic.jpg", bytes(4) + b"ftypheic" + bytes(60), "HEIC or AVIF(: .*|, which this build does not read: build it with libheif)")


os.makedirs(out, exist_ok=True)
jpegs()
pngs()
others()
