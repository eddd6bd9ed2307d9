#!/usr/bin/env bash
# Options that a resumed run may change, by the field `.resume` of inception/options/options.def as the pages in docs/commands show it. Every option of
# train marked free leaves the weights unchanged bit for bit; every other one is among the settings of a checkpoint, and changing it
# is an error that names it. Data are identified by their content, wherever they are. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
small_data "$work/small" 70 30 || exit $?

train() { # NAME ARGUMENT...
    timeout -s KILL 120 "$towers" train fashion_cnn --data-path "$work/small" --device cpu --seed 3 -b 8 --max-steps 6 --quiet \
        --output-dir "$work/runs" --experiment "$@" >"$work/out" 2>"$work/err" </dev/null
}

train base --towers 2 --threads 1 || complain "the first run fails: $(cat "$work/err")"
options_listed >"$work/manual"

# Values other than the usual ones. "-": it shows or names something and is tried elsewhere, or needs a machine of its own.
declare -A other=(
    [threads]="--threads 2" [cpu-affinity]=--no-cpu-affinity [comm-timeout]="--comm-timeout 30" [self-test]=--no-self-test [workers]="--workers 0" [data-memory]="--data-memory 64" [max-pixels]="--max-pixels 1000000" [log-samples]=--log-samples
    [eval-batch-size]="--eval-batch-size 7" [report-loss]="--report-loss worst" [report-l2]="--report-l2"
    [nan-check]="--nan-check mean" [nan-policy]="--nan-policy skip" [nan-limit]="--nan-policy skip --nan-limit 3"
    [sdc-check]="--sdc-check 2" [sdc-policy]="--sdc-policy warn" [graphs]=--no-graphs [checkpoint-steps]="--checkpoint-steps 1"
    [checkpoint-minutes]="--checkpoint-minutes 0.0001" [keep]="--keep 1" [max-restarts]="--max-restarts 2" [preempt-exit]="--preempt-exit 85" [after-checkpoint]="--after-checkpoint true" [after-checkpoint-timeout]="--after-checkpoint true --after-checkpoint-timeout 60" [upload]=- [upload-timeout]=- [log-style]="--log-style tf2016"
    [features]=- [sample-interval]=- [log-interval]="--log-interval 1" [eval-interval]="--eval-interval 0" [patience]="--patience 5" [min-delta]="--patience 5 --min-delta 0.1" [stop-at]="--stop-at 1" [stop-epoch]="--stop-epoch 5" [prometheus]="--prometheus $work/x.prom" [mlperf-log]="--mlperf-log Example" [mlperf-division]="--mlperf-log Example --mlperf-division closed" [metrics-interval]="--metrics-interval 4" [summary-interval]="--summary-interval 1"
    [json]=--json [towers-view]=--towers-view [color]=--no-color
    [quiet]=- [output-dir]=- [experiment]=- [resume]=- [recipe]=- [config]=- [dry-run]=- [print-config]=- [help]=- [help-all]=-
    [pretrained]=- [from-scratch]=- [reset-head]=- [weights-key]=- [weights-table]=- [mirror]="--mirror http://127.0.0.1" [stall]="--stall 5" [net-timeout]="--net-timeout 5" [cache-dir]="--cache-dir $work/data-cache" [cache-limit]="--cache-limit 1G" [s3-endpoint]="--s3-endpoint http://127.0.0.1:9"
)
listed=0 free=0
while read -r line; do
    flag=$(grep -oP '^- `(-., )?--(\[no-\])?\K[a-z0-9-]+' <<<"$line")
    case $line in
    *"Must not change on resume."*)
        listed=$((listed + 1))
        grep -q "^    \"$flag\": \"" "$work/runs/base/ckpt/step-0000000006/state.json" || complain "--$flag decides the weights, and no checkpoint knows it"
        ;;
    *" on resume"*) ;;
    *)
        [[ -n ${other[$flag]:-} ]] || { complain "--$flag is free on resume, and has no value here to try it with"; continue; }
        [[ ${other[$flag]} != - ]] || continue
        free=$((free + 1))
        # shellcheck disable=SC2086
        train "$flag" --towers 2 --threads 1 ${other[$flag]} || complain "--$flag: $(cat "$work/err")"
        cmp -s "$work/runs/base/last.safetensors" "$work/runs/$flag/last.safetensors" || complain "${other[$flag]} gives other weights, and may change on resume"
        ;;
    esac
done < <(grep -P '^- `(-., )?--.*(Commands: [^.]*\btrain\b| on resume)' "$work/manual")
((listed > 40 && free > 20)) || complain "only $listed options found that are kept, $free that are free"

