#!/usr/bin/env bash
# towers lr-find: the curve is what Python makes of the losses, the same on one and on four towers; it leaves nothing behind, so a run with
# --lr auto has the bits of one that is given the rate, and is resumed with it, also on several nodes, which end together when
# the sweep does not; what has no answer is refused.
. "$1/tests/support/check.sh"
. "$source_dir/tests/support/hosts.sh"
needs_python
small_data "$work/data" 1024 50 || exit 77

find_rate() { # OUT ARGUMENT...
    timeout 200 "$towers" lr-find fashion_cnn --data-path data --threads 1 --device cpu --quiet --global-batch-size 32 "${@:2}" >"$1" 2>err ||
        complain "${*:2}: exit $?: $(cat err)"
}
train() { # NAME ARGUMENT...
    "$towers" train fashion_cnn --data-path data --threads 1 --device cpu --quiet --global-batch-size 32 --summary-interval 0 --eval-interval 0 \
        --experiment "$1" "${@:2}" >/dev/null 2>err || complain "$1: exit $?: $(cat err)"
}
refused() { refuses '[1-9]' "$1" "$towers" "${@:2}"; } # TEXT COMMAND ARGUMENT...

find_rate one.json --json
find_rate again.json --json
find_rate four.json --json --towers 4 --processes 2
find_rate sgd.json --json --opt sgd
find_rate short.json --json --lr-from 1e-4 --lr-to 1 --lr-steps 40
find_rate few.json --json --lr-steps 20
find_rate high.json --json --lr-to 1e4
find_rate together.json --json --lr-to 1e4 --towers 2 --processes 2
find_rate text
cmp -s one.json again.json || complain "a second sweep gives other numbers"
[ ! -e runs ] || complain "the sweep has left a run directory"
grep -q "learning rate$" text && grep -qE "^suggestion: --lr [0-9.e-]+ \(O: " text && grep -q O <(head -n 12 text) || complain "text: $(cat text)"

train auto --lr auto --max-steps 40
rate=$(python3 -c 'import json; print(repr(json.load(open("runs/auto/lr-find.json"))["suggestion"]))')
train given --lr "$rate" --max-steps 40
train half --lr auto --max-steps 20
train half --lr auto --max-steps 40 --resume runs/half
train scaled --lr auto --lr-reference-batch 64 --max-steps 20 # args.yaml has the rate for 64 images
train scaled --lr auto --lr-reference-batch 64 --max-steps 40 --resume runs/scaled
train summed --lr auto --lr-reference-batch 32 --accumulate 4 --max-steps 2
for run in given half scaled; do
    cmp -s <(tensors runs/auto/last.safetensors) <(tensors runs/$run/last.safetensors) || complain "--lr auto and $run give other weights"
done
# Whatever else changes rates: the run is that of the rate in its args.yaml.
for other in "--sched cosine --warmup-epochs 0.1" "--sched step --decay-epochs 0.2 --decay-rate 0.5" "--opt momentum --sched onecyclelr" \
    "--layer-decay 0.5 --towers 4" "--lr-mult fc1.weight=0.1 --accumulate 2 --lr-reference-batch 128" "--opt lars --sched polynomial --min-lr 1e-4 --lr-reference-batch 48"; do
    train found --lr auto --max-steps 12 $other
    train told --lr "$(awk '/^lr: /{print $2}' runs/found/args.yaml)" --max-steps 12 $other
    cmp -s <(tensors runs/found/last.safetensors) <(tensors runs/told/last.safetensors) || complain "--lr auto $other gives other weights than the rate of its args.yaml"
    rm -r runs/found runs/told
done
# What the options of the sweep's job became is said to whoever started the run, once.
small_data "$work/tiny" 40 10
for lr in auto 0.001; do
    "$towers" train fashion_cnn --data-path tiny --threads 1 --device cpu --lr $lr --max-steps 2 --experiment tiny-$lr >/dev/null 2>err || complain "tiny: $(cat err)"
    [[ $(grep -c '^batch size 40 instead of 64, as there are 40 training samples$' err) == 1 ]] || complain "--lr $lr: what became of the batch: $(cat err)"
done
grep -q "^lr: $rate " runs/auto/args.yaml || complain "args.yaml has $(grep '^lr:' runs/auto/args.yaml)"
grep -q "Learning rates that were tried" runs/auto/report.html || complain "the report has no curve"
grep -q "Learning rates that were tried" runs/given/report.html && complain "the report of a run without a sweep has a curve"
[ "$("$towers" train fashion_cnn --lr auto --print-config 2>/dev/null | sed -n 's/^lr: \([a-z]*\).*/\1/p')" = auto ] || complain "--print-config"

