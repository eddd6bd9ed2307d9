#!/usr/bin/env bash
# scripts/follow_mlflow.py and follow_wandb.py with the real packages, offline: every number of a live run, of a finished and of a
# failed one and of a GAN, once each, whatever killed or ended the follower between; settings, state and the best weights.
# The packages are installed once into virtual environments in the user's cache. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
needs_python
python_of wandb
wandb=$python
python_of mlflow
mlflow=$python
small_data data 256 64 || exit 77
export MLFLOW_TRACKING_URI=file://$work/mlruns MLFLOW_ALLOW_FILE_STORE=true MLFLOW_DISABLE_TELEMETRY=true DO_NOT_TRACK=true
export WANDB_MODE=offline WANDB_DIR=$work WANDB_SILENT=true PYTHONDONTWRITEBYTECODE=1 HOME=$work

train() { # NAME ARGUMENT...
    local name=$1
    shift
    timeout 200 "$towers" train fashion_cnn --data-path data --threads 1 --summary-interval 0 --quiet --experiment "$name" "$@" >train.out 2>&1 </dev/null
}
follow() { # mlflow|wandb RUN ARGUMENT...
    local kind=$1
    shift
    timeout 200 "${!kind}" "$source_dir/scripts/follow_$kind.py" "$@" >follow.out 2>&1
}

# ---- a live run of four towers: the follower is killed, again and again; it is stopped and goes on, too
export TOWERS_FAULT=delay:tower=0,step=1,ms=25 # so that the run is there for some seconds
train live --towers 4 --batch-size 2 --epochs 20 --max-steps 288 &
unset TOWERS_FAULT
trainer=$!
wait_until test -s runs/live/metrics.jsonl
for seconds in 1.3 1.5; do
    "$mlflow" "$source_dir/scripts/follow_mlflow.py" runs/live >follow.out 2>&1 &
    follower=$!
    sleep $seconds
    kill -KILL $follower 2>/dev/null
    wait $follower 2>/dev/null
    follow wandb runs/live --once || complain "wandb, live: $(tail -n 3 follow.out)"
done
wait $trainer
sleep 1.1 # the folders of offline runs are named by the second
follow wandb runs/live || complain "wandb, at its first end: $(tail -n 3 follow.out)"
train live --towers 4 --batch-size 2 --epochs 20 --max-steps 320 --resume auto || complain "the run goes on: $(tail -n 3 train.out)"
train one --batch-size 16 --epochs 2 || complain "one: $(tail -n 3 train.out)"
train bad --batch-size 16 --epochs 2 --opt momentum --lr 1e6 && complain "a run with a rate of a million ends well"
"$towers" train wgan_gp --width 4 --img-size 8 --data-path data --threads 1 --batch-size 16 --max-steps 12 --quiet --experiment gan >train.out 2>&1 </dev/null ||
    complain "gan: $(tail -n 3 train.out)"
for run in live one bad gan; do
    for kind in mlflow wandb mlflow wandb; do
        follow $kind runs/$run || complain "$kind of $run: $(tail -n 3 follow.out)"
    done
done
unfilled=$(find mlruns -path '*/metrics/step/*' -type f | head -n 1)
[[ $unfilled ]] && : >"${unfilled%/*}/unfilled" || complain "mlflow has no file of the metric step" # as a follower leaves it that is killed between making and filling the file of a metric
follow mlflow runs/live || complain "mlflow, behind a follower that was killed: $(tail -n 3 follow.out)"
name=$'d \U1F600 \\ " # from' # a text of args.yaml may hold anything
ln -s data "$name"
"$towers" train fashion_cnn --data-path "$name" --threads 1 --max-steps 1 --quiet --experiment face >train.out 2>&1 || complain "face: $(tail -n 3 train.out)"
python3 -c 'import os, sys; sys.path.insert(0, sys.argv[1]); import follow_run; found = follow_run.settings("runs/face")["data-path"]; assert os.fsencode(found) == os.fsencode(sys.argv[2]), found' \
    "$source_dir/scripts" "$name" || complain "the settings of a run whose data have an emoji in their name"
follow mlflow nowhere && complain "mlflow: no run is accepted"
follow wandb nowhere && complain "wandb: no run is accepted"

cat >rows.py <<'PYTHON'
import csv, json, math, os

def wanted(run):
    """{(key, step): value} of the records"""
    found = {}
    for line in open(f"runs/{run}/metrics.jsonl"):
        row = json.loads(line)
        step, phase = row.pop("step"), row.pop("phase", None)
        parts = [("", row), *((f"{key}/", row.pop(key)) for key in ("terms", "tower_terms") if key in row)]
        for key, value in ((part + key, value) for part, values in parts for key, value in values.items()):
            values = {f"{key}/{i}": v for i, v in enumerate(value)} if isinstance(value, list) else {key: value}
            for name, v in values.items():
                if isinstance(v, (int, float)) and math.isfinite(v):
                    found[f"{phase}/{name}" if phase else name, step] = float(v)
    for row in csv.DictReader(open(f"runs/{run}/results.csv")):
        for key, value in row.items():
            if key != "step" and value and math.isfinite(float(value)): # empty: not measured
                found[f"epoch/{key}", int(row["step"])] = float(value)
    return found

