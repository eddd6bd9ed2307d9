#!/usr/bin/env bash
# Properties of towers: N towers of a batch equal one tower of N batches, whatever the shares; a tower's own loss is an unbiased
# estimate of the mean over all with N times the variance; and reporting options do not change training. Arguments: source folder,
# binary.
. "$1/tests/support/check.sh"
small_data "$work/data" 304 100 || exit $?  # ten batches of 32, the last one half
small_data "$work/long" 12800 50 || exit $? # 400 of them

run() { # NAME ARGUMENT...
    "$towers" train fashion_cnn --data-path "$work/data" --device cpu --threads 1 --max-steps 10 --output-dir "$work" --no-winograd \
        --experiment "$@" >/dev/null 2>"$work/err" </dev/null || complain "$1: exit $?: $(tail -2 "$work/err")"
}

# column NAME FIELD: that number of every step
column() {
    sed -E "s/.*\"$2\":([^,]*),.*/\1/" "$work/$1/metrics.jsonl"
}

# ---- a team that OMP_THREAD_LIMIT keeps smaller than --threads computes all the same, and nobody waits for who never comes
OMP_THREAD_LIMIT=1 timeout 200 "$towers" train fashion_cnn --data-path "$work/data" --device cpu --threads 2 --max-steps 2 --output-dir "$work" \
    --experiment limited >/dev/null 2>"$work/err" </dev/null || complain "OMP_THREAD_LIMIT=1 --threads 2: exit $?: $(tail -2 "$work/err")"

# ---- 4 towers x 8 = 1 tower x 32, in any shares, to float rounding. Of the way that each tensor went in ten steps,
# sums in another order cost 3e-6 (SGD) and 1e-4 (Adam, which divides small gradients by their size), and 2e-4 where a
# rounding tips a maximum or a ReLU the other way. One sample of 32 too few costs a hundred times as much. Direct
# convolutions: Winograd's leave 1e-9 where zero is exact (black pixels, biases at their start), and a ReLU that lets
# half of these through learns as well, but along a path that every rounding changes.
run start --towers 1 --max-steps 0
same_losses() { # as compare
    paste <(column "$1" mean_loss) <(column "$2" mean_loss) | awk -v part="$3" -v steps="${4:-10}" \
        '{ d = $1 - $2; if (d < 0) d = -d; if (d > part * $1) { print "step " NR ": " $0; bad = 1 } } END { exit bad || NR != steps }' ||
        complain "$1 and $2: other mean losses"
}
compare() { # NAME OTHER PART [STEPS]
    local off
    off=$("$weights" close "$work/start/last.safetensors" "$work/$1/last.safetensors" "$work/$2/last.safetensors" "$3" 2>"$work/far") ||
        complain "$1 and $2 are not the same training: off by $off of the way, wanted $3: $(cat "$work/far")"
    same_losses "$@"
    echo "$1, $2: off by $off of the way"
}
same_training() { # OPTIMIZER PART ARGUMENT...
    run "$1" --towers 1 --batch-size 32 --opt "${@:1:1}" "${@:3}"
    run "$1-even" --towers 4 --batch-size 8 --opt "${@:1:1}" "${@:3}"
    run "$1-uneven" --tower-batch 13,7,0,12 --opt "${@:1:1}" "${@:3}"
    run "$1-ends" --tower-batch 0,1,31,0 --opt "${@:1:1}" "${@:3}"
    for other in even uneven ends; do compare "$1" "$1-$other" "$2"; done
}
same_training sgd 1e-3 --lr 0.1
same_training momentum 1e-3 --lr 0.1 --weight-decay 0.001 --clip-norm 0.5
same_training adam 1e-3 --lr 0.001
# More towers than a byte counts, most of them without a sample in the second step. A rounding that tips a ReLU moves a step of
# four samples far, and whether it does depends on the processor: so weights after the first step, and the loss that they give.
for steps in 1 2; do
    run crowd-one-$steps --towers 1 --batch-size 300 --opt sgd --lr 0.1 --max-steps $steps
    run crowd-$steps --towers 300 --processes 2 --batch-size 1 --opt sgd --lr 0.1 --max-steps $steps
done
compare crowd-one-1 crowd-1 1e-3 1
same_losses crowd-one-2 crowd-2 1e-3 2
# A sample's dropout mask is that of its place in the step, whatever tower and batch it is in.
run masks --towers 1 --batch-size 32 --opt sgd --lr 0.1 --dropout 0.4
run masks-uneven --tower-batch 13,7,0,12 --opt sgd --lr 0.1 --dropout 0.4
run masks-batches --towers 1 --batch-size 8 --accumulate 4 --opt sgd --lr 0.1 --dropout 0.4
for other in uneven batches; do compare masks "masks-$other" 1e-3; done
run sgd-short --towers 1 --batch-size 31 --opt sgd --lr 0.1 # the comparison itself detects it
"$weights" close "$work/start/last.safetensors" "$work/sgd/last.safetensors" "$work/sgd-short/last.safetensors" 0.02 >/dev/null 2>&1 &&
    complain "another batch size is the same training?"

