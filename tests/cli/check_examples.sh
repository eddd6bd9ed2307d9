#!/usr/bin/env bash
# The worked examples of CONTRIBUTING hold: each patch of tests/examples/ applies to a copy of the tree, touches no more files
# than CONTRIBUTING says, builds, and does what it promises. usage: check_examples.sh SOURCE_FOLDER BINARY
. "$1/tests/support/check.sh"
"$towers" info fashion_cnn --device cpu >/dev/null 2>&1 || { echo "SKIPPED: no cpu backend here" >&2; exit 77; }
tree=$work/tree build=$work/build
mkdir "$tree"
(cd "$source_dir" && tar cf - --exclude='./build*' --exclude=./.git --exclude=./runs .) | tar xf - -C "$tree"

command=$(sed -n 's/.*`\(patch [^<`]*\) <tests\/examples\/op.patch`.*/\1/p' "$source_dir/CONTRIBUTING.md")
[ -n "$command" ] || complain "CONTRIBUTING does not say how an example is applied"
while read -r name most; do
    patch=$source_dir/tests/examples/$name.patch
    files=$(grep -c '^+++ ' "$patch")
    [ "$files" -le "$most" ] || complain "$name: the example touches $files files, at most $most were promised"
    grep -q " takes $files files: .*tests/examples/$name.patch" "$source_dir/CONTRIBUTING.md" || complain "$name: CONTRIBUTING does not say that it takes $files files"
    (cd "$tree" && ${command} -s -F0) <"$patch" || complain "$name: the patch does not apply"
done <<'LIMITS'
op 6
option 4
metric 3
epoch 3
model 5
optimizer 4
checkpoint 2
format 6
augmentation 7
LIMITS

cache=$(dirname "$towers")/CMakeCache.txt
compiler=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$cache") launcher=$(sed -n 's/^CMAKE_C_COMPILER_LAUNCHER:[A-Z]*=//p' "$cache")
generator=$(sed -n 's/^CMAKE_GENERATOR:[A-Z]*=//p' "$cache")
cmake -G "$generator" -S "$tree" -B "$build" -DCMAKE_C_COMPILER="$compiler" -DCMAKE_C_COMPILER_LAUNCHER="$launcher" -DCMAKE_BUILD_TYPE=Debug \
    -DCMAKE_C_FLAGS_DEBUG=-O0 -DTOWERS_CUDA=OFF -DTOWERS_WERROR=AUTO >"$work/log" 2>&1 &&
    cmake --build "$build" -j "$(nproc)" --target towers test_ops test_gradients test_metrics test_models test_optimizer test_cifar test_augmentations >>"$work/log" 2>&1 ||
    { tail -n 20 "$work/log" >&2; complain "the tree with the examples does not build"; check_end; }

# The tree with the examples is as fit for a commit as the tree without them.
python3 "$tree/tests/support/check_map.py" "$tree" "$build" >"$work/log" || complain "the map of the tree with the examples: $(tail -n 5 "$work/log")"
"$tree/tests/mutants.sh" --check >"$work/log" 2>&1 || complain "mutants of the tree with the examples: $(tail -n 5 "$work/log")"
"$tree/scripts/check/format.sh" "$tree" >"$work/log" 2>&1
case $? in 0 | 77) ;; *) complain "the form of the tree with the examples: $(tail -n 3 "$work/log")" ;; esac

