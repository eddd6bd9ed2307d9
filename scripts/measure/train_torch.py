#!/usr/bin/env python3
"""PyTorch's side of scripts/measure/time_to_accuracy.sh: the recipe `mini` of inception_mini on Fashion-MNIST.

usage: train_torch.py [--epochs N] [--batch N] [--seed N] [--threads N] [--images N] [--bf16] [--compile]

The network is that of bench_torch.py with the initial values of inception/models/inception_mini.c, in channels_last; all images are one
tensor, the optimizer is fused, no value is read back in an epoch. Compilation ends before the clock starts; the last batch, which is
smaller, and the evaluation run eagerly and need no other. Prints a line of JSON with the number of parameters before training, and one
after each epoch.
"""
import argparse
import json
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

from bench_torch import MEAN, STD, InceptionMini, read_idx

RATE, MOMENTUM, DECAY, SMOOTHING, RISE = 0.3, 0.9, 0.001, 0.1, 0.3  # inception/recipes/mini.yaml; RISE: towers/replica/schedule.c


def one_cycle(step, steps):
    top = RISE * steps
    return RATE * min(1, (step + 1) / top) if step < top else RATE * (1 + math.cos(math.pi * (step - top) / (steps - top))) / 2


def initialize(model):
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.05, a=-0.1, b=0.1)
            nn.init.zeros_(module.bias)


def part_read(name, count):
    images = torch.from_numpy(read_idx(f"{name}-images-idx3-ubyte.gz", 16).copy()).view(-1, 1, 28, 28)[:count]
    labels = torch.from_numpy(read_idx(f"{name}-labels-idx1-ubyte.gz", 8).copy()).long()[:count]
    return ((images.float() / 255 - MEAN) / STD).contiguous(memory_format=torch.channels_last), labels


def say(**values):
    print(json.dumps(values), flush=True)
    sys.stdin.readline()  # the clock is read between a line and its answer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--images", type=int, default=60000)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    model = InceptionMini()
    initialize(model)
    model.dropout = 0.0
    model = model.to(memory_format=torch.channels_last)
    (images, labels), (test, truth) = part_read("train", options.images), part_read("t10k", options.images)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, RATE, MOMENTUM, nesterov=True, fused=True)
    amp = torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.bf16)

    def evaluate():
        model.eval()
        with torch.inference_mode(), amp:
            out = torch.cat([model(part).float() for part in test.split(500)])
        model.train()
        return 100 * float((out.argmax(1) == truth).float().mean())

    fast = model
    if options.compile:
        before = {name: value.clone() for name, value in model.state_dict().items()}
        fast = torch.compile(model)
        with amp:
            F.cross_entropy(fast(images[:options.batch]), labels[:options.batch], label_smoothing=SMOOTHING).backward()
        optimizer.zero_grad(set_to_none=True)
        model.load_state_dict(before)
    batches, first = math.ceil(len(labels) / options.batch), None
    say(parameters=sum(p.numel() for p in model.parameters()), version=torch.__version__.split("+")[0])
    for epoch in range(options.epochs):
        for at, ids in enumerate(torch.randperm(len(labels)).split(options.batch)):
            for group in optimizer.param_groups:
                group["lr"] = one_cycle(epoch * batches + at, options.epochs * batches)
            optimizer.zero_grad(set_to_none=True)
            with amp:
                loss = F.cross_entropy((fast if len(ids) == options.batch else model)(images[ids]), labels[ids], label_smoothing=SMOOTHING)
            loss.backward()
            optimizer.step()
            first = loss.detach() if epoch == at == 0 else first
        say(epoch=epoch + 1, accuracy=evaluate(), first_loss=float(first))


if __name__ == "__main__":
    main()
