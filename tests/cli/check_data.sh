#!/usr/bin/env bash
# `towers data` on folders of images: what `info` counts, the exit codes of `check`, the sheet of `show`, and a `convert` that
# is killed, continued, and refuses to mix.
set -uo pipefail
. "$1/tests/support/check.sh"
needs_python
/usr/bin/python3 -c 'import PIL' 2>/dev/null || { echo "SKIPPED: no Pillow (package python3-pil)"; exit 77; }
export XDG_CACHE_HOME=$work/cache

/usr/bin/python3 - <<'PYTHON'
import os
from PIL import Image
noise = Image.effect_noise((900, 700), 80)
for split, count in (("train", 20), ("val", 4)):
    for c, name in enumerate(("one", "two")):
        os.makedirs(f"photos/{split}/{name}")
        for i in range(count):
            image = Image.merge("RGB", [noise.rotate(90 * c + k + 40 * (split == "val")) for k in (i, i + 7, i + 90)])
            image.save(f"photos/{split}/{name}/{i}" + (".png" if i == 3 else ".jpg"))
image.save("photos/train/one/tall.jpg", exif=(lambda e: e.__setitem__(0x112, 6) or e)(image.getexif()))
PYTHON
cp photos/train/two/5.jpg photos/val/two/again.jpg

data() { # STATUS ARGUMENT...
    local wanted=$1 status
    shift
    "$towers" data "$@" >out 2>err </dev/null
    status=$?
    [[ $status == "$wanted" ]] || complain "towers data $*: exit $status instead of $wanted: $(cat out err)"
}

says() { # PATTERN
    grep -qE -- "$1" out err || complain "no '$1' in: $(cat out err)"
}

# ---- info
data 0 info photos
says '^training: 41 images'
says 'formats +JPEG 39 PNG 2$'
says 'EXIF +1 images are stored rotated'
says '^ +1 +20 +5  two$'
says 'duplicates: 0 within the training images, 1 evaluation images that are also training images; the first: .*val/two/again\.jpg'

# ---- check
# fault: F13
data 0 check photos
cp -r photos broken
head -c 2000 photos/train/one/7.jpg >broken/train/one/7.jpg
printf 'BM' >broken/val/two/2.jpg
data 3 check broken
says 'train/one/7\.jpg.*\(offset 2000 of 2000\).*cut off'
says 'val/two/2\.jpg'
says '2 of 50 images cannot be decoded'
data 2 check nowhere
"$towers" train fashion_cnn --dataset fmnist --data-path photos --dry-run >out 2>err </dev/null
[[ $? == 2 ]] || complain "folders of photos are taken for Fashion-MNIST: $(cat out)"
says '--dataset fmnist: expected IDX files, .* found folder of images: photos; leave it out'
"$towers" train fashion_cnn --data-path photos --max-steps 1 -b 8 --device cpu --quiet --experiment photos >out 2>err </dev/null || complain "photos: $(cat err)"
"$towers" eval runs/photos --dataset fmnist >out 2>err </dev/null && complain "the photos of a run are taken for Fashion-MNIST: $(cat out)"
says 'found folder of images: .*photos \(from runs/photos/args.yaml.*\); name the other data with --data-path'
mkdir -p away && (cd away && "$towers" eval ../runs/photos >../out 2>../err </dev/null) && complain "data of another folder: $(cat out)"
says "data directory 'photos': No such file or directory \(from ../runs/photos/args.yaml.*\); give the data with --data-path"
data 2 check
data 2 weigh photos

# ---- a file that is changed in place, which its folder does not show
cp -r photos changed
sleep 0.1 # an index of folders that were changed within this very tick of the clock is not kept
data 0 info changed
head -c 2000 photos/train/one/7.jpg >changed/train/one/7.jpg
data 0 info changed --threads 1
says 'damaged +1 headers, the first: .*train/one/7\.jpg. has changed'
says 'duplicates: 0 within the training images'
data 3 check changed # which scans the folder again
says 'train/one/7\.jpg.*cut off'

