#!/usr/bin/env python3
"""Any valid combination of settings trains one network: by one process or several, by several programs as on several hosts, undisturbed
or killed and resumed, from its own options or from the args.yaml that it left. Every file of the run directory is compared, times aside.
A run that is resumed when it has finished changes no file.

    random_runs.py TOWERS DATA WORK SEED COUNT

TOWERS: the program, with fault points. DATA: small IDX files. WORK: a folder for the runs. Prints one line for each combination that was
refused or differs, in the latter case with the command that repeats it, and a total after each hundred; exits 1 if one differs, or if
too few were accepted to mean anything."""
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib

TIMES = re.compile(r'"(images_per_sec|(?:wall_)?seconds|cause|sums|[a-z_]*_[un]s|slow_tower|slow_activity)": ?(\[[^]]*\]|[^,}]*),?')
OF_THE_CALL = {"processes", "experiment", "resume", "config", "threads", "device"}
STORAGE = re.compile("waited for storage for|storage did not answer for")  # on a busy machine
ENV_OF_THE_CALL = {"started", "started_at", "command", "hosts", "processes", "mpi", "build"}
OF_THE_LAUNCH = re.compile(r"log-rank[0-9]+[.]txt")
# What a way of running may change: the memory of a process, and texts that say how many there are or when they began.
MAY_DIFFER = {"again": set(), "many": {"memory.json", "log.txt", "report.html"}, "hosts": {"memory.json", "log.txt", "report.html"},
              "killed": {"log.txt", "report.html", "data.json"}}
with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
    HAS_BF16 = any(word in ("avx512_bf16", "amx_bf16") for word in cpuinfo.read().split())
FIRST_KINDS = ("idx", "synthetic", "folder", "tar", "mds")
MPIRUN = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-x", "MASTER_ADDR=localhost", "-x", "XDG_CONFIG_HOME"]


