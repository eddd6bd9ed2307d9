#!/usr/bin/env python3
"""Time forward passes beside other runtimes, in turns; see scripts/measure/bench_inference.sh.

usage: bench_inference.py [--only CASE,...] [--repetitions N] [--list]
       bench_inference.py --serve torch|onnxruntime|openvino NETWORK --batch N --threads N --steps N [--layout nchw|nhwc] [--compile]
                          [--warmup N] [--side N] [--bf16]      a peer, run by the first: NETWORK is a name for PyTorch, else a file of ONNX

A pass takes a batch of images in memory, the same each time, to probabilities or logits in memory. Towers (`towers bench --inference`)
reads bytes and normalizes them, as the files of ONNX do with images in [0, 1]; PyTorch gets normalized images. Towers is a new process
each time; the others are started, compiled and warmed up once per case and wait for their turns. Runs during which other programs were
busy are marked and repeated as in bench_cpu.py.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import bench_cpu as bench

PAGE = "docs/results/cpu.md"
CASES = {  # name: (network, side of an image, batch, passes of a measurement)
    "inception_v3_16": ("inception_v3", 299, 16, 2),
    "inception_v3_1": ("inception_v3", 299, 1, 25),
    "inception_mini": ("inception_mini", 28, 64, 60),
}


# ---- a peer


def torch_pass(options):
    import torch

    from bench_torch import model_of

    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    model, layout = model_of(options.network).eval(), torch.channels_last if options.layout == "nhwc" else torch.contiguous_format
    side, channels = (28, 1) if options.network == "inception_mini" else (options.side, 3)
    images = torch.randn(options.batch, channels, side, side).contiguous(memory_format=layout)
    model = model.to(memory_format=layout)
    if options.compile:
        import torch._inductor.config as inductor

        inductor.freezing = True  # batch norms are folded, weights packed once
        model = torch.compile(model)

    def run():
        with torch.inference_mode() if not options.compile else torch.no_grad(), torch.autocast("cpu", torch.bfloat16, options.bf16):
            return model(images).float().numpy()  # freezing wants no_grad

    return run, f"PyTorch {torch.__version__.split('+')[0]}"


def images_for(shape, batch):
    import numpy

    return numpy.random.default_rng(0).random([batch, *(int(n) for n in list(shape)[1:])], numpy.float32)


def onnxruntime_pass(options):
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads
    session = onnxruntime.InferenceSession(options.network, settings, providers=["CPUExecutionProvider"])
    images = images_for(session.get_inputs()[0].shape, options.batch)
    return lambda: session.run(None, {"image": images}), f"ONNX Runtime {onnxruntime.__version__}"


def openvino_pass(options):
    import openvino

    core = openvino.Core()
    model = core.read_model(options.network)
    shape = [options.batch, *(axis.get_length() for axis in list(model.inputs[0].partial_shape)[1:])]
    model.reshape(shape)
    settings = {"INFERENCE_NUM_THREADS": options.threads, "PERFORMANCE_HINT": "LATENCY",
                "INFERENCE_PRECISION_HINT": "bf16" if options.bf16 else "f32"}
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    images = images_for(shape, options.batch)
    return lambda: request.infer({0: images}), f"OpenVINO {openvino.__version__.split('-')[0]}"


def serve(options):
    run, version = {"torch": torch_pass, "onnxruntime": onnxruntime_pass, "openvino": openvino_pass}[options.runtime](options)
    for _ in range(options.warmup):
        run()
    print(json.dumps({"ready": True, "version": version}), flush=True)
    while sys.stdin.readline():
        start = time.perf_counter()
        for _ in range(options.steps):
            run()
        print(json.dumps({"images_per_sec": options.batch * options.steps / (time.perf_counter() - start)}), flush=True)


# ---- the comparison


def peer(python, runtime, network, batch, cores, steps, *more):
    command = [python, "scripts/measure/bench_inference.py", "--serve", runtime, network, "--batch", batch, "--threads", cores, "--steps", steps]
    return {"command": [str(c) for c in [*command, *more]], "stays": True}


def ours(model, batch, towers, threads, steps, *more):
    command = [bench.TOWERS, "bench", model, "--inference", "--device", "cpu", "--towers", towers, "--threads", threads,
               "--global-batch-size", batch, "--batches", steps, "--warmup-batches", 1, "--json", *more]
    return {"command": [str(c) for c in command], "read": "bench"}


def sides_of(name, cores, file):
    model, _, batch, steps = CASES[name]
    sides = {f"towers, 1 tower x {cores} threads": ours(model, batch, 1, cores, steps)}
    if 1 < cores <= batch:
        sides[f"towers, {cores} towers x 1 thread"] = ours(model, batch, cores, 1, steps)
    for runtime, title, python in (("onnxruntime", "ONNX Runtime", "ONNX_PYTHON"), ("openvino", "OpenVINO", "OPENVINO_PYTHON")):
        sides[title] = peer(os.environ[python], runtime, file, batch, cores, steps)
    for title, more in (("eager, nchw", ["--layout", "nchw"]), ("eager, nhwc", []), ("compiled, nhwc", ["--compile"])):
        sides[f"PyTorch {title}"] = peer(bench.TORCH_PYTHON, "torch", model, batch, cores, steps, *more)
    return sides


def network_export(model, work):
    """A file of ONNX with the weights of one step on made-up data."""
    train = ["train", model, "--device", "cpu", "--dataset", "synthetic", "--batch-size", "4", "--max-steps", "1", "--eval-interval",
             "0", "--output-dir", work, "--experiment", model, "--quiet"]
    file = os.path.join(work, model + ".onnx")
    for command in (train, ["export", model, file, "--weights", os.path.join(work, model, "last.safetensors"), "--quiet"]):
        done = subprocess.run([bench.TOWERS, *command], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"bench_inference: towers {' '.join(command)}: {done.stderr.strip()}")
    return file


def case_run(name, sides, repetitions):
    case = {"commit": bench.commit_now(), "date": time.strftime("%Y-%m-%d %H:%M"), "runs": {side: [] for side in sides},
            "commands": {side: bench.shown(s) for side, s in sides.items()}, "versions": []}
    servers = {}
    try:
        for round_ in range(2 * repetitions + 1):
            for side, spec in sides.items():
                runs = case["runs"][side]
                if len(runs) > round_ or len(bench.clean(runs)) >= repetitions or any("error" in run for run in runs):
                    continue
                run = bench.run_side(side, spec, servers)
                runs.append(run)
                shown = run.get("error") or f"{bench.digits(run['images_per_sec'])} images/s"
                print(f"{name} {len(runs)}/{repetitions}  {side:32} {shown}{'  (disturbed)' if run.get('disturbed') else ''}", flush=True)
        case["versions"] = sorted({server.version for server in servers.values()})
    finally:
        for server in servers.values():
            server.close()
    return case


def case_table(name, case):
    model, side, batch, _ = CASES[name]
    sums = bench.summaries(case)
    peers = {s: found for s, found in sums.items() if not s.startswith("towers")}
    best = bench.best(peers, "")
    lines = [f"**{model}, {side}x{side}, batch {batch}**; commit {case['commit']}, {case['date']}, {', '.join(case['versions'])}", "",
             "| side | images/s, median | range | runs | to the best peer |", "|---|---:|---:|---:|---:|"]
    for title, s in sums.items():
        if not s:
            error = case["runs"][title][-1].get("error", "") if case["runs"][title] else "not run"
            lines.append(f"| {title} | failed: {' '.join(error.split())[:80]} | | | |")
            continue
        lines.append(f"| {title} | {bench.digits(s['median'])}{bench.STAR if s['disturbed'] else ''} | {bench.digits(s['min'])}-"
                     f"{bench.digits(s['max'])} | {s['runs']} | {s['median'] / best[1]:.2f} |")
    return lines + [""]


def tables(results):
    lines = [f"{bench.machine_text(results['machine'])}.", ""]
    for name in CASES:
        if name in results["cases"]:
            lines += case_table(name, results["cases"][name])
    if any(bench.STAR in line for line in lines):
        lines += [f"`*` fewer than {bench.CLEAN_LEAST} runs undisturbed by other programs, so these numbers are less reliable.", ""]
    for profile in results["profiles"].values():
        lines += [f"<details><summary>{profile['text'].splitlines()[0]}</summary>", "", f"`{' '.join(profile['command'])}`", "",
                  *profile["text"].partition("\n| layer")[0].splitlines()[2:], "</details>", ""]
    return lines[:-1]


def page_fill(results):
    kind = bench.kind_of(results)
    with open(PAGE) as file:
        text = bench.between(file.read(), "Inference", "inference" + kind, tables(results), "bench_inference")
    with open(PAGE, "w") as file:
        file.write(text)
    with open(bench.results_path(kind, "inference"), "w") as file:
        json.dump(results, file, indent=1)
        file.write("\n")


def compare(options):
    cores = len(os.sched_getaffinity(0))
    wanted = options.only.split(",") if options.only else list(CASES)
    for name in wanted:
        if name not in CASES:
            sys.exit(f"bench_inference: unknown case '{name}'; use one of {', '.join(CASES)}")
    results = {"machine": bench.machine(cores), "cases": {}, "profiles": {}}
    path = bench.results_path(bench.kind_of(results), "inference")
    if os.path.exists(path):
        with open(path) as file:
            results = {**json.load(file), "machine": results["machine"]}
    with tempfile.TemporaryDirectory(prefix="bench-") as work:
        files = {model: network_export(model, work) for model in {CASES[name][0] for name in wanted}}
        for name in wanted:
            model, _, batch, _ = CASES[name]
            results["cases"][name] = case_run(name, sides_of(name, cores, files[model]), options.repetitions)
            command, text, _ = bench.profile_text(model, cores, "--inference", "-b", str(batch))
            if text:
                results["profiles"][name] = {"command": command, "text": text}
            page_fill(results)
    if not bench.limits(results["machine"]):  # as the README's table of training
        line = subprocess.run([sys.executable, "scripts/pages/readme_lines.py", "forward", bench.kind_of(results).strip()], check=True, capture_output=True)
        subprocess.run(["scripts/pages/fill_section.sh", "README.md", "forward"], input=line.stdout, check=True)
    print(f"wrote {PAGE} and {path}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="names of cases, separated by commas")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--list", action="store_true", help="show the names of the cases")
    parser.add_argument("--serve", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.list:
        return print("\n".join(CASES))
    if options.serve is None:
        return compare(options)
    parser = argparse.ArgumentParser()
    parser.add_argument("runtime", choices=["torch", "onnxruntime", "openvino"])
    parser.add_argument("network")
    for name, usual in (("--batch", 1), ("--threads", 2), ("--steps", 1), ("--warmup", 3)):
        parser.add_argument(name, type=int, default=usual)
    parser.add_argument("--layout", choices=["nchw", "nhwc"], default="nhwc")
    parser.add_argument("--side", type=int, default=299)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--serve", action="store_true")  # the caller's last word
    serve(parser.parse_args(options.serve))


if __name__ == "__main__":
    main()
