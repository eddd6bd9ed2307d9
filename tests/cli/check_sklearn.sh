#!/usr/bin/env bash
# Folds beside scikit-learn's StratifiedKFold and StratifiedGroupKFold, for drawn classes and groups: classes are divided no less evenly,
# and groups are kept together; and the numbers of towers eval beside scikit-learn's, of the probabilities that towers predict prints;
# those of --tta flip are the means of an image and its mirror image; the temperature of --calibrate is the one that scipy finds.
# The packages are installed once into a virtual environment in the user's cache.
. "$1/tests/support/check.sh"
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
# ---- two classes that a network learns to tell apart in part
export XDG_CACHE_HOME=$work/cache
"$python" - <<'PYTHON'
import os
import numpy as np
draw = np.random.default_rng(3)
for part, count in ("train", 120), ("val", 90):
    for name, mean in ("dark", 100), ("light", 112):
        os.makedirs(f"photos/{part}/{name}")
        for i in range(count if name == "dark" else count // 3):
            pixels = np.clip(draw.normal(mean + draw.normal(0, 12), 40, 28 * 28), 0, 255).astype(np.uint8)
            if part == "val" and i < 5: # the same picture five times in both classes, which have one probability
                pixels[:] = 105
            open(f"photos/{part}/{name}/{i}.pgm", "wb").write(b"P5 28 28 255\n" + pixels.tobytes())
PYTHON
"$towers" train fashion_cnn --device cpu --data-path photos --epochs 12 --batch-size 16 --threads 1 --quiet --experiment run >/dev/null 2>err || complain "train: $(cat err)"
"$towers" eval runs/run --quiet --json >eval.json 2>err || complain "eval: $(cat err)"
"$towers" eval runs/run --quiet --json --towers 3 >three.json 2>err || complain "eval on three towers: $(cat err)"
"$towers" eval runs/run >text 2>err || complain "eval: $(cat err)"
"$towers" predict runs/run photos/val --json --top 2 >predicted.jsonl 2>err || complain "predict: $(cat err)"
"$python" - <<'PYTHON' || failures=$((failures + 1))
import json
import numpy as np
from sklearn import metrics
found, three = json.load(open("eval.json")), json.load(open("three.json"))
rows = [json.loads(line) for line in open("predicted.jsonl")]
labels = np.array([int("/light/" in json.dumps(row)) for row in rows])
light = np.array([next(c["probability"] for c in row["predictions"] if c["name"] == "light") for row in rows])
taken, sure = (light > 0.5).astype(int), np.maximum(light, 1 - light)
assert len(rows) == 120 and 0 < labels.sum() < 120
bins = np.minimum(np.ceil(sure * 15).astype(int) - 1, 14)
wanted = {"roc_auc": metrics.roc_auc_score(labels, light), "average_precision": metrics.average_precision_score(labels, light),
          "mean_recall": metrics.balanced_accuracy_score(labels, taken),
          "calibration_error": sum(abs((taken == labels)[bins == b].mean() - sure[bins == b].mean()) * np.mean(bins == b) for b in set(bins))}
for name, value in wanted.items():
    assert abs(found[name] - value) < 1e-5, (name, found[name], value)
    assert abs(found[name] - three[name]) < 1e-5, (name, found[name], three[name])
assert found["confusion"] == metrics.confusion_matrix(labels, taken).tolist() == three["confusion"], found["confusion"]
assert 0.55 < wanted["roc_auc"] < 0.999, f"the task says nothing: {wanted}"
text = open("text").read()
assert "balanced accuracy %.4f, calibration error %.4f" % (found["mean_recall"], found["calibration_error"]) in text, text
assert "ROC curve %.4f, average precision %.4f (class light)" % (found["roc_auc"], found["average_precision"]) in text, text
assert all(" ".join(map(str, row)) in " ".join(text.split()) for row in found["confusion"]), text
PYTHON
# ---- of a network that is sure, whose probabilities round to 1: its odds, of which a probability tells only those below
"$python" - <<'PYTHON'
import json, struct
import numpy as np
data = bytearray(open("runs/run/best.safetensors", "rb").read())
size = struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:8 + size])
last = [name for name in head if name.startswith("fc")][-1].rsplit(".", 1)[0]
for part in "weight", "bias":
    begin, end = (8 + size + at for at in head[f"{last}.{part}"]["data_offsets"])
    data[begin:end] = (np.frombuffer(bytes(data[begin:end]), "<f4") * 12).tobytes()
