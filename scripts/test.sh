#!/usr/bin/env bash
# Set up, build and test. Exits non-zero if anything fails.
#   scripts/test.sh                     the quick set: every unit test, the main roads of the command line, parsers under sanitizers
#   scripts/test.sh --full              everything: the parts below, in this order
#   scripts/test.sh --rest              everything but the quick set; with --minutes N, also after --full, only the parts that N minutes
#                                       have room for: those that are left out are named
#   scripts/test.sh PART...             these parts alone; after `--` options of ctest: scripts/test.sh tests -- -R loader
#   scripts/test.sh --parts             the parts, with the minutes that they take on two cores; --plan in place of a run: what it would do
# At the end the skipped tests are listed with their reasons. That list and the logs are kept in build-test.
set -euo pipefail
cd "$(dirname "$0")/.."

# The part's name, its minutes on two cores with an empty compiler cache, and what it finds; most valuable first.
parts=(
    "quick     12  every unit test, the main roads of the command line, all parsers under the address sanitizer"
    "tests     20  all other tests of the command line and of faults"
    "gpu       12  the CUDA backend: its host code over stand-ins for the libraries, its kernels by emulation"
    "asan      10  reads and writes beside memory: all unit tests under the address and undefined-behavior sanitizers"
    "clang      4  what clang warns of and gcc does not"
    "fuzz      12  parsers that trust their input: 30 seconds of each fuzzer"
    "tsan       5  races: what has threads under the thread sanitizer"
    "avx2       5  the code for processors without AVX-512"
    "portable  10  the code for other processors: built for aarch64, and run there by an emulator"
    "mutants    8  tests that see no mistakes: ten of the deliberate mistakes of tests/mutants.txt"
)
part_names() { printf '%s\n' "${parts[@]}" | awk '{ print $1 }'; }
minutes_of() { printf '%s\n' "${parts[@]}" | awk -v name="$1" '$1 == name { print $2 }'; }

chosen=() minutes='' plan=no
while [ $# -gt 0 ]; do
    case $1 in
    --full) mapfile -t chosen < <(part_names) ;;
    --rest) mapfile -t chosen < <(part_names | tail -n +2) ;;
    --minutes)
        [[ ${2:-} =~ ^[0-9]+$ ]] || { echo "scripts/test.sh --minutes: expected a number, found '${2:-}'" >&2; exit 2; }
        minutes=$2
        shift
        ;;
    --parts) printf '%s\n' "${parts[@]}" && exit 0 ;;
    --plan) plan=yes ;;
    --) shift && break ;;
    *)
        part_names | grep -qx -e "$1" || { echo "scripts/test.sh: there is no part '$1'; use one of: $(part_names | xargs)" >&2; exit 2; }
        chosen+=("$1")
        ;;
    esac
    shift
