#!/usr/bin/env bash
# towers sweep: grid, random settings and repetitions; successive halving, whose rungs continue runs exactly; a sweep that is killed
# or stopped at any time and given again ends with the bits and the ranking of an undisturbed one; runs that fail are rows; several
# runs at a time and several towers; what is refused, with its line.
. "$1/tests/support/check.sh"
needs_python
small_data data 96 64 || exit 77

cat >halved.yaml <<'YAML'
model: fashion_cnn
data-path: data
batch-size: 16
threads: 1
summary-interval: 0
sched: cosine
epochs: 4
lr: log-uniform(1e-4, 0.1)
opt: choices(momentum | adam)
seed: choices(1 | 2)   # repetitions
trials: 4
halving: 2
YAML
"$towers" sweep halved.yaml --dry-run >commands 2>err || complain "--dry-run: $(cat err)"
[[ $(wc -l <commands) == 8 && ! -e runs ]] || complain "--dry-run does not print eight commands, or made runs"
"$towers" sweep halved.yaml --trials 6 --dry-run >more || complain "--dry-run of more trials"
head -n 8 more | cmp -s - commands || complain "more trials changed the earlier ones"
"$towers" sweep halved.yaml --trial-seed 7 --dry-run | cmp -s - commands && complain "another seed draws the same settings"
"$towers" sweep halved.yaml --json >halved.json 2>err </dev/null || complain "halved: $(tail -n 3 err)"
"$towers" sweep halved.yaml >table 2>err || complain "the table of a sweep that has ended: $(cat err)"
[[ ! -s err ]] || complain "a sweep that has ended trained again: $(cat err)"

# ---- training losses of different formulas have no common ranking
for mixup in "0.2 | 0" "0 | 0"; do
    printf 'model: fashion_cnn\ndata-path: data\nbatch-size: 16\nthreads: 1\nepochs: 1\neval-interval: 0\nlr: choices(0.1 | 0.01)\nfuse: auto\nmixup: choices(%s)\n' "${mixup/0 | 0/0}" >mixed.yaml
    "$towers" sweep mixed.yaml --experiment "mixed${mixup%% *}" >ranked 2>err </dev/null || complain "mixed: $(tail -n 3 err)"
    grep -c 'warning: the ranking compares training losses of different --mixup, which' err
done >warned
[[ $(cat warned) == $'1\n0' ]] || complain "losses with and without --mixup: warned $(cat warned err)"

# ---- killed and stopped, again and again
stops=0
for seconds in 0.05 0.1 0.2 0.3 0.15 0.4 0.25; do
    TOWERS_FAULT=delay:tower=0,step=1,ms=20 "$towers" sweep halved.yaml --experiment again --json >again.json 2>err </dev/null &
    sweep=$!
    sleep $seconds
    signal=KILL
    ((stops % 2)) && signal=TERM
    kill -$signal $sweep 2>/dev/null || break
    wait $sweep 2>/dev/null
    [[ $? == 143 || $signal == KILL ]] || complain "a stopped sweep ends with $?: $(tail -n 1 err)"
    stops=$((stops + 1))
    for lock in runs/again/*/.lock; do [ ! -e "$lock" ] || wait_until flock -n "$lock" true; done # its runs have saved and ended
done
((stops > 2)) || complain "only $stops interruptions"
"$towers" sweep halved.yaml --experiment again >out 2>err </dev/null || complain "again: $(tail -n 3 err)"
rm runs/again/t00[23]-1/{outcome.json,last.safetensors} # as if killed between the last epoch's row and its weights
"$towers" sweep halved.yaml --experiment again --json >again.json 2>err </dev/null || complain "again: $(tail -n 3 err)"
# Stopped within the second epoch of a run, which the first rung had let go on: it goes on, and is not cut off at that rung.
within_epoch() {
    local rows
    for rows in runs/within/t*-1/metrics.jsonl; do # the other repetition has not followed
        [ -e "$rows" ] || continue
        rows=$(wc -l <"$rows")
        ((rows > 6 && rows < 12)) && return
    done
    return 1
}
TOWERS_FAULT=delay:tower=0,step=8,ms=3000 "$towers" sweep halved.yaml --experiment within >out 2>err </dev/null & # four steps: 12 s
sweep=$!
wait_until within_epoch
kill -TERM $sweep
wait $sweep
within_epoch || complain "the sweep was never stopped within the second epoch of a run"
"$towers" sweep halved.yaml --experiment within >out 2>err </dev/null || complain "within: $(tail -n 3 err)"
for run in runs/halved/t*/; do
    name=$(basename "$run")
    cmp -s "$run/last.safetensors" "runs/within/$name/last.safetensors" || complain "$name has other weights when its sweep was stopped within an epoch"
    cmp -s "$run/last.safetensors" "runs/again/$name/last.safetensors" || complain "$name has other weights after interruptions"
    diff <(timeless "$run/metrics.jsonl") <(timeless "runs/again/$name/metrics.jsonl") >/dev/null || complain "$name: other records"
