#!/usr/bin/env bash
# libtowers as its user installs it: the symbols are those of the list, pkg-config and CMake find it, the example in C and the package for
# Python give the probabilities of `towers predict`, from files and from pixels; several handles and threads; nothing is printed.
set -uo pipefail
. "$1/tests/support/check.sh"
build=$(dirname "$towers")
grep -q '^TOWERS_SANITIZE:STRING=.' "$build/CMakeCache.txt" && { echo "SKIPPED: a sanitizer must be in the program that loads the library" >&2; exit 77; }
for python in python3 /usr/bin/python3 "$("$source_dir/scripts/venv.sh" onnx 2>/dev/null)" none; do "$python" -c 'import numpy' 2>/dev/null && break; done
export XDG_CACHE_HOME=$work/cache OMP_NUM_THREADS=2

cmake --install "$build" --prefix "$work/prefix" >"$out" 2>&1 || complain "install: $(tail -3 "$out")"
lib=$(dirname "$(find "$work/prefix" -name libtowers.so)")
[[ -e $lib/libtowers.so.0 && -e $lib/pkgconfig/towers.pc && -e $lib/cmake/towers/towers-config.cmake && -e prefix/include/towers.h ]] || complain "what is installed: $(find prefix | head -40)"
export PKG_CONFIG_PATH=$lib/pkgconfig
nm -D --defined-only "$lib/libtowers.so" | awk '$2 == "T" { sub("@.*", "", $3); print $3 }' | sort >symbols
sed -n 's/^ *\(towers_[a-z_]*\);$/\1/p' "$source_dir/inception/library/symbols.map" | sort | diff - symbols >"$out" || complain "the symbols are not those of the list: $(cat "$out")"
grep -oP '^[a-z].*\Ktowers_[a-z_]+(?=\()' "$source_dir/inception/library/towers.h" | sort -u | diff - symbols >"$out" || complain "the symbols are not those of the header: $(cat "$out")"

python3 - <<'PYTHON'
import os, random
random.seed(5)
for split, count in (("train", 16), ("val", 6)):
    for name, color in (("café", (200, 60, 60)), ("dog, big", (60, 132, 60)), ("owl", (60, 75, 200))):
        os.makedirs(f"data/{split}/{name}")
        for i in range(count):
            w, h = random.randint(30, 60), random.randint(30, 60)
            pixels = bytes(max(0, min(255, v + random.randint(-50, 50))) for _ in range(w * h) for v in color)
            open(f"data/{split}/{name}/{i}.ppm", "wb").write(b"P6\n%d %d\n255\n" % (w, h) + pixels)
PYTHON
"$towers" train fashion_cnn --data-path data --max-steps 6 -b 16 --lr 0.0005 --experiment run --quiet 2>"$err" || complain "training: $(cat "$err")"
"$towers" train fashion_cnn --dataset synthetic --classes 3 --img-size 32 --max-steps 1 -b 8 --experiment gray --quiet 2>"$err" || complain "gray: $(cat "$err")"
${CC:-cc} -std=c11 -Wall -Wextra -Werror "$source_dir/examples/library/classify.c" $(pkg-config --cflags --libs towers) -o classify 2>"$err" ||
    complain "the example does not compile by pkg-config: $(cat "$err")"
refuses 1 "towers.h was not found: install libtowers (cmake --install build), and compile with the line above" ${CC:-cc} -c "$source_dir/examples/library/classify.c" -o none.o
mkdir project && cat >project/CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(user C)
find_package(towers 0.1 REQUIRED)
add_executable(user main.c)
target_link_libraries(user towers::towers)
CMAKE
cp "$source_dir/examples/library/classify.c" project/main.c
cmake -G Ninja -S project -B project/build -DCMAKE_PREFIX_PATH="$work/prefix" >"$out" 2>&1 && cmake --build project/build >>"$out" 2>&1 || complain "CMake's package: $(tail -5 "$out")"
${CC:-cc} -std=c11 -O1 -D_GNU_SOURCE "$source_dir/tests/cli/library_threads.c" $(pkg-config --cflags --libs towers) -lm -lpthread -o threads 2>"$err" || complain "threads: $(cat "$err")"

