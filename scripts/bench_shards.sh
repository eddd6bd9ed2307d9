#!/usr/bin/env bash
# How long it takes to list shards: 200,000 images of 100 KB (holes in sparse files, about 2 GB on disk) as WebDataset tars, TFRecords
# and MDS, 1,000 to a shard, with headers in the page cache; and how long the next run needs to find the list again. Fills in
# docs/data.md. A few minutes.
# usage: scripts/bench_shards.sh [IMAGES [BINARY]]     (with IMAGES: standard output only)
set -euo pipefail
cd "$(dirname "$0")/.."

images=${1:-200000}
towers=${2:-build/towers}
if [ $# -lt 2 ]; then
    scripts/setup.sh build
    scripts/build.sh build --preset cpu -DTOWERS_TESTS=OFF -- towers
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/towers-shards.XXXXXX")
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache

python3 - "$images" "$work" <<'PYTHON'
import json, os, struct, sys, tarfile
sys.path.insert(0, "tests/support")
from shards_write import field, masked, mds_shard, varint
images, work = int(sys.argv[1]), sys.argv[2]
SHARD, BYTES = 1000, 100 << 10


def hole(to, count):
    to.seek(count, os.SEEK_CUR)


def tar_write(to, first, count):
    for i in range(first, first + count):
        for suffix, size, data in (("cls", 3, b"%03d" % (i % 1000)), ("jpg", BYTES, b"")):
            member = tarfile.TarInfo("n%08d_%d.%s" % (i % 1000, i, suffix))
            member.size = size
            to.write(member.tobuf(tarfile.USTAR_FORMAT) + data)
            hole(to, -(-size // 512) * 512 - len(data))
    hole(to, 1023)
    to.write(b"\0")


def tfrecord_write(to, first, count):
    for i in range(first, first + count):
        def entry(key, value):
            return field(1, field(1, key) + field(2, value))
        label = entry(b"image/class/label", field(3, field(1, varint(1 + i % 1000)))) + entry(b"image/filename", field(1, field(1, b"n%d_%d.JPEG" % (i % 1000, i))))
        feature = varint(1 << 3 | 2) + varint(len(varint(1 << 3 | 2) + varint(BYTES)) + BYTES) + varint(1 << 3 | 2) + varint(BYTES)
        pair = field(1, b"image/encoded") + varint(2 << 3 | 2) + varint(len(feature) + BYTES) + feature
        pair = varint(1 << 3 | 2) + varint(len(pair) + BYTES) + pair
        start = varint(1 << 3 | 2) + varint(len(label) + len(pair) + BYTES) + label + pair
        length = struct.pack("<Q", len(start) + BYTES)
        to.write(length + masked(length) + start)
        hole(to, BYTES)
        to.write(b"\0\0\0\0")


def mds_write(to, first, count):
    columns = {"image": ("jpeg", None), "label": ("int", 8)}
    config = mds_shard(columns, [])[0][8:]
    at = [4 + 4 * (count + 1) + len(config) + i * (4 + BYTES + 8) for i in range(count + 1)]
    to.write(struct.pack("<%dI" % (count + 2), count, *at) + config)
    for i in range(first, first + count):
        to.write(struct.pack("<I", BYTES))
        hole(to, BYTES)
        to.write(struct.pack("<q", i % 1000))


for kind, write, name in (("tar", tar_write, "shard-%06d.tar"), ("tfrecord", tfrecord_write, "train-%05d-of-99999"), ("mds", mds_write, "shard.%05d.mds")):
    for split, count in (("train", images), ("val", SHARD)):
        folder = "%s/%s/%s" % (work, kind, split)
        os.makedirs(folder)
        entries = []
        for first in range(0, count, SHARD):
            path = "%s/%s" % (folder, name % (first // SHARD))
            some = min(SHARD, count - first)
            with open(path, "wb") as to:
                write(to, first, some)
            entries.append({"version": 2, "format": "mds", "samples": some, "raw_data": {"basename": os.path.basename(path), "bytes": os.path.getsize(path)}})
        if kind == "mds":
            json.dump({"version": 2, "shards": entries}, open(folder + "/index.json", "w"))
PYTHON

opens() { # KIND: plan a run on the data, which opens them; the time in seconds
    local begin
    begin=$(date +%s%N)
    "$towers" train googlenet --no-aux --img-size 32 -b 32 --device cpu --towers 1 --threads 1 --data-path "$work/$1" --dry-run >/dev/null 2>"$work/err" </dev/null ||
        { tail -n 3 "$work/err" >&2; exit 1; }
    awk -v ns=$(($(date +%s%N) - begin)) 'BEGIN { printf "%.2f", ns / 1e9 }'
}

table=$(
    echo "$(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg) at the end, headers in the page cache, commit" \
        "$(git rev-parse --short HEAD)$(git diff --quiet HEAD -- kernels nccl_sync towers inception || echo ' and changes'), $(date -u '+%Y-%m-%d %H:%M')."
    echo
    echo "| format | images | listed, s | opened again, s | images listed per second |"
    echo "|---|---:|---:|---:|---:|"
    for kind in tar tfrecord mds; do
        listed=$(opens $kind)
        again=$(opens $kind)
        echo "| $kind | $images | $listed | $again | $(awk -v n="$images" -v a="$listed" -v b="$again" 'BEGIN { print int(n / (a - b)) }') |"
    done
)
echo "$table"
[ $# -gt 0 ] || scripts/fill_section.sh docs/data.md shards <<<"$table"
