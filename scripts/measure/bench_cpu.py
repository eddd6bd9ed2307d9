#!/usr/bin/env python3
"""Run the cases of scripts/measure/bench_cpu.sh and write their tables; see there.

usage: bench_cpu.py [--only CASE,...] [--all] [--resume] [--repetitions N] [--steps N] [--no-profile] [--list]

Each case is a list of sides. A repetition measures every side once, in turn; medians are taken over repetitions. A side of Towers is
a new process each time. PyTorch's processes are started, warmed up and compiled once per case and wait for their turns, except those
of DDP and of large networks, whose memory is needed. After the first repetition the fastest of PyTorch's single-process sides is
duplicated with jemalloc, set up as PyTorch's tuning guide advises. A run is marked as disturbed if other processes used more than
0.08 core (or more than 0.05 core was stolen) during it. A marked run is repeated, at most twice as often as there are repetitions;
medians are taken over the same number of unmarked runs of all sides of a case, the first ones, or with fewer than three over all runs,
which the tables show by a star. The files are written after every repetition; --resume keeps the runs of this commit and adds the
missing ones. Cases that were not run keep their earlier results; each records its commit and date. On two idle cores the four cases
of the README take about 25 minutes.

Each kind of processor has a file of results and tables of its own. Those without AVX-512 run other code, in f32 only.
"""
import argparse
import functools
import json
import os
import platform
import re
import resource
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TOWERS = os.environ.get("TOWERS", "build/towers")
TORCH_PYTHON = os.environ.get("TORCH_PYTHON", "/usr/bin/python3")
TENSORFLOW_PYTHON = os.environ.get("TENSORFLOW_PYTHON")
TABLE, README = "docs/results/cpu.md", "README.md"
NARROW = ("SSE41", "AVX", "AVX2", "AVX2_VNNI")  # of ONEDNN_MAX_CPU_ISA, which Towers and PyTorch obey
OTHERS_MAX, STEAL_MAX = 0.08, 0.05
LIMIT_SECONDS = 1800
JEMALLOC_CONF = "oversize_threshold:1,background_thread:true,metadata_thp:auto,dirty_decay_ms:-1,muzzy_decay_ms:-1"

# ---- sides: commands, and how to read their images per second


def torch_side(model, batch, stays=True, **options):
    """`stays`: the process is kept between repetitions."""
    command = [TORCH_PYTHON, "scripts/measure/bench_torch.py", model, "--batch", str(batch)]
    for name, value in options.items():
        command += ["--" + name] if value is True else ["--" + name, str(value)] if value is not False else []
    return {"command": command, "read": "torch", "stays": stays}


def with_jemalloc(side):
    path = library("libjemalloc.so.2")
    return dict(side, environment={**side.get("environment", {}), "LD_PRELOAD": path, "MALLOC_CONF": JEMALLOC_CONF}) if path else None


def library(name):
    found = re.search(re.escape(name) + r" .*=> (\S+)", subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout)
    return found.group(1) if found else None


def train_side(model, batch, towers, threads, steps):
    """An epoch of training from its first step on; like the other sides, without an evaluation."""
    command = [TOWERS, "train", model, "--device", "cpu", "--towers", towers, "--threads", threads, "--global-batch-size", batch,
               "--epochs", 1, "--eval-interval", 0, "--quiet", "--output-dir", "{work}", "--experiment", "run"]
    if steps:
        command += ["--max-steps", steps]
    return {"command": [str(c) for c in command], "read": "epoch"}


def bench_side(model, batch, towers, threads, steps, *more):
    command = [TOWERS, "bench", model, "--device", "cpu", "--towers", towers, "--threads", threads, "--global-batch-size", batch,
               "--batches", steps, "--warmup-batches", 1, "--opt", "momentum", "--lr", 0.01, "--json", *more]
    return {"command": [str(c) for c in command], "read": "bench"}


def towers_sides(make, model, batch, cores, steps, *more):
    sides = {f"towers, 1 tower x {cores} threads": make(model, batch, 1, cores, steps, *more)}
    if cores > 1:
        sides[f"towers, {cores} towers x 1 thread"] = make(model, batch, cores, 1, steps, *more)
    return sides


