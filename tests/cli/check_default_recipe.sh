#!/usr/bin/env bash
# A small set of pictures trains with the recipe `photos`, or `finetune` with pretrained weights, and the run says so. `--recipe none`, a
# large set, data in MNIST's format and an optimizer of one's own leave the plain defaults. A resumed run, and one from args.yaml, gives
# the same bits.
. "$1/tests/support/check.sh"
needs_python
unset TOWERS_RECIPE
small_data "$work/idx" 64 32 || exit $?
export XDG_CACHE_HOME=$work/cache

python3 - <<'PYTHON'
import os
for part, count in (("small/train", 40), ("small/val", 8), ("easy/train", 40), ("easy/val", 8), ("large/train", 25001), ("large/val", 8)):
    for label, name in enumerate(("a", "b")):
        os.makedirs(f"{part}/{name}")
        for i in range(count):
            path = f"{part}/{name}/{i}.ppm"
            if part == "large/train" and i:
                os.link(f"{part}/{name}/0.ppm", path)
                continue
            with open(path, "wb") as file:
                file.write(b"P6\n8 8\n255\n" + bytes((k * 7 + (i * 13 if part[0] != "e" else 0) + 90 * label) % 256 for k in range(192)))
PYTHON
"$towers" data convert small shards --format tar >out 2>&1 || complain "shards: $(cat out)"

# configured WANTED ARGUMENT...: "photos" or "finetune" if that is chosen, else "none"
configured() {
    local wanted=$1 said=none
    shift
    "$towers" train inception_mini "$@" --print-config >config 2>err || complain "$*: $(cat err)"
    grep -q '# from default recipe' config && said=$(sed -n 's/^recipe: "\([a-z]*\)" *# from default recipe.*/\1/p' config)
    [[ ${said:-none} == "$wanted" ]] || complain "$*: the recipe is $said, not $wanted"
}
configured photos --data-path small
grep -qE '^augment: true .*# from default recipe "photos:' config || complain "the origin: $(grep ^augment config)"
configured photos --data-path shards
configured photos --data-path small/train --val-split 0.25 -b 8 --lr 0.5
grep -qE '^lr: 0.5 .*command line' config || complain "the command line beats the default recipe: $(grep ^lr: config)"
configured photos --data-path small --epochs 3
grep -q '^warmup-epochs: 1 ' config || complain "a short run warms up: $(grep ^warmup-e config)"
configured none --data-path small --recipe none
grep -q '^augment: false' config || complain "--recipe none: $(grep ^augment config)"

# upright WANTED ARGUMENT...: whether pictures are turned by their EXIF orientation, as args.yaml records it
upright() {
    local wanted=$1
    shift
    "$towers" train inception_mini "$@" --print-config >config 2>err || complain "$*: $(cat err)"
    grep -q "^exif: $wanted " config || complain "$*: $(grep ^exif config), not $wanted"
}
upright true --data-path small
upright true --data-path shards
upright true --data-path small --opt adam
upright true --data-path large
upright false --data-path idx
upright false --data-path small --recipe none
upright false --data-path small --recipe torchvision
upright false --data-path small --no-exif
"$towers" data convert small turned >out 2>&1 || complain "turned: $(cat out)"
"$towers" data convert small lying --no-exif >out 2>&1 || complain "lying: $(cat out)"
upright true --data-path turned --recipe torchvision # its files have no orientation any more, later pictures have
upright false --data-path lying
upright true --data-path lying --exif

configured none --data-path large
configured none --data-path idx
configured none --dataset synthetic
configured none --data-path small --opt adam
"$towers" train inception_mini --data-path small --opt adam --epochs 0 --experiment adam 2>err </dev/null
grep -q 'no recipe, because the optimizer is given' err || complain "--opt adam does not say that there is no recipe: $(cat err)"
"$towers" data show small --img-size 8 -o small.png | grep -q 'trained on these with --recipe photos' || complain "data show does not name the recipe"
"$towers" data show small --img-size 8 --recipe none -o small.png | grep -q 'by default' && complain "data show names the recipe all the same"

# ---- the same bits
train() { # NAME ARGUMENT...
    "$towers" train inception_mini --device cpu --threads 1 --output-dir runs --experiment "$@" >out 2>err </dev/null || complain "$*: $(cat err)"
}
settings=(--data-path small --img-size 8 -b 8 --epochs 2)
train whole "${settings[@]}"
grep -q '^recipe  *photos$' err && grep -q '^recipe photos, the default for a small set' err || complain "the recipe is not named: $(cat err)"
train again --config runs/whole/args.yaml
train parts "${settings[@]}" --stop-epoch 1
train parts --resume runs/parts --stop-epoch 0
train none "${settings[@]}" --recipe none
for run in again parts; do
    cmp -s runs/whole/last.safetensors runs/$run/last.safetensors || complain "$run: other weights than those of the whole run"
done
diff <(grep ^recipe runs/whole/log.txt) <(grep ^recipe runs/again/log.txt) || complain "log.txt names the recipe otherwise with --config"
cmp -s runs/whole/last.safetensors runs/none/last.safetensors && complain "--recipe none trains the same"
train auto "${settings[@]}" --data-path easy --lr auto
grep -q '^recipe photos, the default for a small set' err || complain "--lr auto hides the recipe: $(cat err)"
rate=$(sed -n 's/^lr: \([^ ]*\) .*/\1/p' runs/auto/args.yaml)
train given "${settings[@]}" --lr "$rate" --data-path easy
cmp -s runs/auto/last.safetensors runs/given/last.safetensors || complain "--lr auto has another recipe: $(diff runs/auto/args.yaml runs/given/args.yaml)"
configured finetune --data-path small --img-size 8 --pretrained runs/whole/last.safetensors
train tuned "${settings[@]}" --pretrained runs/whole/last.safetensors
train tuned-again --config runs/tuned/args.yaml
cmp -s runs/tuned/last.safetensors runs/tuned-again/last.safetensors || complain "the args.yaml of a default finetune trains another network"
check_end "a small set of pictures gets its recipe, and says so"
