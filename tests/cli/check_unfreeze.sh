#!/usr/bin/env bash
# --unfreeze-epoch: frozen layers keep their bits until they join and then have the updates of a fresh optimizer; a run that is
# stopped or killed before, at and after that epoch and resumed ends with the bits of an undisturbed one, on one tower and several,
# on any number of processes and nodes; branches; what is refused.
. "$1/tests/support/check.sh"
. "$source_dir/tests/support/hosts.sh"
needs_python
small_data data 96 64 || exit 77

# run NAME ARGUMENT...: 6 steps an epoch; in several programs if `launch` is a launcher
launch=()
run() {
    local name=$1
    shift
    timeout 300 "${launch[@]}" "$towers" train inception_mini --data-path data --img-size 8 --global-batch-size 16 --workers 0 --threads 1 --lr 0.003 --opt adam --sched constant \
        --freeze '*,!fc*' --unfreeze-epoch 3 --epochs 4 --seed 5 --summary-interval 0 --quiet --experiment "$name" "$@" >out 2>err </dev/null
}
good() { run "$@" || complain "train $*: exit $?: $(tail -n 3 err)"; }
same() { # NAME OF_NAME
    cmp -s "runs/$1/last.safetensors" "runs/$2/last.safetensors" || complain "$1 has other weights than $2"
    diff <(timeless "runs/$1/metrics.jsonl") <(timeless "runs/$2/metrics.jsonl") >/dev/null || complain "$1 has other records than $2"
}

good whole
good frozen --epochs 2
good early --stop-epoch 2 --json
grep -q '"test_accuracy"' out || complain "a run that ends where layers would join does not report its accuracy: $(cat out)"
cmp -s runs/early/last.safetensors runs/frozen/last.safetensors || complain "a run that ends where layers would join has other weights"
good four --towers 4 --processes 1
good four-processes --towers 4 --processes 2
same four-processes four
grep -q 'epoch 3: \*,!fc\* join' runs/whole/log.txt || complain "log.txt does not say when they join"

leaves_alone runs/whole run whole --resume auto
leaves_alone runs/four run four --resume auto --processes 2
leaves_alone runs/frozen run frozen --resume auto --epochs 2
leaves_alone runs/early run early --resume auto --stop-epoch 2

# ---- stopped and killed
good before --max-steps 9
good before --resume auto --max-steps 24
same before whole
good at --epochs 2
good at --resume auto
same at whole
good after --towers 4 --processes 2 --max-steps 15
good after --resume auto --max-steps 24 --processes 1
same after four
good average --ema-decay 0.9 --opt momentum
good average-parts --ema-decay 0.9 --opt momentum --max-steps 14
good average-parts --ema-decay 0.9 --opt momentum --resume auto --max-steps 24
same average-parts average

# Killed while it runs, once it has come so far: what is left is a state that continues exactly.
slow=delay:tower=0,step=1,ms=60 # so that no run ends before it is killed
for rows in 4 9 12 13 17; do TOWERS_FAULT=$slow kill_at_row killed "$rows" run killed --resume auto --checkpoint-steps 1; done
good killed --resume auto
same killed whole

