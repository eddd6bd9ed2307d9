#!/usr/bin/env bash
# towers predict --cam: the pictures are class activation maps as NumPy computes them in float64 from the exported network, whose last map
# ONNX Runtime gives; the mean of a map plus the bias is the logit; the hottest place is where the object is. The same bits from several
# towers, processes, threads; hostile names; what is refused.
. "$1/tests/support/check.sh"
needs_python
python_of onnx
export XDG_CACHE_HOME=$work/cache

# ---- images of 36 x 36: noise, and in one of four corners a disc (red) or a cross (green); names that a data set may have
"$python" - <<'PYTHON' || exit 1
import os, random
draw = random.Random(3)

def image(path, kind):
    top, left = draw.choice(((5, 5), (5, 19), (19, 5), (19, 19)))
    pixels = bytearray(draw.randrange(60) for _ in range(36 * 36 * 3))
    for y in range(12):
        for x in range(12):
            if (y - 5.5) ** 2 + (x - 5.5) ** 2 < 30 if kind == "disc" else abs(y - 5.5) < 2 or abs(x - 5.5) < 2:
                pixels[((top + y) * 36 + left + x) * 3 + (kind == "cross")] = 200 + draw.randrange(56)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as to:
        to.write(b"P6 36 36 255\n" + bytes(pixels))
    return top, left

for split, count in (("train", 96), ("val", 24)):
    for kind in ("cross", "disc"):
        for i in range(count):
            image(f"data/{split}/{kind}/{i}.ppm", kind)
with open("corners", "w") as corners:
    for i in range(40):
        print(*image(f"new/{i:02}.ppm", ("cross", "disc")[i % 2]), file=corners)
for name in ("a/same.ppm", "b/same.ppm", "b/..ppm", "b/-rf.ppm", "b/\u202e caf\u00e9;$(touch x).ppm", "b/" + "long" * 50 + ".ppm", "b/\n.ppm"):
    image("hostile/" + name, "disc")
PYTHON
train() { # NAME ARGUMENT...
    "$towers" train inception_mini --data-path data --img-size 28 --eval-resize 36 --no-augment --dropout 0 --opt adam --lr 2e-3 --epochs 3 \
        --seed 2 --threads 1 --experiment "$@" --quiet </dev/null >"$out" 2>"$err" || complain "train $*: $(tail -n 3 "$err")"
}
maps() { # FOLDER RUN ARGUMENT...
    "$towers" predict "runs/$2" "${@:3}" --cam "$1" --json >"$1.json" 2>"$err" || complain "predict $*: $(cat "$err")"
}
refused() { # TEXT ARGUMENT...
    "$towers" predict "${@:2}" new/00.ppm --cam no >"$out" 2>"$err" && complain "accepted: predict ${*:2}"
    grep -qF -- "$1" "$err" || complain "predict ${*:2}: $(cat "$err")"
    [[ ! -e no ]] || complain "predict ${*:2} makes a folder"
}
same() { diff -r "$1" "$2" >"$out" || complain "$1 and $2 differ: $(head -3 "$out")"; }

train one -b 32
train two -b 16 --towers 2 --processes 1
train ranks -b 16 --towers 2 --processes 2

# ---- the pictures against NumPy
cat >reference.py <<'PYTHON'
import json, struct, sys, zlib
import numpy as np, onnx, onnxruntime

run, folder, classes = sys.argv[1], sys.argv[2], int(sys.argv[3])
proto = onnx.load(run + ".onnx")
last, pool = [n for n in proto.graph.node if n.op_type == "Gemm"][-1], [n for n in proto.graph.node if "AveragePool" in n.op_type][-1]
weight, bias = (onnx.numpy_helper.to_array(next(t for t in proto.graph.initializer if t.name == name)).astype(np.float64) for name in last.input[1:])
proto.graph.output.append(onnx.helper.make_tensor_value_info(pool.input[0], onnx.TensorProto.FLOAT, None))
session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])

def png(path): # 8-bit RGB without filters
    data, at, body = open(path, "rb").read(), 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IHDR":
            w, h = struct.unpack(">II", data[at + 8:at + 16])
        body += data[at + 8:at + 8 + size] * (kind == b"IDAT")
        at += 12 + size
    return np.frombuffer(zlib.decompress(body), np.uint8).reshape(h, 1 + w * 3)[:, 1:].reshape(h, w, 3).astype(np.float64)

