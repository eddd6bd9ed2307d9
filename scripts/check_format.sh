#!/usr/bin/env bash
# Every source file as .clang-format wants it, without tabs or trailing space, and spelled correctly where codespell is there.
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

mapfile -t sources < <(find kernels nccl_sync towers inception tests -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' | sort)
clang-format --dry-run -Werror "${sources[@]}"
if grep -nP '\t| +$' "${sources[@]}"; then
    echo "format: tabs or trailing spaces" >&2
    exit 1
fi
if command -v codespell >/dev/null; then
    codespell -q 3 --skip '*.proto,golden_*,*/corpus/*' -L te,inout,ans,nd,fo,trian README.md docs kernels nccl_sync towers inception scripts tests
fi
