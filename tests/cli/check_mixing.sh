#!/usr/bin/env bash
# Mixup, CutMix, weights of classes and the balanced sampler: training does not depend on how a batch is divided among towers, processes
# and accumulated batches; resumes continue bit for bit; capsules replay; `towers data show` names both classes of a mixed image.
. "$1/tests/support/check.sh"
needs_python
small_data "$work/data" 304 100 || exit $? # ten batches of 32, the last one half
printf '%s\n' T-shirt/top Trouser Pullover Dress Coat Sandal Shirt Sneaker Bag 'Ankle boot' >"$work/data/classes.txt"

run() { # NAME ARGUMENT...
    "$towers" train fashion_cnn --data-path "$work/data" --device cpu --threads 1 --max-steps 10 --output-dir "$work" --no-winograd \
        --experiment "$@" >/dev/null 2>"$work/err" </dev/null || complain "$1: exit $?: $(tail -2 "$work/err")"
}
refused() { # TEXT ARGUMENT...
    refuses '[1-9]' "$1" "$towers" train fashion_cnn --data-path "$work/data" --device cpu --dry-run "${@:2}"
}
column() { sed -E "s/.*\"$2\":([^,]*),.*/\1/" "$work/$1/metrics.jsonl"; }

# ---- towers are one batch (the parts of the way are those of check_towers.sh)
run start --towers 1 --max-steps 0
compare() { # NAME OTHER STEPS
    local off
    off=$("$weights" close "$work/start/last.safetensors" "$work/$1/last.safetensors" "$work/$2/last.safetensors" 1e-3 2>"$work/far") ||
        complain "$1 and $2 are not the same training: off by $off of the way: $(cat "$work/far")"
    paste <(column "$1" mean_loss) <(column "$2" mean_loss) |
        awk -v steps="$3" '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-3 * $1) { print "step " NR ": " $0; bad = 1 } } END { exit bad || NR != steps }' ||
        complain "$1 and $2: other mean losses"
    echo "$1, $2: off by $off of the way"
}
mix=(--opt sgd --lr 0.1 --seed 4 --mixup 0.4 --cutmix 1 --smoothing 0.1 --class-weights auto)
run mixed --towers 1 --batch-size 32 "${mix[@]}"
run mixed-even --towers 4 --batch-size 8 "${mix[@]}"
run mixed-uneven --tower-batch 13,7,0,12 --processes 2 --workers 0 "${mix[@]}"
for other in even uneven; do compare mixed "mixed-$other" 10; done
run several --towers 1 --batch-size 8 --accumulate 4 "${mix[@]}"
run several-towers --towers 4 --batch-size 2 --accumulate 4 "${mix[@]}"
compare several several-towers 10
# Each of the options changes the training; so the comparison would show it.
for without in mixup cutmix class-weights; do
    case $without in mixup) less=(--mixup 0) ;; cutmix) less=(--cutmix 0) ;; *) less=(--class-weights 0) ;; esac
    run "no-$without" --towers 1 --batch-size 32 "${mix[@]}" "${less[@]}"
    "$weights" close "$work/start/last.safetensors" "$work/mixed/last.safetensors" "$work/no-$without/last.safetensors" 0.02 >/dev/null 2>&1 &&
        complain "without --$without it is the same training"
done

# ---- weights of classes: a power, or a file by name; all equal is no weight; the divisor is the sum of weights
printf '%s\n' $'\xef\xbb\xbf# twice as much' 'T-shirt/top,2' 'Trouser,2' 'Pullover,2' 'Dress,2' 'Coat,2' 'Sandal,2' 'Shirt,2' 'Sneaker,2' '8,2' 'Ankle boot,2' >"$work/twos"
run plain --towers 2 --batch-size 16 --opt sgd --lr 0.1 --summary-interval 1
run doubled --towers 2 --batch-size 16 --opt sgd --lr 0.1 --class-weights "$work/twos" --summary-interval 1 --loss-scale 64
paste <(column doubled weight) <(column doubled images) | awk '$1 != 2 * $2 { exit 1 }' || complain "weights of samples that count twice: $(column doubled weight)"
grep -q '"weight"' "$work/plain/metrics.jsonl" && complain "weights of classes in a run without them"
grep -q 'class_weights.*, Dress 2, ' "$work/doubled/report.html" || complain "the report does not show the weights of the classes"
compare plain doubled 10
python3 - "$work/plain" "$work/doubled" <<'PYTHON' || complain "other records of the gradients"
import json, sys
for name, values in (("metrics", lambda row: row["tower_grad_norm"]), ("layers", lambda row: [pair[1] for pair in row["layers"].values()])):
    plain, doubled = ([values(json.loads(line)) for line in open(f"{run}/{name}.jsonl")] for run in sys.argv[1:])
    assert len(plain) == 10
    for step, (a, b) in enumerate(zip(plain, doubled)):
        assert all(abs(x - y) <= 0.01 * x for x, y in zip(a, b)), (name, step, a, b)
PYTHON
sed 5d "$work/twos" >"$work/short"
sed 's/Coat,2/Coat,-1/' "$work/twos" >"$work/negative"
sed 's/Coat,2/Cloak,2/' "$work/twos" >"$work/unknown"
refused "has no weight for class 3 (Dress)" --class-weights "$work/short"
refused "line 6: expected CLASS,WEIGHT with a weight above 0" --class-weights "$work/negative"
refused "line 6: there is no class 'Cloak'" --class-weights "$work/unknown"
refused "--class-weights 11: expected a power from 0 to 10" --class-weights 11
sed 's/,/,  /' "$work/twos" >"$work/blanks" # as a person writes lists
"$towers" train fashion_cnn --data-path "$work/data" --device cpu --dry-run --class-weights "$work/blanks" --mean '0.4, 0.5, 0.6' --std '0.2,  0.2,0.2' \
    >/dev/null 2>"$work/err" </dev/null || complain "blanks behind commas: $(tail -2 "$work/err")"
