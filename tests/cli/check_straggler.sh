#!/usr/bin/env bash
# The tower that all others wait for is named with its activity in the log, the metrics, `compare` and the report, although all steps take
# equally long; in a run without a slow tower none is named. bench --scaling shows where the time of a second tower goes. Other work on
# the machine can hide a slow tower or slow one down, so a delay that is not found is tried again for longer, and a named tower must be
# named every time. The rule itself is tested by test_straggler.
. "$1/tests/support/check.sh"
small_data "$work/data" 240 60 || exit $?
needs_faults "$work/data"

batch=(--towers 2 --batch-size 8)
run() { # NAME ARGUMENT...
    timeout -s KILL 400 "$towers" train fashion_cnn --data-path "$work/data" --threads 1 "${batch[@]}" --eval-interval 0 \
        --epochs 100 --device cpu --quiet --output-dir "$work" --experiment "$@" >/dev/null 2>"$work/err" </dev/null ||
        complain "$1: exit $?: $(tail -3 "$work/err")"
}

# delayed NAME TOWER ACTIVITY ARGUMENT...
delayed() {
    local ms
    for ms in 20 80 320; do
        rm -rf "${work:?}/$1"
        TOWERS_FAULT="delay:tower=$2,step=1,ms=$ms,activity=$3" run "$1" --max-steps 260 "${@:4}"
        grep -q ' is slow in ' "$work/err" && break
    done
    named "$1" "$2" "$3"
}

named() { # NAME TOWER ACTIVITY
    local text="tower $2 is slow in $3: "
    grep -qF "warning: $text" "$work/err" && grep -qF "$text" "$work/$1/log.txt" || complain "$1: wanted '$text': $(cat "$work/err")"
    grep -q "\"slow_tower\":$2,\"slow_activity\":\"$3\"" "$work/$1/metrics.jsonl" || complain "$1: not in metrics.jsonl"
    "$towers" compare "$work/$1" | grep -qE "steps [0-9]+ to [0-9]+: all towers waited for tower $2, slow in $3" || complain "$1: compare does not report it"
    grep -q "tower $2 in $3, steps " "$work/$1/report.html" || complain "$1: the report does not show it"
}

# another program takes a core, on and off, while process PID lives
disturb() {
    for ((i = 0; i < 40; i++)); do
        timeout 0.05 sh -c 'while :; do :; done'
        kill -0 "$1" 2>/dev/null || break
        sleep 0.05
    done
}

# nobody NAME ARGUMENT...
nobody() {
    for ((again = 0; again < 4; again++)); do
        rm -rf "${work:?}/$1"
        run "$@" &
        [[ $1 != clean ]] || disturb $!
        wait $!
        if [[ ! -s $work/$1/metrics.jsonl ]]; then complain "$1: no metrics" && return; fi
        cat "$work/err" "$work/$1/log.txt" "$work/$1/metrics.jsonl" >"$work/all"
        grep -q 'is slow\|"slow_tower":[0-9]' "$work/all" || return
    done
    complain "$1: named in all of $again runs though nobody was slowed: $(cat "$work/err")"
}

delayed forward 1 forward
delayed reading 0 data
delayed copy 1 copy
delayed backward 2 backward --towers 4 --batch-size 2 --processes 2

nobody clean --max-steps 1500
batch=(--tower-batch 24,2)
if awk -v cores="$(nproc)" '{ exit !($1 > 2 * cores) }' /proc/loadavg; then
    # who computes for longer is interrupted more often: the larger share is really later then
    left_out "whether unequal shares name somebody: the machine is busy ($(cut -d' ' -f1 /proc/loadavg))"
else
    nobody shares --max-steps 300
fi

# ---- bench --scaling: the parts add up to what is lost
"$towers" bench fashion_cnn --device cpu --towers 2 --threads 1 --batch-size 8 --batches 60 --warmup-batches 12 --scaling --data-path "$work/data" --json --quiet >"$work/scaling.json" 2>"$work/err" ||
    complain "bench --scaling: $(cat "$work/err")"
python3 - "$work/scaling.json" <<'PYTHON' || complain "bench --scaling: $(cat "$work/scaling.json")"
import json, sys
s = json.load(open(sys.argv[1]))
assert s["towers"] == 2 and s["images_per_tower"] == 8 and s["alone"]["images_per_sec"]["value"] > 0, s
for mode in ("together", "together_real_data"):
    parts = s[mode]["lost_percent_to"]
    assert set(parts) == {"contention", "skew", "reduction", "data", "rest"}, s
    assert abs(sum(p["value"] for p in parts.values()) - s[mode]["lost_percent"]["value"]) < 1e-6, s
    assert all(p["half_width"] > 0 for p in parts.values()), s
    assert parts["skew"]["value"] >= 0, s
    assert s[mode]["step_ms"]["value"] > 0 and s[mode]["images_per_sec"]["value"] > 0, s
PYTHON
"$towers" bench fashion_cnn --device cpu --towers 2 --threads 1 --batch-size 8 --batches 30 --scaling --quiet >"$work/out" 2>"$work/err" || complain "bench --scaling as text"
grep -qE '^  2 towers +[0-9.]+ \+- [0-9.]+ +images/s .* [0-9.]+ \+- [0-9.]+ % efficiency$' "$work/out" && grep -q '    contention ' "$work/out" || complain "bench --scaling: $(cat "$work/out")"
for arguments in "--towers 1" "--towers 4 --processes 2" "--tower-batch 4,8"; do
    "$towers" bench fashion_cnn --device cpu $arguments --scaling --quiet >"$work/out" 2>&1
    [[ $? == 2 ]] && grep -q -- '--scaling' "$work/out" || complain "--scaling with $arguments: $(cat "$work/out")"
done

check_end "who is waited for is named"
