#!/usr/bin/env bash
# Cross-validation: the folds of IDX files, of a folder of images and of a labels file are the same for any number of towers, have every
# training image once for evaluation, keep groups together and move no file; a run of a fold is evaluated again on its fold and
# resumed; bad combinations are refused; compare shows mean, deviation and the paired test over folds, compared with Python.
. "$1/tests/support/check.sh"
needs_python
small_data "$work/idx" 203 60 || exit 77
export XDG_CACHE_HOME=$work/cache

# ---- folders of two classes with folders of patients below them, and the same images with a labels file
python3 - <<'PY'
import os, random
draw = random.Random(3)
rows = ["file,patient,dark,bright\n"]
for c, name in enumerate(("bright", "dark")):
    for i in range(40):
        patient = f"p{draw.randrange(9)}"
        pixels = bytes(min(255, 60 * (1 - c) + draw.randrange(180)) for _ in range(28 * 28))
        for folder in (f"photos/{name}/{patient}", "labeled/images"):
            os.makedirs(folder, exist_ok=True)
        for path in (f"photos/{name}/{patient}/{i}.pgm", f"labeled/images/{name}{i}.pgm"):
            open(path, "wb").write(b"P5 28 28 255\n" + pixels)
        rows.append(f"images/{name}{i}.pgm,{patient},{c},{1 - c}\n")
rows[0] = "file, patient,dark,bright\n" # blanks around fields belong to nobody's name
rows[3::2] = [row.replace(",p", " , p", 1) for row in rows[3::2]]
open("labeled/labels.csv", "w").writelines(rows)
PY
find idx photos labeled -type f | sort | xargs sha256sum >before

train() { # NAME ARGUMENT...
    timeout 300 "$towers" train fashion_cnn --threads 1 --eval-interval 1 --epochs 1 --quiet --log-samples --summary-interval 0 \
        --experiment "$1" "${@:2}" >out 2>err </dev/null || complain "$1: exit $?: $(tail -2 err)"
}
refused() { refuses '[1-9]' "$1" "$towers" train fashion_cnn --dry-run "${@:2}"; } # TEXT ARGUMENT...

for k in 1 2 3; do
    train "idx$k" --data-path idx --batch-size 16 --fold $k/3 --seed 5
    train "slow$k" --data-path idx --batch-size 16 --fold $k/3 --seed 5 --lr 0.01
done
train towers --data-path idx --towers 4 --batch-size 4 --fold 1/3 --seed 5 --processes 2
[ "$(grep '"data"' runs/idx1/env.json)" = "$(grep '"data"' runs/towers/env.json)" ] || complain "other data"
"$towers" eval runs/idx1 --json >eval1.json 2>err || complain "eval of a fold: $(cat err)"
"$towers" eval runs/idx1 --towers 3 --json >eval3.json 2>err || complain "eval of a fold on three towers: $(cat err)"
"$towers" eval runs/idx1 --split test --json >test.json 2>err || complain "eval on the test part: $(cat err)"

# ---- groups: networks that have learnt nothing err on images of every part
for k in 1 2 3 4; do
    train "photos$k" --data-path photos --fold $k/4 --fold-group 1 --batch-size 8 --seed 2 --lr 1e-9
    train "labeled$k" --data-path labeled --fold $k/4 --fold-group patient --batch-size 8 --seed 2 --loss bce --towers 2 --lr 1e-9
    "$towers" eval "runs/labeled$k" --errors "labeled$k.csv" --quiet >/dev/null 2>err || complain "eval of labeled: $(cat err)"
    "$towers" eval "runs/photos$k" --errors "errors$k.csv" --json >"photos$k.json" 2>err || complain "eval of photos: $(cat err)"
    "$towers" predict "runs/photos$k" photos --json >/dev/null 2>err || complain "predict: $(cat err)"
done
find idx photos labeled -type f | sort | xargs sha256sum | cmp - before || complain "a file was changed or moved"

mkdir -p parts/train/a parts/train/b parts/val/a parts/val/b
for f in train/a train/b val/a val/b; do cp photos/dark/*/0.pgm parts/$f/0.pgm; cp photos/dark/*/1.pgm parts/$f/1.pgm; done
refused "--fold divides the training images, but 'parts' has images for evaluation" --data-path parts --fold 1/2
for bad in 0/3 4/3 3 a/b 1/1 1/2x 1/1001 01/3 ' 1/3' 1/+3; do
    refused "--fold '$bad': expected K/N" --data-path idx --fold "$bad"
