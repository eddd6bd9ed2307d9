/* Measures the rewrites of the op list one by one, and other options that change how a step is computed, for
 * scripts/measure/passes_table.sh. It prints a Markdown row for each, with and without it. Gradients are compared on a small
 * network, in the double-precision interpreter (rewrites only) and as computed by the kernels. Time is that of forward
 * and backward of the large network, the fastest of several alternating rounds; memory is that of its activations,
 * gradients and workspaces.
 *
 *   passes_driver [model=inception_v3] [side=N] [n=8] [threads=2] [rounds=5] [small=inception_mini] */

#include "inception/models/models.h"
#include "kernels/philox.h"
#include "tests/support/arguments.h"
#include "tests/support/interpret.h"
#include "towers/record/statistics.h"
#include "towers/replica/ledger.h"
#include "towers/replica/replica.h"
#include "towers/store/weights.h"

enum { SMALL_N = 64, DOUBLE_N = 2 };

typedef struct Setting {
    bool siblings, pool, share, recompute, winograd, bf16, winograd_bf16, winograd_f32;
} Setting;

typedef struct Pass {
    const char *what, *option;
    Setting without, with;
    bool rewrite; /* of the op list: the interpreter sees it */
} Pass;

#define KERNELS .winograd_bf16 = true, .winograd_f32 = true
#define REWRITES .siblings = true, .pool = true, .share = true
#define USUAL REWRITES, KERNELS

static const Pass passes[] = {
    {"sibling 1x1 convolutions as one", "--fuse-siblings", {.pool = true, .share = true, KERNELS}, {USUAL}, true},
    {"average pool behind its 1x1 convolution",
     "--pool-behind-conv",
     {.siblings = true, .share = true, KERNELS},
     {USUAL},
     true},
    {"shared storage: liveness, in place, slices",
     "--share-storage",
     {.siblings = true, .pool = true, KERNELS},
     {USUAL},
     false},
    {"activations recomputed", "--recompute", {USUAL}, {USUAL, .recompute = true}, true},
    {"Winograd's algorithms of six points", "--winograd", {USUAL}, {USUAL, .winograd = true}, false},
    {"f32 without Winograd", "--no-winograd-f32", {USUAL}, {REWRITES, .winograd_bf16 = true}, false},
    {"bf16 activations", "--amp", {USUAL}, {USUAL, .bf16 = true}, false},
    {"bf16 without Winograd",
     "--no-winograd-bf16",
     {USUAL, .bf16 = true},
     {REWRITES, .winograd_f32 = true, .bf16 = true},
     false},
};
enum { PASSES = sizeof passes / sizeof *passes };

/* A network and a batch of noise. */
typedef struct Task {
    const Model *model;
    int32_t side, n;
    Batch batch; /* owns pixels, labels, augment */
} Task;

typedef struct Driver {
    Task large, small;
    const Backend *backend;
    int threads, rounds;
} Driver;

/* One way to compute the step. */
typedef struct Side {
    Replica *replica;
    WeightMap map;
    WeightList grads;
    double loss, ms;
} Side;

static ProgramConfig program_of(const Model *model, int32_t side, const Setting *setting)
{
    return (ProgramConfig){
        .model = model,
        .options = {.classes = model->classes,
                    .side = side,
                    .channels = model->channels,
                    .aux = model->aux_weight > 0 && side >= model->aux_min_side,
                    .variant = ""},
        .data_channels = model->channels,
        .canvas = side,
        .aux_weight = model->aux_weight,
        .compute = setting->bf16 ? DTYPE_BF16 : DTYPE_F32,
        .training = true,
        .fuse_siblings = setting->siblings,
        .pool_behind_conv = setting->pool,
        .recompute = setting->recompute,
        .separate_storage = !setting->share,
    };
}

static double difference(const double *a, const double *b, int64_t count)
{
    double apart = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        apart += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
    }
    return size > 0 ? sqrt(apart / size) : sqrt(apart);
}

/* ---- in double precision */

/* Numbers that depend on the name alone, in the usual range of each kind of parameter. */
static void values_fill(Interpreter *it, const Program *program)
{
    const Graph *g = program->graph;
    for (int32_t id = 1; id <= graph_value_count(g); id++) {
        const ValueInfo *info = graph_value(g, (Value){id});
        double *data = interpreter_data(it, (Value){id});
        int64_t count = shape_count(info->shape);
        uint64_t seed = 5381;
        for (const char *c = info->name; *c; c++) seed = seed * 33 + (unsigned char)*c;
        if (info->role == ROLE_PARAM) fill_uniform(data, count, seed, -0.2, 0.3);
        if (id == program->pixels.id)
            for (int64_t i = 0; i < count; i++) data[i] = philox(1, (uint32_t)i, 0, 0, 0).v[0] % 256;
        if (id == program->labels.id)
            for (int64_t i = 0; i < count; i++) data[i] = (double)i;
        if (id == program->dloss.id) data[0] = 1.0 / DOUBLE_N;
    }
}