# The tower without samples has no loss, and the mean is that of the samples.
awk -F'"tower_loss":\\[|\\],"tower_count":\\[|\\],"finite"' '{
    losses = split($2, loss, ","); split($3, count, ","); sum = n = k = 0
    for (t = 1; t <= 4; t++) if (count[t] > 0) { sum += loss[++k] * count[t]; n += count[t] }
    match($0, /"mean_loss":[^,]*/); mean = substr($0, RSTART + 12, RLENGTH - 12)
    d = mean - sum / n; if (d < 0) d = -d
    if (losses != 3 || k != 3 || count[3] != 0 || d > 1e-12 * mean || n != (NR < 10 ? 32 : 16)) { print; bad = 1 }
} END { exit bad }' "$work/sgd-uneven/metrics.jsonl" || complain "the mean loss is not that of the samples"

# ---- as many batch sizes in a process as there are towers
run sizes --towers 20 --processes 1 --tower-batch "$(seq -s, 1 20)" --max-steps 2
[[ $(column sizes tower_count | head -1) == "[1" ]] || complain "20 batch sizes: $(head -c 300 "$work/sizes/metrics.jsonl")"

# ---- the towers of the first process have one slot for their gradients, and a part of the result
run slots --towers 10 --processes 2 --batch-size 1 --max-steps 1
awk -F'"sum over towers": ' '{ split($2, n, ","); exit !(n[1] >= 1.5 * 121930 * 4 && n[1] < 2 * 121930 * 4) }' "$work/slots/memory.json" ||
    complain "memory.json of 5 towers in a process: $(cat "$work/slots/memory.json")"

# ---- an epoch that is cut short has the mean loss of the steps it took, whatever losses are divided by
run cut --towers 2 --batch-size 16 --loss-divisor global-batch --max-steps 2
awk -F'"mean_loss":' '{ split($2, n, ","); sum += n[1] } END { print sum / NR }' "$work/cut/metrics.jsonl" >"$work/wanted"
grep -oE 'Loss: [0-9.]*' "$work/err" | head -1 | awk -v wanted="$(cat "$work/wanted")" '{ d = $2 - wanted; exit !(d < 1e-3 && d > -1e-3) }' ||
    complain "global-batch, an epoch of 2 steps: wanted $(cat "$work/wanted"): $(grep Loss "$work/err")"

# ---- what is reported does not change what is learnt
for report in last first mean worst all; do
    run "report-$report" --towers 4 --batch-size 8 --report-loss $report --log-interval 1
    grep '^step 3/' "$work/err" >"$work/line-$report"
    cmp "$work/report-last/last.safetensors" "$work/report-$report/last.safetensors" || complain "--report-loss $report: other weights"
done
grep -q "last_tower_loss $(column report-last last_tower_loss | awk 'NR == 3 { printf "%.4f", $1 }')" "$work/line-last" || complain "last: $(cat "$work/line-last")"
grep -q "mean_loss $(column report-last mean_loss | awk 'NR == 3 { printf "%.4f", $1 }')" "$work/line-mean" || complain "mean: $(cat "$work/line-mean")"
[[ $(sed -E 's/.*_loss ([0-9.]*) .*/\1/' "$work/line-last") != $(sed -E 's/.*_loss ([0-9.]*) .*/\1/' "$work/line-mean") ]] ||
    complain "last and mean print the same loss"
[[ $(grep -oE '\[[0-9. ]*\]' "$work/line-all" | wc -w) == 4 ]] || complain "all: $(cat "$work/line-all")"

# ---- weights that stand still: the last tower's loss has the mean of the mean loss, and 8 times its variance
run still --data-path "$work/long" --towers 8 --batch-size 4 --opt sgd --lr 0 --max-steps 400 --seed 1
paste <(column still mean_loss) <(column still last_tower_loss) | awk '{
    n++; a[n] = $1; b[n] = $2; ma += $1; mb += $2
} END {
    ma /= n; mb /= n
    for (i = 1; i <= n; i++) { va += (a[i] - ma) ^ 2; vb += (b[i] - mb) ^ 2; vd += (b[i] - a[i] - mb + ma) ^ 2 }
    va /= n - 1; vb /= n - 1; vd /= n - 1; error = sqrt(vd / n); d = mb - ma; if (d < 0) d = -d
    printf "400 steps at rest: mean loss %.5f, last tower %.5f (off by %.1f standard errors), variance ratio %.2f\n", ma, mb, d / error, vb / va
    exit !(n == 400 && d < 3 * error && vb / va > 6 && vb / va < 10)
}' || complain "the last tower's loss is biased, or not 8 times as noisy"

check_end "towers are one batch"
