/* The instruction set that the CPU's kernels may use: what the processor, the system and oneDNN agree on, lowered by oneDNN's variable
 * ONEDNN_MAX_CPU_ISA (AVX2, AVX512_CORE, AVX512_CORE_BF16 ...), so that the code for older processors can be tested and timed on a
 * newer one. No other file of kernels/ asks the processor (tests/support/check_map.py). What the compiler makes of plain loops
 * (CPU_CLONES, cpu.h) is chosen by the loader and not lowered. */
#include "kernels/cpu/cpu.h"

#include <dnnl.h>
#include <pthread.h>

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>

/* Within ONEDNN_MAX_CPU_ISA. Later sets of oneDNN include earlier ones bit by bit. */
static bool onednn_has(int isa)
{
    return ((int)dnnl_get_effective_cpu_isa() & isa) == isa;
}

/* Linux gives a process the tile registers on demand: arch_prctl, XFEATURE 18 (Documentation/arch/x86/xstate.rst). */
static bool tiles_granted(void)
{
    enum { ARCH_REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned eax = 7, ebx = 0, ecx = 0, edx = 0;
    __asm__ volatile("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
    bool has_bf16 = edx >> 22 & 1, has_tiles = edx >> 24 & 1;
    return has_bf16 && has_tiles && syscall(SYS_arch_prctl, ARCH_REQUEST_PERMISSION, TILE_DATA) == 0;
}

static CpuIsa isa_find(void)
{
    __builtin_cpu_init();
    if (!onednn_has(dnnl_cpu_isa_avx2) || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return CPU_PLAIN;
    if (!onednn_has(dnnl_cpu_isa_avx512_core) || !__builtin_cpu_supports("avx512f") ||
        !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl"))
        return CPU_AVX2;
    if (!onednn_has(dnnl_cpu_isa_avx512_core_bf16) || !__builtin_cpu_supports("avx512bf16")) return CPU_AVX512;
    return onednn_has(dnnl_cpu_isa_avx512_core_amx) && tiles_granted() ? CPU_AMX : CPU_AVX512_BF16;
}
#elif defined(__aarch64__)
static CpuIsa isa_find(void)
{
    return CPU_NEON;
}
#else
static CpuIsa isa_find(void)
{
    return CPU_PLAIN;
}
#endif

static CpuIsa found;

static void isa_decide(void)
{
    found = isa_find();
}

CpuIsa cpu_isa(void)
{
    static pthread_once_t decided = PTHREAD_ONCE_INIT;
    pthread_once(&decided, isa_decide);
    return found;
}

CpuIsa cpu_vectors(Dtype dtype)
{
    CpuIsa isa = cpu_isa();
    if (isa >= (dtype == DTYPE_F32 ? CPU_AVX512 : CPU_AVX512_BF16)) return CPU_AVX512;
    return dtype == DTYPE_F32 ? isa : CPU_PLAIN;
}

/* oneDNN has more sets than kernels/ tells apart; the newest have no name in older versions. Their bits have other meanings on
 * other processors than x86-64. */
static const char *isa_text(void)
{
#if defined(__x86_64__)
    switch ((int)dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_sse41: return "SSE4.1 (sse41)";
    case dnnl_cpu_isa_avx: return "AVX (avx)";
    case dnnl_cpu_isa_avx2: return "AVX2 (avx2)";
    case dnnl_cpu_isa_avx512_core: return "AVX-512 (avx512_core)";
    case dnnl_cpu_isa_avx512_core_vnni: return "AVX-512 (avx512_core_vnni)";
    case dnnl_cpu_isa_avx512_core_bf16: return "AVX-512 with bf16 (avx512_core_bf16)";
    case dnnl_cpu_isa_avx512_core_amx: return "AVX-512 with AMX (avx512_core_amx)";
    default: break;
    }
#endif
    static const char *const names[] = {[CPU_PLAIN] = "a processor without a name in this build",
                                        [CPU_NEON] = "NEON (asimd)",
                                        [CPU_AVX2] = "AVX2",
                                        [CPU_AVX512] = "AVX-512",
                                        [CPU_AVX512_BF16] = "AVX-512 with bf16",
                                        [CPU_AMX] = "AVX-512 with AMX"};
    return names[cpu_isa()];
}

void cpu_isa_describe(char *text, size_t bytes)
{
    const dnnl_version_t *version = dnnl_version();
    snprintf(text, bytes, "%s, oneDNN %d.%d.%d", isa_text(), version->major, version->minor, version->patch);
}
