#!/usr/bin/env bash
# Sums between groups of processes under the real launchers of Open MPI and MPICH: the same bits for every placement of eight towers,
# and an end by name, never a hang, if a process leaves, is killed, is stopped or does not come. Each group is a host of its own
# name; all of them run here. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
drivers=$(dirname "$towers")/tests
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

port=$((20000 + RANDOM % 10000)) # of the supervisors
# launch MPI GROUPS ARGUMENT...: the driver under that MPI's launcher, with files of its own in $folder
launch() {
    local mpi=$1 groups=$2
    shift 2
    set -- "$@" port=$port
    case $mpi in
    openmpi) TMPDIR=$folder mpirun.openmpi --oversubscribe --bind-to none -np "$groups" "$drivers/hosts_driver_openmpi" "$@" ;;
    mpich) mpirun.mpich -np "$groups" "$drivers/hosts_driver_mpich" "$@" ;;
    esac
}

# sums MPI: every placement has the bits of a single host
sums() {
    local mpi=$1 placement towers processes groups folder first=
    for placement in 8:4 4,4:4 2,2,2,2:2 1,1,1,1,1,1,1,1:1 3,5:2 5,3:1; do
        towers=${placement%:*} processes=${placement#*:} groups=${placement//[^,]/}
        groups=$((${#groups} + 1)) folder=$work/$mpi-sums-$placement
        mkdir "$folder"
        launch "$mpi" $groups case=sums towers="$towers" processes="$processes" out="$folder" >"$folder/out" 2>&1 ||
            complain "$mpi, towers $towers on $groups hosts: exit $?: $(cat "$folder"/rank-* "$folder/out")"
        [[ $(cat "$folder"/rank-* | grep -c '^OK') == $((groups * processes)) ]] ||
            complain "$mpi, $placement: $(grep -v '^OK' "$folder"/rank-*)"
        first=${first:-$folder/sum}
        cmp "$first" "$folder/sum" || complain "$mpi, towers $towers on $groups hosts: other bits than on one"
    done
}

# overlaps MPI: sums proceed before their processes ask for them
overlaps() {
    local folder=$work/$1-overlap
    mkdir "$folder"
    launch "$1" 3 case=overlap towers=2,2,2 processes=2 out="$folder" >"$folder/out" 2>&1 ||
        complain "$1, overlap: exit $?: $(cat "$folder"/rank-* "$folder/out")"
}

# follows MPI: sums of three processes of each group after each other, with MPI in a carrier
follows() {
    local folder=$work/$1-follow
    mkdir "$folder"
    launch "$1" 3 case=sums towers=3,2,3 processes=2 before=2 out="$folder" >"$folder/out" 2>&1 ||
        complain "$1, processes that follow others: exit $?: $(cat "$folder"/rank-* "$folder/out")"
    cmp "$work/$1-sums-8:4/sum" "$folder/sum" || complain "$1, processes that follow others: other bits than on one host"
}

# leaves MPI CASE WHO TIMEOUT GIVEN BEFORE: towers 2,2,2 in two processes each; all others end with an error that names rank WHO or its host
leaves() {
    local mpi=$1 case=$2 who=$3 timeout=$4 given=$5 before=$6 rank folder
    folder=$work/$mpi-$case-$who-$given-$before
    mkdir "$folder"
    launch "$mpi" 3 case="$case" towers=2,2,2 processes=2 who="$who" timeout="$timeout" given="$given" before="$before" out="$folder" >"$folder/out" 2>&1
    [[ $? != 0 || $mpi == mpich ]] || complain "$mpi: rank $who, $case: exit 0" # that of Hydra 4.2 is sometimes 0
    for rank in 0 1 2 3 4 5; do
        [[ $rank != "$who" && $((rank / 2)) != $((who / 2)) ]] || continue # its supervisor may have been ended by the launcher
        grep -qE "^ERR_COMM .*(tower process $who|host host$((who / 2))|MPI has aborted)" "$folder/rank-$rank" 2>/dev/null ||
            complain "$mpi: rank $who, $case: rank $rank ended with '$(cat "$folder/rank-$rank")': $(tail -n 5 "$folder/out")"
    done
}

# apart FUNCTION ARGUMENT...: beside others, with a port of its own
apart() {
    port=$((port + 1))
    alongside "$@"
}

tried=0
for mpi in openmpi mpich; do
    [[ -x $drivers/hosts_driver_$mpi ]] && command -v "mpirun.$mpi" >/dev/null || { left_out "$mpi: it is not installed"; continue; }
    tried=$((tried + 1))
    sums "$mpi"
    apart overlaps "$mpi"
    apart follows "$mpi"
    for case in abort:2:60000:0:0 abort:5:60000:1:0 kill:2:30000:1:0 kill:3:60000:0:0 stop:2:30000:0:0 stop:2:30000:1:0 stop:5:30000:0:0 \
        stop:5:30000:1:0 late:0:30000:0:0 abort:5:60000:1:1 kill:2:30000:0:1; do
        IFS=: read -r what who timeout given before <<<"$case"
        apart leaves "$mpi" "$what" "$who" "$timeout" "$given" "$before"
    done
    together
done
# Under the other MPI's launcher each process would be alone.
if ((tried == 2)); then
    # Each process would make Open MPI's session directory, and one of them fail because the other was faster: it is there already.
    mkdir -p "$work/foreign/ompi.$(hostname -s).$(id -u)/kept"
    TMPDIR=$work/foreign mpirun.mpich -np 2 "$drivers/hosts_driver_openmpi" case=sums towers=2,2 out="$work/foreign" >"$work/foreign/out" 2>&1
    for rank in 0 1; do
        grep -q "^ERR_ARG .*process $rank of 2, but MPI (Open MPI.*knows only this one: use the mpirun of this MPI" "$work/foreign/rank-$rank" ||
            complain "Open MPI's program under the launcher of MPICH: $(cat "$work/foreign/rank-$rank" "$work/foreign/out")"
    done
fi
((tried)) || { echo "SKIPPED: no MPI" >&2; exit 77; }
check_end "sums over hosts: the bits of one host, and an error by name when a process leaves"
