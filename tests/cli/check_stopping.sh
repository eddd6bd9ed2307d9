#!/usr/bin/env bash
# --patience, --min-delta, --stop-at, --monitor and --sched plateau on real runs: with one tower and with four in one and in four
# processes, killed and resumed, and refused where nothing is evaluated. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
small_data "$work/small" 70 30 || exit $?

train() { # NAME ARGUMENT...
    timeout -s KILL 120 "$towers" train fashion_cnn --data-path "$work/small" --device cpu --threads 1 --seed 3 --global-batch-size 8 --output-dir runs \
        --experiment "$@" >"$out" 2>"$err" </dev/null
}
refused() { # TEXT ARGUMENT...
    train refused "${@:2}"
    [[ $? == 2 ]] && grep -qF -- "$1" "$err" || complain "${*:2}: wanted '$1': $(cat "$err")"
}
evaluation_stopped() { # NAME STEP FAULTS ARGUMENT...: in the evaluation behind the step
    TOWERS_FAULT="$3delay:tower=0,step=$2,ms=1000,activity=evaluation" train "$1" --log-samples "${@:4}" &
    until grep -q "^$2," "runs/$1/samples.csv" 2>/dev/null || ! kill -0 $!; do sleep 0.01; done
    sleep 0.5
    kill -TERM "$(cat "runs/$1/.lock")"
    wait $!
    [[ $? == 143 ]] || complain "$1: not stopped: $(cat "$err")"
}
epochs() { # RUN
    tail -n 1 "runs/$1/results.csv" | cut -d, -f1
}

