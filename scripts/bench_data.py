#!/usr/bin/env python3
"""The parts of scripts/bench_data.sh; see there.

usage: bench_data.py pictures PHOTOGRAPHS DIR              DIR/384/{a,b} and DIR/500x375/{a,b} of the photographs below a folder
       bench_data.py torch FOLDER SIDE SECONDS RAW         images per second of torchvision's DataLoader with 1 to 4 workers, as JSON
       bench_data.py readme PAGE                           the sentence of the README, from the table of PAGE (docs/data.md)
       bench_data.py measure TOWERS BENCH_JPEG DIR [--only loader,jpeg,train] [--rounds N] [--seconds N]
                                                           everything in turn; the tables, as Markdown
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

TORCH_PYTHON = os.environ.get("TORCH_PYTHON", "python3")
SETS = {"384": "longer side 384", "500x375": "500x375"}
SIDE, BATCH = 299, 16

# ---- the pictures


def photographs(top):
    """JPEG files with at least 375 pixels on the shorter side that are no drawings: those are far smaller for their size."""
    from PIL import Image

    for folder, folders, names in os.walk(top):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            if not name.lower().endswith(".jpg"):
                continue
            try:
                image = Image.open(path).convert("RGB")
            except OSError:
                continue
            if min(image.size) >= 375 and os.path.getsize(path) >= 0.08 * image.size[0] * image.size[1]:
                yield image


def pictures_make(top, out):
    from PIL import Image, ImageOps

    for name in SETS:
        for group in "ab":
            os.makedirs(os.path.join(out, name, group), exist_ok=True)
    for at, image in enumerate(photographs(top)):
        name = os.path.join("ab"[at % 2], "%04d.jpg" % at)
        small = image.copy()
        small.thumbnail((384, 384), Image.BICUBIC)
        small.save(os.path.join(out, "384", name), quality=90, subsampling="4:2:0")
        ImageOps.fit(image, (500, 375), Image.BICUBIC).save(os.path.join(out, "500x375", name), quality=90, subsampling="4:2:0")


# ---- PyTorch


def torch_run(folder, side, seconds, raw):
    import torch
    import torchvision
    from torchvision import datasets, transforms as T

    torch.set_num_threads(1)
    steps = [T.RandomResizedCrop(side), T.RandomHorizontalFlip(), T.PILToTensor()]
    if not raw:
        steps += [T.ConvertImageDtype(torch.float), T.Normalize((0.5,) * 3, (0.5,) * 3)]
    data = datasets.ImageFolder(folder, T.Compose(steps))

    class Endless(torch.utils.data.Sampler):
        def __iter__(self):
            while True:
                yield from torch.randperm(len(data)).tolist()

    rates = {}
    for workers in (1, 2, 3, 4):
        loader = iter(torch.utils.data.DataLoader(data, batch_size=32, sampler=Endless(), num_workers=workers))
        for _ in range(5):
            next(loader)
        start, images = time.monotonic(), 0
        while time.monotonic() - start < seconds:
            images += next(loader)[0].shape[0]
        rates[workers] = images / (time.monotonic() - start)
        del loader
    print(json.dumps({"rates": rates, "torch": torch.__version__.split("+")[0], "torchvision": torchvision.__version__.split("+")[0]}))


# ---- measuring


def output_of(command):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def torch_loader(folder, seconds, raw):
    return json.loads(output_of([TORCH_PYTHON, sys.argv[0], "torch", folder, SIDE, seconds, int(raw)]))


def towers_loader(towers, folder, cores):
    """{stage: microseconds}, images per second of the last block of `towers data bench`, which is that of all threads."""
    text = output_of([towers, "data", "bench", folder, "--augment", "--img-size", SIDE, "--threads", cores])
    block = text[text.rindex("%d thread" % cores):]
    stages = {name: float(us) for name, us in re.findall(r"(\w+) +([\d.]+) us per image", block)}
    return stages, float(re.search(r"all +(\d+) images/s", block).group(1))


def step_times(towers, cores, data, steps):
    """Median seconds of a training step and the share of them that the tower waited for its batch."""
    with tempfile.TemporaryDirectory() as work:
        amp = ["--amp"] if re.search(r"\b(avx512_bf16|amx_bf16)\b", open("/proc/cpuinfo").read()) else []
        output_of([towers, "train", "inception_v3", "--device", "cpu", "--towers", 1, "--threads", cores, "-b", BATCH, "--max-steps", steps,
                   "--opt", "momentum", "--lr", 0.01, "--eval-interval", 0, "--summary-interval", 0, "--log-interval", 1, "--quiet",
                   "--output-dir", work, "--experiment", "run", *amp, *data])
        with open(os.path.join(work, "run", "metrics.jsonl")) as file:
            rows = [json.loads(line) for line in file][3:]
    seconds = statistics.median(row["images"] / row["images_per_sec"] for row in rows)
    return seconds, statistics.median(max(row["data_us"]) * 1e-6 / (row["images"] / row["images_per_sec"]) for row in rows)


def middle(values):
    return statistics.median(values)


def loader_table(o, cores):
    print("Images per second, random resized crop to %dx%d, flip, normalize; %d cores. PyTorch: the best of 1 to 4 workers. In Towers"
          " the network normalizes on the device, so PyTorch in 8 bits does the same work." % (SIDE, SIDE, cores))
    print()
    print("| pictures | towers | PyTorch, normalized | ratio | PyTorch, in 8 bits | ratio | read, us | decode, us | resize, us |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    versions = ""
    for name, title in SETS.items():
        folder = os.path.join(o.pictures, name)
        ours, stages, theirs = [], [], {False: [], True: []}
        for _ in range(o.rounds):
            found = towers_loader(o.towers, folder, cores)
            stages.append(found[0])
            ours.append(found[1])
            for raw in theirs:
                found = torch_loader(folder, o.seconds, raw)
                theirs[raw].append(max(found["rates"].values()))
                versions = "PyTorch %s, torchvision %s" % (found["torch"], found["torchvision"])
        best = {raw: middle(rates) for raw, rates in theirs.items()}
        us = ["%.0f" % middle([s[stage] for s in stages]) for stage in ("read", "decode", "resize")]
        print("| %s | %.0f | %.0f | %.1f | %.0f | %.1f | %s |" % (title, middle(ours), best[False], middle(ours) / best[False], best[True],
                                                                 middle(ours) / best[True], " | ".join(us)), flush=True)
    print()
    print("%s; medians of %d rounds; microseconds per image and thread." % (versions, o.rounds))


def jpeg_table(o):
    print("Decoding alone, microseconds of processor time per image, one thread:")
    print()
    print("| pictures | libjpeg-turbo alone | Towers, whole image | relative speed | Towers, random crop | relative speed |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, title in SETS.items():
        files = [os.path.join(d, n) for d, _, names in sorted(os.walk(os.path.join(o.pictures, name))) for n in sorted(names)]
        t = json.loads(output_of([o.bench_jpeg, o.seconds, *files]))
        print("| %s (%d) | %.0f | %.0f | %.2f | %.0f | %.2f |" % (title, t["images"], t["bare_us"], t["whole_us"], t["bare_us"] / t["whole_us"],
                                                                 t["part_us"], t["bare_us"] / t["part_us"]), flush=True)


def train_table(o, cores):
    print("A training step of inception_v3, %dx%d, batch %d, from JPEG files and from synthetic images, in alternating runs:" % (SIDE, SIDE, BATCH))
    print()
    print("| data | step, ms | waits for data, % of the step | speed relative to synthetic |")
    print("|---|---:|---:|---:|")
    data = {"synthetic": ["--dataset", "synthetic", "--classes", 2]}
    for name, title in SETS.items():
        data["JPEG, " + title] = ["--data-path", os.path.join(o.pictures, name), "--val-split", 0.1, "--augment"]
    found = {title: [] for title in data}
    for _ in range(o.rounds):
        for title, options in data.items():
            found[title].append(step_times(o.towers, cores, options, 11))
    plain = middle([s for s, _ in found["synthetic"]])
    for title, runs in found.items():
        seconds = middle([s for s, _ in runs])
        print("| %s | %.0f | %.2f | %.3f |" % (title, 1000 * seconds, 100 * middle([w for _, w in runs]), plain / seconds), flush=True)


def readme_line(page):
    """The sentence of the README, from the first table of docs/data.md."""
    begin = page.index("| pictures | towers |")
    rows = [line.split("|") for line in page[begin:page.index("\n\n", begin)].split("\n")[2:]]
    same, normalized = ([float(row[column]) for row in rows] for column in (6, 4))
    return ("**Speed.** On the same cores and files, Towers prepares %.1f to %.1f times as many images a second as PyTorch's DataLoader for the"
            " same work, and %.1f to %.1f times as many where PyTorch also normalizes them, which Towers leaves to the network"
            " ([table](docs/data.md#how-fast-and-how-much-memory))." % (min(same), max(same), min(normalized), max(normalized)))


def measure(o):
    cores = min(2, len(os.sched_getaffinity(0)))
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    tables = {"loader": lambda: loader_table(o, cores), "jpeg": lambda: jpeg_table(o), "train": lambda: train_table(o, cores)}
    for name in o.only.split(","):
        tables[name]()
        print()


def main():
    command, *arguments = sys.argv[1:] or [""]
    if command == "pictures" and len(arguments) == 2:
        return pictures_make(*arguments)
    if command == "torch" and len(arguments) == 4:
        return torch_run(arguments[0], int(arguments[1]), float(arguments[2]), arguments[3] == "1")
    if command == "readme" and len(arguments) == 1:
        with open(arguments[0]) as page:
            return print(readme_line(page.read()))
    if command != "measure":
        sys.exit(__doc__)
    parser = argparse.ArgumentParser()
    parser.add_argument("towers")
    parser.add_argument("bench_jpeg")
    parser.add_argument("pictures")
    parser.add_argument("--only", default="loader,jpeg,train")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    measure(parser.parse_args(arguments))


if __name__ == "__main__":
    main()