done

# ---- a grid: two runs at a time, four towers, a setting that fails
cat >grid.yaml <<'YAML'
model: fashion_cnn
data-path: data
batch-size: 4
towers: 4
threads: 1
summary-interval: 0
opt: momentum
epochs: 2
lr: choices(0.01 | 1000000 | 0.001)
momentum: choices(0.5 | 0.9 | 0.7 | 0.8)
YAML
"$towers" sweep grid.yaml --parallel 2 --json >grid.json 2>err </dev/null || complain "grid: $(tail -n 3 err)"
"$towers" sweep grid.yaml >table.grid 2>err || complain "grid: the table: $(cat err)"
sed -e 's/^lr:.*/lr: choices(1000000 | 900000)/' -e '/^momentum/d' grid.yaml >fails.yaml
"$towers" sweep fails.yaml >out 2>err </dev/null && complain "a sweep in which every run fails ends with 0"
grep -q "all runs failed; the first, t001: " err || complain "a sweep in which every run fails: $(tail -n 1 err)"
(($(ls -d runs/grid/t*/ | wc -l) == 12)) || complain "a run of the grid is missing"

# ---- each seed is trained with each fold, and the setting's score is the mean of all
cat >crossed.yaml <<'YAML'
model: fashion_cnn
data-path: data
batch-size: 16
threads: 1
summary-interval: 0
epochs: 1
seed: choices(4 | 5)
lr: choices(0.01 | 0.001)
fold: choices(1/2 | 2/2) # as many as seeds, or one of each in turn would pair all, too
YAML
"$towers" sweep crossed.yaml --json >crossed.json 2>err </dev/null || complain "crossed: $(tail -n 3 err)"

# ---- other options that divide the images: a part held out is that of the names, whatever the seed; groups stay whole in every run
python3 - <<'PYTHON' || complain "images of patients"
import os
for k in range(48):
    patient = f'{k % 2}-{k // 8}'
    os.makedirs(f'patients/{k % 2}/{patient}', exist_ok=True)
    with open(f'patients/{k % 2}/{patient}/{k}.pgm', 'wb') as image:
        image.write(b'P5 28 28 255\n' + bytes((17 * k + 3 * i) % 256 for i in range(28 * 28)))
PYTHON
sed -e '/^fold/d' -e 's/^data-path:.*/data-path: patients/' crossed.yaml >held-out.yaml
cp held-out.yaml grouped.yaml
echo 'val-split: 0.25' >>held-out.yaml
printf 'fold: choices(1/2 | 2/2)\nfold-group: 1\n' >>grouped.yaml
for sweep in held-out grouped; do
    "$towers" sweep $sweep.yaml --json >$sweep.json 2>err </dev/null || complain "$sweep: $(tail -n 3 err)"
done

# ---- settings that end by their own rules before the first rung rise without a run, and do not end the sweep
sed -e '/^seed\|^trials/d' -e 's/^lr:.*/lr: choices(0.01 | 0.02 | 0.03)/' -e 's/^epochs:.*/epochs: 8/' halved.yaml >early.yaml
printf 'stop-at: 0\nfirst-rung: 4\n' >>early.yaml
"$towers" sweep early.yaml --json >early.json 2>err </dev/null || complain "early: $(tail -n 3 err)"

