#!/usr/bin/env python3
"""The parts of scripts/measure/bench_data.sh; see there.

usage: bench_data.py pictures PHOTOGRAPHS DIR              DIR/384/{a,b} and DIR/500x375/{a,b} of the photographs below a folder
       bench_data.py torch FOLDER SIDE SECONDS PEER        images per second of PyTorch's DataLoader with 1 to 4 workers, as JSON
       bench_data.py readme PAGE                           the sentence of the README, from the table of PAGE (docs/data.md); nothing
                                                           if the table lacks torchvision's own decoder
       bench_data.py measure TOWERS BENCH_JPEG DIR [--only loader,jpeg,train] [--rounds N] [--seconds N]
                                                           everything in turn; the tables, as Markdown

All peers make 8-bit tensors, as Towers does. "pil": torchvision's ImageFolder with PIL and v1 transforms, as its examples have it;
"simd": the same with Pillow-SIMD in place of Pillow (SIMD_PYTHON); "tensor": decode_jpeg and v2 transforms on tensors.
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
PEERS = {"tensor": ("torchvision's decode_jpeg, v2 transforms on tensors", TORCH_PYTHON), "pil": ("Pillow, v1 transforms", TORCH_PYTHON),
         "simd": ("Pillow-SIMD, v1 transforms", os.environ.get("SIMD_PYTHON"))}
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


def torch_run(folder, side, seconds, peer):
    import PIL
    import torch
    import torchvision
    from torchvision import datasets, io, transforms
    from torchvision.transforms import v2

    torch.set_num_threads(1)
    if peer == "tensor":
        steps = v2.Compose([v2.RandomResizedCrop(side, antialias=True), v2.RandomHorizontalFlip()])
        data = datasets.ImageFolder(folder, steps, loader=lambda path: io.decode_jpeg(io.read_file(path), mode=io.ImageReadMode.RGB))
    else:
        steps = [transforms.RandomResizedCrop(side), transforms.RandomHorizontalFlip(), transforms.PILToTensor()]
        data = datasets.ImageFolder(folder, transforms.Compose(steps))

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
    versions = {"PyTorch": torch.__version__, "torchvision": torchvision.__version__, "Pillow": PIL.__version__}
    print(json.dumps({"rate": max(rates.values()), "versions": {name: version.split("+")[0] for name, version in versions.items()}}))


# ---- measuring


def output_of(command):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True).stdout


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
    print("Images per second, random resized crop to %dx%d and flip, as 8-bit tensors; %d cores. PyTorch's DataLoader: the best of 1 to 4"
          " workers." % (SIDE, SIDE, cores))
    print()
    print("| pictures | by | images/s, median | range | Towers to it | read, us | decode, us | resize, us |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    peers, versions = {name: peer for name, peer in PEERS.items() if peer[1]}, {}
    for name, title in SETS.items():
        folder = os.path.join(o.pictures, name)
        rates, stages = {peer: [] for peer in ("towers", *peers)}, []
        for _ in range(o.rounds):
            found = towers_loader(o.towers, folder, cores)
            stages.append(found[0])
            rates["towers"].append(found[1])
            for peer, (_, python) in peers.items():
                found = json.loads(output_of([python, sys.argv[0], "torch", folder, SIDE, o.seconds, peer]))
                rates[peer].append(found["rate"])
                versions.update(found["versions"] if peer != "simd" else {"Pillow-SIMD": found["versions"]["Pillow"]})
        us = ["%.0f" % middle([s[stage] for s in stages]) for stage in ("read", "decode", "resize")]
        for peer, found in rates.items():
            by = "Towers" if peer == "towers" else peers[peer][0]
            print("| %s | %s | %.0f | %.0f-%.0f | %.1f | %s |" % (title, by, middle(found), min(found), max(found), middle(rates["towers"]) /
                                                              middle(found), " | ".join(us if peer == "towers" else [" "] * 3)), flush=True)
    print()
    print("%s; %d rounds; microseconds per image and thread. Not measured: %s." % (
        ", ".join("%s %s" % version for version in versions.items()), o.rounds,
        ", ".join([peer[0] for name, peer in PEERS.items() if name not in peers] + ["FFCV, which reads files of its own format"])))


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
    """The sentence of the README, from the first table of docs/data.md: against the fastest peer for each set of pictures."""
    if PEERS["tensor"][0] not in page:
        return ""
    begin = page.index("| pictures | by |")
    commit = re.findall(r", commit (\S+), ", page[:begin])[-1]
    rows = [[cell.strip() for cell in line.split("|")] for line in page[begin:page.index("\n\n", begin)].split("\n")[2:]]
    best = [min((float(row[5]), row[2]) for row in rows if row[1] == title and row[2] != "Towers") for title in SETS.values()]
    return ("**Speed.** On the same cores and files, Towers prepares %.1f to %.1f times as many images a second as PyTorch's DataLoader with %s,"
            " at commit %s ([table](docs/data.md#how-fast-and-how-much-memory))." % (min(best)[0], max(best)[0], " or ".join(sorted({name for _, name in best})), commit))


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
        return torch_run(arguments[0], int(arguments[1]), float(arguments[2]), arguments[3])
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
