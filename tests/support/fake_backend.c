/* See fake_backend.h. */
#include "tests/support/fake_backend.h"

enum { FAKE_ALIGN = 64 };

static FakeBackend *fake_of(Device *device)
{
    return device->impl;
}

static void record(Device *device, FakeEvent event)
{
    FakeBackend *fake = fake_of(device);
    if (fake->event_count < FAKE_MAX_EVENTS) fake->event[fake->event_count] = event;
    fake->event_count++;
}

static void record_call(Device *device, FakeEventKind kind, const OpCall *call)
{
    FakeEvent event = {.kind = kind, .op = call->kind};
    snprintf(event.name, sizeof event.name, "%s", call->name ? call->name : "");
    record(device, event);
}

static FakeBackend *latest; /* a configuration does not say which one is meant */

static Status open_device(const DeviceConfig *config, Device *device)
{
    fake_open(latest, device);
    device->config = *config;
    return OK;
}

static void close_device(Device *device)
{
    device->impl = NULL;
}

static Status alloc_memory(Device *device, size_t bytes, void **made)
{
    record(device, (FakeEvent){.kind = FAKE_ALLOC, .bytes = bytes});
    size_t rounded = (bytes + FAKE_ALIGN) / FAKE_ALIGN * FAKE_ALIGN;
    void *memory = aligned_alloc(FAKE_ALIGN, rounded);
    if (!memory) return FAIL(ERR_MEMORY, "%zu bytes", bytes);
    memset(memory, 0, rounded);
    *made = memory;
    return OK;
}

static void release_memory(Device *device, void *memory)
{
    record(device, (FakeEvent){.kind = FAKE_RELEASE});
    free(memory);
}

static Status upload(Device *device, void *to, const void *host, size_t bytes)
{
    record(device, (FakeEvent){.kind = FAKE_UPLOAD, .bytes = bytes});
    memcpy(to, host, bytes);
    return OK;
}

static Status download(Device *device, void *host, const void *from, size_t bytes)
{
    record(device, (FakeEvent){.kind = FAKE_DOWNLOAD, .bytes = bytes});
    memcpy(host, from, bytes);
    return OK;
}

static Status fill(Device *device, void *to, float value, size_t count)
{
    record(device, (FakeEvent){.kind = FAKE_FILL, .bytes = count});
    for (size_t i = 0; i < count; i++) ((float *)to)[i] = value;
    return OK;
}

static Status prepare(Device *device, OpCall *call)
{
    FakeBackend *fake = fake_of(device);
    record_call(device, FAKE_PREPARE, call);
    if (call->kind == fake->refused) return FAIL(ERR_UNSUPPORTED, "told to refuse");
    call->workspace_bytes = fake->workspace_bytes;
    call->state = malloc(1);
    if (!call->state) return FAIL(ERR_MEMORY, "state");
    fake->states++;
    return OK;
}

static Status launch(Device *device, OpCall *call)
{
    FakeBackend *fake = fake_of(device);
    record_call(device, FAKE_LAUNCH, call);
    if (fake->on_launch) fake->on_launch(fake->context, call);
    return OK;
}

static void discard(Device *device, OpCall *call)
{
    record_call(device, FAKE_DISCARD, call);
    fake_of(device)->states--;
    free(call->state);
}

static Status apply_optimizer(Device *device, const OptimizerUpdate *update)
{
    (void)update;
    record(device, (FakeEvent){.kind = FAKE_OPTIMIZER});
    return OK;
}

static Status square_sum(Device *device, const float *x, size_t count, double *sum_of_squares)
{
    record(device, (FakeEvent){.kind = FAKE_SQUARE_SUM, .bytes = count});
    *sum_of_squares = 0;
    for (size_t i = 0; i < count; i++) *sum_of_squares += (double)x[i] * x[i];
    return OK;
}

static Status average(Device *device, float *running, const float *batch, const float *correct, const float *decay,
                      size_t count, const float *commit)
{
    (void)running, (void)batch, (void)correct, (void)decay, (void)commit;
    record(device, (FakeEvent){.kind = FAKE_AVERAGE, .bytes = count});
    return OK;
}

static Status gate_extras(Device *device, const GateExtrasCall *call)
{
    record(device, (FakeEvent){.kind = FAKE_GATE_EXTRAS});
    gate_extras_write(call);
    return OK;
}

static Status gate_decide(Device *device, const GateDecideCall *call)
{
    record(device, (FakeEvent){.kind = FAKE_GATE_DECIDE});
    gate_rules_apply(call);
    return OK;
}

static Status wait(Device *device, StreamKind waiter, StreamKind on)
{
    record(device, (FakeEvent){.kind = FAKE_WAIT, .stream = waiter, .on = on});
    return OK;
}

static Status finish(Device *device, StreamKind stream)
{
    record(device, (FakeEvent){.kind = FAKE_FINISH, .stream = stream});
    return OK;
}

static void describe(Device *device, char *text, size_t bytes)
{
    (void)device;
    snprintf(text, bytes, "fake");
}

FakeBackend *fake_create(uint32_t strided_in, uint32_t strided_out, uint32_t in_place)
{
    FakeBackend *fake = calloc(1, sizeof *fake);
    if (!fake) return NULL;
    for (int kind = OP_NONE + 1; kind < OP_COUNT; kind++) {
        fake->kernel[kind] = (OpKernel){.prepare = prepare, .launch = launch, .discard = discard};
        fake->storage[kind] = (OpStorage){strided_in, strided_out, in_place};
        fake->table[kind] = &fake->kernel[kind];
    }
    fake->backend = (Backend){.name = "fake",
                              .open = open_device,
                              .close = close_device,
                              .alloc = alloc_memory,
                              .release = release_memory,
                              .upload = upload,
                              .download = download,
                              .fill = fill,
                              .kernels = fake->table,
                              .storage = fake->storage,
                              .optimizer_apply = apply_optimizer,
                              .square_sum = square_sum,
                              .average = average,
                              .gate_extras = gate_extras,
                              .gate_decide = gate_decide,
                              .wait = wait,
                              .finish = finish,
                              .describe = describe};
    latest = fake;
    return fake;
}

static Status report_memory(Device *device, size_t *free_bytes, size_t *total)
{
    (void)device; /* may be closed */
    *free_bytes = latest->free_bytes;
    *total = 2 * *free_bytes;
    return OK;
}

void fake_reports_memory(FakeBackend *fake)
{
    fake->backend.memory = report_memory;
}

void fake_destroy(FakeBackend *fake)
{
    free(fake);
}

void fake_open(FakeBackend *fake, Device *device)
{
    *device = (Device){.backend = &fake->backend, .config = {.threads = 1}, .impl = fake};
}

int fake_count(const FakeBackend *fake, FakeEventKind kind, OpKind op)
{
    int count = 0;
    for (int i = 0; i < fake->event_count && i < FAKE_MAX_EVENTS; i++)
        count += fake->event[i].kind == kind && (op == OP_NONE || fake->event[i].op == op);
    return count;
}
