/* Ops of a training step alone, for scripts/gpu_check.sh: what clock and power a kind of op has, and one launch of single ops for
 * Nsight Compute.
 *
 *   ops_driver [model=inception_v3] [n=256] [compute=bf16] [device=cuda] seconds=S kinds=KIND,...
 *       runs all ops of these kinds in turn for S seconds and prints {"kinds", "ops", "rounds", "ms"} (of one round) as JSON
 *   ops_driver ... launch=LAYER:KIND,...
 *       runs each of these ops once between the profiler's marks, behind an op of random numbers that separates them there, and prints
 *       its name on a line of its own
 *
 * The images are noise and the weights those of seed 0, so that no operand is all zeros. */
#include "inception/models/models.h"
#include "kernels/base/clock.h"
#include "tests/support/arguments.h"
#include "towers/replica/replica.h"

#ifdef TOWERS_HAVE_CUDA
#include <cuda_runtime_api.h>

/* The runtime's, declared in a header that toolkits made of wheels lack. */
cudaError_t cudaProfilerStart(void);
cudaError_t cudaProfilerStop(void);
#endif

enum { OPS_MAX = 32, COUNTER_WORDS = 4 };

typedef struct Driver {
    ReplicaConfig config;
    int32_t n, sizes[2]; /* config.train_n: n, and the 0 behind it */
    bool on_gpu;
    Replica *replica;
    Plan *plan; /* of the replica */
    uint8_t *pixels;
    int32_t *labels, *augment;
} Driver;

static Status arguments_read(int argc, char **argv, Driver *d)
{
    const Model *model;
    Dtype compute = DTYPE_F32;
    const char *wanted = argument(argc, argv, "compute", "bf16"), *device = argument(argc, argv, "device", "cuda");
    TRY(model_find(argument(argc, argv, "model", "inception_v3"), &model));
    TRY(backend_find(device, &d->config.backend, NULL, 0));
    d->on_gpu = strcmp(device, "cuda") == 0;
    while (compute <= DTYPE_F16 && strcmp(wanted, dtype_name(compute)) != 0) compute++;
    if (compute > DTYPE_F16) return FAIL(ERR_ARG, "compute=%s: wanted f32, f16 or bf16", wanted);
    d->n = (int32_t)number_argument(argc, argv, "n", 256);
    if (d->n < 1) return FAIL(ERR_ARG, "n=%d: wanted at least 1", (int)d->n);
    d->config.local = 1;
    d->config.device = (DeviceConfig){.threads = 2, DEVICE_USUAL};
    d->sizes[0] = d->n;
    d->config.train_n = d->sizes;
    d->config.program = (ProgramConfig){
        .model = model,
        .options = {.classes = model->classes,
                    .side = model->side,
                    .channels = model->channels,
                    .aux = model->aux_weight > 0,
                    .variant = ""},
        .data_channels = model->channels,
        .canvas = model->side,
        .compute = compute,
        .aux_weight = model->aux_weight,
        .fuse_siblings = true,
        .pool_behind_conv = true,
        .norm_into_pool = true,
    };
    return OK;
}

/* A whole step, so that every operand has its values. */
static Status step_run(Driver *d)
{
    const ModelOptions *o = &d->config.program.options;
    size_t bytes = (size_t)d->n * (size_t)o->side * (size_t)o->side * (size_t)o->channels;
    uint32_t noise = 1;
    TRY(replica_create(&d->config, &d->replica));
    Program *program = replica_program(d->replica, 0, d->n);
    d->plan = program->plan;
    d->pixels = malloc(bytes);
    d->labels = calloc((size_t)d->n, sizeof *d->labels);
    d->augment = calloc((size_t)d->n * IMAGE_RECORD, sizeof *d->augment);
    if (!d->pixels || !d->labels || !d->augment) return FAIL(ERR_MEMORY, "%d images", (int)d->n);
    for (size_t i = 0; i < bytes; i++) d->pixels[i] = (uint8_t)((noise = noise * 1664525u + 1013904223u) >> 24);
    for (int32_t i = 0; i < d->n; i++) d->labels[i] = i % o->classes;
    Batch batch = {.n = d->n,
                   .canvas = o->side,
                   .c = o->channels,
                   .pixels = d->pixels,
                   .labels = d->labels,
                   .augment = d->augment};
    TRY(replica_feed(d->replica, program, &batch, 0, &(RandomKey){0}, 1.0f / (float)d->n));
    TRY(plan_run(d->plan, 0, plan_op_count(d->plan)));
    return d->config.backend->finish(&d->replica->device, STREAM_COMPUTE);
}

/* ---- all ops of some kinds */

static bool is_among(const char *word, const char *list)
{
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += length)
        if ((at == list || at[-1] == ',') && (at[length] == ',' || !at[length])) return true;
    return false;
}

