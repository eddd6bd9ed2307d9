#!/usr/bin/env bash
# Write the tables of docs/scaling.md: which placements of eight towers have the same bits, and how a run of several programs ends
# after each fault, as tests/cli/check_hosts.sh and check_hosts_net.sh see it. Needs root, for network namespaces.
# usage: scripts/pages/hosts_tables.sh [BUILD_FOLDER]    (default: build-test; with TOWERS_FAULTS=ON and MPI)
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build-test}
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
for check in hosts hosts_net; do HOSTS_TABLES=$made bash "tests/cli/check_$check.sh" "$PWD" "$PWD/$build/towers"; done
{
    echo '| programs x towers | weights | losses | gradients | evaluation |' && echo '|---|---|---|---|---|'
    cat "$made/table-bits"
} | scripts/pages/fill_section.sh docs/scaling.md bits
for table in faults network; do
    {
        echo '| fault | exit codes | what is said |' && echo '|---|---|---|'
        if [ $table = network ]; then sort "$made/table-$table"; else cat "$made/table-$table"; fi # cases that run at once
    } | scripts/pages/fill_section.sh docs/scaling.md $table
done
