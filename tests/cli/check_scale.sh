#!/usr/bin/env bash
# Many programs of one run without any computation (scale_driver.c): what meeting, gathering, recording and ending cost each program stays
# within budgets, and nothing grows faster than it should. Prints a table. 16 and 64 programs, or those of $SCALE_PROGRAMS, each at least
# twice as many as before. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
driver=$(dirname "$towers")/tests/scale_driver
before=()
printf '%s\n' "| programs | rank 0: KiB sent | received | memory, KiB | processor, ms | others: KiB sent | received | memory, KiB | processor, ms | meeting, ms | 20 steps, ms | end, ms | report, ms | bytes a step |" \
    "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
# at_most WHAT VALUE LIMIT
at_most() { (($2 <= $3)) || complain "$n programs: $1: $2, but at most $3 are expected"; }
# grows INDEX WHAT POWER ROOM: from the last number of programs to this one, at most by (their ratio)^POWER, and ROOM beside it
grows() {
    ((${#before[@]})) || return 0
    at_most "$2, after ${before[$1]} of ${before[0]} programs" "${now[$1]}" $((before[$1] * (n / before[0]) ** $3 + $4))
}
for n in ${SCALE_PROGRAMS:-16 64}; do
    mkdir "$work/$n"
    line=$("$driver" "$n" "$work/$n" 2>"$err") || { complain "$n programs: exit $?: $(head -n 5 "$err")"; break; }
    read -ra now <<<"$line"
    printf '| %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d |\n' "$n" $((now[1] / 1024)) $((now[2] / 1024)) $((now[3] / 1024)) \
        "${now[4]}" $((now[5] / 1024)) $((now[6] / 1024)) $((now[7] / 1024)) "${now[8]}" "${now[@]:9}"
    # Bytes: every program receives the names of all hosts, twice, and the numbers of a barrier; what all say of themselves and their
    # times go to rank 0 alone.
    # Names of this machine have any length; a program sends and receives a heartbeat each second.
    beats=$((32 * (1 + (now[9] + now[10] + now[11]) / 1000))) share=$((n * (60 + ${#HOSTNAME}) + beats))
    at_most "bytes that rank 0 sends" "${now[1]}" $((n * (share + 12000)))
    at_most "bytes that a program sends" "${now[5]}" $((12000 + beats))
    at_most "bytes that a program receives" "${now[6]}" $((share + 12000))
    at_most "memory of rank 0 in bytes" "${now[3]}" $((1000000 + n * 16000))
    at_most "memory of a program in bytes" "${now[7]}" $((1500000 + n * 4000))
    at_most "milliseconds of the processor of a program" "${now[8]}" $((1000 + n * 4))
    at_most "milliseconds of the processor of rank 0" "${now[4]}" $((1000 + n * 20))
    at_most "milliseconds of all parts" $((now[9] + now[10] + now[11] + now[12])) $((20000 + n * 1000)) # machines are busy
    at_most "bytes of a step's record" "${now[13]}" $((1000 + n * 80))
    grows 1 "bytes that rank 0 sends" 2 100000
    grows 2 "bytes that rank 0 receives" 1 $((20000 + n * 32 * (1 + (now[9] + now[10] + now[11]) / 1000))) # and heartbeats
    grows 3 "memory of rank 0 in bytes" 1 1000000
    grows 5 "bytes that a program sends" 0 $((1000 + beats))
    grows 6 "bytes that a program receives" 1 $((4000 + beats))
    grows 7 "memory of a program in bytes" 1 300000
    grows 13 "bytes of a step's record" 1 1000
    before=("${now[@]}")
done
check_end "programs of a run cost each other what they should"
