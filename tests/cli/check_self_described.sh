#!/usr/bin/env bash
# A file of weights explains itself: alone and far from its run it predicts and evaluates as the run does, `towers info` prints what it says,
# and the programs of docs/guide/elsewhere.md for PyTorch and ONNX Runtime, in Python and JavaScript, told nothing but the file, give the probabilities of `towers predict`. Metadata
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

# The programs of that page. Networks whose files have no key of its default value, in all three ways to crop, with one class for an image and
# several, of colors and of gray: the run, its file alone, its exports and the programs that know nothing but a file agree, on pictures that
# are stored rotated, too.
"$pil" - <<'PYTHON'
import random
from PIL import Image
random.seed(8)
for name, size, orientation in (("wide", (90, 52), 6), ("high", (47, 83), 3)):
    image = Image.new("RGB", size)
    image.putdata([(255 * x // size[0], 255 * y // size[1], random.randint(0, 80)) for y in range(size[1]) for x in range(size[0])])
    exif = image.getexif()
    exif[0x112] = orientation
    image.save(f"{name}.jpg", quality=95, exif=exif)
import os, shutil, struct
Image.frombytes("I;16", (61, 44), struct.pack("<2684H", *(min(65535, 800 * x + random.randint(0, 9000)) for _ in range(44) for x in range(61)))).save("deep.png")
for split, count in (("train", 96), ("t10k", 48)): # gray, in IDX files; a sixth of the labels are wrong
    os.makedirs("gray", exist_ok=True)
    labels = [i % 3 for i in range(count)]
    pixels = bytes(max(0, min(255, (40, 120, 200)[label] + random.randint(-60, 60))) for label in labels for _ in range(784))
    open(f"gray/{split}-images-idx3-ubyte", "wb").write(struct.pack(">IIII", 0x803, count, 28, 28) + pixels)
    open(f"gray/{split}-labels-idx1-ubyte", "wb").write(struct.pack(">II", 0x801, count) + bytes((label + (i % 6 == 0)) % 3 for i, label in enumerate(labels)))
names = sorted(os.listdir("images/val"))
for name, other in zip(names, names[1:] + names[:1]): # a network is not sure of all
    shutil.copytree(f"images/val/{name}", f"doubted/val/{name}")
    shutil.copy(f"images/train/{other}/0.png", f"doubted/val/{name}/other.png")
PYTHON
python=$(python_with "onnxruntime, numpy, PIL" || XDG_CACHE_HOME=${cache%/towers} "$source_dir/scripts/venv.sh" onnx 2>"$err")
torch=$(python_with "torch, torchvision, safetensors, PIL")
[[ $python ]] || left_out "the page's program with onnxruntime: $(tail -n 1 "$err")"
[[ $torch ]] || left_out "the page's program with torch: no Python with torch"
blocks() { # BEGINNING: the block of the page that begins so
    awk -v first="$1" '/^```python/ { block = ""; on = 1; next } /^```/ { if (on && index(block, first) == 1) { printf "%s", block; exit } on = 0 } on { block = block $0 "\n" }' "$source_dir/docs/guide/elsewhere.md"
}
probabilities_are() { # PYTHON PROGRAM RUN PICTURE: what is in $out are the probabilities of the run
    "$1" - "$(cat "$out")" <<'PYTHON' || complain "the page's program, $2, gives other probabilities for $4 with $3"
import json, sys
ours = {p["class"]: p["probability"] for p in json.load(open("wanted"))["predictions"]}
theirs = json.loads(sys.argv[1])
error = max(abs(theirs[i] - ours[i]) for i in ours)
print(f"largest difference {error:.1e}")
assert len(theirs) == len(ours) and error < 1e-4 and max(theirs) < 0.999 and max(theirs) - min(theirs) > 0.005, (ours, theirs)
PYTHON
}
readme() { # PYTHON BEGINNING RUN PICTURE: the program prints the probabilities of the run
    { blocks "import json, numpy" && blocks "$2"; } | sed "s|runs/NAME|runs/$3|; s|new.jpg|$4|" >program.py
    "$1" program.py >"$out" 2>"$err" || complain "the page's program, $2, of $3: $(tail -3 "$err")"
    probabilities_are "$1" "$2" "$3" "$4"
}
onnx_bytes() { # RUN PICTURE: the file of --preprocess, which gets bytes
    { blocks "import json, numpy" && cat <<'PYTHON'; } >program.py
import onnxruntime, sys
session = onnxruntime.InferenceSession("bytes.onnx")
about = session.get_modelmeta().custom_metadata_map
pixels = (prepare(sys.argv[1], about) * 255).round().astype("uint8").transpose(1, 2, 0)
((theirs,),) = session.run(None, {"image": pixels[None]})
ours = {p["class"]: p["probability"] for p in json.load(open("wanted"))["predictions"]}
assert "probabilities" in about["output"] and max(abs(theirs[i] - ours[i]) for i in ours) < 1e-4, (ours, theirs)
PYTHON
    "$python" program.py "$2" 2>"$err" || complain "the ONNX file of --preprocess of $1 for $2: $(tail -3 "$err")"
}
# JavaScript: with the packages of npm where node finds them. Elsewhere Python's decode and compute behind functions of the same names.
node=$(command -v node || true)
if [[ ! $node ]]; then
    left_out "the page's program with onnxruntime-node: node is not installed"
elif ! "$node" -e 'require.resolve("onnxruntime-node"); require.resolve("sharp")' 2>/dev/null; then
    left_out "the page's program with onnxruntime-node: npm's packages are not here; ONNX Runtime and Pillow of Python stand in for them"
    if [[ $python ]]; then
        mkdir -p node_modules/{onnxruntime-node,sharp}
        cat >node_modules/sharp/index.js <<JS
const { execFileSync } = require("child_process")
const source = "import sys; from PIL import Image, ImageOps; i = Image.open(sys.argv[1]); i = ImageOps.exif_transpose(i) if sys.argv[2] == 'true' else i; sys.stdout.buffer.write(i.width.to_bytes(4, 'little') + i.height.to_bytes(4, 'little') + i.convert('RGB').tobytes())"
module.exports = path => {
    let upright = false
    const file = {
        rotate: () => (upright = true, file), toColourspace: () => file, removeAlpha: () => file, raw: () => file,
        toBuffer: async () => {
            const bytes = execFileSync("$python", ["-c", source, path, String(upright)])
            return { data: bytes.subarray(8), info: { width: bytes.readInt32LE(0), height: bytes.readInt32LE(4), channels: 3 } }
        }
    }
    return file
}
JS
        cat >node_modules/onnxruntime-node/index.js <<JS
const { execFileSync } = require("child_process")
const source = "import json, sys, numpy, onnxruntime; s = onnxruntime.InferenceSession(sys.argv[1]); d = json.loads(sys.argv[2]); print(json.dumps([[i.name for i in s.get_inputs()], [o.name for o in s.get_outputs()], s.run(None, {k: numpy.frombuffer(bytes(v['data']), v['type']).reshape(v['dims']) for k, v in d.items()})[0].ravel().tolist() if d else []]))"
const call = (model, feeds) => JSON.parse(execFileSync("$python", ["-c", source, model, JSON.stringify(feeds)]))
exports.Tensor = class { constructor(type, data, dims) { Object.assign(this, { type, data: Array.from(data), dims }) } }
exports.InferenceSession = {
    create: async model => {
        const [inputNames, outputNames] = call(model, {})
        return { inputNames, outputNames, run: async feeds => ({ [outputNames[0]]: { data: call(model, feeds)[2] } }) }
    }
}
JS
    else
        node=''
    fi
fi
javascript() { # RUN PICTURE: the page's program in JavaScript prints the probabilities of the run
    awk '/^```js/ { on = 1; next } /^```/ { on = 0 } on' "$source_dir/docs/guide/elsewhere.md" | sed "s|model.onnx|bytes.onnx|; s|new.jpg|$2|" >program.js
    "$towers" info bytes.onnx --json >about.json || complain "info of $1's ONNX"
    "$node" program.js >"$out" 2>"$err" || complain "the page's program in JavaScript, of $1: $(tail -3 "$err")"
    probabilities_are "$pil" "in JavaScript" "$1" "$2"
}
agree() { # RUN ARGUMENT-FOR-ALL-CLASSES...
    local run=$1 picture
    cp "runs/$run/best.safetensors" "far/$run.safetensors"
    "$towers" export "runs/$run" "far/$run-again.safetensors" --quiet && "$towers" export "far/$run.safetensors" model.onnx --quiet &&
        "$towers" export "far/$run.safetensors" bytes.onnx --preprocess --quiet || complain "exports of $run"
    for picture in wide.jpg high.jpg deep.png; do
        "$towers" predict "runs/$run" "$picture" --device cpu --json "${@:2}" >wanted 2>"$err" || complain "predict of $run: $(cat "$err")"
        same "$run, its file" "$towers" predict "far/$run.safetensors" "$picture" --device cpu --json "${@:2}"
        same "$run, its export" "$towers" predict "far/$run-again.safetensors" "$picture" --device cpu --json "${@:2}"
        [[ ! $python ]] || readme "$python" "import onnxruntime" "$run" "$picture"
        [[ ! $python ]] || onnx_bytes "$run" "$picture"
        [[ ! $node || $picture == deep.png ]] || javascript "$run" "$picture" # of 16 bits sharp makes something else
        [[ ! $torch || $run != center ]] || readme "$torch" "import safetensors, torch" "$run" "$picture"
    done
}
says() { # RUN KEY=VALUE...
    local line
    "$towers" info "far/$1.safetensors" >"$out" || complain "info of $1"
    for line in "${@:2}"; do grep -q "^${line/=/  *}\$" "$out" || complain "info of $1 lacks '$line': $(cat "$out")"; done
}
numbers=(--interpolation bicubic --device cpu --quiet --recipe none)
colors=(--mean 0.4,0.5,0.6 --std 0.2,0.25,0.3 --exif)
"$towers" train resnet18 --data-path images --img-size 40 --eval-resize 47 -b 16 --epochs 1 --lr 0.0002 --bn-decay 0.3 "${numbers[@]}" "${colors[@]}" --experiment center 2>"$err" || complain "center: $(cat "$err")"
"$towers" train fashion_cnn --data-path images --img-size 24 --eval-crop 0.8125 -b 16 --epochs 1 --lr 0.0001 --loss bce "${numbers[@]}" "${colors[@]}" --experiment fraction 2>"$err" || complain "fraction: $(cat "$err")"
"$towers" train fashion_cnn --data-path gray --img-size 24 -b 16 --epochs 4 --lr 0.0005 --mean 0.4 --std 0.2 "${numbers[@]}" --exif --experiment whole 2>"$err" || complain "whole: $(cat "$err")"
"$towers" predict runs/center wide.jpg --device cpu --json --top 3 >uncalibrated || complain "predict before the calibration"
touch -d '2020-01-01' runs/center/best.safetensors
"$towers" eval runs/center --data-path doubted --calibrate --quiet --device cpu >"$out" 2>"$err" || complain "calibrate center: $(cat "$err")"
"$towers" eval runs/whole --calibrate --quiet --device cpu >"$out" 2>"$err" || complain "calibrate whole: $(cat "$err")"
[[ $(date -r runs/center/best.safetensors +%Y) == 2020 ]] || complain "a calibration changes the time that --resume auto goes by"
agree center --top 3
says center exif=true crop=center eval_resize=47 interpolation=bicubic mean=0.4,0.5,0.6 'temperature=[0-9.]*'
"$towers" predict far/center.safetensors wide.jpg --device cpu --json --top 3 2>/dev/null | cmp -s - uncalibrated && complain "a calibrated file predicts as before"
"$towers" eval runs/center --device cpu --quiet >wanted || complain "eval of the calibrated run"
same "eval of the calibrated file" "$towers" eval far/center.safetensors --data-path images --device cpu --quiet
agree fraction --top 3
says fraction exif=true crop=fraction eval_crop=0.8125 loss=bce
# a network that takes gray or color, from a file that does not say which: its first weights do
"$pil" - <<'PYTHON'
import json, struct
data = open("far/fraction.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
header["__metadata__"].pop("channels", None)
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open("far/bare.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data[8 + size:])
PYTHON
"$towers" predict runs/fraction wide.jpg --device cpu --json --top 3 >wanted 2>/dev/null
same "colors of a file without the key channels" "$towers" predict far/bare.safetensors wide.jpg --device cpu --json --top 3
agree whole --top 10
says whole exif=true crop=whole channels=1 mean=0.4 'temperature=[0-9.]*'
# trained with whole images of one size: photographs are stretched by predict and by eval alike
"$towers" train resnet18 --dataset synthetic --classes 3 --img-size 32 -b 16 --max-steps 2 --device cpu --quiet --experiment stretched 2>"$err" || complain "stretched: $(cat "$err")"
"$towers" predict runs/stretched images/val --device cpu --json --top 3 >wanted 2>"$err" || complain "predict of stretched: $(cat "$err")"
"$towers" eval runs/stretched/best.safetensors --data-path images --match-classes number --device cpu --json --quiet >"$out" 2>"$err" || complain "eval of stretched: $(cat "$err")"
"$pil" - "$out" <<'PYTHON' || complain "eval and predict of whole images differ"
import json, math, os, sys
rows = [json.loads(line) for line in open("wanted")]
names = sorted(os.listdir("images/val"), key=os.fsencode)
loss = [-math.log(next(p["probability"] for p in row["predictions"] if names[p["class"]] == row["file"].split("/")[-2])) for row in rows]
assert abs(sum(loss) / len(loss) - json.load(open(sys.argv[1]))["loss"]) < 1e-5, (sum(loss) / len(loss), open(sys.argv[1]).read())
PYTHON
"$towers" eval runs/center --no-calibrate --device cpu --print-config >/dev/null 2>"$err" || complain "--no-calibrate --print-config: $(cat "$err")"
"$towers" eval runs/center --no-calibrate --device cpu --data-path nowhere >/dev/null 2>"$err" && complain "--no-calibrate without data"
[[ -e runs/center/calibration.json ]] || complain "--no-calibrate takes the temperature away before it evaluates"
refuses 2 "--no-calibrate is for a run" "$towers" eval far/center.safetensors --data-path images --device cpu --no-calibrate
"$towers" eval runs/center --no-calibrate --device cpu --quiet >/dev/null 2>"$err" || complain "--no-calibrate: $(cat "$err")"
[[ ! -e runs/center/calibration.json ]] || complain "--no-calibrate leaves calibration.json"
"$towers" predict runs/center wide.jpg --device cpu --json --top 3 2>/dev/null | cmp -s - uncalibrated || complain "--no-calibrate does not undo --calibrate"
if "$towers" train fashion_cnn --data-path images --img-size 24 -b 16 --max-steps 2 --amp "${numbers[@]}" --experiment narrow 2>"$err"; then # this processor has bf16
    "$towers" predict runs/narrow wide.jpg --device cpu --json --top 3 >wanted
    same "a network in bf16, its file" "$towers" predict runs/narrow/best.safetensors wide.jpg --device cpu --json --top 3
    { "$towers" predict runs/narrow wide.jpg --no-amp --device cpu --json --top 3 >"$out" 2>"$err" && ! cmp -s "$out" wanted; } ||
        complain "a run in bf16 with --no-amp: $(cat "$err")"
else
    grep -q "no bf16 arithmetic" "$err" || complain "narrow: $(cat "$err")"
fi

# metadata that lie
"$pil" - <<'PYTHON'
import json, struct
data = open("far/w.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
lies = {"mean": ["nan", "1e99", "0.5,0.5", "x", "0.5\nlr: 1", ""], "std": ["0", "-1", "inf"], "img_size": ["-1", "9999999999", "40.5"], "model": ["resnet19", "../x", ""],
        "interpolation": ["none", "\u001b[31m"], "eval_resize": ["0", "99999999"], "exif": ["maybe"], "variant": ["nope"], "classes": ["0", "-4", "99999999999999999999"], "temperature": ["0", "-1", "nan", "x", "1e9", ""], "amp": ["perhaps"], "amp_dtype": ["int3"], "eval_crop": ["0", "2", "x"],
        "class_names": ["[", "{}", "[1,2,3]", '["a"]', "[" * 100000, '["a\\u001b[31m", "b", "c"]'], "several_classes": ["perhaps"], "crop": ["left", "Center"],
        "label_base": ["2", "x", "1.0"], "channels": ["0", "x", "3.0"]}
count = 0
for key, values in lies.items():
    for value in values:
        header["__metadata__"][key], kept = value, header["__metadata__"][key] if key in header["__metadata__"] else None
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        name = "wrong" if key in ("classes", "label_base", "channels", "several_classes", "crop") else "lie"
        open(f"{name}-{count}.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + body)
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
        [[ $status == 0 || $status == 2 || $status == 3 || $status == 4 ]] || complain "$command: exit $status: $(cat "$err")"
        grep -q $'\033' "$out" "$err" && complain "$command: passes control characters on"
    done
done
wrong=0
for file in wrong-*.safetensors; do
    refuses 3 "its metadata" "$towers" predict "$file" "$new" --device cpu
    wrong=$((wrong + 1))
done
((wrong == 12)) || complain "$wrong files whose metadata are wrong"
for file in cut-*.onnx; do
    timeout 60 "$towers" info "$file" >"$out" 2>"$err"
    [[ $? == 3 ]] && grep -qE "is (not an ONNX file|empty)" "$err" || complain "info $file: $(cat "$err")"
done
check_end "files of weights say what they are"
