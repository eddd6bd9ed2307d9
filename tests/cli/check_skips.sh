#!/usr/bin/env bash
# scripts/check/skips.sh finds every kind of skip with its reason in logs of ctest and CMake, and accepts exactly those of tests/skips.txt.
# Every script that exits with 77 prints a reason that it can find. Arguments: source folder, binary.
. "$1/tests/support/check.sh"

cat >LastTest.log <<'LOG'
3/9 Testing: check_report
3/9 Test: check_report
Output:
----------------------------------------------------------
SKIPPED: no browser
<end of output>
4/9 Testing: test_ops
4/9 Test: test_ops
Output:
[==========] Running 3 test(s).
[ RUN      ] test_cpu_f32
  cpu  f32 conv
[       OK ] test_cpu_f32
[ RUN      ] test_cuda_f32
  no cuda here: no NVIDIA driver
[  SKIPPED ] test_cuda_f32
[ RUN      ] test_other
[  SKIPPED ] test_other
[  SKIPPED ] 2 test(s), listed below:
[  SKIPPED ] test_cuda_f32
[  SKIPPED ] test_other
LOG
printf -- '-- The C compiler\n-- test_gpu_* are left out: they need CUDA\n' >build.log
bash "$source_dir/scripts/check/skips.sh" list LastTest.log build.log >list || complain "list: exit $?"
cat >wanted <<'LIST'
build: test_gpu_* are left out: they need CUDA
check_report: no browser
test_ops, test_cuda_f32: no cuda here: no NVIDIA driver
test_ops, test_other: it gives no reason
LIST
cmp -s list wanted || complain "the list: $(diff list wanted)"

bash "$source_dir/scripts/check/skips.sh" unexpected list >found && complain "check_report and test_other were accepted"
printf '%s\n' 'check_report: no browser' 'test_ops, test_other: it gives no reason' | cmp -s - found || complain "unexpected: $(cat found)"
grep -v -e check_report -e test_other list >shorter
bash "$source_dir/scripts/check/skips.sh" unexpected shorter >found || complain "accepted skips were refused: $(cat found)"

for script in "$source_dir"/{tests,scripts}/*/*.sh; do
    [[ $script == */check_skips.sh ]] || ! grep -qE '(exit|return|&&) 77' "$script" || grep -qE "SKIPPED|small_data|needs_" "$script" ||
        complain "${script#"$source_dir/"} ends with 77 and does not say why"
