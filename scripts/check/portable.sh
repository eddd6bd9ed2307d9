#!/usr/bin/env bash
# Check the code for other processors.
#   64-bit ARM: a cross build with Debian's libraries, run by an emulator: the unit tests of the kernels, whose errors are shown beside
#   this machine's; 20 steps of training, with the losses of the same run here; predictions; the .deb. The emulated processor has no
#   SVE, so that what runs is NEON.
#   x86-64 without AVX-512: unit tests under an emulator that traps on every instruction that such a processor lacks.
# usage: scripts/check/portable.sh [BUILD]   (default: build-test). Parts whose tools are missing are skipped with a message.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/support/small_data.sh
build=${1:-build-test} arm=build-arm64
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_WAIT_POLICY=PASSIVE # teams that spin starve each other
failed=0

fail() {
    echo "$1" >&2
    failed=1
}

# ---- 64-bit ARM

arm_tests=(test_cpu_winograd test_cpu_conv test_ops test_cpu_winograd_dw test_cpu_kernels test_cpu_wgrad test_cpu_norm test_cpu_isa) # slowest first

arm_build() {
    cmake -G Ninja -S . -B $arm --toolchain cmake/arm64.cmake -DCMAKE_SYSROOT="$sysroot" -DCMAKE_INSTALL_PREFIX=/usr -DTOWERS_CUDA=OFF \
        -DTOWERS_MPI=OFF -DTOWERS_WERROR=ON &&
        cmake --build $arm --target towers towers_shared manual "${arm_tests[@]}"
}

arm_test() {
    local start=$SECONDS only='*'
    [ "$1" != test_ops ] || only=test_cpu_f32 # bf16 has only reference loops there
    if TOWERS_TEST_ONLY=$only timeout 1800 "${emulator[@]}" "$arm/tests/$1" >"$arm/$1.log" 2>&1; then
        echo "$1 passes on ARM ($((SECONDS - start)) s)"
    else
        tail -n 20 "$arm/$1.log" >&2
        echo "$1 fails on ARM" >&2
        return 1
    fi
}

# The errors that a log shows ("3x3, conv: 2.3e-07, direct ..."), by name.
errors_of() {
    sed -nE 's/^(.*): ([0-9.]+e-[0-9]+)(, direct.*)?$/\1|\2/p' "$1" | LC_ALL=C sort -t '|' -k 1,1
}

# The largest, and the largest multiple of this machine's.
arm_errors() {
    local test=$1
    [ -x "$build/tests/$test" ] || return 0
    "$build/tests/$test" >"$work/here.log" 2>&1 || true
    LC_ALL=C join -t '|' <(errors_of "$arm/$test.log") <(errors_of "$work/here.log") | awk -F '|' -v test="$test" '
        { n++; if ($2 > arm) arm = $2; if ($3 > here) here = $3; if ($2 / $3 > most) most = $2 / $3 }
        END { if (!n) { print test ": no errors to compare"; exit 1 }
              printf "%s: %d errors against double precision, at most %s on ARM and %s here; ARM'"'"'s are up to %.2f times as large\n", test, n, arm, here, most
              exit most > 1.5 }'
}

# train FOLDER PROGRAM...
train() {
    local folder=$1
    shift
    "$@" train fashion_cnn --towers 2 --device cpu --threads 1 --batch-size 8 --max-steps 20 --seed 7 --log-interval 1 --data-path "$work/data" \
        --output-dir "$work/$folder" --experiment run --quiet >"$work/train.log" 2>&1 || { tail -n 20 "$work/train.log" >&2; return 1; }
    sed -nE 's/.*"mean_loss": ?([0-9.]+).*/\1/p' "$work/$folder/run/metrics.jsonl" >"$work/$folder.losses"
}

