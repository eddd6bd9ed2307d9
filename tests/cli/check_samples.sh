#!/usr/bin/env bash
# Which samples a run sees: every sample once an epoch, whatever kills it and however often it goes on, in an order that towers,
# workers, processes and the format of the data have no part in; and damaged samples count for nothing, however the towers share them.
# TOWERS_TEST_SEED repeats a run. usage: check_samples.sh SOURCE_FOLDER BINARY
set -u
seed=${TOWERS_TEST_SEED:-$$}
. "$1/tests/support/check.sh"
needs_python
small_data "$work/data" 10007 50 || exit $?
export XDG_CACHE_HOME=$work/cache
echo "seed $seed"
RANDOM=$seed

train() { # MODEL NAME ARGUMENT...
    "$towers" train "$1" --device cpu --threads 1 --output-dir . --experiment "$2" --eval-interval 0 --summary-interval 0 --quiet --log-samples \
        "${@:3}" >/dev/null 2>"$2.err" </dev/null
}

# ---- three epochs, killed five times
steps=315 # 105 an epoch, the last of 23 samples
command=("$towers" train fashion_cnn --device cpu --threads 1 --output-dir . --experiment killed --eval-interval 0 --summary-interval 0 --quiet
    --log-samples --data-path data --towers 3 --processes 3 --global-batch-size 96 --epochs 3 --checkpoint-steps 7 --resume auto)
step=0
for kill in 1 2 3 4 5; do
    "${command[@]}" --workers $((RANDOM % 4)) >/dev/null 2>killed.err </dev/null &
    pid=$!
    wanted=$((step + 5 + RANDOM % 40))
    while kill -0 $pid 2>/dev/null; do
        step=$(tail -n 1 killed/metrics.jsonl 2>/dev/null | sed -nE 's/.*"step":([0-9]+).*/\1/p')
        ((${step:=0} < wanted)) || break
        sleep 0.02
    done
    kill -9 $pid 2>/dev/null
    { wait $pid; } 2>/dev/null
    status=$?
    [[ $status == 137 ]] || complain "kill $kill, wanted at step $wanted, at step $step: exit $status: $(tail -2 killed.err)"
done
"${command[@]}" >/dev/null 2>killed.err </dev/null || complain "the last resume: $(tail -2 killed.err)"
python3 - killed/samples.csv 10007 3 $steps <<'PYTHON' || complain "seed $seed: not every sample once an epoch"
import sys
from collections import Counter
count, epochs, steps = map(int, sys.argv[2:])
lines, again = {}, 0
for line in open(sys.argv[1]):
    step, batch, tower, ids = line.rstrip("\n").split(",")
    key = int(step), int(tower)
    assert lines.setdefault(key, ids) == ids, "step %d, tower %d: other samples after a resume" % key
    again += 1
