#!/usr/bin/env bash
# The result of a run depends only on its settings and seed: not on chance, on the number of reader threads or processes, or on having
# been killed and resumed. Weights, metrics and epoch results are compared bit for bit, for a network without and one with batch norm,
# dropout and weight averaging.
. "$1/tests/support/check.sh"
small_data "$work/data" 203 90 || exit $? # a last batch of 11 of 16
needs_faults "$work/data"

model=fashion_cnn extra=()
command_of() { # NAME ARGUMENT...
    command=("$towers" train "$model" --data-path "$work/data" --device cpu --threads 1 --output-dir "$work" --log-interval 1 --eval-batch-size 20
        --experiment "$model-$1" "${extra[@]}" "${@:2}")
}

# ended STATUS NAME ARGUMENT...
ended() {
    local wanted=$1 status
    shift
    command_of "$@"
    timeout -s KILL 200 "${command[@]}" 2>"$work/err" >/dev/null </dev/null
    status=$?
    [[ $status == "$wanted" ]] || complain "$model $1: exit $status instead of $wanted: $(tail -3 "$work/err")"
}

# 20 steps of 2 towers x 8: an epoch is 13, the second one is cut short
run() { # STATUS NAME ARGUMENT...
    ended "$1" "$2" --towers 2 --batch-size 8 --max-steps 20 "${@:3}"
}

# The records of a run, without times.
rows() {
    timeless "$1/metrics.jsonl"
    cut -d, -f1-8 "$1/results.csv"
}

same() { # A B
    local file
    for file in last.safetensors best.safetensors; do
        cmp "$work/$model-$1/$file" "$work/$model-$2/$file" || complain "$model: $file of $1 and $2 differ"
    done
    diff <(rows "$work/$model-$1") <(rows "$work/$model-$2") >"$work/diff" ||
        complain "$model: records of $1 and $2 differ: $(head -c 600 "$work/diff")"
}

latest() { # NAME
    sed -E 's/step-0*//' "$work/$model-$1/ckpt/latest"
}

for model in fashion_cnn inception_mini; do
    extra=(--seed 7)
    [[ $model == fashion_cnn ]] || extra=(--seed 7 --smoothing 0 --ema-decay 0.99 --augment --dropout 0.3 --weight-decay 0.01)
    run 0 first
    accuracies=$(grep '^test accuracy' "$work/err")
    [[ $(wc -l <"$work/$model-first/metrics.jsonl") == 20 && $(wc -l <"$work/$model-first/results.csv") == 3 ]] ||
        complain "$model: not 20 steps and 2 epochs"
    run 0 again
    same first again
    run 0 seed --seed 8
    cmp -s "$work/$model-first/last.safetensors" "$work/$model-seed/last.safetensors" && complain "$model: the seed has no effect"

    # the number of threads that read
    for workers in 0 1 4; do
        run 0 "workers$workers" --workers $workers
        same first "workers$workers"
    done

    # killed after a checkpoint in the middle of the first and of the second epoch
    for step in 7 18; do
        TOWERS_FAULT="kill:tower=1,step=$step,activity=backward" run 7 "killed$step" --checkpoint-steps 4
        [[ $(latest "killed$step") == $(((step - 1) / 4 * 4)) ]] || complain "$model killed$step: the checkpoint is of step $(latest "killed$step")"
        run 0 "killed$step" --checkpoint-steps 4 --resume auto
        same first "killed$step"
        [[ $(grep '^test accuracy' "$work/err") == "$accuracies" ]] || complain "$model killed$step: not '$accuracies' but $(tail -3 "$work/err")"
    done
    [[ $(grep -o '^Epoch [0-9]*' "$work/err") == "Epoch 2" ]] || complain "$model: a resumed run reports epochs before: $(cat "$work/err")"
    [[ $(grep -o 'Z Epoch [0-9]*, Loss: [0-9.]*' "$work/$model-killed18/log.txt" | tail -n 1) == "Z Epoch 2, Loss: $(grep -oP '^Epoch 2, Loss: \K[0-9.]*' "$work/err")" ]] ||
        complain "$model: log.txt does not report epoch 2 as the console"

    # asked to stop
    command_of stopped --towers 2 --batch-size 8 --max-steps 20
    rm -f "$work/err"
    TOWERS_FAULT="delay:tower=0,step=1,ms=300" "${command[@]}" 2>"$work/err" >/dev/null </dev/null &
    pid=$!
    wait_until grep -q '^step 2/' "$work/err"
    kill -TERM $pid
    wait $pid
    [[ $? == 143 ]] || complain "$model stopped: exit is not 143: $(tail -2 "$work/err")"
    [[ $(latest stopped) -lt 20 ]] || complain "$model stopped: it was not"
    run 0 stopped --resume auto
    same first stopped

    # asked to stop in the middle of the evaluation of an epoch: of the first, and of the last
    for epoch in 1 2; do
        command_of "evaluated$epoch" --towers 2 --batch-size 8 --max-steps 20
        rm -f "$work/err"
        TOWERS_FAULT="delay:tower=0,step=$((epoch == 1 ? 13 : 20)),activity=evaluation,ms=1500" "${command[@]}" 2>"$work/err" >/dev/null </dev/null &
        pid=$!
        wait_until grep -q "^step $((epoch == 1 ? 13 : 20))/" "$work/err"
        sleep 0.1
        kill -TERM $pid
        wait $pid
        [[ $? == 143 ]] || complain "$model evaluated$epoch: exit is not 143: $(tail -2 "$work/err")"
        [[ $(latest "evaluated$epoch") == $((epoch == 1 ? 13 : 20)) ]] || complain "$model evaluated$epoch: stopped after step $(latest "evaluated$epoch")"
        [[ $(wc -l <"$work/$model-evaluated$epoch/results.csv") == "$epoch" ]] || complain "$model evaluated$epoch: the epoch counts as evaluated"
        run 0 "evaluated$epoch" --resume auto
        same first "evaluated$epoch"
    done

    # the newest checkpoint is damaged: the one before is used, and that is said. It is step 8 or 12, for checkpoints are written beside training.
    TOWERS_FAULT="kill:tower=0,step=14" run 7 damaged --checkpoint-steps 4
    newest=$(printf 'step-%010d' "$(latest damaged)")
    truncate -s -1 "$work/$model-damaged/ckpt/$newest/train.safetensors"
    run 0 damaged --checkpoint-steps 4 --resume auto
    grep -q "^warning: .*$newest" "$work/err" || complain "$model damaged: no warning: $(cat "$work/err")"
    grep -q "$newest" "$work/$model-damaged/log.txt" || complain "$model damaged: log.txt does not report it"
    grep -q "resumed after step $((10#${newest#step-} - 4))" "$work/$model-damaged/log.txt" || complain "$model damaged: not resumed from the one before $newest"
    same first damaged

    # eight towers in 1, 2, 4 and 8 processes
    for processes in 1 2 4 8; do
        ended 0 "processes$processes" --towers 8 --batch-size 2 --max-steps 15 --processes $processes
        same processes1 "processes$processes"
    done

    # four towers with shares of their own, one of them empty
    for processes in 1 2 4; do
        ended 0 "shares$processes" --tower-batch 5,3,0,7 --max-steps 15 --processes $processes
        same shares1 "shares$processes"
    done

    # evaluation: every sample once, the same result on any number of towers, and the one that training has reported
    for count in 1 2 3 4; do
        "$towers" eval $model --weights "$work/$model-first/last.safetensors" --data-path "$work/data" --device cpu --threads 1 \
            --towers $count --json >"$work/eval$count" 2>"$work/err" || complain "$model: eval on $count towers: $(cat "$work/err")"
        cmp "$work/eval1" "$work/eval$count" || complain "$model: evaluation on $count towers: $(cat "$work/eval$count")"
    done
    grep -q '"examples": 90,' "$work/eval1" || complain "$model: evaluation saw $(cat "$work/eval1")"
    reported=$(tail -n 1 "$work/$model-first/results.csv" | cut -d, -f5,6)
    python3 - "$work/eval1" "$reported" <<'PYTHON' || complain "$model: evaluated to $(cat "$work/eval1"), training reported $reported"
