#!/usr/bin/env bash
# --prometheus: the file has the numbers of a step as metrics.jsonl has them, with one tower, with several and of a GAN; it is always whole, and
# replaced at most once a second; names of runs are escaped; what is refused.
. "$1/tests/support/check.sh"
needs_python

train() { # NAME ARGUMENT...
    local name=$1
    shift
    LC_ALL=de_DE.UTF-8 timeout 200 "$towers" train fashion_cnn --dataset synthetic --threads 1 --summary-interval 0 --eval-interval 0 --quiet \
        --experiment "$name" "$@" >out 2>err </dev/null || complain "train $name: $(cat err)"
}
train one --max-steps 5 --batch-size 8 --prometheus one.prom
mkdir collector
# A reader beside the run: every file that it sees is whole.
train 'a "run\' --towers 3 --batch-size 4 --max-steps 600 --prometheus collector/towers.prom &
job=$!
python3 - <<'PYTHON' || complain "the file while the run goes on"
import os, time
path, written, begun = 'collector/towers.prom', {}, time.time()
while True:
    over = os.path.exists('runs/a "run\\/last.safetensors') or time.time() - begun > 100
    try:
        with open(path) as file:
            text, when = file.read(), os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
        if over: break
        continue
    assert text.endswith('\n') and text.count('towers_tower_loss{') == 3 and 'towers_restarts' not in text, text
    step = text.split('towers_step{')[1].split('} ')[1].split('\n')[0]
    written[step] = when
    if over: break
    time.sleep(0.002)
times = sorted(written.values())
assert times, 'the run wrote nothing'
assert len(times) <= times[-1] - times[0] + 3, times # once a second, and at the last step; a busy machine may write late
PYTHON
wait $job
[[ -z $(ls -A collector | grep -v '^towers.prom$') ]] || complain "left in the folder: $(ls -A collector)"
"$towers" train wgan_gp --width 4 --img-size 8 --dataset synthetic --threads 1 --batch-size 8 --max-steps 12 --quiet --experiment $'gan\xff' --prometheus gan.prom \
    >out 2>err </dev/null || complain "gan: $(cat err)"
python3 - <<'PYTHON' || complain "the numbers of the last step"
import json, math, os, re, time
for run, path, towers, steps in (('runs/one', 'one.prom', 1, 5), ('runs/a "run\\', 'collector/towers.prom', 3, 600), ('runs/gan\udcff', 'gan.prom', 1, 12)):
    row = json.loads(open(f'{run}/metrics.jsonl').read().splitlines()[-1])
    phase = f',phase="{row["phase"]}"' if 'phase' in row else ''
    label = run.replace('\\', '\\\\').replace('"', '\\"').replace('\udcff', r'\\xff') # bytes that are not UTF-8
    numbers, kinds = {}, set()
    for line in open(path, encoding='utf-8').read().splitlines():
        if line.startswith('#'):
            match = re.fullmatch(r'# (HELP (towers_\w+) .+|TYPE (towers_\w+) gauge)', line)
            assert match, line
            kinds.add(match[2] or match[3])
            continue
        name, rest = line.split('{', 1)
        labels, value = rest.rsplit('} ', 1)
        assert labels.startswith(f'run="{label}"') and name in kinds, line
        numbers[name, labels[len(f'run="{label}"'):]] = float(value)
    assert row['step'] == steps, row['step']
    for key, value in row.items():
        if isinstance(value, list):
            assert len(value) == towers, key
            for t, one in enumerate(value):
                have = numbers.pop((f'towers_{key}', f'{phase},tower="{t}"'))
                assert have == one or (one is None and math.isnan(have)), (key, have, one)
        elif not isinstance(value, (str, dict)):
            have = numbers.pop((f'towers_{key}', phase), None) # one that is absent is left out
            assert have == value or (value is None and math.isnan(have)), (key, have, value)
    assert numbers.pop(('towers_steps', '')) == steps
    seen = numbers.pop(('towers_step_time_seconds', ''))
    assert abs(seen - os.stat(path).st_mtime) < 60 and abs(seen - time.time()) < 1000, seen
    assert not numbers, numbers
PYTHON
python3 - "$source_dir" <<'PYTHON' || complain "the dashboard of Grafana"
import json, re, sys
board = json.load(open(sys.argv[1] + '/examples/grafana/towers.json'))
asked = {name for panel in board['panels'] for target in panel['targets'] for name in re.findall(r'towers_(\w+)', target['expr'])}
written = set(re.findall(r'^towers_(\w+)\{', open('collector/towers.prom').read(), re.M))
columns = set(re.findall(r'^\| `(gpu_\w+)`', open(sys.argv[1] + '/docs/records.md').read(), re.M))
assert len(asked) > 8 and asked <= written | columns, asked - written - columns
PYTHON
# After an evaluation, also the last one, its numbers are there.
timeout 200 "$towers" train fashion_cnn --dataset synthetic --threads 1 --summary-interval 0 --quiet --epochs 2 --batch-size 512 --experiment tested --prometheus tested.prom \
    >out 2>err </dev/null || complain "tested: $(cat err)"
python3 - <<'PYTHON' || complain "the numbers of the last evaluation: $(tail -n 12 tested.prom)"
import csv, re
row = list(csv.DictReader(open('runs/tested/results.csv')))[-1]
have = dict(re.findall(r'^towers_(\w+)\{run="runs/tested"\} (\S+)$', open('tested.prom').read(), re.M))
assert float(have['evaluated_epoch']) == float(row['epoch']) == 2 and float(have['steps']) == float(have['step']) == float(row['step']), (have, row)
assert abs(float(have['test_accuracy']) - float(row['test_top1'])) < 1e-6 and abs(float(have['test_loss']) - float(row['test_loss'])) < 1e-4, (have, row)
PYTHON
refused() { # TEXT FILE
    "$towers" train fashion_cnn --dataset synthetic --max-steps 1 --experiment refused --prometheus "$2" >out 2>err </dev/null
    [[ $? == 2 && ! -e runs/refused ]] && grep -qF -- "$1" err || complain "--prometheus $2 is not refused with '$1': $(cat err)"
}
refused "end in .prom" x.txt
refused "end in .prom" .prom
refused "cannot write files in 'nowhere/'" nowhere/x.prom
mkdir taken.prom
train goes-on --max-steps 3 --batch-size 8 --prometheus taken.prom
grep -q "cannot replace 'taken.prom'" err runs/goes-on/log.txt || complain "a file that cannot be written is not reported: $(cat err)"
check_end "Prometheus' file: the numbers of the last step and of each tower, whole, once a second"
