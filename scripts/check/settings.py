#!/usr/bin/env python3
"""What a build makes of settings, compared with another build: every model with every recipe and combinations of options.

usage: scripts/check/settings.py TOWERS RECORD.json

If RECORD.json is not there it is written: for each command line its exit code, what it printed, and for runs args.yaml, env.json and
the records. If it is there, the outcomes of TOWERS are compared with it. So build the old commit, record, build the new one, compare.
Times, rates, process ids and the commit are left out. The data are generated: folders of pictures, a labels file, and Fashion-MNIST
where it is installed. Exit status 0: recorded, or all equal; 1: something differs; 2: usage.
"""
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/support"))
sys.dont_write_bytecode = True
import shards_write  # noqa: E402

PLACE = os.path.join(tempfile.gettempdir(), "towers-settings")  # always the same, because paths are printed
DIFFERENCES_SHOWN = 20

# Each with every model, by --print-config and by --dry-run.
COMBINATIONS = [
    [], ["--towers", "2"], ["--batch-size", "max", "--data-path", "few"], ["--global-batch-size", "64"], ["--tower-batch", "3,5"], ["--amp"],
    ["--amp", "--amp-dtype", "tf32"], ["--opt", "nesterov", "--lr", "0.1"], ["--opt", "lars"], ["--opt", "adamw", "--momentum", "0.8"],
    ["--sched", "cosine", "--warmup-epochs", "2", "--epochs", "2"], ["--sched", "plateau", "--patience", "3"], ["--sched", "piecewise"],
    ["--sched", "piecewise", "--lr-schedule", "0.1;3;0.01", "--lr-reference-batch", "256"], ["--lr", "auto"], ["--img-size", "96"],
    ["--img-size-schedule", "96:0,128:2"], ["--img-size-schedule", "96:0,128:2", "--img-size", "64"], ["--classes", "7"],
    ["--augment", "--crop", "box", "--no-exif"], ["--loss", "bce"], ["--mixup", "0.2", "--smoothing", "0.1"], ["--aux-weight", "0.2"],
    ["--no-aux"], ["--critic-steps", "2", "--penalty-weight", "5"], ["--accumulate", "4"], ["--bn-stats", "sync", "--towers", "2"],
    ["--processes", "3", "--towers", "2"], ["--mean", "0.5", "--std", "0.2,0.2,0.2"], ["--layer-decay", "0.8", "--lr-mult", "fc*=10"],
    ["--seed", "7", "--ema-decay", "0.99", "--clip-norm", "1"], ["--min-lr", "5"], ["--stop-at", "0.9", "--monitor", "loss"],
    ["--dataset", "fmnist"], ["--data-path", "none-such"], ["--width", "16"], ["--variant", "tf2016"], ["--dropout", "0.3"],
    ["--freeze", "*", "--unfreeze-epoch", "1"], ["--reduce-dtype", "bf16"], ["--bad-samples", "limit:3"], ["--log-style", "tf2016"],
    ["--data-path", "few"], ["--data-path", "few", "--batch-size", "32"], ["--data-path", "few", "--recipe", "none"],
    ["--data-path", "few", "--opt", "sgd"], ["--data-path", "few", "--val-split", "0.25", "--epochs", "3"],
    ["--data-path", "few", "--recipe", "torchvision", "--epochs", "3"], ["--data-path", "whole", "--fold", "2/5"], ["--data-path", "whole", "--val-split", "0.25"],
    ["--data-path", "few", "--global-batch-size", "64", "--towers", "2"], ["--data-path", "few", "--sampler", "balanced"],
    ["--data-path", "few", "--class-weights", "auto"], ["--data-path", "few", "--max-steps", "3", "--patience", "2"],
    ["--data-path", "upright"], ["--data-path", "stored"], ["--data-path", "labeled", "--val-split", "0.3"], ["--data-path", "labeled", "--val-split", "0.3", "--loss", "bce"],
    ["--data-path", "one-class"], ["--config", "lr.yaml"], ["--config", "lr.yaml", "--lr", "0.3", "--recipe", "timm"],
]
# Of other commands, with every model.
OTHERS = [["lr-find"], ["lr-find", "--recipe", "tf2016"], ["bench"], ["bench", "--batch-size", "max", "--data-path", "few"], ["bench", "--amp", "--towers", "2"],
          ["info"], ["info", "--batch-size", "8"], ["eval"], ["eval", "--data-path", "few"], ["export"], ["export", "--int8"]]
