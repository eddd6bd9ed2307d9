#!/usr/bin/env bash
# Runs that go wrong: a tower whose loss or gradient is not finite, a tower that dies or hangs, signals, two trainers in one directory,
# a full disk, a console that disappears. Each ends with the documented exit code and a message that names tower, step and activity; its
# files are complete and finite, and the run can be resumed.
. "$1/tests/support/check.sh"
small_data "$work/data" 400 100 || exit $?
needs_faults "$work/data"

# One run of 12 steps of 2 towers x 8; later arguments win.
command_of() { # NAME ARGUMENT...
    local name=$1
    shift
    command=("$towers" train fashion_cnn --data-path "$work/data" --towers 2 --threads 1 --batch-size 8 --max-steps 12
        --device cpu --output-dir "$work" --experiment "$name" "$@")
}

# outcome_agrees NAME STATUS: outcome.json, if the run has begun and so has written one, has the exit code of the process
outcome_agrees() {
    local outcome=$work/$1/outcome.json
    [[ $outcome -nt $work/$1/args.yaml ]] || return 0 # of an earlier end: this one was refused
    grep -q "\"exit_code\":$2," "$outcome" || complain "$1: exit $2, but outcome.json says $(cat "$outcome")"
}

# ended STATUS TEXT NAME ARGUMENT...: the run ends with STATUS and says TEXT
ended() {
    local wanted=$1 text=$2 name=$3 status
    shift 2
    command_of "$@"
    timeout -s KILL 200 "${command[@]}" >"$out" 2>"$err" </dev/null
    status=$?
    [[ $status == "$wanted" ]] || complain "$name: exit $status instead of $wanted: $(tail -3 "$err")"
    outcome_agrees "$name" "$status"
    grep -qF -- "$text" "$err" || complain "$name: wanted '$text', got: $(tail -3 "$err")"
    ((wanted == 0)) || [[ $(grep -c '^error: ' "$err") == 1 ]] || complain "$name: not one line of error: $(cat "$err")"
}