static Status round_run(Driver *d, const char *kinds, int *ops)
{
    *ops = 0;
    for (int i = 0; i < plan_op_count(d->plan); i++) {
        if (!is_among(op_name(plan_call(d->plan, i)->kind), kinds)) continue;
        TRY(plan_run(d->plan, i, i + 1));
        ++*ops;
    }
    return d->config.backend->finish(&d->replica->device, STREAM_COMPUTE);
}

static Status kinds_run(Driver *d, const char *kinds, double seconds)
{
    int ops, rounds = 0;
    TRY(round_run(d, kinds, &ops));
    if (!ops) return FAIL(ERR_ARG, "kinds=%s: no such op in a step of %s", kinds, d->config.program.model->name);
    int64_t begun = clock_ns(), now = begun;
    for (; (double)(now - begun) < seconds * 1e9; rounds++, now = clock_ns()) TRY(round_run(d, kinds, &ops));
    printf("{\"kinds\": \"%s\", \"ops\": %d, \"rounds\": %d, \"ms\": %.4f}\n", kinds, ops, rounds,
           rounds ? (double)(now - begun) * 1e-6 / rounds : 0);
    return OK;
}

/* ---- single launches between the profiler's marks */

static Status profiler_set(const Driver *d, bool on)
{
    if (!d->on_gpu) return OK;
#ifdef TOWERS_HAVE_CUDA
    if ((on ? cudaProfilerStart() : cudaProfilerStop()) != cudaSuccess)
        return FAIL(ERR_DEVICE, "no mark for a profiler");
#else
    (void)on;
#endif
    return OK;
}

static Status separator_run(Driver *d)
{
    Device *device = &d->replica->device;
    void *counter = NULL, *value = NULL;
    Status st = OK;
    TRY(device->backend->alloc(device, COUNTER_WORDS * sizeof(uint32_t), &counter));
    TRY_OUT(device->backend->alloc(device, sizeof(float), &value));
    OpCall call = {.kind = OP_RANDOM, .name = "separator", .in_count = 1, .out_count = 1};
    call.in[0] = (Tensor){counter, {1, COUNTER_WORDS, 1, 1}, DTYPE_I32, COUNTER_WORDS};
    call.out[0] = (Tensor){value, {1, 1, 1, 1}, DTYPE_F32, 1};
    TRY_OUT(device->backend->kernels[OP_RANDOM]->launch(device, &call));
    TRY_OUT(device->backend->finish(device, STREAM_COMPUTE));
out:
    device->backend->release(device, counter);
    if (value) device->backend->release(device, value);
    return st;
}

/* `name`: LAYER:KIND. */
static Status op_find(const Driver *d, const char *name, int *found)
{
    char text[256];
    for (int i = 0; i < plan_op_count(d->plan); i++) {
        const OpCall *call = plan_call(d->plan, i);
        snprintf(text, sizeof text, "%s:%s", call->name, op_name(call->kind));
        if (strcmp(text, name) == 0) return *found = i, OK;
    }
    return FAIL(ERR_ARG, "launch=%s: no such op in a step of %s", name, d->config.program.model->name);
}

static Status ops_launch(Driver *d, char *names)
{
    int op[OPS_MAX], count = 0;
    char *rest = names, *name[OPS_MAX];
    while (count < OPS_MAX && (name[count] = strsep(&rest, ","))) {
        TRY(op_find(d, name[count], &op[count]));
        count++;
    }
    for (int i = 0; i < count; i++) {
        TRY(profiler_set(d, true));
        TRY(separator_run(d));
        TRY(plan_run(d->plan, op[i], op[i] + 1));
        TRY(d->config.backend->finish(&d->replica->device, STREAM_COMPUTE));
        TRY(profiler_set(d, false));
        printf("launched %s\n", name[i]);
        fflush(stdout);
    }
    return OK;
}

static Status drive(int argc, char **argv, Driver *d)
{
    const char *kinds = argument(argc, argv, "kinds", NULL), *launch = argument(argc, argv, "launch", NULL);
    if (!kinds == !launch) return FAIL(ERR_ARG, "kinds=KIND,... or launch=LAYER:KIND,... is needed");
    TRY(arguments_read(argc, argv, d));
    TRY(step_run(d));
    if (kinds) return kinds_run(d, kinds, number_argument(argc, argv, "seconds", 3));
    char *names = strdup(launch);
    if (!names) return FAIL(ERR_MEMORY, "the names of ops");
    Status st = ops_launch(d, names);
    free(names);
    return st;
}

int main(int argc, char **argv)
{
    Driver d = {0};
    Status st = drive(argc, argv, &d);
    replica_destroy(d.replica);
    free(d.pixels);
    free(d.labels);
    free(d.augment);
    if (st != OK) status_print(stderr, st, 1);
    return status_exit_code(st);
}
