#!/usr/bin/env bash
# Thirty kills at random moments, of the supervisor or of a tower, each followed by --resume auto: weights and metrics equal those of
# an undisturbed run bit for bit. TOWERS_TEST_KILLS=N for more; TOWERS_TEST_SEED repeats a run.
# Arguments: source folder, binary (built with -DTOWERS_FAULTS=ON, else skipped).
set -u
kills=${TOWERS_TEST_KILLS:-30} seed=${TOWERS_TEST_SEED:-$$}
. "$1/tests/support/check.sh"
check_begin kills "$@"
small_data "$work/data" 400 50 || exit $?
needs_faults "$work/data"
echo "seed $seed"
RANDOM=$seed

steps=1500
command_of() {
    command=("$towers" train fashion_cnn --data-path "$work/data" --towers 2 --processes 2 --threads 1 --workers 1 --batch-size 2 --max-steps $steps
        --checkpoint-steps 4 --eval-interval 4 --summary-interval 0 --device cpu --output-dir "$work" --experiment "$1" --resume auto --quiet)
}
command_of golden
begin=$(date +%s%N)
"${command[@]}" >/dev/null 2>"$work/err" </dev/null || complain "golden: $(tail -2 "$work/err")"
window=$((500 + ($(date +%s%N) - begin) / 10000000)) # ms; longer on a busy machine, where a start takes longer

command_of killed
done_at=-1
for ((k = 0; k < kills; k++)); do
    TOWERS_FAULT="delay:tower=1,step=1,ms=3" "${command[@]}" >/dev/null 2>"$work/err" </dev/null &
    pid=$!
    pause=$((100 + RANDOM % window))
    sleep "$((pause / 1000)).$(printf %03d $((pause % 1000)))"
    victim=$pid
    ((RANDOM % 3 == 0)) && victim=$(pgrep -P "$pid" "tower$((RANDOM % 2))" || echo "$pid")
    kill -9 "$victim" 2>/dev/null
    { wait "$pid"; } 2>/dev/null
    status=$?
    [[ $status == 137 || $status == 7 ]] || { complain "kill $k: exit $status: $(tail -2 "$work/err")"; break; }
    [[ -f $work/killed/ckpt/latest ]] && done_at=$(sed -E 's/step-0*//' "$work/killed/ckpt/latest")
done
((done_at > 0)) || complain "no kill came after a checkpoint"
"${command[@]}" >/dev/null 2>"$work/err" </dev/null || complain "the last resume: $(tail -2 "$work/err")"
for file in last.safetensors best.safetensors; do cmp "$work/killed/$file" "$work/golden/$file" || complain "seed $seed: other $file"; done
timeless() { sed -E 's/"(images_per_sec|arrival_us|data_us|copy_us|forward_us|backward_us|slow_tower|slow_activity)":(\[[^]]*\]|[^,}]*)//g' "$1"; }
cmp <(timeless "$work/killed/metrics.jsonl") <(timeless "$work/golden/metrics.jsonl") || complain "seed $seed: other metrics"
check_end "$kills kills, the last at a checkpoint of step $done_at: the same run"
