#!/usr/bin/env bash
# Random combinations of settings (support/random_runs.py): several processes or programs, a kill and a resume, and the args.yaml of a run
# train the same network and leave the same files. Other combinations with each commit; TOWERS_RANDOM_SEED and TOWERS_RANDOM_COUNT choose them
# (tests/README.md).
given=${TOWERS_RANDOM_SEED:-} count=${TOWERS_RANDOM_COUNT:-6} # check.sh takes the variables of the program away
. "$1/tests/support/check.sh"
needs_python
small_data "$work/data" 203 90 || exit $?
needs_faults "$work/data"

mkdir "$work/runs" "$work/tmp"
export TMPDIR=$work/tmp # the folder of Open MPI's sessions would be shared with other tests
tries() { # TOWERS FIRST_SEED COUNT
    python3 "$source_dir/tests/support/random_runs.py" "$1" "$work/data" "$work/runs" "$2" "$3"
}
if [[ -n $given ]]; then
    tries "$towers" "$given" "$count" || complain "seeds from $given"
    check_end "random combinations of settings train one network each"
    exit
fi
for seed in 1 11 79703 200182; do # they have found a defect each
    tries "$towers" $seed 1 || complain "seed $seed"
done
seed=$((1000 + 100 * $(git -C "$source_dir" rev-list --count HEAD 2>/dev/null || echo 0)))
tries "$towers" $seed "$count" || complain "seeds from $seed"

# A difference is seen, and how to see it again: here a run from args.yaml has another seed.
printf '#!/bin/bash\n[[ " $* " != *" --experiment again "* ]] || set -- "$@" --seed 99\nexec "%s" "$@"\n' "$towers" >"$work/wrong"
chmod +x "$work/wrong"
tries "$work/wrong" 1 1 >"$out" && complain "another seed makes no difference: $(cat "$out")"
grep -q '^1: DIFFERENT: again: ' "$out" && grep -qF "TOWERS_RANDOM_SEED=1 TOWERS_RANDOM_COUNT=1 bash tests/cli/check_random.sh . $work/wrong" "$out" &&
    grep -qE '^seeds 1 to 1: 1 tried, 0 refused, 1 different, [0-9]+ s$' "$out" || complain "a difference: $(cat "$out")"

check_end "random combinations of settings train one network each"
