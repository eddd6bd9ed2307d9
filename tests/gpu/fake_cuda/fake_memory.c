/* Device and pinned memory: heap blocks of the exact size, so that the address sanitizer checks their ends (except
 * large pinned blocks, which would cost too much). New device memory is filled with NaN, and is aligned to 256 bytes and no
 * more, as cudaMalloc promises (CUDA C++ Programming Guide, Device Memory Accesses). */
#include "tests/gpu/fake_cuda/fake.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PIECES = 4096, ALIGNMENT = 4096, OFFSET = 256 /* of device memory from that */ };

typedef struct Piece {
    FakeMemory kind;
    char *at;
    size_t bytes;
    bool guarded; /* mapped for itself, and out of reach but for queued work */
} Piece;

static const char *const kinds[] = {"device memory", "pinned memory", "registered memory", "NCCL memory"};
static Piece pieces[PIECES];
static int piece_count;
static size_t device_bytes = (size_t)256 << 20, device_used;
static bool guards;

static bool is_of_device(FakeMemory kind)
{
    return kind == FAKE_DEVICE || kind == FAKE_NCCL_MEMORY;
}

static Piece *piece_of(const void *at, size_t bytes)
{
    const char *first = at;
    for (int i = 0; i < piece_count; i++) {
        Piece *p = &pieces[i];
        if (first >= p->at && first < p->at + p->bytes && bytes <= (size_t)(p->at + p->bytes - first)) return p;
    }
    return NULL;
}

static cudaError_t piece_add(FakeMemory kind, void *memory, size_t bytes)
{
    if (piece_count == PIECES) return cudaErrorMemoryAllocation;
    pieces[piece_count++] = (Piece){kind, memory, bytes, guards && is_of_device(kind)};
    if (is_of_device(kind)) device_used += bytes;
    fake_born(kinds[kind]);
    return cudaSuccess;
}

static bool is_mapped(FakeMemory kind, size_t bytes)
{
    return (kind == FAKE_PINNED && bytes >= (size_t)1 << 20) || (guards && is_of_device(kind));
}

static void memory_free(FakeMemory kind, bool mapped, void *memory, size_t bytes)
{
    if (mapped)
        munmap(memory, bytes);
    else
        free((char *)memory - (kind == FAKE_DEVICE ? OFFSET : 0));
}

void fake_gpu_guard(bool on)
{
    guards = on;
}

void fake_memory_reach(bool allowed)
{
    for (int i = 0; i < piece_count; i++)
        if (pieces[i].guarded) mprotect(pieces[i].at, pieces[i].bytes, allowed ? PROT_READ | PROT_WRITE : PROT_NONE);
}

cudaError_t fake_memory_create(FakeMemory kind, size_t bytes, void **made)
{
    void *memory = NULL;
    if (is_of_device(kind) && bytes > device_bytes - device_used) return fake_error(cudaErrorMemoryAllocation);
    if (is_mapped(kind, bytes)) {
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return cudaErrorMemoryAllocation;
    } else {
        size_t offset = kind == FAKE_DEVICE ? OFFSET : 0;
        if (posix_memalign(&memory, ALIGNMENT, bytes + offset) != 0) return cudaErrorMemoryAllocation;
        memory = (char *)memory + offset;
    }
    if (is_of_device(kind)) memset(memory, 0xff, bytes);
    cudaError_t error = piece_add(kind, memory, bytes);
    if (error == cudaSuccess)
        *made = memory;
    else
        memory_free(kind, is_mapped(kind, bytes), memory, bytes);
    if (error == cudaSuccess && guards) fake_memory_reach(false);
    return error;
}

