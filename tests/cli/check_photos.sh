#!/usr/bin/env bash
# A folder of photographs, some of them damaged: `towers train` on it, `towers predict` on new images, `towers eval` and the report of
# the run (for `towers data` see check_data.sh).
set -uo pipefail
. "$1/tests/support/check.sh"
needs_python
/usr/bin/python3 -c 'import PIL' 2>/dev/null || { echo "SKIPPED: no Pillow (package python3-pil)"; exit 77; }
export XDG_CACHE_HOME=$work/cache

/usr/bin/python3 - <<'PYTHON'
import os, random
from PIL import Image
random.seed(1)
for split, count in (("train", 12), ("val", 4)):
    for name, color in (("blue", (40, 40, 200)), ("green", (40, 200, 40)), ("red", (200, 40, 40))):
        os.makedirs(f"photos/{split}/{name}")
        for i in range(count):
            size = random.randint(80, 160), random.randint(80, 160)
            noise = Image.effect_noise(size, 60).convert("RGB")
            Image.blend(noise, Image.new("RGB", size, color), 0.5).save(f"photos/{split}/{name}/{i}" + (".png", ".jpg")[i % 2])
PYTHON

train() { # NAME DATA [ARGUMENT...]
    "$towers" train googlenet --device cpu --img-size 75 -b 6 --max-steps 4 --output-dir runs --experiment "$1" --data-path "$2" "${@:3}" \
        >"$1.out" 2>"$1.err" </dev/null
}

# ---- a whole set: trained, and new images predicted as `eval` would see them
train whole photos --augment --crop random || complain "train: $(tail -3 whole.err)"
grep -q "folder of images.*36 training and 12 evaluation images, 3 classes" whole.err || complain "the run does not name its data: $(head -6 whole.err)"
"$towers" predict runs/whole photos/val --json >predicted.jsonl 2>predict.err || complain "predict: $(cat predict.err)"
"$towers" eval runs/whole --device cpu --json >eval.json 2>eval.err || complain "eval: $(cat eval.err)"
/usr/bin/python3 - <<'PYTHON' || complain "predict and eval do not agree"
import json
rows = [json.loads(line) for line in open("predicted.jsonl")]
assert len(rows) == 12, len(rows)
correct = sum("/%s/" % row["predictions"][0]["name"] in row["file"] for row in rows)
accuracy = json.load(open("eval.json"))["top1"]
assert abs(correct / 12 - accuracy) < 1e-6, (correct, accuracy)
PYTHON
"$towers" data check photos >check.out 2>&1 || complain "data check of a whole set: $(cat check.out)"


# ---- a divided set that has grown: images have moved between its parts
cp -r photos/train grown
train grown grown --val-split 0.25 || complain "train of a divided set: $(tail -3 grown.err)"
"$towers" eval runs/grown --device cpu --json >/dev/null 2>grown.err && ! grep -q 'divided otherwise' grown.err || complain "eval of a divided set: $(cat grown.err)"
cp photos/val/red/0.png grown/red/new.png
"$towers" eval runs/grown --device cpu --json >/dev/null 2>grown.err && grep -q 'warning: grown is divided otherwise than in the training' grown.err ||
    complain "eval says nothing of images that may have been trained on: $(cat grown.err)"
mkdir -p ruined/red && touch ruined/red/{1,2}.jpg
"$towers" eval runs/whole --device cpu --data-path ruined --bad-samples skip --json >ruined.out 2>&1
[[ $? == 3 ]] && grep -q 'none of its 2 images can be decoded' ruined.out && ! grep -q loss ruined.out || complain "an evaluation of nothing: $(cat ruined.out)"

