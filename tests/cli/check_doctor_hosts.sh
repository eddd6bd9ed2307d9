#!/usr/bin/env bash
# towers doctor --hosts on four hosts with a network between them (network namespaces): all agree; each odd one is named, and nobody else:
# another build, other data, a closed connection; a host that does not come, stops or dies ends it on all others by name. Needs root.
. "$1/tests/support/check.sh"
. "$source_dir/tests/support/hosts.sh"
small_data "$work/data" 96 30 || exit $?
"$towers" doctor --hosts >"$out" 2>"$err"
[[ $? == 2 ]] && grep -q 'mpirun --host a,b -np 2 -x MASTER_ADDR=a towers doctor --hosts' "$err" || complain "without a launcher: $(cat "$err")"
"$towers" doctor --data-path "$work/data" >"$out" 2>"$err"
[[ $? == 2 ]] && grep -q -- '--data-path has no effect without --hosts' "$err" || complain "--data-path alone: $(cat "$err")"
net_begin 4
port=$((20000 + RANDOM % 10000))
programs=()
begin() { # RANK ARGUMENT...: on host RANK + 1
    TOWERS_RANK=$1 TOWERS_WORLD_SIZE=4 TOWERS_MASTER_ADDR=$subnet.1 TOWERS_MASTER_PORT=$port on "$(($1 + 1))" "$work/program" \
        "$towers" doctor --hosts --output-dir "$work" "${@:2}" >"$codes/out-$1" 2>"$codes/err-$1" </dev/null &
    programs+=($!)
}
ended() { # CODE RANK...: these ended with it
    local rank
    ((${#programs[@]} == 0)) || wait "${programs[@]}"
    programs=() port=$((port + 7))
    for rank in "${@:2}"; do
        [[ $(cat "$codes/$rank" 2>/dev/null) == "$1" ]] || complain "${codes##*-}: rank $rank ended with '$(cat "$codes/$rank" 2>/dev/null)' instead of $1: $(cat "$codes/out-$rank" "$codes/err-$rank")"
    done
}
all_begin() { # NAME
    new "$1"
    [[ ! -d $work/before-$1 ]] || cp "$work/before-$1"/* "$codes"
    for rank in 0 1 2 3; do begin $rank --data-path "$work/data"; done
}
finds() { grep -qE -- "^$1\$" "$codes/out-0" || complain "${codes##*-}: nobody says '$1': $(cat "$codes/out-0")"; }

# ---- all agree
all_begin agree
ended 0 0 1 2 3
finds "all hosts agree"
finds "4 programs on 4 hosts, ranks from TOWERS_RANK"
finds "data +96 samples, fingerprint [0-9a-f]{32} +all"
[[ ! -s $codes/out-1 ]] || complain "rank 1 prints, too: $(cat "$codes/out-1")"

# ---- everything is odd
small_data "$work/other" 95 30
cp "$towers" "$work/another" && echo x >>"$work/another"
network refuse 4 2 0
mkdir "$work/before-odd"
echo "more='--data-path $work/other'" >"$work/before-odd/before-0"
echo "program=$work/another" >"$work/before-odd/before-1"
all_begin odd
ended 2 0 1 2 3
finds "host1: data is '95 samples, .*', but '96 samples, .*' on host2, host3, host4"
finds "host2: towers is '.*, digest [0-9a-f]+', but '.*' on host1, host3, host4"
finds "rank 3 on host4 cannot connect to rank 1 on host2 at $subnet.2, port [0-9]+: Connection timed out"
found=$(awk -v RS= 'END { print }' "$codes/out-0")
[[ $(wc -l <<<"$found") == 3 ]] || complain "other findings: $found"
grep -q 'error: the hosts are not alike: 3 findings above' "$codes/err-0" || complain "rank 0 says: $(cat "$codes/err-0")"
network plain

# ---- hosts that do not come, stop, or die in the middle
new absent
for rank in 0 1 2; do begin $rank --comm-timeout 10; done
ended 7 0 1 2
grep -q "of 4 programs rank 3 did not connect to port $((port - 7)) of host1 within 10 s" "$codes/err-0" || complain "absent: $(cat "$codes/err-0")"
for signal in STOP KILL; do
    new "$signal"
    for rank in 0 1 2; do begin $rank --comm-timeout 20; done
    wait_until eval 'on 3 ss -tnH state established | grep -qE ":$port\b"' # rank 2 waits for rank 3, or is about to prove itself
    sleep 1 # a connection is there before the greeting in it
    victim=$(pgrep -P "$(cat "$codes/shell-2")")
    kill -$signal "$victim"
    begin 3 --comm-timeout 20
    for rank in 0 1 3; do wait_until test -s "$codes/$rank"; done
    kill -KILL "$victim" 2>/dev/null
    ended 7 0 1 3
    cat "$codes"/err-* | grep -qE "rank 2 on host3( has not sent|: its supervisor has ended)|the last as rank 2 of 4 on host3" || complain "$signal: nobody names host3: $(cat "$codes"/err-*)"
done
check_end "towers doctor --hosts names the odd one"
