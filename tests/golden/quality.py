#!/usr/bin/env python3
"""Write tests/unit/golden_quality.h: KID and FID of small sets of features as numpy computes them in float64. Needs numpy.

Feature number i of set s is u(i) + u(i + 7919) (both for s = 0; twice that for s = 1), with u(i) = hash(i, s) / 2^24 where
hash(i, s) = ((i + 1) * 2654435761 + s * 40503 * 65536) mod 2^32 >> 8; tests/unit/test_quality.c uses the same formula. The root
of S1 S2 is taken from the eigenvalues of that product, which is not symmetric: another way than the program's.
Usage: /usr/bin/python3 tests/golden/quality.py > tests/unit/golden_quality.h
"""
import numpy as np

CASES = [(40, 40, 8), (33, 50, 5), (100, 100, 70), (70, 64, 130), (20, 20, 30), (600, 600, 8), (300, 700, 5)]


def features(count, d, s):
    i = np.arange(count * d, dtype=np.uint64)

    def u(i):
        h = ((i + 1) * 2654435761 + s * 40503 * 65536) % 2**32 >> 8
        return h.astype(np.float32) / np.float32(2**24)
    return ((u(i) + u(i + 7919)) * np.float32(1 + s)).reshape(count, d)


def kid(x, y):
    x, y = x.astype(np.float64), y.astype(np.float64)
    k = lambda a, b: (a @ b.T / a.shape[1] + 1) ** 3
    xx, yy, xy = k(x, x), k(y, y), k(x, y)
    m = len(x)
    return (xx.sum() - np.trace(xx) + yy.sum() - np.trace(yy)) / (m * (m - 1)) - 2 * xy.mean()


def fid(x, y):
    x, y = x.astype(np.float64), y.astype(np.float64)
    s1, s2 = np.cov(x, rowvar=False), np.cov(y, rowvar=False)
    roots = np.sqrt(np.maximum(np.linalg.eigvals(s1 @ s2).real, 0)).sum()
    return ((x.mean(0) - y.mean(0)) ** 2).sum() + np.trace(s1) + np.trace(s2) - 2 * roots


print("/* Made by tests/golden/quality.py with numpy; do not edit. kid: only where both sets have one size. */")
print("// clang-format off")
print("static const struct { int64_t n, m; int32_t d; double kid, fid; } golden[] = {")
for n, m, d in CASES:
    x, y = features(n, d, 0), features(m, d, 1)
    print("    {%d, %d, %d, %s, %.12g}," % (n, m, d, "%.12g" % kid(x, y) if n == m else "NAN", fid(x, y)))
print("};")
