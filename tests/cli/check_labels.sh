#!/usr/bin/env bash
# Images with any number of classes: a labels file beside a folder of images, --loss bce, mAP. Labels files in both forms are the same data;
# training does not depend on the division into towers; it learns; mAP and the scores are those of their definitions (in Python, from the
# probabilities of towers predict); resumed runs continue bit for bit; hostile labels files are refused by line.
. "$1/tests/support/check.sh"
. "$source_dir/tests/support/hosts.sh"
export XDG_CACHE_HOME=$work/cache

# ---- images of 16 x 16: a bright patch in each of four corners, any number of them
python3 - "$work" <<'PY'
import os, random, sys
root, draw = sys.argv[1], random.Random(4)
names = ["lower left", "lower right", "upper left", "upper right"]
at = [(9, 1), (9, 9), (1, 1), (1, 9)]
for form in ("list", "columns"):
    for split in ("train", "val"):
        os.makedirs(f"{root}/{form}/{split}/images")
for split, count in (("train", 240), ("val", 60)):
    lists, columns = ["image,tags\n"], ["image," + ",".join(names) + "\n"]
    for i in range(count):
        has = [draw.random() < (0.6 if k == 0 else 0.35) for k in range(4)]
        if i == 7:
            has = [False] * 4
        pixels = bytearray(draw.randrange(90) for _ in range(256))
        for k in range(4):
            for y in range(6):
                for x in range(6):
                    if has[k]:
                        pixels[(at[k][0] + y) * 16 + at[k][1] + x] = 160 + draw.randrange(90)
        for form in ("list", "columns"):
            with open(f"{root}/{form}/{split}/images/{i:03}.pgm", "wb") as to:
                to.write(b"P5 16 16 255\n" + bytes(pixels))
        file = f"images/{i:03}" + (".pgm" if i % 2 else "")
        own = [names[k] for k in range(4) if has[k]]
        draw.shuffle(own)
        lists.append(f'{file},"{" ; ".join(own)}"\r\n')
        columns.append(f"images/{i:03}.pgm," + ",".join("1" if h else "-1" for h in has) + "\n")
    open(f"{root}/list/{split}/labels.csv", "w", newline="").writelines(lists)
    open(f"{root}/columns/{split}/labels.csv", "w", newline="").writelines(columns)
PY
net=(googlenet --no-aux --dropout 0 --img-size 32 --eval-crop 1)
common=(--device cpu --threads 1 --output-dir "$work" --no-winograd --loss bce)
train() { # NAME DATA ARGUMENT...
    "$towers" train "${net[@]}" --data-path "$work/$2" "${common[@]}" --experiment "$1" "${@:3}" >"$work/out" 2>"$work/err" </dev/null
}
run() { train "$@" || complain "$1: exit $?: $(tail -2 "$work/err")"; }
column() { sed -E "s/.*\"$2\":([^,]*),.*/\1/" "$work/$1/metrics.jsonl"; }
close() { # NAME OTHER STEPS
    paste <(column "$1" mean_loss) <(column "$2" mean_loss) |
        awk -v steps="$3" '{ d = $1 - $2; if (d < 0) d = -d; if (d > 2e-5 * $1) { print "step " NR ": " $0; bad = 1 } } END { exit bad || NR != steps }' ||
        complain "$1 and $2: other mean losses"
}

# ---- towers are one batch: 1 x 32 is 4 x 8 and any other division, from both forms of the file (one norm over all towers)
mix=(--opt sgd --lr 0.02 --seed 4 --mixup 0.4 --cutmix 1 --smoothing 0.1 --class-weights auto --bn-stats sync --max-steps 6)
run one list --towers 1 --batch-size 32 "${mix[@]}" --lr 0 # rounding grows in a deep network; check_bce.sh has the updates
run even list --towers 4 --processes 4 --batch-size 8 "${mix[@]}" --lr 0
run uneven columns --tower-batch 13,7,1,11 --processes 4 --workers 0 "${mix[@]}" --lr 0
run four list --towers 4 --processes 4 --batch-size 8 "${mix[@]}"
close one even 6
close one uneven 6
run again list --towers 4 --processes 4 --batch-size 8 "${mix[@]}" --max-steps 3
run again columns --towers 4 --processes 4 --batch-size 8 "${mix[@]}" --resume auto
cmp "$work/four/last.safetensors" "$work/again/last.safetensors" || complain "a resumed run has other weights"