# ---- the mistakes of an evaluation and the scores of its classes are those of the predictions
"$towers" eval runs/whole --device cpu --errors errors.csv --class-scores scores.csv >eval.out 2>eval.err || complain "eval --errors: $(cat eval.err)"
"$towers" eval runs/whole --device cpu --errors nowhere/errors.csv >lost.out 2>&1
[[ $? == 6 ]] && grep -q "^Accuracy" lost.out && grep -q "cannot create 'nowhere/errors.csv'" lost.out || complain "a folder that is not there: $(cat lost.out)"
"$towers" eval runs/whole --device cpu --errors both.csv --class-scores ./both.csv >both.out 2>&1
[[ $? == 2 && ! -e both.csv ]] && grep -q -- '--errors and --class-scores are both written to both.csv' both.out || complain "two tables for one file: $(cat both.out)"
grep -qE "^data .*photos.*12 val images, 3 classes" eval.err || complain "eval does not name its data: $(cat eval.err)"
/usr/bin/python3 - <<'PYTHON' || complain "eval --errors and --class-scores: $(cat errors.csv scores.csv eval.out)"
import csv, json
best = {}
for line in open("predicted.jsonl"):
    row = json.loads(line)
    best[row["file"]] = row["predictions"][0]["name"], row["predictions"][0]["probability"]
label = {file: file.split("/")[-2] for file in best}
errors = list(csv.DictReader(open("errors.csv")))
assert {tuple(row["file"].split("/")[-2:]) for row in errors} == {tuple(file.split("/")[-2:]) for file in best if best[file][0] != label[file]}, errors
for row in errors:
    name, probability = next(best[file] for file in best if row["file"].endswith(file))
    assert row["predicted"] == name and row["label"] == row["file"].split("/")[-2], row
    assert abs(float(row["probability"]) - probability) < 1e-4, (row, probability)
report, table = json.load(open("eval.json")), open("eval.out").read().splitlines()
for scores, one in zip(csv.DictReader(open("scores.csv")), report["classes"]):
    name = scores["name"]
    right = sum(best[file][0] == name == label[file] for file in best)
    taken, there = sum(best[file][0] == name for file in best), sum(label[file] == name for file in best)
    wanted = [right / taken if taken else None, right / there, 2 * right / (taken + there)]
    assert [float(scores[key]) if scores[key] else None for key in ("precision", "recall", "f1")] == \
        [None if value is None else round(value, 6) for value in wanted], (scores, wanted)
    assert all(a == b or abs(a - b) < 1e-9 for a, b in zip((one["precision"], one["recall"], one["f1"]), wanted)), (one, wanted)
    line = next(line.split() for line in table if line.startswith(name + " "))
    assert line[1:] == ["-" if value is None else f"{value:.4f}" for value in wanted] + [str(there)], (line, wanted)
PYTHON

# ---- the most confident mistake comes first; without batch norms the probabilities of a hardly trained network differ
"$towers" train fashion_cnn --device cpu --img-size 28 -b 6 --max-steps 4 --lr 0.0001 --output-dir runs --experiment plain --data-path photos \
    --quiet >/dev/null 2>plain.err </dev/null || complain "train: $(tail -3 plain.err)"
"$towers" eval runs/plain --device cpu --errors plain.csv >/dev/null 2>eval.err || complain "eval --errors: $(cat eval.err)"
/usr/bin/python3 - <<'PYTHON' || complain "the order of mistakes: $(cat plain.csv)"
import csv
confidence = [float(row["probability"]) for row in csv.DictReader(open("plain.csv"))]
assert len(set(confidence)) > 2 and confidence == sorted(confidence, reverse=True), confidence
PYTHON

# ---- the report shows the first batch, the mistakes, and what the loader did, in one file
/usr/bin/python3 - <<'PYTHON' || complain "the report of a run over photographs"
import csv, json
page, data = open("runs/whole/report.html").read(), json.load(open("runs/whole/data.json"))
batch, mistakes = (list(csv.DictReader(open(f"runs/whole/{name}.csv"))) for name in ("first-batch", "mistakes"))
assert len(batch) == 6 and all(row["label"] == row["file"].split("/")[-2] for row in batch), batch
assert "First training batch" in page and ("Most confident mistakes" in page) == (len(mistakes) > 0)
assert page.count("data:image/jpeg;base64,") == 1 + (len(mistakes) > 0) and len(page) < 2000000
assert data["images"] >= 24 and data["decode_ns"] > 0 and data["cause"] in ("disk", "decode", "augment"), data
assert "data-wait" in page and data["bad_samples"] == data["rotated"] == 0
PYTHON

