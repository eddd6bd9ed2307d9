#!/usr/bin/env bash
# Write docs/faults.md: every fault of the catalog, what the program does, and the tests that show it. Tests are found by a comment
# `fault: F22` in them. Fails if a fault has no test, or if a mark is not in the catalog.
# usage: scripts/pages/fault_table.sh [--check]    --check writes nothing and fails if docs/faults.md is not up to date
set -euo pipefail
cd "$(dirname "$0")/../.."

# number|fault|behavior|exit code
catalog() {
    cat <<'TABLE'
F1|killed at any system call of a checkpoint|the old or the new checkpoint loads completely; leftovers are removed at the next start|-
F2|disk or quota full during a checkpoint|the old one is kept, training continues with a warning; the third failure in a row ends the run|6
F3|`fsync`, `rename` or `close` fails|as F2; success is never reported|6
F4|power failure: data that was not fsynced is lost|the newest complete checkpoint loads, and no record up to its step is missing|-
F5|checkpoint cut to any length|rejected with file and offset; `--resume auto` uses the previous one|4
F6|one bit of a checkpoint flipped|detected by the manifest|4
F7|garbled header, impossible lengths|rejected; almost nothing is allocated|4
F8|overlap, hole, trailing bytes, duplicate key, bad type in a weights file|rejected; the tensor is named|4
F9|shapes or names of other classes|rejected with the differences; `--reset-head` does not load the classifier|4
F10|checkpoint of a newer format, another model or another type|rejected, with what was expected and found; it is not renamed, and no older one is used|2/4
F11|resumed with other settings, towers or data|refused; each difference is listed|2
F12|two trainers, one run directory|the second fails with the pid of the first|2
F13|corrupt image in the middle of an epoch|the run ends with its name; with `--bad-samples skip` or `limit:N` it is skipped and counted|3
F14|file that is empty, truncated, unreadable or a pipe|a bad sample as F13, or rejected by name, without blocking|3
F15|image that unpacks to gigabytes|rejected at its header|3
F16|label out of range|error with file and record when the data is opened|3
F17|empty folder, no images, one class|a message with what was expected; `--classes` says that one class is meant|3
F18|the test data has a class that the training data lacks|rejected by name|3
F19|data set smaller than the global batch|refused, with both numbers and the remedy|2
F20|batch not divisible by the towers|refused, with the nearest values that are divisible|2
F21|file that disappears or changes between index and read|as F13|3
F22|storage of the data stalls|a warning that names the loader; training continues|-
F23|TFRecord with bad checksums or lengths|bad lengths are rejected with record and offset before anything is allocated; bad data are a bad sample as F13|3
F24|tar with paths outside of its folder, links, impossible sizes|links and sizes are rejected by name; nothing is extracted, so a path is only a name|3
F25|tf.Example with missing keys or other types|rejected with record and offset|3
F26|IDX with wrong magic, sizes or counts; gzip bomb|rejected with file and offset|3
F27|paths that are too long, names with control characters or not UTF-8|rejected, or used byte by byte; escaped in messages and JSON|-
F28|NaN or Inf in one tower's gradient|no tower commits the step; tower and layer are named|8
F29|the loss diverges|the run ends with step, layer and a remedy; no checkpoint has NaN or Inf|8
F30|a tower fails in the all-reduce|the others end; one root cause is reported|7
F31|a tower hangs|a warning that names it; the run ends at `--comm-timeout`, with its calls in a file of the run directory|7
F32|a tower does not end when killed|reported, and the supervisor exits|7
F33|replicas that differ|the tower is named; `--sdc-policy` determines the action|8
F34|SIGTERM, SIGUSR2 in any activity|a checkpoint after the current step; before the first step the run ends at once|128+n
F35|SIGINT once, twice|saves; exits without saving|130
F36|closed console, SIGPIPE, SIGHUP; a console or standard output that nobody reads (a full pipe, Ctrl-S)|training continues, and signals and dead towers are noticed as ever; what nobody reads is left out, and `outcome.json` and `log.txt` have it; a result of `--json` that is not read gives 6|-
F37|stopped and continued, suspended|no false timeout|-
F38|GPU memory runs out|needed and free memory are reported; no tower hangs|5
F39|host memory runs out|reported before the run starts, with the largest batch size|5
F40|GPUs that are not visible, or listed twice|the number of visible GPUs and the remedy|2/5
F41|no driver, too old a driver, a driver that does not answer for 180 s, a GPU that does not|one line with the remedy; `--device auto` uses the CPU, and `--device cpu` does not look for GPUs|5
F42|sticky CUDA error, lost GPU|no CUDA call follows; the run ends, or with `--max-restarts` continues on the other GPUs|5
F43|a process never joins, or the name server does not answer|after 5 s a line says for whom the program waits, by which variables, and how to train alone; named after the deadline|7
F44|garbage at the port where programs of several hosts meet|dropped|-
F45|a node that expects another number of nodes|refused with both numbers; the others end at `--comm-timeout`, because it is missing|2/7
F46|programs of another build, other options or other data|the rank that differs is named|2
F47|a program, a tower or the process that keeps MPI on another host dies|the others end with its name: within 10 s if the machines are not busy; the tests allow 60|7
F48|run directory that cannot be written, disk full later|an error before training; later, logs are reduced with a warning, but `--log-samples` ends the run|6
F49|small `/dev/shm`, `memlock`, `nofile`|`towers doctor` names the limit and the remedy|-
F50|bad command lines|exit code 2 with a suggestion; nothing is created|2
F51|bad configuration files|file, line and column|2
F52|extreme values: 0 epochs, rate 0, the largest seed|a defined result or an error|0/2
F53|an allocation, the start of a thread or an open fails, at any call (about 60 are tried, other ones each day)|a message that says what failed; nothing is lost|5
F54|records cut by a crash, then resumed|complete lines, no step twice|0
F55|a tower or thread cannot be started|those already started are ended|5
F56|locale with decimal commas|the same files byte for byte|0
F57|a GPU that reports an ECC error it could not correct or an XID, or is lost to its driver|the run ends with tower, GPU and error, or with `--max-restarts` continues; XIDs of single programs, and those that NVIDIA says to ignore, are warnings|5
F58|a process that has failed does not end, in `ncclCommAbort` or in the driver|after 60 s (half of `--comm-timeout`, if that is less) without a sign of life of any process the run ends with that failure; saving is a sign of life|5/7
F59|the run directory is renamed, removed or replaced while the run trains|seen within a second; the run saves where the directory is now and ends with its name; nothing is written to another directory of that name|6
F60|storage of the run directory does not answer, for any time|records wait in memory (64 MiB) and training goes on; what must be written first (a checkpoint before the next one, lists of samples, the end of the run) waits, with a warning, and no other tower or program takes that for a hang; no step is left out, and `log.txt` says how long it was; a second signal ends the run|-
F61|GPUs do not reach each other (ACS, IOMMU, virtual machines; a switch that hangs): the first sum between them does not end|after 60 s without a sign of progress the run ends with what to try: `NCCL_P2P_DISABLE=1`, `NCCL_NVLS_ENABLE=0`, ACS and IOMMU; after `--comm-timeout` if that is given, or if they hang while NCCL connects them. Until that sum has come nothing else goes between GPUs, in `towers bench` either. With `--no-self-test` the first step ends after `--comm-timeout`, in the same words|7
F62|NCCL may not sum in the switch (NVLS), as in many containers|at once, with NCCL's words and `NCCL_NVLS_ENABLE=0`|7
F63|two processes on one GPU, or on slices of one (MIG)|at once, with NCCL's words and how each gets a GPU of its own|7
F64|`/dev/shm` is too small for NCCL|at once, with NCCL's words and how to make it larger|7
F65|`NCCL_SOCKET_IFNAME` is left over from another machine|at once, with NCCL's words and how to choose|7
F66|the fabric manager of the NVSwitches does not run (error 802)|at once, with the words of the driver and of the remedy|7
F67|at the end of a run the storage of rank 0 does not take what other nodes bring, or theirs does not give it|heartbeats, signals and results go on; after `--comm-timeout` without progress (up to 120 s more, as long as files come), or 10 s after a second signal, the run ends as it would, with a warning that says where its records stay|-
F68|a supervisor no longer looks at its towers|its heartbeats stop with that; the other nodes name it after `--comm-timeout`|7
TABLE
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
    echo "What the program does if something fails, and the [exit code](exit-codes.md) (-: no error). Failures of the network are in [remote.md](remote.md#when-the-network-fails)."
    echo
    echo "Written by \`scripts/pages/fault_table.sh\` from marks in the tests (comments like \`fault: F22\`); edit those, or the catalog in the script."
    echo
    echo "| | fault | behavior | exit | test |"
    echo "| --- | --- | --- | --- | --- |"
    while IFS='|' read -r number fault behavior code; do
        local list shown=
        list=$(tests_of "$number")
        [[ -n $list ]] || complain "$number has no test: $fault"
        for file in $list; do shown+="${shown:+, }[$(basename "$file")](../$file)"; done
        echo "| $number | $fault | $behavior | $code | $shown |"
    done < <(catalog)
}

for mark in $(grep -oE 'F[0-9]+' <<<"$marks" | sort -u); do
    grep -q "^$mark|" < <(catalog) || complain "a test marks $mark, which the catalog does not have"
done
made=$(mktemp)
trap 'rm -f "$made"' EXIT
table >"$made"
if [[ ${1:-} == --check ]]; then
    cmp -s "$made" docs/faults.md || complain "docs/faults.md is not what the marks say: run scripts/pages/fault_table.sh"
elif ((bad == 0)); then
    cp "$made" docs/faults.md
fi
exit $bad
