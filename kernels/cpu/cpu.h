/* Internals of the CPU backend: its device, its kernels, how they are compiled for the processor, and what it can do.
 *
 * Every row of ops.def is one `const OpKernel cpu_<name>`, defined in the file of its family. Kernels run at once, in
 * the calling thread plus the OpenMP team that open made (cpu_threads() wide, denormals flushed to zero). A loop that
 * must be vectorized for the processor at hand is a small function marked CPU_CLONES, called from the body of
 * `#pragma omp parallel for`: the compiler outlines OpenMP bodies without clones. */
#pragma once

#include "kernels/backend.h"

extern const Backend cpu_backend;
extern const OpKernel *const cpu_kernels[OP_COUNT]; /* cpu_ops.c */

enum { CPU_ALIGNMENT = 64 /* bytes: a line of the caches, and the widest vector */ };

typedef struct Onednn Onednn;

/* Device.impl of the CPU backend. */
typedef struct CpuDevice {
    Onednn *onednn; /* owned: engine and stream */
} CpuDevice;

/* Families of processors for which there is code by vectors (conv/lanes_*.h); others have plain loops and oneDNN. */
#if defined(__x86_64__) || defined(__aarch64__)
#define CPU_HAS_LANES 1
#endif

/* Compile a function several times and pick at load time: AVX-512 (x86-64-v4), AVX2 (v3), baseline. The resolvers of
 * such functions run before the sanitizers are up, so those builds, and other processors, get one plain version. So does Clang before
 * 18: other files do not find the functions that it has cloned (pull request 71706 of llvm/llvm-project). */
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_ADDRESS__) &&                                 \
    !defined(__SANITIZE_THREAD__) && !defined(__AVX512F__) && (!defined(__clang__) || __clang_major__ >= 18)
#ifdef __clang__ /* clang never inlines clones, and selects by features instead of levels */
#define CPU_CLONES __attribute__((target_clones("avx512bw", "avx2", "default")))
#else
#define CPU_CLONES __attribute__((noinline, target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif
#else
#define CPU_CLONES __attribute__((noinline))
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#undef CPU_CLONES
#define CPU_CLONES __attribute__((noinline))
#endif
#endif

/* The instruction set that kernels may use, one value for all of them, our own and oneDNN's (isa.c). Of 64-bit ARM the second, of
 * x86-64 the first and those from the third on; each of these includes the ones before it. CPU_CLONES does not ask for it. */
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

#define OP(KIND, name, ...) extern const OpKernel cpu_##name;
#include "kernels/ops.def"

/* Refuse operands of a type that the CPU kernels do not compute with: the prepare of ops that need no more. Shapes have
 * been checked by the shape rules (towers/graph/rules_*.c). */
NODISCARD Status cpu_check(Device *device, OpCall *call);
void cpu_discard(Device *device, OpCall *call); /* of ops whose state is one block */

/* y = relu?(y + bias); `bias` may be NULL (bias_relu.c). */
void cpu_bias_relu(const Device *device, const Tensor *y, const float *bias, bool relu);

/* The parts of the backend's vtable that are kernels, not ops (optimizer.c). */
Status cpu_memory(Device *device, size_t *free_bytes, size_t *total); /* memory.c */
Status cpu_optimizer_apply(Device *device, const OptimizerUpdate *update);
Status cpu_square_sum(Device *device, const float *x, size_t count, double *sum_of_squares);
Status cpu_l2_term(Device *device, const float *param, const OptimizerSegment *segments, int count, double *term);
Status cpu_average(Device *device, float *running, const float *batch, const float *correct, const float *decay,
                   size_t count, const float *commit);
Status cpu_gate_extras(Device *device, const GateExtrasCall *call);
Status cpu_gate_decide(Device *device, const GateDecideCall *call);

static inline Onednn *cpu_onednn(const Device *device)
{
    return ((const CpuDevice *)device->impl)->onednn;
}
