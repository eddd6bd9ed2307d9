#!/usr/bin/env python3
"""Train wgan_gp_keras beside PyTorch from the same weights, images and random numbers, and compare the losses of every update.

usage: compare_wgan.py [--steps N] [--width W] [--batch N] [--within PART] [--losses FILE]      TOWERS: the program; needs torch

N generator updates, each behind three of the critic with one batch. Weights are those of a run without updates, the order of the
images its samples.csv, noise, alpha and dropout masks the project's Philox numbers, computed here again. Fails if a loss of the first
ten generator updates is further off than PART of the largest so far (default 1e-3), or a later one than ten times that, because
training multiplies differences of rounding. --losses writes PyTorch's losses: tests/cli/check_wgan_losses.sh compares a run
with those of `compare_wgan.py --losses tests/cli/wgan_losses.txt`.
"""
import argparse
import csv
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F

IMAGES, SIDE, CRITIC = 256, 28, 3
EARLY = 10  # generator updates that must agree closely


def philox(count, first, step, stream, seed=0):
    """Words of elements first .. first + count - 1 of a step."""
    element = np.arange(first, first + count, dtype=np.uint64)
    groups, where = np.unique(element // 4, return_inverse=True)
    mask = np.uint64(0xFFFFFFFF)
    c = [groups & mask, np.full_like(groups, step), groups >> np.uint64(32), np.full_like(groups, stream)]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & mask, (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & mask]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    words = np.stack(c, 1)
    return words, where, (element % 4).astype(int)


def units(shape, step, stream):
    """Uniform numbers in [0, 1), packed NHWC, as an NCHW array."""
    n, c, h, w = shape
    words, group, lane = philox(n * c * h * w, 0, step, stream)
    return ((words[group, lane] >> np.uint64(8)) / 2.0**24).reshape(n, h, w, c).transpose(0, 3, 1, 2)


def normals(count, step, stream):
    words, group, lane = philox(count, 0, step, stream)
    u = (words >> np.uint64(8)) / 2.0**24
    pair = lane // 2 * 2
    radius, turn = np.sqrt(-2 * np.log(1 - u[group, pair])), 2 * np.pi * u[group, pair + 1]
    return np.where(lane % 2, radius * np.sin(turn), radius * np.cos(turn))


def weights_read(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    return {name: torch.from_numpy(np.frombuffer(data[slice(*info["data_offsets"])], np.float32).copy().reshape(info["shape"])).double()
            for name, info in header.items() if name != "__metadata__" and info["dtype"] == "F32"}


class Training:
    def __init__(self, weights, width, batch):
        self.w = {name: value.requires_grad_(True) for name, value in weights.items() if "running" not in name}
        self.width, self.batch, self.stream, self.step = width, batch, 0, 0
        make = lambda of: torch.optim.Adam([v for name, v in self.w.items() if name.startswith(of)], 2e-4, (0.5, 0.9), 1e-7)
        self.adam = {"critic": make("critic."), "generator": make("generator.")}

    def next_stream(self):
        self.stream += 1
        return self.stream

    def norm(self, x, name):
        return F.batch_norm(x, None, None, self.w[name + ".bn.weight"], self.w[name + ".bn.bias"], True, 0.01, 1e-3)

    def generator(self):
        z = torch.from_numpy(normals(self.batch * 128, self.step, self.next_stream() ^ 0x80000000).reshape(self.batch, 128))
        x = F.leaky_relu(self.norm(z @ self.w["generator.fc.weight"].flatten(1).T, "generator.fc"), 0.2)
        x = x.view(self.batch, 4 * self.width, 4, 4)
        for k in (1, 2, 3):
            name = f"generator.up{k}"
            x = self.norm(F.conv2d(F.interpolate(x, scale_factor=2), self.w[name + ".weight"], padding=1), name)
            x = F.leaky_relu(x, 0.2) if k < 3 else torch.tanh(x)
        return x[:, :, 2:-2, 2:-2]

    def drop(self, x, rate):
        kept = units(tuple(x.shape), self.step, self.next_stream()).astype(np.float32) < np.float32(1) - np.float32(rate)
        return x * torch.from_numpy(kept.copy()) / float(np.float32(1) - np.float32(rate))

    def critic(self, x):
        x = F.pad(x, [2] * 4)
        for k in (1, 2, 3, 4):
            name = f"critic.conv{k}"
            x = F.leaky_relu(F.conv2d(F.pad(x, [1, 2, 1, 2]), self.w[name + ".weight"], self.w[name + ".bias"].flatten(), 2), 0.2)
            x = self.drop(x, 0.3) if k in (2, 3) else x
        return self.drop(x, 0.2).flatten(1) @ self.w["critic.score.weight"].flatten() + self.w["critic.score.bias"].flatten()

    def update(self, phase, images):
        self.stream = 0
        if phase == "critic":
            with torch.no_grad():
                fake = self.generator()
            real_score, fake_score = self.critic(images), self.critic(fake)
            alpha = torch.from_numpy(units((self.batch, 1, 1, 1), self.step, self.next_stream() ^ 0x80000000).copy())
            between = (images + alpha * (fake - images)).requires_grad_(True)
            slope, = torch.autograd.grad(self.critic(between).sum(), between, create_graph=True)
            norm = (slope.square().flatten(1).sum(1) + 1e-12).sqrt()
            loss = (fake_score - real_score + 10 * (norm - 1).square()).mean()
        else:
            loss = -self.critic(self.generator()).mean()
        for adam in self.adam.values():
            adam.zero_grad(set_to_none=True)
        loss.backward()
        self.adam[phase].step()
        self.step += 1
        return float(loss.detach())


def towers(folder, name, steps, options):
    command = [os.environ.get("TOWERS", "build/towers"), "train", "wgan_gp_keras", "--recipe", "keras", "--width", options.width,
               "--global-batch-size", options.batch, "--data-path", folder, "--output-dir", folder, "--experiment", name, "--device", "cpu",
               "--threads", 2, "--towers", 1, "--max-steps", steps, "--log-samples", "--quiet", "--seed", 0]
    run = subprocess.run([str(part) for part in command], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if run.returncode:
        sys.exit("compare_wgan: towers train: " + run.stderr[-600:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--within", type=float, default=1e-3)
    parser.add_argument("--losses", type=argparse.FileType("w"))
    options = parser.parse_args()
    updates = (CRITIC + 1) * options.steps
    with tempfile.TemporaryDirectory() as folder:
        pixels = (np.arange(IMAGES * SIDE * SIDE, dtype=np.uint64) * 2654435761 >> 13 & 255).astype(np.uint8).reshape(-1, SIDE, SIDE)
        for part in ("train", "t10k"):
            with open(f"{folder}/{part}-images-idx3-ubyte", "wb") as file:
                file.write(struct.pack(">4i", 0x803, IMAGES, SIDE, SIDE) + pixels.tobytes())
            with open(f"{folder}/{part}-labels-idx1-ubyte", "wb") as file:
                file.write(struct.pack(">2i", 0x801, IMAGES) + bytes(i % 10 for i in range(IMAGES)))
        towers(folder, "start", 0, options)
        towers(folder, "run", updates, options)
        training = Training(weights_read(f"{folder}/start/last.safetensors"), options.width, options.batch)
        with open(f"{folder}/run/samples.csv") as file:
            batches = {int(row[0]): [int(i) for i in row[-1].split()] for row in csv.reader(file) if row[0].isdigit()}
        with open(f"{folder}/run/metrics.jsonl") as file:
            rows = [json.loads(line) for line in file]
        largest, early, late, ids = 0, 0, 0, None
        for n, row in enumerate(rows[:updates]):
            ids = batches.get(row["step"], ids)  # updates of a cycle share a batch
            images = torch.from_numpy(pixels[ids][:, None] / 127.5 - 1)
            loss = training.update(row["phase"], images)
            largest = max(largest, abs(loss))
            off = abs(loss - row["mean_loss"]) / largest
            if n < (CRITIC + 1) * EARLY:
                early = max(early, off)
            else:
                late = max(late, off)
            if options.losses:
                print(f"{loss:.9f}", file=options.losses)
            print(f"{row['step']:4d} {row['phase']:9s} {row['mean_loss']:12.6f} {loss:12.6f}")
        print(f"compare_wgan: {updates} updates, at most {early:.1e} of the largest loss apart in the first {EARLY} steps, then {late:.1e}")
        sys.exit(early > options.within or late > 10 * options.within or len(rows) < updates)


if __name__ == "__main__":
    main()
