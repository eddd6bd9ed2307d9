/* Products of a warpgroup, on GPUs of compute capability 9.0 alone: PTX ISA, wgmma and fence.proxy.async.
 *
 * Four warps multiply together: 64 rows of a, which are in their registers (16 of each warp, as for multiply_add), by
 * N columns of b, which are in shared memory. Nothing of it has happened before a wait: until then neither the sums
 * nor what a and b are may be touched. The emulation has the same functions (tests/gpu/emulation/cuda_emulation.h).
 * Code for 9.0 needs the target sm_90a, which cmake/TowersCuda.cmake and scripts/measure/cuda_kernel_table.sh give
 * to files named *wgmma*; elsewhere these functions do nothing, and nobody calls them. */
#pragma once

#include "kernels/cuda/tensor_cores.cuh"

enum { GROUP_WARPS = 4, GROUP = GROUP_WARPS * WARP, GROUP_M = 64 };

#ifndef TOWERS_EMULATE_CUDA
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HAS_WARPGROUPS 1
#else
#define HAS_WARPGROUPS 0
#endif

/* A matrix of 16 rows in shared memory: eight rows of eight columns are 128 bytes, a row 16 of them. */
struct SharedMatrix {
    uint64_t bits;
};

/* `below`: bytes to the next eight rows; `beside`: to the next eight columns. */
DEVICE SharedMatrix shared_matrix(const void *start, uint32_t below, uint32_t beside)
{
    SharedMatrix made = {(uint64_t)(__cvta_generic_to_shared(start) >> 4) & 0x3FFF};
    made.bits |= (uint64_t)(below >> 4) << 16 | (uint64_t)(beside >> 4) << 32;
    return made;
}

/* The matrix that begins so many rows further. */
DEVICE SharedMatrix rows_further(SharedMatrix m, uint32_t rows)
{
    m.bits += rows;
    return m;
}

/* What the thread's copies have brought is there for products, too, from the next barrier on. */
DEVICE void group_sees_copies()
{
#if HAS_WARPGROUPS
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* Before the first product after a wait. */
DEVICE void group_begin()
{
#if HAS_WARPGROUPS
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

/* Behind the last product before a wait. */
DEVICE void group_commit()
{
#if HAS_WARPGROUPS
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

/* Until all products are there, of which `sum` has the sums. */
template <int COUNT> DEVICE void group_wait(float *sum)
{
#if HAS_WARPGROUPS
    __syncwarp(); /* lanes may come from copies of which some had more than others */
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    UNROLL
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(sum[i])::"memory"); /* nothing was read before this */
#endif
}

#define SUMS_4(i) "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3])
#define SUMS_16(i) SUMS_4(i), SUMS_4(i + 4), SUMS_4(i + 8), SUMS_4(i + 12)
#define SUMS_32 SUMS_16(0), SUMS_16(16)
#define SUMS_40 SUMS_32, SUMS_4(32), SUMS_4(36)
#define NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES_32 NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_40 NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
/* d += a b: a by rows, b with its columns side by side in memory; `a0` to `last` are the operands behind the sums. */
#define GROUP_MMA(format, n, names, a0, a1, a2, a3, last, ...)                                                         \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"                                                            \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." format "." format " {" names "}, {%" #a0 ", %" #a1  \
                 ", %" #a2 ", %" #a3 "}, %" #last ", p, 1, 1, 1;\n}"                                                   \
                 : __VA_ARGS__                                                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits))
#define GROUP_MMA_OF(format)                                                                                           \
    if constexpr (N == 32)                                                                                             \
        GROUP_MMA(format, 32, NAMES_16, 16, 17, 18, 19, 20, SUMS_16(0));                                               \
    else if constexpr (N == 64)                                                                                        \
        GROUP_MMA(format, 64, NAMES_32, 32, 33, 34, 35, 36, SUMS_32);                                                  \
    else                                                                                                               \
        GROUP_MMA(format, 80, NAMES_40, 40, 41, 42, 43, 44, SUMS_40)

/* sum += a b; columns 8 j + 2 (l % 4) and one more of lane l are sum[4 j ...], as multiply_add has them for 8. */
template <int N> DEVICE void group_multiply_add(F16, const unsigned *a, SharedMatrix b, float *sum)
{
#if HAS_WARPGROUPS
    GROUP_MMA_OF("f16");
#endif
}

template <int N> DEVICE void group_multiply_add(BF16, const unsigned *a, SharedMatrix b, float *sum)
{
#if HAS_WARPGROUPS
    GROUP_MMA_OF("bf16");
#endif
}
#endif
