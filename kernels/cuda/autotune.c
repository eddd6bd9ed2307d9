/* Candidates are timed by events around each run; between runs a buffer larger than the L2 cache is overwritten.
 * Results are compared in pieces spread over the whole, as f32. */
#include "kernels/cuda/autotune.h"

#include "kernels/base/progress.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/libraries/cudnn_library.h"

enum { ROUNDS = 3, SLOW = 3, PIECES = 64, PIECE = 1024, SAMPLE = PIECES * PIECE };
static const double FAR = 0.02; /* relative; rounding to bf16 is 0.002 */

typedef struct Bench {
    cudaEvent_t start, end;
    void *flush, *gathered;
    size_t flush_bytes;
    float *sample[AUTOTUNE_CANDIDATES]; /* owned: of the candidates that were looked at */
    double time[AUTOTUNE_CANDIDATES];   /* INFINITY: it does not run */
    bool starved;                       /* for one of them there was no memory */
} Bench;

/* ---- operands */

Status autotune_fill(Device *device, const Tensor *operand, uint32_t number, bool normal)
{
    int64_t pixels = shape_pixels(operand->shape);
    Tensor flat = {operand->data, {1, (int32_t)operand->pitch, (int32_t)pixels, 1}, operand->dtype, operand->pitch};
    void *counter = NULL;
    OpCall call = {.kind = OP_RANDOM, .name = "operand", .in_count = 1, .out_count = 1, .out = {flat}};
    call.attr.random.stream = number;
    call.attr.random.normal = normal;
    TRY(device->backend->alloc(device, 4 * sizeof(uint32_t), &counter)); /* zeros: seed, step and tower */
    call.in[0] = (Tensor){counter, {1, 4, 1, 1}, DTYPE_I32, 4};
    cudaError_t error = kernel_random(&call, cuda_stream(device, STREAM_COMPUTE));
    Status st = device->backend->finish(device, STREAM_COMPUTE);
    device->backend->release(device, counter);
    TRY_CUDA(error);
    return st;
}

/* ---- time */

static Status run_time(Device *device, Bench *b, const Candidates *c, int number, double *microseconds)
{
    cudaStream_t stream = cuda_stream(device, STREAM_COMPUTE);
    float ms = 0;
    TRY_CUDA(cudaMemsetAsync(b->flush, 0, b->flush_bytes, stream));
    TRY_CUDA(cudaEventRecord(b->start, stream));
    TRY(c->run(device, c->context, number));
    TRY_CUDA(cudaEventRecord(b->end, stream));
    TRY_CUDA(cudaEventSynchronize(b->end));
    TRY_CUDA(cudaEventElapsedTime(&ms, b->start, b->end));
    *microseconds = (double)ms * 1000;
    return OK;
}

/* The first run loads the kernel and does not count. What is hopeless after the second one is not run again. */
static Status candidate_time(Device *device, Bench *b, const Candidates *c, int number, double best)
{
    double least = INFINITY, time = 0;
    TRY(run_time(device, b, c, number, &time));
    for (int round = 0; round < ROUNDS && !(least < INFINITY && least > SLOW * best); round++) {
        TRY(run_time(device, b, c, number, &time));
        least = fmin(least, time);
    }
    b->time[number] = least;
    return OK;
}

static int fastest_of(const Bench *b, int count)
{
    int fastest = -1;
    for (int i = 0; i < count; i++)
        if (b->time[i] < INFINITY && (fastest < 0 || b->time[i] < b->time[fastest])) fastest = i;
    return fastest;
}

/* ---- results */

static Status result_sample(Device *device, Bench *b, const Tensor *t, float *sample)
{
    size_t count = (size_t)(shape_pixels(t->shape) * t->pitch);
    size_t pieces = count <= SAMPLE ? 1 : PIECES, piece = count <= SAMPLE ? count : PIECE;
    for (size_t i = 0; i < pieces; i++) {
        const char *from = (const char *)t->data + i * (count / pieces) * dtype_bytes(t->dtype);
        TRY(device->backend->convert(device, (float *)b->gathered + i * piece, DTYPE_F32, from, t->dtype, piece));
    }
    TRY(device->backend->download(device, sample, b->gathered, pieces * piece * sizeof *sample));
    return device->backend->finish(device, STREAM_COMPUTE);
}

static Status sample_take(Device *device, Bench *b, const Candidates *c, int number)
{
    if (b->sample[number]) return OK;
    float *sample = calloc(SAMPLE, sizeof *sample);
    if (!sample) return FAIL(ERR_MEMORY, "no memory for the result of a candidate");
    b->sample[number] = sample;
    TRY(c->reset(device, c->context));
    TRY(c->run(device, c->context, number));
    Tensor result = c->result(c->context, number);
    return result_sample(device, b, &result, sample);
}

