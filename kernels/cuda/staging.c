/* The rings and buffers of staging.h. A ring is slots of equal size, taken in turn; each remembers by an event when its
 * last copy left it. Small copies (labels, counters) have a ring of their own, with many slots. */
#include "kernels/cuda/staging.h"

enum { SLOTS = 24, SMALL_SLOTS = 512 };
static const size_t SLOT_BYTES = (size_t)4 << 20, SMALL_BYTES = (size_t)16 << 10;

typedef struct Ring {
    char *memory; /* pinned, owned */
    size_t slot_bytes;
    cudaEvent_t *left; /* owned: [slots] */
    int slots, next;
} Ring;

/* A place on the device that pixels wait in. */
typedef struct Buffer {
    void *memory; /* owned */
    cudaEvent_t emptied;
} Buffer;

struct Staging {
    Ring large, small;
    Buffer buffer[STAGING_BUFFERS];
    size_t buffer_bytes;
    int next;         /* buffer */
    cudaEvent_t read; /* all uploads from pinned memory have read it */
};

/* ---- life */

static Status ring_open(Ring *ring, int slots, size_t slot_bytes)
{
    void *memory;
    ring->slot_bytes = slot_bytes;
    ring->left = calloc((size_t)slots, sizeof *ring->left);
    if (!ring->left) return FAIL(ERR_MEMORY, "no memory for the ring of pinned buffers");
    TRY_CUDA(cudaHostAlloc(&memory, (size_t)slots * slot_bytes, cudaHostAllocDefault));
    ring->memory = memory;
    for (; ring->slots < slots; ring->slots++)
        TRY_CUDA(cudaEventCreateWithFlags(&ring->left[ring->slots], cudaEventDisableTiming));
    return OK;
}

static void ring_close(Ring *ring)
{
    for (int i = 0; i < ring->slots; i++) cuda_freed(cudaEventDestroy(ring->left[i]));
    if (ring->memory) cuda_freed(cudaFreeHost(ring->memory));
    free(ring->left);
}

Status staging_open(Staging **made)
{
    Status st = OK;
    Staging *s = calloc(1, sizeof *s);
    if (!s) return FAIL(ERR_MEMORY, "no memory for the ring of pinned buffers");
    TRY_OUT(ring_open(&s->large, SLOTS, SLOT_BYTES));
    TRY_OUT(ring_open(&s->small, SMALL_SLOTS, SMALL_BYTES));
    TRY_CUDA_OUT(cudaEventCreateWithFlags(&s->read, cudaEventDisableTiming));
    for (int i = 0; i < STAGING_BUFFERS; i++)
        TRY_CUDA_OUT(cudaEventCreateWithFlags(&s->buffer[i].emptied, cudaEventDisableTiming));
    *made = s;
    s = NULL;
out:
    staging_close(s);
    return st;
}

static void buffers_free(Staging *s)
{
    for (int i = 0; i < STAGING_BUFFERS; i++) {
        if (s->buffer[i].memory) cuda_freed(cudaFree(s->buffer[i].memory));
        s->buffer[i].memory = NULL;
    }
    s->buffer_bytes = 0;
}

void staging_close(Staging *s)
{
    if (!s) return;
    ring_close(&s->large);
    ring_close(&s->small);
    buffers_free(s);
    for (int i = 0; i < STAGING_BUFFERS; i++)
        if (s->buffer[i].emptied) cuda_freed(cudaEventDestroy(s->buffer[i].emptied));
    if (s->read) cuda_freed(cudaEventDestroy(s->read));
    free(s);
}

/* ---- through a ring */

Status staging_upload(Staging *s, void *to, const void *host, size_t bytes, cudaStream_t stream)
{
    Ring *ring = bytes <= SMALL_BYTES ? &s->small : &s->large;
    for (size_t done = 0; done < bytes; done += ring->slot_bytes) {
        size_t part = bytes - done < ring->slot_bytes ? bytes - done : ring->slot_bytes;
        char *slot = ring->memory + (size_t)ring->next * ring->slot_bytes;
        TRY_CUDA(cudaEventSynchronize(ring->left[ring->next])); /* at once for an event that was never recorded */
        memcpy(slot, (const char *)host + done, part);
        TRY_CUDA(cudaMemcpyAsync((char *)to + done, slot, part, cudaMemcpyHostToDevice, stream));
        TRY_CUDA(cudaEventRecord(ring->left[ring->next], stream));
        ring->next = (ring->next + 1) % ring->slots;
    }
    return OK;
}

/* ---- from pinned memory */

static void buffers_make(Staging *s, size_t bytes)
{
    buffers_free(s);
    s->buffer_bytes = bytes;
    for (int i = 0; i < STAGING_BUFFERS && s->buffer_bytes; i++)
        if (cudaMalloc(&s->buffer[i].memory, bytes) != cudaSuccess) {
            (void)cudaGetLastError();
            buffers_free(s);
        }
}

void staging_expect(Staging *s, size_t bytes)
{
    size_t before = s->buffer_bytes;
    if (bytes <= before) return;
    buffers_make(s, bytes);
    if (!s->buffer_bytes) buffers_make(s, before);
}

Status staging_upload_pinned(Staging *s, void *to, const void *host, size_t bytes, cudaStream_t compute,
                             cudaStream_t copy)
{
    Buffer *buffer = bytes <= s->buffer_bytes ? &s->buffer[s->next] : NULL;
    cudaStream_t reader = buffer ? copy : compute;
    if (buffer) TRY_CUDA(cudaStreamWaitEvent(copy, buffer->emptied, 0));
    TRY_CUDA(cudaMemcpyAsync(buffer ? buffer->memory : to, host, bytes, cudaMemcpyHostToDevice, reader));
    TRY_CUDA(cudaStreamWaitEvent(reader, s->read, 0)); /* the upload before may be on the other stream */
    TRY_CUDA(cudaEventRecord(s->read, reader));
    if (!buffer) return OK;
    s->next = (s->next + 1) % STAGING_BUFFERS;
    TRY_CUDA(cudaStreamWaitEvent(compute, s->read, 0));
    TRY_CUDA(cudaMemcpyAsync(to, buffer->memory, bytes, cudaMemcpyDeviceToDevice, compute));
    TRY_CUDA(cudaEventRecord(buffer->emptied, compute));
    return OK;
}

Status staging_wait(Staging *s)
{
    TRY_CUDA(cudaEventSynchronize(s->read));
    return OK;
}
