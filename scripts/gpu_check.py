#!/usr/bin/env python3
"""The parts of scripts/gpu_check.sh: run checks and measurements on a GPU and write the results as JSON.

gpu_check.py --build DIR --data DIR --out DIR [--dry-run] PART...      runs parts (PLAN)
gpu_check.py torch --network N --dtype D --batch N --steps N [--ahead]  one PyTorch measurement, JSON on standard output
gpu_check.py whole --driver PROGRAM --side N --steps N TYPE...         one network against PyTorch in types, JSON on standard output
gpu_check.py loss --driver PROGRAM --dtype D                           its loss on ten batches, likewise

A part has steps, of which each says how many seconds it takes. A file is replaced as a whole after every result, so earlier results
survive any failure, and a later call (--continue) goes on behind the last step that was finished. Every program has a time limit; if it is
stopped, the part's file says so, and what it had printed counts. Every part has a time budget that fits one call on a machine that
is rented for ten minutes; with --total, all of them together have one. The tables are made anew after each part.
"""

import argparse
import glob
import hashlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(SCRIPTS, "parity"), os.path.join(SCRIPTS, "measure")]  # fidelity; gpu_watch, gpu_counters, bench_torch

import gpu_counters  # noqa: E402
import gpu_watch  # noqa: E402

# Seconds of each part on an H200, by the time that its programs took there or, where none did, by arithmetic: `took` in the results says
# what they really take. With --total, a part begins what fits into its seconds and those that earlier parts have left; what is then left of
# the whole goes to what was left out, in the same order. So what comes last here is cut first. A call of 560 s: 90 to build, 20 until the
# first answer of the driver, then bench to counters (439). A second call of 150 s on the same machine need not build: 5 until the driver's
# answer, models (75), batches (44), and what fits of loss and compile. PyTorch compiles its networks in the second half of part nccl, where
# no time is taken.
PLAN = {"bench": 47, "nccl": 240, "ops": 62, "profile": 20, "counters": 70, "models": 75, "batches": 44, "loss": 30, "compile": 65,
        "resume": 60, "model": 330, "scale": 480}  # fmt: skip
MOST = 540  # of a part alone
AMP = {"f32": [], "tf32": ["--amp", "--amp-dtype", "tf32"], "bf16": ["--amp", "--amp-dtype", "bf16"], "f16": ["--amp", "--amp-dtype", "fp16"]}
HALF = {"f16": "float16", "bf16": "bfloat16"}  # PyTorch's names
LAYOUTS = ("contiguous", "channels_last")  # of fidelity.pytorch_singles
F32_STEP = 2.0**-23
OVERHEAD_MIB = 1536  # memory of driver and libraries, not counted in memory.json
STEPS = 150  # some seconds each: NVML measures power once a second
TORCH_STEPS = 50
WARM, COLD = 40, 130  # seconds of PyTorch for one network and batch, with and without what its compiler has in the cache
# A program and its children end together; in the session of this script, so that whatever ends that session takes them along.
GROUP = {"process_group": 0} if sys.version_info >= (3, 11) else {"start_new_session": True}
LOST = re.compile(r"the device is lost after (\w+) in (\w+)")  # tests/unit/test_ops.c


