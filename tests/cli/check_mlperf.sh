#!/usr/bin/env bash
# --mlperf-log: the compliance checker of the package mlperf-logging accepts the file (rules 4.0.0) of a run that reaches its target, of one
# that was killed and resumed, and of one that was stopped and goes on; it refuses what the rules refuse; and the numbers of the file are
# those of the run's other records. The package is installed once into a virtual environment in the user's cache.
# Arguments: source folder, binary.
. "$1/tests/support/check.sh"
needs_python
python_of mlperf
small_data data 64 16 || exit 77

train() { # NAME ARGUMENT...
    timeout 300 "$towers" train resnet50 --data-path data --img-size 32 --batch-size 16 --epochs 3 --threads 1 --summary-interval 0 --quiet \
        --experiment "$1" --mlperf-log 'Own "kitchen"' "${@:2}" >"$out" 2>"$err" </dev/null
}
checked() { # RUN
    "$python" -m mlperf_logging.compliance_checker --ruleset 4.0.0 "runs/$1/mlperf.log" >"$out" 2>&1 && grep -q SUCCESS "$out"
}
accepted() { checked "$1" || complain "$1 is not accepted: $(cat "$out")"; }
# same RUN STATUS KEY=VALUE...: the lines beside results.csv, the end of the run and some settings
same() {
    python3 - "$@" <<'PYTHON' || complain "$1: the numbers differ"
import csv, json, sys
run, status, wanted = sys.argv[1], sys.argv[2], dict(pair.split("=", 1) for pair in sys.argv[3:])
lines = [json.loads(line.removeprefix(":::MLLOG ")) for line in open(f"runs/{run}/mlperf.log")]
rows = list(csv.DictReader(open(f"runs/{run}/results.csv")))
found = [(l["metadata"]["epoch_num"], l["metadata"]["step_num"], l["value"]) for l in lines if l["key"] == "eval_accuracy"]
assert found == [(int(r["epoch"]), int(r["step"]), float(r["test_top1"])) for r in rows if r["test_top1"]], (found, rows)
keys = [l["key"] for l in lines]
epochs = len(rows)
order = ["init_start", "init_stop", "run_start"] + ["epoch_start", "epoch_stop", "eval_start", "eval_stop"] * epochs + ["run_stop"]
assert [k for k in keys if k.endswith(("_start", "_stop"))] == order, keys
assert [l["metadata"]["epoch_num"] for l in lines if l["key"] == "epoch_start"] == list(range(1, epochs + 1))
times = [l["time_ms"] for l in lines]
assert times == sorted(times), times
assert lines[-1]["value"] == lines[-1]["metadata"]["status"] == status, lines[-1]
settings = {l["key"]: l["value"] for l in lines}
for key, value in wanted.items():
    assert settings.get(key) == json.loads(value), (key, settings.get(key), value)
PYTHON
}

# ---- a run that is left alone, of two towers with two batches a step
train whole --towers 2 --batch-size 8 --accumulate 2 --opt sgd --momentum 0.9 --lr 0.05 --seed 7
accepted whole
same whole success seed=7 global_batch_size=32 gradient_accumulation_steps=2 train_samples=64 eval_samples=16 opt_name='"sgd"' \
    sgd_opt_base_learning_rate=0.05 sgd_opt_momentum=0.9 model_bn_span=8 submission_org='"Own \"kitchen\""' submission_division='"open"' \
    submission_benchmark='"resnet"' sgd_opt_learning_rate_decay_steps=6

# ---- targets
train reached --stop-at 0.001
accepted reached
same reached success
train missed --stop-at 0.999
accepted missed
same missed aborted

# ---- killed in the second epoch, and resumed: no line is lost, none stands twice
kill_at_row killed 6 "$towers" train resnet50 --data-path data --img-size 32 --batch-size 16 --epochs 3 --threads 1 --summary-interval 0 --quiet \
    --experiment killed --mlperf-log 'Own "kitchen"' >"$out" 2>"$err" </dev/null
[ -e runs/killed/mlperf.log ] || complain "killed: no file"
train killed --resume auto
accepted killed
same killed success

# ---- ended by --stop-epoch at the end of an epoch, and continued
train longer --stop-epoch 1
same longer aborted
train longer --resume auto --stop-epoch 0
accepted longer
same longer success

# ---- the closed division asks for the reference's settings
train closed --mlperf-division closed --opt lars --sched polynomial --power 2 --min-lr 0.0001 --lr 1 --weight-decay 0.0002 --warmup-epochs 1
checked closed || grep -q "eval_accuracy" "$out" || complain "closed: $(cat "$out")"
grep -v eval_accuracy "$out" | grep -qE "Required|CHECK for" && complain "closed: $(cat "$out")"
train other --mlperf-division closed --opt lars --sched polynomial --power 2 --min-lr 0.0001 --lr 1 --weight-decay 0.0003 --warmup-epochs 1
checked other
grep -q "CHECK for 'lars_opt_weight_decay' failed" "$out" || complain "a weight decay that the rules forbid is accepted: $(cat "$out")"

# ---- steps that were taken without the log are in no time: refused, and a branch has none
"$towers" train fashion_cnn --data-path data --max-steps 2 --batch-size 16 --threads 1 --experiment without --quiet >"$out" 2>&1 || complain "without: $(cat "$out")"
refuses 2 "counts from the first step, and runs/without has taken steps already" "$towers" train --resume runs/without --max-steps 4 --mlperf-log Own
"$towers" train --resume runs/longer --experiment branch --epochs 4 >"$out" 2>&1 </dev/null || complain "branch: $(tail -n 3 "$out")"
grep -q "mlperf.log is not written: .* runs/longer has taken steps already" "$out" && [ ! -e runs/branch/mlperf.log ] || complain "a branch has a log: $(cat "$out")"
"$towers" train --resume runs/branch --epochs 5 --quiet >"$out" 2>&1 </dev/null && [ ! -e runs/branch/mlperf.log ] || complain "a branch that goes on: $(tail -n 3 "$out")"
same longer success

# ---- without the option there is no such file, and without it a division is refused
refuses 2 "--mlperf-division" "$towers" train resnet50 --dataset synthetic --max-steps 1 --mlperf-division closed --experiment none
[ ! -e runs/none/mlperf.log ] || complain "a file that nobody asked for"

check_end "MLPerf's checker accepts the logs of whole, killed and continued runs"
