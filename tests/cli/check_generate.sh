#!/usr/bin/env bash
# A run with a generator draws the same noise at every stage and measures it; towers generate makes the same images from its weights.
# Nothing of that changes the weights, and one tower and two draw the same first grid. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
needs_python
small_data "$work/small" 240 120 || exit $?

"$towers" train fashion_cnn --data-path small --batch-size 20 --epochs 2 --experiment classifier --workers 0 --quiet >out 2>err ||
    complain "the classifier cannot be trained: $(cat err)"

train() { # NAME ARGUMENT...
    "$towers" train wgan_gp --width 2 --data-path small --global-batch-size 12 --max-steps 18 --seed 7 --quiet --experiment "$@" >out 2>err ||
        complain "towers train wgan_gp $*: $(cat err)"
}
train plain --processes 1
train seen --sample-interval 1 --features runs/classifier
train two --towers 2 --sample-interval 1 --features runs/classifier
cmp -s runs/plain/last.safetensors runs/seen/last.safetensors || complain "observing a run changes its weights"
cmp -s runs/seen/generated/step-0000000000.png runs/two/generated/step-0000000000.png || complain "the first grid depends on the towers"
[[ $(ls runs/seen/generated) == $'step-0000000000.png\nstep-0000000006.png\nstep-0000000012.png\nstep-0000000018.png' ]] ||
    complain "grids: $(ls runs/seen/generated)"
[[ $(ls runs/plain/generated) == $'step-0000000000.png\nstep-0000000018.png' ]] || complain "grids without --sample-interval: $(ls runs/plain/generated)"

# the lowest KID makes the best weights, which are what the run stands for
best_step() { # RUN
    python3 -c 'import json, sys; print(min((r["kid"], r["step"]) for r in map(json.loads, open(sys.argv[1])) if r["step"] and "kid" in r)[1])' \
        "runs/$1/generated.jsonl"
}
best_is_lowest() { # RUN
    local step
    step=$(best_step "$1")
    "$towers" generate "runs/$1" --seed 7 --grid 8x8 -o best.png >out 2>err || complain "generate: $(cat err)"
    cmp -s best.png "$(printf 'runs/%s/generated/step-%010d.png' "$1" "$step")" || complain "$1: the best weights are not those of step $step"
}
best_is_lowest seen
best_is_lowest two
[[ ! -e runs/plain/best.safetensors ]] || complain "best weights without a measure"
"$towers" train wgan_gp --width 2 --data-path small --global-batch-size 12 --max-steps 18 --seed 7 --quiet --json --experiment worse \
    --sched piecewise --lr-schedule "0.0001;0.4;1" --sample-interval 1 --features runs/classifier >out 2>err || complain "train: $(cat err)"
[[ $(best_step worse) == 6 ]] || complain "a learning rate of 1 from step 9 on does not spoil the weights: $(cat runs/worse/generated.jsonl)"
grep -qE "\"best_kid\":[0-9.]+,\"best_step\":6[,}]" out || complain "--json: $(cat out)"
best_is_lowest worse

# a branch has the grids and the KID up to its checkpoint
"$towers" train wgan_gp --resume runs/two/ckpt/step-0000000018 --experiment branch --max-steps 24 --quiet >out 2>err || complain "branch: $(cat err)"
cmp -s <(head -n 4 runs/branch/generated.jsonl) runs/two/generated.jsonl || complain "branch: $(cat runs/branch/generated.jsonl)"
for step in 00 06 12 18; do
    cmp -s runs/{two,branch}/generated/step-00000000$step.png || complain "branch: no grid of step $step, or another one"
done

# runs are ranked by KID
compare_kids() { "$towers" compare "$@" >out 2>err || complain "compare $*: $(cat err)"; }
compare_kids runs/seen runs/two runs/worse
grep -q "Ranking by KID" out || complain "no ranking by KID: $(cat out)"
[[ $(grep -E '^ +3 +' out) == *runs/worse ]] || complain "the ranking by KID: $(cat out)"
compare_kids runs/seen runs/two runs/plain
grep -q "No ranking" out || complain "a run without KID is ranked: $(cat out)"

# color images make a generator of color images, in the run and from its weights
python3 - <<'PYTHON' || exit 1
import os, random, struct, zlib
rng = random.Random(1)
def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
for part in "train", "val":
    for name in "a", "b":
        os.makedirs(f"color/{part}/{name}")
        for i in range(12):
            rows = b"".join(b"\0" + rng.randbytes(3 * 20) for y in range(20))
            with open(f"color/{part}/{name}/{i}.png", "wb") as to:
                to.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 20, 20, 8, 2, 0, 0, 0)) +
                         chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