# ---- the best run is an ordinary one
python3 - <<'PYTHON' || failures=$((failures + 1))
import csv, html, json, math, os, re, shlex, statistics, sys
from xml.etree import ElementTree
failed = []
def expect(good, what):
    if not good: failed.append(what)
def epochs(run):
    return list(csv.DictReader(open(f'runs/{run}/results.csv')))
def best(run, most=10**9):
    return max(float(row['test_top1']) for row in epochs(run) if int(row['epoch']) <= most)

result = json.load(open('halved.json'))
settings = result['settings']
expect(result['rungs'] == [1, 2, 4], result['rungs'])
expect([s['rank'] for s in settings] == [1, 2, 3, 4], 'ranks')
for s in settings:
    scores = [best('halved/' + run['run']) for run in s['runs']]
    expect(len(scores) == 2 and abs(s['score'] - statistics.mean(scores)) < 1e-6, (s, scores))
    expect(abs(s['deviation'] - statistics.stdev(scores)) < 1e-6, (s, scores))
    expect(s['scored_by'] == 'accuracy' and all(len(epochs('halved/' + r['run'])) == s['epochs'] for r in s['runs']), s)
    args = open(f"runs/halved/{s['runs'][1]['run']}/args.yaml").read()
    expect(f"lr: {s['values']['lr']} " in args and f"opt: {s['values']['opt']} " in args and 'seed: 2 ' in args, s['values'])
    expect(1e-4 <= float(s['values']['lr']) <= 0.1, s['values'])
# ASHA again, with the scores of the records: the promotable one of the highest rung, else a new setting.
numbers, rungs, at = {s['setting']: s for s in settings}, result['rungs'], {}
def score(n, rung):
    return statistics.mean(best('halved/' + run['run'], rungs[rung]) for run in numbers[n]['runs'])