def shown(side):
    """The command as a user would type it."""
    words = ["python" if word.endswith(("/python", "/python3")) else word for word in side["command"]]
    return [f"{name}={os.path.basename(value)}" for name, value in side.get("environment", {}).items()] + words


def torch_sides(model, batch, cores, **options):
    sides = {}
    for how in ("eager", "compiled"):
        for layout in ("nchw", "nhwc"):
            sides[f"PyTorch {how}, {layout}"] = torch_side(model, batch, threads=cores, layout=layout, compile=how == "compiled", **options)
    if cores > 1:
        ddp = torch_side(model, batch, stays=False, threads=1, processes=cores, **options)
        sides[f"PyTorch DDP, {cores} processes"] = ddp
        if with_jemalloc(ddp):
            sides[f"PyTorch DDP, {cores} processes, jemalloc"] = with_jemalloc(ddp)
    return sides


def tensorflow_sides(model, batch, cores, **options):
    """Sides of TensorFlow, which is asked for only if a case needs it: it is large."""
    if not TENSORFLOW_PYTHON:
        return {}
    sides = {}
    for replicas in sorted({1, cores}):
        side = torch_side(model, batch, threads=cores, replicas=replicas, **options)
        side["command"][:2] = [TENSORFLOW_PYTHON, "scripts/measure/bench_tensorflow.py"]
        sides["TensorFlow" + (f", MirroredStrategy of {replicas}" if replicas > 1 else "")] = side
    return sides


def small_case(model, batch, cores, steps, ours):
    """Part of a real epoch of a small network; `ours`: steps of Towers, which runs without warm-up, 0: a whole epoch."""
    return {**towers_sides(train_side, model, batch, cores, ours), **torch_sides(model, batch, cores, steps=steps, warmup=10)}


def large_case(model, batch, cores, steps, bf16):
    more = ["--amp", "--amp-dtype", "bf16"] if bf16 else []
    return {**towers_sides(bench_side, model, batch, cores, steps, *more),
            **torch_sides(model, batch, cores, steps=steps, warmup=1, bf16=bf16)}


README_CASES = ("fashion_cnn", "inception_mini", "inception_v3_16", "inception_v3_16_bf16")


def cases_make(cores, steps):
    """name: (title, model, bf16, steps, sides). `steps`: timed steps per run; 0: the usual number."""
    cases = {}
    for name, model, batch, usual, ours, how in (("fashion_cnn", "fashion_cnn", 64, 200, 0, "Adam"),
                                                 ("inception_mini", "inception_mini", 64, 80, 300, "SGD with Nesterov momentum"),
                                                 ("fashion_cnn_128", "fashion_cnn", 128, 100, 0, "Adam")):
        sides = small_case(model, batch, cores, steps or usual, steps or ours)
        cases[name] = (f"{model}, batch {batch}, f32, {how}", model, False, steps or usual, sides)
    for batch in (16, 8):
        for bf16 in (False, True):
            name = f"inception_v3_{batch}" + ("_bf16" if bf16 else "")
            dtype = ("bf16 on AMX" if has_amx() else "bf16") if bf16 else "f32"
            sides = large_case("inception_v3", batch, cores, steps or 2, bf16)
            title = f"inception_v3, 299x299, batch {batch}, aux, {dtype}, SGD with momentum"
            cases[name] = (title, "inception_v3", bf16, steps or 2, sides)
    cases["tutorial"] = (f"the tutorial's loop: fashion_cnn, batch {64 * cores}, f32, Adam", "fashion_cnn", False, steps or 200,
                         {**towers_sides(train_side, "fashion_cnn", 64 * cores, cores, steps),
                          **tensorflow_sides("fashion_cnn", 64 * cores, cores, steps=steps or 200, warmup=10)})
    for bf16 in (False, True):
        more = ["--amp", "--amp-dtype", "bf16"] if bf16 else []
        cases["keras_v3" + ("_bf16" if bf16 else "")] = (
            f"InceptionV3 of keras.applications, 299x299, batch 16, {'bf16' if bf16 else 'f32'}, SGD with momentum", "inception_v3", bf16,
            steps or 2, {**towers_sides(bench_side, "inception_v3", 16, cores, steps or 2, "--no-aux", *more),
                         **tensorflow_sides("inception_v3", 16, cores, steps=steps or 2, warmup=1, bf16=bf16)})
    cases["googlenet_16"] = ("googlenet, 224x224, batch 16, aux, f32, SGD with momentum", "googlenet", False, steps or 2,
                             large_case("googlenet", 16, cores, steps or 2, False))
    return cases


