#!/usr/bin/env bash
# Random combinations of settings (support/random_runs.py): several processes or programs, a kill and a resume, and the args.yaml of a run
# train the same network and leave the same files. Other combinations with each commit; TOWERS_RANDOM_SEED and TOWERS_RANDOM_COUNT choose them.
# Arguments: source folder, binary (built with -DTOWERS_FAULTS=ON, else skipped).
set -u
. "$1/tests/support/check.sh"
check_begin random "$@"
needs_python
small_data "$work/data" 203 90 || exit $?
needs_faults "$work/data"

seed=${TOWERS_RANDOM_SEED:-$((1000 + 100 * $(git -C "$source_dir" rev-list --count HEAD 2>/dev/null || echo 0)))}
mkdir "$work/runs"
for block in "1 1" "11 1" "79703 1" "200182 1" "$seed ${TOWERS_RANDOM_COUNT:-6}"; do # the first four have found a defect each
    # shellcheck disable=SC2086
    python3 "$source_dir/tests/support/random_runs.py" "$towers" "$work/data" "$work/runs" $block >>"$work/out" || complain "seed and number: $block"
done
cut -c -2000 "$work/out"

check_end "random combinations of settings train one network each"
