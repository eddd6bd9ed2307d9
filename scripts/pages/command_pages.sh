#!/usr/bin/env bash
# Write what docs/options.md and the pages in docs/commands/ say of commands and options anew, by `towers man --markdown`. In a page that
# is what stands between "<!-- head: begin -->" and "<!-- head: end -->", and likewise "options", and "exits" in docs/exit-codes.md; the
# rest is written by hand. With
# --check nothing is written, and pages that differ, are missing, or belong to no command are named.
# usage: [TOWERS=BINARY] scripts/pages/command_pages.sh [--check] [DOCS]
set -euo pipefail
root=$(realpath "$(dirname "$0")/../..")
towers=$(realpath "${TOWERS:-$root/build-test/towers}")
check=false
[[ ${1:-} != --check ]] || { check=true; shift; }
docs=${1:-$root/docs}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wrong=0

settle() { # PAGE: what it should be stands in $work/page
    ! cmp -s "$work/page" "$1" || return 0
    if $check; then
        diff -u "$1" "$work/page" | head -n 12 >&2 || true
        wrong=1
    else
        cp "$work/page" "$1"
    fi
}

"$towers" man --markdown >"$work/page"
mapfile -t commands < <(sed -n 's/^| \[`towers .*](commands\/\([a-z-]*\)\.md).*/\1/p' "$work/page")
settle "$docs/options.md"
for command in "${commands[@]}"; do
    page=$docs/commands/$command.md
    [[ -e $page ]] || { echo "command_pages: towers $command has no page $page" >&2; wrong=1; continue; }
    "$towers" man "$command" --markdown >"$work/parts"
    cp "$page" "$work/page"
    for part in head options; do
        sed -n "/^<!-- $part: begin -->/,/^<!-- $part: end -->/p" "$work/parts" | sed '1d;$d' |
            "$root/scripts/pages/fill_section.sh" "$work/page" "$part" || wrong=1
    done
    settle "$page"
done
exits() { # the table of codes
    echo
    printf '| code | meaning |\n|---:|---|\n'
    "$towers" man --json | grep -oE '\{"code":[0-9]+,"meaning":"[^"]*"\}|"by_signal":"[^"]*"' |
        sed -E 's/^\{"code":([0-9]+),"meaning":"(.*)"\}$/| \1 | \2 |/; s/^"by_signal":"(.*)"$/| 128 + n | \1 |/'
    echo
}
cp "$docs/exit-codes.md" "$work/page"
exits | "$root/scripts/pages/fill_section.sh" "$work/page" exits || wrong=1
settle "$docs/exit-codes.md"
for page in "$docs"/commands/*.md; do
    [[ " ${commands[*]} " == *" $(basename "$page" .md) "* ]] || { echo "command_pages: $page is of no command" >&2; wrong=1; }
done
((!wrong)) || { echo "command_pages: pages are older than the program; scripts/pages/command_pages.sh writes them anew" >&2; exit 1; }
