#!/usr/bin/env bash
# The report of real runs in a browser: what a pointer, a finger and the arrow keys show in every plot are the numbers of the records;
# light, dark, at the width of a telephone, on paper, and without its script the page is whole; it loads nothing, runs no script but its
# own, and no name becomes markup. Needs Chromium and Python (standard library). Arguments: source folder, binary. With
# REPORT_PICTURES=DIR screenshots are kept there.
. "$1/tests/support/check.sh"
needs_python
export PYTHONPATH=$source_dir/tests/support PYTHONDONTWRITEBYTECODE=1
missing=$(python3 -c 'from browser import Browser; print(Browser.missing)')
[[ -z $missing ]] || { echo "SKIPPED: $missing"; exit 77; }
train() { # NAME ARGUMENT...
    timeout 200 "$towers" train fashion_cnn --threads 1 --output-dir runs --experiment "$1" --quiet "${@:2}" >out 2>err </dev/null ||
        { echo "FAILED: training: $(cat err)"; exit 1; }
}
train several --dataset synthetic --towers 2 --batch-size 8 --max-steps 800 --summary-interval 50
small_data data 400 100 || exit $?
train one --data-path data --batch-size 10 --epochs 5 --eval-interval 1 --summary-interval 50 --lr-schedule "0.01;2;0.001" --sched piecewise
train found --data-path data --batch-size 10 --max-steps 60 --lr auto # its plot of rates has no neighbor
[[ -s runs/several/report.html ]] || { echo "FAILED: no report at the end of the run"; exit 1; }
cp runs/several/report.html first.html
"$towers" report runs/several --quiet || { echo "FAILED: towers report"; exit 1; }
cmp -s first.html runs/several/report.html || { echo "FAILED: towers report makes another page than the run did"; exit 1; }
cp -r runs/one runs/named
python3 - <<'PYTHON'
import json
env = json.load(open('runs/named/env.json'))
mark = '<img src=x onerror="window.hit=1"></script><script>window.hit=1</script>"\'&'
env['model'] = mark
env['class_names'] = [f'{k}{mark}' for k in range(len(env['class_names']))]
json.dump(env, open('runs/named/env.json', 'w'))
PYTHON
"$towers" report runs/named --quiet || { echo "FAILED: towers report of a run with marked names"; exit 1; }

"$towers" compare runs/one runs/several -o compare.html >/dev/null || { echo "FAILED: towers compare -o"; exit 1; }

timeout 400 python3 - "${REPORT_PICTURES:-}" <<'PYTHON' || exit 1
import csv, json, os, sys
from browser import Browser
failed = []
def expect(good, what):
    if not good:
        failed.append(what)

def text_of(value): # as the page shows it
    return f'{value:.6g}'.replace('-', '\u2212')

def records(run):
    steps = [json.loads(line) for line in open(f'runs/{run}/metrics.jsonl')]
    epochs = list(csv.DictReader(open(f'runs/{run}/results.csv')))
    def column(key, scale=1):
        return {int(row['epoch']): text_of(scale * float(row[key])) for row in epochs if row[key]}
    def step_column(of):
        return {row['step']: of(row) for row in steps}
    def spread(values):
        low, high = text_of(min(values)), text_of(max(values))
        return low if low == high else f'{low} to {high}'
    losses = step_column(lambda row: text_of(row['mean_loss']))
    found = {'Accuracy': {'test': column('test_top1', 100), 'training': column('train_top1', 100)},
             'Loss per epoch': {'test': column('test_loss'), 'training': column('train_loss')},
             'Training loss': {'mean_loss': losses},
             'Learning rate': {'Learning rate': step_column(lambda row: text_of(row['lr']))},
             'Gradient': {'averaged': step_column(lambda row: text_of(row['grad_norm']))},
             'Throughput': {'Throughput': step_column(lambda row: text_of(row['images_per_sec']))}}
    if len(steps[0]['tower_count']) > 1:
        last = step_column(lambda row: text_of(row['tower_loss'][-1]))
        found['Gradient']['towers'] = step_column(lambda row: spread(row['tower_grad_norm']))
        found['Loss of the towers'] = {'mean_loss': losses, 'tower 1 (last)': last, 'all towers': step_column(lambda row: spread(row['tower_loss']))}
        found['Step by step'] = {'mean_loss': losses, 'last tower': last}
    return found

SHOWN = '''(() => { const box = document.querySelector('.readout:not([hidden])');
    return box && {at: box.querySelector('b').textContent,
                   rows: [...box.querySelectorAll('div')].map((row) => [row.querySelector('span').textContent, row.querySelector('strong').textContent])} })()'''

def area(browser, number):
    return browser.ask(f"""(() => {{ const svg = document.querySelectorAll('svg.chart')[{number}];
        svg.scrollIntoView({{block: 'center'}}); const r = svg.getBoundingClientRect(); return [r.left, r.top, r.width, r.height]; }})()""")

TITLES = "[...document.querySelectorAll('svg.chart')].map((svg) => svg.closest('figure').querySelector('h3').textContent)"

