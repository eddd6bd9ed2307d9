#!/usr/bin/env python3
"""The runs of scripts/measure/train_photos.sh by other programs: the same pictures, network and length on one thread.

usage: train_photos_torch.py torch|timm|ultralytics FOLDER MODEL SIDE EPOCHS SEED

torch is PyTorch with the recipe `photos`: the same initial distribution, batches, crops, colors, rates and decay; every picture is decoded
once, before the training, and torchvision's v2 transforms read the tensors. timm has the defaults of its train.py, by timm's own
transforms, optimizer and schedule; ultralytics has those of its classifier, whose sizes are multiples of 32. Both train the network that
is named. Where the processor has bf16, torch uses it as Towers does. Prints the accuracy and the loss of the test pictures after each
epoch and the loss of each step as a line of JSON; ultralytics, whose loop is its own, gives its accuracy only.
"""
import json
import math
import os
import random
import sys
import tempfile

import numpy
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F

from bench_torch import MEAN, STD, InceptionMini
from train_torch import initialize

RATE, DECAY, SMOOTHING, WARMUP, BATCH = 0.002, 0.05, 0.1, 3, 32  # inception/recipes/photos.yaml


def network_make(name, classes):
    if name == "inception_mini":
        model = InceptionMini(3, classes)
        initialize(model)
        model.dropout = 0.0
        return model, ([MEAN] * 3, [STD] * 3)
    import torchvision

    model = getattr(torchvision.models, name)(num_classes=classes)
    nn.init.zeros_(model.fc.bias)
    return model, ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


def part_read(folder, part):
    """Paths and labels; a class is a folder."""
    names = sorted(os.listdir(os.path.join(folder, "train")))
    return [(os.path.join(folder, part, name, file), label) for label, name in enumerate(names)
            for file in sorted(os.listdir(os.path.join(folder, part, name)))]


def rate_of(step, batches, epochs):
    """The warm-up of towers/replica/schedule.c, then its cosine."""
    warmup = WARMUP * batches
    if step < warmup:
        return RATE * (step + 1) / warmup
    return RATE * (1 + math.cos(math.pi * (step - warmup) / (epochs * batches - warmup))) / 2


def steps_run(model, train, test, labels, transform, optimizer, batch, epochs, before, smoothing):
    """Trains and evaluates; `before(step, batches)` sets the rates."""
    with open("/proc/cpuinfo") as file:
        amp = torch.autocast("cpu", dtype=torch.bfloat16, enabled=" avx512_bf16" in file.read())
    truth, targets, losses, tests = labels[1], labels[0], [], []
    batches = math.ceil(len(train) / batch)
    for epoch in range(epochs):
        model.train()
        for at, ids in enumerate(torch.randperm(len(train)).split(batch)):
            before(epoch * batches + at, batches)
            images = torch.stack([transform(train[i]) for i in ids]).contiguous(memory_format=torch.channels_last)
            optimizer.zero_grad(set_to_none=True)
            with amp:
                loss = F.cross_entropy(model(images).float(), targets[ids], label_smoothing=smoothing)
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        model.eval()
        with torch.inference_mode(), amp:
            out = torch.cat([model(part).float() for part in test.split(128)])
        tests.append([100 * float((out.argmax(1) == truth).float().mean()), float(F.cross_entropy(out, truth, label_smoothing=smoothing))])
    return {"tests": tests, "losses": losses, "parameters": sum(p.numel() for p in model.parameters())}


def labels_of(*parts):
    return [torch.tensor([label for _, label in part]) for part in parts]