# The same steps on both processors: their losses differ by rounding. Then the classes that both find with ARM's weights.
arm_training() {
    train arm "${emulator[@]}" $arm/towers && train here "$build/towers" || return 1
    paste "$work/arm.losses" "$work/here.losses" | awk '
        { d = $1 > $2 ? $1 - $2 : $2 - $1; if (d > most) most = d; last = $1 }
        END { printf "20 steps of fashion_cnn on ARM: a loss of %s at the end; at most %g from those of this machine\n", last, most
              exit NR != 20 || most > 0.00001 }' || return 1
    "${emulator[@]}" $arm/towers predict "$work/arm/run" "$work/arm/run/first-batch.jpg" >"$work/arm.classes" &&
        "$build/towers" predict "$work/arm/run" "$work/arm/run/first-batch.jpg" >"$work/here.classes" &&
        diff "$work/arm.classes" "$work/here.classes" && echo "ARM predicts as this machine: $(tail -n 1 "$work/arm.classes")"
}

# Made, unpacked, and run: the program, and a program that is linked to libtowers.
arm_package() {
    local deb installed=$work/installed
    rm -f $arm/towers_*.deb # of another version
    (cd $arm && cpack -G DEB) >"$work/package.log" 2>&1 || { tail -n 20 "$work/package.log" >&2; return 1; }
    deb=$(find $arm -maxdepth 1 -name 'towers_*_arm64.deb')
    dpkg-deb -x "$deb" "$installed"
    aarch64-linux-gnu-gcc --sysroot="$sysroot" -I"$installed/usr/include" examples/library/classify.c -o "$work/classify" \
        "$(find "$installed" -name libtowers.so)" -Wl,-rpath-link,"$sysroot/usr/lib/aarch64-linux-gnu" &&
        "${emulator[@]}" "$installed/usr/bin/towers" version | grep -q '^towers ' &&
        "${emulator[@]}" -E LD_LIBRARY_PATH="$(dirname "$(find "$installed" -name libtowers.so)")" "$work/classify" "$work/arm/run" \
            "$work/arm/run/first-batch.jpg" >/dev/null &&
        echo "$(basename "$deb") runs on ARM, with $(dpkg-deb -f "$deb" Depends | tr , '\n' | wc -l) packages"
}

check_arm() {
    local test
    emulator=(qemu-aarch64 -cpu neoverse-n1 -L "$sysroot")
    if ! arm_build >"$work/build.log" 2>&1; then
        tail -n 40 "$work/build.log" >&2
        fail "the build for ARM fails"
        return
    fi
    for test in "${arm_tests[@]}"; do
        while [ "$(jobs -pr | wc -l)" -ge "$(nproc)" ]; do wait -n || failed=1; done
        arm_test "$test" &
    done
    while [ "$(jobs -p | wc -l)" -gt 0 ]; do wait -n || failed=1; done
    for test in test_cpu_winograd test_cpu_winograd_dw; do arm_errors $test || fail "$test: the errors on ARM are larger"; done
    small_data "$work/data" 320 64 || return 0 # says that these two are skipped
    arm_training || fail "training on ARM fails"
    arm_package || fail "the package for ARM fails"
}

if ! command -v aarch64-linux-gnu-gcc >/dev/null || ! command -v qemu-aarch64 >/dev/null; then
    echo "SKIPPED: aarch64-linux-gnu-gcc or qemu-aarch64 is not installed (scripts/setup.sh cross)" >&2
elif ! sysroot=$(scripts/check/arm64_sysroot.sh); then
    echo "SKIPPED: there are no libraries of arm64" >&2
else
    check_arm
fi

# ---- x86-64 without AVX-512

if command -v qemu-x86_64 >/dev/null; then
    for test in test_tensor test_cpu_older test_gate test_events test_resize; do
        if OMP_NUM_THREADS=1 GOMP_SPINCOUNT=1 timeout 120 qemu-x86_64 -cpu Haswell "$build/tests/$test" >"$build/haswell.log" 2>&1; then
            echo "$test passes on Haswell"
        else
            tail -n 20 "$build/haswell.log" >&2
            fail "$test fails on Haswell"
        fi
    done
else
    echo "SKIPPED: qemu-x86_64 is not installed (scripts/setup.sh cross)" >&2
fi
exit $failed
