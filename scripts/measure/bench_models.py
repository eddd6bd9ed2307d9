#!/usr/bin/env python3
"""Time training steps and forward passes of all networks for photographs beside other programs; see scripts/measure/bench_models.sh.

usage: bench_models.py [--only NETWORK,...|files] [--kinds KIND,...] [--missing] [--repetitions N] [--seconds S] [--list]
       bench_models.py --export NAME FILE      of torchvision: with PyTorch's Python, run by the first; FILE.train and FILE.eval

KINDS are train_f32, train_bf16, infer_f32 and infer_bf16. Every side of a case is measured once in a round, in turn, as in bench_cpu.py
and bench_inference.py, which say how, and what makes a run disturbed. A side that reaches less than 0.75 of the fastest of its program in
the first round is not measured again, and is not compiled if it was eager. `files` are the twelve networks from files. Batch 16. Networks that are here by name have weights of their own
random numbers; those from files are exported by PyTorch with its.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile
import time

import bench_cpu as bench
import bench_inference as inference

PAGE, BATCH, SHARE = "docs/results/models.md", 16, 0.75
NETWORKS = {  # name here: (PyTorch's, side of an image)
    "resnet18": ("resnet18", 224), "resnet34": ("resnet34", 224), "resnet50": ("resnet50", 224), "resnet101": ("resnet101", 224),
    "mobilenet_v3_small": ("mobilenet_v3_small", 224), "mobilenet_v3_large": ("mobilenet_v3_large", 224),
    "efficientnet_b0": ("efficientnet_b0", 224), "efficientnet_lite0": ("timm:efficientnet_lite0", 224),
    "convnext_tiny": ("convnext_tiny", 224), "googlenet": ("googlenet", 224), "inception_v3": ("inception_v3", 299),
    "inception_v4": ("timm:inception_v4", 299), "inception_resnet_v2": ("timm:inception_resnet_v2", 299),
    "xception": ("timm:legacy_xception", 299), "inception_v2": (None, 224)}  # BN-Inception is in neither
FILES = ("mobilenet_v2", "mnasnet1_0", "shufflenet_v2_x1_0", "squeezenet1_1", "regnet_y_400mf", "regnet_x_800mf", "densenet121",
         "resnext50_32x4d", "wide_resnet50_2", "vgg11_bn", "efficientnet_b1", "efficientnet_v2_s")
KINDS = {"train_f32": "Training, f32", "train_bf16": "Training, bf16", "infer_f32": "Inference, f32", "infer_bf16": "Inference, bf16"}


def export(name, path):
    import torch
    import torchvision

    torch.manual_seed(0)
    network, image = torchvision.models.get_model(name, weights=None), torch.rand(2, 3, 224, 224)
    for mode, end in ((True, ".train"), (False, ".eval")):
        torch.onnx.export(network.train(mode), (image,), path + end, dynamo=False, do_constant_folding=not mode, input_names=["image"],
                          training=torch.onnx.TrainingMode.PRESERVE, dynamic_axes={"image": {0: "n"}, "logits": {0: "n"}}, output_names=["logits"])


class Network:
    def __init__(self, name, work):
        self.name, self.work, self.of_file = name, work, name in FILES
        self.peer, self.side = (name, 224) if self.of_file else NETWORKS[name]
        self.ours = {"train": name, "infer": name}

    def files_make(self):
        """The files that others read, and with which a network of torchvision comes here."""
        path = os.path.join(self.work, self.name)
        if not self.of_file:
            self.exported = inference.network_export(self.name, self.work)
        else:
            done = subprocess.run([bench.TORCH_PYTHON, __file__, "--export", self.name, path], env=environment(), capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"bench_models: PyTorch exports no {self.name}: {done.stderr.strip()[-400:]}")
            self.ours = {"train": path + ".train.onnx", "infer": path + ".eval.onnx"}
            for file in self.ours.values():
                os.rename(file.removesuffix(".onnx"), file)
            self.exported = self.ours["infer"]
        self.macs = bench.macs_of(self.ours["infer"])


def environment():
    """timm, and what writes ONNX files, are beside PyTorch's packages."""
    found = [glob.glob(os.path.join(os.path.dirname(os.environ[python]), "..", "lib", "python3*", "site-packages"))[0]
             for python in ("TRAINERS_PYTHON", "ONNX_PYTHON")]
    return dict(os.environ, PYTHONPATH=os.pathsep.join(found))


def torch_sides(network, kind, cores, steps):
    sides = {}
    if not network.peer:
        return sides
    for how in ("eager", "compiled"):
        for layout in ("nchw", "nhwc"):
            if kind.startswith("train"):
                side = bench.torch_side(network.peer, BATCH, threads=cores, side=network.side, steps=steps, warmup=1, layout=layout,
                                        compile=how == "compiled", bf16=kind.endswith("bf16"))
            else:
                more = ["--side", network.side, "--layout", layout, *["--compile"] * (how == "compiled"), *["--bf16"] * kind.endswith("bf16")]
                side = inference.peer(bench.TORCH_PYTHON, "torch", network.peer, BATCH, cores, steps, *more)
            if network.peer.startswith("timm:"):
                side["environment"] = {"PYTHONPATH": environment()["PYTHONPATH"]}
            sides[f"PyTorch {how}, {layout}"] = side
    return sides


