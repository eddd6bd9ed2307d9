#!/usr/bin/env bash
# A network learns from folders of one's own images, tells colors apart, and its classes have their names everywhere; the same from a
# folder that `towers data convert` made smaller. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
export XDG_CACHE_HOME=$work/cache
for python in python3 /usr/bin/python3 none; do
    "$python" -c 'import PIL' 2>/dev/null && break
done
[[ $python != none ]] || { echo "SKIPPED: no Python with Pillow (package python3-pil)" >&2; exit 77; }

# three colors that one could not tell apart in gray, in sizes and formats of all kinds
"$python" - <<'PY' || exit 1
import os, random
from PIL import Image
random.seed(1)
for split, count in (("train", 40), ("val", 12)):
    for name, color in (("café", (200, 60, 60)), ("dog", (60, 132, 60)), ("owl", (60, 75, 200))):
        os.makedirs(f"images/{split}/{name}")
        for i in range(count):
            size = random.randint(40, 100), random.randint(40, 100)
            image = Image.new("RGB", size)
            image.putdata([tuple(v + random.randint(-50, 50) for v in color) for _ in range(size[0] * size[1])])
            image.save(f"images/{split}/{name}/{i}." + ("png", "jpg", "webp", "ppm")[i % 4])
PY
"$towers" data convert images small --side 36 >out 2>&1 || complain "convert: $(cat out)"
"$towers" data info small >info 2>&1 || complain "info of what convert wrote: $(cat info)"
grep -q "JPEG 120" info && grep -qE "^ +1 +40 +12  dog$" info || complain "what convert wrote: $(cat info)"

for data in images small; do
    "$towers" train googlenet --device cpu --data-path $data --img-size 32 -b 20 --towers 2 --threads 1 --epochs 6 --lr 0.001 --bn-decay 0.7 \
        --experiment $data --quiet >out 2>err || complain "$data: training: $(cat err)"
    [[ $("$towers" eval runs/$data --device cpu --quiet) =~ "@ 1 = "(0\.[89]|1) ]] || complain "$data: not learnt: $("$towers" eval runs/$data)"
done
"$towers" eval runs/images --device cpu >out 2>err || complain "eval: $(cat err)"
grep -q 'warning' err && complain "eval of the training's own data: $(cat err)"
mkdir -p other/train other/val # without the first class: the others are those of their names, not those of their numbers
for split in train val; do cp -r images/$split/{dog,owl} other/$split; done
said=$("$towers" eval runs/images --data-path other --device cpu --json 2>err) || complain "eval of other data: $(cat err)"
[[ $said =~ '"top1": '(0\.[89]|1) ]] || complain "eval of other data: classes are not those of their names: $said"
grep -q 'other has no images of 1 of the 3 classes: café' err || complain "eval of other data does not name what is absent: $(cat err)"
for split in train val; do mv other/$split/dog other/$split/fox; done
"$towers" eval runs/images --data-path other --device cpu >out 2>err
[[ $? == 5 || $? == 2 || $? == 3 ]] && grep -q "a class 'fox' that is missing in the network of runs/images, whose 3 classes are café, dog, owl" err || complain "eval of an unknown class: $? $(cat err)"

# Parts as other tools name them: tests are never used during training; a set kept apart is evaluated by itself.
mkdir parts held
cp -r images/train parts/Train
cp -r images/val parts/valid
cp -r images/val parts/test
rm parts/test/*/[0-5].*
cp -r images/val/* held
"$towers" train googlenet --device cpu --data-path parts --img-size 32 -b 20 --threads 1 --epochs 1 --experiment parts --quiet 2>err ||
    complain "train, valid and test: $(cat err)"
says() { # IMAGES ARGUMENT...: eval reports so many images
    local images=$1
    shift
    "$towers" eval "$@" --device cpu >out 2>&1 || complain "eval $*: $(cat out)"
    grep -q "\[$images examples\]" out || complain "eval $*: wanted $images images: $(cat out)"
}
says 36 runs/parts
says 18 runs/parts --split test
says 120 runs/parts --split train
says 36 runs/parts --data-path held
says 36 runs/images --data-path held
says 12 runs/parts --data-path held/dog --class-scores scores.csv
"$towers" data info parts >info 2>&1 || complain "info of three parts: $(cat info)"
grep -q '^training: 120 images' info && grep -q '^evaluation: 36 images' info && grep -q '^test: 18 images' info && grep -q ', 0 test images that are also' info ||
    complain "info of three parts: $(cat info)"
"$towers" predict runs/parts parts --split test --device cpu --csv >out 2>err || complain "predict --split: $(cat err)"
[[ $(cut -d, -f1 out | sort -u | grep -c parts/test/) == 18 ]] || complain "predict --split test: $(cat out)"
# timm's --crop-pct keeps the ratio of the sides: floor(32 / 0.9) is 35
of=()
for crop in "--crop-pct 0.9" "--eval-resize 35" "--eval-crop 0.9"; do
    # shellcheck disable=SC2086
    of+=("$("$towers" eval runs/images $crop --device cpu --json 2>err | grep -o '"loss": [0-9.]*')")
done
[[ -n ${of[0]} && ${of[0]} == "${of[1]}" && ${of[0]} != "${of[2]}" ]] || complain "--crop-pct: ${of[*]} $(cat err)"
rm -r parts/valid
"$towers" train googlenet --device cpu --data-path parts --img-size 32 -b 20 --threads 1 --epochs 1 --experiment untested --quiet 2>err
[[ $? == 2 ]] && grep -q "has images for tests, but none for the evaluation during training" err || complain "test/ chooses the best weights: $(cat err)"
grep -q '"café"' runs/images/env.json || complain "no names of classes in env.json"
"$towers" predict runs/images images/val/café/0.png --device cpu --json >out 2>err || complain "predict: $(cat err)"
grep -q '"café"' out || complain "predict does not name the class: $(cat out)"

# The small networks take the channels of the data, and their weights say which they took.
for model in fashion_cnn inception_mini; do
    "$towers" train $model --device cpu --data-path images --img-size 32 --epochs 2 -b 8 --lr 0.01 --experiment color-$model >out 2>err ||
        complain "$model does not train on color images: $(cat out err)"
    said=$("$towers" eval runs/color-$model --device cpu --json 2>err) || complain "$model: eval of a color run: $(cat err)"
    [[ $said =~ '"top1": '(0\.[89]|1) ]] || complain "$model has not learnt: $said"
    "$towers" predict runs/color-$model images/val/café/0.png --device cpu --json >out 2>err || complain "$model: predict: $(cat err)"
    "$towers" export runs/color-$model $model.safetensors >out 2>err || complain "$model: export: $(cat err)"
    head -c 4096 $model.safetensors | grep -aq '"channels":"3"' || complain "the weights of $model do not say that they are for color"
done
"$towers" train fashion_cnn --device cpu --dataset synthetic --classes 3 --img-size 32 -b 8 --max-steps 2 --experiment gray >out 2>&1 ||
    complain "gray: $(cat out)"
# what learned from gray images reads the luma of colors, as Pillow has it
"$python" -c 'from PIL import Image; Image.open("images/val/café/0.png").convert("L").save("gray.pgm")'
"$towers" predict runs/gray images/val/café/0.png gray.pgm --device cpu --csv >out 2>&1 || complain "color for gray weights: $(cat out)"
[[ $(grep -c , out) -gt 2 && $(grep '^images' out | cut -d, -f2-) == "$(grep '^gray' out | cut -d, -f2-)" ]] || complain "gray and its colors: $(cat out)"

check_end "a network learns from folders of images"