open("sure.safetensors", "wb").write(data)
PYTHON
"$towers" eval sure.safetensors --data-path photos --json >sure.json 2>err || complain "eval: $(cat err)"
"$towers" predict sure.safetensors photos/val --json --top 2 >sure.jsonl 2>err || complain "predict: $(cat err)"
"$python" - <<'PYTHON' || failures=$((failures + 1))
import json
import numpy as np
from sklearn import metrics
found, rows = json.load(open("sure.json")), [json.loads(line) for line in open("sure.jsonl")]
labels = np.array([int("/light/" in row["file"]) for row in rows])
dark, light = (np.array([next(c["probability"] for c in row["predictions"] if c["name"] == name) for row in rows]) for name in ("dark", "light"))
odds, rounded = np.log(light) - np.log(dark), np.where(light > dark, light, 1 - dark)
for name, score in ("roc_auc", metrics.roc_auc_score), ("average_precision", metrics.average_precision_score):
    assert abs(found[name] - score(labels, odds)) < 1e-9, (name, found[name], score(labels, odds))
    assert abs(score(labels, rounded) - score(labels, odds)) > 1e-4, f"{name} does not show what rounding does"
PYTHON
# ---- --tta flip: the mean of what is predicted for the images and for mirrored copies of them, on one and on three towers
"$python" - <<'PYTHON'
import os
import numpy as np
for name in "dark", "light":
    os.makedirs(f"mirrored/val/{name}")
    for file in os.listdir(f"photos/val/{name}"):
        data = open(f"photos/val/{name}/{file}", "rb").read()
        pixels = np.frombuffer(data[-784:], dtype=np.uint8).reshape(28, 28)
        open(f"mirrored/val/{name}/{file}", "wb").write(data[:-784] + pixels[:, ::-1].tobytes())
PYTHON
"$towers" predict runs/run mirrored/val --json --top 2 >mirrored.jsonl 2>err || complain "predict: $(cat err)"
"$towers" predict runs/run photos/val --json --top 2 --tta flip >mean.jsonl 2>err || complain "predict --tta flip: $(cat err)"
for n in 1 3; do
    "$towers" eval runs/run --json --tta flip --towers $n --errors errors$n.csv >flip$n.json 2>err || complain "eval --tta flip: $(cat err)"
done
grep -q '^predictions .*mirror image (--tta flip)' err || complain "eval --tta flip does not say so: $(cat err)"
cmp flip1.json flip3.json && cmp errors1.csv errors3.csv || complain "eval --tta flip depends on the number of towers"
"$python" - <<'PYTHON' || failures=$((failures + 1))
import csv, json, os
import numpy as np
def light_of(file):
    rows = {os.sep.join(row["file"].split(os.sep)[-2:]): row for row in map(json.loads, open(file))}
    return {name: next(c["probability"] for c in row["predictions"] if c["name"] == "light") for name, row in rows.items()}
plain, mirrored, mean = light_of("predicted.jsonl"), light_of("mirrored.jsonl"), light_of("mean.jsonl")
assert len(plain) == 120 and max(abs(plain[name] - mirrored[name]) for name in plain) > 1e-3, "the mirror images say nothing"
assert all(abs((plain[name] + mirrored[name]) / 2 - mean[name]) < 1e-6 for name in plain)
light = np.array(list(mean.values()))
labels = np.array([name.startswith("light") for name in mean])
found = json.load(open("flip1.json"))
assert found["tta"] == "flip" and "tta" not in json.load(open("eval.json"))
assert abs(found["top1"] - np.mean((light > 0.5) == labels)) < 1e-9, found["top1"]
assert abs(found["loss"] + np.mean(np.log(np.where(labels, light, 1 - light)))) < 1e-6, found["loss"]
wrong = {os.sep.join(row["file"].split(os.sep)[-2:]) for row in csv.DictReader(open("errors1.csv"))}
assert wrong == {name for name, sure in mean.items() if (sure > 0.5) != name.startswith("light")}
PYTHON
# a network that is so sure that probabilities are 0 in f32: its logits are those of the run times 400, and the loss is finite and theirs
cp -r runs/run runs/sure
"$python" - <<'PYTHON'
import json, struct
import numpy as np
for name in "best", "last":
    data = bytearray(open(f"runs/sure/{name}.safetensors", "rb").read())
    end = 8 + struct.unpack("<Q", data[:8])[0]
    for key, entry in json.loads(data[8:end]).items():
        if key.startswith("fc2."):
            first, last = (end + at for at in entry["data_offsets"])
            data[first:last] = (400 * np.frombuffer(data[first:last], dtype="<f4")).astype("<f4").tobytes()
    open(f"runs/sure/{name}.safetensors", "wb").write(data)