seen, of_epoch = Counter(), [Counter() for _ in range(epochs)]
for (step, tower), ids in lines.items():
    seen.update(map(int, ids.split()))
    of_epoch[(step - 1) * epochs // steps].update(map(int, ids.split()))
assert set(seen) == set(range(count)), "%d other samples" % len(seen)
assert set(seen.values()) == {epochs}, Counter(seen.values())
assert all(set(c.values()) == {1} and len(c) == count for c in of_epoch), "an epoch has a sample twice"
assert again == len(lines), "%d of %d lines are there twice" % (again - len(lines), again)
print("%d samples, %d epochs, %d lines, none twice" % (count, epochs, again))
PYTHON

# ---- the same order for any towers, processes and workers, and for folders of as many images
python3 - <<'PYTHON'
import os
for name, count in (("a", 5000), ("b", 5007)):
    os.makedirs("tree/train/" + name)
    os.makedirs("tree/val/" + name)
    for i in range(count):
        with open("tree/train/%s/%d.pgm" % (name, i), "wb") as file:
            file.write(b"P5 4 4 255\n" + bytes([i & 255, i >> 8] * 8))
    os.link("tree/train/%s/1.pgm" % name, "tree/val/%s/1.pgm" % name)
PYTHON
ids_of() { # NAME: the samples of each step in the order of its towers
    sort -t, -k1,1n -k3,3n "$1/samples.csv" | awk -F, '$1 != step { if (NR > 1) print line; step = $1; line = step ":" } { line = line " " $4 } END { print line }'
}
head -n 12 <(ids_of killed) >wanted
short=(--global-batch-size 96 --max-steps 12)
train fashion_cnn one --data-path data --towers 1 --workers 0 "${short[@]}" || complain "one: $(tail -2 one.err)"
train fashion_cnn two --data-path data --tower-batch 7,89 --max-steps 12 --processes 1 --workers 3 || complain "two: $(tail -2 two.err)"
train fashion_cnn five --data-path data --tower-batch 0,32,32,31,1 --max-steps 12 --processes 2 --workers 1 || complain "five: $(tail -2 five.err)"
train googlenet folder --data-path tree --no-aux --img-size 16 --towers 4 --processes 2 --global-batch-size 96 --max-steps 12 ||
    complain "folder: $(tail -2 folder.err)"
for name in one two five folder; do
    cmp -s wanted <(ids_of $name) || complain "$name: other samples, or in another order: $(diff wanted <(ids_of $name) | head -4 | cut -c 1-200)"
done

# ---- lists of programs that a resumed run has no more are cut like its own
train fashion_cnn fewer --data-path data --batch-size 32 --max-steps 4 || complain "fewer: $(tail -2 fewer.err)"
printf '%d,0,1,9\n' 3 4 5 6 >fewer/rank1-samples.csv
printf '%s,1,9,gone\n' 4 "evaluation 4" 5 >fewer/rank12-bad-samples.csv
train fashion_cnn fewer --data-path data --batch-size 32 --max-steps 6 --resume auto || complain "fewer, resumed: $(tail -2 fewer.err)"
[[ $(cut -d, -f1 fewer/samples.csv | tr '\n' ' ') == "1 2 3 4 5 6 " ]] || complain "fewer: $(cut -d, -f1 fewer/samples.csv)"
[[ $(cut -d, -f1 fewer/rank1-samples.csv | tr '\n' ' ') == "3 4 " ]] || complain "fewer, rank 1: $(cat fewer/rank1-samples.csv)"
[[ $(cut -d, -f1 fewer/rank12-bad-samples.csv | tr '\n' ' ') == "4 evaluation 4 " ]] || complain "fewer, rank 12: $(cat fewer/rank12-bad-samples.csv)"

# ---- damaged samples: one tower of 32 is four of 8. Batch norms are frozen with averages that were learnt before, so that a sample
# depends on no other, and only two steps are taken, since such a network amplifies every rounding.
python3 - <<'PYTHON'
import os, random
random.seed(4)
for split, count in (("train", 152), ("val", 4)):
    for label, name in enumerate("ab"):
        os.makedirs("damaged/%s/%s" % (split, name))
        for i in range(count):
            pixels = bytes(random.randrange(256) * (1 + label) // 2 for _ in range(16 * 16 * 3))
            cut = split == "train" and i % 9 == 4 # 17 of each class
            with open("damaged/%s/%s/%d.ppm" % (split, name, i), "wb") as file:
                file.write(b"P6 16 16 255\n" + (pixels[:100] if cut else pixels))
PYTHON
skipping() { # NAME ARGUMENT...
    train googlenet "$1" --data-path damaged --img-size 16 --no-aux --dropout 0 --no-winograd --no-winograd-f32 --opt sgd --lr 0.00002 --max-steps 2 \
        --bad-samples skip "${@:2}" || complain "$1: $(tail -2 "$1.err")"
}
learnt=(--pretrained learnt/last.safetensors --freeze '*.bn.*')
skipping learnt --towers 1 --batch-size 32 --bn-decay 0.5 --lr 0 --max-steps 10
skipping start --max-steps 0 --towers 1 "${learnt[@]}"
skipping whole --towers 1 --batch-size 32 "${learnt[@]}"
skipping parts --towers 4 --batch-size 8 "${learnt[@]}"
skipping uneven --tower-batch 13,0,18,1 --processes 2 "${learnt[@]}"
skipping other --towers 1 --batch-size 31 "${learnt[@]}"
for name in whole parts uneven; do
    cut -d, -f 1,3 $name/bad-samples.csv | grep -v ^evaluation | sort >$name.bad
    (($(wc -l <$name.bad) >= 5)) || complain "$name: found $(wc -l <$name.bad) damaged samples"
    cmp -s whole.bad $name.bad || complain "$name: other damaged samples"
done
# A rounding may turn a ReLU or choose another pixel of a pooling, which moves the few tensors below; other samples move all 59.
same() { # NAME: the largest difference in parts of the way, and success if few tensors but those that are frozen are further off than 1 %
    "$weights" close start/last.safetensors whole/last.safetensors "$1/last.safetensors" 1e-2 2>far
    grep -v '\.bn\.' far >moved
    (($(wc -l <moved) <= 10))
}
for name in parts uneven; do
    off=$(same $name) || complain "one tower of 32 and $name are not the same training: off by $off of the way: $(head -3 moved)"
    echo "damaged samples, 1 x 32 and $name: off by $off of the way"
done
same other >/dev/null && complain "another batch size is the same training?" # the comparison itself detects it

# with a constant divisor the loss of an epoch is the mean over its steps, also of those with damaged samples, and over a resume
divided=(--towers 2 --batch-size 4 --loss-divisor global-batch --checkpoint-steps 20 "${learnt[@]}")
skipping divisor "${divided[@]}" --max-steps 20
skipping divisor "${divided[@]}" --max-steps 38 --resume auto
python3 - divisor <<'PYTHON' || complain "divisor: not the mean of the steps"
import csv, json, sys
steps = [json.loads(line)["mean_loss"] for line in open(sys.argv[1] + "/metrics.jsonl")]
loss, mean = float(list(csv.DictReader(open(sys.argv[1] + "/results.csv")))[-1]["train_loss"]), sum(steps) / len(steps)
print("mean of %d steps: %.7g, in results.csv: %.7g" % (len(steps), mean, loss))
sys.exit(len(steps) != 38 or abs(loss - mean) > 1e-9 * mean)
PYTHON

check_end "every sample once an epoch, in one order, and damaged ones nowhere"
