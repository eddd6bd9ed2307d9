#!/usr/bin/env bash
# --batch-size max on a CPU: more memory gives a larger batch; the number found is recorded; too little memory is an error.
# usage: check_batch_max.sh SOURCE_FOLDER BINARY
set -uo pipefail
towers=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export GOMP_SPINCOUNT=1000 OMP_NUM_THREADS=1

fail() {
    echo "check_batch_max: $*" >&2
    exit 1
}

"$towers" info fashion_cnn --device cpu >/dev/null 2>err || { echo "SKIPPED: no cpu backend here" >&2; exit 77; }
(ulimit -v 3000000 && "$towers" version >/dev/null 2>&1) || { echo "SKIPPED: the address space cannot be limited here (a sanitizer?)" >&2; exit 77; }

# limited KIB ARGUMENT...
limited() {
    (
        ulimit -v "$1"
        shift
        "$towers" train inception_mini --device cpu --dataset synthetic --eval-batch-size 16 --threads 1 "$@"
    ) >out 2>err
}

limited 1500000 --dry-run -b max || fail "with 1.5 GB: $(cat err)"
few=$(sed -n 's/^batch  *\([0-9]*\)$/\1/p' out)
limited 3000000 --dry-run -b max || fail "with 3 GB: $(cat err)"
more=$(sed -n 's/^batch  *\([0-9]*\)$/\1/p' out)
[ "$few" -ge 8 ] && [ "$more" -gt "$few" ] || fail "batches of $few and $more"
limited 3000000 --print-config -b max || fail "--print-config: $(cat err)"
grep -q '^batch-size: [0-9]' out || fail "the number is not recorded: $(grep batch-size out)"
"$towers" eval fashion_cnn -b max --weights x >out 2>err && fail "eval -b max was accepted"
grep -q 'only with train and bench' err || fail "eval -b max: $(cat err)"
"$towers" train fashion_cnn -b maximal --dry-run >out 2>err && fail "-b maximal was accepted"
grep -q 'or max' err || fail "-b maximal: $(cat err)"
echo "ok: $few and $more"
