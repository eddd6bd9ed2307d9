#!/usr/bin/env bash
# --img-size-schedule: each part of the run trains on images of its size, as a run of that size would, and evaluates at the last one; a run
# that is stopped or killed before, at and after a change and resumed ends with the bits of an undisturbed one, on one tower and several,
# on any number of processes and nodes; together with --unfreeze-epoch; branches; capsules; what is refused.
. "$1/tests/support/check.sh"
. "$source_dir/tests/support/hosts.sh"
needs_python
small_data data 96 64 || exit 77

# run NAME ARGUMENT...: 6 steps an epoch; in several programs if `launch` is a launcher
launch=()
run() {
    local name=$1
    shift
    timeout 300 "${launch[@]}" "$towers" train inception_mini --data-path data --global-batch-size 16 --workers 0 --threads 1 --lr 0.003 --opt adam --sched constant --smoothing 0 \
        --augment --epochs 4 --seed 5 --summary-interval 2 ${loud:---quiet} --experiment "$name" "$@" >out 2>err </dev/null
}
sides='--img-size-schedule 8:0,12:1,16:3'
good() { run "$@" || complain "train $*: exit $?: $(tail -n 3 err)"; }
same() { # NAME OF_NAME
    cmp -s "runs/$1/last.safetensors" "runs/$2/last.safetensors" || complain "$1 has other weights than $2"
    diff <(timeless "runs/$1/metrics.jsonl") <(timeless "runs/$2/metrics.jsonl") >/dev/null || complain "$1 has other records than $2"
}

# shellcheck disable=SC2086 # several words
{
    good whole $sides
    good small --img-size 8 --epochs 1
    good four $sides --towers 4 --processes 1
    good four-processes $sides --towers 4 --processes 2
}
same four-processes four
diff <(timeless <(head -n 6 runs/whole/metrics.jsonl)) <(timeless runs/small/metrics.jsonl) >/dev/null ||
    complain "the first epoch is not that of a run of its size"
for text in 'images of 8 x 8 pixels after step 0' 'images of 12 x 12 pixels after step 6' 'images of 16 x 16 pixels after step 18'; do
    grep -q "$text" runs/whole/log.txt || complain "log.txt does not say: $text"
done
"$towers" eval runs/whole/last.safetensors --data-path data --json >out 2>err || complain "eval: $(cat err)"
python3 - <<'PYTHON' || complain "an evaluation of the run differs from that of its weights"
import csv, json
last = list(csv.DictReader(open("runs/whole/results.csv")))[-1]
assert abs(float(last["test_loss"]) - json.load(open("out"))["loss"]) < 1e-5, last
PYTHON

# ---- stopped and killed
# shellcheck disable=SC2086
for steps in 3 6 9 18 20; do
    good "stopped-$steps" $sides --max-steps "$steps"
    good "stopped-$steps" --resume auto --max-steps 24
    same "stopped-$steps" whole
done
# shellcheck disable=SC2086
{
    good after $sides --towers 4 --processes 2 --max-steps 15
    good after --resume auto --max-steps 24 --processes 1
    same after four
    good both $sides --freeze '*,!fc*' --unfreeze-epoch 3 --ema-decay 0.9
    good both-parts $sides --freeze '*,!fc*' --unfreeze-epoch 3 --ema-decay 0.9 --max-steps 14
    good both-parts --resume auto --max-steps 24
    same both-parts both
}
# ---- stopped in the evaluation behind the last step, which is that of the last size; and finished, when nothing is left to do
# shellcheck disable=SC2086
{
    good pooled $sides --towers 4 --processes 2 --bn-stats pooled --eval-batch-size 8
    loud=--log-interval=1 TOWERS_FAULT=delay:tower=0,step=24,activity=evaluation,ms=1500 run owed $sides --towers 4 --processes 2 --bn-stats pooled --eval-batch-size 8 &
    wait_until grep -q '^step 24/' err
    sleep 0.1
    kill -TERM "$(cat runs/owed/.lock)"
    wait $!
    [[ $(wc -l <runs/owed/results.csv) == 4 ]] || complain "stopped behind the last evaluation, not in it"
    leaves_alone runs/pooled run pooled --resume auto --processes 1
    leaves_alone runs/both run both --resume auto
    good owed --resume auto
}
same owed pooled
cut -d, -f 1-6 runs/owed/results.csv | cmp -s - <(cut -d, -f 1-6 runs/pooled/results.csv) || complain "an evaluation that was stopped has another result: $(diff runs/{owed,pooled}/results.csv)"
good early $sides --towers 4 --stop-epoch 3 # where the next size would begin
leaves_alone runs/early run early --resume auto --stop-epoch 3
rm runs/early/last.safetensors runs/early/outcome.json # killed before it had ended
good early --resume auto --stop-epoch 3
good early-again $sides --towers 4 --stop-epoch 3
same early early-again
slow=delay:tower=0,step=1,ms=100 # so that no run ends before it is killed
# shellcheck disable=SC2086
for rows in 4 6 9 18; do TOWERS_FAULT=$slow kill_at_row killed "$rows" run killed $sides --resume auto --checkpoint-steps 1; done
good killed --resume auto
same killed whole
good branch --resume "$(ls -d runs/stopped-9/ckpt/step-*18)"
cmp -s runs/branch/last.safetensors runs/whole/last.safetensors || complain "a branch has other weights"