static Status interpret(const Driver *d, const Setting *setting, Program *program, Interpreter *it)
{
    ProgramConfig config = program_of(d->small.model, d->small.side, setting);
    TRY(program_graph(&config, DOUBLE_N, program));
    *it = interpreter_create(program->graph);
    values_fill(it, program);
    interpreter_run(it);
    return OK;
}

static Status double_compare(const Driver *d, const Pass *pass, double *worst)
{
    Program program[2] = {0};
    Interpreter it[2];
    *worst = 0;
    TRY(interpret(d, &pass->without, &program[0], &it[0]));
    TRY(interpret(d, &pass->with, &program[1], &it[1]));
    for (int32_t id = 1; id <= graph_value_count(program[0].graph); id++) {
        const ValueInfo *info = graph_value(program[0].graph, (Value){id});
        if (info->role != ROLE_PARAM) continue;
        double *without = interpreter_gradient(&it[0], (Value){id}),
               *with = interpreter_gradient(&it[1], graph_find(program[1].graph, info->name));
        if (!with || !without) return FAIL(ERR_INTERNAL, "%s has no gradient", info->name);
        *worst = fmax(*worst, difference(with, without, shape_count(info->shape)));
    }
    for (int k = 0; k < 2; k++) {
        interpreter_destroy(&it[k]);
        program_destroy(&program[k]);
    }
    return OK;
}

/* ---- as it is computed */

static Status side_open(const Driver *d, const Task *task, const Setting *setting, Side *side)
{
    ReplicaConfig config = {
        .backend = d->backend,
        .device = {.threads = d->threads,
                   .winograd = setting->winograd,
                   .winograd_f32 = setting->winograd_f32,
                   .winograd_bf16 = setting->winograd_bf16},
        .program = program_of(task->model, task->side, setting),
        .local = 1,
        .train_n = (const int32_t[]){task->n, 0},
        .seed = 1,
    };
    *side = (Side){.ms = 1e30};
    TRY(replica_create(&config, &side->replica));
    side->map = weight_map(side->replica->layout);
    return OK;
}

static void side_close(Side *side)
{
    weight_list_clear(&side->grads);
    replica_destroy(side->replica);
}

static Status side_step(const Driver *d, const Task *task, Side *side)
{
    Program *program = &side->replica->train[0];
    LossRead read;
    TRY(replica_feed(side->replica, program, &task->batch, 0, &(RandomKey){.seed = 1}, 1.0f / (float)task->n));
    int64_t start = clock_ns();
    TRY(plan_run(program->plan, 0, plan_op_count(program->plan)));
    TRY(d->backend->finish(&side->replica->device, STREAM_COMPUTE));
    double ms = (double)(clock_ns() - start) * 1e-6;
    if (ms < side->ms) side->ms = ms;
    TRY(replica_read_loss(side->replica, program, &read));
    side->loss = read.sum / task->n;
    return OK;
}

/* Relative differences of the gradients, tensor by tensor: the median and the largest. */
static Status gradients_compare(Side *without, Side *with, double *median, double *worst)
{
    const float *arena[2] = {without->replica->arena[ARENA_GRAD], with->replica->arena[ARENA_GRAD]};
    TRY(weights_pack(&without->map, "", arena[0], &without->grads));
    TRY(weights_pack(&with->map, "", arena[1], &with->grads));
    int count = without->grads.count;
    double *apart = calloc((size_t)count + 1, sizeof *apart);
    if (!apart) return FAIL(ERR_MEMORY, "%d gradients", count);
    for (int i = 0; i < count; i++) {
        const StTensor *a = &without->grads.tensor[i], *b = a;
        for (int k = 0; k < with->grads.count; k++)
            if (!strcmp(with->grads.tensor[k].name, a->name)) b = &with->grads.tensor[k];
        int64_t elements = 1;
        for (int k = 0; k < a->rank; k++) elements *= a->dims[k];
        double sum = 0, size = 0;
        for (int64_t e = 0; e < elements; e++) {
            double x = ((const float *)a->data)[e], y = ((const float *)b->data)[e];
            sum += (x - y) * (x - y);
            size += x * x;
        }
        apart[i] = size > 0 ? sqrt(sum / size) : sqrt(sum);
    }
    series_sort(apart, count);
    *median = apart[count / 2];
    *worst = apart[count - 1];
    free(apart);
    return OK;
}

