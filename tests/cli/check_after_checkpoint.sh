#!/usr/bin/env bash
# --after-checkpoint: a command that takes each checkpoint elsewhere, where the run goes on with the same bits; what it finds in its
# environment; one that is slow, that fails, that hangs at the end, with children that ignore SIGTERM; runs that are stopped, stopped twice,
# that fail, crash, are killed, or have several programs. A checkpoint that is being read stays. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
. "$source_dir/tests/support/hosts.sh"
small_data data 96 30 || exit $?
needs_faults data

train() { # NAME ARGUMENT...: with its messages in err.NAME
    timeout -s KILL 120 "$towers" train fashion_cnn --data-path data --towers 2 -b 8 --threads 1 --seed 3 --summary-interval 0 --experiment "$@" >"out.$1" 2>"err.$1" </dev/null
}
says() { grep -qE -- "$2" "err.$1" || complain "$1: wanted '$2': $(tail -n 5 "err.$1")"; } # NAME TEXT
counts() { # NAME RUN FAILED SKIPPED CODE WORD: what outcome.json has
    grep -q "\"outcome\":\"$6\".*\"exit_code\":$5,.*\"after_checkpoint\":{\"run\":$2,\"failed\":$3,\"skipped\":$4}" "runs/$1/outcome.json" ||
        complain "$1: wanted $2 run, $3 failed, $4 skipped, $6 with $5: $(cat "runs/$1/outcome.json")"
}
gone() { # FILE...: the processes whose ids they have have ended; where nobody reaps orphans, as in many containers, they stay as zombies
    local file
    for file; do wait_until eval "[[ -s $file && \$(ps -o stat= -p \$(cat $file)) =~ ^(Z.*)?$ ]]" || complain "$file: the process goes on"; done
}
supervisor() { cat "runs/$1/.lock"; }

# ---- what a command finds, and copies that go on elsewhere with the same bits
takes='printf "%s %s %s %s\n" "$TOWERS_EVENT" "$TOWERS_STEP" "$TOWERS_CHECKPOINT" "$TOWERS_RUN_DIR" >>seen
readlink /proc/self/fd/0 >>stdin
find /proc/self/fd -lname "*runs*" -o -lname "socket*" -o -lname "pipe*" | grep -c "/[3-9]$" >>open
to=away/$TOWERS_EVENT-$TOWERS_STEP
mkdir -p $to/ckpt && tar -C "$TOWERS_RUN_DIR" --exclude ".tmp-*" --exclude ./ckpt -c . | tar -C $to -x && cp -a "$TOWERS_CHECKPOINT" $to/ckpt/ && echo taken'
copies() {
    ends 0 golden --max-steps 12
    TOWERS_FAULT=delay:tower=0,step=4,ms=3000 ends 0 first --max-steps 6 --checkpoint-steps 3 --after-checkpoint "$takes"
    diff seen - <<END || complain "the environment of the command: $(cat seen)"
checkpoint 3 $work/runs/first/ckpt/step-0000000003 $work/runs/first
checkpoint 6 $work/runs/first/ckpt/step-0000000006 $work/runs/first
end 6 $work/runs/first/ckpt/step-0000000006 $work/runs/first
END
    [[ $(sort -u stdin) == /dev/null ]] || complain "the command has another standard input: $(cat stdin)"
    [[ $(sort -u open) == 0 ]] || complain "the command has open files of the run: $(cat open)"
    counts first 3 0 0 0 finished
    says first "^after checkpoints: 3 commands, 0 failed, 0 checkpoints skipped$"
    [[ $(grep -c '^taken$' runs/first/after_checkpoint.log) == 3 ]] || complain "the log: $(cat runs/first/after_checkpoint.log)"
    grep -qE 'Z checkpoint of step 3 begins$' runs/first/after_checkpoint.log && grep -qE 'Z end of step 6 ended with exit code 0 after [0-9.]+ s$' runs/first/after_checkpoint.log ||
        complain "the log: $(cat runs/first/after_checkpoint.log)"
    for file in last.safetensors report.html outcome.json; do [[ -e away/end-6/$file ]] || complain "the command of the end finds no $file"; done
    rm -rf runs/first
    for copy in checkpoint-3 end-6; do
        "$towers" train fashion_cnn --output-dir away --resume "away/$copy" --max-steps 12 --after-checkpoint none >"$out" 2>"$err" </dev/null || complain "$copy does not go on: $(tail -n 3 "$err")"
        cmp -s runs/golden/last.safetensors "away/$copy/last.safetensors" || complain "$copy ends with other weights"
        grep -q after_checkpoint "away/$copy/outcome.json" && complain "$copy: none has not ended the commands"
    done
}

