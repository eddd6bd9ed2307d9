#!/usr/bin/env python3
"""Write the tables of docs/results/gpu.md from the results of scripts/gpu_check.sh.

usage: gpu_tables.py RESULTS_FOLDER DOCUMENT
       gpu_tables.py --line RESULTS_FOLDER         one sentence about the speed, for the README
The part of DOCUMENT between the lines <!-- gpu results --> and <!-- end of gpu results --> is replaced; if there are no such lines
it is appended.
"""

import json
import os
import statistics
import sys

BEGIN, END = "<!-- gpu results -->", "<!-- end of gpu results -->"


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]


def bench(part):
    speeds, power = {}, {}
    for row in part["results"]:
        if "plans" in row:
            continue
        kind = row["batch"], row["type"], row["system"]
        speeds.setdefault(kind, []).append(row["images_per_second"])
        if "watts" in row:
            power.setdefault(kind, []).append(row["watts"])
    rows = []

    def power_of(*kind):
        return ([f"{statistics.median(power[kind]):.0f}"] if kind in power else [""]) if power else []

    for (batch, dtype, system), values in sorted(speeds.items(), key=lambda item: (-item[0][0], item[0][1], item[0][2])):
        mine = speeds.get((batch, dtype, "towers"))
        ratio = f"{statistics.median(mine) / statistics.median(values):.2f}" if mine and system != "towers" else ""
        rows.append((batch, dtype, system, f"{statistics.median(values):,.0f}", ", ".join(f"{v:,.0f}" for v in values), ratio, *power_of(batch, dtype, system)))
    title = "## inception_v3, training, beside PyTorch's compiler" if part["part"] == "compile" else "## inception_v3, training"
    lines = [title, ""] + table(("batch", "type", "system", "images/s", "single runs", "towers is faster by", *(["W"] if power else [])), rows)
    lost = sorted({f"{row['type']} in {row['system']}" for row in part["results"] if "loss" in row and row["loss"] is None})
    if lost:
        lines += ["", "A loss was not finite, and updates were left out: " + ", ".join(lost) + "."]
    searches = [(r["batch"], r["plans"], f"{r['search_seconds']:.0f}", r["found"], f"{r['memory_mib']:,}" if r.get("memory_mib") else "") for r in part["results"] if "plans" in r]
    if searches:
        lines += ["", "Time until the first step, with the search for plans where the cache had none, and most memory of the device:", ""]
        lines += table(("batch", "type", "s", "ended", "MiB"), searches)
    return lines


def shown(word):
    return "yes" if word == "yes" else f"**{word or 'no'}**"


def scale(part):
    rows = [(r["type"], r["scale"], f"{r['images_per_second']:,.0f}" if "images_per_second" in r else r["skipped"], r.get("efficiency", "")) for r in part["results"] if "scale" in r]
    lines = [f"## Several GPUs: inception_v3, 256 images a tower ({part.get('gpus', 1)} in the machine)", ""]
    lines += table(("type", "towers", "images/s", "efficiency"), rows)
    trained = [(r["trained"], r["test_accuracy"]) for r in part["results"] if "trained" in r]
    return lines + (["", "inception_mini on Fashion-MNIST, two epochs:", ""] + table(("towers", "test accuracy"), trained) if trained else [])


def nccl(part):
    """Which ranks had one GPU together, and whether all was as it must be."""
    def ways(row):
        return ", ".join(f"{way} ({count})" for way, count in sorted(row["via"].items()))

    rows = [(r["nccl"], r["ranks"] or "", r["right"] if r["right"].startswith("left out") else shown(r["right"]), f"{r['seconds']:.0f}", ways(r)) for r in part["results"]]
    lines = ["## NCCL between ranks that share one GPU", "", "Eight towers, compared with one process to the bit, or with its losses where NCCL adds. Their kernels take turns, so the seconds say nothing about several GPUs.", ""]
    return lines + table(("what", "ranks", "as it must be", "s", "connected by"), rows)


def resume(part):
    rows = [(r["resumed"], shown(r["same_bits"])) for r in part["results"]]
    return ["## Runs that were stopped and went on", "", "Compared with one that was not stopped:", ""] + table(("inception_mini in", "the same weights, to the bit"), rows)


def number(value):
    return value if isinstance(value, str) else f"{value:.2e}"