mkdir images
for ((i = 0; i < 9; i++)); do cp "data/val/$(ls data/val | sed -n $((i % 3 + 1))p)/$i.ppm" images/ 2>/dev/null || cp data/val/owl/$((i - 6)).ppm images/$i.ppm; done
"$towers" predict runs/run images --json --top 1 --embeddings ours.npy >wanted 2>"$err" || complain "predict: $(cat "$err")"
for program in ./classify project/build/user; do
    "$program" runs/run images/*.ppm >"$out" 2>"$err" || complain "$program: $(cat "$err")"
    python3 - "$out" <<'PYTHON' || complain "$program gives other answers: $(head -3 "$out")"
import json, sys
ours = [json.loads(line) for line in open("wanted")]
theirs = [line.split(" ", 2) for line in open(sys.argv[1])]
assert len(ours) == len(theirs) == 9
for a, (file, probability, name) in zip(ours, theirs):
    assert a["file"] == file and a["predictions"][0]["name"] == name.strip() and abs(a["predictions"][0]["probability"] - float(probability)) < 1e-6, (a, file, probability)
PYTHON
done
refuses 1 "nowhere.ppm: No such file or directory" ./classify runs/run nowhere.ppm images/0.ppm
[[ $(wc -l <"$out") == 1 ]] || complain "a missing file keeps the others from being classified: $(cat "$out")"
refuses 1 "there is no run directory or file of weights 'nowhere'" ./classify nowhere images/0.ppm
mkdir printed && cp "$source_dir/examples/library/classify.c" images/0.ppm printed && mv printed/0.ppm printed/cat.jpg && cp printed/cat.jpg printed/dog.jpg && ln -s ../runs printed/runs
awk '/^```sh/ { on = 1; next } /^```/ { on = 0 } on' "$source_dir/examples/library/README.md" | sed 's|runs/NAME|runs/run|' >printed/lines.sh # its kind is told by its bytes
(cd printed && bash -e lines.sh) >"$out" 2>"$err" && [[ $(grep -c '^\(cat\|dog\).jpg 0\.' "$out") == 2 ]] || complain "the lines of examples/library: $(cat "$out" "$err")"
"$towers" predict runs/run images --json --top 1 --threads 1 | cmp -s - wanted || complain "predict --threads 1 gives another answer"
./threads runs/run images/*.ppm >"$out" 2>"$err" || complain "threads: $(cat "$out" "$err")"
[[ $(cat "$out") == ok && ! -s $err ]] || complain "the library prints: $(cat "$out" "$err")"
# ---- a network from a file: its run and its export, each alone
"$towers" export runs/run mine.onnx --quiet && "$towers" train mine.onnx --data-path data --max-steps 3 -b 16 --experiment own --quiet 2>"$err" && rm mine.onnx &&
    "$towers" export runs/own back.onnx --quiet || complain "a network from a file: $(cat "$err")"
"$towers" predict runs/own images --json --top 1 | grep -oP '"probability":\K[0-9.]{6}' >predicted
[[ $(wc -l <predicted) == $(ls images | wc -l) ]] || complain "predict with a network from a file: $(cat predicted)"
for given in runs/own back.onnx; do
    ./threads $given images/*.ppm >"$out" 2>"$err" && [[ $(cat "$out") == ok ]] || complain "threads with $given: $(cat "$out" "$err")"
    ./classify $given images/*.ppm 2>"$err" | grep -oP ' \K[0-9]\.[0-9]{4}' | diff - predicted >"$out" || complain "$given in the library: $(cat "$out" "$err")"
done
if localedef -i de_DE -f UTF-8 "$work/de_DE.UTF-8" 2>"$err"; then # a caller with decimal commas, as programs with windows are
    LOCPATH=$work LC_ALL=de_DE.UTF-8 ./threads runs/run/best.safetensors images/*.ppm >"$out" 2>"$err" || complain "decimal commas: $(cat "$out" "$err")"
else
    left_out "localedef cannot make the German locale (package locales)"
fi

python3 - runs/run/best.safetensors huge.safetensors <<'PYTHON' # all weights but biases are so large that sums of both signs overflow
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
size, = struct.unpack_from("<Q", data)
for name, tensor in json.loads(data[8:8 + size]).items():
    if name.endswith(".weight"):
        for at in range(8 + size + tensor["data_offsets"][0], 8 + size + tensor["data_offsets"][1], 4):
            struct.pack_into("<f", data, at, 3e38 if at % 8 else -3e38)
open(sys.argv[2], "wb").write(data)
PYTHON
refuses 1 "computes numbers that are not finite from image 0" ./classify huge.safetensors images/*.ppm

if [[ $python == none ]]; then
    left_out "the package for Python: no Python with NumPy"
else
    package=$source_dir/examples/python
    if "$python" -m venv --system-site-packages venv 2>/dev/null && cp -r "$package" package && venv/bin/python -m pip install -q --no-deps --no-build-isolation ./package >"$out" 2>&1; then
        "$python" -c 'import numpy, os; print(os.path.dirname(os.path.dirname(numpy.__file__)))' >"$(echo venv/lib/python*/site-packages)/numpy.pth"
        python=venv/bin/python
    else
        left_out "pip install: $(tail -1 "$out")"
        export PYTHONPATH=$package
    fi
    TOWERS_LIBRARY=$lib/libtowers.so "$python" - <<'PYTHON' >"$out" 2>"$err" || complain "the package for Python: $(tail -4 "$err")"
