#!/usr/bin/env bash
# Data sets of shards: the same images as a folder, IDX files and WebDataset tars give the same weights bit for bit, also after a
# resume in the middle of an epoch; a run of shards evaluates; and broken shards are named (tests/support/broken_shards.py).
# usage: check_shards.sh SOURCE_FOLDER BINARY
set -uo pipefail
. "$1/tests/support/check.sh"
check_begin shards "$1" "$2"
needs_python
export XDG_CACHE_HOME=$work/cache
cd "$work" || exit 1

kinds=(idx tar tfrecord)
/usr/bin/python3 "$source_dir/tests/support/shards_write.py" sets folder "${kinds[@]}" || exit 1

train() { # NAME ARGUMENT...
    "$towers" train googlenet --no-aux --img-size 32 -b 16 --device cpu --towers 2 --threads 1 --eval-crop 1 --classes 3 \
        --summary-interval 0 --output-dir runs --experiment "$@" >"$1.out" 2>"$1.err" </dev/null || complain "train $*: $(tail -n 3 "$1.err")"
}

losses() { cut -d , -f 1-8 "runs/$1/results.csv"; }

train folder --data-path sets/folder --max-steps 10
for kind in "${kinds[@]}"; do
    train "$kind" --data-path "sets/$kind" --max-steps 10
    cmp runs/folder/last.safetensors "runs/$kind/last.safetensors" || complain "$kind: other weights than from a folder"
    cmp <(losses folder) <(losses "$kind") || complain "$kind: other losses"
done
train part --data-path sets/tar --max-steps 6
"$towers" train --resume runs/part --max-steps 10 --output-dir runs --experiment whole >out 2>err </dev/null || complain "resume: $(cat err)"
cmp runs/folder/last.safetensors runs/whole/last.safetensors || complain "tars, resumed in the middle of an epoch: other weights"
"$towers" eval runs/tar --device cpu --errors errors.csv >out 2>err </dev/null || complain "eval: $(cat err)"
grep -qE '"[^"]*/set-val-000000.tar: img01[0-9]*.png, offset [0-9]*","(ant|bee|cow)"' errors.csv || complain "errors.csv: $(head -n 3 errors.csv)"

for kind in tars tfrecords; do
    /usr/bin/python3 "$source_dir/tests/support/broken_shards.py" "$towers" "$work" $kind || complain "broken shards: $kind"
done

check_end "shards train as folders do, and broken ones are named"
