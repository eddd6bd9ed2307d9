#!/usr/bin/env python3
"""How many files a reader opens to follow a convolution to its inner loop: where the road begins, and what these files include.

usage: scripts/check/roads.py [SOURCE_FOLDER]

A road begins in the files to which tables and calls lead; the others are found by includes, in the room of the device. Prints for
each road its files, with their lines. Exit status 0: none is longer than it was, which ROADS says; 1: one is; 2: a beginning is not
there.
"""
import os
import re
import sys

CPU, CONV, CUDA = "kernels/cpu/", "kernels/cpu/conv/", "kernels/cuda/"
ROADS = {
    "f32 3x3 forward on a CPU": (12, CPU, [CONV + "conv.c", CONV + "winograd.c", CONV + "winograd_avx512.c"]),
    "its weight gradient": (13, CPU, [CONV + "conv.c", CONV + "winograd_dw.c", CONV + "wgrad_avx512.c"]),
    "a convolution on a GPU": (19, CUDA, [CUDA + name for name in ("conv/conv.c", "conv/task.c", "autotune.c", "plan_cache.c", "libraries/cudnn_graph.c", "libraries/cudnn_plan.c", "libraries/cudnn_library.c")]),
}
INCLUDE = re.compile(r'^\s*#\s*include "([^"]+)"', re.M)


def road(source, room, begin):
    found, left = [], list(begin)
    while left:
        path = left.pop(0)
        if path in found or not path.startswith(room):
            continue
        with open(os.path.join(source, path), encoding="utf-8") as file:
            left += INCLUDE.findall(file.read())
        found.append(path)
    return found


def main():
    source = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    longer = 0
    for title, (most, room, begin) in ROADS.items():
        missing = [path for path in begin if not os.path.exists(os.path.join(source, path))]
        if missing:
            print(f"roads: {missing[0]} is not in {source}: the road of '{title}' begins elsewhere", file=sys.stderr)
            sys.exit(2)
        files = road(source, room, begin)
        lines = sum(sum(1 for _ in open(os.path.join(source, path), encoding="utf-8")) for path in files)
        print(f"{title}: {len(files)} files, {lines} lines: {' '.join(os.path.relpath(path, room) for path in files)}")
        if len(files) > most:
            print(f"roads: '{title}' had {most} files", file=sys.stderr)
            longer = 1
    sys.exit(longer)


if __name__ == "__main__":
    main()
