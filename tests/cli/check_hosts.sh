#!/usr/bin/env bash
# One run on several nodes: the same weights and records as in one, also when it is resumed in another shape; stops, deaths
# and contradictions end every program with the same exit code and the cause by name. The programs are those of a real mpirun where
# towers compute, and started by their variables alone where they only meet. scripts/pages/hosts_tables.sh makes the tables of docs/scaling.md from what this test
# sees. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
. "$source_dir/tests/support/hosts.sh"
small_data "$work/data" 96 30 || exit $?
small_data "$work/other" 96 30
printf '\7' | dd of="$work/other/train-images-idx3-ubyte" bs=1 seek=400 conv=notrunc status=none
mpirun_find

run=(train fashion_cnn --data-path "$work/data" --device cpu --threads 1 --workers 1 --towers 8 --batch-size 2 --max-steps 12
    --checkpoint-steps 4 --eval-batch-size 4 --eval-interval 1 --log-interval 1 --summary-interval 0 --output-dir "$work" --comm-timeout 60)

# launched PROGRAMS ARGUMENT...: under mpirun, or alone
launched() {
    local programs=$1
    shift
    if ((programs == 1)); then "$towers" "${run[@]}" "$@"; else "${mpirun[@]}" "$programs" "$work/program" "$towers" "${run[@]}" "$@"; fi >"$out" 2>"$err" </dev/null
}

# ---- programs that only meet

# meet NAME TEXT RANK:CODE...: three programs by TOWERS_*, of which those named are started; TEXT is in the output of one of them
port=$((10000 + RANDOM % 1500)) # each test has a range of its own
meet() {
    local name=$1 text=$2 one rank pids=()
    shift 2
    new "$name"
    port=$((port + 7))
    for one in "$@"; do
        TOWERS_RANK=${one%:*} TOWERS_WORLD_SIZE=3 TOWERS_MASTER_ADDR=localhost TOWERS_MASTER_PORT=$port "$work/program" "$towers" "${run[@]}" \
            --experiment "$name" --comm-timeout "${wait:-60}" >"$codes/out-${one%:*}" 2>&1 </dev/null &
        pids+=($!)
    done
    wait "${pids[@]}"
    grep -qF -- "$text" "$codes"/out-* || complain "$name: nobody says '$text': $(cat "$codes"/out-*)"
    for one in "$@"; do
        rank=${one%:*}
        [[ $(cat "$codes/$rank") == "${one#*:}" ]] || complain "$name: rank $rank ended with $(cat "$codes/$rank") instead of ${one#*:}: $(cat "$codes/out-$rank")"
    done
    [[ ! -e $work/$name ]] || complain "$name: a run directory although the programs did not agree"
    row faults "${what:-$name}" "${*#*:}" "\`$text\`"
}
what="a program does not come" wait=10 meet missing "of 3 programs rank 1 did not connect to port" 0:7 2:7
what="rank 0 does not come" wait=3 meet nobody "cannot meet rank 0 at localhost" 1:7
what="CPU towers under a launcher without MPI" meet without-mpi "sums with MPI, but TOWERS_RANK starts programs without it" 0:5 1:5 2:5
# fault: F46
new build && cp "$towers" "$work/another" && echo x >>"$work/another" && echo "program=$work/another; sleep 2" >"$codes/before-1" # it comes last
what="another build on one host" meet build "rank 1 on $(hostname) runs another build of towers" 0:2 1:2 2:2
new token && echo 'export TOWERS_TOKEN=theirs' >"$codes/before-2"
what="a program of another job" wait=10 meet token "1 connections did not prove to be of this job (TOWERS_TOKEN, the number of programs), the last as rank 2 of 3 on " 0:7 1:7 2:2
grep -q 'has found the rank 0 of another job' "$codes/out-2" || complain "token: $(cat "$codes/out-2")"
# fault: F45
new count && echo 'export TOWERS_WORLD_SIZE=4' >"$codes/before-2"
what="another number of programs on one host" wait=10 meet count "rank 2 on $(hostname) is one of 4 programs, but rank 0 is one of 3" 0:7 1:7 2:2
new twice && echo 'export TOWERS_RANK=1' >"$codes/before-2"
what="two programs with one rank" meet twice "rank 1 has come twice" 0:2 1:2 2:2
TOWERS_RANK=0 TOWERS_WORLD_SIZE=2 "$towers" "${run[@]}" >"$out" 2>"$err" </dev/null
[[ $? == 2 ]] && grep -q 'does not say where rank 0 is; set MASTER_ADDR' "$err" || complain "no address: $(cat "$err")"
RANK=0 WORLD_SIZE=2 PMI_RANK=1 PMI_SIZE=2 MASTER_ADDR=localhost "$towers" "${run[@]}" >"$out" 2>"$err" </dev/null
[[ $? == 2 ]] && grep -q 'RANK is 0 and PMI_RANK is 1' "$err" || complain "a contradiction: $(cat "$err")"
TORCHELASTIC_ERROR_FILE=$work/reply RANK=0 WORLD_SIZE=x MASTER_ADDR=localhost "$towers" "${run[@]}" >"$out" 2>"$err" </dev/null
grep -q '^{"message":{"message":"WORLD_SIZE is .x., expected' "$work/reply" || complain "TORCHELASTIC_ERROR_FILE: $(cat "$work/reply")"