# ---- pictures that are stored rotated: said once, with the remedy
cp -r photos turned
/usr/bin/python3 - <<'PYTHON'
from PIL import Image
for name in ("red/1", "blue/3"):
    image = Image.open(f"photos/train/{name}.jpg")
    exif = image.getexif()
    exif[0x112] = 6
    image.save(f"turned/train/{name}.jpg", exif=exif)
PYTHON
train turned turned --max-steps 12 --eval-interval 0 --no-exif || complain "stored rotated: $(tail -3 turned.err)"
[[ $(grep -c "2 of 36 training images are stored rotated.*used as stored; --exif" turned.err) == 1 ]] || complain "rotated images are not counted once: $(cat turned.err)"
sed '/^steps /q' turned.err | grep -q "stored rotated" || complain "rotated images are counted behind the first step: $(cat turned.err)"
train upright turned --max-steps 6 --eval-interval 0 --recipe photos || complain "upright: $(tail -3 upright.err)"
grep -q "2 of 36 training images are stored rotated.*turned upright" upright.err || complain "pictures are not turned upright by default: $(cat upright.err)"
grep -q '^exif: true ' runs/upright/args.yaml || complain "args.yaml: $(grep exif runs/upright/args.yaml)"

# ---- originals are predicted upright, by a run on them and by a run on files that were turned upright
"$towers" data convert turned straight --side 160 --quality 100 >convert.out 2>&1 || complain "convert: $(cat convert.out)"
for run in turned straight; do # without batch norms the probabilities of a hardly trained network differ
    "$towers" train fashion_cnn --device cpu --img-size 28 -b 6 --max-steps 4 --lr 0.0001 --output-dir runs --experiment "small-$run" --data-path "$run" \
        --recipe "$([[ $run == turned ]] && echo photos || echo torchvision)" >"$run.out" 2>"$run.err" </dev/null || complain "train: $(tail -3 "$run.err")"
done
grep -q "because straight holds pictures that towers data convert has turned upright" straight.err || complain "the run does not say why: $(cat straight.err)"
for run in small-turned small-straight; do
    "$towers" predict runs/$run turned/train/red/1.jpg --json >lying.json 2>predict.err || complain "predict: $(cat predict.err)"
    "$towers" predict runs/$run turned/train/red/1.jpg --no-exif --json >stored.json 2>>predict.err
    grep -q "stored rotated" predict.err || complain "--no-exif of predict says nothing: $(cat predict.err)"
    cmp -s lying.json stored.json && complain "$run predicts an original picture as it was stored"
done

# ---- broken files: named, counted, refused or skipped
# fault: F13
cp -r photos broken
head -c 300 photos/train/red/1.jpg >broken/train/red/1.jpg
echo text >broken/train/green/3.jpg
: >broken/train/blue/5.jpg
"$towers" data check broken >check.out 2>&1 && complain "data check accepts broken files"
for file in red/1.jpg green/3.jpg blue/5.jpg; do grep -q "$file" check.out || complain "data check does not name $file: $(cat check.out)"; done
train stop broken && complain "a run over broken files exits 0"
grep -qE "(red/1|green/3|blue/5).jpg" stop.err || complain "the run does not name the broken file: $(tail -3 stop.err)"
train skip broken --bad-samples skip --max-steps 6 || complain "--bad-samples skip: $(tail -3 skip.err)"
grep -q "^3 training samples could not be decoded and were skipped; runs/skip/bad-samples.csv" skip.err || complain "skipped samples are not counted at the end: $(tail -5 skip.err)"
for file in red/1 green/3 blue/5; do
    grep -oE "<tr><th>training [0-9]+</th><td>[^<]*" runs/skip/report.html | grep -q "$file.jpg" || complain "the report does not list $file.jpg"
done
/usr/bin/python3 -c 'import json; data = json.load(open("runs/skip/data.json")); assert (data["bad_samples"], data["warnings"]) == (3, 0), data' ||
    complain "data.json of a run that skips"
