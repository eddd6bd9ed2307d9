#!/usr/bin/env bash
# Whatever does not answer, a run goes on, and ends when it is told to: a console that nobody reads (a full pipe, a stopped terminal),
# standard output that nobody reads, a file server, a name server. stall_calls.so makes calls wait as long as a file exists.
. "$1/tests/support/check.sh"
needs_python
small_data "$work/data" 400 100 || exit $?
needs_faults "$work/data"
. "$source_dir/tests/support/stalls.sh"

# Two towers in processes of their own that train until they are ended; later arguments win.
command_of() { # NAME ARGUMENT...
    local name=$1
    shift
    command=("$towers" train fashion_cnn --data-path "$work/data" --towers 2 --processes 2 --threads 1 --batch-size 8 --max-steps 1000000
        --epochs 1000000 --device cpu --log-interval 1 --output-dir "$work" --experiment "$name" "$@")
}

# ends PID SECONDS: within that time; its exit code is $status
ends() {
    local tries
    status=running
    for ((tries = 0; tries < 20 * $2; tries++)); do
        [[ -d /proc/$1 && $(cut -d' ' -f3 "/proc/$1/stat" 2>/dev/null) != Z ]] || { wait "$1"; status=$?; return 0; }
        sleep 0.05
    done
    kill -9 "$1"
    wait "$1"
    return 1
}

outcome_says() { # NAME EXIT TEXT
    python3 - "$work/$1/outcome.json" "$2" "$3" <<'PYTHON' || complain "$1: outcome.json: $(cat "$work/$1/outcome.json" 2>&1)"
import json, sys
outcome = json.load(open(sys.argv[1]))
sys.exit(outcome["exit_code"] != int(sys.argv[2]) or sys.argv[3] not in outcome["message"])
PYTHON
}

killed() { # NAME PID: a tower is killed from outside; the run ends soon, with the cause
    wait_until rows "$1" 3 || complain "$1 does not train: $(cat "$err")"
    kill -9 "$(pgrep -P "$2" tower1)"
    ends "$2" 60 || complain "$1: goes on a minute after a tower was killed"
    [[ $status == 7 ]] || complain "$1: exit $status instead of 7"
    outcome_says "$1" 7 "killed by signal 9"
}

# ---- consoles
# fault: F36
stderr_unread() {
    full stderr
    command_of stderr
    "${command[@]}" 2>&9 >"$out" </dev/null 9>&- &
    killed stderr $!
}
both_unread() {
    full both
    command_of both --json
    "${command[@]}" >&9 2>&9 </dev/null 9>&- &
    killed both $!
}
stop_unread() { # one signal is enough, and what is saved can be resumed
    local pid
    full stopped
    command_of stopped
    "${command[@]}" 2>&9 >"$out" </dev/null 9>&- &
    pid=$!
    wait_until rows stopped 3
    kill -TERM $pid
    ends $pid 60 || complain "stopped: goes on a minute after SIGTERM"
    [[ $status == 143 ]] || complain "stopped: exit $status instead of 143"
    outcome_says stopped 143 "resume auto continues"
}
stdout_unread() { # the result is lost, and the exit code says so
    local pid
    full stdout
    command_of stdout --json --epochs 1 --max-steps 4
    "${command[@]}" >&9 2>"$err" </dev/null 9>&- &
    pid=$!
    ends $pid 60 || complain "stdout: does not end"
    [[ $status == 6 ]] && grep -q "^error: cannot write to standard output: nobody reads it" "$err" || complain "stdout: exit $status: $(cat "$err")"
    outcome_says stdout 6 "nobody reads it"
    grep -q '"outcome":"finished"' "$work/stdout/outcome.json" || complain "stdout: its training has finished, but: $(cat "$work/stdout/outcome.json")"
}
stdout_gone() { # neither a full disk nor a reader that has left stays unnoticed
    command_of disk --json --epochs 1 --max-steps 4
    "${command[@]}" >/dev/full 2>"$err" </dev/null
    [[ $? == 6 ]] || complain "a full disk: $(cat "$err")"
    outcome_says disk 6 "cannot write to standard output"
    command_of left --json --epochs 1 --max-steps 4
    "${command[@]}" 2>"$err" </dev/null | true
    [[ ${PIPESTATUS[0]} == 141 ]] || complain "a reader that has left: exit ${PIPESTATUS[0]}: $(cat "$err")"
    outcome_says left 141 "has left"
}
slow_reader() { # one that reads late gets all that fits, and learns that the rest is missing
    local pid
    mkfifo "$work/unread"
    exec 9<>"$work/unread"
    command_of late --epochs 1000000 --max-steps 1500 --batch-size 1 --towers-view
    "${command[@]}" 2>&9 >"$out" </dev/null 9>&- &
    pid=$!
    wait_until rows late 1400
    cat <"$work/unread" >"$work/late.txt" 9>&- &
    exec 9>&-
    ends $pid 120 && [[ $status == 0 ]] || complain "late: exit $status"
    wait
    grep -q "^model " "$work/late.txt" && grep -q "bytes were left out here, because nobody read them" "$work/late.txt" &&
        grep -q "^run directory " "$work/late.txt" || complain "late: $(tail -n 5 "$work/late.txt")"
}
late_words() { # the thread that writes them has no processor for seconds, and the stream takes them: the process waits for it
    local pid
    touch "$work/no-processor"
    command_of busy --epochs 1 --max-steps 4
    LD_PRELOAD=$shim STALL_WHILE=$work/no-processor STALL_PATH=$work/late-words "${command[@]}" 2>"$work/late-words" >"$out" </dev/null &
    pid=$!
    wait_until grep -q '"outcome":"finished"' "$work/busy/outcome.json"
    sleep 3
    rm "$work/no-processor"
    ends $pid 60 && [[ $status == 0 ]] || complain "busy: exit $status"
    grep -q "^run directory " "$work/late-words" || complain "busy: the last words are lost: $(cat "$work/late-words")"
}
stopped_terminal() { # Ctrl-S
    command_of terminal
    timeout -s KILL 120 python3 - "$work/terminal" "${command[@]}" <<'PYTHON' || complain "a terminal that was stopped"
import json, os, pty, signal, subprocess, sys, time
master, slave = pty.openpty()
run = subprocess.Popen(sys.argv[2:], stdin=slave, stdout=slave, stderr=slave)
shown = b""
while b"img/s" not in shown:
    shown += os.read(master, 4096)
os.write(master, b"\x13")
time.sleep(1)
towers = subprocess.run(["pgrep", "-P", str(run.pid), "tower1"], capture_output=True, text=True).stdout.split()
os.kill(int(towers[0]), signal.SIGKILL)
code = run.wait(20)
outcome = json.load(open(sys.argv[1] + "/outcome.json"))
sys.exit(code != 7 or "killed by signal 9" not in outcome["message"])
PYTHON
}

