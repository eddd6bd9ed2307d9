#!/usr/bin/env bash
# List the tests that were skipped, with reasons, or check such a list against tests/skips.txt.
#   scripts/check/skips.sh list LOG...        prints lines "TEST: REASON" or "TEST, CASE: REASON", from logs of ctest
#                                       (Testing/Temporary/LastTest.log) and of CMake (notes about parts that are left out)
#   scripts/check/skips.sh unexpected LIST    prints the lines of LIST that tests/skips.txt does not accept; exits 1 if there are any
set -euo pipefail

list() {
    awk '
        function print_once(line) { if (!seen[line]++) print line }
        /^[0-9]+\/[0-9]+ Test: / { name = $3; case_name = why = ""; next }
        /^-- .* left out/ { sub(/^-- /, ""); print_once("build: " $0); next }
        /^\[ RUN      \] / { case_name = $4; why = ""; next }
        /^\[       OK \] |^\[  FAILED  \] |^\[==========\] / { case_name = ""; next }
        /^\[  SKIPPED \] / {
            if (case_name == "") next # the summary at the end of a program
            print_once(name ", " case_name ": " (why == "" ? "it gives no reason" : why))
            case_name = ""
            next
        }
        /^SKIPPED: / && case_name == "" { sub(/^SKIPPED: /, ""); print_once(name ": " $0); next }
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
        done <"$(dirname "$0")/../../tests/skips.txt"
        [ $accepted = yes ] || { echo "$line"; bad=1; }
    done <"$1"
    return $bad
}

case ${1:-} in
list | unexpected) [ $# -ge 2 ] && "$@" ;;
*) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
