#!/usr/bin/env bash
# Training in phases, on WGAN-GP: N towers compute what one computes, in any shares and any number of processes; runs that are
# stopped, killed, rolled back or branched in the middle of a cycle end with the same bits; a NaN names tower, phase and layer and can
# be replayed; what a generator cannot do is refused by name. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
small_data "$work/data" 304 50 || exit $? # 4.75 batches of 64

model=wgan_gp
# run STATUS NAME ARGUMENT...
run() {
    timeout -s KILL 300 "$towers" train $model --width 4 --data-path "$work/data" --device cpu --threads 1 --max-steps 20 --output-dir "$work" \
        --experiment "${@:2}" >"$out" 2>"$err" </dev/null
    local status=$?
    [[ $status == "$1" ]] || complain "$2: exit $status, wanted $1: $(tail -3 "$err")"
}
same() { # NAME OTHER
    cmp "$work/$1/last.safetensors" "$work/$2/last.safetensors" || complain "$1 and $2: other weights"
}
column() { # NAME FIELD: that word or number of every step
    sed -E "s/.*\"$2\":\"?([^,\"]*)\"?,.*/\1/" "$work/$1/metrics.jsonl"
}

# ---- towers are one batch
run 0 start --max-steps 0
towers_are_one() { # NAME PART ARGUMENT... The bias of the score cancels in the difference of two scores.
    run 0 "$1" --towers 1 --batch-size 64 "${@:3}"
    cp "$err" "$work/$1.err"
    run 0 "$1-even" --towers 4 --batch-size 16 --processes 4 "${@:3}"
    run 0 "$1-uneven" --tower-batch 0,29,15,20 --processes 4 "${@:3}" # the first process has no samples
    run 0 "$1-ends" --tower-batch 0,1,63,0 --processes 2 "${@:3}"
    for other in even uneven ends; do
        off=$("$weights" close "$work/start/last.safetensors" "$work/$1/last.safetensors" "$work/$1-$other/last.safetensors" "$2" critic.score.bias 2>"$work/far") ||
            complain "$1 and $1-$other are not the same training: off by $off of the way, wanted $2: $(cat "$work/far")"
        echo "$1, $other: off by $off of the way"
        paste <(column "$1" mean_loss) <(column "$1-$other" mean_loss) |
            awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4) { print "step " NR ": " $0; bad = 1 } } END { exit bad || NR != 20 }' ||
            complain "$1 and $1-$other: other mean losses"
    done
}
towers_are_one sgd 1e-3 --opt sgd --lr 0.002
towers_are_one adam 2e-2 --recipe iwt # divides by small second moments, which enlarges roundings
run 0 short --opt sgd --lr 0.002 --towers 1 --batch-size 63 # the comparison itself detects it
"$weights" close "$work/start/last.safetensors" "$work/sgd/last.safetensors" "$work/short/last.safetensors" 0.02 critic.score.bias >/dev/null 2>&1 &&
    complain "another batch size is the same training?"
# The generator of the Keras example has batch norm, whose statistics are then those of all towers.
model=wgan_gp_keras
run 0 keras-start --recipe keras --global-batch-size 12 --max-steps 0
run 0 keras --recipe keras --opt sgd --lr 0.01 --global-batch-size 12 --max-steps 8
run 0 keras-two --recipe keras --opt sgd --lr 0.01 --global-batch-size 12 --max-steps 8 --towers 2 --processes 2
run 0 keras-uneven --recipe keras --opt sgd --lr 0.01 --tower-batch 7,0,5 --max-steps 8 --processes 3
for other in two uneven; do
    off=$("$weights" close "$work/keras-start/last.safetensors" "$work/keras/last.safetensors" "$work/keras-$other/last.safetensors" 1e-3 \
        critic.score.bias 2>"$work/far") || complain "keras and keras-$other: off by $off of the way: $(cat "$work/far")"
    echo "keras, $other: off by $off of the way"
done
model=wgan_gp
run 0 sgd-even-one --towers 4 --batch-size 16 --processes 1 --opt sgd --lr 0.002
same sgd-even sgd-even-one
[[ $(column adam phase | tr '\n' ' ') == "critic critic critic critic critic generator critic "* ]] || complain "phases: $(column adam phase)"

