#!/usr/bin/env bash
# Fine-tuning by layer: --lr-mult and --layer-decay against the arithmetic of PyTorch's parameter groups, the same bits from several
# towers and processes, --freeze with exceptions, and what towers info shows.
. "$1/tests/support/check.sh"
needs_python
small_data same 256 64 || exit 77

# run NAME ARGUMENT...
run() {
    local name=$1
    shift
    "$towers" train inception_mini --data-path same --no-augment --dropout 0 -b 64 --workers 0 --opt adam --sched constant \
        --eval-interval 0 --experiment "$name" --seed 3 --quiet "$@" >out 2>err </dev/null || complain "train $*: exit $?: $(tail -n 3 err)"
}
run start --epochs 1 --lr 2e-3
cat >look_file.py <<'PYTHON'
import json, struct

def load(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    header.pop("__metadata__", None)
    return {k: data[slice(*v["data_offsets"])] for k, v in header.items() if not k.endswith("num_batches_tracked")}
PYTHON

# ---- --lr-mult and --layer-decay: the arithmetic of PyTorch's parameter groups, in which a group has the rate lr * factor:
# SGD p - lr * f * (g + wd * p), AdamW p * (1 - lr * f * wd) - lr * f * update; biases and batch norms do not decay
one=(--pretrained runs/start/last.safetensors --epochs 1 --max-steps 1 --warmup-epochs 0)
sgd=("${one[@]}" --opt sgd --lr 0.25)
adamw=("${one[@]}" --opt adamw --lr 0.001)
for opt in sgd adamw; do
    declare -n base=$opt
    run $opt "${base[@]}" --weight-decay 0
    run $opt-groups "${base[@]}" --weight-decay 0.125 --lr-mult 'fc*=10,Mixed_5*=0.5,Mixed_5b.*=0.25'
done
run sgd-even "${sgd[@]}" --weight-decay 0 --lr-mult 'fc*=10,Mixed_5*=0.5,Mixed_5b.*=0.25' # neighbors in memory differ in the factor alone
cat >groups.py <<'PYTHON'
import array, look_file

start = look_file.load("runs/start/last.safetensors")
floats = lambda data: array.array("f", data)
for opt, run, lr, weight_decay in (("sgd", "sgd-groups", 0.25, 0.125), ("sgd", "sgd-even", 0.25, 0), ("adamw", "adamw-groups", 0.001, 0.125)):
    plain, groups = (look_file.load(f"runs/{name}/last.safetensors") for name in (opt, run))
    for name in start:
        if "running" in name:
            continue
        f = 10 if name.startswith("fc") else 0.125 if name.startswith("Mixed_5b.") else 0.5 if name.startswith("Mixed_5") else 1
        decay = weight_decay if name.endswith("weight") and ".bn" not in name else 0
        for p, q, r in zip(floats(start[name]), floats(plain[name]), floats(groups[name])):
            wanted = p - f * ((p - q) + lr * decay * p) if opt == "sgd" else p * (1 - lr * f * decay) - f * (p - q)
            assert abs(r - wanted) <= 1e-5 * abs(wanted) + 3e-6 * f, (run, name, p, q, r, wanted)
PYTHON
python3 groups.py || complain "--lr-mult is the arithmetic of parameter groups"

# the same bits: a factor for all parameters and another rate; modules by name and --layer-decay; one process and two
run half "${one[@]}" --max-steps 3 --lr 0.002 --lr-mult '*=0.5'
run less "${one[@]}" --max-steps 3 --lr 0.001
run layers "${one[@]}" --max-steps 3 --lr 0.001 --layer-decay 0.5
rules= factor=1
for module in fc Mixed_5b Mixed_5a Mixed_4a Mixed_3a Conv2d_2a_3x3 Conv2d_1a_3x3; do
    rules+=",$module.*=$factor"
    factor=$(python3 -c "print($factor / 2)")
done
run named "${one[@]}" --max-steps 3 --lr 0.001 --lr-mult "${rules#,}"
run towers1 "${one[@]}" --max-steps 3 --lr 0.001 --layer-decay 0.5 --lr-mult 'fc*=10' --towers 2 --processes 1 -b 32
run towers2 "${one[@]}" --max-steps 3 --lr 0.001 --layer-decay 0.5 --lr-mult 'fc*=10' --towers 2 --processes 2 -b 32
for pair in half:less layers:named towers1:towers2; do
    cmp -s "runs/${pair%:*}/last.safetensors" "runs/${pair#*:}/last.safetensors" || complain "${pair%:*} and ${pair#*:} differ"
done
cmp -s runs/layers/last.safetensors runs/less/last.safetensors && complain "--layer-decay changes nothing"

# a factor of 0, and all but the classifier frozen; a resumed run keeps its factors
run zero "${one[@]}" --max-steps 3 --lr 0.001 --lr-mult 'Mixed_*=0'
run classifier "${one[@]}" --max-steps 3 --lr 0.001 --freeze '*,!fc*'
python3 - <<'PYTHON' || complain "--lr-mult 0 and --freeze '*,!fc*'"
import look_file
start, zero, classifier = (look_file.load(f"runs/{name}/last.safetensors") for name in ("start", "zero", "classifier"))
for name in start:
    if "running" not in name:
        assert (zero[name] == start[name]) == name.startswith("Mixed_"), name
    assert (classifier[name] == start[name]) != name.startswith("fc"), name
PYTHON
"$towers" train inception_mini --resume runs/layers --lr-mult 'fc*=2' --max-steps 5 >out 2>err </dev/null && complain "a resumed run changes its factors"
grep -q 'lr-mult' err || complain "a resumed run names --lr-mult: $(cat err)"
"$towers" info inception_mini --device cpu --batch-size 2 --lr 0.5 --weight-decay 0.25 --layer-decay 0.5 --freeze 'Conv*' >out || complain "towers info: $?"
grep -qE '^Conv2d_1a_3x3 +176 +0 +frozen +0 +0$' out || complain "towers info shows no frozen module: $(grep ^Conv out)"
grep -qE '^fc +2090 +2090 +0\.5 +0\.25 +2080$' out || complain "towers info: the row of the classifier: $(grep ^fc out)"
grep -qE '^Mixed_5b +94352 +94352 +0\.25 +0\.25 +' out || complain "towers info: the row of Mixed_5b: $(grep ^Mixed_5b out)"
"$towers" info inception_mini --device cpu --batch-size 2 --lr 0.5 --weight-decay 0 --freeze '*,!fc.weight' --unfreeze-epoch 3 >out || complain "towers info: $?"
grep -qE '^Conv2d_1a_3x3 +176 +176 +0\.5 from epoch 3 +0 ' out && grep -qE '^fc +2090 +2090 +0\.5, part from epoch 3 ' out ||
    complain "towers info shows when layers join: $(grep -E '^(fc|Conv)' out)"
for bad in 'fc*' 'fc*=x' '=2' 'fc*=-1'; do
    "$towers" train inception_mini --dataset synthetic --lr-mult "$bad" --dry-run >out 2>err </dev/null
    [[ $? == 2 ]] && grep -q 'is not PATTERN=FACTOR' err || complain "--lr-mult '$bad': $(cat err)"
done
"$towers" train inception_mini --dataset synthetic --lr-mult 'Fc*=2' --dry-run >out 2>err </dev/null
[[ $? == 2 ]] && grep -q "'Fc\*' matches no parameter of inception_mini" err || complain "--lr-mult without a parameter: $(cat err)"
check_end "layer rates: parameter groups, bits on several towers, exceptions of --freeze, towers info"
