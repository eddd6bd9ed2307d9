#!/usr/bin/env bash
# The table of folder layouts in docs/results/layouts.md: each layout is made, and `towers train` or `towers eval` does with it what the
# table says. On a difference the new row is printed.
set -uo pipefail
. "$1/tests/support/check.sh"
needs_python
export XDG_CACHE_HOME=$work/cache

# make DIR WORD...: "train/a*4" is four images in train/a, "train/a/x.txt*2" two files that end in .txt
make() {
    rm -rf "$1"
    python3 - "$@" <<'PYTHON'
import os, sys
number = 0
for word in sys.argv[2:]:
    path, _, count = word.partition("*")
    for i in range(int(count)):
        folder, dot, ending = path.rpartition(".")
        if not folder or folder.endswith("/"): # no ending: a folder, maybe a hidden one
            folder, ending = path, "ppm"
        else:
            folder = os.path.dirname(path)
        os.makedirs(os.path.join(sys.argv[1], folder), exist_ok=True)
        number += 1
        with open(os.path.join(sys.argv[1], folder, f"{number}.{ending}"), "wb") as file:
            file.write(b"P6\n8 8\n255\n" + bytes((k * 7 + number * 13) % 256 for k in range(192)) if ending == "ppm" else b"x")
PYTHON
}

# what the program says about its data, without the parts that depend on this machine
said() {
    sed -nE "s|$work/||g; s/; images are files.*//; s/, the first is .*//; s/^data +//p; /^warning: .* ignored/p; s/^error: //p; /has no images of/p" "$@" | paste -sd'~' | sed 's/~/; /g'
}

make base 'train/a*8' 'train/b*8' 'val/a*2' 'val/b*2'
"$towers" train fashion_cnn --data-path base --max-steps 1 --batch-size 4 --quiet --experiment run 2>"$err" || complain "training: $(cat "$err")"
rows=0
while IFS='|' read -r _ layout command _ _; do
    layout=$(tr -d '`' <<<"$layout") command=$(tr -d '`' <<<"$command")
    rows=$((rows + 1))
    # shellcheck disable=SC2086
    make d $layout
    # shellcheck disable=SC2086
    case $command in
    ' train'*)
        timeout 100 "$towers" train fashion_cnn --data-path d --batch-size 2 --dry-run ${command#*train} >dry 2>"$err" </dev/null
        status=$?
        ;;
    *)
        timeout 100 "$towers" eval runs/run --data-path d ${command#*eval} >"$out" 2>"$err" </dev/null
        status=$?
        : >dry
        ;;
    esac
    row="|$(sed -E 's/^ +| +$//g; s/.*/ `&` /' <<<"$layout")|$(sed -E 's/^ +| +$//g; s/.*/ `&` /' <<<"$command")| $status | $(said dry "$err") |"
    grep -qxF -- "$row" "$source_dir/docs/results/layouts.md" || complain "another end, for the table: $row"
done < <(grep '^| `' "$source_dir/docs/results/layouts.md")
((rows >= 30)) || complain "only $rows rows"
check_end "$rows layouts do what the table says"