train limit broken --bad-samples limit:2 --max-steps 6 && complain "--bad-samples limit:2 accepts three"
"$towers" predict runs/whole broken/train/red/1.jpg photos/val/red/0.png >one.out 2>one.err && complain "predict of a broken image exits 0"
grep -q "red/1.jpg" one.err one.out || complain "predict does not name the broken image"
grep -q "val/red/0.png" one.out || complain "predict leaves out the whole image beside a broken one"
mkdir -p mixed/below && cp broken/train/red/1.jpg mixed/1.jpg && cp photos/val/red/0.png mixed/2.png && touch mixed/raw.CR3 mixed/below/{a,b}.svg
"$towers" predict runs/whole mixed --json --embeddings rows.npy >rows.jsonl 2>one.err
[[ $? == 3 ]] && grep -q 'warning: 3 files are ignored (.*2 .svg.*), the first is mixed/' one.err || complain "predict says nothing of the files that it leaves out: $(cat one.err)"
"$towers" predict runs/whole mixed --csv --top 1 >rows.csv 2>one.err
/usr/bin/python3 - <<'PYTHON' || complain "a damaged image has no row: $(cat rows.jsonl rows.csv)"
import csv, json
rows, table = [json.loads(line) for line in open("rows.jsonl")], list(csv.DictReader(open("rows.csv")))
assert [row["file"] for row in rows] == [row["file"] for row in table] == ["mixed/1.jpg", "mixed/2.png"]
assert rows[0]["predictions"] == [] and "mixed/1.jpg" in rows[0]["error"] and "error" not in rows[1]
assert [table[0][key] for key in ("rank", "class", "probability")] == ["0", "", ""] and table[1]["rank"] == "1"
assert b"(2, " in open("rows.npy", "rb").read(128)
PYTHON

# ---- a NaN names the files of its samples, and its capsule runs again without them
if TOWERS_FAULT=none: "$towers" train fashion_cnn --dry-run --dataset synthetic >/dev/null 2>&1; then
    left_out "the NaN of a photograph: this binary has no fault points"
else
    TOWERS_FAULT="nan:tower=0,step=2,layer=fc,phase=forward,index=0" train nan photos --augment && complain "a NaN exits 0"
    grep -qE "the first is number [0-9]+ \(.*photos/train/(red|green|blue)/[0-9]+\.(jpg|png)\)" nan.err || complain "the NaN's sample is not named by its file: $(cat nan.err)"
    [[ $(grep -cE "^    .*photos/train/" nan.err) == 5 ]] || complain "the other samples are not named: $(cat nan.err)"
    "$towers" replay runs/nan/nan-step-2-tower-0 --device cpu --quiet >replay.out 2>replay.err </dev/null
    [[ $? == 8 ]] && grep -q "as in the run" replay.err || complain "replay of decoded pictures: $(cat replay.err)"
fi

# ---- a benchmark names its data and reads them as training does
for recipe in "" "--augment --flip random --random-erase 1"; do
    "$towers" bench googlenet --device cpu --img-size 75 -b 6 --batches 1 --warmup-batches 0 --data-path photos $recipe >bench.out 2>&1 </dev/null ||
        complain "bench of photographs: $(cat bench.out)"
    grep -qE "^Dataset: .*\(folder of images\), 36 images" bench.out || complain "bench does not name its data: $(cat bench.out)"
    sed -n 's/^1\timages.*\t//p' bench.out >>losses
done
[[ $(sort -u losses | wc -l) == 2 ]] || complain "bench does not augment as training does: losses $(cat losses)"

# ---- bombs: a few bytes that promise gigabytes, or work for hours, are refused at their header
# fault: F15
cp -r photos bombs
/usr/bin/python3 - <<'PYTHON'
import io, random, struct, zlib
from PIL import Image
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
side = 30000 # a whole image, 2.7 GB of black: 100 times the same 300 rows, and the checksum of as many zeros
rows, count = zlib.compressobj(9, zlib.DEFLATED, -15), side * (1 + 3 * side)
packed = rows.compress(bytes(count // 100)) + rows.flush(zlib.Z_FULL_FLUSH)
packed = b"\x78\x9c" + 100 * packed + b"\x03\x00" + struct.pack(">I", count % 65521 << 16 | 1)
with open("bombs/train/red/1.jpg", "wb") as f: # a PNG; formats are found by their content
    f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) + chunk(b"IDAT", packed) + chunk(b"IEND", b""))
