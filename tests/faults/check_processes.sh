#!/usr/bin/env bash
# Processes that cannot be started, do not end, are slow, stopped or killed: a run reports it in time, with the right exit code, and
# can be resumed. fail_calls.so makes system calls fail that a test could not make fail otherwise.
# Arguments: source folder, binary (built with -DTOWERS_FAULTS=ON, else skipped).
set -u
. "$1/tests/support/check.sh"
check_begin processes "$@"
small_data "$work/data" 400 100 || exit $?
needs_faults "$work/data"
shim=$(dirname "$towers")/tests/fail_calls.so
[[ -f $shim ]] || { echo "SKIPPED: no fail_calls.so (a build with sanitizers)" >&2; exit 77; }

command_of() { # NAME ARGUMENT...: 12 steps of 2 towers in processes of their own; later arguments win
    local name=$1
    shift
    command=("$towers" train fashion_cnn --data-path "$work/data" --towers 2 --processes 2 --threads 1 --batch-size 8 --max-steps 12
        --device cpu --output-dir "$work" --experiment "$name" "$@")
}

# ended STATUS SECONDS TEXT NAME ARGUMENT...: ends with STATUS within SECONDS, says TEXT, and leaves no process behind
ended() {
    local wanted=$1 seconds=$2 text=$3 name=$4 status
    shift 3
    command_of "$@"
    timeout -s KILL "$seconds" env "${given[@]}" "${command[@]}" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    given=()
    [[ $status == "$wanted" ]] || complain "$name: exit $status instead of $wanted: $(tail -3 "$work/err")"
    grep -qF -- "$text" "$work/err" || complain "$name: wanted '$text', got: $(tail -3 "$work/err")"
    ((wanted == 0)) || [[ $(grep -c '^error: ' "$work/err") == 1 ]] || complain "$name: not one line of error: $(cat "$work/err")"
    for ((i = 0; i < 100; i++)); do
        pgrep -f -- "--output-dir $work --experiment $name " >/dev/null || return
        sleep 0.1
    done
    complain "$name: processes are left: $(pgrep -af -- "--output-dir $work --experiment $name ")"
}
given=()

# ---- starting: fork or a thread fails, at every process and thread in turn
# fault: F53 F55
for n in 1 2 3; do
    given=(LD_PRELOAD="$shim" FAIL_CALL="fork:$n")
    ended 5 20 "cannot start tower process $n of 3" "fork-$n" --towers 3 --processes 3
done
for n in 1 2; do # the supervisor's, and in each tower the loader's first
    given=(LD_PRELOAD="$shim" FAIL_CALL="thread:$n")
    ended 5 20 "thread" "thread-$n" --workers 2
done
if [[ $(id -u) == 0 ]] && command -v setpriv >/dev/null; then # a real limit counts for ordinary users only
    mkdir -p "$work/limited" && chmod 777 "$work/limited" && chmod -R a+rX "$work"
    command_of limited --towers 3 --processes 3 --output-dir "$work/limited"
    timeout -s KILL 20 setpriv --reuid=65533 --clear-groups bash -c 'ulimit -u 3; exec "$@"' - "${command[@]}" 2>"$work/err" </dev/null
    [[ $? == 5 ]] && grep -q '^error: cannot start' "$work/err" || complain "ulimit -u: $(tail -3 "$work/err")"
fi

# ---- a tower that hangs, and does not even end when it is killed
# fault: F31 F32
given=(LD_PRELOAD="$shim" FAIL_CALL=kill:1+ TOWERS_FAULT="hang:tower=1,step=5")
ended 7 25 "tower 1 (process 1), step 5, activity forward: no sign of life for 4.0 s" stuck --comm-timeout 4
grep -q '^warning: tower 1 (process 1), step 5, activity forward: no sign of life for 2 s' "$work/err" || complain "stuck: no warning: $(cat "$work/err")"
grep -q '^warning: .*killed, but process [0-9]* does not end' "$work/err" || complain "stuck: does not say what stays: $(cat "$work/err")"
ended 0 60 "" stuck --resume auto