all_finite() { # NAME
    local files
    mapfile -t files < <(find "$work/$1" -name '*.safetensors')
    [[ ${#files[@]} == 0 ]] || "$weights" finite "${files[@]}" || complain "$1: weights that are not finite"
    grep -v '"skipped":true' "$work/$1/metrics.jsonl" | grep -qE 'nan|null' && complain "$1: a step that is not finite counts as one"
}

# after NAME STEP: the newest checkpoint is that of STEP, with the weights of an undisturbed run of STEP steps
after() {
    [[ $(cat "$work/$1/ckpt/latest") == step-$(printf %010d "$2") ]] ||
        complain "$1: the newest checkpoint is $(cat "$work/$1/ckpt/latest" 2>&1), not of step $2"
    cmp "$work/$1/ckpt/step-$(printf %010d "$2")/model.safetensors" "$work/plain$2/last.safetensors" ||
        complain "$1: not the weights after step $2"
}

rows() { # NAME COUNT
    [[ $(wc -l <"$work/$1/metrics.jsonl") == "$2" ]] || complain "$1: $(wc -l <"$work/$1/metrics.jsonl") rows of metrics instead of $2"
}

for steps in 4 5 12; do ended 0 "" plain$steps --max-steps $steps; done

# ---- a step that is not finite
# fault: F28
poisoned() { # NAME FAULT TEXT: every tower is asked; nothing was committed
    TOWERS_FAULT=$2 ended 8 "$3" "$1"
    all_finite "$1"
    after "$1" 4
    rows "$1" 5
    tail -n 1 "$work/$1/metrics.jsonl" | grep -q '^{"step":5,.*false.*"skipped":true}$' || complain "$1: the refused step is not recorded"
    grep -qF "$3" "$work/$1/log.txt" || complain "$1: log.txt does not report it"
}
poisoned nan "nan:tower=0,step=5" "tower 0, step 5: loss and gradient are not finite"
poisoned nan-last "nan:tower=1,step=5" "tower 1, step 5: loss and gradient are not finite"
poisoned nan-grad "nan:tower=0,step=5,where=grad" "tower 0, step 5: the gradient is not finite"
poisoned nan-loss "nan:tower=0,step=5,where=loss" "tower 0, step 5: the loss is not finite"
poisoned inf "inf:tower=0,step=5" "tower 0, step 5: loss and gradient are not finite"
poisoned inf-grad "inf:tower=1,step=5,where=grad" "tower 1, step 5: the gradient is not finite"
TOWERS_TRACE=1 TOWERS_FAULT="nan:tower=0,step=2" ended 8 "  via step.c:" traced # the calls of the tower, not of its supervisor
ended 0 "" nan --resume auto # and goes on from there
rows nan 12
grep -q '"skipped":true' "$work/nan/metrics.jsonl" && complain "nan: the refused step is still recorded after a resume"
cmp "$work/nan/last.safetensors" "$work/plain12/last.safetensors" || complain "nan: resumed to other weights"

# The original looks at the last tower's loss, after the update: a NaN of tower 0 goes into the weights.
TOWERS_FAULT="nan:tower=0,step=5" ended 8 "Model diverged with loss = NaN (last tower, step 6" check-last --nan-check last --checkpoint-steps 1
[[ $(cat "$work/check-last/ckpt/latest") == step-0000000004 ]] || complain "check-last: a checkpoint of NaN"
rows check-last 6
grep '"step":5,' "$work/check-last/metrics.jsonl" | grep -q '"finite":\[false,true\]' || complain "check-last: step 5 is not told apart"
TOWERS_FAULT="nan:tower=1,step=5,where=loss" ended 8 "last tower, step 5" check-last-own --nan-check last
TOWERS_FAULT="inf:tower=1,step=5,where=loss" ended 0 "" check-last-inf --nan-check last

TOWERS_FAULT="nan:tower=0,step=5,where=loss" ended 8 "tower 0, step 5: the loss is not finite" check-mean --nan-check mean
after check-mean 4
TOWERS_FAULT="nan:tower=0,step=5,where=grad" ended 8 "step 6" check-mean-grad --nan-check mean
find "$work/check-mean-grad" -name '*.safetensors' ! -path '*/nan-step-*' | grep -q . && complain "check-mean-grad: weights of NaN were saved"

TOWERS_FAULT="nan:tower=0,step=5" ended 0 "the state after step 12 is not finite and is saved because of --nan-check off" check-off --nan-check off
"$weights" nan "$work/check-off/last.safetensors" || complain "check-off: trained on, but not into NaN"
rows check-off 12
evaluated=(eval fashion_cnn --data-path "$work/data" --device cpu --json --quiet --weights)
printed=$("$towers" "${evaluated[@]}" "$work/check-off/last.safetensors" 2>&1)
[[ $? == 4 && $printed == *"fc2.bias: 10 of 10 values; element 0 is nan"* ]] || complain "check-off: evaluated to $printed"
ended 0 "" check-off --nan-check off --max-steps 14 --resume auto
python3 - "$work/huge.safetensors" "$work/check-off/last.safetensors" <<'PYTHON'
import json, struct, sys
data = bytearray(open(sys.argv[2], "rb").read())
size, = struct.unpack("<Q", data[:8])
for name, tensor in json.loads(data[8:8 + size]).items():
    if name != "__metadata__":
        first, end = (8 + size + at for at in tensor["data_offsets"])
        data[first:end] = struct.pack("<f", 1e38) * ((end - first) // 4)
open(sys.argv[1], "wb").write(data)
PYTHON
printed=$("$towers" "${evaluated[@]}" "$work/huge.safetensors" 2>&1) # no score of answers that are no numbers
code=$?
[[ $code == 8 && $printed == *'computes numbers that are not finite from 100 of 100 images'* ]] || complain "huge weights: exit $code, evaluated to $printed"

TOWERS_FAULT="nan:tower=0,step=5" ended 0 "" skip --nan-policy skip
"$weights" finite "$work/skip/last.safetensors" || complain "skip: weights of NaN"
rows skip 12
[[ $(grep -c '"skipped":true' "$work/skip/metrics.jsonl") == 1 ]] || complain "skip: not one row is marked as skipped"
grep '"step":5,' "$work/skip/metrics.jsonl" | grep -q '"skipped":true' || complain "skip: step 5 is not marked as skipped"
many=$(for step in 2 3 4 5 6 7 8 9 10 11 12; do printf 'nan:tower=1,step=%d;' $step; done)
TOWERS_FAULT=$many ended 8 "11 steps in a row were not finite" skip-all --nan-policy skip
all_finite_weights=$(find "$work/skip-all" -name '*.safetensors')
[[ -z $all_finite_weights ]] || "$weights" finite $all_finite_weights || complain "skip-all: weights of NaN"

# ---- a tower that goes: the others hear of it long before --comm-timeout, which is ten minutes
# fault: F30
towers_that_go() {
    TOWERS_FAULT="kill:tower=1,step=5" ended 7 "tower 1 (process 1), step 5, activity forward: killed by signal 9" kill
    TOWERS_FAULT="exit:tower=0,step=5,activity=backward" ended 7 "tower 0 (process 0), step 5, activity backward: ended unexpectedly with exit code 42" exit
    TOWERS_FAULT="kill:tower=5,step=5" ended 7 "tower 5 (process 1), step 5, activity forward: killed by signal 9" kill-virtual --towers 8 --processes 2 --batch-size 2
    TOWERS_FAULT="hang:tower=1,step=5" ended 7 "tower 1 (process 1), step 5, activity forward: no sign of life for 12.0 s" hang --comm-timeout 12
    # fault: F31 (and it wrote where it hangs before it was killed)
    local calls=$work/hang/stack-tower-1.txt
    grep -qF "; the calls it was in are in $calls" "$err" || complain "hang: the calls are not named: $(cat "$err")"
    grep -q 'Call stack of tower 1' "$calls" && grep -q 'pause' "$calls" && grep -q '/towers(+0x' "$calls" || complain "hang: its calls are $(cat "$calls")"
}

# started NAME ARGUMENT...: a run in the background, so slow that it is not over before this shell has seen its first steps; its
# process is $pid
started() {
    local name=$1
    running=$1
    command_of "$@"
    rm -f "$err" # the words of the last run would look like a start
    TOWERS_FAULT="delay:tower=0,step=1,ms=${delay:-200}" "${command[@]}" >"$out" 2>"$err" </dev/null &
    pid=$!
    wait_until grep -q '^step [1-9]' "$err" || complain "$name: does not start: $(cat "$err")"
}

# gone PID: waits for its end
has_ended() { [[ ! -d /proc/$1 || $(cut -d' ' -f3 "/proc/$1/stat" 2>/dev/null) == Z ]]; }
gone() { wait_until has_ended "$1"; }

# finished STATUS TEXT: the run of started ends
finished() {
    local status
    if ! gone "$pid"; then
        complain "wanted exit $1, but the run goes on: $(tail -3 "$err")"
        kill -9 "$pid"
    fi
    wait "$pid"
    status=$?
    [[ $status == "$1" ]] || complain "wanted exit $1, got $status: $(tail -3 "$err")"
    [[ ! $running ]] || grep -q "\"exit_code\":$1," "$work/$running/outcome.json" || complain "$running: exit $1, but outcome.json says $(cat "$work/$running/outcome.json")"
    grep -qF -- "$2" "$err" || complain "wanted '$2', got: $(tail -3 "$err")"
}

killed_from_outside() {
    started real-kill --max-steps 100000 --log-interval 1
    victim=$(pgrep -P "$pid" tower1) || complain "real-kill: no process named tower1"
    kill -9 "$victim"
    finished 7 "tower 1 (process 1), step "
    [[ $(grep -c '^error: ' "$err") == 1 ]] || complain "real-kill: not one line of error"
}

# A supervisor that dies takes its towers along and leaves a directory that can be used again.
orphans() {
    started orphans --max-steps 100000 --log-interval 1 --checkpoint-steps 2
    children=$(pgrep -P "$pid" tower | tr '\n' ' ')
    disown "$pid" # no message of its death
    kill -9 "$pid"
    for child in $children; do gone "$child" || complain "orphans: tower $child lives on"; done
    ended 0 "" orphans --max-steps 100 --resume auto
}

# fault: F34 F35
# ---- signals: a checkpoint of the last step, then 128 + number; the rest of the run is the same
signals() {
    for signal in INT TERM USR2; do
        started "on-$signal" --max-steps 40 --log-interval 1
        kill "-$signal" "$pid"
        finished $((128 + $(kill -l "$signal"))) "--resume auto continues"
        step=$(sed -E 's/step-0*//' "$work/on-$signal/ckpt/latest")
        [[ $(wc -l <"$work/on-$signal/metrics.jsonl") == "$step" ]] || complain "SIG$signal: the checkpoint is of step $step, the run got to $(wc -l <"$work/on-$signal/metrics.jsonl")"
        all_finite "on-$signal"
        ended 0 "" "on-$signal" --max-steps 40 --resume auto
    done
    started coded --max-steps 40 --log-interval 1 --preempt-exit 0 # a code of its own, even 0
    kill -USR2 "$pid"
    finished 0 "--resume auto continues"
    ended 0 "" plain40 --max-steps 40
    for signal in INT TERM USR2; do
        cmp "$work/on-$signal/last.safetensors" "$work/plain40/last.safetensors" || complain "SIG$signal: resumed to other weights"
    done
}

# An evaluation and a benchmark have nothing to save: they end at once.
nothing_to_save() {
    for signal in INT TERM; do
        for verb in eval bench; do
            running=
            command=("$towers" $verb fashion_cnn --towers 2 --threads 1 --device cpu)
            if [[ $verb == eval ]]; then command+=(--weights "$work/plain12" --data-path "$work/data"); else command+=(--batches 1000000); fi
            TOWERS_FAULT="delay:tower=0,step=0,activity=evaluation,ms=20000" "${command[@]}" >"$out" 2>"$err" </dev/null &
            pid=$!
            wait_until pgrep -P $pid tower1 >/dev/null
            kill -$signal $pid
            finished $((128 + $(kill -l $signal))) "stopped by SIG$signal"
            [[ $(grep -c '^error: ' "$err") == 1 ]] || complain "$verb, SIG$signal: not one line of error: $(cat "$err")"
        done
    done
}

interrupted_twice() {
    started twice --max-steps 100000 --log-interval 1 --comm-timeout 100 # one that does not get to the end of its step
    kill -STOP "$(pgrep -P "$pid" tower1)"
    for ((i = 0; i < 100; i++)); do # two at least: signals that come at once count as one
        kill -INT "$pid" 2>/dev/null || break
        sleep 0.1
    done
    finished 130 "interrupted twice"
}

# ---- two trainers, one directory
# fault: F12
two_trainers() {
    started one --max-steps 100000 --log-interval 1
    mv "$err" "$err-of-the-first" # it goes on writing there
    ended 2 "another trainer (pid $pid) is using" one --resume auto
    kill -TERM "$pid"
    finished 143 ""
}

# The towers of a killed trainer may save until they have ended, which the next trainer awaits: it must not begin anew there.
late_trainer() {
    mkdir "$work/late"
    sh -c 'echo $$' >"$work/late/.lock"
    (flock 9 && sleep 2 && cp -r "$work/plain12/ckpt" "$work/late/") 9<>"$work/late/.lock" &
    while flock -n "$work/late/.lock" true; do sleep 0.02; done
    ended 2 "already contains a run" late --max-steps 4
    after late 12
}

# ---- stopped and continued: no false timeout
# fault: F37
paused() {
    delay=20 started paused --max-steps 200 --log-interval 1 --comm-timeout 12
    kill -STOP "$pid" $(pgrep -P "$pid")
    sleep 14
    kill -CONT "$pid" $(pgrep -P "$pid")
    finished 0 ""
}

for story in towers_that_go killed_from_outside orphans signals nothing_to_save interrupted_twice two_trainers late_trainer paused; do alongside $story; done

# ---- a console that goes away
# fault: F36
command_of closed
"${command[@]}" >&- 2>&- <&- || complain "closed console: exit $?"
cmp "$work/closed/last.safetensors" "$work/plain12/last.safetensors" || complain "closed console: other weights"
for file in metrics.jsonl log.txt results.csv args.yaml; do
    grep -qE '^(step [0-9]+/|Epoch 1, )' "$work/closed/$file" && complain "closed console: progress went into $file"
done
command_of broken --log-interval 1
"${command[@]}" 2> >(head -n 1 >/dev/null)
[[ $? == 0 ]] || complain "broken console: exit $?"
cmp "$work/broken/last.safetensors" "$work/plain12/last.safetensors" || complain "broken console: other weights"

# ---- storage
# fault: F48
touch "$work/file"
ended 6 "$work/file" unwritable --output-dir "$work/file"
ended 6 "/proc/none" unwritable --output-dir /proc/none
# A checkpoint takes 1.5 MiB, the disk 4 MiB: those of steps 3, 4 and 5 do not fit. That of step 5 is written beside step 6, after which
# the run learns of the third failure and ends.
full_disk() {
    failures=0
    mount -t tmpfs -o size=4m none "$work/small" || return 77
    command_of full --output-dir "$work/small" --checkpoint-steps 1 --keep 9 --max-steps 12
    "${command[@]}" 2>"$err"
    [[ $? == 6 ]] || complain "full disk: exit is not 6: $(tail -2 "$err")"
    grep -q 'checkpoint.*not written' "$err" || complain "full disk: no warning: $(cat "$err")"
    [[ $(cat "$work/small/full/ckpt/latest") == step-0000000002 ]] || complain "full disk: the newest checkpoint is $(cat "$work/small/full/ckpt/latest")"
    cmp "$work/small/full/ckpt/step-0000000002/model.safetensors" "$work/plain2/last.safetensors" || complain "full disk: other weights"
    [[ $(wc -l <"$work/small/full/metrics.jsonl") == 6 ]] || complain "full disk: stopped after $(wc -l <"$work/small/full/metrics.jsonl") steps, not 6"
    return "$failures"
}
# Where not even one fits, the run says so before its first step.
tiny_disk() {
    failures=0
    mount -t tmpfs -o size=1m none "$work/small" || return 77
    command_of tiny --output-dir "$work/small" --max-steps 12
    "${command[@]}" 2>"$err"
    [[ $? == 6 ]] || complain "tiny disk: exit is not 6: $(tail -2 "$err")"
    grep -q 'a checkpoint of this run takes 1.4 MiB, but its disk has only [01].[0-9] MiB free: make room' "$err" || complain "tiny disk: $(cat "$err")"
    [[ ! -e $work/small/tiny/metrics.jsonl ]] || complain "tiny disk: a step was taken"
    return "$failures"
}
# A run that is complete needs no room, one that goes on does.
filled_disk() {
    failures=0
    mount -t tmpfs -o size=16m none "$work/small" || return 77
    command_of filled --output-dir "$work/small" --max-steps 2
    "${command[@]}" 2>"$err" || complain "filled disk: exit is not 0: $(tail -2 "$err")"
    cat /dev/zero >"$work/small/zeros" 2>/dev/null
    truncate -s -1M "$work/small/zeros"
    "${command[@]}" --resume auto 2>"$err" || complain "filled disk: a complete run: $(tail -2 "$err")"
    "${command[@]}" --resume auto --max-steps 3 2>"$err"
    [[ $? == 6 ]] || complain "filled disk: exit is not 6: $(tail -2 "$err")"
    grep -q 'its disk has only [01].[0-9] MiB free: make room' "$err" || complain "filled disk: $(cat "$err")"
    return "$failures"
}
ended 0 "" plain2 --max-steps 2
if [[ $(id -u) == 0 ]] && unshare -m true 2>/dev/null; then
    mkdir "$work/small"
    export -f full_disk tiny_disk filled_disk command_of complain
    export work towers failures err
    unshare -m bash -c full_disk || complain "full disk"
    unshare -m bash -c tiny_disk || complain "tiny disk"
    unshare -m bash -c filled_disk || complain "filled disk"
else
    echo "SKIPPED: the full disk (mounting a small tmpfs wants root)" >&2
fi

# ---- edges of values
# fault: F52
ended 0 "" no-epochs --epochs 0
ended 0 "" no-steps --max-steps 0
cmp "$work/no-epochs/last.safetensors" "$work/no-steps/last.safetensors" || complain "no steps: other weights than no epochs"
rows no-steps 0
ended 0 "" no-rate --lr 0 --opt sgd
cmp "$work/no-rate/last.safetensors" "$work/no-steps/last.safetensors" || complain "lr 0: the weights moved"
ended 0 "" large-seed --seed 9223372036854775807
ended 2 "out of range" too-large-seed --seed 18446744073709551615
ended 2 "too small" one-pixel --img-size 1
ended 2 "larger than the training set" too-large-batch --batch-size 400
"$towers" train fashion_cnn --data-path "$work/data" --tower-batch 0,0 --output-dir "$work" --experiment no-batch 2>"$err"
[[ $? == 2 ]] && grep -q 'at least one batch size must be above 0' "$err" || complain "no-batch: $(cat "$err")"
ended 2 "expected a plain name" up/../../up
ended 2 "expected a plain name" up/down
ended 5 "--gpus has no effect because the run would use the CPU: " no-gpus --gpus 0
for name in up too-large-seed one-pixel too-large-batch no-batch; do [[ -e $work/$name ]] && complain "$name: left a directory"; done

# ---- limits of the machine: doctor names each with the command that lifts it; a run that meets one says which
# fault: F49
doctor_says() { # TEXT: of a shell whose limits were lowered
    grep -qF -- "$1" "$out" || complain "doctor: no '$1' in: $(cat "$out")"
}
(ulimit -S -n 256 && "$towers" doctor) >"$out" 2>"$err"
doctor_says "ulimit -n 4096"
(ulimit -S -s 512 && "$towers" doctor) >"$out" 2>"$err"
doctor_says "ulimit -s 8192"
if (ulimit -s unlimited) 2>/dev/null; then
    (ulimit -s unlimited && "$towers" doctor) >"$out" 2>"$err"
    doctor_says "NCCL needs a limited stack; use ulimit -s 8192"
fi
if [[ $(id -u) == 0 ]] && unshare -m true 2>/dev/null; then
    unshare -m bash -c 'mount -t tmpfs -o size=64m none /dev/shm && exec "$0" doctor' "$towers" >"$out" 2>"$err"
    doctor_says "docker run --shm-size=1g"
fi
(ulimit -S -n 9 && ended 6 "Too many open files" few-files && ((failures == 0))) || failures=$((failures + 1))

# ---- files of others are left alone; files that cannot be written are reported
ln -s "$work/file" "$work/link"
for target in "$work/link" "$work/small_dir"; do
    [[ -e $target ]] || mkdir "$target"
    "$towers" export fashion_cnn "$target" --format safetensors --weights "$work/plain12" >"$out" 2>"$err"
    [[ $? == 6 ]] && grep -q 'is not a regular file' "$err" || complain "export to $target: $(cat "$err")"
done
[[ -L $work/link && -d $work/small_dir ]] || complain "export: took the place of something else"
for verb in version "info fashion_cnn" "eval fashion_cnn --device cpu --weights $work/plain12 --data-path $work/data"; do
    "$towers" $verb >/dev/full 2>"$err"
    [[ $? == 6 ]] || complain "$verb: a full standard output went unnoticed"
done

together
check_end "faults are reported and survived"
