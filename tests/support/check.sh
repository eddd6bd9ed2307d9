# shellcheck shell=bash
# A check_*.sh script, whose arguments are the source folder and the binary, sources this first: a clean environment, and shared functions.
# It sets source_dir, towers (the program), weights (the driver that inspects them) and work, a folder that the script is in and that
# is removed at the end.
#
#   needs_python                            skip (77) without python3
#   python_of NAME                          sets python: that of scripts/venv.sh NAME, or skip if pip cannot get its packages
#   needs_faults DATA                       skip if the program has no fault points; DATA: a data set that it can open
#   timeless METRICS.jsonl                  its rows without times and what follows from them: those of two equal runs are equal
#   left_out TEXT...                        a part is not tried, and why: scripts/check/skips.sh lists it, tests/skips.txt accepts it
#   tensors FILE.safetensors                the numbers alone, without the header, whose metadata name the classes and the data
#   alongside COMMAND...                    run it in a shell of its own beside what follows, with output files of its own ($out,
#                                           $err): for cases that mostly wait. together waits for all of them
#   kill_at_row NAME ROWS COMMAND...        start it, kill the run NAME once metrics.jsonl has so many rows, wait until its lock is free
#   refuses CODE TEXT COMMAND...            it ends with this exit code (a pattern) and says TEXT ($err); what it prints is in $out
#   leaves_alone FOLDER COMMAND...          it succeeds and changes no file there, not even a time; but a lock
#   wait_until COMMAND...                   try it until it succeeds; at most five minutes, for a busy machine: whoever waits for
#                                           another process uses this, and no bound of its own
#   options_listed                          a line for each option, as the pages explain it: - `--lr RATE`: what it is. Commands: train, ...
#   ends CODE NAME ARGUMENT...              the function train of the script, whose messages are in err.NAME, ends with this exit code
#   complain TEXT...                        print and count a failure; the script continues
#   check_end TEXT                          exit 1 after complaints; TEXT summarizes what was shown

set -u
source_dir=$(realpath "$1") towers=$(realpath "$2")
weights=$(dirname "$towers")/tests/weights_driver
export LC_ALL=C GOMP_SPINCOUNT=1000
unset "${!TOWERS_@}"
export TOWERS_RECIPE=none # a folder of pictures is trained as other data are, unless the test is about the recipe
work=$(mktemp -d "${TMPDIR:-/tmp}/towers-work.XXXXXX") || exit 1
export XDG_CONFIG_HOME=$work/config # where programs of several hosts keep their token
trap 'rm -rf "$work"' EXIT
failures=0 out=$work/out err=$work/err beside=()
. "$source_dir/tests/support/small_data.sh"
cd "$work" || exit 1

needs_python() {
    command -v python3 >/dev/null || { echo "SKIPPED: no python3" >&2; exit 77; }
}

python_of() {
    python=$("$source_dir/scripts/venv.sh" "$1" 2>"$work/pip") && return
    echo "SKIPPED: pip could not get the packages of scripts/requirements/$1.txt: $(tail -n 1 "$work/pip")" >&2
    exit 77
}

options_listed() {
    local command
    for command in $("$towers" man --markdown | sed -n 's/^| \[`towers .*](commands\/\([a-z-]*\)\.md).*/\1/p'); do
        "$towers" man "$command" --markdown
    done | awk '/^```/ { block = !block; next } /^<!-- head: begin/ { block = 1; next } /^<!-- head: end/ { block = 0; next }
        /^(#|<!--)/ { if (line) print "-" line; line = ""; next } !block && NF { line = line " " $0 } END { if (line) print "-" line }'
}

needs_faults() {
    if TOWERS_FAULT=none: "$towers" train fashion_cnn --dry-run --data-path "$1" >/dev/null 2>&1; then
        echo "SKIPPED: this binary has no fault points (-DTOWERS_FAULTS=ON)" >&2
        exit 77
    fi
}

tensors() {
    tail -c +$((9 + $(od -An -t u8 -N 8 "$1"))) "$1"
}

timeless() {
    sed -E 's/,?"(images_per_sec|wall_seconds|arrival_us|(data|copy|forward|backward)_us|slow_(tower|activity)|sums|(sum_(begin|end|busy)|backward_end)_us|gpu_[a-z_]+)":(\[[^]]*\]|[^,}]*)//g' "$1"
}

left_out() {
    echo "SKIPPED: $*" >&2
}

alongside() {
    (
        failures=0 out=$work/out.$BASHPID err=$work/err.$BASHPID
        "$@"
        exit $((failures > 0))
    ) &
    beside+=($!)
}

together() {
    local shell
    for shell in "${beside[@]}"; do wait "$shell" || failures=$((failures + 1)); done
    beside=()
}

kill_at_row() {
    local name=$1 rows=$2 job pid='' before
    shift 2
    before=$(cat "runs/$name/.lock" 2>/dev/null) # of an earlier start, as its rows are
    "$@" &
    job=$!
    for ((i = 0; i < 30000; i++)); do
        pid=$(cat "runs/$name/.lock" 2>/dev/null)
        [[ $pid && $pid != "$before" ]] && (($(wc -l 2>/dev/null <"runs/$name/metrics.jsonl" || echo 0) >= rows)) && break
        sleep 0.01
    done
    kill -KILL "$pid" || complain "$name ended before it was killed"
    wait $job 2>/dev/null
    wait_until flock -n "runs/$name/.lock" true
}

refuses() {
    local code=$1 text=$2 status
    shift 2
    "$@" >"$out" 2>"$err" </dev/null
    status=$?
    # shellcheck disable=SC2053 # a pattern
    [[ $status == $code ]] || complain "$*: exit $status instead of $code: $(tail -n 3 "$err")"
    grep -qF -- "$text" "$err" || complain "$*: wanted '$text', found: $(tail -n 3 "$err")"
}

files_of() { find "$1" -type f ! -name .lock -printf '%P %T@ ' -exec sha256sum {} \; | sort; }

leaves_alone() {
    local folder=$1 before
    shift
    before=$(files_of "$folder")
    "$@" || complain "$*: exit $?"
    diff <(echo "$before") <(files_of "$folder") >"$work/changed" || complain "$* changes files: $(cut -c1-120 "$work/changed")"
}

wait_until() {
    local tries
    for ((tries = 0; tries < 6000; tries++)); do
        "$@" 2>/dev/null && return
        sleep 0.05
    done
    return 1
}

ends() {
    local code=$1 status
    shift
    train "$@"
    status=$?
    [[ $status == "$code" ]] || complain "$1: exit $status instead of $code: $(tail -n 3 "err.$1")"
}

complain() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}

check_end() {
    ((failures == 0)) || exit 1
    echo "$*"
}
