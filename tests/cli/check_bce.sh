#!/usr/bin/env bash
# --loss bce with one class for each image: training does not depend on how a batch is divided among towers, processes and accumulated
# batches, also with mixing, smoothing, weights of classes, damaged images and a frozen part; runs continue bit for bit, and not with
# another loss; eval, predict and export know the loss of a run and of a file; capsules replay; auxiliary heads take the same loss.
. "$1/tests/support/check.sh"
small_data "$work/data" 304 100 || exit $? # ten batches of 32, the last one half

train() { # NAME ARGUMENT...
    "$towers" train fashion_cnn --data-path "$work/data" --device cpu --threads 1 --output-dir "$work" --no-winograd --loss bce \
        --experiment "$@" >/dev/null 2>"$work/err" </dev/null
}
run() { train "$@" --max-steps 10 || complain "$1: exit $?: $(tail -2 "$work/err")"; }
column() { sed -E "s/.*\"$2\":([^,]*),.*/\1/" "$work/$1/metrics.jsonl"; }

# ---- towers are one batch
train start --towers 1 --max-steps 0 || complain "start: $(cat "$work/err")"
losses() { # NAME OTHER
    paste <(column "$1" mean_loss) <(column "$2" mean_loss) |
        awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-3 * $1) { print "step " NR ": " $0; bad = 1 } } END { exit bad || NR != 10 }' ||
        complain "$1 and $2: other mean losses"
}
compare() { # NAME OTHER
    local off
    off=$("$weights" close "$work/start/last.safetensors" "$work/$1/last.safetensors" "$work/$2/last.safetensors" 0.02 2>"$work/far") ||
        complain "$1 and $2 are not the same training: off by $off of the way: $(cat "$work/far")"
    losses "$1" "$2"
    echo "$1, $2: off by $off of the way"
}
# A rounding that moves one value over the edge of a ReLU makes half a percent in ten steps; at higher rates it grows to several percent.
mix=(--opt sgd --lr 0.05 --seed 4 --mixup 0.4 --cutmix 1 --smoothing 0.1 --class-weights auto)
run mixed --towers 1 --batch-size 32 "${mix[@]}"
run mixed-even --towers 4 --batch-size 8 "${mix[@]}"
run mixed-uneven --tower-batch 13,7,0,12 --processes 2 --workers 0 "${mix[@]}"
for other in even uneven; do compare mixed "mixed-$other"; done
run several --towers 1 --batch-size 8 --accumulate 4 "${mix[@]}"
run several-towers --towers 4 --batch-size 2 --accumulate 4 "${mix[@]}"
compare several several-towers
run frozen --towers 1 --batch-size 32 "${mix[@]}" --freeze 'conv1*'
run frozen-even --towers 4 --batch-size 8 "${mix[@]}" --freeze 'conv1*'
losses frozen frozen-even
# Each of the options changes the training; so the comparison would show it.
for without in mixup smoothing class-weights; do
    case $without in mixup) less=(--mixup 0 --cutmix 0) ;; smoothing) less=(--smoothing 0) ;; *) less=(--class-weights 0) ;; esac
    run "no-$without" --towers 1 --batch-size 32 "${mix[@]}" "${less[@]}"
    "$weights" close "$work/start/last.safetensors" "$work/mixed/last.safetensors" "$work/no-$without/last.safetensors" 0.1 >/dev/null 2>&1 &&
        complain "without --$without it is the same training"
done

# ---- the first loss: ten decisions of which every network that knows nothing answers with a half
run plain --towers 2 --batch-size 16 --opt sgd --lr 0.1
column plain mean_loss | awk 'NR == 1 && !($1 > 0.5 && $1 < 0.9) { print "the first loss is " $1 ", not about 0.693"; exit 1 }' || complain "the first loss"

# ---- a resumed run continues, but not with another loss
train whole --towers 2 --batch-size 16 "${mix[@]}" --max-steps 8 || complain "whole: $(cat "$work/err")"
train halves --towers 2 --batch-size 16 "${mix[@]}" --max-steps 4 || complain "halves: $(cat "$work/err")"
train halves --towers 2 --batch-size 16 "${mix[@]}" --max-steps 8 --resume auto || complain "halves: $(cat "$work/err")"
cmp "$work/whole/last.safetensors" "$work/halves/last.safetensors" || complain "a resumed run has other weights"
refuses '[1-9]' 'loss' "$towers" train fashion_cnn --data-path "$work/data" --device cpu --threads 1 --towers 2 --batch-size 16 "${mix[@]}" --loss softmax \
    --no-winograd --max-steps 10 --output-dir "$work" --experiment halves --resume auto
