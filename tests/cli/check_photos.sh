#!/usr/bin/env bash
# A folder of photographs, as a person has it: `towers train` on it, `towers predict` on new images, and what `towers data`
# says of it, with broken files among them.
# usage: check_photos.sh SOURCE_FOLDER BINARY
set -uo pipefail
. "$1/tests/support/check.sh"
check_begin photos "$1" "$2"
needs_python
/usr/bin/python3 -c 'import PIL' 2>/dev/null || { echo "SKIPPED: no Pillow (package python3-pil)"; exit 77; }
export XDG_CACHE_HOME=$work/cache
cd "$work" || exit 1

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
    "$towers" train inception_v3 --device cpu --img-size 75 -b 6 --max-steps 4 --output-dir runs --experiment "$1" --data-path "$2" "${@:3}" \
        >"$1.out" 2>"$1.err" </dev/null
}

# ---- a whole set: trained, and new images predicted as `eval` would see them
train whole photos --augment --crop random || complain "train: $(tail -3 whole.err)"
grep -q "folder of images.*36 training and 12 test images, 3 classes" whole.err || complain "the run does not name its data: $(head -6 whole.err)"
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
train limit broken --bad-samples limit:2 --max-steps 6 && complain "--bad-samples limit:2 accepts three"
"$towers" predict runs/whole broken/train/red/1.jpg photos/val/red/0.png >one.out 2>one.err && complain "predict of a broken image exits 0"
grep -q "red/1.jpg" one.err one.out || complain "predict does not name the broken image"
grep -q "val/red/0.png" one.out || complain "predict leaves out the whole image beside a broken one"

# ---- a network for photographs asks for them
"$towers" train inception_v3 --device cpu --img-size 75 --max-steps 1 --output-dir runs >none.out 2>none.err && complain "inception_v3 without data exits 0"
grep -q -- "--data-path" none.err || complain "without data: $(cat none.err)"

check_end "folders of photographs are trained on and predicted, and broken files are named"
