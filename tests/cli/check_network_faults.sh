#!/usr/bin/env bash
# What docs/results/network-faults.md says of each fault of a network, a server or the disk of a cache is what this build does: the script that
# writes the table makes the faults again and compares. Arguments: source folder, binary.
. "$1/tests/support/check.sh"
needs_python
python3 "$source_dir/scripts/pages/network_faults.py" "$towers" --check >"$out" 2>"$err" || complain "other rows than on the page: $(cat "$err" "$out")"
grep '^SKIPPED' "$err" >&2

check_end "each fault of a network ends as docs/results/network-faults.md says"
