#!/usr/bin/env bash
# A file of weights explains itself: alone and far from its run it predicts and evaluates as the run does, `towers info` prints what it says,
# and the README's own programs for PyTorch and ONNX Runtime, told nothing but the file, give the probabilities of `towers predict`. Metadata
# that lie are refused or left out.
set -uo pipefail
. "$1/tests/support/check.sh"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/towers
export XDG_CACHE_HOME=$work/cache OMP_NUM_THREADS=2

# python_with MODULES: the first Python here that has them
python_with() {
    local python
    for python in "${TORCH_PYTHON:-none}" python3 /usr/bin/python3 "$cache"/{python-torch,python-timm,torch,python}/bin/python; do
        "$python" -c "import $1" 2>/dev/null && echo "$python" && return
    done
}
pil=$(python_with PIL)
[[ $pil ]] || { echo "SKIPPED: no Python with Pillow (package python3-pil)" >&2; exit 77; }
"$pil" - <<'PYTHON'
import os, random
from PIL import Image
random.seed(3)
for split, count in (("train", 16), ("val", 6)):
    for name, color in (("café", (200, 60, 60)), ("dog, big", (60, 132, 60)), ("owl", (60, 75, 200))):
        os.makedirs(f"images/{split}/{name}")
        for i in range(count):
            size = random.randint(40, 99), random.randint(40, 99)
            image = Image.new("RGB", size)
            image.putdata([tuple(v + random.randint(-50, 50) for v in color) for _ in range(size[0] * size[1])])
            image.save(f"images/{split}/{name}/{i}.png")
PYTHON
new="images/val/owl/3.png"

"$towers" train resnet18 --device cpu --data-path images --img-size 40 --eval-resize 47 --interpolation bicubic -b 16 --epochs 1 --lr 0.0002 --bn-decay 0.3 --mean 0.4,0.5,0.6 --std 0.2,0.25,0.3 \
    --experiment run --quiet 2>"$err" || complain "training: $(cat "$err")"
mkdir far
cp runs/run/best.safetensors far/w.safetensors
same() { # NAME COMMAND...: the command prints what the run does
    local name=$1
    shift
    "$@" >"$out" 2>"$err" || complain "$name: $(cat "$err")"
    cmp -s "$out" "$work/wanted" || complain "$name: $(diff "$out" "$work/wanted" | head -4)"
}
"$towers" predict runs/run images/val --device cpu --json >wanted || complain "predict of the run"
grep -q 'dog, big' wanted || complain "the run's predictions have no names"
same "the file alone" "$towers" predict far/w.safetensors images/val --device cpu --json
same "the model with --weights" "$towers" predict resnet18 --weights far/w.safetensors images/val --device cpu --json
same "the model with its run" "$towers" predict resnet18 --weights runs/run images/val --device cpu --json
"$towers" export far/w.safetensors far/again.safetensors --quiet || complain "export of the file"
same "the exported file" "$towers" predict far/again.safetensors images/val --device cpu --json
for file in env.json args.yaml; do
    rm -rf part && cp -r runs/run part && rm "part/$file"
    refuses 2 "'part' has no $file, as a run has; its weights say themselves how images are prepared: give 'part/best.safetensors'" "$towers" predict part "$new"
done
"$towers" eval runs/run --device cpu --quiet >wanted || complain "eval of the run"
same "eval of the file" "$towers" eval far/w.safetensors --data-path images --device cpu --quiet
"$towers" predict far/w.safetensors images/val --device cpu --json --mean 0.5 --std 0.5 >"$out" || complain "--mean of a file"
cmp -s "$out" wanted && complain "--mean does nothing"
"$towers" train resnet18 --device cpu --data-path images --img-size 40 -b 16 --max-steps 1 --pretrained far/w.safetensors --experiment tuned --quiet 2>"$err" ||
    complain "training from the file: $(cat "$err")"
grep -qE '^mean: "?0.4,0.5,0.6' runs/tuned/args.yaml || complain "the normalization of pretrained weights is not taken over: $(grep mean runs/tuned/args.yaml)"
"$towers" train resnet18 --device cpu --data-path images --max-steps 2 --resume auto --experiment tuned --quiet 2>"$err" || complain "resuming it: $(cat "$err")"

# another size of the input: as much of the picture is cropped, and a run has the pixels of its file
"$towers" predict runs/run images/val --img-size 80 --device cpu --json >wanted || complain "predict at twice the size"
same "the file at twice the size" "$towers" predict far/w.safetensors images/val --img-size 80 --device cpu --json
"$towers" export far/w.safetensors far/large.safetensors --img-size 80 --quiet && "$towers" info far/large.safetensors >"$out" || complain "export at another size"
grep -q '^eval_resize  *94$' "$out" || complain "at twice the size, not twice 47: $(grep eval_resize "$out")"
"$towers" predict runs/tuned images/val --img-size 90 --device cpu --json >wanted || complain "predict at another size"
same "the file at another size" "$towers" predict runs/tuned/best.safetensors images/val --img-size 90 --device cpu --json
"$towers" export runs/tuned far/large.safetensors --img-size 90 --quiet || complain "export at another size"
same "the file exported at another size" "$towers" predict far/large.safetensors images/val --device cpu --json

