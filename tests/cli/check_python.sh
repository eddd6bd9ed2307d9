#!/usr/bin/env bash
# The package for Python: its commands are those of the program, each option a keyword; a training is started, shown, stopped by Ctrl-C
# and by its end, and its errors are exceptions; records are columns of NumPy that equal the files; files, bytes, images of Pillow and
# arrays are classified as towers predict does; what is missing is said; the lines of its README run as they are printed.
set -uo pipefail
. "$1/tests/support/check.sh"
build=$(dirname "$towers") package=$source_dir/examples/python
grep -q '^TOWERS_SANITIZE:STRING=.' "$build/CMakeCache.txt" && { echo "SKIPPED: a sanitizer must be in the program that loads the library" >&2; exit 77; }
python_of notebook
export XDG_CACHE_HOME=$work/cache PYTHONPATH=$package PYTHONDONTWRITEBYTECODE=1 TOWERS_PROGRAM=$towers TOWERS_LIBRARY=$build/libtowers.so.0

# ---- one table
keywords=$source_dir/scripts/pages/python_keywords.py
"$python" "$keywords" "$towers" --check 2>"$err" || complain "$(cat "$err")"
mkdir -p stale/scripts/pages stale/examples && cp "$keywords" stale/scripts/pages/ && cp -r "$package" stale/examples/
sed -i '/^    lr: /d' stale/examples/python/towers/commands.py
refuses 1 "commands.py is not what the options say: run scripts/pages/python_keywords.py TOWERS" "$python" stale/scripts/pages/python_keywords.py "$towers" --check
"$python" - <<'PYTHON' 2>"$err" || complain "the keywords: $(tail -3 "$err")"
import inspect, json, os, subprocess, typing
import towers
table = json.loads(subprocess.run([os.environ["TOWERS_PROGRAM"], "man", "--json"], check=True, capture_output=True).stdout)
names = {"eval": "evaluate", "lr-find": "find_lr"}
for row in table["commands"]:
    if row["name"] in ("help", "version"):
        continue
    function = getattr(towers, names.get(row["name"], row["name"]))
    wanted = {o["flag"].replace("-", "_") for o in table["options"] if row["name"] in o["commands"]} - ({"json"} if row["name"] == "train" else set())
    hints, parameters = typing.get_type_hints(function), inspect.signature(function).parameters
    assert set(parameters) - {"arguments", "show", "wait", "environment"} == wanted, (row["name"], wanted ^ set(parameters))
    assert wanted <= set(hints) and row["summary"] in function.__doc__
    assert all(f"\n{keyword}: " in function.__doc__ for keyword in wanted)
assert "learning rate; auto: by lr-find" in towers.train.__doc__
assert towers.__version__ == table["version"] == towers.version()
PYTHON

# ---- a training
make_photos() {
    python3 - <<'PYTHON'
import os, random
random.seed(5)
for split, count in (("train", 13), ("val", 5)):
    for name, color in (("cat", (200, 60, 60)), ("dog", (60, 132, 60))):
        os.makedirs(f"photos/{split}/{name}")
        for i in range(count):
            pixels = bytes(max(0, min(255, v + random.randint(-50, 50))) for _ in range(48 * 40) for v in color)
            open(f"photos/{split}/{name}/{i}.ppm", "wb").write(b"P6\n48 40\n255\n" + pixels)
PYTHON
}
make_photos
"$python" - <<'PYTHON' >"$out" 2>"$err" || complain "a training: $(tail -n 4 "$err")"
import csv, json, os
import numpy, towers
run = towers.train("fashion_cnn", data_path="photos", towers=3, batch_size=4, epochs=2, lr=0.0005, recipe="none", experiment="first", exif=numpy.True_)
assert not run.running and run.path == "runs/first" and run.result["step"] == 6 and os.path.samefile(run, "runs/first")
rows = [json.loads(line) for line in open("runs/first/metrics.jsonl")]
steps = run.steps
assert steps.rows == 6 and list(steps["step"]) == [1, 2, 3, 4, 5, 6] and steps["step"].dtype == numpy.int64
assert steps["mean_loss"].tolist() == [row["mean_loss"] for row in rows] and steps["skipped"].dtype == bool
assert 0 in rows[2]["tower_count"], rows[2]
losses = steps["tower_loss"]
assert losses.shape == (6, 3) and (losses.mask == (steps["tower_count"] == 0)).all() and losses.mask.sum() > 0
for row, found in zip(rows, losses):
    assert found.compressed().tolist() == row["tower_loss"]
