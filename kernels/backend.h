/* Backend: the interface that a kind of device implements. Device: one opened device.
 *
 * "cpu" (oneDNN and own kernels) exists on every machine with oneDNN, "cuda" (cuDNN, cuBLASLt, own kernels) where it
 * was built in. Code above this header does not depend on which one it uses. Slow work, and work that can fail, is done
 * in open, alloc and prepare; launch only enqueues (on the CPU it runs at once, in the calling thread and the OpenMP
 * team). */
#pragma once

#include "kernels/base/near_cores.h"
#include "kernels/gate.h"
#include "kernels/op.h"
#include "kernels/optimizer.h"

typedef struct Backend Backend;
typedef struct TelemetryOps TelemetryOps; /* telemetry.h */

typedef enum StreamKind { STREAM_COMPUTE = 0, STREAM_COMM, STREAM_COPY, STREAM_COUNT } StreamKind;

enum { BACKEND_MARKS = 4 };

typedef struct DeviceConfig {
    int ordinal;          /* GPU number; 0 on the CPU */
    int threads;          /* CPU: size of the OpenMP team, >= 1 */
    int near_cores;       /* GPU: its process moves to the cores near it if it may use so many; 0: never */
    bool deterministic;   /* choose algorithms without timing them, so that unrelated runs choose the same */
    bool winograd;        /* CPU: f32 convolutions by F(4x4, 3x3) and F(2x2, 5x5), which round coarsely */
    bool winograd_bf16;   /* CPU: bf16 convolutions by F(2x2, 3x3) and F(4, 7) where they are faster */
    bool winograd_f32;    /* CPU: the same in f32 */
    bool allow_reference; /* CPU: accept oneDNN's `ref` implementations (a 100x slower convolution) */
    /* CPU: a row of the lists of convolutions (kernels/cpu/conv/conv.c) that is passed over, to measure what it gains:
     * its name, or a KernelChoice.name, which begins with that. The last row, oneDNN's, never is. NULL: none. Borrowed */
    const char *without;
    bool tf32; /* GPU: products of f32 may round their operands to TF32 (10 bits of mantissa) */
} DeviceConfig;

/* Initializers of the DeviceConfig fields that are on by default. */
#define DEVICE_USUAL .winograd_bf16 = true, .winograd_f32 = true

/* Replaces values[0 .. count) by their sums over all towers, for ops that need statistics of the whole global batch.
 * Collective. Values in device memory are read and written in the order of STREAM_COMPUTE; for values in host memory the
 * call waits. */
typedef Status (*AllReduce)(void *context, float *values, int count);

/* Candidates for a kernel that a library failed to make or to run, though it had named them. */
typedef struct PlanRefusals {
    int count;
    char first[320]; /* what it said of the first one */
} PlanRefusals;

typedef struct Device {
    const Backend *backend; /* borrowed, static */
    DeviceConfig config;
    void *impl;              /* owned by the backend */
    AllReduce allreduce;     /* set by the owner; NULL: batch norm uses this tower's batch alone */
    void *allreduce_context; /* borrowed */
    int unconfirmed;         /* GPU: plans taken although no second candidate gave the same result */
    PlanRefusals refused;    /* GPU */
} Device;

/* The implementation that prepare has chosen for a call, and why those before it in its list were passed over. */
typedef struct KernelChoice {
    char name[96];    /* "winograd F(2x2, 3x3)", "oneDNN, product (brgemm:avx512_core)" */
    char passed[480]; /* "winograd F(4, 7): too few channels; ..."; empty if the first was taken */
} KernelChoice;

void kernel_choice_pass(KernelChoice *choice, const char *name, const char *why);

/* The kernel of one op kind on one backend. */
typedef struct OpKernel {
    /* Check the call, choose algorithms, make call->state, set call->workspace_bytes. Tensors have final shapes, dtypes
     * and pitches, and data pointers that are NULL exactly for absent operands. Pointers may change before launch (the
     * plan rebinds arenas), so state must not keep them. NULL: nothing to prepare. */
    Status (*prepare)(Device *device, OpCall *call);
    Status (*launch)(Device *device, OpCall *call);
    void (*discard)(Device *device, OpCall *call); /* frees call->state; NULL: nothing to free */
    uint32_t pads_in;  /* bit k: wants in[k] with rows of whole vectors of 16 bytes (OpCall.padded_in) */
    uint32_t pads_out; /* bit k: can make out[k] so, where all its readers want that (OpCall.padded_out) */
    void (*explain)(Device *device, const OpCall *call,
                    KernelChoice *choice); /* after prepare; NULL: the op has one kernel */
} OpKernel;

