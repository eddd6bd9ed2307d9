#!/usr/bin/env bash
# Shards, measured. Without IMAGES: how long it takes to list 100,000 images (holes in sparse files) as WebDataset tars, TFRecords and
# MDS, and how fast 8,000 photographs are read from a folder and from shards: from the page cache, from a cold disk, and from one
# that is limited to the speed of a hard disk (as root; otherwise only what can be had). With IMAGES, such as 1281167 of ImageNet:
# listing time, memory and start of so many in sparse tars (4 KiB on disk each). Fills in docs/data.md; at most five minutes each on
# an idle machine. The photographs are those of scripts/measure/bench_data.sh or scripts/measure/train_photos.sh.
# usage: scripts/measure/bench_shards.sh [IMAGES [BINARY]]     (with BINARY: standard output only; IMAGES 0: as without)
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/measure/common.sh
scripts/setup.sh python

images=${1:-0}
towers=$(towers_of "${2:-}")
photos=${XDG_CACHE_HOME:-$HOME/.cache}/towers/photos
[ -d "$photos/bench/384" ] && photos=$photos/bench/384 || photos=$photos/elpv/train
[ "$images" != 0 ] || [ -d "$photos" ] || {
    echo "bench_shards: no photographs in $photos: scripts/measure/bench_data.sh or scripts/measure/train_photos.sh --minutes 0 fetches them" >&2
    exit 5
}
work=$(mktemp -d "${TMPDIR:-/tmp}/towers-shards.XXXXXX")
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache

measured() { # SECTION WHAT IMAGES: a line about the circumstances, and the table
    local table
    table=$(
        echo "$(nproc) cores, $(this_commit), load $(cut -d' ' -f1 /proc/loadavg) at the beginning."
        echo
        python3 scripts/measure/bench_shards.py "$2" "$towers" "$work" "$3" "$photos"
    )
    echo "$table"
    [ -n "$binary_given" ] || scripts/pages/fill_section.sh docs/data.md "$1" <<<"$table"
}
binary_given=${2:-}

if [ "$images" != 0 ]; then
    measured large large "$images"
    exit
fi
measured shards list 100000
measured cold cold 8000
