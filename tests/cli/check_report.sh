#!/usr/bin/env bash
# The report of a real run in a browser: in light and dark mode its curves are drawn in their colors across the plot, on a background
# of the right brightness. Needs Chromium and Python (standard library). Arguments: source folder, binary. With REPORT_PICTURES=DIR
# the screenshots are kept there.
. "$1/tests/support/check.sh"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
[[ -n $browser ]] || { echo "SKIPPED: no chromium: what a browser makes of the report is not tested here"; exit 77; }
needs_python
timeout 200 "$towers" train fashion_cnn --dataset synthetic --towers 2 --threads 1 --batch-size 8 --max-steps 300 \
    --summary-interval 50 --output-dir runs --experiment picture --quiet >out 2>err </dev/null ||
    { echo "FAILED: training: $(cat err)"; exit 1; }
[[ -s runs/picture/report.html ]] || { echo "FAILED: no report at the end of the run"; exit 1; }
cp runs/picture/report.html first.html
"$towers" report runs/picture --quiet || { echo "FAILED: towers report"; exit 1; }
cmp -s first.html runs/picture/report.html || { echo "FAILED: towers report makes another page than the run did"; exit 1; }

sandbox=()
[[ $(id -u) == 0 ]] && sandbox=(--no-sandbox)
for mode in light dark; do
    scheme=1
    [[ $mode == dark ]] && scheme=0
    timeout 120 "$browser" --headless "${sandbox[@]}" --disable-gpu --hide-scrollbars --window-size=1200,1100 \
        --user-data-dir="$work/profile" --blink-settings=preferredColorScheme=$scheme \
        --screenshot="$work/$mode.png" "file://$work/runs/picture/report.html" >browser 2>&1
    [[ -s $mode.png ]] || { echo "FAILED: no screenshot: $(tail -3 browser)"; exit 1; }
done
# at the width of a phone, of a run with one tower: plots keep a size that can be read and are moved inside their frames
timeout 200 "$towers" train fashion_cnn --dataset synthetic --threads 1 --batch-size 16 --epochs 2 --max-steps 200 --eval-interval 1 \
    --summary-interval 50 --output-dir runs --experiment phone --quiet >out 2>err </dev/null ||
    { echo "FAILED: training: $(cat err)"; exit 1; }
timeout 120 "$browser" --headless "${sandbox[@]}" --disable-gpu --hide-scrollbars --window-size=400,6000 --user-data-dir="$work/profile" \
    --blink-settings=preferredColorScheme=1 --screenshot="$work/phone.png" "file://$work/runs/phone/report.html" >browser 2>&1
[[ -s phone.png ]] || { echo "FAILED: no screenshot: $(tail -3 browser)"; exit 1; }
[[ -n ${REPORT_PICTURES:-} ]] && mkdir -p "$REPORT_PICTURES" && cp light.png dark.png phone.png "$REPORT_PICTURES"

python3 - <<'PY'
import struct, sys, zlib

def png(path):
    """Rows of (r, g, b) of an 8-bit RGB or RGBA picture."""
    data, at, packed = open(path, 'rb').read(), 8, b''
    while at < len(data):
        count, kind = struct.unpack('>I4s', data[at:at + 8])
        if kind == b'IHDR':
            width, height, depth, color = struct.unpack('>IIBB', data[at + 8:at + 18])
        if kind == b'IDAT':
            packed += data[at + 8:at + 8 + count]
        at += 12 + count
    step = {2: 3, 6: 4}[color]
    assert depth == 8
    raw, row, rows = zlib.decompress(packed), bytes(width * step), []
    for y in range(height):
        start = y * (width * step + 1)
        kind, line = raw[start], bytearray(raw[start + 1:start + 1 + width * step])
        for i in range(len(line)):
            left = line[i - step] if i >= step else 0
            up, corner = row[i], row[i - step] if i >= step else 0
            if kind == 1:
                line[i] = line[i] + left & 255
            elif kind == 2:
                line[i] = line[i] + up & 255
            elif kind == 3:
                line[i] = line[i] + (left + up) // 2 & 255
            elif kind == 4:
                p = left + up - corner
                best = min((abs(p - left), 0, left), (abs(p - up), 1, up), (abs(p - corner), 2, corner))
                line[i] = line[i] + best[2] & 255
        row = bytes(line)
        rows.append([tuple(row[x:x + 3]) for x in range(0, len(row), step)])
    return rows

failed = False
for mode, ground, tints in (('light', (251, 251, 252), {'mean_loss': ((37, 99, 201), 700), 'last tower': ((212, 102, 10), 120)}),
                            ('dark', (18, 22, 28), {'mean_loss': ((127, 176, 255), 700), 'last tower': ((255, 171, 92), 120)})):
    rows = png(mode + '.png')
    if max(abs(a - b) for a, b in zip(rows[3][3], ground)) > 3:
        print(f'FAILED: {mode}: the ground is {rows[3][3]}')
        failed = True
    loss = rows[400:700]  # the height of the first plot
    for name, (tint, least) in tints.items():
        columns = set()
        for row in loss:
            columns.update(x for x, pixel in enumerate(row) if sum(abs(a - b) for a, b in zip(pixel, tint)) < 60)
        inside = [x for x in columns if 110 <= x <= 1010]
        if len(inside) < least: # one curve may hide another
            print(f'FAILED: {mode}: {name} is drawn in {len(inside)} columns of the loss plot')
            failed = True

# the phone: no wider than the screen (the ground shows at its right edge), and the loss curve as tall as on a desk
rows = png('phone.png')
width = len(rows[0])
edge = sum(sum(abs(a - b) for a, b in zip(row[width - 3], (251, 251, 252))) < 9 for row in rows)
if edge < 0.97 * len(rows):
    print(f'FAILED: phone: the page is wider than its {width} pixels in {len(rows) - edge} rows of {len(rows)}')
    failed = True
tint = (37, 99, 201)
drawn = [y for y, row in enumerate(rows[300:1600]) if sum(sum(abs(a - b) for a, b in zip(pixel, tint)) < 60 for pixel in row[30:width - 30]) > 0]
if not drawn or max(drawn) - min(drawn) < 150:
    print(f'FAILED: phone: the loss is drawn in {len(drawn)} rows')
    failed = True
sys.exit(failed)
PY