# ---- it learns
run learned list --towers 2 --processes 2 --batch-size 16 --opt adam --lr 0.001 --epochs 6 --patience 3 # as all processes decide alike
head -1 "$work/learned/results.csv" | grep -qx 'epoch,step,train_loss,train_exact,test_loss,test_map,test_exact,lr,images_per_sec,seconds,wasserstein,kid' ||
    complain "results.csv: $(head -1 "$work/learned/results.csv")"
grep -q 'folder with labels, .* 240 training and 60 evaluation images, 4 classes, any number for an image' "$work/err" || complain "introduction: $(head -8 "$work/err")"
grep -qE '^test mAP 9[0-9.]+ %|^test mAP 100' "$work/err" || complain "mAP: $(tail -4 "$work/err")"
grep -qi 'accuracy' "$work/err" "$work/learned/log.txt" && complain "an accuracy is printed: $(grep -i accuracy "$work/err" "$work/learned/log.txt" | head -2)"

# ---- eval and predict: the numbers are those of their definitions, in Python from the probabilities
"$towers" eval "$work/learned" --device cpu --json --errors "$work/errors.csv" --class-scores "$work/scores.csv" >"$work/eval.json" 2>"$work/err" ||
    complain "eval: $(cat "$work/err")"
"$towers" predict "$work/learned" "$work/list/val/images" --device cpu --json --threshold 0 >"$work/all.jsonl" 2>"$work/err" || complain "predict: $(cat "$work/err")"
"$towers" predict "$work/learned" "$work/list/val/images" --device cpu --csv >"$work/half.csv" 2>"$work/err" || complain "predict: $(cat "$work/err")"
python3 - "$work" <<'PY' || complain "eval or predict"
import csv, json, math, os, sys
work = sys.argv[1]
truth = {row["image"]: {k for k, v in row.items() if v == "1"} for row in csv.DictReader(open(f"{work}/columns/val/labels.csv"))}
scores = {}
for line in open(f"{work}/all.jsonl"):
    row = json.loads(line)
    scores["images/" + os.path.basename(row["file"])] = {p["name"]: p["probability"] for p in row["predictions"]}
names = sorted(next(iter(scores.values())))
assert len(scores) == 60 and len(names) == 4, (len(scores), names)

def average_precision(name):
    order = sorted(truth, key=lambda f: -scores[f][name])
    total, found, sum_, before, n = sum(name in truth[f] for f in order), 0, 0.0, 0, 0
    while n < len(order):
        score = scores[order[n]][name]
        while n < len(order) and scores[order[n]][name] == score:
            found += name in truth[order[n]]
            n += 1
        sum_ += (found - before) / total * found / n
        before = found
    return sum_

near = lambda a, b: abs(a - b) < 1e-5
result = json.load(open(f"{work}/eval.json"))
assert "top1" not in result, "an accuracy"
per_class = {c["name"]: c for c in result["classes"]}
for name in names:
    assert near(per_class[name]["average_precision"], average_precision(name)), name
    taken = {f for f in truth if scores[f][name] > 0.5}
    right = sum(name in truth[f] for f in taken)
    assert near(per_class[name]["precision"], right / len(taken)) and near(per_class[name]["recall"], right / sum(name in t for t in truth.values())), name
assert near(result["map"], sum(map(average_precision, names)) / 4), result["map"]
assert result["map"] > 0.9, result["map"]
answers = {f: {n for n in names if scores[f][n] > 0.5} for f in truth}
wrong = {f: answers[f] ^ truth[f] for f in truth}
assert near(result["exact_match"], sum(not w for w in wrong.values()) / 60)
assert near(result["hamming_loss"], sum(map(len, wrong.values())) / 240)
loss = -sum(math.log(scores[f][n] if n in truth[f] else 1 - scores[f][n]) for f in truth for n in names) / 240
assert abs(result["loss"] - loss) < 1e-3 * loss, (result["loss"], loss)
errors = list(csv.DictReader(open(f"{work}/errors.csv")))
assert {os.path.basename(e["file"]) for e in errors} == {os.path.basename(f) for f in wrong if wrong[f]}
for e in errors:
    f = "images/" + os.path.basename(e["file"])
    assert set(filter(None, e["label"].split(";"))) == truth[f] and set(filter(None, e["predicted"].split(";"))) == answers[f], e