PYTHON
"$towers" eval runs/sure --json --tta flip >sure.json 2>err || complain "eval --tta flip of sure weights: $(cat err)"
"$towers" eval runs/sure --quiet --errors sure.csv >/dev/null 2>err || complain "eval --errors of sure weights: $(cat err)"
"$python" - <<'PYTHON' || failures=$((failures + 1))
import csv, json, os
import numpy as np
from scipy.special import log_softmax, logsumexp
def logits_of(file):
    rows = {os.sep.join(row["file"].split(os.sep)[-2:]): row["predictions"] for row in map(json.loads, open(file))}
    return {name: 400 * np.log([next(c["probability"] for c in row if c["name"] == n) for n in ("dark", "light")]) for name, row in rows.items()}
views = [logits_of(file) for file in ("predicted.jsonl", "mirrored.jsonl")]
losses = [np.log(2) - logsumexp([log_softmax(view[name])[int(name.startswith("light"))] for view in views]) for name in views[0]]
found = json.load(open("sure.json"))["loss"]
errors = [float(row["loss"]) for row in csv.DictReader(open("sure.csv"))]
assert max(errors) > 110 and np.isfinite(errors).all(), errors
assert max(losses) > 110 and abs(found - np.mean(losses)) < 1e-3 * np.mean(losses), (found, np.mean(losses), max(losses))
PYTHON
# the top five of eight classes, of a network that has learned nothing
"$python" - <<'PYTHON'
import os
import numpy as np
draw = np.random.default_rng(8)
for part, count in ("train", 2), ("val", 12):
    for name in "abcdefgh":
        os.makedirs(f"many/{part}/{name}")
        for i in range(count):
            open(f"many/{part}/{name}/{i}.pgm", "wb").write(b"P5 28 28 255\n" + draw.integers(0, 256, 784, dtype=np.uint8).tobytes())
PYTHON
"$towers" train fashion_cnn --device cpu --data-path many --max-steps 1 --batch-size 8 --threads 1 --quiet --experiment many >/dev/null 2>err || complain "train: $(cat err)"
"$towers" eval runs/many --json --tta flip >many.json 2>err || complain "eval: $(cat err)"
"$towers" predict runs/many many/val --json --top 8 --tta flip >many.jsonl 2>err || complain "predict: $(cat err)"
"$python" - <<'PYTHON' || failures=$((failures + 1))
import json, os
rank = [[c["name"] for c in row["predictions"]].index(row["file"].split(os.sep)[-2]) for row in map(json.loads, open("many.jsonl"))]
found, wanted = json.load(open("many.json")), [sum(r < few for r in rank) / 96 for few in (1, 5)]
assert len(rank) == 96 and 0.3 < wanted[1] < 0.9 and [found["top1"], found["top5"]] == wanted, (found["top1"], found["top5"], wanted)
PYTHON
"$towers" predict runs/run photos/val --embeddings nowhere/e.npy >/dev/null 2>err
[[ $? == 6 ]] && grep -q "cannot create 'nowhere/e.npy'.*: No such file or directory" err || complain "--embeddings into no folder: $(cat err)"
printf '\223NUMPY old' >e.npy
(ulimit -f 1; "$towers" predict runs/run photos/val --embeddings e.npy --top 1) 2>err | cat >/dev/null
cmp -s e.npy <(printf '\223NUMPY old') || complain "--embeddings that do not fit take the place of the old file: $(stat -c %s e.npy) bytes, $(cat err)"
"$towers" predict runs/run photos/val --tta flip --embeddings e.npy >/dev/null 2>err && complain "--tta with --embeddings is accepted"
grep -q -- '--embeddings and --tta exclude each other' err || complain "--tta with --embeddings: $(cat err)"
# ---- --calibrate: the temperature of the least loss, which eval and predict then use; classes stay the same
for n in 1 3; do
    cp -r runs/run runs/cal$n
    "$towers" eval runs/cal$n --quiet --json --calibrate --towers $n >cal$n.json 2>err || complain "eval --calibrate: $(cat err)"
