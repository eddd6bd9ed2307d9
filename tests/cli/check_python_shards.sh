#!/usr/bin/env bash
# Shards written by the usual Python packages: tars by webdataset, TFRecords and their index files by tfrecord. A run on them has the
# weights of the same run on a folder, bit for bit. The packages are installed once into a virtual environment in the user's cache.
set -uo pipefail
. "$1/tests/support/check.sh"
needs_python
python_of shards
export XDG_CACHE_HOME=$work/cache

"$python" "$source_dir/tests/support/shards_write.py" sets folder tar tfrecord || exit 1
[[ $(find sets/tfrecord -name '*.idx' | wc -l) == 4 ]] || complain "tfrecord wrote no index files"
for kind in folder tar tfrecord; do
    "$towers" train googlenet --no-aux --img-size 32 -b 24 --device cpu --towers 2 --threads 1 --eval-crop 1 --summary-interval 0 \
        --max-steps 7 --data-path sets/$kind --output-dir runs --experiment $kind >out 2>err </dev/null || complain "$kind: $(tail -n 3 err)"
    cmp <(tensors runs/folder/last.safetensors) <(tensors "runs/$kind/last.safetensors") || complain "$kind: other weights than from a folder"
done

check_end "shards of webdataset and tfrecord train as a folder does"