# ---- a run keeps its command; one that is complete runs none
keeps() {
    ends 0 kept --max-steps 3 --after-checkpoint 'echo "$TOWERS_EVENT $TOWERS_STEP" >>kept'
    ends 0 kept --max-steps 6 --resume auto
    leaves_alone runs/kept train kept --max-steps 6 --resume auto
    [[ $(paste -sd, kept) == "checkpoint 3,end 3,checkpoint 6,end 6" ]] || complain "a resumed run: $(paste -sd, kept)"
    # one that was copied, or killed, between its last checkpoint and its end
    cp -a runs/kept runs/copied && rm runs/copied/{outcome.json,last.safetensors,report.html} && rm kept || exit 1
    ends 0 copied --max-steps 6 --resume runs/copied
    [[ $(paste -sd, kept) == "checkpoint 6,end 6" && -e runs/copied/last.safetensors ]] || complain "a run that had no end: $(paste -sd, kept) $(tail -n 3 err.copied)"
    counts copied 2 0 0 0 finished
    # --upload of the run, which excludes a command, does not go without a word
    cp -a runs/copied runs/displaced && sed -i '/^after-checkpoint:/d; s|^# upload: not set|upload: "s3://away/runs/kept" # from command line "--upload"|' runs/displaced/args.yaml
    ends 0 displaced --max-steps 8 --resume runs/displaced --after-checkpoint none
    says displaced "^warning: the run had --upload, which --after-checkpoint excludes"
    cp -a runs/copied runs/unplaced && sed -i '/^after-checkpoint:/d; s|^# upload: not set|upload: "none" # from command line "--upload"|' runs/unplaced/args.yaml
    ends 0 unplaced --max-steps 8 --resume runs/unplaced --after-checkpoint true
    ! grep -q "the run had --upload" err.unplaced || complain "a run without --upload is said to have had it"
}

# ---- who starts towers may ignore SIGCHLD, which outlives exec: then nobody could wait for a child
ignores() {
    env --ignore-signal=CHLD true 2>/dev/null || { left_out "env cannot ignore signals: SIGCHLD ignored by whoever starts towers"; return; }
    timeout -s KILL 60 env --ignore-signal=CHLD "$towers" train fashion_cnn --data-path data --towers 2 -b 8 --threads 1 --max-steps 3 --experiment ignored --after-checkpoint 'echo "$TOWERS_EVENT" >>ignored' >out.ignored 2>err.ignored </dev/null ||
        complain "SIGCHLD ignored: exit $?: $(tail -n 3 err.ignored)"
    [[ $(paste -sd, ignored) == checkpoint,end ]] || complain "SIGCHLD ignored: $(paste -sd, ignored)"
}

# ---- slow: its checkpoint stays although --keep 1 would remove it, and the newest is next; others go on meanwhile
slow='echo "$TOWERS_EVENT $TOWERS_STEP" >>slow
until grep -qE "step-000000000[56]" "$TOWERS_RUN_DIR/ckpt/latest"; do sleep 0.02; done
for file in model.safetensors train.safetensors state.json MANIFEST; do test -s "$TOWERS_CHECKPOINT/$file" || exit 9; done'
lags() {
    TOWERS_FAULT=delay:tower=0,step=2,ms=2000 ends 0 slow --max-steps 6 --checkpoint-steps 1 --keep 1 --after-checkpoint "$slow"
    [[ $(paste -sd, slow) =~ ^checkpoint\ [1-4],(checkpoint\ [45],)*checkpoint\ 6,end\ 6$ ]] || complain "a slow command: $(paste -sd, slow)"
    counts slow "$(wc -l <slow)" 0 $((7 - $(wc -l <slow))) 0 finished
    says slow "^warning: --after-checkpoint: a command took longer than the time between two checkpoints"
    [[ $(grep -c took "err.slow") == 1 ]] || complain "slow: said more than once"
}

