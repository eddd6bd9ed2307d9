#!/usr/bin/env python3
"""Run the cases of scripts/bench_cpu.sh and write their tables; see there.

usage: bench_cpu.py [--quick] [--only CASE,...] [--repetitions N] [--steps N] [--no-profile] [--list]

Each case is a list of sides; a repetition runs every side once, each in a process of its own, and medians are taken over
repetitions. During a run the time that the cores spent on other processes is counted: more than 0.08 core (or stolen time of more
than 0.05 core) marks it, and the median is taken over unmarked runs if there are at least three. The files are written after every
repetition, so that an interrupted call keeps what it measured; cases that were not run keep their earlier results, and each
tells its commit and date. On two idle cores: 3 repetitions of inception_v3_16 take about 6 minutes, of inception_v3_16_bf16 4, of
inception_v3_8 4, of inception_v3_8_bf16 3, of googlenet_16 3, a repetition of a small network 2 to 3.
"""
import argparse
import json
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TOWERS = os.environ.get("TOWERS", "build/towers")
TABLE, RESULTS = "docs/performance.md", "docs/results/cpu.json"
OTHERS_MAX, STEAL_MAX = 0.08, 0.05
LIMIT_SECONDS = 1800

# ---- sides: what is run, and how its images per second are read


def torch_side(model, batch, **options):
    command = ["/usr/bin/python3", "scripts/bench_torch.py", model, "--batch", str(batch)]
    for name, value in options.items():
        command += ["--" + name] if value is True else ["--" + name, str(value)]
    return {"command": command, "read": "torch"}


def train_side(model, batch, towers, threads, steps):
    command = [TOWERS, "train", model, "--device", "cpu", "--towers", towers, "--threads", threads, "--global-batch-size", batch,
               "--epochs", 1, "--quiet", "--output-dir", "{work}", "--experiment", "run"]
    if steps:
        command += ["--max-steps", steps]
    return {"command": [str(c) for c in command], "read": "epoch"}


def bench_side(model, batch, towers, threads, steps, *more):
    command = [TOWERS, "bench", model, "--device", "cpu", "--towers", towers, "--threads", threads, "--global-batch-size", batch,
               "--batches", steps, "--warmup-batches", 2, "--opt", "momentum", "--lr", 0.01, "--json", *more]
    return {"command": [str(c) for c in command], "read": "bench"}


def small_case(model, batch, cores, steps):
    """Real epochs of a small network."""
    sides = {f"towers, 1 tower x {cores} threads": train_side(model, batch, 1, cores, steps)}
    if cores > 1:
        sides[f"towers, {cores} towers x 1 thread"] = train_side(model, batch, cores, 1, steps)
    for layout in ("nchw", "nhwc"):
        sides[f"PyTorch, {layout}, {cores} threads"] = torch_side(model, batch, threads=cores, layout=layout, steps=steps)
    if cores > 1:
        sides[f"PyTorch DDP, gloo, {cores} x 1 thread"] = torch_side(model, batch, threads=1, processes=cores, steps=steps)
    return sides


def large_case(model, batch, cores, steps, bf16):
    more = ["--amp", "--amp-dtype", "bf16"] if bf16 else []
    options = {"threads": cores, "steps": steps, "warmup": 2}
    sides = {f"towers, 1 tower x {cores} threads": bench_side(model, batch, 1, cores, steps, *more)}
    if cores > 1:
        sides[f"towers, {cores} towers x 1 thread"] = bench_side(model, batch, cores, 1, steps, *more)
    for layout in ("nchw", "nhwc"):
        side = torch_side(model, batch, layout=layout, **options)
        sides[f"PyTorch, {layout}, {cores} threads"] = side
        if bf16:
            side["command"].append("--bf16")
    return sides