printed = {}
for row in csv.DictReader(open(f"{work}/half.csv")):
    assert (row["rank"], row["probability"]) == ("0", "") if not row["class"] else row["rank"] > "0", row
    printed.setdefault("images/" + os.path.basename(row["file"]), set()).update(filter(None, [row["class"]]))
assert printed == {f: answers[f] for f in truth} and not all(answers.values()), "an image without a class has a row, too"
assert list(csv.DictReader(open(f"{work}/scores.csv")))[0]["average_precision"]
PY
"$towers" eval "$work/learned" --device cpu 2>/dev/null | grep -qE '^mAP = [01]\.[0-9]+ Exact match = ' || complain "eval prints $("$towers" eval "$work/learned" --device cpu 2>/dev/null | head -1)"
python3 - "$work" <<'PY' # the same images, the columns in another order
import csv, os, shutil, sys
work = sys.argv[1]
for split in ("train", "val"):
    shutil.copytree(f"{work}/columns/{split}", f"{work}/turned/{split}")
    rows = [row[:1] + row[:0:-1] for row in csv.reader(open(f"{work}/columns/{split}/labels.csv"))]
    csv.writer(open(f"{work}/turned/{split}/labels.csv", "w")).writerows(rows)
PY
for data in list turned; do
    "$towers" eval "$work/learned" --data-path "$work/$data" --device cpu --json >"$work/$data.json" 2>"$work/err" || complain "eval of $data: $(cat "$work/err")"
done
refuses '[1-9]' "--calibrate has no effect with --loss bce" "$towers" eval "$work/learned" --device cpu --calibrate
# ---- --tta flip: the means of what is predicted for the images and for mirrored copies, of each class
python3 - "$work" <<'PY'
import os, sys
work = sys.argv[1]
os.makedirs(f"{work}/mirrored")
for file in os.listdir(f"{work}/list/val/images"):
    data = open(f"{work}/list/val/images/{file}", "rb").read()
    rows = [data[-256:][i:i + 16][::-1] for i in range(0, 256, 16)]
    open(f"{work}/mirrored/{file}", "wb").write(data[:-256] + b"".join(rows))
PY
"$towers" predict "$work/learned" "$work/mirrored" --device cpu --json --threshold 0 >"$work/mirrored.jsonl" 2>"$work/err" || complain "predict: $(cat "$work/err")"
"$towers" predict "$work/learned" "$work/list/val/images" --device cpu --json --threshold 0 --tta flip >"$work/mean.jsonl" 2>"$work/err" ||
    complain "predict --tta flip: $(cat "$work/err")"
"$towers" eval "$work/learned" --device cpu --json --tta flip >"$work/flip.json" 2>"$work/err" || complain "eval --tta flip: $(cat "$work/err")"
"$towers" eval "$work/learned" --device cpu --json --tta flip --towers 2 | cmp - "$work/flip.json" || complain "eval --tta flip: other numbers on two towers"
python3 - "$work" <<'PY' || complain "--tta flip"
import csv, json, math, os, sys
work = sys.argv[1]
def scores_of(name):
    return {os.path.basename(row["file"]): {p["name"]: p["probability"] for p in row["predictions"]} for row in map(json.loads, open(f"{work}/{name}.jsonl"))}
plain, mirrored, mean = map(scores_of, ("all", "mirrored", "mean"))
truth = {os.path.basename(row["image"]): {k for k, v in row.items() if v == "1"} for row in csv.DictReader(open(f"{work}/columns/val/labels.csv"))}
assert all(abs((plain[f][n] + mirrored[f][n]) / 2 - mean[f][n]) < 1e-5 for f in mean for n in mean[f])
assert any(abs(plain[f][n] - mirrored[f][n]) > 0.1 for f in mean for n in mean[f]), "the mirror images say nothing"
result = json.load(open(f"{work}/flip.json"))
assert result["exact_match"] == sum({n for n in mean[f] if mean[f][n] > 0.5} == truth[f] for f in truth) / 60, result["exact_match"]
loss = -sum(math.log(mean[f][n] if n in truth[f] else 1 - mean[f][n]) for f in truth for n in mean[f]) / 240
assert abs(result["loss"] - loss) < 1e-3 * loss, (result["loss"], loss)
PY
scores_of() { python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); print(r["map"] if "map" in r else sorted((k, v) for k, v in r.items() if isinstance(v, float)))' "$1"; }
[[ $(scores_of "$work/list.json") == $(scores_of "$work/turned.json") ]] || complain "other scores with the columns in another order: $(scores_of "$work/list.json") $(scores_of "$work/turned.json")"
refuses '[1-9]' "--top is for networks that give an image one class" "$towers" predict "$work/learned" "$work/list/val/images" --device cpu --top 2
"$towers" report "$work/learned" >/dev/null 2>"$work/err" || complain "report: $(cat "$work/err")"
grep -q 'test mAP' "$work/learned/report.html" || complain "no mAP in the report"
"$towers" compare "$work/learned" "$work/learned" 2>&1 | grep -q 'test mAP, %' || complain "compare: $("$towers" compare "$work/learned" "$work/learned" 2>&1 | head -8)"

