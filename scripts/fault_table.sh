#!/usr/bin/env bash
# Write docs/faults.md: every fault of the catalogue, what the program does, and the tests that show it. Tests are found by a comment
# `fault: F22` in them. Fails if a fault has neither a test nor a reason below, or has both, or if a mark is not in the catalogue.
# usage: scripts/fault_table.sh [--check]    --check writes nothing and fails if docs/faults.md is not up to date
set -euo pipefail
cd "$(dirname "$0")/.."

# number|fault|behaviour|exit code
catalogue() {
    cat <<'TABLE'
F1|killed at any system call of a checkpoint|the old or the new checkpoint loads, whole; the rest is swept at the next start|-
F2|disk or quota full during a checkpoint|the old one stays, a warning, training goes on; the third time in a row ends the run|6
F3|`fsync`, `rename` or `close` fails|as F2; success is never claimed|6
F4|power cut: what was not fsynced is lost|the newest complete checkpoint loads|-
F5|checkpoint cut to any length|refused with file and offset; `--resume auto` takes the one before|4
F6|one bit of a checkpoint flipped|found by the manifest|4
F7|garbled header, impossible lengths|refused, next to nothing allocated|4
F8|overlap, hole, trailing bytes, duplicate key, bad type in a weights file|refused, the tensor is named|4
F9|shapes or names of other classes|refused with what differs; `--reset-head` leaves the classifier out|4
F10|checkpoint of a newer format|refused with both versions, not renamed, no older one taken|4
F11|resumed with other settings, towers or data|each difference is listed|2
F12|two trainers, one run directory|the second is refused with the pid of the first|2
F13|corrupt image in the middle of an epoch|left out and counted, up to a limit|3
F14|file that is empty, cut, unreadable or a pipe|refused by name, nobody waits|3
F15|image that unpacks to gigabytes|refused at its header|3
F16|label out of range|ends the opening with file and record|3
F17|empty folder, no images|a message that says what was looked for|3
F18|training and test data have other class sets|refused with the differences|3
F19|data set smaller than the global batch|both numbers and the remedy|2
F20|batch not divisible by the towers|the nearest values that are|2
F21|file that disappears or changes between index and read|as F13|3
F22|storage of the data stalls|a warning that names the loader, training goes on|-
F23|TFRecord with bad checksums or lengths|record or shard left out, nothing allocated|3
F24|tar with paths that lead out, links, impossible sizes|entry refused, nothing written|3
F25|tf.Example without keys, of other types|bad sample|3
F26|IDX with wrong magic, sizes or counts; gzip bomb|refused with file and offset|3
F27|paths that are too long, names with control characters or not UTF-8|refused, or used by their bytes; escaped in messages and JSON|-
F28|NaN or Inf in one tower's gradient|no tower commits the step; tower and layer are named|8
F29|the loss diverges|step, layer and advice; no checkpoint that is not finite|8
F30|a tower fails in the all-reduce|the others leave within 2 s, one root cause|7
F31|a tower hangs|a warning that names it, the run ends at `--comm-timeout`|7
F32|a tower does not even end when it is killed|told, and the supervisor leaves|7
F33|replicas that differ|the tower is named, `--sdc-policy` decides|8
F34|SIGTERM, SIGUSR2 in any activity|a checkpoint of the step of the moment; before the first step at once|128+n
F35|SIGINT once, twice|saves; leaves without saving|130
F36|closed console, SIGPIPE, SIGHUP|training goes on|-
F37|stopped and continued, suspended|no false timeout|-
F38|GPU memory runs out|what was wanted and what is free; no tower waits for ever|5
F39|host memory runs out|told before the run begins, with the largest batch|5
F40|fewer GPUs than asked for|what is there is listed|5
F41|no driver, too old a driver|one line with what to do; `--device auto` takes the CPU|5
F42|sticky CUDA error, lost GPU|no further calls, the run ends|5
F43|a process never joins|named after the deadline|7
F44|garbage at the rendezvous|dropped|-
F45|another number of nodes than expected|refused|2
F46|peers of another binary, flags or data|the odd rank is named|2
F47|a process of another node dies|the others leave within the timeout|7
F48|run directory that cannot be written, disk full later|fails before training; logs degrade, a warning|6
F49|small `/dev/shm`, `memlock`, `nofile`|`towers doctor` names the limit and the remedy|-
F50|bad command lines|exit 2 with a suggestion, nothing created|2
F51|bad configuration files|file, line and column|2
F52|edges of values: 0 epochs, rate 0, the largest seed|a defined result, or refused|0/2
F53|allocation, thread or open fails at any call|a clear message, nothing lost|5
F54|records cut by a crash, then resumed|whole lines, no step twice|0
F55|a tower or thread cannot be started half way|those that were are ended|5
F56|locale with decimal commas|the same files byte for byte|0
TABLE
}

# Faults without a test, and why: inputs and machines that the program does not support yet.
open_reason() {
    case $1 in
    F15 | F21) echo "open: no test of folders of images shows it yet" ;;
    F18) echo "open: the two halves of an IDX data set share one classes.txt; folders of classes are not an input yet" ;;
    F23 | F25) echo "open: TFRecord is not an input yet" ;;
    F24) echo "open: tar files are not an input yet" ;;
    F40) echo "open: needs a machine with GPUs" ;;
    F44 | F45 | F46 | F47) echo "open: one machine only, nothing listens; several nodes do not exist yet" ;;
    esac
}

bad=0
complain() {
    echo "fault_table: $*" >&2
    bad=1
}
marks=$(grep -rnoE '(#|/\*) fault:( F[0-9]+)+' tests | sed -E 's/:[0-9]+:.* fault:/:/')
tests_of() { { grep -E "[: ]$1( |\$)" <<<"$marks" || true; } | cut -d: -f1 | sort -u; }

table() {
    echo "# Faults"
    echo
    echo "Written by \`scripts/fault_table.sh\` from the marks of the tests (a comment \`fault: F22\` beside each); edit those, or the catalogue in the script."
    echo
    echo "| | fault | behaviour | exit | test |"
    echo "| --- | --- | --- | --- | --- |"
    while IFS='|' read -r number fault behaviour code; do
        local list reason shown=
        list=$(tests_of "$number")
        reason=$(open_reason "$number")
        [[ -n $list || -n $reason ]] || complain "$number has neither a test nor a reason: $fault"
        [[ -z $list || -z $reason ]] || complain "$number has a test, and a reason for having none"
        for file in $list; do shown+="${shown:+, }[$(basename "$file")](../$file)"; done
        echo "| $number | $fault | $behaviour | $code | ${shown:-$reason} |"
    done < <(catalogue)
}

for mark in $(grep -oE 'F[0-9]+' <<<"$marks" | sort -u); do
    grep -q "^$mark|" < <(catalogue) || complain "a test marks $mark, which the catalogue does not have"
done
made=$(mktemp)
trap 'rm -f "$made"' EXIT
table >"$made"
if [[ ${1:-} == --check ]]; then
    cmp -s "$made" docs/faults.md || complain "docs/faults.md is not what the marks say: run scripts/fault_table.sh"
elif ((bad == 0)); then
    cp "$made" docs/faults.md
fi
exit $bad
