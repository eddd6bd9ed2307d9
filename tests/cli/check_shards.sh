#!/usr/bin/env bash
# Data sets of shards: the same 500 images as a folder, IDX files, WebDataset tars, TFRecords and MDS give the same weights bit for bit, also after a
# resume in the middle of an epoch; a run of shards evaluates; and broken shards are named (tests/support/broken_shards.py).
# `towers data convert` makes the same shards after a kill, in the formats' own layout.
set -uo pipefail
. "$1/tests/support/check.sh"
needs_python
export XDG_CACHE_HOME=$work/cache

kinds=(idx tar tfrecord mds mdsraw)
IMAGES=500 /usr/bin/python3 "$source_dir/tests/support/shards_write.py" sets500 folder "${kinds[@]}" || exit 1
/usr/bin/python3 "$source_dir/tests/support/shards_write.py" sets folder || exit 1

train() { # NAME ARGUMENT...
    "$towers" train googlenet --no-aux --img-size 32 -b 16 --device cpu --towers 2 --threads 1 --eval-crop 1 --classes 3 \
        --summary-interval 0 --output-dir runs --experiment "$@" >"$1.out" 2>"$1.err" </dev/null || complain "train $*: $(tail -n 3 "$1.err")"
}

losses() { cut -d , -f 1-8 "runs/$1/results.csv"; }

train folder --data-path sets500/folder --max-steps 18 # 16 are an epoch
for kind in "${kinds[@]}"; do
    train "$kind" --data-path "sets500/$kind" --max-steps 18
    cmp <(tensors runs/folder/last.safetensors) <(tensors "runs/$kind/last.safetensors") || complain "$kind: other weights than from a folder"
    cmp <(losses folder) <(losses "$kind") || complain "$kind: other losses"
done
train part --data-path sets500/tar --max-steps 6
"$towers" train --resume runs/part --max-steps 18 --output-dir runs --experiment whole >out 2>err </dev/null || complain "resume: $(cat err)"
cmp runs/folder/last.safetensors runs/whole/last.safetensors || complain "tars, resumed in the middle of an epoch: other weights"
# a window of shards: another order, which is as exact; any number of threads; it must not change on resume
train window --data-path sets500/tar --max-steps 18 --shuffle-window 2 --log-samples
cmp -s runs/folder/last.safetensors runs/window/last.safetensors && complain "--shuffle-window changed nothing"
train start --data-path sets500/tar --max-steps 6 --shuffle-window 2 --workers 3
"$towers" train --resume runs/start --max-steps 18 --output-dir runs --experiment end >out 2>err </dev/null || complain "resume: $(cat err)"
cmp runs/window/last.safetensors runs/end/last.safetensors || complain "a window, resumed in the middle of an epoch: other weights"
"$towers" train --resume runs/start --shuffle-window 1 --max-steps 10 --output-dir runs --experiment other >out 2>err </dev/null
[[ $? == 2 ]] && grep -q 'shuffle-window' err || complain "resume with another window: $(cat err)"
"$towers" train fashion_cnn --data-path sets500/folder --shuffle-window 1 --dry-run >out 2>err </dev/null
[[ $? == 2 ]] && grep -q 'shuffle-window is for shards' err || complain "a window of a folder: $(cat err)"
# new images are cropped as by a folder's run, which shows once the network looks at them
"$towers" train googlenet --no-aux --img-size 32 -b 16 --device cpu --towers 1 --threads 1 --eval-crop 1 --classes 3 --opt adam --lr 0.003 \
    --summary-interval 0 --max-steps 12 --data-path sets500/tar --output-dir runs --experiment sharp >out 2>err </dev/null || complain "train: $(cat err)"
grep -v eval-crop runs/sharp/args.yaml >args && mv args runs/sharp/args.yaml
cp -r runs/sharp runs/twin
sed -i 's/"data_format": "WebDataset tars"/"data_format": "folder of images"/' runs/twin/env.json
cmp -s runs/sharp/env.json runs/twin/env.json && complain "env.json does not name the format"
for run in sharp twin; do
    "$towers" predict runs/$run sets500/folder/val --device cpu --csv >$run.csv 2>err </dev/null || complain "predict: $(cat err)"
done
cmp sharp.csv twin.csv || complain "a run of tars predicts otherwise than a run of a folder"
# several folders of shards; images beside shards are reported; shards and images are not mixed
mkdir one two
cp "$(find sets500/tar -name '*val-000000.tar')" one/a.tar
cp one/a.tar two/b.tar
cp "$(find sets500/folder/val -name '*.png' | head -1)" two/beside.png
predict() { "$towers" predict runs/tar "$@" --device cpu --csv --top 1 >out 2>err </dev/null; }
predict one || complain "a folder of shards: $(cat err)"
rows=$(grep -c ',1,' out)
predict one two || complain "two folders of shards: $(cat err)"
[[ $rows -gt 0 && $(grep -c ',1,' out) == $((2 * rows)) ]] || complain "two folders of shards: $(wc -l out)"
grep -qx "'two' holds shards: 1 image beside them is not used; to predict it, name the file" err || complain "images beside shards: $(cat err)"
for pair in "one two/beside.png" "two/beside.png one"; do
    # shellcheck disable=SC2086
    predict $pair && complain "shards and images: $(cat out)"
    grep -q "'one' holds shards, but 'two/beside.png' does not; predict them with a command of its own" err || complain "shards and images: $(cat err)"
