/* Streams, events, captures: queues of work that is executed when a call waits for it, or earlier, depending on the
 * schedule.
 *
 * Work of a stream is numbered; an event stores the number reached when it was recorded. Streams live in a fixed array
 * and are never freed, so an event may outlive its stream. A capture is a list of work; launching it executes the list
 * in order (the branches of a captured fork run one after another). */
#include "tests/gpu/fake_cuda/fake.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STREAMS = 64 };

typedef struct Node {
    struct Node *next;
    FakeWork work;
} Node;

struct CUgraph_st {
    Node *first, **end;
    int users; /* the caller, its execs, their launches */
    bool spoilt;
};

struct CUgraphExec_st {
    cudaGraph_t graph;
};

/* The work before a point in a capture: for each stream, its last work before that point. */
typedef struct Past {
    uint32_t of[STREAMS];
} Past;

struct CUstream_st {
    bool live;
    uint64_t queued, done;
    Node *first, **end;
    cudaGraph_t capture; /* NULL: not capturing */
    bool origin;         /* of the capture */
    uint32_t captured;   /* work of this stream in the capture, its fork counted as one */
    Past past;           /* what it is behind, of other streams */
    enum cudaStreamCaptureMode mode;
};

struct CUevent_st {
    cudaStream_t stream; /* NULL: never recorded */
    uint64_t number;
    cudaGraph_t capture; /* recorded inside this one */
    Past past;
    int64_t time;
    bool untimed; /* cudaEventDisableTiming */
};

static struct CUstream_st streams[STREAMS];
static GpuSchedule schedule;
static uint32_t dice = 1;
static bool waits_ignored;

void fake_gpu_schedule(GpuSchedule wanted, uint32_t seed)
{
    schedule = wanted;
    dice = seed;
}

void fake_gpu_ignore_waits(bool ignore)
{
    waits_ignored = ignore;
}

static uint32_t throw_dice(uint32_t sides)
{
    dice = dice * 1664525u + 1013904223u;
    return (dice >> 16) % sides;
}

/* ---- doing work */

static void node_free(Node *node)
{
    if (node->work.drop) node->work.drop(node->work.context);
    free(node);
}

static bool stream_step(cudaStream_t stream)
{
    Node *node = stream->first;
    fake_memory_reach(true);
    bool done = node->work.run(node->work.context);
    fake_memory_reach(false);
    if (!done) return false;
    stream->first = node->next;
    if (!stream->first) stream->end = &stream->first;
    stream->done++;
    node_free(node);
    return true;
}

static bool stream_reach(cudaStream_t stream, uint64_t number)
{
    while (stream->done < number && stream->first)
        if (!stream_step(stream)) return false;
    return stream->done >= number;
}

bool fake_stream_try(cudaStream_t stream)
{
    return stream_reach(stream, stream->queued);
}

static void breathe(void)
{
    struct timespec t = {.tv_nsec = 20000};
    nanosleep(&t, NULL);
}

static void stream_drain(cudaStream_t stream)
{
    while (!fake_stream_try(stream)) breathe(); /* as a device would: for ever, if a peer never comes */
}

void fake_all_drain(void)
{
    for (int i = 0; i < STREAMS; i++)
        if (streams[i].live) stream_drain(&streams[i]);
}

bool fake_any_queued(void)
{
    for (int i = 0; i < STREAMS; i++)
        if (streams[i].live && streams[i].first) return true;
    return false;
}

bool fake_host_in_use(const void *at, size_t bytes)
{
    for (int i = 0; i < STREAMS; i++)
        for (const Node *node = streams[i].live ? streams[i].first : NULL; node; node = node->next)
            if (node->work.host && (uintptr_t)node->work.host - (uintptr_t)at < bytes) return true;
    return false;
}

static void schedule_run(cudaStream_t stream)
{
    if (schedule == GPU_EAGER) fake_stream_try(stream);
    while (schedule == GPU_SHUFFLED && throw_dice(4)) {
        cudaStream_t lucky = &streams[throw_dice(8)];
        if (lucky->live && lucky->first) stream_step(lucky);
    }
}

/* ---- queueing */

static bool stream_is_live(cudaStream_t stream)
{
    return stream && stream->live;
}

bool fake_is_capturing(cudaStream_t stream)
{
    return stream_is_live(stream) && stream->capture;
}

bool fake_any_capturing(void)
{
    for (int i = 0; i < STREAMS; i++)
        if (fake_is_capturing(&streams[i])) return true;
    return false;
}

/* Collectives are none of the driver's unsafe calls, but ours stay outside: a graph with one must be launched by all.
 */
