#!/usr/bin/env python3
"""The parts of scripts/train_photos.sh; see there.

usage: train_photos.py folder PACKAGE_FOLDER DIR       the photographs of elpv-dataset as DIR/{train,val}/{defective,functional}/*.jpg
       train_photos.py torch DIR [options]             one training with PyTorch; prints a JSON object
       train_photos.py towers BINARY DIR [options]     one training with towers; prints a JSON object
       train_photos.py keep RESULTS                    adds the JSON object on standard input to a file of results
       train_photos.py table RESULTS                   the table, as Markdown; exit status 1 if the two sides differ
options: --seed N --epochs N --threads N [--steps N] [--bf16]
"""
import argparse
import hashlib
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

SIDE, RESIZED, BATCH = 149, 170, 32  # 170 = 149 * 342 / 299: the shorter side of evaluated images before the center crop
CLASSES = ("defective", "functional")

# ---- the photographs


def folder_make(package, out):
    """Three quarters of the cells are for training and one quarter for testing, as in Deitsch et al., "Automatic classification of
    defective photovoltaic module cells in electroluminescence images", Solar Energy 185 (2019), in equal parts of each kind of module
    and each probability of a defect. Sorted by kind, probability and the SHA-256 of its name, every fourth cell is for testing.
    A cell is defective if its probability is above one half."""
    from PIL import Image

    data = os.path.join(package, "elpv_dataset", "data")
    with open(os.path.join(data, "labels.csv")) as file:
        cells = [(kind, float(probability), hashlib.sha256(os.path.basename(path).encode()).hexdigest(), path)
                 for path, probability, kind in (line.split() for line in file if line.strip())]
    for at, (_, probability, _, path) in enumerate(sorted(cells)):
        target = os.path.join(out, "val" if at % 4 == 3 else "train", CLASSES[probability < 0.5])
        os.makedirs(target, exist_ok=True)
        name = os.path.splitext(os.path.basename(path))[0] + ".jpg"
        with Image.open(os.path.join(data, path)) as image:
            image.save(os.path.join(target, name), quality=90)


# ---- training


def processor_seconds(who):
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def rows_of(run):
    """The last row of results.csv by its column names."""
    with open(os.path.join(run, "results.csv")) as file:
        lines = [line.strip().split(",") for line in file if line.strip()]
    return dict(zip(lines[0], lines[-1]))


def towers_train(o):
    with tempfile.TemporaryDirectory() as work:
        command = [o.binary, "train", "inception_v3", "--recipe", "photos", "--data-path", o.data, "--img-size", SIDE, "--device", "cpu",
                   "--towers", 1, "--threads", o.threads, "--epochs", o.epochs, "--eval-interval", o.epochs, "--seed", o.seed, "--quiet",
                   "--summary-interval", 0, "--output-dir", work, "--experiment", "run"]
        command += ["--amp"] if o.bf16 else []
        command += ["--max-steps", o.steps] if o.steps else []
        start = time.monotonic()
        subprocess.run([str(word) for word in command], check=True, stdout=sys.stderr)
        seconds = time.monotonic() - start
        run = os.path.join(work, "run")
        with open(os.path.join(run, "confusion.csv")) as file:
            confusion = [[int(n) for n in line.split(",")] for line in file if line.strip()]
        last = rows_of(run)
    code = ["--", "kernels", "nccl_sync", "towers", "inception"]
    commit = subprocess.run(["git", "log", "-1", "--format=%h", *code], capture_output=True, text=True).stdout.strip()
    if subprocess.run(["git", "diff", "--quiet", "HEAD", *code]).returncode != 0:
        commit += " and changes"
    return {"side": "towers", "version": "commit " + commit, "confusion": confusion, "loss": float(last["train_loss"]), "seconds": seconds,
            "processor_seconds": processor_seconds(resource.RUSAGE_CHILDREN)}