done
"$towers" eval runs/tar --device cpu --errors errors.csv >out 2>err </dev/null || complain "eval: $(cat err)"
grep -qE '"[^"]*/set-val-000000.tar: img01[0-9]*.png, offset [0-9]*","(ant|bee|cow)"' errors.csv || complain "errors.csv: $(head -n 3 errors.csv)"

# a list is the data of its run, which --val-split divides in the evaluation, too
train list --data-path 'sets500/tar/set-train-{000000..000009}.tar' --val-split 0.1 --max-steps 1
"$towers" eval runs/list --device cpu >out 2>err || complain "eval of a list: $(cat err)"
grep -q '): 51 val images, 3 classes' err || complain "eval of a list that is divided: $(cat err)"
# records without names of classes are not those of a training with names; folders have no labels that begin with 1
mkdir numbers
PYTHONPATH=$source_dir/tests/support /usr/bin/python3 - <<'PYTHON'
from shards_write import *
with open("numbers/test-00000-of-00001", "wb") as to:
    for i in range(6):
        to.write(record(example({"image/encoded": png(image(1000 + i)), "image/class/label": i % 3})))
PYTHON
"$towers" eval runs/tfrecord --data-path numbers --device cpu >out 2>err && complain "labels without names after a training with names: $(cat out)"
grep -q 'numbers has no names of classes, but the network of runs/tfrecord has the classes ant, bee, cow' err || complain "labels without names: $(cat err)"
"$towers" eval runs/tfrecord --data-path numbers --device cpu --match-classes number >out 2>err || complain "labels without names, as given: $(cat err)"
cp -r runs/tfrecord runs/based
sed -i 's/^label-base: auto/label-base: 1/' runs/based/args.yaml
"$towers" eval runs/based --data-path sets500/folder --device cpu >out 2>err || complain "a folder after a run with --label-base: $(cat err)"

# ---- convert: the same bytes from any number of threads, also after a kill; what is damaged is made again
data() { # STATUS ARGUMENT...
    local wanted=$1 status
    shift
    "$towers" data "$@" >out 2>err </dev/null
    status=$?
    [[ $status == "$wanted" ]] || complain "towers data $*: exit $status instead of $wanted: $(cat out err)"
}

for format in tar mds; do
    data 0 convert sets/folder "one-$format" --format $format --shard-samples 7 --threads 1
    grep -q '^144 images written' out || complain "convert: $(cat out)"
    "$towers" data convert sets/folder "two-$format" --format $format --shard-samples 7 --threads 2 >out 2>err </dev/null &
    converting=$!
    until [[ $(find "two-$format" -name '*.tar' -o -name '*.mds' 2>/dev/null | wc -l) -ge 2 ]] || ! kill -0 $converting 2>/dev/null; do sleep 0.005; done
    kill -KILL $converting 2>/dev/null
    wait $converting 2>/dev/null
    # a conversion that was killed before it had written its settings
    mkdir early && : >early/.tmp-towers-convert.json-00000000-0000-0000-0000-000000000000-1
    data 0 convert sets/folder early --format $format --shard-samples 7
    diff -r "one-$format" early >differs || complain "$format, killed at the start: $(cat differs)"
    rm -r early
    some=$(find "two-$format/train" -name 'shard*' | sort | head -n 1)
    head -c 3000 "$some" >cut && mv cut "$some" # as a crash of the machine may leave it
    : >"two-$format/train/.tmp-shard-00000000-0000-0000-0000-000000000000-1"
    data 0 convert sets/folder "two-$format" --format $format --shard-samples 7 --threads 2
    grep -q '; 0 existed already' out && complain "convert $format made every shard again: $(cat out)"
    diff -r "one-$format" "two-$format" >differs || complain "$format, killed and continued: $(cat differs)"
    data 2 convert sets/folder "two-$format" --format $format --shard-samples 8
    grep -q 'contains a conversion with .*"shard_samples": 7' err || complain "other settings: $(cat err)"
    data 0 convert "one-$format" "folder-of-$format" --quality 100
    data 0 info "folder-of-$format"
    grep -qE '^ +2 +40 +8  cow$' out || complain "a folder from $format: $(cat out)"
