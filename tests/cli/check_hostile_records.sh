#!/usr/bin/env bash
# Records of a run that came from elsewhere: numbers at the limits of a double, and strings that contain terminal or HTML control
# sequences. The report is made in seconds, compare prints no escape codes, and its JSON is JSON. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
needs_python
small_data "$work/data" 400 50 || exit $?
"$towers" train fashion_cnn --data-path "$work/data" --device cpu --towers 2 --threads 1 --batch-size 4 --max-steps 40 --output-dir "$work" \
    --experiment run >/dev/null 2>"$work/err" </dev/null || complain "$(tail -2 "$work/err")"
python3 - "$work" <<'PY'
import json, os, shutil, sys
work = sys.argv[1]
rows = [json.loads(line) for line in open(f'{work}/run/metrics.jsonl')]
def run(name, change):
    shutil.copytree(f'{work}/run', f'{work}/{name}')
    with open(f'{work}/{name}/metrics.jsonl', 'w') as to:
        for number, row in enumerate(rows):
            row = json.loads(json.dumps(row))
            change(number, row)
            to.write(json.dumps(row, separators=(',', ':')) + '\n')
def losses(low, high):
    def change(number, row):
        value = high if number % 2 else low
        row.update(mean_loss=value, base_loss=value, total_loss=value, last_tower_loss=value, tower_loss=[value, value])
    return change
run('large', losses(1e16, 1e16 + 2))
run('small', losses(5e-324, 1e-323))
run('edge', losses(-1.7e308, 1.7e308))
run('late', lambda number, row: row.update(step=9007199254740800 + number))
run('words', lambda number, row: row.update(slow_tower=0, slow_activity='\x1b[2J\x9b3m<b>'))
run('cut\x7f\x9b', lambda number, row: row.update(slow_tower=0, slow_activity='abcdefghijklmn\xe9', phase='<i>abcdefghijk\xe9'))
with open(f'{work}/cut\x7f\x9b/norms.jsonl', 'w') as to:
    to.write(json.dumps({'step': 40, 'norms': {'x\nError: ' + 'x' * 117 + '\xe9': [0.1, 0.2]}}) + '\n')
PY
for name in large small edge late $'cut\x7f\xc2\x9b' words; do
    timeout -s KILL 200 "$towers" compare "$work/$name" "$work/run" --json | python3 -c 'import json, sys; run = json.load(sys.stdin)["runs"][0]; assert run["slow"] or not run["norm_drift"]' 2>"$work/out" ||
        complain "compare --json of $name: $(tail -2 "$work/out")"
    timeout -s KILL 200 "$towers" report "$work/$name" >"$work/out" 2>&1 || complain "report of $name: exit $?: $(tail -2 "$work/out")"
    grep -qE '<(text|line|path)[^>]*(nan|inf)' "$work/$name/report.html" && complain "$name: coordinates that are no numbers"
    timeout -s KILL 200 "$towers" compare "$work/$name" >"$work/out" 2>&1 || complain "compare of $name: exit $?: $(tail -2 "$work/out")"
    LC_ALL=C grep -qE $'\033|\xc2\x9b|^Error' "$work/out" && complain "compare of $name: escape codes, or a line of its own"
done
timeout -s KILL 200 "$towers" compare "$work"/{run,large,small,edge,late,words} -o "$work/page.html" >/dev/null 2>"$work/err" || complain "compare -o: $(tail -2 "$work/err")"
grep -qE '<(text|line|path)[^>]*(nan|inf)' "$work/page.html" && complain "compare -o: coordinates that are no numbers"
grep -qF 'slow in \x1b[2J\xc2\x9b3m<b>' "$work/out" || complain "words: $(cat "$work/out")"
grep -qF 'phase <i>' "$work"/cut*/report.html && complain "a tag in the name of a phase"
grep -qF '<b>' <(grep -o 'slow in.*' "$work/words/report.html") && complain "words: a tag in the page"
# a picture of a page whose path means something in an address; the browser is one that only looks whether the page is there
mkdir "$work/bin" && cat >"$work/bin/chromium" <<'SH'
#!/bin/sh
for argument; do case $argument in
    --screenshot=*) shot=${argument#*=} ;;
    file:*) python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1])' "$argument" && echo picture >"$shot" ;;
esac; done
SH
chmod +x "$work/bin/chromium" && cp -r "$work/run" "$work/a#b?c%41"
PATH=$work/bin:/usr/bin:/bin "$towers" report "$work/a#b?c%41" --png >"$work/out" 2>&1 && grep -q picture "$work/a#b?c%41/report.png" || complain "report --png: $(tail -2 "$work/out")"
check_end "records from elsewhere are shown for what they are"
