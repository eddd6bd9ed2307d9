#!/usr/bin/env python3
"""Run the sides of scripts/measure/time_to_accuracy.sh, and write their table and picture; see there.

A run of Towers is timed from the start of the program, its evaluations included. The clock of the others starts when their libraries are
imported, all images are in memory and, if they compile, the network is compiled; what they needed until then has a column of its own.
"""
import argparse
import collections
import json
import os
import re
import statistics
import subprocess
import tempfile
import time

from bench_cpu import (LIMIT_SECONDS, OTHERS_MAX, TENSORFLOW_PYTHON, TORCH_PYTHON, TOWERS, between, cpu_of_ours,
                       environment_of, has_avx512, kind_of, machine, machine_text, results_path, ticks, version_of)

PAGE, AIM = "docs/results/accuracy.md", 91.5
CYCLE = {"epochs": 10, "batch": 64, "rate": 0.002}  # of fashion_cnn; 6 epochs of 128 to 0.003 reach 90.9, 8 of 64 to 0.002 91.4
TITLES = {"mini": ("inception_mini", "recipe `mini` (2 epochs, one cycle to 0.3, batch 128)"),
          "tutorial": ("fashion_cnn", "the tutorial's loop (10 epochs, Adam 0.001, batch 64)"),
          "cycle": ("fashion_cnn", f"{CYCLE['epochs']} epochs, Adam, one cycle to {CYCLE['rate']}, batch {CYCLE['batch']}")}


def towers(model, *more):
    return [TOWERS, "train", model, "--device", "cpu", "--towers", 1, "--output-dir", "{work}", "--experiment", "run", *more]


def sides_make():
    """case: {side: command}, to which seed and threads are added."""
    torch, tensorflow = [TORCH_PYTHON, "scripts/measure/train_torch.py"], [TENSORFLOW_PYTHON, "scripts/measure/train_tensorflow.py"]
    mini = {}
    for dtype in ("bf16", "f32") if has_avx512() else ("f32",):
        mini[f"towers, {dtype}"] = towers("inception_mini", "--recipe", "mini", "--global-batch-size", 128,
                                          *(["--amp", "--amp-dtype", "bf16"] if dtype == "bf16" else []))
        for how in ("eager", "compiled"):
            mini[f"PyTorch {how}, {dtype}"] = torch + ["--bf16"] * (dtype == "bf16") + ["--compile"] * (how == "compiled")
    cycle = ["--epochs", CYCLE["epochs"], "--batch-size", CYCLE["batch"], "--opt", "adam", "--lr", CYCLE["rate"], "--sched", "rise-fall"]
    cycle_tf = ["--epochs", CYCLE["epochs"], "--batch", CYCLE["batch"], "--rate", CYCLE["rate"], "--in-graph"]
    return {"mini": mini,
            "tutorial": {"towers": towers("fashion_cnn", "--recipe", "tutorial"), "TensorFlow": tensorflow},
            "cycle": {"towers": towers("fashion_cnn", *cycle), "TensorFlow, in graph": tensorflow + cycle_tf}}


# ---- a run


