#!/usr/bin/env bash
# The wheel with the trainer, built by scripts/wheel.sh: its tag is one that auditwheel grants, it carries no library but those that it may,
# each with its license, and in an environment of its own it brings `towers`, which trains, and the package, which predicts the same; a
# library that is not listed ends the build.
set -uo pipefail
. "$1/tests/support/check.sh"
build=$(dirname "$towers")
grep -q '^TOWERS_SANITIZE:STRING=.' "$build/CMakeCache.txt" && { echo "SKIPPED: a wheel is no place for a sanitizer" >&2; exit 77; }
grep -qs '^ID=debian' /etc/os-release || { echo "SKIPPED: scripts/wheel.sh builds from Debian's sources" >&2; exit 77; }
python_of wheel
tools=$(dirname "$python")
python_of notebook
(cd "$source_dir" && nice scripts/wheel.sh "$build/wheel") >"$out" 2>"$err" || {
    grep -q "libcurl and libarchive from Debian's sources failed" "$err" && { echo "SKIPPED: apt cannot get Debian's sources: $(grep -m 1 '^E:' "$err")" >&2; exit 77; }
    complain "scripts/wheel.sh: $(tail -n 5 "$err")"
    check_end
}
wheel=$(ls "$build"/wheel/dist/towers-*.whl)
version=$("$towers" version | awk 'NR == 1 { print $2 }')
[[ $(basename "$wheel") =~ ^towers-$version-py3-none-manylinux_2_[0-9]+_$(uname -m)\.whl$ ]] || complain "the name is $(basename "$wheel")"
PATH=$tools:$PATH auditwheel show "$wheel" | tr '\n' ' ' >"$out" 2>"$err"
grep -q "is consistent with the following platform tag: *\"$(basename "$wheel" .whl | sed 's/.*-//')\"" "$out" || complain "auditwheel: $(cat "$out" "$err")"

# ---- in an environment of its own
python3=${TOWERS_SYSTEM_PYTHON:-/usr/bin/python3}
"$python3" -m venv venv && venv/bin/python -m pip install -q --no-deps --no-index "$wheel" >"$out" 2>&1 || complain "pip: $(tail -n 2 "$out")"
site=$(echo venv/lib/python*/site-packages)
"$python" -c 'import numpy, os; print(os.path.dirname(os.path.dirname(numpy.__file__)))' >"$site/numpy.pth"
unset TOWERS_PROGRAM TOWERS_LIBRARY PYTHONPATH LD_LIBRARY_PATH
here=$PWD
export PATH=$here/venv/bin:/usr/bin:/bin
[[ $(command -v towers) == "$here/venv/bin/towers" && $(towers version | awk 'NR == 1 { print $2 }') == "$version" ]] || complain "towers: $(towers version 2>&1)"
for file in "$site"/towers/bin/*; do # each library that is no part of every system is the wheel's own
    ldd "$file" | awk '/=>/ { print $1, $3 }' | grep -vE '^lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|z)\.so' | grep -v "$(realpath "$site")/" >"$out" && complain "$file needs libraries of the system: $(cat "$out")"
done
licenses=$(echo "$site"/towers-*.dist-info/licenses)
[[ -s $licenses/LICENSE && -s $licenses/CARRIED ]] || complain "no licenses: $(ls "$licenses")"
for file in "$site"/towers.libs/*; do
    name=$(basename "$file" | sed 's/-[0-9a-f]\{8\}\.so.*//')
    row=$(grep "^$name\.so" "$licenses/CARRIED") || complain "$name is carried without a license"
    [[ -s $licenses/${row##* } ]] || complain "the license of $name is missing: $row"
    if [[ $row == *GPL* && $row != *GCC-exception* && $row != *LGPL* ]]; then complain "$row"; fi
done
towers doctor >"$out" 2>&1
grep -q 'mpi .*none in this build' "$out" && grep -q 'cuda backend .*no cuda backend' "$out" || complain "doctor does not say what the wheel lacks: $(cat "$out")"
towers train fashion_cnn --towers 2 --max-steps 20 --experiment first --quiet >"$out" 2>"$err" || complain "training: $(cat "$err")"
"$towers" train fashion_cnn --towers 2 --max-steps 20 --experiment second --quiet >"$out" 2>"$err" || complain "training: $(cat "$err")"
[[ $(tensors runs/first/last.safetensors | sha256sum) == "$(tensors runs/second/last.safetensors | sha256sum)" ]] || complain "the wheel's program computes other weights"
venv/bin/python - >"$out" 2>"$err" <<'PYTHON' || complain "the package: $(tail -n 3 "$err")"
import numpy, towers
run = towers.train("fashion_cnn", towers=2, max_steps=20, experiment="third", show=False)
assert towers.Run("runs/first").steps["mean_loss"].tolist() == run.steps["mean_loss"].tolist()
with towers.Network("runs/first") as network:
    found = network.predict("runs/first/first-batch.jpg")
wanted = towers.predict("runs/first", "runs/first/first-batch.jpg")[0]["predictions"][0]
assert found.name == wanted["name"] and abs(found.probability - wanted["probability"]) < 1e-6
assert towers.version() == towers.__version__ and "/venv/" in towers.__file__
PYTHON
refuses '[1-9]*' "onnect" towers fetch http://127.0.0.1:9/none --sha256 "$(printf '%064d' 0)" # by the carried libcurl

# ---- what may not be carried
mkdir rows && cp "$source_dir"/scripts/wheel/carried.* rows/ && sed -i '/^libjansson/d' rows/carried.txt
refuses 1 "carried: libjansson.so.4: not in scripts/wheel/carried.txt" env LD_LIBRARY_PATH="$build/wheel/root/lib" "$python" rows/carried.py "$build/wheel/stage/towers-$version/towers/bin" none none
check_end "the wheel trains and predicts by itself: $(basename "$wheel"), $(du -h "$wheel" | cut -f 1)"
