#!/usr/bin/env python3
"""Write tests/golden/networks/NAME.onnx.gz: the structure of five small networks of torchvision and timm as PyTorch exports them, without
their weights, of which towers keeps the file of a run (RUN/network.onnx).

They are of different families: residual blocks with batch norms, channels that are shuffled, squeeze and excitation, layer norms, and
weights that are standardized, with a gain of one number for each branch.

Usage: PYTHON_WITH_THE_PACKAGES tests/golden/networks.py TOWERS
"""
import gzip
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../scripts/parity"))
import networks  # noqa: E402

NAMES = ("shufflenet_v2_x0_5", "timm:test_resnet", "timm:test_efficientnet", "timm:test_convnext", "timm:test_nfnet")
SIDE = 32

towers = os.path.abspath(sys.argv[1])
for name in NAMES:
    short = name.replace("timm:", "")
    with tempfile.TemporaryDirectory() as work:
        path = f"{work}/{short}.onnx"
        if not networks.exported(networks.network_of(name), SIDE, "script", path):
            sys.exit(f"{name}: PyTorch does not export it")
        subprocess.run([towers, "train", path, "--dataset", "synthetic", "--epochs", "0", "--experiment", "it", "--quiet"], cwd=work, check=True)
        with open(f"{work}/runs/it/network.onnx", "rb") as structure:
            packed = gzip.compress(structure.read(), 9, mtime=0)
    with open(os.path.join(os.path.dirname(__file__), "networks", f"{short}.onnx.gz"), "wb") as to:
        to.write(packed)