def check_shown(shown, title, wanted, near=None, reach=0):
    axis, x = shown['at'].rsplit(' ', 1)
    rows = dict(shown['rows'])
    if title in wanted:
        for name, values in wanted[title].items():
            expect(rows.get(name) == values.get(int(x)), f"{title} at {axis} {x}: {name} {rows.get(name)}, the records have {values.get(int(x))}")
    if near is not None:
        expect(abs(int(x) - near) <= reach, f'{title}: {axis} {x} is shown at {near}')

def check_pointers(browser, run):
    wanted, titles = records(run), browser.ask(TITLES)
    for title in wanted:
        expect(title in titles, f'{run}: no plot {title} in {titles}')
    for number, title in enumerate(titles):
        for share in (0, 0.13, 0.5, 0.77, 1):
            left, top, width, height = area(browser, number)
            browser.move(left + share * width, top + height / 2)
            shown = browser.ask(SHOWN)
            expect(shown and shown['rows'], f'{run}: nothing is shown in {title} at {share}')
            if shown and title in wanted:
                last = {'one': 200, 'several': 800}[run]
                near = 1 + (last - 1) * share if title in ('Training loss', 'Loss of the towers') else None
                check_shown(shown, title, wanted, near, 0.6 if run == 'one' else 5)
        browser.move(1, 1)
        expect(browser.ask(SHOWN) is None, f'{run}: {title} still shows values when the pointer has left')

def check_keys(browser, run):
    wanted, titles = records(run), browser.ask(TITLES)
    number = titles.index('Training loss')
    browser.ask(f"document.querySelectorAll('svg.chart')[{number}].focus()")
    seen = []
    for key in ('Home', 'ArrowRight', 'ArrowRight', 'ArrowLeft', 'End', 'PageUp'):
        browser.key(key)
        shown = browser.ask(SHOWN)
        seen.append(shown['at'])
        check_shown(shown, 'Training loss', wanted)
    expect(seen[:5] == ['step 1', 'step 2', 'step 3', 'step 2', 'step 200'] and 'step 100' < seen[5] < 'step 200', f'keys lead to {seen}')
    browser.key('Escape')
    expect(browser.ask(SHOWN) is None, 'Escape hides nothing')

def check_layout(browser, what, width):
    expect(browser.ask('document.documentElement.scrollWidth') == width, f'{what}: the page is wider than {width}')
    out = browser.ask("""[...document.querySelectorAll('figure svg.chart text')].filter((text) => getComputedStyle(text).display !== 'none').filter((text) => {
        const r = text.getBoundingClientRect(), f = text.closest('figure').getBoundingClientRect();
        return r.left < f.left || r.right > f.right; }).map((text) => text.textContent)""")
    expect(not out, f'{what}: beyond the edges of their figures: {out}')
    alone = browser.ask("""[...document.querySelectorAll('figure.half')].filter((figure, i, all) => {
        const r = figure.getBoundingClientRect(), p = figure.parentElement.getBoundingClientRect();
        return r.width < 0.9 * p.width && !all.some((other) => other !== figure && other.getBoundingClientRect().top === r.top);
        }).map((figure) => figure.querySelector('h3').textContent)""")
    expect(not alone, f'{what}: of half the width, without a neighbor: {alone}')
    thin = browser.ask("""[...document.querySelectorAll('svg.chart path.line')].filter((path) => {
        const r = path.getBoundingClientRect(), c = path.closest('svg.chart').getBoundingClientRect();
        return path.getAttribute('d') && r.width < 0.3 * c.width && !path.closest('svg[x]') && !path.closest('.legend'); }).length""")
    expect(thin == 0 or what.startswith('compare'), f'{what}: {thin} curves are not drawn across their plots') # runs of other lengths