# ---- several nodes
mpirun_find
if ((${#mpirun[@]})); then
    # shellcheck disable=SC2086
    {
        good both-four $sides --freeze '*,!fc*' --unfreeze-epoch 3 --ema-decay 0.9 --towers 4
        launch=("${mpirun[@]}" 2)
        good two $sides --towers 4
        good both-two $sides --freeze '*,!fc*' --unfreeze-epoch 3 --ema-decay 0.9 --towers 4 --max-steps 6
        launch=("${mpirun[@]}" 4)
        good both-two --resume auto --max-steps 13
        TOWERS_FAULT=$slow kill_at_row both-two 18 run both-two --resume auto --max-steps 24 --checkpoint-steps 1
        TOWERS_FAULT=$slow other_dies both-two 19 KILL run both-two --resume auto --max-steps 24 --checkpoint-steps 1
        ((ended)) || complain "rank 1 was killed, and the run goes on"
        good both-two --resume auto --max-steps 24
    }
    launch=()
    same two four
    same both-two both-four
else
    left_out "--img-size-schedule in several programs: this build has no MPI, or mpirun is missing"
fi

# ---- what the epochs of a run do not reach is said
says_unreached() { # 1 or 0, ARGUMENT...: with or without the warning
    "$towers" train inception_mini --data-path data --max-steps 1 -b 8 "${@:2}" >out 2>err </dev/null || complain "$*: $(cat err)"
    [[ $(grep -c "warning: --$schedule: its last part begins after 2 epochs and is not reached by --epochs" err) == "$1" ]] || complain "$*: $(cat err)"
}
for schedule in "img-size-schedule 8:0,12:2" "lr-schedule 0.1;2;0.01 --sched piecewise"; do
    read -ra words <<<"--$schedule"
    schedule=${schedule%% *}
    says_unreached 1 "${words[@]}" --epochs 2
    says_unreached 1 "${words[@]}" --epochs 1
    says_unreached 0 "${words[@]}" --epochs 3
    says_unreached 0 "${words[@]}" --epochs 3 --stop-epoch 1
done

# ---- refused
refused() { refuses '[25]' "$1" "$towers" train "$2" --data-path data --dry-run "${@:3}"; } # TEXT MODEL ARGUMENT...
for wrong in 8:1 8 "8:0," 8:0,12 8:0,12:0 12:0,8:1 8:0x,12:1 8:0,12:1:2 -8:0 0:0 5000:0 ''; do
    refused 'img-size-schedule' inception_mini --img-size-schedule "$wrong"
done
refused 'character 5: expected SIDE:EPOCH' inception_mini --img-size-schedule 8:0,x
refused 'ends with 12, but --img-size is 16' inception_mini --img-size-schedule 8:0,12:1 --img-size 16
refused '4 is too small for inception_mini' inception_mini --img-size-schedule 4:0,12:1
refused 'depend on the size of its images' fashion_cnn --img-size-schedule 20:0,28:1
check_end "images that grow: each part as a run of its size, resumed after any end, on any number of processes"