import glob, json, os, sys, threading, time
import numpy, towers
def pixels(path):
    _, size, _, body = open(path, "rb").read().split(b"\n", 3)
    w, h = map(int, size.split())
    return numpy.frombuffer(body, numpy.uint8).reshape(h, w, 3)
files = sorted(glob.glob("images/*.ppm"))
wanted = [json.loads(line)["predictions"][0] for line in open("wanted")]
with towers.Network("runs/run", batch=4, embeddings=True) as network:
    assert network.model == "fashion_cnn" and network.side == 28 and network.class_names == ["café", "dog, big", "owl"] and not network.several_classes
    p, e = network.classify([open(f, "rb").read() for f in files])
    q, f = network.classify([pixels(f) for f in files])
    assert p.shape == (9, 3) and abs(p - q).max() < 1e-6 and abs(e - f).max() < 1e-5
    for row, w in zip(p, wanted):
        assert row.argmax() == w["class"] and abs(row.max() - w["probability"]) < 1e-6 and network.class_names[w["class"]] == w["name"]
    ours = numpy.load("ours.npy")
    assert ours.shape == e.shape == (9, network.embedding_size) and ours.dtype == numpy.float32 and abs(ours - e).max() < 1e-5 and ours.std() > 0
    try:
        network.classify([open(f, "rb").read() for f in files[:5]] + [b"damaged"])  # two batches
        raise AssertionError("accepted")
    except towers.TowersError as error:
        assert "image 5" in str(error), error
    try:
        network.classify([b"damaged", open(files[0], "rb").read()])
        raise AssertionError("accepted")
    except towers.TowersError as error:
        assert error.name == "TOWERS_FORMAT" and "image 0" in str(error) and numpy.isnan(error.results[0][0]).all() and abs(error.results[0][1] - p[0]).max() < 1e-6
    try:
        network.classify(numpy.zeros((4, 4, 3), numpy.uint8))
        raise AssertionError("accepted")
    except TypeError as error:
        assert "for one image give [image]" in str(error), error
    for image, text in ((numpy.zeros((4, 5), numpy.float32), "not float32 of shape [4, 5]"), (numpy.zeros((5, 5, 0), numpy.uint8), "not uint8 of shape [5, 5, 0]"),
                        (numpy.zeros((0, 5), numpy.uint8), "not uint8 of shape [0, 5]"), (numpy.zeros((5, 5, 4), numpy.uint8), "not uint8 of shape [5, 5, 4]"), (None, "an image of Pillow or an array of pixels, not NoneType")):
        try:
            network.classify([image])
            raise AssertionError("accepted")
        except TypeError as error:
            assert text in str(error), error
    empty, _ = network.classify([])
    assert empty.shape == (0, 3)
try:
    network.classify([])
    raise AssertionError("accepted")
except ValueError as error:
    assert "the network is closed" in str(error), error
network, ends = towers.Network("runs/run", threads=1, batch=4), [] # closed while others use it
def use():
    try:
        while True:
            network.classify([pixels(f) for f in files])
    except Exception as error:
        ends.append(str(error))
users = [threading.Thread(target=use) for _ in range(3)]
for user in users:
    user.start()
time.sleep(0.3)
network.close()
for user in users:
    user.join()
assert ends == ["the network is closed"] * 3, ends
def own_threads():
    return len(os.listdir("/proc/self/task")) # of which some may be ending
before = own_threads()
for _ in range(40): # never closed, nor kept
    towers.Network("runs/run", threads=1).classify([pixels(files[0])])
for _ in range(600):
    if own_threads() < before + 20:
        break
    time.sleep(0.1)
assert own_threads() < before + 20, (before, own_threads())
twice = towers.Network("runs/run")
twice.close()
twice.close()
for path in ("runs/run\0b", b"runs/run\0b"):
    try:
        towers.Network(path)
        raise AssertionError("accepted")
    except ValueError as error:
        assert "no path of a file holds a null character, as " in str(error), error
try:
    with towers.Network("huge.safetensors") as network:
        network.classify([pixels(files[0])])
    raise AssertionError("accepted")
except towers.TowersError as error:
    assert error.name == "TOWERS_WEIGHTS" and "computes numbers that are not finite from image 0" in str(error), error
with towers.Network("runs/gray") as network: # it reads the luma of colors, encoded or not; gray pixels as they are
    rgb = pixels(files[0]).astype(int)
    luma = ((rgb @ [19595, 38470, 7471] + 32768) >> 16).astype(numpy.uint8)
    p, _ = network.classify([open(files[0], "rb").read(), pixels(files[0]), luma])
    assert (p == p[0]).all() and (p[0] != p[0][0]).any(), p
try:
    towers.Network("nowhere")
    raise AssertionError("accepted")
except towers.TowersError as error:
    assert error.name == "TOWERS_ARGUMENT"
assert "torch" not in sys.modules and towers.version()
PYTHON
fi
check_end "libtowers is installed, found and right"
