#!/usr/bin/env python3
"""Images per second of torchvision's DataLoader on a folder of images: random resized crop, flip, normalize.

Usage: scripts/bench_data.py FOLDER SIDE SECONDS   (FOLDER has one folder per class; prints a line per number of workers)"""
import sys, time
import torch, torchvision
from torchvision import datasets, transforms as T

def main():
    folder, side, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    torch.set_num_threads(1)
    transform = T.Compose([T.RandomResizedCrop(side), T.RandomHorizontalFlip(), T.PILToTensor(),
                           T.ConvertImageDtype(torch.float), T.Normalize((0.5,) * 3, (0.5,) * 3)])
    data = datasets.ImageFolder(folder, transform)
    for workers in (1, 2, 3, 4):
        class Endless(torch.utils.data.Sampler):
            def __iter__(self):
                while True: yield from torch.randperm(len(data)).tolist()
        loader = iter(torch.utils.data.DataLoader(data, batch_size=32, sampler=Endless(), num_workers=workers))
        for _ in range(5): next(loader)
        start, images = time.monotonic(), 0
        while time.monotonic() - start < seconds: images += next(loader)[0].shape[0]
        print("%d workers: %.0f images/s" % (workers, images / (time.monotonic() - start)), flush=True)
        del loader
    print("torch %s torchvision %s" % (torch.__version__, torchvision.__version__))

main()
