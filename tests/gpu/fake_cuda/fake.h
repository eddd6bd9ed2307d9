/* Shared by the parts of the fake GPU: entering a call, live objects, memory, and queues of work. Internal. */
#pragma once

#include "tests/gpu/fake_cuda/fake_gpu.h"

#include <cuda_runtime_api.h>

/* ---- calls */

typedef enum FakeLibrary { FAKE_CUDA = 0, FAKE_CUDNN, FAKE_CUBLAS, FAKE_NCCL } FakeLibrary;

/* 0, or the library's code for a failure that was asked for. */
int fake_enter(FakeLibrary library, const char *name);
/* First line of every entry point. A call that frees something does so all the same, as the libraries do: it takes the
 * code first and returns it last. */
#define ENTER(library, name)                                                                                           \
    do {                                                                                                               \
        int entered_ = fake_enter(FAKE_##library, #name);                                                              \
        if (entered_) return entered_;                                                                                 \
    } while (0)
void fake_note(const char *name); /* counted, cannot fail */
/* CUDA has not been initialized here: a process that is forked now may use it. */
void fake_processes_begin(void);
/* Keeps the error of a call of the runtime until cudaGetLastError is called. Returns it. */
cudaError_t fake_error(cudaError_t error);

/* ---- live objects, by kind */

void fake_born(const char *kind);
void fake_died(const char *kind);

/* ---- the device in use: its identity, on all hosts */

uint64_t fake_device_id(int ordinal);
int fake_device_current(void);

/* ---- memory */

typedef enum FakeMemory { FAKE_DEVICE = 0, FAKE_PINNED, FAKE_REGISTERED, FAKE_NCCL_MEMORY } FakeMemory;

cudaError_t fake_memory_create(FakeMemory kind, size_t bytes, void **made);
cudaError_t fake_memory_destroy(FakeMemory kind, void *memory);
/* May the host touch guarded memory? Only while queued work runs. */
void fake_memory_reach(bool allowed);
/* Does [at, at + bytes) lie in one piece of device memory? */
bool fake_on_device(const void *at, size_t bytes);
bool fake_on_nccl_memory(const void *at);
bool fake_on_host_pinned(const void *at, size_t bytes);

/* ---- queues */

/* One piece of work. `run` returns false if it cannot be done yet and will be asked again. `drop` frees the context, or
 * is NULL. A captured node runs many times. */
typedef struct FakeWork {
    const char *name;
    bool (*run)(void *context);
    void (*drop)(void *context);
    void *context;
    const void *host; /* pinned memory that it reads or writes, or NULL */
} FakeWork;

/* Advances the time that events measure. */
void fake_time_pass(int64_t microseconds);
int64_t fake_launch_time(bool product);
/* Takes the work, also when it fails. */
cudaError_t fake_queue(cudaStream_t stream, const FakeWork *work);
bool fake_is_capturing(cudaStream_t stream);
bool fake_any_capturing(void);
/* fake_gpu_gone: this process's device is. */
bool fake_device_gone(void);
/* A call that allocates, frees, waits or asks how far a stream is spoils every capture of its thread, and fails: true
 * if `name` is one, and something is being captured. */
bool fake_spoils_capture(const char *name);
/* Until all that is queued is done; false if something waits for others. */
bool fake_stream_try(cudaStream_t stream);
void fake_all_drain(void);
bool fake_any_queued(void);
/* Does something that is queued use pinned memory in [at, at + bytes)? */
bool fake_host_in_use(const void *at, size_t bytes);