done
refused "--val-split" --data-path photos --fold 1/3 --val-split 0.1
refused "--fold-group" --data-path photos --fold-group 1
mkdir twice # a column of labels that has the name of the groups
cp -r labeled/. twice
sed '1s/patient,/patient,patient,/' labeled/labels.csv >twice/labels.csv
refused "line 1: two columns with the name 'patient'" --data-path twice --loss bce --fold 1/3 --fold-group patient
refused "has no such column" --data-path labeled --loss bce --fold 1/3 --fold-group doctor
for missing in '' nan NULL '<NA>'; do
    rm -rf unknown && cp -r labeled unknown
    sed -i "5s|,[^,]*,|,$missing,|" unknown/labels.csv
    says="has no such group in labels.csv"
    [[ -z $missing ]] || says="has '$missing' in labels.csv, which is what programs write for a missing value"
    refused "$says" --data-path unknown --loss bce --fold 1/3 --fold-group patient
done
notes() { "$towers" train fashion_cnn --data-path patients --batch-size 8 --loss bce --fold 1/3 --fold-group patient --dry-run >out 2>err </dev/null || complain "notes: $(cat err)"; }
rm -rf patients && cp -r labeled patients && notes
grep -q "^warning: --fold-group" err && complain "patients that differ: $(grep ^warning err)"
first=$(sed -n 2p labeled/labels.csv | cut -d, -f2)
for alike in "${first^^}" "$first " " ${first}"; do # leaves images of one patient in both parts
    rm -rf patients && cp -r labeled patients
    sed -i "2s|,[^,]*,|,\"$alike\",|" patients/labels.csv && notes
    grep -q "^warning: --fold-group patient: 2 of [0-9]* groups have names that look like another's" err || complain "groups '$first' and '$alike': $(cat err)"
done
awk -F, -v OFS=, 'NR > 1 {$2 = "p" NR} {print}' labeled/labels.csv >patients/labels.csv && notes
grep -q "^warning: --fold-group patient: no two images have the same group" err || complain "a group for each image: $(cat err)"
refused "too few for 3 folds" --data-path photos --fold 1/3 --fold-group 2
refused "--fold" --dataset synthetic --fold 1/3

# ---- other data are evaluated whole; with labels at two places those of the training images have the groups
mkdir apart && cp -r photos apart/train && cp -r photos apart/val
"$towers" eval runs/photos1 --data-path apart --json >other.json 2>err || complain "eval of other data: $(cat err)"
cp -r photos moved && "$towers" eval runs/photos1 --data-path moved --json >moved.json 2>err || complain "eval of moved data: $(cat err)"
grep -qF "all images of moved are used: --fold 1/4 of the run divided " err || complain "moved data: $(cat err)"
sed 's/^data-path: .*/# data-path: not set/' runs/idx1/args.yaml >args && cp -r runs/idx1 runs/usual && mv args runs/usual/args.yaml
"$towers" eval runs/usual --data-path idx --json >usual.json 2>err || complain "eval of other data after the usual: $(cat err)"
grep -q '"examples": 60,' usual.json || complain "the fold of the usual data divides others: $(head -c 100 usual.json)"
mkdir two && cp -r labeled two/train && sed 's/patient/doctor/' labeled/labels.csv >two/labels.csv
"$towers" train fashion_cnn --dry-run --data-path two --batch-size 8 --loss bce --fold 1/4 --fold-group patient >out 2>err </dev/null || complain "two places of labels: $(cat err)"
mkdir listed && cp -r labeled/images listed/ && awk -F ' *, *' 'NR == 1 {print "file,tags,patient"}
    NR > 1 {print $1 "," ($3 == 1 ? "dark" : "bright") "," $2}' labeled/labels.csv >listed/labels.csv
"$towers" train fashion_cnn --dry-run --data-path listed --batch-size 8 --loss bce --fold 1/4 --fold-group patient >out 2>err </dev/null || complain "a list of labels: $(cat err)"
grep -q "2 classes" out || complain "a list of labels and a group: $(cat out)"
mv listed/labels.csv elsewhere.csv && ln -s ../elsewhere.csv listed/labels.csv
"$towers" train fashion_cnn --dry-run --data-path listed --batch-size 8 --loss bce --fold 1/4 --fold-group patient >out 2>err </dev/null || complain "a link to the labels: $(cat err)"
train other1 --data-path idx --batch-size 16 --fold 3/3 --seed 5
sed -i 's/"fashion_cnn"/"resnet18"/' runs/other1/env.json
"$towers" compare runs/idx[12] runs/other1 >text || complain "compare"
grep -q "^ *A *2 of 3" text && grep -q "^ *B *1 of 3" text || complain "folds of two models are one setting: $(cat text)"

