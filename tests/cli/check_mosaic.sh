#!/usr/bin/env bash
# Mosaic Streaming and this program exchange MDS sets through a store of others (moto): what its MDSWriter has written there, with hashes, trains
# with the bits of the same samples on this machine, also from an index while it comes; what towers data convert --format mds has written is
# read by its StreamingDataset, every image and label. Arguments: source folder, binary.
set -uo pipefail
. "$1/tests/support/check.sh"
. "$source_dir/tests/support/moto.sh"
needs_python
torch=
for other in "${TORCH_PYTHON:-}" "$moto_cache/towers/torch/bin/python"; do
    [[ -z $other ]] || ! "$other" -c 'import torch, torchvision' 2>/dev/null || torch=$other
done
[[ -n $torch ]] || { echo "SKIPPED: no Python with torch, which Mosaic Streaming needs" >&2; exit 77; }
python_of streaming
packages=$(echo "$(dirname "$(dirname "$python")")"/lib/python3*/site-packages)
mosaic() { PYTHONPATH=$packages S3_ENDPOINT_URL=$base AWS_ACCESS_KEY_ID=$id AWS_SECRET_ACCESS_KEY=$secret AWS_DEFAULT_REGION=us-east-1 "$torch" "$source_dir/tests/support/mosaic.py" "$@"; }
unset "${!AWS_@}"
export XDG_CACHE_HOME=$work/cache HOME=$work no_proxy=127.0.0.1
IMAGES=120 /usr/bin/python3 "$source_dir/tests/support/shards_write.py" "$work/sets" mds || exit 1
mkdir seed && touch seed/x
sleep 300 &
server=$!
trap 'kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
moto_begin "$work/seed" "sets of Mosaic Streaming in" || check_end "nothing was tried"
base=http://127.0.0.1:$port

train() { # NAME ARGUMENT...
    AWS_ENDPOINT_URL=$base AWS_ACCESS_KEY_ID=$id AWS_SECRET_ACCESS_KEY=$secret "$towers" train googlenet --no-aux --img-size 32 -b 16 --device cpu \
        --towers 2 --processes 1 --threads 1 --eval-crop 1 --classes 3 --max-steps 6 --net-timeout 60 --summary-interval 0 --output-dir runs --experiment "$@" >"$1.out" 2>"$1.err" </dev/null
}
same() { cmp -s <(tensors runs/local/last.safetensors) <(tensors "runs/$1/last.safetensors") || complain "$1: other weights than from this machine"; }

# ---- what Mosaic Streaming writes
mosaic write sets/mds written >"$out" 2>"$err" || complain "MDSWriter: $(tail -n 3 "$err")"
train local --data-path sets/mds || complain "a set of this machine: $(tail -n 3 local.err)"
train written --data-path 's3://pets/written/{train,val}/' || complain "what MDSWriter has written: $(tail -n 3 written.err)"
same written
[[ $(find cache -path '*/pets/data/*' -name '*.mds' | wc -l) -gt 3 ]] || complain "MDSWriter has written few shards: $(find cache -name '*.mds')"
train again --data-path 's3://pets/written/{train,val}/' || complain "from the cache: $(tail -n 3 again.err)"
same again
find cache -path '*/pets/data/*' -name '*.mds' -delete
train comes --data-path 's3://pets/written/{train,val}/' || complain "while it comes: $(tail -n 3 comes.err)"
same comes
grep -q "come while they are read" comes.out comes.err || complain "an index in the cache is not used: $(cat comes.out comes.err)"

# ---- what this program writes
for format in mds tar; do
    "$towers" data convert sets/mds "$format" --format $format --side 24 --shard-samples 32 >"$out" 2>"$err" || complain "data convert to $format: $(tail -n 2 "$err")"
done
mosaic read mds tar read >"$out" 2>"$err" || complain "StreamingDataset: $(tail -n 3 "$err")"
check_end "MDS sets of Mosaic Streaming are read here, and those of towers data convert there, from a store"
