#!/usr/bin/env bash
# scripts/images_to_idx.py converts folders of images to a data set, a network learns from it, and its classes have their names;
# errors in a folder are reported and leave an existing data set unchanged. Arguments: source folder, binary.
set -u
. "$1/tests/support/check.sh"
check_begin own-images "$@"
cd "$work" || exit 1
for python in python3 /usr/bin/python3 none; do
    "$python" -c 'import PIL' 2>/dev/null && break
done
[[ $python != none ]] || { echo "SKIPPED: no Python with Pillow (package python3-pil)" >&2; exit 77; }

# three colours that one could not tell apart in grey, in sizes and formats of all kinds
"$python" - <<'PY' || exit 1
import os, random
from PIL import Image
random.seed(1)
for split, count in (("train", 40), ("val", 12)):
    for name, colour in (("café", (200, 60, 60)), ("dog", (60, 132, 60)), ("owl", (60, 75, 200))):
        os.makedirs(f"images/{split}/{name}")
        for i in range(count):
            size = random.randint(20, 50), random.randint(20, 50)
            image = Image.new("RGB", size)
            image.putdata([tuple(v + random.randint(-50, 50) for v in colour) for _ in range(size[0] * size[1])])
            image.save(f"images/{split}/{name}/{i}." + ("png", "jpg", "bmp")[i % 3])
PY
convert=("$python" "$source_dir/scripts/images_to_idx.py")

# refused CODE TEXT ARGUMENT...
refused() {
    local code=$1 text=$2 status
    shift 2
    "${convert[@]}" "$@" >out 2>&1
    status=$?
    [[ $status == "$code" ]] && grep -qF -- "$text" out || complain "images_to_idx $*: exit $status, $(cat out)"
}

"${convert[@]}" images data --side 32 >out 2>&1 || complain "images_to_idx: $(cat out)"
grep -qF "data: 3 classes, 120 training and 36 test images" out || complain "told: $(cat out)"
[[ $(cat data/classes.txt) == $'café\ndog\nowl' ]] || complain "classes.txt: $(cat data/classes.txt)"
"$towers" train googlenet --device cpu --data-path data --img-size 32 -b 20 --towers 2 --threads 1 --epochs 6 --lr 0.001 --bn-decay 0.7 \
    --experiment own --quiet >out 2>err || complain "training: $(cat err)"
[[ $("$towers" eval runs/own --device cpu --quiet) =~ "@ 1 = "(0\.[89]|1) ]] || complain "not learnt: $("$towers" eval runs/own)"
grep -q '"café"' runs/own/env.json || complain "no names of classes in env.json"
"$towers" train fashion_cnn --device cpu --data-path data --dry-run >out 2>&1
[[ $? == 2 ]] && grep -q "takes images with 1 channel, but the data has 3; convert it to grey" out || complain "colour for a grey network: $(cat out)"

sum=$(cat data/* | cksum)
refused 2 "no such folder" images/train data
refused 3 "of another data set" images data --grey
mkdir images/val/cow
refused 3 "images/val/cow: not the folder of a class" images data
rmdir images/val/cow
echo nothing >images/val/dog/x.png
refused 3 "images/val/dog/x.png: cannot identify" images data
head -c 100 images/train/dog/1.jpg >images/train/dog/short.jpg
refused 3 "2 of the files cannot be used" images data
grep -q "images/train/dog/short.jpg: " out && grep -q "images/val/dog/x.png: " out || complain "not all bad files are listed: $(cat out)"
rm images/train/dog/short.jpg images/val/dog/*
refused 3 "images/val/dog: no images of class 'dog'" images data
[[ $(cat data/* | cksum) == "$sum" && -z $(find data -name '.*-ubyte') ]] || complain "a refusal left traces: $(ls -A data)"

# 16 bits become 8 by scaling: a ramp from 0 to 65535 stays a ramp
"$python" - <<'PY' || exit 1
import os
from PIL import Image
for split in "train", "val":
    os.makedirs(f"deep/{split}/ramp")
    image = Image.new("I", (16, 16))
    image.putdata([row * 16 * 257 for row in range(16) for _ in range(16)])
    image.convert("I;16").save(f"deep/{split}/ramp/0.png")
PY
"${convert[@]}" deep ramp --side 16 --grey >out 2>&1 || complain "16 bits: $(cat out)"
wanted=$(for row in {0..15}; do for _ in {0..15}; do printf '%d ' $((row * 16)); done; done)
[[ $(tail -c 256 ramp/train-images-idx3-ubyte | od -An -v -tu1 -w1 | tr -s ' \n' ' ') == " $wanted" ]] ||
    complain "16 bits: $(tail -c 256 ramp/train-images-idx3-ubyte | od -An -v -tu1 -w16)"

check_end "images become a data set"
