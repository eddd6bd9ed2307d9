#!/usr/bin/env bash
# What a run's folder is good for: evaluated, exported and described by its name alone, started from, found complete when
# it is resumed; and what is said where results have nowhere to go. Arguments: source folder, binary.
set -u
. "$1/tests/support/check.sh"
check_begin one-run "$@"
small_data "$work/data" 64 30 || exit $?
cd "$work" || exit 1

# ends CODE TEXT ARGUMENT...: exit code, TEXT in what is printed
ends() {
    local code=$1 text=$2 status
    shift 2
    "$towers" "$@" >out 2>err </dev/null
    status=$?
    [[ $status == "$code" ]] || complain "towers $*: exit $status instead of $code: $(cat err)"
    grep -qF -- "$text" out err || complain "towers $*: wanted '$text', got: $(cat out err)"
}

train=(train fashion_cnn --device cpu --data-path "$work/data" -b 16 --img-size 20 --classes 12)
ends 0 "run directory" "${train[@]}" --epochs 1 --experiment one

# a run in the place of a model: its model, image size, classes, data and weights
ends 0 "[30 examples]" eval runs/one --device cpu
cp out by_run
ends 0 "[30 examples]" eval fashion_cnn --weights runs/one --data-path "$work/data" --img-size 20 --classes 12 --device cpu
cmp -s out by_run || complain "eval RUN: $(cat by_run), eval MODEL: $(cat out)"
ends 0 "12 classes" export runs/one
ends 0 "12 x 1 x 1" info runs/one --device cpu
ends 0 "data-path: \"$work/other\"" eval runs/one --data-path "$work/other" --data-path "$work/other" --dataset synthetic --print-config
ends 2 "has no env.json" eval "$work/data"
ends 2 "no run 'runs/two': No such file or directory" eval runs/two
ends 2 "no model 'fashion_cn'; did you mean fashion_cnn?" eval fashion_cn
ends 2 "is a file; wanted a model or the folder of a run" export runs/one/last.safetensors
mkdir fashion_cnn # a folder that is called as a model does not stand in its way
ends 2 "eval needs --weights" eval fashion_cnn
echo '{}' >runs/one/env.json
ends 2 "has no env.json" eval runs/one
ends 2 ".safetensors or .onnx" export fashion_cnn a.pth --weights runs/one

# from a run, on in a run
ends 0 "run directory runs/two" "${train[@]}" --epochs 1 --experiment two --pretrained runs/one
ends 4 "holds no weights" "${train[@]}" --epochs 1 --experiment three --pretrained "$work/data"
ends 0 "all steps are done" "${train[@]}" --epochs 1 --resume runs/two
ends 2 "then nothing, now epochs: 2" "${train[@]}" --epochs 2 --resume runs/two --sched cosine
ends 0 "run directory runs/short" "${train[@]}" --towers 2 --max-steps 2 --eval-interval 0 --sched cosine --experiment short
ends 2 "then max-steps: 2, now max-steps: not set" "${train[@]}" --towers 2 --resume runs/short --sched cosine
ends 2 "then img-size: 20, now img-size: not set" train fashion_cnn --device cpu --data-path "$work/data" --resume runs/short

# of a run that is too short to say anything, nothing is said in numbers
ends 0 "too few steps" compare runs/short runs/one
grep -nwE -- '[-+]?(nan|inf)' out && complain "compare prints numbers that are none"
ends 0 "run directory runs/none" "${train[@]}" --epochs 0 --experiment none
grep -q 'no report' err && complain "--epochs 0: $(cat err)"

# help speaks of files of options where there are some
ends 0 "of --config FILE" eval --help
ends 0 "An option can also be a variable TOWERS_FLAG" compare --help

# a benchmark counts what it times, without the warm-up
ends 0 "Num batches: 3" bench fashion_cnn --device cpu -b 4 --batches 3 --warmup-batches 1
ends 0 "1 tower in 1 process on cpu" bench fashion_cnn --device cpu -b 4 --batches 1 --warmup-batches 0

# results that nobody can read are a failure, a console that nobody reads is none
"$towers" eval fashion_cnn --weights runs/two --data-path "$work/data" --img-size 20 --classes 12 --device cpu >&- 2>err
[[ $? == 6 ]] || complain "eval with a closed standard output is no failure: $(cat err)"
"$towers" "${train[@]}" --epochs 1 --experiment closed <&- >&- 2>&- || complain "train with nothing open"

# a limit of file sizes is a failure to store, not the end of a tower
(ulimit -f 100 && ends 6 "File too large" "${train[@]}" --epochs 1 --experiment limited && ((failures == 0))) || failures=$((failures + 1))

# as a user who may not look: why, not what is not there
if [[ $(id -u) == 0 ]] && command -v setpriv >/dev/null; then
    chmod 755 "$work" && mkdir -m 700 closed && cp "$work"/data/* closed/
    setpriv --reuid=65534 --regid=65534 --clear-groups "$towers" train fashion_cnn --device cpu --data-path "$work/closed" --dry-run >out 2>err
    [[ $? == 2 ]] && grep -q "Permission denied" err || complain "a folder that may not be read: $(cat out err)"
fi

check_end "a run's folder is enough"
