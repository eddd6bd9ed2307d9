#!/usr/bin/env python3
"""The parts of scripts/measure/study_training.sh; see there.

usage: study_training.py run BINARY PHOTOS RESULTS [STUDY]...   the runs that RESULTS lacks, in turn; adds each to RESULTS
       study_training.py table RESULTS                          the tables, as Markdown
"""
import gzip
import itertools
import json
import os
import resource
import statistics
import struct
import subprocess
import sys
import tempfile

IMAGES, EPOCHS, PARTS = 8000, 4, 4  # of Fashion-MNIST; models that SWA averages in the last epoch
FASHION = os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist")
LONG = {"stamps": 18, "drawings-500": 24}  # epochs: about 9000 images
MINI = "--batch-size 64 --opt nesterov --lr 0.3 --weight-decay 0.001 --smoothing 0.1 --dropout 0"
TAIL = MINI + " --sched piecewise --warmup-epochs 1 --lr-schedule 0.3;3;"
SWA = {
    "the recipe": MINI + " --sched rise-fall",
    "the recipe, `--ema-decay 0.98`": MINI + " --sched rise-fall --ema-decay 0.98",
    "rate 0.05 at the end, SWA": TAIL + "0.05",
}
SIDES = {"48 throughout": (), "48 throughout, 28 % fewer epochs": (), "24, 36, 48": ("24:0", "36:{0}", "48:{1}")}


def cut(work):
    """The first images of Fashion-MNIST."""
    for part, count in (("train", IMAGES), ("t10k", 10000)):
        for kind, head, size in (("images-idx3", 16, 784), ("labels-idx1", 8, 1)):
            with gzip.open(os.path.join(FASHION, "%s-%s-ubyte.gz" % (part, kind))) as file:
                data = file.read(head + size * count)
            with open(os.path.join(work, "%s-%s-ubyte" % (part, kind)), "wb") as file:
                file.write(data[:4] + struct.pack(">I", count) + data[8:])


def towers(binary, *words):
    """Its output, and the seconds of processors that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [str(word) for word in (binary, *words, "--device", "cpu", "--threads", 1, "--quiet")]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return out, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def train(binary, work, name, *words):
    with open("/proc/cpuinfo") as file:
        fast = ["--amp"] if " avx512_bf16" in file.read() else []
    return towers(binary, "train", "inception_mini", "--workers", 0, "--eval-interval", 0, "--summary-interval", 0, "--output-dir", work,
                  "--experiment", name, *fast, *words)[1]


def accuracy(binary, run, *words):
    return round(100 * json.loads(towers(binary, "eval", run, "--json", *words)[0])["top1"], 2)


def average(paths, to):
    """The mean of the weights of checkpoints, in f32 files of equal layout."""
    sums = None
    for path in paths:
        with open(path, "rb") as file:
            head = file.read(8)
            head += file.read(struct.unpack("<Q", head)[0])
            data = file.read()
        values = struct.unpack("<%df" % (len(data) // 4), data)
        sums = values if sums is None else [a + b for a, b in zip(sums, values)]
    with open(to, "wb") as file:
        file.write(head + struct.pack("<%df" % len(sums), *(s / len(paths) for s in sums)))


def swa(binary, photos, work, name, seed):
    cut(work)
    data, steps = ("--data-path", work), IMAGES // 64 * EPOCHS
    options = SWA[name].split() + ["--checkpoint-steps", IMAGES // 64 // PARTS, "--keep", 100] * name.endswith("SWA")
    seconds = train(binary, work, "run", *data, "--epochs", EPOCHS, "--seed", seed, *options)
    if not name.endswith("SWA"):
        return accuracy(binary, work + "/run"), seconds
    folders = sorted(os.listdir(work + "/run/ckpt"))
    last = [f for f in folders if f.startswith("step-") and int(f.split("-")[1]) > steps - IMAGES // 64][-PARTS:]
    average([os.path.join(work, "run/ckpt", f, "model.safetensors") for f in last], work + "/mean.safetensors")
    # As torch.optim.swa_utils.update_bn: statistics of the averaged network, here by steps of a rate that changes no weight.
    seconds += train(binary, work, "mean", *data, "--pretrained", work + "/mean.safetensors", "--epochs", 1, "--opt", "sgd", "--sched", "constant",
                     "--lr", 1e-30, "--weight-decay", 0, "--batch-size", 64, "--bn-decay", 0.95)
    return accuracy(binary, work + "/mean"), seconds


def sides(binary, photos, work, name, seed):
    case, kind = name.split(": ")
    epochs = round(LONG[case] * (0.72 if "fewer" in kind else 1))
    schedule = ",".join(SIDES[kind]).format(epochs // 3, 2 * epochs // 3)
    size = ["--img-size-schedule", schedule] if schedule else ["--img-size", 48]
    seconds = train(binary, work, "run", "--recipe", "photos", "--data-path", os.path.join(photos, case), "--epochs", epochs, "--seed", seed, *size)
    return accuracy(binary, work + "/run"), seconds


STUDIES = {"swa": (swa, list(SWA)), "sides": (sides, ["%s: %s" % both for both in itertools.product(LONG, SIDES)])}


def results_read(path):
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return json.load(file)


def run(binary, photos, path, *studies):
    for seed, study in itertools.product((1, 2, 3), studies or STUDIES):
        function, names = STUDIES[study]
        for name in names:
            row = {"study": study, "name": name, "seed": seed}
            if any(row.items() <= r.items() for r in results_read(path)):
                continue
            with tempfile.TemporaryDirectory() as work:
                row["accuracy"], seconds = function(binary, photos, work, name, seed)
            row["seconds"] = round(seconds, 1)
            rows = results_read(path) + [row]
            with open(path, "w") as file:
                file.write("[\n" + ",\n".join(" " + json.dumps(r) for r in rows) + "\n]\n")


def table(path):
    rows = results_read(path)
    print("| study | with | accuracy with seeds 1 2 3, % | mean | processor seconds |\n|---|---|---|---:|---:|")
    for study, name in sorted({(row["study"], row["name"]) for row in rows}, key=[(r["study"], r["name"]) for r in rows].index):
        runs = sorted((row for row in rows if (row["study"], row["name"]) == (study, name)), key=lambda row: row["seed"])
        values = [row["accuracy"] for row in runs]
        print("| %s | %s | %s | %.2f | %.1f |" % (study, name, " ".join("%.2f" % v for v in values), statistics.mean(values),
                                               statistics.mean(row["seconds"] for row in runs)))


def main():
    command, *arguments = sys.argv[1:] or [""]
    if command == "run" and len(arguments) >= 3:
        return run(*arguments)
    if command == "table" and len(arguments) == 1:
        return table(*arguments)
    return sys.exit(__doc__)


if __name__ == "__main__":
    main()