def in_order(found, cores):
    names = list(cases_make(cores, 0))
    return dict(sorted(found.items(), key=lambda item: names.index(item[0]) if item[0] in names else len(names)))


# ---- a single run


def ticks():
    """Busy and stolen seconds of all cores since boot."""
    with open("/proc/stat") as file:
        v = [int(x) / os.sysconf("SC_CLK_TCK") for x in file.readline().split()[1:9]]
    return v[0] + v[1] + v[2] + v[5] + v[6], v[7]


def cpu_of_ours():
    """Processor seconds of this process and its descendants, running or ended."""
    used = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    total = sum(u.ru_utime + u.ru_stime for u in used)
    parent, spent = {}, {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parent[int(pid)], spent[int(pid)] = int(fields[1]), sum(map(int, fields[11:15]))
    for pid in spent:
        above = parent[pid]
        while above in parent and above != os.getpid():
            above = parent[above]
        if above == os.getpid():
            total += spent[pid] / os.sysconf("SC_CLK_TCK")
    return total


def environment_of(side):
    env = dict(os.environ, OPENBLAS_NUM_THREADS="1", **side.get("environment", {}))
    for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):  # each side uses its own defaults
        env.pop(name, None)
    return env


class Server:
    """A side of PyTorch that is warmed up and measures on request."""

    def __init__(self, side):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([*side["command"], "--serve"], env=environment_of(side), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.version = self.answer()["version"]

    def answer(self):
        while select.select([self.process.stdout], [], [], LIMIT_SECONDS)[0]:
            line = self.process.stdout.readline()
            if line.startswith("{"):
                return json.loads(line)
            if not line:
                break
        self.errors.seek(0)
        text = self.errors.read().strip()[-400:]
        self.close()
        raise RuntimeError(f"exit {self.process.returncode}: {text}")

    def measure(self, what="images_per_sec"):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.answer()[what]

    def close(self):
        try:
            self.process.stdin.close()
            self.process.wait(60)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


def once(side):
    """One measurement of a side that is a new process each time."""
    work = tempfile.mkdtemp(prefix="bench-")
    try:
        command = [c.replace("{work}", work) for c in side["command"]]
        done = subprocess.run(command, env=environment_of(side), capture_output=True, text=True, timeout=LIMIT_SECONDS)
        if done.returncode:
            raise RuntimeError(f"exit {done.returncode}: {done.stderr.strip()[-400:]}")
        if side["read"] == "epoch":
            with open(os.path.join(work, "run", "results.csv")) as file:
                rows = [line.rstrip("\n").split(",") for line in file]
            return float(dict(zip(rows[0], rows[-1]))["images_per_sec"])
        text = [line for line in done.stdout.splitlines() if line.startswith("{")][-1]
        return float(json.loads(text)["images_per_sec"])
    finally:
        shutil.rmtree(work, ignore_errors=True)


def run_side(name, side, servers):
    try:
        if side.get("stays") and name not in servers:
            servers[name] = Server(side)
        (busy, steal), mine = ticks(), cpu_of_ours()
        load, start = os.getloadavg()[0], time.perf_counter()
        speed = servers[name].measure() if side.get("stays") else once(side)
        seconds, cpu = time.perf_counter() - start, cpu_of_ours() - mine
        others = max(0.0, ticks()[0] - busy - cpu) / seconds
        stolen = (ticks()[1] - steal) / seconds
        return {"images_per_sec": speed, "seconds": round(seconds, 2), "cpu_seconds": round(cpu, 2), "load": load,
                "other_cores": round(others, 3), "stolen_cores": round(stolen, 3),
                "disturbed": others > OTHERS_MAX or stolen > STEAL_MAX}
    except (OSError, RuntimeError, subprocess.TimeoutExpired, IndexError, KeyError, ValueError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


# ---- the machine


def generation_of(cpuinfo):
    """What the vendor calls this family and model, as virtual machines often hide the product's name; "" if it is not known."""
    found = {name: re.search(rf"^{name}\s*: (.*)$", cpuinfo, re.M) for name in ("vendor_id", "cpu family", "model")}
    if not all(found.values()) or found["vendor_id"][1] not in ("AuthenticAMD", "GenuineIntel"):
        return ""
    vendor, family, model = found["vendor_id"][1], int(found["cpu family"][1]), int(found["model"][1])
    if vendor == "AuthenticAMD":
        zen4 = model in range(0x10, 0x20) or model in range(0x60, 0x80) or model in range(0xa0, 0xb0)
        return {23: "Zen 2" if model >= 0x30 else "Zen", 25: "Zen 4" if zen4 else "Zen 3", 26: "Zen 5" if model < 0x50 or model in range(0x60, 0x80) else ""}.get(family, "")
    intel = {106: "Ice Lake", 143: "Sapphire Rapids", 173: "Granite Rapids", 207: "Emerald Rapids"}
    return intel.get(model, "") if family == 6 else ""


def machine(cores):
    with open("/proc/cpuinfo") as file:
        cpuinfo = file.read()
    model = re.search(r"model name\s*: (.*)", cpuinfo)
    with open("/proc/meminfo") as file:
        memory = int(file.readline().split()[1]) / 2**20
    versions = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}, ", "libdnnl2", "libdnnl3", "gcc"],
                              capture_output=True, text=True).stdout.strip(", ")
    return {"cpu": model[1] if model else platform.machine(), "generation": generation_of(cpuinfo), "cores": cores, "memory_gib": round(memory, 1),
            "kernel": platform.release(), "avx512": has_avx512(), "amx": has_amx(), "isa": os.environ.get("ONEDNN_MAX_CPU_ISA"),
            "versions": f"{versions}, PyTorch {torch_name()}"}


