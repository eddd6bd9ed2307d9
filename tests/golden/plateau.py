#!/usr/bin/env python3
"""Write tests/unit/golden_plateau.h: the learning rates of torch.optim.lr_scheduler.ReduceLROnPlateau behind each of 40 values. Needs
torch. The values come from random.Random and are stored with the rates, among them some that are not finite, negative (a KID), and none
better than the threshold. The rates are stored with all digits, because both sides multiply and compare the same float64 numbers.

Usage: PYTHON_WITH_TORCH tests/golden/plateau.py > tests/unit/golden_plateau.h
       PYTHON_WITH_TORCH tests/golden/plateau.py --check tests/unit/golden_plateau.h   exit status 1: this version finds other rates
"""
import math
import random
import sys

import torch

VALUES, START = 40, 0.8
# higher is better, threshold mode, factor, patience, threshold, cooldown, lower limit; how the values run
CASES = [
    (False, "rel", 0.5, 1, 0.1, 0, 0.0, "falls"),
    (False, "abs", 0.3, 0, 0.05, 2, 0.01, "falls"),
    (True, "rel", 0.1, 2, 0.0001, 1, 0.0, "rises"),
    (True, "abs", 0.5, 1, 0.02, 0, 0.05, "rises"),
    (False, "rel", 0.1, 10, 0.0001, 0, 0.0, "stays"),  # PyTorch's usual values
    (False, "rel", 0.2, 0, 0.3, 3, 0.0, "negative"),
    (True, "rel", 0.7, 3, 1.0, 2, 0.0, "negative"),
    (False, "abs", 0.01, 0, 0.0, 0, 0.0, "stays"),  # down to a change below its eps, 1e-8
    (False, "rel", 0.5, 1, 0.001, 1, 0.0, "broken"),
    (True, "abs", 0.5, 2, 0.001, 0, 0.1, "broken"),
]


def values_of(kind, seed):
    draw, found = random.Random(seed), []
    for i in range(VALUES):
        trend = {"falls": math.exp(-i / 12), "rises": 1 - math.exp(-i / 12), "stays": 0.5, "negative": 0.1 - i / 150, "broken": 0.5}[kind]
        value = round(trend + draw.uniform(-0.2, 0.2), 3)
        if kind == "broken" and (i < 2 or draw.random() < 0.2):
            value = [math.inf, math.nan, -math.inf][i % 3 if i < 30 else draw.randrange(3)]
        found.append(value)
    return found


def rates_of(case, values):
    higher, mode, factor, patience, threshold, cooldown, least, _ = case
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=START)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max" if higher else "min", factor=factor, patience=patience, threshold=threshold,
                                                          threshold_mode=mode, cooldown=cooldown, min_lr=least)
    rates = []
    for value in values:
        schedule.step(value)
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


def number(value):
    return "NAN" if math.isnan(value) else ("-" if value < 0 else "") + "INFINITY" if math.isinf(value) else repr(value)


def header(cases):
    yield f"""/* Written by tests/golden/plateau.py with PyTorch: the learning rate behind each value. */
// clang-format off
enum {{ GOLDEN_VALUES = {VALUES} }};
#define GOLDEN_START {START}
static const struct {{
    bool higher;
    ThresholdMode mode;
    double factor;
    int patience;
    double threshold;
    int cooldown;
    double min_lr, value[GOLDEN_VALUES], rate[GOLDEN_VALUES];
}} golden_plateau[] = {{"""
    for case, values, rates in cases:
        higher, mode, *rest, _ = case
        yield f"    {{{str(higher).lower()}, THRESHOLD_{mode.upper()}, " + ", ".join(map(repr, rest)) + ","
        yield "     {" + ", ".join(map(number, values)) + "},"
        yield "     {" + ", ".join(map(number, rates)) + "}},"
    yield "};\n// clang-format on"


made = []
for seed, case in enumerate(CASES):
    values = values_of(case[-1], seed)
    made.append((case, values, rates_of(case, values)))
text = "\n".join(header(made)) + "\n"
if sys.argv[1:2] == ["--check"]:
    if open(sys.argv[2]).read() != text:
        sys.exit(f"{sys.argv[2]} has other rates than PyTorch {torch.__version__}")
    print(f"{len(CASES)} settings, {VALUES} values each: equal to PyTorch {torch.__version__}")
else:
    print(text, end="")