PYTHON
for model in wgan_gp wgan_gp_keras; do
    "$towers" train $model --width 2 --data-path color --img-size 16 --batch-size 4 --max-steps 7 --seed 7 --quiet --experiment color-$model >out 2>err ||
        complain "color images, $model: $(cat err)"
    "$towers" generate runs/color-$model --seed 7 --grid 8x8 -o color.png >out 2>err || complain "color images of $model: $(cat err)"
    cmp -s color.png runs/color-$model/generated/step-0000000007.png || complain "$model: generate makes another grid than the run in color"
    [[ $(od -An -tu1 -j25 -N1 color.png) -eq 2 ]] || complain "$model: the grid has no color"
    "$towers" export runs/color-$model color.safetensors >out 2>err || complain "export of $model in color: $(cat err)"
    "$towers" generate color.safetensors --seed 7 --grid 8x8 -o exported.png >out 2>err ||
        complain "exported $model in color: $(cat err)"
    cmp -s color.png exported.png || complain "$model in color: the exported generator makes another grid"
    "$towers" export runs/color-$model color.onnx >out 2>err || complain "export of $model in color: $(cat err)"
done

# photographs in one folder, without classes and without images for evaluation; a folder of one class
mkdir flat one && cp color/train/a/*.png flat && cp -r color/train/a one
for set in flat one; do
    "$towers" train wgan_gp --width 2 --data-path $set --img-size 16 --batch-size 4 --max-steps 2 --seed 7 --experiment set-$set >out 2>err ||
        complain "a folder of photographs, $set: $(cat err)"
    grep -qx "to generate:  towers generate runs/set-$set -o samples.png" err || complain "set-$set: no word of towers generate: $(cat err)"
    grep -qE "^data +$set \(folder of images\): 12 training images$" err || complain "$set: $(cat err)"
done
cmp -s <(tensors runs/set-flat/last.safetensors) <(tensors runs/set-one/last.safetensors) || complain "a folder and a class of it are other data"
"$towers" train fashion_cnn --data-path flat --max-steps 1 >out 2>err && complain "a classifier learns from photographs without classes"

# a run that stops in the middle and is resumed has the same grids and measures
train cut --sample-interval 1 --features runs/classifier --checkpoint-steps 8 --max-steps 8
"$towers" train wgan_gp --resume runs/cut --max-steps 18 --quiet >out 2>err || complain "resume: $(cat err)"
cmp -s runs/cut/last.safetensors runs/seen/last.safetensors || complain "the resumed run has other weights"
best_is_lowest cut
diff <(grep -v '"step":8,' runs/cut/generated.jsonl) runs/seen/generated.jsonl >out || complain "the resumed run has other measures: $(cat out)"

# a run that begins again at its checkpoint of step 0, because it was killed before the next one, has the grid of step 0 once
train zero --nan-policy rollback --sample-interval 1 --max-steps 6
rm -r runs/zero/ckpt/step-0000000006
"$towers" train wgan_gp --resume runs/zero --max-steps 6 --quiet >out 2>err || complain "resume at step 0: $(cat err)"
[[ $(sed 's/.*"step":\([0-9]*\),.*/\1/' runs/zero/generated.jsonl) == $'0\n6' ]] || complain "resume at step 0: $(cat runs/zero/generated.jsonl)"

# the command makes the grid of the last stage, and parts of it
generate() { "$towers" generate "$@" >out 2>err || complain "towers generate $*: $(cat err)"; }
generate runs/seen --weights runs/seen/last.safetensors --seed 7 --grid 8x8 -o grid.png
cmp -s grid.png runs/seen/generated/step-0000000018.png || complain "generate makes another grid than the run"
generate runs/seen --weights runs/seen/last.safetensors --seed 7 --count 3 --grid 3x1 -o three.png --json
generate runs/seen --weights runs/seen/last.safetensors --seed 8 --grid 8x8 -o other.png
cmp -s grid.png other.png && complain "the seed does not matter"
generate wgan_gp --weights runs/seen/last.safetensors --seed 7 --grid 8x8 -o weights.png # whose width it says
cmp -s grid.png weights.png || complain "weights and run give other images"
generate runs/seen --weights runs/seen/last.safetensors --grid 6x2 --interpolate --seed 7 -o walk.png
generate runs/seen --weights runs/seen/last.safetensors --seed 7 --grid 4x4 --beside-real -o beside.png
"$towers" fid runs/seen --features runs/classifier --count 100 --neighbors 5 --json >fid.json 2>err || complain "towers fid: $(cat err)"
python3 - <<'PYTHON' || complain "the images or numbers are wrong"
import json, struct, zlib
def png(name):
    data = open(name, "rb").read()
    width, height, depth, color = struct.unpack(">IIBB", data[16:26])
    assert depth == 8 and color == 0, (depth, color)
    at, packed = 8, b""
    while at < len(data):
        count, kind = struct.unpack(">I4s", data[at:at + 8])
        packed += data[at + 8:at + 8 + count] if kind == b"IDAT" else b""
        at += 12 + count
    raw = zlib.decompress(packed)
    return [raw[y * (width + 1) + 1:(y + 1) * (width + 1)] for y in range(height)]