def cases_make(cores, quick, steps):
    """`steps`: that are timed, of the large networks; 0: the usual number."""
    epoch, steps = (200 if quick else 0), steps or (3 if quick else 5)
    cases = {
        "fashion_cnn": ("fashion_cnn, batch 64, f32, Adam", "fashion_cnn", False, small_case("fashion_cnn", 64, cores, epoch)),
        "inception_mini": ("inception_mini, batch 64, f32, SGD with Nesterov momentum", "inception_mini", False,
                           small_case("inception_mini", 64, cores, epoch)),
        "fashion_cnn_128": ("fashion_cnn, batch 128, f32, Adam", "fashion_cnn", False, small_case("fashion_cnn", 128, cores, epoch)),
    }
    for batch in (16, 8):
        for bf16 in (False, True):
            name = f"inception_v3_{batch}" + ("_bf16" if bf16 else "")
            title = f"inception_v3, 299x299, batch {batch}, aux, {'bf16' if bf16 else 'f32'}, SGD with momentum"
            cases[name] = (title, "inception_v3", bf16, large_case("inception_v3", batch, cores, steps, bf16))
    cases["googlenet_16"] = ("googlenet, 224x224, batch 16, aux, f32, SGD with momentum", "googlenet", False,
                             large_case("googlenet", 16, cores, steps, False))
    if quick:
        for name in ("fashion_cnn_128", "inception_v3_8", "inception_v3_8_bf16"):
            del cases[name]
    return cases


def in_order(found, cores):
    names = list(cases_make(cores, False, 0))
    return dict(sorted(found.items(), key=lambda item: names.index(item[0]) if item[0] in names else len(names)))


# ---- one run


def ticks():
    """Busy and stolen seconds of all cores since boot."""
    with open("/proc/stat") as file:
        v = [int(x) / os.sysconf("SC_CLK_TCK") for x in file.readline().split()[1:9]]
    return v[0] + v[1] + v[2] + v[5] + v[6], v[7]


def speed_read(side, output, work):
    if side["read"] == "epoch":
        with open(os.path.join(work, "run", "results.csv")) as file:
            rows = [line.rstrip("\n").split(",") for line in file]
        return float(dict(zip(rows[0], rows[-1]))["images_per_sec"])
    text = [line for line in output.splitlines() if line.startswith("{")][-1]
    return float(json.loads(text)["images_per_sec"])


def run_side(side):
    work = tempfile.mkdtemp(prefix="bench-")
    command = [c.replace("{work}", work) for c in side["command"]]
    env = dict(os.environ, OPENBLAS_NUM_THREADS="1")
    for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):  # each side by its own defaults
        env.pop(name, None)
    busy, steal = ticks()
    mine = resource.getrusage(resource.RUSAGE_CHILDREN)
    load, start = os.getloadavg()[0], time.perf_counter()
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_SECONDS)
        seconds = time.perf_counter() - start
        if done.returncode:
            return {"error": f"exit {done.returncode}: {done.stderr.strip()[-400:]}"}
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - mine.ru_utime - mine.ru_stime
        others, stolen = ticks()[0] - busy - cpu, ticks()[1] - steal
        others, stolen = max(0.0, others / seconds), stolen / seconds
        return {"images_per_sec": speed_read(side, done.stdout, work), "seconds": round(seconds, 2), "cpu_seconds": round(cpu, 2),
                "load": load, "other_cores": round(others, 3), "stolen_cores": round(stolen, 3),
                "disturbed": others > OTHERS_MAX or stolen > STEAL_MAX}
    except (OSError, subprocess.TimeoutExpired, IndexError, KeyError, ValueError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        shutil.rmtree(work, ignore_errors=True)


# ---- the machine


def machine(cores):
    with open("/proc/cpuinfo") as file:
        model = re.search(r"model name\s*: (.*)", file.read())
    with open("/proc/meminfo") as file:
        memory = int(file.readline().split()[1]) / 2**20
    versions = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}, ", "libdnnl2", "python3-torch", "gcc"],
                              capture_output=True, text=True).stdout.strip(", ")
    return {"cpu": model.group(1) if model else platform.machine(), "cores": cores, "memory_gib": round(memory, 1),
            "kernel": platform.release(), "versions": versions}


