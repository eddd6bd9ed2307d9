#!/usr/bin/env bash
# Data at an address on two hosts of two programs each, started by MPI's launcher, where each host has a cache of its own: the bits of one program
# on local shards, while shards come and without an index, from empty caches and from one that is full beside one that is empty; in a host
# nothing is downloaded twice; two versions of a set end all programs. Arguments: source folder, binary.
set -uo pipefail
. "$1/tests/support/check.sh"
. "$source_dir/tests/support/hosts.sh"
needs_python
mpirun_find
[[ $mpirun_of ]] || { echo "SKIPPED: data at an address on two hosts: this build has no MPI, or its mpirun is missing" >&2; exit 77; }
export XDG_CACHE_HOME=$work/cache no_proxy=127.0.0.1
IMAGES=300 /usr/bin/python3 "$source_dir/tests/support/shards_write.py" "$work/sets" tar || exit 1
mkdir sets/bare && cp sets/tar/* sets/bare
"$towers" data index sets/tar >"$out" 2>"$err" || complain "data index: $(cat "$err")"

coproc python3 "$source_dir/tests/support/http_server.py" "$work/sets" "$work/requests"
server=$COPROC_PID
trap 'kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
read -r port _ <&"${COPROC[0]}" || complain "the server does not start"
base=http://127.0.0.1:$port
shards='set-{train-{000000..000005},val-000000}.tar'

run=(train googlenet --no-aux --img-size 32 -b 8 --device cpu --towers 4 --threads 1 --workers 1 --eval-crop 1 --classes 3 --max-steps 20 --shuffle-window 1
    --summary-interval 0 --comm-timeout 300 --output-dir "$work/runs" --net-timeout 20)
hosts() { # NAME CACHES ARGUMENT...: four programs; those of host 0 and of host 1 have CACHES-0 and CACHES-1
    local rank
    new "$1"
    for rank in 0 1 2 3; do echo "more='--cache-dir $work/$2-$((rank / 2))'" >"$codes/before-$rank"; done
    : >requests
    "${mpirun[@]}" 4 "$work/program" "$towers" "${run[@]}" --experiment "$1" "${@:3}" >"$1.out" 2>"$1.err" </dev/null
}
same() { cmp -s <(tensors runs/local/last.safetensors) <(tensors "runs/$1/last.safetensors") || complain "$1: other weights than one program has from local shards"; }
once() { # NAME CACHES: as many downloads as shards have come into the caches
    local asked
    asked=$(grep -v '^HEAD' requests | grep -c '\.tar ')
    [[ $asked == "$3" && $(find "$2-0" "$2-1" -path '*/data/*' -name '*.tar' | wc -l) == 14 ]] ||
        complain "$1: $asked downloads instead of $3, for $(find "$2-0" "$2-1" -path '*/data/*' -name '*.tar' | wc -l) shards of two caches: $(cat requests)"
}

"$towers" "${run[@]}" --experiment local --data-path sets/tar >local.out 2>local.err </dev/null || complain "local shards: $(tail -n 3 local.err)"
hosts comes comes --data-path "$base/gated/tar/$shards" || complain "shards that come: exit $?: $(tail -n 5 comes.err)"
all_codes 0 "shards that come" 4
same comes
once comes comes 14
hosts bare bare --data-path "$base/slow/bare/$shards" || complain "without an index: exit $?: $(tail -n 5 bare.err)"
all_codes 0 "without an index" 4
same bare
once bare bare 14
# one host has it all, the other one nothing
rm -r comes-1
hosts half comes --data-path "$base/gated/tar/$shards" || complain "one full cache: exit $?: $(tail -n 5 half.err)"
all_codes 0 "one full cache" 4
same half
once half comes 7
# without an index, one host has an object from before it was changed
rm -r bare-1
cp sets/bare/set-train-000001.tar sets/bare/set-train-000002.tar
hosts changed bare --data-path "$base/slow/bare/$shards"
all_codes 2 "hosts with two versions of a set" 4
grep -q "other settings than rank 0: 'training data: 300 samples, fingerprint" changed.err || complain "hosts with two versions of a set: $(tail -n 8 changed.err)"

check_end "two hosts, each with a cache, train on data at an address with the bits of local shards, and download nothing twice"
