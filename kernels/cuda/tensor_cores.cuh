/* Tensor cores and copies that do not wait, from compute capability 8.0 on: PTX ISA, cp.async, ldmatrix, mma.
 *
 * A warp multiplies together: a fragment is what all its lanes hold, and each function is called by all of them. The
 * emulation has the same functions under the same names (tests/gpu/emulation/cuda_emulation.h). */
#pragma once

#include "kernels/cuda/device.cuh"

enum { MMA_M = 16, MMA_N = 8, MMA_K = 16, MATRIX = 8 /* rows and columns of what ldmatrix moves */ };

#ifndef TOWERS_EMULATE_CUDA
/* Code for older GPUs is compiled, too, and never called. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define HAS_TENSOR_CORES 0
#else
#define HAS_TENSOR_CORES 1
#endif

/* 16 bytes to shared memory, or zeros. They are there for the thread after a wait, for others after a barrier behind it. */
DEVICE void copy_async(void *to, const void *from, bool inside)
{
#if HAS_TENSOR_CORES
    int bytes = inside ? 16 : 0;
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
#endif
}

/* The thread's copies since the last call are a group. */
DEVICE void copy_commit()
{
#if HAS_TENSOR_CORES
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Until no more than the newest `groups` are under way. */
template <int GROUPS> DEVICE void copy_wait()
{
#if HAS_TENSOR_CORES
    asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
#endif
}

/* Four matrices of 8 x 8 elements of 16 bits, transposed. Lane l names row l % 8 of matrix l / 8, which is 16 bytes; word m of
 * lane l is what rows 2 (l % 4) and one more of matrix m have in column l / 4. */
DEVICE void load_transposed(const void *row, unsigned *words)
{
#if HAS_TENSOR_CORES
    unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(at)
                 : "memory");
#endif
}

/* sum += a b: a is 16 x 16, b 16 x 8; lane l has rows l / 4 and 8 more, columns 2 (l % 4) and one more of the sum. */
DEVICE void multiply_add(F16, const unsigned *a, const unsigned *b, float *sum)
{
#if HAS_TENSOR_CORES
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

DEVICE void multiply_add(BF16, const unsigned *a, const unsigned *b, float *sum)
{
#if HAS_TENSOR_CORES
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}
#endif