def enlarged(m, side): # one axis at a time
    at = np.clip((np.arange(side) + 0.5) * len(m) / side - 0.5, 0, len(m) - 1)
    return np.array([[np.interp(x, range(len(m)), row) for x in at] for row in np.array([np.interp(at, range(len(m)), column) for column in m.T]).T])

jet = ((1.5, 2.5, 3.5, 4), (0, 1, 1, 0.5)), ((0.5, 1.5, 2.5, 3.5), (0, 1, 1, 0)), ((0, 0.5, 1.5, 2.5), (0.5, 1, 1, 0))
corners = [tuple(map(int, line.split())) for line in open("corners")]
found = {line["file"]: line for line in map(json.loads, open(folder + ".json"))}
right = 0
for i, corner in enumerate(corners):
    answer = found[f"new/{i:02}.ppm"]
    assert answer["cam"] == f"{folder}/{i:06}-{i:02}.png", answer
    image = np.frombuffer(open(answer["file"], "rb").read()[13:], np.uint8).reshape(36, 36, 3)[4:32, 4:32]
    logits, features = session.run([proto.graph.output[0].name, pool.input[0]], {"image": image.transpose(2, 0, 1)[None].astype(np.float32) / 255})
    every = np.einsum("kc,chw->khw", weight, features[0].astype(np.float64))
    assert abs(every.mean((1, 2)) + bias - logits[0]).max() < 1e-4 * abs(logits).max()
    p = np.exp(logits[0] - logits[0].max())
    drawn = png(answer["cam"])
    assert drawn.shape == (28, 28 * classes, 3), drawn.shape
    for k, prediction in enumerate(answer["predictions"][:classes]):
        assert abs(prediction["probability"] - p[prediction["class"]] / p.sum()) < 1e-4
        heat = every[prediction["class"]]
        heat = enlarged((heat - heat.min()) / (heat.max() - heat.min()), 28)
        color = np.stack([np.interp(4 * heat, x, y) for x, y in jet], 2)
        wanted = (image + 255 * color) / 2
        off = abs(drawn[:, 28 * k:28 * (k + 1)] - wanted).max()
        assert off < 1.5, (i, k, off)
        if k == 0:
            y, x = np.unravel_index(heat.argmax(), heat.shape)
            right += corner[0] - 6 <= y < corner[0] + 10 and corner[1] - 6 <= x < corner[1] + 10
print(f"{run}: the object is at the hottest place in {right} of {len(corners)} images")
assert right >= 38, right
PYTHON
for run in one two ranks; do
    "$towers" export "runs/$run" "$run.onnx" --quiet 2>"$err" || complain "export $run: $(cat "$err")"
    maps "$run" "$run" new
    "$python" reference.py $run $run 1 || complain "the pictures of $run are not those of NumPy"
done
maps top one new --top 2
grep -qxF "40 class maps of 28 x 28 pixels, what the network sees, in top" "$err" || complain "predict --cam does not say what it wrote: $(cat "$err")"
"$python" reference.py one top 2 || complain "the pictures of --top 2 are not those of NumPy"

# ---- the same bits: processes in training; threads here; a second time into the same folder; with --embeddings
same two ranks
maps threads one new --threads 2 --embeddings with.npy && same one threads
maps threads one new --threads 1 --workers 0 && same one threads
"$towers" predict runs/one new --embeddings without.npy >"$out" && cmp -s with.npy without.npy || complain "--cam changes the embeddings"
"$towers" predict runs/one new --json | diff - <(sed 's/,"cam":"[^"]*"//' one.json) >"$out" || complain "--cam changes the predictions"

# ---- of mistakes: the most confident ones of an evaluation; with two classes they are the pictures of both; in the report
"$towers" train inception_mini --data-path data --img-size 28 --eval-resize 36 --max-steps 2 --threads 1 --experiment young --quiet 2>"$err" || complain "young: $(cat "$err")"
"$towers" eval runs/young --cam runs/young/cam --errors errors.csv >"$out" 2>"$err" || complain "eval --cam: $(cat "$err")"
grep -q '^class maps of the 4 most confident mistakes, of 28 x 28 pixels, .* and cam.csv in runs/young/cam;' "$err" || complain "eval --cam does not say what it wrote: $(cat "$err")"
cmp <(head -n 5 errors.csv) runs/young/cam/cam.csv || complain "eval --cam: other mistakes than --errors"
cp runs/young/mistakes.csv saved.csv
"$towers" eval runs/young --cam runs/young >"$out" 2>"$err" && cmp saved.csv runs/young/mistakes.csv || complain "eval --cam RUN replaces a file of the run: $(cat "$err")"
mapfile -t wrong < <(sed -n '2,5s/^[0-9]*,"\([^"]*\)".*/\1/p' errors.csv)
"$towers" predict runs/young "${wrong[@]}" --top 2 --cam mistakes --json >"$out" 2>"$err" || complain "predict ${wrong[*]}: $(cat "$err")"
cmp <(sed -n '2,5s/.*,\("[^"]*"\),[0-9.]*,[0-9.]*$/\1/p' errors.csv) <(sed -E 's/.*"predictions":\[\{"class":[0-9]*,"name":("[^"]*").*/\1/' "$out") ||
    complain "eval --cam: other classes than predict's: $(cat "$out")"
