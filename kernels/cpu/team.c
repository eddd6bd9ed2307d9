/* The team of threads of a CPU device; see team.h. */
#include "kernels/cpu/team.h"

/* The register with the modes of floating point, and its bits for results and for operands: MXCSR, or ARM's FPCR, whose FZ is both. */
#if defined(__x86_64__)
#include <xmmintrin.h>

enum { FLUSH_RESULTS = 0x8000, FLUSH_OPERANDS = 0x0040 };

static unsigned modes_get(void)
{
    return _mm_getcsr();
}

static void modes_set(unsigned modes)
{
    _mm_setcsr(modes);
}
#elif defined(__aarch64__)
enum { FLUSH_RESULTS = 1 << 24, FLUSH_OPERANDS = FLUSH_RESULTS };

static unsigned modes_get(void)
{
    uint64_t modes;
    __asm__ volatile("mrs %0, fpcr" : "=r"(modes));
    return (unsigned)modes;
}

static void modes_set(unsigned modes)
{
    __asm__ volatile("msr fpcr, %0" ::"r"((uint64_t)modes));
}
#else
enum { FLUSH_RESULTS, FLUSH_OPERANDS = FLUSH_RESULTS };

static unsigned modes_get(void)
{
    return 0;
}

static void modes_set(unsigned modes)
{
    (void)modes;
}
#endif

unsigned denormals_keep(void)
{
    const unsigned modes = modes_get();
    modes_set(modes & ~(unsigned)FLUSH_OPERANDS);
    return modes;
}

void denormals_restore(unsigned modes)
{
    modes_set(modes);
}

static void denormals_flush(void)
{
    modes_set(modes_get() | FLUSH_RESULTS | FLUSH_OPERANDS);
}

int team_size(int wanted)
{
#ifdef _OPENMP
    int limit = omp_get_thread_limit();
    return wanted > limit ? limit : wanted;
#else
    return wanted;
#endif
}

void team_start(int threads)
{
#ifdef _OPENMP
    omp_set_dynamic(0);
    omp_set_num_threads(threads);
#else
    (void)threads;
#endif
    denormals_flush(); /* here first: LLVM's runtime gives workers the modes of the thread that forks them */
#pragma omp parallel
    denormals_flush();
}
