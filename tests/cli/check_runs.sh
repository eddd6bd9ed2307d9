#!/usr/bin/env bash
# towers runs: the state of runs that have finished, were stopped, refused a step, were killed, still run and cannot be read, with
# one tower and with several; the orders, JSON, and outcome.json where there is one. towers compare: the settings that differ.
. "$1/tests/support/check.sh"
needs_python

train() { # NAME ARGUMENT...
    local name=$1
    shift
    timeout 200 "$towers" train fashion_cnn --dataset synthetic --threads 1 --batch-size 8 --summary-interval 0 --quiet \
        --experiment "$name" "$@" >out 2>err </dev/null
}
train one --max-steps 6 --eval-interval 1 || complain "one: $(cat err)"
train several --towers 4 --max-steps 6 --lr 0.02 --eval-interval 1 || complain "several: $(cat err)"
train unscored --towers 2 --max-steps 4 --eval-interval 0 || complain "unscored: $(cat err)"
train "none # from x" --epochs 0 --eval-interval 0 || complain "none: $(cat err)"
PYTHONPATH=$source_dir/scripts PYTHONDONTWRITEBYTECODE=1 python3 -c '
import follow_run
settings = follow_run.settings("runs/none # from x")
assert (settings["experiment"], settings["epochs"]) == ("none # from x", "0"), settings' || complain "the settings that a follower reads"
train lives --towers 2 --max-steps 100000 --eval-interval 0 --metrics-interval 4 --batch-size 1 --checkpoint-steps 100 & # whose rows come within an epoch
trainer=$!
wait_until test -s runs/lives/metrics.jsonl
pid=$(cat runs/lives/.lock)
kill -HUP "$pid" # its terminal is closed
sleep 0.2
"$towers" runs --json >living.json || complain "runs of a live run: $(cat err)"
"$towers" runs >listed && grep -qE "^lives .* running .* pid $pid\$" listed || complain "the list does not say how to find a live run: $(cat listed)"
kill -KILL "$pid"
wait $trainer
cp -r runs/one runs/broken && echo "not a step" >runs/broken/metrics.jsonl && echo "{}" >>runs/broken/metrics.jsonl
cp -r runs/one runs/resumed && rm runs/resumed/outcome.json && echo "{}" >runs/resumed/heartbeat.json # and then killed
echo "12:00:00 stopped: an older cause" >>runs/resumed/log.txt
cp -r runs/one runs/.kept # a backup, or the files of an editor
wait_until flock -n runs/lives/.lock true
"$towers" runs --json >runs.json || complain "runs: $(cat err)"
cp -r runs/one runs/halted
echo '{"outcome": "ended early", "message": "no better for 3 epochs\nand more", "exit_code": 0}' >runs/halted/outcome.json
"$towers" runs runs/halted --json >halted.json || complain "one run: $(cat err)"
sed -i -E 's/("started_at": [0-9]+)[.][0-9]+/\1.0/' runs/halted/env.json
"$towers" runs --json >started.json || complain "runs in the order of their starts: $(cat err)"
"$towers" runs --sort score --json >score.json && "$towers" runs --sort name >names || complain "orders"
awk 'NR > 1 { print $1 }' names | sort -c || complain "not sorted by name: $(cat names)"
grep -qE '^broken +fashion_cnn +finished +- +- +- ' names || complain "a run that cannot be read has numbers: $(grep broken names)"
mkdir empty
"$towers" runs empty 2>err && complain "a folder without runs was accepted"
grep -q "'empty' has no run" err || complain "of an empty folder: $(cat err)"
"$towers" runs nowhere 2>err && complain "a missing folder was accepted"
"$towers" compare runs/one runs/several --json >pair.json || complain "compare"
"$towers" compare runs/one runs/several runs/unscored >text || complain "compare of three"
grep -qE "With one tower|of them full" text && complain "of runs with full steps, or one tower: $(cat text)"
grep -A9 "^Settings that differ" text | grep -qE '^  lr +0.001 +0.02 +0.001' || complain "no lr in the settings: $(cat text)"
for n in 1 2; do # longer than a column, and not: the first have lines of their own
    mkdir -p long && cp -r runs/one long/a$n
    sed -i "s/^# lr-mult: .*/lr-mult: \"conv1.weight=1,conv1.bias=1,conv2.weight=1,conv2.bias=$n,fc1.weight=1\" # from command line/
        s/^# freeze: .*/freeze: \"conv1.weight,conv1.bias,conv2.we*$n\" # from command line/" long/a$n/args.yaml
