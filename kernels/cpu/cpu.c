/* The CPU as a device: its memory and its backend.
 *
 * There is one stream: everything runs when it is launched, so `wait` and `finish` do nothing. */
#include "kernels/cpu/cpu.h"

#include <sys/mman.h>

#include "kernels/cpu/onednn.h"
#include "kernels/cpu/team.h"

enum { HUGE_PAGE = 2 << 20, MAX_THREADS = 1024 };

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
    if (posix_memalign(&memory, large ? HUGE_PAGE : CPU_ALIGNMENT, bytes ? bytes : 1) != 0)
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
    cpu_isa_describe(library, sizeof library);
    int threads = cpu_threads(device);
    snprintf(text, bytes, "%s, %d thread%s", library, threads, threads == 1 ? "" : "s");
}

static Status cpu_computes(Dtype dtype)
{
    if (dtype == DTYPE_F32 || (dtype == DTYPE_BF16 && cpu_isa() >= CPU_AVX512_BF16)) return OK;
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
    .kernels = cpu_kernels,
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
