#!/usr/bin/env bash
# Parquet tables, as the Hugging Face hub has them: named and refused with a way that works, in folders, at addresses and in buckets; and
# scripts/parquet_tars.py, whose tars train with the bits of those that the tables were made of. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
needs_python
foreign="is a Parquet table, which is not read: scripts/parquet_tars.py makes tars of such tables"

# ---- recognized by name, before anything is asked of a network
mkdir -p hub/data && printf PAR1 >hub/data/train-00000-of-00001.parquet
for path in hub hub/data hub/data/train-00000-of-00001.parquet; do refuses 3 "$foreign" "$towers" data info "$path"; done
for address in s3://none/data/train-00000-of-00001.parquet "https://127.0.0.1:9/x/data/train-{00000..00004}-of-00005.parquet"; do
    refuses 3 "$foreign" "$towers" data info "$address" --net-timeout 2
done
refuses 3 "is a zip archive, which is not read: unpack it" "$towers" data info https://127.0.0.1:9/x/set.zip --net-timeout 2
unset "${!AWS_@}"
export no_proxy=127.0.0.1
coproc STORE { S3_ID=anyone S3_SECRET=anything S3_TOKEN=x exec python3 "$source_dir/tests/support/s3_server.py" "$work/hub" "$work/requests"; }
trap 'kill "$STORE_PID" 2>/dev/null; rm -rf "$work"' EXIT
read -r port <&"${STORE[0]}" || complain "the store does not start"
AWS_ACCESS_KEY_ID=anyone AWS_SECRET_ACCESS_KEY=anything refuses 3 "s3://pets/data/train-00000-of-00001.parquet' $foreign" \
    "$towers" data info s3://pets/data/ --s3-endpoint "http://127.0.0.1:$port" --cache-dir cache

# ---- tars of tables
python_of parquet
tars=$source_dir/scripts/parquet_tars.py
/usr/bin/python3 "$source_dir/tests/support/shards_write.py" sets tar || exit 1
"$python" "$source_dir/tests/support/parquet_write.py" sets/tar tables || exit 1
train() { # NAME DATA
    "$towers" train googlenet --no-aux --img-size 32 -b 16 --device cpu --towers 2 --threads 1 --eval-crop 1 --max-steps 4 --summary-interval 0 --data-path "$2" --experiment "$1" >"$out" 2>"$err" </dev/null ||
        complain "$1: $(tail -n 3 "$err")"
}
train golden sets/tar
for kind in hub texts plain; do
    "$python" "$tars" "tables/$kind" "made/$kind" 2>said || complain "$kind: $(cat said)"
    [[ $kind == plain ]] || cmp -s sets/tar/classes.txt "made/$kind/classes.txt" || complain "$kind: classes: $(cat "made/$kind/classes.txt")"
    train "$kind" "made/$kind"
    cmp -s <(tensors runs/golden/last.safetensors) <(tensors "runs/$kind/last.safetensors") || complain "$kind: other weights than from the tars that the tables were made of"
done
grep -qF "left out: the tables for test (--split takes them)" said || complain "the tables for test are passed over in silence: $(cat said)"
"$python" "$tars" tables/hub/data/train-*.parquet made/part --split train 2>said || complain "tables by name: $(cat said)"
[[ $(ls made/part) == "$(cd made/hub && ls classes.txt train-*)" ]] || complain "tables by name: $(ls made/part)"
no() { # TEXT ARGUMENT...: refused with this text, and no folder is left
    local text=$1
    shift
    "$python" "$tars" "$@" made/no >said 2>&1 && complain "$*: not refused"
    grep -qF -- "$text" said || complain "$*: wanted '$text': $(cat said)"
    [[ -z $(ls -d made/no* 2>/dev/null) ]] || complain "$*: $(ls -d made/no*) is left"
}
no "has tables in several folders" tables
"$python" "$tars" tables/hub made/hub >said 2>&1 && complain "a folder that is there is written to"
grep -qF "made/hub is there already: name a new folder" said || complain "a folder that is there: $(cat said)"
no "row 3: the label is -1, as of a set without labels" tables/plain --split test
no "row 2: there are no bytes of an image" tables/empty
no "row 1: the bytes are of no kind of image" tables/noise
no "has several columns of image: give one of image, thumbnail with --image" tables/two
no "has no column 'none'" tables/hub --label none
no "there is no table for test" tables/hub --split test
no "expected train, validation or test as a word of its name" tables/unnamed.parquet
cp tables/unnamed.parquet tables/train-a.pq
no "tables/train-a.pq: expected a file whose name ends in .parquet" tables/train-a.pq
no "has no .parquet" sets
check_end "Parquet tables are named, and become tars that train with the same bits"