# ---- several programs: each has evaluated a part of the images; rank 0 has all probabilities
mpirun_find
if [[ $mpirun_of ]]; then
    parts=("${net[@]}" --data-path "$work/list" "${common[@]}" --towers 2 --processes 2 --batch-size 16 --lr 0 --max-steps 2 --eval-batch-size 7)
    "$towers" train "${parts[@]}" --experiment together >/dev/null 2>"$work/err" </dev/null || complain "together: $(tail -2 "$work/err")"
    "${mpirun[@]}" 2 "$towers" train "${parts[@]}" --experiment apart >/dev/null 2>"$work/err" </dev/null || complain "apart: $(tail -2 "$work/err")"
    cmp <(cut -d, -f1-7 "$work/together/results.csv") <(cut -d, -f1-7 "$work/apart/results.csv") || complain "two programs measure something else"
    cmp "$work/together/mistakes.csv" "$work/apart/mistakes.csv" || complain "two programs make other mistakes"
else
    left_out "several programs: no mpirun"
fi

# ---- what people see of the data
"$towers" data info "$work/list" >"$work/out" 2>"$work/err" || complain "data info: $(cat "$work/err")"
grep -q 'classes: 4, any number for an image' "$work/out" || complain "data info: $(cat "$work/out")"
"$towers" data show "$work/list" --img-size 16 --sheet "$work/sheet.png" 2>/dev/null | grep -qE ': (lower|upper) (left|right), (lower|upper) (left|right)  ' || complain "data show"
refuses '[1-9]' "has a labels file; convert writes one class" "$towers" data convert "$work/list" "$work/converted"

# ---- refusals
dry() { "$towers" train "${net[@]}" --device cpu --dry-run --data-path "$@"; }
refuses '[1-9]' "any number of classes for an image: use --loss bce" dry "$work/list"
refuses '[1-9]' "--sampler balanced draws the one class of an image" dry "$work/list" --loss bce --sampler balanced
refuses '[1-9]' "--sampler balanced draws the one class of an image" "$towers" data show "$work/list" --img-size 16 --sampler balanced --sheet "$work/sheet.png"
refuses '[1-9]' "--background is a class for images of no other" dry "$work/list" --loss bce --background
refuses '[1-9]' "has no images for evaluation" dry "$work/list/train" --loss bce
dry "$work/list/train" --loss bce --val-split 0.25 >"$work/out" 2>&1 </dev/null || complain "--val-split: $(cat "$work/out")"
grep -q 'train: 180 training, 60 evaluation samples, any number of classes for an image' "$work/out" || complain "--val-split 0.25: $(cat "$work/out")"

# ---- hostile labels files
bad() { # TEXT CONTENT
    printf "$2" >"$work/list/train/labels.csv"
    refuses '[1-9]' "$1" dry "$work/list" --loss bce
}
cp "$work/list/train/labels.csv" "$work/good.csv"
h='image,tags\n'
bad "line 3: 'images/001.pgm' is listed already, in line 2" "${h}images/001.pgm,a\nimages/001.pgm,b\n"
bad "line 2: there is no image 'images/999.pgm'" "${h}images/999.pgm,a\n"
bad "line 2: there is no image 'images/999' (with one of .jpg" "${h}images/999,a\n"
bad "line 2: '../val/images/001.pgm': expected a file below the folder" "${h}../val/images/001.pgm,a\n"
bad "line 2: '/etc/passwd': expected a file below the folder" "${h}/etc/passwd,a\n"
bad "line 2: expected the name of a file" "${h}./,a\n"
bad "line 4: 'images/001.pgm' is listed already, in line 2" "${h}images/001.pgm,b\nimages/002.pgm,a\n./images//./001.pgm,a\n"
bad "line 3: 'images/001.pgm' is listed already, in line 2 as 'images/001'" "${h}images/001,a\nimages/001.pgm,b\n"
for missing in nan NaN N/A '<NA>' None NULL; do
    bad "line 3: '$missing' is what programs write for a missing value" "${h}images/001.pgm,a b\nimages/002.pgm, $missing \n"