def png(path, side, color):
    rows = b"".join(b"\0" + bytes((color[c] + 7 * x * (c + 1) + 3 * y) % 256 for x in range(side) for c in range(3)) for y in range(side + 4))
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", side, side + 4, 8, 2, 0, 0, 0)
    with open(path, "wb") as to:
        to.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def photos_write(folder):
    rng = random.Random(1)
    for part, count in (("train", 21), ("val", 5)):
        for name in ("ant", "bee", "cat"):
            os.makedirs(f"{folder}/{part}/{name}")
            for i in range(count - (name == "cat") * count // 3):
                png(f"{folder}/{part}/{name}/{i:03}.png", rng.randint(24, 40), [rng.randint(0, 255) for _ in range(3)])


def labels_write(folder):
    """Images with any number of three classes."""
    rng = random.Random(2)
    for part, count in (("train", 60), ("val", 14)):
        os.makedirs(f"{folder}/{part}/images")
        with open(f"{folder}/{part}/labels.csv", "w", encoding="utf-8") as to:
            to.write("image,ant,bee,cat\n")
            for i in range(count):
                png(f"{folder}/{part}/images/{i:03}.png", rng.randint(24, 40), [rng.randint(0, 255) for _ in range(3)])
                to.write(f"images/{i:03}.png," + ",".join("1" if rng.random() < p else "-1" for p in (0.7, 0.4, 0.2)) + "\n")


# Networks that came after the others: the parameters of their first convolution and of their classifier, and whether they have stochastic
# depth. Their last map has a 32nd of an image's side, and a batch norm needs more than one value.
NEWEST = {"efficientnet_b0": ("features.0*", "classifier*", True), "mobilenet_v3_small": ("features.0*", "classifier*", False),
          "efficientnet_lite0": ("conv_stem*", "classifier*", True), "inception_v2": ("Conv2d_1a*", "Logits*", False),
          "convnext_tiny": ("features.0*", "classifier*", True), "xception": ("conv1*", "fc*", False)}  # fmt: skip


class Combination:
    """Arguments of one training, those that any process count may have, and how many towers there are."""

    def __init__(self, seed, data, weights):
        self.rng = rng = random.Random(seed)
        self.wide = wide = random.Random(seed * 7 + 3)  # what came later: the seeds of check_random.sh keep their kinds and models
        self.towers = rng.choice((1, 2, 2, 3, 4))
        self.arguments = a = [rng.choice(("fashion_cnn", "inception_mini", "inception_mini", "wgan_gp"))]
        if wide.random() < 0.2:
            a[0] = wide.choice(("resnet18", "googlenet", "wgan_gp_keras")) if wide.random() < 0.4 else "fashion_cnn"
        newest = random.Random(seed * 17 + 1)
        if newest.random() < 0.1:
            a[0] = newest.choice(list(NEWEST))
        self.gan = a[0].startswith("wgan_gp")
        self.sync = self.tta = False
        kind = rng.choice(FIRST_KINDS)
        if wide.random() < 0.3:
            kind = wide.choice([name for name in data if not (self.gan and name == "labels")])
        a += ["--dataset", "synthetic"] if kind == "synthetic" else ["--data-path", data[kind]]
        if a[0] in ("resnet18", "googlenet", *NEWEST):
            a += ["--img-size", "64" if a[0] in NEWEST else "32"]
        a += ["--threads", "1", "--device", "cpu", "--seed", str(rng.randint(0, 9)), "--epochs", "2", "--max-steps", str(rng.randint(5, 12))]
        a += ["--log-interval", "1", "--log-samples", "--checkpoint-steps", str(rng.randint(1, 4)), "--summary-interval", str(rng.choice((0, 2)))]
        if a[0] == "wgan_gp":
            a += ["--width", "8"]
        self.shares(kind)
        self.optimizer()
        self.schedule()
        self.images(kind)
        self.loss(kind)
        self.rest()
        self.later(kind)
        self.latest(kind, weights, random.Random(seed * 13 + 5))
        if a[0] in NEWEST and NEWEST[a[0]][2]:
            self.maybe(0.6, "--drop-path", newest.choice((0, 0.5)), rng=newest)

    def maybe(self, chance, *arguments, rng=None):
        if (rng or self.rng).random() < chance:
            self.arguments += [str(argument) for argument in arguments]
            return True
        return False

    def shares(self, kind):
        most = 4 if kind not in ("idx", "synthetic") else 8
        if self.towers > 1 and self.rng.random() < 0.4:
            shares = [self.rng.choice((0, 1, 2, 3, most)) for _ in range(self.towers)]
            shares[self.rng.randrange(self.towers)] = most
            self.arguments += ["--tower-batch", ",".join(map(str, shares))]
        else:
            self.arguments += ["--towers", str(self.towers), "--batch-size", str(self.rng.choice((1, 2, most)))]
        self.maybe(0 if self.gan else 0.25, "--accumulate", self.rng.choice((2, 3)))
        if not self.gan:
            self.maybe(0.3, "--eval-batch-size", self.rng.choice((7, 20)))

    def optimizer(self):
        rng = self.rng
        opt = rng.choice(("sgd", "momentum", "nesterov", "rmsprop", "rmsprop-tf", "adam", "adamw", "lars", "lamb"))
        self.maybe(0.9, "--opt", opt, "--lr", rng.choice((0.001, 0.01, 0.05)))
        self.maybe(0.3, "--weight-decay", 0.01)
        self.maybe(0.2, "--clip-norm", 0.5)
        self.maybe(0.2, "--clip-value", 0.1)
        self.maybe(0.3, "--ema-decay", 0.9)
        self.maybe(0.15, "--decay-all")
        self.maybe(0.15, "--lr-reference-batch", 32)

    def schedule(self):
        name = self.rng.choice(("constant", "exponential", "step", "piecewise", "cosine", "polynomial", "rise-fall"))
        if name == "rise-fall" and self.wide.random() < 0.5:
            name = "onecyclelr"
        self.arguments += ["--sched", name]
        if name == "piecewise":
            self.arguments += ["--lr-schedule", "0.01;0.3;0.002"]
        if name in ("exponential", "step"):
            self.arguments += ["--decay-epochs", "1"]
        if name not in ("rise-fall", "onecyclelr"):
            self.maybe(0.4, "--warmup-epochs", 0.3)

    def images(self, kind):
        rng = self.rng
        self.maybe(0.5, "--augment")
        self.maybe(0.2, "--color-jitter", 0.3)
        self.maybe(0.2, "--random-erase", 0.5)
        self.maybe(0.2, "--auto-augment", rng.choice(("randaugment", "trivialaugment")))
        self.maybe(0.2, "--interpolation", rng.choice(("bicubic", "tf-mixed", "tf-area")))
        self.maybe(0.4, "--workers", rng.choice((0, 1, 3)))
        if not self.gan:
            self.maybe(0.2, "--mixup", 0.4)
            self.maybe(0.2, "--cutmix", 1.0)

    def loss(self, kind):
        rng = self.rng
        if self.gan:
            self.maybe(0.4, "--critic-steps", rng.choice((1, 2)))
            self.maybe(0.3, "--critic-batches", "same")
            return
        self.maybe(1 if kind == "labels" else 0.25, "--loss", "bce")
        self.maybe(0.3, "--smoothing", 0.1)
        self.maybe(0.3, "--dropout", 0.3)
        if kind != "synthetic":
            self.maybe(0.2, "--class-weights", rng.choice(("auto", "0.5")))
            balanced = self.maybe(0.2 if kind != "labels" else 0, "--sampler", "balanced")
            if kind in ("tar", "mds") and not balanced:
                self.maybe(0.4, "--shuffle-window", rng.choice((1, 2)))
        first = {"inception_mini": "Conv2d*", **{name: layers[0] for name, layers in NEWEST.items()}}
        self.maybe(0.2, "--freeze", first.get(self.arguments[0], "conv1*"))
        if self.maybe(0.5, "--bn-stats", rng.choice(("last", "first", "mean", "pooled", "sync"))):
            self.sync = self.arguments[-1] == "sync" and self.towers > 1

    def rest(self):
        rng = self.rng
        self.maybe(0.15 if HAS_BF16 and not self.gan else 0, "--amp")
        self.maybe(0.15, "--recompute")
        self.maybe(0.2, "--loss-divisor", "global-batch")
        self.maybe(0.2, "--nan-check", rng.choice(("off", "last", "mean")))
        self.maybe(0.2, "--sdc-check", 2)
        self.maybe(0.2, "--report-loss", rng.choice(("last", "first", "worst", "all")))
        self.maybe(0.3, "--keep", rng.choice((1, 2)))
        if not self.gan:
            self.maybe(0.2, "--eval-interval", rng.choice((0, 2)))


    def later(self, kind):
        wide = self.wide
        many = lambda chance, *arguments: self.maybe(chance, *arguments, rng=wide)
        if "--augment" in self.arguments:
            crop = wide.choice(("pad", "random", "box", "whole"))
            if many(0.5, "--crop", crop) and crop == "box":
                many(0.5, "--crop-covered", 0.3)
            many(0.3, "--flip", wide.choice(("none", "alternate")))
        many(0.15, "--hue-jitter", 0.1)
        many(0.15, "--color-distort")
        if "randaugment" in self.arguments:
            many(0.3, "--ra-ops", 3)
            many(0.3, "--ra-magnitude", 5)
        if kind not in ("idx", "synthetic"):
            many(0 if self.gan else 0.2, *wide.choice((("--eval-crop", 0.875), ("--crop-pct", 0.9), ("--eval-resize", 40))))
            many(0 if self.gan else 0.1, "--bad-samples", "skip")
        if kind == "tfrecord" and not self.gan:
            many(0.3, "--background")
        if "--amp" in self.arguments:
            many(0.5, "--amp-dtype", "bf16")
        many(0.1, *wide.choice((("--winograd",), ("--no-winograd-f32",), ("--deterministic",))))
        many(0.2, "--momentum", 0.8) if {"sgd", "momentum", "nesterov", "lars"} & set(self.arguments) else None
        many(0.2, "--beta1", 0.8) if {"adam", "adamw", "lamb"} & set(self.arguments) else None
        many(0.15, "--nan-policy", wide.choice(("skip", "rollback"))) if "--nan-check" not in self.arguments else None
        many(0.15, "--warmup-lr", 0.0001) if "--warmup-epochs" in self.arguments else None
        if not self.gan and self.arguments[0] not in ("fashion_cnn", *NEWEST):
            many(0.2, "--img-size-schedule", "24:0,32:1")


    def drop(self, *flags):
        for flag in flags:
            if flag in self.arguments:
                at = self.arguments.index(flag)
                del self.arguments[at:at + 2]

    def latest(self, kind, weights, rng):
        """Ends, layers, folds, weights to begin with. Three epochs, because most of it acts at the end of one."""
        if self.gan:
            return
        maybe = lambda chance, *arguments: self.maybe(chance, *arguments, rng=rng)
        before = len(self.arguments)
        if kind in ("folder", "tar", "mds", "labels") and (maybe(0.15, "--val-split", 0.3) or maybe(0.25, "--fold", rng.choice(("1/2", "3/3")))):
            self.arguments[self.arguments.index("--data-path") + 1] += "/train" # without its val/
        if maybe(0.2, "--sched", "plateau", "--decay-rate", 0.5, "--plateau-patience", 0, "--monitor", rng.choice(("auto", "loss"))):
            self.drop("--sched", "--lr-schedule", "--decay-epochs")
            maybe(0.3, "--plateau-cooldown", 1)
        maybe(0.15, "--patience", 1, "--min-delta", rng.choice((0, 0.2)))
        maybe(0.1, "--stop-at", 0.4)
        maybe(0.1, "--stop-epoch", rng.choice((1, 2)))
        maybe(0.2, "--lr-mult", rng.choice(("*weight=0.5", "*bias=3", "*=0.1,*weight=2")))
        maybe(0.2, "--layer-decay", 0.7)
        if "--freeze" not in self.arguments:
            maybe(0.2, "--freeze", "*,!" + NEWEST.get(self.arguments[0], ("", "fc*"))[1])
        maybe(0.5 if "--freeze" in self.arguments else 0, "--unfreeze-epoch", rng.choice((2, 3)))
        if kind == "idx" and weights.get(self.arguments[0]) and maybe(0.4, "--pretrained", weights[self.arguments[0]]):
            maybe(0.5, "--reset-head")
        maybe(0.15, "--metrics-interval", 2)
        maybe(0.15, "--mean", 0.4, "--std", 0.3)
        if len(self.arguments) > before:
            self.arguments += ["--epochs", "3", "--max-steps", "40"]
        self.tta = rng.random() < 0.3


def event_values(data):
    """{(step, tag): the rest of a value} of a TensorBoard file: without times, and what each start of a run shows (its settings, its first batch)."""
    def fields(message):
        at = 0
        while at < len(message):
            key, at = varint(message, at)
            kind, start = key & 7, at
            if kind == 0:
                value, at = varint(message, at)
            else:
                size, start = (8, at) if kind == 1 else (4, at) if kind == 5 else varint(message, at)
                value, at = message[start:start + size], start + size
            yield key >> 3, value

    def varint(message, at):
        value = shift = 0
        while True:
            value |= (message[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if message[at - 1] < 128:
                return value, at

    found, at = {}, 0
    while at + 12 <= len(data):
        size = struct.unpack_from("<Q", data, at)[0]
        event = dict(fields(data[at + 12:at + 12 + size]))
        for _, value in fields(event.get(5, b"")):
            tag = dict(fields(value))[1].decode()
            if not re.search(r"(_[un]s|per_sec|seconds|hyperparameters|first_batch)", tag):
                found[f"{event.get(2, 0)} {tag}"] = value
        at += size + 16
    return found


def contents(run):
    """What is to be equal: {name: text or bytes}."""
    found, events = {}, []
    for folder, _, names in os.walk(run):
        for name in names:
            path = os.path.join(folder, name)
            if name == ".lock" or OF_THE_LAUNCH.fullmatch(name) or name[-1].isdigit() and not name.startswith("events."): # of an earlier run
                continue
            key = os.path.relpath(path, run)
            with open(path, "rb") as file:
                data = file.read()
            if name.startswith("events."):
                events += [(os.path.getmtime(path), data)]
                continue
            if name.endswith("samples.csv"): # each process writes when it has them, and each program a file of its own
                key = re.sub("rank[0-9]+-", "", key)
                lines = [line for line in data.decode().splitlines() if line[0].isdigit()]
                data = "\n".join(sorted(lines + found.get(key, "").splitlines()))
            elif name.endswith(".jsonl"):
                data = TIMES.sub("", data.decode())
            elif name == "results.csv":
                rows = [row.split(",") for row in data.decode().splitlines()]
                drop = {i for i, column in enumerate(rows[0]) if column in ("images_per_sec", "seconds")}
                data = "\n".join(",".join(cell for i, cell in enumerate(row) if i not in drop) for row in rows)
            elif name == "args.yaml":
                lines = [line.split("   # from")[0].split(" # from")[0].rstrip() for line in data.decode().splitlines()]
                data = "\n".join(line for line in lines if line.lstrip("# ").split(":")[0] not in OF_THE_CALL)
            elif name == "state.json":
                data = re.sub(r'"[a-z_]*(seconds|time|time_ns|saved|written|processes)[a-z_]*":("[^"]*"|[^,}]*),?', "", data.decode())
            elif name == "MANIFEST":
                data = "\n".join(line for line in data.decode().splitlines() if not line.endswith(" state.json") and not line.startswith("hash "))
            elif name == "env.json":
                data = "\n".join(f"{key}: {value}" for key, value in sorted(json.loads(data).items()) if key not in ENV_OF_THE_CALL)
            elif name == "data.json": # loaders have read ahead of a run's early end, more or less
                data = re.sub(r'"images": \d+,', "", TIMES.sub("", data.decode()))
            elif name == "outcome.json":
                data = re.sub(r'"time":"[^"]*",?', "", data.decode())
            elif name == "log.txt":
                lines = [re.sub(r"^\S+Z |\([0-9.]+ s, .*? img/s\)", "", line.replace(run, "RUN")) for line in data.decode().splitlines()]
                data = "\n".join(line for line in lines if not line.startswith("run directory") and not STORAGE.search(line))
            elif name == "report.html":
                data = "\n".join(re.findall(r"<h[1-3]>.*?</h[1-3]>|data:image/[^\"]*", data.decode())) # the rest has times, or is in other files
            found[key] = data
    values = {}
    for _, data in sorted(events, key=lambda event: event[0]): # a resumed run replaces the steps that come again
        values.update(event_values(data))
    found["events"] = "\n".join(f"{key}: {value}" for key, value in sorted(values.items()))
    return found


def files_of(run):
    """{name: (bytes, time of the last change, content)} of all files but the lock."""
    found = {}
    for folder, _, names in os.walk(run):
        for name in set(names) - {".lock"}:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, run)] = (os.path.getsize(path), os.stat(path).st_mtime_ns, file.read())
    return found


def difference(one, other, way):
    for name in sorted((set(one) | set(other)) - MAY_DIFFER[way]):
        if name not in one or name not in other:
            return f"{name} is in one of them only"
        if one[name] != other[name]:
            if isinstance(one[name], str):
                for a, b in zip(one[name].splitlines(), other[name].splitlines()):
                    if a != b:
                        at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
                        return f"{name}: '{a[max(0, at - 60):at + 60]}' and '{b[max(0, at - 60):at + 60]}'"
                return f"{name}: {len(one[name])} and {len(other[name])} characters"
            return name
    return None


class Runs:
    def __init__(self, towers, work):
        self.towers, self.work = towers, work

    def run(self, name, arguments, fault=None, programs=1):
        launcher = MPIRUN + ["-np", str(programs)] if programs > 1 else []
        command = [*launcher, self.towers, "train", *arguments, "--output-dir", self.work, "--experiment", name, "--quiet"]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TOWERS_")}
        environment.setdefault("XDG_CONFIG_HOME", f"{self.work}/config")
        if programs > 1:  # the launcher before may still remove its files
            environment["TMPDIR"] = tempfile.mkdtemp(dir=self.work)
        if fault:
            environment["TOWERS_FAULT"] = fault
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment,
                              timeout=300, check=False)
        return done.returncode, done.stderr.decode(errors="replace").strip().splitlines()[-1:], command

    def scores(self, arguments, towers):
        command = [self.towers, "eval", f"{self.work}/one", "--tta", "flip", "--json", "--quiet", "--device", "cpu", "--threads", "1",
                   "--towers", str(towers)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=300, check=False)
        return TIMES.sub("", done.stdout.decode()) or done.stderr.decode()

    def of(self, name):
        return contents(f"{self.work}/{name}")