done
cp -r numbers unnamed && cp numbers/test-00000-of-00001 unnamed/train-00000-of-00001
data 0 convert unnamed folder-of-unnamed --label-base 0
grep -q 'warning: the folders are numbers, 0000000 to 0000002, in the order of the labels: the classes have no names' err || complain "folders of numbers: $(cat err)"
cp -r sets/folder grown
data 0 convert grown grown-tar --format tar --shard-samples 7
cp grown/val/cow/"$(ls grown/val/cow | head -n 1)" grown/val/cow/new.png # another number of images has another order
data 2 convert grown grown-tar --format tar --shard-samples 7
grep -q 'contains a conversion with .*"source"' err || complain "shards of two sources: $(cat err)"
# hashes of MDS shards: the right ones (as the message about wrong ones has them), unknown ones, and a damaged byte
cp -r one-mds hashed
hashes() { # JSON: of every shard
    sed -E -i "s/\"hashes\": \{[^}]*\}/\"hashes\": $1/g" hashed/train/index.json
}
hashes '{"sha1": "00", "xxh128": "00", "xxh3_64": "00", "xxh64": "00", "xxh32": "00"}'
data 3 check hashed
grep -q '72 hashes of shards differ' err && [[ $(grep -c 'but index.json says 00: damaged' out) == 72 ]] || complain "wrong hashes: $(cat out err)"
grep -q '^18 hashes of shards are of kinds that are not checked' out || complain "hashes of other kinds: $(cat out)"
cp out wrong
for kind in xxh32:8 xxh64:16 xxh3_64:16 xxh128:32; do
    sum=$(sed -nE "s|.*/shard.00003.mds: its ${kind%:*} is ([0-9a-f]{${kind#*:}}),.*|\\1|p" wrong)
    hashes "{\"${kind%:*}\": \"$sum\"}"
    data 3 check hashed
    grep -q '17 hashes of shards differ' err && grep -q '^1 hashes of shards are right' out || complain "$kind: $(cat out err)"
done
hashes '{}'
data 0 check hashed

data 2 convert sets/folder wrong --format onnx
data 2 convert sets500/idx wrong
: >file && data 2 convert sets/folder file
grep -q "'file' is a file: expected a new or empty folder" err || complain "convert into a file: $(cat err)"
cp -r sets500/tar beside && mkdir -p beside/logs && echo >beside/logs/run.txt
data 3 info beside
grep -q "class folder '.*/logs' has no image .* there are shards beside the folders" err || complain "a folder beside tars: $(cat err)"
for inside in sets/folder sets/folder/ sets/folder/train/new ./sets/../sets/folder/a/b/ "$work/sets/folder/new"; do
    data 2 convert sets/folder "$inside" --format mds
    grep -q "is in 'sets/folder', whose images are read; use a folder outside of it" err || complain "convert into its source: $(cat err)"
done
[[ $(ls -A sets/folder sets/folder/train) == "$(printf 'sets/folder:\ntrain\nval\n\nsets/folder/train:\nant\nbee\ncow')" ]] || complain "convert left files in its source: $(ls -A sets/folder sets/folder/train)"
cp -r sets/folder damaged && printf 'BM' >damaged/train/bee/img00050.png
data 3 convert damaged damaged-tar --format tar --shard-samples 7
data 0 check damaged-tar
grep -q 'all 143 images' out || complain "a conversion with a damaged image: $(cat out)"
/usr/bin/python3 - <<'PYTHON' || complain "the converted shards, field by field"
import glob, json, struct, tarfile
pictures = {}
for path in sorted(glob.glob("one-tar/train/*.tar")):
    members = tarfile.open(path).getmembers()
    assert [m.name.split(".")[1] for m in members] == ["cls", "jpg"] * (len(members) // 2)
    assert all(m.mtime == 0 and m.uid == 0 and m.mode == 0o644 for m in members)
    data = [tarfile.open(path).extractfile(m).read() for m in members]
    for i in range(0, len(members), 2):
        pictures[data[i + 1]] = int(data[i])
assert len(pictures) == 120 and sorted(pictures.values()) == [0] * 40 + [1] * 40 + [2] * 40
index = json.load(open("one-mds/train/index.json"))
assert index["version"] == 2 and len(index["shards"]) == 18
labels = []
for shard in index["shards"]:
    data = open("one-mds/train/" + shard["raw_data"]["basename"], "rb").read()
    assert len(data) == shard["raw_data"]["bytes"] and shard["zip_data"] is None and shard["compression"] is None
    count, = struct.unpack_from("<I", data)
    offsets = struct.unpack_from("<%dI" % (count + 1), data, 4)
    config = json.loads(data[4 + 4 * (count + 1):offsets[0]])
    assert count == shard["samples"] and all(shard[key] == value for key, value in config.items())
    assert config["column_names"] == ["image", "label"] and config["column_encodings"] == ["jpeg", "int"] and config["column_sizes"] == [None, 8]
    for begin, end in zip(offsets, offsets[1:]):
        size, = struct.unpack_from("<I", data, begin)
        assert begin + 4 + size + 8 == end
        label, = struct.unpack_from("<q", data, end - 8)
        assert pictures[data[begin + 4:begin + 4 + size]] == label
        labels.append(label)
assert len(labels) == 120 and len(set(labels[:12])) > 1, "classes are not mixed"
assert open("one-mds/classes.txt").read() == "ant\nbee\ncow\n"
PYTHON

for kind in tars tfrecords mds; do
    /usr/bin/python3 "$source_dir/tests/support/broken_shards.py" "$towers" "$work" $kind || complain "broken shards: $kind"
done

check_end "shards train as folders do, and broken ones are named"