# ---- the name server: who looks up rank 0 says for what it waits, and keeps its deadline
# fault: F43
names_unanswered() {
    touch "$work/names"
    TOWERS_RANK=1 TOWERS_WORLD_SIZE=2 TOWERS_LOCAL_RANK=0 TOWERS_MASTER_ADDR=rank0.invalid TOWERS_MASTER_PORT=$((15000 + RANDOM % 1500)) \
        LD_PRELOAD=$shim STALL_NAMES=1 STALL_WHILE=$work/names timeout -s KILL 100 "$towers" train fashion_cnn --data-path "$work/data" --device cpu \
        --comm-timeout 9 --output-dir "$work" --experiment names >"$out" 2>"$err" </dev/null
    [[ $? == 7 ]] || complain "names: exit is not 7: $(cat "$err")"
    grep -qE "^waiting for [0-9]+ s for rank 0 of 2 programs at rank0.invalid, port [0-9]+: the name server does not answer" "$err" || complain "names: $(cat "$err")"
    grep -q "^error: .*cannot meet rank 0 .*the name server does not answer" "$err" || complain "names: $(cat "$err")"
}

# RANK and WORLD_SIZE that another command has left behind: the program says that it waits, and its advice works.
launched_by_nobody() { # ALONE VARIABLE=VALUE...
    local alone=$1 name=alone$BASHPID pid
    shift
    command_of "$name" --epochs 1 --max-steps 2
    env "$@" "${command[@]}" >"$out" 2>"$err" </dev/null &
    pid=$!
    wait_until grep -q "^waiting for " "$err" || complain "$*: waits without a word"
    kill -9 $pid
    wait $pid 2>/dev/null
    grep -qE "^waiting for [0-9]+ s for rank 1 of 2 programs to connect to port [0-9]+ of .*; this is rank 0 of 2 according to .*: env $alone towers \.\.\.$" "$err" ||
        complain "$*: $(cat "$err")"
    # shellcheck disable=SC2046 # words
    env "$@" $(sed -n 's/.*: \(env .*\) towers \.\.\.$/\1/p' "$err") "${command[@]}" >"$out" 2>"$err" </dev/null || complain "$*: does not train alone: $(cat "$err")"
}

# ---- storage: a heartbeat that cannot be written does not keep the run
heartbeat_unwritten() {
    local pid from try taken
    touch "$work/beats"
    for try in 1 2 3; do # a machine under load may need longer, but one of three tries shows it
        command_of beat$try
        LD_PRELOAD=$shim STALL_PATH=.tmp-heartbeat STALL_WHILE=$work/beats "${command[@]}" >"$out" 2>"$err" </dev/null &
        pid=$!
        wait_until rows beat$try 3
        from=$SECONDS
        killed beat$try $pid
        taken=$((SECONDS - from))
        ((taken < 9)) && return
    done
    complain "beat: took $taken s to end"
}