def commit_now():
    """What is measured; "+" if it was changed since."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    code = ["inception", "towers", "nccl_sync", "kernels", "scripts"]
    return commit + ("+" if subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *code]).returncode else "")


def profile_text(model, cores, *more):
    command = [TOWERS, "bench", model, "--device", "cpu", "--towers", "1", "--threads", str(cores), "--batches", "3",
               "--warmup-batches", "1", "--profile", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    text = done.stdout[done.stdout.find(f"\n{model}, batch"):] if done.returncode == 0 else ""
    peak = re.search(r"machine: (\d+) GFLOP/s product, ([\d.]+) GB/s", text)
    return command, text.strip(), (float(peak.group(1)), float(peak.group(2))) if peak else None


def macs_of(model):
    done = subprocess.run([TOWERS, "info", model], capture_output=True, text=True)
    found = re.search(r"total, one image forward\s+\d+\s+(\d+)", done.stdout)
    return int(found.group(1)) if found else 0


# ---- tables


def summary(runs):
    good = [r for r in runs if "error" not in r]
    clean = [r for r in good if not r["disturbed"]]
    used = clean if len(clean) >= 3 else good
    if not used:
        return None
    speeds = [r["images_per_sec"] for r in used]
    return {"median": statistics.median(speeds), "min": min(speeds), "max": max(speeds), "runs": len(used),
            "disturbed": used is good and len(clean) < len(good)}


def digits(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def case_table(case):
    sums = {name: summary(runs) for name, runs in case["runs"].items()}
    peers = [s["median"] for name, s in sums.items() if s and name.startswith("PyTorch,")]
    single = next((s["median"] for name, s in sums.items() if s and name.startswith("towers, 1 tower")), 0)
    part = f" (first {case['epoch_steps']} steps of an epoch)" if case.get("epoch_steps") else ""
    lines = [f"**{case['title']}**{part}; commit {case['commit']}, {case['date']}", "",
             "| side | images/s, median | range | runs | to PyTorch's better layout | to 1 tower | GFLOP/s | % of peak |",
             "|---|---:|---:|---:|---:|---:|---:|---:|"]
    for name, s in sums.items():
        if not s:
            lines.append(f"| {name} | failed: {case['runs'][name][-1].get('error', 'not run')[:80]} | | | | | | |")
            continue
        ratio = f"{s['median'] / max(peers):.2f}" if peers else ""
        own = f"{s['median'] / single:.2f}" if single and name.startswith("towers") else ""
        gflops = s["median"] * 6e-9 * case["macs"]
        share = f"{100 * gflops / case['peak_gflops']:.0f}" if case["peak_gflops"] else ""
        lines.append(f"| {name} | {digits(s['median'])}{' *' if s['disturbed'] else ''} | {digits(s['min'])}-{digits(s['max'])} | "
                     f"{s['runs']} | {ratio} | {own} | {gflops:.0f} | {share} |")
    return lines + [""]


def tables(results):
    m = results["machine"]
    lines = [f"{m['cpu']}, {m['cores']} cores, {m['memory_gib']} GiB, Linux {m['kernel']}; {m['versions']}.", ""]
    if results["peaks"]:
        lines += ["Measured peaks: " + "; ".join(f"{kind}: {p[0]:.0f} GFLOP/s (matrix product), {p[1]:.1f} GB/s (copy)"
                                                 for kind, p in results["peaks"].items()) + ".", ""]
    for case in results["cases"].values():
        lines += case_table(case)
    if any((summary(r) or {}).get("disturbed") for c in results["cases"].values() for r in c["runs"].values()):
        lines += ["`*` other programs ran meanwhile; take the numbers with care.", ""]
    lines += ["GFLOP/s count 6 operations per multiply-add of the forward pass and image, whatever the code really does.", "",
              "<details><summary>The commands</summary>", "", "```"]
    for case in results["cases"].values():
        lines += [" ".join(command) for command in case["commands"].values()] + [""]
    return lines[:-1] + ["```", "", "</details>"]


def between(text, name, lines):
    """Replace what stands between the markers of `name`; append them if they are missing."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    block = "\n".join([begin, *lines, end])
    if begin in text and end in text:
        return text[: text.index(begin)] + block + text[text.index(end) + len(end):]
    return text.rstrip("\n") + "\n\n" + block + "\n"


