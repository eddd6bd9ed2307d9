#!/usr/bin/env bash
# Options of optimization, weights and recipes do what they document, as seen in saved weights, in metrics.jsonl and in the output.
. "$1/tests/support/check.sh"

# run NAME MODEL ARGUMENT...: a short run in runs/NAME on made-up data, without evaluation
run() {
    local name=$1 model=$2
    shift 2
    "$towers" train "$model" --dataset synthetic --eval-interval 0 --workers 0 --experiment "$name" --seed 7 "$@" \
        >"$work/out" 2>"$work/err" </dev/null || complain "train $model $*: exit $?: $(tail -n 3 "$work/err")"
}

# refused CODE TEXT ARGUMENT...: this exit code, TEXT in the message, one message, nothing on stdout, nothing created
refused() {
    local code=$1 text=$2 status before after
    shift 2
    before=$(find . | sort)
    timeout 200 "$towers" "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    after=$(find . | sort)
    [[ $status == "$code" ]] || complain "towers $*: exit $status instead of $code: $(tail -n 3 "$work/err")"
    grep -qF -- "$text" "$work/err" || complain "towers $*: wanted '$text', got: $(tail -n 3 "$work/err")"
    [[ $(grep -c '^error: ' "$work/err") == 1 ]] || complain "towers $*: not one message: $(tail -n 3 "$work/err")"
    [[ ! -s $work/out ]] || complain "towers $*: wrote to stdout"
    [[ $before == "$after" ]] || complain "towers $*: created $(comm -13 <(echo "$before") <(echo "$after") | head -n 3)"
}
touch out err

# ---- python: safetensors and metrics with the standard library
cat >look.py <<'PYTHON'
import array, json, math, struct, sys

def load(path):
    with open(path, "rb") as f:
        size, = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(size))
        data = f.read()
    header.pop("__metadata__", None)
    kinds = {"F32": "f", "I64": "q"}
    return {k: array.array(kinds[v["dtype"]], data[slice(*v["data_offsets"])]) for k, v in header.items()}

def weights(run):
    return {k: v for k, v in load(f"runs/{run}/last.safetensors").items() if not k.endswith("num_batches_tracked")}

def steps(run):
    return [json.loads(line) for line in open(f"runs/{run}/metrics.jsonl")]

def far(a, b):
    """largest difference, relative to the largest value of the tensor"""
    assert a.keys() == b.keys()
    return max(max(abs(x - y) for x, y in zip(a[k], b[k])) / (1e-3 + max(map(abs, b[k]))) for k in a)

def norm(a, b):
    return math.sqrt(sum((x - y) ** 2 for k in a for x, y in zip(a[k], b[k])))

def same_bits(a, b):
    return a.tobytes() == b.tobytes()
PYTHON
look() { # look WHAT: the program on stdin
    { echo "from look import *"; cat; } >one.py
    python3 one.py >"$work/py" 2>&1 || complain "$1: $(tail -n 3 "$work/py")"
    rm -rf one.py __pycache__
}

# ---- several batches a step: the gradient is that of all their samples
sgd=(--opt momentum --lr 0.02 --max-steps 3) # later, rounding has turned the first ReLU
run whole fashion_cnn "${sgd[@]}" -b 32
run parts fashion_cnn "${sgd[@]}" -b 8 --accumulate 4
run towers fashion_cnn "${sgd[@]}" -b 4 --accumulate 4 --towers 2
look "accumulate" <<'PYTHON'
for name in ("parts", "towers"):
    assert far(weights(name), weights("whole")) < 1e-4, (name, far(weights(name), weights("whole")))
    for a, b in zip(steps(name), steps("whole")):
        assert a["images"] == b["images"] == 32 and abs(a["mean_loss"] - b["mean_loss"]) < 1e-4, (name, a, b)
PYTHON

# 4096 samples in batches of 250 are 17 batches, so 6 steps of 3 (the last of an epoch has 2, and ends in 96 samples)
mini=(--img-size 8 -b 250 --accumulate 3 --ema-decay 0.99 --sched constant --lr 0.05)
run straight inception_mini "${mini[@]}" --max-steps 9
run broken inception_mini "${mini[@]}" --max-steps 4
"$towers" train inception_mini --dataset synthetic --eval-interval 0 --workers 0 --experiment broken --seed 7 "${mini[@]}" \
    --max-steps 9 --resume auto --quiet 2>err || complain "resume: $(cat err)"
