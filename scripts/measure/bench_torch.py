#!/usr/bin/env python3
"""PyTorch's side of scripts/measure/bench_cpu.sh: the same networks and training steps in PyTorch, timed inside the process.

usage: bench_torch.py MODEL [--side N] [--batch N] [--steps N] [--warmup N] [--threads N] [--layout nchw|nhwc] [--bf16] [--compile] [--processes N]
                      [--serve]

fashion_cnn and inception_mini train on the real Fashion-MNIST for one epoch (or --steps of it): a new order each epoch, batches
gathered by fancy indexing from one tensor with all images, no value read back before the end. Networks of torchvision, and of timm as
timm:NAME, train on two synthetic batches of images of --side alternately. Prints one JSON object. With --processes, DistributedDataParallel over gloo
divides the batch. --compile passes the model through torch.compile. With --serve it prints a line once it is warmed up, then
measures once per line of its input, so that several processes can stay warm and take turns.
"""
import argparse
import datetime
import gzip
import json
import os
import socket
import subprocess
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Debian's OpenBLAS would start a second thread pool

import numpy
import torch
from torch import nn
from torch.nn import functional as F

DATA = os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist")
MEAN, STD = 0.2860, 0.3530


class FashionCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(1600, 64), nn.Linear(64, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class Unit(nn.Module):
    """Convolution, batch norm, ReLU."""

    def __init__(self, ins, outs, kernel, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(ins, outs, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(outs, eps=1e-3)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)), inplace=True)


class Block(nn.Module):
    def __init__(self, ins, one, three_in, three, double_in, double, pool):
        super().__init__()
        self.b0 = Unit(ins, one, 1)
        self.b1 = nn.Sequential(Unit(ins, three_in, 1), Unit(three_in, three, 3))
        self.b2 = nn.Sequential(Unit(ins, double_in, 1), Unit(double_in, double, 3), Unit(double, double, 3))
        self.b3 = Unit(ins, pool, 1)

    def forward(self, x):
        return torch.cat([self.b0(x), self.b1(x), self.b2(x), self.b3(F.avg_pool2d(x, 3, 1, 1))], 1)


class Reduction(nn.Module):
    def __init__(self, ins):
        super().__init__()
        self.b0 = nn.Sequential(Unit(ins, 32, 1), Unit(32, 48, 3, 2))
        self.b1 = nn.Sequential(Unit(ins, 16, 1), Unit(16, 24, 3), Unit(24, 32, 3, 2))

    def forward(self, x):
        return torch.cat([self.b0(x), self.b1(x), F.max_pool2d(x, 3, 2, 1)], 1)


class InceptionMini(nn.Module):
    dropout = 0.2

    def __init__(self, channels=1, classes=10):
        super().__init__()
        self.body = nn.Sequential(Unit(channels, 16, 3), Unit(16, 32, 3, 2), Block(32, 32, 24, 32, 16, 16, 16), Reduction(96),
                                  Block(176, 64, 48, 64, 24, 48, 32), Block(208, 64, 48, 64, 24, 48, 32))
        self.fc = nn.Linear(208, classes)

    def forward(self, x):
        x = self.body(x).mean((2, 3))
        return self.fc(F.dropout(x, self.dropout, self.training))


# ---- data


def read_idx(name, skip):
    with gzip.open(os.path.join(DATA, name)) as file:
        return numpy.frombuffer(file.read(), numpy.uint8, offset=skip)


class Plain:
    """Pixels in [0, 1]."""

    def __init__(self, images):
        self.images = torch.from_numpy(images.copy()).view(-1, 1, 28, 28).float() / 255

    def batch(self, ids):
        return self.images[ids]


class Augmented:
    """Standardized; a random 28x28 window of the image padded by 2 black pixels, mirrored half of the time."""

    def __init__(self, images):
        images = torch.from_numpy(images.copy()).view(-1, 28, 28).float() / 255
        self.images = (F.pad(images, (2, 2, 2, 2)) - MEAN) / STD
        self.side = torch.arange(28)

    def batch(self, ids):
        n = len(ids)
        rows = torch.randint(0, 5, (n, 1)) + self.side
        columns = torch.randint(0, 5, (n, 1)) + torch.where(torch.rand(n, 1) < 0.5, self.side, 27 - self.side)
        return self.images[ids[:, None, None], rows[:, :, None], columns[:, None, :]].unsqueeze(1)


class FashionMnist:
    def __init__(self, form, share, shares):
        self.form = form(read_idx("train-images-idx3-ubyte.gz", 16))
        self.labels = torch.from_numpy(read_idx("train-labels-idx1-ubyte.gz", 8).copy()).long()
        self.share, self.shares = share, shares

    def epoch(self, batch, steps):
        order = torch.randperm(len(self.labels))
        for step, ids in enumerate(order.split(batch)):
            if steps and step == steps:
                return
            ids = ids.chunk(self.shares)[self.share] if self.shares > 1 else ids
            yield self.form.batch(ids), self.labels[ids]


class MadeUp:
    def __init__(self, side, classes, shares):
        self.side, self.classes, self.shares, self.made = side, classes, shares, []

    def epoch(self, batch, steps):
        batch //= self.shares
        while len(self.made) < 2:
            self.made.append((torch.randn(batch, 3, self.side, self.side), torch.randint(0, self.classes, (batch,))))
        for step in range(steps):
            yield self.made[step % 2]


