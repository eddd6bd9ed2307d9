#!/usr/bin/env bash
# From a NaN to its op: a run stops and names tower, layer and sample; `towers replay` of its capsule, on one thread or more, as text
# and as JSON; runs that skip the step and runs that roll back, over several processes.
. "$1/tests/support/check.sh"
needs_python
small_data "$work/data" 400 100 || exit $?
needs_faults "$work/data"

run() { # STATUS NAME ARGUMENT...: 8 steps of 2 towers x 8 in a process each
    local wanted=$1 name=$2 status
    shift 2
    timeout -s KILL 200 "$towers" train fashion_cnn --data-path "$work/data" --towers 2 --processes 2 --threads 1 \
        --batch-size 8 --max-steps 8 --device cpu --output-dir "$work" --experiment "$name" "$@" \
        >"$work/out" 2>"$work/err" </dev/null
    status=$?
    [[ $status == "$wanted" ]] || complain "$name: exit $status instead of $wanted: $(tail -5 "$work/err")"
}

says() { # FILE TEXT
    grep -qF -- "$2" "$work/$1" || complain "$1 does not say '$2': $(tail -12 "$work/$1")"
}

replay() { # STATUS ARGUMENT...
    local wanted=$1 status
    shift
    timeout -s KILL 200 "$towers" replay --device cpu "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    [[ $status == "$wanted" ]] || complain "replay $*: exit $status instead of $wanted: $(tail -5 "$work/err")"
}

# ---- the tower of the second process: named by the first
TOWERS_FAULT="nan:tower=1,step=5,layer=conv2,activity=forward,index=7" run 8 forward
says err "tower 1, step 5: loss and gradient are not finite"
says err "first in forward, op 3, layer conv2 (conv), tensor conv2 (8x64x11x11 f32): element 7 (n 0, c 7, h 0, w 0) is nan"
says err "in 1 of 8 samples, the first is number "
says err "train-images-idx3-ubyte"
says err "capsule: towers replay $work/forward/nan-step-5-tower-1"
[[ $(grep -c '^error: ' "$work/err") == 1 ]] || complain "not one error: $(cat "$work/err")"
[[ $(cat "$work/forward/ckpt/latest") == step-0000000004 ]] || complain "forward: the newest checkpoint is not that of step 4"
grep -q 'stopped: tower 1, step 5.*layer conv2' "$work/forward/log.txt" || complain "log.txt does not name the layer"
capsule=$work/forward/nan-step-5-tower-1
for file in batch.safetensors model.safetensors train.safetensors state.json MANIFEST; do
    [[ -s $capsule/$file ]] || complain "the capsule has no $file"
done
sample=$(sed -nE 's/.*the first is number ([0-9]+) .*/\1/p' "$work/err")
python3 - "$capsule/state.json" "$sample" <<'PYTHON' || complain "state.json"
import json, sys
state = json.load(open(sys.argv[1]))
assert state["samples"][0]["id"] == int(sys.argv[2]), state["samples"][0]
assert [row["step"] for row in state["ledger"]] == [1, 2, 3, 4, 5]
assert state["ledger"][3]["tower_loss"][0] is not None
assert state["found"]["layer"] == "conv2" and state["found"]["value"] == "nan"
PYTHON

grep -qF 'first in</th><td>forward, op 3, layer conv2 (conv)' "$work/forward/report.html" || complain "the report does not name the layer"
grep -qF "towers replay $capsule" "$work/forward/report.html" || complain "the report does not say how to run it again"

replay 8 "$capsule"
says out "The cause was an injected fault, not the data: nan:tower=1,step=5,layer=conv2,activity=forward,index=7"
says out "It is injected again."
tail -n 1 "$work/out" | grep -q '^ *3  forward   conv  .* 1$' || complain "the table does not end at the op: $(tail -n 2 "$work/out")"
says err "not finite, first in forward, op 3, layer conv2 (conv), tensor conv2"
says err "(as in the run)"
replay 8 "$capsule" --quiet --threads 2
[[ -s $work/out ]] && complain "--quiet is not"
replay 8 "$capsule" --json
python3 -c '
import json, sys
root = json.load(open(sys.argv[1]))
assert root["as_in_the_run"] and not root["finite"] and root["layer"] == "conv2" and root["index"] == 7, root
assert [row["op"] for row in root["ops"] if row["not_finite"]] == [3]
assert all(row["min"] is not None for row in root["ops"][:3])' "$work/out" || complain "the JSON of a replay"

replay 5 "$capsule" --gpus 0
replay 5 "$capsule" --amp --amp-dtype fp16
replay 8 "$capsule" --no-amp

# ---- without the fault there is nothing to find: it was not the data
sed 's/"fault": ".*"/"fault": ""/' "$capsule/state.json" >"$work/state.json"
cp -r "$capsule" "$work/touched"
cp "$work/state.json" "$work/touched/state.json"
replay 4 "$work/touched"
says err "state.json"
replay 4 "$work/data"
replay 2
says err "no capsule given"