"$towers" compare runs/idx[123] runs/slow[123] --json >folds.json || complain "compare"
"$towers" compare runs/idx[123] runs/slow[123] >text || complain "compare"
grep -q "^Over folds" text || complain "no folds in: $(cat text)"
grep -qE "^  B - A over 3 folds: " text || complain "no test in: $(cat text)"

# Without folds, seeds repeat a setting; one seed of each is no repetition.
for seed in 1 2 3; do
    train quick$seed --data-path idx --batch-size 16 --seed $seed
    train late$seed --data-path idx --batch-size 16 --seed $seed --lr 0.0001
done
"$towers" compare runs/quick[123] runs/late[123] --json >seeds.json || complain "compare over seeds"
"$towers" compare runs/quick[123] runs/late[123] >text || complain "compare over seeds"
grep -q "^Over seeds" text && grep -qE "^  B - A over 3 seeds: .* p = " text || complain "no seeds in: $(cat text)"
"$towers" compare runs/quick1 runs/late1 >text && grep -q "^Over" text && complain "one seed of each: $(cat text)"

python3 - <<'PY' || failures=$((failures + 1))
import csv, json, math, statistics, sys
failed = []
def expect(good, what):
    if not good: failed.append(what)
def last(run): return float(open(f'runs/{run}/results.csv').read().splitlines()[-1].split(',')[5])
def env(run): return json.load(open(f'runs/{run}/env.json'))
def samples(run):
    rows = csv.reader(open(f"runs/{run}/samples.csv"))
    return sorted(int(number) for row in rows for number in row[3].split())
one, four = samples('idx1'), samples('towers')
expect(len(one) in (135, 136) and one == four and max(one) < 136, (one, four))
a, b = json.load(open('eval1.json')), json.load(open('eval3.json'))
count = a['examples']
expect(count in (67, 68), a)
expect(abs(a['top1'] - b['top1']) < 1e-9 and count == b['examples'], (a, b))
expect(abs(a['top1'] - last('idx1')) < 1e-6, (a, last('idx1')))
expect(json.load(open('test.json'))['examples'] == 60, 'test part')
photos = [json.load(open(f'photos{k}.json')) for k in range(1, 5)]
expect(sum(p['examples'] for p in photos) == 80, photos)
expect(json.load(open('moved.json'))['examples'] == 80 and json.load(open('other.json'))['examples'] == 80, 'other data')
patient = {row['file'].strip(): row[' patient'].strip() for row in csv.DictReader(open('labeled/labels.csv'))}
groups = [lambda path: path.split('/')[-2], lambda path: patient['images/' + path.split('/')[-1]]]
for name, group in zip(('errors', 'labeled'), groups):
    found = [{group(row['file']) for row in csv.DictReader(open(f'{name}{k}.csv'))} for k in range(1, 5)]
    expect(all(found) and sum(map(len, found)) == len(set.union(*found)), ('a group is in two parts', name, found))
folds = json.load(open('folds.json'))['folds']
for row, name in zip(folds['settings'], ('idx', 'slow')):
    scores = [last(f'{name}{k}') for k in (1, 2, 3)]
    expect(row['folds'] == 3 and abs(row['mean'] - statistics.mean(scores)) < 1e-9
           and abs(row['deviation'] - statistics.stdev(scores)) < 1e-9, (row, scores))
(d,) = folds['differences']
pairs = [last(f'slow{k}') - last(f'idx{k}') for k in (1, 2, 3)]
t = statistics.mean(pairs) / math.sqrt((1 / 3 + 1 / 2) * statistics.variance(pairs))
p = 1 - abs(t) / math.sqrt(2 + t * t) # Student's t with 2 degrees of freedom has a closed form
expect(d['folds'] == 3 and abs(d['p'] - p) < 1e-6 and abs(d['mean'] - statistics.mean(pairs)) < 1e-9, (d, p, pairs))
seeds = json.load(open('seeds.json'))['seeds']
(d,) = seeds['differences']
pairs = [last(f'late{k}') - last(f'quick{k}') for k in (1, 2, 3)]
t = statistics.mean(pairs) / math.sqrt(statistics.variance(pairs) / 3)
expect(d['seeds'] == 3 and abs(d['p'] - (1 - abs(t) / math.sqrt(2 + t * t))) < 1e-6, (d, pairs))
expect([row['seeds'] for row in seeds['settings']] == [3, 3] and 'folds' not in json.load(open('seeds.json')), seeds)
for what in failed:
    print('FAILED:', what)
sys.exit(bool(failed))
PY
check_end "folds have every image once, keep groups together, and are the same on any number of towers; compare tests over folds and seeds"
