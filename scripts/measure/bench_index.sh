#!/usr/bin/env bash
# A folder of 1,200,000 images (hard links to forty files, in 1,000 classes): how long its index takes, how long the next run needs to
# find it again, and how much memory a run takes beside the same run on synthetic images. Fails if that is more than --data-memory and
# 64 MiB. Fills in docs/data.md. Needs a file system with hard links, and some 200 MB there; a few minutes.
# usage: scripts/measure/bench_index.sh [IMAGES [BINARY]]     (with IMAGES: standard output only)
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/measure/common.sh
scripts/setup.sh python

images=${1:-1200000}
towers=$(towers_of "${2:-}")
work=$(mktemp -d "${TMPDIR:-/tmp}/towers-index.XXXXXX")
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache

python3 - "$images" "$work/set" tests/fuzz/corpus/image/{baseline,progressive,exif}.jpg tests/fuzz/corpus/image/rgb.png <<'PYTHON'
import os, sys
images, root, sources = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
os.makedirs(root + "/few")
few = []
for i in range(40):  # a file system allows 65,000 links to a file or so
    few.append("%s/few/%d%s" % (root, i, os.path.splitext(sources[i % 4])[1]))
    with open(sources[i % 4], "rb") as source, open(few[-1], "wb") as copy:
        copy.write(source.read())
for split, count in (("train", images), ("val", 1000)):
    for label in range(1000):
        folder = "%s/set/%s/n%08d" % (root, split, 1000 + label)
        os.makedirs(folder)
        for i in range(label * count // 1000, (label + 1) * count // 1000):
            name = few[i % 40]
            os.link(name, "%s/IMG_%08d%s" % (folder, i, os.path.splitext(name)[1]))
PYTHON

train() { # NAME ARGUMENT...
    "$towers" train googlenet --no-aux --img-size 32 -b 32 --device cpu --towers 1 --threads 1 --workers 1 --data-memory 32 --eval-interval 0 \
        --summary-interval 0 --output-dir "$work" --experiment "$@" >/dev/null 2>"$work/err" </dev/null || { tail -n 3 "$work/err" >&2; exit 1; }
}
seconds_of() {
    local begin
    begin=$(date +%s%N)
    "$@"
    awk -v ns=$(($(date +%s%N) - begin)) 'BEGIN { printf "%.1f", ns / 1e9 }'
}
peak_of() { # the most that a process of the run has ever had resident, in MiB
    train "$@" &
    local pid=$! peak=0 now
    while kill -0 $pid 2>/dev/null; do
        # shellcheck disable=SC2046 # several processes
        now=$(awk '/^VmHWM/ { if ($2 > most) most = $2 } END { print most + 0 }' $(pgrep -f -- "--output-dir $work" | sed 's|.*|/proc/&/status|') 2>/dev/null) || true
        ((${now:-0} <= peak)) || peak=$now
        sleep 0.1
    done
    wait $pid
    echo $((peak / 1024))
}

built=$(seconds_of train build --data-path "$work/set/set" --dry-run)
again=$(seconds_of train again --data-path "$work/set/set" --dry-run)
index=$(du -m "$XDG_CACHE_HOME"/towers/index | cut -f 1)
alone=$(peak_of alone --dataset synthetic --classes 1000 --max-steps 600)
peak=$(peak_of files --data-path "$work/set/set" --max-steps 600)
table=$(
    echo "$(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg) at the end, directories in the page cache, $(this_commit)."
    echo
    echo "| images in 1,000 classes | index built, s | opened again, s | index, MiB | peak memory of a run, MiB | the same run on synthetic images, MiB | difference with \`--data-memory 32\`, MiB |"
    echo "|---:|---:|---:|---:|---:|---:|---:|"
    echo "| $images | $built | $again | $index | $peak | $alone | $((peak - alone)) |"
)
echo "$table"
[ $# -gt 0 ] || scripts/pages/fill_section.sh docs/data.md index <<<"$table"
((peak - alone <= 32 + 64)) || { echo "bench_index: more than --data-memory and 64 MiB" >&2; exit 1; }