cmp -s runs/straight/last.safetensors runs/broken/last.safetensors || complain "accumulate with --ema-decay: a resumed run differs"
look "averages of losses" <<'PYTHON'
import glob
average = 0
for row in steps("straight"):
    average = 0.9 * average + 0.1 * row["base_loss"]
for run in ("straight", "broken"):
    state = json.load(open(max(glob.glob(f"runs/{run}/ckpt/step-*")) + "/state.json"))
    assert state["averaged"] == 9 and abs(state["base_average"] - average) < 1e-12, (run, state, average)
PYTHON
look "steps of an epoch" <<'PYTHON'
a, b = steps("straight"), steps("broken")
assert [s["images"] for s in a] == [750] * 5 + [250 + 96] + [750] * 3, [s["images"] for s in a]
assert [s["epoch"] for s in a] == [0] * 6 + [1] * 3
assert [(s["mean_loss"], s["grad_norm"], s["lr"]) for s in a] == [(s["mean_loss"], s["grad_norm"], s["lr"]) for s in b]
PYTHON

# ---- the average of the weights, by its formula in double precision
run start inception_mini --img-size 8 -b 32 --max-steps 1 --lr 0 --opt sgd
run average inception_mini --img-size 8 -b 32 --max-steps 5 --opt sgd --sched constant --lr 0.1 --ema-decay 0.3 --checkpoint-steps 1 --keep 9
look "weight average" <<'PYTHON'
import glob
first = {k: v for k, v in weights("start").items() if "running" not in k}
average = {k: list(v) for k, v in first.items()}
seen = set()
for step, path in enumerate(sorted(glob.glob("runs/average/ckpt/step-*")), 1):
    raw, saved = load(path + "/train.safetensors"), load(path + "/model.safetensors")
    decay = min(0.3, step / (9 + step)) # (1 + n) / (10 + n) with n updates before this one
    seen.add(decay)
    for k, a in average.items():
        w = raw["raw." + k]
        average[k] = a = [x + (1 - decay) * (y - x) for x, y in zip(a, w)]
        worst = max(abs(x - y) for x, y in zip(a, saved[k]))
        assert worst < 1e-6 * (1 + max(map(abs, a))), (step, k, worst)
    running = [k for k in saved if "running_mean" in k][0]
    assert not same_bits(saved[running], raw["tower0." + running]), "batch-norm statistics are averaged, too"
assert len(seen) >= 4 and norm(average, first) > 1e-3, seen
PYTHON

# ---- frozen parameters and their statistics keep their bits; they have no slots
freeze='Conv2d*,Mixed_3a.branch_pool*'
run thawed inception_mini --img-size 8 -b 32 --max-steps 1 --opt momentum --lr 0.1 --sched constant
run frozen inception_mini --img-size 8 -b 32 --max-steps 3 --opt momentum --lr 0.1 --sched constant --freeze "$freeze"
look "freeze" <<'PYTHON'
import fnmatch, glob
a, b = weights("start"), weights("frozen")
(path,) = glob.glob("runs/frozen/ckpt/step-*3")
slots = load(path + "/train.safetensors")
held = 0
for k in b:
    stays = k.startswith("Conv2d") or k.startswith("Mixed_3a.branch_pool")
    held += stays
    if stays and "running" not in k:
        assert same_bits(a[k], b[k]), k
        assert "slot0." + k not in slots, k
    elif stays:
        assert all(x == (1 if k.endswith("var") else 0) for x in b[k]), k
    else:
        assert not same_bits(a[k], b[k]), k
        assert "running" in k or any(slots["slot0." + k]), k
assert held == 15 and steps("frozen")[0]["grad_norm"] < 0.999 * steps("thawed")[0]["grad_norm"], held
PYTHON

