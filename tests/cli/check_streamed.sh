#!/usr/bin/env bash
# Shards of a server that come while they are read (docs/remote.md): the sidecars of towers data index; a run that begins before its shards are
# here, with the bits of a run on local shards at any state of the cache, on one process or two, and resumed in the middle of an epoch with
# an empty cache; indexes that are stale, damaged or hostile, and objects that change or do not come, are named. Arguments: source folder,
# binary.
set -uo pipefail
. "$1/tests/support/check.sh"
needs_python
export XDG_CACHE_HOME=$work/cache no_proxy=127.0.0.1
IMAGES=300 /usr/bin/python3 "$source_dir/tests/support/shards_write.py" "$work/sets" tar tfrecord mds || exit 1
mkdir requests.gates

coproc python3 "$source_dir/tests/support/http_server.py" "$work/sets" "$work/requests"
server=$COPROC_PID
trap 'kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
read -r port _ <&"${COPROC[0]}" || complain "the server does not start"
base=http://127.0.0.1:$port
tars='tar/set-{train-{000000..000005},val-000000}.tar'

train() { # NAME ARGUMENT...
    "$towers" train googlenet --no-aux --img-size 32 -b 16 --device cpu --towers 2 --processes 1 --threads 1 --eval-crop 1 --classes 3 --max-steps 6 \
        --shuffle-window 1 --net-timeout 20 --summary-interval 0 --output-dir runs --experiment "$@" >"$1.out" 2>"$1.err" </dev/null
}
same() { cmp -s <(tensors "runs/${2:-local}/last.safetensors") <(tensors "runs/$1/last.safetensors") || complain "$1: other weights than from local shards"; }
cached() { find "$work/$1" -path '*/data/*' -type f -name "${2:-*.tar}" | wc -l; }

# ---- sidecars
train plain --data-path sets/tar || complain "local shards: $(cat plain.err)"
for set in tar tfrecord mds; do
    "$towers" data info sets/$set >before 2>err
    "$towers" data index sets/$set >out 2>err || complain "data index of $set: $(cat err)"
    grep -Eq "^[0-9]+ shards with 324 samples; their index is in towers.index beside them" out || complain "data index of $set: $(cat out)"
    "$towers" data info sets/$set >after 2>err
    cmp -s before after || complain "an index changes what is said of $set: $(diff before after)"
done
cp sets/tar/towers.index once
"$towers" data index sets/tar >out 2>err
cmp -s once sets/tar/towers.index || complain "an index that is made twice differs"
refuses 2 "holds no shards" "$towers" data index "$work/requests.gates"
train local --data-path sets/tar || complain "local shards beside an index: $(cat local.err)"
same local plain

# ---- the survey counts the images that it has looked at: none of shards that are not here yet
surveyed() { python3 -c 'import json, sys; print(*(json.load(open(f"runs/{sys.argv[1]}/survey.json"))[key] for key in ("looked", "images")))' "$1"; }
[[ $(surveyed local) == "324 324" ]] || complain "local images, looked at and all: $(surveyed local)"
train looks --data-path "$base/good/$tars" --cache-dir looks --max-steps 1 || complain "a run whose shards come: $(cat looks.err)"
[[ $(surveyed looks) == "0 324" ]] || complain "images of which none is here, looked at and all: $(surveyed looks)"
train comes --data-path "$base/good/$tars" --cache-dir looks --max-steps 20 || complain "an epoch of a set that comes: $(cat comes.err)"
[[ $(cached looks) == 7 ]] || complain "an epoch leaves $(cached looks) of 7 shards in the cache"
train here --data-path "$base/good/$tars" --cache-dir looks --max-steps 1 || complain "a run whose shards are here: $(cat here.err)"
[[ $(surveyed here) == "324 324" ]] || complain "images that are all here by now, looked at and all: $(surveyed here)"