for hex in 0x2 0X1p1; do
    sed "s/Coat,2/Coat,$hex/" "$work/twos" >"$work/hex"
    refused "line 6: expected CLASS,WEIGHT with a weight above 0" --class-weights "$work/hex"
    refused "--class-weights '$hex': expected auto, a power such as 0.5, or a file" --class-weights $hex
    refused "--mean '$hex': expected one number or three" --mean $hex --std 1
    refused "--std '1,$hex,1': expected one number or three" --mean 0 --std 1,$hex,1
done
refused "--class-weights '0,5': expected auto, a power such as 0.5, or a file with lines CLASS,WEIGHT: there is no such file" --class-weights 0,5
"$towers" train wgan_gp --dataset synthetic --device cpu --dry-run --mixup 0.2 >/dev/null 2>"$work/err" && complain "a GAN with --mixup"
grep -q -- '--mixup has no effect: wgan_gp predicts no classes' "$work/err" || complain "wgan_gp --mixup: $(cat "$work/err")"

# ---- the balanced sampler: classes equally often, written by --log-samples; a resumed run continues bit for bit
run whole --towers 2 --batch-size 16 --sampler balanced --log-samples --checkpoint-steps 4 "${mix[@]}"
run halves --towers 2 --batch-size 16 --sampler balanced --log-samples --checkpoint-steps 4 "${mix[@]}" --max-steps 4
run halves --towers 2 --batch-size 16 --sampler balanced --log-samples --checkpoint-steps 4 "${mix[@]}" --resume auto
cmp "$work/whole/last.safetensors" "$work/halves/last.safetensors" || complain "a resumed run with mixing has other weights"
sort "$work/whole/samples.csv" >"$work/wanted"
sort "$work/halves/samples.csv" | cmp - "$work/wanted" || complain "a resumed run takes other samples"
cut -d, -f4 "$work/whole/samples.csv" | tr ' ' '\n' | sort -n | uniq -c | awk '$1 > 1 { again++ } { n += $1 } END { exit !(n == 304 && again > 20) }' ||
    complain "304 samples drawn with replacement: $(head -c 300 "$work/whole/samples.csv")"
run halves-other --towers 2 --batch-size 16 --sampler balanced "${mix[@]}" --max-steps 4
"$towers" train fashion_cnn --data-path "$work/data" --device cpu --threads 1 --towers 2 --batch-size 16 --sampler balanced "${mix[@]}" --class-weights 0.5 \
    --max-steps 6 --output-dir "$work" --experiment halves-other --resume auto >/dev/null 2>"$work/err" </dev/null && complain "resumed with other weights of classes"
grep -q 'weights of classes' "$work/err" || complain "resume with other weights of classes: $(cat "$work/err")"

# ---- a capsule has what was mixed, and gives the same again
if TOWERS_FAULT=none: "$towers" train fashion_cnn --dry-run --data-path "$work/data" >/dev/null 2>&1; then
    left_out "the capsule: this binary has no fault points"
else
    TOWERS_FAULT="nan:tower=1,step=3,layer=conv2,activity=forward,index=7" "$towers" train fashion_cnn --data-path "$work/data" --device cpu \
        --threads 1 --towers 2 --batch-size 8 --output-dir "$work" --experiment nan "${mix[@]}" >/dev/null 2>"$work/err" </dev/null
    [[ $? == 8 ]] || complain "no NaN: $(tail -3 "$work/err")"
    grep -q '    mixed with number [0-9]* (.*), whose share is 0\.' "$work/err" || complain "the partner is not named: $(cat "$work/err")"
    "$towers" replay --device cpu --json "$work/nan/nan-step-3-tower-1" >"$work/replay" 2>"$work/err" </dev/null
    [[ $? == 8 ]] && grep -q '"as_in_the_run": true' "$work/replay" || complain "replay: $(tail -3 "$work/err")"
    grep -q '"partner_share"' "$work/nan/nan-step-3-tower-1/state.json" || complain "the capsule does not name partners"
fi

# ---- the plan of memory has the image more that each batch decodes, of 28 x 28 pixels
inputs() { "$towers" info fashion_cnn --device cpu --batch-size 4 "$@" | awk '$1 == "inputs" { print $2 }'; }
(($(inputs --mixup 0.2) >= $(inputs) + 28 * 28)) || complain "info plans $(inputs --mixup 0.2) bytes of inputs with mixing, $(inputs) without"

# ---- people see both classes
"$towers" data show "$work/data" --img-size 28 --mixup 1 --sheet "$work/sheet.png" >"$work/shown" 2>"$work/err" || complain "data show: $(cat "$work/err")"
[[ $(grep -cE '^row [0-9], column [0-9]: 0\.[0-9]+ [A-Za-z/ -]+ \+ 0\.[0-9]+ [A-Za-z/ -]+  ' "$work/shown") == 25 ]] || complain "data show: $(head -3 "$work/shown")"
"$towers" data show "$work/data" --img-size 28 --sheet "$work/sheet.png" | grep -q ' + ' && complain "data show mixes without being asked"
grep -q ' + 0\.' "$work/mixed/first-batch.csv" || complain "first-batch.csv: $(head -3 "$work/mixed/first-batch.csv")"

check_end "mixing does not depend on towers"
