#!/usr/bin/env bash
# Batch norm over towers: with --bn-stats sync, N towers of a batch equal one tower of N batches, even if a tower has no samples;
# pooled statistics are those of the concatenated batch; each policy exports the statistics it documents; drift is reported.
. "$1/tests/support/check.sh"
small_data "$work/data" 48 60 || exit $? # a batch of 32, a last one of 16

run() { # NAME ARGUMENT...
    "$towers" train "${model:-inception_mini}" --data-path "${data:-$work/data}" --device cpu --threads 1 --epochs 1 --output-dir "$work" --no-winograd \
        --no-augment --dropout 0 --opt sgd --lr 0.02 --sched constant --experiment "$@" >/dev/null 2>"$work/err" </dev/null ||
        complain "$1: exit $?: $(tail -2 "$work/err")"
}

# ---- one batch norm over all towers: one training, whatever the shares. Of the way that each tensor went in a step, sums
# in another order cost up to 1e-2, where they tip a ReLU, and ten times as much in the second step (a network with batch norm passes on
# every rounding, enlarged); towers that normalize by themselves are off by more than the way.
run start --towers 1 --batch-size 32 --max-steps 0
same() { # NAME PART ARGUMENT...: the network of one tower and the losses on its way
    local name=$1 part=$2 off
    run "$name" --bn-stats sync "${@:3}"
    off=$("$weights" close "$work/start/last.safetensors" "$work/$one/last.safetensors" "$work/$name/last.safetensors" "$part" 2>"$work/far") ||
        complain "$name is not the training of one tower: off by $off of the way: $(head -5 "$work/far")"
    paste <(sed -E 's/.*"mean_loss":([^,]*),.*/\1/' "$work/$one/metrics.jsonl") <(sed -E 's/.*"mean_loss":([^,]*),.*/\1/' "$work/$name/metrics.jsonl") |
        awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5 * $1) { print; bad = 1 } } END { exit bad || !NR }' || complain "$name: other losses"
    echo "$name: off by $off of the way"
}
for steps in 1 2; do
    one=one-$steps part=$( ((steps == 1)) && echo 3e-2 || echo 3e-1)
    run $one --towers 1 --batch-size 32 --max-steps $steps
    for shares in 8,8,8,8 16,5,11 20,0,12 0,31,1; do
        same "sync-$shares-$steps" $part --tower-batch $shares --processes "$(tr ',' '\n' <<<$shares | wc -l)" --max-steps $steps
    done
done
run own --towers 4 --batch-size 8
"$weights" close "$work/start/last.safetensors" "$work/one-2/last.safetensors" "$work/own/last.safetensors" 0.5 >/dev/null 2>&1 &&
    complain "towers that normalize by themselves train the same?"

# Before the first step towers have what they began with, which is not the statistics of a batch.
for policy in last mean pooled sync; do
    run "none-$policy" --towers 3 --batch-size 8 --bn-stats $policy --processes 3 --max-steps 0
    "$weights" near "$work/start/last.safetensors" "$work/none-$policy/last.safetensors" 1e-7 Conv2d_1a_3x3.bn.running_var ||
        complain "$policy: three towers export other statistics than one before the first step"
done

# A short last batch that leaves the first tower out moves the statistics that are exported.
small_data "$work/nine" 9 8 || exit $?
data=$work/nine run nine --towers 1 --batch-size 8 --lr 0
data=$work/nine run nine-sync --tower-batch 1,4,3 --processes 3 --bn-stats sync --lr 0
"$weights" near "$work/nine/last.safetensors" "$work/nine-sync/last.safetensors" 1e-5 Conv2d_1a_3x3.bn.running_{mean,var} ||
    complain "sync: the statistics of a tower that had no samples in the last step are exported"

# ---- stochastic depth drops the samples of a step, whichever towers they are on. Batch norms enlarge what sums in another order cost.
depth() { model=efficientnet_b0 run "$1" --img-size 32 --bn-stats sync --max-steps 2 "${@:2}"; }
same_losses() { # NAME OTHER
    paste <(sed -E 's/.*"mean_loss":([^,]*),.*/\1/' "$work/$1/metrics.jsonl") <(sed -E 's/.*"mean_loss":([^,]*),.*/\1/' "$work/$2/metrics.jsonl") |
        awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > (NR == 1 ? 1e-5 : 1e-3) * $1) bad = 1 } END { exit bad || NR != 2 }'
}
depth depth-none --towers 1 --batch-size 32 --drop-path 0
depth depth-one --towers 1 --batch-size 32 --drop-path 0.9
for shares in 8,8,8,8 20,0,12; do
    depth depth-$shares --tower-batch $shares --processes "$(tr ',' '\n' <<<$shares | wc -l)" --drop-path 0.9
    same_losses depth-one depth-$shares || complain "--drop-path: $shares is not the training of one tower"