# In this order, because later ones read the runs of earlier ones.
RUNS = [
    ["train", "fashion_cnn", "--max-steps", "3", "--experiment", "mini", "--batch-size", "8", "--data-path", "few", "--recipe", "none"],
    ["train", "inception_mini", "--max-steps", "2", "--experiment", "two", "--towers", "2", "--data-path", "few", "--amp"],
    ["train", "fashion_cnn", "--epochs", "1", "--experiment", "several", "--data-path", "labeled", "--loss", "bce", "--val-split", "0.3"],
    ["train", "wgan_gp", "--max-steps", "2", "--experiment", "gan", "--batch-size", "4", "--data-path", "few"],
    ["train", "fashion_cnn", "--max-steps", "2", "--experiment", "auto", "--lr", "auto", "--dataset", "fmnist"],
    ["train", "inception_mini", "--epochs", "2", "--experiment", "sides", "--img-size-schedule", "20:0,28:1", "--data-path", "few"],
    ["train", "--resume", "runs/mini", "--max-steps", "5"],
    ["train", "fashion_cnn", "--resume", "auto", "--max-steps", "6", "--experiment", "mini"],
    ["train", "--resume", "runs/mini", "--experiment", "branch", "--max-steps", "7"],
    ["train", "--resume", "runs/auto", "--lr", "auto", "--max-steps", "3"],
    ["train", "inception_mini", "--resume", "runs/mini"],
    ["train", "fashion_cnn", "--pretrained", "runs/mini", "--reset-head", "--epochs", "0", "--experiment", "tuned", "--data-path", "few"],
    ["train", "fashion_cnn", "--experiment", "mini"],
    ["lr-find", "fashion_cnn", "--lr-steps", "20", "--json", "--dataset", "synthetic", "--batch-size", "8"],
    ["eval", "runs/mini", "--json"], ["eval", "runs/two", "--json"], ["eval", "runs/two", "--batch-size", "4", "--print-config"],
    ["eval", "runs/several", "--json"], ["eval", "runs/mini", "--data-path", "upright", "--print-config"],
    ["eval", "fashion_cnn", "--weights", "runs/mini", "--print-config"], ["eval", "runs/mini/best.safetensors", "--print-config"],
    ["eval", "fashion_cnn", "--weights", "runs/mini", "--data-path", "few", "--split", "train", "--print-config"],
    ["eval", "runs/mini", "--calibrate"], ["eval", "runs/several", "--calibrate"], ["eval", "runs/mini"], ["eval", "runs/gan"],
    ["eval", "runs/mini", "--split", "test"], ["eval", "runs/mini", "--img-size", "32", "--print-config"], ["eval"],
    ["predict", "runs/mini", "few/train/a/0.png"], ["predict", "runs/mini/best.safetensors", "few/train/b/1.png", "--csv"],
    ["predict", "runs/several", "labeled/0.png"], ["predict", "runs/gan", "few/train/a/0.png"], ["predict", "few", "few/train/a/0.png"],
    ["predict", "fashion_cnn", "few/train/a/0.png"], ["predict", "runs/mini", "few", "--split", "test"], ["predict", "runs/mini"],
    ["generate", "runs/gan", "-o", "sheet.png", "-n", "4", "--seed", "3"], ["generate", "runs/gan", "-o", "s.png", "-n", "4", "--beside-real"],
    ["generate", "runs/mini", "-o", "sheet.png"], ["generate", "wgan_gp", "-o", "sheet.png"], ["fid", "runs/gan", "--features", "runs/mini"],
    ["fid", "few", "--features", "runs/mini", "--data-path", "few"], ["fid", "few", "--features", "runs/mini"],
    ["fid", "many/train/a", "--features", "runs/mini", "--data-path", "many", "--neighbors", "0"],
    ["fid", "runs/gan", "--features", "runs/mini", "--data-path", "many", "--count", "16", "--neighbors", "4"],
    ["export", "runs/mini", "m.onnx"], ["export", "runs/two", "t.safetensors"], ["export", "runs/mini", "q.onnx", "--int8"],
    ["export", "runs/two", "q.onnx", "--int8"], ["export", "runs/mini/best.safetensors", "b.onnx", "--int8"],
    ["export", "runs/mini/best.safetensors", "b.onnx", "--int8", "--data-path", "few"], ["export", "runs/gan", "g.onnx"],
    ["info", "runs/mini"], ["info", "runs/mini/best.safetensors"], ["info", "runs/mini/best.safetensors", "--json"], ["info", "runs/two"],
    ["bench", "fashion_cnn", "--batches", "2", "--warmup-batches", "1", "--data-path", "few", "--batch-size", "4", "--json"],
    ["bench", "fashion_cnn", "--inference", "--batches", "2", "--batch-size", "4"], ["train"], ["bench"], ["info", "none"],
    ["doctor", "--hosts"], ["card", "runs/mini"], ["compare", "runs/mini", "runs/branch"], ["compare", "runs/mini", "runs/two"],
    ["runs", "--sort", "name"],
]
RECORDS = ["args.yaml", "env.json", "metrics.jsonl", "results.csv", "outcome.json", "norms.jsonl", "lr-find.json", "survey.json"]