def commit_now():
    """The commit that is measured, "+" if there are changes: git's, or in a copy without it what scripts/gpu_bundle.sh left; else None."""
    root = os.path.dirname(SCRIPTS)
    try:
        return subprocess.run(["git", "-C", root, "describe", "--always", "--dirty=+", "--exclude=*"], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        pass
    try:
        with open(os.path.join(root, "third_party", "bundle", "commit"), encoding="utf-8") as file:
            return file.read().strip() or None
    except OSError:
        return None


class Part:
    """Results of a part, and the seconds it has left."""

    def __init__(self, args, name, seconds):
        self.args, self.name = args, name
        self.path = os.path.join(args.out, name + ".json")
        self.until = time.monotonic() + seconds
        self.step_now, self.cut, self.ran = None, False, None
        self.result = {"part": name, "device": args.device, "commit": args.commit, "started": time.strftime("%Y-%m-%d %H:%M:%S"), "seconds": round(seconds), "results": [], "problems": [],
                       "took": {}, "unfinished": {}, "left_out": []}
        earlier = args.earlier.get(name)
        if earlier:
            kept = {key: earlier[key] for key in earlier if key not in ("seconds", "left_out", "complete")}
            self.result.update(kept, **({} if args.last_turn else {"continued": self.result["started"]}))

    def save(self):
        if self.args.dry_run:
            return
        with open(self.path + ".new", "w", encoding="utf-8") as file:
            json.dump(self.result, file, indent=1)
            file.write("\n")
        os.replace(self.path + ".new", self.path)
        pack(self.args)

    def step(self, key, seconds, work, *words):
        """One thing to do, which takes so many seconds. What an earlier call has finished is not done again; what does not fit is left out,
        so that a shorter one behind it is not. A step that time has cut off is begun again by the next call."""
        if key in self.result["took"]:
            return
        self.result["left_out"] = [text for text in self.result["left_out"] if not text.startswith(key + ": ")]
        left, begun = self.until - time.monotonic(), time.monotonic()
        if self.args.dry_run:
            print(f"  {key} ({seconds} s)", flush=True)
        elif self.args.total and left < (seconds / 2 if self.args.last_turn else seconds):
            self.leave_out(f"{key}: no time left for its {seconds} s")
            return
        self.step_now, self.cut = key, False
        self.result["unfinished"].pop(key, None)
        self.result["results"] = [row for row in self.result["results"] if row.get("step") != key]
        try:
            work(*words)
        except Exception:  # what fails in one step is no reason to leave out the others
            self.problem("the script itself failed: " + traceback.format_exc()[-1500:])
        if not self.cut:
            self.result["problems"] += self.result["unfinished"].pop(key, [])
            self.result["took"][key] = round(time.monotonic() - begun, 1)
        self.step_now = None
        self.save()

    def left_to_do(self, keys):
        return [key for key in keys if key not in self.result["took"]]

    def leave_out(self, text):
        self.result["left_out"].append(text)
        self.save()

    def add(self, row):
        self.result["results"].append({**row, "step": self.step_now} if self.step_now else row)
        self.save()
        print("  " + ", ".join(f"{key} {value}" for key, value in row.items() if not isinstance(value, (list, dict)) and len(str(value)) < 80), flush=True)

    def clock(self):
        """Clocks, power and what slowed the GPU down, under the load of the last program."""
        return self.args.watch.between(*self.ran) if self.args.watch and self.ran else {}

    def problem(self, text):
        """Of a step that is not finished, it counts until that begins again."""
        if self.step_now:
            self.result["unfinished"].setdefault(self.step_now, []).append(text)
        elif text not in self.result["problems"]:
            self.result["problems"].append(text)
        self.save()
        print("  PROBLEM: " + text, flush=True)

    def run(self, command, limit=None, env=None):
        """Run a program and its children within the remaining time. Returns None if it did not start; if it was stopped, exit code
        124 and the output so far. A dry run only prints the command."""
        left = self.until - time.monotonic()
        ends_first = limit is None or left < limit
        limit = min(limit or left, left)
        if self.args.dry_run:
            print("  would run: " + " ".join(command), flush=True)
            return None
        if limit < 2:
            self.cut = True
            self.leave_out((self.step_now + ": " if self.step_now else "") + "no time left for: " + brief(command))
            return None
        begun = time.monotonic()
        try:
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", env=env, **GROUP)
        except OSError as error:
            self.problem(f"{command[0]}: {error}")
            return None
        code = None
        try:
            out, err = child.communicate(timeout=limit)
            code = child.returncode
        except subprocess.TimeoutExpired:
            pass
        finally:  # also its children, which would keep the pipes and the GPU open
            end_group(child.pid)
        if code is None:
            out, err = leftovers(child)
            code = 124
            self.cut |= ends_first
        self.ran = begun, time.monotonic()
        if code:
            lines = ((err or "").strip() or (out or "").strip()).splitlines()
            what = f"cut off after {limit:.0f} s" if code == 124 else f"exit {code}"
            self.problem(f"{what}: {brief(command)}: " + " | ".join(lines[-6:])[-1500:])
        return subprocess.CompletedProcess(command, code, out or "", err or "")


def pack(args):
    """All results in one file, to fetch it at once."""
    if not args.pack:
        return
    with tarfile.open(args.pack + ".new", "w") as tar:
        for path in sorted(glob.glob(args.out + "/*.json") + glob.glob(args.out + "/*.txt") + glob.glob(args.out + "/*.md")):
            tar.add(path, os.path.basename(path))
    os.replace(args.pack + ".new", args.pack)


def brief(command):
    """Without the folders of this machine."""
    return " ".join(os.path.basename(word) for word in command)


class MemoryWatch:
    """The peak memory of the first GPU while a program ran, above that before it started."""

    ASK = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"]

    def __init__(self, args):
        self.most, self.over = None, threading.Event()
        self.before = None if args.dry_run else self.taken()
        self.thread = threading.Thread(target=self.watch)

    def taken(self):
        try:
            return int(subprocess.run(self.ASK, capture_output=True, text=True, check=True, timeout=10).stdout.split()[0])
        except (OSError, ValueError, IndexError, subprocess.SubprocessError):
            return None

    def watch(self):
        while not self.over.wait(0.2):
            now = self.taken()
            if now is not None:
                self.most = max(self.most or 0, now - self.before)

    def __enter__(self):
        if self.before is not None:
            self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        if self.before is not None:
            self.thread.join()


def cleanliness(done):
    """A sanitizer that was stopped has found nothing so far; that is not a pass."""
    return "yes" if done.returncode == 0 else "cut off" if done.returncode == 124 else "no"


def leftovers(child):
    """What a stopped program had printed. A child of its own session may live on and hold the pipes."""
    try:
        return child.communicate(timeout=3)
    except subprocess.TimeoutExpired as late:
        return tuple(text.decode(errors="replace") if isinstance(text, bytes) else text for text in (late.output, late.stderr))


def end_group(leader):
    try:
        os.killpg(leader, signal.SIGKILL)
    except OSError:
        pass


def tail_json(text):
    """The last line that is a JSON object."""
    for line in reversed(text.strip().splitlines()):
        if line.startswith("{"):
            try:
                return json.loads(line)
            except ValueError:
                return None
    return None


# ---- ops


OP_LINE = re.compile(r"^\s+cuda (\S+)\s+(\S+)\s+(\d+) rows\s+(\d+) runs\s+max error (\S+) \(\s*(\d+|inf|-?nan) % of allowed\)(?:, (\d+) unsupported)?")


def op_rows(text):
    for line in text.splitlines():
        found = OP_LINE.match(line)
        if found:
            dtype, op, rows, runs, error, share, unsupported = found.groups()
            yield {"dtype": dtype, "op": op, "rows": int(rows), "runs": int(runs), "max_error": error if error[-1] in "nf" else float(error),
                   "percent_of_allowed": int(share) if share.isdigit() else share, "unsupported": int(unsupported or 0)}


NEWEST = "conv_dw,conv,conv_dx,batchnorm,batchnorm_dx"  # ops whose kernels change most, which are tried first


def every_op(part, program, env, ops=""):
    """All cases. A kernel that breaks the device (a bad address) fails the remaining cases of its process; they run again without it."""
    killers, known = [], {}
    for _ in range(6):
        done = part.run([program], 75, dict(env, TOWERS_TEST_NOT=",".join(killers), **({"TOWERS_TEST_OP": ops} if ops else {})))
        if not done:
            return
        for row in op_rows(done.stdout):
            known[row["dtype"], row["op"]] = row
        lost = LOST.search(done.stderr + done.stdout)
        part.result["passed"] = "no" if killers or part.result.get("passed") == "no" else cleanliness(done)
        if done.returncode:
            part.result.setdefault("logs", []).append((done.stdout + done.stderr)[-8000:])
        if not lost or lost.group(1) in killers:
            break
        killers.append(lost.group(1))
        part.problem(f"{lost.group(1)} in {lost.group(2)} breaks the device; the others go on without it")
    part.result["results"] = [row for row in part.result["results"] if (row.get("dtype"), row.get("op")) not in known or "tool" in row]
    for row in known.values():
        part.add(row)


def device_asked(part):
    for question in ("json", "memory"):
        done = part.run([os.path.join(part.args.build, "tests", "gpu_driver"), question], 60)
        if done and done.returncode == 0:
            part.result["cudnn_device" if question == "json" else "copy_bytes_per_second"] = json.loads(done.stdout)
            part.save()


def sanitized(part, sanitizer, tool, what, command, env):
    done = part.run([sanitizer, "--tool", tool, *command], 120, env)
    if done:
        part.add({"tool": tool, "op": what, "clean": cleanliness(done)})


def part_ops(part):
    """The newest kernels, then all; the memory checker's steps are the slowest, and last."""
    tests = os.path.join(part.args.build, "tests")
    # The cases' many small shapes get a plan cache of their own. Kernels that no GPU has run are tried here first.
    plain = dict(os.environ, XDG_CACHE_HOME=tempfile.mkdtemp(prefix="towers-ops-"), TOWERS_TEST_BACKEND="cuda", TOWERS_UNTRIED_KERNELS="1")
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    here = part.args.dry_run or os.path.exists(sanitizer)
    cases, error = os.path.join(tests, "test_ops"), ["--error-exitcode", "9"]

    def tried(tool, op, seconds):
        if here:
            part.step(f"{tool} {op}", seconds, sanitized, part, sanitizer, tool, op, [*error, cases], dict(plain, TOWERS_TEST_OP=op))

    if not here:
        part.problem("compute-sanitizer was not found")
    part.step("newest cases", 25, every_op, part, cases, plain, NEWEST)
    tried("memcheck", "conv_dw", 15)
    tried("racecheck", "conv_dw", 20)
    part.step("all cases", 75, every_op, part, cases, plain)
    part.step("device", 6, device_asked, part)
    for tool, op in (("memcheck", "batchnorm_dx"), ("racecheck", "batchnorm"), ("initcheck", "max_pool_dx")):
        tried(tool, op, 20)
    # A whole step: input, all kinds of kernels, optimizer, copies. NCCL asks the driver for memory that it may be denied, and takes other.
    step = ["--target-processes", "all", "--report-api-errors", "no", *error, os.path.join(part.args.build, "towers"), "bench", "inception_mini", "--device", "cuda", "--towers", "1", "-b", "8",
            "--warmup-batches", "0", "--batches", "2", "--deterministic"]
    for tool in ("memcheck", "initcheck") if here else ():
        part.step(f"{tool} a training step", 40, sanitized, part, sanitizer, tool, "a training step", step, plain)
    shutil.rmtree(plain["XDG_CACHE_HOME"], ignore_errors=True)
    part.save()


# ---- model


def whole_network(part, side, steps):
    """inception_v3 against PyTorch: one step at full size with its auxiliary head, ten steps at 107x107."""
    driver = os.path.join(part.args.build, "tests", "fidelity_driver")
    done = part.run([sys.executable, os.path.abspath(__file__), "whole", "--driver", driver, "--device", "cuda", "--side", str(side), "--steps", str(steps), *HALF, "tf32", "f32"], 150)
    for line in done.stdout.splitlines() if done else ():
        if line.startswith("{"):
            row = json.loads(line)
            part.add(row)
            if not row["right"]:
                part.problem(f"{row['whole']}, {row['group']}: further from float64 than PyTorch")


def layouts_wrong(groups, singles, double):
    """Of each group the layouts in which PyTorch's f32 is ten times as far from float64 as in the other: {group: {layout: error}}."""
    import fidelity

    found, nothing = {}, fidelity.vanishing(double)
    for label, prefix in groups:
        names = [n for n in double if n.startswith(prefix) and n not in nothing]
        medians = {layout: statistics.median(fidelity.error(run[n], double[n]) for n in names) for layout, run in zip(LAYOUTS, singles) if names}
        found[label] = {layout: float(f"{error:.2e}") for layout, error in medians.items() if error > 10 * min(medians.values()) + 1e-3}
    return found


def whole_rows(title, groups, ours, theirs, double, wrong):
    """One row per group of tensors. A result is right if its distance from float64 is at most twice (in the median) that of PyTorch in
    the same type, and nowhere much larger than PyTorch's worst; a few differ because another pixel wins a pooling window.
    wrong: of each group, the layouts in which PyTorch measures no rounding; they are named, and left out."""
    import fidelity

    nothing = fidelity.vanishing(double)
    for label, prefix in groups:
        names = [n for n in double if n.startswith(prefix) and n in ours and n not in nothing]
        if not names:
            continue
        right = [run for layout, run in zip(LAYOUTS, theirs) if layout not in wrong[label]]
        mine = [fidelity.error(ours[n], double[n]) for n in names]
        other = [max(fidelity.error(run[n], double[n]) for run in right) for n in names]
        ratio = statistics.median(m / max(o, F32_STEP) for m, o in zip(mine, other))
        print(json.dumps({"whole": title, "group": label, "tensors": len(names), "error": float(f"{max(mine):.2e}"),
                          "pytorch_error": float(f"{max(other):.2e}"), "median_ratio": round(ratio, 2),
                          "right": bool(ratio <= 2 and all(m <= 4 * max(other) + 1e-6 for m in mine)), **({"pytorch_wrong": wrong[label]} if wrong[label] else {})}), flush=True)


def whole_main(args):
    """Equal weights and images through PyTorch in float64 and in each type (16 bits: by autocast), and through the trainer."""
    import fidelity
    import torch

    fidelity.DEVICE, fidelity.THREADS = args.device, os.cpu_count() or 2
    torch.set_num_threads(fidelity.THREADS)
    full = args.side == 299
    case = fidelity.Case("inception_v3", fidelity.inception_v3, args.side, 4 if full else 1, aux_weight=0.4 if full else 0.0)
    lr, momentum = (0.01, 0) if args.steps == 1 else (0.001, 0.9)
    groups = [("logits", "logits"), ("auxiliary logits", "aux_logits"), ("loss", "loss"), ("gradients", "grad."), ("running statistics", "state.")]
    with tempfile.TemporaryDirectory() as work:
        state, pixels, labels = fidelity.case_write(case, work, args.steps)
        double = fidelity.pytorch_run(case, state, pixels, labels, torch.float64, lr, momentum)
        if args.steps > 1:
            groups = [("weights and statistics", "after.")]
            double = {n: v for n, v in double.items() if not n.endswith("num_batches_tracked")}
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        wrong = layouts_wrong(groups, fidelity.pytorch_singles(case, state, pixels, labels, lr, momentum), double)
        for kind in args.types:
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = kind == "tf32"
            half = getattr(torch, HALF[kind]) if kind in HALF else None
            scale = 1024 if kind == "f16" else 1  # small gradients are 0 in f16
            theirs = fidelity.pytorch_singles(case, state, pixels, labels, lr, momentum, half=half, scale=scale)
            # Deterministic: a search would take most of the time, and max pools normalize what they read.
            ours = fidelity.driver_run(args.driver, case, work, 1, lr, momentum, device=args.device, tf32=int(kind == "tf32"), deterministic=1,
                                       compute=kind if half else "f32", loss_scale=scale)
            whole_rows(f"inception_v3, {args.side}x{args.side}, {kind}, {args.steps} step{'s' if args.steps > 1 else ''}", groups, ours, theirs, double, wrong)


def has_data(part):
    found = part.args.dry_run or glob.glob(part.args.data + "/train-images-idx3-ubyte*")
    if not found:
        part.problem(f"no Fashion-MNIST in {part.args.data}: nothing is trained (scripts/gpu_bundle.sh brings it)")
    return bool(found)


def part_model(part):
    """First whether a run learns at all, then how right its numbers are, then the other types."""
    kinds = [(name, AMP[name]) for name in ("f16", "bf16", "tf32", "f32")]
    kinds.append(("bf16, 2 towers on one GPU", ["--amp", "--towers", "2", "--processes", "1", "-b", "64"]))
    if not has_data(part):
        kinds = []
    for name, more in kinds[:1]:
        part.step(name, 15, mini_trains, part, name, more)
    for side, steps in ((299, 1), (107, 10)):
        part.step(f"inception_v3, {side}x{side}", 130, whole_network, part, side, steps)
    for name, more in kinds[1:]:
        part.step(name, 15, mini_trains, part, name, more)


def mini_trains(part, name, more):
    runs, started = tempfile.mkdtemp(prefix="towers-runs-"), time.monotonic()
    with MemoryWatch(part.args) as watch:
        done = part.run([os.path.join(part.args.build, "towers"), "train", "inception_mini", "--device", "cuda", "--data-path", part.args.data, "--epochs", "2",
                         "-b", "128", "--output-dir", runs, "--json", *more], 60)
    found = tail_json(done.stdout) if done else None
    if found:
        part.add({"model": "inception_mini", "type": name, "epochs": 2, "seconds": round(time.monotonic() - started, 1), **memory_row(part, name, runs, watch),
                  **{key: value for key, value in found.items() if isinstance(value, (int, float))}})
        if found.get("test_accuracy", 1) < 0.7:
            part.problem(f"inception_mini in {name}: test accuracy {found['test_accuracy']} after two epochs, at least 0.7 was expected")
    shutil.rmtree(runs, ignore_errors=True)


def memory_row(part, name, runs, watch):
    """Device memory that the run took, beside the prediction in its memory.json."""
    plans = glob.glob(runs + "/**/memory.json", recursive=True)
    if not plans or watch.most is None:
        return {}
    with open(plans[0], encoding="utf-8") as file:
        planned = round(json.load(file)["in all"] / 2**20)
    if watch.most > planned + OVERHEAD_MIB:
        part.problem(f"inception_mini in {name} takes {watch.most} MiB of the device, memory.json says {planned}")
    return {"memory_mib": watch.most, "planned_mib": planned}


# ---- resume


def part_resume(part):
    """A run that ends after an epoch and goes on has the same weights as one that did not, to the bit. What goes on has an empty plan
    cache: with kernels chosen by time, it takes those that the run has kept."""
    if not has_data(part):
        return
    for name, more in (("bf16", AMP["bf16"]), ("f32, deterministic", ["--deterministic"])):
        part.step(name, 30, resumed, part, name, more)


def resumed(part, name, more):
    runs = tempfile.mkdtemp(prefix="towers-runs-")
    words = [os.path.join(part.args.build, "towers"), "train", "inception_mini", "--device", "cuda", "--towers", "1", "--data-path", part.args.data,
             "--epochs", "2", "-b", "128", *more]
    whole, halted = os.path.join(runs, "whole"), os.path.join(runs, "halted")
    ended = [ends_well(part, [*words, "--output-dir", whole], runs, "cache"), ends_well(part, [*words, "--output-dir", halted, "--stop-epoch", "1"], runs, "cache")]
    run = glob.glob(halted + "/*") or ["auto"]
    ended.append(ends_well(part, [*words, "--output-dir", halted, "--stop-epoch", "2", "--resume", run[0]], runs, "empty"))
    if all(ended):
        sums = [weights_sum(whole), weights_sum(halted)]
        part.add({"resumed": name, "same_bits": "yes" if sums[0] == sums[1] else "no", "sums": sums})
        if sums[0] != sums[1]:
            part.problem(f"inception_mini in {name}: a resumed run has other weights than one that was not stopped")
    shutil.rmtree(runs, ignore_errors=True)


def ends_well(part, command, runs, cache):
    """Whether the program ended well."""
    ended = part.run(command, 60, dict(os.environ, XDG_CACHE_HOME=os.path.join(runs, cache)))
    return ended is not None and ended.returncode == 0


def weights_sum(folder):
    (path,) = glob.glob(folder + "/*/last.safetensors")
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


# ---- bench


def ours(part, dtype, batch, steps, network="inception_v3"):
    done = part.run([*bench_words(part, dtype, batch, network=network), "--warmup-batches", "8", "--batches", str(steps)], 120)
    found = tail_json(done.stdout) if done else None
    if found:
        part.add({**network_row(network), "system": "towers", "type": dtype, "batch": batch, "images_per_second": round(found["images_per_sec"], 1),
                  "jitter": round(found.get("jitter", 0), 1), "loss": found.get("last_average_loss"),
                  **{key: round(found[key], 2) for key in ("watts", "images_per_joule") if key in found}, **part.clock()})
    plans_keep(part)


def network_row(network):
    """The parts about inception_v3 do not name it."""
    return {} if network == "inception_v3" else {"network": network}


def bench_words(part, dtype, batch, towers=1, network="inception_v3"):
    return [os.path.join(part.args.build, "towers"), "bench", network, "--device", "cuda", "--towers", str(towers), "-b", str(batch), "--opt", "momentum",
            "--workers", "4", "--json", *AMP[dtype]]


def plans_warm(part, dtype, batch):
    """Find the plans before timing: the search is not part of a step and has a time limit of its own. Its second run, which
    only trains, is the one whose memory is watched: asking the driver would slow down a run that is timed."""
    started = time.monotonic()
    one_step = [*bench_words(part, dtype, batch), "--warmup-batches", "0", "--batches", "1"]
    done = part.run(one_step, 240)
    seconds = round(time.monotonic() - started, 1)
    with MemoryWatch(part.args) as watch:
        part.run(one_step, 60)
    if done:
        part.add({"plans": dtype, "batch": batch, "search_seconds": seconds, "found": cleanliness(done), "memory_mib": watch.most})
    plans_keep(part)


def pair(part, dtype, batch, steps):
    """Plans, then the speed."""
    plans_warm(part, dtype, batch)
    ours(part, dtype, batch, steps)


def plans_restore(args):
    """Put the plans of an earlier call into the cache, where it has none for this device and these libraries."""
    kept, folder = os.path.join(args.out, "plans.txt"), os.path.join(os.environ.get("XDG_CACHE_HOME", ""), "towers", "plans")
    if not os.path.exists(kept) or not os.environ.get("XDG_CACHE_HOME"):
        return
    os.makedirs(folder, exist_ok=True)
    with open(kept, encoding="utf-8") as file:
        sections = re.split(r"^# (.+)\n", file.read(), flags=re.M)[1:]
    for name, text in zip(sections[::2], sections[1::2]):
        path = os.path.join(folder, os.path.basename(name))
        if not os.path.exists(path):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)


