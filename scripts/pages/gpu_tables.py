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


CLOCKS = (("sm_mhz", "MHz"), ("memory_mhz", "memory MHz"), ("load_watts", "W under load"))


def clock_heads(rows):
    """The columns of what the driver said meanwhile, if it said anything."""
    return [head for key, head in CLOCKS if any(key in row for row in rows)] + (["slowed by"] if any("slowed" in row for row in rows) else [])


def clock_cells(rows, wanted):
    """Of runs of one kind: the lowest and the highest number; what slowed any of them down. `wanted`: the heads."""
    cells = []
    for key, head in CLOCKS:
        values = sorted({row[key] for row in rows if key in row})
        if head in wanted:
            cells.append(" to ".join(f"{value:,}" for value in dict.fromkeys((values[0], values[-1]))) if values else "")
    return cells + (["; ".join(dict.fromkeys(row["slowed"] for row in rows if "slowed" in row))] if "slowed by" in wanted else [])


TITLES = {"compile": "inception_v3, training, beside PyTorch's compiler", "batches": "inception_v3, training, other batches and types", "models": "Networks for photographs, training in bf16, beside PyTorch's compiler"}
MLPERF = ("For comparison, what others have published: the MLPerf Training v4.0 result of ResNet-50 on 8 x H200 is 7,940 images/s a GPU, with 400 images a GPU and from files; here images are "
          "in memory, and the learning rate is no matter.")


def bench(part):
    rows_of, power = {}, {}
    for row in part["results"]:
        if "images_per_second" in row:
            kind = row.get("network", ""), row["batch"], row["type"], row["system"]
            rows_of.setdefault(kind, []).append(row)
            if "watts" in row:
                power.setdefault(kind, []).append(row["watts"])
    clocked, named = clock_heads([row for rows in rows_of.values() for row in rows]), any(kind[0] for kind in rows_of)
    networks = list(dict.fromkeys(kind[0] for kind in rows_of))
    rows = []
    for kind in sorted(rows_of, key=lambda kind: (networks.index(kind[0]), -kind[1], kind[2], kind[3])):
        network, batch, dtype, system = kind
        values, mine = ([row["images_per_second"] for row in rows_of.get(key, ())] for key in (kind, (network, batch, dtype, "towers")))
        ratio = f"{statistics.median(mine) / statistics.median(values):.2f}" if mine and system != "towers" else ""
        watts = ([f"{statistics.median(power[kind]):.0f}"] if kind in power else [""]) if power else []
        rows.append((*([network] if named else []), batch, dtype, system, f"{statistics.median(values):,.0f}", ", ".join(f"{v:,.0f}" for v in values), ratio, *watts,
                     *clock_cells(rows_of[kind], clocked)))
    heads = (*(["network"] if named else []), "batch", "type", "system", "images/s", "single runs", "towers is faster by", *(["W"] if power else []), *clocked)
    lines = ["## " + TITLES.get(part["part"], "inception_v3, training"), ""] + (table(heads, rows) if rows else [])
    lost = sorted({f"{row['type']} in {row['system']}" for row in part["results"] if "loss" in row and row["loss"] is None})
    if lost:
        lines += ["", "A loss was not finite, and updates were left out: " + ", ".join(lost) + "."]
    if "resnet50" in networks:
        lines += ["", MLPERF]
    return lines + alone(part["results"]) + searches_of(part["results"])


def searches_of(results):
    searches = [(r["batch"], r["plans"], f"{r['search_seconds']:.0f}", r["found"], f"{r['memory_mib']:,}" if r.get("memory_mib") else "") for r in results if "plans" in r]
    if not searches:
        return []
    return ["", "Time until the first step, with the search for plans where the cache had none, and most memory of the device:", ""] + table(("batch", "type", "s", "ended", "MiB"), searches)


def alone(results):
    found = [row for row in results if "alone" in row]
    if not found:
        return []
    heads = clock_heads(found)
    rows = [(row["alone"], row["ops"], f"{row['ms']:.2f}", *clock_cells([row], heads)) for row in found]
    return ["", "Operations of a step alone, again and again:", ""] + table(("what", "operations", "ms", *heads), rows)


def counters(part):
    """Every kernel of the ops, in the order of their launches."""
    columns = (("us", "µs"), ("sm_ghz", "GHz"), ("compute_percent", "compute %"), ("memory_percent", "memory %"), ("dram_percent", "DRAM %"), ("gb_per_second", "GB/s"), ("l2_hit_percent", "L2 hits %"),
               ("occupancy_percent", "occupancy %"), ("registers", "registers"), ("waves", "waves"))
    rows = []
    for row in part["results"]:
        for kernel in row["kernels"] or [{"kernel": "none"}]:
            rows.append((row["counted"].replace(":", ", "), f"`{kernel['kernel'][:60]}`", *(f"{kernel[key]:,.4g}" if key in kernel else "" for key, _ in columns)))
    lines = ["## Counters of single kernels, inception_v3, bf16, batch 256", "", "One launch of each by Nsight Compute, at the clock of training; all numbers are in `docs/results/gpu/counters.json`.", ""]
    return lines + table(("operation", "kernel", *(head for _, head in columns)), rows)


def loss(part):
    rows = [(r["loss_in"], r["batches"], f"{r['error']:.1e}", f"{r['pytorch_error']:.1e}", f"{max(r['ours']):.1e}", f"{max(r['theirs']):.1e}", shown("yes" if r["right"] else "no")) for r in part["results"]]
    lines = ["## The loss of inception_v3, on several batches", "", "Distances from PyTorch in float64, relative: the median of the batches, and the worst. PyTorch's of its two layouts, the larger.", ""]
    return lines + table(("type", "batches", "median error", "PyTorch's", "worst", "PyTorch's worst", "right"), rows)


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
    all_of = "All passed" if "all cases" in part.get("took", ("all cases",)) else "Passed, of those that there was time for"
    lines = ["## Operations against the reference", "", f"{all_of}: {shown(part.get('passed'))}.", ""]
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
    when = part["started"] + (f", continued {part['continued']}" if part.get("continued") else "")
    return f"commit {part['commit']}, {when}" if part.get("commit") else when


def main():
    if sys.argv[1] == "--line":
        print(line(sys.argv[2]))
        return
    folder, document = sys.argv[1:3]
    lines = [BEGIN, "", "Made by `scripts/gpu_check.sh`; each part says on which GPU and when. The rows are in `docs/results/gpu/`.", ""]
    for name, make in (("bench", bench), ("compile", bench), ("batches", bench), ("models", bench), ("counters", counters), ("loss", loss), ("resume", resume), ("scale", scale), ("nccl", nccl), ("ops", ops), ("model", model), ("profile", profile)):
        path = os.path.join(folder, name + ".json")
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as file:
            part = json.load(file)
        if not part["results"]:
            continue
        left = [f"There was no time for {len(part['left_out'])} more commands of this part."] if part.get("left_out") else []
        problems = part["problems"] + [text for texts in part.get("unfinished", {}).values() for text in texts]
        lines += make(part) + ["", " ".join([f"{part['device']}; {origin(part)}."] + left)] + ["- problem: " + text for text in problems] + [""]
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