def sides_of(network, kind, cores, seconds):
    what, dtype = kind.split("_")
    images = seconds / ((3 if what == "train" else 1) * 2e-9 * network.macs / 100 + 0.01)  # as a first guess
    steps = max(2 if seconds >= 5 else 1, min(60, round(images / BATCH)))
    bf16 = ["--amp", "--amp-dtype", "bf16"] if dtype == "bf16" else []
    make = bench.bench_side if what == "train" else inference.ours
    sides = bench.towers_sides(make, network.ours[what], BATCH, cores, steps, *bf16)
    if what == "infer":
        more = ["--bf16"] if bf16 else []
        if not bf16:  # whose CPU has none
            sides["ONNX Runtime"] = inference.peer(os.environ["ONNX_PYTHON"], "onnxruntime", network.exported, BATCH, cores, steps)
        sides["OpenVINO"] = inference.peer(os.environ["OPENVINO_PYTHON"], "openvino", network.exported, BATCH, cores, steps, *more)
    return {**sides, **torch_sides(network, kind, cores, steps)}


# ---- the page


def cell(sums, begin):
    name, median = bench.best({side: s for side, s in sums.items() if side.startswith(begin)}, "")
    return (f"{bench.spread(sums[name])}, {name.removeprefix(begin).strip(', ')}" if name else "failed" if any(s.startswith(begin) for s in sums) else "-"), median


def row(name, case):
    sums = bench.summaries(case)
    ours, ours_median = cell(sums, "towers")
    cells = [cell(sums, peer) for peer in ("PyTorch", "ONNX Runtime", "OpenVINO")]
    best = max(median for _, median in cells)
    texts = [text.rstrip(", ") for text, _ in (cells if "OpenVINO" in sums else cells[:1])]
    ratio = f"**{ours_median / best:.2f}**" if best and ours_median else "-"
    return f"| `{name}` | {ours} | {' | '.join(texts)} | {ratio} | {case['commit']}, {case['date'][:10]} |"


def tables(results):
    lines = [f"{bench.machine_text(results['machine'])}. Images per second at batch {BATCH}: the median, and the slowest to the fastest run.", ""]
    for kind, title in KINDS.items():
        for names, what in ((NETWORKS, "networks of this program"), (FILES, "torchvision's, as ONNX files")):
            rows = [row(name, results["cases"][f"{name} {kind}"]) for name in names if f"{name} {kind}" in results["cases"]]
            peers = ["PyTorch"] + ["ONNX Runtime", "OpenVINO"] * kind.startswith("infer")
            if rows:
                lines += [f"**{title}: {what}**", "", f"| | Towers | {' | '.join(peers)} | to the best of them | measured |",
                          "|---|---:|" + "---:|" * len(peers) + "---:|---|", *rows, ""]
    if any(bench.STAR in line for line in lines):
        lines += [f"`*` fewer than {bench.CLEAN_LEAST} runs undisturbed by other programs, so these numbers are less reliable.", ""]
    return lines[:-1]


def save(results):
    kind = bench.kind_of(results)
    path = bench.results_path(kind, "models")
    with open(path + ".new", "w") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
    os.replace(path + ".new", path)
    with open(PAGE) as file:
        text = bench.between(file.read(), "All networks", "models" + kind, tables(results), "measure/bench_models")
    with open(PAGE, "w") as file:
        file.write(text)


# ---- the comparison


def case_make(network, kind, sides):
    return {"commit": bench.commit_now(), "date": time.strftime("%Y-%m-%d %H:%M"), "torch": bench.torch_name(),
            "commands": {side: bench.shown(s) for side, s in sides.items()}, "runs": {side: [] for side in sides}}


def compare(options):
    cores = len(os.sched_getaffinity(0))
    names = list(FILES) if options.only == "files" else options.only.split(",") if options.only else [*NETWORKS, *FILES]
    kinds = options.kinds.split(",") if options.kinds else [kind for kind in KINDS if bench.has_avx512() or "bf16" not in kind]
    for given, known in ((names, [*NETWORKS, *FILES]), (kinds, KINDS)):
        for name in given:
            if name not in known:
                sys.exit(f"bench_models: unknown '{name}'; use one of {', '.join(known)}")
    results = {"machine": bench.machine(cores), "cases": {}}
    path = bench.results_path(bench.kind_of(results), "models")
    if os.path.exists(path):
        with open(path) as file:
            results = {**json.load(file), "machine": results["machine"]}
    for name in names:
        wanted = [kind for kind in kinds if not options.missing or f"{name} {kind}" not in results["cases"]]
        with tempfile.TemporaryDirectory(prefix="bench-") as work:
            network = Network(name, work)
            if wanted:
                network.files_make()
            for kind in wanted:
                sides = sides_of(network, kind, cores, options.seconds)
                case = results["cases"][f"{name} {kind}"] = case_make(network, kind, sides)
                bench.case_run(results, f"{name} {kind}", case, sides, options.repetitions, save, SHARE)
    print(f"wrote {PAGE} and {path}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="networks, separated by commas, or `files`: those from files")
    parser.add_argument("--kinds", default="", help="of " + ", ".join(KINDS))
    parser.add_argument("--missing", action="store_true", help="only what has no row yet")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="about how long a run takes; below 5 a step may be all of it")
    parser.add_argument("--list", action="store_true", help="show the networks")
    parser.add_argument("--export", nargs=2)
    options = parser.parse_args()
    if options.export:
        return export(*options.export)
    return print("\n".join([*NETWORKS, *FILES])) if options.list else compare(options)


if __name__ == "__main__":
    main()