def has_avx512():
    with open("/proc/cpuinfo") as file:
        return " avx512bw" in file.read() and os.environ.get("ONEDNN_MAX_CPU_ISA", "") not in NARROW


def kind_of(results):
    """Names the tables of a kind of processors."""
    return f" on {cpu_of(results['machine'])}{limits(results['machine'])}"


def cpu_of(m):
    name = re.sub(r"\((R|TM)\)| Processor| CPU.*| @.*", "", m["cpu"])
    return f"{name} {m['generation']}" if m.get("generation") else name


def limits(m):
    """What sets the kernels of a machine apart from those of AVX-512."""
    return " with AMX" if m.get("amx") else "" if m.get("avx512", True) else " without AVX-512"


def results_path(kind, what="cpu"):
    return f"docs/results/{what}-{kind.removeprefix(' on ').lower().replace(' ', '-')}.json"


def has_amx():
    with open("/proc/cpuinfo") as file:
        return " amx_bf16" in file.read() and "ONEDNN_MAX_CPU_ISA" not in os.environ


@functools.cache
def version_of(python, package):
    """The installed version of PyTorch or TensorFlow."""
    done = subprocess.run([python, "-c", f"from importlib.metadata import version; print(version('{package}'))"],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"bench_cpu: {python} has no {package}: {done.stderr.strip()[-300:]}")
    return done.stdout.strip().split("+")[0]


def torch_name():
    return version_of(TORCH_PYTHON, "torch")


def torch_version():
    return tuple(int(n) for n in torch_name().split(".")[:2])


