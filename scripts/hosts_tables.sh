#!/usr/bin/env bash
# Write the tables of docs/scaling.md: which placements of eight towers have the same bits, and how a run of several programs ends
# after each fault, as tests/cli/check_hosts.sh sees it.
# usage: scripts/hosts_tables.sh [BUILD_FOLDER]    (default: build-test; with TOWERS_FAULTS=ON and MPI)
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build-test}
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
HOSTS_TABLES=$made bash tests/cli/check_hosts.sh "$PWD" "$PWD/$build/towers"
{
    echo '| programs x towers | weights | losses | gradients | evaluation |' && echo '|---|---|---|---|---|'
    cat "$made/table-bits"
} >"$made/bits"
{
    echo '| fault | exit codes | what is said |' && echo '|---|---|---|'
    cat "$made/table-faults"
} >"$made/faults"
for table in bits faults; do
    sed -i -e "/<!-- $table: begin -->/,/<!-- $table: end -->/{/<!-- $table:/!d}" docs/scaling.md
    sed -i -e "/<!-- $table: begin -->/r $made/$table" docs/scaling.md
done