def same(run, have):
    want = wanted(run)
    missing, extra = set(want) - set(have), set(have) - set(want)
    assert not missing and not extra, (run, len(want), sorted(missing)[:3], sorted(extra)[:3])
    assert all(want[k] == have[k] for k in want), run
PYTHON
"$mlflow" - <<'PYTHON' || complain "what MLflow has"
import os
from mlflow.tracking import MlflowClient
from rows import same
client = MlflowClient()
number = client.get_experiment_by_name("towers").experiment_id
runs = {r.info.run_name: r for r in client.search_runs([number])}
assert sorted(runs) == ["bad", "gan", "live", "one"], sorted(runs)
for name, run in runs.items():
    have = {}
    for key in run.data.metrics:
        for m in client.get_metric_history(run.info.run_id, key):
            at = key.removeprefix("step/"), m.step
            assert at not in have, (name, at)
            have[at] = m.value
    same(name, have)
    assert run.info.status == {"bad": "FAILED"}.get(name, "FINISHED"), (name, run.info.status)
    files = {f.path for f in client.list_artifacts(run.info.run_id)}
    weights = {"bad": set(), "gan": {"last.safetensors"}}.get(name, {"best.safetensors"})
    assert {"report.html", "args.yaml"} | weights <= files and len(weights) == sum("safetensors" in f for f in files), (name, files)
assert runs["live"].data.params["towers"] == "4" and runs["bad"].data.params["lr"] == "1000000", runs["live"].data.params
folder = client.download_artifacts(runs["one"].info.run_id, "best.safetensors")
assert open(folder, "rb").read() == open("runs/one/best.safetensors", "rb").read()
PYTHON
"$wandb" - <<'PYTHON' || complain "what W&B has"
import csv, glob, json, struct
from wandb.proto import wandb_internal_pb2
from rows import same

def records(path):
    """Those of a file of an offline run: after 7 bytes, LevelDB's log format: in blocks of 32 KiB, parts with checksum, size, type."""
    data, at, parts = open(path, "rb").read(), 7, b""
    assert data[:4] == b":W&B", data[:7]
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        size, kind = struct.unpack("<HB", data[at + 4:at + 7])
        parts += data[at + 7:at + 7 + size]
        at += 7 + size
        if kind in (1, 4): # whole, or its last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            parts = b""
            yield record

names, numbers, ends, saved = {}, {}, {}, {}
for path in sorted(glob.glob("wandb/offline-run-*/*.wandb")):
    run = None
    for record in records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run, names[record.run.run_id] = record.run.run_id, record.run.display_name
        elif kind == "exit":
            ends.setdefault(run, []).append(record.exit.exit_code)
        elif kind == "artifact":
            saved[run] = saved.get(run, 0) + 1
        elif kind == "history":
            row = {("/".join(i.nested_key) or i.key): json.loads(i.value_json) for i in record.history.item}
            for key, value in row.items():
                if not key.startswith("_"):
                    at = (run, key, row["epoch/epoch"] if key.startswith("epoch/") else row.get("_step", record.history.step.num))
                    assert at not in numbers, (names[run], at)
                    numbers[at] = float(value)
assert sorted(names.values()) == ["bad", "gan", "live", "one"], names
for run, name in names.items():
    steps = {float(r["epoch"]): int(r["step"]) for r in csv.DictReader(open(f"runs/{name}/results.csv"))}
    same(name, {(key, steps[at] if key.startswith("epoch/") else at): v for (r, key, at), v in numbers.items() if r == run})
assert {names[r]: codes[-1] for r, codes in ends.items()} == {"bad": 1, "gan": 0, "live": 0, "one": 0}, ends
assert {names[r]: n for r, n in saved.items()} == {"live": 2, "one": 1, "gan": 1}, saved # a version for each of its ends
PYTHON
# ---- the small package has no store of its own
mkdir elsewhere
(unset MLFLOW_TRACKING_URI MLFLOW_ALLOW_FILE_STORE && cd elsewhere && follow mlflow ../runs/live --once)
[[ $? == 1 && $(cat elsewhere/follow.out) == "follow_mlflow: "*"name a server by MLFLOW_TRACKING_URI="* ]] || complain "mlflow without a server: $(tail -n 2 elsewhere/follow.out)"

check_end "MLflow and W&B have every number of live, resumed, finished and failed runs, once, and the best weights"
