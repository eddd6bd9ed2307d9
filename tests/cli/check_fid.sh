#!/usr/bin/env bash
# towers fid measures a folder of images with a classifier: real images lie at the floor, noise at the ceiling, the same seed gives the
# same numbers, and JSON agrees with the table. Every mistake is refused by name.
. "$1/tests/support/check.sh"
needs_python

# Data of three classes: bright bars whose place is the class, 16 x 16, as IDX files; and folders of PNG files, of all classes and of one.
python3 - <<'PYTHON' || exit 1
import os, random, struct, zlib
rng = random.Random(1)
def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
def png(path, pixels):
    rows = b"".join(b"\0" + pixels[16 * y:16 * y + 16] for y in range(16))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as to:
        to.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 16, 16, 8, 0, 0, 0, 0)) +
                 chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
def bars(c):
    at = 2 + 4 * c + rng.randrange(2)
    return bytes(180 + rng.randrange(60) if at <= x < at + 3 else rng.randrange(60) for y in range(16) for x in range(16))
def idx(name, count):
    labels = [i % 3 for i in range(count)]
    with open(f"data/{name}-images-idx3-ubyte", "wb") as to:
        to.write(struct.pack(">IIII", 0x803, count, 16, 16) + b"".join(bars(c) for c in labels))
    with open(f"data/{name}-labels-idx1-ubyte", "wb") as to:
        to.write(struct.pack(">II", 0x801, count) + bytes(labels))
os.makedirs("data")
open("data/classes.txt", "w").write("left\nmiddle\nright\n")
idx("train", 240)
idx("t10k", 120)
for i in range(120):
    png(f"real/{i:03}.png", bars(i % 3))
    png(f"one/{i:03}.png", bars(0))
for part, count in ("train", 240), ("val", 120):
    for i in range(count):
        png(f"photos/{part}/{('left', 'middle', 'right')[i % 3]}/{i:03}.png", bars(i % 3))
PYTHON
"$towers" train fashion_cnn --data-path data --img-size 16 --batch-size 16 --epochs 3 --experiment classifier --workers 0 --quiet --seed 1 ||
    complain "the classifier cannot be trained"

measure() { "$towers" fid "$@" --features runs/classifier --data-path data >out 2>err || complain "towers fid $*: $(cat err)"; }
measure real --json && cp out first
measure real --json
cmp -s out first || complain "the same seed gives other numbers: $(diff out first)"
cp runs/classifier/best.safetensors alone.safetensors # which says the size and the normalization of its images
"$towers" fid real --features alone.safetensors --data-path data --json 2>err | cmp -s - first || complain "a file of weights gives other numbers than its run: $(cat err)"
sed 's/"mean":"0"/"mean":"1"/' alone.safetensors >shifted.safetensors
"$towers" fid real --features shifted.safetensors --data-path data --json >out 2>err || complain "another mean: $(cat err)"
grep -q '"kid"' out && ! cmp -s <(sed 's/.*"generated"//' out) <(sed 's/.*"generated"//' first) || complain "the mean of the weights does not count: $(cat out)"
sed 's/"img_size":"16"/"img_size":"0x"/' alone.safetensors >sizeless.safetensors
"$towers" fid real --features sizeless.safetensors --data-path data >out 2>err
[[ $? == 4 ]] && grep -q "the metadata img_size is '0x'" err || complain "a size that is no number: $(cat err)"
measure one --json && cp out one.json
measure real && cp out table
# a folder of the evaluation images themselves: real images are not enlarged and cropped where those of the folder are not
"$towers" train fashion_cnn --data-path photos --img-size 16 --batch-size 16 --epochs 2 --experiment colors --workers 0 --quiet --seed 1 || complain "the classifier of folders cannot be trained"
"$towers" fid photos/val --features runs/colors --data-path photos --json >out 2>err || complain "folders: $(cat err)"
python3 -c 'import json; r = json.load(open("out")); g, t = r["generated"]["fid"], r["test"]["fid"]; assert abs(g - t) < 1e-3 * r["noise"]["fid"], (g, t)' ||
    complain "the same images in a folder have another FID: $(cat out)"
