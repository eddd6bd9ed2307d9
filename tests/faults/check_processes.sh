#!/usr/bin/env bash
# Processes that cannot be started, do not end, are slow, stopped or killed: a run reports it in time, with the right exit code, and
# can be resumed. fail_calls.so makes system calls fail that a test could not make fail otherwise.
. "$1/tests/support/check.sh"
small_data "$work/data" 400 100 || exit $?
needs_faults "$work/data"
shim=$(dirname "$towers")/tests/fail_calls.so
[[ -f $shim ]] || { echo "SKIPPED: no fail_calls.so (a build with sanitizers)" >&2; exit 77; }

batch=(--batch-size 8)
command_of() { # NAME ARGUMENT...: 12 steps of 2 towers in processes of their own; later arguments win
    local name=$1
    shift
    command=("$towers" train fashion_cnn --data-path "$work/data" --towers 2 --processes 2 --threads 1 "${batch[@]}" --max-steps 12
        --device cpu --output-dir "$work" --experiment "$name" "$@")
}

none_is_left() { ! pgrep -f -- "--output-dir $work --experiment $1 " >/dev/null; }

# ended STATUS TEXT NAME ARGUMENT...: ends with STATUS by itself, says TEXT, and leaves no process behind
ended() {
    local wanted=$1 text=$2 name=$3 status
    shift 2
    command_of "$@"
    timeout -s KILL 200 env "${given[@]}" "${command[@]}" >"$out" 2>"$err" </dev/null
    status=$?
    given=()
    [[ $status == "$wanted" ]] || complain "$name: exit $status instead of $wanted: $(tail -3 "$err")"
    grep -qF -- "$text" "$err" || complain "$name: wanted '$text', got: $(tail -3 "$err")"
    ((wanted == 0)) || [[ $(grep -c '^error: ' "$err") == 1 ]] || complain "$name: not one line of error: $(cat "$err")"
    wait_until none_is_left "$name" || complain "$name: processes are left: $(pgrep -af -- "--output-dir $work --experiment $name ")"
}
given=()

# says NAME PATTERN: a line of what `ended` has seen
says() {
    grep -qE -- "$2" "$err" || complain "$1: no line '$2': $(cat "$err")"
}

# shown PATTERN: waits for a line of the run in the background
shown() {
    wait_until grep -q -- "$1" "$err" || complain "no '$1' within minutes: $(cat "$err")"
}

# left WANTED SIGNAL: the run $pid, which a first signal has not ended, leaves after a second one. That is repeated: two of
# a kind that come at once count as one.
left() {
    local from=$SECONDS status
    while kill "-$2" "$pid" 2>/dev/null && ((SECONDS - from < 300)); do sleep 0.5; done
    kill -9 "$pid" 2>/dev/null
    wait "$pid"
    status=$?
    [[ $status != 137 && $status =~ ^($1)$ ]] || complain "after a second $2: exit $status after $((SECONDS - from)) s: $(tail -3 "$err")"
}

# ---- a tower that hangs, and does not even end when it is killed
# fault: F31 F32
stuck() {
    given=(LD_PRELOAD="$shim" FAIL_CALL=kill:1+ TOWERS_FAULT="hang:tower=1,step=5")
    ended 7 "tower 1 (process 1), step 5, activity forward: no sign of life for 12.0 s" stuck --comm-timeout 12
    says stuck '^warning: tower 1 \(process 1\), step 5, activity forward: no sign of life for [0-9]+ s'
    says stuck '^warning: .*killed, but process [0-9]* does not end'
    ended 0 "" stuck --resume auto
}

# The tower that hangs has shown a sign of life after the one that waits for it: the former is the cause nevertheless.
behind() {
    local batch=(--tower-batch 1,200)
    given=(TOWERS_FAULT="hang:tower=1,step=2,activity=backward")
    ended 7 "tower 1 (process 1), step 2, activity backward: no sign of life for 12.0 s" behind --comm-timeout 12
    says behind '^warning: collectives: rank 0 waits in collective [0-9]+, an? [^;]*, for [0-9.]+ s; rank 1 ended collective [0-9]+, '
}

# Two signals to a run that hangs in a checkpoint, where rank 0 is and the others wait: the second always leaves.
second_signal() { # FIRST SECOND
    command_of "signals-$1-$2" --comm-timeout 300 --log-interval 1 --checkpoint-steps 3
    LD_PRELOAD=$shim FAIL_CALL=kill:1+ TOWERS_FAULT="hang:tower=0,step=3,activity=checkpoint" "${command[@]}" >"$out" 2>"$err" </dev/null &
    pid=$!
    shown '^step 3/'
    kill "-$1" "$pid"
    sleep 0.5
    left '1(30|43)' "$2"
}

# A hard limit on the CPU time of processes is no lack of memory.
cpu_limited() {
    command_of cpu-limited --max-steps 1000000 --epochs 1000000
    (ulimit -t 2 && exec timeout -s KILL 200 "${command[@]}") >"$out" 2>"$err" </dev/null
    [[ $? == 7 ]] || complain "cpu-limited: exit is not 7: $(tail -3 "$err")"
    says cpu-limited '^error: tower .*: killed by signal 9 .*; it has used the 2 s of CPU time that its limit allows: raise it \(ulimit -t\)$'
    grep -q memory "$err" && complain "cpu-limited: $(cat "$err")"
}