import json, sys
said, (loss, top1) = json.load(open(sys.argv[1])), map(float, sys.argv[2].split(","))
sys.exit(not (said["top1"] == top1 and abs(said["loss"] - loss) <= 1e-6 * loss))
PYTHON
done

# ---- a resumed run must be the same run
model=fashion_cnn extra=()
refused() { # TEXT... -- ARGUMENT...: exit 2 and every TEXT, nothing touched
    local texts=() before
    while [[ $1 != -- ]]; do
        texts+=("$1")
        shift
    done
    before=$(cat "$work/$model-first/metrics.jsonl" "$work/$model-first/args.yaml" | sha256sum)
    ended 2 first --seed 7 --resume auto "${@:2}"
    for text in "${texts[@]}"; do grep -qF -- "$text" "$work/err" || complain "refused: wanted '$text': $(cat "$work/err")"; done
    [[ $(cat "$work/$model-first/metrics.jsonl" "$work/$model-first/args.yaml" | sha256sum) == "$before" ]] || complain "refused: but the run was changed"
}
refused "then lr: 0.001, now lr: 0.01" -- --towers 2 --batch-size 8 --max-steps 30 --lr 0.01
refused "then towers: 2, now towers: 4" "then batch-size: 8, now batch-size: 4" "then lr: 0.001, now lr: 0.5" -- --towers 4 --batch-size 4 --lr 0.5
refused "then opt: adam, now opt: sgd" "then seed: 7, now seed: 9" -- --towers 2 --batch-size 8 --opt sgd --seed 9
small_data "$work/other" 204 90
refused "then training data: " -- --towers 2 --batch-size 8 --data-path "$work/other"
run 0 first --seed 7 --resume auto # all is done: nothing moves
same first again
run 0 first --seed 7 --resume auto --max-steps 24 # more of the same is the same run
run 0 longer --seed 7 --max-steps 24
cmp "$work/$model-first/last.safetensors" "$work/$model-longer/last.safetensors" || complain "four steps more: other weights"

check_end "runs repeat bit for bit"