# ---- several nodes: stopped, killed, ended early, where layers join and around it
mpirun_find
if ((${#mpirun[@]})); then
    good four-early --towers 4 --patience 1 --min-delta 10
    launch=("${mpirun[@]}" 2)
    good two --towers 4
    same two four
    good early-2 --towers 4 --patience 1 --min-delta 10
    same early-2 four-early
    [[ $(wc -l <runs/early-2/metrics.jsonl) == 12 ]] || complain "--patience did not end the run where layers would join"
    for steps in 9 12 15; do
        good "at-$steps" --towers 4 --max-steps "$steps"
        launch=("${mpirun[@]}" $((steps == 15 ? 2 : 4)))
        good "at-$steps" --resume auto --max-steps 24
        launch=("${mpirun[@]}" 2)
        same "at-$steps" four
    done
    good branch-2 --resume "$(ls -d runs/at-12/ckpt/step-*12)"
    cmp -s runs/branch-2/last.safetensors runs/four/last.safetensors || complain "a branch in two programs has other weights"
    for rows in 10 12 13; do
        TOWERS_FAULT=$slow kill_at_row killed-2 "$rows" run killed-2 --towers 4 --resume auto --checkpoint-steps 1
        TOWERS_FAULT=$slow other_dies "others-$rows" "$rows" KILL run "others-$rows" --towers 4 --checkpoint-steps 1
        ((ended)) || complain "rank 1 was killed behind step $rows, and the run goes on"
        launch=()
        good "others-$rows" --resume auto
        launch=("${mpirun[@]}" 2)
        same "others-$rows" four
    done
    good killed-2 --resume auto
    same killed-2 four
    TOWERS_FAULT=$slow other_dies stopped-2 12 TERM run stopped-2 --towers 4
    ((ended)) || complain "rank 1 was asked to stop behind step 12, and the run goes on"
    good stopped-2 --resume auto
    same stopped-2 four
    launch=()
else
    left_out "--unfreeze-epoch in several programs: this build has no MPI, or mpirun is missing"
fi

# ---- a branch from the checkpoint at which they join
good branch --resume "$(ls -d runs/at/ckpt/step-*12)"
cmp -s runs/branch/last.safetensors runs/whole/last.safetensors || complain "a branch has other weights"

# ---- resumed behind that epoch, where an evaluation or a branch saves before a step is taken: with the slots of what has joined
good longer --epochs 5
good ended --resume "$(ls -d runs/whole/ckpt/step-*24)"
good ended --resume auto --epochs 5
same ended longer
if TOWERS_FAULT=none: "$towers" train inception_mini --data-path data --img-size 8 --dry-run >/dev/null 2>&1; then
    left_out "--unfreeze-epoch stopped in an evaluation: this binary has no fault points"
else
    TOWERS_FAULT=delay:tower=0,step=18,ms=1000,activity=evaluation run evaluated --eval-batch-size 8 --log-samples &
    job=$!
    until grep -q '^18,' runs/evaluated/samples.csv 2>/dev/null || ! kill -0 $job; do sleep 0.01; done
    sleep 0.5
    kill -TERM "$(cat runs/evaluated/.lock)"
    wait $job
    [[ $? == 143 ]] && ! grep -q '^3,' runs/evaluated/results.csv || complain "not stopped in the evaluation of epoch 3: $(cat err)"
    good evaluated --resume auto
    same evaluated whole
fi

cat >look.py <<'PYTHON'
import glob, json, math, struct

def load(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    header.pop("__metadata__", None)
    return {k: struct.unpack(f"<{(v['data_offsets'][1] - v['data_offsets'][0]) // 4}f", data[slice(*v["data_offsets"])])
            for k, v in header.items() if v["dtype"] == "F32"}

# One step after they have joined: Adam's first step moves each weight by the learning rate, if its gradient is not tiny.
before, after = load("runs/frozen/last.safetensors"), load("runs/one-step/last.safetensors")
train = load(glob.glob("runs/one-step/ckpt/step-*13/train.safetensors")[0])
moved = [name for name in before if name.endswith("weight") and not name.startswith("fc") and before[name] != after[name]]
assert len(moved) > 10, moved
for name in moved:
    for b, a, m, v in zip(before[name], after[name], train["slot0." + name], train["slot1." + name]):
        assert abs(m - 0.1 * math.copysign(math.sqrt(v / 0.001), m)) <= 1e-4 * abs(m) + 1e-12, (name, m, v) # of one gradient
        if abs(m) > 1e-5:
            assert abs(abs(b - a) - 0.003) < 3e-5, (name, b, a)
state = json.load(open(glob.glob("runs/one-step/ckpt/step-*13/state.json")[0]))
assert state["joined_updates"] == 12, state["joined_updates"]
PYTHON
good one-step --max-steps 13
python3 look.py || complain "the first update of the layers that join is not that of a fresh optimizer"

# ---- refused
refused() { refuses "$1" "$2" "$towers" train "${@:3}"; } # CODE TEXT ARGUMENT...
refused 2 "unfreeze-epoch" fashion_cnn --dataset synthetic --unfreeze-epoch 2 --dry-run
refused 2 "unfreeze-epoch" inception_mini --data-path data --freeze 'fc*' --unfreeze-epoch 1 --dry-run
refused 2 "unfreeze-epoch" --resume runs/whole --epochs 5 --unfreeze-epoch 2
check_end "layers that join later: bits before and after, the first update of a fresh optimizer, resume after any end, branches"