# ---- slow, but alive: progress within an activity counts, for the supervisor and for who waits at a barrier
# fault: F37
crawl() {
    given=(TOWERS_FAULT="crawl:tower=0,step=3,ms=16000")
    ended 0 "" crawl --comm-timeout 12
    grep -q 'warning: .*step 3, ' "$err" && complain "crawl: a warning: $(cat "$err")" # a busy machine may be silent elsewhere
}
# Tower 1, which has waited for tower 0 for 16 s, gets no processor when tower 0 has come: both are in the sum then, but one has just
# shown a sign of life.
wakes_late() {
    local pid sleeper=
    given=(TOWERS_FAULT="crawl:tower=0,step=3,ms=16000")
    {
        shown '^step 2/'
        sleep 10
        for pid in $(pgrep -f -- "--output-dir $work --experiment wakes-late "); do
            [[ $(cat "/proc/$pid/comm") != tower1 ]] || sleeper=$pid
        done
        kill -STOP "$sleeper"
        sleep 9
        kill -CONT "$sleeper"
    } &
    ended 0 "" wakes-late --comm-timeout 8 --log-interval 1
    wait
}
# fault: F22 (the data stalls: the loader is named, not the sum, and the run goes on)
stall() {
    given=(TOWERS_FAULT="delay:tower=0,step=12,activity=data,ms=12000")
    ended 0 "" stall --comm-timeout 16
    says stall 'tower 0 \(process 0\), step 12, activity data: no sign of life for [0-9]+ s: it is waiting for its data loader'
}

# Losses of 24 towers that take more characters than a line has: the run ends because of them, not of a text.
long_losses() {
    ended 8 "step" long-losses --towers 24 --processes 2 --batch-size 1 --opt sgd --lr 5e4 --seed 2 --report-loss all --log-interval 1
}

alongside stuck
alongside behind
for pair in "TERM TERM" "TERM INT" "INT TERM" "INT INT"; do
    # shellcheck disable=SC2086
    alongside second_signal $pair
done
alongside cpu_limited
alongside crawl
alongside wakes_late
alongside stall
alongside long_losses

# ---- starting: fork or a thread fails, at every process and thread in turn
# fault: F53 F55
for n in 1 2 3; do
    given=(LD_PRELOAD="$shim" FAIL_CALL="fork:$n")
    ended 5 "cannot start tower process $n of 3" "fork-$n" --towers 3 --processes 3
done
for n in 1 2; do # the supervisor's, and in each tower the loader's first
    given=(LD_PRELOAD="$shim" FAIL_CALL="thread:$n")
    ended 5 "thread" "thread-$n" --workers 2
done
if [[ $(id -u) == 0 ]] && command -v setpriv >/dev/null; then # a real limit counts for ordinary users only
    mkdir -p "$work/limited" && chmod 777 "$work/limited" && chmod a+rx "$work" && chmod -R a+rX "$work/data"
    command_of limited --towers 3 --processes 3 --output-dir "$work/limited"
    cp "$towers" "$work/limited/towers" # they may not enter the home of root, in which a clone may be
    command[0]=$work/limited/towers
    timeout -s KILL 200 setpriv --reuid=65533 --clear-groups bash -c 'ulimit -u 3; exec "$@"' - "${command[@]}" 2>"$err" </dev/null
    [[ $? == 5 ]] && grep -q '^error: cannot start' "$err" || complain "ulimit -u: $(tail -3 "$err")"
fi

# ---- killed from outside, and started again at once
for ((round = 1; round <= 5; round++)); do
    command_of again --max-steps 100000 --checkpoint-steps 2 --log-interval 1 --resume auto
    rm -f "$err" # the words of the last run would look like a start
    TOWERS_FAULT="delay:tower=0,step=1,ms=20" "${command[@]}" 2>"$err" >"$out" </dev/null &
    pid=$!
    shown '^step [0-9]'
    disown "$pid"
    kill -9 "$pid"
done
step=step-0 # no checkpoint may have been reached
[[ ! -f $work/again/ckpt/latest ]] || read -r step <"$work/again/ckpt/latest"
ended 0 "" again --max-steps $((10#${step#step-} + 10)) --resume auto --checkpoint-steps 0

# Several that start in the same second take a folder each.
for ((round = 1; round <= 4; round++)); do
    pids=()
    for one in a b c; do
        "$towers" train fashion_cnn --data-path "$work/data" --threads 1 --batch-size 8 --max-steps 1 --device cpu --output-dir "$work/same" \
            2>"$err-$one" </dev/null &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || complain "started together: exit $?: $(cat "$err"-?)"; done
done
[[ $(ls "$work/same" | wc -l) == 12 ]] || complain "started together: $(ls "$work/same" | wc -l) folders instead of 12"

together
check_end "processes start, hang, stall and end as they are told"
