#!/usr/bin/env bash
# Hosts with a network between them: two network namespaces, joined by a bridge, in which a real mpirun of Open MPI starts the programs
# through a launch agent. The bits are those of one host; when the link of one goes down in the middle of a run, both ends notice it by
# the silence and end with the same code. Needs root. Arguments: source folder, binary.
set -u
. "$1/tests/support/check.sh"
check_begin hosts-net "$@"
small_data "$work/data" 96 30 || exit $?
"$towers" doctor 2>/dev/null | grep -q 'Open MPI' && command -v mpirun.openmpi >/dev/null ||
    { echo "SKIPPED: towers on hosts with a network: this build has no Open MPI, or mpirun is missing" >&2; exit 77; }
net=tow$$ subnet=10.$((64 + RANDOM % 64)).$((RANDOM % 256))
ip netns add "$net-1" 2>/dev/null && ip link add "${net}br" type bridge 2>/dev/null ||
    { ip netns del "$net-1" 2>/dev/null; echo "SKIPPED: towers on hosts with a network: no network namespaces (needs root)" >&2; exit 77; }
pids=()
tear_down() {
    for pid in "${pids[@]}"; do # mpirun waits for the host that it cannot reach
        kill -KILL "$pid"
        wait "$pid"
    done 2>/dev/null
    for host in 1 2; do
        ip netns pids "$net-$host" 2>/dev/null | xargs -r kill -KILL
        ip netns del "$net-$host" 2>/dev/null
    done
    ip link del "${net}br" 2>/dev/null
    rm -rf "$work"
}
trap tear_down EXIT
ip netns add "$net-2"
ip addr add "$subnet.254/24" dev "${net}br" && ip link set "${net}br" up
for host in 1 2; do
    ip link add "${net}v$host" type veth peer name eth0 netns "$net-$host"
    ip link set "${net}v$host" master "${net}br" up
    ip -n "$net-$host" addr add "$subnet.$host/24" dev eth0
    ip -n "$net-$host" link set eth0 up
    ip -n "$net-$host" link set lo up
done

# What ssh would be: HOST COMMAND...
cat >"$work/agent" <<AGENT
#!/bin/bash
host=\${1##*.}
shift
exec ip netns exec $net-\$host unshare --uts bash -c "hostname host\$host; \$*"
AGENT
cat >"$work/program" <<'PROGRAM'
#!/bin/bash
"$@"
echo $? >"$codes/$OMPI_COMM_WORLD_RANK"
PROGRAM
chmod +x "$work/agent" "$work/program"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=$work
run=(train fashion_cnn --data-path "$work/data" --device cpu --threads 1 --workers 1 --towers 4 --batch-size 2 --max-steps 12
    --eval-interval 1 --log-interval 1 --summary-interval 0 --output-dir "$work")
launched() {
    mpirun.openmpi --mca plm_rsh_agent "$work/agent" --host "$subnet.1,$subnet.2" -np 2 --bind-to none --mca btl self,tcp \
        --mca btl_tcp_if_include "$subnet.0/24" --mca oob_tcp_if_include "$subnet.0/24" -x MASTER_ADDR="$subnet.1" -x codes \
        "$work/program" "$towers" "${run[@]}" "$@" >"$out" 2>"$err" </dev/null
}

# ---- the bits of one host
export codes=$work/codes-bits
mkdir "$codes"
"$towers" "${run[@]}" --experiment one >"$out" 2>"$err" </dev/null || complain "one host: $(tail -n 3 "$err")"
launched --experiment two --comm-timeout 60 || complain "two hosts: exit $?: $(tail -n 5 "$err")"
[[ $(cat "$codes"/0 "$codes"/1) == $'0\n0' ]] || complain "two hosts: exit codes $(cat "$codes"/*): $(tail -n 5 "$err")"
grep -qE '^hosts +host1, host2; ranks' "$err" || complain "two hosts: no line of hosts: $(cat "$err")"
cmp "$work/one/last.safetensors" "$work/two/last.safetensors" || complain "two hosts: other weights than on one"

# ---- the link goes down in the middle of a run
if TOWERS_FAULT=none: "$towers" "${run[@]}" --dry-run >/dev/null 2>&1; then
    echo "the link is left alone: this binary has no fault points" >&2
else
    codes=$work/codes-cut
    mkdir "$codes"
    export TOWERS_FAULT=delay:tower=3,step=1,ms=50
    mpirun.openmpi --mca plm_rsh_agent "$work/agent" --host "$subnet.1,$subnet.2" -np 2 --bind-to none --mca btl self,tcp \
        --mca btl_tcp_if_include "$subnet.0/24" --mca oob_tcp_if_include "$subnet.0/24" -x MASTER_ADDR="$subnet.1" -x codes -x TOWERS_FAULT \
        "$work/program" "$towers" "${run[@]}" --max-steps 4000 --experiment cut --comm-timeout 4 >"$out" 2>"$err" </dev/null &
    pids+=($!)
    for ((i = 0; i < 1200; i++)); do
        grep -q '"step":6,' "$work/cut/metrics.jsonl" 2>/dev/null && break
        sleep 0.05
    done
    ip link set "${net}v2" down
    for ((i = 0; i < 1200; i++)); do
        [[ -s $codes/0 && -s $codes/1 ]] && break
        sleep 0.05
    done
    [[ $(cat "$codes/0" "$codes/1") == $'7\n7' ]] || complain "a link that went down: exit codes '$(cat "$codes"/*)': $(tail -n 5 "$err" "$work"/cut/log-rank1.txt)"
    cat "$err" "$work"/cut/log-rank1.txt "$work"/cut/log.txt | grep -qE 'rank [01] on host[12]: no sign of life|did not (arrive|answer)|--comm-timeout' ||
        complain "a link that went down: nobody says so: $(cat "$err")"
fi
check_end "towers on hosts with a network between them: the bits of one host, and an end when the network fails"
