#!/usr/bin/env bash
# Every allocation, fork, open and thread start of a run fails once, one per run, and some permanently: the run reports it in one line,
# ends with the right code (5 if memory failed), and loses nothing: resumed, it ends with the weights of an undisturbed run bit for bit.
# To save time only every n-th call is tested, from a start that changes daily; TOWERS_TEST_ALL_CALLS=1 tests all. Arguments: source
# folder, binary.
# fault: F53 F39
set -u
all=${TOWERS_TEST_ALL_CALLS:-}
. "$1/tests/support/check.sh"
small_data "$work/data" 200 50 || exit $?
shim=$(dirname "$towers")/tests/fail_calls.so
[[ -f $shim ]] || { echo "SKIPPED: no fail_calls.so (a build with sanitizers)" >&2; exit 77; }

command_of() { # NAME ARGUMENT...: steps 4 to 6 of one tower, from the checkpoint of step 3
    local name=$1
    shift
    command=("$towers" train fashion_cnn --data-path "$work/data" --towers 1 --threads 1 --workers 1 --batch-size 4 --max-steps 6
        --checkpoint-steps 3 --device cpu --output-dir "$work" --experiment "$name" --resume auto "$@")
}
command_of start --max-steps 3
"${command[@]}" >/dev/null 2>"$work/err" </dev/null || complain "start: $(cat "$work/err")"
cp -r "$work/start" "$work/golden"
command_of golden
LD_PRELOAD=$shim FAIL_CALL=none:1 FAIL_COUNT=$work/counts "${command[@]}" >/dev/null 2>"$work/err" </dev/null || complain "golden: $(cat "$work/err")"
for file in last.safetensors metrics.jsonl; do [[ -s $work/golden/$file ]] || complain "golden: no $file"; done

# The largest count of a process: the calls go on counting in the tower after its fork.
count_of() { awk -v kind="$1" '$1 == kind && $2 > most { most = $2 } END { print most + 0 }' "$work/counts"; }

tried=0
fails() { # KIND NUMBER: the run under this failure, and its continuation
    local status
    tried=$((tried + 1))
    rm -rf "$work/run"
    cp -r "$work/start" "$work/run"
    command_of run
    timeout -s KILL 200 env LD_PRELOAD="$shim" FAIL_CALL="$1:$2" "${command[@]}" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    case $1:$status in
    *:0 | *:5) ;;
    *:[346]) grep -qE '^error: .*(Cannot allocate memory|Too many open files)' "$work/err" || complain "$1:$2: exit $status: $(tail -2 "$work/err")" ;;
    lib:7) grep -q 'libgomp: Out of memory' "$work/err" || complain "$1:$2: exit 7: $(tail -2 "$work/err")" ;; # it calls exit(1)
    *) complain "$1:$2: exit $status: $(tail -2 "$work/err")" ;;
    esac
    if ((status != 0)) && [[ $(grep -c '^error: ' "$work/err") != 1 ]]; then complain "$1:$2: not one line of error: $(cat "$work/err")"; fi
    grep -q '^error: *$' "$work/err" && complain "$1:$2: an error without words"
    [[ -z $(find "$work/run" -name '*.corrupt') ]] || complain "$1:$2: a good checkpoint was condemned"
    # What ended well has nothing to continue: its own weights are compared.
    ((status == 0)) || "${command[@]}" >"$work/out" 2>"$work/err" </dev/null || complain "after $1:$2: exit $?: $(tail -2 "$work/err")"
    cmp "$work/run/last.safetensors" "$work/golden/last.safetensors" || complain "after $1:$2: other weights"
}

walk() { # KIND RUNS [SUFFIX]: that many runs over all calls of the kind
    local calls stride from
    calls=$(count_of "$1")
    ((calls > 0)) || complain "no call of kind $1 was counted"
    stride=$(((calls + $2 - 1) / $2))
    [[ -n $all ]] && stride=1
    from=$((1 + ($(date +%j | sed 's/^0*//') % stride)))
    for ((n = from; n <= calls; n += stride)); do fails "$1" "$n${3:-}"; done
}
walk own 14
walk own 4 +
walk lib 14
walk lib 4 +
walk map 6
walk open 16
walk thread 4
walk fork 1
((tried >= 40)) || complain "only $tried calls failed"
check_end "$tried failing calls: reported, ended in order, nothing lost"