# ---- a run begins when the shards of its first steps are here
gates() { for shard in sets/tar/*.tar; do touch "requests.gates/$(basename "$shard")"; done; }
gates
train early --data-path "$base/gated/$tars" --cache-dir early -b 8 --max-steps 20 &
run=$!
wait_until grep -q '^/gated/tar/set-train' requests
[[ ! -s runs/early/first-batch.csv ]] || complain "steps before the first shard is here"
first=$(grep -o 'set-train-[0-9]*.tar' runs/local/first-batch.csv | grep -o 'set-train.*' | sort -u)
[[ $(wc -l <<<"$first") == 1 ]] || complain "the first step needs other shards than one: $first"
echo released >>requests
rm "requests.gates/$first"
wait_until test -s runs/early/first-batch.csv
[[ $(cached early) == 1 ]] || complain "the first steps waited for $(cached early) shards"
rm requests.gates/*
wait "$run" || complain "a run that begins early: $(tail -n 3 early.err)"
others=$(sed '/^released$/,$d' requests | grep '^/gated/tar/.*\.tar ' | grep -v "/$first ")
[[ -z $others ]] || complain "while the first window comes, so do others, which take their share of the network: $others"
train late --data-path sets/tar -b 8 --max-steps 20 || complain "local shards, 20 steps: $(cat late.err)"
same early late
grep -q "7 of them, .* MB, come while they are read" early.out early.err || complain "nothing is said of what comes later: $(cat early.out early.err)"
python3 - runs/early/data.json <<'PYTHON' || complain "data.json of a run whose data come: $(cat runs/early/data.json)"
import json, sys
network = json.load(open(sys.argv[1]))["network"]
assert network["bytes"] > 100000 and network["retries"] == 0 and network["wait_ns"] > 0, network
PYTHON
grep -q network runs/late/data.json && complain "data.json of a local run speaks of a network"

# behind the first of its window, four come at a time, in order: not one for each thread
gates
: >requests
gets() { grep -c '^/gated/tar/set-.*\.tar ' requests; }
gets_are() { [[ $(gets) == "$1" ]]; }
train pipe --shuffle-window 2 --data-path "$base/gated/$tars" --cache-dir pipe --max-steps 20 --eval-interval 0 &
run=$!
wait_until gets_are 2
rm "requests.gates/$(grep -o 'set-train-[0-9]*.tar' <(grep '^/gated/tar' requests) | head -n 1)"
wait_until gets_are 5
sleep 1
gets_are 5 || complain "four shards at a time, and one that is here, are $(gets) requests"
rm requests.gates/*
wait "$run" || complain "a run whose shards come four at a time: $(tail -n 3 pipe.err)"
[[ -z $(grep '\.tar ' requests | cut -d ' ' -f 1-2 | grep '^HEAD' | sort | uniq -d) ]] || complain "a server is asked twice for the version of a shard: $(cat requests)"

# one that hardly comes is passed by a few, and then has the link for itself, but does not hold up the others for ever
IMAGES=700 /usr/bin/python3 "$source_dir/tests/support/shards_write.py" "$work/sets/long" tar || exit 1
"$towers" data index sets/long/tar >out 2>err || complain "data index of more shards: $(cat err)"
for shard in sets/long/tar/*.tar; do touch "requests.gates/$(basename "$shard")"; done
: >requests
gets() { grep -c '^/gated/long/tar/set-.*\.tar ' requests; }
gets_reach() { (($(gets) >= $1)); }
train passed --data-path "$base/gated/long/tar/set-{train-{000000..000013},val-000000}.tar" --cache-dir passed --max-steps 20 --eval-interval 0 &
run=$!
wait_until gets_are 1
rm "requests.gates/$(grep "^/gated" requests | grep -o "set-train-[0-9]*.tar" | head -n 1)"
wait_until gets_are 5
slow=$(grep '^/gated' requests | grep -o 'set-train-[0-9]*.tar' | sed -n 2p)
since=$SECONDS
find requests.gates -type f ! -name "$slow" -delete
wait_until gets_reach 8
sleep 1
number=$(gets)
if ((SECONDS - since > 8)); then
    left_out "a shard that is passed by others: this machine is too slow to see it"
elif ((number > 11)); then # it is one of four that begin together, and six may begin behind it
    complain "of 15 shards $number begin while $slow does not come"
fi
wait_until gets_are 15
rm requests.gates/*
wait "$run" || complain "a run of which one shard comes late: $(tail -n 3 passed.err)"
gets() { grep -c '^/gated/tar/set-.*\.tar ' requests; }

# ---- the same bits, at any state of the cache
for set in "tar|$base/good/$tars" "tfrecord|$base/good/tfrecord/{train-{00000..00005}-of-00006,validation-00000-of-00001}" "mds|$base/good/mds/{train,val}/"; do
    train "${set%%|*}" --data-path "${set#*|}" --cache-dir cold || complain "${set%%|*}: $(tail -n 3 "${set%%|*}.err")"
    same "${set%%|*}"
done
cmp -s <(grep -h fingerprint runs/local/env.json) <(grep -h fingerprint runs/tar/env.json) || complain "another fingerprint than of local shards"
"$towers" data info "$base/good/$tars" --cache-dir cold >out 2>err || complain "the rest of a set: $(cat err)"
: >requests
train warm --data-path "$base/good/$tars" --cache-dir cold || complain "a warm cache: $(cat warm.err)"
same warm
[[ ! -s requests ]] || complain "a warm cache asks: $(cat requests)"
rm "$(find cold -path '*/data/*' -name set-train-000001.tar)" "$(find cold -path '*/data/*' -name set-train-000004.tar)"
train half --data-path "$base/good/$tars" --cache-dir cold || complain "half of a cache: $(cat half.err)"
same half
# two processes, each with threads that bring shards; of one machine one downloads
: >requests
train two --processes 2 --data-path "$base/slow/$tars" --cache-dir two || complain "two processes: $(cat two.err)"
same two
[[ -z $(grep -v '^HEAD' requests | cut -d ' ' -f 1 | sort | uniq -d) ]] || complain "two processes download an object twice: $(cat requests)"
grep -q "another process" two.err && complain "processes of one run speak of each other: $(cat two.err)"
# the whole set is shuffled
train whole --shuffle-window 0 --data-path sets/tar || complain "local shards without a window: $(cat whole.err)"
train stream --shuffle-window 0 --data-path "$base/good/$tars" --cache-dir stream || complain "without a window: $(cat stream.err)"
same stream whole
# a resume in the middle of an epoch, with an empty cache
train part --data-path "$base/good/$tars" --cache-dir part --max-steps 3 || complain "three steps: $(cat part.err)"
rm -rf part
"$towers" train --resume runs/part --max-steps 6 --output-dir runs --experiment resumed >out 2>err </dev/null || complain "a resume with an empty cache: $(cat err)"
same resumed
"$towers" eval runs/part --cache-dir anew >there 2>err || complain "eval: $(cat err)"
[[ $(cached anew) == 1 ]] || complain "an evaluation brings $(cached anew) shards; it needs 1"
"$towers" train --resume runs/part --cache-dir nowhere --max-steps 7 --dry-run >out 2>err && complain "a dry run without the set succeeds"
[[ ! -e nowhere ]] || complain "a dry run downloads: $(find nowhere)"

# without a sidecar the first pass makes one
mkdir sets/bare && cp sets/tar/*.tar sets/tar/classes.txt sets/bare
train bare --data-path "$base/good/bare/${tars#tar/}" --cache-dir bare || complain "without a sidecar: $(cat bare.err)"
same bare
rm "$(find bare -path '*/data/*' -name set-train-000001.tar)"
: >requests
train again --data-path "$base/good/bare/${tars#tar/}" --cache-dir bare || complain "an index in the cache: $(cat again.err)"
same again
[[ $(grep -c '^/good.*tar ' requests) == 1 ]] || complain "an index in the cache is not used: $(cat requests)"
"$towers" data index "$base/good/bare/${tars#tar/}" --cache-dir index >out 2>err || complain "data index of an address: $(cat err)"
grep -q "^7 shards with 324 samples" out || complain "data index of an address: $(cat out)"

# ---- a limit: windows of shards come and go
largest=$(stat -c %s sets/tar/*.tar | sort -n | tail -n 1)
room=$((largest + 16384)) # with the rest of a block of the disk, and a part of what is beside the shards
taken() { # bytes of what is there and comes; what gets its name while find looks counts once
    find "$1" \( -path '*/data/*' -o -path '*/partial/*' \) -type f -printf '%f %b\n' 2>/dev/null |
        sed -E 's/\.[0-9a-f]{16} / /' | awk '$2 > most[$1] { most[$1] = $2 } END { for (name in most) sum += most[name]; print sum * 512 }'
}
long() { train "$1" --max-steps 25 "${@:2}"; } # two epochs and a half, with an evaluation each
watched() { # NAME ADDRESS: trained in a cache of its own for four shards; sets most, the bytes that this took at most
    local watcher
    while [[ ! -e $1.over ]]; do taken "$1" >>"$1.taken"; sleep 0.02; done &
    watcher=$!
    long "$1" --data-path "$2" --cache-dir "$1" --cache-limit $((4 * room)) || complain "$1, a limit of four shards: $(tail -n 3 "$1.err")"
    touch "$1.over"
    wait "$watcher"
    same "$1" whole25
    most=$(sort -n "$1.taken" | tail -n 1)
    ((most <= 4 * room)) || complain "$1: a cache of at most $((4 * room)) bytes takes $most"
}
long whole25 --data-path sets/tar || complain "local shards, 25 steps: $(cat whole25.err)"
watched limited "$base/good/$tars"
((most > 2 * room)) || complain "a cache of at most $((4 * room)) bytes takes only $most"
(($(cached limited) <= 4)) || complain "a cache for four shards has $(cached limited)"
long limited2 --processes 2 --data-path "$base/good/$tars" --cache-dir limited2 --cache-limit $((4 * room)) || complain "two processes in a limit: $(tail -n 3 limited2.err)"
same limited2 whole25
# two runs share a cache and its limit
alongside long share1 --data-path "$base/good/$tars" --cache-dir share --cache-limit $((6 * room))
alongside long share2 --seed 2 --data-path "$base/good/$tars" --cache-dir share --cache-limit $((6 * room))
together
same share1 whole25
[[ -s runs/share2/last.safetensors ]] || complain "a run that shares a cache: $(tail -n 3 share2.err)"
# without a limit all others come behind the windows, while the first one is read, in the order of the epoch, which a limit keeps to: behind the
# first shard four that are asked for at once, while nothing of them comes
asked() { grep -o '^/[a-z]*/tar/set-train-[0-9]*' requests | sed 's/.*-//' | awk '!seen[$0]++' | head -n "${1:-6}" | paste -sd ' '; }
sorted() { tr ' ' '\n' <<<"$1" | sort | paste -sd ' '; }
ordered() { train "$1" --seed 14 -b 8 --max-steps 38 --eval-interval 0 --cache-dir "$1" "${@:2}"; }
: >requests
ordered epoch --data-path "$base/good/$tars" --cache-limit $((4 * room)) || complain "an epoch in a limit: $(tail -n 3 epoch.err)"
epoch=$(asked)
[[ $(wc -w <<<"$epoch") == 6 && ${epoch##* } != "$(cut -d ' ' -f 3-6 <<<"$epoch" | tr ' ' '\n' | sort | tail -n 1)" ]] || complain "the order of the epoch ends as that of the list: $epoch"
gates
: >requests
ordered rest --data-path "$base/gated/$tars" &
run=$!
wait_until gets_are 1
rm "requests.gates/set-train-$(asked).tar"
wait_until gets_are 5
[[ $(sorted "$(asked 5)") == "$(sorted "${epoch% *}")" && $(asked 1) == "${epoch%% *}" ]] || complain "shards come as $(asked 5), but the epoch reads $epoch"
rm requests.gates/*
wait "$run" || complain "a run whose shards come behind a gate: $(tail -n 3 rest.err)"
# without a sidecar the first pass keeps to the limit, too; and what a process has open stays
held=$(find limited -path '*/data/*' -name '*.tar' | head -n 1)
flock -s "$held" sleep 300 &
holder=$!
train held --seed 3 --max-steps 12 --data-path "$base/good/$tars" --cache-dir limited --cache-limit $((4 * room)) || complain "a shard that is held: $(tail -n 3 held.err)"
kill "$holder"
[[ -e $held ]] || complain "a shard that is in use leaves the cache"
# the shard that was needed least recently goes, and no other
rm -f "$(find limited -path '*/data/*' -name set-val-000000.tar)"
find limited -name 'set-train*.tar.stand' -exec touch -d '1 hour ago' {} +
oldest=$(find limited -path '*/data/*' -name 'set-train*.tar' | sort | sed -n 2p)
touch -d '2 days ago' "$(sed 's|/data/|/about/|' <<<"$oldest").stand"
there=$(cached limited)
"$towers" eval runs/limited --cache-dir limited --cache-limit $(($(taken limited) + 4096)) >out 2>err || complain "an evaluation that needs room: $(cat err)"
[[ ! -e $oldest && $(cached limited) == "$there" ]] || complain "$oldest should leave for another shard: $(find limited -path '*/data/*' -name '*.tar')"
# what another process needs whole stays
exec 8>"limited/http/127.0.0.1:$port/whole"
flock -s 8
train none --seed 4 --max-steps 25 --net-timeout 2 --data-path "$base/good/$tars" --cache-dir limited --cache-limit $((3 * room)) 8>&-
[[ $? == 6 ]] && grep -q "leaves no room for it" none.err || complain "shards that are needed whole leave: $(tail -n 3 none.err)"
[[ $(cached limited) == "$there" ]] || complain "shards that are needed whole leave the cache"
exec 8>&-
watched first "$base/good/bare/${tars#tar/}" # without a sidecar
# beginnings that a run has left, of shards that nobody wants now, make room; one that somebody downloads stays
left="first/http/127.0.0.1:$port/partial/gone"
mkdir -p "$left"
for number in 1 2 3 4; do head -c "$largest" /dev/zero >"$left/set-$number.tar.0123456789abcdef"; done
touch -d '1 hour ago' "$left"/*
flock -x "$left/set-4.tar.0123456789abcdef" sleep 300 &
holder=$!
train beginnings --data-path "$base/good/bare/${tars#tar/}" --cache-dir first --cache-limit $((4 * room)) --net-timeout 5 || complain "beginnings that a run has left: $(tail -n 3 beginnings.err)"
kill "$holder"
same beginnings
[[ $(ls "$left") == set-4.tar.0123456789abcdef ]] || complain "of four beginnings, one that comes, there are: $(ls "$left")"
# the window is chosen by the limit
"$towers" train googlenet --no-aux --img-size 32 -b 16 --device cpu --towers 2 --threads 1 --eval-crop 1 --classes 3 --max-steps 6 --summary-interval 0 --output-dir runs \
    --experiment chosen --data-path "$base/good/$tars" --cache-dir chosen --cache-limit $((4 * room)) >out 2>err </dev/null || complain "a chosen window: $(tail -n 3 err)"
grep -q -e "--shuffle-window 1, chosen by --cache-limit" out err || complain "a chosen window is not said: $(cat out err)"
same chosen
grep -q "^shuffle-window: 1" runs/chosen/args.yaml || complain "a chosen window is not recorded: $(grep window runs/chosen/args.yaml)"
try() { "$towers" train googlenet --data-path "$base/good/$tars" --cache-dir limited --img-size 32 --cache-limit $((4 * room)) "$@"; }
refuses 2 "allows --shuffle-window" try --shuffle-window 5
refuses 2 "--shuffle-window 0 needs all shards at once, " try --shuffle-window 0
grep -qF " allows at most --shuffle-window 1: give one, or leave it out, and one is chosen" err || complain "a window of 0: $(cat err)"
refuses 2 "is less than 3 shards" try --processes 1 --cache-limit $((3 * largest)) # and nothing is left for what is beside them
refuses 2 "is less than 4 shards" try --towers 2 --cache-limit $((3 * room))
refuses 2 "--sampler balanced takes samples out of all shards" try --sampler balanced
for size in 5X 0x5G G; do refuses 2 "expected a size" try --cache-limit $size; done
refuses 2 "the run began without --shuffle-window" "$towers" train --resume runs/stream --cache-dir limited --cache-limit $((4 * room)) --max-steps 7

# ---- what passes
for how in busy hangup wrong cutonce; do
    train "$how" --data-path "$base/$how/$tars" --cache-dir "at-$how" || complain "$how: $(tail -n 2 "$how.err")"
    same "$how"
done
grep -q '"retries": [1-9]' runs/busy/data.json || complain "retries are not counted: $(cat runs/busy/data.json)"

# ---- what does not hold is named
# an index of other shards: shorter ones; with another label, or place, behind a checksum that is right; damaged; no index
mkdir sets/bad && cp sets/tar/* sets/bad
bad="bad/${tars#tar/}"
"$towers" data index sets/bad >out 2>err
head -c 10240 /dev/zero >>sets/bad/set-train-000003.tar
refuses 3 "the index is of another version of the shard" "$towers" train googlenet --data-path "$base/good/$bad" --cache-dir stale --img-size 32
cp sets/tar/set-train-000003.tar sets/bad
# the index of shards of the same names and lengths, whose first samples have another label
mkdir sets/lie && cp sets/bad/* sets/lie
python3 - sets/lie/set-train-00000*.tar <<'PYTHON' || complain "labels cannot be changed"
import sys
for path in sys.argv[1:]:
    data = bytearray(open(path, "rb").read())
    at = data.index(b".cls\0") // 512 * 512 + 512
    data[at] = ord("0") + (data[at] - ord("0") + 1) % 3
    open(path, "wb").write(data)
PYTHON
"$towers" data index sets/lie >out 2>err && cp sets/lie/towers.index sets/bad
train forged --data-path "$base/good/$bad" --cache-dir forged
[[ $? == 6 ]] && grep -Eq "does not fit what its set was opened with: (its samples or its bytes are not those that towers.index lists|what it holds was forgotten)" forged.err || complain "a label that is a lie: $(cat forged.err)"
"$towers" data index sets/bad >out 2>err
train mended --data-path "$base/good/$bad" --cache-dir forged || complain "an index that was mended: $(cat mended.err)"
same mended
"$towers" data index sets/bad >out 2>err
printf x | dd of=sets/bad/towers.index bs=1 seek=3000 conv=notrunc 2>/dev/null
refuses 3 "towers.index' is damaged: a checksum is wrong" "$towers" train googlenet --data-path "$base/good/$bad" --cache-dir damaged --img-size 32
printf '<html>' >sets/bad/towers.index
refuses 3 "is no index of shards" "$towers" train googlenet --data-path "$base/good/$bad" --cache-dir html --img-size 32
rm sets/bad/towers.index
"$towers" data index sets/bad >out 2>err

# an object that changes while the run reads, and one that goes
while_reading() { # NAME COMMAND...: the command, when the first shard is here and the others are not; then the run ends
    local name=$1 run
    shift
    for shard in sets/bad/*.tar; do touch "requests.gates/$(basename "$shard")"; done
    : >requests
    train "$name" --data-path "$base/gated/$bad" --cache-dir "$name" -b 8 --max-steps 20 --net-timeout 3 &
    run=$!
    wait_until grep -q '^/gated/bad/set-train' requests
    rm "requests.gates/$first"
    wait_until test -s "runs/$name/first-batch.csv"
    "$@"
    rm -f requests.gates/*
    wait "$run"
    code=$?
}
change() { for shard in sets/bad/set-train*.tar; do touch "$shard"; done; }
train kept --data-path "$base/gated/$bad" --cache-dir kept --max-steps 3 || complain "three steps: $(tail -n 3 kept.err)"
while_reading changed change
[[ $code == 6 ]] && grep -q "set-train-00000[0-9].tar has changed" changed.err || complain "objects that change: exit $code: $(tail -n 3 changed.err)"
refuses 2 "has changed since the run" "$towers" train --resume runs/kept --cache-dir kept2 --max-steps 4
gone() { rm sets/bad/set-train*.tar; }
while_reading gone gone
[[ $code == 6 ]] && grep -q "set-train-00000[0-9].tar: the server answers 404" gone.err || complain "objects that go: exit $code: $(tail -n 3 gone.err)"
# a disk that is full before the limit is reached
if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
    mkdir disk
    train_in_disk() { # what is small is there; the disk has room for three shards and a half, and two windows have four
        mount -t tmpfs none disk && "$towers" data index "$base/good/$tars" --cache-dir disk >out 2>err || return 9
        find disk -path '*/data/*' -name '*.tar' -delete
        mount -o "remount,size=$(($(df -B1 --output=used disk | tail -n 1) + 7 * room / 2 + (1 << 20)))" disk || return 9
        train full --shuffle-window 2 --max-steps 25 --data-path "$base/good/$tars" --cache-dir disk --cache-limit 1M
    }
    parts=$(declare -f train train_in_disk; declare -p towers base tars room)
    unshare -m bash -c "$parts; train_in_disk" || complain "a full disk: exit $?: $(tail -n 3 full.err)"
    train full_local --shuffle-window 2 --max-steps 25 --data-path sets/tar || complain "local shards, a window of two: $(cat full_local.err)"
    same full full_local
    [[ $(grep -c "is full before --cache-limit is reached: fewer shards are read ahead" full.err) == 1 ]] || complain "a full disk is not said once: $(cat full.err)"
else
    left_out "a disk that fills up: mounting a small tmpfs wants root"
fi
kill -0 "$server" || complain "the server has ended"

check_end "shards come while they are read, with the bits of local ones, and what does not hold is named"