def cell(rows, column, row):
    return b"".join(line[28 * column:28 * column + 28] for line in rows[28 * row:28 * row + 28])
grid, three, walk, beside = (png(name + ".png") for name in ("grid", "three", "walk", "beside"))
assert all(cell(three, k, 0) == cell(grid, k, 0) for k in range(3))
assert all(cell(beside, 4 + k % 4, k // 4) == cell(grid, k % 8, k // 8) for k in range(16))
images = open("small/train-images-idx3-ubyte", "rb").read()[16:]
real = {images[i:i + 784] for i in range(0, len(images), 784)}
assert all(cell(beside, k % 4, k // 4) in real for k in range(16))
for k in range(2):                                            # rows lead from image 2 k of the seed to image 2 k + 1
    assert cell(walk, 0, k) == cell(grid, 2 * k, 0) and cell(walk, 5, k) == cell(grid, 2 * k + 1, 0)
    assert len({cell(walk, i, k) for i in range(6)}) == 6
rows = [json.loads(line) for line in open("runs/seen/generated.jsonl")]
assert [row["step"] for row in rows] == [0, 6, 12, 18] and all(row["images"] == 240 for row in rows), rows
assert all(row["features"].startswith("fashion_cnn ") and row["kid"] > 0 and row["kid_deviation"] > 0 for row in rows)
assert all(row["file"] == f"generated/step-{row['step']:010}.png" for row in rows)
assert [json.loads(line) for line in open("runs/plain/generated.jsonl")] == [
    {"step": s, "epoch": 0, "file": f"generated/step-{s:010}.png"} for s in (0, 18)]
import csv
epoch = list(csv.DictReader(open("runs/seen/results.csv")))[-1]
critic = [step for step in map(json.loads, open("runs/seen/metrics.jsonl")) if step["phase"] == "critic"]
mean = sum(step["terms"]["wasserstein"] * step["images"] for step in critic) / sum(step["images"] for step in critic)
assert abs(float(epoch["wasserstein"]) - mean) <= 1e-5 * abs(mean) and float(epoch["kid"]) == rows[-1]["kid"], (epoch, mean, rows[-1])
fid = json.load(open("fid.json"))
assert fid["digest"].startswith(rows[0]["features"].split()[1]) and fid["images"] == 100 and fid["generated"]["kid"] > fid["test"]["kid"]
import glob
events = b"".join(open(name, "rb").read() for name in glob.glob("runs/seen/events*"))
assert events.count(b"\x09generated") == 4 and events.count(b"\x03kid") == 4
page = open("runs/seen/report.html").read()
assert page.count("<img alt=\"images after step") == 4 and "step 18, KID " in page and "<h3>KID</h3>" in page
PYTHON
grep -q "KID" runs/seen/log.txt || complain "log.txt does not name the KID"

refused() { refuses '[1-9]' "$1" "$towers" "${@:2}"; } # TEXT ARGUMENT...
refused "does not hold the weights of wgan_gp" generate wgan_gp --width 3 --weights runs/seen/last.safetensors
refused "needs weights" generate wgan_gp
refused "--data-path has no effect without --beside-real" generate runs/seen --data-path color
refused "-o grid.jpg: a PNG is written" generate runs/seen -o grid.jpg
refused "fashion_cnn reads images with 1 channel, but the data has 3" train wgan_gp --data-path color --img-size 16 --batch-size 4 --features runs/classifier
refused "--sample-interval has no effect: fashion_cnn has no critic" train fashion_cnn --sample-interval 3
refused "--features has no effect: fashion_cnn generates no images" train fashion_cnn --features runs/classifier
refused "wgan_gp has a generator, but features need a classifier" train wgan_gp --features runs/seen --data-path small
sed 's/"maps":"channels first"/"were":"pixel by pixel"/' runs/seen/last.safetensors >earlier.safetensors
refused "generator.fc.weight: the file has the outputs of this layer pixel by pixel" generate wgan_gp --width 2 --weights earlier.safetensors
python3 - color.safetensors negative.safetensors <<'PYTHON' # of wgan_gp_keras
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
size, = struct.unpack_from("<Q", data)
(at, *_) = [8 + size + t["data_offsets"][0] for name, t in json.loads(data[8:8 + size]).items() if name == "generator.fc.bn.running_var"]
struct.pack_into("<f", data, at, -1)
open(sys.argv[2], "wb").write(data)
PYTHON
refused "below 0     generator.fc.bn.running_var: 1 of" generate negative.safetensors
refused "below 0     generator.fc.bn.running_var: 1 of" export negative.safetensors negative.onnx
mkdir empty && cp runs/seen/env.json runs/seen/args.yaml empty && refused "empty contains no weights" generate empty

check_end "generated images follow the noise and the weights alone, and are measured without disturbing the run"