refused "--patience decides by evaluations, but --eval-interval 0 makes none" --patience 2 --eval-interval 0
refused "--stop-at 92: accuracies are from 0 to 1; for 92 % use --stop-at 0.92" --stop-at 92
refused "--min-delta has no effect" --min-delta 0.1
refused "--monitor has no effect" --monitor loss
refused "this model generates none" --patience 2 --monitor kid
refused "--monitor: unknown choice 'f1'; choose one of auto, accuracy, loss, kid" --patience 2 --monitor f1
refused "--plateau-patience has no effect" --plateau-patience 2
refused "--decay-rate 1 must be between 0 and 1" --sched plateau --decay-rate 1
mkdir none none/train
cp -r small/* none/ && rm -f none/t10k*
if "$towers" train fashion_cnn --device cpu --data-path none --dry-run >/dev/null 2>&1; then
    train refused --data-path none --patience 2
    grep -qF "there are no images for them" "$err" || complain "--patience without test images: $(cat "$err")"
fi

# Without learning no evaluation is better than the first, so --patience 2 ends the run after the third.
for count in 1 4; do
    train "still$count" --towers $count --lr 0 --epochs 9 --patience 2 --json || complain "--patience, $count towers: $(cat "$err")"
    [[ $(epochs "still$count") == 3 ]] || complain "--patience 2, $count towers: $(epochs "still$count") epochs, wanted 3"
    grep -qE "^ended after step [0-9]+: no higher accuracy than [0-9.]+ in 2 evaluations \(--patience\)$" "$err" || complain "the end is not reported: $(cat "$err")"
    grep -q "^stopping  *after 2 evaluations without a higher accuracy$" "$err" || complain "the header: $(cat "$err")"
    grep -q '"ended_early":"no higher accuracy' "$out" || complain "--json: $(cat "$out")"
    grep -q '"outcome":"ended early"' "runs/still$count/outcome.json" || complain "outcome.json: $(cat "runs/still$count/outcome.json")"
    grep -v "waited for storage" "runs/still$count/log.txt" | tail -n 1 | grep -q "ended early after step .*: no higher accuracy" || complain "log.txt: $(tail -n 1 "runs/still$count/log.txt")"
    [[ ! -e runs/still$count/heartbeat.json ]] || complain "a heartbeat after the end"
    [[ -e runs/still$count/last.safetensors && -e runs/still$count/best.safetensors ]] || complain "no weights"
done
train still1 --resume auto --lr 0 --epochs 9 --patience 2 || complain "resuming what --patience has ended: $(cat "$err")"
grep -q "^resumed after step [0-9]*: no higher accuracy.*; change that option to train on$" "$err" && [[ $(epochs still1) == 3 ]] || complain "it goes on: $(cat "$err")"
train still1 --resume auto --lr 0 --epochs 9 --patience 4 || complain "a larger --patience: $(cat "$err")"
[[ $(epochs still1) == 5 ]] || complain "--patience 4 after 2: $(epochs still1) epochs, wanted 5"

# The evaluation at the end of a run, behind an epoch in which a longer run makes none, counts for nothing: 2 and 4 and 6 do.
between=(--lr 0 --patience 2 --eval-interval 2)
train between "${between[@]}" --epochs 3 || complain "--eval-interval 2: $(cat "$err")"
train between --resume auto "${between[@]}" --epochs 9 || complain "a longer run: $(cat "$err")"
[[ $(epochs between) == 6 ]] || complain "an evaluation at the first end counts: $(epochs between) epochs, wanted 6"

# The advice of each ending, followed: the same command with what it names trains on, also where the schedule has a fixed length.
advised() { # NAME ADVICE EPOCHS OPTION VALUE ENDING...: ended by the ending's options; OPTION=VALUE as advised gives EPOCHS
    local name=$1 advice=$2 wanted=$3 option=$4 value=$5
    shift 5
    train "$name" --lr 0 --epochs 6 "$@" || complain "$name: $(cat "$err")"
    grep -qE "^to continue:  the same command with --resume runs/$name$advice" "$err" || complain "$name: advises $(grep '^to continue' "$err")"
    train "$name" --lr 0 --epochs 6 "$@" --resume "runs/$name" "$option" "$value" || complain "$name: $(cat "$err")"
    [[ $(epochs "$name") == "$wanted" ]] || complain "$name $option $value: $(epochs "$name") epochs, wanted $wanted"
}
advised by-epoch " and a larger --stop-epoch, or --stop-epoch 0$" 4 --stop-epoch 4 --stop-epoch 2
advised by-epoch-off " and a larger --stop-epoch, or --stop-epoch 0$" 6 --stop-epoch 0 --stop-epoch 2 --sched cosine
advised by-patience " and a larger --patience, or --patience 0$" 5 --patience 4 --patience 2 --sched cosine
advised by-patience-off " and a larger --patience, or --patience 0$" 6 --patience 0 --patience 2
advised by-value " and a higher --stop-at$" 6 --stop-at 1 --stop-at 0
advised by-loss " and a lower --stop-at$" 6 --stop-at 0.001 --monitor loss --stop-at 100
advised by-steps " and a larger --max-steps$" 2 --max-steps 18 --max-steps 9
advised by-epochs " and more --epochs$" 7 --epochs 7

# The evaluations without a better number are counted on behind a kill, also in other processes; no learning rate here, so all are.
if TOWERS_FAULT=none: "$towers" train fashion_cnn --dry-run --data-path small >/dev/null 2>&1; then
    left_out "--patience behind a kill: this binary has no fault points"
else
    TOWERS_FAULT=kill:tower=3,step=31 train counted --towers 4 --processes 4 --lr 0 --epochs 9 --patience 4 && complain "tower 3 was not killed"
    [[ $(epochs counted) == 3 ]] || complain "killed in the epoch behind $(epochs counted), wanted 3"
    train counted --resume auto --towers 4 --processes 1 --lr 0 --epochs 9 --patience 4 || complain "resuming a count: $(cat "$err")"
    [[ $(epochs counted) == 5 ]] || complain "--patience 4, killed in between: $(epochs counted) epochs, wanted 5"

    # Stopped in its last evaluation, a run makes up for it, also twice if it is killed before it has saved: one row, with the rate of the step.
    paused=(--epochs 4 --stop-epoch 2 --sched cosine --eval-batch-size 8)
    train paused "${paused[@]}" || complain "--stop-epoch: $(cat "$err")"
    evaluation_stopped late 18 "" "${paused[@]}"
    [[ $(epochs late) == 1 ]] || complain "not stopped in the evaluation of epoch 2: $(cat "$err")"
    cp -r runs/late runs/returned
    TOWERS_FAULT=kill:tower=0,step=18,activity=checkpoint train late --resume auto "${paused[@]}" && complain "not killed before it saved"
    [[ $(epochs late) == 2 ]] || complain "killed before the evaluation was recorded"
    train late --resume auto "${paused[@]}" || complain "resuming in an evaluation: $(cat "$err")"
    cmp -s <(cut -d, -f1-8 runs/paused/results.csv) <(cut -d, -f1-8 runs/late/results.csv) || complain "another row of an epoch that is made up for"

    # Resumed within an epoch behind --stop-epoch, a run ends with that epoch, not within it.
    TOWERS_FAULT=kill:tower=0,step=22 train within --epochs 4 --checkpoint-steps 1 && complain "tower 0 was not killed"
    train within --resume auto --epochs 4 --stop-epoch 2 || complain "--stop-epoch of an earlier epoch: $(cat "$err")"
    [[ $(epochs within) == 3 && $(tail -n 1 runs/within/results.csv | cut -d, -f2) == 27 ]] || complain "stopped within an epoch: $(cat runs/within/results.csv)"

    # A run that returns to the checkpoint which lacks that evaluation makes up for it, too.
    back=(--epochs 4 --stop-epoch 3 --sched cosine --eval-batch-size 8 --nan-policy rollback --checkpoint-steps 1000)
    TOWERS_FAULT=nan:tower=0,step=20 train undisturbed "${back[@]}" || complain "--nan-policy rollback: $(cat "$err")"
    TOWERS_FAULT=nan:tower=0,step=20 train returned --resume auto "${back[@]}" || complain "a return behind a resume: $(cat "$err")"
    grep -q "back to step 18" runs/returned/log.txt || complain "not back to the checkpoint without an evaluation: $(cat "$err")"
    cmp -s <(cut -d, -f1-8 runs/undisturbed/results.csv) <(cut -d, -f1-8 runs/returned/results.csv) || complain "other epochs behind a return: $(cat runs/returned/results.csv)"

    # And one whose epoch has counted no step.
    empty=(--global-batch-size 70 --epochs 4 --patience 2 --lr 0 --eval-batch-size 8 --nan-policy skip)
    TOWERS_FAULT=nan:tower=0,step=2 train empty "${empty[@]}" || complain "--nan-policy skip: $(cat "$err")"
    evaluation_stopped emptied 2 "nan:tower=0,step=2;" "${empty[@]}"
    train emptied --resume auto "${empty[@]}" || complain "resuming an epoch without steps: $(cat "$err")"
    cmp -s <(cut -d, -f1-8 runs/empty/results.csv) <(cut -d, -f1-8 runs/emptied/results.csv) || complain "other epochs behind one without steps: $(cat runs/emptied/results.csv)"
fi

# The loss falls, but by less than --min-delta from one epoch to the next.
train little --lr 0.05 --opt momentum --epochs 9 --patience 2 --min-delta 100 --monitor loss || complain "--min-delta: $(cat "$err")"
[[ $(epochs little) == 3 ]] || complain "--min-delta 100: $(epochs little) epochs, wanted 3"

# --stop-at: the first epoch at least as good ends the run.
train reached --lr 0.05 --opt momentum --epochs 12 || complain "the whole run: $(cat "$err")"
goal=$(awk -F, 'NR == 6 { print $5 }' runs/reached/results.csv)
wanted=$(awk -F, -v goal="$goal" 'NR > 1 && $5 + 0 <= goal + 0 { print $1; exit }' runs/reached/results.csv)
train goal --lr 0.05 --opt momentum --epochs 12 --stop-at "$goal" --monitor loss || complain "--stop-at: $(cat "$err")"
[[ $(epochs goal) == "$wanted" ]] && grep -q "has reached --stop-at" "$err" || complain "--stop-at $goal: $(epochs goal) epochs, wanted $wanted: $(cat "$err")"

# The best weights of a run that was lengthened may be those of its first end, within an epoch; its records then say so.
fall=(--opt momentum --sched piecewise --lr-schedule "0.05;4.45;50" --clip-norm 1)
train kept "${fall[@]}" --max-steps 40 || complain "--max-steps: $(cat "$err")"
train kept --resume auto "${fall[@]}" --max-steps 45 || complain "a longer run: $(cat "$err")"
expected=$(awk -F, 'NR > 1 && $6 > best { best = $6; step = $2 } END { print step ": " best }' runs/kept/results.csv)
"$towers" eval runs/kept --json >"$out" 2>"$err" || complain "eval: $(cat "$err")"
[[ $expected == 40:* ]] && grep -q "\"top1\": *${expected#40: }" "$out" || complain "the best epoch is that of step $expected, its weights have $(cat "$out")"

# The learning rate follows the losses of results.csv by PyTorch's rule; killed and resumed, in one process and in one for each of four
# towers, with the same bits.
plateau=(--opt momentum --lr 0.05 --epochs 9 --patience 7 --min-delta 0.001 --monitor loss --sched plateau --plateau-patience 0 --plateau-threshold 0.3
    --plateau-cooldown 1 --decay-rate 0.5 --checkpoint-steps 3)
for count in 1 4; do
    train "whole$count" --towers $count --processes 1 "${plateau[@]}" || complain "plateau, $count towers: $(cat "$err")"
    awk -F, 'NR > 1 {
        if (lr == "") lr = 0.05
        if ($8 != lr) { print "epoch " $1 ": " $8 ", wanted " lr; exit 1 }
        if (best == "" || $5 < best * 0.7) { best = $5; bad = 0 } else bad++
        if (cooldown > 0) { cooldown--; bad = 0 }
        if (bad > 0) { lr *= 0.5; cooldown = 1; bad = 0; fell++ }
    } END { if (!fell) { print "the rate never fell"; exit 1 } }' "runs/whole$count/results.csv" >"$work/rates" || complain "$count towers: $(cat "$work/rates")"
    grep -q "^learning rate 0.05 -> 0.025 after step" "$err" || complain "the new rate is not reported: $(cat "$err")"
    # The evaluation in the middle of an epoch, at the end of a run that a longer one continues, decides nothing.
    train "longer$count" --towers $count --processes 1 "${plateau[@]}" --max-steps 13 || complain "--max-steps, $count towers: $(cat "$err")"
    train "longer$count" --resume auto --towers $count --processes 1 "${plateau[@]}" --max-steps 81 || complain "a longer run, $count towers: $(cat "$err")"
    cmp -s <(cut -d, -f1-8 "runs/whole$count/results.csv") <(cut -d, -f1-8 "runs/longer$count/results.csv" | grep -v ^2,13,) || complain "$count towers: other epochs in a run that was lengthened"
    TOWERS_FAULT=delay:tower=0,step=1,ms=20 train "killed$count" --towers $count --processes $count "${plateau[@]}" &
    wait_until eval '[[ $(cat "runs/killed$count/ckpt/latest") > step-0000000020 ]]'
    kill -KILL "$(cat "runs/killed$count/.lock" 2>/dev/null | grep -oE '[0-9]+' | head -1)" 2>/dev/null
    wait
    [[ ! -e runs/killed$count/outcome.json && -e runs/killed$count/heartbeat.json ]] || complain "$count towers: the run had ended before it was killed"
    train "killed$count" --resume auto --towers $count --processes $count "${plateau[@]}" || complain "resume, $count towers: $(cat "$err")"
    cmp -s <(tensors "runs/whole$count/last.safetensors") <(tensors "runs/killed$count/last.safetensors") || complain "$count towers: other weights after a kill"
    cmp -s <(cut -d, -f1-8 "runs/whole$count/results.csv") <(cut -d, -f1-8 "runs/killed$count/results.csv") || complain "$count towers: other epochs after a kill"
done
check_end "patience, a goal and a plateau: 1 and 4 towers, killed and resumed"