epochs, table = run.epochs, list(csv.DictReader(open("runs/first/results.csv")))
assert epochs["test_loss"].tolist() == [float(row["test_loss"]) for row in table] and epochs["test_top5"].mask.all() and epochs["epoch"].tolist() == [1, 2]
assert run.settings["lr"] == 0.0005 and run.settings["towers"] == 3 and run.settings["data_path"] == "photos" and run.settings["gpus"] is None and run.settings["exif"] is True
assert run.outcome["outcome"] == "finished" and run.environment["class_names"] == ["cat", "dog"] and os.path.exists(run.best)
assert towers.Run("runs/first").steps["mean_loss"].tolist() == steps["mean_loss"].tolist()
found = towers.evaluate(run, data_path="photos")
assert found["examples"] == 10 and 0 <= found["top1"] <= 1, found
assert [row["run"] for row in towers.runs("runs")] == ["first"] and isinstance(towers.runs("runs", json=False), str)
assert towers.data("info", "photos")["parts"][0]["images"] == 26 and "all 36 images can be decoded" in towers.data("check", "photos")
for only_said in (towers.train("fashion_cnn", data_path="photos", dry_run=True), towers.train("fashion_cnn", data_path="photos", print_config=True),
                  towers.bench("fashion_cnn", dry_run=True), towers.evaluate(run, print_config=True)):
    assert isinstance(only_said, str) and ("fashion_cnn" in only_said or "\nbatch-size: " in only_said), only_said
assert "parameters" in towers.info("fashion_cnn") and towers.info(run.best, json=True)["model"] == "fashion_cnn"
for wrong, text in (("train", "is no run directory: it has no args.yaml"), (run.steps.__getitem__, "no row has 'loss'; there are: step, ")):
    try:
        towers.Run("photos") if wrong == "train" else wrong("loss")
        raise AssertionError("accepted")
    except (FileNotFoundError, KeyError) as error:
        assert text in str(error), error
PYTHON
grep -q '^run directory  runs/first' "$err" || complain "the training is not shown: $(cat "$err")"
"$python" - <<'PYTHON' 2>"$err" || complain "columns: $(tail -n 3 "$err")"
import numpy
from towers.run import Records
records = Records([{"a": 1, "terms": {"penalty": 2.5}, "l": [1, 2], "w": "x", "n": None}, {"a": 2, "l": [3], "b": True, "n": 4}])
assert records["a"].tolist() == [1, 2] and not numpy.ma.isMaskedArray(records["a"])
assert records["terms.penalty"].tolist() == [2.5, None] and records["b"].tolist() == [None, True] and records["w"].tolist() == ["x", None]
assert records["l"].tolist() == [[1, 2], [3, None]] and numpy.isnan(records["n"][0]) and records["n"][1] == 4 and records.rows == 2
assert Records([{"tower_count": [2, 0, 1], "tower_loss": [1.5, 2.5]}])["tower_loss"].tolist() == [[1.5, None, 2.5]]
PYTHON

# ---- errors
cp -r photos damaged && truncate -s 200 damaged/train/cat/3.ppm
"$python" - <<'PYTHON' >"$out" 2>"$err" || complain "errors: $(tail -n 3 "$err")"
import towers
for call, code, text in ((lambda: towers.train("nope", show=False), 2, "unknown model 'nope'; the models are: "),
                         (lambda: towers.train("fashion_cnn", data_path="nowhere", show=False), 2, "nowhere"),
                         (lambda: towers.evaluate("nowhere"), 2, "nowhere"),
                         (lambda: towers.train("fashion_cnn", lr=-1, show=False), 2, "--lr"),
                         (lambda: towers.train("fashion_cnn", data_path="damaged", batch_size=4, epochs=1, experiment="fails", show=False), 3, "damaged/train/cat/3.ppm"),
                         (lambda: towers.evaluate("fashion_cnn", data_path="photos", weights="photos/val/cat/0.ppm"), 4, "photos/val/cat/0.ppm")):
    try:
        call()
        raise AssertionError("accepted")
    except towers.CommandError as error:
        assert error.code == code and text in str(error) and error.meaning and not str(error).startswith("error"), (str(error), error.code)
for call, text in ((lambda: towers.train("fashion_cnn", learning_rate=1), "unexpected keyword argument 'learning_rate'"),):
    try:
        call()
        raise AssertionError("accepted")
    except TypeError as error:
        assert text in str(error), error