def torch_train(o):
    """The recipe `photos` (inception/recipes/photos.yaml) line by line, on torchvision's inception_v3 with the starting values of ours."""
    import torch
    import torchvision
    from torch import nn
    from torch.nn import functional as F
    from torchvision import datasets, transforms as T

    torch.manual_seed(o.seed)
    torch.set_num_threads(o.threads)
    torch.set_flush_denormal(True)
    to_tensor = [T.PILToTensor(), T.ConvertImageDtype(torch.float), T.Normalize((0.5,) * 3, (0.5,) * 3)]
    crop = T.RandomResizedCrop(SIDE, scale=(0.35, 1))
    train = datasets.ImageFolder(o.data + "/train", T.Compose([crop, T.RandomHorizontalFlip(), T.ColorJitter(0.2, 0.2, 0.2), *to_tensor]))
    test = datasets.ImageFolder(o.data + "/val", T.Compose([T.Resize(RESIZED), T.CenterCrop(SIDE), *to_tensor]))
    loader = torch.utils.data.DataLoader(train, BATCH, shuffle=True, num_workers=2, persistent_workers=True)

    model = torchvision.models.inception_v3(weights=None, aux_logits=False, init_weights=False, num_classes=len(CLASSES))
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            std = 0.1 if isinstance(module, nn.Conv2d) else 0.01
            nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
    nn.init.zeros_(model.fc.bias)
    model = model.to(memory_format=torch.channels_last).train()
    average = {name: value.clone() for name, value in model.state_dict().items()}
    weights = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.SGD([{"params": weights, "weight_decay": 1e-4}, {"params": others}], 0.05, 0.9, nesterov=True, fused=True)

    def loss_of(images, labels, smoothing):
        images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=o.bf16):
            logits = model(images)
        return logits, F.cross_entropy(logits.float(), labels, label_smoothing=smoothing)

    start, steps, loss_sum, images_seen = time.monotonic(), 0, 0.0, 0
    per_epoch = len(loader)
    for epoch in range(o.epochs):
        loss_sum, images_seen = 0.0, 0
        for images, labels in loader:
            turn = (steps - per_epoch) / (o.epochs * per_epoch - per_epoch)
            rate = 0.05 * (steps / per_epoch if steps < per_epoch else (1 + math.cos(math.pi * turn)) / 2)
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.zero_grad(set_to_none=True)
            _, loss = loss_of(images, labels, 0.1)
            loss.backward()
            optimizer.step()
            decay = min(0.999, (1 + steps) / (10 + steps))
            with torch.no_grad():
                for name, value in model.state_dict().items():
                    if value.is_floating_point():
                        average[name].lerp_(value, 1 - decay)
            steps += 1
            loss_sum += float(loss) * len(labels)
            images_seen += len(labels)
            if o.steps and steps == o.steps:
                break
        print("epoch %d: loss %.4f, %.0f s" % (epoch + 1, loss_sum / images_seen, time.monotonic() - start), file=sys.stderr, flush=True)
        if o.steps and steps == o.steps:
            break
    model.load_state_dict(average)
    model.eval()
    confusion = [[0] * len(CLASSES) for _ in CLASSES]
    with torch.no_grad():
        for images, labels in torch.utils.data.DataLoader(test, 64, num_workers=2):
            for label, answer in zip(labels.tolist(), loss_of(images, labels, 0)[0].argmax(1).tolist()):
                confusion[label][answer] += 1
    version = "PyTorch %s, torchvision %s" % (torch.__version__.split("+")[0], torchvision.__version__.split("+")[0])
    return {"side": "PyTorch", "version": version, "confusion": confusion, "loss": loss_sum / images_seen,
            "seconds": time.monotonic() - start,
            "processor_seconds": processor_seconds(resource.RUSAGE_SELF) + processor_seconds(resource.RUSAGE_CHILDREN)}


# ---- results


def results_read(path):
    try:
        with open(path) as file:
            return json.load(file)
    except FileNotFoundError:
        return []


def keep(path, run):
    """In the place of an earlier run of the same side, seed and length."""
    same = ("side", "seed", "epochs", "arithmetic")
    runs = [r for r in results_read(path) if any(r[key] != run[key] for key in same)] + [run]
    runs.sort(key=lambda r: (r["epochs"], r["side"], r["seed"]))
    with open(path, "w") as file:
        file.write("[\n" + ",\n".join(" " + json.dumps(r) for r in runs) + "\n]\n")


def accuracy(run):
    return 100 * sum(run["confusion"][c][c] for c in range(len(CLASSES))) / sum(map(sum, run["confusion"]))