export OMP_WAIT_POLICY=PASSIVE
passes() { # EXAMPLE PROGRAM
    "$build/tests/$2" >"$work/log" 2>&1 || complain "$1: $2: $(grep -m3 -E 'ERROR|FAILED|softsign|adagrad|expected' "$work/log")"
}
TOWERS_TEST_OP=softsign,softsign_dx passes op test_ops
grep -q ' softsign_dx .* rows' "$work/log" || complain "op: its gradient has no cases: $(cat "$work/log")"
passes op test_gradients
passes metric test_metrics
passes model test_models
passes optimizer test_optimizer
passes format test_cifar
passes augmentation test_augmentations
towers=$build/towers
"$towers" train fashion_cnn --dataset synthetic --greet --print-config >"$work/log" 2>&1
grep -q '^greet: true' "$work/log" || complain "option: $(grep -m3 greet "$work/log")"
TOWERS=$towers "$tree/scripts/pages/command_pages.sh" --check >"$work/log" 2>&1 || complain "option: $(cat "$work/log")"
"$tree/scripts/pages/python_keywords.py" "$towers" && grep -q '^    greet: bool | None = None,$' "$tree/examples/python/towers/commands.py" ||
    complain "option: scripts/pages/python_keywords.py writes no keyword"
train() {
    "$towers" train lenet5 --opt adagrad --device cpu --dataset synthetic -b 4 --greet --output-dir "$work/runs" "$@" >"$work/log" 2>&1 </dev/null ||
        complain "model: $(tail -n 5 "$work/log")"
}
train --max-steps 2 --experiment one
grep -q '^hello' "$work/log" || complain "option: it does nothing"
grep -q '"step_ms":[0-9]' "$work/runs/one/metrics.jsonl" || complain "metric: not in metrics.jsonl"
row=$(tail -n 1 "$work/runs/one/results.csv")
[[ $(head -n 1 "$work/runs/one/results.csv") == *,refused && ${row##*,} == 0 ]] || complain "epoch: not in results.csv: $row"
saved=$work/runs/one/ckpt/step-0000000002/train.safetensors
grep -aq 'slot0\.conv1\.weight' "$saved" && ! grep -aq 'slot1\.' "$saved" || complain "optimizer: Adagrad has one slot, a checkpoint has others"
train --max-steps 3 --resume "$work/runs/one"
for step in 2 3; do
    grep -q "\"images\": $((4 * step))," "$work/runs/one/ckpt/step-000000000$step/state.json" || complain "checkpoint: not the images of $step steps"
done

# Each class has a color of its own, which a network learns.
cifar() { # FOLDER INVERTED_BITS
    mkdir "$1"
    for file in data_batch_1 data_batch_2 test_batch; do
        for class in {0..9}; do
            printf %b "\\x0$class"
            for plane in $((class / 4 * 100)) $((class % 4 * 80)) 0; do
                head -c 1024 /dev/zero | tr '\0' "\\$(printf %o $((plane ^ $2)))"
            done
        done >"$1/$file.bin"
    done
}
cifar "$work/colors" 0
cifar "$work/inverse" 255
"$towers" train fashion_cnn --data-path "$work/colors" --device cpu --towers 2 -b 5 --epochs 30 --lr 0.002 --dropout 0 --eval-interval 30 \
    --output-dir "$work/runs" --experiment colors >"$work/log" 2>&1 </dev/null || complain "format: $(tail -n 5 "$work/log")"
grep -q '(CIFAR-10, .*): 20 training and 10 evaluation images, 32 x 32 x 3, 10 classes' "$work/log" || complain "format: $(cat "$work/log")"
tail -n 1 "$work/runs/colors/results.csv" | awk -F, '{ exit !($6 >= 0.5) }' || complain "format: the colors are not learned: $(cat "$work/runs/colors/results.csv")"

show() { # FOLDER SHEET OPTION...
    "$towers" data show "$1" --img-size 32 -o "$work/$2.png" "${@:3}" >"$work/log" 2>&1 || complain "augmentation: $(cat "$work/log")"
}
show "$work/colors" plain
show "$work/colors" inverted --random-invert 1
show "$work/inverse" wanted
cmp -s "$work/inverted.png" "$work/wanted.png" && ! cmp -s "$work/inverted.png" "$work/plain.png" || complain "augmentation: the pixels are not inverted"
check_end "an op, an option, metrics of a step and of an epoch, a model, an optimizer, a field of checkpoints, a data format and an augmentation, as CONTRIBUTING says"
