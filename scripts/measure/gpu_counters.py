"""Hardware counters of single ops of a training step, by Nsight Compute; see scripts/gpu_check.py, part counters.

ops_driver launches each op between the marks of the profiler, behind a kernel that separates it from the one before; here the rows of
Nsight Compute's table are given back to the ops.
"""

import csv
import os
import shutil

SECTIONS = ("SpeedOfLight", "MemoryWorkloadAnalysis", "ComputeWorkloadAnalysis", "LaunchStats", "Occupancy", "WarpStateStats")
KEPT = {  # metric of the table: key of a row
    "Duration": "us", "SM Frequency": "sm_ghz", "Compute (SM) Throughput": "compute_percent", "Memory Throughput": "memory", "DRAM Throughput": "dram_percent",
    "L1/TEX Cache Throughput": "l1_percent", "L2 Cache Throughput": "l2_percent", "L2 Hit Rate": "l2_hit_percent", "Executed Ipc Active": "ipc",
    "Achieved Occupancy": "occupancy_percent", "Registers Per Thread": "registers", "Dynamic Shared Memory Per Block": "shared_kb",
    "Warp Cycles Per Issued Instruction": "warp_cycles", "Waves Per SM": "waves"}  # fmt: skip
SCALES = {  # to the unit of the key
    "us": {"ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "msecond": 1e3, "s": 1e6, "second": 1e6},
    "sm_ghz": {"Ghz": 1, "GHz": 1, "cycle/nsecond": 1, "Mhz": 1e-3, "MHz": 1e-3, "cycle/usecond": 1e-3},
    "shared_kb": {"Kbyte/block": 1, "byte/block": 1e-3, "Mbyte/block": 1e3}}
SEPARATOR = "Random"  # in the name of the kernel between ops


def program():
    """Nsight Compute, or None."""
    places = [shutil.which("ncu"), "/usr/local/cuda/bin/ncu"]
    return next((place for place in places if place and os.access(place, os.X_OK)), None)


def command(ncu, log, words):
    """Clocks are left as they are, so that times are those of training. The table goes to the file `log`, apart from what is printed."""
    sections = [word for name in SECTIONS for word in ("--section", name)]
    return [ncu, "--clock-control", "none", "--profile-from-start", "off", "--apply-rules", "no", "--csv", "--log-file", log, *sections, *words]


def number(text):
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def table_of(text):
    """The rows of the table, in front of which there is what Nsight Compute says meanwhile."""
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith('"ID",')), None)
    if first is None:
        return []
    return list(csv.DictReader(line for line in lines[first:] if line.startswith('"')))


def kernels_of(rows):
    """In the order of their launches: {"kernel": NAME, metric's key: number}."""
    kernels = {}
    for row in rows:
        kernel = kernels.setdefault(int(row["ID"]), {"kernel": row["Kernel Name"], "grid": row.get("Grid Size"), "block": row.get("Block Size")})
        name, unit, value = row.get("Metric Name") or "", row.get("Metric Unit") or "", number(row.get("Metric Value") or "")
        key = KEPT.get(name)
        if not key or value is None:
            continue
        if name == "Memory Throughput":  # a share in one section, a rate in another
            if unit == "%":
                kernel["memory_percent"] = value
            elif unit.endswith("byte/s") or unit.endswith("byte/second"):
                kernel["gb_per_second"] = round(value * {"T": 1e3, "G": 1, "M": 1e-3, "K": 1e-6}.get(unit[0], 1e-9), 1)
            continue
        scale = SCALES.get(key, {}).get(unit, 1 if key not in SCALES else None)
        if scale is not None:
            kernel[key] = round(value * scale, 4)
    return [kernels[number] for number in sorted(kernels)]


def ops_of(table, printed, names):
    """[(name, [kernel, ...])] of the ops that were launched, which the program has printed. A separator is in front of each."""
    groups = []
    for kernel in kernels_of(table_of(table)):
        if SEPARATOR in kernel["kernel"]:
            groups.append([])
        elif groups:
            groups[-1].append(kernel)
    launched = [line.removeprefix("launched ") for line in printed.splitlines() if line.startswith("launched ")]
    if launched != list(names)[: len(launched)] or len(groups) != len(launched):
        raise ValueError(f"{len(launched)} ops were launched, {len(groups)} are in the table of Nsight Compute")
    return list(zip(launched, groups))
