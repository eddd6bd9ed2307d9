#!/usr/bin/env bash
# Follow a NaN from the gate to its op, and write docs/guide/nan.md with the commands and their output (two or three minutes on two
# cores). The NaN is injected, so that the guide is reproducible: this builds a binary with fault points in build-faults, unless
# TOWERS=BINARY names one.
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

# shown FAULT COMMAND...: print the command as typed and its output, shortened by the sed script in $cut.
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
# Finding the origin of a NaN

*Written by `scripts/nan_guide.sh` from real commands and their output. The first NaN is injected (a binary built with `-DTOWERS_FAULTS=ON` reads `TOWERS_FAULT`), so that the guide is reproducible.*

## Checking only the last tower

Four towers train. At step 40 tower 1 produces one NaN in the middle of the network. The original trainer checked the last tower's loss, after the update; `--nan-check last` does the same:

TEXT
    shown "$fault" "${train[@]}" --experiment old --nan-check last
    cat <<'TEXT'

The NaN is noticed, but a step late and in a tower that did nothing wrong, and by then the weights are NaN. `towers compare` reports this:

TEXT
    cut='/step 40, tower/!d' shown "" towers compare runs/old
    cat <<'TEXT'

## Checking all towers

The default, `--nan-check all`, checks every tower before the update is applied:

TEXT
    shown "$fault" "${train[@]}" --experiment hunt
    cat <<'TEXT'

The gate itself only determines the tower, and that its loss or gradient is not finite. It does not distinguish NaN from Inf: a Winograd convolution turns an Inf into NaN, and values near 3e38 overflow in it earlier than in a direct convolution ([decision 6](../decisions/0006-winograd.md)). So the kernel may determine which of the two appears, but not whether the step is committed. The rest is a search that starts after the refusal and costs nothing before it: the weights are checked, then the tower's batch is run again op by op (the plan is deterministic), and every value of every output is checked. The result is a place:

| | |
|---|---|
| tower, step | where and when it happened |
| `forward`, `loss`, `backward` | the pass; or `weights`, `batch-norm statistics`, `optimizer slot` if the state was damaged before |
| op, layer, tensor | its number in the executed op list (siblings fused), and the names shown by `towers info MODEL --ops` |
| element | the first one that is not finite, in memory order, with its position in the batch |
| samples | the samples of the batch with such an element, and file and record of the first |

With `--bn-stats sync` a NaN of one tower reaches every tower through the next batch norm. In that case all towers run again together, and the one whose bad value came at the earliest op is named. The capsule contains the sums of the batch norms, so a replay still needs only that one tower. `report.html` shows the same result under *Values that are not finite*.

The weights are those after step 39, and are saved in the checkpoint. No checkpoint ever contains a NaN: weights, averages, statistics and slots are all checked before a save.

## The capsule

The run directory contains everything that the step needs: the batch (`batch.safetensors`: images, labels, crops, sample numbers), the weights and statistics before the step, the optimizer's slots, seed and counters, the last losses of all towers, and on a GPU the choice of kernels (`plans.txt`). `towers replay` runs that tower's step again and prints a line for every output, up to the first that is not finite:

TEXT
    cut='12s/.*/  .../;13,${/^ *4[12] |^error/!d}' shown "" towers replay runs/hunt/nan-step-40-tower-1 --device cpu
    cat <<'TEXT'

Exit code 8 means that a value was not finite; 0 would mean that all values are finite *here*. That makes a capsule useful: run it on another device (`--device cuda`), in another number format (`--no-amp`: in f32) or with another build to see whether the problem still occurs. `--json` prints the table as JSON.

In this example the NaN was injected; the capsule records that, and the replay says so.

## A real NaN

A learning rate a thousand times too high:

TEXT
    shown "" "${train[@]}" --experiment fast --opt sgd --lr 1000 --no-augment --sched constant
    capsule=$(ls -d runs/fast/nan-step-* | head -n 1)
    cat <<'TEXT'

All weights and the loss itself are finite here, so a check of losses would not have found it. The table shows how the values grow until a variance overflows a float:

TEXT
    shown "" towers replay "$capsule" --device cpu
    cat <<'TEXT'

## Continuing after a NaN

`--nan-policy` determines how the run continues after a refused step. Refused steps are counted and logged; `--nan-limit` is the number after which the run ends.

| | |
|---|---|
| `stop` (default) | the run ends with exit code 8 and a checkpoint of the previous step |
| `skip` | the step is skipped: its batch is consumed, and no weight changes |
| `rollback` | the run returns to the last checkpoint and repeats the steps without the one that caused the NaN. If the *weights* were not finite, that is the previous step: its update damaged them, and skipping the step that found it would not help |

TEXT
    cut='/^step|^Epoch|^report/d' shown "$fault" "${train[@]}" --experiment back --nan-policy rollback --checkpoint-steps 25
    cat <<'TEXT'

Repeated steps give the same bits. Every checkpoint contains the list of skipped steps, so a run that is killed and resumed after a rollback ends with the same weights as one that is not.
TEXT
} >"$work/nan.md"
sed -i "s|$work/||g" "$work/nan.md"
mv "$work/nan.md" "$guide"
echo "${guide#"$OLDPWD/"}"