static bool samples_agree(const float *one, const float *other)
{
    double apart = 0, size = 0;
    for (int i = 0; i < SAMPLE; i++) {
        double away = (double)one[i] - (double)other[i];
        apart += away * away;
        size += (double)one[i] * (double)one[i];
    }
    return apart <= FAR * FAR * size; /* NaN agrees with nothing */
}

/* One that fails now, though it ran when it was timed, loses. */
static Status result_find(Device *device, Bench *b, const Candidates *c, int number)
{
    Status st = sample_take(device, b, c, number);
    if (st == OK || st == ERR_MEMORY) return st;
    plan_refused(&device->refused);
    b->time[number] = INFINITY;
    return OK;
}

/* The fastest that has not been asked; -1: none is left. */
static int next_to_ask(const Bench *b, const Candidates *c, const bool *asked)
{
    int next = -1;
    for (int i = 0; i < c->count; i++)
        if (!asked[i] && b->time[i] < INFINITY && (next < 0 || b->time[i] < b->time[next])) next = i;
    return next;
}

/* Does some other candidate find the same? The fastest ones are asked first. */
static Status confirm(Device *device, Bench *b, const Candidates *c, int number, bool *confirmed)
{
    bool asked[AUTOTUNE_CANDIDATES] = {[0] = false};
    asked[number] = true;
    *confirmed = false;
    TRY(result_find(device, b, c, number));
    while (!*confirmed && b->time[number] < INFINITY) {
        int next = next_to_ask(b, c, asked);
        if (next < 0) return OK;
        asked[next] = true;
        TRY(result_find(device, b, c, next));
        *confirmed = b->time[next] < INFINITY && samples_agree(b->sample[number], b->sample[next]);
    }
    return OK;
}

/* The fastest whose result another one confirms, else the first. */
static Status choose(Device *device, Bench *b, const Candidates *c, int *best, double *microseconds)
{
    int runs = 0, first = -1;
    double first_time = 0;
    for (int i = 0; i < c->count; i++) runs += b->time[i] < INFINITY;
    for (int fastest; (fastest = fastest_of(b, c->count)) >= 0; b->time[fastest] = INFINITY) {
        double time = b->time[fastest];
        bool confirmed = runs == 1 || !c->result;
        if (!confirmed) TRY(confirm(device, b, c, fastest, &confirmed));
        if (confirmed) {
            *best = fastest;
            *microseconds = time;
            return OK;
        }
        if (b->time[fastest] < INFINITY && (first < 0 || fastest < first)) first = fastest, first_time = time;
    }
    if (first < 0)
        return FAIL(b->starved ? ERR_MEMORY : ERR_DEVICE, "none of the %d candidates could be run; the last error: %s",
                    c->count, status_message());
    device->unconfirmed++;
    *best = first;
    *microseconds = first_time;
    return OK;
}

Status autotune(Device *device, const Candidates *c, int *best, double *microseconds)
{
    Status st = OK;
    Bench bench = {0};
    *best = 0;
    if (c->count > AUTOTUNE_CANDIDATES) return FAIL(ERR_INTERNAL, "%d candidates", c->count);
    for (int i = 0; i < AUTOTUNE_CANDIDATES; i++) bench.time[i] = INFINITY;
    bench.flush_bytes = 2 * cuda_device(device)->l2_bytes;
    TRY_CUDA_OUT(cudaEventCreate(&bench.start));
    TRY_CUDA_OUT(cudaEventCreate(&bench.end));
    TRY_CUDA_OUT(cudaMalloc(&bench.flush, bench.flush_bytes + 1));
    TRY_CUDA_OUT(cudaMalloc(&bench.gathered, SAMPLE * sizeof(float)));
    TRY_OUT(c->reset(device, c->context));
    for (int i = 0; i < c->count; i++) {
        int fastest = fastest_of(&bench, c->count);
        Status ran = candidate_time(device, &bench, c, i, fastest < 0 ? INFINITY : bench.time[fastest]);
        progress_made("the timing of a kernel");
        if (ran != OK) plan_refused(&device->refused);
        bench.starved |= ran == ERR_MEMORY;
    }
    TRY_OUT(choose(device, &bench, c, best, microseconds));
out:
    if (bench.start) cuda_freed(cudaEventDestroy(bench.start));
    if (bench.end) cuda_freed(cudaEventDestroy(bench.end));
    if (bench.flush) cuda_freed(cudaFree(bench.flush));
    if (bench.gathered) cuda_freed(cudaFree(bench.gathered));
    for (int i = 0; i < AUTOTUNE_CANDIDATES; i++) free(bench.sample[i]);
    return st;
}
