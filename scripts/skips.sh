#!/usr/bin/env bash
# What was skipped in a run of the tests, and why; and whether that is what tests/skips.txt accepts.
#   scripts/skips.sh list LOG...        lines "TEST: WHY" or "TEST, CASE: WHY", from logs of ctest (Testing/Temporary/LastTest.log)
#                                       and of CMake (its notes that something is left out)
#   scripts/skips.sh unexpected LIST    the lines of that list that tests/skips.txt does not accept; exits 1 if there are any
set -euo pipefail

list() {
    awk '
        function told(line) { if (!seen[line]++) print line }
        /^[0-9]+\/[0-9]+ Test: / { name = $3; case_name = why = ""; next }
        /^-- .* left out/ { sub(/^-- /, ""); told("build: " $0); next }
        /^\[ RUN      \] / { case_name = $4; why = ""; next }
        /^\[       OK \] |^\[  FAILED  \] |^\[==========\] / { case_name = ""; next }
        /^\[  SKIPPED \] / {
            if (case_name == "") next # the list at the end of a program
            told(name ", " case_name ": " (why == "" ? "it gives no reason" : why))
            case_name = ""
            next
        }
        /^SKIPPED: / && case_name == "" { sub(/^SKIPPED: /, ""); told(name ": " $0); next }
        case_name != "" && NF { why = $0; sub(/^ *(SKIPPED: )?/, "", why) }
    ' "$@" | sort -u
}

unexpected() {
    local line pattern known accepted bad=0
    while IFS= read -r line; do
        accepted=no
        while IFS= read -r pattern; do
            known=${pattern%%  --*}
            # shellcheck disable=SC2053 # a pattern
            case $pattern in '' | '#'*) ;; *) [[ $line != $known ]] || accepted=yes ;; esac
        done <"$(dirname "$0")/../tests/skips.txt"
        [ $accepted = yes ] || { echo "$line"; bad=1; }
    done <"$1"
    return $bad
}

case ${1:-} in
list | unexpected) [ $# -ge 2 ] && "$@" ;;
*) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
