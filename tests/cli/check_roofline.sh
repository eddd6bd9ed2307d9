#!/usr/bin/env bash
# docs/results/roofline.md is what the program's op list costs now. A page that says less is noticed. Arguments: source folder,
# binary.
. "$1/tests/support/check.sh"
build=$(dirname "$towers")
driver=$build/tests/roofline_driver

"$source_dir/scripts/measure/roofline.sh" "$build" --check >"$out" 2>"$err" || complain "$(cat "$out" "$err")"

# A step that moves a megabyte more than the page says.
mkdir -p "$work/tree/scripts/measure" "$work/tree/docs/results"
cp "$source_dir/scripts/measure/roofline.sh" "$work/tree/scripts/measure/"
awk -F '|' -v OFS='|' '/^. f16 . 256/ { $7 -= 1 } { print }' "$source_dir/docs/results/roofline.md" >"$work/tree/docs/results/roofline.md"
"$work/tree/scripts/measure/roofline.sh" "$build" --check >"$out" 2>"$err" && complain "a rise of 1 MB is not noticed"
grep -q "the step costs something else than" "$err" || complain "a rise is not named: $(cat "$err")"

for wrong in n=0 dtype=u8 gpu=H300 model=alexnet; do
    "$driver" "$wrong" >"$out" 2>"$err" && complain "$wrong is accepted"
done

check_end "roofline: the page holds"
