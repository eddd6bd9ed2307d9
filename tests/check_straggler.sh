#!/usr/bin/env bash
# The tower that all others wait for is named with its phase, in the log, the metrics, `compare` and the report, though all
# steps last equally long; a run in which nobody is slow names nobody, on a busy machine too. And bench --scaling says
# where the time of a second tower goes.
# Arguments: source folder, binary (built with -DTOWERS_FAULTS=ON, else skipped).
set -u
. "$1/tests/support/check.sh"
check_begin straggler "$@"
small_data "$work/data" 240 60 || exit $?
needs_faults "$work/data"

batch=(--towers 2 --batch-size 8)
run() { # NAME ARGUMENT...
    timeout -s KILL 120 "$towers" train fashion_cnn --data-path "$work/data" --threads 1 "${batch[@]}" --eval-interval 0 \
        --epochs 100 --device cpu --quiet --output-dir "$work" --experiment "$@" >/dev/null 2>"$work/err" </dev/null ||
        complain "$1: exit $?: $(tail -3 "$work/err")"
}

named() { # NAME TOWER PHASE
    local text="tower $2 is slow in $3: "
    grep -qF "warning: $text" "$work/err" && grep -qF "$text" "$work/$1/log.txt" || complain "$1: wanted '$text': $(cat "$work/err")"
    grep -q "\"slow_tower\":$2,\"slow_phase\":\"$3\"" "$work/$1/metrics.jsonl" || complain "$1: not in metrics.jsonl"
    "$towers" compare "$work/$1" | grep -qE "steps [0-9]+ to [0-9]+: all towers waited for tower $2, slow in $3" || complain "$1: compare does not tell"
    grep -q "tower $2 in $3, steps " "$work/$1/report.html" || complain "$1: the report does not tell"
}

nobody() { # NAME
    grep -q 'is slow' "$work/err" "$work/$1/log.txt" && complain "$1: named though nobody was slowed: $(cat "$work/err")"
    grep -q '"slow_tower":[0-9]' "$work/$1/metrics.jsonl" && complain "$1: metrics.jsonl names somebody"
}

TOWERS_FAULT="delay:tower=1,step=1,ms=20,phase=forward" run forward --max-steps 175
named forward 1 forward
TOWERS_FAULT="delay:tower=0,step=1,ms=20,phase=data" run data --max-steps 175
named data 0 data
TOWERS_FAULT="delay:tower=1,step=1,ms=20,phase=copy" run copy --max-steps 175
named copy 1 copy
TOWERS_FAULT="delay:tower=2,step=1,ms=20,phase=backward" run backward --max-steps 175 --towers 4 --batch-size 2 --processes 2
named backward 2 backward

# 1500 clean steps while another program takes a core, on and off
run clean --max-steps 1500 --towers 2 &
pid=$!
for ((i = 0; i < 40; i++)); do
    timeout 0.05 sh -c 'while :; do :; done'
    kill -0 $pid 2>/dev/null || break
    sleep 0.05
done
wait $pid
nobody clean
batch=(--tower-batch 24,2)
run shares --max-steps 300
if awk -v cores="$(nproc)" '{ exit !($1 > 2 * cores) }' /proc/loadavg; then
    # who computes for longer is interrupted more often: the larger share is really later then
    echo "skipped: whether unequal shares name somebody, for the machine is busy ($(cut -d' ' -f1 /proc/loadavg))"
else
    nobody shares
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
    assert parts["skew"]["value"] > 0 and parts["reduction"]["value"] > 0, s
    step = s[mode]["step_ms"]["value"]
    assert abs(s[mode]["images_per_sec"]["value"] * step / 1000 / 16 - 1) < 0.5, s
PYTHON
"$towers" bench fashion_cnn --device cpu --towers 2 --threads 1 --batch-size 8 --batches 30 --scaling --quiet >"$work/out" 2>"$work/err" || complain "bench --scaling as text"
grep -qE '^  2 towers +[0-9.]+ \+- [0-9.]+ +images/s .* [0-9.]+ \+- [0-9.]+ % of 2 x alone$' "$work/out" && grep -q '    contention ' "$work/out" || complain "bench --scaling: $(cat "$work/out")"
for arguments in "--towers 1" "--towers 4 --processes 2" "--tower-batch 4,8"; do
    "$towers" bench fashion_cnn --device cpu $arguments --scaling --quiet >"$work/out" 2>&1
    [[ $? == 2 ]] && grep -q -- '--scaling' "$work/out" || complain "--scaling with $arguments: $(cat "$work/out")"
done

check_end "who is waited for is named"