grep -A1 -E '"(critic|generator)": \{' "$work/sgd/ckpt/step-0000000020/state.json" | tr -d " \n" | grep -qF '"critic":{"updates":17,--"generator":{"updates":3,' ||
    complain "updates of the phases: $(grep updates "$work/sgd/ckpt/step-0000000020/state.json")"

# Means over samples, not of means; the empty tower has none.
awk -F'"penalty":\\[|\\],"slope"|"tower_count":\\[|\\],"finite"|"penalty":' '/"critic"/ {
    split($2, count, ","); mean = $4 + 0; listed = split($5, tower, ","); sum = n = k = 0
    for (t = 1; t <= 4; t++) if (count[t] > 0) { sum += tower[++k] * count[t]; n += count[t] }
    d = mean - sum / n; if (d < 0) d = -d
    if (listed != k || count[1] != 0 || (n != 64 && n != 48) || d > 1e-9 + 1e-9 * mean) { print; bad = 1 }
} END { exit bad }' "$work/sgd-uneven/metrics.jsonl" || complain "the penalty is not the mean over the samples"

# The console shows how a GAN fares; the estimate is that of the record.
grep -qE "critic -?[0-9.]+  generator -?[0-9.]+  wasserstein -?[0-9.e-]+  penalty [0-9.e-]+  slope [0-9.]+  lr" "$work/adam.err" || complain "console: $(cat "$work/adam.err")"
paste <(column adam wasserstein) <(column adam critic_real) <(column adam critic_fake) |
    awk '$1 !~ /step/ { d = $1 - ($2 - $3); if (d < 0) d = -d; n++; if (d > 1e-5) { print; bad = 1 } } END { exit bad || n != 17 }' ||
    complain "the Wasserstein estimate is not mean D(x) - mean D(G(z))"

# ---- compared phase by phase
"$towers" compare "$work/sgd-even" "$work/sgd-uneven" >"$out" 2>&1 || complain "compare: $(cat "$out")"
[[ $(grep -c "phase critic: 17 steps" "$out") == 2 && $(grep -c "phase generator: 3 steps" "$out") == 2 ]] || complain "compare: $(cat "$out")"
[[ $(grep -c '^  mean_loss .* [+-][0-9.]*e-0[5-9]' "$out") == 2 ]] || complain "compare of equal runs: $(grep '^  mean_loss' "$out")"
for term in wasserstein critic_real critic_fake penalty slope slope_spread; do # of each run, and of both
    [[ $(grep -cE "^  $term +-?[0-9]" "$out") == 3 ]] || complain "compare has no row of the $term: $(cat "$out")"
    grep -qE "^  $term +-?[0-9.e-]+ +-?[0-9.e-]+ +[+-][0-9.]+(e-(0[4-9]|1[0-9]))? .* p = " "$out" || complain "compare of equal runs: $(grep "^  $term" "$out")"
done
grep -q "Terms that differ" "$out" && complain "terms of equal runs differ: $(grep "Terms" "$out")"
grep -q "test accuracy" "$out" && complain "compare has a row of the accuracy of a GAN"
run 0 free --towers 4 --batch-size 16 --processes 2 --opt sgd --lr 0.002 --penalty-weight 0
"$towers" compare "$work/sgd-even" "$work/sgd-uneven" "$work/free" >"$out" 2>&1 || complain "compare: $(cat "$out")"
grep -q "No ranking: the losses of phases that train against each other" "$out" && ! grep -q "Ranking by" "$out" || complain "GANs are ranked: $(cat "$out")"
"$towers" compare "$work/sgd-even" "$work/free" --json >"$out" 2>&1 || complain "compare --json: $(cat "$out")"
tr -d ' \n' <"$out" | grep -q '"terms":\[{"term":"wasserstein","mean":[-0-9.]*,"mean_noise":' && tr -d ' \n' <"$out" | grep -q '"terms":\[{"term":"wasserstein","a":' ||
    complain "compare --json has no terms: $(cat "$out")"