mkdir -p spoiled/train/a spoiled/val/a
echo BM1 >spoiled/train/a/0.jpg && echo BM2 >spoiled/val/a/0.jpg
data 0 info spoiled
says 'duplicates: 0 within the training images, 0 evaluation images that are also'

# ---- show
data 2 show photos --img-size 80 -o sheet.jpg
says '-o sheet.jpg: a PNG is written; name the file .png'
data 0 show photos --img-size 80 --augment -o sheet.png
/usr/bin/python3 -c 'from PIL import Image; assert Image.open("sheet.png").size == (400, 400)' || complain "the sheet of data show"
says '^row 5, column 5: (one|two)  .*photos/train/'
data 0 show photos --img-size 80 --recipe photos -o recipe.png
data 0 show photos --img-size 80 -o plain.png
cmp -s recipe.png plain.png && complain "data show ignores --recipe"
data 2 show photos --recipe phots
data 2 show photos --crop random
says 'crop has no effect without --augment'
data 2 show photos --flip random
says 'flip has no effect without --augment'
for step in "--color-jitter 0.9" "--hue-jitter 0.5" "--color-distort" "--auto-augment randaugment" "--random-erase 1" "--mixup 1"; do
    # shellcheck disable=SC2086 # an option and its value
    data 0 show photos --img-size 80 $step -o step.png
    cmp -s step.png plain.png && complain "$step does nothing without --augment"
done
data 0 info photos
cp out plain.out
data 0 info photos --json
python3 - <<'PY' || complain "data info --json: $(head -c 600 out)"
import json, re
found, plain = json.load(open('out')), open('plain.out').read()
training = found['parts'][0]
assert training['part'] == 'training' and training['images'] == sum(training['images_of_classes']) == sum(training['formats'].values()), training
assert f"training: {training['images']} images" in plain and len(found['classes']) == len(training['images_of_classes']), plain
for line in re.findall(r'^ +(\d+) +(\d+) .* (\S+)$', plain, re.M):
    assert found['classes'][int(line[0])] == line[2] and training['images_of_classes'][int(line[0])] == int(line[1]), line
least, most, mean = training['width']
assert re.search(rf'width +{least} to {most}, mean {mean:.0f}\n', plain), training
assert 'used' in training['inventory'], training
PY
data 2 check photos --json
says '--json has no effect with towers data check; it applies only to info'
mkdir many
seq 1200 >many/classes.txt
printf 'P2 1 1 255 3\n' >0.pgm
echo 3 >0.cls
tar cf many/0.tar 0.pgm 0.cls
data 0 info many
says '^  and 200 more classes'
[ "$(grep -c . out)" -lt 1020 ] || complain "data info of 1200 classes prints $(grep -c . out) lines"
mkdir -p gifs/a
printf 'GIF89a' >gifs/a/0.png
data 3 check gifs
says 'GIF(: .*the file is cut off or damaged|, which this build does not read: build it with libgif)'
data 2 convert photos nothing --img-size 80
says '--img-size has no effect with towers data convert; it applies only to bench and show'
data 2 check photos --exif
says '--exif has no effect with towers data check; it applies only to bench, show and convert'
data 2 convert photos nothing --shard-samples 7
says '--shard-samples has no effect with --format auto; it applies only to tar and mds'
data 2 show photos --shuffle-window 2
says '--shuffle-window is for shards; photos holds none'
"$towers" train fashion_cnn --dataset synthetic --shuffle-window 2 --dry-run --device cpu >out 2>err </dev/null
[[ $? == 2 ]] || complain "--shuffle-window of synthetic data: $(cat out err)"
says '--shuffle-window is for shards; synthetic holds none'
mkdir -p thin/a
printf 'P2 1 300 255' >thin/a/0.pgm
seq -s ' ' -f ' %g' 1 300 | sed 's/ 2[6-9][0-9]/ 255/g; s/ 300/ 255/' >>thin/a/0.pgm
data 0 show thin --eval-resize 342 --img-size 299 -o thin.png

