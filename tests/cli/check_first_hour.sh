#!/usr/bin/env bash
# The first hour of docs/guide/photos.md: its lines, with small images, one epoch, and the published weights on an HTTP server of
# loopback, whose table the environment names.
set -uo pipefail
. "$1/tests/support/check.sh"
unset TOWERS_RECIPE # the guide relies on the default
needs_python
export XDG_CACHE_HOME=$work/cache no_proxy=127.0.0.1
python3 - <<'PYTHON'
import os, random
random.seed(7)
def image(path, color):
    w, h = random.randint(40, 70), random.randint(40, 70)
    pixels = bytes(max(0, min(255, v + random.randint(-50, 50))) for _ in range(w * h) for v in color)
    open(path, "wb").write(b"P6\n%d %d\n255\n" % (w, h) + pixels)
for part, count in (("train", 24), ("valid", 4), ("test", 5)):
    for name, color in (("cup", (200, 60, 60)), ("fork", (60, 132, 60)), ("plate", (60, 75, 200))):
        os.makedirs(f"IMAGES/{part}/{name}")
        for i in range(count):
            image(f"IMAGES/{part}/{name}/{i}.ppm", color)
image("new.jpg", (60, 132, 60))
open("IMAGES/README.roboflow.txt", "w").write("exported\n")
PYTHON

# the "published" weights: of this program, for other classes
mkdir files
"$towers" train efficientnet_lite0 --dataset synthetic --classes 5 --img-size 40 -b 4 --max-steps 1 --eval-interval 0 --experiment other --quiet 2>"$err" || complain "$(cat "$err")"
cp runs/other/last.safetensors files/w.safetensors
rm -rf runs
coproc python3 "$source_dir/tests/support/http_server.py" "$work/files" "$work/requests"
server=$COPROC_PID
trap 'kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
read -r port _ <&"${COPROC[0]}" || complain "the server does not start"
cat >table.json <<JSON
[{"model": "efficientnet_lite0", "name": "imagenet", "title": "for a test", "license": "none", "address": "http://127.0.0.1:$port/good/w.safetensors",
  "sha256": "$(sha256sum files/w.safetensors | cut -c 1-64)"}]
JSON
export TOWERS_WEIGHTS_TABLE=$work/table.json

lines=0
while read -r line; do
    lines=$((lines + 1))
    # shellcheck disable=SC2086
    timeout 600 "$towers" $(sed 's/^towers //; s/--epochs 10/--epochs 1 --img-size 40 --batch-size 8 --device cpu/' <<<"$line") >"$work/out.$lines" 2>"$err" </dev/null ||
        complain "'$line': exit $?: $(tail -3 "$err")"
done < <(awk '/^```sh/ { on = 1; next } /^```/ { if (on) exit } on' "$source_dir/docs/guide/photos.md" | grep '^towers ')
[[ $lines == 7 ]] || complain "the guide has $lines lines, not 7"
[[ $(wc -l <requests) == 1 ]] || complain "the weights are not downloaded once: $(cat requests)"
grep -q '\[15 examples\]' out.4 || complain "eval --split test: $(head -5 out.4)"
grep -qE '^  +[0-9.]+ %  (cup|fork|plate)$' out.5 || complain "predict: $(cat out.5)"
grep -q '^class_names  *3: cup, fork, plate' out.6 || complain "info: $(cat out.6)"
[[ -s model.onnx ]] || complain "export wrote no model.onnx"
check_end "the guide's first hour works"