PYTHON
[[ ! -s $err ]] || complain "show=False shows: $(head -3 "$err")"
TOWERS_PROGRAM=$work/none refuses 1 "there is no program '$work/none' (TOWERS_PROGRAM). Install a wheel of Towers that contains it" "$python" -c 'import towers; towers.runs()'
refuses 1 "there is no program 'towers' in PATH. Install a wheel" env TOWERS_PROGRAM= PATH="$work/none" "$python" -c 'import towers; towers.runs()'
TOWERS_LIBRARY=$work/nowhere.so refuses 1 "cannot load libtowers: $work/nowhere.so: cannot open shared object file" "$python" -c 'import towers; towers.Network("runs/first")'
grep -q 'NotInstalled: .*or name its file: TOWERS_LIBRARY=build/libtowers.so.0' "$err" || complain "no remedy: $(cat "$err")"
refuses 1 "installed without the program; install a wheel" "$python" -c 'from towers.program import main; main()'

# ---- Ctrl-C, and the ends of with and of Python
endless='"fashion_cnn", dataset="synthetic", classes=3, img_size=32, batch_size=8, epochs=100000, show=False'
train_in_python() { # NAME LINES
    "$python" -c "import towers
$2" >"$work/$1.out" 2>"$work/$1.err"
}
outcome_is() { grep -q "\"exit_code\":$2" "runs/$1/outcome.json" 2>/dev/null || complain "$1: $(cat "runs/$1/outcome.json" "$work/$1.err" 2>&1 | tail -n 4)"; }
ended() { [[ $(ps -o stat= -p "$1") == Z* || ! -e /proc/$1 ]]; }
rows_are_there() { (($(wc -l <"runs/$1/metrics.jsonl" 2>/dev/null) >= $2)); }
for times in 1 2; do
    name=interrupted$times
    setsid "$python" -c "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)
import towers
towers.train($endless, experiment='$name')" 2>"$work/$name.err" & # a shell's children in the background ignore it
    pid=$!
    wait_until rows_are_there $name 20 || complain "$name: no steps: $(cat "$work/$name.err")"
    for ((i = 0; i < times; i++)); do kill -INT $pid; done
    wait_until ended $pid || { complain "$name: Ctrl-C does not end it"; pkill -KILL -P $pid; kill -KILL $pid; }
    wait $pid
    [[ $? == 130 ]] && grep -q KeyboardInterrupt "$work/$name.err" || complain "$name: $(tail -n 2 "$work/$name.err")"
    flock -w 20 "runs/$name/.lock" true || complain "$name: the program goes on"
done
outcome_is interrupted1 130
ls runs/interrupted1/ckpt/step-* >"$out" 2>&1 || complain "Ctrl-C: nothing was saved"
train_in_python within "
import time
with towers.train($endless, experiment='within', wait=False) as run:
    assert run.running and run.path == 'runs/within' and 'running' in repr(run)
    while run.steps.rows < 5: time.sleep(0.05)
assert not run.running and run.outcome['outcome'] == 'stopped'
run.wait()
again = towers.train('fashion_cnn', resume=run, max_steps=run.outcome['step'] + 2, show=False)
assert again.outcome['outcome'] == 'finished' and again.steps.rows == run.outcome['step']" || complain "with: $(tail -n 3 "$work/within.err")"
train_in_python left "towers.train($endless, experiment='left', wait=False)" || complain "left: $(tail -n 3 "$work/left.err")"
outcome_is left 143
train_in_python coded "towers.train($endless, experiment='coded', preempt_exit=85, wait=False).stop()" || complain "coded: $(tail -n 3 "$work/coded.err")"
outcome_is coded 85
fake() { # NAME ON_TERM ON_INT: a program that says that it is runs/first, and what it does at signals
    printf '#!/bin/sh\necho "run directory  runs/first" >&2\ntrap "%s" TERM\ntrap "%s" INT\necho $$ >>%s.pids\nwhile :; do sleep 0.05; done\n' "$2" "$3" "$work/$1" >"$1" && chmod +x "$1"
}
fake fails 'echo \"error: the disk is full\" >&2; exit 6' 'exit 130'
for end in "run.stop()" "with run: pass"; do
    TOWERS_PROGRAM=$work/fails refuses 1 "towers.errors.CommandError: the disk is full" "$python" -c "import towers
run = towers.train('fashion_cnn', show=False, wait=False)
$end"
done
fake stays '' 'exit 130' # of two that go on when Python ends, Ctrl-C ends both
TOWERS_PROGRAM=$work/stays setsid "$python" -c "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)
import towers
for k in range(2): towers.train('fashion_cnn', show=False, wait=False)
open('begun', 'w')" 2>"$err" &
pid=$!
wait_until test -e begun
sleep 1
kill -INT $pid
wait_until ended $pid || { complain "Python waits for programs that Ctrl-C should have ended"; kill -KILL $pid; }
while read -r program; do ! kill -KILL "$program" 2>/dev/null || complain "a program goes on without its Python, after Ctrl-C"; done <"$work/stays.pids"
flock -n runs/left/.lock true || { complain "a run goes on without its Python"; kill "$(cat runs/left/.lock)"; }