static double scratch_mib(const Side *side)
{
    return (double)plan_bytes(side->replica->train[0].plan, ARENA_SCRATCH) / (1 << 20);
}

/* Both ways, in turn: the fastest of `rounds`, after one that warms up. */
static Status sides_run(const Driver *d, const Task *task, const Pass *pass, int rounds, Side *without, Side *with)
{
    TRY(side_open(d, task, &pass->without, without));
    TRY(side_open(d, task, &pass->with, with));
    for (int round = 0; round <= rounds; round++) {
        if (round == 1) without->ms = with->ms = 1e30;
        TRY(side_step(d, task, without));
        TRY(side_step(d, task, with));
    }
    return OK;
}

static Status gradients_print(const Driver *d, const Pass *pass)
{
    Status st = OK;
    Side without = {0}, with = {0};
    double median = 0, worst = 0, in_double = 0;
    if (pass->rewrite) TRY(double_compare(d, pass, &in_double));
    TRY_OUT(sides_run(d, &d->small, pass, 0, &without, &with));
    TRY_OUT(gradients_compare(&without, &with, &median, &worst));
    printf(pass->rewrite ? "%.0e | " : "| ", in_double);
    printf("%.0e, %.0e | ", median, worst);
    if (in_double > 1e-9) st = FAIL(ERR_NUMERIC, "%s: gradients differ by %g in double", pass->what, in_double);
out:
    side_close(&without);
    side_close(&with);
    return st;
}

static Status pass_row(const Driver *d, const Pass *pass)
{
    Status st = OK;
    Side without = {0}, with = {0};
    printf("| %s | `%s` | ", pass->what, pass->option);
    TRY(gradients_print(d, pass));
    TRY_OUT(sides_run(d, &d->large, pass, d->rounds, &without, &with));
    printf("%.0e | %.0f | %.0f | %+.1f %% | %.0f | %.0f |\n", fabs(with.loss / without.loss - 1), without.ms, with.ms,
           100 * (with.ms / without.ms - 1), scratch_mib(&without), scratch_mib(&with));
    fflush(stdout);
out:
    side_close(&without);
    side_close(&with);
    return st;
}

/* ---- life */

static Status task_make(const char *name, int32_t side, int32_t n, Task *task)
{
    TRY(model_find(name, &task->model));
    task->side = side ? side : task->model->side;
    task->n = n;
    int64_t count = (int64_t)n * task->side * task->side * task->model->channels;
    uint8_t *pixels = malloc((size_t)count);
    int32_t *labels = calloc((size_t)n, sizeof *labels), *augment = calloc((size_t)n * IMAGE_RECORD, sizeof *augment);
    task->batch = (Batch){.n = n,
                          .canvas = task->side,
                          .c = task->model->channels,
                          .pixels = pixels,
                          .labels = labels,
                          .augment = augment};
    if (!pixels || !labels || !augment) return FAIL(ERR_MEMORY, "a batch of %d images", n);
    for (int64_t i = 0; i < count; i++) pixels[i] = (uint8_t)(philox(2, (uint32_t)(i / 4), 0, 0, 0).v[i % 4] >> 24);
    for (int32_t i = 0; i < n; i++) labels[i] = i % task->model->classes;
    return OK;
}

static void task_clear(Task *task)
{
    free((void *)task->batch.pixels);
    free((void *)task->batch.labels);
    free((void *)task->batch.augment);
}

static Status drive(int argc, char **argv, Driver *d)
{
    TRY(task_make(argument(argc, argv, "model", "inception_v3"), atoi(argument(argc, argv, "side", "0")),
                  atoi(argument(argc, argv, "n", "8")), &d->large));
    TRY(task_make(argument(argc, argv, "small", "inception_mini"), 0, SMALL_N, &d->small));
    TRY(backend_find("cpu", &d->backend, NULL, 0));
    d->threads = atoi(argument(argc, argv, "threads", "2"));
    d->rounds = atoi(argument(argc, argv, "rounds", "5"));
    for (int i = 0; i < PASSES; i++) {
        if (passes[i].with.bf16 && d->backend->computes(DTYPE_BF16) != OK)
            printf("| %s | `%s` | | this processor has no bf16 arithmetic | | | | | |\n", passes[i].what,
                   passes[i].option);
        else
            TRY(pass_row(d, &passes[i]));
    }
    return OK;
}

int main(int argc, char **argv)
{
    Driver d = {0};
    Status st = drive(argc, argv, &d);
    if (st != OK) status_print(stderr, st, 1);
    task_clear(&d.large);
    task_clear(&d.small);
    return status_exit_code(st);
}
