#!/usr/bin/env bash
# From a fresh clone to a trained network: set up, build, train two towers on Fashion-MNIST. Arguments go to `towers train`.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh build
[ -x build/towers ] || echo "building build/towers" >&2
cmake --preset cpu >build.log 2>&1 || { cat build.log >&2; exit 1; }
cmake --build build >>build.log 2>&1 || { tail -n 40 build.log >&2; exit 1; }
rm -f build.log
exec build/towers train inception_mini --towers 2 "$@"
