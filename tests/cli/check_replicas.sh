#!/usr/bin/env bash
# Replicas must stay equal: a transfer that loses a bit is found before the first step; a bit that flips in one tower's weights is
# found at the next comparison, with tower, tensor and element; what was saved before is intact, and a run that resumes from it ends
# with the weights of an undisturbed one.
. "$1/tests/support/check.sh"
small_data "$work/data" 240 60 || exit $?
needs_faults "$work/data"

# ended STATUS TEXT NAME ARGUMENT...: 12 steps of 3 towers x 4 end with STATUS and say TEXT; later arguments win
ended() {
    local wanted=$1 text=$2 name=$3 status
    shift 3
    timeout -s KILL 120 "$towers" train fashion_cnn --data-path "$work/data" --towers 3 --threads 1 --batch-size 4 --max-steps 12 \
        --device cpu --output-dir "$work" --processes 3 --experiment "$name" "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    [[ $status == "$wanted" ]] || complain "$name: exit $status instead of $wanted: $(tail -3 "$work/err")"
    grep -qF -- "$text" "$work/err" || complain "$name: wanted '$text', got: $(tail -3 "$work/err")"
}

latest() { # NAME STEP
    [[ $(cat "$work/$1/ckpt/latest") == step-$(printf %010d "$2") ]] || complain "$1: the newest checkpoint is $(cat "$work/$1/ckpt/latest" 2>&1), not of step $2"
}

quiet() { # NAME: nothing was said about replicas
    grep -qiE 'replica|self-test' "$work/err" "$work/$1/log.txt" && complain "$1: a false alarm: $(cat "$work/err")"
}

# ---- a bit in the weights
ended 0 "" plain --sdc-check 1
quiet plain
# fault: F33
TOWERS_FAULT="bitflip:tower=1,step=7" ended 8 "after step 10 the replica of tower 1 differs from the 2 others: weights, " flip --sdc-check 5 --checkpoint-steps 6
grep -qE 'element 0 is [-0-9.e]+ in tower 1 instead of [-0-9.e]+ \(' "$work/err" || complain "flip: $(cat "$work/err")"
grep -qF 'the replica of tower 1 differs' "$work/flip/log.txt" || complain "flip: log.txt does not report it"
latest flip 6
[[ -e $work/flip/last.safetensors ]] && complain "flip: weights of a replica that differs were saved"
ended 0 "" flip --sdc-check 5 --checkpoint-steps 6 --resume auto
cmp "$work/flip/last.safetensors" "$work/plain/last.safetensors" || complain "flip: resumed to other weights"
for tower in 0 2; do
    TOWERS_FAULT="bitflip:tower=$tower,step=4" ended 8 "after step 5 the replica of tower $tower differs from the 2 others" "flip$tower" --sdc-check 5 --opt rmsprop-tf