ANSWER = "document.querySelector('.answer').innerText"
with Browser() as browser:
    for run in ('one', 'several'):
        page = f'runs/{run}/report.html'
        for dark in (False, True):
            browser.open(page, dark=dark)
            ground = browser.ask('getComputedStyle(document.documentElement).backgroundColor')
            stroke = browser.ask("getComputedStyle(document.querySelector('path.l0')).stroke")
            expect((ground, stroke) == (('rgb(18, 22, 28)', 'rgb(127, 176, 255)') if dark else ('rgb(251, 251, 252)', 'rgb(37, 99, 201)')), (run, dark, ground, stroke))
            check_layout(browser, f'{run}, dark {dark}', 1200)
            if sys.argv[1]:
                os.makedirs(sys.argv[1], exist_ok=True)
                browser.picture(f"{sys.argv[1]}/{run}-{'dark' if dark else 'light'}.png")
        check_pointers(browser, run)
        if run == 'one':
            check_keys(browser, run)
        expect(not browser.complaints, f'{run}: {browser.complaints}')
        answer = browser.ask(ANSWER)
        first = browser.ask("document.querySelector('main').innerText.indexOf('The test accuracy is')")
        expect(0 < first < 300 and 'What to try next:' in answer, f'{run}: the answer is not first: {answer}')
        order = browser.ask("[...document.querySelectorAll('h2')].map((h2) => h2.textContent)")
        wanted = ['Curves', 'Classes', 'Mistakes', 'Data', 'Towers', 'Speed and memory', 'Layers', 'The run']
        expect(order == [part for part in wanted if run == 'several' or part != 'Towers'], f'{run}: the order {order}')
        browser.open(page, script=False)
        expect(browser.ask(ANSWER) == answer and browser.ask("document.querySelectorAll('.readout').length") == 0, f'{run}: without the script')
        browser.open(page, width=390, height=844)
        check_layout(browser, f'{run}, telephone', 390)
        cards = dict(browser.ask("[...document.querySelectorAll('.cards div')].map((card) => [card.querySelector('span').textContent, card.querySelector('b').textContent])"))
        lines = browser.ask("[...document.querySelectorAll('.cards b')].map((b) => b.getBoundingClientRect().height / parseFloat(getComputedStyle(b).fontSize))")
        expect(max(lines) < 2 and any('%' in value for value in cards.values()), f'{run}: a number and its unit are on two lines: {cards} {lines}')
        steps = [json.loads(line) for line in open(f'runs/{run}/metrics.jsonl')]
        seconds = sum(step['images'] / step['images_per_sec'] for step in steps)
        wanted = f"{sum(step['images'] for step in steps) / seconds:.0f}"
        expect(cards.get('images per second, training alone') == wanted, f'{run}: not the speed of all steps, {wanted}: {cards}')
        names = browser.ask("[...document.querySelectorAll('.legend')].every((legend) => getComputedStyle(legend).display === 'block')")
        expect(names, f'{run}: no legends at the width of a telephone')
        number = browser.ask(TITLES).index('Training loss')
        left, top, width, height = area(browser, number)
        browser.touch(left + width / 2, top + height / 2)
        shown = browser.ask(SHOWN)
        expect(shown, f'{run}: a finger shows nothing')
        if shown:
            check_shown(shown, 'Training loss', records(run))
            box = browser.ask("(() => { const r = document.querySelector('.readout:not([hidden])').getBoundingClientRect(); return [r.left, r.right]; })()")
            expect(0 <= box[0] and box[1] <= 390, f'{run}: the values are beyond the edge: {box}')
        if sys.argv[1]:
            browser.picture(f'{sys.argv[1]}/{run}-phone.png')
        browser.open(page, width=800, paper=True)
        expect(browser.ask("getComputedStyle(document.documentElement).backgroundColor") == 'rgb(255, 255, 255)', f'{run}: paper is not white')
    browser.open('runs/found/report.html')
    expect('Learning rates that were tried' in browser.ask(TITLES), 'no plot of the rates')
    check_layout(browser, 'found', 1200)
    # The page of a comparison: the numbers of both runs, each under its name.
    browser.open('compare.html')
    check_layout(browser, 'compare', 1200)
    titles, epochs = browser.ask(TITLES), list(csv.DictReader(open('runs/one/results.csv')))
    left, top, width, height = area(browser, titles.index('Test accuracy'))
    for epoch in 1, 3, 5:
        browser.move(left + width * (epoch - 1) / 4, top + height / 2)
        shown = browser.ask(SHOWN)
        expect(shown['at'] == f'epoch {epoch}' and dict(shown['rows']).get('1 one') == text_of(100 * float(epochs[epoch - 1]['test_top1'])), f'compare: {shown}')
    rates = {row['images_seen']: row['lr'] for row in map(json.loads, open('runs/one/metrics.jsonl'))}
    left, top, width, height = area(browser, titles.index('Learning rate'))
    browser.move(left + 0.1 * width, top + height / 2)
    shown = browser.ask(SHOWN)
    images = int(shown['at'].split()[-1])
    expect(images not in rates or dict(shown['rows']).get('1 one') == text_of(rates[images]), f'compare: {shown}')
    expect(not browser.complaints, f'compare: {browser.complaints}')
    browser.open('compare.html', width=390, height=844)
    check_layout(browser, 'compare, telephone', 390)
    browser.open('runs/named/report.html')
    expect(browser.ask('window.hit') is None and browser.ask("document.querySelectorAll('img[src=x]').length") == 0, 'a name has become markup')
    expect(browser.ask("document.querySelector('h1').textContent").startswith('<img src=x onerror="window.hit=1"></script>'), 'the name of the model')
    expect(not browser.complaints, f'names: {browser.complaints}')
    # The policy of the page: a script that is added to it does not run.
    text = open('runs/one/report.html').read()
    open('changed.html', 'w').write(text.replace('</main>', '<script>window.hit=2</script></main>'))
    browser.open('changed.html')
    expect(browser.ask('window.hit') is None and browser.complaints, f'another script runs: {browser.complaints}')
for what in failed[:20]:
    print('FAILED:', what)
sys.exit(bool(failed))
PYTHON
check_end "a report in a browser: what a pointer reads are the records, in light, dark, on a telephone, on paper and without its script"
