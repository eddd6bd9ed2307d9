/* The ring: slots of equal size, taken in turn; each remembers by an event when its last copy left it. */
#include "kernels/cuda/staging.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 24 };
static const size_t SLOT_BYTES = (size_t)4 << 20;

struct Staging {
    char *memory; /* pinned, owned: SLOTS * SLOT_BYTES */
    cudaEvent_t left[SLOTS];
    int next;
};

Status staging_open(Staging **made)
{
    Status st = OK;
    void *memory;
    Staging *s = calloc(1, sizeof *s);
    if (!s) return FAIL(ERR_MEMORY, "ring of pinned memory");
    TRY_CUDA_OUT(cudaHostAlloc(&memory, SLOTS * SLOT_BYTES, cudaHostAllocDefault));
    s->memory = memory;
    for (int i = 0; i < SLOTS; i++) TRY_CUDA_OUT(cudaEventCreateWithFlags(&s->left[i], cudaEventDisableTiming));
    *made = s;
    s = NULL;
out:
    staging_close(s);
    return st;
}

void staging_close(Staging *s)
{
    if (!s) return;
    for (int i = 0; i < SLOTS; i++)
        if (s->left[i]) cudaEventDestroy(s->left[i]);
    if (s->memory) cudaFreeHost(s->memory);
    free(s);
}

Status staging_upload(Staging *s, void *to, const void *host, size_t bytes, cudaStream_t stream)
{
    for (size_t done = 0; done < bytes; done += SLOT_BYTES) {
        size_t part = bytes - done < SLOT_BYTES ? bytes - done : SLOT_BYTES;
        char *slot = s->memory + (size_t)s->next * SLOT_BYTES;
        TRY_CUDA(cudaEventSynchronize(s->left[s->next])); /* at once for an event that was never recorded */
        memcpy(slot, (const char *)host + done, part);
        TRY_CUDA(cudaMemcpyAsync((char *)to + done, slot, part, cudaMemcpyHostToDevice, stream));
        TRY_CUDA(cudaEventRecord(s->left[s->next], stream));
        s->next = (s->next + 1) % SLOTS;
    }
    return OK;
}
