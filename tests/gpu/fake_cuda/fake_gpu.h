/* A fake GPU for tests: the entry points of the CUDA runtime, cuDNN, cuBLASLt and NCCL that the host code calls. The
 * project's own kernels run on the emulation, convolutions and products on the reference in double precision,
 * collectives through memory shared by forked ranks.
 *
 * Work is queued on its stream and executed as late as possible (LAZY), at once (EAGER), or in random order (SHUFFLED).
 * Correct code gives the same bits under all three; a missing event does not. Every call is counted, and any one can be
 * made to fail. Misuse that a device would punish (a pointer that is not the device's, waiting inside a capture) is an
 * error of the call. Not covered: speed, and races inside a kernel. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- the device */

typedef enum GpuSchedule { GPU_LAZY = 0, GPU_EAGER, GPU_SHUFFLED } GpuSchedule;

/* As new: no failures, counts at zero, lazy, 256 MiB, one device, an NCCL with windows. Live objects stay. */
void fake_gpu_reset(void);
void fake_gpu_schedule(GpuSchedule schedule, uint32_t seed);
void fake_gpu_memory(size_t bytes); /* of the device */
/* Device memory that is made from now on is the device's alone: the host that touches it dies of SIGSEGV. Slow. */
void fake_gpu_guard(bool on);
void fake_gpu_devices(int count);
/* The driver does not answer: who looks for devices waits for ever, and who waits for that by poll finds that its time is
 * over. */
void fake_gpu_hang(bool hangs);
/* From now on a process that this one kills ends so much later; 0 as new. */
void fake_gpu_ends_after(int64_t ms);
/* Device k of this process is number first + k of the host; 0 as new. */
void fake_gpu_first(int first);
/* Bit k: device k is gone: the process that uses it has lost it for good, and none can open it any more. In memory that the
 * processes share. NULL: none is. */
void fake_gpu_gone(const _Atomic unsigned *devices);
/* The program was compiled for other GPUs: launches of our own kernels give this error (a cudaError_t); 0: they do not. */
void fake_gpu_without_kernels(int error);
/* cudaStreamWaitEvent does nothing: to see a test notice. */
void fake_gpu_ignore_waits(bool ignore);

/* A run of this engine takes so long, as events see it; and computes rubbish. Negative: no engine. */
void fake_gpu_engine(int engine, int64_t microseconds, bool wrong);
/* So do a launch of our own and a product of cuBLASLt. */
void fake_gpu_launch_time(int64_t kernel, int64_t product);
/* The heuristics know so many engines, 8 at first; 0: none. */
void fake_gpu_engines(int count);
/* No engine takes a convolution with a bias behind it. */
void fake_gpu_ends_lost(bool lost);
void fake_gpu_cudnn_version(size_t version); /* as CUDNN_VERSION, which it is at first */
/* Engines as different as the library allows. Each has bits of its own, and one that is not deterministic has other bits in
 * every run. The rest differs with `seed`, as it may from device to device: their time in each run, their order in the
 * heuristics' answer, and how many of them are in it (engine 6 always is). 0: off. */
void fake_gpu_adversary(uint32_t seed);
/* Plans of this engine are refused with this code (a cudnnStatus_t); 0: they are made. Negative: of no engine. An adversary does
 * the same to some. */
void fake_gpu_engine_refused(int engine, int code);
/* Plans of the engines in `set` (bit k: engine k) can no longer be made on this device (CUDNN_STATUS_NOT_SUPPORTED). */
void fake_gpu_engines_lost(int device, unsigned set);

/* ---- counting and failing */

int64_t fake_gpu_calls(void); /* calls that could have failed, since the last reset */
/* The call after which fake_gpu_calls() is `number` fails; 0: none does. */
void fake_gpu_fail_call(int64_t number);
/* The same, of all calls but the questions by which a run waits (cudaEventQuery, ncclCommGetAsyncError): the number of a request
 * does not depend on how long anybody waited. */
int64_t fake_gpu_requests(void);
void fake_gpu_fail_request(int64_t number);
/* Calls of this name run out of device memory from now on; NULL: no more. */
void fake_gpu_fail_memory(const char *name);
/* The `nth` call of this name from now on fails, from 1; NULL: none does. */
void fake_gpu_fail_named(const char *name, int64_t nth);
/* As fake_gpu_fail_call, and every call after it fails, too: a kernel has broken the device, which this process has lost
 * for good. */
void fake_gpu_lose_device(int64_t number);
const char *fake_gpu_failed(void); /* the name of the call that was made to fail, NULL if none was */
bool fake_gpu_failed_in_capture(void);

/* From now on stacks[n] receives a number for the callers of the n-th call, n < room; NULL: no more. */
void fake_gpu_survey(uint64_t *stacks, int64_t room);

/* Calls by name ("cudaMalloc") since fake_gpu_counts_clear. Names of things that are no calls: "kernel" (launches of
 * our own), "implicit synchronization" (copies into memory that is not pinned), "misaligned collective" (of memory that NCCL
 * moves slowly). */
int64_t fake_gpu_count(const char *name);
/* ... of all whose names begin so */
int64_t fake_gpu_count_like(const char *prefix);
void fake_gpu_counts_clear(void);
void fake_gpu_counts_print(FILE *to);

/* From now on calls are written down, in order, one a line ("cudaMemcpyAsync", "kernel"), as many whole lines as there
 * is room for; NULL: no more. */
void fake_gpu_log(char *text, size_t room);

/* Objects that were made and not destroyed; prints them. */
int fake_gpu_alive(FILE *to);

/* ---- other GPUs: ranks are processes, forked after fake_gpu_world_create; without one, any programs of this machine that
 * have the same unique id, which names a file in TMPDIR. Hosts are told apart by NCCL_HOSTID, as NCCL does. */

typedef struct GpuWorld GpuWorld;
/* When another process than before makes the unique id, the ranks of the last one are dead, and it begins anew, with as
 * many ranks or fewer. `bytes`: the most that one rank gives to one collective. */
GpuWorld *fake_gpu_world_create(int ranks, size_t bytes);
void fake_gpu_world_destroy(GpuWorld *world);
int64_t fake_gpu_reduced(void);  /* elements that this process has given to ncclAllReduce */
int64_t fake_gpu_received(void); /* bytes that it has received in collectives, by rings */
/* From now on this rank's communicators report this result (an ncclResult_t). */
void fake_gpu_break_comm(int result);
void fake_gpu_nccl_message(const char *message); /* what ncclGetLastError answers from now on; static */
enum { FAKE_GPU_NCCL_VERSION = 22907 };          /* at first; as NCCL_VERSION_CODE */
void fake_gpu_nccl_version(int version);
void fake_gpu_joins_after(int64_t ms); /* ... a communicator, without a sign of life meanwhile */
/* Called first by ncclCommAbort, which waits for what it does; NULL: nothing. */
void fake_gpu_on_abort(void (*function)(void));
/* Symmetric windows are: created; not created, with success, as on a platform without; refused at once;
 * refused after the call has begun, which ends the communicator. */
typedef enum GpuWindows {
    GPU_WINDOWS_MADE = 0,
    GPU_WINDOWS_NONE,
    GPU_WINDOWS_REFUSED,
    GPU_WINDOWS_REFUSED_LATE
} GpuWindows;
void fake_gpu_windows(GpuWindows windows);