typedef enum PinFor { PIN_NOT = 0, PIN_UPLOADS, PIN_DOWNLOADS } PinFor;

/* What connects the devices of this host. */
typedef struct DeviceLinks {
    bool nvlink, multicast; /* multicast: NVLink's switch can add what several devices send */
} DeviceLinks;

/* Which device it is, of all devices of all hosts. */
typedef struct DeviceId {
    unsigned char uuid[16];
} DeviceId;

enum { BACKEND_DEVICES_MAX = 64 };

struct Backend {
    const char *name; /* "cpu", "cuda" */
    bool on_host;     /* the device is the cores and the memory of the host, which its processes share */
    bool nccl;        /* NCCL sums between its devices */

    /* Counts the devices of this kind without opening them; the first BACKEND_DEVICES_MAX are named in `id`, which may be
     * NULL. NULL: there is one, without an id. */
    Status (*device_list)(DeviceId *id, int *count);
    /* The cores near a device, after the devices were listed, without opening it. NULL: it is all of them. */
    void (*near_cores)(int ordinal, NearCores *near);
    void (*links)(DeviceLinks *links); /* after the devices were listed. NULL: there is one device */
    const TelemetryOps *telemetry;     /* watching devices without opening them; NULL: they say nothing */
    Status (*open)(const DeviceConfig *config, Device *device);
    void (*close)(Device *device);

    /* Free and total bytes of device memory. NULL: unknown. */
    Status (*memory)(Device *device, size_t *free_bytes, size_t *total);
    bool memory_closed; /* `memory` also works on a device that is not open */
    /* 64-byte aligned (CPU) or 256-byte aligned (GPU) memory, zeroed. */
    Status (*alloc)(Device *device, size_t bytes, void **made);
    void (*release)(Device *device, void *memory);

    /* Dense copies between host and device memory, enqueued on STREAM_COMPUTE. An upload has read `host` when it returns,
     * or, if that is pinned, when `uploaded` returns; `host` of a download must stay valid until finish. */
    Status (*upload)(Device *device, void *to, const void *host, size_t bytes);
    Status (*download)(Device *device, void *host, const void *from, size_t bytes);
    Status (*fill)(Device *device, void *to, float value, size_t count); /* f32 */
    /* to[i] = from[i], i < count, between f32, f16 and bf16 in device memory. NULL: collectives use f32 alone. */
    Status (*convert)(Device *device, void *to, Dtype to_dtype, const void *from, Dtype from_dtype, size_t count);
    /* A hint that `host` is copied often, or (PIN_NOT, before it is freed) no longer. NULL: no effect. */
    void (*pin)(Device *device, void *host, size_t bytes, PinFor use);
    /* Device memory that uploads of up to `bytes` from pinned memory take if there is room. NULL: none. */
    size_t (*upload_bytes)(size_t bytes);

    const OpKernel *const *kernels; /* [OP_COUNT] */
    const OpStorage *storage;       /* [OP_COUNT]: what the kernels accept; usually op_storage */

    /* Microseconds of one launch of this op, measured once and cached, by which passes choose between equivalent graphs.
     * Negative if unknown: no memory to measure it, or a deterministic device. NULL: ops that are fused are never
     * faster here, and none are. */
    double (*op_time)(Device *device, const OpCall *call);
    /* All that this device has chosen by time so far (in prepare and op_time), as text that the caller frees;
     * `chosen`: how many of these choices were made although others had been given. A device that takes such a text
     * makes the same choices instead of timing, unless it is another kind of device, or has other libraries: then
     * nothing is taken. NULL: nothing is chosen by time. */
    Status (*choices_text)(Device *device, char **text, int *chosen);
    Status (*choices_take)(Device *device, const char *text, bool *taken);

    /* One update of a parameter range (optimizer.h). */
    Status (*optimizer_apply)(Device *device, const OptimizerUpdate *update);

    /* *sum_of_squares (device memory, f64) = sum of x^2 over f32 x[count]; NaN and Inf in x show as non-finite. */
    Status (*square_sum)(Device *device, const float *x, size_t count, double *sum_of_squares);

    /* *sum (device memory, 64 bits) += a hash of x[count], whose elements have the numbers `first` and following: it differs if
     * one element has other bits, and does not depend on how elements are divided among calls. NULL: copy and hash. */
    Status (*hash)(Device *device, const float *x, size_t count, uint64_t first, uint64_t *sum);