def plans_keep(part):
    """Keep the fastest plans with their times, for use on other machines."""
    folder = os.path.join(os.environ.get("XDG_CACHE_HOME", ""), "towers", "plans")
    texts = [f"# {os.path.basename(path)}\n{open(path, encoding='utf-8', errors='replace').read()}" for path in sorted(glob.glob(folder + "/*.txt"))]
    if texts and not part.args.dry_run:
        with open(os.path.join(part.args.out, "plans.txt"), "w", encoding="utf-8") as file:
            file.write("\n".join(texts))


def theirs(part, dtype, batch, steps, network="inception_v3"):
    done = part.run(torch_words(network, dtype, batch, steps), 300)
    found = tail_json(done.stdout) if done else None
    if found:
        part.add({**network_row(network), **found, **part.clock()})
        compiled_note(network, dtype, batch)


def torch_words(network, dtype, batch, steps):
    return [sys.executable, os.path.abspath(__file__), "torch", "--network", network, "--dtype", dtype, "--batch", str(batch), "--steps", str(steps)]


def compiled_list():
    """What PyTorch's compiler has in its cache, which lies beside the list."""
    return os.path.join(os.environ["TORCHINDUCTOR_CACHE_DIR"], "compiled.txt")


def compiled_note(network, dtype, batch):
    os.makedirs(os.path.dirname(compiled_list()), exist_ok=True)
    with open(compiled_list(), "a", encoding="utf-8") as file:
        file.write(f"{network} {dtype} {batch}\n")


