#!/usr/bin/env bash
# Check that every source file is formatted by .clang-format, has no tabs or trailing spaces, and is spelled correctly (codespell), and
# that the worked examples of CONTRIBUTING still apply, which one changed word of a line beside theirs prevents.
# Exits 77, which ctest shows as skipped, if everything but the formatting could be checked.
set -euo pipefail
cd "${1:-$(dirname "$0")/../..}"

mapfile -t sources < <(find kernels nccl_sync towers inception tests -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' | sort)
formatted=0
scripts/check/clang_format.sh --dry-run -Werror "${sources[@]}" || formatted=$?
[ $formatted = 0 ] || [ $formatted = 77 ] || exit 1
if grep -nP '\t| +$' "${sources[@]}"; then
    echo "format: tabs or trailing spaces" >&2
    exit 1
fi
# A comment too long for its line tears the declaration before it in two: a member's, or a function's behind its type.
if grep -nE '^        \*?[a-z_]+;? /\*' "${sources[@]}" || grep -nE '^[A-Za-z_0-9]+( \*)?$' $(printf '%s\n' "${sources[@]}" | grep 'h$'); then
    echo "format: the comment belongs above the declaration" >&2
    exit 1
fi
for example in tests/examples/*.patch; do # a contributor may have applied it
    patch -p1 -F0 -f -R --dry-run -s -r- <"$example" >/dev/null 2>&1 || patch -p1 -F0 -f --dry-run -s -r- <"$example" >&2 || { echo "format: $example does not apply: take over what changed around it" >&2; exit 1; }
done
if command -v codespell >/dev/null; then
    codespell -q 3 --skip '*.proto,golden_*,*/corpus/*,imagenet.txt' -L te,inout,ans,nd,fo,trian,caf,abd README.md docs kernels nccl_sync towers inception scripts tests
else
    echo "SKIPPED: codespell is not installed" >&2
    formatted=77
fi
exit $formatted
