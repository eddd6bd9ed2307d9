#!/usr/bin/env bash
# --max-restarts: towers that are killed at random moments, crash or hang are started again from the last checkpoint, and the run ends
# with the weights and metrics of an undisturbed one; every restart is counted once in each record. NaN, wrong usage, a stop signal and
# the end of a run are no crash. TOWERS_TEST_KILLS=N for more kills; TOWERS_TEST_SEED repeats the choice.
set -u
kills=${TOWERS_TEST_KILLS:-6} seed=${TOWERS_TEST_SEED:-$$}
. "$1/tests/support/check.sh"
small_data "$work/data" 400 50 || exit $?
needs_faults "$work/data"
echo "seed $seed"
RANDOM=$seed

command_of() { # NAME ARGUMENT...
    local name=$1
    shift
    command=("$towers" train fashion_cnn --data-path "$work/data" --towers 2 --processes 2 --threads 1 --workers 1 --batch-size 2
        --checkpoint-steps 4 --eval-interval 4 --summary-interval 0 --device cpu --output-dir "$work" --experiment "$name" "$@")
}
counted() { # NAME: restarts in restarts.jsonl
    if [[ -e $work/$1/restarts.jsonl ]]; then wc -l <"$work/$1/restarts.jsonl"; else echo 0; fi
}
ended() { # STATUS RESTARTS NAME ARGUMENT...
    local wanted=$1 restarts=$2 status
    shift 2
    command_of "$@"
    timeout -s KILL 300 "${command[@]}" >"$out" 2>"$err" </dev/null
    status=$?
    [[ $status == "$wanted" ]] || complain "$1: exit $status instead of $wanted: $(tail -3 "$err")"
    [[ $(counted "$1") == "$restarts" ]] || complain "$1: $(counted "$1") restarts instead of $restarts: $(cat "$err")"
}
steps=$((kills * 40))
ulimit -c 0

# ---- killed at random: each time another process and signal, in the set-up too
step=0 # of the newest checkpoint
look() {
    local text
    { read -r text <"$work/killed/ckpt/latest"; } 2>/dev/null && step=$((10#${text#step-}))
}
ended 0 0 golden --max-steps $steps --quiet
command_of killed --max-steps $steps --max-restarts $((kills + 1)) --json
TOWERS_FAULT="delay:tower=1,step=1,ms=3" "${command[@]}" >"$out" 2>"$err" </dev/null &
pid=$!
for ((k = 0; k < kills; k++)); do
    before=$step further=$((1 + RANDOM % 24))
    ((k % 3 == 2)) && further=0 # soon after the last restart
    until look && ((step >= before + further)) || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
    sleep "0.0$((RANDOM % 10))"
    signal=$((RANDOM % 2 ? 9 : 8))
    until victim=$(pgrep -P "$pid" "tower$((RANDOM % 2))") || ! kill -0 $pid 2>/dev/null; do sleep 0.05; done
    kill -$signal "$victim" 2>/dev/null || break
    until (($(counted killed) > k)) || ! kill -0 $pid 2>/dev/null; do sleep 0.05; done
done
wait "$pid"
status=$?
done_kills=$(counted killed)
[[ $status == 0 ]] || complain "seed $seed: killed: exit $status: $(tail -3 "$err")"
((done_kills == k && k >= kills / 2)) || complain "seed $seed: $done_kills restarts for $k kills"
[[ $(grep -c '^warning: .*; restart [0-9]* of ' "$err") == "$done_kills" ]] || complain "seed $seed: restarts on the console: $(grep restart "$err")"
grep -q "\"restarts\":$done_kills[,}]" "$out" || complain "seed $seed: --json: $(cat "$out")"
grep -q "$done_kills restarts after crashes" "$err" || complain "seed $seed: the last lines: $(tail -5 "$err")"
grep -q "<p>$done_kills restarts</p>" "$work/killed/report.html" || complain "seed $seed: restarts in the report"
[[ $(tail -n 1 "$work/killed/metrics.jsonl" | grep -o '"restarts":[0-9]*') == "\"restarts\":$done_kills" ]] || complain "seed $seed: restarts in the metrics"
head -n 1 "$work/killed/metrics.jsonl" | grep -q restarts && complain "seed $seed: the run began anew"
for file in last.safetensors best.safetensors; do cmp "$work/killed/$file" "$work/golden/$file" || complain "seed $seed: other $file"; done
cmp <(timeless "$work/killed/metrics.jsonl" | sed -E 's/,"restarts":[0-9]+//') <(timeless "$work/golden/metrics.jsonl") || complain "seed $seed: other metrics"
ls -d "$work"/killed/ckpt/.tmp-* 2>/dev/null && complain "seed $seed: half a checkpoint is left"

# ---- no restart is left: the root cause, and its exit code
export TOWERS_FAULT="kill:tower=1,step=7,activity=backward"
ended 7 2 worn --max-steps 12 --max-restarts 2 --quiet
grep -q '^error: tower 1 (process 1), step 7, .*killed by signal 9.*after 2 restarts: --max-restarts' "$err" || complain "worn: $(cat "$err")"
grep -q 'restart 1 of 2 in 1 s' "$err" && grep -q 'restart 2 of 2 in' "$err" || complain "worn: the waits: $(cat "$err")"
ended 7 0 never --max-steps 12 --quiet

# ---- silence and storage that fails are crashes; NaN, other settings, a finished run and a signal are none
TOWERS_FAULT="hang:tower=1,step=6" ended 7 1 silent --max-steps 8 --max-restarts 1 --comm-timeout 4 --quiet
TOWERS_FAULT="nan:tower=1,step=6" ended 8 0 nan --max-steps 8 --max-restarts 3 --quiet
unset TOWERS_FAULT
ulimit -S -f 300 # KiB, less than a checkpoint: the third that fails in a row ends the towers
ended 6 1 disk --max-steps 12 --checkpoint-steps 2 --max-restarts 1 --quiet
ulimit -S -f unlimited
ended 0 0 done --max-steps 4 --max-restarts 3 --quiet
ended 2 0 done --max-steps 8 --max-restarts 3 --resume auto --seed 9 --quiet
command_of stopped --max-steps 12 --max-restarts 9 --quiet --checkpoint-steps 1 --preempt-exit 85 # the state of step 1 is saved before step 3
TOWERS_FAULT="kill:tower=0,step=3" "${command[@]}" >"$out" 2>"$err" </dev/null &
pid=$!
until grep -q 'restart 4 of 9 in 8 s' "$err" 2>/dev/null || ! kill -0 $pid 2>/dev/null; do sleep 0.05; done
kill -TERM $pid
wait $pid
status=$?
[[ $status == 85 && $(counted stopped) == 3 ]] || complain "stopped while waiting: exit $status, $(counted stopped) restarts: $(cat "$err")"

check_end "$done_kills kills: the same run, and each is counted"
