#!/usr/bin/env bash
# The survey of a folder before the first step: what the header of a run, survey.json, the report, the card and `towers data check` say
# of copies, small classes, damaged and ignored files; all problems of a set at once; and equal files that stay in one part of a division.
set -uo pipefail
. "$1/tests/support/check.sh"
needs_python
unset TOWERS_RECIPE
export XDG_CACHE_HOME=$work/cache

python3 - <<'PYTHON'
import os, random
random.seed(5)
def put(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(b"P5 20 20 255\n" + random.randbytes(400))
for name, count in (("a", 12), ("b", 12), ("few", 3)):
    for i in range(count):
        put(f"set/train/{name}/{i}.pgm")
    put(f"set/val/{name}/0.pgm")
for i in range(24):
    put(f"tiny/train/{'ab'[i % 2]}/{i}.pgm")
    put(f"deep/{'train' if i < 16 else 'val'}/images/{'ab'[i % 2]}/{i}.pgm")
    put(f"one/images/{'ab'[i % 2]}/{i}.pgm")
    put(f"pairs/{'ab'[i % 2]}/{i}.pgm")
for name in "ab":
    put(f"tiny/val/{name}/0.pgm")
PYTHON
cp set/train/a/1.pgm set/val/b/again.pgm
cp set/train/a/2.pgm set/train/b/both.pgm
for i in $(seq 0 2 22); do for copy in 1 2; do cp pairs/a/$i.pgm pairs/a/$i-$copy.pgm; done; done
echo notes >pairs/a/notes.txt
echo notes >set/train/a/notes.txt

train() { # NAME DATA [ARGUMENT...]
    "$towers" train inception_mini --device cpu --img-size 16 --epochs 3 --stop-epoch 1 --output-dir runs --experiment "$1" --data-path "$2" "${@:3}" \
        >"$1.out" 2>"$1.err" </dev/null
}

# ---- the header of a run, in three lines before the first step; the same in the record, the report and the card
train first set || complain "train: $(tail -3 first.err)"
leak="1 of 4 evaluation images are also training images (equal files): what is measured on them is too good"
both="2 of 28 training images are in several classes (equal files)"
few="1 of 3 classes has fewer than 10 training images, the smallest 3: few"
grep -A2 '^survey ' first.err | sed 's/^survey //; s/^ *//' | diff - <(printf '%s\n' "$leak" "$both" "$few") >differs || complain "the survey in the header: $(cat differs first.err)"
sed '/^steps /q' first.err | grep -q '^survey ' || complain "the survey comes behind the first step: $(cat first.err)"
for file in runs/first/survey.json runs/first/report.html; do
    for text in "$leak" "$both" "$few" "set/val/b/again.pgm" notes.txt; do grep -qF -- "$text" "$file" || complain "$file lacks '$text'"; done
done
"$towers" card runs/first >card.md 2>&1 || complain "card: $(cat card.md)"
for text in "$leak" "$both" "$few"; do grep -qF -- "- $text." card.md || complain "the card lacks '$text': $(cat card.md)"; done
python3 - <<'PYTHON' || complain "survey.json: $(cat runs/first/survey.json)"
import json
survey = json.load(open("runs/first/survey.json"))
assert survey["images"] == survey["looked"] == 32, survey
assert [row["kind"] for row in survey["findings"]] == ["also trained on", "in several classes", "small classes", "not-an-image"]
assert [row["count"] for row in survey["findings"]] == [1, 2, 1, 1]
PYTHON

# ---- the second time nothing is read: files that changed in place, which no folder shows, are not noticed
sleep 0.1
rm -r cache
train kept set || complain "train: $(tail -3 kept.err)"
compgen -G 'cache/towers/index/*.survey' >/dev/null || complain "the survey is not kept: $(ls -R cache)"
python3 -c 'with open("set/val/b/again.pgm", "r+b") as file: file.seek(300); file.write(b"other")'
train again set || complain "train: $(tail -3 again.err)"
cmp -s runs/kept/survey.json runs/again/survey.json || complain "the survey is made again: $(diff runs/kept/survey.json runs/again/survey.json)"
touch set/val/b/more.txt
train new set || complain "train: $(tail -3 new.err)"
grep -q 'also trained on' runs/new/survey.json && complain "a folder that has changed is not looked at again: $(cat runs/new/survey.json)"

# ---- a set without anything to say has no line
train plain tiny --val-split 0 || complain "train: $(tail -3 plain.err)"
grep -q '^survey' plain.err && complain "a survey that says nothing: $(cat plain.err)"

# ---- data check names all problems at once, and goes on
mkdir set/train/album set/train/other && echo notes >set/train/other/page.html
"$towers" data check set >check.out 2>check.err
[[ $? == 3 ]] || complain "data check of empty albums does not fail: $(cat check.out check.err)"
for text in "train/album' has no image" "train/other' has no image (.*), only other files: 1 .html" "^$both:" "^  .*/train/b/both.pgm" "^$few:"; do
    grep -q "$text" check.out || complain "data check: no '$text' in $(cat check.out)"
done
grep -q '2 folders of classes cannot be used (above); all 32 images of the others can be decoded' check.err || complain "data check: $(cat check.err)"
train empty set && complain "a run over empty albums exits 0"
grep -q "train/album' has no image .* (so it is with 1 other; towers data check DIR names all)" empty.err || complain "empty albums: $(cat empty.err)"
rmdir set/train/album && rm -r set/train/other

# ---- a batch that nobody gave becomes as small as the set, and is recorded; one that was given is refused
train small tiny || complain "24 pictures: $(tail -3 small.err)"
grep -q 'batch size 24 instead of 32, as there are 24 training samples' small.err || complain "the smaller batch is not said: $(cat small.err)"
grep -q '^batch-size: 24 ' runs/small/args.yaml || complain "args.yaml: $(grep batch-size runs/small/args.yaml)"
train resumed tiny --stop-epoch 2 --experiment small --resume auto || complain "resume: $(tail -3 resumed.err)"
train given tiny -b 32 && complain "a batch of 32 from 24 pictures is accepted"
grep -q 'the global batch of 32 is larger than the training set of 24 samples; use --batch-size 24' given.err || complain "the batch: $(cat given.err)"
train shared tiny --towers 5 || complain "5 towers: $(tail -3 shared.err)"
grep -q 'batch size 4 instead of 32 for each tower' shared.err || complain "5 towers: $(cat shared.err)"

# ---- one class, because the path is not deep enough
train above one --val-split 0.25 && complain "one class is accepted"
grep -q "has one class, 'images'.*one/images holds folders itself: if these are the classes, give it as --data-path" above.err || complain "not deep enough: $(cat above.err)"
train parts deep && complain "one class in each part is accepted"
grep -q "deep/train/images holds folders itself.*move them up" parts.err || complain "not deep enough in parts: $(cat parts.err)"
train below one/images/a --val-split 0.25 && complain "no class is accepted"

# ---- a damaged image says what to do
cp -r tiny broken
echo text >broken/train/a/0.pgm
train damaged broken && complain "a damaged image is accepted"
grep -q "train/a/0.pgm.*--bad-samples skip leaves damaged images out; towers data check DIR names all of them" damaged.err || complain "a damaged image: $(tail -3 damaged.err)"

# ---- ignored files of a divided set are said once
train divided pairs --val-split 0.3 || complain "train: $(tail -3 divided.err)"
[[ $(grep -c 'notes.txt' divided.err) == 1 ]] || complain "ignored files are said $(grep -c notes.txt divided.err) times: $(cat divided.err)"

# ---- equal files stay in one part, with --val-split and with --fold; runs of earlier versions keep their division
duplicates() { # ARGUMENT...: evaluation images that are also training images
    "$towers" data info pairs "$@" 2>&1 | sed -n 's/^duplicates: .* within the training images, \([0-9]*\) evaluation images.*/\1/p'
}
[[ $(duplicates --val-split 0.3) == 0 ]] || complain "equal files are divided: $("$towers" data info pairs --val-split 0.3 2>&1)"
(($(duplicates --val-split 0.3 --no-join-equal) > 0)) || complain "no equal files are divided by names alone"
grep -q 'copies' runs/divided/survey.json || complain "copies: $(cat runs/divided/survey.json)"
grep -q 'also trained on' runs/divided/survey.json && complain "equal files in both parts: $(cat runs/divided/survey.json)"
train fold pairs --fold 1/3 || complain "train: $(tail -3 fold.err)"
grep -q 'also trained on' runs/fold/survey.json && complain "equal files in both parts of a fold: $(cat runs/fold/survey.json)"
for division in "--val-split 0.3" "--fold 1/3"; do
    # shellcheck disable=SC2086 # an option and its value
    train old pairs $division --no-join-equal || complain "train: $(tail -3 old.err)"
    grep -q 'also trained on' runs/old/survey.json || complain "by names alone nothing is in both parts: $(cat runs/old/survey.json)"
    sed -i '/^join-equal/d' runs/old/args.yaml
    train resumed pairs --experiment old --resume auto --stop-epoch 2 || complain "resume of an earlier version's run: $(tail -3 resumed.err)"
    grep -q '^join-equal: false ' runs/old/args.yaml || complain "the division is not recorded: $(grep join-equal runs/old/args.yaml)"
    train resumed pairs --experiment old --resume auto --stop-epoch 3 || complain "resume for the second time: $(tail -3 resumed.err)"
    sed -i '/^join-equal/d' runs/old/args.yaml
    "$towers" eval runs/old --device cpu >eval.out 2>&1 || complain "eval of an earlier version's run: $(cat eval.out)"
    grep -q 'divided otherwise' eval.out && complain "eval divides otherwise than the run: $(cat eval.out)"
    rm -r runs/old
done

check_end "folders are surveyed before the first step, all problems are named, and equal files stay together"
