# shellcheck shell=bash
# Source this after check.sh: runs in $work beside what does not answer. It sets shim, the library that makes calls wait as long as a file
# exists (stall_calls.c), and skips (77) without it.
#
#   rows NAME COUNT    the metrics of the run have so many rows
#   whole NAME         they have every step once, up to the one with which it ended, or it complains
#   full NAME          descriptor 9 is a pipe, $work/pipe-NAME, that takes nothing more

shim=$(dirname "$towers")/tests/stall_calls.so
[[ -f $shim ]] || { echo "SKIPPED: no stall_calls.so (a build with sanitizers)" >&2; exit 77; }

rows() {
    (($(wc -l <"$work/$1/metrics.jsonl") >= $2))
}

whole() {
    python3 - "$work/$1" <<'PYTHON' || complain "$1: rows are missing: $(tail -n 3 "$err")"
import json, sys
rows = [json.loads(line)["step"] for line in open(sys.argv[1] + "/metrics.jsonl")]
sys.exit(rows != list(range(1, json.load(open(sys.argv[1] + "/outcome.json"))["step"] + 1)))
PYTHON
}

full() {
    mkfifo "$work/pipe-$1"
    exec 9<>"$work/pipe-$1"
    dd if=/dev/zero of="$work/pipe-$1" bs=1 count=10000000 oflag=nonblock 2>/dev/null
}