done
[ ${#chosen[@]} -gt 0 ] || chosen=(quick)

jobs=$(nproc)
logs=build-test/logs # of builds and tests, for the list of what was skipped

# build PRESET [TARGET...]: configure and build quietly, all or what the targets need; show the end of the log if that fails, which is
# recorded, so that the other parts go on. What a compiler that the project does not know warns of is counted (TOWERS_WERROR).
failed='' unsteady='' given=("$@")
build() {
    local log=$logs/build-$1 preset=$1 warnings
    shift
    echo "== building $preset${1:+: $*}"
    if ! { cmake --preset "$preset" && cmake --build "build-$preset" -j "$jobs" ${1:+--target "$@"}; } >"$log" 2>&1; then
        tail -n 60 "$log" >&2
        failed+=" build-$preset"
        return 1
    fi
    sed -n '/^-- Towers/,+5 s/^-- //p' "$log"
    warnings=$(grep -c 'warning: ' "$log") || return 0
    echo "   warnings of the compiler: $warnings, in $log"
}

# The preset of what needs the CUDA backend; where there is no toolkit, that of the other tests, so that nothing is built twice.
cuda_preset() {
    local said
    said=$(cmake --preset test-cuda 2>&1) || true
    if grep -q '^--   cuda  yes' <<<"$said"; then echo test-cuda; else echo test; fi
}

# The names of the tests that have failed in a build's last run.
failed_tests() { sed 's/^[0-9]*://' "$1/Testing/Temporary/LastTestsFailed.log" 2>/dev/null | sort -u | xargs; }

# again PRESET NAME: which of the tests that have failed beside others fail once more, alone. Those that pass then are unsteady: they are
# named at the end, for whoever mends them, and fail nothing. What a sanitizer finds is no matter of luck, and is not tried again.
again() {
    local preset=$1 name=$2 first last=''
    first=$(failed_tests "build-$preset")
    if [ -n "$first" ] && [[ $preset == test* ]]; then
        echo "== testing once more, alone: $first"
        ctest --test-dir "build-$preset" --output-on-failure --rerun-failed && unsteady+=" $name ($first)" && return
        last=$(failed_tests "build-$preset")
    fi
    failed+=" $name (${last:-${first:-no test}})"
}

# check PRESET NAME [ctest options]: a failure is recorded, so that the list at the end is printed nevertheless. One test more than there
# are cores: the longest of them mostly wait, for what they have killed and for each other.
check() {
    local preset=$1 name=$2 passed=yes
    shift 2
    echo "== testing $name"
    rm -f "build-$preset/Testing/Temporary/LastTestsFailed.log" # of a run before: ctest writes it only for failures
    ctest --test-dir "build-$preset" --output-on-failure -j $((jobs + 1)) "$@" "${given[@]}" || passed=no
    cp "build-$preset/Testing/Temporary/LastTest.log" "$logs/test-$name"
    [ $passed = yes ] || again "$preset" "$name"
}

run_quick() {
    build test quick && check test quick -L quick
    build asan parsers && check asan parsers -L parsers
}

run_tests() {
    build test && check test tests -LE 'quick|avx2|gpu'
}

run_gpu() {
    local preset
    preset=$(cuda_preset)
    build "$preset" && check "$preset" gpu -L 'gpu|cuda'
}

run_asan() {
    build asan && check asan asan -L 'unit|hostile'
}

run_clang() {
    local preset
    preset=$(cuda_preset)
    build "$preset" || return
    echo "== clang"
    scripts/check/clang.py "build-$preset" || failed+=" clang"
}

# Every fuzzer from its corpus, as many at a time as there are cores. One seed, so that what one machine finds another finds, too;
# TOWERS_FUZZ_SEED and TOWERS_FUZZ_SECONDS look further. The time limit of an input is for one that never ends, on a busy machine.
run_fuzz() {
    build fuzz fuzzers || return
    export TOWERS_FUZZ_SEED=${TOWERS_FUZZ_SEED:-1} TOWERS_FUZZ_SECONDS=${TOWERS_FUZZ_SECONDS:-30}
    echo "== fuzzing, $TOWERS_FUZZ_SECONDS s each"
    : >build-fuzz/failed
    find build-fuzz/tests -maxdepth 1 -name 'fuzz_*' -type f -executable -print0 |
        xargs -0 -P "$jobs" -I{} bash -c '
            name=$(basename {}); subject=${name#fuzz_}; found=build-fuzz/tests/found/$subject
            rm -rf "$found" && mkdir -p "$found"
            {} -seed="$TOWERS_FUZZ_SEED" -max_total_time="$TOWERS_FUZZ_SECONDS" -rss_limit_mb=2048 -timeout=60 -print_final_stats=1 \
                -artifact_prefix=build-fuzz/$name- "$found" "tests/fuzz/corpus/$subject" >"build-fuzz/$name.log" 2>&1 ||
                { tail -n 40 "build-fuzz/$name.log"; echo "$name failed"; echo "$name" >>build-fuzz/failed; exit 0; }
            echo "$name: $(grep -o "number_of_executed_units: [0-9]*" "build-fuzz/$name.log")"' || failed+=" fuzz"
    [ ! -s build-fuzz/failed ] || failed+=" fuzz ($(xargs <build-fuzz/failed))"
}

run_tsan() {
    build tsan threads && check tsan tsan -L threads
}

run_avx2() {
    build test && check test avx2 -L avx2
}

run_portable() {
    build test || return
    echo "== other processors"
    { scripts/setup.sh cross && scripts/check/portable.sh; } || failed+=" portable"
}

# Other ten for each commit.
run_mutants() {
    local preset
    preset=$(cuda_preset)
    build "$preset" || return
    echo "== mutants: do the tests see mistakes?"
    tests/mutants.sh --build "build-$preset" 10 --seed "$((16#$(git rev-parse --short=7 HEAD 2>/dev/null | cut -c1-7)0))" || failed+=" mutants"
}

# ctest does not say why a test was skipped
say_skipped() {
    scripts/check/skips.sh list "$logs"/* >build-test/skipped.txt
    if [ -s build-test/skipped.txt ]; then
        echo "== skipped, and why"
        cat build-test/skipped.txt
    else
        echo "== nothing was skipped"
    fi
}

left_out=''
[ $plan = yes ] || scripts/setup.sh test
for part in "${chosen[@]}"; do
    if [ -n "$minutes" ] && [ $((SECONDS / 60 + $(minutes_of "$part"))) -gt "$minutes" ]; then
        left_out+=" $part"
    elif [ $plan = yes ]; then
        echo "$part"
        [ -z "$minutes" ] || minutes=$((minutes - $(minutes_of "$part")))
    else
        [ "$part" != quick ] || rm -rf "$logs" # its list begins anew
        mkdir -p "$logs"
        "run_$part" || true # what failed is in `failed`
        echo "== $part: $((SECONDS / 60)) minutes since the start"
    fi
done
[ $plan = no ] || { echo "left out:${left_out:- nothing}" && exit 0; }
[ ! -d "$logs" ] || say_skipped
[ -z "$left_out" ] || echo "== left out, as $minutes minutes have no room for it:$left_out"
[ -z "$unsteady" ] || echo "== unsteady, failed once and passed alone:$unsteady; see above"
[ -z "$failed" ] || echo "== failed:$failed; see above"
[ -z "$failed" ]