# ---- clipping, and decay of what usually does not decay
base=(--img-size 8 -b 32 --max-steps 1 --opt sgd --sched constant --weight-decay 0)
run norm inception_mini "${base[@]}" --lr 2 --clip-norm 0.01
run value inception_mini "${base[@]}" --lr 2 --clip-value 0.001
run decay inception_mini "${base[@]}" --lr 0.5 --weight-decay 0.5 --clip-value 1e-30
run decay_all inception_mini "${base[@]}" --lr 0.5 --weight-decay 0.5 --clip-value 1e-30 --decay-all
look "clipping and decay" <<'PYTHON'
learnt = lambda run: {k: v for k, v in weights(run).items() if "running" not in k}
a = learnt("start")
moved = norm(a, learnt("norm"))
assert abs(moved - 0.02) < 1e-4, moved
assert steps("norm")[0]["grad_norm"] > 0.02 # reported as it was
b = learnt("value")
largest = max(abs(x - y) for k in a for x, y in zip(a[k], b[k]))
assert abs(largest - 0.002) < 1e-5, largest
for run, shrinks in (("decay", False), ("decay_all", True)):
    b = learnt(run)
    for k in a:
        matrix = k.endswith("conv.weight") or k == "fc.weight"
        factor = 0.75 if shrinks or matrix else 1
        assert all(abs(y - factor * x) < 1e-6 for x, y in zip(a[k], b[k])), (run, k)
assert steps("decay_all")[0]["total_loss"] > steps("decay")[0]["total_loss"] > steps("decay")[0]["base_loss"]
PYTHON

# ---- LARS and LAMB, a step of them from the gradient that a step of SGD shows: a ratio of each tensor, none of biases and batch norm
layers=(--img-size 8 -b 32 --max-steps 1 --sched constant --weight-decay 0.01)
run gradient inception_mini --img-size 8 -b 32 --max-steps 1 --sched constant --weight-decay 0 --opt sgd --lr 1
run lars inception_mini "${layers[@]}" --opt lars --lr 2 --trust-coefficient 0.02 --momentum 0.9 --summary-interval 1
run lamb inception_mini "${layers[@]}" --opt lamb --lr 0.05
run lars_all inception_mini "${layers[@]}" --opt lars --lr 2 --trust-coefficient 0.02 --momentum 0.9 --decay-all
look "LARS and LAMB" <<'PYTHON'
import glob
learnt = lambda run: {k: v for k, v in weights(run).items() if "running" not in k}
length = lambda x: math.sqrt(sum(i * i for i in x))
start, moved = learnt("start"), learnt("gradient")
ratios = []
for run in ("lars", "lars_all", "lamb"):
    after = learnt(run)
    for k, w in start.items():
        g = [x - y for x, y in zip(w, moved[k])]
        adapts = run == "lars_all" or k.endswith("conv.weight") or k == "fc.weight"
        d = 0.01 if adapts else 0
        if run == "lamb": # the first step: the moments are g and g * g
            r = [x / (abs(x) + 1e-6) + d * y for x, y in zip(g, w)]
            way, wanted = length([x - y for x, y in zip(w, after[k])]), 0.05 * (length(w) if adapts and length(w) > 0 else length(r))
            assert abs(way - wanted) <= 2e-3 * wanted + 1e-7, (run, k, way, wanted)
            continue
        ratio = 0.02 * length(w) / (length(g) + d * length(w)) if adapts and length(w) > 0 and length(g) > 0 else 1
        if run == "lars" and adapts:
            ratios.append(ratio)
        step = [2 * ratio * (x + d * y) for x, y in zip(g, w)]
        far = max(abs(x - s - y) for x, s, y in zip(w, step, after[k]))
        assert far <= 1e-3 * max(map(abs, step)) + 3e-7, (run, k, far, max(map(abs, step)))
assert max(ratios) > 2 * min(ratios) > 0, ratios
(events,) = glob.glob("runs/lars/events.out.*")
data = open(events, "rb").read()
assert all(tag in data for tag in (b"trust/min", b"trust/mean", b"trust/max")), events
PYTHON
for opt in lars lamb; do # the same bits from any number of processes, and a resume in between
    run "$opt-1" fashion_cnn -b 8 --towers 4 --processes 1 --max-steps 6 --opt $opt --lr 0.01 --weight-decay 0.001
    run "$opt-2" fashion_cnn -b 8 --towers 4 --processes 2 --max-steps 3 --opt $opt --lr 0.01 --weight-decay 0.001 --threads 2
    "$towers" train fashion_cnn --dataset synthetic --experiment "$opt-2" --max-steps 6 --resume auto --quiet >/dev/null 2>err || complain "$opt: resume: $(cat err)"
    cmp -s "runs/$opt-1/last.safetensors" "runs/$opt-2/last.safetensors" || complain "$opt: other weights from other processes"