# fault: F11
refused() { # TEXT ARGUMENT...
    train base --resume auto --max-steps 8 --towers 2 "${@:2}"
    [[ $? == 2 ]] || complain "${*:2}: not refused: $(cat "$work/err")"
    grep -qF -- "$1" "$work/err" || complain "${*:2}: wanted '$1': $(cat "$work/err")"
}
refused "then towers: 2, now towers: 3" --towers 3
refused "then winograd-f32: true, now winograd-f32: false" --no-winograd-f32
refused "then winograd: false, now winograd: true" --winograd
refused "then fuse-siblings: true, now fuse-siblings: false" --no-fuse-siblings
refused "then pool-behind-conv: true, now pool-behind-conv: false" --no-pool-behind-conv
refused "then norm-into-pool: true, now norm-into-pool: false" --no-norm-into-pool
refused "then share-storage: true, now share-storage: false" --no-share-storage
refused "then seed: 3, now seed: 0" --seed 0 # which is the default

# A model's own setting may be newer than a run: such a run goes on as it began.
inception() { # ARGUMENT...
    timeout -s KILL 120 "$towers" train inception_mini --data-path "$work/small" --device cpu --threads 1 -b 8 --sched constant --quiet \
        --output-dir "$work/runs" --experiment older "$@" >"$work/out" 2>"$work/err" </dev/null
}
inception --max-steps 3 --no-winograd || complain "inception_mini: $(cat "$work/err")"
sed -i 's/^\(winograd: false *# from\) .*/\1 default/' "$work/runs/older/args.yaml"
grep -q '^winograd: false *# from default$' "$work/runs/older/args.yaml" || complain "args.yaml: $(grep winograd "$work/runs/older/args.yaml")"
inception --max-steps 4 --resume auto || complain "a run that is older than a setting of its model: $(cat "$work/err")"
grep -q '^winograd: false' "$work/runs/older/args.yaml" || complain "a resumed run has taken a newer setting: $(grep winograd "$work/runs/older/args.yaml")"
small_data "$work/fewer" 69 30
refused "then training data: 70 samples" --data-path "$work/fewer"

# A run of a program that did not have three of the options yet: with their defaults it continues with the same bits as one that has
# them, any other value is refused by name. It had another one, --fuse, which is passed over.
later=(shuffle-window random-erase critic-batches)
older() { # NAME
    cp -a "$work/runs/base" "$work/runs/$1"
    rm -rf "$work/runs/$1/ckpt"
    for key in "${later[@]}"; do sed -i "/^\(# \)\?$key:/d" "$work/runs/$1/args.yaml"; done
    echo "fuse: ii-s   # from command line" >>"$work/runs/$1/args.yaml"
    "$(dirname "$towers")/tests/checkpoint_driver" older "$work/runs/base/ckpt/step-0000000006" "$work/runs/$1" "${later[@]/%random-erase/random-erase=fuse}" 2>"$work/err" ||
        complain "checkpoint_driver: $(cat "$work/err")"
    grep -q "\\\\nfuse: " "$work/runs/$1"/ckpt/*/state.json || complain "no --fuse in the checkpoint of $1"
    grep -q "shuffle-window" "$work/runs/$1/args.yaml" "$work/runs/$1"/ckpt/*/state.json && complain "$1 knows --shuffle-window"
}
older old
train old --resume auto --max-steps 8 --towers 2 --random-erase 0.5
[[ $? == 2 ]] && grep -qF "then nothing, now random-erase: 0.5" "$work/err" || complain "another value of a later option: $(cat "$work/err")"
grep -qE "shuffle-window|critic-batches" "$work/err" && complain "a later option with its default is named: $(cat "$work/err")"
train old --resume auto --max-steps 8 --towers 2 --threads 1 || complain "a run of an older program is refused: $(cat "$work/err")"

# Towers between GPUs were not added in order by default once: a run that began so goes on so, although the usual way is another now.
train before --towers 2 --reduce fast || complain "--reduce fast: $(cat "$work/err")"
sed -i 's/^\(reduce: fast *# from\) .*/\1 default/' "$work/runs/before/args.yaml"
train before --resume auto --max-steps 8 --towers 2 || complain "a run of an earlier version: $(cat "$work/err")"
grep -q '^reduce: fast ' "$work/runs/before/args.yaml" || complain "a run of an earlier version has another sum: $(grep reduce "$work/runs/before/args.yaml")"
refused "then reduce: ordered, now reduce: fast" --reduce fast

mv "$work/small" "$work/moved"
train base --resume auto --max-steps 8 --towers 2 --threads 1 --data-path "$work/moved" || complain "equal data in another folder is refused: $(cat "$work/err")"
cmp -s "$work/runs/base/last.safetensors" "$work/runs/old/last.safetensors" || complain "a run of an older program continues otherwise"

check_end "$listed options are compared on resume, $free leave the weights as they are"