def promotable():
    for rung in (1, 0):
        complete = sorted((n for n in at if at[n] >= rung), key=lambda n: (-score(n, rung), at[n] == rung, n))
        for n in complete[:len(complete) // 2]:
            if at[n] == rung:
                return n
while len(at) < 4 or promotable():
    n = promotable()
    at[n or len(at) + 1] = at[n] + 1 if n else 0
expect({n: rungs[at[n]] for n in at} == {n: numbers[n]['epochs'] for n in numbers}, (at, settings))
expect(max(at.values()) == 2, at)

def without_times(result):
    for s in result['settings']:
        for run in s['runs']:
            run.pop('seconds')
    return result['settings']
expect(without_times(json.load(open('again.json'))) == without_times(json.load(open('halved.json'))), 'another ranking after interruptions')

# The page: for each option a dot for each setting, at its value and its score, and the ranking. Both as drawn, read by means of the
# axes, and as a pointer reads them.
page = open('runs/halved/sweep.html').read()
figures = [ElementTree.fromstring(figure) for figure in re.findall('<figure.*?</figure>', page, re.S)]
figures = {figure.findtext('.//h3'): figure.find('.//svg') for figure in figures}
expect(list(figures) == ['lr', 'opt', 'Curves'], list(figures))
def axis(svg, kind, place, shift, words=()):
    ticks = [(words.index(e.text) if words else float(e.text), float(e.get(place).rstrip('%')) - shift) for e in svg
             if e.get('class') == kind and (e.text in words if words else re.match('-?[0-9]', e.text))]
    logarithmic = not words and float(svg.find('g').get('data-' + place).split()[2])
    (a, at_a), (b, at_b) = ticks[0], ticks[-1]
    if logarithmic:
        return lambda at: a * (b / a) ** ((at - at_a) / (at_b - at_a))
    return lambda at: a + (at - at_a) * (b - a) / (at_b - at_a)
def values(svg):
    return [(e.get('data-name'), e.get('data-x').split(), e.get('data-y').split()) for e in svg.iter('g') if e.get('class') == 'values']
for option in 'lr', 'opt':
    svg, words = figures[option], [] if option == 'lr' else list(dict.fromkeys(s['values']['opt'] for s in settings))
    wanted = [(words.index(s['values'][option]) if words else float(s['values'][option]), 100 * s['score']) for s in reversed(settings)]
    x_of, y_of = axis(svg, 'mid', 'x', 0, words), axis(svg, 'end', 'y', 4)
    dots = [(x_of(float(e.get('cx')[:-1])), y_of(float(e.get('cy')))) for e in svg.iter('circle')]
    expect(len(dots) == 4 and all(abs(x - u) <= 0.01 * (abs(u) + len(words)) and abs(y - v) < 0.3 for (x, y), (u, v) in zip(dots, wanted)), (option, dots, wanted))
    expect(values(svg) == [(f"t{s['setting']:03d}", [f'{x:.10g}'], [f'{y:.6g}']) for s, (x, y) in zip(reversed(settings), wanted)], (option, values(svg), wanted))
expect(f"The best setting is t{settings[0]['setting']:03d}, with accuracy {100 * settings[0]['score']:.2f} % (mean of 2 runs" in page, 'the best setting')

# Its curves: a line for each run, up to where it ended, with a dot; read by means of the axes.
svg = figures['Curves']
x_of, y_of = axis(svg, 'mid', 'x', 0), axis(svg, 'end', 'y', 4)
curves = [[(x_of(float(x) / 10), y_of(float(y))) for x, y in re.findall('[ML]([0-9.]+) ([0-9.]+)', e.get('d'))] for e in svg.iter('path')]
dots = [(x_of(float(e.get('cx')[:-1])), y_of(float(e.get('cy')))) for e in svg.iter('circle')]
wanted = [[(int(row['epoch']), 100 * float(row['test_top1'])) for row in epochs('halved/' + run['run'])] for s in reversed(settings) for run in s['runs']]
near = lambda a, b: len(a) == len(b) and all(abs(x - u) < 0.02 and abs(y - v) < 0.3 for (x, y), (u, v) in zip(a, b))
expect(len(curves) == len(wanted) == 8 and all(map(near, curves, wanted)), ('curves', curves, wanted))
expect(near(dots, [run[-1] for run in wanted]), ('ends of the curves', dots))
expect([(x, y) for _, x, y in values(svg)] == [([str(x) for x, _ in run], [f'{y:.6g}' for _, y in run]) for run in wanted], ('values of the curves', values(svg)))
names = [e.text for e in svg if e.get('class') == 'name']
expect(sorted(names) == [f"{i + 1}: t{s['setting']:03d}" for i, s in enumerate(settings[:3])], names)
expect(result['effects']['options'] == [] and 'mattered' not in page + open('table').read(), 'too few settings mattered')
expect(re.findall(r'<th>(t\d+) <a', page) == [f"t{s['setting']:03d}" for s in settings], 'the ranking of the page')
links = re.findall('href="([^"]*)"', page)
expect(links == [run['run'] + '/report.html' for s in settings for run in s['runs']] and all(os.path.exists('runs/halved/' + link) for link in links), links)

crossed, divided = json.load(open('crossed.json'))['settings'], set()
for s in crossed:
    runs = ['crossed/' + run['run'] for run in s['runs']]
    args = [dict(re.findall(r'^(lr|seed|fold): "?([^\s"]+)', open(f'runs/{run}/args.yaml').read(), re.M)) for run in runs]
    expect(set(s['values']) == {'lr'} and {a['lr'] for a in args} == {s['values']['lr']}, (s, args))
    expect(sorted((a['seed'], a['fold']) for a in args) == [(seed, fold) for seed in '45' for fold in ('1/2', '2/2')], args)
    scores = [best(run) for run in runs]
    expect(abs(s['score'] - statistics.mean(scores)) < 1e-6 and abs(s['deviation'] - statistics.stdev(scores)) < 1e-6, (s, scores))
    divided |= {json.load(open(f'runs/{run}/env.json'))['evaluation_data']['fingerprint'] for run in runs}
expect(len(crossed) == 2 and len(divided) == 4, ('each seed divides the images into other folds', divided))
first, second = ([best('crossed/' + run['run']) for run in s['runs']] for s in crossed)
gaps = [a - b for a, b in zip(first, second)]
x = abs(statistics.mean(gaps)) / math.sqrt((1 / 4 + 1 / (2 - 1)) * statistics.variance(gaps)) / math.sqrt(3)
chance = 1 - 2 / math.pi * (math.atan(x) + x / (1 + x * x)) # of Student's t, 3 degrees of freedom
said = re.search(r'\(p = ([0-9.e-]+)\)', open('runs/crossed/sweep.html').read())
expect(said and abs(float(said[1]) - chance) <= 0.06 * chance, ('folds share training images', said and said[0], chance, gaps))

def evaluated(run):
    return frozenset(row['file'] for row in csv.DictReader(open(f'runs/{run}/predictions.csv')))
for sweep, count in ('held-out', 2), ('grouped', 4):
    parts = {}
    for s in json.load(open(f'{sweep}.json'))['settings']:
        runs = [f"{sweep}/{run['run']}" for run in s['runs']]
        scores = [best(run) for run in runs]
        expect(set(s['values']) == {'lr'} and len(runs) == count and abs(s['score'] - statistics.mean(scores)) < 1e-6, (sweep, s, scores))
        for run in runs:
            seed_and_fold = tuple(re.findall(r'^(?:seed|fold): "?([^\s"]+)', open(f'runs/{run}/args.yaml').read(), re.M))
            part = parts.setdefault(seed_and_fold, evaluated(run))
            expect(part == evaluated(run), (sweep, 'rates are compared on other images', run))
    expect(len(parts) == count, (sweep, list(parts)))
    if sweep == 'held-out': # by names alone
        expect(len(set(parts.values())) == 1, 'seeds are compared on other images')
        expect(all(len(part) == 12 for part in parts.values()), (sweep, [len(part) for part in parts.values()]))
        continue
    expect(len(set(parts.values())) == 4, 'each seed divides the images into other folds')
    for seed in '45':
        one, other = (parts[key] for key in parts if seed in key)
        expect(len(one | other) == 48 and not one & other, ('folds of a seed', len(one), len(other)))
        expect(not {os.path.dirname(file) for file in one} & {os.path.dirname(file) for file in other}, 'a patient is in both folds')

early = json.load(open('early.json'))['settings']
expect(len(early) == 6 and all(s['epochs'] == 1 and s['score'] for s in early), ('settings that were not begun', early))

grid = json.load(open('grid.json'))['settings']
expect(len(grid) == 12 and [s['rank'] for s in grid] == [*range(1, 9)] + 4 * [None], [s['rank'] for s in grid])
for s in grid:
    run = s['runs'][0]
    bad = s['values']['lr'] == '1000000'
    expect(run['failed'] == bad and bool(run['why']) == bad and (s['score'] is None) == bad, s)
    expect(not bad or html.escape(run['why'])[:60] in open('runs/grid/sweep.html').read(), ('no reason on the page', run['why']))
    expect(bad or abs(s['score'] - best('grid/' + run['run'])) < 1e-6, s)
scores = [s['score'] for s in grid if s['score'] is not None]
expect(scores == sorted(scores, reverse=True), scores)
table = open('table.grid').read().splitlines()
expect(table[9].split()[0] == '-' and ' failed: ' in table[9], table)
# What mattered, by the definitions: of a balanced grid the effects of an additive model are the means of its rows and columns.
def ranks(values):
    return [sum(v < value for v in values) + (sum(v == value for v in values) + 1) / 2 for value in values]
def without(numbers, groups):
    return [number - statistics.mean(n for n, g in zip(numbers, groups) if g == group) for number, group in zip(numbers, groups)]
effects = json.load(open('grid.json'))['effects']
expect((effects['settings'], effects['left_out'], effects['epoch']) == (8, 4, None), effects)
scored = [s for s in grid if s['score'] is not None]
rank = ranks([s['score'] for s in scored])
for effect in effects['options']:
    option, (other,) = effect['option'], {'lr', 'momentum'} - {effect['option']}
    values, others = ([float(s['values'][name]) for s in scored] for name in (option, other))
    left, both = without(rank, others), without(without(rank, others), values)
    square = lambda numbers: sum(n * n for n in numbers)
    freedom = 8 - len(set(others))
    explained = 1 - square(both) / (freedom - len(set(values)) + 1) / (square(left) / freedom)
    at = without(ranks(values), others)
    trend = sum(a * b for a, b in zip(at, left)) / math.sqrt(square(at) * square(left))
    expect(abs(effect['explained'] - explained) < 1e-9 and abs(effect['trend'] - trend) < 1e-9, (effect, explained, trend))
    groups = {v: statistics.mean(r for r, value in zip(rank, values) if value == v) for v in values}
    expect(groups[float(effect['best'])] == max(groups.values()) and 0 < effect['p'] <= 1, (effect, groups))
    line = [line.split() for line in table if line.startswith(f"  {effect['option']} ")][0]
    expect(line == [effect['option'], f"{100 * effect['explained']:.0f}", '%', f"{effect['p']:.3f}", f"{effect['trend']:+.2f}", effect['best']], line)
    expect(f"<tr><th>{effect['option']}</th><td class=\"n\">{100 * effect['explained']:.0f} %</td>" in open('runs/grid/sweep.html').read(), effect)
# In words: what mattered by Bonferroni, failures, and the first advice that applies.
answer = re.search('<p class="answer">.*</p>', open('runs/grid/sweep.html').read())[0]
mattered = [e for e in effects['options'] if e['explained'] > 0 and e['p'] < 0.05 / len(effects['options'])]
for e in effects['options']:
    expect((f"{e['option']} explains {100 * e['explained']:.0f} % of the spread of the scores (p = {e['p']:.3f})" in answer) == (e in mattered), (e, answer))
def outermost(e):
    tried, best = [float(s['values'][e['option']]) for s in grid], float(grid[0]['values'][e['option']])
    return abs(e['trend']) >= 0.5 and best == (max if e['trend'] > 0 else min)(tried)
beyond = [e['option'] for e in mattered if outermost(e)]
wanted = f"values of {beyond[0]} " if beyond else 'each setting with several seeds'
expect(f'<b>What to try next:</b> {wanted}' in answer and 'Runs of 4 of 12 settings failed.' in answer, (wanted, answer))
expect({e['option'] for e in effects['options']} == {'lr', 'momentum'} and any('What mattered, over 8 settings; 4 without' in line for line in table), table)
values = [line.split() for line in open('table')]
expect(values[1][0] == '1' and values[1][2] == '2/2' and values[1][3] == '4', values[1])
command = shlex.split(open('commands').read().splitlines()[2 * (settings[0]['setting'] - 1)])
command = [a for a in command[1:] if not a.startswith(('--experiment', '--output-dir', '--resume', '--stop-epoch'))]
open('plain', 'w').write('\n'.join(command))
open('winner', 'w').write(settings[0]['runs'][0]['run'])
for what in failed:
    print('FAILED:', what)
sys.exit(bool(failed))
PYTHON
mapfile -t plain <plain
"$towers" "${plain[@]}" --experiment plain --quiet >out 2>err </dev/null || complain "plain: $(cat err)"
cmp -s runs/plain/last.safetensors "runs/halved/$(cat winner)/last.safetensors" ||
    complain "three rungs have other bits than one run"

# ---- a list, in both of YAML's forms, is a choice of its values
printf 'model: fashion_cnn\ndataset: synthetic\nlr: choices(0.01 | 0.001)\nopt: choices(adam | sgd)\n' >chosen.yaml
printf 'model: fashion_cnn\ndataset: synthetic\nlr: [0.01, 0.001]\nopt:\n  - adam\n  - "sgd"\n' >listed.yaml
for name in chosen listed; do
    "$towers" sweep $name.yaml --dry-run >$name.out 2>err || complain "$name.yaml: $(cat err)"
    sed -i "s/$name/NAME/g" $name.out
done
cmp chosen.out listed.out && grep -q 0.001 listed.out || complain "a list is no choice: $(diff chosen.out listed.out)"
"$towers" train fashion_cnn --config listed.yaml --dry-run >out 2>err && complain "train takes a list of values"

# ---- refused
refused() { # TEXT LINE...: a file that ends with these lines
    local text=$1
    shift
    { printf 'model: fashion_cnn\ndataset: synthetic\n'; printf '%s\n' "$@"; } >bad.yaml
    "$towers" sweep bad.yaml >out 2>err </dev/null
    [[ $? == 2 ]] && grep -qF -- "$text" err || complain "'$*' is not refused with '$text': $(cat err)"
    [[ ! -e runs/bad ]] || complain "'$*' made a folder"
}
refused "varies nothing"
refused "bad.yaml:3:6: the list is empty" "lr: []"
refused "bad.yaml:3:11: a value of a list is empty or has a '|'" "lr: [0.1, '0.2 | 0.3']"
refused "bad.yaml:3:6: lists in [] or with dashes are not allowed" "lr: [[0.1]]"
refused "bad.yaml:3:5: lr: 'x'" "lr: [0.1, x]"
refused "bad.yaml:3:1: 'lr' has the same choice twice" "lr: [0.1, 0.1]"
refused "bad.yaml:3:1: unknown option 'lrr'" "lrr: choices(1 | 2)"
refused "bad.yaml:3:5: lr: 'x'" "lr: choices(0.1 | x)"
refused "bad.yaml:3:1: 'lr' lacks the ')'" "lr: choices(0.1 | 0.2"
refused "bad.yaml:3:1: 'lr' has an empty choice" "lr: choices(0.1 |)"
refused "'lr' has the same choice twice" "lr: choices(0.1 | 0.1)"
refused "'lr' has the same choice twice" "lr: [0.1, 0.2, 1e-1]"
refused "'seed' has the same choice twice" "lr: [0.1, 0.2]" "seed: choices(1 | 01)"
refused "'amp' has the same choice twice" "amp: choices(true | yes)"
refused "'opt' has the same choice twice" "opt: choices(adam | Adam)"
refused "'no-augment' has several values; write it without \"no-\": choices(true | false)" "no-augment: choices(true | false)"
refused "'lr' needs a range above 0" "lr: log-uniform(0, 1)"
refused "the lower one first" "lr: uniform(1, 0.5)"
refused "'opt' is no number" "opt: uniform(1, 2)"
refused "say how many with trials" "lr: uniform(0, 1)"
refused "there are no 3 different settings" "opt: choices(adam | sgd)" "trials: 3"
refused "'lr' is set twice" "lr: 0.1" "lr: choices(0.1 | 0.2)"
refused "'seed' is a repetition" "seed: uniform(1, 9)" "trials: 2"
refused "'resume' is set by the sweep" "lr: choices(0.1 | 0.2)" "resume: auto"
refused "'dry-run'" "lr: choices(0.1 | 0.2)" "dry-run: true"
refused "lr: '1111" "lr: choices(0.1 | $(printf '%0100000d' 0 | tr 0 1))"
(($(wc -c <err) < 2000)) || complain "a value of 100,000 digits is repeated in $(wc -c <err) bytes"
refused "halving needs a line 'epochs: N'" "lr: choices(0.1 | 0.2)" "halving: 2"
refused "no evaluation after 1 epochs" "lr: choices(0.1 | 0.2)" "halving: 2" "epochs: 4" "eval-interval: 2"
refused "first-rung" "lr: choices(0.1 | 0.2)" "first-rung: x"
sed -i 's/^lr:.*/lr: choices(0.01 | 0.02)/' grid.yaml
"$towers" sweep grid.yaml >out 2>err && complain "a changed file continues a sweep"
grep -q "has a sweep with other settings" err || complain "of a changed file: $(cat err)"
"$towers" sweep grid.yaml --trial-seed 7 >out 2>err && complain "--trial-seed without draws is accepted"
grep -q -- "--trial-seed has no effect without --trials" err || complain "--trial-seed: $(cat err)"
"$towers" sweep nowhere.yaml >out 2>err && complain "a missing file is accepted"
"$towers" sweep >out 2>err && complain "no file is accepted"
check_end "a sweep: grid, draws and repetitions, halving by exact rungs, interruptions without a trace, failures as rows, refusals"