refused "--lr-to 1e-08 is not above --lr-from 1e-06" lr-find fashion_cnn --data-path data --lr-to 1e-8
refused "the loss did not fall" lr-find fashion_cnn --data-path data --lr-from 1000 --lr-to 1e5
refused "--lr auto works only with train" bench fashion_cnn --lr auto
refused "--lr auto has no effect with --sched piecewise" train fashion_cnn --data-path data --lr auto --sched piecewise --lr-schedule '0.1;1;0.01'
refused "do not show which learning rate is best" lr-find wgan_gp --data-path data
refused "or auto" train fashion_cnn --lr automatic
echo "lr: auto" >auto.yaml
refused "'lr: auto' is no setting of a recipe" train fashion_cnn --data-path data --recipe ./auto.yaml
refused "--lr is not an option of 'towers lr-find'" lr-find fashion_cnn --lr 1

# ---- weights to begin with are those of the sweep, too
find_rate tuned.json --json --pretrained runs/auto/last.safetensors

# ---- a step that is refused ends the sweep, whatever --nan-policy says; so does a request to stop, as it ends a run
if TOWERS_FAULT=none: "$towers" lr-find fashion_cnn --data-path data --dry-run >/dev/null 2>&1; then
    left_out "a sweep that is disturbed: this binary has no fault points"
else
    for policy in rollback skip; do
        TOWERS_FAULT=nan:tower=0,step=40,layer=conv1,activity=forward,index=3 timeout 120 "$towers" train fashion_cnn --data-path data --device cpu --threads 1 \
            --lr auto --nan-policy $policy --max-steps 1 --experiment nan-$policy >out 2>err </dev/null
        [[ $? == 0 || $? == 8 ]] && ! grep -q "step 40 is skipped" err || complain "a refused step of a sweep, --nan-policy $policy: $(tail -3 err)"
    done
    for signal in TERM USR2; do
        TOWERS_FAULT=delay:tower=0,step=5,ms=4000 timeout --preserve-status -s $signal 2 "$towers" train fashion_cnn --data-path data --device cpu --threads 1 --lr auto \
            --max-steps 1 --experiment stopped-$signal >out 2>err </dev/null
        [[ $? == $((128 + $(kill -l $signal))) ]] || complain "SIG$signal in a sweep: exit $?: $(tail -3 err)"
    done
fi