# ---- convert: killed and continued, it is what it would have been
data 0 convert photos whole --side 300
says '^50 images written to whole'
data 0 convert photos whole --side 300
says '50 existed already'
grep -q 'stored rotated' err && complain "images that are turned upright are warned of: $(cat err)"
data 0 convert photos lying --side 300 --no-exif
says 'warning: 1 of these images were stored rotated .* without --no-exif, to turn them upright'
/usr/bin/python3 - <<'PYTHON' || complain "convert turns images upright, and not with --no-exif"
from PIL import Image
upright, lying = (Image.open(f"{folder}/train/one/tall.jpg").size for folder in ("whole", "lying"))
assert upright == lying[::-1] and upright[0] < upright[1], (upright, lying)
PYTHON
"$towers" data convert photos killed --side 300 --threads 1 >out 2>err </dev/null &
converting=$!
until compgen -G 'killed/train/*/2.jpg' >/dev/null || ! kill -0 $converting 2>/dev/null; do sleep 0.002; done
kill -KILL $converting
wait $converting 2>/dev/null
[[ $? == 137 ]] || complain "the conversion was over before it was killed"
head -c 100 killed/train/one/0.jpg >cut && mv cut killed/train/one/0.jpg # as a crash of the machine may leave it
there=$(find killed -name '*.jpg' ! -name '.*' | wc -l)
: >"killed/train/one/.tmp-9.jpg-00000000-0000-0000-0000-000000000000-1"
ln -s killed link
data 0 convert photos link --side 300
says "$((there - 1)) existed already; 0 damaged"
diff -r whole killed >differs || complain "killed and continued: $(cat differs)"
/usr/bin/python3 - <<'PYTHON' || complain "the converted images"
import os
from PIL import Image
for folder, _, names in os.walk("whole"):
    for name in (name for name in names if name != "towers-convert.json"):
        image = Image.open(os.path.join(folder, name))
        assert image.format == "JPEG" and max(image.size) == 300, (folder, name, image.size)
assert os.path.exists("whole/train/one/3.png.jpg")
PYTHON
data 2 convert photos whole --side 200
says 'contains a conversion with .*"side": 300'
mkdir other && : >other/mine
data 2 convert photos other
says "'other' is not empty"
data 3 convert broken left --side 300
says '2 images cannot be decoded and were skipped'
[[ $(find left -name '*.jpg' | wc -l) == 48 ]] || complain "the whole images beside damaged ones: $(find left | wc -l)"
cp photos/train/one/4.jpg photos/train/one/3.png.jpg
data 3 convert photos twins
says "3.png' and .*3.png.jpg' would both be converted to"


# ---- a class of shards that has no image has no folder
python3 - <<'PYTHON'
import io, tarfile
with tarfile.open("gap.tar", "w") as to:
    for i, label in enumerate((0, 2)):
        for end, content in (("cls", str(label).encode()), ("jpg", open("photos/train/one/0.jpg", "rb").read())):
            member = tarfile.TarInfo(f"{i}.{end}")
            member.size = len(content)
            to.addfile(member, io.BytesIO(content))
PYTHON
data 0 convert gap.tar gap --format folder
says 'warning: 1 of 3 classes have no training image and get no folder'
data 0 convert gap.tar gaps --format tar
grep -q warning err && complain "shards keep the numbers of classes: $(cat err)"
mkdir tests && cp -r photos/val tests/test
data 0 convert tests tests-tar --format tar
[[ -d tests-tar/test && ! -d tests-tar/train ]] || complain "test images are converted to $(ls tests-tar)"

check_end "towers data counts, checks, shows and converts, and a conversion survives a kill"