done
run scaled fashion_cnn -b 8 --towers 2 --accumulate 2 --max-steps 2 --lr 0.001 --lr-reference-batch 16
run pieces fashion_cnn -b 512 --max-steps 2 --sched piecewise --lr-schedule '0.001;1;0.0001' --lr-reference-batch 256
run floor fashion_cnn -b 512 --max-steps 2 --sched exponential --decay-epochs 0.125 --decay-rate 1e-6 --lr 0.001 --min-lr 0.0005 --lr-reference-batch 256
look "--lr-reference-batch" <<'PYTHON'
assert [s["lr"] for s in steps("scaled")] == [0.002] * 2, [s["lr"] for s in steps("scaled")]
assert [s["lr"] for s in steps("pieces")] == [0.002] * 2, [s["lr"] for s in steps("pieces")]
assert [s["lr"] for s in steps("floor")] == [0.002, 0.001], [s["lr"] for s in steps("floor")]
PYTHON

# ---- the exponent of the polynomial, and TensorFlow's staircase, which does not round an epoch up
run power fashion_cnn -b 512 --max-steps 4 --sched polynomial --power 2 --lr 1 --opt sgd
run stairs fashion_cnn -b 1500 --epochs 5 --sched exponential --decay-epochs 1.5 --decay-rate 0.5 --lr 1e-3 --opt sgd
look "schedules" <<'PYTHON'
assert [s["lr"] for s in steps("power")] == [1, 0.5625, 0.25, 0.0625], [s["lr"] for s in steps("power")]
wanted = [1e-3 * 0.5 ** (i // int(4096 / 1500 * 1.5)) for i in range(15)] # every 4 steps, not int(3 * 1.5)
assert [s["lr"] for s in steps("stairs")] == wanted, [s["lr"] for s in steps("stairs")]
PYTHON

# ---- the original trainer's lines: step 0 is the first, the L2 term is in the loss
run lines fashion_cnn -b 16 --max-steps 21 --log-style tf2016 --report-l2 --weight-decay 0.1 --report-loss last --towers 2 --lr 0.001
number='[0-9]+'
line="^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}\.[0-9]{6}: step $number, loss = $number\.[0-9]{2} \($number\.[0-9] examples/sec; $number\.[0-9]{3} sec/batch\)\$"
grep 'loss = ' err >lines
[[ $(grep -cE "$line" lines) == 3 && $(wc -l <lines) == 3 ]] || complain "the lines of --log-style tf2016: $(cat err)"
[[ $(grep -oE 'step [0-9]+' lines | tr '\n' ' ') == "step 0 step 10 step 20 " ]] || complain "the steps of --log-style tf2016: $(cat lines)"
look "the loss that is printed" <<'PYTHON'
printed = [float(line.split("loss = ")[1].split()[0]) for line in open("lines")]
rows = steps("lines")
l2 = [row["total_loss"] - row["base_loss"] for row in rows]
expected = [rows[i]["last_tower_loss"] + l2[i] for i in (0, 10, 20)]
assert all(x > 1 for x in l2) and all(abs(a - b) < 0.0051 for a, b in zip(printed, expected)), (printed, expected)
PYTHON

# ---- recipes
for recipe in tf2016:inception_v3 torchvision:inception_v3 timm:inception_v3 tutorial:fashion_cnn mini:inception_mini tpu2018:inception_v3 mlperf-lars:inception_v3; do
    "$towers" train "${recipe#*:}" --recipe "${recipe%:*}" --dataset synthetic --print-config >config 2>err ||
        complain "--recipe $recipe: $(cat err)"
    grep -q "# from recipe \"${recipe%:*}:" config || complain "--recipe $recipe: --print-config does not name it"
    "$towers" info | grep -q "^${recipe%:*} " || complain "towers info does not list ${recipe%:*}"
done
"$towers" train inception_mini --recipe timm --dataset synthetic --lr 3 --print-config >config
grep -qE '^lr: 3 .*from command line' config || complain "the command line beats a recipe: $(grep ^lr: config)"
grep -qE '^opt: nesterov .*from recipe' config || complain "a recipe beats the model: $(grep ^opt: config)"
grep -qE '^crop-pad: 0 .*from recipe "timm:' config || complain "a recipe beats the model: $(grep ^crop-pad: config)"
echo 'lr: 0.25' >my.yaml
"$towers" train inception_mini --recipe ./my.yaml --dataset synthetic --print-config >config
grep -qF 'from recipe "./my.yaml:1"' config || complain "a recipe by its path: $(grep ^lr: config)"
grep -qE '^opt: nesterov .*from model' config || complain "what the model likes: $(grep ^opt: config)"
"$towers" train inception_v3 --recipe tpu2018 --dataset synthetic --global-batch-size 2 --dry-run >config 2>err || complain "tpu2018: $(cat err)"
grep -q '^not reproduced its own versions of the distortions .*evaluations within an epoch$' config || complain "tpu2018: what is not reproduced: $(head -3 config)"
"$towers" train inception_v3 --recipe torchvision --dataset synthetic -b 2 --dry-run >config 2>err
grep -q '^not reproduced' config && complain "torchvision: lists $(grep '^not repr' config)"
printf 'beta2: 0.9\nlr-schedule: "1;2;3"\n' >several.yaml # a file serves several commands
"$towers" train inception_mini -c several.yaml --dataset synthetic --dry-run >config 2>err || complain "a file of other optimizers: $(cat err)"
refused 2 "did you mean tf2016?" train inception_v3 --recipe tf2106

# ---- the args.yaml of a run with any recipe trains the same network again
for recipe in "$source_dir"/inception/recipes/*.yaml; do
    name=$(basename "$recipe" .yaml)
    case $name in
        iwt | keras) model=(wgan_gp --max-steps 6) ;; # a cycle of the critic and the generator
        tf2016 | torchvision-v3 | tpu2018) model=(inception_v3 --img-size 75 --max-steps 2) ;;
        *) model=(inception_mini --img-size 8 --max-steps 2) ;;
    esac
    run "$name" "${model[@]}" --recipe "$name" --global-batch-size 2
    "$towers" train "${model[0]}" --config "runs/$name/args.yaml" --experiment "$name-again" >"$work/out" 2>"$work/err" </dev/null ||
        complain "the args.yaml of --recipe $name: $(tail -n 3 "$work/err")"
    cmp -s "runs/$name/last.safetensors" "runs/$name-again/last.safetensors" || complain "the args.yaml of --recipe $name trains another network"
done

# ---- weights: another number of classes, no auxiliary heads, activations made twice
run again inception_mini --img-size 8 -b 16 --max-steps 3 --recompute
run kept inception_mini --img-size 8 -b 16 --max-steps 3 --no-recompute
cmp -s runs/again/last.safetensors runs/kept/last.safetensors || complain "--recompute changes the result"
run apart inception_mini --img-size 8 -b 16 --max-steps 3 --no-share-storage
look "--share-storage" <<'PYTHON'
assert far(weights("apart"), weights("kept")) < 1e-4, far(weights("apart"), weights("kept"))
plan = {run: json.load(open(f"runs/{run}/memory.json")) for run in ("apart", "kept")}
what = "activations and their gradients"
assert plan["apart"][what] > 2 * plan["kept"][what] and plan["apart"]["weights"] == plan["kept"]["weights"], plan
PYTHON
run head inception_mini --img-size 8 -b 16 --max-steps 1 --lr 0 --opt sgd --sched constant --classes 5 --pretrained runs/kept/last.safetensors --reset-head
look "--reset-head" <<'PYTHON'
a, b = weights("kept"), weights("head")
for k in a:
    if k.startswith("fc."):
        assert len(b[k]) * 2 == len(a[k]), k
    elif "running" not in k:
        assert same_bits(a[k], b[k]), k
PYTHON
# a network whose authors draw a wide classifier begins at chance nevertheless: ln 2
run wide efficientnet_b0 --img-size 32 -b 8 --epochs 0
run narrow efficientnet_b0 --img-size 32 -b 8 --max-steps 1 --lr 0 --opt sgd --sched constant --classes 2 --pretrained runs/wide --reset-head
look "--reset-head of a wide classifier" <<'PYTHON'
assert 0.4 < steps("narrow")[0]["mean_loss"] < 1, steps("narrow")[0]
PYTHON
google=(--img-size 33 -b 2 --max-steps 1 --classes 5)
run aux googlenet "${google[@]}" --weight-decay 0.01 --towers 2 --summary-interval 1 --log-interval 1
look "the loss of each head" <<'PYTHON'
(row,) = steps("aux")
parts = row["main_loss"] + 0.3 * sum(row["aux_loss"])
assert len(row["aux_loss"]) == 2 and min(row["aux_loss"]) > 0.1 and abs(parts - row["mean_loss"]) < 1e-5 * parts, row
assert row["l2_loss"] > 0.01 and abs(row["base_loss"] + row["l2_loss"] - row["total_loss"]) < 1e-9, row
assert "main_loss" not in steps("kept")[0], "a network with one head has one loss"
import glob
(events,) = glob.glob("runs/aux/events.out.*")
data = open(events, "rb").read()
assert all(tag in data for tag in (b"losses/main", b"losses/aux_0", b"losses/aux_1", b"losses/l2")), events
PYTHON
"$towers" export googlenet plain.safetensors --weights runs/aux --no-aux --quiet 2>err || complain "export --no-aux: $(cat err)"
run with_aux googlenet "${google[@]}" --pretrained plain.safetensors
grep -qE "has no weights for aux(1|2)\.\*, aux(1|2)\.\*, which is initialized randomly" err || complain "missing heads are named: $(cat err)"
run without_aux googlenet "${google[@]}" --no-aux --pretrained runs/aux/last.safetensors
"$towers" export inception_mini --weights runs/kept --img-size 8 --quiet || complain "export"
cmp -s <(tensors inception_mini.safetensors) <(tensors runs/kept/last.safetensors) || complain "an export of a run is its weights"

# ---- bad input: one message, the right exit code, nothing created
head -c 200 runs/kept/last.safetensors >short.safetensors
python3 - <<'PYTHON'
import json, struct
data = open("runs/kept/last.safetensors", "rb").read()
size, = struct.unpack("<Q", data[:8])
header = json.loads(data[8:8 + size])
for name, tensor in header.items():
    if name != "__metadata__" and len(tensor["shape"]) == 4:
        tensor["shape"][:2] = tensor["shape"][1::-1]
text = json.dumps(header).encode()
open("swapped.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data[8 + size:])
spoiled = bytearray(data)
bias = 8 + size + json.loads(data[8:8 + size])["fc.bias"]["data_offsets"][0]
spoiled[bias + 8:bias + 12] = struct.pack("<f", float("nan"))
open("spoiled.safetensors", "wb").write(spoiled)
spoiled = bytearray(data)
name = next(name for name in json.loads(data[8:8 + size]) if name.endswith(".running_var"))
variance = 8 + size + json.loads(data[8:8 + size])[name]["data_offsets"][0]
spoiled[variance + 4:variance + 8] = struct.pack("<f", -0.25)
open("negative.safetensors", "wb").write(spoiled)
open("negative.name", "w").write(name)
PYTHON
mini=(train inception_mini --dataset synthetic --img-size 8)
refused 2 "--img-size 7 is too small" train inception_mini --img-size 7
refused 2 "--img-size 74 is too small" train inception_v3 --img-size 74
refused 2 "out of range" train inception_mini --img-size 0
refused 2 "has no variant 'tf2017'" train inception_v3 --variant tf2017
refused 2 "out of range" train inception_mini --classes 0
refused 2 "out of range" train inception_v3 --classes 0
refused 2 "--aux-weight: inception_mini has no auxiliary classifier" train inception_mini --aux-weight 0.3
refused 2 "has no effect with --no-aux" train googlenet --no-aux --aux-weight 0.3
refused 2 "needs --img-size 299 or more (got 100)" train inception_v3 --img-size 100 --aux
refused 4 "does not hold the weights of this fashion_cnn" train fashion_cnn --dataset synthetic --pretrained runs/kept/last.safetensors
refused 4 "does not hold the weights" "${mini[@]}" --pretrained swapped.safetensors
refused 4 "Mixed_5b.branch3x3_2.conv.weight: expected F32[64,48,3,3], the file has F32[48,64,3,3]" "${mini[@]}" --pretrained swapped.safetensors
# fault: F9
refused 4 "the file's classifier has 10 classes, this model's 5: use --classes 10, or --reset-head" "${mini[@]}" --classes 5 --pretrained runs/kept/last.safetensors
refused 4 "short.safetensors" "${mini[@]}" --pretrained short.safetensors
refused 4 "not finite  fc.bias: 1 of 10 values; element 2 is nan" "${mini[@]}" --pretrained spoiled.safetensors
refused 4 "values of 1 tensors are not finite, or variances below 0" eval inception_mini --dataset synthetic --weights spoiled.safetensors
negative="below 0     $(cat negative.name): 1 of 16 values; element 1 is -0.25"
refused 4 "$negative" "${mini[@]}" --pretrained negative.safetensors
refused 4 "$negative" eval inception_mini --dataset synthetic --weights negative.safetensors
refused 4 "$negative" export inception_mini negative.onnx --weights negative.safetensors
refused 4 "No such file" "${mini[@]}" --pretrained missing.safetensors
refused 4 "does not hold the weights" eval fashion_cnn --dataset synthetic --quiet --weights runs/kept
refused 4 "this model's 5: use --classes 10" eval inception_mini --classes 5 --dataset synthetic --img-size 8 --weights runs/kept
grep -q 'reset-head' err && complain "eval advises --reset-head, which it does not have: $(cat err)"
refused 4 "holds weights of the model inception_mini" export fashion_cnn --weights runs/kept
refused 4 "contains no weights" export fashion_cnn --weights runs
refused 2 "export needs weights" export fashion_cnn
refused 2 "matches no parameter" "${mini[@]}" --freeze 'nothing*'
refused 2 "leaves nothing to train" "${mini[@]}" --freeze '*'
refused 2 "--lr-schedule has no effect with --sched constant; it applies only to piecewise" train fashion_cnn --dataset synthetic --lr-schedule '0.1;2;0.01'
refused 2 "--warmup-epochs has no effect with --sched rise-fall" "${mini[@]}" --warmup-epochs 2
refused 2 "PyTorch's OneCycleLR is --sched onecyclelr" "${mini[@]}" --sched onecycle
refused 2 "--power has no effect with --sched cosine" "${mini[@]}" --sched cosine --power 2
refused 2 "--trust-coefficient has no effect with --opt lamb; it applies only to lars" "${mini[@]}" --opt lamb --trust-coefficient 0.1
refused 2 "--warmup-lr 0.1 is above the learning rate for steps of 64 images, 0.025" train fashion_cnn --dataset synthetic --lr 0.1 --lr-reference-batch 256 --warmup-epochs 1 --warmup-lr 0.1
refused 2 "--beta2 has no effect with --opt nesterov" "${mini[@]}" --beta2 0.9
refused 2 "--amp-dtype has no effect without --amp" "${mini[@]}" --amp-dtype bf16
refused 2 "--crop-pad has no effect without --augment" "${mini[@]}" --no-augment --crop-pad 3
refused 2 "--warmup-lr has no effect without --warmup-epochs" "${mini[@]}" --warmup-lr 0.1
refused 2 "--nan-limit has no effect with --nan-policy stop" "${mini[@]}" --nan-limit 3
refused 2 "--momentum has no effect with --opt adam" train fashion_cnn --dataset synthetic --momentum 0.5
refused 2 "--reset-head has no effect" "${mini[@]}" --reset-head
export ONEDNN_MAX_CPU_ISA=AVX2 # a CPU without bf16
refused 5 "no bf16 arithmetic" train inception_mini --device cpu --amp --amp-dtype bf16
refused 5 "no bf16 arithmetic" info inception_v3 --device cpu --amp
refused 5 "not in f16" train inception_mini --device cpu --amp --amp-dtype fp16
refused 5 "needs a GPU" train inception_mini --device cpu --amp --amp-dtype tf32
unset ONEDNN_MAX_CPU_ISA

check_end "the promises hold"
