#!/usr/bin/env bash
# Count the lines of the sources (C, headers, CUDA, tables; no tests) of each room of one commit or two, and their rooms, arrows,
# circles and largest room (tests/support/check_map.py of this checkout).
# usage: scripts/pages/count_lines.sh [COMMIT [COMMIT]]      default: the commit that is checked out
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/setup.sh python

[ $# -le 2 ] || { sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2; }

commits=("${@:-HEAD}") work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for i in "${!commits[@]}"; do
    mkdir "$work/$i"
    git archive "${commits[i]}" kernels nccl_sync towers inception | tar -x -C "$work/$i"
    (cd "$work/$i" && find . -type f \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' -o -name '*.def' \) -printf '%h %p\n') |
        while read -r room file; do echo "${room#./} $(wc -l <"$work/$i/$file")"; done |
        awk '{ lines[$1] += $2; files[$1]++ } END { for (room in lines) print room, files[room], lines[room] }' | sort >"$work/count-$i"
done

join -a 1 -a 2 -e - -o 0,1.2,1.3,2.2,2.3 "$work/count-0" "$work/count-$((${#commits[@]} - 1))" |
    awk -v two=$((${#commits[@]} - 1)) '
        function row(room, f1, l1, f2, l2) { printf two ? "%-22s %5s %7s %7s %7s\n" : "%-22s %5s %7s\n", room, f1, l1, f2, l2 }
        BEGIN { row("room", "files", "lines", "files", "lines") }
        { row($1, $2, $3, $4, $5); f1 += $2; l1 += $3; f2 += $4; l2 += $5 }
        END { row("all", f1, l1, f2, l2) }'
for i in "${!commits[@]}"; do
    echo "$(git rev-parse --short "${commits[i]}"): $(python3 tests/support/check_map.py "$work/$i" | tail -n 1)"
done
