/* The team of threads of a CPU device; see team.h. */
#include "kernels/cpu/team.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

enum { FLUSH_TO_ZERO = 0x8000, DENORMALS_ARE_ZERO = 0x0040 }; /* bits of MXCSR */

unsigned denormals_keep(void)
{
#if defined(__x86_64__)
    const unsigned modes = _mm_getcsr();
    _mm_setcsr(modes & ~(unsigned)DENORMALS_ARE_ZERO);
    return modes;
#else
    return 0;
#endif
}

void denormals_restore(unsigned modes)
{
#if defined(__x86_64__)
    _mm_setcsr(modes);
#else
    (void)modes;
#endif
}

static void denormals_flush(void)
{
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO);
#endif
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
