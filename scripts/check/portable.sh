#!/usr/bin/env bash
# Check portability: compile all C for 64-bit ARM (without linking, so that no libraries are needed, only headers), and run the
# kernels for processors without AVX-512 under an emulator that traps on every instruction that such a processor lacks.
# usage: scripts/check/portable.sh [BUILD]   (default: build-test). Parts whose tools are missing are skipped with a message.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build-test}
failed=0

if command -v aarch64-linux-gnu-gcc >/dev/null; then
    # Library headers are the same for every processor; the cross compiler finds its own C library's headers first.
    compile() {
        aarch64-linux-gnu-gcc -std=gnu11 -O1 -fopenmp -Wall -Wextra -Wno-missing-field-initializers -Werror -Wno-maybe-uninitialized \
            -D_GNU_SOURCE -DTOWERS_VERSION='"cross"' \
            -DTOWERS_HAVE_CPU=1 -I. -I"$1/generated" -idirafter /usr/include -idirafter /usr/include/x86_64-linux-gnu -c "$2" -o /dev/null || { echo "does not compile for aarch64: $2"; exit 1; }
    }
    export -f compile
    if find kernels inception towers nccl_sync -name '*.c' ! -path 'kernels/cuda/*' ! -name 'comm_nccl*' ! -name link_mpi.c -print0 |
        xargs -0 -P "$(nproc)" -I{} bash -c 'compile "$0" "$1"' "$build" {}; then
        echo "all C compiles for aarch64"
    else
        failed=1
    fi
else
    echo "SKIPPED: aarch64-linux-gnu-gcc is not installed (scripts/setup.sh cross)" >&2
fi

if command -v qemu-x86_64 >/dev/null; then
    for test in test_tensor test_cpu_older test_gate test_events test_resize; do
        if OMP_NUM_THREADS=1 GOMP_SPINCOUNT=1 timeout 120 qemu-x86_64 -cpu Haswell "$build/tests/$test" >"$build/haswell.log" 2>&1; then
            echo "$test passes on Haswell"
        else
            tail -n 20 "$build/haswell.log" >&2
            echo "$test fails on Haswell" >&2
            failed=1
        fi
    done
else
    echo "SKIPPED: qemu-x86_64 is not installed (scripts/setup.sh cross)" >&2
fi
exit $failed
