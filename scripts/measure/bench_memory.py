#!/usr/bin/env python3
"""Measure the memory of training steps of inception_v3 beside PyTorch; see scripts/measure/bench_memory.sh.

usage: bench_memory.py [--batches 8,16,32]

A side is what bench_cpu.py runs, for a few steps. Its memory is the sum over its processes of their share of resident pages. PyTorch's
own start (the interpreter and the library, before there is a network) is measured alone and shown, so that a reader can subtract it.
"""
import argparse
import os
import subprocess
import tempfile
import time
from datetime import datetime, timezone

from bench_cpu import TORCH_PYTHON, bench_side, torch_side

MIB = 1024
EVERY = 0.05  # seconds


def tree(root):
    """The process and those that it started, at any depth."""
    found = [root]
    for pid in found:
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/children") as children:
                    found += [int(child) for child in children.read().split()]
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has ended
    return found


def share(pid):
    """Resident KiB of a process, pages that it shares with others divided by their number."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    except (FileNotFoundError, ProcessLookupError, StopIteration):
        return 0


def peak(command):
    """MiB at most while the command runs, which must succeed."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        most = 0
        while process.poll() is None:
            most = max(most, sum(share(pid) for pid in tree(process.pid)))
            time.sleep(EVERY)
        if process.returncode:
            log.seek(0)
            raise SystemExit(f"bench_memory: {' '.join(command)}: exit {process.returncode}\n{log.read().decode()[-2000:]}")
    return most / MIB


def sides(batch, cores):
    ours = {f"towers, 1 tower x {cores} threads": (1, cores), f"towers, {cores} towers x 1 thread": (cores, 1)}
    more = {"": [], ", --recompute": ["--recompute"], ", bf16": ["--amp", "--amp-dtype", "bf16"]}
    for name, (towers, threads) in ours.items():
        for what, options in more.items():
            yield name + what, bench_side("inception_v3", batch, towers, threads, 3, *options)["command"]
    for layout in ("nchw", "nhwc"):
        yield f"PyTorch eager, {layout}", torch_command(batch, cores, layout=layout)
    yield "PyTorch compiled, nhwc", torch_command(batch, cores, layout="nhwc", compile=True)
    yield "PyTorch eager, nhwc, bf16", torch_command(batch, cores, layout="nhwc", bf16=True)


def torch_command(batch, cores, **options):
    return torch_side("inception_v3", batch, threads=cores, steps=3, warmup=1, **options)["command"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", default="8,16,32")
    batches = [int(n) for n in parser.parse_args().batches.split(",")]
    cores = len(os.sched_getaffinity(0))
    version = subprocess.run([TORCH_PYTHON, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    start = peak([TORCH_PYTHON, "-c", "import torch, torchvision"])
    rows = {}
    for batch in batches:
        for name, command in sides(batch, cores):
            rows.setdefault(name, []).append(peak(command))
    least = [min(row[i] for name, row in rows.items() if name.startswith("PyTorch") and not name.endswith("bf16")) for i in range(len(batches))]
    print(f"MiB at most during steps of the whole batch; commit {commit}, {datetime.now(timezone.utc):%Y-%m-%d}, PyTorch"
          f" {version.stdout.strip()}, whose start alone takes {start:.0f} MiB. In brackets: relative to PyTorch's least in f32.\n")
    print("| side | " + " | ".join(f"batch {batch}" for batch in batches) + " |")
    print("|---|" + "---:|" * len(batches))
    for name, row in rows.items():
        print(f"| {name} | " + " | ".join(f"{most:.0f} ({most / best:.2f})" for most, best in zip(row, least)) + " |")


if __name__ == "__main__":
    main()