((${#mpirun[@]})) || { echo "SKIPPED: towers on several hosts: this build has no MPI, or mpirun is missing" >&2; exit 77; }

# ---- the same bits: eight towers in one program, in two and in four; and one run in all three shapes, one after the other

column() { sed -E "s/.*\"$2\":(\[[^]]*\]|[^,]*),.*/\1/" "$work/$1/metrics.jsonl"; }
same_run() { # NAME FILE...
    local file key
    for file in last.safetensors "${@:2}"; do
        cmp "$work/one/$file" "$work/$1/$file" || complain "$1: another $file than in one program"
    done
    for key in step mean_loss tower_loss tower_grad_norm top1; do
        cmp <(column one $key) <(column "$1" $key) || complain "$1: another $key in metrics.jsonl"
    done
    [[ $# == 1 ]] || cmp <(cut -d, -f1-7 "$work/one/results.csv") <(cut -d, -f1-7 "$work/$1/results.csv") || complain "$1: other results.csv"
}
launched 1 --experiment one || complain "one program: $(tail -n 3 "$err")"
for programs in 2 4; do
    new "bits-$programs"
    launched $programs --experiment "in-$programs" || complain "$programs programs: exit $?: $(tail -n 5 "$err")"
    all_codes 0 "$programs programs" $programs
    same_run "in-$programs" best.safetensors confusion.csv mistakes.csv
    ((failures)) || row bits "$programs x $((8 / programs))" equal equal equal equal
    grep -qE "^hosts +$(hostname)(, $(hostname)){$((programs - 1))}; ranks 0..$((programs - 1)) from " "$err" || complain "$programs programs: no line of hosts: $(cat "$err")"
done
[[ -e $work/in-2/log-rank1.txt ]] || complain "rank 1 has no log"
for name in in-2 in-4; do # durations of all towers, and the work of all loaders
    for key in arrival_us data_us copy_us forward_us backward_us; do
        column $name $key | grep -vE '^\[-?[0-9]+(,-?[0-9]+){7}\]$' && complain "$name: $key is not known for all towers"
    done
    column $name forward_us | grep -qE '[[,]0[],]' && complain "$name: a tower needs no time for its forward pass"
    ((12 * 16 <= $(grep -o '"images": [0-9]*' "$work/$name/data.json" | tr -dc 0-9))) || complain "$name: $(cat "$work/$name/data.json")"
    [[ $(tr -d ' \n' <"$work/$name/env.json" | grep -o "\"hosts\":\[.*" | grep -o "\"$(hostname)\"" | wc -l) == 8 ]] ||
        complain "$name: not a host for each tower: $(cat "$work/$name/env.json")"
done
new shapes
launched 1 --experiment shapes --max-steps 4 || complain "shapes, one program: $(tail -n 3 "$err")"
launched 2 --experiment shapes --resume auto --max-steps 8 || complain "shapes, two: $(tail -n 3 "$err")"
all_codes 0 "shapes in two" 2
launched 4 --experiment shapes --resume auto || complain "shapes, four: $(tail -n 3 "$err")"
all_codes 0 "shapes in four" 4
same_run shapes # what it stopped at was evaluated, too
((failures)) || row bits "4 steps of 1 x 8, resumed as 2 x 4 for 4, as 4 x 2 for 4" equal equal equal "-"

# ---- one sweep of the learning rate, printed once; it ends when the loss is too high, for all programs

sweep=(lr-find fashion_cnn --data-path "$work/data" --device cpu --threads 1 --towers 8 --batch-size 2 --lr-to 1e4 --json --quiet)
"$towers" "${sweep[@]}" >"$work/swept" 2>"$err" || complain "lr-find: $(tail -n 3 "$err")"
new swept
"${mpirun[@]}" 4 "$work/program" "$towers" "${sweep[@]}" >"$out" 2>"$err" </dev/null || complain "lr-find, four programs: exit $?: $(tail -n 3 "$err")"
all_codes 0 "lr-find in four" 4
cmp "$work/swept" "$out" || complain "lr-find: four programs find another curve than one"
new swept-differently
echo 'more="--lr-from 1e-3"' >"$codes/before-1"
"${mpirun[@]}" 2 "$work/program" "$towers" "${sweep[@]}" >"$out" 2>"$err" </dev/null
all_codes 2 "lr-find with different settings" 2
grep -qF "'--lr-from: 0.001' here, '--lr-from: 1e-06' there" "$err" || complain "lr-find with different settings: $(tail -n 4 "$err")"
grep -q '"steps":100' "$work/swept" && complain "lr-find: the sweep did not end early"

# ---- what rank 0 says is not obeyed blindly: a link in place of the log, and another run directory, are refused

victim=$work/victim
echo mine >"$victim" && rm "$work/in-2/log-rank1.txt" && ln -s "$victim" "$work/in-2/log-rank1.txt"
new link
launched 2 --experiment in-2 --resume auto --max-steps 14
[[ $(cat "$codes"/[01]) =~ ^[1-9] ]] || complain "a link in place of rank 1's log was accepted"
grep -q "log-rank1.txt' is a symbolic link; it was not opened for writing" "$err" || complain "a link: $(tail -n 3 "$err")"
[[ $(cat "$victim") == mine ]] || complain "a file behind a link was written to"
for more in "--output-dir $work/mine" "--experiment mine"; do
    new directory && echo "more='$more'" >"$codes/before-1"
    launched 2 --experiment elsewhere --max-steps 1
    grep -q "rank 0 has the run directory $work/elsewhere, but the options of this rank mean $work/mine" "$err" || complain "$more on one host: $(tail -n 3 "$err")"
    all_codes 2 "$more on one host" 2
    [[ ! -e $work/elsewhere && ! -e $work/mine ]] || complain "$more on one host: a run directory was made"
done

# a network with batch norms, of which every tower has its own statistics
model=${run[1]} run[1]=inception_mini
steady=(--opt sgd --lr 0.01 --sched constant)
launched 1 --experiment norms --max-steps 4 "${steady[@]}" || complain "norms: $(tail -n 3 "$err")"
launched 1 --experiment norms-2 --max-steps 2 "${steady[@]}" || complain "norms-2: $(tail -n 3 "$err")"
new norms && echo 'more="--resume auto"' >"$codes/before-0" # rank 0 decides it for all
launched 2 --experiment norms-2 --max-steps 4 "${steady[@]}" || complain "norms-2 in two: $(tail -n 5 "$err")"
all_codes 0 "norms-2 in two" 2
for file in last.safetensors ckpt/step-0000000004/train.safetensors; do
    cmp "$work/norms/$file" "$work/norms-2/$file" || complain "batch norms, resumed in two programs: another $file"
done

# a network of several buckets: the last sum ends behind the backward pass (that the first begins before its end is up to the
# scheduler here; check_mpi and test_hosts_sums see it by signs)
run=(train googlenet "${run[@]:4}")
large=(--dataset synthetic --towers 2 --batch-size 1 --max-steps 4 --checkpoint-steps 0 --eval-interval 0)
launched 1 --experiment buckets "${large[@]}" || complain "buckets: $(tail -n 3 "$err")"
new buckets
launched 2 --experiment buckets-2 "${large[@]}" || complain "buckets in two: exit $?: $(tail -n 5 "$err")"
all_codes 0 "buckets in two" 2
cmp "$work/buckets/last.safetensors" "$work/buckets-2/last.safetensors" || complain "several buckets: other weights than in one program"
paste <(column buckets-2 sums) <(column buckets-2 sum_begin_us) <(column buckets-2 backward_end_us) <(column buckets-2 sum_end_us) |
    awk '$1 < 3 || $2 > $4 || $3 > $4 { exit 1 } END { exit NR != 4 }' ||
    complain "the times of the sums are not those of buckets beside the backward pass: $(grep -o '"sums.*busy_us":[0-9]*' "$work/buckets-2/metrics.jsonl")"
run=(train "$model" --data-path "$work/data" "${run[@]:2}")

# ---- refused by name, on all ranks

# fault: F46
refused() { # NAME CODE TEXT
    launched 2 --experiment "$1"
    grep -qF -- "$3" "$err" || complain "$1: nobody says '$3': $(cat "$err")"
    all_codes "$2" "$1" 2
    [[ ! -e $work/$1 ]] || complain "$1: a run directory although the programs did not agree"
    row faults "$4" "$2 $2" "\`$3\`"
}
new other-flags && echo 'more="--lr 0.5"' >"$codes/before-1"
refused other-flags 2 "rank 1 on $(hostname): this rank has other settings than rank 0: '--lr: 0.5' here, '--lr: 0.001' there" "other options on one host"
new other-start && echo "more='--pretrained $work/norms'" >"$codes/before-1"
refused other-start 2 "'--pretrained: set' here, '--pretrained: not set' there" "pretrained weights on one host only"
new other-data && echo "more='--data-path $work/other'" >"$codes/before-1"
refused other-data 2 "other settings than rank 0: 'training data: 96 samples, fingerprint" "other data on one host"
all=("${run[@]}")
run=(train wgan_gp --data-path "$work/data" --device cpu --threads 1 --workers 1 --towers 8 --batch-size 2 --max-steps 12 --output-dir "$work" --comm-timeout 60)
new other-features && echo "more='--features $work/one'" >"$codes/before-1"
refused other-features 2 "'--features: set' here, '--features: not set' there" "a classifier for KID on one host only"
run=("${all[@]}")
new no-data && echo "more='--data-path $work/nowhere'" >"$codes/before-1"
refused no-data 2 "rank 1 on $(hostname): " "no data on one host"

# ---- a stop: all save at the same step and leave with the same code; the run continues bit-equal

launched 1 --experiment long --max-steps 40 || complain "long: $(tail -n 3 "$err")"
stopped() { # NAME RANK SIGNAL CODE ARGUMENT...
    local name=$1 rank=$2 signal=$3 code=$4 pid
    shift 4
    new "$name"
    TOWERS_FAULT="delay:tower=5,step=1,ms=50" launched 2 --experiment "$name" --max-steps 40 "$@" &
    pid=$!
    waits_for '"step":6,' "$work/$name/metrics.jsonl"
    kill "-$signal" "$(pgrep -P "$(cat "$codes/shell-$rank")")"
    wait $pid
    all_codes "$code" "$name" 2
    [[ $(wc -l <"$work/$name/metrics.jsonl") -lt 40 ]] || complain "$name was not stopped"
    launched 2 --experiment "$name" --max-steps 40 --resume auto || complain "$name, continued: $(tail -n 3 "$err")"
    cmp "$work/long/last.safetensors" "$work/$name/last.safetensors" || complain "$name: other weights after a stop"
    row faults "SIG$signal to rank $rank${*:+, \`$*\`}" "$code $code" "all save after the same step; resumed: the bits of an undisturbed run"
}
if TOWERS_FAULT=none: "$towers" "${run[@]}" --dry-run >/dev/null 2>&1; then
    left_out "stops and deaths: this binary has no fault points"
else
    stopped term-1 1 TERM 143
    stopped int-0 0 INT 85 --preempt-exit 85

    # ---- the tower that all wait for is found in another program than rank 0's, and named with its host
    for ms in 20 80 320; do
        new slow
        TOWERS_FAULT="delay:tower=5,step=1,ms=$ms,activity=forward" launched 2 --experiment "slow-$ms" --max-steps 260 --epochs 100 --checkpoint-steps 260 \
            --eval-interval 0 --log-interval 100 || complain "slow: $(tail -n 5 "$err")"
        all_codes 0 slow 2
        grep -q ' is slow in ' "$err" && break
    done
    text="tower 5 on $(hostname) is slow in forward: "
    grep -qF "warning: $text" "$err" && grep -qF "$text" "$work/slow-$ms/log.txt" || complain "nobody says '$text': $(cat "$err")"
    "$towers" compare "$work/slow-$ms" >"$out" 2>&1
    grep -qE "steps [0-9]+ to [0-9]+: all towers waited for tower 5 on $(hostname), slow in forward" "$out" || complain "compare: $(cat "$out")"
    grep -q "tower 5 on $(hostname) in forward, steps " "$work/slow-$ms/report.html" || complain "the report does not name the slow tower and its host"

    # ---- a second signal while rank 0 does not answer: the program ends as it would have
    new leave
    echo 'echo $$ >"$codes/shell-$rank"' | tee "$codes/before-0" >"$codes/before-1"
    TOWERS_FAULT="delay:tower=5,step=1,ms=3000" launched 2 --experiment leave --max-steps 40 --checkpoint-steps 400 --preempt-exit 85 &
    pid=$!
    waits_for '"step":1,' "$work/leave/metrics.jsonl"
    first=$(pgrep -P "$(cat "$codes/shell-0")") second=$(pgrep -P "$(cat "$codes/shell-1")")
    kill -STOP "$first"
    kill -TERM "$second"
    kill -USR2 "$second"
    waits_for . "$codes/1"
    kill -CONT "$first"
    wait $pid
    all_codes 85 "a second signal" 2

    # ---- rank 0 gets what the other host alone has: lists of samples, and a capsule that can be replayed
    if unshare --mount true 2>/dev/null; then
        export towers runs=$work/runs
        mkdir "$runs"
        printf '%s\n' '#!/bin/bash' 'exec unshare --mount bash -c "mount -t tmpfs none $runs && exec \"\$0\" \"\$@\"" "$towers" "$@"' >"$work/apart"
        chmod +x "$work/apart"
        new nan && echo "program=$work/apart" >"$codes/before-1"
        TOWERS_FAULT="nan:tower=5,step=3,layer=conv2,activity=forward,index=7" launched 2 --output-dir "$runs" --experiment nan --log-samples
        all_codes 8 nan 2
        [[ $(grep -cE '^[123],[0-9]+,[4-7],' "$runs/nan/rank1-samples.csv") == 12 ]] || complain "nan: not all samples of rank 1: $(cat "$runs/nan/rank1-samples.csv")"
        "$towers" replay "$runs/nan/nan-step-3-tower-5" >"$out" 2>&1
        [[ $? == 8 ]] && grep -q conv2 "$out" || complain "nan: the capsule of the other host is not replayed: $(cat "$out" "$err")"
        compgen -G "$runs/nan/.tmp-*" >/dev/null && complain "nan: temporary files are left: $(ls -a "$runs/nan")"
    else
        left_out "the records of another host: no mount namespaces here"
    fi

    # ---- slow, but alive, in another program than rank 0's, and in rank 0 outside of sums: progress within an activity counts on all
    # hosts, and who waits for it is not blamed
    new crawl
    TOWERS_FAULT="crawl:tower=7,step=3,ms=16000;crawl:tower=0,step=12,activity=evaluation,ms=16000" launched 2 --experiment crawl --processes 4 --comm-timeout 8 || complain "crawl: $(tail -n 5 "$err")"
    all_codes 0 crawl 2

    # ---- deaths: of a supervisor, of a tower; the others end within seconds with the cause
    # fault: F47
    dies() { # NAME SIGNAL RANK WHO PATTERN ARGUMENT...: WHO is supervisor or the name of a tower's process
        local name=$1 signal=$2 rank=$3 who=$4 pattern=$5 pid victim other=$((1 - $3)) begun
        shift 5
        new "$name"
        TOWERS_FAULT="delay:tower=5,step=1,ms=50" launched 2 --experiment "$name" --max-steps 4000 "$@" &
        pid=$!
        waits_for '"step":6,' "$work/$name/metrics.jsonl"
        victim=$(pgrep -P "$(cat "$codes/shell-$rank")")
        [[ $who == supervisor ]] || victim=$(pgrep -P "$victim" "^$who\$")
        begun=$SECONDS
        kill "-$signal" "$victim"
        wait $pid
        ((SECONDS - begun < 60)) || complain "$name: the run ended after $((SECONDS - begun)) s"
        [[ $(cat "$codes/$other") == 7 ]] || complain "$name: rank $other ended with '$(cat "$codes/$other")': $(cat "$err")"
        cat "$err" "$work/$name"/log-rank*.txt >"$codes/all" 2>/dev/null
        grep -qE -- "$pattern" "$codes/all" || complain "$name: nobody says '$pattern': $(cat "$codes/all")"
        row faults "SIG$signal to the $([[ $who == supervisor ]] && echo program || echo 'first tower process') of rank $rank${*:+, \`$*\`}" "$([[ $rank == 0 ]] && echo "- 7" || echo "7 -")" "$(said "$pattern" "$codes/all")"
    }
    if [[ $mpirun_of == mpich ]]; then
        left_out "deaths: Hydra kills all programs at once, before they can report"
    else
        dies supervisor-1 KILL 1 supervisor "rank 1 on $(hostname): its supervisor has ended without a message"
        dies supervisor-0 KILL 0 supervisor "rank 0 on $(hostname): its supervisor has ended without a message"
        dies tower-1 KILL 1 tower4 "rank 1 on $(hostname): tower [4-7] .* killed by signal 9"
        dies tower-0 KILL 0 tower0 "tower [0-3] .* killed by signal 9"
    fi
    dies silent-1 STOP 1 tower4 "error: .*comm-timeout.*" --comm-timeout 12
    rows_match faults
fi

rows_match bits
check_end "towers on several hosts: the bits and records of one, and one end for all"