# ---- training


def optimizer_of(name, model):
    more = {"fused": True} if torch.__version__ >= "2.4" else {}  # one pass over the parameters; on CPUs since 2.4
    if name == "fashion_cnn":
        return torch.optim.Adam(model.parameters(), 1e-3, **more)
    if name == "inception_mini":
        return torch.optim.SGD(model.parameters(), 0.05, 0.9, weight_decay=5e-4, nesterov=True, **more)
    return torch.optim.SGD(model.parameters(), 0.01, 0.9, **more)


def model_of(name):
    if name == "fashion_cnn":
        return FashionCnn()
    if name == "inception_mini":
        return InceptionMini()
    if name.startswith("timm:"):
        import timm

        return timm.create_model(name.removeprefix("timm:"), num_classes=1000)
    import torchvision

    auxiliary = {"aux_logits": True, "init_weights": False} if name in ("inception_v3", "googlenet") else {}
    return torchvision.models.get_model(name, weights=None, **auxiliary)


def loss_of(name, out, labels):
    if name == "inception_v3":
        return F.cross_entropy(out.logits, labels) + 0.4 * F.cross_entropy(out.aux_logits, labels)
    if name == "googlenet":
        aux = F.cross_entropy(out.aux_logits1, labels) + F.cross_entropy(out.aux_logits2, labels)
        return F.cross_entropy(out.logits, labels) + 0.3 * aux
    return F.cross_entropy(out, labels)


class Trainer:
    def __init__(self, options, ddp):
        self.options = options
        self.format = torch.channels_last if options.layout == "nhwc" else torch.contiguous_format
        self.model = model_of(options.model).to(memory_format=self.format).train()
        if ddp:
            self.model = nn.parallel.DistributedDataParallel(self.model)
        if options.compile:
            self.model = torch.compile(self.model)
        self.optimizer = optimizer_of(options.model, self.model)
        self.loss = torch.zeros(())

    def step(self, images, labels):
        self.optimizer.zero_grad(set_to_none=True)
        images = images.contiguous(memory_format=self.format)
        if self.options.bf16:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = loss_of(self.options.model, self.model(images), labels)
        else:
            loss = loss_of(self.options.model, self.model(images), labels)
        loss.backward()
        self.optimizer.step()
        self.loss += loss.detach() * len(labels)

    def run(self, data, steps):
        self.loss.zero_()
        images = 0
        for x, y in data.epoch(self.options.batch, steps):
            self.step(x, y)
            images += len(y)
        return images


def measure(options, rank, trainer, data):
    """One measurement by all ranks; the first prints it."""
    if options.processes > 1:
        torch.distributed.barrier()
    cpu, start = time.process_time(), time.perf_counter()
    images = trainer.run(data, options.steps) * options.processes
    if options.processes > 1:
        torch.distributed.barrier()
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    if rank == 0:
        print(json.dumps({"images_per_sec": images / seconds, "seconds": seconds, "images": images, "cpu_seconds": cpu,
                          "loss": float(trainer.loss) * options.processes / images, "version": torch.__version__}), flush=True)


def asked(options, rank):
    """True if another measurement is requested: the first rank reads its input and informs the others."""
    more = torch.ones(1)
    if rank == 0:
        more.fill_(1.0 if sys.stdin.readline() else 0.0)
    if options.processes > 1:
        torch.distributed.broadcast(more, 0)
    return bool(more.item())


def train(options, rank):
    torch.manual_seed(rank)
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    data = {
        "fashion_cnn": lambda: FashionMnist(Plain, rank, options.processes),
        "inception_mini": lambda: FashionMnist(Augmented, rank, options.processes),
    }.get(options.model, lambda: MadeUp(options.side, 1000, options.processes))()
    trainer = Trainer(options, options.processes > 1)
    trainer.run(data, options.warmup)
    if not options.serve:
        return measure(options, rank, trainer, data)
    if rank == 0:
        print(json.dumps({"ready": True, "version": torch.__version__}), flush=True)
    while asked(options, rank):
        measure(options, rank, trainer, data)


def start_others(options):
    """Start the other ranks as processes with this command line; this process is the first."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ.update(place)
    return [subprocess.Popen([sys.executable, *sys.argv], env=dict(os.environ, RANK=str(rank)), stdin=subprocess.DEVNULL)
            for rank in range(1, options.processes)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--side", type=int, help="of the images; default: 299 for inception_v3, else 224")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=0, help="0: a whole epoch")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--layout", choices=["nchw", "nhwc"], default="nhwc")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--serve", action="store_true")
    options = parser.parse_args()
    options.side = options.side or (299 if options.model == "inception_v3" else 224)
    if options.steps == 0 and options.model not in ("fashion_cnn", "inception_mini"):
        sys.exit("bench_torch: synthetic data has no epochs; use --steps")
    rank = int(os.environ.get("RANK", "0"))
    if options.processes == 1:
        return train(options, rank)
    others = start_others(options) if rank == 0 else []
    torch.distributed.init_process_group("gloo", rank=rank, world_size=options.processes, timeout=datetime.timedelta(hours=3))
    try:
        train(options, rank)
        torch.distributed.destroy_process_group()
    except BaseException:
        for other in others:
            other.kill()
        raise
    finally:
        for other in others:
            other.wait()


if __name__ == "__main__":
    main()