refuses '[1-9]' '--loss has no effect: wgan_gp predicts no classes' "$towers" train wgan_gp --dataset synthetic --device cpu --dry-run --loss bce

# ---- it learns, and eval knows the loss of the run
train learned --towers 2 --batch-size 16 --opt adam --lr 0.003 --epochs 8 || complain "learned: $(cat "$work/err")"
"$towers" eval "$work/learned" --device cpu --json >"$work/eval.json" 2>"$work/err" || complain "eval: $(cat "$work/err")"
python3 - "$work/eval.json" <<'PY' || complain "eval: $(cat "$work/eval.json" | head -c 200)"
import json, sys
result = json.load(open(sys.argv[1]))
assert result["top1"] > 0.5, result["top1"]
assert 0.01 < result["loss"] < 0.4, result["loss"]  # the mean over ten classes; softmax cross-entropy would be about ten times as much
PY

# ---- the weights say it, so that a file alone gives the probabilities of its run
{ printf 'P5 28 28 255\n'; head -c 784 "$towers"; } >"$work/image.pgm"
"$towers" predict "$work/start" "$work/image.pgm" --json --top 10 >"$work/wanted" 2>"$work/err" || complain "predict: $(cat "$work/err")"
"$towers" export "$work/start" "$work/out.safetensors" --quiet || complain "export"
for from in "$work/start/last.safetensors" "fashion_cnn --weights $work/start" "$work/out.safetensors"; do
    "$towers" predict $from "$work/image.pgm" --json --top 10 2>"$work/err" | cmp -s - "$work/wanted" || complain "predict $from is not that of the run: $(cat "$work/err")"
done
python3 -c 'import json, sys; assert sum(p["probability"] for p in json.load(sys.stdin)["predictions"]) > 2' <"$work/wanted" ||
    complain "the probabilities are those of a softmax: $(cat "$work/wanted")"

# ---- auxiliary heads: each loss in the record, and in the sum
"$towers" train googlenet --dataset synthetic --device cpu --threads 2 -b 2 --img-size 33 --classes 5 --loss bce --max-steps 1 --output-dir "$work" \
    --experiment aux >/dev/null 2>"$work/err" </dev/null || complain "aux: $(tail -2 "$work/err")"
python3 - "$work/aux/metrics.jsonl" <<'PY' || complain "aux: $(head -c 400 "$work/aux/metrics.jsonl")"
import json, sys
row = json.loads(open(sys.argv[1]).readline())
parts = [row["main_loss"], *row["aux_loss"]]
assert len(parts) == 3 and all(0.4 < part < 1.2 for part in parts), parts
assert abs(parts[0] + 0.3 * sum(parts[1:]) - row["mean_loss"]) < 1e-5, row
PY

# ---- a capsule has the targets and the weights of classes, and gives the same again
if TOWERS_FAULT=none: "$towers" train fashion_cnn --dry-run --data-path "$work/data" >/dev/null 2>&1; then
    left_out "the capsule: this binary has no fault points"
else
    TOWERS_FAULT="nan:tower=1,step=3,layer=conv2,activity=forward,index=7" train nan --towers 2 --batch-size 8 "${mix[@]}" --max-steps 10
    [[ $? == 8 ]] || complain "no NaN: $(tail -3 "$work/err")"
    "$towers" replay --device cpu --json "$work/nan/nan-step-3-tower-1" >"$work/replay" 2>"$work/err" </dev/null
    [[ $? == 8 ]] && grep -q '"as_in_the_run": true' "$work/replay" || complain "replay: $(tail -3 "$work/err")"
    for word in '"bce": true' '"several": false' '"positive_weights": true' '"mean": \[' '"std": \['; do
        grep -qr -- "$word" "$work/nan/nan-step-3-tower-1/" || complain "the capsule does not name $word"
    done
fi

check_end "--loss bce does not depend on towers"