"$towers" export runs/run model.onnx --quiet || complain "export of ONNX"
for file in far/w.safetensors model.onnx; do
    "$towers" info "$file" >"$out" || complain "info $file"
    for line in 'model  *resnet18' 'classes  *3' 'img_size  *40' 'mean  *0.4,0.5,0.6' 'std  *0.2,0.25,0.3' 'crop  *center' 'eval_resize  *47' \
        'interpolation  *bicubic' 'data_fingerprint  *[0-9a-f]\{32\}' 'towers_version' 'class_names  *3: café, dog, big, owl'; do
        grep -q "^$line" "$out" || complain "info $file lacks '$line': $(cat "$out")"
    done
    "$towers" info "$file" --json | "$pil" -c 'import json, sys; assert json.load(sys.stdin)["class_names"] == ["café", "dog, big", "owl"]' || complain "info $file --json"
done

# the README's programs
"$towers" predict runs/run "$new" --device cpu --json --top 3 >wanted
# readme MODULES BEGINNING: the block of the README that begins so, with our names, prints the same probabilities
readme() {
    local python
    python=$(python_with "$1")
    if [[ ! $python ]]; then
        left_out "the README's program with ${1%%,*}: no Python with $1"
        return
    fi
    awk -v first="$2" '/^```python/ { block = ""; on = 1; next } /^```/ { if (on && index(block, first) == 1) { printf "%s", block; exit } on = 0 } on { block = block $0 "\n" }' \
        "$source_dir/README.md" | sed "s|runs/NAME|runs/run|; s|new.jpg|$new|" >program.py
    "$python" program.py >"$out" 2>"$err" || complain "the README's program with $1: $(tail -3 "$err")"
    "$python" - "$(cat "$out")" <<'PYTHON' || complain "the README's program with $1 gives other probabilities"
import json, sys
ours = {p["class"]: p["probability"] for p in json.load(open("wanted"))["predictions"]}
theirs = json.loads(sys.argv[1])
error = max(abs(theirs[i] - ours[i]) for i in range(3))
print(f"largest difference {error:.1e}")
assert len(theirs) == 3 and error < 1e-4 and max(theirs) < 0.999, (ours, theirs)
PYTHON
}
readme "torch, torchvision, safetensors, PIL" "import safetensors, torch"
readme "onnxruntime, numpy, PIL" "import numpy, onnxruntime"

# metadata that lie
"$pil" - <<'PYTHON'
import json, struct
data = open("far/w.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
lies = {"mean": ["nan", "1e99", "0.5,0.5", "x", "0.5\nlr: 1", ""], "std": ["0", "-1", "inf"], "img_size": ["-1", "9999999999", "40.5"], "model": ["resnet19", "../x", ""],
        "interpolation": ["none", "\u001b[31m"], "eval_resize": ["0", "99999999"], "exif": ["maybe"], "variant": ["nope"], "classes": ["0", "-4", "99999999999999999999"],
        "class_names": ["[", "{}", "[1,2,3]", '["a"]', "[" * 100000, '["a\\u001b[31m", "b", "c"]'], "several_classes": ["perhaps"], "crop": ["left"]}
count = 0
for key, values in lies.items():
    for value in values:
        header["__metadata__"][key], kept = value, header["__metadata__"][key] if key in header["__metadata__"] else None
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        open(f"lie-{count}.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + body)
        del header["__metadata__"][key]
        if kept is not None:
            header["__metadata__"][key] = kept
        count += 1
onnx = open("model.onnx", "rb").read()
for at in (0, 1, 7, len(onnx) // 2, len(onnx) - 3):
    open(f"cut-{at}.onnx", "wb").write(onnx[:at])
PYTHON
for file in lie-*.safetensors; do
    for command in "predict $file $new --device cpu" "info $file"; do
        timeout 60 "$towers" $command >"$out" 2>"$err"
        status=$?
        [[ $status == 0 || $status == 2 || $status == 4 ]] || complain "$command: exit $status: $(cat "$err")"
        grep -q $'\033' "$out" "$err" && complain "$command: passes control characters on"
    done
done
for file in cut-*.onnx; do
    timeout 60 "$towers" info "$file" >"$out" 2>"$err"
    [[ $? == 3 ]] && grep -q "is not an ONNX file" "$err" || complain "info $file: $(cat "$err")"
done
check_end "files of weights say what they are"
