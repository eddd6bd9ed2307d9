#!/usr/bin/env bash
# Data at an address on two hosts that our own connections join, without MPI: programs on fake GPUs that their variables alone connect. Each
# host has a cache of its own. The bits of one program on local shards, from empty caches, from one that is full beside one that is empty, in
# a limit, and resumed with empty caches; each host downloads a shard once; an object that one host cannot get ends all programs, and the
# one that lacks it says so. Arguments: source folder, binary.
set -uo pipefail
. "$1/tests/support/check.sh"
gpu_towers=$(dirname "$towers")/tests/gpu/fake_cuda/towers_on_fake_gpus
[[ -x $gpu_towers ]] || { echo "SKIPPED: this build has no CUDA backend" >&2; exit 77; }
needs_python
export XDG_CACHE_HOME=$work/cache no_proxy=127.0.0.1 ASAN_OPTIONS=detect_leaks=0
IMAGES=300 /usr/bin/python3 "$source_dir/tests/support/shards_write.py" "$work/sets" tar || exit 1
"$towers" data index sets/tar >"$out" 2>"$err" || complain "data index: $(cat "$err")"

coproc python3 "$source_dir/tests/support/http_server.py" "$work/sets" "$work/requests"
server=$COPROC_PID
trap 'kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
read -r served _ <&"${COPROC[0]}" || complain "the server does not start"
base=http://127.0.0.1:$served
shards='set-{train-{000000..000005},val-000000}.tar'
port=$((13600 + RANDOM % 1000))

run=(train fashion_cnn --towers 4 --workers 1 -b 4 --classes 3 --max-steps 20 --shuffle-window 1 --eval-batch-size 16 --summary-interval 0
    --comm-timeout 300 --reduce ordered --output-dir "$work/runs" --net-timeout 20)
hosts() { # NAME CACHES ARGUMENT...: one program on each of two hosts, whose caches are CACHES-0 and CACHES-1; exit codes in codes
    local rank pids=() name=$1 caches=$2
    shift 2
    port=$((port + 7)) codes=()
    : >requests
    for rank in 0 1; do
        FAKE_GPUS=2 TOWERS_RANK=$rank TOWERS_WORLD_SIZE=2 TOWERS_MASTER_ADDR=localhost TOWERS_MASTER_PORT=$port NCCL_HOSTID=host$rank \
            "$gpu_towers" "${run[@]}" --experiment "$name" --cache-dir "$work/$caches-$rank" "$@" >"$name.out-$rank" 2>"$name.err-$rank" </dev/null &
        pids+=($!)
    done
    for rank in 0 1; do
        wait "${pids[rank]}"
        codes+=($?)
    done
}
trains() { # NAME CACHES ARGUMENT...
    hosts "$@"
    [[ ${codes[*]} == "0 0" ]] || complain "$1: exit codes ${codes[*]}: $(tail -n 5 "$1".err-?)"
    cmp -s runs/local/last.safetensors "runs/$1/last.safetensors" || complain "$1: other weights than one program has from local shards"
}
downloads() { # NAME COUNT: of shards
    local asked
    asked=$(grep -v '^HEAD' requests | grep -c '\.tar ')
    [[ $asked == "$2" ]] || complain "$1: $asked downloads instead of $2: $(cat requests)"
}

FAKE_GPUS=4 "$gpu_towers" "${run[@]}" --experiment local --data-path sets/tar >local.out 2>local.err </dev/null || complain "local shards: $(tail -n 3 local.err)"
trains comes comes --data-path "$base/gated/tar/$shards"
downloads comes 14
grep -qF '; ranks 0..1 from TOWERS_RANK' comes.err-0 || complain "the hosts are joined in another way: $(cat comes.err-0)"
# one host has it all, the other one nothing
rm -r comes-1
trains half comes --data-path "$base/gated/tar/$shards"
downloads half 7
# a limit in which the two GPUs of each host, one of them perhaps ahead, share four shards
largest=$(stat -c %s sets/tar/*.tar | sort -n | tail -n 1)
trains limited limited --data-path "$base/gated/tar/$shards" --cache-limit $((4 * (largest + 16384)))
# the middle of an epoch, on two machines that have nothing
hosts part part --data-path "$base/gated/tar/$shards" --max-steps 7
cp -r runs/part runs/resumed
trains resumed resumed --data-path "$base/gated/tar/$shards" --resume "$work/runs/resumed"
# the second host has a shard from before it was changed, and its server has another one now
rm -r comes-1
cp -r sets/tar kept
cp sets/tar/set-train-000001.tar sets/tar/set-train-000002.tar
hosts changed comes --data-path "$base/gated/tar/$shards"
[[ ${codes[0]} != 0 && ${codes[1]} != 0 ]] || complain "two versions of a set: exit codes ${codes[*]}: $(tail -n 5 changed.err-?)"
grep -hE "set-train-000002.tar|towers.index" changed.err-1 >"$out" || complain "two versions of a set: the second host does not name the object: $(tail -n 5 changed.err-?)"

check_end "two hosts without MPI, each with a cache, train on data at an address with the bits of local shards, and download nothing twice"
