#!/usr/bin/env bash
# Before a commit, in less than a minute: formatting and spelling, the map of the rooms, links and names, mutants that still fit, the names
# that tests/skips.txt may use, pages and keywords that scripts write from the tables, and the unit tests of what changed. The first call
# also builds the tests, which takes some minutes.
#   scripts/check.sh               what changed since the last commit; in a clean tree, the last commit
#   scripts/check.sh REVISION      what changed since then
# scripts/test.sh tries everything that most changes can break, scripts/test.sh --full the rest.
set -euo pipefail
cd "$(dirname "$0")/.."

most=12 # unit tests at a time: with more, a change concerns scripts/test.sh
. "$PWD/scripts/check/changes.sh"
files=$(changed_files "${1:-}") || {
    echo "check: git cannot tell what has changed${1:+ since $1}: that needs git, and a clone with ${1:-the commit before the last}" >&2
    exit 2
}
mapfile -t changed < <(printf '%s' "${files:+$files$'\n'}")
[ ${#changed[@]} -gt 0 ] || { echo "check: nothing has changed${1:+ since $1}" && exit 0; }
mapfile -t tests < <(tests_of "${changed[@]}")
[ ${#tests[@]} -le $most ] || echo "check: ${#tests[@]} unit tests read what changed, of which $most run here; scripts/test.sh runs all"
tests=("${tests[@]:0:$most}")

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# in_background NAME COMMAND...: its status and its output in files
in_background() {
    local name=$1
    shift
    (
        status=0
        "$@" >"$logs/$name" 2>&1 || status=$?
        echo $status >"$logs/$name.status"
    ) &
}
script() { bash "tests/support/on_a_device.sh" "$PWD/tests/cli/$1.sh" "$PWD" "$PWD/build-test/towers"; }

# Says, once, how those of these names ended that have been started; all of them have ended.
failed=''
say() {
    local name
    for name; do
        [ -f "$logs/$name.status" ] || continue
        case $(cat "$logs/$name.status") in
        0) echo "ok      $name${tests:+$([ "$name" != unit ] || printf ' %s' "${tests[@]}")}" ;;
        77) echo "skipped $name: $(tail -n 1 "$logs/$name")" ;;
        *)
            failed+=" $name"
            echo "FAILED  $name"
            tail -n 30 "$logs/$name" | sed 's/^/    /'
            ;;
        esac
        rm "$logs/$name.status"
    done
}

started=$SECONDS
[ -f build-test/build.ninja ] || scripts/setup.sh test # what the checks need, too: Python
in_background mutants tests/mutants.sh --check
in_background faults scripts/pages/fault_table.sh --check
if [ ! -f build-test/build.ninja ]; then
    wait
    say mutants faults
    echo "check: the first call builds the tests, which takes some minutes"
fi
in_background format scripts/check/format.sh
scripts/build.sh build-test --preset test -- towers "${tests[@]}"
in_background pages env TOWERS="$PWD/build-test/towers" scripts/pages/command_pages.sh --check
in_background keywords scripts/pages/python_keywords.py "$PWD/build-test/towers" --check
in_background map script check_map
in_background links script check_links
[ ${#tests[@]} -eq 0 ] || in_background unit ctest --test-dir build-test --output-on-failure -j "$(nproc)" -R "^($(IFS='|' && echo "${tests[*]}"))\$"
wait

say format mutants faults pages keywords map links unit
[ ${#tests[@]} -gt 0 ] || echo "none    unit: no unit test reads what changed"
echo "check: ${#changed[@]} changed files, $((SECONDS - started)) seconds"
[ -z "$failed" ]
