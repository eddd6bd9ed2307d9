#!/usr/bin/env bash
# Shards in an object store behind links of 10, 100 and 1000 Mbit/s with round trips of 0, 20 and 100 ms: Towers beside Mosaic Streaming from
# PyPI, reading the same MDS set by s3:// from the same server (nginx, whose folder is a bucket). The link is a program of ours between two
# network namespaces (link.c), because few kernels have netem. Writes docs/results/remote.md, and all numbers to docs/results/remote.json.
# Each row names its commit and its date, and rows that are not measured keep what they had, so it can be called for a few at a time; what
# is done is written after each cell. Two to three minutes a cell on two idle cores; needs root, and 6 GB for PyTorch.
# usage: scripts/measure/bench_remote.sh [--only CELL,...] [--missing] [--list]    (a CELL is MBITxMS, such as 100x20)
# WRITE=no only prints; TOWERS names a program with fault points instead of one that is built here.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/measure/common.sh
scripts/setup.sh python
case " $* " in *' --list '*) exec python3 scripts/measure/bench_remote.py --list ;; esac
[ "$(id -u)" = 0 ] || { echo "bench_remote: network namespaces need root" >&2; exit 5; }
scripts/setup.sh peers
TORCH_PYTHON=$(scripts/venv.sh torch) ONNX_PYTHON=$(scripts/venv.sh onnx)
STREAMING_PACKAGES=$(dirname "$(dirname "$(scripts/venv.sh streaming)")")
STREAMING_PACKAGES=$(echo "$STREAMING_PACKAGES"/lib/python3*/site-packages)
export TORCH_PYTHON ONNX_PYTHON STREAMING_PACKAGES

WORK=$(mktemp -d "${TMPDIR:-/tmp}/towers-remote.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
# Its package would start a server on this machine, so it is unpacked here alone.
NGINX_PROGRAM=$(PATH=$PATH:/usr/sbin command -v nginx) || {
    (cd "$WORK" && apt-get download -qq nginx 2>/dev/null && dpkg-deb -x nginx_*.deb nginx) || { echo "bench_remote: apt-get cannot fetch the package nginx" >&2; exit 5; }
    NGINX_PROGRAM=$WORK/nginx/usr/sbin/nginx
}
LINK=$WORK/link
"${CC:-cc}" -O2 -o "$LINK" scripts/measure/link.c
if [ -z "${TOWERS:-}" ]; then
    scripts/build.sh build-remote --preset cpu -B build-remote -DTOWERS_TESTS=OFF -DTOWERS_FAULTS=ON -- towers
    TOWERS=$PWD/build-remote/towers
fi
MACHINE="$(nproc) cores of an $(processor), load $(cut -d' ' -f1 /proc/loadavg) at the beginning" COMMIT=$(this_commit)
export WORK NGINX_PROGRAM LINK TOWERS MACHINE COMMIT
python3 scripts/measure/bench_remote.py "$@"