bool fake_spoils_capture(const char *name)
{
    static const char *const unsafe[] = {"cudaMalloc",
                                         "cudaFree",
                                         "cudaHostAlloc",
                                         "cudaFreeHost",
                                         "cudaHostRegister",
                                         "cudaHostUnregister",
                                         "cudaStreamQuery",
                                         "cudaEventQuery",
                                         "cudaEventSynchronize",
                                         "cudaStreamSynchronize",
                                         "cudaDeviceSynchronize",
                                         "cudaStreamDestroy",
                                         "cudnnCreate",
                                         "cublasLtCreate",
                                         "ncclMemAlloc",
                                         "ncclMemFree",
                                         "ncclCommRegister",
                                         "ncclAllReduce",
                                         "ncclBroadcast"};
    bool spoils = false, listed = false;
    for (size_t i = 0; i < sizeof unsafe / sizeof *unsafe; i++) listed = listed || strcmp(name, unsafe[i]) == 0;
    for (int i = 0; listed && i < STREAMS; i++)
        if (fake_is_capturing(&streams[i])) streams[i].capture->spoilt = spoils = true;
    if (spoils) fake_note("spoilt capture");
    return spoils;
}

cudaError_t fake_queue(cudaStream_t stream, const FakeWork *work)
{
    Node *node = stream_is_live(stream) ? calloc(1, sizeof *node) : NULL;
    if (!node) {
        if (work->drop) work->drop(work->context);
        return cudaErrorInvalidResourceHandle;
    }
    node->work = *work;
    if (stream->capture) {
        *stream->capture->end = node;
        stream->capture->end = &node->next;
        stream->captured++;
        return cudaSuccess;
    }
    *stream->end = node;
    stream->end = &node->next;
    stream->queued++;
    schedule_run(stream);
    return cudaSuccess;
}

/* ---- streams */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *made, unsigned flags, int priority)
{
    (void)priority;
    ENTER(CUDA, cudaStreamCreateWithPriority);
    if (flags != cudaStreamNonBlocking) return cudaErrorInvalidValue; /* the default stream would hold it back */
    for (int i = 0; i < STREAMS; i++) {
        if (streams[i].live) continue;
        streams[i].live = true;
        streams[i].end = &streams[i].first;
        *made = &streams[i];
        fake_born("stream");
        return cudaSuccess;
    }
    return cudaErrorMemoryAllocation;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    int code = fake_enter(FAKE_CUDA, "cudaStreamDestroy");
    if (!stream_is_live(stream)) return cudaErrorInvalidResourceHandle;
    stream_drain(stream);
    stream->live = false;
    fake_died("stream");
    return code;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    ENTER(CUDA, cudaStreamSynchronize);
    if (!stream_is_live(stream)) return cudaErrorInvalidResourceHandle;
    if (stream->capture) return cudaErrorStreamCaptureUnsupported;
    stream_drain(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    ENTER(CUDA, cudaStreamQuery);
    if (stream->capture) return cudaErrorStreamCaptureUnsupported;
    return fake_stream_try(stream) ? cudaSuccess : fake_error(cudaErrorNotReady);
}

cudaError_t cudaDeviceSynchronize(void)
{
    int code = fake_enter(FAKE_CUDA, "cudaDeviceSynchronize");
    fake_all_drain(); /* where it fails, nothing runs any more */
    return code;
}

/* ---- events */

static int64_t ticks;

static int64_t kernel_time, product_time;

void fake_time_pass(int64_t microseconds)
{
    ticks += microseconds;
}

void fake_gpu_launch_time(int64_t kernel, int64_t product)
{
    kernel_time = kernel;
    product_time = product;
}

int64_t fake_launch_time(bool product)
{
    return product ? product_time : kernel_time;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *made, unsigned flags)
{
    ENTER(CUDA, cudaEventCreateWithFlags);
    *made = calloc(1, sizeof **made);
    if (!*made) return cudaErrorMemoryAllocation;
    (*made)->untimed = flags & cudaEventDisableTiming;
    fake_born("event");
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *made)
{
    ENTER(CUDA, cudaEventCreate);
    *made = calloc(1, sizeof **made);
    if (!*made) return cudaErrorMemoryAllocation;
    fake_born("event");
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    int code = fake_enter(FAKE_CUDA, "cudaEventDestroy");
    free(event);
    fake_died("event");
    return code;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    ENTER(CUDA, cudaEventRecord);
    if (!event || !stream_is_live(stream)) return cudaErrorInvalidResourceHandle;
    *event = (struct CUevent_st){.stream = stream,
                                 .number = stream->queued,
                                 .capture = stream->capture,
                                 .past = stream->past,
                                 .time = ++ticks,
                                 .untimed = event->untimed};
    event->past.of[stream - streams] = stream->captured;
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    ENTER(CUDA, cudaEventQuery);
    if (!event->stream) return cudaSuccess;
    if (event->capture) return cudaErrorCapturedEvent;
    if (schedule == GPU_SHUFFLED && throw_dice(2)) return fake_error(cudaErrorNotReady);
    return stream_reach(event->stream, event->number) ? cudaSuccess : fake_error(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    ENTER(CUDA, cudaEventSynchronize);
    if (!event->stream) return cudaSuccess;
    if (event->capture) return cudaErrorCapturedEvent;
    if (event->stream->done < event->number) fake_note("wait for an event");
    while (!stream_reach(event->stream, event->number)) breathe();
    return cudaSuccess;
}

/* Both events must have been recorded, be reached, and have been made with timing (cuda_runtime_api.h). */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    ENTER(CUDA, cudaEventElapsedTime);
    if (start->untimed || end->untimed || !start->stream || !end->stream)
        return fake_error(cudaErrorInvalidResourceHandle);
    if (start->stream->done < start->number || end->stream->done < end->number) return fake_error(cudaErrorNotReady);
    *ms = (float)(end->time - start->time) * 1e-3f;
    return cudaSuccess;
}

typedef struct Wait {
    cudaStream_t stream;
    uint64_t number;
} Wait;

static bool wait_run(void *context)
{
    const Wait *wait = context;
    return stream_reach(wait->stream, wait->number);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)flags;
    ENTER(CUDA, cudaStreamWaitEvent);
    if (!event || !stream_is_live(stream)) return cudaErrorInvalidResourceHandle;
    if (!event->stream || waits_ignored) return cudaSuccess;
    if (event->capture) { /* a fork into the capture, or its join */
        if (!stream->capture) stream->captured = 1;
        stream->capture = event->capture;
        for (int i = 0; i < STREAMS; i++)
            if (event->past.of[i] > stream->past.of[i]) stream->past.of[i] = event->past.of[i];
        return cudaSuccess;
    }
    if (stream->capture) return cudaErrorStreamCaptureIsolation;
    Wait *wait = malloc(sizeof *wait);
    if (!wait) return cudaErrorMemoryAllocation;
    *wait = (Wait){event->stream, event->number};
    return fake_queue(stream, &(FakeWork){"cudaStreamWaitEvent", wait_run, free, wait});
}

