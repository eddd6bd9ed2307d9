#!/usr/bin/env bash
# The console in a pseudo-terminal: no line is wider than the window, before and after a resize; a wide window shows all fields, a
# narrow one loss and progress; no escape codes without a terminal or with TERM=dumb, no colors with NO_COLOR; plain lines at exact
# multiples of the interval. Arguments: source folder, binary. With CONSOLE_PICTURES=DIR a picture of the console with a line per
# tower is kept there.
set -u
towers=$(realpath "$2") pictures=${CONSOLE_PICTURES:+$(realpath -m "$CONSOLE_PICTURES")}
command -v python3 >/dev/null || { echo "SKIPPED: no python3"; exit 77; }
python3 -c 'import pty; pty.openpty()' 2>/dev/null || { echo "SKIPPED: no pseudo-terminals here (is devpts mounted?)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
unset "${!TOWERS_@}" NO_COLOR COLUMNS LINES CLICOLOR_FORCE
export GOMP_SPINCOUNT=1000
cat >console.py <<'PY'
import fcntl, os, pty, re, struct, sys, termios

towers, failures = sys.argv[1], []

def size_set(fd, columns, rows=24):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))

def run(columns, arguments, environment={}, resize=None):
    """What the program wrote. `resize`: the width of the window after three drawings of the bar."""
    pid, fd = pty.fork()
    if pid == 0:
        size_set(0, columns)
        os.environ.update({'TERM': 'xterm-256color', 'LC_ALL': 'C.UTF-8', **environment})
        os.execv(towers, [towers, 'train', 'fashion_cnn', '--dataset', 'synthetic', '--threads', '1', '--workers', '1',
                          '--batch-size', '8', '--output-dir', 'runs'] + arguments)
    text, seen = b'', 0
    while True:
        try:
            data = os.read(fd, 65536)
        except OSError:
            break
        if not data:
            break
        text += data
        seen += data.count(b'eta')
        if resize and seen >= 3:
            columns, resize = resize, None
            size_set(fd, columns)
    _, status = os.waitpid(pid, 0)
    if status:
        failures.append(f'{arguments}: status {status}: {text[-400:]}')
    return text.decode()

def bars(text):
    """Every drawing of the bar and of the lines under it, without escape codes."""
    found = []
    for piece in re.split(r'\r\x1b\[J', text)[1:]:
        found.append([re.sub(r'\x1b\[[0-9;]*[A-Za-z]', '', line).strip('\r') for line in piece.split('\n')])
    return [lines for lines in found if 'loss' in lines[0]]

COLORS = {'36': '#4cc4d9', '32': '#6fcf7c', '31': '#ff7b72', '33': '#e3b341', '2': '#8b949e', '90': '#8b949e', '1': '#ffffff'}

def picture(text, path):
    """The last drawing of the bar as an SVG, in the colors that the terminal was told."""
    piece = [p for p in re.split(r'\r\x1b\[J', text) if 'eta' in p][-1].split('\r\n\x1b[K')[0]
    lines = [line.strip('\r') for line in piece.split('\n')][:3]
    with open(path, 'w') as svg:
        svg.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="860" height="{24 + 20 * len(lines)}" font-size="13.5" '
                  'font-family="monospace">\n<rect width="100%" height="100%" rx="6" fill="#0d1117"/>\n')
        for row, line in enumerate(lines):
            svg.write(f'<text x="14" y="{26 + 20 * row}" fill="#c9d1d9" xml:space="preserve">')
            color = None
            for part in re.split(r'(\x1b\[[0-9;]*[A-Za-z])', line):
                code = re.fullmatch(r'\x1b\[([0-9;]*)m', part)
                if code:
                    color = COLORS.get(code.group(1).split(';')[-1])
                elif part and not part.startswith('\x1b'):
                    words = part.replace('&', '&amp;').replace('<', '&lt;')
                    svg.write(f'<tspan fill="{color}">{words}</tspan>' if color else words)
            svg.write('</text>\n')
        svg.write('</svg>\n')

def expect(good, what):
    if not good:
        failures.append(what)

def steps(count):
    return ['--towers', '2', '--max-steps', str(count), '--eval-interval', '0']

def draw(columns, name, arguments=[], environment={}, resize=None):
    """The text, the drawings and the steps of a run that is long enough to be drawn, however fast or busy the machine is."""
    for count in 1500 if resize else 150, 1500, 15000:
        text = run(columns, steps(count) + ['--experiment', f'{name}-{count}'] + arguments, environment, resize)
        drawn = bars(text)
        if len(drawn) > 1 and (not resize or len(drawn[-1][0]) < resize):
            break
    return text, drawn, count

