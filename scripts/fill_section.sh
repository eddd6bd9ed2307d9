#!/usr/bin/env bash
# Puts standard input between the lines "<!-- NAME: begin -->" and "<!-- NAME: end -->" of PAGE, for the scripts that write tables.
# A page without both is left alone, and the exit status is 1.
# usage: scripts/fill_section.sh PAGE NAME <TABLE
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