    /* *term (device memory, f64) = sum over the segments of weight_decay / 2 * sum of p^2: the L2 term of the loss.
     * Segments lie in host memory; those without weight decay cost nothing. */
    Status (*l2_term)(Device *device, const float *param, const OptimizerSegment *segments, int count, double *term);

    /* running[i] += (1 - *decay) * (batch[i] - running[i]), if *commit != 0: batch-norm averages.
     * f32, device memory; `correct` multiplies batch[i] first (n / (n - 1) for an unbiased variance), per element, or
     * NULL. Where it is 0, there is no batch[i], and running[i] stays. */
    Status (*average)(Device *device, float *running, const float *batch, const float *correct, const float *decay,
                      size_t count, const float *commit);

    /* sum[count] = from[0] + from[1] + ..., added one after another, in the order of `stream`; f32, device memory, 1 to OP_MAX_IN
     * vectors. The bits do not depend on how many calls add them. Only where `nccl` is set. */
    Status (*add)(Device *device, StreamKind stream, const float *const *from, int vectors, float *sum, size_t count);

    /* A tower's contribution to the gate, and the gate's decision over a step (gate.h); enqueued on STREAM_COMPUTE. */
    Status (*gate_extras)(Device *device, const GateExtrasCall *call);
    Status (*gate_decide)(Device *device, const GateDecideCall *call);

    /* Events on STREAM_COMPUTE, numbered 0 .. BACKEND_MARKS - 1, that the host can poll. NULL if calls are synchronous. */
    Status (*mark)(Device *device, int number);
    Status (*reached)(Device *device, int number, bool *reached);
    /* Block until the host memory of all uploads so far may be reused. NULL: it always may. */
    Status (*uploaded)(Device *device);

    /* Captures launches into a graph that repeats them at the price of one: work enqueued on STREAM_COMPUTE between
     * begin and end is captured, not run. Only launches of ops may come between; `capture_end` also ends a capture that
     * has failed. NULL if the device gains nothing by it. */
    Status (*capture_begin)(Device *device);
    Status (*capture_end)(Device *device, void **graph);
    Status (*graph_launch)(Device *device, void *graph);
    void (*graph_free)(Device *device, void *graph);

    /* Its convolutions of bf16 end with a bias and a ReLU without a pass over their results: evaluations fold batch norms into them. */
    bool conv_ends;

    /* Convert the weights param[count] to 16 bits in `half` now, and let ops read that copy from now on; the optimizer
     * keeps it up to date. param NULL: stop using it. NULL: this device does not use 16-bit copies. */
    Status (*weights_copy)(Device *device, const float *param, size_t count, void *half, Dtype dtype);

    /* Work enqueued on `waiter` from now on starts after the work that is now on `on`. */
    Status (*wait)(Device *device, StreamKind waiter, StreamKind on);
    /* Block the host until a stream is idle. */
    Status (*finish)(Device *device, StreamKind stream);
    /* The stream in the device's own terms (a cudaStream_t); NULL here: the backend has none. */
    void *(*stream)(Device *device, StreamKind stream);

    /* OK if this machine computes with activations of this type at a useful speed; else ERR_UNSUPPORTED and what is
     * missing. NULL: all types. */
    Status (*computes)(Dtype dtype);

    /* A description in one line: "AVX-512 with bf16, oneDNN 2.6.3, 2 threads" / "NVIDIA H200, driver 580, cuDNN 9.19". */
    void (*describe)(Device *device, char *text, size_t bytes);
};

/* "cpu", "cuda", or "auto" (cuda if this build has it and a device is visible). On ERR_UNSUPPORTED / ERR_DEVICE the
 * message says what is missing. `why` may be NULL; it receives one line if auto falls back to the CPU, else "". */
NODISCARD Status backend_find(const char *name, const Backend **found, char *why, size_t why_bytes);
extern const char backends_built[]; /* "cpu cuda": those of this build, whatever the machine has */
/* Whether a run on the CPU is a surprise: this build has the cuda backend, or this machine has NVIDIA's driver. */
bool backend_gpu_expected(void);

/* Host memory for Backend.pin, of any contents: whole pages of its own, because pages are locked as a whole. free() it.
 * NULL: there is no memory. */
void *pages_alloc(size_t bytes);

/* How many devices of this backend the machine has (CPU: 1). */
NODISCARD Status backend_device_count(const Backend *backend, int *count);
/* Which ones: id[BACKEND_DEVICES_MAX]. *count is 0 where devices have no id (CPU). */
NODISCARD Status backend_device_list(const Backend *backend, DeviceId *id, int *count);
