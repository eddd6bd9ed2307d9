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

# ---- a made-up run, whose card is known word for word; without --fold, and with a --val-split of 0, which divides nothing
python3 - <<'PYTHON'
import json, os
os.makedirs('runs/made', exist_ok=True)
put = lambda name, text: open('runs/made/' + name, 'w').write(text)
put('metrics.jsonl', ''.join(json.dumps(dict(step=s, epoch=(s - 1) // 2, lr=0.01, images=8, images_seen=8 * s, images_per_sec=100.0, mean_loss=2.0 / s, total_loss=2.0 / s,
    last_tower_loss=2.0 / s, tower_loss=[2.0 / s], tower_count=[8], finite=[True], grad_norm=1.0, tower_grad_norm=[1.0], arrival_us=[], data_us=[], top1=0.5,
    skipped=False)) + '\n' for s in (1, 2, 3, 4)))
put('results.csv', 'epoch,step,train_loss,train_top1,test_loss,test_top1,test_top5,lr,images_per_sec,seconds,wasserstein,kid\n'
                   '1,2,1.5,0.4,1.25,0.75,,0.01,100,1,,\n2,4,0.75,0.6,1.5,0.5,,0.01,100,1,,\n')
put('confusion.csv', 'class,cat,dog\ncat,20,20\ndog,0,40\n')
put('env.json', json.dumps(dict(model='fashion_cnn', data='photos', data_format='folders', classes=2, class_names=['cat', 'dog'], several_classes=False,
    training_data=dict(images=320, fingerprint='aaaa', class_images=[120, 200]), evaluation_data=dict(images=80, fingerprint='bbbb', class_images=[40, 40]),
    towers='0.1.0', commit='0123abcd', compiler='cc 1', system='Linux', release='6', backend='cpu', towers_count=1, processes=1, threads=2,
    started='2026-01-02T03:04:05Z', started_at=1767323045, command='towers train fashion_cnn --fold 2/5')))
put('outcome.json', json.dumps(dict(outcome='finished', exit_code=0, message='', step=4)))
put('calibration.json', json.dumps(dict(temperature=1.25, weights='w', images=80, loss=[0.7, 0.6], calibration_error=[0.09, 0.03])))
put('args.yaml', '# towers train\nbatch-size: 8 # from command line "-b"\nopt: adam # from command line "--opt"\nlr: 0.01 # from file "a.yaml:3"\nval-split: 0 # from default\n'
    'fold: "2/5" # from command line "--fold"\nfold-group: "patient" # from recipe "photos"\noutput-dir: "elsewhere" # from command line "--output-dir"\n'
    'resume: "auto" # from command line "--resume"\nquiet: true # from command line "--quiet"\n')
PYTHON
cat >made.md <<'CARD'
# fashion\_cnn on photos

Run made: finished after step 4, epoch 2; started on 2026-01-02.

## Data

| part | images | fingerprint |
|---|---:|---|
| training | 320 | aaaa |
| evaluation | 80 | bbbb |

The images for evaluation are fold 2/5 of the training images, divided by groups: patient.

2 classes; format: folders.

## Settings that differ from the defaults

| setting | value | from |
|---|---|---|
| batch-size | 8 | command line "-b" |
| lr | 0.01 | file "a.yaml:3" |
| fold | 2/5 | command line "--fold" |
| fold-group | patient | recipe "photos" |

## Scores

The weights in `best.safetensors` are those of epoch 1: accuracy 75.00 %, loss 1.25, on the images for evaluation.

| class | recall, % | precision, % | F1, % | images for evaluation | training images |
|---|---:|---:|---:|---:|---:|
| cat | 50.0 | 100.0 | 66.7 | 40 | 120 |
| dog | 100.0 | 66.7 | 80.0 | 40 | 200 |

## Calibration

Temperature 1.2500, fitted on 80 images: calibration error 0.0900 before and 0.0300 after, loss 0.7 before and 0.6 after. It belongs to the weights for which it was fitted.

## Limits

- It was tested on the images for evaluation only: not on other cameras, places, times or groups than theirs.
- The best epoch was chosen by the same images, so its score is a little too good. Images that no run has used (`towers eval RUN --split test`, `--data-path`) tell more.
- This is one fold: `towers compare` of all folds has their mean and deviation.
- This is one run with one seed: how much the score varies from seed to seed is not in its records.
- An image of none of the classes gets one of them nevertheless.

## Reproducing it

| | |
|---|---|
| version | 0.1.0 |
| commit | 0123abcd |
| compiler | cc 1 |
| machine | Linux 6, cpu |
| towers of the run | 1 in 1 processes of 2 threads |

```sh
towers train fashion_cnn --fold 2/5
towers eval runs/made
```
CARD
"$towers" card runs/made >found.md || complain "a made-up run: $?"
cmp -s made.md found.md || complain "the card of a made-up run: $(diff made.md found.md)"
sed -i '/^fold/d' runs/made/args.yaml && "$towers" card runs/made >undivided.md || complain "undivided: $?"
grep -nE 'a share of|are fold|one fold' undivided.md && complain "the card of an undivided run divides the images"
sed -i 's/^val-split: 0 .*/val-split: 0.2 # from file "a.yaml:9"/' runs/made/args.yaml && "$towers" card runs/made >divided.md || complain "divided: $?"
grep -q 'are a share of 0.2 of each class' divided.md || complain "the card does not say that images were divided"

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