def commit_now():
    """The commit that is measured; "+" if there are changes."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    code = ["inception", "towers", "nccl_sync", "kernels", "scripts"]
    return commit + ("+" if subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *code]).returncode else "")


def profile_text(model, cores, *more):
    command = [TOWERS, "bench", model, "--device", "cpu", "--towers", "1", "--threads", str(cores), "--batches", "3",
               "--warmup-batches", "1", "--profile", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    text = done.stdout[done.stdout.find(f"\n{model}, batch"):] if done.returncode == 0 else ""
    peak = re.search(r"machine peak: (\d+) GFLOP/s \(matrix product\), ([\d.]+) GB/s", text)
    return command, text.strip(), (float(peak.group(1)), float(peak.group(2))) if peak else None


def macs_of(model):
    done = subprocess.run([TOWERS, "info", model], capture_output=True, text=True)
    found = re.search(r"total, forward pass of one image\s+\d+\s+(\d+)", done.stdout)
    return int(found.group(1)) if found else sys.exit(f"bench_cpu: towers info {model} prints no multiply-adds: {done.stderr}")


# ---- tables


CLEAN_LEAST, STAR = 3, " \\*"


def clean(runs):
    return [r for r in runs if "error" not in r and not r["disturbed"]]


def summaries(case):
    """{side: median, range and number of its runs}: as many undisturbed ones of every side that has enough."""
    enough = [len(clean(runs)) for runs in case["runs"].values() if len(clean(runs)) >= CLEAN_LEAST]
    return {side: summary(clean(runs)[:min(enough)] if len(clean(runs)) >= CLEAN_LEAST else runs) for side, runs in case["runs"].items()}


def summary(runs):
    speeds = [r["images_per_sec"] for r in runs if "error" not in r]
    if not speeds:
        return None
    return {"median": statistics.median(speeds), "min": min(speeds), "max": max(speeds), "runs": len(speeds),
            "disturbed": len(clean(runs)) < CLEAN_LEAST}


def digits(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spread(s):
    """Median and range in the README's table."""
    runs = f"{digits(s['min'])} to {digits(s['max'])}" if s["runs"] > 1 else "one run"
    return f"{digits(s['median'])}{STAR if s['disturbed'] else ''} ({runs})"


def best(sums, begin):
    """Name and median of the fastest side whose name starts with a prefix."""
    found = [(s["median"], name) for name, s in sums.items() if s and name.startswith(begin)]
    return max(found)[::-1] if found else (None, 0)


def peer_name(case):
    return "TensorFlow" if "TensorFlow" in case["runs"] else "PyTorch"


def case_table(case):
    sums = summaries(case)
    name = peer_name(case)
    peer = best({n: s for n, s in sums.items() if "DDP" not in n}, name)[1]
    single = best(sums, "towers, 1 tower")[1]
    part = f" (runs of {case['steps']} warm steps for {name})" if case.get("steps") else ""
    lines = [f"**{case['title']}**{part}; commit {case['commit']}, {case['date']}, {name} {case.get('torch', '1.13.1')}", "",
             f"| side | images/s, median | range | runs | to {name}'s best | to 1 tower | GFLOP/s | % of peak |",
             "|---|---:|---:|---:|---:|---:|---:|---:|"]
    for name, s in sums.items():
        if not s:
            error = case["runs"][name][-1].get("error", "not run") if case["runs"][name] else "not run"
            lines.append(f"| {name} | failed: {' '.join(error.split())[:80]} | | | | | | |")
            continue
        ratio = f"{s['median'] / peer:.2f}" if peer else ""
        own = f"{s['median'] / single:.2f}" if single and name.startswith("towers") else ""
        gflops = s["median"] * 6e-9 * case["macs"]
        share = f"{100 * gflops / case['peak_gflops']:.0f}" if case["peak_gflops"] else ""
        lines.append(f"| {name} | {digits(s['median'])}{' *' if s['disturbed'] else ''} | {digits(s['min'])}-{digits(s['max'])} | "
                     f"{s['runs']} | {ratio} | {own} | {gflops:.0f} | {share} |")
    return lines + [""]