# What no two runs have in common.
VARYING = [
    (re.compile(r'"(started|started_at|commit|command|images_per_sec|wall_seconds|seconds|arrival_us|data_us|copy_us|forward_us|backward_us|'
                r'average_wall_time|uncertainty|jitter|watts|images_per_joule|[a-z_]*(?:seconds|_us|_ms|_at))": ?(\[[^]]*\]|"[^"]*"|[-+.e0-9]+|null)'),
     r'"\1":'),
    (re.compile(r"\([0-9.]+ s, \d+ img/s\)"), "(TIME)"),
    (re.compile(r"\| commit \|.*"), "| commit |"),
    (re.compile(r"\d{8}-\d{6}"), "DATE"),
    (re.compile(r"\b\d+:\d\d:\d\d\b(?= )"), "TIME"),
    (re.compile(r"(?<=bytes)\s+[\d.]+ MiB"), ""),
    (re.compile(r"needs [\d.]+ of the [\d.]+ GiB of free memory"), "needs SOME of the FREE memory"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:]+(?:Z|[-+]\d+)"), "DATE"),
    (re.compile(r"images/sec: .*|images per second .*"), "RATE"),
    (re.compile(r"(?:\d[\d,.]* (?:ms|us|s|min|images/s|img/s)\b)"), "TIME"),
    (re.compile(r"prepared kernels.*"), ""),
    (re.compile(r"total for one tower.*"), ""),
    (re.compile(r"[\d.]+ (?:GiB|MiB|KiB)"), "SIZE"),
]
LITTLE_MEMORY = "of memory ("  # what a build answers at a moment when the machine has little is not compared
CSV_TIMES = {"images_per_sec", "seconds"}


