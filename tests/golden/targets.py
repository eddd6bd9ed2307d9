#!/usr/bin/env python3
"""Write tests/unit/golden_targets.h: losses and gradients of PyTorch's CrossEntropyLoss with weights of classes, label smoothing and
mixed targets, and of its BCEWithLogitsLoss with pos_weight, in float64.

Weights of classes take labels, and divide by the weights of the labels; mixed targets (probabilities) are divided by the number of samples,
as torchvision's training script has them.

Usage: PYTHON_WITH_TORCH tests/golden/targets.py > tests/unit/golden_targets.h
"""
import math

import torch

N, CLASSES = 6, 5
LABELS = [0, 3, 1, 4, 3, 2]


def logits():
    return torch.tensor([[2 * math.sin(1.7 * n + 0.9 * k * k) for k in range(CLASSES)] for n in range(N)], dtype=torch.float64)


def mixed(share):
    """Targets of torchvision's RandomMixup: the partner is the sample before, which the script reaches by rolling the batch."""
    target = torch.nn.functional.one_hot(torch.tensor(LABELS), CLASSES).to(torch.float64)
    return target.mul(1 - share).add(target.roll(1, 0).mul(share))


rows = []
for weighted, smoothing, share in [(True, 0, 0), (True, 0.1, 0), (False, 0, 0.25), (False, 0.1, 0.375), (False, 0.1, 0)]:
    weight = torch.tensor([0.5 + 0.75 * k for k in range(CLASSES)], dtype=torch.float64) if weighted else None
    z = logits().requires_grad_(True)
    target = mixed(share) if share else torch.tensor(LABELS)
    loss = torch.nn.CrossEntropyLoss(weight=weight, label_smoothing=smoothing)(z, target)
    loss.backward()
    gradient = " ".join(f"{float(value):.17e}," for value in z.grad.flatten())
    rows.append(f"    {{{str(weighted).lower()}, {smoothing}, {share}, {float(loss.detach()):.17e}, {{{gradient}}}}},")

print(f"/* Made by tests/golden/targets.py with PyTorch {torch.__version__.split('+')[0]}; do not edit. */")
print("// clang-format off")
print(f"enum {{ GOLDEN_N = {N}, GOLDEN_CLASSES = {CLASSES} }};")
print(f"static const int32_t golden_labels[GOLDEN_N] = {{{', '.join(map(str, LABELS))}}};")
print("""static const struct {
    bool weighted;
    double smoothing, share, loss, gradient[GOLDEN_N * GOLDEN_CLASSES];
} golden_targets[] = {""")
print("\n".join(rows))
print("};")

# Each sample has its label, every other one the next class too, one of three half of the third.
rows = []
for weighted, smoothing in [(False, 0), (True, 0), (True, 0.1)]:
    target = torch.zeros(N, CLASSES, dtype=torch.float64)
    for n, label in enumerate(LABELS):
        target[n, label] = 1
        if n % 2:
            target[n, (label + 1) % CLASSES] = 1
        if n % 3 == 0:
            target[n, (label + 2) % CLASSES] = 0.5
    target = target * (1 - smoothing) + smoothing / 2
    weight = torch.tensor([0.5 + 0.75 * k for k in range(CLASSES)], dtype=torch.float64) if weighted else None
    z = (3 * logits()).requires_grad_(True)
    loss = torch.nn.BCEWithLogitsLoss(pos_weight=weight)(z, target)
    loss.backward()
    numbers = [" ".join(f"{float(value):.17e}," for value in values.flatten()) for values in (target, z.grad)]
    rows.append(f"    {{{str(weighted).lower()}, {float(loss.detach()):.17e}, {{{numbers[0]}}}, {{{numbers[1]}}}}},")
print("""static const struct {
    bool weighted;
    double loss, target[GOLDEN_N * GOLDEN_CLASSES], gradient[GOLDEN_N * GOLDEN_CLASSES];
} golden_bce[] = {""")
print("\n".join(rows))
print("};\n// clang-format on")
