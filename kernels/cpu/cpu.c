/* The CPU as a device: memory, the OpenMP team, and the table of its kernels.
 *
 * There is one stream: everything runs when it is launched, so `wait` and `finish` do nothing. A device belongs to the
 * thread that opened it, whose team has `threads` members that flush denormals to zero (otherwise gradients of nearly
 * dead units would take a hundred times as long as others). */
#include "kernels/cpu/cpu.h"

#include <sys/mman.h>

#ifdef _OPENMP
#include <omp.h>
#endif
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "kernels/cpu/onednn.h"
#include "kernels/cpu/onednn_isa.h"
#include "kernels/open.h"

enum { ALIGNMENT = 64, HUGE_PAGE = 2 << 20, MAX_THREADS = 1024 };

static void flush_denormals(void)
{
#if defined(__x86_64__)
    const unsigned flush_to_zero = 0x8000, denormals_are_zero = 0x0040;
    _mm_setcsr(_mm_getcsr() | flush_to_zero | denormals_are_zero);
#endif
}

/* oneDNN cuts its work for as many threads as it asks for: a team that OMP_THREAD_LIMIT keeps smaller would leave a part
 * undone. */
static int team_size(int wanted)
{
#ifdef _OPENMP
    int limit = omp_get_thread_limit();
    return wanted > limit ? limit : wanted;
#else
    return wanted;
#endif
}

static void team_start(int threads)
{
#ifdef _OPENMP
    omp_set_dynamic(0);
    omp_set_num_threads(threads);
#else
    (void)threads;
#endif
    flush_denormals(); /* here first: LLVM's runtime gives workers the modes of the thread that forks them */
#pragma omp parallel
    flush_denormals();
}

static Status cpu_open(const DeviceConfig *config, Device *device)
{
    Status st = OK;
    if (config->ordinal != 0)
        return FAIL(ERR_ARG, "CPU device %d does not exist; the only one is CPU device 0", config->ordinal);
    if (config->threads < 1 || config->threads > MAX_THREADS)
        return FAIL(ERR_ARG, "%d CPU threads: expected 1 to %d", config->threads, MAX_THREADS);
    CpuDevice *cpu = calloc(1, sizeof *cpu);
    if (!cpu) return FAIL(ERR_MEMORY, "no memory for the cpu device");
    device->config = *config;
    device->config.threads = team_size(config->threads);
    team_start(device->config.threads);
    TRY_OUT(onednn_open(&cpu->onednn));
    device->backend = &cpu_backend;
    device->impl = cpu;
    cpu = NULL;
out:
    free(cpu);
    return st;
}

static void cpu_close(Device *device)
{
    CpuDevice *cpu = device->impl;
    if (!cpu) return;
    onednn_close(cpu->onednn);
    free(cpu);
    device->impl = NULL;
}

static Status cpu_alloc(Device *device, size_t bytes, void **made)
{
    void *memory = NULL;
    bool large = bytes >= HUGE_PAGE;
    size_t left, total;
    if (large && cpu_memory(device, &left, &total) == OK && bytes > left)
        return FAIL(ERR_MEMORY,
                    "%zu MiB of memory are needed, but only %zu MiB are left: use a smaller batch, fewer towers or "
                    "16-bit activations",
                    bytes >> 20, left >> 20);
    if (posix_memalign(&memory, large ? HUGE_PAGE : ALIGNMENT, bytes ? bytes : 1) != 0)
        return FAIL(ERR_MEMORY,
                    "cannot allocate %zu MiB of memory: use a smaller batch, fewer towers or 16-bit activations",
                    bytes >> 20);
    if (large) madvise(memory, bytes, MADV_HUGEPAGE); /* a hint: its failure only costs speed */
    memset(memory, 0, bytes);
    *made = memory;
    return OK;
}

static void cpu_release(Device *device, void *memory)
{
    (void)device;
    free(memory);
}

static Status cpu_upload(Device *device, void *to, const void *host, size_t bytes)
{
    (void)device;
    memcpy(to, host, bytes);
    return OK;
}

static Status cpu_download(Device *device, void *host, const void *from, size_t bytes)
{
    (void)device;
    memcpy(host, from, bytes);
    return OK;
}

static Status cpu_fill(Device *device, void *to, float value, size_t count)
{
    (void)device;
    float *x = to;
    for (size_t i = 0; i < count; i++) x[i] = value;
    return OK;
}

Status cpu_check(Device *device, OpCall *call)
{
    (void)device;
    for (int k = 0; k < call->in_count + call->out_count; k++) {
        const Tensor *t = k < call->in_count ? &call->in[k] : &call->out[k - call->in_count];
        if (t->data && t->dtype == DTYPE_F16)
            return FAIL(ERR_UNSUPPORTED, "%s '%s': the CPU computes in f32 or bf16, not %s", op_name(call->kind),
                        call->name, dtype_name(t->dtype));
    }
    return OK;
}

void cpu_discard(Device *device, OpCall *call)
{
    (void)device;
    free(call->state);
    call->state = NULL;
}

static Status cpu_wait(Device *device, StreamKind waiter, StreamKind on)
{
    (void)device, (void)waiter, (void)on;
    return OK;
}

static Status cpu_finish(Device *device, StreamKind stream)
{
    (void)device, (void)stream;
    return OK;
}

static void cpu_describe(Device *device, char *text, size_t bytes)
{
    char library[128];
    onednn_describe(library, sizeof library);
    int threads = cpu_threads(device);
    snprintf(text, bytes, "%s, %d thread%s", library, threads, threads == 1 ? "" : "s");
}

static const OpKernel *const kernels[OP_COUNT] = {
#define OP(KIND, name, ...) [OP_##KIND] = &cpu_##name,
#include "kernels/ops.def"
};

static Status cpu_computes(Dtype dtype)
{
    if (dtype == DTYPE_F32 || (dtype == DTYPE_BF16 && onednn_has_bf16())) return OK;
    if (dtype == DTYPE_BF16)
        return FAIL(ERR_UNSUPPORTED, "this processor has no bf16 arithmetic (AVX512-BF16 or AMX); omit --amp");
    return FAIL(ERR_UNSUPPORTED, "the CPU computes in f32 or bf16, not in %s", dtype_name(dtype));
}

const Backend cpu_backend = {
    .name = "cpu",
    .on_host = true,
    .open = cpu_open,
    .close = cpu_close,
    .memory = cpu_memory,
    .memory_closed = true,
    .alloc = cpu_alloc,
    .release = cpu_release,
    .upload = cpu_upload,
    .download = cpu_download,
    .fill = cpu_fill,
    .kernels = kernels,
    .storage = op_storage,
    .optimizer_apply = cpu_optimizer_apply,
    .square_sum = cpu_square_sum,
    .l2_term = cpu_l2_term,
    .average = cpu_average,
    .gate_extras = cpu_gate_extras,
    .gate_decide = cpu_gate_decide,
    .wait = cpu_wait,
    .finish = cpu_finish,
    .describe = cpu_describe,
    .computes = cpu_computes,
};
