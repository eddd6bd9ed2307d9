#!/usr/bin/env bash
# The statistics that are printed beside scipy's and numpy's, on data where they can be wrong: ties, tiny counts, no variance, none at all.
# Student's t, the tests and intervals of two shares (two proportions, Fisher's exact test, Newcombe), McNemar's exact test, means, variances and medians, the
# t-test over seeds and, corrected, over folds, and what mattered in a sweep: least squares on ranks, and all permutations within the levels
# of the other options.
. "$1/tests/support/check.sh"
needs_python
python_of sklearn

"$python" -W ignore - "$(dirname "$towers")/tests/statistics_driver" <<'PYTHON' || failures=$((failures + 1))
import itertools, math, subprocess, sys
import numpy as np
from scipy import stats

questions, checks = [], []
def ask(question, check): # the check gets the numbers of the answer, None: absent
    questions.append(question)
    checks.append((question, check))
def near(got, wanted, tolerance=1e-9):
    assert got is not None and abs(got - wanted) <= tolerance * max(1, abs(wanted)), (got, wanted)

draw = np.random.default_rng(5)
for freedom in 1, 2, 3.5, 11, 120, 1e5, math.inf:
    for t in 0, 1e-3, 0.7, -2.1, 9, 40:
        ask(f"tail {t} {freedom}", lambda a, t=t, f=freedom: near(a[0], 2 * (stats.t.sf(abs(t), f) if math.isfinite(f) else stats.norm.sf(abs(t))), 1e-7))
    for p in 0.025, 0.3, 0.5, 0.975, 0.9995:
        ask(f"quantile {p} {freedom}", lambda a, p=p, f=freedom: near(a[0], stats.t.ppf(p, f) if math.isfinite(f) else stats.norm.ppf(p), 1e-7))

def shares(a, n, b, m):
    def check(answer):
        if not n or not m:
            assert answer[3] is None, answer
            return
        all = (a + b) / (n + m)
        if min(n, m) * min(all, 1 - all) < 5:
            wanted = stats.fisher_exact([[a, n - a], [b, m - b]])[1]
        else:
            wanted = stats.chi2_contingency([[a, n - a], [b, m - b]], correction=False)[1]
        near(answer[0], a / n - b / m)
        near(answer[3], wanted, 1e-8)
        x, y = (stats.binomtest(*share).proportion_ci(method="wilson") for share in ((a, n), (b, m)))
        near(answer[1], a / n - b / m - math.hypot(a / n - x.low, y.high - b / m), 1e-8) # Newcombe's method 10
        near(answer[2], a / n - b / m + math.hypot(x.high - a / n, b / m - y.low), 1e-8)
    ask(f"shares {a} {n} {b} {m}", check)
for row in (0, 0, 5, 5), (5, 5, 5, 5), (0, 7, 0, 3), (3, 3, 0, 3), (0, 1, 1, 1), (9999, 10000, 9990, 10000), (24000, 50000, 24500, 50000):
    shares(*row)
for _ in range(300):
    n, m = (int(x) for x in draw.integers(1, 10 ** draw.integers(1, 5), size=2))
    p = draw.random()
    shares(int(draw.binomial(n, p)), n, int(draw.binomial(m, min(1, p * draw.uniform(0.8, 1.2)))), m)

def paired(b, c, n):
    def check(answer):
        if not n:
            assert answer[3] is None, answer
            return
        near(answer[0], (b - c) / n)
        near(answer[3], stats.binomtest(min(b, c), b + c).pvalue if b + c else 1)
        middle, spread = (b - c) / (n + 2), 1.959963984540054 * math.sqrt(b + c + 1 - (b - c) ** 2 / (n + 2)) / (n + 2)
        near(answer[1], max(middle - spread, -1))
        near(answer[2], min(middle + spread, 1))
    ask(f"paired {b} {c} {n}", check)
for row in (0, 0, 0), (0, 0, 9), (0, 1, 1), (5, 0, 5), (4, 4, 100), (900, 1000, 50000), (30000, 29000, 100000):
    paired(*row)
for _ in range(200):
    b, c = (int(x) for x in draw.integers(0, 60, size=2))
    paired(b, c, b + c + int(draw.integers(0, 500)))

for mean, error in (0.3, 0.1), (-2, 1.5), (0, 2), (4, 0):
    def check(answer, mean=mean, error=error):
        if not error:
            assert answer == [mean, None, None, None], answer
            return
        for got, wanted in zip(answer[1:3], stats.norm.interval(0.95, mean, error)): near(got, wanted)
        near(answer[3], 2 * stats.norm.sf(abs(mean) / error))
    ask(f"normal {mean} {error}", check)
def repeated(x, folds=0):
    """Differences between two settings in the same seeds, or in `folds` folds."""
    def check(answer):
        if len(x) < 2 or np.ptp(x) <= 1e-12 and x[0]:
            assert answer[1:] == [None, None, None], answer
            if len(x): near(answer[0], x[0])
            else: assert answer[0] is None
        elif np.ptp(x) == 0:
            assert answer == [0, 0, 0, 1], answer
        elif not folds:
            test = stats.ttest_1samp(x, 0)
            near(answer[3], test.pvalue, 1e-7)
            for got, wanted in zip(answer[1:3], test.confidence_interval(0.95)): near(got, wanted, 1e-7)
        else:
            error = math.sqrt((1 / len(x) + 1 / (folds - 1)) * np.var(x, ddof=1))
            near(answer[3], 2 * stats.t.sf(abs(np.mean(x)) / error, len(x) - 1), 1e-7)
            for got, wanted in zip(answer[1:3], stats.t.interval(0.95, len(x) - 1, np.mean(x), error)): near(got, wanted, 1e-7)
    ask(" ".join(["repeated", repr(1 / (folds - 1) if folds else 0), str(len(x)), *(repr(float(v)) for v in x)]), check)
