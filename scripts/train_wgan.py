#!/usr/bin/env python3
"""The numbers of scripts/train_wgan.sh and scripts/measure/wgan_scaling.sh, from the records of their runs.

usage: train_wgan.py check RUN RUN_WITHOUT_PENALTY SECONDS    tables; exit status 1 if a check fails
       train_wgan.py scaling RUN_OF_1 RUN_OF_2 RUN_OF_4 STEP  the losses of one critic step as printed by several formulas
"""
import json
import os
import platform
import sys

SETTLED = 200  # critic updates after which the slope is judged
BAND = 0.2


def rows(run, phase="critic"):
    with open(os.path.join(run, "metrics.jsonl")) as lines:
        return [row for row in map(json.loads, lines) if row.get("phase") == phase]


def mean(rows, term):
    return sum(term(row) for row in rows) / len(rows)


def wasserstein(row):
    return row["terms"]["critic_real"] - row["terms"]["critic_fake"]


def slope(row):
    return row["terms"]["slope"]


def processor():
    with open("/proc/cpuinfo") as lines:
        names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def check(run, without, seconds):
    critic, free = rows(run), rows(without)
    with open(os.path.join(run, "generated.jsonl")) as lines:
        kid = [json.loads(line) for line in lines]
    with open(os.path.join(run, "fid.json")) as text:
        fid = json.load(text)
    early, late = mean(critic[100:200], wasserstein), mean(critic[-200:], wasserstein)
    settled, unpunished = mean(critic[SETTLED:], slope), mean(free[SETTLED:], slope)
    window = [mean(critic[k:k + 20], slope) for k in range(len(critic) - 20)]
    inside = max((k for k, value in enumerate(window) if abs(value - 1) > BAND), default=0) + 20
    checks = [
        ("Wasserstein estimate, critic updates 101 to 200, and the last 200", f"{early:.2f}, {late:.2f}", "falls", late < 0.8 * early),
        (f"mean slope after {SETTLED} critic updates", f"{settled:.3f}", f"within {BAND} of 1", abs(settled - 1) <= BAND),
        ("the same with `--penalty-weight 0`", f"{unpunished:.3f}", "not within it", abs(unpunished - 1) > BAND),
        (f"KID at the start, and after {kid[-1]['step']} steps", f"{kid[0]['kid']:.2f}, {kid[-1]['kid']:.2f}",
         "falls to a fifth", 5 * kid[-1]["kid"] <= kid[0]["kid"]),
    ]
    print("| check | found | wanted | |\n|---|---|---|---|")
    for what, found, wanted, good in checks:
        print(f"| {what} | {found} | {wanted} | {'yes' if good else '**no**'} |")
    print(f"\n{len(critic)} critic updates of 64 images, and a fifth as many of the generator; {seconds} s in all on {os.cpu_count()} "
          f"cores of an {processor()}. The mean slope of 20 updates stays within the band from update {inside} on.")
    print(f"\nFeatures: {fid['features']}, digest {fid['digest'][:16]} (values are comparable only with equal weights); "
          f"{fid['images']:,} images of each set against the training set.\n")
    print("| set | KID | FID | chi-squared of the predicted classes (9 degrees of freedom) | nearest training image |\n|---|---|---|---|---|")
    for key, title in (("generated", "generated"), ("test", "test set: the floor"), ("noise", "noise: the ceiling")):
        s = fid[key]
        print(f"| {title} | {s['kid']:.4f} +- {s['kid_deviation']:.4f} | {s['fid']:.2f} | {s['chi_squared']:.0f} | {s['nearest']:.1f} |")
    return all(good for *_, good in checks)


def scaling(runs, step):
    found = []
    for run in runs:
        row = next(row for row in rows(run) if row["step"] == step)
        assert row["tower_count"] == [row["images"] // len(row["tower_loss"])] * len(row["tower_loss"]), row["tower_count"]
        found.append(row)
    towers = [len(row["tower_loss"]) for row in found]
    print("| printed by | " + " | ".join(f"{n} tower{'s' if n > 1 else ''}" for n in towers) + " | meaning |")
    print("|---|" + "---|" * (len(towers) + 1))

    def line(name, value, meaning):
        print(f"| {name} | " + " | ".join(f"{value(row, len(row['tower_loss'])):.4f}" for row in found) + f" | {meaning} |")

    local = lambda row, n: sum(row["tower_loss"]) / n
    line("Towers: `mean_loss`", lambda row, n: row["mean_loss"], "the mean over the whole batch: the loss that is minimized")
    line("the last replica's mean", lambda row, n: row["tower_loss"][-1], "the mean over one share: as noisy as a batch of that size")
    line("mean over the local batch, times replicas, averaged", lambda row, n: n * local(row, n), "replicas times the loss")
    line("local mean divided by replicas, averaged", lambda row, n: local(row, n) / n, "the loss divided by replicas")
    line("local mean divided by replicas, times replicas, averaged", local, "the loss again: the factor only undoes the division")
    line("local mean divided by replicas, summed", lambda row, n: sum(value / n for value in row["tower_loss"]), "the loss")
    row = found[-1]
    print(f"\nThe towers of the last column, from the ledger of the same step ({row['tower_count'][0]} images each):\n")
    print("| | " + " | ".join(f"tower {t}" for t in range(towers[-1])) + " | all |\n|---|" + "---|" * (towers[-1] + 1))
    for key, title in (("critic_real", "mean D(x)"), ("critic_fake", "mean D(G(z))"), ("penalty", "penalty"), ("slope", "mean slope")):
        print(f"| {title} | " + " | ".join(f"{value:.4f}" for value in row["tower_terms"][key]) + f" | {row['terms'][key]:.4f} |")
    print("| critic loss | " + " | ".join(f"{value:.4f}" for value in row["tower_loss"]) + f" | {row['mean_loss']:.4f} |")
    worst = max(abs(a["mean_loss"] - b["mean_loss"]) for run in runs[1:] for a, b in zip(rows(runs[0])[:step], rows(run)))
    print(f"\nUp to this step the mean_loss of 2 and 4 towers differs from that of one by {worst:.0e} at most: rounding, which "
          "grows from step to step.")


def main():
    if len(sys.argv) == 5 and sys.argv[1] == "check":
        return 0 if check(*sys.argv[2:4], int(sys.argv[4])) else 1
    if len(sys.argv) == 6 and sys.argv[1] == "scaling":
        scaling(sys.argv[2:5], int(sys.argv[5]))
        return 0
    print(__doc__, file=sys.stderr)
    return 2


sys.exit(main())