# ---- the terms on the console are those of the loss beside them
for report in last first; do
    run 0 "shown-$report" --towers 2 --batch-size 8 --max-steps 5 --report-loss $report --log-interval 1
    of=$(sed -n 's/.*"tower_terms":{"wasserstein":\[\([^]]*\)\].*/\1/p' "$work/shown-$report/metrics.jsonl" | sed -n 5p)
    [[ $report == last ]] && value=${of#*,} || value=${of%,*}
    grep -qF "wasserstein $(printf '%.4g' "$value") " "$err" || complain "--report-loss $report: wanted the estimate $value: $(tail -3 "$err")"
done
"$towers" report "$work/sgd-even" >"$out" 2>&1 || complain "report: $(cat "$out")"
grep -q "those of the phase critic" "$work/sgd-even/report.html" || complain "the report does not say whose losses it shows"
for term in wasserstein penalty slope; do
    grep -q "<h3>$term</h3>" "$work/sgd-even/report.html" || complain "the report has no plot of the $term"
done
grep -q "<h3>Loss of the phase generator</h3>" "$work/sgd-even/report.html" || complain "the report has no curve of the generator's loss"
grep -q "<h3>Accuracy</h3>" "$work/sgd-even/report.html" && complain "the report has an empty plot of the accuracy"

# ---- stopped in the middle of a cycle, with either kind of batches
for batches in new same; do
    args=(--towers 2 --batch-size 16 --critic-batches $batches --critic-steps 3 --ema-decay 0.9)
    run 0 "whole-$batches" "${args[@]}"
    for stop in 2 3 4 9; do
        run 0 "part-$batches" "${args[@]}" --max-steps $stop --checkpoint-steps 1
        run 0 "part-$batches" --resume "$work/part-$batches" --max-steps 20 # with the settings of the run
        same "whole-$batches" "part-$batches"
        cmp <(column "whole-$batches" mean_loss) <(column "part-$batches" mean_loss) || complain "$batches, stopped after $stop: other losses"
        rm -r "$work/part-$batches"
    done
done
run 0 kept --towers 2 --batch-size 16 --critic-steps 3 --ema-decay 0.9 --checkpoint-steps 7
timeout 300 "$towers" train --resume "$work/kept/ckpt/step-0000000014" --data-path "$work/data" --output-dir "$work" --experiment branch \
    >/dev/null 2>"$err" </dev/null || complain "branch: $(tail -2 "$err")"
same whole-new branch
[[ $(column whole-same mean_loss | sed -n 2p) != $(column whole-new mean_loss | sed -n 2p) ]] || complain "new and same batches are the same"

# ---- a killed run
if TOWERS_FAULT=none: "$towers" train fashion_cnn --dry-run --data-path "$work/data" >/dev/null 2>&1; then
    left_out "kills and NaN: this binary has no fault points"
else
    kills=${TOWERS_TEST_KILLS:-10} seed=${TOWERS_TEST_SEED:-$$}
    echo "seed $seed"
    RANDOM=$seed
    steps=$((kills * 12))
    command_of() {
        command=("$towers" train wgan_gp --width 4 --data-path "$work/data" --towers 2 --processes 2 --threads 1 --batch-size 4 --max-steps $steps
            --critic-steps 3 --critic-batches same --checkpoint-steps 2 --summary-interval 0 --device cpu --output-dir "$work" --experiment "$1"
            --resume auto --quiet)
    }
    command_of golden
    "${command[@]}" >/dev/null 2>"$err" </dev/null || complain "golden: $(tail -2 "$err")"
    command_of killed
    step=0 done_kills=0
    for ((k = 0; k < kills; k++)); do
        before=$step
        TOWERS_FAULT="delay:tower=1,step=1,ms=10" "${command[@]}" >/dev/null 2>"$err" </dev/null &
        pid=$!
        further=$((1 + RANDOM % 10))
        until { read -r text <"$work/killed/ckpt/latest"; } 2>/dev/null && step=$((10#${text#step-})) && ((step >= before + further)) ||
            ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
        victim=$pid
        ((RANDOM % 2)) && victim=$(pgrep -P "$pid" "tower$((RANDOM % 2))" || echo "$pid")
        kill -9 "$victim" 2>/dev/null
        { wait "$pid"; } 2>/dev/null
        status=$?
        [[ $status == 0 ]] && break
        [[ $status == 137 || $status == 7 ]] || { complain "kill $k: exit $status: $(tail -2 "$err")"; break; }
        done_kills=$((done_kills + 1))
    done
    ((done_kills >= kills * 2 / 3)) || complain "seed $seed: only $done_kills kills"
    "${command[@]}" >/dev/null 2>"$err" </dev/null || complain "the last resume: $(tail -2 "$err")"
    same golden killed
    cmp <(column golden mean_loss) <(column killed mean_loss) || complain "seed $seed: other losses after kills"

    # ---- the rows of the loss vector that are not finite: the last tower's loss hides another's NaN, and Inf is no NaN
    args=(--towers 2 --processes 2 --batch-size 8 --max-steps 4)
    TOWERS_FAULT="nan:tower=0,step=2,where=loss" run 0 hidden-nan "${args[@]}" --nan-check last
    TOWERS_FAULT="inf:tower=1,step=2,where=loss" run 0 hidden-inf "${args[@]}" --nan-check last
    TOWERS_FAULT="nan:tower=1,step=2,where=loss" run 8 shown-nan "${args[@]}" --nan-check last
    for fault in nan:tower=0 inf:tower=1; do TOWERS_FAULT="$fault,step=2,where=loss" run 8 "shown-$fault" "${args[@]}" --nan-check mean; done

    # ---- a NaN in either phase
    args=(--towers 2 --processes 2 --batch-size 8)
    TOWERS_FAULT="nan:tower=1,step=6,layer=generator.deconv1,index=7" run 8 nan-generator "${args[@]}"
    grep -q "tower 1, step 6 (generator)" "$err" && grep -q "layer generator.deconv1 .* element 7 " "$err" || complain "nan-generator: $(cat "$err")"
    "$towers" replay "$work/nan-generator/nan-step-6-tower-1" >"$out" 2>&1 </dev/null
    grep -q "(as in the run)" "$out" || complain "replay of a generator's step: $(tail -3 "$out")"
    TOWERS_FAULT="nan:tower=0,step=9,layer=critic.both.conv2" run 8 nan-critic "${args[@]}"
    grep -q "tower 0, step 9 (critic)" "$err" && grep -q "layer critic.both.conv2" "$err" || complain "nan-critic: $(cat "$err")"
    "$towers" replay "$work/nan-critic/nan-step-9-tower-0" >"$out" 2>&1 </dev/null
    grep -q "(as in the run)" "$out" || complain "replay of a critic's step: $(tail -3 "$out")"
    TOWERS_FAULT="nan:tower=0,step=9,where=grad;nan:tower=1,step=12,where=grad" run 0 nan-skip "${args[@]}" --nan-policy skip
    grep -q "gradient of generator" "$err" || complain "the search finds the gradient of another phase: $(cat "$err")"
    [[ $(grep -c '"skipped":true' "$work/nan-skip/metrics.jsonl") == 2 ]] || complain "nan-skip: $(column nan-skip skipped)"
    for fault in "nan:tower=1,step=11,where=grad" "nan:tower=1,step=12,where=grad"; do
        TOWERS_FAULT=$fault run 0 nan-back "${args[@]}" --nan-policy rollback --checkpoint-steps 4
        TOWERS_FAULT=$fault run 0 nan-left "${args[@]}" --nan-policy skip
        same nan-back nan-left
        rm -r "$work/nan-back" "$work/nan-left"
    done
    TOWERS_FAULT="nan:tower=1,step=3" run 0 nan-first "${args[@]}" --nan-policy rollback # to step 0, whose grid stays recorded
    head -n 1 "$work/nan-first/generated.jsonl" | grep -q '^{"step":0,' || complain "nan-first: $(cat "$work/nan-first/generated.jsonl")"
    TOWERS_FAULT="bitflip:tower=1,step=5" run 8 flipped "${args[@]}" --sdc-check 1
    grep -q "the replicas of tower 0 and tower 1 differ" "$err" || complain "bitflip: $(cat "$err")"
fi

# ---- the sizes of the networks; Keras counts the running averages as parameters, 910,660 in all
"$towers" info wgan_gp_keras --device cpu >"$out" 2>&1 || complain "info: $(tail -2 "$out")"
grep -q "critic: 4305409 parameters, 0 running averages" "$out" && grep -q "generator: 902082 parameters, 8578 running averages" "$out" ||
    complain "info: $(grep -E '^  (critic|generator)' "$out")"
[[ $(grep -cE "^  phase (critic|generator): [0-9.]+ MiB of activations" "$out") == 2 ]] || complain "info plans the memory of one phase: $(cat "$out")"
[[ $("$towers" models | grep -c '^wgan_gp.* 28  *-  *[0-9]') == 2 ]] || complain "towers models: $("$towers" models | grep wgan)"

# ---- beside a classifier, and timed
"$towers" train fashion_cnn --data-path "$work/data" --device cpu --max-steps 2 --output-dir "$work" --experiment classifier --quiet >"$out" 2>&1 ||
    complain "classifier: $(tail -2 "$out")"
"$towers" compare "$work/classifier" "$work/sgd-even" >"$out" 2>&1 || complain "compare: $(cat "$out")"
grep -q "not compared with .*/classifier, which has no phase generator" "$out" || complain "a classifier is compared with a GAN: $(cat "$out")"
grep -q "nan" "$out" && complain "compare: $(grep nan "$out")"
"$towers" bench wgan_gp --width 2 --device cpu --batch-size 4 --data-path "$work/data" --batches 30 >"$out" 2>&1 || complain "bench: $(tail -2 "$out")"
grep -q "images/sec" "$out" && ! grep -q nan "$out" || complain "bench shows no losses: $(cat "$out")"
grep -qE "^critic: 25 steps, [0-9.]+ ms each, images/sec: " "$out" && grep -qE "^generator: 5 steps, " "$out" || complain "bench has no phases: $(cat "$out")"
grep -qP "^20\timages/sec: .*\t(critic|generator)$" "$out" || complain "bench does not name the phase: $(cat "$out")"
"$towers" bench wgan_gp --width 2 --device cpu --batch-size 4 --data-path "$work/data" --warmup-batches 2 --batches 30 --json >"$out" 2>&1 || complain "bench: $(tail -2 "$out")"
sed -E 's/.*"images_per_sec":([^,]*),.*"phases":\[\{"phase":"critic","num_steps":([0-9]+),"images_per_sec":([^,]*),.*"average_wall_time":([^}]*)\},\{"phase":"generator","num_steps":([0-9]+),"images_per_sec":([^,]*),.*"average_wall_time":([^}]*)\}.*/\1 \2 \3 \4 \5 \6 \7/' "$out" |
    awk 'function off(a, b) { return a > 1.001 * b || b > 1.001 * a }
        NF != 7 || $2 != 25 || $5 != 5 || off($3 * $4, 4) || off($6 * $7, 4) || off($1 * (25 * $4 + 5 * $7), 100) { print; exit 1 }' ||
    complain "bench --json: $(cat "$out")"

# ---- refusals
refused() { # STATUS WORDS ARGUMENT...
    run "$1" refused "${@:3}" --max-steps 1
    grep -q -- "$2" "$err" || complain "${*:3}: $(tail -2 "$err")"
    rm -rf "$work/refused"
}
refused 2 "--smoothing has no effect: wgan_gp predicts no classes" --smoothing 0.1
refused 2 "--dropout has no effect: wgan_gp has no dropout" --dropout 0.5
refused 2 "--drop-path has no effect: wgan_gp has neither stochastic depth nor residual sums" --drop-path 0.1
refused 2 "--eval-interval has no effect" --eval-interval 2
refused 2 "leaves the phase generator nothing to train" --freeze "generator.*"
refused 5 "sums of its gradient penalty would be rounded to 16 bits" --amp
refused 5 "--accumulate: wgan_gp trains in phases" --accumulate 2
refused 5 "--log-style tf2016: its lines have one loss" --log-style tf2016
refused 5 "--bad-samples skip" --bad-samples skip
"$towers" train fashion_cnn --critic-steps 3 --dry-run --data-path "$work/data" >"$out" 2>&1 && complain "fashion_cnn --critic-steps"
grep -q -- "--critic-steps has no effect: fashion_cnn has no critic" "$out" || complain "fashion_cnn --critic-steps: $(cat "$out")"
refused 2 "then model: fashion_cnn, now model: wgan_gp" --resume "$work/classifier"
"$towers" eval "$work/adam" >"$out" 2>&1 && complain "eval of a GAN"
grep -q "wgan_gp predicts no classes" "$out" || complain "eval: $(cat "$out")"
"$towers" train wgan_gp_keras --recipe keras --towers 2 --processes 1 --global-batch-size 4 --data-path "$work/data" --dry-run >"$out" 2>&1 &&
    complain "synchronized batch norm in one process"
grep -q "needs one process per tower" "$out" || complain "keras in one process: $(cat "$out")"

check_end "phases"
