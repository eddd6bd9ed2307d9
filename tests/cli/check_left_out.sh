#!/usr/bin/env bash
# Every reader says what it used and what it left out, and why (tests/support/left_out.py): folders, labels files, tars, TFRecords, MDS and
# IDX files, with what other systems leave behind, copies, missing shards, corrections and names that belong to no sample.
set -uo pipefail
. "$1/tests/support/check.sh"
needs_python
/usr/bin/python3 "$source_dir/tests/support/left_out.py" "$towers" "$work" >"$out" 2>&1 || complain "$(cat "$out")"
check_end "what readers use and leave out"