# ---- a real one: a rate that blows the weights up
# fault: F29
run 8 blown --opt sgd --lr 1e6 --max-steps 50
says err "first in "
capsule=$(ls -d "$work"/blown/nan-step-*)
replay 8 "$capsule"
says err "(as in the run)"
grep -q "injected" "$work/out" && complain "a real NaN is called injected"

# ---- backward, and other places
TOWERS_FAULT="inf:tower=0,step=2,layer=fc1,activity=backward" run 8 backward
says err "first in backward, op "
says err "layer fc1 ("
replay 8 "$work/backward/nan-step-2-tower-0"
says err "(as in the run)"
TOWERS_FAULT="nan:tower=0,step=2,where=grad" run 8 grad
says err "first in gradient, tensor gradient of "
replay 8 "$work/grad/nan-step-2-tower-0"
TOWERS_FAULT="nan:tower=0,step=2,where=loss" run 8 loss
says err "first in loss, tensor loss"
TOWERS_FAULT="nan:tower=0,step=2,layer=conv9" run 2 conv9
says err "no layer 'conv9'"
TOWERS_FAULT="nan:tower=0,step=2,where=there" run 2 there

# ---- towers that normalize together: the first NaN, not the one that came over with the means; and again alone
together() { # FAULT TOWER TEXT
    rm -rf "$work/together"
    TOWERS_FAULT=$1 timeout -s KILL 200 "$towers" train inception_mini --data-path "$work/data" --towers 3 --processes 3 \
        --threads 1 --tower-batch 8,8,4 --max-steps 4 --eval-interval 0 --bn-stats sync --comm-timeout 20 --device cpu \
        --output-dir "$work" --experiment together >"$work/out" 2>"$work/err" </dev/null
    [[ $? == 8 ]] || complain "together: not exit 8: $(cat "$work/err")"
    says err "error: tower $2, step 3: "
    says err "$3"
    replay 8 "$work/together/nan-step-3-tower-$2"
    says err "$3"
    says err "(as in the run)"
}
together "nan:tower=1,step=3,layer=Mixed_5a.branch3x3_2,index=77" 1 "first in forward, op 42, layer Mixed_5a.branch3x3_2.conv (conv)"
together "inf:tower=2,step=3,layer=Mixed_5a.branch3x3_2,activity=backward" 2 "first in backward, op 111, layer Mixed_5a.branch3x3_2.bn (batchnorm_dx)"

# ---- only the first steps of a run that skips leave capsules
many=$(for step in 2 3 4 5 6; do printf 'nan:tower=1,step=%d;' $step; done)
TOWERS_FAULT=$many run 0 skip --nan-policy skip
[[ $(ls -d "$work"/skip/nan-step-* | wc -l) == 3 ]] || complain "not 3 capsules: $(ls "$work/skip")"
says err "warning: step 6 is not finite and is skipped (5 so far)"
TOWERS_FAULT=$many run 8 skip-limit --nan-policy skip --nan-limit 4
says err "5 steps in a row were not finite"

# ---- back to a checkpoint: the same run for any number of processes, and as if the step had been skipped
TOWERS_FAULT="nan:tower=1,step=6,layer=fc2" run 0 back --nan-policy rollback --checkpoint-steps 4
says err "step 6 is not finite: back to the checkpoint of step 4 (1 of 10), step 6 will be left out"
TOWERS_FAULT="nan:tower=1,step=6,layer=fc2" run 0 back-one --nan-policy rollback --checkpoint-steps 4 --processes 1
TOWERS_FAULT="nan:tower=1,step=6,layer=fc2" run 0 back-skip --nan-policy skip
cmp "$work/back/last.safetensors" "$work/back-one/last.safetensors" || complain "another run with another number of processes"
cmp "$work/back/last.safetensors" "$work/back-skip/last.safetensors" || complain "not the run without step 6"
[[ $(wc -l <"$work/back/metrics.jsonl") == 8 ]] || complain "rows of metrics: $(cut -c1-12 "$work/back/metrics.jsonl")"

# ---- killed after a rollback: the rest is the same
TOWERS_FAULT="nan:tower=1,step=3;kill:tower=0,step=7" run 7 killed --nan-policy rollback --checkpoint-steps 5
TOWERS_FAULT="nan:tower=1,step=3" run 0 killed --nan-policy rollback --checkpoint-steps 5 --resume auto
TOWERS_FAULT="nan:tower=1,step=3" run 0 unharmed --nan-policy rollback --checkpoint-steps 5
cmp "$work/killed/last.safetensors" "$work/unharmed/last.safetensors" || complain "resumed after a rollback: other weights"

check_end "a NaN is traced to its op, and replayed"
