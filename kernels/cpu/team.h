/* The team: the OpenMP threads of a CPU device, and how they share work.
 *
 * A device belongs to the thread that opened it, whose team has `threads` members that flush denormals to zero (otherwise
 * gradients of nearly dead units would take a hundred times as long as others). Work is cut into chunks whose size depends
 * on the shape only, never on the number of threads: sums per chunk, combined in order, are equal to the bit for every
 * team (chunks_share is for bodies without such sums). */
#pragma once

#include "kernels/backend.h"

#ifdef _OPENMP
#include <omp.h>
#endif

/* oneDNN cuts its work for as many threads as it asks for: a team that OMP_THREAD_LIMIT keeps smaller would leave a part
 * undone. */
int team_size(int wanted);
void team_start(int threads);

/* Until denormals_restore, the calling thread computes with denormals instead of taking them for 0. Returns the modes before, for
 * that. */
unsigned denormals_keep(void);
void denormals_restore(unsigned modes);

static inline int cpu_threads(const Device *device)
{
    return device->config.threads;
}

/* Number of the calling thread in its team. */
static inline int team_member(void)
{
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

/* ---- sizes of work */

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t rounded_up(int64_t a, int64_t multiple)
{
    return (a + multiple - 1) / multiple * multiple;
}

/* ---- chunks */

enum { CHUNK_ELEMENTS = 16384 }; /* a chunk of work between two synchronizations of the team: some microseconds */

/* Processes [first, end) of a range. */
typedef void ChunkBody(void *context, int64_t first, int64_t end);

/* Process [0, count) by the team in chunks of `size`. */
static inline void chunks_run(const Device *device, int64_t count, int64_t size, ChunkBody *body, void *context)
{
    int64_t chunks = (count + size - 1) / size;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads(cpu_threads(device)) if (chunks > 1 && cpu_threads(device) > 1)
#else
    (void)device;
#endif
    for (int64_t i = 0; i < chunks; i++) body(context, i * size, smaller(count, (i + 1) * size));
}

/* chunks_run in chunks of about equal size, at most `most`, and as many for each thread: for few and long ones, of
 * bodies whose results do not depend on where chunks end. */
static inline void chunks_share(const Device *device, int64_t count, int64_t most, ChunkBody *body, void *context)
{
    int64_t threads = cpu_threads(device), needed = (count + most - 1) / most;
    int64_t chunks = smaller(count, (needed + threads - 1) / threads * threads);
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads((int)threads) if (chunks > 1 && threads > 1)
#endif
    for (int64_t i = 0; i < chunks; i++) body(context, count * i / chunks, count * (i + 1) / chunks);
}

/* chunks_run for a second pass over data that it has just read: each thread takes about the same chunks as before, in
 * reverse order, while they are still in its caches. */
static inline void chunks_run_back(const Device *device, int64_t count, int64_t size, ChunkBody *body, void *context)
{
    int64_t chunks = (count + size - 1) / size;
    /* All of them: OpenMP would end the threads that a smaller team leaves out. */
    int64_t members = cpu_threads(device);
#ifdef _OPENMP
#pragma omp parallel for schedule(static, 1) num_threads((int)members) if (chunks > 1 && members > 1)
#endif
    for (int64_t m = 0; m < members; m++)
        for (int64_t i = chunks * (m + 1) / members - 1; i >= chunks * m / members; i--)
            body(context, i * size, smaller(count, (i + 1) * size));
}

/* Pixels per chunk for rows of `width` elements. */
static inline int64_t chunk_pixels(int64_t width)
{
    return larger(1, CHUNK_ELEMENTS / larger(1, width));
}

/* ---- failures */

/* The first failure in a parallel region, with its message, which only the thread that failed has. */
typedef struct TeamStatus {
    Status status;
    StatusText why; /* if status is not OK */
} TeamStatus;

static inline void team_status_take(TeamStatus *first, Status status)
{
    if (status == OK) return;
#ifdef _OPENMP
#pragma omp critical(team_status)
#endif
    if (first->status == OK) {
        first->status = status;
        status_keep(&first->why);
    }
}

/* For the thread that began the region, after it. */
static inline Status team_status_end(const TeamStatus *first)
{
    return first->status == OK ? OK : status_restore(first->status, &first->why);
}
