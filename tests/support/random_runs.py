#!/usr/bin/env python3
"""Any valid combination of settings trains one network: by one process or several, undisturbed or killed and resumed, from its own
options or from the args.yaml that it left. All files of the run directory are compared, times aside.

    random_runs.py TOWERS DATA WORK SEED COUNT

TOWERS: the program, with fault points. DATA: small IDX files. WORK: a folder for the runs. Prints one line for each combination that was
refused or differs, then a total; exits 1 if one differs, or if too few were accepted to mean anything."""
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import zlib

TIMES = re.compile(r'"(images_per_sec|seconds|cause|[a-z_]*_[un]s|slow_tower|slow_activity)": ?(\[[^]]*\]|[^,}]*),?')
NOT_COMPARED = {".lock", "env.json", "memory.json", "log.txt", "report.html", "restarts.jsonl", "data.json", "latest", "MANIFEST"}
OF_THE_CALL = {"processes", "experiment", "resume", "config", "threads"}


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


class Combination:
    """Arguments of one training, those that any process count may have, and how many towers there are."""

    def __init__(self, seed, data):
        self.rng = rng = random.Random(seed)
        self.towers = rng.choice((1, 2, 2, 3, 4))
        self.arguments = a = [rng.choice(("fashion_cnn", "inception_mini", "inception_mini", "wgan_gp"))]
        self.gan = a[0] == "wgan_gp"
        self.sync = False
        kind = rng.choice(tuple(data))
        a += ["--dataset", "synthetic"] if kind == "synthetic" else ["--data-path", data[kind]]
        a += ["--threads", "1", "--device", "cpu", "--seed", str(rng.randint(0, 9)), "--epochs", "2", "--max-steps", str(rng.randint(5, 12))]
        a += ["--log-interval", "1", "--log-samples", "--checkpoint-steps", str(rng.randint(1, 4)), "--summary-interval", str(rng.choice((0, 2)))]
        if self.gan:
            a += ["--width", "8"]
        self.shares(kind)
        self.optimizer()
        self.schedule()
        self.images(kind)
        self.loss(kind)
        self.rest()

    def maybe(self, chance, *arguments):
        if self.rng.random() < chance:
            self.arguments += [str(argument) for argument in arguments]
            return True
        return False

    def shares(self, kind):
        most = 4 if kind in ("folder", "tar", "mds") else 8
        if self.towers > 1 and self.rng.random() < 0.4:
            shares = [self.rng.choice((0, 1, 2, 3, most)) for _ in range(self.towers)]
            shares[self.rng.randrange(self.towers)] = most
            self.arguments += ["--tower-batch", ",".join(map(str, shares))]
        else:
            self.arguments += ["--towers", str(self.towers), "--batch-size", str(self.rng.choice((1, 2, most)))]
        self.maybe(0.25, "--accumulate", self.rng.choice((2, 3)))
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
        name = self.rng.choice(("constant", "exponential", "step", "piecewise", "cosine", "polynomial", "onecycle"))
        self.arguments += ["--sched", name]
        if name == "piecewise":
            self.arguments += ["--lr-schedule", "0.01;0.3;0.002"]
        if name in ("exponential", "step"):
            self.arguments += ["--decay-epochs", "1"]
        if name != "onecycle":
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
        self.maybe(0.25, "--loss", "bce")
        self.maybe(0.3, "--smoothing", 0.1)
        self.maybe(0.3, "--dropout", 0.3)
        if kind != "synthetic":
            self.maybe(0.2, "--class-weights", rng.choice(("auto", "0.5")))
            balanced = self.maybe(0.2, "--sampler", "balanced")
            if kind in ("tar", "mds") and not balanced:
                self.maybe(0.4, "--shuffle-window", rng.choice((1, 2)))
        self.maybe(0.2, "--freeze", "Conv2d*" if self.arguments[0] == "inception_mini" else "conv1*")
        if self.maybe(0.5, "--bn-stats", rng.choice(("last", "first", "mean", "pooled", "sync"))):
            self.sync = self.arguments[-1] == "sync" and self.towers > 1

    def rest(self):
        rng = self.rng
        self.maybe(0.15, "--amp")
        self.maybe(0.15, "--recompute")
        self.maybe(0.2, "--loss-divisor", "global-batch")
        self.maybe(0.2, "--nan-check", rng.choice(("off", "last", "mean")))
        self.maybe(0.2, "--sdc-check", 2)
        self.maybe(0.2, "--report-loss", rng.choice(("last", "first", "worst", "all")))
        self.maybe(0.3, "--keep", rng.choice((1, 2)))
        if not self.gan:
            self.maybe(0.2, "--eval-interval", rng.choice((0, 2)))