cudaError_t fake_memory_destroy(FakeMemory kind, void *memory)
{
    Piece *p = memory ? piece_of(memory, 0) : NULL;
    if (!memory) return cudaSuccess;
    if (!p || p->at != memory || p->kind != kind) return cudaErrorInvalidValue;
    if (kind == FAKE_NCCL_MEMORY && fake_any_queued()) return cudaErrorIllegalState; /* ncclMemFree waits for nothing */
    /* cudaFree waits for the device; of host memory cuda_runtime_api.h promises no such thing. */
    if (is_of_device(kind)) fake_all_drain();
    if (!is_of_device(kind) && fake_host_in_use(p->at, p->bytes)) return cudaErrorIllegalState;
    if (is_of_device(kind)) device_used -= p->bytes;
    fake_died(kinds[kind]);
    if (kind != FAKE_REGISTERED) memory_free(kind, p->guarded || is_mapped(kind, p->bytes), memory, p->bytes);
    *p = pieces[--piece_count];
    return cudaSuccess;
}

bool fake_on_device(const void *at, size_t bytes)
{
    const Piece *p = piece_of(at, bytes);
    return p && is_of_device(p->kind);
}

bool fake_on_nccl_memory(const void *at)
{
    const Piece *p = piece_of(at, 0);
    return p && p->kind == FAKE_NCCL_MEMORY;
}

bool fake_on_host_pinned(const void *at, size_t bytes)
{
    const Piece *p = piece_of(at, bytes);
    return p && !is_of_device(p->kind);
}

void fake_gpu_memory(size_t bytes)
{
    device_bytes = bytes;
}

/* ---- entry points */

cudaError_t cudaMalloc(void **made, size_t bytes)
{
    ENTER(CUDA, cudaMalloc);
    return fake_memory_create(FAKE_DEVICE, bytes, made);
}

cudaError_t cudaFree(void *memory)
{
    int code = fake_enter(FAKE_CUDA, "cudaFree");
    cudaError_t error = fake_memory_destroy(FAKE_DEVICE, memory);
    return code ? (cudaError_t)code : error;
}

cudaError_t cudaHostAlloc(void **made, size_t bytes, unsigned flags)
{
    (void)flags;
    ENTER(CUDA, cudaHostAlloc);
    return fake_memory_create(FAKE_PINNED, bytes, made);
}

cudaError_t cudaFreeHost(void *memory)
{
    int code = fake_enter(FAKE_CUDA, "cudaFreeHost");
    cudaError_t error = fake_memory_destroy(FAKE_PINNED, memory);
    return code ? (cudaError_t)code : error;
}

/* Whole pages are locked: a second registration of one is refused. */
static bool shares_a_page(const void *host, size_t bytes)
{
    const uintptr_t page = 4096, first = (uintptr_t)host / page, last = ((uintptr_t)host + bytes - 1) / page;
    bool shares = false;
    for (int i = 0; i < piece_count; i++) {
        const Piece *p = &pieces[i];
        uintptr_t start = (uintptr_t)p->at / page, end = ((uintptr_t)p->at + p->bytes - 1) / page;
        shares = shares || (!is_of_device(p->kind) && first <= end && start <= last);
    }
    return shares;
}

cudaError_t cudaHostRegister(void *host, size_t bytes, unsigned flags)
{
    (void)flags;
    ENTER(CUDA, cudaHostRegister);
    if (shares_a_page(host, bytes)) return fake_error(cudaErrorHostMemoryAlreadyRegistered);
    return piece_add(FAKE_REGISTERED, host, bytes);
}

cudaError_t cudaHostUnregister(void *host)
{
    int code = fake_enter(FAKE_CUDA, "cudaHostUnregister");
    cudaError_t error = fake_memory_destroy(FAKE_REGISTERED, host);
    return code ? (cudaError_t)code : error == cudaSuccess ? error : fake_error(cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *at)
{
    ENTER(CUDA, cudaPointerGetAttributes);
    memset(attributes, 0, sizeof *attributes);
    attributes->type = fake_on_device(at, 0)        ? cudaMemoryTypeDevice
                       : fake_on_host_pinned(at, 0) ? cudaMemoryTypeHost
                                                    : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    ENTER(CUDA, cudaMemGetInfo);
    *free_bytes = device_bytes - device_used;
    *total = device_bytes;
    return cudaSuccess;
}
