#!/usr/bin/env bash
# Do two builds train to the same bits? Both run 50 steps of inception_mini with two towers on a CPU: in f32 and bf16, with
# --accumulate 2, with uneven shares, and with all towers in one process. Weights, and every column of metrics.jsonl,
# results.csv and layers.jsonl that both write, must be equal but for times.
# Usage: scripts/check/bits.sh OLD_BINARY NEW_BINARY. CASES="f32 bf16" runs some cases only.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/setup.sh python
[[ $# == 2 && -x $1 && -x $2 ]] || { echo "usage: $0 OLD_BINARY NEW_BINARY" >&2; exit 2; }
. tests/support/small_data.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
small_data "$work/data" 203 90 || exit $?

declare -A cases=(
    [f32]="--batch-size 8"
    [bf16]="--batch-size 8 --amp --amp-dtype bf16"
    [accumulate]="--batch-size 8 --accumulate 2"
    [accumulate-bf16]="--batch-size 8 --accumulate 2 --amp --amp-dtype bf16"
    [uneven]="--tower-batch 11,4"
    [uneven-bf16]="--tower-batch 11,4 --amp --amp-dtype bf16"
    [one-process]="--tower-batch 11,4 --accumulate 2 --processes 1"
    [sync]="--tower-batch 11,4 --bn-stats sync"
)

train() { # BINARY FOLDER ARGUMENT...
    "$1" train inception_mini --towers 2 --device cpu --threads 1 --data-path "$work/data" --seed 7 --max-steps 50 \
        --epochs 1000 --augment --dropout 0.3 --weight-decay 0.01 --ema-decay 0.99 --clip-norm 5 --eval-interval 2 \
        --log-interval 1 --summary-interval 10 --output-dir "$work/$2" --experiment run --quiet "${@:3}" >"$work/log" 2>&1 </dev/null ||
        { cat "$work/log" >&2; exit 1; }
}

differing=0
for name in ${CASES:-f32 bf16 accumulate accumulate-bf16 uneven uneven-bf16 one-process sync}; do
    read -ra arguments <<<"${cases[$name]}"
    train "$1" old "${arguments[@]}"
    train "$2" new "${arguments[@]}"
    if python3 - "$work" <<'PYTHON'
import csv, json, os, sys
work = sys.argv[1]
clock = ("_us", "_per_sec", "seconds")
bad = []

def rows(run, name):
    path = f"{work}/{run}/run/{name}"
    with open(path) as file:
        return list(csv.DictReader(file)) if name.endswith("csv") else [json.loads(line) for line in file]

for name in ("last.safetensors", "best.safetensors"):
    one, other = (open(f"{work}/{run}/run/{name}", "rb").read() for run in ("old", "new"))
    if one != other:
        bad.append(f"{name} differs")
for name in ("metrics.jsonl", "results.csv", "layers.jsonl", "norms.jsonl"):
    if not os.path.exists(f"{work}/old/run/{name}"):
        continue
    old, new = rows("old", name), rows("new", name)
    if len(old) != len(new):
        bad.append(f"{name}: {len(old)} rows, then {len(new)}")
    keys = [k for k in old[0] if k in new[0] and not k.endswith(clock) and not k.startswith("slow_")]
    for i, (a, b) in enumerate(zip(old, new)):
        for k in keys:
            if repr(a.get(k)) != repr(b.get(k)):
                bad.append(f"{name}: row {i + 1}, {k}: {a.get(k)!r:.80}, then {b.get(k)!r:.80}")
for line in bad[:6]:
    print("  " + line)
sys.exit(bool(bad))
PYTHON
    then
        echo "$name: equal"
    else
        echo "$name: DIFFERENT"
        differing=1
    fi
    rm -rf "$work/old" "$work/new"
done
exit $differing
