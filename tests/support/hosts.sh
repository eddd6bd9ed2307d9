# shellcheck shell=bash
# Source this after check.sh: several programs of one run, and hosts as network namespaces.
#
#   $work/program COMMAND...  what launchers start: runs the command, stores its exit code in $codes/RANK and hides it from the
#                             launcher, which would kill the others; $codes/before-RANK is sourced before
#   new NAME                  a fresh folder $codes
#   mpirun_find               sets mpirun, the launcher of the program's MPI, to be followed by a number of programs, and mpirun_of, openmpi
#                             or mpich; both empty without one. Each start has a folder of its own: launchers that begin or end at the same
#                             time would make, or remove, one folder for their files, and one of them fails
#   all_codes CODE NAME RANKS every program has ended with this exit code
#   other_dies NAME ROWS SIGNAL COMMAND...  start it, send this to the program that is not rank 0 once metrics.jsonl of the run NAME has so
#                             many rows; sets ended, the exit code of the launcher
#   waits_for PATTERN FILE    until the file has it
#   row TABLE CELL...         of docs/scaling.md; rows_match TABLE complains if the page has other faults or exit
#                             codes than were seen, or copies the rows to $HOSTS_TABLES for scripts/pages/hosts_tables.sh
#   said PATTERN FILE...      the part of the output that matches, for a row
#
#   openmpi_waits             options by which mpirun of Open MPI leaves programs time to report the death of another one
#
#   net_begin COUNT           hosts 1 to COUNT, joined by a switch: $subnet.1, ..., of the names host1, ...; skips (77) without root
#   on HOST COMMAND...        on this host; hosts_file=FILE is its /etc/hosts
#   network COMMAND...        tell the switch: delay, loss, rate, refuse, plain (switch_driver.c); its link i leads to host i
#   net_mpirun PROGRAMS COMMAND...  by a real mpirun of Open MPI, one on each host; needs ended in `pids` if the network is cut

cat >"$work/program" <<'PROGRAM'
#!/bin/bash
trap : TERM # mpirun ends all programs after the death of one; this shell stays to store the exit code
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${TOWERS_RANK:-}}}
[[ -r $codes/before-$rank ]] && . "$codes/before-$rank"
echo $$ >"$codes/shell-$rank"
"${program:-$1}" "${@:2}" ${more:-}
echo $? >"$codes/$rank"
PROGRAM
chmod +x "$work/program"

case $(mpirun.openmpi --version 2>/dev/null) in # "mpirun (Open MPI) 4.1.4", "mpirun.openmpi (OpenRTE) 4.1.4"
*') 4.'*) openmpi_waits=(--mca odls_base_sigkill_timeout 10) ;;
*) openmpi_waits=(--runtime-options recoverable) ;;
esac

new() {
    export codes=$work/codes-$1
    mkdir -p "$codes"
}

cat >"$work/mpirun" <<'MPIRUN'
#!/bin/bash
TMPDIR=$(mktemp -d "${0%/*}/mpirun.XXXX") && export TMPDIR && exec "$@"
MPIRUN
chmod +x "$work/mpirun"

mpirun_find() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    mpirun=() mpirun_of=''
    case $("$towers" doctor 2>/dev/null | grep -w mpi) in
    *"Open MPI"*) mpirun_of=openmpi ;;
    *MPICH*) mpirun_of=mpich ;;
    esac
    command -v "mpirun.${mpirun_of:-none}" >/dev/null || mpirun_of=''
    case $mpirun_of in
    openmpi) mpirun=("$work/mpirun" mpirun.openmpi "${openmpi_waits[@]}" --oversubscribe --bind-to none -np) ;;
    mpich) mpirun=("$work/mpirun" mpirun.mpich -np) ;;
    esac
}

all_codes() {
    local rank
    for ((rank = 0; rank < $3; rank++)); do
        [[ $(cat "$codes/$rank" 2>/dev/null) == "$1" ]] ||
            complain "$2: rank $rank ended with '$(cat "$codes/$rank" 2>/dev/null)' instead of $1: $(tail -n 4 "$err")"
    done
}

other_dies() {
    local name=$1 rows=$2 signal=$3 job lead before
    shift 3
    before=$(cat "runs/$name/.lock" 2>/dev/null) # of an earlier start, as its rows are
    "$@" &
    job=$!
    wait_until bash -c '[[ -s $1 && $(cat "$1") != "$2" ]]' - "runs/$name/.lock" "$before"
    wait_until awk -v rows="$rows" 'END { exit NR < rows }' "runs/$name/metrics.jsonl" || complain "$name has no $rows rows: $(cat "$err")"
    lead=$(cat "runs/$name/.lock")
    kill "-$signal" $(pgrep -P "$(ps -o ppid= "$lead" | tr -d ' ')" '^towers$' | grep -vx "$lead") || complain "$name ended before"
    wait $job
    ended=$?
}

waits_for() {
    wait_until grep -qE -- "$1" "$2" || complain "no '$1' in $2 within minutes: $(tail -n 5 "$2" "$err")"
}

