/* The inside of the CUDA backend: its device and its table of kernels.
 *
 * Every row of ops.def is one `const OpKernel cuda_<name>`, defined in the file of its family; the names and files are
 * those of kernels/cpu. Host code is C; kernels and the functions that launch them are .cu files, behind kernels.h
 * (kernels of ops) and convert.h (changes of dtype and layout around library calls). A launch only enqueues on
 * cuda_stream(device, STREAM_COMPUTE): no allocation, no synchronization, so that a step can be captured into a graph. */
#pragma once

#include "kernels/backend.h"
#include "kernels/cuda/libraries/check.h"

extern const Backend cuda_backend;

typedef struct CudnnLibrary CudnnLibrary;   /* cudnn_library.h */
typedef struct CublasLibrary CublasLibrary; /* cublas.h */
typedef struct PlanCache PlanCache;         /* plan_cache.h */
typedef struct Staging Staging;             /* staging.h */

/* The 16-bit copy of the weights, if there is one (weights.c). */
typedef struct CudaWeights {
    const float *param; /* borrowed, all of these: device memory of the caller */
    char *half;
    size_t count;
    Dtype dtype;
} CudaWeights;

/* Device.impl of the CUDA backend. */
typedef struct CudaDevice {
    int ordinal;
    int sm;                        /* compute capability: 90 for 9.0 */
    int sm_count;                  /* multiprocessors */
    size_t l2_bytes, shared_bytes; /* of the chip; of one multiprocessor */
    char name[256];
    cudaStream_t stream[STREAM_COUNT]; /* owned; STREAM_COMM has high priority */
    cudaEvent_t event[STREAM_COUNT];   /* owned: the end of each stream, when another waits for it */
    cudaEvent_t mark[BACKEND_MARKS];   /* owned: points in the compute stream that the host asks for */
    Staging *staging;                  /* owned */
    void *scratch;                     /* owned: device memory of kernel_square_sum and kernel_l2_term */
    CudnnLibrary *cudnn;               /* owned */
    CublasLibrary *cublas;             /* owned */
    PlanCache *plans;                  /* owned */
    CudaWeights weights;
} CudaDevice;

#define OP(KIND, name, ...) extern const OpKernel cuda_##name;
#include "kernels/ops.def"

/* The parts of the backend's vtable that are kernels, not ops (optimizer.c). */
Status cuda_optimizer_apply(Device *device, const OptimizerUpdate *update);
Status cuda_square_sum(Device *device, const float *x, size_t count, double *sum_of_squares);
Status cuda_l2_term(Device *device, const float *param, const OptimizerSegment *segments, int count, double *term);
Status cuda_average(Device *device, float *running, const float *batch, const float *correct, const float *decay,
                    size_t count, const float *commit);
Status cuda_add_vectors(Device *device, StreamKind stream, const float *const *from, int vectors, float *sum,
                        size_t count);
Status cuda_gate_extras(Device *device, const GateExtrasCall *call);
Status cuda_gate_decide(Device *device, const GateDecideCall *call);
Status cuda_hash(Device *device, const float *x, size_t count, uint64_t first, uint64_t *sum);

/* capture.c */
Status cuda_capture_begin(Device *device);
Status cuda_capture_end(Device *device, void **graph);
Status cuda_graph_launch(Device *device, void *graph);
void cuda_graph_free(Device *device, void *graph);

/* op_time.c: Backend.op_time */
double cuda_op_time(Device *device, const OpCall *call);

/* weights.c. `weights_half`: where the copy of packed f32 memory lies, as `dtype` and aligned to 16 bytes; NULL if it
 * has none. */
Status cuda_weights_copy(Device *device, const float *param, size_t count, void *half, Dtype dtype);
void *weights_half(const Device *device, const void *param, size_t count, Dtype dtype);

/* How many devices are visible, and which (`id` may be NULL); ERR_DEVICE with the reason where the driver is missing or too
 * old. */
NODISCARD Status cuda_device_list(DeviceId *id, int *count);
/* Both after the list. */
void cuda_near_cores(int ordinal, NearCores *near);
void cuda_links(DeviceLinks *links);

static inline CudaDevice *cuda_device(const Device *device)
{
    return (CudaDevice *)device->impl;
}

static inline cudaStream_t cuda_stream(const Device *device, StreamKind stream)
{
    return cuda_device(device)->stream[stream];
}