for columns in 60, 120, 200, 30:
    text, drawn, count = draw(columns, f'w{columns}')
    expect(drawn, f'{columns} columns: no bar: {text[-300:]!r}')
    for lines in drawn:
        expect(len(lines[0]) < columns, f'{columns} columns: a bar of {len(lines[0])}: {lines[0]!r}')
        expect('mean_loss' in lines[0] or columns < 60, f'{columns} columns: no loss in {lines[0]!r}')
    if columns == 60:
        expect(drawn and 'eta' in drawn[-1][0], f'no eta in {drawn[-1:]!r}')
    if columns == 200:
        for word in 'epoch', f'/{count}', 'mean_loss', '..', 'acc', 'lr', 'img/s', 'data-wait', 'eta':
            expect(drawn and word in drawn[-1][0], f"no '{word}' in {drawn[-1:]!r}")
    expect('Epoch 1, Loss: ' in text, 'no line of the epoch')
    expect('\x1b[36m' in text, 'no color')

text, drawn, _ = draw(120, 'resized', resize=50)
expect(drawn and len(drawn[-1][0]) < 50, f'after a resize to 50 columns: {drawn[-1][0] if drawn else text!r}')
expect(drawn and len(drawn[0][0]) > 60, 'before the resize')
wide = [len(lines[0]) for lines in drawn if len(lines[0]) > 50]
expect(wide and f'\x1b[{(wide[-1] - 1) // 50}A\r\x1b[J' in text, 'the rows of the wide bar stay in the narrow window')

text, drawn, _ = draw(100, 'view', ['--towers-view'])
expect(drawn and len(drawn[-1]) >= 3 and 'tower 0' in drawn[-1][1] and 'tower 1' in drawn[-1][2],
       f'no line for every tower: {drawn[-1] if drawn else text[-300:]!r}')
picture(text, 'console.svg')
expect(all(word in open('console.svg').read() for word in ('tower 0', 'tower 1', 'eta', 'tspan')), 'the picture lacks something')
expect(text.count('\x1b[2A') >= len(drawn), 'the cursor does not return to the bar')

text, drawn, _ = draw(50, 'narrow-view', ['--towers-view'])
for lines in drawn:
    for line in lines[1:3]:
        expect(re.fullmatch(r'  tower [01]   loss [0-9.]+ *( gradient [0-9.e+-]+ *)?( \+[0-9.]+ ms)?(  [a-z-]+)?', line) and len(line) < 50,
               f'a line of a tower that was cut: {line!r}')
expect(not re.search(r'tower 1[^\n]* record', text), 'tower 1 records nothing')

text, drawn, _ = draw(100, 'mono', [], {'NO_COLOR': '1'})
expect(all(lines[0].count('━') < 22 for lines in drawn[:-1]) and '┄' in text, 'a bar that looks full without colors')
expect(drawn and not re.search(r'\x1b\[[0-9;]*m', text), 'colors in spite of NO_COLOR')
text, drawn, _ = draw(100, 'ascii', [], {'LC_ALL': 'C'})
expect(drawn and text.isascii(), 'letters that are not ASCII in the C locale')
text = run(100, steps(150) + ['--experiment', 'dumb'], {'TERM': 'dumb'})
expect('\x1b' not in text and 'step 150/150' in text, f'TERM=dumb: {text[-200:]!r}')

for failure in failures:
    print('FAILED:', failure)
sys.exit(bool(failures))
PY
timeout 600 python3 console.py "$towers" || exit 1
[[ -n $pictures ]] && mkdir -p "$pictures" && cp console.svg "$pictures"

# Not a terminal: plain lines at exact multiples, nothing else.
timeout 100 "$towers" train fashion_cnn --dataset synthetic --batch-size 8 --towers 2 --threads 1 --max-steps 100 \
    --log-interval 7 --eval-interval 0 --output-dir runs --experiment plain --towers-view >out 2>err </dev/null ||
    { echo "FAILED: $(cat err)"; exit 1; }
failed=0
grep -q $'\033' err && { echo "FAILED: escape codes in a file"; failed=1; }
[[ -s out ]] && { echo "FAILED: something on standard output"; failed=1; }
wanted=$(seq 7 7 100 | tr '\n' ' ')
shown=$(sed -n 's/^step \([0-9]*\)\/100 .*/\1/p' err | tr '\n' ' ')
[[ $shown == "$wanted" ]] || { echo "FAILED: lines of steps $shown instead of $wanted"; failed=1; }
[[ $(grep -c '^  tower [01] ' err) == 28 ]] || { echo "FAILED: $(grep -c '^  tower' err) lines of towers"; failed=1; }
grep -q '^Epoch 1, Loss: [0-9.]*, Accuracy: [0-9.]*' err || { echo "FAILED: no line of the epoch: $(cat err)"; failed=1; }
exit $failed