def run_side(command):
    """The curve of a run: processor seconds, seconds and accuracy in % after each epoch. Other sides wait for an answer after each line."""
    row, curve, said_last = {}, [], collections.deque(maxlen=8)
    with tempfile.TemporaryDirectory(prefix="accuracy-") as work:
        (busy, _), begun = ticks(), (cpu_of_ours(), time.perf_counter())
        start = begun
        process = subprocess.Popen([str(word).replace("{work}", work) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, bufsize=1, env=environment_of({}))
        for line in process.stdout:
            now = cpu_of_ours(), time.perf_counter()
            said_last.append(line)
            found = re.search(r"^Epoch .*Test Accuracy: ([\d.]+)", line)
            said = json.loads(line) if line.startswith("{") else {}
            if said and "accuracy" not in said:
                row.update(said, cpu_before=round(now[0] - begun[0], 2), before=round(now[1] - begun[1], 2))
                start = cpu_of_ours(), time.perf_counter()
            elif found or said:
                curve.append([round(now[0] - start[0], 2), round(now[1] - start[1], 2), round(float(found[1] if found else said["accuracy"]), 2)])
                row.update({"first_loss": round(said["first_loss"], 4)} if said else {})
            if said:
                process.stdin.write("\n")
        if process.wait(LIMIT_SECONDS) or not curve:
            raise SystemExit(f"time_to_accuracy: {' '.join(map(str, command))}: exit {process.returncode}:\n{''.join(said_last)}")
        seconds = time.perf_counter() - begun[1]
        others = max(0.0, ticks()[0] - busy - (cpu_of_ours() - begun[0])) / seconds
        metrics = os.path.join(work, "run", "metrics.jsonl")
        if os.path.exists(metrics):
            with open(metrics) as file:
                row["first_loss"] = round(json.loads(file.readline())["mean_loss"], 4)
            done = subprocess.run([TOWERS, "info", command[2]], capture_output=True, text=True)
            row["parameters"] = int(re.search(r"total, forward pass of one image\s+(\d+)", done.stdout)[1])
    return {**row, "curve": curve, "other_cores": round(others, 2)}


def commit_of_binary():
    return re.search(r"commit (\w{8})", subprocess.run([TOWERS, "--version"], capture_output=True, text=True).stdout)[1]


def compare(results, save, options):
    start = time.monotonic()
    for seed in range(1, options.seeds + 1):
        for case, sides in sides_make().items():
            for side, command in sides.items():
                row = {"case": case, "side": side, "seed": seed, "threads": options.threads}
                if case not in options.only or any(row.items() <= made.items() for made in results["runs"]):
                    continue
                if time.monotonic() - start > 60 * options.minutes:
                    return
                row.update(run_side(command + ["--seed", seed, "--threads", options.threads]), commit=commit_of_binary(),
                           date=time.strftime("%Y-%m-%d"))
                print(row, flush=True)
                save(row)


# ---- the page


def spread(values, digits=0):
    middle = f"{statistics.median(values):.{digits}f}"
    return f"{middle} ({min(values):.{digits}f} to {max(values):.{digits}f})" if len(values) > 1 else middle


def reached(curve, clock):
    return next((point[clock] for point in curve if point[2] >= AIM), None)


def rows_of(results, case, threads):
    groups = collections.defaultdict(list)
    for row in results["runs"]:
        if row["case"] == case and row["threads"] == threads:
            groups[row["side"]].append(row)
    return groups


def table(results, threads):
    """With one thread the clock is that of the processor."""
    clock = 0 if threads == 1 else 1
    what = "processor seconds" if clock == 0 else "seconds"
    lines = []
    for case, (model, title) in TITLES.items():
        groups = rows_of(results, case, threads)
        if not groups:
            continue
        lines += [f"**{model}**: {title}", "",
                  f"| side | seeds | test accuracy at the end, % | {what} to {AIM} % | {what} to the end | times Towers | {what} before"
                  " | seconds of the clock to the end | first loss | parameters |", "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"]
        own = {side.partition(", ")[2]: rows for side, rows in groups.items() if side.startswith("towers")}
        for side, rows in groups.items():
            ours = own.get(side.partition(", ")[2], own.get(""))
            seeds = {row["seed"]: row["curve"][-1][clock] for row in ours or []}
            ratios = [row["curve"][-1][clock] / seeds[row["seed"]] for row in rows if row["seed"] in seeds]
            times = [t for t in (reached(row["curve"], clock) for row in rows) if t is not None]
            before = [row["cpu_before" if clock == 0 else "before"] for row in rows if "before" in row]
            to_aim = (spread(times) if times else "") + (f"{', ' if times else ''}{len(times)} of {len(rows)} seeds" if len(times) < len(rows) else "")
            lines.append(f"| {side} | {len(rows)} | {spread([row['curve'][-1][2] for row in rows], 2)} | {to_aim} | "
                         f"{spread([row['curve'][-1][clock] for row in rows])} | {spread(ratios, 2) if ratios and not side.startswith('towers') else ''} | "
                         f"{spread(before) if before else 'counted'} | {spread([row['curve'][-1][1] for row in rows])} | "
                         f"{spread([row['first_loss'] for row in rows], 2)} | {rows[0]['parameters']} |")
        lines.append("")
    return lines


def picture(results, threads, path):
    """The curves in the style of the report: its colors and frame, a line for each seed."""
    with open("inception/report/page/report.css") as file:
        css = re.search(r"/\* plots.*?\*/\n(.*?)/\* the page", file.read(), re.S)[1]
    clock = 0 if threads == 1 else 1
    width, height, left, right, top, bottom = 560, 300, 56, 150, 30, 262
    parts, at = [], 0
    for case, (model, title) in TITLES.items():
        groups = rows_of(results, case, threads)
        if not groups:
            continue
        curves = [(tint, side, [row["curve"] for row in rows]) for tint, (side, rows) in enumerate(groups.items())]
        longest = max(curve[-1][clock] for _, _, of in curves for curve in of)
        tick = next(t for t in (5, 10, 20, 50, 100, 200, 500, 1000, 2000) if longest / t <= 6)
        low = 5 * int(min(AIM, *(point[2] for _, _, of in curves for curve in of for point in curve)) / 5)
        x = lambda value: at * width + left + value / (tick * -(-longest // tick)) * (width - right - left)
        y = lambda value: bottom - (value - low) / (95 - low) * (bottom - top)
        parts.append(f'<text class="name" x="{at * width + left}" y="16">{model}: {title.replace("`", "")}</text>')
        for value in range(low, 96, 5):
            parts.append(f'<line class="rule" x1="{x(0):.1f}" x2="{x(longest):.1f}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
                         f'<text class="end" x="{x(0) - 8:.1f}" y="{y(value) + 4:.1f}">{value}</text>')
        parts += [f'<text class="mid" x="{x(value):.1f}" y="{bottom + 17}">{value}</text>' for value in range(0, int(longest) + 1, tick)]
        parts.append(f'<text class="mid" x="{x(longest / 2):.1f}" y="{bottom + 33}">'
                     f'{"processor seconds of one thread" if clock == 0 else "seconds of training"}; test accuracy, %</text>')
        parts.append(f'<line class="level" x1="{x(0):.1f}" x2="{x(longest):.1f}" y1="{y(AIM):.1f}" y2="{y(AIM):.1f}"/>')
        for tint, side, of in curves:
            for curve in of:
                points = "L".join(f"{x(point[clock]):.1f} {y(point[2]):.1f}" for point in curve)
                parts.append(f'<path class="line l{tint}" stroke-width="1.8" d="M{points}"/>')
                parts += [f'<circle class="f{tint}" r="3" cx="{x(point[clock]):.1f}" cy="{y(point[2]):.1f}"/>' for point in curve]
            parts.append(f'<text class="name f{tint}" style="fill:var(--c{tint})" x="{at * width + width - right + 12}" '
                         f'y="{bottom - 6 - 15 * (len(curves) - 1 - tint)}">{side}</text>')
        at += 1
    with open(path, "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {max(at, 1) * width} {height}" role="img" '
                   f'aria-label="Test accuracy over the time of training">\n<style>\n{css}</style>\n'
                   f'<rect width="100%" height="100%" style="fill:var(--paper)"/>\n' + "\n".join(parts) + "\n</svg>\n")


def image_of(results):
    return os.path.basename(results_path(kind_of(results), "accuracy")).replace(".json", ".svg")


def section(results):
    rows = [row for row in results["runs"] if row["threads"] == results["threads"]]
    shared = [row["other_cores"] for row in rows if row["other_cores"] > OTHERS_MAX]
    how = "one thread on every side, processor time" if results["threads"] == 1 else f"{results['threads']} threads on every side"
    busy = (f" The machine was shared: in {len(shared)} of {len(rows)} runs other programs used {min(shared):.1f} to {max(shared):.1f} of its cores"
            ", so seconds of the clock say little." if shared else "")
    return [f"{machine_text(results['machine'])}, TensorFlow {results['tensorflow']}; {how}; commit {', '.join(sorted({row['commit'] for row in rows}))}."
            f" Medians and ranges over seeds; the sides took turns.{busy}", "", *table(results, results["threads"]),
            f"![Test accuracy over the time of training: a line for each seed](../images/{image_of(results)})"]


def page_write(results):
    picture(results, results["threads"], f"docs/images/{image_of(results)}")
    with open(PAGE) as file:
        text = between(file.read(), "Time to accuracy", f"accuracy{kind_of(results)}", section(results), "time_to_accuracy")
    with open(PAGE, "w") as file:
        file.write(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default=",".join(TITLES), help="names of cases, separated by commas")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--processor-time", action="store_true")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    options.only, options.threads = options.only.split(","), 1 if options.processor_time else len(os.sched_getaffinity(0))
    found = machine(len(os.sched_getaffinity(0)))
    path = results_path(kind_of({"machine": found}), "accuracy")
    results = {"runs": []}

    def read():
        if os.path.exists(path):
            with open(path) as file:
                results.update(json.load(file))
        results.update(machine=found, tensorflow=version_of(TENSORFLOW_PYTHON, "tensorflow-cpu"))

    def save(row):
        read()  # another case may be running beside this one
        results["runs"].append(row)
        results["threads"] = row["threads"]
        with open(path + ".new", "w") as file:
            runs = ",\n".join("  " + json.dumps(row) for row in results["runs"])
            file.write(json.dumps({**results, "runs": []}, indent=1).replace('"runs": []', f'"runs": [\n{runs}\n ]') + "\n")
        os.replace(path + ".new", path)
        page_write(results)

    read()
    if options.table:
        return page_write(results)
    compare(results, save, options)


if __name__ == "__main__":
    main()