# ---- storage: a file server that is away for several times --comm-timeout ends no run, whatever waits for it
# away NAME PATH ARGUMENT...: it trains until calls on files whose path has this text wait; $pid is the run, $away the file to remove
away() {
    local name=$1 path=$2
    shift 2
    away=$work/away-$name
    command_of "$name" --comm-timeout 6 "$@"
    LD_PRELOAD=$shim STALL_PATH=$path STALL_WHILE=$away "${command[@]}" >"$out" 2>"$err" </dev/null &
    pid=$!
    wait_until rows "$name" 3 || complain "$name does not train: $(cat "$err")"
    touch "$away"
}
# returns NAME EXIT: storage answers again; the run ends with this code, and has every step once
returns() {
    rm "$away"
    [[ $2 != 143 ]] || kill -TERM "$pid"
    ends "$pid" 60 || complain "$1: does not end"
    [[ $status == "$2" ]] || complain "$1: exit $status instead of $2: $(tail -n 4 "$err")"
    whole "$1"
}
step_of() { # NAME: of the heartbeat
    grep -o '"step":[0-9]*' "$work/$1/heartbeat.json" | cut -d: -f2
}
# fault: F60
records_away() { # training does not wait for its records
    local before seen more
    away records records/metrics.jsonl --checkpoint-steps 1000000 --eval-interval 0
    before=$(wc -l <"$work/records/metrics.jsonl")
    wait_until grep -q "^warning: storage does not answer: records wait in memory, and training continues" "$err" || complain "records: no warning: $(cat "$err")"
    for more in 0 20; do # the first heartbeat since the warning, and a later one
        seen=$(step_of records)
        wait_until eval '(($(step_of records) > seen + more))' || complain "records: training waits after step $(step_of records)"
    done
    [[ $(wc -l <"$work/records/metrics.jsonl") == "$before" ]] || complain "records: they were written"
    returns records 143
    grep -qE "Z storage did not answer for [0-9]+ s; the records of that time were written after it$" "$work/records/log.txt" || complain "records: $(tail -n 3 "$work/records/log.txt")"
}
checkpoints_away() { # the next checkpoint waits for the one before it, and says so
    away saved saved/ckpt --checkpoint-steps 5
    wait_until grep -qE "^warning: tower 0 \(process 0\), .*: has waited for storage for [0-9]+ s; the run goes on when it answers" "$err" || complain "saved: no warning: $(cat "$err")"
    sleep 10 # more than --comm-timeout
    rm "$away"
    wait_until grep -qE "^warning: tower 0: waited for storage for [0-9]+ s" "$err" || complain "saved: $(cat "$err")"
    touch "$away"
    returns saved 143
    grep -qE "Z tower 0: waited for storage for [0-9]+ s" "$work/saved/log.txt" || complain "saved: $(tail -n 3 "$work/saved/log.txt")"
}
all_away() { # and so does the end of a run
    away all /all/ --max-steps 40 --checkpoint-steps 20
    wait_until grep -q "has waited for storage for" "$err" || complain "all: no warning: $(cat "$err")"
    sleep 10 # more than --comm-timeout
    returns all 0
}
taken() { # the process has no SIGTERM pending, with which the next one would be merged
    ((!(0x$(awk '/^ShdPnd/ { print $2 }' "/proc/$pid/status") & 1 << 14)))
}
gone_for_good() { # a second signal ends a run whose storage does not come back
    away gone gone/ckpt --checkpoint-steps 5
    wait_until grep -q "has waited for storage for" "$err" || complain "gone: no warning: $(cat "$err")"
    kill -TERM "$pid"
    wait_until taken || complain "gone: nobody takes the first signal"
    kill -TERM "$pid"
    ends "$pid" 60 || complain "gone: goes on a minute after the second signal"
    [[ $status == 143 ]] && grep -q "no tower has shown a sign of life" "$err" || complain "gone: exit $status: $(cat "$err")"
}
stopped_in_a_call() { # a process that is stopped while it waits for storage is silent
    away halted halted/ckpt --checkpoint-steps 5
    wait_until grep -q "has waited for storage for" "$err" || complain "halted: no warning: $(cat "$err")"
    kill -STOP "$(pgrep -P "$pid" '^tower0')"
    ends "$pid" 60 || complain "halted: goes on a minute after its process was stopped"
    [[ $status == 7 ]] && grep -qE "tower 0 \(process 0\), .*: no sign of life for [0-9.]+ s" "$err" || complain "halted: exit $status: $(cat "$err")"
}

for story in stderr_unread both_unread stop_unread stdout_unread stdout_gone slow_reader late_words stopped_terminal names_unanswered heartbeat_unwritten \
    records_away checkpoints_away all_away gone_for_good stopped_in_a_call; do
    alongside $story
done
port=$((16500 + RANDOM % 1500))
alongside launched_by_nobody "-u RANK -u WORLD_SIZE" RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=localhost MASTER_PORT=$port
alongside launched_by_nobody "-u RANK -u WORLD_SIZE -u PMI_RANK -u PMI_SIZE" RANK=0 WORLD_SIZE=2 PMI_RANK=0 PMI_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$((port + 2))
together
check_end "runs go on beside what does not answer"
