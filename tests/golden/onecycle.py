#!/usr/bin/env python3
"""Write tests/unit/golden_onecycle.h: the learning rates of torch.optim.lr_scheduler.OneCycleLR with its usual values (pct_start 0.3, cosines,
div_factor 25, final_div_factor 10,000), in exact fractions of a step and 50 digits by its formula. With torch, `--check` compares its own.

Usage: tests/golden/onecycle.py > tests/unit/golden_onecycle.h
       PYTHON_WITH_TORCH tests/golden/onecycle.py --check   exit status 1: torch has other rates
"""
import sys
from decimal import Decimal, getcontext
from fractions import Fraction

getcontext().prec = 50
CASES = [(1.0, 100), (0.3, 37), (0.05, 7), (2.0, 3), (0.1, 1), (0.01, 10), (0.4, 20)]
MOST = max(total for _, total in CASES)


def decimal(x):
    return Decimal(x.numerator) / Decimal(x.denominator)


def cosine(x):
    """cos(pi x) by its series, x from 0 to 1."""
    angle = decimal(x) * Decimal("3.14159265358979323846264338327950288419716939937510582")
    term = total = Decimal(1)
    for k in range(1, 60):
        term *= -angle * angle / ((2 * k - 1) * 2 * k)
        total += term
    return total


def rate(peak, total, step):
    peak = Fraction(str(peak))
    low, end = peak / 25, peak / 25 / 10000
    top, last = Fraction(3, 10) * total - 1, Fraction(total - 1)
    high, lower, share = (low, peak, Fraction(step) / top if top else 0) if step <= top else (peak, end, (step - top) / (last - top))
    return float(decimal(lower) + decimal(high - lower) / 2 * (1 + cosine(Fraction(share))))


def check():
    import torch
    worst = 0.0
    for peak, total in CASES:
        if Fraction(3, 10) * total == 1:
            continue  # torch divides by 0
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=peak, momentum=0.9)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, peak, total_steps=total, cycle_momentum=False)
        for step in range(total):
            worst = max(worst, abs(optimizer.param_groups[0]["lr"] - rate(peak, total, step)) / peak)
            optimizer.step()
            if step + 1 < total:
                schedule.step()
    print(f"torch {torch.__version__}: off by {worst:.1e} of the highest rate")
    return worst > 1e-12


def main():
    if sys.argv[1:] == ["--check"]:
        sys.exit(check())
    print("/* Written by tests/golden/onecycle.py: OneCycleLR's rates. */")
    print("// clang-format off")
    print(f"static const struct {{\n    double lr;\n    int total;\n    double rate[{MOST}];\n}} golden_onecycle[] = {{")
    for peak, total in CASES:
        print(f"    {{{peak}, {total}, {{{', '.join(repr(rate(peak, total, step)) for step in range(total))}}}}},")
    print("};")


main()
