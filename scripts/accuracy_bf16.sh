#!/usr/bin/env bash
# Does training in bf16 reach what f32 reaches? inception_mini on Fashion-MNIST, three seeds each, short runs; prints a Markdown
# table of test accuracy and time. The difference of the means must be within three standard errors, or half a point.
# usage: scripts/accuracy_bf16.sh [STEPS [BINARY]]   (default 300 steps of batch 64; without BINARY it is built first)
set -euo pipefail
cd "$(dirname "$0")/.."

steps=${1:-300}
towers=${2:-build/towers}
if [ $# -lt 2 ]; then
    scripts/setup.sh build
    log=$(mktemp)
    { cmake --preset cpu && cmake --build build; } >"$log" 2>&1 || { tail -n 40 "$log" >&2; exit 1; }
    rm -f "$log"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for seed in 1 2 3; do
    for kind in f32 bf16; do
        amp=()
        [ $kind = f32 ] || amp=(--amp --amp-dtype bf16)
        "$towers" train inception_mini --recipe mini --max-steps "$steps" --seed $seed "${amp[@]}" --quiet \
            --output-dir "$work" --experiment $kind-$seed
        tail -n 1 "$work/$kind-$seed/results.csv" | awk -F, -v kind=$kind -v seed=$seed '{print kind, seed, 100 * $6, $3, $9}' |
            tee -a "$work/results" >&2
    done
done
awk -v steps="$steps" '
    { n[$1]++; sum[$1] += $3; square[$1] += $3 * $3; list[$1] = list[$1] sprintf(" %.2f", $3); loss[$1] += $4; speed[$1] += $5 }
    END {
        print "| activations | steps | test accuracy, three seeds | mean | standard deviation | mean training loss | images/s |"
        print "|---|---|---|---|---|---|---|"
        split("f32 bf16", kinds)
        for (k = 1; k <= 2; k++) {
            kind = kinds[k]
            mean[kind] = sum[kind] / n[kind]
            variance[kind] = (square[kind] - sum[kind] * mean[kind]) / (n[kind] - 1)
            printf "| %s | %d |%s | %.2f | %.2f | %.4f | %.0f |\n", kind, steps, list[kind], mean[kind], sqrt(variance[kind]),
                loss[kind] / n[kind], speed[kind] / n[kind]
        }
        gap = mean["bf16"] - mean["f32"]
        error = sqrt((variance["f32"] + variance["bf16"]) / 3)
        bound = 3 * error > 0.5 ? 3 * error : 0.5
        equal = (gap > -bound && gap < bound)
        printf "\nbf16 minus f32: %+.2f points, standard error %.2f: %s\n", gap, error, (equal ? "equal within noise" : "DIFFERENT")
        exit !equal
    }' "$work/results"