def ops(part):
    rows = [(r["op"], r["dtype"], r["runs"], number(r["max_error"]), f"{r['percent_of_allowed']} %", r["unsupported"] or "") for r in part["results"] if "runs" in r]
    lines = ["## Operations against the reference", "", f"All passed: {shown(part.get('passed'))}.", ""]
    lines += table(("operation", "type", "runs", "largest error", "of what is allowed", "unsupported"), rows)
    tools = [(r["tool"], r["op"], shown(r["clean"])) for r in part["results"] if "tool" in r]
    return lines + ([""] + table(("compute-sanitizer", "operation", "clean"), tools) if tools else [])


def verdict(row):
    """PyTorch's errors say nothing where they are as large as what is computed."""
    return "no verdict" if row["pytorch_error"] > 0.5 else "yes" if row["right"] else "**no**"


def whole(results):
    rows = [(r["whole"], r["group"], r["tensors"], f"{r['error']:.1e}", f"{r['pytorch_error']:.1e}", r["median_ratio"], verdict(r)) for r in results]
    heads = ("network", "what", "tensors", "worst error", "PyTorch's", "median ratio", "right")
    lines = ["## inception_v3 against PyTorch on the same GPU", "", "Errors are distances from PyTorch in float64, relative to its norm.", ""] + table(heads, rows) + [""]
    wrong = [f"{r['whole']}, {r['group']}: {layout}, {error:.1e}" for r in results for layout, error in r.get("pytorch_wrong", {}).items()]
    if wrong:
        lines += ["Left out, because PyTorch's own results are wrong in these layouts (median error of the tensors, in f32):", ""] + ["- " + text for text in wrong] + [""]
    return lines


def model(part):
    compared, trained = [r for r in part["results"] if "whole" in r], [r for r in part["results"] if "whole" not in r]
    lines = whole(compared) if compared else []
    keys = [key for key in ("type", "towers", "epochs", "step", "test_accuracy", "best_accuracy", "seconds", "memory_mib", "planned_mib") if any(key in r for r in trained)]
    if not trained:
        return lines
    return lines + ["## inception_mini on Fashion-MNIST", ""] + table(keys, [[row.get(key, "") for key in keys] for row in trained])


def profile(part):
    lines = ["## Time of every kind of operation, inception_v3, batch 256", ""]
    for row in part["results"]:
        lines += [row["type"] + ":", "", "```", row["text"].strip(), "```", ""]
    return lines


def line(folder):
    """What a batch of 256 in bf16 gains over PyTorch with its compiler."""
    with open(os.path.join(folder, "compile.json"), encoding="utf-8") as file:
        part = json.load(file)
    speeds = {}
    for row in part["results"]:
        if (row.get("batch"), row.get("type")) == (256, "bf16") and "images_per_second" in row:
            speeds.setdefault(row["system"], []).append(row["images_per_second"])
    (peer,) = speeds.keys() - {"towers"}
    mine, other = statistics.median(speeds["towers"]), statistics.median(speeds[peer])
    return (f"On one {part['device'].split(',')[0]}, `inception_v3` trains at {mine:,.0f} images/s in bf16 (batch 256), {mine / other:.1f} times what PyTorch "
            f"{peer.split()[1]} trains there with its compiler, at commit {part['commit']}.")


def origin(part):
    """When a part was measured, and at which commit, which older results do not say."""
    return f"commit {part['commit']}, {part['started']}" if part.get("commit") else part["started"]


def main():
    if sys.argv[1] == "--line":
        print(line(sys.argv[2]))
        return
    folder, document = sys.argv[1:3]
    lines = [BEGIN, "", "Made by `scripts/gpu_check.sh`; each part says on which GPU and when. The rows are in `docs/results/gpu/`.", ""]
    for name, make in (("bench", bench), ("compile", bench), ("resume", resume), ("scale", scale), ("nccl", nccl), ("ops", ops), ("model", model), ("profile", profile)):
        path = os.path.join(folder, name + ".json")
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as file:
            part = json.load(file)
        if not part["results"]:
            continue
        left = [f"There was no time for {len(part['left_out'])} more commands of this part."] if part.get("left_out") else []
        lines += make(part) + ["", " ".join([f"{part['device']}; {origin(part)}."] + left)] + ["- problem: " + text for text in part["problems"]] + [""]
    text = "\n".join(lines + [END]) + "\n"
    old = ""
    if os.path.exists(document):
        with open(document, encoding="utf-8") as file:
            old = file.read()
    if BEGIN in old and END in old:
        before, rest = old.split(BEGIN, 1)
        text = before + text + rest.split(END, 1)[1].lstrip("\n")
    elif old:
        text = old.rstrip("\n") + "\n\n" + text
    else:
        text = "# Measurements on a GPU\n\n" + text
    with open(document, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main()