# ---- several nodes
mpirun_find
launched() { # PROGRAMS NAME ARGUMENT...: 4 towers
    local programs=$1
    shift
    new "$1"
    "${mpirun[@]}" "$programs" "$work/program" "$towers" train fashion_cnn --data-path data --threads 1 --device cpu --workers 0 --quiet --towers 4 \
        --global-batch-size 32 --summary-interval 0 --eval-interval 0 --lr auto --experiment "$@" >"$out" 2>"$err" </dev/null
}
ended() { # CODE NAME PROGRAMS TEXT: alike, with this message, and without a run
    all_codes "$1" "$2" "$3"
    grep -qE -- "$4" "$err" || complain "$2: nobody says '$4': $(cat "$err")"
    [ ! -e "runs/$2" ] || complain "$2: the sweep has left a run directory"
}
if ((${#mpirun[@]})); then
    train alone --towers 4 --lr auto --max-steps 12
    launched 2 two --max-steps 12
    all_codes 0 two 2
    launched 4 parts --max-steps 5
    launched 2 parts --max-steps 12 --resume runs/parts
    all_codes 0 parts 2
    for run in two parts; do
        cmp -s runs/alone/last.safetensors runs/$run/last.safetensors || complain "$run: other weights than in one program"
        cmp -s runs/alone/lr-find.json runs/$run/lr-find.json || complain "$run: another curve than in one program"
        [ "$(awk '/^lr: /{print $2}' runs/alone/args.yaml)" = "$(awk '/^lr: /{print $2}' runs/$run/args.yaml)" ] || complain "$run: another rate"
    done
    launched 2 tuned --pretrained runs/alone/last.safetensors --max-steps 1
    all_codes 0 tuned 2
    new mixed && echo 'more="--lr 0.01"' >"$codes/before-1"
    launched 2 mixed
    ended 2 mixed 2 "this rank has other settings than rank 0: '--lr: "
    if ! TOWERS_FAULT=none: "$towers" lr-find fashion_cnn --data-path data --dry-run >/dev/null 2>&1; then
        TOWERS_FAULT=nan:tower=3,step=5,layer=conv1,activity=forward,index=3 launched 2 nothing
        ended 8 nothing 2 "the loss did not fall at any rate"
        [[ $mpirun_of == mpich ]] || TOWERS_FAULT=kill:tower=3,step=20,activity=backward launched 2 dies
        [[ $mpirun_of == mpich ]] || ended 7 dies 2 "tower [23] .* killed by signal 9"
        dies() { # NAME SIGNAL WHO: this process of rank 1 gets it in the sweep
            TOWERS_FAULT=delay:tower=2,step=5,ms=4000 launched 2 "$1" &
            local job=$!
            wait_until test -s "$work/codes-$1/shell-1"
            codes=$work/codes-$1
            wait_until pgrep -P "$(pgrep -P "$(cat "$codes/shell-1")" '^towers$')" '^tower2$' >/dev/null
            sleep 1
            victim=$(pgrep -P "$(cat "$codes/shell-1")" '^towers$')
            [[ $3 == program ]] || victim=$(pgrep -P "$victim" "^$3\$")
            kill "-$2" "$victim"
            wait $job
        }
        dies stop-1 TERM program
        ended 143 stop-1 2 "stopped by SIGTERM"
        # fault: F47
        if [[ $mpirun_of != mpich ]]; then # Hydra kills all at once
            dies kill-1 KILL program
            [[ $(cat "$codes/0") == 7 ]] || complain "rank 1 was killed in the sweep, and rank 0 ended with $(cat "$codes/0"): $(cat "$err")"
            dies carrier-1 KILL carrier
            ended 7 carrier-1 2 "the process that carries messages to other programs, [0-9]+, has ended"
        fi
    fi
else
    left_out "--lr auto in several programs: this build has no MPI, or mpirun is missing"
fi

python3 - <<'PYTHON' || failures=$((failures + 1))
import json, sys
failed = []
def expect(good, what):
    if not good: failed.append(what)
def load(name): return json.load(open(name))
one, four, short, few = load('one.json'), load('four.json'), load('short.json'), load('few.json')
for found, low, high, steps in (one, 1e-6, 10, 100), (four, 1e-6, 10, 100), (load('sgd.json'), 1e-6, 10, 100), (short, 1e-4, 1, 40), (few, 1e-6, 10, 20):
    delay = min(9, steps // 10) # of few steps fewer are smoothed
    average, smoothed, old = 0, [], delay / (delay + 1)
    for i, (rate, loss) in enumerate(zip(found['lr'], found['loss'])):
        expect(abs(rate / (low * (high / low) ** (i / (steps - 1))) - 1) < 1e-9, ('rate', i, rate))
        average = old * average + (1 - old) * loss
        smoothed.append(average / (1 - old ** (i + 1)))
    expect(len(smoothed) == found['steps'] == len(found['smoothed']), found['steps'])
    expect(all(abs(a - b) < 1e-9 for a, b in zip(smoothed, found['smoothed'])), 'smoothed')
    expect(all(value <= 4 * min(smoothed[:i + 1]) for i, value in enumerate(smoothed[:-1])), 'went on after it had diverged')
    lowest = smoothed.index(min(smoothed))
    slopes = [((smoothed[i + 1] - smoothed[i - 1]) / 2, i) for i in range(steps // 10 + delay, lowest)]
    expect(found['suggestion'] == found['lr'][min(slopes)[1] - delay], ('suggestion', found['suggestion'], min(slopes)))
high = load('high.json')
expect(high['steps'] < 100 and high['smoothed'][-1] > 4 * min(high['smoothed']) > high['smoothed'][-2], ('the end of a sweep that diverges', high['smoothed'][-3:]))
expect(one['suggestion'] == four['suggestion'] and four['towers'] == 4, (one['suggestion'], four['suggestion']))
expect(all(abs(a - b) < 1e-3 for a, b in zip(one['loss'][:60], four['loss'][:60])), 'losses of four towers')
expect(1e-3 < one['suggestion'] < 0.03 < load('sgd.json')['suggestion'] < 1, (one['suggestion'], load('sgd.json')['suggestion']))
expect(2e-4 < few['suggestion'] < 0.05, ('few steps: the start of the smoothing, not a fall of the loss', few['suggestion']))
tuned = load('tuned.json')
expect(tuned['loss'][0] < 0.9 * one['loss'][0], ('--pretrained', tuned['loss'][0], one['loss'][0]))
for run in 'auto', 'scaled', 'summed': # the rate that was found is the one that is used
    rate = json.loads(open(f'runs/{run}/metrics.jsonl').readline())['lr']
    expect(abs(rate / load(f'runs/{run}/lr-find.json')['suggestion'] - 1) < 1e-9, ('the first rate', run, rate))
first = json.loads(open('runs/auto/metrics.jsonl').readline())
expect(abs(first['mean_loss'] - one['loss'][0]) < 1e-6, ('the first loss', first['mean_loss'], one['loss'][0]))
for what in failed:
    print('FAILED:', what)
sys.exit(bool(failed))
PYTHON
check_end "a learning rate is found alike on one and four towers, and a run with --lr auto has the bits of one that is given it"