# ---- predictions
"$python" - <<'PYTHON' 2>"$err" || complain "pictures: $(cat "$err")"
import numpy, os
from PIL import Image
os.mkdir("images")
random = numpy.random.default_rng(3)
color, gray = random.integers(0, 255, (60, 50, 3), numpy.uint8), random.integers(0, 65535, (40, 44), numpy.uint16)
Image.fromarray(color).save("images/color.jpg", quality=95)
exif = Image.Exif()
exif[0x112] = 6
Image.fromarray(color).save("images/lying.jpg", quality=95, exif=exif)
Image.fromarray(color).quantize(16).save("images/palette.png")
Image.fromarray(color[:, :, 0]).save("images/gray.png")
Image.fromarray(gray).save("images/deep.png")
Image.fromarray(numpy.dstack([color, color[:, :, :1]])).save("images/alpha.png")
PYTHON
"$towers" train fashion_cnn --data-path photos --max-steps 3 -b 8 --no-exif --experiment lying --quiet 2>"$err" || complain "$(cat "$err")"
"$python" - <<'PYTHON' 2>"$err" || complain "predictions: $(tail -n 4 "$err")"
import glob, pathlib
import numpy, towers
from PIL import Image
files = sorted(glob.glob("images/*"))
for run in ("runs/first", "runs/lying"):
    wanted = towers.predict(run, *files)
    assert [row["file"] for row in wanted] == files
    with towers.Network(run + "/best.safetensors") as network:
        assert network.turns_upright == (run == "runs/first")
        for file, row in zip(files, wanted):
            picture = Image.open(file)
            kinds = [file, pathlib.Path(file), open(file, "rb").read(), picture]
            if "lying" not in file and "deep" not in file:
                kinds.append(numpy.asarray(picture if picture.mode in ("L", "RGB") else picture.convert("RGB")))
            for image in kinds:
                found = network.predict(image)
                for (name, p), ours in zip(found.top(), row["predictions"]):
                    assert name == ours["name"] and abs(p - ours["probability"]) < 1e-6, (file, type(image), found, row)
                assert found.name == row["predictions"][0]["name"] and found.probability == found.probabilities.max()
        deep = Image.open("images/deep.png")
        whole = Image.fromarray(numpy.asarray(deep).astype(numpy.int32))
        assert (deep.mode, whole.mode) == ("I;16", "I") and network.predict(whole).probability == network.predict(deep).probability
        several = network.predict(files)
        assert len(several) == len(files) and [p.name for p in several] == [row["predictions"][0]["name"] for row in wanted]
        assert len(network.predict(numpy.zeros((2, 9, 9, 3), numpy.uint8))) == 2 and several[0].above(0.0) == several[0].top()
        for image, kind, text in (("nowhere.jpg", FileNotFoundError, "nowhere.jpg"), (3, TypeError, "the path of a file, the bytes of one, an image of Pillow or an array of pixels, not int"),
                                  (Image.open("images/gray.png").convert("I"), TypeError, "does not say which of them is white"),
                                  (Image.fromarray(numpy.full((4, 4), -1, numpy.int32)), TypeError, "with numbers from -1 to -1"),
                                  (Image.fromarray(numpy.full((4, 4), 65536, numpy.int32)), TypeError, "with numbers from 65536 to 65536"),
                                  (Image.fromarray(numpy.full((4, 4), 0.5, numpy.float32)), TypeError, "mode F does not say"),
                                  (numpy.zeros((4, 4)), TypeError, "must be uint8"), (b"no image", towers.LibraryError, "image 0")):
            try:
                network.predict(image)
                raise AssertionError("accepted")
            except kind as error:
                assert text in str(error), error
PYTHON

# ---- the README, as it is printed
mkdir readme && cd readme || exit 1
make_photos
cp photos/val/cat/0.ppm cat.jpg
awk '/^```python/ { on = 1; next } /^```/ { on = 0 } on' "$package/README.md" >readme.py
[[ $(grep -c . readme.py) -ge 8 ]] || complain "the README has no lines for Python"
"$python" readme.py >"$out" 2>"$err" || complain "the README's lines: $(tail -n 3 "$err")"
grep -qE '^(cat|dog) 0\.[0-9]+' "$out" || complain "the README's lines print: $(cat "$out")"

check_end "the package for Python trains, reads and predicts as the program does"
