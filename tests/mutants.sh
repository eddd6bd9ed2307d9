#!/usr/bin/env bash
# Do the tests detect mistakes? Puts each mutant of tests/mutants.txt into the code and runs the tests that should catch it. Prints
# caught or survived for each, then a total; exits non-zero if one survived, if it no longer fits the source, or if a test of it fails
# in the same place without any mutant, which would prove nothing.
#   tests/mutants.sh                all of them
#   tests/mutants.sh N              N, chosen at random (prints --seed, which chooses the same ones again: N --seed S)
#   tests/mutants.sh --only TEXT    those with TEXT in their title or file
#   tests/mutants.sh --diff HEAD~1  small mistakes in the lines that the last commit changed (or whatever git diff takes) instead; one that
#                                   survives may change nothing: judge it, or add a test and a row of the table. --random N: N of them
#   tests/mutants.sh --null         one comment for each test of the table, which none may catch: --only TEXT takes the name of a test, too
#   tests/mutants.sh --build DIR    (first) in this build in place of build-test-cuda
#   tests/mutants.sh --check        only whether each still fits the source
#   tests/mutants.sh --anchor       writes the table anew, each row by its function and the expression that changes
set -euo pipefail
cd "$(dirname "$0")/.."

build=build-test-cuda # with the tests of the CUDA backend, where there is a toolkit
if [ "${1:-}" = --build ]; then
    build=$2
    shift 2
fi
arguments=("$@")
[[ ! ${1:-} =~ ^[0-9]+$ ]] || arguments=(--random "$@")
case " $* " in
*" --check "* | *" --anchor "*) ;;
*)
    [ -f "$build/build.ninja" ] || cmake --preset test-cuda >/dev/null
    cmake --build "$build" -j "$(nproc)" >/dev/null
    ;;
esac
exec python3 tests/support/mutants.py . "$build" "${arguments[@]}"
