#!/usr/bin/env bash
# What does not answer, in runs of several programs: the storage of rank 0 or its console keep no other program waiting for longer than
# they must, and end no run; and a run directory that is moved ends all of them, by name. Two programs as a launcher starts them on two
# hosts, here on one; stall_calls.so makes calls wait as long as a file exists. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
needs_python
. "$source_dir/tests/support/hosts.sh"
. "$source_dir/tests/support/stalls.sh"
mpirun_find
[[ ${mpirun[*]:-} ]] || { echo "SKIPPED: no launcher of MPI" >&2; exit 77; }
small_data "$work/data" 400 100 || exit $?

# begin NAME ARGUMENT...: two programs with a tower each, until they are ended; $job is the launcher
begin() {
    local name=$1
    shift
    timeout -s KILL 600 "${mpirun[@]}" 2 "$work/program" "$towers" train fashion_cnn --data-path "$work/data" --towers 2 --threads 1 --batch-size 8 \
        --max-steps 1000000 --epochs 1000000 --device cpu --log-interval 1 --comm-timeout 20 --output-dir "$work" --experiment "$name" "$@" >"$out" 2>"$err" </dev/null &
    job=$!
    wait_until rows "$name" 3 || complain "$name does not train: $(cat "$err")"
}
# stalls NAME PATH: rank 0 will wait for files whose path has this text, while $away exists
stalls() {
    new "$1"
    away=$work/away-$1
    echo "export LD_PRELOAD=$shim STALL_PATH=$2 STALL_WHILE=$away" >"$codes/before-0"
}
stop() { # NAME: one signal to rank 0 ends all
    kill -TERM "$(cat "$work/$1/.lock")"
    wait $job
    all_codes 143 "$1" 2
    whole "$1"
}