def is_compiled(network, dtype, batch):
    try:
        with open(compiled_list(), encoding="utf-8") as file:
            return f"{network} {dtype} {batch}\n" in file.readlines()
    except OSError:
        return False


def theirs_step(part, key, dtype, batch, network="inception_v3"):
    """PyTorch's compiler takes two minutes for what it has not compiled yet."""
    part.step(key, WARM if is_compiled(network, dtype, batch) else COLD, theirs, part, dtype, batch, TORCH_STEPS, network)


ALONE = {"convolutions alone": "conv,conv_dx,conv_dw", "batch norms alone": "batchnorm,batchnorm_dx,max_pool_norm,max_pool_norm_dx"}


def alone(part, what, kinds, seconds=4):
    """What clock and power the operations of these kinds have, which a step mixes."""
    done = part.run([os.path.join(part.args.build, "tests", "ops_driver"), "model=inception_v3", "n=256", "compute=bf16", f"seconds={seconds}", f"kinds={kinds}"], 60)
    found = tail_json(done.stdout) if done else None
    if found:
        part.add({"alone": what, "ops": found["ops"], "ms": found["ms"], **part.clock()})


def part_bench(part):
    """inception_v3 by this program, and at which clock; then its convolutions and its batch norms apart."""
    part.step("plans", 17, plans_warm, part, "bf16", 256)
    part.step("bf16, batch 256", 12, ours, part, "bf16", 256, STEPS)
    for what, kinds in ALONE.items():
        part.step(what, 9, alone, part, what, kinds)


