/* Candidates are timed by events around each run; between runs a buffer larger than the L2 cache is overwritten. */
#include "kernels/cuda/conv/autotune.h"

#include "kernels/progress.h"

#include "kernels/cuda/cuda.h"

#include <math.h>

enum { ROUNDS = 3 };

typedef struct Bench {
    cudaEvent_t start, end;
    void *flush;
    size_t flush_bytes;
} Bench;

static Status bench_open(Device *device, Bench *b)
{
    b->flush_bytes = 2 * cuda_device(device)->l2_bytes;
    TRY_CUDA(cudaEventCreate(&b->start));
    TRY_CUDA(cudaEventCreate(&b->end));
    TRY_CUDA(cudaMalloc(&b->flush, b->flush_bytes + 1));
    return OK;
}

static void bench_close(Bench *b)
{
    if (b->start) cudaEventDestroy(b->start);
    if (b->end) cudaEventDestroy(b->end);
    if (b->flush) cudaFree(b->flush);
}

static Status run_time(Device *device, Bench *b, CandidateRun *run, void *context, int number, double *microseconds)
{
    cudaStream_t stream = cuda_stream(device, LANE_COMPUTE);
    float ms = 0;
    TRY_CUDA(cudaMemsetAsync(b->flush, 0, b->flush_bytes, stream));
    TRY_CUDA(cudaEventRecord(b->start, stream));
    TRY(run(device, context, number));
    TRY_CUDA(cudaEventRecord(b->end, stream));
    TRY_CUDA(cudaEventSynchronize(b->end));
    TRY_CUDA(cudaEventElapsedTime(&ms, b->start, b->end));
    *microseconds = (double)ms * 1000;
    return OK;
}

/* The first run loads the kernel and does not count. */
static Status candidate_time(Device *device, Bench *b, CandidateRun *run, void *context, int number,
                             double *microseconds)
{
    double least = INFINITY, time = 0;
    TRY(run_time(device, b, run, context, number, &time));
    for (int round = 0; round < ROUNDS; round++) {
        TRY(run_time(device, b, run, context, number, &time));
        least = fmin(least, time);
    }
    *microseconds = least;
    return OK;
}

Status autotune(Device *device, CandidateRun *run, void *context, int count, int *best, double *microseconds)
{
    Status st = OK;
    Bench bench = {0};
    int fastest = -1;
    *best = 0;
    TRY_OUT(bench_open(device, &bench));
    for (int i = 0; i < count; i++) {
        double time = 0;
        progress_made("search for the fastest plan");
        if (candidate_time(device, &bench, run, context, i, &time) != OK) continue;
        if (fastest >= 0 && time >= *microseconds) continue;
        fastest = *best = i;
        *microseconds = time;
    }
    if (fastest < 0) st = FAIL(ERR_DEVICE, "none of %d candidates runs; the last said: %s", count, status_message());
out:
    bench_close(&bench);
    return st;
}
