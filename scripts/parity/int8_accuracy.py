#!/usr/bin/env python3
"""The accuracy of networks in int8 beside f32, by ONNX Runtime on the test images of Fashion-MNIST: rows of Markdown, or with --json an
object for each run. `kinds`: the nodes that ONNX Runtime makes of the file in int8.

usage: scripts/parity/int8_accuracy.py [--json] BINARY DATA RUN...      DATA: folder of t10k-images-idx3-ubyte[.gz] and the labels
"""
import collections, gzip, json, subprocess, sys, tempfile
from pathlib import Path

import numpy as np, onnx, onnxruntime


def idx(folder, name, offset):
    packed, plain = folder / f"{name}-ubyte.gz", folder / f"{name}-ubyte"
    return np.frombuffer(gzip.open(packed).read() if packed.exists() else plain.read_bytes(), np.uint8, offset=offset)


def answers(path, images, optimized=""):
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = optimized, 3  # else it warns of the file that is asked for
    options.add_session_config_entry("session.x64quantprecision", "1")  # without VNNI sums of two products would saturate
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"image": part})[0] for part in np.array_split(images, max(1, len(images) // 250))])


def row(binary, data, run, work):
    images, labels = idx(data, "t10k-images-idx3", 16).reshape(-1, 28, 28, 1), idx(data, "t10k-labels-idx1", 8)
    probabilities, size = {}, {}
    for form, flags in (("f32", []), ("int8", ["--int8"])):
        path = str(Path(work) / f"{form}.onnx")
        subprocess.run([binary, "export", run, path, "--preprocess", "--quiet", *flags], check=True)
        onnx.checker.check_model(path, full_check=True)
        probabilities[form], size[form] = answers(path, images, path + ".optimized"), Path(path).stat().st_size
    taken = {form: p.argmax(1) for form, p in probabilities.items()}
    kinds = collections.Counter(node.op_type for node in onnx.load(path + ".optimized").graph.node)
    model = next(pair.value for pair in onnx.load(path).metadata_props if pair.key == "model")
    return {"model": model, "images": len(labels), "f32": float((taken["f32"] == labels).mean()), "int8": float((taken["int8"] == labels).mean()),
            "same": float((taken["f32"] == taken["int8"]).mean()), "bytes": [size["f32"], size["int8"]], "kinds": kinds}


def main():
    binary, data, *runs = [a for a in sys.argv[1:] if a != "--json"]
    if "--json" not in sys.argv:
        print("| network | top-1 f32 | top-1 int8 | same class | size of f32 | of int8 |\n|---|---|---|---|---|---|")
    for run in runs:
        with tempfile.TemporaryDirectory() as work:
            r = row(binary, Path(data), run, work)
        print(json.dumps(r) if "--json" in sys.argv else
              f"| {r['model']} | {r['f32']:.2%} | {r['int8']:.2%} | {r['same']:.2%} | {r['bytes'][0]:,} B | {r['bytes'][1]:,} B |".replace("%", " %"))


main()
