#!/usr/bin/env bash
# GPUs of several hosts through the trainer, over fake GPUs: programs that their variables alone connect, as NCCL's ranks. The bits of
# one program, also when resumed in another shape; who uses which GPU where programs share a host; deaths.
. "$1/tests/support/check.sh"
gpu_towers=$(dirname "$towers")/tests/gpu/fake_cuda/towers_on_fake_gpus
[[ -x $gpu_towers ]] || { echo "SKIPPED: this build has no CUDA backend" >&2; exit 77; }
small_data "$work/data" 64 12 || exit $?
export TMPDIR=$work XDG_CACHE_HOME=$work/cache ASAN_OPTIONS=detect_leaks=0
run=(train fashion_cnn --data-path "$work/data" --workers 1 --towers 4 --batch-size 1 --max-steps 4 --checkpoint-steps 2
    --eval-batch-size 4 --eval-interval 1 --log-interval 1 --summary-interval 0 --output-dir "$work" --comm-timeout 120 --reduce ordered)
port=$((12000 + RANDOM % 1500))

# programs NAME COUNT ARGUMENT...: as many as there are hosts, one on each; exit codes in $codes. Variables of all: FAKE_GPUS. before_RANK
# is evaluated in one of them, and may set other variables and `more` arguments.
programs() {
    local name=$1 count=$2 rank pids=()
    shift 2
    codes=$work/codes-$name
    mkdir -p "$codes"
    port=$((port + 7))
    for ((rank = 0; rank < count; rank++)); do
        (
            export TOWERS_RANK=$rank TOWERS_WORLD_SIZE=$count TOWERS_MASTER_ADDR=localhost TOWERS_MASTER_PORT=$port NCCL_HOSTID=host$rank
            more=() before=before_$rank
            eval "${!before:-}"
            "$gpu_towers" "${run[@]}" "$@" "${more[@]}" >"$codes/out-$rank" 2>"$codes/err-$rank" </dev/null &
            echo $! >"$codes/pid-$rank"
            wait $!
            echo $? >"$codes/$rank"
        ) &
        pids+=($!)
    done
    wait "${pids[@]}"
}
all_codes() { # NAME RANKS CODE
    local rank
    for ((rank = 0; rank < $2; rank++)); do
        [[ $(cat "$codes/$rank") == "$3" ]] ||
            complain "$1: rank $rank ended with $(cat "$codes/$rank") instead of $3: $(tail -n 20 "$codes"/err-$rank "$work/$1/log-rank$rank.txt" 2>/dev/null)"
    done
}
column() { sed -E "s/.*\"$2\":(\[[^]]*\]|[^,]*),.*/\1/" "$work/$1/metrics.jsonl"; }
same_run() { # NAME FILE...
    local file key
    for file in last.safetensors "${@:2}"; do cmp "$work/one/$file" "$work/$1/$file" || complain "$1: another $file than in one program"; done
    for key in step mean_loss tower_loss tower_grad_norm top1; do
        cmp <(column one $key) <(column "$1" $key) || complain "$1: another $key in metrics.jsonl"
    done
}
trains() { # NAME PROGRAMS ARGUMENT...
    programs "$@" --experiment "$1"
    all_codes "$1" "$2" 0
}

# ---- the same bits in one program, in two, in four, and in all three one after the other
alone() { FAKE_GPUS=4 "$gpu_towers" "${run[@]}" "$@" >"$out" 2>"$err" </dev/null || complain "one program: $(tail -n 20 "$err")"; }
alone --experiment one
grep -q ', in 4 processes$' "$err" || complain "one program: not on 4 GPUs: $(cat "$err")"
export FAKE_GPUS=2
trains two 2
same_run two best.safetensors confusion.csv mistakes.csv
grep -qF '; ranks 0..1 from TOWERS_RANK' "$codes/err-0" || complain "no line of ranks: $(cat "$codes/err-0")"
grep -qF 'NCCL 2.29.7 sums in tower order' "$codes/err-0" || complain "no NCCL: $(cat "$codes/err-0")"
alone --experiment shapes --max-steps 1
trains shapes 2 --resume auto --max-steps 3
FAKE_GPUS=1 trains shapes 4 --resume auto
same_run shapes

# ---- processes that follow others: after the sweep of the learning rate, and where layers join
follow=(--lr auto --freeze '*,!fc*' --unfreeze-epoch 2 --epochs 2 --max-steps 18)
FAKE_GPUS=4 alone --experiment follow "${follow[@]}"
trains follow-2 2 "${follow[@]}"
grep -qF "*,!fc* join" "$work/follow-2/log.txt" || complain "nobody says that layers join: $(cat "$work/follow-2/log.txt")"
for file in last.safetensors lr-find.json; do cmp "$work/follow/$file" "$work/follow-2/$file" || complain "processes that follow others: another $file"; done

