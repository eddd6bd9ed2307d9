#!/usr/bin/env bash
# What a number means: wherever labels of two sources meet (parts of a set, shards, weights and data, runs), the classes are those of their
# names, or of numbers that both sides know, or it is refused with both sides named. Class k of the data has k + 1 images, so
# --class-scores shows which class each was taken for.
set -uo pipefail
. "$1/tests/support/check.sh"
needs_python
export XDG_CACHE_HOME=$work/cache

PYTHONPATH=$source_dir/tests/support python3 - <<'PYTHON'
import os, struct
from shards_write import example, image, mds_write, png, record

drawn = 0
def picture():
    global drawn
    drawn += 1
    return png(image(drawn))

def put(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "wb").write(data)

def folders(root, names, count=lambda k: k + 1):
    for k, name in enumerate(names):
        for i in range(count(k)):
            put("%s/%s/%d.png" % (root, name, i), picture())

def records(path, labels, texts={}):
    made = [{"image/encoded": picture(), "image/class/label": l, "image/filename": b"%d.png" % i, **({"image/class/text": texts[l]} if l in texts else {})}
            for i, l in enumerate(labels)]
    put(path, b"".join(record(example(features)) for features in made))

twelve = ["%02d" % k for k in range(12)]
folders("twelve/train", twelve, lambda k: 1)
folders("twelve/val", twelve)
folders("numbers", [str(k) for k in range(12)])
folders("from-one", [str(k + 1) for k in range(12)])
folders("some-numbers", ["10", "5", "9"])
folders("words", ["ant", "bee", "cow"])
folders("two-words", ["bee", "cow"])
folders("pets/train", ["ant", "bee", "cow"], lambda k: 2)
folders("pets/val", ["ant", "bee", "cow"])
folders("other/train", ["fox", "hen", "owl"], lambda k: 2)
folders("other/val", ["fox", "hen", "owl"])
folders("mac/train", ["cafe\u0301", "tea"])
folders("mac/val", ["caf\u00e9", "tea"])
names = {1: b"ant", 2: b"bee", 3: b"cow"}
records("named/train-00000-of-00001", [1, 2, 3, 3], names)
records("named/validation-00000-of-00001", [1, 2, 2, 3, 3, 3], {1: b"cow", 2: b"bee", 3: b"ant"})
records("half/train-00000-of-00001", [1, 2, 3], names)
records("half/validation-00000-of-00001", [1, 2, 2, 3, 3, 3])
records("torn/train-00000-of-00002", [1, 2, 3], names)
records("torn/train-00001-of-00002", [1, 2], {1: b"bee", 2: b"ant"})
records("torn/validation-00000-of-00001", [1, 2], names)
records("zero/train-00000-of-00001", [0, 1, 2])
records("zero/validation-00000-of-00001", [0, 1, 1, 2, 2, 2])
records("held/validation-00000-of-00001", [1, 2, 2])
records("one/train-00000-of-00001", [1, 2, 3])
records("one/validation-00000-of-00001", [1, 2, 2, 3, 3, 3])
for part in ("train", "validation"):
    records("listed/%s/%s-00000-of-00001" % (part, part), [0, 1, 1, 2, 2, 2])
put("listed/train/classes.txt", b"ant\nbee\ncow\n")
put("listed/validation/classes.txt", b"bee\ncow\nant\n")
row = lambda i, **more: {"image": picture(), "id": struct.pack("<q", i), **more}
for part in ("train", "val"):
    mds_write("texts/" + part, {"image": ("png", None), "id": ("int", 8), "label": ("str", None)}, [[row(i, label=b"ant") for i in range(4)]])
    mds_write("ids/" + part, {"image": ("png", None), "id": ("int", 8)}, [[row(i) for i in range(4)]])
PYTHON

train() { # NAME DATA ARGUMENT...
    "$towers" train fashion_cnn --device cpu --threads 1 --data-path "$2" --max-steps 1 --batch-size 2 --eval-interval 0 --summary-interval 0 --output-dir runs \
        --experiment "$1" "${@:3}" >out 2>err </dev/null || complain "train $*: $(tail -n 2 err)"
}
bare() { # the weights of a run as other programs write them: FILE says nothing about itself
    python3 - "$1" "$2" "${3:-}" <<'PYTHON'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:8 + size])
