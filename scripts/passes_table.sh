#!/usr/bin/env bash
# Each rewrite of the op list, shared storage, Winograd and bf16 on and off: equal results, time and memory of a step of
# inception_v3 (299x299, auxiliary head), as a table on standard output and in docs/performance.md between its markers. About
# three minutes on two idle cores; times on a busy machine mean nothing.
#   scripts/passes_table.sh [BUILD_DIR] [NAME=VALUE...]      what can be named: tests/passes_driver.c
# With names the table goes to standard output only.
set -euo pipefail
cd "$(dirname "$0")/.."

build=build-test
if [ $# -gt 0 ] && [ -d "$1" ]; then
    build=$1
    shift
fi
driver=$build/tests/passes_driver
if [ ! -x "$driver" ]; then
    echo "passes_table: no $driver; build first (scripts/test.sh does), or name the build folder" >&2
    exit 2
fi
export GOMP_SPINCOUNT=1000
page=docs/performance.md
table=$(mktemp)
trap 'rm -f "$table" "$table.page"' EXIT

{
    echo "$(lscpu | sed -n 's/^Model name: *//p' | head -n 1), commit $(git describe --always --dirty --exclude '*')," \
        "$(date -u '+%Y-%m-%d %H:%M'); load when it began: $(cut -d ' ' -f 1 /proc/loadavg)."
    echo
    echo "| what | option | gradients in double | gradients: median, worst | loss | ms without | ms with | time | MiB without | MiB with |"
    echo "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    "$driver" "$@"
} | tee "$table"
[ $# -eq 0 ] || exit 0

awk -v table="$table" '
    /<!-- passes: begin -->/ { print; while ((getline line < table) > 0) print line; inside = 1 }
    /<!-- passes: end -->/ { inside = 0 }
    !inside' "$page" >"$table.page"
cat "$table.page" >"$page"
