#!/usr/bin/env bash
# How the recipe `mini` was found: trains inception_mini on Fashion-MNIST with one setting after another changed, and the recipe
# itself with five seeds, and writes docs/results/mini.md. The settings that were only tried are trained in bf16 where the
# processor has it, because that is faster. 45 minutes on two idle cores; runs that are there already are not repeated.
# usage: scripts/measure/mini_recipe.sh [FOLDER]    for the runs, in the user's cache by default
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/measure/common.sh
scripts/setup.sh python

runs=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/towers/mini}
towers=$(towers_of "${TOWERS:-}")
fast=''
! grep -qwE 'avx512_bf16|amx_bf16' /proc/cpuinfo || fast=--amp
mkdir -p "$runs"

# name | seeds | options. All but the last are given in full: the recipe may change.
before="--epochs 2 --lr 0.1 --weight-decay 0.0005 --smoothing 0 --dropout 0.2 --augment --crop-pad 0 --flip random"
still="--epochs 2 --lr 0.3 --weight-decay 0.0005 --smoothing 0 --dropout 0 --augment --crop-pad 0 --flip random"
plain="--epochs 2 --lr 0.3 --weight-decay 0.0005 --smoothing 0 --dropout 0 --no-augment"
settings="
base2|1|$before
base3|1|$before --epochs 3
alt2|1|$before --flip alternate
b32|1|$before --batch-size 32
b128|1|$before --lr 0.2 --batch-size 128
drop2|1|$before --dropout 0
lr2|1|$before --lr 0.2
c1|1|$still
c5|1|$still --lr 0.5
c3|1|$still --smoothing 0.1
c4|1|$plain
f2|1|$plain --weight-decay 0.001
e1|1|$plain --smoothing 0.1
f1|1|$plain --smoothing 0.1 --lr 0.4
f5|1|$plain --smoothing 0.1 --ema-decay 0.98
f6|1|$plain --smoothing 0.1 --lr 0.2 --batch-size 32
g1|2 3|$plain --smoothing 0.1 --weight-decay 0.001
f7|1|$plain --smoothing 0.1 --epochs 3
"

train() { # NAME SEED OPTIONS
    [ -s "$runs/$1-$2/report.html" ] || {
        rm -rf "${runs:?}/$1-$2"
        # shellcheck disable=SC2086 # several words
        "$towers" train inception_mini --towers 2 --seed "$2" $3 --quiet --output-dir "$runs" --experiment "$1-$2" >&2
    }
}

accuracies() { # NAME SEEDS: of the last epoch, in %
    for seed in $2; do tail -n 1 "$runs/$1-$seed/results.csv" | awk -F, '{printf "%.2f ", 100 * $6}'; done
}

# The recipe: name | options
seeds_of_recipe='1 2 3 4 5'
recipes="recipe|"
[ -z "$fast" ] || recipes+=$'\nrecipe_bf16|--amp\nlonger_bf16|--amp --epochs 4'

while IFS='|' read -r name seeds options; do
    for seed in $seeds; do train "$name" "$seed" "$options $fast"; done
done < <(sed '/^$/d' <<<"$settings")
while IFS='|' read -r name options; do
    for seed in $seeds_of_recipe; do train "$name" "$seed" "$options"; done
done <<<"$recipes"

five_seeds() { # NAME: the accuracies, their mean and least, and the range of the seconds of training, as cells of a table
    accuracies "$1" "$seeds_of_recipe" | awk '{
        for (i = 1; i <= NF; i++) { sum += $i; if (i == 1 || $i < least) least = $i }
        printf "%s| %.2f | %.2f |", $0, sum / NF, least }'
    for seed in $seeds_of_recipe; do
        awk -F, 'NR > 1 { seconds += $10 } END { print seconds }' "$runs/$1-$seed/results.csv"
    done | sort -n | awk '{ t[NR] = $1 } END { printf " %.0f to %.0f |\n", t[1], t[NR] }'
}

{
    echo "$(processor), 2 towers, 10,000 test images, accuracies after the last epoch in %."
    echo
    echo "| the recipe with | accuracy with seeds $seeds_of_recipe | mean | least | seconds of training |"
    echo '|---|---|---:|---:|---:|'
    while IFS='|' read -r name options; do
        echo "| ${options:+\`}${options:-nothing else}${options:+\`} | $(five_seeds "$name")"
    done <<<"$recipes"
    echo
    echo "What was tried before$([ -z "$fast" ] || echo ', in bf16'):"
    echo
    echo '| options | seeds | accuracy |'
    echo '|---|---|---:|'
    while IFS='|' read -r name seeds options; do
        echo "| \`${options}\` | $seeds | $(accuracies "$name" "$seeds")|"
    done < <(sed '/^$/d' <<<"$settings")
} | scripts/pages/fill_section.sh docs/results/mini.md mini
python3 scripts/pages/readme_lines.py mini | scripts/pages/fill_section.sh README.md mini