head["__metadata__"] = {k: v for k, v in head["__metadata__"].items() if k in ("channels", *sys.argv[3].split())}
text = json.dumps(head).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + data[8 + size:])
PYTHON
}
counts() { # WANTED ARGUMENT...: images of each class of the network
    local wanted=$1 found
    "$towers" eval "${@:2}" --device cpu --class-scores scores.csv >out 2>err </dev/null || complain "eval ${*:2}: $(tail -n 2 err)"
    found=$(cut -d , -f 6 scores.csv | sed 1d | xargs)
    [[ $found == "$wanted" ]] || complain "eval ${*:2}: images of the classes $found, not $wanted"
}
grep_err() { grep -qF -- "$1" err || complain "wanted '$1': $(cat err)"; }
evaluate() { "$towers" eval "$@" --device cpu; }

# ---- numbers as names are labels, in whatever order they are listed; what was taken for the same is said
train twelve twelve
bare runs/twelve/last.safetensors bare.safetensors
ascending='1 2 3 4 5 6 7 8 9 10 11 12'
counts "$ascending" runs/twelve
counts "$ascending" runs/twelve --data-path numbers # listed as 0, 1, 10, 11, 2, ...
grep -q '^warning' err && complain "names on both sides: $(cat err)"
counts "$ascending" fashion_cnn --weights bare.safetensors --classes 12 --data-path numbers
grep_err "warning: the classes of numbers, named by the numbers 0 to 11, are the classes with these numbers of the network of bare.safetensors, which has 12"
counts '0 0 0 0 0 2 0 0 0 3 1 0' fashion_cnn --weights bare.safetensors --classes 12 --data-path some-numbers
refuses 2 "the classes of from-one are named by the numbers 1 to 12, but the network of bare.safetensors has the labels 0 to 11" \
    evaluate fashion_cnn --weights bare.safetensors --classes 12 --data-path from-one
refuses 3 "from-one has a class '12' that is missing in the network of runs/twelve" evaluate runs/twelve --data-path from-one

# ---- names on one side only
train pets pets
bare runs/pets/last.safetensors three.safetensors
file=(fashion_cnn --weights three.safetensors --classes 3)
counts '1 2 3' runs/pets/last.safetensors --data-path words
counts '0 1 2' runs/pets/last.safetensors --data-path two-words
for data in words two-words; do
    refuses 2 "$data has the classes ${data/*words/}" evaluate "${file[@]}" --data-path $data
    grep -q 'but the network of three.safetensors has no names of classes: it is not known which .* --match-classes number' "$err" || complain "names on one side: $(cat "$err")"
done
counts '1 2 3' "${file[@]}" --data-path words --match-classes number
counts '1 2 0' "${file[@]}" --data-path two-words --match-classes number
refuses 2 "one has no names of classes, but the network of runs/pets has the classes ant, bee, cow" evaluate runs/pets --data-path one
counts '1 2 3' runs/pets --data-path one --match-classes number

# ---- labels alone: weights say with which one theirs begin, in a file, a run and an exported graph
train zero zero
train one one
"$towers" export runs/one one.onnx >out 2>err || complain "export: $(cat err)"
grep -qa label_base one.onnx && grep -qa '"label_base":"1"' runs/one/last.safetensors && grep -q '"label_base": "0"' runs/zero/env.json || complain "weights do not say with which label their classes begin"
counts '1 2 3' runs/one/last.safetensors --data-path one
counts '1 2 0' runs/one/last.safetensors --data-path held
for weights in runs/zero runs/zero/last.safetensors; do
    refuses 2 "the labels of held, which are numbers only, seem to begin with 1, but those of the training began with 0: give --label-base 0, or 1 if" evaluate $weights --data-path held
    counts '0 1 2' $weights --data-path held --label-base 0
    counts '1 2 0' $weights --data-path held --label-base 1
