#!/usr/bin/env bash
# Do two builds compute convolutions to the same bits? All of our own implementations, in f32 and bf16, forward and both
# gradients, with the code for every kind of processor that this one can stand for (ONEDNN_MAX_CPU_ISA).
# Usage: scripts/check/conv_bits.sh OLD_DRIVER NEW_DRIVER; each is a build's tests/conv_bits_driver.
set -euo pipefail
[[ $# == 2 && -x $1 && -x $2 ]] || { echo "usage: $0 OLD_DRIVER NEW_DRIVER" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
different=0
for isa in AVX2 AVX512_CORE AVX512_CORE_BF16 ALL; do
    ONEDNN_MAX_CPU_ISA=$isa "$1" >"$work/old"
    ONEDNN_MAX_CPU_ISA=$isa "$2" >"$work/new"
    if cmp -s "$work/old" "$work/new"; then
        echo "$isa: $(wc -l <"$work/new") convolutions, equal: $(grep -c '^conv,' "$work/new") forward," \
            "$(grep -c '^conv_dx,' "$work/new") gradients of x, $(grep -c '^conv_dw,' "$work/new") of weights"
    else
        echo "$isa: DIFFERENT; by implementation:"
        { diff "$work/old" "$work/new" || true; } | sed -n 's/^> \([^:]*\):.*/  \1/p' | sort | uniq -c
        different=1
    fi
done
exit $different