# hung TEXT NAME: a run that hangs in a checkpoint (where rank 0 is, the others wait); its process is $pid
hung() {
    command_of "$1" --comm-timeout 300 --log-interval 1
    rm -f "$work/err" # the words of the last run would look like a start
    LD_PRELOAD=$shim FAIL_CALL=${2:-kill:1+} TOWERS_FAULT="hang:tower=0,step=3,activity=checkpoint" "${command[@]}" --checkpoint-steps 3 >"$work/out" 2>"$work/err" </dev/null &
    pid=$!
    for ((i = 0; i < 1200; i++)); do
        grep -q '^step 3/' "$work/err" 2>/dev/null && return
        sleep 0.05
    done
    complain "$1: does not start: $(cat "$work/err")"
}
for pair in "TERM TERM" "TERM INT" "INT TERM" "INT INT"; do # the second signal always leaves
    read -r first second <<<"$pair"
    hung "signals-$first-$second"
    kill "-$first" "$pid"
    sleep 0.5
    kill "-$second" "$pid"
    from=$SECONDS
    wait "$pid"
    status=$?
    ((status > 128 && SECONDS - from < 20)) || complain "$pair: exit $status after $((SECONDS - from)) s: $(tail -3 "$work/err")"
done

# The console itself hangs: nobody reads the pipe. The first signal cannot be obeyed, the second is.
mkfifo "$work/console"
exec 9<>"$work/console"
command_of blocked --max-steps 1000000 --epochs 1000000 --log-interval 1
TOWERS_FAULT="delay:tower=0,step=100000,ms=0" "${command[@]}" 2>&9 >"$work/out" </dev/null 9>&- &
pid=$!
sleep 3 # more than the 64 KiB of the pipe
kill -TERM "$pid"
sleep 0.3
kill -TERM "$pid"
from=$SECONDS
wait "$pid"
status=$?
exec 9>&-
((status == 143 && SECONDS - from < 30)) || complain "blocked console: exit $status after $((SECONDS - from)) s"

# ---- slow, but alive: progress within an activity counts, for the supervisor and for who waits at a barrier
# fault: F37
given=(TOWERS_FAULT="crawl:tower=0,step=3,ms=4500")
ended 0 60 "" crawl --comm-timeout 2
grep -q warning "$work/err" && complain "crawl: a warning: $(cat "$work/err")"
# fault: F22 (the data stalls: the loader is named, not the sum, and the run goes on)
given=(TOWERS_FAULT="delay:tower=0,step=12,activity=data,ms=3000")
ended 0 60 "tower 0 (process 0), step 12, activity data: no sign of life for 2 s: it waits for its data loader" stall --comm-timeout 4

# ---- killed from outside, and started again at once
for ((round = 1; round <= 5; round++)); do
    command_of again --max-steps 100000 --checkpoint-steps 2 --log-interval 1 --resume auto
    rm -f "$work/err" # likewise
    "${command[@]}" 2>"$work/err" >"$work/out" </dev/null &
    pid=$!
    for ((i = 0; i < 1200; i++)); do
        grep -q '^step [0-9]' "$work/err" 2>/dev/null && break
        sleep 0.05
    done
    grep -q '^step [0-9]' "$work/err" || complain "killed and started again: $(cat "$work/err")"
    disown "$pid"
    kill -9 "$pid"
done
ended 0 60 "" again --max-steps 100 --resume auto --checkpoint-steps 0

# Two that start in the same second take two folders.
for ((round = 1; round <= 6; round++)); do
    pids=()
    for one in a b c; do
        "$towers" train fashion_cnn --data-path "$work/data" --threads 1 --batch-size 8 --max-steps 1 --device cpu --output-dir "$work/same" \
            2>"$work/err-$one" </dev/null &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || complain "started together: exit $?: $(cat "$work"/err-?)"; done
done
[[ $(ls "$work/same" | wc -l) == 18 ]] || complain "started together: $(ls "$work/same" | wc -l) folders instead of 18"

# Losses of 24 towers that take more characters than a line has: the run ends because of them, not of a text.
ended 8 60 "step" long-losses --towers 24 --processes 2 --batch-size 1 --opt sgd --lr 5e4 --seed 2 --report-loss all --log-interval 1

check_end "processes start, hang, stall and end as they are told"