def save(results):
    os.makedirs(os.path.dirname(RESULTS), exist_ok=True)
    with open(RESULTS + ".new", "w") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
    os.replace(RESULTS + ".new", RESULTS)
    text = "# Performance\n"
    if os.path.exists(TABLE):
        with open(TABLE) as file:
            text = file.read()
    if "<!-- cpu: begin -->" not in text:
        text = text.rstrip("\n") + "\n\n## On a CPU\n\nWritten by `scripts/bench_cpu.sh`.\n"
    text = between(text, "cpu", tables(results))
    if results["profiles"]:
        lines = []
        for profile in results["profiles"].values():
            lines += [f"<details><summary>{profile['text'].splitlines()[0]}</summary>", "", f"`{' '.join(profile['command'])}`", "",
                      *profile["text"].splitlines()[1:], "", "</details>", ""]
        text = between(text, "cpu profiles", lines[:-1])
    with open(TABLE + ".new", "w") as file:
        file.write(text)
    os.replace(TABLE + ".new", TABLE)


# ---- the whole


def results_open():
    try:
        with open(RESULTS) as file:
            return json.load(file)
    except (OSError, ValueError):
        return {"cases": {}, "peaks": {}, "profiles": {}}


def profiles_measure(results, wanted, cores, keep):
    """Peaks of the machine, and the time of every kind of operation."""
    for name, model, more in (("fashion_cnn", "fashion_cnn", []), ("inception_mini", "inception_mini", []),
                              ("inception_v3_16", "inception_v3", ["-b", "16"]),
                              ("inception_v3_16_bf16", "inception_v3", ["-b", "16", "--amp", "--amp-dtype", "bf16"]),
                              ("googlenet_16", "googlenet", ["-b", "16"])):
        if name not in wanted:
            continue
        command, text, peak = profile_text(model, cores, *more)
        kind = "bf16" if "bf16" in more else "f32"
        if peak:
            known = results["peaks"].get(kind, [0, 0])
            results["peaks"][kind] = [max(known[0], peak[0]), max(known[1], peak[1])]
        if keep and text:
            results["profiles"][name] = {"command": command, "text": text}


def main():
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="3 repetitions, 200 steps of an epoch, fewer cases")
    parser.add_argument("--only", default="", help="names of cases, with commas between")
    parser.add_argument("--repetitions", type=int, default=0, help="default: 5")
    parser.add_argument("--steps", type=int, default=0, help="steps of a large network that are timed; default: 5")
    parser.add_argument("--no-profile", action="store_true", help="keep the tables of operations as they are")
    parser.add_argument("--list", action="store_true", help="show the names of the cases")
    options = parser.parse_args()
    cases = cases_make(cores, options.quick, options.steps)
    if options.list:
        return print("\n".join(cases))
    wanted = options.only.split(",") if options.only else list(cases)
    for name in wanted:
        if name not in cases:
            sys.exit(f"bench_cpu: no case '{name}'; there are: {', '.join(cases)}")
    repetitions = options.repetitions or (3 if options.quick else 5)

    results = results_open()
    results["machine"] = machine(cores)
    results["peaks"] = {} if not options.only else results["peaks"]
    print("peaks of the machine, and profiles ...", flush=True)
    profiles_measure(results, wanted, cores, not options.no_profile)
    for name in wanted:
        title, model, bf16, sides = cases[name]
        peak = results["peaks"].get("bf16" if bf16 else "f32", [0, 0])
        case = {"title": title, "commit": commit_now(), "date": time.strftime("%Y-%m-%d %H:%M"), "macs": macs_of(model),
                "peak_gflops": peak[0], "epoch_steps": 200 if options.quick else 0,
                "commands": {side: s["command"] for side, s in sides.items()}, "runs": {side: [] for side in sides}}
        if model in ("inception_v3", "googlenet"):
            case["epoch_steps"] = 0
        results["cases"] = in_order({**results["cases"], name: case}, cores)
        for repetition in range(repetitions):
            for side, spec in sides.items():
                if any("error" in r for r in case["runs"][side]):
                    continue
                run = run_side(spec)
                case["runs"][side].append(run)
                shown = run.get("error") or f"{digits(run['images_per_sec'])} images/s"
                mark = f"  (others {run['other_cores']:.2f} core)" if run.get("disturbed") else ""
                print(f"{name} {repetition + 1}/{repetitions}  {side:32} {shown}{mark}", flush=True)
            save(results)
    print(f"wrote {TABLE} and {RESULTS}")


if __name__ == "__main__":
    main()
