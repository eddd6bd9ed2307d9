#!/usr/bin/env bash
# The first hour of docs/guide/photos.md with 500 photographs, as Roboflow lays them out: solar cells, defective or not, of
# scripts/measure/train_photos.sh, 70 % in train/, 15 % each in valid/ and test/. Installs and builds, runs the guide's lines and the C program of
# docs/guide/elsewhere.md, and fills in the table of photos.md with the time of each. The weights are those of the Python package that the
# study of photographs uses, fetched from an HTTP server on loopback, because not every network reaches the published ones. About ten
# minutes on two idle cores.
# usage: scripts/first_hour.sh [BUILD]     (with BUILD, a folder that is built: no installation, and standard output only)
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh python

source_dir=$PWD build=${1:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/towers-hour.XXXXXX")
server=''
trap 'kill $server 2>/dev/null; rm -rf "$work"' EXIT

# step LINE TEXT: run the line and add a row: its time, and the first line of its output that the expression TEXT matches
step() {
    local begin end
    begin=$(date +%s%N)
    (eval "$1") >"$work/out" 2>&1 </dev/null || { tail -n 5 "$work/out" >&2; exit 1; }
    end=$(date +%s%N)
    awk -v line="$1" -v text="$2" -v milliseconds=$(((end - begin) / 1000000)) '
        text != "" && $0 ~ text && says == "" { sub(/^ +/, ""); gsub(/  +/, " "); gsub(/\|/, "\\|"); says = $0 }
        END { printf "| `%s` | %.1f s | %s |\n", line, milliseconds / 1000, says }' "$work/out" | tee -a "$work/rows" >&2
}

if [ $# -eq 0 ]; then
    step 'scripts/setup.sh build' ''
    step 'cmake --preset cpu && cmake --build build' ''
    scripts/setup.sh peers >&2 # Python, for the pictures
fi
towers=$(realpath "$build/towers") photos=${XDG_CACHE_HOME:-$HOME/.cache}/towers/photos
scripts/measure/train_photos.sh --minutes 0 "$towers" >/dev/null 2>&1 # the pictures
cmake --install "$build" --prefix "$work/usr" >/dev/null
LD_LIBRARY_PATH=$(dirname "$(find "$work/usr" -name libtowers.so)")
export XDG_CACHE_HOME=$work/cache no_proxy=127.0.0.1 PATH=$work/usr/bin:$PATH LD_LIBRARY_PATH PKG_CONFIG_PATH=$LD_LIBRARY_PATH/pkgconfig
cd "$work"
ln -s "$source_dir/examples" .

# the pictures and the weights
python3 - "$photos/elpv" <<'PYTHON'
import glob, os, shutil, sys
by_class = {name: sorted(glob.glob(f"{sys.argv[1]}/*/{name}/*.jpg"), key=os.path.basename) for name in ("defective", "functional")}
defective = round(500 * len(by_class["defective"]) / sum(map(len, by_class.values())))
for name, most in (("defective", defective), ("functional", 500 - defective)):
    for at, path in enumerate(by_class[name][:most]):
        part = "valid" if at % 20 in (3, 9, 16) else "test" if at % 20 in (6, 13, 19) else "train"
        os.makedirs(f"IMAGES/{part}/{name}", exist_ok=True)
        shutil.copy(path, f"IMAGES/{part}/{name}")
shutil.copy(by_class["defective"][-1], "new.jpg")
open("IMAGES/README.roboflow.txt", "w").write("exported\n")
PYTHON
mkdir files
python3 -m zipfile -e "$photos"/lite0/*.whl wheel
cp "$(find wheel -name '*.pth')" files/w.pth
exec 3< <(exec python3 "$source_dir/tests/support/http_server.py" "$work/files" "$work/requests")
server=$!
read -r port _ <&3
cat >table.json <<JSON
[{"model": "efficientnet_lite0", "name": "imagenet", "title": "of a Python package", "license": "Apache-2.0",
  "address": "http://127.0.0.1:$port/good/w.pth", "sha256": "$(sha256sum files/w.pth | cut -c 1-64)"}]
JSON
export TOWERS_WEIGHTS_TABLE=$work/table.json

mapfile -t lines < <(awk '/^```sh/ { on = 1; next } /^```/ { if (on) exit } on' "$source_dir/docs/guide/photos.md")
texts=(images '' '^test accuracy' '^Accuracy' defective class_names model.onnx)
[ ${#lines[@]} = ${#texts[@]} ] || { echo "first_hour: the guide has ${#lines[@]} lines, not ${#texts[@]}" >&2; exit 1; }
for i in "${!lines[@]}"; do step "${lines[i]}" "${texts[i]}"; done
# shellcheck disable=SC2016
step 'cc examples/library/classify.c $(pkg-config --cflags --libs towers) -o classify && ./classify runs/first new.jpg' defective

{
    echo "$(. /etc/os-release && echo "$PRETTY_NAME"), $(nproc) cores of $(sed -n 's/^model name[^:]*: //p;T;q' /proc/cpuinfo) with $(
        grep -qw avx512f /proc/cpuinfo && echo AVX-512 || echo AVX2), $(date +%F):"
    echo
    echo '| command | time | says |'
    echo '|---|---:|---|'
    cat rows
} | if [ $# -gt 0 ]; then cat; else "$source_dir/scripts/pages/fill_section.sh" "$source_dir/docs/guide/photos.md" hour; fi
