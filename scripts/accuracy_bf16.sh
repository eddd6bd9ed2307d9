#!/usr/bin/env bash
# Does training in bf16 reach the accuracy of f32? Trains inception_mini on Fashion-MNIST with three seeds each of f32, bf16, and
# bf16 without Winograd's 3x3 convolutions, and writes a table of test accuracy and speed to standard output and docs/recipes.md.
# The mean of each bf16 kind must be within three standard errors, or half a point, of f32's; else the exit status is 1. About three
# minutes on two idle cores.
# usage: scripts/accuracy_bf16.sh [STEPS [BINARY]]    (default: 600 steps of 64; without BINARY it is built first; with STEPS the
# table goes to standard output only)
set -euo pipefail
cd "$(dirname "$0")/.."

steps=${1:-600}
towers=${2:-build/towers}
if [ $# -lt 2 ]; then
    scripts/setup.sh build
    scripts/build.sh build --preset cpu
fi
if ! grep -qwE 'avx512_bf16|amx_bf16' /proc/cpuinfo; then
    echo "accuracy_bf16: this processor has no bf16 arithmetic" >&2
    exit 5
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

declare -A options=([f32]="" [bf16]="--amp --amp-dtype bf16" [bf16-direct]="--amp --amp-dtype bf16 --no-winograd-bf16")
for seed in 1 2 3; do
    for kind in f32 bf16 bf16-direct; do
        # shellcheck disable=SC2086 # several words
        "$towers" train inception_mini --recipe mini --max-steps "$steps" --seed $seed ${options[$kind]} --quiet \
            --output-dir "$work" --experiment $kind-$seed
        tail -n 1 "$work/$kind-$seed/results.csv" | awk -F, -v kind=$kind -v seed=$seed '{print kind, seed, 100 * $6, $3, $9}' |
            tee -a "$work/results" >&2
    done
done

{
    echo "$(lscpu | sed -n 's/^Model name: *//p' | head -n 1), commit" \
        "$(git rev-parse --short HEAD)$(git diff --quiet HEAD -- kernels nccl_sync towers inception || echo ' and changes')," \
        "$(date -u '+%Y-%m-%d %H:%M')."
    echo
    awk -v steps="$steps" '
    { n[$1]++; sum[$1] += $3; square[$1] += $3 * $3; list[$1] = list[$1] sprintf(" %.2f", $3); loss[$1] += $4; speed[$1] += $5 }
    END {
        print "| activations | steps | test accuracy, three seeds | mean | standard deviation | mean training loss | images/s |"
        print "|---|---|---|---|---|---|---|"
        count = split("f32 bf16 bf16-direct", kinds)
        title["f32"] = "f32"; title["bf16"] = "bf16"; title["bf16-direct"] = "bf16, `--no-winograd-bf16`"
        for (k = 1; k <= count; k++) {
            kind = kinds[k]
            mean[kind] = sum[kind] / n[kind]
            variance[kind] = (square[kind] - sum[kind] * mean[kind]) / (n[kind] - 1)
            if (variance[kind] < 0) variance[kind] = 0
            printf "| %s | %d |%s | %.2f | %.2f | %.4f | %.0f |\n", title[kind], steps, list[kind], mean[kind], sqrt(variance[kind]),
                loss[kind] / n[kind], speed[kind] / n[kind]
        }
        print ""
        for (k = 2; k <= count; k++) {
            kind = kinds[k]
            gap = mean[kind] - mean["f32"]
            error = sqrt((variance["f32"] + variance[kind]) / 3)
            bound = 3 * error > 0.5 ? 3 * error : 0.5
            equal = (gap > -bound && gap < bound)
            printf "%s minus f32: %+.2f points, standard error %.2f: %s.\n", title[kind], gap, error,
                (equal ? "equal within noise" : "DIFFERENT")
        }
    }' "$work/results"
} | tee "$work/table"
[ $# -gt 0 ] || scripts/fill_section.sh docs/recipes.md bf16 <"$work/table"
! grep -q DIFFERENT "$work/table"