def spread(values):
    return statistics.stdev(values) if len(values) > 1 else None


def side_row(name, runs):
    """The last cell is the least processor time of the seeds: on a busy machine, threads that spin while they wait add to it."""
    total = [[sum(r["confusion"][label][answer] for r in runs) for answer in range(2)] for label in range(2)]
    recall = ["%.1f" % (100 * total[c][c] / sum(total[c])) for c in range(2)]
    values = [accuracy(r) for r in runs]
    cells = [name, ", ".join("%.1f" % v for v in values), "%.1f" % statistics.mean(values),
             "-" if len(values) < 2 else "%.1f" % spread(values), *recall,
             *("%.1f" % (total[label][answer] / len(runs)) for label in range(2) for answer in range(2)),
             "%.4f" % statistics.mean(r["loss"] for r in runs), "%.1f" % (min(r["processor_seconds"] for r in runs) / 120)]
    return "| " + " | ".join(cells) + " |"


def table(path):
    runs = results_read(path)
    last = runs[-1] if runs else sys.exit("train_photos: no results in %s" % path)
    runs = [r for r in runs if (r["epochs"], r["arithmetic"]) == (last["epochs"], last["arithmetic"])]
    sides = {side: [r for r in runs if r["side"] == side] for side in ("towers", "PyTorch")}
    tested = sum(map(sum, last["confusion"]))
    print("inception_v3 from random weights, %dx%d, recipe `photos` with %d epochs, batch %d, %s, 2 cores; %d test images; the last"
          " weights are tested, not the best." % (SIDE, SIDE, last["epochs"], BATCH, last["arithmetic"], tested))
    print()
    print("| side | accuracy of each seed, % | mean | deviation | recall defective, % | recall functional, % | defective: right | missed |"
          " functional: false alarm | right | training loss | least minutes of 2 cores |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for side, of in sides.items():
        if of:
            versions, dates = (sorted({r[key] for r in of}) for key in ("version", "date"))
            print(side_row("%s (%s; %s)" % (side, "; ".join(versions), ", ".join(dates)), of))
    print()
    largest = max(range(len(CLASSES)), key=lambda c: sum(last["confusion"][c]))
    print("Answering `%s` for every image would be right for %.1f %%." % (CLASSES[largest], 100 * sum(last["confusion"][largest]) / tested))
    if not all(sides.values()):
        print("Only one side has been run.")
        return True
    means = [statistics.mean(map(accuracy, of)) for of in sides.values()]
    # The noise of the seeds where there are several, and never less than that of the test images, which both sides share.
    share = statistics.mean(means) / 100
    of_test = 100 * math.sqrt(2 * share * (1 - share) / tested)
    of_seeds = math.sqrt(sum((spread([accuracy(r) for r in of]) or 0) ** 2 / len(of) for of in sides.values()))
    error = max(of_test, of_seeds)
    gap = means[0] - means[1]
    equal = abs(gap) <= 2 * error
    print("towers minus PyTorch: %+.1f points; standard error %.1f (of the seeds %.1f, of %d test images %.1f): %s. Seeds: towers %d,"
          " PyTorch %d." % (gap, error, of_seeds, tested, of_test, "equal within noise" if equal else "DIFFERENT",
                            len(sides["towers"]), len(sides["PyTorch"])))
    return equal


def main():
    command, *arguments = sys.argv[1:] or [""]
    if command == "folder" and len(arguments) == 2:
        return folder_make(*arguments)
    if command == "keep" and len(arguments) == 1:
        return keep(arguments[0], json.load(sys.stdin))
    if command == "table" and len(arguments) == 1:
        sys.exit(0 if table(arguments[0]) else 1)
    if command not in ("torch", "towers"):
        sys.exit(__doc__)
    parser = argparse.ArgumentParser()
    if command == "towers":
        parser.add_argument("binary")
    parser.add_argument("data")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--bf16", action="store_true")
    o = parser.parse_args(arguments)
    run = (torch_train if command == "torch" else towers_train)(o)
    run.update(seed=o.seed, epochs=o.epochs, arithmetic="bf16" if o.bf16 else "f32", date=time.strftime("%Y-%m-%d", time.gmtime()))
    print(json.dumps(run))


if __name__ == "__main__":
    main()
