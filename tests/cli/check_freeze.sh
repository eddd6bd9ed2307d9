#!/usr/bin/env bash
# Fine-tuning with frozen layers: training and evaluation use the same network, a resumed run continues bit for bit, the frozen set
# is a setting of the run, and the number of towers does not affect frozen statistics.
. "$1/tests/support/check.sh"
needs_python
small_data same 512 64 || exit 77
for kind in images-idx3 labels-idx1; do cp "same/train-$kind-ubyte" "same/t10k-$kind-ubyte"; done # evaluation of the same images

frozen='Conv2d*,Mixed_3a*,Mixed_5b.*'
# run NAME ARGUMENT...
run() {
    local name=$1
    shift
    "$towers" train inception_mini --data-path same --smoothing 0 -b 64 --workers 0 --opt adam --sched constant \
        --experiment "$name" --seed 3 --quiet "$@" >out 2>err </dev/null || complain "train $*: exit $?: $(tail -n 3 err)"
}

# ---- the running averages of the first run are far behind its batches: it has made 16 steps at a decay of 0.99
run start --epochs 2 --lr 2e-3 --bn-decay 0.99
run tuned --epochs 4 --lr 2e-3 --pretrained runs/start/last.safetensors --freeze "$frozen" --ema-decay 0.5
run still --epochs 1 --lr 1e-7 --pretrained runs/tuned/last.safetensors --freeze "$frozen"
python3 - <<'PYTHON' || complain "training and evaluation see the same network"
import csv
(row,) = csv.DictReader(open("runs/still/results.csv"))
train, test = 100 * float(row["train_top1"]), 100 * float(row["test_top1"])
print(f"training {train:.1f} %, evaluation {test:.1f} %")
assert abs(train - test) <= 2, (train, test)
assert train > 40, train
PYTHON

# ---- names, bits: weights, averages and statistics of frozen layers, on one tower, on three and pooled
run three --epochs 2 --lr 2e-3 --pretrained runs/start/last.safetensors --freeze "$frozen" --towers 3 -b 16 --bn-stats pooled
run mean --epochs 2 --lr 2e-3 --pretrained runs/start/last.safetensors --freeze "$frozen" --towers 3 --processes 1 -b 16 --bn-stats mean
cat >look.py <<'PYTHON'
import json, struct, sys

def load(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    header.pop("__metadata__", None)
    return {k: data[slice(*v["data_offsets"])] for k, v in header.items() if not k.endswith("num_batches_tracked")}

start = load("runs/start/last.safetensors")
for run in sys.argv[1:]:
    end = load(f"runs/{run}/last.safetensors")
    for name in start:
        stays = name.startswith(("Conv2d", "Mixed_3a", "Mixed_5b."))
        assert (start[name] == end[name]) == stays, (run, name)
PYTHON
python3 look.py tuned three mean || complain "frozen layers keep their bits and the others learn"

# ---- a resumed run
run whole --max-steps 10 --lr 1e-3 --freeze "$frozen" --ema-decay 0.9
run parts --max-steps 6 --lr 1e-3 --freeze "$frozen" --ema-decay 0.9
run parts --max-steps 10 --lr 1e-3 --freeze "$frozen" --ema-decay 0.9 --resume auto
cmp -s runs/whole/last.safetensors runs/parts/last.safetensors || complain "a resumed run with frozen layers has other weights"
"$towers" train inception_mini --data-path same --smoothing 0 -b 64 --workers 0 --opt adam --sched constant --experiment parts \
    --seed 3 --quiet --max-steps 12 --lr 1e-3 --freeze 'Conv2d*' --ema-decay 0.9 --resume auto >out 2>err </dev/null
[[ $? != 0 ]] && grep -q freeze err || complain "another frozen set on resume is refused: $(tail -n 2 err)"

# ---- memory: neither gradients nor slots of frozen parameters
run all --max-steps 1 --lr 1e-3
python3 - <<'PYTHON' || complain "memory.json of frozen layers"
import json
few, whole = (json.load(open(f"runs/{run}/memory.json")) for run in ("still", "all"))
assert few["weights"] == whole["weights"]
assert few["gradients"] < whole["gradients"] and few["optimizer slots"] == 2 * few["gradients"], (few, whole)
assert few["activations and their gradients"] < whole["activations and their gradients"], (few, whole)
PYTHON
check_end "frozen layers: one network in training and evaluation, bits, resume, memory"