def check(runs, seed, data, weights):
    """None: equal. Otherwise (refused, text)."""
    c = Combination(seed, data, weights)
    rng, steps = random.Random(seed + 1), 0
    for name in ("one", "many", "hosts", "killed", "again"):
        shutil.rmtree(f"{runs.work}/{name}", ignore_errors=True)
    few = ["--processes", str(c.towers if c.sync else 1)]
    status, said, command = runs.run("one", c.arguments + few)
    if status in (2, 5, 8): # 8: these settings lead to numbers that are not finite
        return True, f"{' '.join(said)}: {' '.join(c.arguments)}"
    if status:
        return False, f"exit {status}: {' '.join(said)}: {' '.join(command)}"
    with open(f"{runs.work}/one/metrics.jsonl", encoding="utf-8") as file:
        steps = sum(1 for _ in file)
    one = runs.of("one")
    ways = [("again", ["--config", f"{runs.work}/one/args.yaml", c.arguments[0], *few], None, 1)]
    if c.towers > 1 and not c.sync:
        ways.append(("many", c.arguments + ["--processes", str(rng.randint(2, c.towers))], None, 1))
    if steps > 1:
        ways.append(("killed", c.arguments + few, f"kill:tower={rng.randrange(c.towers)},step={rng.randint(2, steps)},activity=backward", 1))
    if c.towers > 1 and c.wide.random() < 0.3 and shutil.which(MPIRUN[0]):
        programs = rng.randint(2, c.towers)
        ways.append(("hosts", c.arguments, None, c.towers if c.sync else programs))
    for name, arguments, fault, programs in ways:
        status, said, command = runs.run(name, arguments, fault, programs)
        if fault and status == 0:
            continue # the tower had nothing to do in that step
        if fault:
            status, said, command = runs.run(name, arguments + ["--resume", "auto"])
        if status:
            return False, f"{name}: exit {status}: {' '.join(said)}: {' '.join(command)}"
        differs = difference(one, runs.of(name), name)
        if differs:
            return False, f"{name}: {differs}: {fault or ''} {' '.join(command)}"
    before = files_of(f"{runs.work}/one")
    status, said, command = runs.run("one", c.arguments + few + ["--resume", "auto"])
    if status:
        return False, f"finished: exit {status}: {' '.join(said)}: {' '.join(command)}"
    changed = [name for name, (size, when, data) in files_of(f"{runs.work}/one").items() if before.pop(name, None) != (size, when, data)]
    if changed or before:
        return False, f"finished, resumed: {' '.join([*changed, *before])}: {' '.join(command)}"
    scores = [runs.scores(c.arguments, towers) for towers in (1, c.towers)] if c.tta else [0, 0]
    if scores[0] != scores[1]:
        return False, f"--tta flip of 1 and {c.towers} towers: {scores[0]} and {scores[1]}: {' '.join(c.arguments)}"
    return None