done
"$towers" compare long/a1 long/a2 >text || complain "compare of long values"
grep -qE '^    a1  conv1.weight=1,.*bias=1,fc1.weight=1$' text && grep -qE '^    a2  conv1.weight=1,.*bias=2,fc1.weight=1$' text &&
    grep -qE '^  freeze +conv1.weight,conv1.bias,conv2.we[*]1 +conv1.weight,conv1.bias,conv2.we[*]2$' text || complain "long values look equal: $(cat text)"
rm -r long

# ---- the best of several epochs: the highest accuracy or mAP, the lowest KID or loss, in this order
python3 - "$towers" <<'PY' || failures=$((failures + 1))
import csv, json, shutil, subprocess, sys
header = next(csv.reader(open('runs/one/results.csv')))
rows = {'accuracy': dict(train_loss=(3, 2, 1, 4), test_top1=(0.2, 0.5, 0.4, 0.3)), 'KID': dict(train_loss=(3, 2, 1, 4), kid=(0.4, 0.2, 0.1, 0.3)),
        'loss': dict(train_loss=(3, 1, 2, 4)), 'loss2': dict(train_loss=('nan', 3, 2.5, '')), 'mAP': dict(train_loss=(3, 2, 1, 4), test_map=(0.1, 0.2, 0.6, 0.3))}
wanted = {'accuracy': ('accuracy', 0.5), 'KID': ('KID', 0.1), 'loss': ('loss', 1), 'loss2': ('loss', 2.5), 'mAP': ('mAP', 0.6)}
for name, columns in rows.items():
    shutil.copytree('runs/one', f'scores/{name}')
    several = {'test_top1': 'test_map', 'test_top5': 'test_exact', 'train_top1': 'train_exact'}
    heads = [several.get(head, head) if name == 'mAP' else head for head in header]
    with open(f'scores/{name}/results.csv', 'w', newline='') as to:
        out = csv.DictWriter(to, heads, restval='', lineterminator='\n')
        out.writeheader()
        for i in range(4):
            out.writerow({'epoch': i + 1, 'step': i + 1, **{key: values[i] for key, values in columns.items()}})
listed = json.loads(subprocess.run([sys.argv[1], 'runs', 'scores', '--json', '--sort', 'score'], capture_output=True, text=True, check=True).stdout)
found = {row['run']: (row['scored_by'], row['score']) for row in listed}
bad = [(name, found.get(name), score) for name, score in wanted.items() if found.get(name) is None or found[name][0] != score[0] or abs(found[name][1] - score[1]) > 1e-6]
if bad: print('FAILED: scores of several epochs:', bad)
order = [row['run'] for row in listed]
if order != ['accuracy', 'mAP', 'KID', 'loss', 'loss2']: print('FAILED: the order of scores:', order)
sys.exit(bool(bad) or order != ['accuracy', 'mAP', 'KID', 'loss', 'loss2'])
PY
rm -r scores

# ---- files with holes, larger than memory may be
for file in metrics.jsonl results.csv; do
    mkdir -p sparse && cp -r runs/one "sparse/${file%.*}" && truncate -s 5G "sparse/${file%.*}/$file" || exit 1
done
python3 - "$towers" <<'PY' || complain "runs whose files are holes"
import resource, subprocess, sys
listed = subprocess.run([sys.argv[1], "runs", "sparse"], capture_output=True, text=True)
assert listed.returncode == 0, listed
assert "metrics.jsonl' has no line in its last 4194304 bytes" in listed.stdout, listed
assert "results.csv': a line of more than 64 MiB is no record" in listed.stdout, listed
whole = subprocess.run([sys.argv[1], "compare", "sparse/metrics"], capture_output=True, text=True)
assert whole.returncode and "a line of more than 64 MiB is no record" in whole.stderr, whole
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss # KiB
assert peak < 512 << 10, peak
PY
rm -r sparse