done
refuses 2 "begin with 0, but those of the training began with 1" evaluate runs/one/last.safetensors --data-path zero
bare runs/zero/last.safetensors old.safetensors
refuses 2 "seem to begin with 1, and the network of old.safetensors, which has 3 classes, does not say" evaluate fashion_cnn --weights old.safetensors --classes 3 --data-path held
counts '0 1 2' fashion_cnn --weights old.safetensors --classes 3 --data-path held --label-base 0
counts '1 2 3' fashion_cnn --weights old.safetensors --classes 3 --data-path zero
grep_err "warning: neither zero nor the network of old.safetensors names its classes"
cp -r runs/one runs/former # a run of an earlier version, whose format of data says it
sed -i '/"label_base"/d' runs/former/env.json
bare runs/one/last.safetensors runs/former/last.safetensors "model classes width img_size mean std crop interpolation exif"
cp runs/former/last.safetensors runs/former/best.safetensors 2>/dev/null
counts '1 2 0' runs/former --data-path held
train back one --background
counts '0 1 2 3' runs/back/last.safetensors --data-path one # the file says that class 0 is the background

# ---- texts in records: they are the names, in all parts and shards
train named named
grep_err "the labels of the val shards of 'named' are others than those of the training shards: 1 is 'cow', which has 3 there; their classes are matched by name"
counts '3 2 1' runs/named
refuses 3 "the class of label 1 has two names: 'ant' in '$work/torn/train-00000-of-00002' (0.png, offset 12) and 'bee' in '$work/torn/train-00001-of-00002' (0.png, offset 12)" \
    "$towers" train fashion_cnn --data-path torn --dry-run
refuses 2 "the val shards of 'half' has no names of classes, but the training shards has the classes ant, bee, cow" "$towers" train fashion_cnn --data-path half --dry-run
train half half --match-classes number
counts '1 2 3' runs/half
train listed listed
counts '3 1 2' runs/listed # validation/classes.txt has another order

# ---- columns of MDS
refuses 3 "column 'label' is str: expected integers as labels. Columns of integers: 'id' (int)" "$towers" train fashion_cnn --data-path texts --dry-run
train ids ids
grep_err "labels are the column 'id', the only one of integers"

# ---- names that look the same
refuses 3 "there looks the same: a letter is U+00E9 in the first and U+0065 U+0301 in the second" "$towers" train fashion_cnn --data-path mac --dry-run

# ---- a classifier that is kept; a prediction with other weights than the run's; weights of classes; two runs
refuses 2 "its classifier is of other classes: other has a class 'fox'" "$towers" train fashion_cnn --data-path other --pretrained runs/pets --dry-run
mkdir -p turned && cp -r pets/train turned/ && cp -r pets/val turned/
python3 - runs/pets/last.safetensors turned.safetensors <<'PYTHON'
import sys
data = open(sys.argv[1], "rb").read()
open(sys.argv[2], "wb").write(data.replace(rb'[\"ant\",\"bee\",\"cow\"]', rb'[\"cow\",\"bee\",\"ant\"]'))
PYTHON
refuses 2 "knows the classes of pets in another order: class 0 is 'cow' there, but 'ant' here" "$towers" train fashion_cnn --data-path pets --pretrained turned.safetensors --dry-run
for more in --reset-head "--match-classes number"; do
    # shellcheck disable=SC2086
    train "new$more" other --pretrained runs/pets $more
done
train kept pets --pretrained runs/pets
grep -q 'goes on as it is' err && complain "a classifier of the same classes: $(cat err)"
train unknown pets --pretrained three.safetensors
grep_err "warning: the classifier of three.safetensors goes on as it is, class by class in its order"
train other other
"$towers" predict runs/pets --weights runs/other/last.safetensors words/ant/0.png --csv --device cpu >out 2>err || complain "predict: $(cat err)"
grep -qE '"?(fox|hen|owl)' out || complain "a prediction has the names of another run: $(cat out)"
"$towers" compare runs/pets runs/other >out 2>err
grep -q 'The runs differ in .*names of their classes\|names of classes' out err || complain "compare: $(cat out err)"
seq -f '%02.0f,1' 0 11 >weights.csv
train weighted twelve --class-weights weights.csv
sed 's/^0\([0-9]\)/\1/' weights.csv >plain.csv # numbers that are no names
refuses 2 "there is no class '0'" "$towers" train fashion_cnn --data-path twelve --class-weights plain.csv --dry-run
printf '0,1\n2,1\n' >short.csv
refuses 2 "has no weight for class 1; expected a line" "$towers" train fashion_cnn --data-path one --class-weights short.csv --dry-run

check_end "a number means a class only together with its list"