whole = io.BytesIO()
Image.effect_noise((96, 96), 60).convert("RGB").save(whole, "JPEG")
large, at = bytearray(whole.getvalue()), whole.getvalue().index(b"\xff\xc0")
large[at + 5:at + 9] = struct.pack(">HH", 65000, 65000)
open("bombs/train/green/1.jpg", "wb").write(large)
whole = io.BytesIO()
Image.effect_noise((96, 96), 60).convert("RGB").save(whole, "JPEG", progressive=True)
data = whole.getvalue()
last = data.rindex(b"\xff\xda") # the last scan, a thousand times
open("bombs/train/blue/1.jpg", "wb").write(data[:last] + 1000 * data[last:-2] + data[-2:])
PYTHON
peak() { # COMMAND...: its resident memory in MiB at most, in $out.peak
    /usr/bin/python3 -c 'import resource, subprocess, sys
code = subprocess.run(sys.argv[2:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024, file=open(sys.argv[1], "w"))
sys.exit(code)' "$out.peak" "$@"
}
peak "$towers" data check photos >check.out 2>&1 || complain "data check of a whole set: $(cat check.out)"
whole_mib=$(cat "$out.peak")
peak "$towers" data check bombs >check.out 2>&1 && complain "data check accepts bombs"
(($(cat "$out.peak") < whole_mib + 64)) || complain "bombs take $(cat "$out.peak") MiB, a whole set $whole_mib"
for text in 'red/1.jpg.*30000 x 30000' 'green/1.jpg.*65000 x 65000' 'blue/1.jpg.*scans'; do grep -q "$text" check.out || complain "no '$text': $(cat check.out)"; done
train bombs bombs --bad-samples skip --max-steps 6 || complain "a run that skips bombs: $(tail -3 bombs.err)"

# ---- images that go, or change, between the look at the folder and their reading
# fault: F14 F21
if "$towers" train inception_v3 --dataset synthetic --dry-run >/dev/null 2>&1 && ! TOWERS_FAULT=none: "$towers" train inception_v3 --dataset synthetic --dry-run >/dev/null 2>&1; then
    for policy in skip stop; do
        rm -rf going cache
        cp -r photos going
        TOWERS_FAULT="delay:tower=0,step=1,activity=start,ms=4000" train "gone-$policy" going --bad-samples $policy --max-steps 6 &
        wait_until eval '[[ -n $(find cache -type f -size +0) ]]' # its index says that it has looked
        rm going/train/red/1.jpg
        head -c 300 photos/train/green/1.jpg >going/train/green/1.jpg
        if [[ $policy == skip ]]; then
            wait $! || complain "a run that skips what went: $(tail -3 gone-skip.err)"
            for name in red green; do grep -q "skipped: .*$name/1.jpg" gone-skip.err || complain "$name/1.jpg is not named: $(cat gone-skip.err)"; done
        else
            wait $!
            [[ $? == 3 ]] || complain "a run that stops at what went: exit is not 3: $(tail -3 gone-stop.err)"
            grep -qE "(red|green)/1.jpg" gone-stop.err || complain "what went is not named: $(tail -3 gone-stop.err)"
        fi
    done
fi

# ---- one class, or none, is most often another folder than was meant
# fault: F17
mkdir -p nothing one/train one/val
train nothing nothing && complain "a run over an empty folder exits 0"
grep -q "nothing" nothing.err || complain "an empty folder: $(cat nothing.err)"
cp -r photos/train/red one/train/red
cp -r photos/val/red one/val/red
train one one && complain "a run over one class exits 0"
grep -q "one class" one.err || complain "one class: $(cat one.err)"
train meant one --classes 2 --dry-run || complain "one class, as meant: $(tail -3 meant.err)"

# ---- a network for photographs asks for them
for verb in "train inception_v3 --max-steps 1 --output-dir runs" "eval googlenet --weights runs/whole"; do
    "$towers" $verb --device cpu --img-size 75 >none.out 2>none.err </dev/null
    [[ $? == 2 ]] && grep -q -- "--data-path" none.err || complain "$verb without data: $(cat none.err)"
done

check_end "folders of photographs are trained on and predicted, and broken files are named"