for folds in 0, 2, 5:
    for x in [], [0.3], [0.125, 0.125], [-0.5] * 4, [0.9 - 0.8, 0.8 - 0.7, 0.7 - 0.6], [0, 0, 0], [0.1, 0.2], [0.1, -0.1], draw.normal(0.5, 1, size=5), draw.integers(0, 2, size=9):
        repeated(np.array(x, float), folds)

for count in 0, 1, 2, 3, 8, 57:
    for x in draw.normal(size=count), draw.integers(0, 3, size=count).astype(float), np.full(count, 0.25):
        def check(answer, x=x):
            for got, wanted in zip(answer, (np.mean(x) if len(x) else None, np.var(x, ddof=1) if len(x) > 1 else None, np.median(x) if len(x) else None)):
                if wanted is None: assert got is None, answer
                else: near(got, wanted, 1e-12)
        ask(" ".join(["series", str(count), *(repr(float(v)) for v in x)]), check)

def effects(values, score):
    """values: an array of settings and options, whose different values are few"""
    n, options = values.shape
    y, wanted = stats.rankdata(score), []
    dummies = lambda k: np.array([[float(v == level) for level in np.unique(values[:, k])[1:]] for v in values[:, k]]).reshape(n, -1)
    for k in range(options):
        without = np.column_stack([np.ones(n), *(dummies(o) for o in range(options) if o != k)])
        whole = np.column_stack([without, dummies(k)])
        left = lambda matrix, v: v - matrix @ np.linalg.lstsq(matrix, v, rcond=None)[0]
        ranks = np.linalg.matrix_rank(without), np.linalg.matrix_rank(whole)
        if ranks[1] - ranks[0] < len(np.unique(values[:, k])) - 1 or ranks[1] >= n or np.sum(left(without, y) ** 2) < 1e-9:
            wanted.append((None, None, None))
            continue
        square = np.sum(left(whole, y) ** 2), np.sum(left(without, y) ** 2)
        explained = 1 - square[0] / (n - ranks[1]) / (square[1] / (n - ranks[0]))
        x = left(without, stats.rankdata(values[:, k]))
        trend = np.corrcoef(x, left(without, y))[0, 1]
        strata = {}
        for i in range(n): strata.setdefault(tuple(np.delete(values[i], k)), []).append(i)
        lists = [s for s in strata.values() if len(s) > 1]
        ways = math.prod(math.factorial(len(s)) for s in lists)
        p = None if not lists else math.nan
        if lists and ways <= 2000:
            as_much = 0
            for orders in itertools.product(*map(itertools.permutations, lists)):
                z = y.copy()
                for own, order in zip(lists, orders): z[own] = y[list(order)]
                as_much += np.sum(left(whole, z) ** 2) <= square[0] + 1e-7
            p = as_much / ways
        wanted.append((explained, p, trend))
    def check(answer):
        for k, (explained, p, trend) in enumerate(wanted):
            got = answer[3 * k:3 * k + 3]
            if explained is None:
                assert got == [None, None, None], (got, k)
                continue
            near(got[0], explained, 1e-8)
            near(got[2], trend, 1e-8)
            if p is None: assert got[1] is None, got
            elif not math.isnan(p): near(got[1], p)
            else: assert 0 < got[1] <= 1, got
    text = "\n".join(" ".join(map(str, row)) + f" {s!r}" for row, s in zip(values.tolist(), map(float, score)))
    ask(f"effects {n} {options}\n{text}", check)
lr, opt = np.tile([1, 2, 3, 4], 2), np.repeat([1, 2], 4)
effects(np.column_stack([lr, opt]), [70.3, 75.9, 79.7, 81.4, 20.8, 42.2, 61.2, 70.2])
effects(np.column_stack([opt, opt]), [70.3, 75.9, 79.7, 81.4, 20.8, 42.2, 61.2, 70.2]) # confounded
effects(np.column_stack([lr, opt, 3 - opt]), draw.normal(size=8)) # one that is confounded, and one that is not
for _ in range(25):
    n, options = int(draw.integers(8, 15)), int(draw.integers(1, 4))
    values = draw.integers(1, 4, size=(n, options))
    if all(len(np.unique(values[:, k])) > 1 for k in range(options)):
        effects(values, draw.integers(0, int(draw.integers(2, 30)), size=n)) # with ties

answers = subprocess.run([sys.argv[1]], input="\n".join(questions) + "\n", stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
assert len(answers) == len(checks), (len(answers), len(checks))
for line, (question, check) in zip(answers, checks):
    try:
        check([None if word == "-" else float(word) for word in line.split()])
    except AssertionError as error:
        sys.exit(f"{question}: answered {line}: {error}")
print(len(checks), "answers agree")
PYTHON
check_end "the statistics that are printed are those of scipy and numpy, or absent"
