#!/usr/bin/env bash
# towers card: counts, fingerprints, settings, scores and limits are those of the run's records, with one tower and with several;
# names that are Markdown or break a line; runs without records, broken ones and none at all.
. "$1/tests/support/check.sh"
needs_python
small_data data 256 100 || exit 77

train() { # NAME ARGUMENT...
    local name=$1
    shift
    timeout 200 "$towers" train fashion_cnn --data-path data --threads 1 --batch-size 16 --summary-interval 0 --quiet \
        --experiment "$name" "$@" >out 2>err </dev/null || complain "train $name: $(cat err)"
}
train one --epochs 2
train several --towers 4 --epochs 2 --lr 0.002 --opt momentum --batch-size 4
"$towers" card runs/one >one.md || complain "one: $?"
"$towers" card runs/several -o several.md >out || complain "several: $?"
[[ ! -s out ]] || complain "-o printed, too"
"$towers" eval runs/several --calibrate --quiet >out 2>&1 || complain "eval: $(cat out)"
"$towers" card runs/several >calibrated.md || complain "calibrated: $?"

# ---- a run that chooses no class for an image is given no advice that only others can follow
train bce --epochs 1 --loss bce
timeout 200 "$towers" train wgan_gp --width 2 --data-path data --global-batch-size 12 --max-steps 3 --threads 1 --quiet --experiment gan >out 2>err </dev/null || complain "train gan: $(cat err)"
for run in bce gan; do
    "$towers" card runs/$run >$run.md || complain "$run: $?"
    grep -nE 'alibrat|eval RUN` prints|of none of the classes' $run.md && complain "the card of $run gives advice that is refused"
done
grep -nE 'towers eval|[0-9] classes|not tested' gan.md && complain "the card of a generator speaks of classes"
generate=$(grep '^towers generate ' gan.md) && eval "${generate/towers/\"\$towers\"} -o grid.png" >out 2>&1 || complain "the card of a generator: $generate: $(cat out)"

# ---- records that are hostile, incomplete or missing
cp -r runs/one runs/odd
python3 - <<'PYTHON'
import json
path = 'runs/odd/env.json'
env = json.load(open(path))
names = [f'c{i}' for i in range(10)]
names[0], names[1] = '<b>|x\n# y', '\x1b[31mred'
names[2] = '&lt;$x$~'
env['class_names'], env['command'], env['started'] = names, 'towers train\n```\nrm', '<b>2026</b>'
json.dump(env, open(path, 'w'))
outcome = json.load(open('runs/odd/outcome.json'))
json.dump(dict(outcome, outcome='<b>done</b>'), open('runs/odd/outcome.json', 'w'))
args = open('runs/odd/args.yaml').read()
open('runs/odd/args.yaml', 'w').write(args.replace('val-split: 0', 'val-split: 0.1<b>'))
with open('runs/odd/confusion.csv', 'w') as f:
    for c in range(10):
        f.write(','.join(str(10 * c if c == k and c > 1 else 0) for k in range(10)) + '\n')
PYTHON
"$towers" card runs/odd >odd.md || complain "odd: $?"
mkdir runs/bare && cp runs/one/metrics.jsonl runs/bare && "$towers" card runs/bare >bare.md || complain "bare: $?"
refused() { refuses "$1" "$2" "$towers" card "${@:3}"; } # CODE TEXT ARGUMENT...
mkdir nothing
refused 2 "no run given"
refused 2 "'nothing' is no run" nothing
refused 2 "is no run" nowhere
refused 6 "nowhere" runs/one -o nowhere/card.md
cp -r runs/one runs/broken && echo "not a step" >runs/broken/metrics.jsonl && echo "{}" >>runs/broken/metrics.jsonl
refused 3 "metrics.jsonl" runs/broken

python3 - <<'PYTHON' || failures=$((failures + 1))
import csv, json, re, sys
failed = []
def expect(good, what):
    if not good: failed.append(what)
for run, page in (('one', 'one.md'), ('several', 'several.md')):
    text = open(page).read()
    env = json.load(open(f'runs/{run}/env.json'))
    training, evaluation = env['training_data'], env['evaluation_data']
    expect(training['images'] == 256 and sum(training['class_images']) == 256, training)
    expect(f"| training | 256 | {training['fingerprint']} |" in text, 'training row')
    expect(f"| evaluation | 100 | {evaluation['fingerprint']} |" in text, 'evaluation row')
    best = max(csv.DictReader(open(f'runs/{run}/results.csv')), key=lambda row: float(row['test_top1']))
    expect(f"epoch {best['epoch']}: accuracy {100 * float(best['test_top1']):.2f} %" in text, (run, best['test_top1']))
    rows = list(csv.reader(open(f'runs/{run}/confusion.csv')))
    names, table = rows[0][1:], [[int(x) for x in row[1:]] for row in rows[1:]]
    for c, name in enumerate(names):
        right, images, taken = table[c][c], sum(table[c]), sum(row[c] for row in table)
        recall = f'{100 * right / images:.1f}' if images else '-'
        precision = f'{100 * right / taken:.1f}' if taken else '-'
        row = re.search(rf"^\| class {re.escape(name)} \| ([^|]*) \| ([^|]*) \| [^|]* \| (\d+) \| (\d+) \|$", text, re.M)
        expect(row and row.groups() == (recall, precision, str(images), str(training['class_images'][c])), (run, name, row))
    expect('Not calibrated' in text and 'one seed' in text and 'chosen by the same images' in text, run)
    expect(env['command'] in text and env['compiler'] in text, 'origin')
several = open('several.md').read()
expect('| lr | 0.002 | command line "--lr" |' in several and '| opt | momentum | command line "--opt" |' in several, 'settings')
expect('| lr |' not in open('one.md').read(), 'a default is listed')
expect('| 4 in ' in several, 'towers')
fitted = json.load(open('runs/several/calibration.json'))
expect(f"Temperature {fitted['temperature']:.4f}, fitted on 100 images" in open('calibrated.md').read(), 'calibration')
odd = open('odd.md').read()
expect('\x1b' not in odd and not re.search(r'(?<!\\)<b', odd), 'escapes')
expect('not tested: \\<b\\>\\|x' in odd and '\n# y' not in odd, 'classes without images')
expect('so their scores are uncertain: \\&lt;\\$x\\$\\~.' in odd, 'few images')
expect('the command is not recorded' in odd and odd.count('```') == 2, 'a command that ends the block')
bare = open('bare.md').read()
expect('not recorded' in bare and 'not tested on any image' in bare and 'no args.yaml' in bare, bare)
for what in failed:
    print('FAILED:', what)
sys.exit(bool(failed))
PYTHON
check_end "a model card has the numbers of the run's records, alike for one tower and several, and says what is missing"
