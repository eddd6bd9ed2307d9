#!/usr/bin/env bash
# The recipe tf2016 on TFRecords in the layout of the original builders: lines of its form, the first loss within its bounds, an
# unused class 0, boxes that count; and that its distortions are options of their own. `towers predict` of shards.
set -uo pipefail
. "$1/tests/support/check.sh"
needs_python
export XDG_CACHE_HOME=$work/cache

/usr/bin/python3 "$source_dir/tests/support/shards_write.py" sets folder tfrecord || exit 1 # tfrecord: boxes without three of their sides
/usr/bin/python3 "$source_dir/tests/support/tfrecords_write.py" sets/folder records || exit 1
/usr/bin/python3 "$source_dir/tests/support/tfrecords_write.py" sets/folder plain 2 0 || exit 1

refused() { refuses "$1" "$2" "$towers" "${@:3}"; } # STATUS TEXT ARGUMENT...

train() { # NAME ARGUMENT...
    "$towers" train inception_v3 --recipe tf2016 --img-size 107 --device cpu --threads 1 --global-batch-size 4 --summary-interval 0 --eval-interval 0 \
        --output-dir runs --experiment "$@" >out 2>"$1.err" </dev/null || complain "train $*: $(tail -n 3 "$1.err")"
}

# ---- lines of the original's form; at the start each class has the same probability: ln 4 and the L2 term, 3.34 (no auxiliary head)
train run --data-path records --max-steps 11
line='^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}\.[0-9]{6}: step (0|10), loss = [0-9]+\.[0-9]{2} \([0-9]+\.[0-9] examples/sec; [0-9]+\.[0-9]{3} sec/batch\)$'
[[ $(grep -cE "$line" run.err) == 2 ]] || complain "the lines of the original: $(cat run.err)"
loss=$(grep -oE 'step 0, loss = [0-9.]+' run.err | grep -oE '[0-9.]+$')
awk -v loss="$loss" 'BEGIN { exit !(loss > 4.73 - 0.2 && loss < 4.73 + 0.2) }' || complain "first loss $loss: expected 4.73 +- 0.2"

# ---- class 0 is the background, which no image has
/usr/bin/python3 - <<'PYTHON' || complain "env.json: $(cat runs/run/env.json)"
import json
env = json.load(open("runs/run/env.json"))
assert env["classes"] == 4 and env["class_names"] == ["background", "ant", "bee", "cow"]
PYTHON
"$towers" eval runs/run --device cpu --threads 1 --class-scores scores.csv >out 2>err </dev/null || complain "eval: $(cat err)"
[[ $(cut -d , -f 1,2,6 scores.csv | tr '\n' ' ') == 'class,name,images 0,"background",0 1,"ant",8 2,"bee",8 3,"cow",8 ' ]] || complain "scores: $(cat scores.csv)"
refused 2 "has 4 classes; use --classes 4 or more" train inception_v3 --recipe tf2016 --data-path records --classes 3 --dry-run

# ---- boxes decide the crops; those that make no sense are damage, if they are used
sheet() { # FILE ARGUMENT...
    "$towers" data show --img-size 32 --seed 5 -o "$@" >out 2>err </dev/null || complain "data show $*: $(cat err)"
}
sheet recipe.png records --recipe tf2016
sheet again.png records --recipe tf2016
cmp -s recipe.png again.png || complain "the same seed shows other images"
sheet boxes.png records --recipe tf2016 --crop-covered 0.9
sheet none.png plain --recipe tf2016 --crop-covered 0.9
cmp -s boxes.png none.png && complain "the boxes of records change nothing"
refused 3 "bounding box 0 (image/object/bbox/) has ymin nan, xmin 0.25" train inception_v3 --recipe tf2016 --data-path sets/tfrecord --img-size 107 --device cpu \
    --threads 1 --global-batch-size 4 --output-dir runs --experiment bad
sheet whole.png sets/tfrecord --augment --crop random

# ---- each distortion by itself, and all of them are the recipe
all=(--augment --crop box --crop-area 0.05 --interpolation tf-mixed --color-distort)
sheet all.png records "${all[@]}"
cmp -s recipe.png all.png || complain "the options of the recipe show other images than the recipe"
for one in "--augment --crop box" "--augment --crop whole" "--color-distort" "--interpolation tf-nearest" "--interpolation tf-bicubic" "--interpolation tf-area" \
    "--interpolation tf-bilinear" "--augment --crop box --crop-covered 0.9"; do
    # shellcheck disable=SC2086
    sheet "one.png" records $one
    sum=$(md5sum <one.png)
    [[ " ${sums:-} " != *" ${sum%% *} "* ]] || complain "$one shows the images of another option"
    sums="${sums:-} ${sum%% *}"
done
refused 2 "--crop-covered has no effect with --crop auto; it applies only to box" data show records --augment --crop-covered 0.5

# ---- predict: shards as folders; of a set with evaluation images only these
predict() { # NAME PATH...
    "$towers" predict runs/run --device cpu --threads 1 --csv "${@:2}" >"$1.csv" 2>err </dev/null || complain "predict ${*:2}: $(cat err)"
}
predict folder sets/folder/val
predict records records
grep -q "has shards of several parts: only the 24 images of val are used" err || complain "predict does not say which images it takes: $(cat err)"
predict shards records/validation-00000-of-00002 records/validation-00001-of-00002
predict train records/train-0000{0,1}-of-00002
/usr/bin/python3 - <<'PYTHON' || complain "predictions of shards"
import csv
def rows(name):
    found = {}
    for row in csv.DictReader(open(name + ".csv")):
        found.setdefault(row["file"].split("/")[-1].split(": ")[-1].split(",")[0], []).append((row["class"], row["probability"]))
    return found
folder = rows("folder")
assert len(folder) == 24 and len(rows("train")) == 120
assert rows("records") == folder == rows("shards"), (rows("records"), folder)
PYTHON
refused 2 "predict them with a command of its own" predict runs/run --device cpu records/train-00000-of-00002 sets/folder/val/ant/img01000.png

check_end "the recipe tf2016 trains on TFRecords as the original did"
