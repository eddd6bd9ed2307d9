#!/usr/bin/env bash
# docs/results/roofline.md is what the program's op list costs now, and the described GPU joins what cuDNN has kernels for
# (docs/results/cudnn-plans.md). A page that says less is noticed. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
build=$(dirname "$towers")
driver=$build/tests/roofline_driver

"$source_dir/scripts/roofline.sh" "$build" --check >"$out" 2>"$err" || complain "$(cat "$out" "$err")"

# A step that moves a megabyte more than the page says.
mkdir -p "$work/tree/scripts" "$work/tree/docs/results"
cp "$source_dir/scripts/roofline.sh" "$work/tree/scripts/"
awk -F '|' -v OFS='|' '/f16 . auto . 256/ { $6 -= 1 } { print }' "$source_dir/docs/results/roofline.md" >"$work/tree/docs/results/roofline.md"
"$work/tree/scripts/roofline.sh" "$build" --check >"$out" 2>"$err" && complain "a rise of 1 MB is not noticed"
grep -q "the step costs something else than" "$err" || complain "a rise is not named: $(cat "$err")"

rows=0
while IFS='|' read -r _ model batch gpu dtype joined; do
    [[ $gpu == *H200* ]] || continue
    has=$("$driver" model=${model// /} n=${batch// /} dtype=${dtype// /} print=joins) || complain "the driver fails for $model"
    [[ "$(tr -d ' ' <<<"$joined")" == "$(tr -d ' ' <<<"$has")|" ]] || complain "$model in $dtype joins $has, cuDNN $joined"
    rows=$((rows + 1))
done < <(sed -n '/^## What a training step joins/,$p' "$source_dir/docs/results/cudnn-plans.md" | grep '^| [a-z]*_*[a-z0-9_]* | [0-9]')
((rows >= 6)) || complain "$rows rows of cudnn-plans.md were compared"

for wrong in n=0 dtype=u8 fuse=iv gpu=H300 model=alexnet; do
    "$driver" "$wrong" >"$out" 2>"$err" && complain "$wrong is accepted"
done

check_end "roofline: the page holds, $rows rows of joined kernels are those of cuDNN"