done
same_losses depth-one depth-none && complain "--drop-path 0.9 drops nothing"

# ---- towers that take turns cannot meet in a layer
"$towers" train inception_mini --data-path "$work/data" --device cpu --towers 4 --processes 2 --bn-stats sync --output-dir "$work" --experiment turns >/dev/null 2>"$work/err"
[[ $? == 2 ]] && grep -q 'for 4 towers use --processes 4' "$work/err" || complain "turns: $(cat "$work/err")"
[[ -e $work/turns ]] && complain "turns: left a directory"

# ---- what is exported after one step without any learning, of the first layer, whose input is the same for all
first=(Conv2d_1a_3x3.bn.running_mean Conv2d_1a_3x3.bn.running_var)
rest() { run "$1" --max-steps 1 --lr 0 --bn-decay 0 "${@:2}"; }
rest whole --towers 1 --batch-size 32
for shares in 8,8,8,8 20,0,12; do
    rest "pooled-$shares" --tower-batch $shares --bn-stats pooled
    "$weights" near "$work/whole/last.safetensors" "$work/pooled-$shares/last.safetensors" 1e-6 "${first[@]}" >"$work/off" ||
        complain "pooled $shares is not the concatenated batch: $(cat "$work/off")"
    echo "pooled $shares: $(tr '\n' ' ' <"$work/off")"
done
for policy in first last mean; do
    rest $policy --towers 4 --batch-size 8 --bn-stats $policy
    "$weights" near "$work/whole/last.safetensors" "$work/$policy/last.safetensors" 1e-3 "${first[1]}" >/dev/null && complain "$policy is the whole batch?"
done
rest last-of-two --tower-batch 8,8,8,8,0 --bn-stats last # a tower without samples is not the last one
cmp "$work/last/last.safetensors" "$work/last-of-two/last.safetensors" || complain "last: a tower that has no samples is exported"

# ---- maps of one pixel, where n / (n - 1) is far from 1: n counts the samples that a batch really has, on whatever processes
small_data "$work/few" 7 8 || exit $?
deep() { data=$1 model=googlenet run "$2" --img-size 16 --lr 0 --bn-decay 0 --max-steps "${@:3}"; }
deep "$work/few" full 1 --tower-batch 2,2,3 --bn-stats last
deep "$work/few" short 2 --towers 1 --batch-size 4
"$weights" near "$work/full/last.safetensors" "$work/short/last.safetensors" 1e-4 inception4e.branch1.bn.running_var ||
    complain "a short batch is taken for a full one"
deep "$work/data" one-of-8 1 --towers 1 --batch-size 8
for shares in 1,4,3 4,1,3 3,4,1; do # a sample alone in each place
    deep "$work/data" all-$shares 1 --tower-batch $shares --processes 3 --bn-stats sync
    "$weights" near "$work/one-of-8/last.safetensors" "$work/all-$shares/last.safetensors" 1e-4 inception4e.branch1.bn.running_var ||
        complain "$shares: statistics over all towers are taken for those of one"
    for processes in 1 2 3; do deep "$work/data" "$shares-$processes" 1 --tower-batch $shares --processes $processes --bn-stats mean; done
    for processes in 2 3; do
        cmp "$work/$shares-1/last.safetensors" "$work/$shares-$processes/last.safetensors" || complain "$shares, $processes processes: other statistics than one"
    done
done

# ---- a single value of a channel has no variance: a step in which there is one leaves the statistics of that layer as they are
single=inception4e.branch1.bn larger=conv1.bn
deep "$work/nine" eight 1 --towers 1 --batch-size 8
deep "$work/nine" eight-one 2 --towers 1 --batch-size 8
[[ $(grep -c '^warning: the last batch of an epoch gives a tower one sample, of which batch norm inception4a.branch1.bn and [0-9]* more would' "$work/err") == 1 ]] ||
    complain "no warning of a batch of one: $(cat "$work/err")"
deep "$work/nine" fours 1 --towers 1 --batch-size 4 --accumulate 2
deep "$work/nine" fours-one 2 --towers 1 --batch-size 4 --accumulate 2 # the second step is the single one alone
deep "$work/nine" kept-one 1 --towers 1 --batch-size 8 --accumulate 2  # in the first step, behind eight
for pair in eight:eight-one fours:fours-one eight:kept-one; do
    "$weights" near "$work/${pair%:*}/last.safetensors" "$work/${pair#*:}/last.safetensors" 1e-6 $single.running_{mean,var} ||
        complain "$pair: a batch of one has moved the statistics of a layer in which it is a single value"
    "$weights" near "$work/${pair%:*}/last.safetensors" "$work/${pair#*:}/last.safetensors" 1e-4 $larger.running_var >/dev/null &&
        complain "$pair: a batch of one has left the statistics of a layer in which it has many values"
