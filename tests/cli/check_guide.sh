#!/usr/bin/env bash
# The commands in docs print what its pages show; a page whose output is another, or whose command fails, is found.
. "$1/tests/support/check.sh"
needs_python
[[ -d $fashion_mnist ]] || { echo "SKIPPED: no Fashion-MNIST in $fashion_mnist (package dataset-fashion-mnist)" >&2; exit 77; }
needs_faults "$fashion_mnist"
export TOWERS=$towers FASHION_MNIST=$fashion_mnist

"$source_dir/scripts/pages/guide.py" --check >"$out" 2>&1 || complain "$(cat "$out")"

page='```console\n$ ls -d clothes\n%s\n```\n'
printf "$page" clothes >"$work/good.md"
printf "$page" coats >"$work/bad.md"
printf "$page" clothes | sed 's/ls/false/' >"$work/failing.md"
"$source_dir/scripts/pages/guide.py" --check "$work/good.md" >"$out" 2>&1 || complain "a good page: $(cat "$out")"
"$source_dir/scripts/pages/guide.py" --check "$work/bad.md" >"$out" 2>&1 && complain "a page with other output passes"
grep -qx -- -coats "$out" || complain "a page with other output: $(cat "$out")"
"$source_dir/scripts/pages/guide.py" --check "$work/failing.md" >"$out" 2>&1 && complain "a page with a command that fails passes"
"$source_dir/scripts/pages/guide.py" "$work/bad.md" && cmp "$work/good.md" "$work/bad.md" || complain "a page is not written anew: $(cat "$work/bad.md")"

check_end "the commands in docs print what its pages show"