cp -r data other && printf 'a\nb\nd\n' >other/classes.txt # data of other classes: those that the classifier predicts are its own
"$towers" fid real --features runs/classifier --data-path other >out 2>err || complain "data of other classes: $(cat err)"
grep -qE '^left +[0-9]+ +[0-9]+ +[0-9]+$' out && ! grep -qE '^[abd] ' out || complain "the classes of the classifier have names of the data: $(cat out)"
python3 - <<'PYTHON' || complain "the numbers are wrong"
import json
real, one = json.load(open("first")), json.load(open("one.json"))
assert real["images"] == 120 and real["searched"] == 240 and real["features"] == "fashion_cnn", real
assert len(real["digest"]) == 32 and real["digest"] == one["digest"]
g, t, n = real["generated"], real["test"], real["noise"]
assert sum(g["classes"]) == sum(t["classes"]) == sum(real["training_classes"]) == 120
assert abs(g["kid"] - t["kid"]) < 0.1 * n["kid"] and g["fid"] < 0.2 * n["fid"], (g, t, n)
assert n["kid_deviation"] > 0 and g["nearest"] < n["nearest"] / 2
o = one["generated"]                                          # one class of three: seen by every measure but the neighbors
assert o["kid"] > 5 * abs(g["kid"]) and o["fid"] > 2 * g["fid"] and o["chi_squared"] > 5 * (g["chi_squared"] + g["freedom"]), (o, g)
assert one["noise"] == n and one["test"] == t                 # they do not depend on the folder
lines = open("table").read().splitlines()
row = next(line.split() for line in lines if line.startswith("generated"))
assert row[1] == f"{g['kid']:.5f}" and row[3] == f"{g['fid']:.3f}", (row, g)
assert any(real["digest"][:16] in line for line in lines) and "120 images of each set against the training set of data (data)" in lines
PYTHON

refused() { # TEXT ARGUMENT...
    refuses '[1-9]' "$1" "$towers" "${@:2}"
    [[ ! -s $out ]] || complain "towers ${*:2}: wrote to stdout"
}
refused "usage: towers fid" fid real --data-path data
refused "no data given: towers fid finds" fid real --features runs/classifier
refused "no data given: towers eval finds" eval runs/classifier/best.safetensors
refused "there are only 120 images (240 for training, 120 for testing, and those of the folder)" fid real --features runs/classifier --data-path data --count 121
refused "fid compares sets of at least 4 images, but --count is 3" fid real --features runs/classifier --data-path data --count 3
mkdir few && cp real/00[0-2].png few
refused "fid compares sets of at least 4 images, but one set has 3" fid few --features runs/classifier --data-path data
refused "real contains no weights" fid real --features real --data-path data
refused "is a classifier and generates no images" fid runs/classifier --features runs/classifier
refused "runs/classifier, a run of fashion_cnn, is a classifier and generates no images" generate runs/classifier
refused "fashion_cnn is a classifier and generates no images" generate fashion_cnn
refused "expected columns and rows of at most 1024, e.g. 8x8" generate runs/classifier --grid 8by8
refused "has room for 4 images, but --count is 5" generate runs/classifier --grid 2x2 --count 5
mkdir gan && : >gan/env.json
refused "no env.json that names a model" generate gan
python3 - <<'PYTHON'
import json, struct
head = json.dumps({"fc.weight": {"dtype": "F32", "shape": [7, 1], "data_offsets": [0, 28]}}).encode()
open("unknown.safetensors", "wb").write(struct.pack("<Q", len(head)) + head + bytes(28))
PYTHON
refused "does not say which model its weights belong to" fid real --features unknown.safetensors --data-path data

check_end "towers fid tells real images from noise and one class from three, repeatably"