# ---- programs of one host: each uses all of its own GPUs, or its part of those that all see
here='NCCL_HOSTID=here FAKE_GPUS=4'
before_0="export $here CUDA_VISIBLE_DEVICES=0,1 TOWERS_LOCAL_RANK=0 TOWERS_LOCAL_WORLD_SIZE=2"
before_1="export $here CUDA_VISIBLE_DEVICES=2,3 TOWERS_LOCAL_RANK=1 TOWERS_LOCAL_WORLD_SIZE=2"
trains own 2 --max-steps 1
grep -q ', in 4 processes$' "$codes/err-0" || complain "own GPUs: not in 4 processes: $(cat "$codes/err-0")"
before_0="export $here; more=(--gpus 2,0)" before_1="export $here; more=(--gpus 1,3)"
trains chosen 2 --max-steps 1
grep -q ', in 4 processes$' "$codes/err-0" || complain "chosen GPUs: not in 4 processes: $(cat "$codes/err-0")"
before_0="export $here" before_1="export $here" # nobody says how many programs the host has
trains shared 2 --max-steps 1
grep -q ', in 4 processes$' "$codes/err-0" || complain "shared GPUs: not in 4 processes: $(cat "$codes/err-0")"
for name in chosen shared; do cmp "$work/own/last.safetensors" "$work/$name/last.safetensors" || complain "$name: other weights"; done

refused() { # NAME PROGRAMS CODE TEXT
    programs "$1" "$2" --experiment "$1"
    all_codes "$1" "$2" "$3"
    grep -qF -- "$4" "$codes"/err-* || complain "$1: nobody says '$4': $(tail -n 3 "$codes"/err-*)"
    [[ ! -e $work/$1 ]] || complain "$1: a run directory although the programs did not agree"
}
before_0="export $here CUDA_VISIBLE_DEVICES=0,1" before_1="export $here CUDA_VISIBLE_DEVICES=1,2"
refused overlap 2 2 "which otherwise sees other GPUs, or has them in another order"
before_0="export $here; more=(--gpus 0,1)" before_1="export $here; more=(--gpus 1,0)"
refused order 2 2 "which otherwise sees other GPUs, or has them in another order"
before_0="export $here FAKE_GPUS=1" before_1="export $here FAKE_GPUS=1"
refused few 2 5 "2 programs see the same 1 GPU, but each needs one of its own; let TOWERS_RANK start fewer"
before_0= before_1="export FAKE_GPUS=1"
refused uneven 2 2 "this rank has other settings than rank 0: 'processes: 2' here, 'processes: 4' there"
before_1=

# ---- NCCL's own order of the sum, which alone has 16 bits
"$gpu_towers" train fashion_cnn --data-path "$work/data" --reduce-dtype bf16 --print-config >"$out" 2>"$err" || complain "--reduce-dtype: $(cat "$err")"
grep -q '^reduce: fast ' "$out" || complain "--reduce-dtype bf16 means another sum: $(grep '^reduce' "$out")"
"$gpu_towers" train fashion_cnn --data-path "$work/data" --print-config 2>"$err" | grep -q '^reduce: ordered ' || complain "the usual sum: $(cat "$err")"
trains fast 2 --max-steps 1 --reduce fast

if ! TOWERS_FAULT=none: "$gpu_towers" "${run[@]}" --dry-run >/dev/null 2>&1; then
    # ---- deaths: of a program, of a tower; the other ends with the cause
    dies() { # NAME RANK WHO PATTERN: WHO is supervisor or the name of a tower's process
        local name=$1 rank=$2 who=$3 pattern=$4 other=$((1 - $2)) job victim
        TOWERS_FAULT=delay:tower=3,step=1,ms=50 programs "$name" 2 --experiment "$name" --max-steps 4000 &
        job=$!
        codes=$work/codes-$name
        for ((i = 0; i < 2400; i++)); do
            grep -q '"step":2,' "$work/$name/metrics.jsonl" 2>/dev/null && break
            sleep 0.05
        done
        victim=$(cat "$codes/pid-$rank")
        [[ $who == supervisor ]] || victim=$(pgrep -P "$victim" "^$who\$")
        kill -KILL "$victim"
        wait $job
        [[ $(cat "$codes/$other") == 7 ]] || complain "$name: rank $other ended with '$(cat "$codes/$other")': $(tail -n 5 "$codes"/err-*)"
        cat "$codes"/err-* "$work/$name"/log-rank*.txt 2>/dev/null | grep -qE -- "$pattern" || complain "$name: nobody says '$pattern': $(tail -n 5 "$codes"/err-*)"
    }
    dies supervisor-1 1 supervisor "rank 1 on $(hostname): its supervisor has ended without a message"
    dies tower-0 0 tower1 "tower 1 .* killed by signal 9"
    dies tower-1 1 tower2 "rank 1 on $(hostname): tower 2 .* killed by signal 9"
fi
check_end "GPUs of several hosts: the bits of one, each program its own GPUs, and one end for all"