done
"$towers" report runs/cal1 --quiet || complain "the report of a calibrated run"
cmp cal1.json cal3.json && cmp runs/cal1/calibration.json runs/cal3/calibration.json || complain "the temperature depends on the number of towers"
"$towers" eval runs/cal1 --json --towers 3 >used.json 2>used.err || complain "eval of a calibrated run: $(cat used.err)"
"$towers" eval runs/cal1 --json --tta flip >used_flip.json 2>err || complain "eval --tta flip of a calibrated run: $(cat err)"
"$towers" eval runs/cal3 --calibrate >text 2>err || complain "eval --calibrate: $(cat err)"
"$towers" predict runs/cal1 photos/val --json --top 2 >used.jsonl 2>predict.err || complain "predict of a calibrated run: $(cat predict.err)"
"$towers" predict runs/cal1/best.safetensors photos/val --json --top 2 >file.jsonl 2>err || complain "predict of a file: $(cat err)"
cmp file.jsonl used.jsonl && grep -q temperature err || complain "the file of a calibrated run predicts otherwise: $(cat err)"
"$python" - <<'PYTHON' || failures=$((failures + 1))
import json, re
import numpy as np
from scipy.optimize import minimize_scalar
def table(file):
    rows = [json.loads(line) for line in open(file)]
    return np.array([[next(c["probability"] for c in row["predictions"] if c["name"] == name) for name in ("dark", "light")] for row in rows]), rows
(plain, rows), (used, _) = table("predicted.jsonl"), table("used.jsonl")
labels = np.array([int("/light/" in row["file"]) for row in rows])
def scaled(t):
    p = np.exp(np.log(plain) / t)
    return p / p.sum(axis=1, keepdims=True)
def loss(t):
    return -np.mean(np.log(scaled(t)[np.arange(120), labels]))
def error(p):
    sure, right = p.max(axis=1), p.argmax(axis=1) == labels
    bins = np.minimum(np.ceil(sure * 15).astype(int) - 1, 14)
    return sum(abs(right[bins == b].mean() - sure[bins == b].mean()) * np.mean(bins == b) for b in set(bins))
wanted = minimize_scalar(lambda b: loss(1 / b), bounds=(0.05, 20), method="bounded", options={"xatol": 1e-10})
before, made, after = (json.load(open(f)) for f in ("eval.json", "cal1.json", "used.json"))
t = made["temperature"]
assert abs(1 / t - wanted.x) < 1e-5 and abs(t - 1) > 0.01, (t, 1 / wanted.x)
assert abs(made["loss"] - wanted.fun) < 1e-6 and made["loss"] < made["loss_before"] == before["loss"], (made["loss"], wanted.fun)
assert abs(made["calibration_error"] - error(scaled(t))) < 1e-5 and made["calibration_error_before"] == before["calibration_error"]
assert np.abs(used - scaled(t)).max() < 1e-6, np.abs(used - scaled(t)).max()
for name in ("top1", "confusion", "mean_f1"):
    assert before[name] == made[name] == after[name], name
for name in ("temperature", "calibration_error", "roc_auc"):
    assert abs(made[name] - after[name]) < 1e-6, name