def torch_run(folder, name, side, epochs):
    from torchvision.transforms import v2

    train, test = part_read(folder, "train"), part_read(folder, "val")
    model, (mean, std) = network_make(name, 1 + train[-1][1])
    last = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std)]
    transform = v2.Compose([v2.RandomResizedCrop(side, scale=(0.7, 1.0), antialias=True), v2.RandomHorizontalFlip(),
                            v2.ColorJitter(0.2, 0.2, 0.2), *last])
    still = v2.Compose([v2.Resize(round(side * 342 / 299), antialias=True), v2.CenterCrop(side), *last])

    def read(path):
        return v2.functional.pil_to_tensor(Image.open(path).convert("RGB"))

    tests = torch.stack([still(read(path)) for path, _ in test]).contiguous(memory_format=torch.channels_last)
    model = model.to(memory_format=torch.channels_last)
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": DECAY},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, RATE, fused=True)

    def before(step, batches):
        for group in optimizer.param_groups:
            group["lr"] = rate_of(step, batches, epochs)

    return steps_run(model, [read(path) for path, _ in train], tests, labels_of(train, test), transform, optimizer, BATCH, epochs, before,
                     SMOOTHING)


def timm_run(folder, name, side, epochs):
    """The defaults of train.py of timm 1.0: batch 128, rate 0.1 for 256 images, five epochs of warm-up, the rate of each epoch."""
    from timm.data import create_transform
    from timm.optim import create_optimizer_v2
    from timm.scheduler import create_scheduler_v2

    train, test = part_read(folder, "train"), part_read(folder, "val")
    model, (mean, std) = network_make(name, 1 + train[-1][1])
    batch = 128
    common = {"input_size": (3, side, side), "mean": mean, "std": std}
    transform = create_transform(**common, is_training=True, scale=(0.08, 1.0), hflip=0.5, color_jitter=0.4, interpolation="random")
    still = create_transform(**common, interpolation="bicubic", crop_pct=0.875)
    optimizer = create_optimizer_v2(model, "sgd", lr=0.1 * batch / 256, weight_decay=2e-5, momentum=0.9)
    schedule, _ = create_scheduler_v2(optimizer, sched="cosine", num_epochs=epochs, min_lr=0, warmup_lr=1e-5, warmup_epochs=5)

    def before(step, batches):
        if step % batches == 0:
            schedule.step(step // batches)

    tests = torch.stack([still(Image.open(path).convert("RGB")) for path, _ in test])
    return steps_run(model, [Image.open(path).convert("RGB") for path, _ in train], tests, labels_of(train, test), transform, optimizer,
                     batch, epochs, before, 0.1)


def ultralytics_run(folder, name, side, epochs, seed):
    from ultralytics.models.yolo.classify import ClassificationTrainer
    from ultralytics.nn.tasks import ClassificationModel

    class Trainer(ClassificationTrainer):
        def get_model(self, cfg=None, weights=None, verbose=True):
            model = ClassificationModel("yolo11n-cls.yaml", nc=self.data["nc"], ch=3, verbose=False)
            network = network_make(name, self.data["nc"])[0]
            network.f, network.i, network.type = -1, 0, name  # what the loop over layers asks of each
            model.model, model.save = nn.Sequential(network), []
            return model

    with tempfile.TemporaryDirectory() as work:
        data = os.path.join(work, "data")  # it writes lists beside the folders of pictures
        os.mkdir(data)
        for part in ("train", "val"):
            os.symlink(os.path.join(folder, part), os.path.join(data, part))
        trainer = Trainer(overrides={"model": "yolo11n-cls.yaml", "data": data, "imgsz": side, "epochs": epochs, "seed": seed, "device": "cpu",
                                     "project": work, "save": False, "plots": False, "pretrained": False, "verbose": False, "workers": 0})
        trainer.train()
        return {"tests": [[100 * float(trainer.metrics["metrics/accuracy_top1"]), None]], "losses": [], "side": trainer.args.imgsz,
                "parameters": sum(p.numel() for p in trainer.model.parameters())}


def main():
    program, folder, name, side, epochs, seed = sys.argv[1:]
    side, epochs, seed = int(side), int(epochs), int(seed)
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    if program == "ultralytics":
        found = ultralytics_run(folder, name, side, epochs, seed)
    else:
        found = {"torch": torch_run, "timm": timm_run}[program](folder, name, side, epochs)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
