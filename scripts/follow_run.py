"""What follow_mlflow.py and follow_wandb.py share: the records of a live or finished run, read as they grow.

    for kind, number, values in follow(run, after_step, after_epoch, wait): ...

`kind` is "step" (a row of metrics.jsonl) or "epoch" (a row of results.csv); `number` is the step, `values` {name: number}.
Lists become a number for each tower, tower_loss/0; the names of a GAN begin with the phase, critic/mean_loss. Ends when the run has ended and everything has been read, or, with
wait=False, at the end of what there is now."""
import argparse
import ast
import csv
import hashlib
import json
import math
import os
import re
import time


FILES = ("report.html", "args.yaml", "env.json", "first-batch.jpg", "mistakes.jpg", "mistakes.csv", "confusion.csv")


def arguments(description, group, tracker, package):
    """The command line: a run, its path and the mark that names it in a tracker, which calls several runs a `group`. `tracker` is
    None where the tracker's own package is missing: --help works there, too."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--" + group, default="towers")
    parser.add_argument("--once", action="store_true", help="take what there is, and end")
    args = parser.parse_args()
    if not tracker:
        parser.error(f"the Python package {package} is missing: pip install {package}")
    if not os.path.exists(os.path.join(args.run, "args.yaml")):
        parser.error(f"'{args.run}' is no run: it has no args.yaml")
    args.path = os.path.realpath(args.run)
    args.mark = hashlib.sha256(os.fsencode(args.path)).hexdigest()
    return args


def existing(run, *names):
    return [path for path in (os.path.join(run, name) for name in names) if os.path.exists(path)]


def weights(run):
    """The best ones, or the last of a run that was not evaluated."""
    return existing(run, "best.safetensors", "last.safetensors")[:1]


def settings(run):
    """args.yaml without comments and unset options."""
    found = {}
    with open(os.path.join(run, "args.yaml"), encoding="utf-8") as lines:
        for line in lines:
            key, _, rest = line.partition(": ")
            quoted = re.match(r'"(?:[^"\\]|\\.)*"', rest) # which may hold anything, the mark of a comment as well; Python has its escapes
            value = ast.literal_eval(quoted[0]) if quoted else rest.split(" # from ")[0].strip()
            if value and not line.startswith("#"):
                found[key] = value
    return found


def environment(run):
    with open(os.path.join(run, "env.json"), encoding="utf-8") as file:
        return json.load(file)


def ended(run):
    """The outcome, or None while the run may go on: then it has written a heartbeat in the last minute."""
    try:
        with open(os.path.join(run, "outcome.json"), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        pass
    for name in "heartbeat.json", "args.yaml": # the second between its start and its first step
        try:
            sign = os.stat(os.path.join(run, name)).st_mtime
            return {"outcome": "killed", "at": sign} if time.time() - sign > 60 else None
        except FileNotFoundError:
            pass
    return None


def numbers(row):
    found, phase = {}, f"{row['phase']}/" if "phase" in row else "" # a GAN's steps are of two networks
    for key, value in row.items():
        key = phase + key
        if isinstance(value, dict): # terms of a GAN
            found.update({f"{key}/{name}": one for name, one in numbers(value).items()})
        elif isinstance(value, list):
            found.update({f"{key}/{i}": float(one) for i, one in enumerate(value) if one is not None})
        elif isinstance(value, (int, float)) and key != phase + "step":
            found[key] = float(value)
    return {key: value for key, value in found.items() if math.isfinite(value)}


class Lines:
    """The lines of a file that have their ends, as it grows. A resumed run cuts some off: then all are read again."""

    def __init__(self, path):
        self.path, self.place, self.last = path, 0, b""

    def more(self):
        try:
            with open(self.path, "rb") as file:
                file.seek(self.place - len(self.last))
                if file.read(len(self.last)) != self.last:
                    self.place = file.seek(0)
                data = file.read()
        except FileNotFoundError:
            return []
        data = data[:data.rfind(b"\n") + 1]
        self.place += len(data)
        self.last = data[-400:] or self.last
        return data.decode().splitlines()


def follow(run, after_step=0, after_epoch=0, wait=True, pause=1.0):
    rows, epochs = Lines(os.path.join(run, "metrics.jsonl")), Lines(os.path.join(run, "results.csv"))
    header = None
    while True:
        outcome = ended(run) # before reading: what is read then is all
        found = [("step", row["step"], numbers(row)) for row in map(json.loads, rows.more()) if row["step"] > after_step]
        after_step = max([after_step, *(step for _, step, _ in found)])
        for values in csv.reader(epochs.more()):
            if values[0] == "epoch":
                header = values
                continue
            row = {key: float(value) for key, value in zip(header, values) if value} # empty: not measured
            if row["epoch"] > after_epoch:
                after_epoch = row["epoch"]
                found.append(("epoch", int(row["step"]), {f"epoch/{key}": value for key, value in row.items()
                                                          if key != "step" and math.isfinite(value)}))
        yield from sorted(found, key=lambda one: (one[1], one[0] == "epoch")) # trackers want steps that rise
        if outcome or not wait:
            return
        time.sleep(pause)
