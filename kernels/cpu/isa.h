/* The instruction set that the CPU's kernels may use: one value for all of them, our own and oneDNN's.
 *
 * It is what the processor, the system and oneDNN agree on, lowered by oneDNN's variable ONEDNN_MAX_CPU_ISA (AVX2,
 * AVX512_CORE, AVX512_CORE_BF16 ...), so that the code for older processors can be tested and timed on a newer one. No
 * other file of kernels/ asks the processor (tests/support/check_map.py). What the compiler makes of plain loops
 * (CPU_CLONES, cpu.h) is chosen by the loader and not lowered. */
#pragma once

#include "kernels/base/status.h"
#include "kernels/tensor.h"

/* Of 64-bit ARM the second, of x86-64 the first and those from the third on; each of these includes the ones before it. */
typedef enum CpuIsa {
    CPU_PLAIN,       /* whatever the compiler assumes */
    CPU_NEON,        /* which no processor of 64-bit ARM lacks, so nothing lowers it */
    CPU_AVX2,        /* with FMA */
    CPU_AVX512,      /* F, BW and VL */
    CPU_AVX512_BF16, /* products of pairs of bf16, and conversion to it */
    CPU_AMX          /* tiles of bf16, granted by the system */
} CpuIsa;

/* The first call decides, for the life of the process. */
CpuIsa cpu_isa(void);
/* The code by vectors for numbers of this type, if an op has it: CPU_AVX512, CPU_AVX2 or CPU_NEON; CPU_PLAIN: there is none. All of it
 * computes with f32, but that of AVX-512 with bf16, too, where the processor converts it. */
CpuIsa cpu_vectors(Dtype dtype);

/* "AVX-512 with bf16 (avx512_core_bf16), oneDNN 2.6.3" */
void cpu_isa_describe(char *text, size_t bytes);
