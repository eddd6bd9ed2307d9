#!/usr/bin/env bash
# The cost of several CPU hosts: steps of a network on hosts that are network namespaces with one core each, joined by a link of a given
# rate, beside the same towers on one host, in alternating rounds. Writes the tables of docs/scaling.md: what was measured, and what
# the model of a step (scripts/measure/bench_hosts.py) makes of it. Needs root, Open MPI, iproute2 and two cores; the machine should be idle.
# usage: scripts/measure/bench_hosts.sh [BUILD_DIRECTORY]     (default: a directory of its own)
# MODEL, BATCH and LARGE (both per tower; LARGE for two lines, and one round), STEPS and ROUNDS replace inception_v3, 8, 32, 7 and 4;
# PAGE=FILE writes to another page.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/measure/common.sh
scripts/setup.sh python

build=${1:-build-bench}
[ $# -gt 0 ] || { scripts/setup.sh build mpi && cmake --preset cpu -B "$build" -DTOWERS_MPI=ON; } >/dev/null
cmake --build "$build" --target towers >/dev/null
towers=$PWD/$build/towers
model=${MODEL:-inception_v3} batch=${BATCH:-8} large=${LARGE:-32} steps=${STEPS:-7} rounds=${ROUNDS:-4} page=${PAGE:-docs/scaling.md}
hosts=4
work=$(mktemp -d) net=bh$$ subnet=10.77.$((RANDOM % 256))
tear_down() {
    for ((host = 1; host <= hosts; host++)); do
        ip netns pids "$net-$host" 2>/dev/null | xargs -r kill -KILL
        ip netns del "$net-$host" 2>/dev/null
    done
    ip link del "${net}br" 2>/dev/null
    rm -rf "$work"
}
trap tear_down EXIT

ip link add "${net}br" type bridge && ip addr add "$subnet.254/24" dev "${net}br" && ip link set "${net}br" up
for ((host = 1; host <= hosts; host++)); do
    ip netns add "$net-$host"
    ip link add "${net}v$host" type veth peer name eth0 netns "$net-$host"
    ip link set "${net}v$host" master "${net}br" up
    ip -n "$net-$host" addr add "$subnet.$host/24" dev eth0
    ip -n "$net-$host" link set eth0 up
    ip -n "$net-$host" link set lo up
done

# What ssh would be: HOST COMMAND...; hosts have the cores in turns.
cat >"$work/agent" <<AGENT
#!/bin/bash
host=\${1##*.}
shift
exec ip netns exec $net-\$host taskset -c \$(((host - 1) % 2)) unshare --uts bash -c "hostname host\$host; \$*"
AGENT
chmod +x "$work/agent"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=$work GOMP_SPINCOUNT=1000

# link RATE: what each host may send; bursts of a millisecond
link() {
    declare -A burst=([10gbit]=1250kb [1gbit]=128kb [100mbit]=64kb)
    for ((host = 1; host <= hosts; host++)); do
        ip netns exec "$net-$host" tc qdisc replace dev eth0 root tbf rate "$1" burst "${burst[$1]}" latency 20ms
    done
}

# run NAME HOSTS TOWERS BATCH: leaves NAME/metrics.jsonl
run() {
    local arguments=(train "$model" --dataset synthetic --device cpu --threads 1 --workers 1 --towers "$3" --batch-size "$4"
        --max-steps "$steps" --eval-interval 0 --log-interval 1 --summary-interval 0 --checkpoint-steps 0 --output-dir "$work" --experiment "$1")
    if (($2 == 1)); then
        taskset -c 0,1 "$towers" "${arguments[@]}" --processes "$3" >"$work/out" 2>&1 </dev/null
    else
        # The first names are those of Open MPI 4, the second those of Open MPI 5.
        OMPI_MCA_plm_rsh_agent=$work/agent PRTE_MCA_plm_ssh_agent=$work/agent \
            OMPI_MCA_oob_tcp_if_include=$subnet.0/24 PRTE_MCA_prte_if_include=$subnet.0/24 mpirun.openmpi --host "$(seq -s, -f "$subnet.%g" "$2")" -np "$2" --bind-to none \
            --mca btl self,tcp --mca btl_tcp_if_include "$subnet.0/24" \
            -x MASTER_ADDR="$subnet.1" "$towers" "${arguments[@]}" >"$work/out" 2>&1 </dev/null
    fi || { echo "bench_hosts: $1 failed: $(tail -n 5 "$work/out")" >&2; exit 1; }
    rm -f "$work/$1"/*.safetensors
}

points=()
measure() { # ROUND HOSTS TOWERS RATE [BATCH]
    local name=$2-$3-$4-${5:-$batch}-$1
    link "${4/-/10gbit}"
    run "$name" "$2" "$3" "${5:-$batch}"
    points+=("$2:$3:$4:${5:-$batch}:$work/$name/metrics.jsonl")
    echo "$(date +%T) round $1: $2 hosts, $3 towers, $4, batch ${5:-$batch}" >&2
}
for rate in 10gbit 1gbit 100mbit; do
    link $rate
    points+=("rate:$rate:$(python3 scripts/measure/bench_hosts.py rate "$net-1" "$net-2" "$subnet.2" $rate)")
done
for ((round = 1; round <= rounds; round++)); do
    measure "$round" 1 2 -
    measure "$round" 2 2 10gbit
    ((round == 1)) || continue # the other points of the model
    for rate in 1gbit 100mbit; do measure "$round" 2 2 $rate; done
    measure "$round" 1 4 -
    for rate in 10gbit 1gbit 100mbit; do measure "$round" 4 4 $rate; done
    measure "$round" 1 2 - "$large"
    measure "$round" 2 2 10gbit "$large"
done

{
    echo
    echo "\`$model\`, f32, one thread per tower; $(nproc) cores of an $(processor)," \
        "load $(cut -d' ' -f1 /proc/loadavg) at the end; Open MPI over TCP, links shaped by tbf; $rounds rounds of the first two lines," \
        "one of the others, of $steps steps each; $(this_commit)."
    echo
    python3 scripts/measure/bench_hosts.py tables "$towers" "$model" "${points[@]}"
} >"$work/tables"
cat "$work/tables"
scripts/pages/fill_section.sh "$page" measured-hosts <"$work/tables"
python3 scripts/measure/bench_hosts.py formula | scripts/pages/fill_section.sh "$page" chain
