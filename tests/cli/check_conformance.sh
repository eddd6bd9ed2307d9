#!/usr/bin/env bash
# Borrowed names: those of docs/results/conformance.md that are refused end with exit code 2 and say what to use; where torch, torchvision
# and timm are installed, scripts/conformance.py compares all of them again and finds the verdicts of the page.
# usage: check_conformance.sh SOURCE_FOLDER BINARY
set -u
. "$1/tests/support/check.sh"
check_begin conformance "$@"
page=$source_dir/docs/results/conformance.md

refused=0
while read -r flag value; do
    refused=$((refused + 1))
    "$towers" train fashion_cnn --dataset synthetic --dry-run "$flag" "${value:-1}" >"$out" 2>"$err" </dev/null
    code=$?
    [ $code = 2 ] || complain "$flag: exit $code instead of 2"
    grep -qF -- "$(grep -F "| \`$flag${value:+ $value}\` |" "$page" | sed 's/.* | //; s/ |$//')" <(tr / '|' <"$err"; cat "$err") ||
        complain "$flag: the page says something else than: $(cat "$err")"
done < <(sed -n 's/^| `\([^`]*\)` | [^|]* | refused | .*/\1/p' "$page")
[ $refused -ge 4 ] || complain "$page has $refused refused names"

for python in "${TORCH_PYTHON:-}" "${XDG_CACHE_HOME:-$HOME/.cache}/towers/torch/bin/python" python3; do
    [ -n "$python" ] && "$python" -c 'import torch, torchvision, timm, PIL' 2>/dev/null && break
    python=
done
if [ -n "$python" ]; then
    PYTHONDONTWRITEBYTECODE=1 "$python" "$source_dir/scripts/conformance.py" --check "$towers" "$page" >"$out" 2>"$err" || complain "$(grep WRONG "$out"; cat "$err")"
else
    left_out "borrowed names against the packages: no Python with torch, torchvision and timm"
fi
check_end "borrowed names do what they do elsewhere, or are refused"