def png(path, side, shade):
    """A gray PNG with a slope, so that images differ."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as to:
        to.write(shards_write.png(bytes((shade + 3 * x + 5 * y) % 256 for y in range(side) for x in range(side)), side, channels=1))


def classes(folder, counts):
    for name, count in counts.items():
        for k in range(count):
            png(f"{folder}/{name}/{k}.png", 28, 40 * len(name) + 7 * k + ord(name[-1]))


def data_make():
    for name in ("few", "upright", "stored"):
        classes(name, {"train/a": 14, "train/b": 10, "val/a": 5, "val/b": 6, "test/a": 3, "test/b": 3})
    classes("many", {"train/a": 40, "train/b": 40, "val/a": 20, "val/b": 20, "test/a": 20, "test/b": 20})
    classes("whole", {"a": 12, "b": 15, "c": 9})
    classes("one-class", {"train/a": 5, "val/a": 2})
    for name, upright in (("upright", True), ("stored", False)):
        with open(f"{name}/towers-convert.json", "w", encoding="utf-8") as to:
            json.dump({"exif": upright}, to)
    for k in range(12):
        png(f"labeled/{k}.png", 28, 20 * k)
    with open("labeled/labels.csv", "w", encoding="utf-8") as to:
        to.write("file,classes\n" + "".join(f"{k}.png,{'a b' if k % 3 else 'b'}\n" for k in range(12)))
    with open("lr.yaml", "w", encoding="utf-8") as to:
        to.write("lr: 0.2\nepochs: 3\nsched: cosine\n")


def plain(text):
    for pattern, instead in VARYING:
        text = pattern.sub(instead, text)
    return text


def csv_plain(text):
    """Without the columns of times."""
    lines = [line.split(",") for line in text.splitlines()]
    kept = [i for i, name in enumerate(lines[0] if lines else []) if name not in CSV_TIMES]
    return "\n".join(",".join(line[i] for i in kept if i < len(line)) for line in lines)


def outcome(program, arguments):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("TOWERS_", "OMPI_", "SLURM_"))}
    done = subprocess.run([program, *arguments], capture_output=True, stdin=subprocess.DEVNULL, env=environment, check=False)
    return {"code": done.returncode, "out": plain(done.stdout.decode(errors="replace")), "err": plain(done.stderr.decode(errors="replace"))}


def collect(program):
    def words(first, column):
        listed = subprocess.run([program, "info"], capture_output=True, text=True, check=True).stdout
        part = listed.split("\n\n")[column].splitlines()[1:]
        return [line.split()[0] for line in part if line and not line.startswith(" ")]

    models, recipes = words("model", 0), words("recipe", 1)
    lines = []
    for model in models:
        for combination in [["--recipe", recipe] for recipe in recipes] + COMBINATIONS:
            data = [] if "--data-path" in combination or "--dataset" in combination else ["--dataset", "synthetic"]
            lines += [["train", model, *combination, *data, flag] for flag in ("--print-config", "--dry-run")]
        lines += [[line[0], model, *line[1:], *(["--dataset", "synthetic"] if line[0] in ("lr-find", "bench", "eval") and len(line) < 3 else []),
                   *([] if line[0] in ("info", "export") else ["--print-config"])] for line in OTHERS]
    found = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for line, result in zip(lines, pool.map(lambda line: outcome(program, line), lines)):
            found[" ".join(line)] = result
    for line in RUNS:
        found[" ".join(line)] = outcome(program, line)
    for run in sorted(os.listdir("runs")):
        for name in RECORDS:
            path = os.path.join("runs", run, name)
            if os.path.exists(path):
                with open(path, encoding="utf-8", errors="replace") as text:
                    found[path] = {"text": csv_plain(text.read()) if name.endswith(".csv") else plain(text.read())}
    return found


def main():
    if len(sys.argv) != 3 or not os.access(sys.argv[1], os.X_OK):
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    program, record = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    shutil.rmtree(PLACE, ignore_errors=True)
    os.makedirs(PLACE)
    os.chdir(PLACE)
    os.symlink(program, "towers")
    data_make()
    found = collect("./towers")
    os.chdir("/")
    shutil.rmtree(PLACE)
    if not os.path.exists(record):
        with open(record, "w", encoding="utf-8") as to:
            json.dump(found, to, indent=1, sort_keys=True)
        print(f"recorded {len(found)} outcomes in {record}")
        return 0
    with open(record, encoding="utf-8") as text:
        before = json.load(text)
    different = [key for key in sorted(set(before) | set(found)) if before.get(key) != found.get(key)
                 and not any(LITTLE_MEMORY in side.get(key, {}).get("err", "") for side in (before, found))]
    for key in different[:DIFFERENCES_SHOWN]:
        print(f"towers {key}")
        for part in ("code", "out", "err", "text"):
            then, now = (str(side.get(key, {}).get(part, "")).splitlines() for side in (before, found))
            print("\n".join(difflib.unified_diff(then, now, f"{part} before", f"{part} now", lineterm="", n=0)), end="\n" * (then != now))
    print(f"{len(found)} outcomes, {len(different)} differ")
    return 1 if different else 0


sys.exit(main())
