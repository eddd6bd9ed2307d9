#!/usr/bin/env bash
# Set up, build and run every test. Exits non-zero if anything fails.
#   scripts/test.sh          the tests, built with gcc
#   scripts/test.sh --all    also: clang, address, undefined-behavior and thread sanitizers, 30 seconds of each fuzzer, 10 mutants,
#                            other processors
#   scripts/test.sh --turn N also clang, and a third of the others: those of N modulo 3. CI gives the number of the commit, so that
#                            three commits in a row run them all (tests/README.md)
#   scripts/test.sh --plan N what --turn N would do
# Further arguments are passed to the last ctest (e.g. -R loader). At the end the skipped tests are listed with their reasons; the
# list is kept in build-test/skipped.txt.
set -euo pipefail
cd "$(dirname "$0")/.."

# What runs besides the tests, as words of `more`; avx2: those of the tests that repeat others without AVX-512. The number also
# chooses the mutants.
turns=("asan" "tsan mutants" "fuzz portable avx2")
more='avx2' number=0
case "${1:-}" in
--all) more="clang ${turns[*]}" number=$(git rev-list --count HEAD 2>/dev/null || echo 0) && shift ;;
--turn | --plan)
    [[ ${2:-} =~ ^[0-9]+$ ]] || { echo "scripts/test.sh $1: expected a number, found '${2:-}'" >&2; exit 2; }
    number=$2 more="clang ${turns[$2 % 3]}"
    [ "$1" = --turn ] || { echo "test $more"; exit 0; }
    shift 2
    ;;
esac
does() { [[ " $more " == *" $1 "* ]]; }
does avx2 || set -- -LE avx2 "$@"
scripts/setup.sh test
jobs=$(nproc)
kept=$(mktemp -d) # logs, for the list of what was skipped
trap 'rm -rf "$kept"' EXIT

# build PRESET [TARGET]: configure and build quietly, all or what a target needs; show the end of the log if that fails
build() {
    local log
    log=$(mktemp)
    echo "== building $1"
    if ! { cmake --preset "$1" && cmake --build "build-$1" -j "$jobs" ${2:+--target "$2"}; } >"$log" 2>&1; then
        tail -n 60 "$log" >&2
        echo "the build of preset '$1' failed" >&2
        exit 1
    fi
    grep -A 5 '^-- Towers' "$log" | sed 's/^-- //'
    mv "$log" "$kept/build-$1"
}

# check PRESET [ctest options]: a failure is recorded, so that the list at the end is printed nevertheless. One test more than there are
# cores: the longest of them mostly wait, for what they have killed and for each other.
failed=''
check() {
    local preset=$1
    shift
    echo "== testing $preset"
    ctest --test-dir "build-$preset" --output-on-failure -j $((jobs + 1)) "$@" || failed+=" $preset"
    cp "build-$preset/Testing/Temporary/LastTest.log" "$kept/test-$preset"
}

# ctest does not say why a test was skipped
skipped() {
    scripts/check/skips.sh list "$kept"/* >build-test/skipped.txt
    [ -z "$failed" ] || echo "== failed: tests of$failed; see above"
    if [ -s build-test/skipped.txt ]; then
        echo "== skipped, and why"
        cat build-test/skipped.txt
    else
        echo "== nothing was skipped"
    fi
}

# fuzz SECONDS: every fuzzer from its corpus, as many at a time as there are cores
fuzz() {
    echo "== fuzzing, $1 s each"
    find build-fuzz/tests -maxdepth 1 -name 'fuzz_*' -type f -executable -print0 |
        xargs -0 -P "$jobs" -I{} bash -c '
            name=$(basename {}); subject=${name#fuzz_}; found=build-fuzz/tests/found/$subject
            mkdir -p "$found"
            {} -max_total_time='"$1"' -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 "$found" "tests/fuzz/corpus/$subject" \
                >"build-fuzz/$name.log" 2>&1 || { tail -n 40 "build-fuzz/$name.log"; echo "$name failed"; exit 255; }
            echo "$name: $(grep -o "number_of_executed_units: [0-9]*" "build-fuzz/$name.log")"'
}

build test
if does clang; then
    echo "== clang"
    scripts/check/clang.py build-test || failed+=" clang"
fi
if does asan; then
    build asan
    check asan -L 'unit|hostile'
fi
if does tsan; then
    build tsan threads
    check tsan -L threads
fi
if does fuzz; then
    build fuzz fuzzers
    fuzz 30
fi
check test "$@"
if does mutants; then
    echo "== mutants: do the tests see mistakes?"
    tests/mutants.sh 10 --seed "$number" || failed+=" mutants"
fi
if does portable; then
    echo "== other processors"
    scripts/setup.sh cross
    scripts/check/portable.sh || failed+=" portable"
fi
skipped
[ -z "$failed" ]