done
# The tower of one sample counts in the layers in which it has statistics, and only there.
for policy in mean pooled first last; do
    deep "$work/data" alone-$policy 1 --tower-batch 1,4,3 --bn-stats $policy
    python3 - "$work/alone-$policy" $policy $single $larger <<'PYTHON' || complain "--bn-stats $policy with a tower of one sample"
import array, glob, json, struct, sys

def tensors(path):
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack_from("<Q", data)[0]
    header, at = json.loads(data[8:8 + size]), 8 + size
    return {k: array.array("f", data[at + v["data_offsets"][0]:at + v["data_offsets"][1]]) for k, v in header.items() if v.get("dtype") == "F32"}

run, policy, single, larger = sys.argv[1:]
found, own = tensors(run + "/last.safetensors"), tensors(glob.glob(run + "/ckpt/step-*1/train.safetensors")[0])
shares = {0: 1, 1: 4, 2: 3}
for layer, pixels, towers in ((single, 1, (1, 2)), (larger, 64, (0, 1, 2))):
    if policy in ("first", "last"): # the first one, and the last one, that has statistics of all layers
        towers = (1,) if policy == "first" else (2,)
    n, all_n = {t: shares[t] * pixels for t in towers}, sum(shares[t] for t in towers) * pixels
    weight = {t: n[t] / all_n if policy == "pooled" else 1 / len(towers) for t in towers}
    for i, (mean, var) in enumerate(zip(found[layer + ".running_mean"], found[layer + ".running_var"])):
        means = {t: own[f"tower{t}.{layer}.running_mean"][i] for t in towers}
        variances = {t: own[f"tower{t}.{layer}.running_var"][i] for t in towers}
        wanted = sum(weight[t] * means[t] for t in towers)
        spread = sum(weight[t] * variances[t] for t in towers)
        if policy == "pooled":
            biased = sum(weight[t] * (variances[t] * (n[t] - 1) / n[t] + (means[t] - wanted) ** 2) for t in towers)
            spread = biased * all_n / (all_n - 1)
        assert abs(mean - wanted) <= 1e-5 * max(1, abs(wanted)) and abs(var - spread) <= 1e-5 * max(1, spread), (policy, layer, i, mean, wanted, var, spread)
PYTHON
done
refuses_single() { # ARGUMENT...: before anything is made
    refuses 2 'would see a single value of a channel in every step' "$towers" train googlenet --data-path "$work/data" --img-size 16 --device cpu \
        --output-dir "$work" --experiment refused "$@"
    [[ -e $work/refused ]] && complain "refused, but there is a directory: $*"
}
refuses_single --batch-size 1
refuses_single --towers 4 --batch-size 1 --bn-stats mean
refuses_single --batch-size 1 --dry-run
run pairs --towers 2 --batch-size 1 --bn-stats sync --max-steps 1 --img-size 16
model=googlenet run frozen --batch-size 1 --max-steps 1 --img-size 16 --freeze '*,!fc*'
model=googlenet run large --batch-size 1 --max-steps 1 --img-size 64

# ---- drift between towers
grep -q '^{"step":2,"norms":{.*"Conv2d_1a_3x3.bn.running_var":\[' "$work/own/norms.jsonl" || complain "no drift recorded: $(head -c 300 "$work/own/norms.jsonl")"
"$towers" compare "$work/own" >"$work/out" || complain "compare: $?"
grep -qE 'batch-norm statistics of the towers, step 2: means differ by up to 0\.[0-9]+ of a deviation \(.*\.bn\), variances by [0-9.]+ % \(.*\.bn\)' "$work/out" ||
    complain "compare does not report the drift: $(cat "$work/out")"
"$towers" compare --json "$work/own" "$work/sync-8,8,8,8-2" | python3 -c '
import json, sys
own, sync = [run["norm_drift"] for run in json.load(sys.stdin)["runs"]]
assert own["step"] == 2 and 0 < own["means"]["spread"] < 10 and 0 < own["variances"]["spread"] < 10, own
assert sync["means"]["spread"] == 0 and sync["variances"]["spread"] == 0, sync
' || complain "drift as JSON"
grep -q 'Batch-norm statistics at the end' "$work/own/report.html" || complain "the report does not show the drift"

check_end "batch norm over towers is one batch norm"
