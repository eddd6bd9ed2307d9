#!/usr/bin/env bash
# Folds beside scikit-learn's StratifiedKFold and StratifiedGroupKFold, for drawn classes and groups: classes are divided no less evenly,
# and groups are kept together. The packages are installed once into a virtual environment in the user's cache.
# Arguments: source folder, binary.
set -u
. "$1/tests/support/check.sh"
check_begin sklearn "$@"
needs_python
python_of sklearn

"$python" -W ignore - "$(dirname "$towers")/tests/fold_driver" <<'PYTHON' || failures=$((failures + 1))
import subprocess, sys
import numpy as np
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

def ours(labels, groups, folds, seed, grouped):
    text = "".join(f"{label} {group}\n" for label, group in zip(labels, groups))
    command = [sys.argv[1], str(folds), str(seed)] + ["groups"] * grouped
    return np.array(subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout.split(), dtype=int)

def theirs(splitter, labels, groups):
    part = np.zeros(len(labels), dtype=int)
    for fold, (_, test) in enumerate(splitter.split(labels, labels, groups)):
        part[test] = fold
    return part

def unevenness(part, labels, folds):
    """the mean over classes of the deviation of their share of each fold, what StratifiedGroupKFold minimizes"""
    return np.mean([np.std([np.mean(labels[part == fold] == label) for fold in range(folds)]) for label in np.unique(labels)])

def counts_apart(part, labels, folds):
    counts = np.array([[np.sum((part == fold) & (labels == label)) for fold in range(folds)] for label in np.unique(labels)])
    sizes = counts.sum(axis=0)
    return np.ptp(counts, axis=1).max(), np.ptp(sizes)

draw = np.random.default_rng(7)
totals = np.zeros(2)
for trial in range(60):
    count, classes, folds = int(draw.integers(100, 900)), int(draw.integers(2, 9)), int(draw.integers(2, 8))
    labels = draw.choice(classes, size=count, p=draw.dirichlet(np.full(classes, 2.0)))
    groups = draw.integers(0, 12 * folds, size=count)
    a, b = ours(labels, groups, folds, trial, False), theirs(StratifiedKFold(folds, shuffle=True, random_state=trial), labels, groups)
    (classes_a, sizes_a), (classes_b, sizes_b) = counts_apart(a, labels, folds), counts_apart(b, labels, folds)
    assert classes_a <= max(classes_b, 1) and sizes_a <= max(sizes_b, 1), (trial, classes_a, classes_b, sizes_a, sizes_b)
    a, b = ours(labels, groups, folds, trial, True), theirs(StratifiedGroupKFold(folds, shuffle=True, random_state=trial), labels, groups)
    for group in np.unique(groups):
        assert len(np.unique(a[groups == group])) == 1, f"trial {trial}: group {group} is in several folds"
    totals += unevenness(a, labels, folds), unevenness(b, labels, folds)
print("deviation of the shares of classes, groups kept together: %.5f, scikit-learn %.5f" % tuple(totals / 60))
assert totals[0] <= totals[1], "classes are divided less evenly than by scikit-learn"
PYTHON
check_end "classes are divided into folds as evenly as by scikit-learn, and groups stay together"