# ---- a command that fails: the run is complete; the last command decides the exit code
fails() {
    ends 6 fails --max-steps 3 --after-checkpoint 'echo full; exit 7'
    says fails "^warning: --after-checkpoint: the command for the checkpoint of step 3 ended with exit code 7; its output is in runs/fails/after_checkpoint.log$"
    says fails "^error: the run has ended, and runs/fails has all of it, but .* not succeeded: it ended with exit code 7 \(its output is in runs/fails/after_checkpoint.log\)$"
    counts fails 2 2 0 6 finished
    grep -q '^full$' runs/fails/after_checkpoint.log || complain "fails: the log: $(cat runs/fails/after_checkpoint.log)"
    [[ -e runs/fails/last.safetensors && -e runs/fails/report.html ]] || complain "fails: the run is not complete"
    ends 0 later --max-steps 3 --after-checkpoint 'test $TOWERS_EVENT = end'
    says later "^warning: .* for the checkpoint of step 3 ended with exit code 1;"
    counts later 2 1 0 0 finished
    TOWERS_FAULT=nan:tower=1,step=5 ends 8 nan --max-steps 6 --checkpoint-steps 3 --after-checkpoint 'echo "$TOWERS_EVENT $TOWERS_STEP" >>nan; exit 3'
    [[ $(tail -n 1 nan) == "end 4" ]] || complain "a run that fails: $(paste -sd, nan)"
    says nan "^warning: the run has ended, .* exit code 3 "
    counts nan "$(wc -l <nan)" "$(wc -l <nan)" $((3 - $(wc -l <nan))) 8 failed
}

# ---- a tower that is killed by the command: it runs on after the restart
crashes() {
    local killer='echo "$TOWERS_EVENT $TOWERS_STEP" >>crash; test -e struck || { touch struck; kill -9 $(pgrep -P $(cat "$TOWERS_RUN_DIR/.lock") tower1); }'
    TOWERS_FAULT=delay:tower=0,step=4,ms=3000 ends 0 crash --max-steps 6 --checkpoint-steps 3 --processes 2 --max-restarts 1 --after-checkpoint "$killer"
    [[ $(paste -sd, crash) == "checkpoint 3,checkpoint 6,end 6" && $(wc -l <runs/crash/restarts.jsonl) == 1 ]] || complain "a crash: $(paste -sd, crash) $(tail -n 3 err.crash)"
    counts crash 3 0 0 0 finished
}

# ---- several programs: rank 0 alone runs it, waits alone, and has its exit code
hosts() {
    mpirun_find
    [[ -n ${mpirun[*]} ]] || { left_out "no mpirun: a run of several programs"; return; }
    new hosts
    timeout -s KILL 240 "${mpirun[@]}" 2 "$work/program" "$towers" train fashion_cnn --data-path data --towers 2 -b 8 --threads 1 --device cpu --max-steps 6 --experiment hosts --after-checkpoint-timeout 60 --after-checkpoint \
        'echo "$TOWERS_EVENT $TOWERS_STEP" >>hosts; test $TOWERS_EVENT = checkpoint || { until test -e "$codes/1"; do sleep 0.05; done; exit 4; }' >out.hosts 2>err.hosts </dev/null
    [[ $(cat "$codes/0") == 6 && $(cat "$codes/1") == 0 ]] || complain "hosts: exit codes $(cat "$codes/0") and $(cat "$codes/1"): $(tail -n 5 err.hosts)"
    [[ $(paste -sd, hosts) == "checkpoint 6,end 6" ]] || complain "several programs: $(paste -sd, hosts)"
    counts hosts 2 1 0 6 finished
}

