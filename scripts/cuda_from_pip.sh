#!/usr/bin/env bash
# A CUDA toolkit for building Towers, from NVIDIA's Python wheels: no root, no driver; it says how much they are.
# usage: scripts/cuda_from_pip.sh [DIR]      (default: third_party/cuda, where builds look by themselves)
# Then:  cmake --preset cuda && cmake --build build-cuda      (with another DIR: cmake --preset cuda -DCUDAToolkit_ROOT=DIR)
#
# The wheels are installed into DIR/venv. Their folders (one for the toolkit, one each for cuDNN and NCCL) are merged by symbolic links
# into DIR/{bin,include,lib,nvvm}; each libX.so.N gets the link libX.so that a linker needs; lib64 is a link to lib.
set -euo pipefail

case ${1:-} in -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
[ $# -le 1 ] || { echo "usage: $0 [DIR] (see --help)" >&2; exit 2; }
top=$(cd "$(dirname "$0")/.." && pwd)
"$top/scripts/setup.sh" cuda
mkdir -p "${1:-$top/third_party/cuda}"
dir=$(cd "${1:-$top/third_party/cuda}" && pwd)
wheels=$top/scripts/requirements/cuda.txt
[ -x "$dir/venv/bin/pip" ] || python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install --quiet --no-deps --require-hashes -r "$wheels"

# merge FROM TO: recreate the folders of FROM, and link its files
merge() {
    (cd "$1" && find . -type d -exec mkdir -p "$2/{}" \;)
    (cd "$1" && find . -type f -exec ln -sfn "$1/{}" "$2/{}" \;)
}
site=$("$dir/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
for root in "$site"/nvidia/*/; do
    for part in bin include lib nvvm; do
        [ ! -d "$root$part" ] || merge "$root$part" "$dir/$part"
    done
done
for library in "$dir"/lib/lib*.so.*; do
    ln -sfn "$(basename "$library")" "${library%%.so.*}.so"
done
ln -sfn lib "$dir/lib64"
chmod +x "$site"/nvidia/*/bin/* "$site"/nvidia/*/nvvm/bin/* 2>/dev/null || true

"$dir/bin/nvcc" --version | grep release
option=
[ "$dir" = "$top/third_party/cuda" ] || option=" -DCUDAToolkit_ROOT=$(printf %q "$dir")"
echo "toolkit in $dir, $(du -sh "$dir" | cut -f 1): cmake --preset cuda$option && cmake --build build-cuda"