def contents(run):
    """What is to be equal: {name: text or bytes}."""
    found = {}
    for folder, _, names in os.walk(run):
        for name in names:
            path = os.path.join(folder, name)
            if name in NOT_COMPARED or name.startswith("events.") or re.search(r"[.][0-9]+$", name): # of an earlier run
                continue
            key = os.path.relpath(path, run)
            with open(path, "rb") as file:
                data = file.read()
            if name == "samples.csv": # each process writes when it has them
                data = "\n".join(sorted(data.decode().splitlines()))
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
            found[key] = data
    return found


def difference(one, other):
    for name in sorted(set(one) | set(other)):
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

    def run(self, name, arguments, fault=None):
        command = [self.towers, "train", *arguments, "--output-dir", self.work, "--experiment", name, "--quiet"]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TOWERS_")}
        if fault:
            environment["TOWERS_FAULT"] = fault
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment,
                              timeout=300, check=False)
        return done.returncode, done.stderr.decode(errors="replace").strip().splitlines()[-1:], command

    def of(self, name):
        return contents(f"{self.work}/{name}")


def check(runs, seed, data):
    """None: equal. Otherwise (refused, text)."""
    c = Combination(seed, data)
    rng, steps = random.Random(seed + 1), 0
    for name in ("one", "many", "killed", "again"):
        shutil.rmtree(f"{runs.work}/{name}", ignore_errors=True)
    few = ["--processes", str(c.towers if c.sync else 1)]
    status, said, command = runs.run("one", c.arguments + few)
    if status in (2, 5):
        return True, f"{' '.join(said)}: {' '.join(c.arguments)}"
    if status:
        return False, f"exit {status}: {' '.join(said)}: {' '.join(command)}"
    with open(f"{runs.work}/one/metrics.jsonl", encoding="utf-8") as file:
        steps = sum(1 for _ in file)
    one = runs.of("one")
    ways = [("again", ["--config", f"{runs.work}/one/args.yaml", c.arguments[0], *few], None)]
    if c.towers > 1 and not c.sync:
        ways.append(("many", c.arguments + ["--processes", str(rng.randint(2, c.towers))], None))
    if steps > 1:
        ways.append(("killed", c.arguments + few, f"kill:tower={rng.randrange(c.towers)},step={rng.randint(2, steps)},activity=backward"))
    for name, arguments, fault in ways:
        status, said, command = runs.run(name, arguments, fault)
        if fault and status == 0:
            continue # the tower had nothing to do in that step
        if fault:
            status, said, command = runs.run(name, arguments + ["--resume", "auto"])
        if status:
            return False, f"{name}: exit {status}: {' '.join(said)}: {' '.join(command)}"
        differs = difference(one, runs.of(name))
        if differs:
            return False, f"{name}: {differs}: {fault or ''} {' '.join(command)}"
    return None


def main():
    towers, small, work, first, count = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), os.path.abspath(sys.argv[3]), \
        int(sys.argv[4]), int(sys.argv[5])
    data = {"idx": small, "synthetic": ""}
    if not os.path.isdir(f"{work}/photos"):
        photos_write(f"{work}/photos")
        for kind in ("tar", "mds"):
            subprocess.run([towers, "data", "convert", f"{work}/photos", f"{work}/{kind}", "--format", kind], check=True, capture_output=True)
    data.update({"folder": f"{work}/photos", "tar": f"{work}/tar", "mds": f"{work}/mds"})
    runs = Runs(towers, work)
    refused = different = 0
    for seed in range(first, first + count):
        found = check(runs, seed, data)
        if found:
            refused += found[0]
            different += not found[0]
            print(f"{seed}: {'refused' if found[0] else 'DIFFERENT'}: {found[1]}", flush=True)
    print(f"{count - refused - different} of {count} combinations train one network, {refused} refused, {different} different")
    return 1 if different or refused > count // 2 + 1 else 0


if __name__ == "__main__":
    sys.exit(main())