# ---- a command that does not end, with a child that ignores SIGTERM: for a limit, a signal, a run that was stopped before
hang() { # NAME EVENT
    printf '%s' "test \$TOWERS_EVENT = $2 || exit 0; echo \$\$ >$1.pid; (trap '' TERM; exec sleep 1000) & echo \$! >$1.child; wait"
}
waits() { # NAME: the end of the run waits for its command
    wait_until test -s "$1.child" || complain "$1: no command: $(tail -n 3 "err.$1")"
    wait_until grep -qE "^waiting for --after-checkpoint for [0-9]+ s, at most" "err.$1" || complain "$1: nothing says that it waits: $(tail -n 3 "err.$1")"
}
limited() {
    ends 6 limit --max-steps 3 --after-checkpoint "$(hang limit end)" --after-checkpoint-timeout 5
    says limit "not succeeded: it did not end within 5 s \(--after-checkpoint-timeout\)"
    counts limit 2 1 0 6 finished
    gone limit.pid limit.child
}
signaled() {
    train signal --max-steps 3 --after-checkpoint "$(hang signal end)" &
    waits signal
    kill -INT "$(supervisor signal)"
    wait $!
    [[ $? == 6 ]] || complain "signal: exit code"
    says signal "not succeeded: SIGINT ended the wait after [0-9]+ s"
    counts signal 2 1 0 6 finished
    gone signal.pid signal.child
}
stopped() { # NAME EVENT SIGNAL CODE: by two signals
    TOWERS_FAULT=delay:tower=0,step=1,ms=50 train "$1" --max-steps 4000 --checkpoint-steps 3000 --after-checkpoint "$(hang "$1" "$2")" &
    wait_until grep -q '"step":2,' "runs/$1/metrics.jsonl" || complain "$1: no step"
    kill -s "$3" "$(supervisor "$1")"
    waits "$1"
    [[ -e runs/$1/report.html ]] || complain "$1: no report yet"
    kill -s "$3" "$(supervisor "$1")"
    wait $!
    [[ $? == "$4" ]] || complain "$1: exit code"
    says "$1" "^warning: the run has ended, .* SIG$3 ended the wait"
    says "$1" "^error: stopped by SIG$3 after step"
    grep -q '"outcome":"stopped".*"failed":1,' "runs/$1/outcome.json" || complain "$1: $(cat "runs/$1/outcome.json")"
    gone "$1.pid" "$1.child"
}

# ---- SIGINT twice at once ends the command of a checkpoint, too; and nothing goes on behind a supervisor that is killed
aborted() { # NAME SIGNAL COUNT CODE
    { TOWERS_FAULT=delay:tower=0,step=2,ms=30000 train "$1" --max-steps 4000 --checkpoint-steps 1 --after-checkpoint "$(hang "$1" checkpoint)"; } 2>/dev/null &
    local pid=$!
    wait_until test -s "$1.child" || complain "$1: no command: $(tail -n 3 "err.$1")"
    for ((i = 0; i < $3; i++)); do kill -s "$2" "$(supervisor "$1")" 2>/dev/null; sleep 0.2; done
    wait $pid
    [[ $? == "$4" ]] || complain "$1: exit code: $(tail -n 3 "err.$1")"
    gone "$1.pid" "$1.child"
    flock -w 5 "runs/$1/.lock" true || complain "$1: its lock is held"
}

for part in copies keeps ignores lags fails; do alongside $part; done
together
alongside crashes
alongside hosts
alongside limited
alongside signaled
together
alongside stopped terminated end TERM 143
alongside stopped interrupted end INT 130
alongside aborted twice INT 2 130
alongside aborted killed KILL 1 137
together

# ---- wrong usage; what a command may name is no option of a towers that it runs
refuses 2 "--after-checkpoint-timeout" "$towers" train fashion_cnn --data-path data --max-steps 1 --after-checkpoint-timeout 5
refuses 2 "--after-checkpoint-timeout" "$towers" train fashion_cnn --data-path data --max-steps 1 --after-checkpoint true --after-checkpoint-timeout 0
TOWERS_EVENT=end TOWERS_RUN_DIR=runs/kept TOWERS_STEP=6 TOWERS_CHECKPOINT=runs/kept/ckpt/step-0000000006 "$towers" eval runs/kept >"$out" 2>"$err" || complain "towers in a command: $(cat "$err")"

check_end "a command takes checkpoints elsewhere: newest first, one at a time; slow, failing and hanging ones harm no run"