assert abs(made["loss"] - after["loss"]) < 1e-6 and "loss_before" not in after and "temperature" not in before
flip, used_flip = json.load(open("flip1.json")), json.load(open("used_flip.json"))
assert used_flip["top1"] == flip["top1"] and used_flip["loss"] != flip["loss"] and used_flip["temperature"] == t
mean = np.array(list(json.loads(line)["predictions"] for line in open("mean.jsonl")))
pairs = np.array([[next(c["probability"] for c in row if c["name"] == name) for name in ("dark", "light")] for row in mean])
powers = np.exp(np.log(pairs) / t)
assert abs(used_flip["loss"] + np.mean(np.log((powers / powers.sum(axis=1, keepdims=True))[np.arange(120), labels]))) < 1e-6, used_flip["loss"]
stored = json.load(open("runs/cal1/calibration.json"))
assert stored["temperature"] == t and stored["images"] == 120 and stored["loss"] == [made["loss_before"], made["loss"]], stored
page = open("runs/cal1/report.html").read()
for k, (when, p) in enumerate((("before", plain), ("after", scaled(t)))):
    sure, right = p.max(axis=1), p.argmax(axis=1) == labels
    inside = [np.minimum(np.ceil(sure * 15).astype(int) - 1, 14) == b for b in range(15)]
    shown = stored["reliability"][k]
    assert shown["images"] == [int(i.sum()) for i in inside] and stored["calibration_error"][k] == (before, made)[k]["calibration_error"], shown
    for key, x in (("accuracy", right), ("probability", sure)):
        assert all(v is None if not i.any() else abs(v - x[i].mean()) < 1e-5 for v, i in zip(shown[key], inside, strict=True)), (key, shown)
    figure = page.split("<h3>Reliability %s calibration</h3>" % when)[1].split("</figure>")[0]
    bars = [float(y) for y in re.findall('<rect class="f2"[^>]* height="([0-9.]*)"', figure)]
    wanted = [v for v in shown["accuracy"] if v is not None]
    assert "calibration error %.4f" % stored["calibration_error"][k] in figure and len(bars) == len(wanted), (when, figure)
    assert np.allclose(np.array(bars) * max(wanted), np.array(wanted) * max(bars), atol=0.3), (bars, wanted)
line = "temperature %.4f: calibration error %.4f before and %.4f after, loss %.5f before and %.5f after" % (
    t, before["calibration_error"], made["calibration_error"], before["loss"], made["loss"])
assert line in open("text").read(), (line, open("text").read())
for file in ("used.err", "predict.err"):
    assert "temperature    %.4f (runs/cal1/best.safetensors)" % t in open(file).read(), open(file).read()
PYTHON
cp runs/cal1/calibration.json runs/many
"$towers" eval runs/many >/dev/null 2>err && grep -q "is of other weights and is not used" err || complain "the temperature of other weights: $(cat err)"
echo '{"temperature": 0, "weights": ""}' >runs/many/calibration.json
refused() { refuses '[1-9]' "$1" "$towers" "${@:2}"; } # TEXT ARGUMENT...
refused "expected weights and a temperature from 0.05 to 20" predict runs/many many/val
refused "which stores a temperature, but 'runs/run/best.safetensors' is no folder of one" eval runs/run/best.safetensors --calibrate --data-path photos
for mark in --calibrate --no-calibrate; do # while the run goes on its weights change
    refuses 2 "$mark: runs/cal3 is in use" flock runs/cal3/.lock "$towers" eval runs/cal3 $mark
done
refused "the images that the network has learned, of which it is too sure" eval runs/run --calibrate --split train
refused "the images that the network has learned, of which it is too sure" eval runs/run --calibrate --data-path photos/train
refused "--tta and --calibrate exclude each other" eval runs/run --calibrate --tta flip
"$python" - <<'PYTHON' # images that are classified rightly
import json, os, shutil
for name in "dark", "light":
    os.makedirs(f"easy/val/{name}")
for line in open("predicted.jsonl"):
    file, first = json.loads(line)["file"], json.loads(line)["predictions"][0]["name"]
    if f"/{first}/" in file:
        shutil.copy(file, f"easy/val/{first}")
PYTHON
refused "is right about all, or nearly all, of these images; evaluate more" eval runs/run --data-path easy --calibrate
[ ! -e runs/run/calibration.json ] || complain "a refused calibration is stored"
check_end "classes are divided into folds as evenly as by scikit-learn, and groups stay together; the numbers of towers eval are its numbers; --tta flip is the mean of two predictions, the temperature of --calibrate the best one"