python3 - <<'PY' || failures=$((failures + 1))
import json, sys
failed = []
def rows(name):
    return {row['run']: row for row in json.load(open(name))}
def expect(good, what):
    if not good: failed.append(what)
living, runs, halted = rows('living.json'), rows('runs.json'), rows('halted.json')
expect(living['lives']['state'] == 'running' and living['lives']['pid'] == int(open('runs/lives/.lock').read()), living['lives'])
expect(living['one']['pid'] is None, living['one'])
expect(runs['broken']['step'] is None and runs['broken']['score'] is None and 'metrics.jsonl' in runs['broken']['why'], runs['broken'])
expect(runs['lives']['state'] == 'failed' and runs['lives']['why'], runs['lives'])
expect(runs['resumed']['state'] == 'failed' and 'without a word' in runs['resumed']['why'], runs['resumed'])
expect(json.load(open('runs/none # from x/outcome.json'))['outcome'] == runs['none # from x']['state'] == 'finished', 'no epochs')
for name in ('one', 'several', 'unscored'):
    expect(runs[name]['state'] == 'finished' and runs[name]['model'] == 'fashion_cnn', runs[name])
for name in ('one', 'several'):
    lines = open(f'runs/{name}/results.csv').read().splitlines()
    best = max(float(line.split(',')[5]) for line in lines[1:])
    expect(runs[name]['scored_by'] == 'accuracy' and abs(runs[name]['score'] - best) < 1e-6, runs[name])
    expect(runs[name]['step'] == 6 and runs[name]['seconds'] > 0, runs[name])
# The time is that of all steps: of the epochs, and behind them of those without a row as well.
steps = [json.loads(line) for line in open('runs/lives/metrics.jsonl') if line.endswith('\n')]
epochs = [line.split(',') for line in open('runs/lives/results.csv').read().splitlines()[1:]]
ended, last = int(epochs[-1][1]) if epochs else 0, steps[-1]['step']
behind = [row['images'] / row['images_per_sec'] for row in steps if row['step'] > ended]
wanted = sum(float(row[9]) for row in epochs) + (last - ended) * sum(behind) / max(len(behind), 1)
expect(behind and steps[0]['step'] == 4 and abs(runs['lives']['seconds'] - wanted) < 1e-6 * wanted, (runs['lives'], wanted))
expect(runs['unscored']['scored_by'] in ('loss', ''), runs['unscored'])
expect('metrics.jsonl' in runs['broken']['why'], runs['broken'])
expect('.kept' not in runs, runs.get('.kept'))
expect(halted['runs/halted']['state'] == 'ended early' and halted['runs/halted']['why'] == 'no better for 3 epochs', halted)
expect([name for name in rows('started.json') if name in ('one', 'halted', 'several')] == ['halted', 'one', 'several'], 'order of starts')
order = json.load(open('score.json'))
scored = [row['score'] for row in order if row['scored_by'] == 'accuracy']
expect(scored == sorted(scored, reverse=True) and len(scored) >= 3 and order[0]['scored_by'] == 'accuracy', order)
settings = json.load(open('pair.json'))['settings']
expect(settings['lr'][1] == '0.02' and settings['lr'][0] != '0.02', settings)
expect(settings['towers'][1] == '4' and 'experiment' not in settings and 'quiet' not in settings, settings)
for what in failed:
    print('FAILED:', what)
sys.exit(bool(failed))
PY
# ---- a sweep is a row, with the best of its runs and the sum of their times
mkdir -p many/grid many/empty
cp -r runs/one many/grid/t001 && cp -r runs/several many/grid/t002 && cp -r runs/one many/alone
echo '{"format": "towers sweep 1"}' | tee many/grid/sweep.json >many/empty/sweep.json
"$towers" runs many --json >many.json && "$towers" runs many/grid --json >grid.json && "$towers" runs many >out || complain "runs beside a sweep"
grep -qE '^grid +fashion_cnn +finished .* a sweep of 2 runs: towers runs many/grid$' out || complain "the list has no row of a sweep: $(cat out)"
python3 - <<'PY' || complain "the row of a sweep: $(cat many.json)"
import json
rows, inner = {row['run']: row for row in json.load(open('many.json'))}, json.load(open('grid.json'))
assert sorted(rows) == ['alone', 'empty', 'grid'] and [rows[name]['runs'] for name in ('alone', 'empty', 'grid')] == [0, 0, 2], rows
assert rows['grid']['score'] == max(row['score'] for row in inner) and rows['grid']['step'] == 12, rows
assert abs(rows['grid']['seconds'] - sum(row['seconds'] for row in inner)) < 1e-6, rows
PY