def main():
    towers, small, work, first, count = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), os.path.abspath(sys.argv[3]), \
        int(sys.argv[4]), int(sys.argv[5])
    data = {"idx": small, "synthetic": ""}
    if not os.path.isdir(f"{work}/photos"):
        photos_write(f"{work}/photos")
        for kind in ("tar", "mds"):
            subprocess.run([towers, "data", "convert", f"{work}/photos", f"{work}/{kind}", "--format", kind], check=True, capture_output=True)
        labels_write(f"{work}/labels")
        subprocess.run([sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "tfrecords_write.py"), f"{work}/photos",
                        f"{work}/tfrecord"], check=True)
    data.update({kind: f"{work}/{folder}" for kind, folder in (("folder", "photos"), ("tar", "tar"), ("mds", "mds"), ("labels", "labels"),
                                                              ("tfrecord", "tfrecord"))})
    runs = Runs(towers, work)
    weights = {model: f"{work}/{model}-weights" for model in ("fashion_cnn", "inception_mini")} # to begin with, for the IDX files
    for model, run in weights.items():
        if not os.path.isdir(run):
            runs.run(os.path.basename(run), [model, "--data-path", small, "--max-steps", "1", "--batch-size", "8", "--threads", "1", "--device", "cpu"])
    refused = different = 0
    begun = time.monotonic()
    for seed in range(first, first + count):
        found = check(runs, seed, data, weights)
        if found:
            refused += found[0]
            different += not found[0]
            print(f"{seed}: {'refused' if found[0] else 'DIFFERENT'}: {found[1][:2000]}", flush=True)
            if not found[0]:
                print(f"again: TOWERS_RANDOM_SEED={seed} TOWERS_RANDOM_COUNT=1 bash tests/cli/check_random.sh . {towers}", flush=True)
        tried = seed - first + 1
        if tried % 100 == 0 or tried == count:
            print(f"seeds {first} to {seed}: {tried} tried, {refused} refused, {different} different, "
                  f"{time.monotonic() - begun:.0f} s", flush=True)
    return 1 if different or refused > count // 2 + 1 else 0


if __name__ == "__main__":
    sys.exit(main())