def readme_lines(results):
    """The table of the README: the best of each side."""
    names = [name for name in README_CASES if results["machine"].get("avx512", True) or "bf16" not in name]
    cases = {name: results["cases"][name] for name in names if name in results["cases"]}
    if len(cases) < len(names) or len({case.get("torch") for case in cases.values()}) > 1 or \
       not all("PyTorch eager, nhwc" in case["runs"] for case in cases.values()):
        return None  # rows differ in PyTorch's version
    lines, without = ["| | batch | images/s | PyTorch | | DDP | |", "|---|---:|---:|---:|---:|---:|---:|"], []
    for name, case in cases.items():
        sums = summaries(case)
        ours = best(sums, "towers")
        peer, ddp = best({n: s for n, s in sums.items() if "DDP" not in n}, "PyTorch"), best(sums, "PyTorch DDP")
        if not ours[0] or not peer[0]:
            continue
        if not any(s for side, s in sums.items() if side.endswith("jemalloc") and "DDP" not in side):
            without.append(f"{case['title'].split(',')[0]} in {'bf16' if 'bf16' in name else 'f32'}")
        what, batch = case["title"].split(", batch ")
        dtype = "bf16" if "bf16" in name else "f32"
        how = peer[0].replace("PyTorch ", "")
        beside = f"{spread(sums[ddp[0]])} | {ours[1] / ddp[1]:.1f}x" if ddp[0] else "|"
        what = what.replace("inception_v3", "`inception_v3`").replace("fashion_cnn", "`fashion_cnn`")
        what = what.replace("inception_mini", "`inception_mini`")
        lines.append(f"| {what}, {dtype} | {batch.split(',')[0]} | {spread(sums[ours[0]])} | {spread(sums[peer[0]])}, {how} | "
                     f"{ours[1] / peer[1]:.1f}x | {beside} |")
    first = next(iter(cases.values()))
    commits = list(dict.fromkeys(case["commit"] for case in cases.values()))
    at = f"commit{'s' * (len(commits) > 1)} {', '.join(commits)}"
    cpu = cpu_of(results["machine"]) + limits(results["machine"])
    star = f" (`*`: fewer than {CLEAN_LEAST} runs undisturbed by other programs)" if any(STAR in line for line in lines) else ""
    return [f"Against PyTorch {first['torch']}, its best of eager and `torch.compile`, of two memory layouts, with and without jemalloc"
            f"{' (without only: ' + ', '.join(without) + ')' if without else ''}, and against DDP with a process for each core, on "
            f"{results['machine']['cores']} cores of an {cpu} at {at}; medians, and the slowest to the fastest run"
            f"{star}:", "", *lines]


def machine_text(m):
    limit = f", oneDNN's kernels and those of Towers limited to {m['isa']} by ONEDNN_MAX_CPU_ISA" if m.get("isa") else ""
    generation = f" ({m['generation']})" if m.get("generation") else ""
    return f"{m['cpu']}{generation}{limit}, {m['cores']} cores, {m['memory_gib']} GiB, Linux {m['kernel']}; {m['versions']}"


def tables(results):
    m = results["machine"]
    lines = [f"{machine_text(m)}; {'with' if m.get('amx') else 'without'} AMX{'' if m.get('avx512', True) else ' and AVX-512'}.", ""]
    if results["peaks"]:
        lines += ["Measured peaks: " + "; ".join(f"{kind}: {p[0]:.0f} GFLOP/s (matrix product), {p[1]:.1f} GB/s (copy)"
                                                 for kind, p in results["peaks"].items()) + ".", ""]
    for case in results["cases"].values():
        lines += case_table(case)
    if any((s or {}).get("disturbed") for case in results["cases"].values() for s in summaries(case).values()):
        lines += [f"`*` fewer than {CLEAN_LEAST} runs undisturbed by other programs, so these numbers are less reliable.", ""]
    lines += ["GFLOP/s count 6 operations for each multiply-add of the forward pass of an image, whatever algorithm is used.", "",
              "<details><summary>The commands</summary>", "", "```"]
    for case in results["cases"].values():
        lines += [" ".join(command) for command in case["commands"].values()] + [""]
    return lines[:-1] + ["```", "", "</details>"]


