#!/usr/bin/env bash
# Measure each rewrite of the op list, shared storage, Winograd and bf16 on and off: equality of results, and time and memory of a
# step of inception_v3 (299x299, auxiliary head). Writes a table to standard output and docs/results/cpu.md. About three minutes on
# two idle cores; the times are meaningless on a busy machine.
#   scripts/measure/passes_table.sh [BUILD_DIR] [NAME=VALUE...]      names: see tests/support/drivers/passes_driver.c
# Without BUILD_DIR, build-test/ is brought up to date first.
# With names the table goes to standard output only.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/measure/common.sh

build=build-test
if [ $# -gt 0 ] && [ -d "$1" ]; then
    build=$1
    shift
fi
driver=$build/tests/passes_driver
table=$(mktemp)
trap 'rm -f "$table"' EXIT
if [ "$build" = build-test ]; then
    scripts/setup.sh test
    scripts/build.sh "$build" --preset test -- passes_driver
elif [ ! -x "$driver" ]; then
    echo "passes_table: $driver does not exist; build it, or omit the build folder" >&2
    exit 2
fi
export GOMP_SPINCOUNT=1000

{
    echo "$(processor), $(this_commit); load when it began: $(cut -d ' ' -f 1 /proc/loadavg)."
    echo
    echo "| what | option | gradients in double | gradients: median, worst | loss | ms without | ms with | time | MiB without | MiB with |"
    echo "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    "$driver" "$@"
} | tee "$table"
[ $# -eq 0 ] || exit 0

scripts/pages/fill_section.sh docs/results/cpu.md passes <"$table"
