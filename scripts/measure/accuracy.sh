#!/usr/bin/env bash
# Does training by numbers or sums that round more coarsely reach the accuracy of the usual ones? Trains inception_mini on
# Fashion-MNIST, the kinds in turn with each seed, and writes a table of test accuracy and speed to standard output and
# docs/recipes.md. The mean of each kind must be within three standard errors, or half a point, of the first one's; else the exit
# status is 1. Up to five minutes on two idle cores.
#   bf16       f32, bf16, and bf16 without Winograd's 3x3 convolutions; three seeds
#   winograd   --no-winograd-f32, and --winograd, which the network asks for by itself; five seeds
# usage: scripts/measure/accuracy.sh bf16|winograd [STEPS [BINARY]]    (default: 600 steps of 64; without BINARY it is built first; with
# STEPS the table goes to standard output only)
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/measure/common.sh

section=${1:-}
case $section in
bf16)
    what=activations kinds=(f32 bf16 bf16-direct) titles='f32;bf16;bf16, `--no-winograd-bf16`' seeds=(1 2 3)
    declare -A options=([f32]="" [bf16]="--amp --amp-dtype bf16" [bf16-direct]="--amp --amp-dtype bf16 --no-winograd-bf16")
    if ! grep -qwE 'avx512_bf16|amx_bf16' /proc/cpuinfo; then
        echo "accuracy bf16: this processor has no bf16 arithmetic" >&2
        exit 5
    fi
    ;;
winograd)
    what="f32 by" kinds=(plain winograd) titles='`--no-winograd-f32`;`--winograd`' seeds=(1 2 3 4 5)
    declare -A options=([plain]="--no-winograd-f32" [winograd]="--winograd")
    ;;
*) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
steps=${2:-600}
towers=$(towers_of "${3:-}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for seed in "${seeds[@]}"; do
    for kind in "${kinds[@]}"; do
        # shellcheck disable=SC2086 # several words
        "$towers" train inception_mini --recipe mini --max-steps "$steps" --seed "$seed" ${options[$kind]} --quiet \
            --output-dir "$work" --experiment "$kind-$seed"
        tail -n 1 "$work/$kind-$seed/results.csv" |
            awk -F, -v kind="$kind" -v seed="$seed" '{print kind, seed, 100 * $6, $3, $9}' | tee -a "$work/results" >&2
    done
done

{
    echo "$(processor), $(this_commit)."
    echo
    awk -v what="$what" -v steps="$steps" -v kinds="$(IFS=';' && echo "${kinds[*]}")" -v titles="$titles" \
        -f scripts/measure/accuracy_kinds.awk "$work/results"
} | tee "$work/table"
[ $# -gt 1 ] || scripts/pages/fill_section.sh docs/recipes.md "$section" <"$work/table"
! grep -q DIFFERENT "$work/table"
