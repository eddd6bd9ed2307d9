#!/usr/bin/env bash
# Replace the text between the lines "<!-- NAME: begin -->" and "<!-- NAME: end -->" of PAGE by standard input; used by scripts that
# write tables. If PAGE lacks either line it is left unchanged, and the exit status is 1.
# usage: scripts/pages/fill_section.sh PAGE NAME <TABLE
set -euo pipefail

page=$1 name=$2
made=$(mktemp)
trap 'rm -f "$made"' EXIT
awk -v begin="<!-- $name: begin -->" -v end="<!-- $name: end -->" '
    $0 == end && inside { inside = 0; ends++ }
    !inside
    $0 == begin { begins++; inside = 1; while ((getline line < "/dev/stdin") > 0) print line }
    END { exit !(begins == 1 && ends == 1) }' "$page" >"$made" || {
    echo "fill_section: $page has no section '$name'" >&2
    exit 1
}
cat "$made" >"$page"
