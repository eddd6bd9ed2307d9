#!/usr/bin/env bash
# How fast photographs become batches on two cores: against PyTorch's DataLoader with torchvision from PyPI in several ways
# (bench_data.py), decoding against libjpeg-turbo's own speed, and a training step of inception_v3 from JPEG files against one from
# synthetic images. All sides take turns. 218 photographs of Debian's package opencv-doc, made smaller, JPEG of quality 90 and 4:2:0.
# The tables go to standard output and into docs/data.md, the ratio to the fastest peer into README.md. Fifteen minutes on two idle
# cores, and 3 GB for PyTorch. Pillow-SIMD is measured if it can be built (it needs the packages python3-dev, libjpeg-dev, zlib1g-dev).
# usage: scripts/measure/bench_data.sh [--only loader,jpeg,train] [--rounds N] [--seconds N]    (with any of them: standard output only)
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/measure/common.sh

cache=${XDG_CACHE_HOME:-$HOME/.cache}/towers
scripts/setup.sh build peers
TORCH_PYTHON=$(scripts/venv.sh torch)
export TORCH_PYTHON

if SIMD_PYTHON=$(scripts/venv.sh pillow-simd); then
    export SIMD_PYTHON
    echo "$cache"/torch/lib/python3*/site-packages >"$(echo "$cache"/pillow-simd/lib/python3*/site-packages)/torch.pth" # behind its own
fi

pictures=$cache/photos/bench
if [ ! -e "$pictures/made" ]; then
    package=$(mktemp -d)
    trap 'rm -rf "$package"' EXIT
    (cd "$package" && apt-get download -qq opencv-doc && dpkg-deb -x opencv-doc_*.deb .) 2>/dev/null ||
        { echo "bench_data: apt-get cannot fetch the package opencv-doc, whose photographs are used" >&2; exit 5; }
    rm -rf "$pictures"
    "$TORCH_PYTHON" scripts/measure/bench_data.py pictures "$package/usr" "$pictures"
    touch "$pictures/made"
fi

build=build-bench
scripts/build.sh "$build" --preset cpu -B "$build" -DTOWERS_TESTS=ON -- towers bench_jpeg
tables=$(mktemp)
trap 'rm -rf "$tables" "${package:-}"' EXIT
{
    echo "$(processor), $(this_commit)."
    echo
    /usr/bin/python3 scripts/measure/bench_data.py measure "$build/towers" "$build/tests/bench_jpeg" "$pictures" "$@"
} | tee "$tables"
[ $# = 0 ] || exit 0
scripts/pages/fill_section.sh docs/data.md bench <"$tables"
/usr/bin/python3 scripts/measure/bench_data.py readme docs/data.md | scripts/pages/fill_section.sh README.md data