/* ---- captures */

static void graph_leave(cudaGraph_t graph)
{
    if (--graph->users > 0) return;
    for (Node *node = graph->first, *next; node; node = next) {
        next = node->next;
        node_free(node);
    }
    free(graph);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    ENTER(CUDA, cudaStreamBeginCapture);
    if (!stream_is_live(stream) || stream->capture) return cudaErrorIllegalState;
    cudaGraph_t graph = calloc(1, sizeof *graph);
    if (!graph) return cudaErrorMemoryAllocation;
    graph->end = &graph->first;
    graph->users = 1;
    stream->capture = graph;
    stream->origin = true;
    stream->past = (Past){{0}};
    stream->captured = 0;
    stream->mode = mode;
    fake_born("graph");
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *made)
{
    int code = fake_enter(FAKE_CUDA, "cudaStreamEndCapture");
    *made = NULL;
    if (!stream_is_live(stream) || !stream->capture || !stream->origin) return cudaErrorIllegalState;
    cudaGraph_t graph = stream->capture;
    bool joined = true;
    for (int i = 0; i < STREAMS; i++) {
        cudaStream_t other = &streams[i];
        if (other->capture != graph) continue;
        joined = joined && (other == stream || stream->past.of[i] == other->captured);
        other->capture = NULL;
        other->origin = false;
        if (other != stream) other->past = (Past){{0}};
    }
    if (!code && !graph->spoilt && joined) {
        *made = graph;
        return cudaSuccess;
    }
    bool spoilt = graph->spoilt;
    fake_died("graph");
    graph_leave(graph);
    if (code) return (cudaError_t)code;
    return fake_error(spoilt ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    ENTER(CUDA, cudaStreamIsCapturing);
    *status = stream->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *made, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    ENTER(CUDA, cudaGraphInstantiate);
    *made = malloc(sizeof **made);
    if (!*made) return cudaErrorMemoryAllocation;
    (*made)->graph = graph;
    graph->users++;
    fake_born("graph that runs");
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    int code = fake_enter(FAKE_CUDA, "cudaGraphDestroy");
    fake_died("graph");
    graph_leave(graph);
    return code;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    int code = fake_enter(FAKE_CUDA, "cudaGraphExecDestroy");
    fake_died("graph that runs");
    graph_leave(exec->graph);
    free(exec);
    return code;
}

typedef struct Launch {
    cudaGraph_t graph;
    Node *at;
} Launch;

static bool launch_run(void *context)
{
    Launch *launch = context;
    for (; launch->at; launch->at = launch->at->next)
        if (!launch->at->work.run(launch->at->work.context)) return false;
    return true;
}

static void launch_drop(void *context)
{
    Launch *launch = context;
    graph_leave(launch->graph);
    free(launch);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    ENTER(CUDA, cudaGraphLaunch);
    Launch *launch = malloc(sizeof *launch);
    if (!launch) return cudaErrorMemoryAllocation;
    *launch = (Launch){exec->graph, exec->graph->first};
    exec->graph->users++;
    return fake_queue(stream, &(FakeWork){"cudaGraphLaunch", launch_run, launch_drop, launch});
}
