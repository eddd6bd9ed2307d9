#!/usr/bin/env bash
# A resumed run has the settings of the run it continues; only changes are given. A checkpoint, or a run together with another
# directory, starts a branch in a folder of its own, with the records up to that step and the same weights as the run itself; the old
# run stays unchanged byte for byte. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
small_data "$work/small" 70 30 || exit $?
settings=(--data-path small --device cpu --threads 1 --towers 2 -b 8 --seed 4 --opt sgd --lr 0.05 --checkpoint-steps 5 --keep 9 --log-samples)

train() { # STATUS ARGUMENT...
    local wanted=$1 status
    shift
    timeout -s KILL 120 "$towers" train "$@" >out 2>err </dev/null
    status=$?
    [[ $status == "$wanted" ]] || complain "$*: exit $status instead of $wanted: $(cat err)"
}
sums() { (cd "$1" && find . -type f -exec sha256sum {} + | sort); }
rows() { timeless "$1/metrics.jsonl"; }
same() { # A B
    cmp "$1/last.safetensors" "$2/last.safetensors" || complain "last.safetensors of $1 and $2 differ"
    cmp "$1/best.safetensors" "$2/best.safetensors" || complain "best.safetensors of $1 and $2 differ"
    diff <(rows "$1") <(rows "$2") >diff || complain "records of $1 and $2 differ: $(head -c 400 diff)"
    diff <(sort "$1/samples.csv") <(sort "$2/samples.csv") >diff || complain "samples of $1 and $2 differ: $(head -c 400 diff)"
    diff <(cut -d, -f1-8 "$1/results.csv") <(cut -d, -f1-8 "$2/results.csv") || complain "results.csv of $1 and $2 differ"
}

# steps of 16 images: an epoch is 5
train 0 fashion_cnn "${settings[@]}" --epochs 4 --experiment straight
train 0 fashion_cnn "${settings[@]}" --epochs 2 --experiment one
train 0 fashion_cnn --resume auto --epochs 4 # the newest is one; nothing else is said
same runs/straight runs/one
grep -q '^lr: 0.05 .*# from run' runs/one/args.yaml || complain "args.yaml: $(grep '^lr' runs/one/args.yaml)"
train 0 --resume runs/one # the model too is known
train 2 fashion_cnn --resume runs/one --lr 0.1 --epochs 5
grep -q 'then lr: 0.05, now lr: 0.1' err || complain "a change is not refused: $(cat err)"

before=$(sums runs/one)
train 0 fashion_cnn --resume runs/one/ckpt/step-0000000010 --output-dir other --experiment branch
[[ $(sums runs/one) == "$before" ]] || complain "a branch changed the old run: $(diff <(echo "$before") <(sums runs/one))"
same runs/straight other/branch
train 0 fashion_cnn --resume runs/one --output-dir other --experiment longer --epochs 6
[[ $(sums runs/one) == "$before" ]] || complain "a branch of a run changed it: $(diff <(echo "$before") <(sums runs/one))"
train 0 fashion_cnn "${settings[@]}" --epochs 6 --experiment six
same runs/six other/longer
train 0 fashion_cnn --resume runs/one/ckpt/step-0000000010 # in a folder named by the time, beside the others
[[ $(sums runs/one) == "$before" && $(ls runs | wc -l) == 4 ]] || complain "a branch without a name: $(ls runs)"
train 2 fashion_cnn --resume runs/one/ckpt/step-0000000010 --experiment six
grep -q 'already contains a run' err || complain "a branch over another run: $(cat err)"

# what began from weights goes on without them
cp runs/one/last.safetensors weights.safetensors
train 0 fashion_cnn "${settings[@]}" --epochs 1 --experiment tuned --pretrained weights.safetensors --reset-head
rm weights.safetensors
train 0 fashion_cnn --resume auto --experiment tuned --epochs 2

# a run whose settings are lost goes on with those that are given, and says so
rm runs/tuned/args.yaml
train 0 fashion_cnn "${settings[@]}" --resume auto --experiment tuned --epochs 3
grep -q 'warning: runs/tuned has no args.yaml' err || complain "lost settings are not reported: $(cat err)"

# an epoch that was cut short and then completed is one row
train 0 fashion_cnn "${settings[@]}" --max-steps 8 --experiment cut
train 0 fashion_cnn --resume auto --experiment cut --max-steps 20
[[ $(cut -d, -f1 runs/cut/results.csv | tail -n +2 | tr '\n' ' ') == "1 2 3 4 " ]] || complain "epochs of results.csv: $(cut -d, -f1,2 runs/cut/results.csv)"

check_end "a resumed run needs no settings, and a branch leaves the old run as it is"