# fault: F60
records_away() {
    stalls records records/metrics.jsonl
    begin records --checkpoint-steps 1000000 --eval-interval 0
    touch "$away"
    waits_for "warning: storage does not answer: records wait in memory" "$err"
    rm "$away"
    stop records
}
storage_away() { # the other program waits for rank 0, which waits for storage
    stalls saved saved/ckpt
    begin saved --checkpoint-steps 5
    touch "$away"
    waits_for "has waited for storage for [0-9]+ s; the run goes on when it answers" "$err"
    sleep 24 # more than --comm-timeout
    rm "$away"
    waits_for ": waited for storage for [0-9]+ s" "$err"
    stop saved
}
outcome_away() { # the others end; rank 0 says what is not recorded yet, and records it when storage answers
    stalls outcome outcome.json
    begin outcome
    touch "$away"
    kill -TERM "$(cat "$work/outcome/.lock")"
    # the other's towers may end first: they learn of the stop by the step, which has no number of a signal
    waits_for "stopped by (SIGTERM|a signal to another host).*; the storage of $work/outcome does not answer: waiting up to 60 s to record this there" "$err"
    waits_for . "$codes/1"
    [[ ! -e $codes/0 ]] || complain "outcome: rank 0 has not waited"
    rm "$away"
    wait $job
    all_codes 143 outcome 2
    whole outcome
}
console_away() { # a console of rank 0 that nobody reads hides no dead tower of the other program
    new console
    full console
    echo "exec 2>$work/pipe-console" >"$codes/before-0"
    begin console
    kill -9 "$(pgrep -P "$(pgrep -P "$(cat "$codes/shell-1")" -x towers)" tower1)"
    wait $job
    all_codes 7 console 2
    grep -q '"exit_code":7,.*killed by signal 9' "$work/console/outcome.json" || complain "console: $(cat "$work/console/outcome.json")"
}
# apart NAME RANK VARIABLE=VALUE...: rank 1 has a folder of its own; rank RANK has these variables, with which calls wait while $away exists
apart() {
    local name=$1 rank=$2
    shift 2
    new "$name"
    away=$work/away-$name
    mkdir "$work/here-$name" "$work/there-$name"
    ln -s "here-$name/$name" "$work/$name"
    echo "cd $work/here-$name" >"$codes/before-0"
    echo "cd $work/there-$name" >"$codes/before-1"
    echo "export LD_PRELOAD=$shim STALL_WHILE=$away $*" >>"$codes/before-$rank"
}
# ends_beside NAME RANK: a run that ends as it should; but calls of this rank wait on a record that no tower touches, which the supervisor
# of rank 1 reads and that of rank 0 gets
ends_beside() {
    apart "$1" "$2" STALL_PATH=stack-tower-1
    mkdir "$work/there-$1/$1"
    echo main >"$work/there-$1/$1/stack-tower-1.txt"
    touch -d tomorrow "$work/there-$1/$1/stack-tower-1.txt" # not of an earlier run
    touch "$away"
    begin "$1" --output-dir . --max-steps 8 --comm-timeout 600
    supervisor=$(pgrep -P "$(cat "$codes/shell-$2")" -x towers)
    wait_until eval '! pgrep -P "$supervisor" tower' || complain "$1: its towers go on"
}
taken() { # the process has no SIGTERM pending, with which the next one would be merged
    ((!(0x$(awk '/^ShdPnd/ { print $2 }' "/proc/$1/status") & 1 << 14)))
}
# leaves NAME RANK TEXT: a second signal ends its wait, and it says what is missing
leaves() {
    kill -TERM "$supervisor"
    wait_until taken "$supervisor" || complain "$1: nobody takes the first signal"
    kill -TERM "$supervisor"
    waits_for . "$codes/$2"
    rm "$away"
    wait $job
    all_codes 0 "$1" 2
    cat "$err" "$work/there-$1/$1/log-rank1.txt" >"$codes/all" 2>/dev/null # rank 1 prints to its own folder
    grep -q "^warning: $3" "$codes/all" || complain "$1: no word of '$3': $(tail -n 5 "$codes/all")"
}
# fault: F67
taken_away() { # rank 0 cannot write what another program brings
    ends_beside taken 0
    leaves taken 0 "files of other nodes stay on their hosts: the storage of .* does not answer"
}
brought_away() { # a program cannot read what it is to bring
    ends_beside brought 1
    leaves brought 1 "records of rank 1 stay on .*: storage does not answer"
}
brought_late() { # what storage delays comes nevertheless
    ends_beside late 0
    [[ ! -e $codes/0 && ! -e $codes/1 ]] || complain "late: nobody has waited"
    rm "$away"
    wait $job
    all_codes 0 late 2
    [[ $(cat "$work/late/stack-tower-1.txt") == main ]] || complain "late: the record has not come: $(tail -n 5 "$err")"
}
# fault: F68
loop_stalls() { # a supervisor that no longer looks at its towers shows no sign of life: others name it
    apart stuck 1 STALL_CHILDREN=1
    begin stuck --output-dir .
    touch "$away"
    waits_for . "$codes/0"
    rm "$away"
    wait $job
    all_codes 7 stuck 2
    grep -q "^error: rank 1 on .*: no sign of life of its supervisor for 20.0 s (--comm-timeout)" "$err" || complain "stuck: $(tail -n 5 "$err")"
}
# A tower that hangs on its way into a collective passes for one that waits there: its supervisor ends nothing, and the other node names it, by
# what heartbeats say.
behind() {
    new behind
    TOWERS_FAULT="hang:tower=1,step=8,activity=all-reduce" begin behind --comm-timeout 8
    wait $job
    all_codes 7 behind 2
    grep -qE "^error: .*host [^ ]+ \(tower process 1\) did not arrive at the collective within 8.0 s \(--comm-timeout\)" "$err" || complain "behind: $(tail -n 5 "$err")"
}
moved() { # fault: F59
    new moved
    begin moved --checkpoint-steps 5
    mv "$work/moved" "$work/elsewhere"
    wait $job
    all_codes 6 moved 2
    grep -q "was renamed while the run trained: its records are in $work/elsewhere" "$err" || complain "moved: $(cat "$err")"
    [[ ! -e $work/moved ]] || complain "moved: a second directory: $(ls -A "$work/moved")"
    grep -q '"exit_code":6' "$work/elsewhere/outcome.json" || complain "moved: $(cat "$work/elsewhere/outcome.json")"
}

for story in records_away storage_away outcome_away console_away taken_away brought_away brought_late loop_stalls behind moved; do alongside $story; done
together
check_end "programs of one run go on beside what does not answer"