done
grep -nE "(echo|printf) .*(left out|not tried|not installed|skipped:|[Ww]ithout (fault|mpi)|[Nn]o fault points)" "$source_dir"/tests/*/*.sh |
    grep -vE "SKIPPED|check_skips" >found && complain "parts that are left out by another word than left_out (support/check.sh): $(cat found)"
printf '%s\n' '1/1 Test: check_x' "$(left_out 'a part: no root' 2>&1)" >LastTest.log
[[ $(bash "$source_dir/scripts/check/skips.sh" list LastTest.log) == "check_x: a part: no root" ]] || complain "what left_out says is not listed"

# Which kernels a processor leaves out is seen on such a processor alone: all say it in the words that tests/skips.txt accepts.
grep -n '"skipped: ' "$source_dir"/tests/unit/test_cpu_*.c | grep -v '"skipped: this processor has no ' >found &&
    complain "skips of another wording than tests/skips.txt accepts: $(cat found)"
printf '%s\n' 'test_cpu_x, test_y: skipped: this processor has no part' >list
bash "$source_dir/scripts/check/skips.sh" unexpected list >found || complain "a skip for the processor was refused: $(cat found)"

# Parts of the tests go by names, in their order, as many as there is time for; none is lost between the quick set and the rest.
plan() { "$source_dir/scripts/test.sh" "$@" --plan | xargs; }
[[ $(plan) == "quick left out: nothing" ]] || complain "without arguments: $(plan)"
parts=$("$source_dir/scripts/test.sh" --parts | awk '{ print $1 }' | xargs)
[[ $(plan --full) == "$parts left out: nothing" && "quick $(plan --rest)" == "$parts left out: nothing" ]] || complain "--full: $(plan --full); --rest: $(plan --rest)"
total=$("$source_dir/scripts/test.sh" --parts | awk '{ minutes += $2 } END { print minutes }')
[[ $(plan --full --minutes "$total") == "$parts left out: nothing" ]] || complain "$total minutes have no room for everything"
[[ $(plan --full --minutes $((total - 1))) == *"left out: ${parts##* }" ]] || complain "$((total - 1)) minutes: $(plan --full --minutes $((total - 1)))"
[[ $(plan asan tsan) == "asan tsan left out: nothing" ]] || complain "two parts: $(plan asan tsan)"
for wrong in "--minutes x" "--minutes" nothing --turn; do
    "$source_dir/scripts/test.sh" $wrong >/dev/null 2>&1 && complain "scripts/test.sh $wrong is accepted"
done
for part in $parts; do
    grep -q "^run_$part() {" "$source_dir/scripts/test.sh" || complain "the part $part does nothing"
done

# A launcher's files are in a folder of its own, which tests/support/hosts.sh makes; and who waits for another process uses wait_until, whose
# bound a busy machine does not reach.
launches=$(cd "$source_dir/tests" && grep -rlE 'mpirun\.(openmpi|mpich) +[-"]' --include='*.sh' . | sort | xargs)
[[ $launches == "./cli/check_mpi.sh ./support/hosts.sh" ]] || complain "mpirun is called by its name in $launches, instead of by mpirun_find of hosts.sh"
# What fails beside others is tried once more, alone: then it is unsteady, and named. What fails twice fails; so do no tests at all, and
# what a sanitizer finds. Here ctest runs tests that fail as often as the file of their name says.
mkdir -p tree/scripts/check bin build && cp "$source_dir/scripts/test.sh" tree/scripts && cp "$source_dir/scripts/check/skips.sh" tree/scripts/check
printf '#!/bin/sh\n' >tree/scripts/setup.sh
printf '#!/bin/sh\n' >bin/cmake
cat >bin/ctest <<'CTEST'
#!/bin/bash
cd "$2" && mkdir -p Testing/Temporary && cd Testing/Temporary || exit 1
touch LastTest.log
[[ -e ../../none ]] && exit 8
failed=''
for test in ../../times-*; do
    [[ $* != *--rerun-failed* ]] || grep -q ":${test#*times-}$" LastTestsFailed.log || continue
    times=$(cat "$test")
    ((times)) && echo $((times - 1)) >"$test" && failed+="1:${test#*times-}"$'\n'
done
[[ -n $failed ]] || exit 0
printf '%s' "$failed" >LastTestsFailed.log
exit 8
CTEST
chmod +x tree/scripts/setup.sh bin/cmake bin/ctest
tries() { # WANTED_CODE WANTED_LINE PART BUILD FAILURES_OF_A FAILURES_OF_B
    mkdir -p "tree/$4" && echo "$5" >"tree/$4/times-a" && echo "$6" >"tree/$4/times-b"
    PATH=$work/bin:$PATH tree/scripts/test.sh "$3" >"$out" 2>"$err"
    [[ $? == "$1" ]] && grep -qxF -e "${2:-== nothing was skipped}" "$out" || complain "tests that fail $5 and $6 times: $(cat "$out" "$err")"
}
tries 0 '' tests build-test 0 0
grep -qE 'once more|unsteady|failed' "$out" && complain "tests that pass: $(cat "$out")"
tries 0 '== unsteady, failed once and passed alone: tests (b); see above' tests build-test 0 1
tries 1 '== failed: tests (a b); see above' tests build-test 2 2
tries 1 '== failed: tests (b); see above' tests build-test 1 2
tries 1 '== failed: tsan (a); see above' tsan build-tsan 1 0
# What a compiler warns of that the project does not know ends no build, and is counted.
printf '#!/bin/sh\n[ "$1" = --build ] && echo "a.c:1:2: warning: odd" && echo "b.c:3:4: warning: odd"\nexit 0\n' >bin/cmake
tries 0 '   warnings of the compiler: 2, in build-test/logs/build-test' tests build-test 0 0
printf '#!/bin/sh\n' >bin/cmake
touch tree/build-test/none
tries 1 '== failed: tests (no test); see above' tests build-test 0 0

check_end "skips: found with their reasons, unlisted ones refused"