done
bad "has one column behind the file, and only '0' and '1' in it" "image,hat\nimages/001.pgm,1\nimages/002.pgm,0\n"
bad "has one column behind the file, and only 'True' in it" "image,hat\nimages/001.pgm,True\nimages/002.pgm,\n"
bad "line 3: 'h\\xe9t' is not UTF-8: save the file as UTF-8" "${h}images/001.pgm,b\nimages/002.pgm,b;h\\xe9t\n"
bad "line 1: 'h\\xe9t' is not UTF-8" "image,h\\xe9t,b\nimages/001.pgm,1,0\n"
bad "ends its lines by CR alone" "image,tags\rimages/001.pgm,b\r"
bad "line 4: 'a|b' is one label, as ';' separates labels in other lines, but its parts are labels as well" "${h}images/001.pgm,a;b\nimages/002.pgm,b\nimages/003.pgm,a|b\n"
bad "line 3: 'a b' is one label, as ';' separates labels" "${h}images/001.pgm,a;b\nimages/002.pgm, a b \n"
bad "line 3: 'a , b' is one label, as ';' separates labels" "${h}images/001.pgm,a;b\nimages/002.pgm,\"a , b\"\n"
# a name with a blank that stands beside another label is one label, whatever its parts are
{ printf "$h" && for i in {001..120}; do printf 'images/%s.pgm,%s\n' "$i" "$( ((10#$i % 2)) && echo 'dress;black dress' || echo 'black;shoe')"; done; } >"$work/list/train/labels.csv"
dry "$work/list/train" --loss bce --val-split 0.25 >"$work/out" 2>&1 </dev/null || complain "a name with a blank: $(cat "$work/out")"
bad "line 3: the label 'a' twice" "${h}images/001.pgm,b\nimages/002.pgm,a;b;a\n"
bad "line 2: more columns than the header, which has 2" "${h}images/001.pgm,a,b\n"
bad "line 2: 1 of the 2 columns of the header" "${h}images/001.pgm\n"
bad "line 1: expected a header of two columns or more" "image\nimages/001.pgm\n"
bad "line 2: expected 1, 0 or -1 for each class, found 'yes'" "image,a,b\nimages/001.pgm,yes,0\n"
bad "line 3: 0 and -1 in one file (0 in line 2, -1 in line 3)" "image,a,b\nimages/001.pgm,1,0\nimages/002.pgm,1,-1\n"
bad "line 2: 2 of the 3 columns of the header" "image,a,b\nimages/001.pgm,1\n"
bad "line 2: more columns than the header, which has 3" "image,a,b\nimages/001.pgm,1,0,1\n"
bad "line 1: two columns with the name 'a'" "image,a,b,a\nimages/001.pgm,1,0,1\n"
bad "line 1: the name of column 3 has 0 bytes" "image,a,,b\nimages/001.pgm,1,0,1\n"
bad "line 2: a quoted field does not end on its line" "${h}\"images/001.pgm,a\n"
bad "line 2: a quoted field goes on after its end" "${h}\"images/001.pgm\"x,a\n"
bad "line 2: a quote inside of a field" "${h}images/0\"01.pgm,a\n"
bad "line 1: expected a header, found the image 'images/001.pgm'" "images/001.pgm,a\nimages/002.pgm,b\n"
bad "line 1: expected a header, found 'images/001', which is the image 'images/001.pgm' that no other line lists" "images/001,a\nimages/002,b\n"
bad "line 1: expected a header, found the values '0'" "001,0,1\nimages/002.pgm,1,0\n"
bad "line 3: a list in brackets: ['a', 'b']" "${h}images/001.pgm,a\nimages/002.pgm,\"['a', 'b']\"\n"
bad "line 2: a list in brackets: {a}" "${h}images/001.pgm,{a}\n"
bad "line 2: a label in quotes: 'a'" "${h}images/001.pgm,\"'a';'b'\"\n"
bad "has a byte 0 at offset" "${h}images/001.pgm,a\000b\n"
bad "is empty" "\n \n"
bad "lists no image" "image,a,b\n"
bad "no image has a label" "${h}images/001.pgm,\n"
bad "has a class 'upper left' that" "${h}images/001.pgm,lower left\nimages/002.pgm,lower right;upper right\n"
cp "$work/columns/val/labels.csv" "$work/val.csv"
sed 's/,[^,]*$//' "$work/val.csv" >"$work/columns/val/labels.csv"
refuses '[1-9]' "has no column 'upper right', a class of" dry "$work/columns" --loss bce
cp "$work/val.csv" "$work/columns/val/labels.csv"
head -c 40000000 /dev/zero | tr '\0' 'a' >"$work/list/train/labels.csv"
refuses '[1-9]' "line 1: expected a header" dry "$work/list" --loss bce
mkdir "$work/list/train/folder.pgm"
bad "is not a regular file" "${h}folder.pgm,a\n"
rm -r "$work/list/train/folder.pgm"
cp "$work/good.csv" "$work/list/train/labels.csv"

