#!/usr/bin/env bash
# `--resume auto` never starts anew where something was saved: damaged checkpoints, a checkpoint folder without any, results without
# checkpoints. It exits with 4, however often it is called, lists the contents, names the option that starts a new run, and leaves
# every byte unchanged. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
small_data "$work/small" 70 30 || exit $?

train() { # ARGUMENT...
    timeout -s KILL 120 "$towers" train fashion_cnn --data-path "$work/small" --device cpu --threads 1 -b 8 --output-dir "$runs" "$@" \
        >"$work/out" 2>"$work/err" </dev/null
}
sums() { (cd "$runs" && find . -type f -not -name .lock -exec sha256sum {} + | sort && find . | sort); }

runs=$work/golden
train --experiment one --epochs 2 --checkpoint-steps 9 || complain "the first run fails: $(cat "$work/err")"

fresh() {
    runs=$work/runs
    rm -rf "$runs"
    cp -a "$work/golden" "$runs"
}
refused() { # WHAT TEXT...: twice, with and without --experiment
    local what=$1 before round text
    shift
    before=$(sums)
    for round in "--experiment one" "" "--experiment one"; do
        # shellcheck disable=SC2086
        train $round --epochs 2 --checkpoint-steps 9 --resume auto
        [[ $? == 4 ]] || complain "$what${round:+ $round}: not refused with 4: $(cat "$work/err")"
        for text in "$@" --experiment; do grep -qF -- "$text" "$work/err" || complain "$what: wanted '$text': $(cat "$work/err")"; done
        [[ $(sums) == "$before" ]] || complain "$what: files changed: $(diff <(echo "$before") <(sums) | head -5)"
    done
}

fresh
for state in "$runs"/one/ckpt/step-*/state.json; do truncate -s 3 "$state"; done
refused "all damaged" "step-0000000009" "step-0000000018" "has 3 bytes"

fresh # as an earlier version left them
for step in "$runs"/one/ckpt/step-*; do mv "$step" "$step.corrupt"; done
refused "all set aside" "step-0000000018.corrupt: complete; rename it to step-0000000018"

fresh
rm -r "$runs"/one/ckpt/step-*
refused "no step-N" "latest" "best.safetensors" "last.safetensors"

fresh
rm -r "$runs/one/ckpt"
refused "a finished run without its checkpoints" "last.safetensors"
train --experiment one --epochs 2
[[ $? == 2 ]] && grep -q "already contains a run" "$work/err" || complain "a new run over results: $(cat "$work/err")"

# fault: F10
fresh # a reader older than the format
for manifest in "$runs"/one/ckpt/step-*/MANIFEST; do sed -i '1s/.*/towers-checkpoint 2/' "$manifest"; done
before=$(sums)
train --resume auto --epochs 2 --checkpoint-steps 9
[[ $? == 4 ]] && grep -q "version 2; this program reads version 1" "$work/err" || complain "a newer format: $(cat "$work/err")"
[[ $(sums) == "$before" ]] || complain "a newer format: files changed"

fresh # another network, and another type of numbers
for change in inception_mini "fashion_cnn --amp --amp-dtype bf16"; do
    [[ $change == *bf16 ]] && wanted="then amp: false, now amp: true" || wanted="then model: fashion_cnn, now model: inception_mini"
    before=$(sums)
    # shellcheck disable=SC2086
    "$towers" train $change --data-path "$work/small" --device cpu --threads 1 -b 8 --epochs 3 --resume "$runs/one" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    [[ $status == 5 && $change == *bf16 ]] && grep -q 'no bf16 arithmetic' "$work/err" && continue # nor would it here
    [[ $status == 2 ]] && grep -qF "$wanted" "$work/err" || complain "resumed as $change: exit $status: $(cat "$work/err")"
    [[ $(sums) == "$before" ]] || complain "resumed as $change: files changed"
done

"$towers" train inception_mini --data-path "$work/small" --device cpu -b 5000 --resume "$runs/one" >"$work/out" 2>"$work/err" </dev/null
[[ $? == 2 ]] && grep -qF "one is a run of another model: then model: fashion_cnn, now model: inception_mini" "$work/err" ||
    complain "another model, whose batch does not fit the data: $(cat "$work/err")"

# fewer images than a batch: batches of another size would be refused, too
before=$(sums)
small_data "$work/few" 5 5 || exit $?
for given in "" "-b 6"; do
    # shellcheck disable=SC2086
    "$towers" train --data-path "$work/few" --device cpu --threads 1 $given --resume "$runs/one" >"$work/out" 2>"$work/err" </dev/null
    [[ $? == 2 ]] && grep -q "its own data and batches, .*; give the data that the run began with, .* --pretrained" "$work/err" &&
        ! grep -q -- --batch-size "$work/err" || complain "resumed with fewer images $given: $(cat "$work/err")"
done
[[ $(sums) == "$before" ]] || complain "resumed with fewer images: files changed"

fresh # whole, but nothing says which is the latest
rm "$runs/one/ckpt/latest"
train --resume auto --epochs 3 --checkpoint-steps 9 || complain "no ckpt/latest: $(cat "$work/err")"
[[ $(ls "$runs") == one ]] || complain "no ckpt/latest: another run was begun: $(ls "$runs")"
grep -q 'resumed after step 18' "$runs/one/log.txt" || complain "no ckpt/latest: not resumed: $(cat "$runs/one/log.txt")"

fresh # nothing was ever saved: a first save that was killed
rm -r "$runs"/one/{ckpt,best.safetensors,last.safetensors}
mkdir -p "$runs/one/ckpt/.tmp-step-0000000009-00000000-0000-0000-0000-000000000000-1"
train --experiment one --resume auto --epochs 2 --checkpoint-steps 9 || complain "nothing saved: $(cat "$work/err")"
grep -q "no run to resume; starting a new one" "$work/err" || complain "nothing saved: not reported: $(cat "$work/err")"
cmp -s "$runs/one/last.safetensors" "$work/golden/one/last.safetensors" || complain "nothing saved: other weights"

# a newer run that took no step is passed over
train --experiment none --epochs 0 && train --resume auto --epochs 2 --checkpoint-steps 9 || complain "auto, after a run of no step: $(cat "$work/err")"
grep -q "run directory $runs/one$" "$work/err" || complain "auto goes on with another run: $(cat "$work/err")"

# but not one that took steps and wrote no metrics of them
train --experiment silent --epochs 1 --metrics-interval 1000 --checkpoint-steps 0 && rm -rf "$runs/silent/ckpt"
[[ -s $runs/silent/last.safetensors && ! -s $runs/silent/metrics.jsonl ]] || complain "silent: $(ls "$runs/silent") $(cat "$work/err")"
train --resume auto --epochs 2 && complain "auto passes over a run that took steps: $(cat "$work/err")"

check_end "no run begins over another"
