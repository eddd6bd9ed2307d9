#!/usr/bin/env bash
# A file that a command writes where its user says replaces earlier results of its own kind, and nothing else: no weights, no records, no
# pictures, no notes. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
small_data "$work/small" 60 30 || exit $?

python3 - <<'PYTHON'
import os
for part in ("train", "val"):
    for number, name in enumerate(("ant", "bee")):
        os.makedirs(f"set/{part}/{name}")
        for i in range(4):
            open(f"set/{part}/{name}/{i}.ppm", "wb").write(b"P6 16 16 255\n" + bytes((40 * number + 9 * i + k) & 255 for k in range(768)))
PYTHON
quiet=(--device cpu --quiet --max-steps 2 -b 4)
"$towers" train fashion_cnn --data-path set "${quiet[@]}" --experiment one >out 2>err || complain "train: $(cat err)"
"$towers" train wgan_gp --data-path small "${quiet[@]}" --experiment gan >out 2>err || complain "train: $(cat err)"
cp -r runs/one runs/two
"$towers" data show set -o sheet.png >out 2>err || complain "a sheet: $(cat err)"
cp sheet.png set/train/ant/4.png

# ---- twice: the second time over the results of the first one, and over an empty file
results=("eval runs/one --errors mistakes.csv" "eval runs/one --class-scores classes.csv" "predict runs/one set/val/ant/0.ppm --embeddings seen.npy"
    "data show set -o sheet.png" "generate runs/gan -o made.png" "compare runs/one runs/two -o page.html" "card runs/one -o card.md"
    "export runs/one net.safetensors" "export runs/one net.onnx")
for result in "${results[@]}"; do
    read -ra words <<<"$result"
    for time in 1 2 3; do
        ((time < 3)) || : >"${words[-1]}"
        "$towers" "${words[@]}" >out 2>err </dev/null || complain "$result, time $time: $(cat err)"
        [[ -s ${words[-1]} ]] || complain "$result, time $time: nothing is written"
    done
done

# ---- over something else
echo 'my own notes' >notes
printf '# My project\n\nWhat it is.\n' >README.md
sha256sum notes set/*/*/* runs/*/*.* *.csv *.npy *.md *.html net.* >before
for result in "${results[@]}"; do
    read -ra words <<<"$result"
    own=${words[-1]}
    for other in notes runs/two/results.csv runs/two/best.safetensors runs/two/outcome.json set/val/bee/0.ppm mistakes.csv net.onnx card.md; do
        [[ $other != "$own" && ! ($own == net.* && $other == *.safetensors) ]] || continue
        if [[ $own == *.png ]]; then cp "$other" other.png && other=other.png; fi
        if [[ $own == net.* ]]; then words=("${words[@]:0:2}" "$other" --format "${own#net.}"); else words[-1]=$other; fi
        refuses 2 "$other: this file exists and is not" "$towers" "${words[@]}"
    done
done
refuses 2 "README.md: this file exists and is not the card of a run" "$towers" card runs/one -o README.md
refuses 2 "set/train/ant/4.png: this file exists in 'set', of which no image is replaced" "$towers" data show set -o set/train/ant/4.png
for folder in set/train/ant listed; do # images beside no folders, and those of a list
    [[ $folder == listed ]] && mkdir -p listed/more && cp set/train/ant/4.png listed/4.png && cp set/train/bee/0.ppm listed/more/0.ppm && printf '%s\n' file,labels 4.png,ant more/0.ppm,bee >listed/labels.csv
    refuses 2 "$folder/4.png: this file exists in '$folder', of which no image is replaced" "$towers" data show "$folder" -o "$folder/4.png"
done
cmp -s set/train/ant/4.png listed/4.png || complain "an image of a list was replaced"
for time in 1 2; do # where a person is in the folder of the set, which has its images below
    (cd set && "$towers" data show .) >out 2>err </dev/null || complain "data show . in a set, time $time: $(cat err)"
done
rm set/sheet.png
gauges=(train fashion_cnn --data-path set "${quiet[@]}" --prometheus)
for time in 1 2; do
    "$towers" "${gauges[@]}" own.prom --experiment "gauges-$time" >out 2>err </dev/null || complain "--prometheus, time $time: $(cat err)"
done
echo 'node_backups_total 3' >node.prom # of another program, in the folder that all write to
refuses 2 "--prometheus node.prom: this file exists and is not numbers of a run" "$towers" "${gauges[@]}" node.prom --experiment never
[[ $(cat node.prom) == 'node_backups_total 3' && ! -e runs/never ]] || complain "the numbers of another program were replaced"
for weights in best last; do
    refuses 2 "runs/two/$weights.safetensors is the name of weights that a run records" "$towers" export runs/one runs/two/$weights.safetensors
done
sha256sum --quiet -c before || complain "something was replaced"

check_end "a file that a command writes replaces earlier results of its kind alone"