# ---- one separator for all files of a set, which is printed: no row of val/ has two labels, and names have blanks
for separator in ';' '|' ', '; do
    rm -rf "$work/parts" && cp -r "$work/list" "$work/parts"
    sed -i "s/ ; /$separator/g" "$work/parts/train/labels.csv"
    sed -i '/ ; /d' "$work/parts/val/labels.csv"
    "$towers" data info "$work/parts" >"$work/out" 2>"$work/err" || complain "labels separated by '$separator': $(cat "$work/err")"
    grep -qF "labels are separated by '${separator% }' (labels.csv): 4 classes, lower left, lower right, upper left, upper right" "$work/out" ||
        complain "labels separated by '$separator': $(cat "$work/out")"
    "$towers" train "${net[@]}" --data-path "$work/parts" "${common[@]}" --dry-run >"$work/out" 2>"$work/err" || complain "labels separated by '$separator': $(cat "$work/err")"
done

# ---- damaged images count nowhere; a GAN takes the images without their labels
cp -r "$work/columns" "$work/damaged"
for i in 003 014; do printf 'P5 16 16 255\n' >"$work/damaged/val/images/$i.pgm" && printf 'P5 16' >"$work/damaged/train/images/$i.pgm"; done
run damaged damaged --towers 2 --batch-size 16 "${mix[@]}" --bn-stats pooled --bad-samples skip
grep -q '58 of 60\|2 damaged' <("$towers" eval "$work/damaged" --device cpu --bad-samples skip 2>&1) || complain "eval of damaged images: $("$towers" eval "$work/damaged" --device cpu --bad-samples skip 2>&1 | head -4)"
"$towers" data check "$work/damaged" >"$work/out" 2>&1 && complain "data check finds nothing"
grep -q 'train/images/003.pgm' "$work/out" || complain "data check: $(cat "$work/out")"
"$towers" train wgan_gp --data-path "$work/list" --device cpu --dry-run >/dev/null 2>"$work/err" || complain "a GAN: $(cat "$work/err")"

# ---- answers that are not finite are no answers: all weights but biases are so large that sums of both signs overflow
python3 - "$work" <<'PY'
import json, struct, sys
data = bytearray(open(sys.argv[1] + "/learned/best.safetensors", "rb").read())
size, = struct.unpack_from("<Q", data)
for name, tensor in json.loads(data[8:8 + size]).items():
    if name.endswith(".weight"):
        for at in range(8 + size + tensor["data_offsets"][0], 8 + size + tensor["data_offsets"][1], 4):
            struct.pack_into("<f", data, at, 3e38 if at % 8 else -3e38)
open(sys.argv[1] + "/huge.safetensors", "wb").write(data)
PY
refuses 8 "computes numbers that are not finite from 60 of 60 images, the first of them" "$towers" eval "$work/huge.safetensors" --data-path "$work/list" --device cpu
[[ ! -s $out ]] || complain "scores of answers that are not finite: $(cat "$out")"

# ---- an index is made anew when the file changes, and a resumed run notices
sed 's/"upper left"/"lower left"/' "$work/good.csv" >"$work/list/train/labels.csv"
refuses '[1-9]' 'training data' "$towers" train "${net[@]}" --data-path "$work/list" "${common[@]}" --experiment four --towers 4 --processes 4 --batch-size 8 \
    "${mix[@]}" --max-steps 9 --resume auto

check_end "images with any number of classes"