def between(text, title, name, lines, script="bench_cpu"):
    """Replace the text between the markers of `name`; append a section of that title for this processor if they are missing."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    if begin not in text:
        text = text.rstrip("\n") + f"\n\n## {title}{name[name.index(' on '):]}\n\nBy `scripts/{script}.sh`.\n\n{begin}\n{end}\n"
    return text[: text.index(begin)] + "\n".join([begin, *lines, end]) + text[text.index(end) + len(end):]


def save(results):
    kind = kind_of(results)
    path = results_path(kind)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
    os.replace(path + ".new", path)
    with open(TABLE) as file:
        text = file.read()
    text = between(text, "Training beside PyTorch", f"cpu{kind}", tables(results))
    if results["profiles"]:
        lines = []
        for profile in results["profiles"].values():
            lines += [f"<details><summary>{profile['text'].splitlines()[0]}</summary>", "", f"`{' '.join(profile['command'])}`", "",
                      *profile["text"].splitlines()[1:], "", "</details>", ""]
        text = between(text, "Time per kind of operation", f"cpu profiles{kind}", lines[:-1])
    with open(TABLE + ".new", "w") as file:
        file.write(text)
    os.replace(TABLE + ".new", TABLE)
    lines = readme_lines(results)
    if lines and not limits(results["machine"]):
        subprocess.run(["scripts/pages/fill_section.sh", README, "speed"], input="\n".join(lines) + "\n", text=True, check=True)


# ---- the comparison


def results_open(kind):
    try:
        with open(results_path(kind)) as file:
            return json.load(file)
    except (OSError, ValueError):
        return {"cases": {}, "peaks": {}, "profiles": {}}


def peaks_settle(results):
    """The machine's peaks are the best of its profiles, for all cases: each profile measures them, on a machine that others may use."""
    for name, profile in results["profiles"].items():
        found = re.search(r"machine peak: (\d+) GFLOP/s \(matrix product\), ([\d.]+) GB/s", profile["text"])
        kind = "bf16" if "bf16" in name else "f32"
        if found:
            peak, known = [float(found[1]), float(found[2])], results["peaks"].get(kind, [0, 0])
            results["peaks"][kind] = [max(peak[0], known[0]), max(peak[1], known[1])]
    for name, case in results["cases"].items():
        case["peak_gflops"] = results["peaks"].get("bf16" if "bf16" in name else "f32", [0])[0]


def profiles_measure(results, wanted, cores):
    """Measure the machine's peaks and the time of every kind of operation."""
    for name, model, more in (("fashion_cnn", "fashion_cnn", []), ("inception_mini", "inception_mini", []),
                              ("inception_v3_16", "inception_v3", ["-b", "16"]),
                              ("inception_v3_16_bf16", "inception_v3", ["-b", "16", "--amp", "--amp-dtype", "bf16"]),
                              ("googlenet_16", "googlenet", ["-b", "16"])):
        command, text, _ = profile_text(model, cores, *more) if name in wanted else ("", "", None)
        if text:
            results["profiles"][name] = {"command": command, "text": text}
    results["peaks"] = {}
    peaks_settle(results)


def case_open(results, name, spec, options):
    """The record of a case: a new one, or with --resume the runs of this commit."""
    title, model, bf16, steps, sides = spec
    peak = results["peaks"].get("bf16" if bf16 else "f32", [0, 0])
    peer = version_of(TENSORFLOW_PYTHON, "tensorflow-cpu") if "TensorFlow" in sides else torch_name()
    case = {"title": title, "commit": commit_now(), "torch": peer, "date": time.strftime("%Y-%m-%d %H:%M"),
            "macs": macs_of(model), "peak_gflops": peak[0],
            "steps": steps,
            "commands": {side: shown(s) for side, s in sides.items()}, "runs": {side: [] for side in sides}}
    known = results["cases"].get(name, {})
    if options.resume and (known.get("commit"), known.get("torch")) == (case["commit"], case["torch"]):
        case["runs"].update({side: [r for r in runs if "error" not in r] for side, runs in known["runs"].items()})
        case["commands"].update(known["commands"])
    return case