def part_batches(part):
    """Other batches and types of inception_v3."""
    for batch in (512, 128, 64):
        part.step(f"bf16, batch {batch}", 22, pair, part, "bf16", batch, STEPS)
    for dtype, batch in (("tf32", 256), ("f32", 128)):
        part.step(f"{dtype}, batch {batch}", 30, pair, part, dtype, batch, STEPS // 3)


def part_compile(part):
    """Towers and PyTorch at its best, which is its compiler, under the same clock."""
    for dtype in ("bf16", "f16"):
        part.step(f"towers, {dtype}", 20 if dtype == "bf16" else 25, pair, part, dtype, 256, STEPS)
        theirs_step(part, f"PyTorch, {dtype}", dtype, 256)


# ---- models

MODELS = ("resnet50", "mobilenet_v3_large", "efficientnet_b0", "mobilenet_v3_small", "efficientnet_lite0", "resnet18")
MODEL_STEPS = {"resnet50": 120}


def part_models(part):
    """ResNet-50, then small networks, in bf16 beside PyTorch's compiler: at the batch of our other tables and, as MLPerf's submissions of
    ResNet-50 have it, at 400."""
    for networks, batches in ((MODELS[:1], (256, 400)), (MODELS[1:], (256,)), (MODELS[1:], (400,))):
        for network in networks:
            for batch in batches:
                part.step(f"{network}, towers, {batch}", 17, ours, part, "bf16", batch, MODEL_STEPS.get(network, 200), network)
            for batch in batches:
                theirs_step(part, f"{network}, PyTorch, {batch}", "bf16", batch, network)


# ---- PyTorch


class Ahead:
    """PyTorch's compiler at work for later parts, at low priority, while no time is taken: what it compiles is in its cache then."""

    WORK = (("resnet50", "bf16", 256), ("inception_v3", "bf16", 256), ("resnet50", "bf16", 400), ("inception_v3", "f16", 256))

    def __init__(self, part):
        self.part, self.child, self.over = part, None, threading.Event()
        wanted = part.args.parts if not part.args.dry_run else ()
        self.work = [work for work in self.WORK if ("compile" if work[0] == "inception_v3" else "models") in wanted and not is_compiled(*work)]
        self.thread = threading.Thread(target=self.run)

    def run(self):
        for network, dtype, batch in self.work:
            command = ["nice", "-n", "10", *torch_words(network, dtype, batch, 1), "--ahead"]
            with open(os.path.join(self.part.args.out, "ahead.log"), "a", encoding="utf-8") as log:
                try:
                    self.child = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, **GROUP)
                except OSError:
                    return
                while self.child.poll() is None and not self.over.wait(0.2):
                    pass
                end_group(self.child.pid)
                if self.child.wait() != 0 or self.over.is_set():
                    return
            compiled_note(network, dtype, batch)
            print(f"  PyTorch has compiled {network} in {dtype} for {batch} images", flush=True)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def torch_main(args):
    """One PyTorch measurement: a network of torchvision or timm by its compiler, channels last, momentum SGD, data on the device."""
    import bench_models
    import bench_torch
    import torch

    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.dtype == "tf32"
    half = {"bf16": torch.bfloat16, "f16": torch.float16}.get(args.dtype)
    peer, side = bench_models.NETWORKS[args.network]
    model = bench_torch.model_of(peer).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=4e-5, fused=True)
    scaler = torch.amp.GradScaler("cuda", enabled=half is torch.float16)
    images = torch.randn(args.batch, 3, side, side, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (args.batch,), device="cuda")
    # With CUDA graphs, as its guide advises. max-autotune had not ended after 260 s on 16 cores; without the compiler it is half as fast.
    run = torch.compile(model, mode="reduce-overhead")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=half or torch.float16, enabled=half is not None):
            loss = bench_torch.loss_of(peer, run(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    for _ in range(2 if args.ahead else 10):
        loss = step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(args.steps):
        loss = step()
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - start) / args.steps
    print(json.dumps({"system": f"pytorch {torch.__version__} compile", "type": args.dtype, "batch": args.batch,
                      "images_per_second": round(args.batch / seconds, 1), "loss": round(float(loss), 4) if torch.isfinite(loss) else None}))


# ---- loss


def loss_main(args):
    """The loss of inception_v3 on ten batches, beside PyTorch in the same type: one number says little about a rounding error."""
    import fidelity
    import torch

    fidelity.DEVICE, fidelity.THREADS = args.device, 2
    case = fidelity.Case("inception_v3", fidelity.inception_v3, args.side, 4, aux_weight=0.4 if args.side == 299 else 0.0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    scale = 1024 if args.dtype == "f16" else 1
    with tempfile.TemporaryDirectory() as work:
        state, pixels, labels = fidelity.case_write(case, work, args.batches)

        def ours_of(i):
            place = os.path.join(work, str(i))
            os.mkdir(place)
            os.link(os.path.join(work, "weights.safetensors"), os.path.join(place, "weights.safetensors"))
            fidelity.tensors_write(os.path.join(place, "input.safetensors"), {"pixels": pixels[i : i + 1], "labels": labels[i : i + 1]})
            return fidelity.driver_run(args.driver, case, place, 1, 0.01, 0, device=args.device, deterministic=1, compute=args.dtype, loss_scale=scale)

        with ThreadPoolExecutor(5) as pool:  # programs that start for seconds and compute for one
            mine = list(pool.map(ours_of, range(args.batches)))
        rows = []
        for i, ours_found in enumerate(mine):
            batch = state, pixels[i : i + 1], labels[i : i + 1]
            double = fidelity.pytorch_run(case, *batch, torch.float64, 0.01, 0)
            singles = fidelity.pytorch_singles(case, *batch, 0.01, 0, half=getattr(torch, HALF[args.dtype]), scale=scale)
            rows.append((fidelity.error(ours_found["loss"], double["loss"]), max(fidelity.error(run["loss"], double["loss"]) for run in singles)))
    print(json.dumps(loss_row(args.dtype, rows)))


def loss_row(dtype, rows):
    """rows: (our error, PyTorch's) of each batch. Right: the typical error is at most twice PyTorch's, as of other results."""
    ours_of, theirs_of = ([float(f"{row[k]:.2e}") for row in rows] for k in (0, 1))
    middle = [statistics.median(values) for values in (ours_of, theirs_of)]
    return {"loss_in": dtype, "batches": len(rows), "error": middle[0], "pytorch_error": middle[1], "ours": ours_of, "theirs": theirs_of, "right": bool(middle[0] <= 2 * middle[1])}


def part_loss(part):
    part.step("f16", 30, loss_compared, part, "f16")
    part.step("bf16", 30, loss_compared, part, "bf16")


def loss_compared(part, dtype):
    driver = os.path.join(part.args.build, "tests", "fidelity_driver")
    done = part.run([sys.executable, os.path.abspath(__file__), "loss", "--driver", driver, "--dtype", dtype], 120)
    found = tail_json(done.stdout) if done else None
    if found:
        part.add(found)
        if not found["right"]:
            part.problem(f"the loss of inception_v3 in {dtype}: further from float64 than PyTorch's, on {found['batches']} batches")


# ---- profile


def part_profile(part):
    for dtype in ("bf16", "f16"):
        part.step(dtype, 10, profiled, part, dtype)


def profiled(part, dtype):
    """All ops, slowest first, and the tables as text."""
    done = part.run([*bench_words(part, dtype, 256), "--batches", "5", "--warmup-batches", "3", "--profile"], 110)
    if not done or not (done.stderr or done.stdout):
        return
    found = (tail_json(done.stdout) or {}).get("profile", {})
    text = done.stderr[done.stderr.find("\ninception_v3, batch") + 1 :] if "| op | calls |" in done.stderr else done.stdout
    part.result["results"].append({"type": dtype, "text": text, **found, **part.clock(), "step": part.step_now})
    part.save()


# ---- counters

COUNTED = (("Conv2d_4a_3x3.conv.dw:conv_dw", "Conv2d_4a_3x3.conv:conv", "Conv2d_4a_3x3.conv.dx:conv_dx", "Conv2d_1a_3x3.bn.dx:batchnorm_dx"),
           ("Conv2d_2b_3x3.conv.dx:conv_dx", "Conv2d_2b_3x3.conv.dw:conv_dw", "Mixed_5d.branch5x5_2.conv.dw:conv_dw", "Conv2d_1a_3x3.bn:batchnorm"))


def part_counters(part):
    """One launch of eight ops under Nsight Compute, in two calls of it: what it has counted is lost if it is cut off."""
    ncu = gpu_counters.program() or ("ncu" if part.args.dry_run else None)
    if not ncu:
        part.problem("Nsight Compute (ncu) was not found")
        return
    for names in COUNTED:
        part.step(", ".join(names), 35, counted, part, ncu, names)


def counted(part, ncu, names):
    words = [os.path.join(part.args.build, "tests", "ops_driver"), "model=inception_v3", "n=256", "compute=bf16", "launch=" + ",".join(names)]
    with tempfile.TemporaryDirectory(prefix="towers-ncu-") as folder:
        log = os.path.join(folder, "log")
        done = part.run(gpu_counters.command(ncu, log, words), 120)
        if not done:
            return
        try:
            with open(log, encoding="utf-8", errors="replace") as file:
                table = file.read()
            found = gpu_counters.ops_of(table, done.stdout, names)
        except (OSError, ValueError) as error:
            part.problem(f"Nsight Compute: {error}")
            return
    for name, kernels in found:
        part.add({"counted": name, "kernels": kernels})
    if len(found) < len(names):
        part.problem(f"Nsight Compute counted {len(found)} of {len(names)} ops")


# ---- scale


def gpu_count(args):
    if args.dry_run:
        return 8
    try:
        lines = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return 1
    return max(1, sum(line.startswith("GPU ") for line in lines))


def part_scale(part):
    """Weak scaling, one process per GPU: images per second of 1, 2, 4, 8 towers, and that all of them learn as well as one."""
    gpus = gpu_count(part.args)
    part.result["gpus"] = gpus
    for dtype in ("bf16", "f16"):
        part.step(f"plans, {dtype}", 17, plans_warm, part, dtype, 256)
        part.step(f"speed, {dtype}", 60, scaled, part, dtype, gpus)
    for towers in (2, 4, 8):
        if towers <= gpus:
            part.step(f"{towers} towers", 40, scale_trains, part, towers)


def scaled(part, dtype, gpus):
    alone = None
    for towers in (1, 2, 4, 8):
        if towers > gpus:
            part.add({"scale": towers, "type": dtype, "skipped": f"{gpus} GPU{'s' if gpus > 1 else ''} here"})
            continue
        done = part.run([*bench_words(part, dtype, 256, towers=towers), "--processes", str(towers), "--warmup-batches", "8", "--batches", "30"], 120)
        found = tail_json(done.stdout) if done else None
        if not found:
            continue
        speed = found["images_per_sec"]
        alone = speed if towers == 1 else alone
        part.add({"scale": towers, "type": dtype, "images_per_second": round(speed, 1), **({"efficiency": round(speed / towers / alone, 3)} if alone else {}), **part.clock()})


def scale_trains(part, towers):
    """The self-test of the sums, the comparison of all replicas, and an accuracy."""
    runs = tempfile.mkdtemp(prefix="towers-runs-")
    done = part.run([os.path.join(part.args.build, "towers"), "train", "inception_mini", "--device", "cuda", "--data-path", part.args.data, "--epochs", "2",
                     "-b", str(128 // towers), "--towers", str(towers), "--processes", str(towers), "--sdc-check", "50", "--output-dir", runs, "--json", "--amp"], 90)
    found = tail_json(done.stdout) if done else None
    if found:
        part.add({"trained": towers, "test_accuracy": found.get("test_accuracy")})
        if found.get("test_accuracy", 1) < 0.7:
            part.problem(f"inception_mini on {towers} GPUs: test accuracy {found['test_accuracy']} after two epochs, at least 0.7 was expected")
    shutil.rmtree(runs, ignore_errors=True)


# ---- nccl

NCCL_PLAIN = {"NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "lo", "NCCL_SOCKET_FAMILY": "AF_INET", "NCCL_MNNVL_ENABLE": "0",
              "NCCL_RAS_ENABLE": "0", "NCCL_DEBUG": "INFO", "TOWERS_SHARE_GPU": "1"}
LOSSES_DIFFER = {"fp32": 1e-3, "fp16": 1e-3, "bf16": 1e-2}  # by which a loss may differ from that of sums in tower order, relative


BITS = 5  # steps: those that matter most have the machine for themselves


class Ranks:
    """Short trainings of eight towers whose ranks share one GPU. The kernels of processes take turns on it: right, and slow."""

    def __init__(self, part, folder):
        self.part, self.folder, self.small = part, folder, part.args.small
        self.steps, self.batch = (6, 1) if self.small else (12, 16)
        self.reference = None

    def words(self, name, *more, model=None):
        model = model or ("fashion_cnn" if self.small else "inception_mini")
        return [os.path.join(self.part.args.build, "towers"), "train", model, "-b", str(self.batch), "--device", "cuda", "--data-path", self.part.args.data, "--towers", "8", "--workers", "1",
                "--eval-interval", "0", "--log-interval", "1", "--summary-interval", "0", "--sdc-check", "1", "--deterministic", "--checkpoint-steps", "2",
                "--output-dir", self.folder, "--experiment", name, *more]

    def env(self, name, **more):
        log = os.path.join(self.folder, f"nccl-{name}.%p")
        return dict(os.environ, **NCCL_PLAIN, NCCL_DEBUG_FILE=log, XDG_CACHE_HOME=os.path.join(self.folder, "cache"), **more)

    def via(self, name):
        """How NCCL says that its ranks are connected: {"NET/Socket": 24}."""
        found = {}
        for path in glob.glob(os.path.join(self.folder, f"nccl-{name}.*")):
            with open(path, encoding="utf-8", errors="replace") as file:
                for way in re.findall(r"via (NET/\w+|P2P/\w+|SHM\S*)", file.read()):
                    found[way] = found.get(way, 0) + 1
        return found

    def sum_of(self, name):
        """Of the weights; None: there are none."""
        try:
            with open(os.path.join(self.folder, name, "last.safetensors"), "rb") as file:
                return hashlib.sha256(file.read()).hexdigest()
        except OSError:
            return None

    def losses(self, name):
        try:
            with open(os.path.join(self.folder, name, "metrics.jsonl"), encoding="utf-8") as file:
                return [json.loads(line).get("mean_loss") for line in file]
        except (OSError, ValueError):
            return []

    def row(self, what, ranks, wrong, started, name):
        """wrong: what is not as it must be, or ""."""
        self.part.add({"nccl": what, "ranks": ranks, "right": wrong or "yes", "seconds": round(time.monotonic() - started, 1), "via": self.via(name)})
        if wrong:
            self.part.problem(f"{what}, {ranks} ranks: {wrong}")

    def train(self, what, ranks, name, command, env=None, more=None):
        """A run whose weights must be those of the reference, unless `more` says otherwise of the name."""
        started = time.monotonic()
        done = self.part.run(command, 60, env or self.env(name))
        if done is None:
            return
        wrong = f"exit {done.returncode}" if done.returncode else more(name) if more else self.bits(name)
        self.row(what, ranks, wrong, started, name)

    def bits(self, name):
        mine = self.sum_of(name)
        return "no weights" if not mine else "" if mine == self.reference else "other weights than in one process"

    def same(self, one):
        return lambda name: "" if self.sum_of(name) and self.sum_of(name) == self.sum_of(one) else f"other weights than {one}"

    def near(self, bound, reference="one"):
        def loss_differs(name):
            one, other = self.losses(reference), self.losses(name)
            if len(one) < self.steps or len(other) < self.steps:
                return f"{len(other)} losses of {self.steps}"
            worst = max(abs(a - b) / abs(a) for a, b in zip(one, other))
            return "" if worst <= bound else f"a loss is {worst:.1e} off, more than {bound:.0e}"

        return loss_differs


def part_nccl(part):
    """The real NCCL between 2, 4 and 8 ranks on one GPU: bits, ends, shapes that follow each other."""
    if not has_data(part):
        return
    with tempfile.TemporaryDirectory(prefix="towers-nccl-") as folder:
        steps = nccl_steps(part, Ranks(part, folder))
        if not part.left_to_do([name for name, *_ in steps[1:]]):
            return
        part.result["took"].pop(steps[0][0], None)  # by whose bits the others are judged: of this call
        for name, seconds, work, *words in steps[:BITS]:
            part.step(name, seconds, work, *words)
        with Ahead(part):
            for name, seconds, work, *words in steps[BITS:]:
                part.step(name, seconds, work, *words)


def nccl_steps(part, ranks):
    """(name, seconds, function, arguments ...), in order of value."""
    total = ["--max-steps", str(ranks.steps)]

    def trained(what, count, name, *more, seconds, words=(), check=None):
        command = ranks.words(name, *(words or total), "--processes", str(count), *more)
        return name, seconds, lambda: ranks.train(what, count, name, command, more=check)

    def reference():
        ranks.train("reference", 1, "one", ranks.words("one", *total, "--processes", "1"), more=lambda name: "" if ranks.sum_of(name) else "no weights")
        ranks.reference = ranks.sum_of("one")

    steps = [("one", 8, reference)]
    steps += [trained("in tower order", count, f"in-{count}", seconds=seconds) for count, seconds in ((2, 10), (4, 12), (8, 18))]
    steps.append(("programs", 15, nccl_programs, ranks, total))
    for dtype, bound in LOSSES_DIFFER.items():
        more = ["--reduce", "fast", *(["--reduce-dtype", dtype] if dtype != "fp32" else [])]
        steps.append(trained(f"fast, {dtype}", 4, f"fast-{dtype}", *more, seconds=11, check=ranks.near(bound)))
    long, delay = ["--max-steps", "4000"], {"TOWERS_FAULT": "delay:tower=3,step=1,ms=50"}
    restarts, slower = ["--max-steps", str(ranks.steps), "--max-restarts", "1"], {"TOWERS_FAULT": "delay:tower=3,step=1,ms=300"}
    steps += [("restarted", 12, nccl_struck, ranks, "--max-restarts 1", "restarted", restarts, slower, signal.SIGKILL, 0, None),
              ("shapes", 15, nccl_shapes, ranks),
              # How runs end: with the right code, a name, in time, and nothing left on the GPU.
              ("killed", 8, nccl_struck, ranks, "kill -9", "killed", long, delay, signal.SIGKILL, 7, "killed by signal 9"),
              ("stopped", 22, nccl_struck, ranks, "SIGSTOP, --comm-timeout 15", "stopped", [*long, "--comm-timeout", "15"], delay, signal.SIGSTOP, 7, "--comm-timeout"),
              ("nan", 7, nccl_struck, ranks, "a NaN", "nan", long, {"TOWERS_FAULT": "nan:tower=3,step=5"}, None, 8, "tower 3, step 5"),
              ("sync", 10, nccl_sync, ranks, total)]
    steps += nccl_newer(part, ranks, total)
    return steps if ranks.small else [*steps, ("wgan", 13, nccl_wgan, ranks, total)]


def nccl_programs(ranks, total):
    """Four programs that meet by themselves, as a launcher would start them."""
    started = "for r in 0 1 2 3; do TOWERS_RANK=$r \"$@\" & all=\"$all $!\"; done; for p in $all; do wait $p || code=$?; done; exit ${code:-0}"
    words = ["bash", "-c", started, "programs", *ranks.words("programs", *total, "--processes", "4")]
    meeting = {"TOWERS_WORLD_SIZE": "4", "TOWERS_MASTER_ADDR": "127.0.0.1", "TOWERS_MASTER_PORT": str(20000 + os.getpid() % 9000), "TOWERS_TOKEN": "nccl"}
    ranks.train("4 programs", 4, "programs", words, ranks.env("programs", **meeting))


def nccl_shapes(ranks):
    """A run that goes on in another number of processes."""
    third, started = ranks.steps // 3, time.monotonic()
    for count, steps in ((4, third), (2, 2 * third), (1, ranks.steps)):
        words = ranks.words("shapes", "--max-steps", str(steps), "--processes", str(count), *(["--resume", "auto"] if count < 4 else []))
        done = ranks.part.run(words, 60, ranks.env("shapes"))
        if done is None:
            return
        if done.returncode:
            break
    ranks.row("4, then 2, then 1", 4, f"exit {done.returncode} in {count}" if done.returncode else ranks.bits("shapes"), started, "shapes")


def nccl_sync(ranks, total):
    """Sums in the middle of a step: batch norms over all towers, as one tower."""
    ranks.part.run(ranks.words("whole", *total, "--towers", "1", "--processes", "1", "-b", str(2 * ranks.batch)), 60, ranks.env("whole"))
    ranks.train("--bn-stats sync", 2, "sync", ranks.words("sync", *total, "--towers", "2", "--processes", "2", "--bn-stats", "sync"), more=ranks.near(1e-3, "whole"))


def nccl_wgan(ranks, total):
    """Two optimizers in turn."""
    ranks.part.run(ranks.words("wgan", *total, "--towers", "2", "--processes", "1", model="wgan_gp"), 60, ranks.env("wgan"))
    ranks.train("wgan_gp", 2, "wgan-2", ranks.words("wgan-2", *total, "--towers", "2", "--processes", "2", model="wgan_gp"), more=ranks.same("wgan"))


def nccl_struck(ranks, what, name, more, env, number, code, text):
    """Sends a signal to a tower process of a run of four when it trains. It must end with this code and text; code 0: with the weights
    of the reference. number None: it ends by itself."""
    part, command = ranks.part, ranks.words(name, *more, "--processes", "4")
    if part.args.dry_run:
        part.run(command)
        return
    if part.until - time.monotonic() < 60:
        part.cut = True
        part.leave_out((part.step_now + ": " if part.step_now else "") + "no time left for: " + brief(command))
        return
    with open(os.path.join(ranks.folder, name + ".err"), "w+", encoding="utf-8", errors="replace") as said:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, stdin=subprocess.DEVNULL, env=ranks.env(name, **env), **GROUP)
        until, started = time.monotonic() + 60, time.monotonic()
        try:
            while number is not None and len(ranks.losses(name)) < 2 and child.poll() is None and time.monotonic() < until:
                time.sleep(0.1)
            towers = children_of(child.pid)
            if number is not None and towers:
                started = time.monotonic()
                os.kill(towers[len(towers) // 2], number)
            try:
                found = child.wait(timeout=60)
            except subprocess.TimeoutExpired:
                found = None
            seconds = time.monotonic() - started
            left = [pid for pid in towers if alive(pid)]
        finally:
            end_group(child.pid)
        child.wait()
        said.seek(0)
        words = said.read()
    wrong = "not ended after 60 s" if found is None else f"exit {found}, not {code}" if found != code else f"nobody says '{text}'" if text and text not in words else ""
    wrong = wrong or (f"{len(left)} processes are left" if left else "" if code else ranks.bits(name))
    if wrong:
        part.result.setdefault("logs", []).append(words[-3000:])
    ranks.row(what, 4, wrong, time.monotonic() - seconds, name)


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def alive(pid):
    """Whether a process runs: one that has ended, but whose parent has not asked for it yet, does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def nccl_newer(part, ranks, total):
    """NCCL 2.30 or newer, if one was brought: ranks of one host, by P2P, with and without symmetric windows."""
    bundle = os.path.dirname(part.args.data)
    library = os.path.join(bundle, "nccl", "libnccl.so.2")
    if not part.args.dry_run and not os.path.exists(library):
        none = {"nccl": "a newer NCCL", "ranks": 0, "right": "left out: there is none in " + os.path.basename(bundle) + "/nccl", "seconds": 0, "via": {}}
        return [("newer", 1, part.add, none)]
    steps = []
    for count, windows in ((2, "1"), (4, "1"), (5, "1"), (4, "0")):
        name = f"newer-{count}-{windows}"
        env = ranks.env(name, LD_PRELOAD=library, NCCL_WIN_ENABLE=windows)
        words = ranks.words(name, *total, "--processes", str(count))
        steps.append((name, 13, ranks.train, f"newer NCCL, NCCL_WIN_ENABLE={windows}", count, name, words, env))
    return steps


def torch_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", default="inception_v3")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--ahead", action="store_true", help="only compile, for the cache")
    return parser


def whole_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--driver", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--side", type=int, default=107)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("types", nargs="+", choices=(*HALF, "tf32", "f32"))
    return parser


def loss_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--driver", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--side", type=int, default=299)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--dtype", default="f16", choices=HALF)
    return parser


def main():
    others = {"torch": (torch_parser, torch_main), "whole": (whole_parser, whole_main), "loss": (loss_parser, loss_main)}
    if len(sys.argv) > 1 and sys.argv[1] in others:
        parser_of, run = others[sys.argv[1]]
        run(parser_of().parse_args(sys.argv[2:]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seconds", type=float, help="for each part (default: its own budget)")
    parser.add_argument("--total", type=float, help="for all parts together, with the tables")
    parser.add_argument("--continue", dest="earlier_results", metavar="PLACE", help="a folder with the results of an earlier call, or a file of --pack: go on behind them")
    parser.add_argument("--pack", help="a file that receives all results, after each one")
    parser.add_argument("--page", help="the document with the tables (default: none)")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--small", action="store_true", help="part nccl: a small network, for a rehearsal over stand-ins")
    parser.add_argument("parts", nargs="+", choices=sorted(PLAN))
    args = parser.parse_args()
    args.out = os.path.abspath(args.out)
    for number in (signal.SIGTERM, signal.SIGHUP):  # an exception ends the program that runs, too
        if signal.getsignal(number) == signal.SIG_DFL:  # not of nohup
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    os.makedirs(args.out, exist_ok=True)
    environment_set(args)
    return parts_run(args)


def environment_set(args):
    """Let failing libraries log to standard error, and cache compiled kernels beside the build."""
    for name, value in (("NCCL_DEBUG", "WARN"), ("NCCL_DEBUG_FILE", "/dev/stderr"), ("TORCHINDUCTOR_CACHE_DIR", os.path.join(args.build, "inductor")),
                        ("PYTHONUNBUFFERED", "1")):
        os.environ.setdefault(name, value)


def device_of(args):
    if args.dry_run:
        return "none (dry run)"
    words = [os.path.join(args.build, "tests", "gpu_driver"), "describe"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown: {error}"


def earlier_read(args):
    """{part: its results} of an earlier call, whose plans come along. Ends the program if they are not of this commit and GPU."""
    place, found = args.earlier_results, {}
    if not place:
        return found
    with tempfile.TemporaryDirectory(prefix="towers-earlier-") as folder:
        if os.path.isfile(place):
            with tarfile.open(place) as tar:
                tar.extractall(folder, filter="data") if hasattr(tarfile, "data_filter") else tar.extractall(folder)
            place = folder
        for name in PLAN:
            path = os.path.join(place, name + ".json")
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    found[name] = json.load(file)
        plans = os.path.join(place, "plans.txt")
        if os.path.exists(plans) and not os.path.exists(os.path.join(args.out, "plans.txt")):
            shutil.copy(plans, args.out)
    if not found:
        sys.exit(f"gpu_check: --continue: there are no results in {args.earlier_results}")
    for name, part in found.items():
        for what, wanted in (("commit", args.commit), ("device", part.get("device") if args.dry_run else args.device)):
            if part.get(what) != wanted:
                sys.exit(f"gpu_check: --continue: part {name} in {args.earlier_results} is of {what} {part.get(what)}, this is {wanted}: begin anew, without --continue")
        for key, none in (("took", {}), ("unfinished", {})):
            part.setdefault(key, none)
        if not args.dry_run and not os.path.exists(os.path.join(args.out, name + ".json")):
            with open(os.path.join(args.out, name + ".json"), "w", encoding="utf-8") as file:
                json.dump(part, file, indent=1)
    return found


def parts_run(args):
    problems, started = 0, time.monotonic()
    args.device, args.commit = device_of(args), commit_now()
    args.watch = None if args.dry_run else gpu_watch.Watch()
    args.earlier = earlier_read(args)
    if not args.dry_run:
        plans_restore(args)
    if args.watch and args.watch.why:
        print(f"no clocks and no power: {args.watch.why}", flush=True)
    done = {}
    for turn in range(2 if args.total else 1):
        used, args.last_turn = 0, turn == 1
        for name in args.parts:
            if turn and not done[name].result["left_out"]:
                continue
            print("== " + name, flush=True)
            seconds = args.seconds or MOST
            if args.total:  # what a part does not need is left to those after it
                used += seconds_planned(args.earlier.get(name), name)
                seconds = started + (args.total if turn else min(args.total, used)) - time.monotonic()
            args.earlier.update({name: done[name].result} if turn else {})
            part = done[name] = Part(args, name, seconds)
            part_run(part)
            if args.page and not args.dry_run:
                subprocess.run([sys.executable, os.path.join(SCRIPTS, "pages", "gpu_tables.py"), args.out, args.page], check=False)
                pack(args)
    for part in done.values():
        problems += len(part.result["problems"]) + len(part.result["unfinished"])
    return 1 if problems else 0


def seconds_planned(earlier, name):
    """What a part that an earlier call has begun, or finished, still needs."""
    if not earlier:
        return PLAN[name]
    return 0 if earlier.get("complete") else max(10, PLAN[name] - sum(earlier["took"].values()))


def part_run(part):
    run = {"ops": part_ops, "model": part_model, "bench": part_bench, "resume": part_resume, "compile": part_compile, "profile": part_profile, "scale": part_scale, "nccl": part_nccl,
           "counters": part_counters, "models": part_models, "batches": part_batches, "loss": part_loss}[part.name]
    for step in (run, plans_keep):
        try:
            step(part)
        except Exception:  # a failing part must not stop the others
            part.problem("the script itself failed: " + traceback.format_exc()[-1500:])
    part.result["complete"] = not part.result["left_out"] and not part.result["unfinished"]
    part.save()


if __name__ == "__main__":
    sys.exit(main())
