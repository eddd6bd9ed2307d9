#!/usr/bin/env bash
# A hunt for a NaN from end to end, and the guide that tells of it: writes docs/guide/nan.md with what the commands print
# (two or three minutes on two cores). The NaN of the hunt is injected, so that everybody gets the same one: this builds
# a binary with fault points in build-faults, unless TOWERS=BINARY names one.
set -euo pipefail
cd "$(dirname "$0")/.."

towers=${TOWERS:-}
if [[ -z $towers ]]; then
    scripts/setup.sh build
    scripts/build.sh build-faults -S . -B build-faults -DTOWERS_FAULTS=ON -- towers
    towers=build-faults/towers
fi
towers=$(realpath "$towers")
guide=$PWD/docs/guide/nan.md
work=$(mktemp -d "${TMPDIR:-/tmp}/towers-nan.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
export LC_ALL=C

# shown FAULT COMMAND...: the command as one types it, and what it prints. Elided with the sed script in $cut.
cut=
shown() {
    local fault=$1 status=0
    shift
    printf '```\n$ %s%s\n' "${fault:+TOWERS_FAULT=$fault }" "$*"
    if [[ -n $fault ]]; then export TOWERS_FAULT=$fault; fi
    "$towers" "${@:2}" >out 2>&1 || status=$?
    unset TOWERS_FAULT
    sed -E "$cut" out | grep -v '^report runs/' || true
    ((status == 0)) || printf '$ echo $?\n%d\n' "$status"
    printf '```\n'
}

fault='nan:tower=1,step=40,layer=Mixed_5a.branch3x3_2,activity=forward,index=1234'
train=(towers train inception_mini --towers 4 --batch-size 16 --max-steps 60 --eval-interval 0 --log-interval 20 --device cpu)
{
    cat <<'TEXT'
# The hunt for a NaN

*Made by `scripts/nan_guide.sh`: the commands and what they print are real. The first NaN is injected (a binary built with `-DTOWERS_FAULTS=ON` reads `TOWERS_FAULT`), so that it is the same one every time.*

## What a check of the last tower sees

Four towers train. At step 40 tower 1 makes one NaN, in the middle of the network. The original trainer looked at the last tower's loss, after the update; `--nan-check last` does as it did:

TEXT
    shown "$fault" "${train[@]}" --experiment old --nan-check last
    cat <<'TEXT'

It is noticed, but a step late, in a tower that did nothing wrong, and the weights are NaN by then. `towers compare` says so:

TEXT
    cut='/step 40, tower/!d' shown "" towers compare runs/old
    cat <<'TEXT'

## What the gate sees

The default, `--nan-check all`, asks every tower before anything moves:

TEXT
    shown "$fault" "${train[@]}" --experiment hunt
    cat <<'TEXT'

The gate itself only knows the tower and that its loss or its gradient is not finite. The rest is a search that starts after the refusal and costs nothing before: are the weights finite? Then the tower's batch is run again, op by op (the plan is deterministic), and every number of every output is looked at. So the answer is a place:

| | |
|---|---|
| tower, step | who, when |
| `forward`, `loss`, `backward` | which pass; or `weights`, `batch-norm statistics`, `optimizer slot`, if the state was spoilt before |
| op, layer, tensor | its number in the list that runs (siblings fused), and the names of `towers info MODEL --ops` |
| element | the first that is not finite, in the order of memory, with its place in the batch |
| samples | those of the batch that have such an element, and the file and record of the first |

With `--bn-stats sync` a NaN of one tower is in every tower's next batch norm, and all of them look guilty. Then all run again together, and the one whose number came first is named; the capsule keeps what the batch norms summed to, so a replay still needs that one tower only. `report.html` has the same answer under *Not finite*.

The weights are those after step 39, and the checkpoint holds them. No checkpoint ever holds a NaN: weights, averages, statistics and slots are all looked at before a save.

## The capsule

What the step needed lies in the run directory: the batch (`batch.safetensors`: images, labels, crops, sample numbers), the weights and statistics before the step, the optimizer's slots, seed and counters, the last losses of all towers. `towers replay` runs that one tower again and prints a line for every output, up to the first that is not finite:

TEXT
    cut='12s/.*/  .../;13,${/^ *4[12] |^error/!d}' shown "" towers replay runs/hunt/nan-step-40-tower-1 --device cpu
    cat <<'TEXT'

Exit code 8: something was not finite. 0 would mean that everything is finite *here*, and that is what makes a capsule useful: try it on another device (`--device cuda`), in another number format (`--no-amp`: in f32), with another build, and see whether it still happens. `--json` gives the table to programs.

The cause of this one was injected, which the capsule knows, and says.

## A real one

A learning rate a thousand times too high:

TEXT
    shown "" "${train[@]}" --experiment fast --opt sgd --lr 1000 --no-augment --sched constant
    capsule=$(ls -d runs/fast/nan-step-* | head -n 1)
    cat <<'TEXT'

Every weight and the loss itself are finite here: a check of losses would have let it pass. The table shows how the numbers grow until a variance no longer fits into a float:

TEXT
    shown "" towers replay "$capsule" --device cpu
    cat <<'TEXT'

## Going on all the same

`--nan-policy` decides what a refused step does to the run. Each is counted and logged, and `--nan-limit` says when it is too much.

| | |
|---|---|
| `stop` (default) | the run ends with exit code 8 and a checkpoint of the step before |
| `skip` | the step is left out: its batch is used up, nothing moves |
| `rollback` | back to the last checkpoint, and on from there without the step to blame. If the *weights* were not finite, that is the step before: its update spoilt them, and leaving out the step that noticed would not help |

TEXT
    cut='/^step|^Epoch|^report/d' shown "$fault" "${train[@]}" --experiment back --nan-policy rollback --checkpoint-steps 25
    cat <<'TEXT'

Rolled-back steps run again to the same bits, which steps are left out is part of every checkpoint, and a run that is killed and resumed after a rollback ends with the same weights as one that is not.
TEXT
} >"$work/nan.md"
sed -i "s|$work/||g" "$work/nan.md"
mv "$work/nan.md" "$guide"
echo "${guide#"$OLDPWD/"}"