done
TOWERS_FAULT="bitflip:tower=1,step=7" ended 8 "after step 8 the replica of tower 1 differs" before-saving --checkpoint-steps 4
latest before-saving 4
TOWERS_FAULT="bitflip:tower=0,step=6;nan:tower=1,step=8" ended 8 "after step 7 the replica of tower 0 differs from the 2 others" before-nan --checkpoint-steps 4
latest before-nan 4
TOWERS_FAULT="bitflip:tower=3,step=7" ended 8 "the replica of towers 2..3 (process 1) differs from the 2 others" virtual --sdc-check 2 --towers 6 --batch-size 2
TOWERS_FAULT="bitflip:tower=1,step=7" ended 8 "after step 8 the replicas of tower 0 and tower 1 differ; the 2 replicas have no majority" two --sdc-check 4 --towers 2 --processes 2
TOWERS_FAULT="bitflip:tower=1,step=7" ended 0 "warning: after step 8 the replica of tower 1 differs" warn --sdc-check 4 --sdc-policy warn
[[ $(grep -c 'differs from the 2 others' "$work/warn/log.txt") == 2 ]] || complain "warn: not once each after the steps 8 and 12: $(cat "$work/warn/log.txt")"
# one bit in all three alike, seen by no comparison; after a rollback behind step 8 one in tower 1 alone: step 8 is compared again
flips=$(for tower in 0 1 2 1; do echo -n "bitflip:tower=$tower,step=7;"; done)
TOWERS_FAULT="${flips}nan:tower=1,step=9" ended 8 "after step 8 the replica of tower 1 differs" again --sdc-check 8 --checkpoint-steps 6 --nan-policy rollback
grep -qF "step 9 is not finite: back to the checkpoint of step 6" "$work/err" || complain "again: no rollback: $(cat "$work/err")"
# speed and time of an epoch are those of its 240 images: what the checkpoint says of the first 144, and what came since the rollback
TOWERS_FAULT="nan:tower=1,step=11" ended 0 "step 11 is not finite: back to the checkpoint of step 6" speed --batch-size 8 --checkpoint-steps 6 --nan-policy rollback
awk -F, 'NR == 2 { exit !($9 * $10 > 239 && $9 * $10 < 241) }' "$work/speed/results.csv" || complain "speed: $(cat "$work/speed/results.csv")"
for steps in 4 100; do # back to step 4, or to the start
    TOWERS_FAULT="bitflip:tower=1,step=7" ended 0 "differs from the 2 others: weights, " back$steps --sdc-check 3 --sdc-policy rollback --checkpoint-steps $steps
    grep -q "back to the checkpoint of step $((steps % 100)) (1 of 10)" "$work/err" || complain "back$steps: $(cat "$work/err")"
    cmp "$work/back$steps/last.safetensors" "$work/plain/last.safetensors" || complain "back$steps: other weights"
    [[ $(wc -l <"$work/back$steps/metrics.jsonl") == 12 ]] || complain "back$steps: not every step once: $(wc -l <"$work/back$steps/metrics.jsonl")"
done
many=$(for i in 1 2 3 4; do echo -n "bitflip:tower=1,step=7;"; done)
TOWERS_FAULT=$many ended 8 "after 3 rollbacks to a checkpoint (--nan-limit)" back-and-back --sdc-check 1 --sdc-policy rollback --nan-limit 3
TOWERS_FAULT="bitflip:tower=1,step=7" ended 0 "" never --sdc-check 0
quiet never

# ---- a bit in a transfer
damaged="expected [-0-9.e]+, got [-0-9.e]+ \\([0-9]+ elements are wrong\\)"
for tower in 0 1 2; do
    TOWERS_FAULT="bitflip:tower=$tower,step=0" ended 5 "self-test of the sum over the towers: values sent by tower $tower arrive changed everywhere" "give$tower"
    grep -qE "bucket [0-9]+ of [0-9]+, element 7: $damaged" "$work/err" || complain "give$tower: $(cat "$work/err")"
    TOWERS_FAULT="bitflip:tower=$tower,step=0,activity=all-reduce" ended 5 "values sent by all towers arrive changed at tower $tower" "take$tower"
    [[ -e $work/take$tower/ckpt/latest ]] && complain "take$tower: a checkpoint was written"
    grep -qF 'cannot write the report' "$work/err" && complain "take$tower: a report of no step: $(cat "$work/err")"
done
TOWERS_FAULT="bitflip:tower=1,step=0" ended 0 "" no-self-test --no-self-test
for flag in --self-test --no-self-test; do # what is timed adds the same sums
    TOWERS_FAULT="bitflip:tower=1,step=0" timeout -s KILL 120 "$towers" bench fashion_cnn --towers 3 --processes 3 --threads 1 --batch-size 4 --batches 2 \
        --warmup-batches 0 --device cpu $flag >"$work/out" 2>"$work/err" </dev/null
    [[ $? == $([[ $flag == --self-test ]] && echo 5 || echo 0) ]] || complain "bench $flag: $(tail -3 "$work/out" "$work/err")"
    [[ $flag == --no-self-test ]] || grep -qF "self-test of the sum over the towers: values sent by tower 1 arrive changed everywhere" "$work/err" || complain "bench: $(cat "$work/err")"
done

check_end "replicas are equal, or told apart"