def add_jemalloc(case, sides):
    """A copy with jemalloc of the fastest of the peer's single-process sides."""
    sums = {name: s for name, s in summaries(case).items() if "DDP" not in name}
    name = best(sums, peer_name(case))[0]
    if not name or any("jemalloc" in side for side in sums):
        return
    side = with_jemalloc(sides[name])
    if side:
        sides[name + ", jemalloc"] = side
        case["runs"][name + ", jemalloc"], case["commands"][name + ", jemalloc"] = [], shown(side)


def left_behind(case, side, share):
    """Whether a side, or the eager one of its layout, has reached less than this share of the fastest of its program, undisturbed."""
    speed = {s: max((r["images_per_sec"] for r in clean(runs)), default=0) for s, runs in case["runs"].items()}
    fastest = max(speed[s] for s in speed if s.split(" ")[0] == side.split(" ")[0])
    return any(0 < speed.get(s, 0) < share * fastest for s in (side, side.replace("compiled", "eager")))


def case_run(results, name, case, sides, repetitions, save=save, share=0):
    """`share`: sides that are left behind (see above) are not measured again, nor compiled."""
    servers = {}
    for known in case["runs"]:  # from an earlier call
        if known not in sides and known.removesuffix(", jemalloc") in sides:
            sides[known] = with_jemalloc(sides[known.removesuffix(", jemalloc")])
    try:
        for round_ in range(2 * repetitions + 1):
            for side in list(sides):
                runs = case["runs"][side]
                if len(runs) > round_ or len(runs) >= 2 * repetitions or len(clean(runs)) >= repetitions or any("error" in r for r in runs):
                    continue
                if left_behind(case, side, share):
                    continue
                run = run_side(side, sides[side], servers)
                runs.append(run)
                shown = run.get("error") or f"{digits(run['images_per_sec'])} images/s"
                mark = f"  (others {run['other_cores']:.2f} core)" if run.get("disturbed") else ""
                print(f"{name} {len(runs)}/{repetitions}  {side:36} {shown}{mark}", flush=True)
            add_jemalloc(case, sides)
            save(results)
    finally:
        for server in servers.values():
            server.close()


def main():
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="names of cases, separated by commas; default: those of the README")
    parser.add_argument("--all", action="store_true", help="all cases")
    parser.add_argument("--resume", action="store_true", help="keep the runs of this commit and add the missing ones")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--steps", type=int, default=0, help="timed steps per run; default: depends on the network")
    parser.add_argument("--no-profile", action="store_true", help="keep the tables of peaks and operations")
    parser.add_argument("--list", action="store_true", help="show the names of the cases")
    options = parser.parse_args()
    cases = cases_make(cores, options.steps)
    if not has_avx512():
        cases = {name: case for name, case in cases.items() if "bf16" not in name}
    if options.list:
        return print("\n".join(cases))
    wanted = options.only.split(",") if options.only else list(cases) if options.all else [name for name in README_CASES if name in cases]
    for name in wanted:
        if name not in cases:
            sys.exit(f"bench_cpu: unknown case '{name}'; use one of {', '.join(cases)}")

    found = machine(cores)
    results = results_open(kind_of({"machine": found}))
    results["machine"] = found
    if torch_version() < (2, 0):
        for *_, sides in cases.values():
            for side in [side for side in sides if "compiled" in side]:
                del sides[side]
    if not options.no_profile and not (options.resume and results["peaks"]):
        print("peaks of the machine, and profiles ...", flush=True)
        profiles_measure(results, wanted, cores)
    for name in wanted:
        case = case_open(results, name, cases[name], options)
        results["cases"] = in_order({**results["cases"], name: case}, cores)
        case_run(results, name, case, cases[name][4], options.repetitions)
    print(f"wrote {TABLE}, {results_path(kind_of(results))} and the table of {README}")


if __name__ == "__main__":
    main()