cat >alike.py <<'PYTHON' # both convolve as the run did (--winograd of inception_mini)
import glob, struct, zlib

def png(path):
    data, at, body = open(path, "rb").read(), 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        body += data[at + 8:at + 8 + size] * (kind == b"IDAT")
        at += 12 + size
    return zlib.decompress(body)

for k in range(4):
    one, other = png(glob.glob(f"mistakes/{k:06}-*.png")[0]), png(f"runs/young/cam/{k:06}-mistake.png")
    assert len(one) == len(other) and max(abs(a - b) for a, b in zip(one, other)) <= 1, k
PYTHON
"$python" alike.py || complain "eval --cam: other pictures than predict's"
"$towers" predict runs/young new --embeddings own.npy >"$out" 2>"$err" && "$towers" predict runs/young new --winograd --embeddings given.npy >"$out" 2>"$err" && cmp own.npy given.npy ||
    complain "predict does not convolve as the run did (--winograd of inception_mini): $(cat "$err")"
"$towers" report runs/young --quiet 2>"$err" || complain "report: $(cat "$err")"
[[ $(grep -o 'two class activation maps' runs/young/report.html | wc -l) == 4 ]] || complain "the report shows other than four class maps of mistakes"

# ---- names, links, damaged images
cp -r hostile more && echo P6 >more/b/damaged.ppm
"$towers" predict runs/one more --cam names --json >"$out" 2>"$err"
[[ $? == 3 ]] && grep -q damaged.ppm "$err" || complain "a damaged image: $(cat "$err")"
find names -mindepth 1 -printf '%f\n' | grep -vE '^00000[0-9]-[A-Za-z0-9._-]{0,100}\.png$' && complain "a name that is not plain"
[[ $(find names -type f | wc -l) == 7 && $(find names -name '*-same.png' | wc -l) == 2 && ! -e x ]] || complain "pictures of 7 images: $(ls names)"
mkdir links && echo precious >precious && ln -s ../precious links/000000-00.png
"$towers" predict runs/one new/00.ppm --cam links >"$out" 2>"$err" && complain "--cam writes through a link"
grep -q "'links/000000-00.png' exists and is not a regular file" "$err" && [[ $(cat precious) == precious ]] || complain "--cam and a link: $(cat "$err")"

# ---- what is refused
"$towers" train fashion_cnn --data-path data --max-steps 1 --experiment flat --quiet 2>"$err" || complain "fashion_cnn: $(cat "$err")"
refused "fashion_cnn has no class activation maps at 28 x 28 pixels: its last layer does not read the average of a map" runs/flat
refused "exclude each other" runs/one --tta flip
"$towers" eval runs/flat --cam no >"$out" 2>"$err" && complain "accepted: eval --cam of fashion_cnn"
grep -q "fashion_cnn has no class activation maps" "$err" && [[ ! -e no ]] || complain "eval --cam of fashion_cnn: $(cat "$err")"
refused "--cam shows at most 8 classes" resnet18 --weights runs/none --top 9
refused "predicts no classes" wgan_gp --weights runs/one/last.safetensors
"$towers" predict runs/one new/00.ppm --cam precious >"$out" 2>"$err" && complain "--cam takes a file for a folder"
grep -q "'precious' exists and is not a directory" "$err" || complain "--cam of a file: $(cat "$err")"
"$towers" eval runs/young --cam precious >"$out" 2>"$err" && complain "eval --cam takes a file for a folder"
grep -q "'precious' exists and is not a directory" "$err" && [[ ! -s $out ]] || complain "eval --cam of a file: $(cat "$out" "$err")"
check_end "class activation maps are those of NumPy, at the object, the same bits on several towers"
