#!/usr/bin/env bash
# Run the op cases against the oneDNN of each Debian: 2.6 of bookworm (12), 3.x of trixie (13), each in a machine of its own, with
# this processor's instructions and again limited to AVX2. Needs root, debootstrap and a network (scripts/check/fresh_machine.sh); 10
# minutes on two cores the first time, 3 later. Prints a table; exits 1 if a case fails. Logs are kept beside the machines.
# usage: scripts/check/onednn.sh [bookworm|trixie]...   (default: both)
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/check/fresh_machine.sh

tests=(test_ops test_cpu_onednn test_cpu_threads test_cpu_conv test_cpu_wgrad test_cpu_winograd test_cpu_winograd_dw)
# The machine of this suite and its build are kept for the next call.
onednn_machine() {
    machine=$fresh/$suite/onednn
    [ -d "$machine" ] || machine_make onednn
    machine_connect
    machine_files root towers
    machine_run root "cd towers && scripts/setup.sh build && { dpkg-query -W libcmocka-dev || apt-get install -y -qq libcmocka-dev; } &&
        cmake --preset test && cmake --build build-test -j $(nproc) --target ${tests[*]}" >"$log" 2>&1 ||
        { tail -n 40 "$log" >&2; echo "$suite: the build failed" >&2; exit 1; }
}

# onednn_check ISA-LIMIT NAME: run the cases and print one row of the table
onednn_check() {
    local test failed='' start=$SECONDS
    for test in "${tests[@]}"; do
        machine_run root "cd towers && ONEDNN_MAX_CPU_ISA=$1 OMP_WAIT_POLICY=PASSIVE build-test/tests/$test" >>"$log" 2>&1 || failed+=" $test"
    done
    printf '| %s | %s | %s | %s | %s s |\n' "$suite" "$version" "$2" "${failed:-none}" $((SECONDS - start))
    [ -z "$failed" ] || { grep -E '^FAIL |\[  FAILED  \] [a-z]' "$log" | sort | uniq -c | head -n 40 >&2; bad=1; }
}

bad=0
[ $# -gt 0 ] || set -- bookworm trixie
echo '| Debian | oneDNN | processor | failed | time |'
echo '|---|---|---|---|---|'
for name in "$@"; do
    machine_begin "$name"
    log=$fresh/$suite/onednn.log
    onednn_machine
    version=$(machine_run root 'dpkg-query -W -f "\${Version}" libdnnl-dev')
    onednn_check DEFAULT 'as it is'
    onednn_check AVX2 'as AVX2'
done
exit $bad