row() {
    { printf '| %s ' "${@:2}" && echo '|'; } | sed "s/\b$(hostname)\b/HOST/g" >>"$work/table-$1"
}
said() {
    echo "\`$(cat "${@:2}" 2>/dev/null | grep -aohE -- "$1" | head -1 | sed "s|, after $work[^:]*||")\`"
}
rows_match() {
    [[ -z ${HOSTS_TABLES:-} ]] || { cp "$work/table-$1" "$HOSTS_TABLES"; return; }
    ((failures)) && return # they have said why
    diff <(sed -n "/<!-- $1: begin -->/,/<!-- $1: end -->/p" "$source_dir/docs/scaling.md" | sed '/^<!--/d' | tail -n +3 | cut -d '|' -f 2,3 | sort) \
        <(cut -d '|' -f 2,3 "$work/table-$1" | sort) ||
        complain "the table '$1' of docs/scaling.md (<) is not what was seen (>); scripts/pages/hosts_tables.sh writes it"
}

# ---- hosts with a network between them

net=tow$$ subnet=10.$((64 + RANDOM % 64)).$((RANDOM % 256)) pids=()

net_end() {
    local pid host
    for pid in "${pids[@]}"; do # mpirun waits for hosts that it cannot reach
        kill -KILL "$pid"
        wait "$pid"
    done 2>/dev/null
    { kill -KILL "${SWITCH_PID:-}" && wait "$SWITCH_PID"; } 2>/dev/null # bash unsets it when the switch has ended
    for ((host = 0; host <= net_hosts; host++)); do
        ip netns pids "$net-$host" 2>/dev/null | xargs -r kill -KILL
        ip netns del "$net-$host" 2>/dev/null
    done
    rm -rf "$work"
}

net_begin() {
    local driver=${towers%/*}/tests/switch_driver host
    net_hosts=$1
    trap net_end EXIT
    for host in $(ip netns list 2>/dev/null | grep -oE '^tow[0-9]+-[0-9]+'); do # of tests that were killed
        [[ -d /proc/$(tr -d tow <<<"${host%-*}") ]] || { ip netns pids "$host" | xargs -r kill -KILL; ip netns del "$host"; }
    done
    { ip netns add "$net-0" && ip link add "${net}r" address 02:00:00:00:00:00 type veth peer name link0 netns "$net-0"; } 2>/dev/null ||
        { echo "SKIPPED: towers on hosts with a network: no network namespaces (needs root)" >&2; exit 77; }
    ip addr add "$subnet.254/24" dev "${net}r" && ip link set "${net}r" up
    ip -n "$net-0" link set link0 up
    for ((host = 1; host <= net_hosts; host++)); do
        ip netns add "$net-$host"
        ip -n "$net-0" link add "link$host" type veth peer name eth0 netns "$net-$host" address "02:00:00:00:00:0$host"
        ip -n "$net-0" link set "link$host" up
        ip -n "$net-$host" addr add "$subnet.$host/24" dev eth0
        ip -n "$net-$host" link set eth0 up
        ip -n "$net-$host" link set lo up
    done
    # shellcheck disable=SC2046
    coproc SWITCH { exec ip netns exec "$net-0" "$driver" $(seq -f link%g 0 "$net_hosts"); }
    exec {to_switch}>&"${SWITCH[1]}" {from_switch}<&"${SWITCH[0]}"
    network plain
    cat >"$work/host" <<HOST
#!/bin/bash
# HOST COMMAND...: what ssh would do; HOST is a number, or an address that ends with it
exec ip netns exec "$net-\${1##*.}" unshare --uts --mount bash -c 'hostname host\${0##*.}
[[ -z \${hosts_file:-} ]] || mount --bind "\$hosts_file" /etc/hosts
eval "\$*"' "\$@"
HOST
    chmod +x "$work/host"
}

network() {
    local answer
    echo "$*" >&"$to_switch"
    read -r -t 60 answer <&"$from_switch" && [[ $answer == ok ]] || complain "the switch does not answer to '$*'"
}

on() { "$work/host" "$1" "exec ${*:2}"; }

net_mpirun() {
    local hosts TMPDIR=$codes # of its own: daemons of several runs on one host disturb each other when they make theirs
    hosts=$(seq -s, -f "$subnet.%g" 1 "$1")
    # The first names are those of Open MPI 4, the second those of Open MPI 5.
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm_rsh_agent=$work/host PRTE_MCA_plm_ssh_agent=$work/host \
        OMPI_MCA_oob_tcp_if_include=$subnet.0/24 PRTE_MCA_prte_if_include=$subnet.0/24 mpirun.openmpi --host "$hosts" -np "$1" --bind-to none \
        "${openmpi_waits[@]}" --mca btl self,tcp --mca btl_tcp_if_include "$subnet.0/24" -x MASTER_ADDR="$subnet.1" -x TMPDIR -x codes \
        "${net_variables[@]}" "$work/program" "${@:2}"
}