echo '{"format": "towers sweep 1", "settings": [{}, {}, {}]}' >many/grid/sweep.json
"$towers" runs many >out && grep -qE '^grid +fashion_cnn +stopped .* a sweep of 2 runs of 3: ' out || complain "a sweep that ended between two runs: $(cat out)"
echo '{"format": "towers sweep 1", "settings": [{}, {}]}' >many/grid/sweep.json
"$towers" runs many >out && grep -qE '^grid +fashion_cnn +finished ' out || complain "a sweep of which all runs have ended: $(cat out)"
sed -i 's/"outcome":"finished"/"outcome":"stopped"/' many/grid/t002/outcome.json
"$towers" runs many >out && grep -qE '^grid +fashion_cnn +stopped ' out || complain "a sweep of which a run was stopped: $(cat out)"

# ---- a run that goes on is stopped by its name, saves, and goes on from there; one that does not is no process of anybody's
train stopped --towers 2 --max-steps 100000 --eval-interval 0 --batch-size 1 &
trainer=$!
wait_until test -s runs/stopped/metrics.jsonl
refuses 2 "'stopped' is no run; did you mean runs/stopped?" "$towers" stop stopped
refuses 4 "--resume runs/stopped: this run goes on (here, pid $(cat runs/stopped/.lock)), and has saved nothing yet" "$towers" train --resume runs/stopped
"$towers" stop runs/stopped >out 2>err || complain "stop: exit $?: $(cat err)"
grep -qE '^runs/stopped: stopped by SIGTERM after step [0-9]+; ' out || complain "stop says: $(cat out)"
wait $trainer
[ $? = 143 ] && [ -e runs/stopped/ckpt/latest ] || complain "the stopped run: $(cat err)"
refuses 2 "runs/stopped does not go on: there is nothing to stop" "$towers" stop runs/stopped
refuses 2 "'nothing' is no run; 'towers runs' lists them" "$towers" stop nothing
sleep 100 & # the pid of a lock may by now be another program's
bystander=$!
exec 9<runs/stopped/.lock && flock 9
echo $bystander >runs/stopped/.lock
refuses 2 "runs/stopped goes on, but no process here has it" timeout 20 "$towers" stop runs/stopped
kill -0 $bystander || complain "stop ended another program"
exec 9<&-
kill $bystander
cat >holder.sh <<'SH' # PID_FILE: a program that has taken the run, and ends at SIGTERM without an outcome
exec 9<runs/stopped/.lock
flock 9
echo $$ | tee "$1" >runs/stopped/.lock
trap exit TERM
while :; do sleep 0.05; done
SH
bash holder.sh first.pid &
wait_until test -s first.pid
bash holder.sh next.pid & # takes it next
timeout 20 "$towers" stop runs/stopped >out 2>err || complain "stop waits for whoever takes the run next: exit $?: $(cat err)"
[[ $(cat out) == "runs/stopped: ended" ]] || complain "stop tells an outcome of before: $(cat out)"
wait_until test -s next.pid && kill "$(cat next.pid)" || complain "stop ended the next program, too"
wait

# ---- a run that ended before its first checkpoint says so, and how to start it again
rm -rf runs/stopped/ckpt runs/stopped/*.safetensors
refuses 4 "--resume runs/stopped: this run ended before its first checkpoint, so there is nothing to go on from: start it again without --resume, with --config runs/stopped/args.yaml" \
    "$towers" train --resume runs/stopped
"$towers" train fashion_cnn --config runs/stopped/args.yaml --max-steps 1 --quiet >out 2>err || complain "it is not started again by that advice: $(cat err)"

check_end "runs are listed with their states and scores, alike for one tower and several; compare names the settings that differ"
