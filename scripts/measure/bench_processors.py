#!/usr/bin/env python3
"""Show the kinds of processors that were measured side by side: fills the section "processors" of docs/results/cpu.md from the records of
scripts/measure/bench_cpu.sh and scripts/measure/bench_inference.sh beside it. Measures nothing. usage: scripts/measure/bench_processors.py"""
import glob
import json
import os
import subprocess

import bench_cpu as bench
import bench_inference as inference

# Times as fast as the best of the others: what we want with AVX-512 and without.
GOALS = {"fashion_cnn": ("3.5x", "2.0x"), "inception_mini": ("2.5x", "1.8x"), "inception_v3": ("2.0x", "1.8x"),
         "inception_v3, bf16": ("2.2x", ""), "inference": ("1.5x", "1.5x")}

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))


def cell(case):
    """The best of our sides, and how many times as fast as the best of the others it is."""
    sums = bench.summaries(case)
    ours, peer = bench.best(sums, "towers"), bench.best({n: s for n, s in sums.items() if not n.startswith("towers")}, "")
    if not ours[0] or not peer[0]:
        return ""
    star = bench.STAR if sums[ours[0]]["disturbed"] or sums[peer[0]]["disturbed"] else ""
    return f"{bench.digits(ours[1])}, {ours[1] / peer[1]:.2f}x{star}"


def goal(title):
    network = title.split(",")[0] + (", bf16" if ", bf16," in title else "")
    return " | ".join(GOALS.get(network, ("", "")))


def rows():
    """(what, {processor: cell}) of everything that was measured on one kind of processor or more."""
    found = {}
    for what, order in (("cpu", bench.cases_make(2, 0)), ("inference", inference.CASES)):
        for path in sorted(glob.glob(f"docs/results/{what}-*.json")):
            with open(path) as file:
                results = json.load(file)
            for name in order:
                if name in results["cases"]:
                    title = results["cases"][name].get("title") or "inference, {0}, {1}x{1}, batch {2}, f32".format(*inference.CASES[name])
                    title = title.replace(" on AMX", "")
                    found.setdefault(title, {})[bench.kind_of(results).removeprefix(" on ")] = cell(results["cases"][name])
    return found


def demands():
    """What the goals of training would take on the processors whose generation is known: products of the definition a second, as a part
    of what a matrix product reaches. Winograd's algorithms save some of them, so more than 100 % is no contradiction."""
    lines = []
    for path in sorted(glob.glob("docs/results/cpu-*.json")):
        with open(path) as file:
            results = json.load(file)
        if not results["machine"].get("generation"):
            continue
        for name in [n for n in bench.cases_make(2, 0) if n in results["cases"]]:
            case = results["cases"][name]
            sums, factor = bench.summaries(case), goal(case["title"]).split(" | ")[0 if results["machine"].get("avx512", True) else -1].rstrip("x")
            ours, peer = bench.best(sums, "towers"), bench.best({n: s for n, s in sums.items() if not n.startswith("towers")}, "")
            if not (factor and ours[0] and peer[0] and case["peak_gflops"]):
                continue
            gflop = 6e-9 * case["macs"]
            wanted, now = float(factor) * peer[1] * gflop, ours[1] * gflop
            lines.append(f"| {case['title']} | {bench.cpu_of(results['machine'])} | {factor}x | {wanted:.0f} | "
                         f"{100 * wanted / case['peak_gflops']:.0f} | {100 * now / case['peak_gflops']:.0f} |")
    return ["| a goal of training would be | on | times the best other | GFLOP/s | % of a matrix product | now % |",
            "|---|---|---:|---:|---:|---:|", *lines] if lines else []


def main():
    table = rows()
    kinds = sorted({kind for cells in table.values() for kind in cells})
    lines = ["| images/s, times the best other | goal with AVX-512 | goal without | " + " | ".join(kinds) + " |", "|---|" + "---:|" * (2 + len(kinds))]
    lines += [f"| {title} | {goal(title)} | " + " | ".join(cells.get(kind, "") for kind in kinds) + " |" for title, cells in table.items()]
    if any(bench.STAR in line for line in lines):
        lines += ["", f"`*` fewer than {bench.CLEAN_LEAST} runs undisturbed by other programs, so these numbers are less reliable."]
    lines += ["", *demands()]
    subprocess.run(["scripts/pages/fill_section.sh", bench.TABLE, "processors"], input="\n".join(lines) + "\n", text=True, check=True)


if __name__ == "__main__":
    main()
