#!/usr/bin/env bash
# Thirty kills at random moments, of the supervisor or of a tower, each followed by --resume auto: weights and metrics equal those of
# an undisturbed run bit for bit. One kill in four comes during the set-up, the others after a random number of steps, so that they fall
# all over the run on a fast machine as on a slow one. TOWERS_TEST_KILLS=N for more; TOWERS_TEST_SEED repeats the choice.
set -u
kills=${TOWERS_TEST_KILLS:-30} seed=${TOWERS_TEST_SEED:-$$}
. "$1/tests/support/check.sh"
small_data "$work/data" 400 50 || exit $?
needs_faults "$work/data"
echo "seed $seed"
RANDOM=$seed

stride=32 # steps between two kills, at most; as many may go by until a kill arrives
steps=$((kills * stride))
command_of() {
    command=("$towers" train fashion_cnn --data-path "$work/data" --towers 2 --processes 2 --threads 1 --workers 1 --batch-size 2 --max-steps $steps
        --checkpoint-steps 4 --eval-interval 4 --summary-interval 0 --device cpu --output-dir "$work" --experiment "$1" --resume auto --quiet)
}
command_of golden
"${command[@]}" >/dev/null 2>"$err" </dev/null || complain "golden: $(tail -2 "$err")"

step=0 # of the newest checkpoint
look() {
    local text
    { read -r text <"$work/killed/ckpt/latest"; } 2>/dev/null && step=$((10#${text#step-}))
}
now_ms() { echo $(($(date +%s%N) / 1000000)); }
command_of killed
setup_ms=200 # until the first steps; measured below
done_kills=0 in_setup=0
for ((k = 0; k < kills; k++)); do
    before=$step
    begun=$(now_ms)
    TOWERS_FAULT="delay:tower=1,step=1,ms=3" "${command[@]}" >/dev/null 2>"$err" </dev/null &
    pid=$!
    if ((RANDOM % 4 == 0)); then
        pause=$((RANDOM % setup_ms))
    else
        further=$((1 + RANDOM % stride))
        until look && ((step >= before + further)) || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
        ((k < 3)) && setup_ms=$(($(now_ms) - begun))
        pause=$((RANDOM % 30)) # anywhere between two checkpoints
    fi
    sleep "$((pause / 1000)).$(printf %03d $((pause % 1000)))"
    victim=$pid
    ((RANDOM % 3 == 0)) && victim=$(pgrep -P "$pid" "tower$((RANDOM % 2))" || echo "$pid")
    kill -9 "$victim" 2>/dev/null
    { wait "$pid"; } 2>/dev/null
    status=$?
    [[ $status == 0 ]] && break # it got to its end before a kill did
    [[ $status == 137 || $status == 7 ]] || { complain "kill $k: exit $status: $(tail -2 "$err")"; break; }
    done_kills=$((done_kills + 1))
    look
    ((step == before)) && in_setup=$((in_setup + 1))
done
((failures > 0 || (done_kills >= kills * 2 / 3 && in_setup < done_kills))) || complain "seed $seed: only $done_kills kills, $in_setup of them before a checkpoint"
"${command[@]}" >/dev/null 2>"$err" </dev/null || complain "the last resume: $(tail -2 "$err")"
for file in last.safetensors best.safetensors; do cmp "$work/killed/$file" "$work/golden/$file" || complain "seed $seed: other $file"; done
cmp <(timeless "$work/killed/metrics.jsonl") <(timeless "$work/golden/metrics.jsonl") || complain "seed $seed: other metrics"
check_end "$done_kills kills, $in_setup before a checkpoint, the last at a checkpoint of step $step: the same run"
