/* Plans for every convolution of every model, requested from cuDNN for described GPUs; no GPU is needed or used.
 *
 * The convolutions are those of a training step (siblings joined, pools moved). One that loses a plan it had fails the
 * test. TOWERS_PLANS_TABLE=FILE writes the results as a table
 * (scripts/measure/cudnn_plans.sh makes docs/results/cudnn-plans.md from it); a step of every model is asked for then, else
 * of the smallest. */

#include "tests/support/unit.h"

#ifdef TOWERS_HAVE_CUDA

#include "inception/models/models.h"
#include "kernels/cuda/conv/task.h"
#include "tests/gpu/cudnn_refusals.h"
#include "tests/support/described_gpu.h"
#include "tests/support/gpu_descriptions.h"

#include <dlfcn.h>

extern const Backend cuda_backend;

enum { ROWS_MAX = 2048, TASKS_MAX = 512, DEVICES = 3, ALL_DEVICES = 5, KINDS = 3 };

static const char *const kinds[KINDS] = {
    [CUDNN_CONV_FORWARD] = "forward", [CUDNN_CONV_DATA] = "data", [CUDNN_CONV_FILTER] = "filter"};

static const struct {
    const char *name, *json;
} devices[ALL_DEVICES] = {
    {"H200", GPU_H200}, {"A100", GPU_A100}, {"B200", GPU_B200}, {"H100", GPU_H100}, {"L40S", GPU_L40S}};

/* One distinct convolution. */
typedef struct Row {
    char name[96];  /* the first layer that has it */
    CudnnSpec spec; /* of any kind */
    int layers;     /* convolutions of the model that are like this */
    bool first;     /* of the image: it needs no gradient of its input */
    bool found[KINDS];
} Row;

typedef struct Rows {
    Row *row;
    int count, layers;
} Rows;

/* ---- convolutions of a model */

/* As the task asks for it. */
static void spec_fit(CudnnSpec *s, Dtype dtype)
{
    int32_t top, left;
    conv_fit(dtype, &s->x, &s->w, &s->y, &s->window, &top, &left);
}

static bool row_same(const CudnnSpec *a, const CudnnSpec *b)
{
    return shape_equal(a->x, b->x) && shape_equal(a->w, b->w) && shape_equal(a->y, b->y) &&
           memcmp(&a->window, &b->window, sizeof a->window) == 0;
}

static void row_add(Rows *rows, const char *name, const CudnnSpec *spec, bool first)
{
    rows->layers++;
    for (int i = 0; i < rows->count; i++)
        if (rows->row[i].first == first && row_same(&rows->row[i].spec, spec)) {
            rows->row[i].layers++;
            return;
        }
    assert_in_range(rows->count, 0, ROWS_MAX - 1);
    Row *row = &rows->row[rows->count++];
    *row = (Row){.spec = *spec, .layers = 1, .first = first};
    snprintf(row->name, sizeof row->name, "%s", name);
}

static void rows_collect(const Program *p, Rows *rows)
{
    for (int i = 0; i < p->forward_end; i++) {
        const Op *op = graph_op_at(p->graph, i);
        if (op->kind != OP_CONV) continue;
        int32_t maker = graph_value(p->graph, op->in[0])->op;
        bool first = maker < 0 || graph_op_at(p->graph, maker)->kind == OP_IMAGE;
        CudnnSpec s = {.x = graph_shape(p->graph, op->in[0]),
                       .w = graph_shape(p->graph, op->in[1]),
                       .y = graph_shape(p->graph, op->out[0]),
                       .window = op->attr.conv.window};
        spec_fit(&s, DTYPE_F16); /* bf16 is padded alike */
        row_add(rows, op->name, &s, first);
    }
}

static void rows_of_model(const Model *model, int32_t n, bool rewrite, Rows *rows)
{
    Device device;
    Program program;
    Layout *layout;
    FakeBackend *fake = described_gpu(&device);
    if (described_step(model, n, rewrite, DTYPE_F16, &device, &layout, &program) != OK)
        fail_msg("%s", status_message());
    rows_collect(&program, rows);
    program_destroy(&program);
    layout_destroy(layout);
    fake_destroy(fake);
}

/* ---- plans */

static bool kind_applies(const Row *row, CudnnConv kind)
{
    return !(row->first && kind == CUDNN_CONV_DATA);
}

static bool plan_exists(CudnnLibrary *library, const CudnnSpec *spec, const CudnnRules *rules)
{
    CudnnGraph *graph = NULL;
    CudnnPlan *plan = NULL;
    int found = 0;
    bool made = cudnn_graph_create(library, spec, &graph) == OK && cudnn_plans(graph, rules, 1, &plan, &found) == OK;
    cudnn_plan_destroy(plan);
    cudnn_graph_destroy(graph);
    return made;
}

static CudnnLibrary *library_of(int device)
{
    CudnnLibrary *library;
    char name[32];
    if (cudnn_open_described(devices[device].json, &library) != OK) fail_msg("%s", status_message());
    snprintf(name, sizeof name, "libnvrtc.so.%d", CUDART_VERSION / 1000);
    bool is_held = dlopen(name, RTLD_LAZY | RTLD_NOLOAD); /* cuDNN need not load it for each plan */
    assert_true(is_held || !dlopen(name, RTLD_LAZY));
    return library;
}

/* Convolutions (layers, not rows) to which a kind applies, and those that have a plan. */
static void rows_count(const Rows *rows, CudnnConv kind, int *wanted, int *found)
{
    *wanted = *found = 0;
    for (int i = 0; i < rows->count; i++) {
        if (!kind_applies(&rows->row[i], kind)) continue;
        *wanted += rows->row[i].layers;
        *found += rows->row[i].found[kind] ? rows->row[i].layers : 0;
    }
}

static void rows_ask(CudnnLibrary *library, Dtype dtype, Rows *rows)
{
    const CudnnRules rules = {.tensor_cores = true, .no_runtime_compile = true};
    for (int i = 0; i < rows->count; i++) {
        Row *row = &rows->row[i];
        row->spec.dtype = dtype;
        for (CudnnConv kind = 0; kind <= CUDNN_CONV_FILTER; kind++) {
            row->spec.kind = kind;
            row->found[kind] = kind_applies(row, kind) && plan_exists(library, &row->spec, &rules);
        }
    }
}

/* ---- the table */

static FILE *table_open(const char *mode)
{
    const char *path = getenv("TOWERS_PLANS_TABLE");
    return path ? fopen(path, mode) : NULL;
}

static void table_row(const char *model, int32_t n, const char *device, Dtype dtype, const Rows *rows)
{
    FILE *table = table_open("a");
    printf("  %-20s %4d %s %s %3d:", model, n, device, dtype_name(dtype), rows->layers);
    if (table) fprintf(table, "| %s | %d | %s | %s | %d |", model, n, device, dtype_name(dtype), rows->layers);
    for (CudnnConv kind = 0; kind <= CUDNN_CONV_FILTER; kind++) {
        int wanted, found;
        rows_count(rows, kind, &wanted, &found);
        printf(" %d/%d", found, wanted);
        if (table) fprintf(table, wanted == found ? " %d |" : " **%d** of %d |", found, wanted);
    }
    printf("\n");
    if (table) fputc('\n', table);
    if (table) fclose(table);
}

/* ---- what must be there */

static int rows_check(const char *model, int device, Dtype dtype, const Rows *rows)
{
    int lost = 0;
    for (int i = 0; i < rows->count; i++)
        for (CudnnConv kind = 0; kind <= CUDNN_CONV_FILTER; kind++) {
            const Row *row = &rows->row[i];
            if (row->found[kind] || !kind_applies(row, kind)) continue;
            printf("  lost: %s on %s in %s: no plan '%s' for '%s' (x %s, w %s)\n", model, devices[device].name,
                   dtype_name(dtype), kinds[kind], row->name, shape_text(row->spec.x), shape_text(row->spec.w));
            lost++;
        }
    return lost;
}

static int model_check(const Model *model, int32_t n, bool rewrite, int device_count)
{
    static Row storage[ROWS_MAX];
    static const Dtype dtypes[] = {DTYPE_F16, DTYPE_BF16};
    Rows rows = {storage, 0, 0};
    int lost = 0;
    rows_of_model(model, n, rewrite, &rows);
    for (int d = 0; d < device_count; d++) {
        CudnnLibrary *library = library_of(d);
        char name[64];
        snprintf(name, sizeof name, "%s%s", model->name, rewrite ? "" : ", as written");
        for (int k = 0; k < 2; k++) {
            rows_ask(library, dtypes[k], &rows);
            table_row(name, n, devices[d].name, dtypes[k], &rows);
            lost += rows_check(model->name, d, dtypes[k], &rows);
        }
        cudnn_close(library);
    }
    return lost;
}

static const Model *inception_v3(void)
{
    const Model *model;
    assert_int_equal(model_find("inception_v3", &model), OK);
    return model;
}

TEST(test_inception_v3_as_written)
{
    assert_int_equal(model_check(inception_v3(), 256, false, 1), 0);
}

TEST(test_inception_v3_on_all_devices)
{
    assert_int_equal(model_check(inception_v3(), 256, true, DEVICES), 0);
}

TEST(test_small_batch)
{
    assert_int_equal(model_check(inception_v3(), 32, true, 1), 0);
}

TEST(test_other_models)
{
    int lost = 0;
    for (const Model *const *model = all_models; *model; model++) /* those with phases compute in f32 only */
        if (*model != inception_v3() && !(*model)->phases) lost += model_check(*model, 256, true, 1);
    assert_int_equal(lost, 0);
}

/* In evaluations every convolution ends with a bias and a ReLU, by a compiled engine. */
TEST(test_convolutions_end_with_a_bias)
{
    static Row storage[ROWS_MAX];
    const CudnnRules rules = {.tensor_cores = true, .no_runtime_compile = true, .workspace_max = (size_t)512 << 20};
    Rows rows = {storage, 0, 0};
    rows_of_model(inception_v3(), 256, true, &rows);
    for (int d = 0; d < DEVICES; d++) {
        CudnnLibrary *library = library_of(d);
        for (int i = 0; i < rows.count; i++) {
            CudnnSpec spec = rows.row[i].spec;
            spec.kind = CUDNN_CONV_FORWARD;
            spec.dtype = DTYPE_BF16;
            spec.bias = spec.relu = true;
            if (!plan_exists(library, &spec, &rules))
                fail_msg("no plan on %s ends with a bias: '%s'", devices[d].name, rows.row[i].name);
        }
        cudnn_close(library);
    }
}

/* ---- does every operation of a step find a plan? */

static Tensor flat(const Tensor *t)
{
    return (Tensor){.shape = {t->shape.n, t->shape.c * t->shape.h * t->shape.w, 1, 1}, .dtype = t->dtype};
}

/* As conv.c asks. False for ops of another kind. */
static bool spec_of_call(const OpCall *call, CudnnSpec *s)
{
    const Tensor *in = call->in, *out = call->out;
    Tensor x = in[0], w = in[1], y = out[0];
    bool dense = false;
    *s = (CudnnSpec){.kind = CUDNN_CONV_FORWARD};
    switch (call->kind) {
    case OP_DENSE_DX: dense = true; /* fall through */
    case OP_CONV_DX:
        s->kind = CUDNN_CONV_DATA;
        x = out[0], y = in[0];
        s->accumulate = call->kind == OP_CONV_DX && call->in_count > 2 && in[2].data;
        break;
    case OP_DENSE_DW: dense = true; /* fall through */
    case OP_CONV_DW:
        s->kind = CUDNN_CONV_FILTER;
        w = out[0], y = in[1];
        break;
    case OP_DENSE: dense = true; /* fall through */
    case OP_CONV: break;
    default: return false;
    }
    s->window = dense ? (Window){.kh = 1, .kw = 1, .stride_h = 1, .stride_w = 1} : call->attr.conv.window;
    s->dtype = x.dtype != DTYPE_F32 ? x.dtype : y.dtype;
    if (dense) x = flat(&x), w = flat(&w);
    s->x = x.shape, s->w = w.shape, s->y = y.shape;
    spec_fit(s, s->dtype);
    return true;
}

static bool spec_same(const CudnnSpec *a, const CudnnSpec *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->accumulate == b->accumulate && row_same(a, b);
}

typedef struct Start {
    int ops, slow, without; /* slow: by engines that are compiled at the start, or with a large workspace */
} Start;

/* By the rules of task.c: compiled engines with a bounded workspace first, then any. */
static int spec_ask(CudnnLibrary *library, const OpCall *call, const CudnnSpec *spec, bool tensor_cores)
{
    const CudnnRules first = {
        .tensor_cores = tensor_cores, .no_runtime_compile = true, .workspace_max = (size_t)512 << 20};
    const CudnnRules any = {.tensor_cores = tensor_cores};
    int answer = plan_exists(library, spec, &first) ? 2 : plan_exists(library, spec, &any) ? 1 : 0;
    if (answer < 2)
        printf("  %s %s '%s' (%s), x %s, w %s\n", answer ? "slow start:" : "no plan:", op_name(call->kind), call->name,
               dtype_name(spec->dtype), shape_text(spec->x), shape_text(spec->w));
    return answer;
}

/* cuBLASLt, which takes dense layers and convolutions by a pixel, describes no device: cuDNN is asked for these, too. */
static Start start_of(const Model *model, int gpu, Dtype dtype, bool tf32)
{
    static CudnnSpec specs[TASKS_MAX];
    static int answers[TASKS_MAX];
    Device device;
    Program program;
    Layout *layout;
    Start start = {0};
    int count = 0;
    FakeBackend *fake = described_gpu(&device);
    CudnnLibrary *library = library_of(gpu);
    if (described_step(model, 256, true, dtype, &device, &layout, &program) != OK) fail_msg("%s", status_message());
    for (int i = 0; i < plan_op_count(program.plan); i++) {
        const OpCall *call = plan_call(program.plan, i);
        if (!spec_of_call(call, &specs[count])) continue;
        int seen = 0;
        while (!spec_same(&specs[seen], &specs[count])) seen++;
        if (seen == count) {
            answers[count] = spec_ask(library, call, &specs[count], tf32 || dtype != DTYPE_F32);
            count++;
            assert_in_range(count, 0, TASKS_MAX - 1);
        }
        start.ops++;
        start.slow += answers[seen] == 1;
        start.without += answers[seen] == 0;
    }
    program_destroy(&program);
    layout_destroy(layout);
    fake_destroy(fake);
    cudnn_close(library);
    return start;
}

static void start_write(FILE *table, const Start *s)
{
    fprintf(table, s->without ? " | **%d without**" : s->slow ? " | %d slow" : " | all", s->without + s->slow);
}

static int model_starts(const Model *model)
{
    static const int order[ALL_DEVICES] = {1, 3, 0, 2, 4};
    static const struct {
        const char *name;
        Dtype dtype;
        bool tf32;
    } types[] = {
        {"f32", DTYPE_F32, false}, {"TF32", DTYPE_F32, true}, {"f16", DTYPE_F16, false}, {"bf16", DTYPE_BF16, false}};
    int without = 0;
    FILE *table = table_open("a");
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        if (table) fprintf(table, "start| %s | %s", model->name, types[t].name);
        for (int d = 0; d < ALL_DEVICES; d++) {
            printf("  %s in %s on %s\n", model->name, types[t].name, devices[order[d]].name);
            Start start = start_of(model, order[d], types[t].dtype, types[t].tf32);
            without += start.without;
            if (table && d == 0) fprintf(table, " | %d", start.ops);
            if (table) start_write(table, &start);
        }
        if (table) fprintf(table, " |\n");
    }
    if (table) fclose(table);
    return without;
}

/* A step of a model starts where every operation has a plan. The table has all models, a test the smallest. */
TEST(test_steps_start)
{
    static const char *const names[] = {"inception_mini", "inception_v3",        "inception_v4",
                                        "googlenet",      "inception_resnet_v2", "resnet50"};
    for (size_t i = 0; i < (getenv("TOWERS_PLANS_TABLE") ? sizeof names / sizeof *names : 1); i++) {
        const Model *model;
        assert_int_equal(model_find(names[i], &model), OK);
        assert_int_equal(model_starts(model), 0);
    }
}

/* A plan can be named and made again from its name: what the cache of plans relies on. */
TEST(test_plan_by_name)
{
    const CudnnSpec spec = {.x = {32, 64, 35, 35},
                            .w = {96, 64, 3, 3},
                            .y = {32, 96, 35, 35},
                            .dtype = DTYPE_F16,
                            .window = {3, 3, 1, 1, 1, 1, false}};
    const CudnnRules rules = {.tensor_cores = true, .no_runtime_compile = true};
    CudnnLibrary *library = library_of(0);
    CudnnPlan *plans[8], *again;
    CudnnGraph *graph;
    int found;
    assert_int_equal(cudnn_graph_create(library, &spec, &graph), OK);
    assert_int_equal(cudnn_plans(graph, &rules, 8, plans, &found), OK);
    assert_int_equal(found, 8);
    for (int i = 0; i < found; i++) {
        if (cudnn_plan_named(graph, &rules, cudnn_plan_text(plans[i]), &again) != OK) fail_msg("%s", status_message());
        assert_string_equal(cudnn_plan_text(again), cudnn_plan_text(plans[i]));
        assert_int_equal(cudnn_plan_workspace(again), cudnn_plan_workspace(plans[i]));
        cudnn_plan_destroy(again);
        cudnn_plan_destroy(plans[i]);
    }
    assert_int_equal(cudnn_plan_named(graph, &rules, "engine 999999 knobs", &again), ERR_DEVICE);
    assert_int_equal(cudnn_plan_named(graph, &rules, "no plan", &again), ERR_FORMAT);
    cudnn_graph_destroy(graph);
    cudnn_close(library);
}

/* Does the first plan that tensor cores allow keep the rules without them? It is made again from its name. */
static bool first_is_strict(CudnnGraph *graph, const CudnnRules *strict)
{
    const CudnnRules loose = {.tensor_cores = true, .no_runtime_compile = true};
    CudnnPlan *plan, *again = NULL;
    int found;
    if (cudnn_plans(graph, &loose, 1, &plan, &found) != OK) fail_msg("%s", status_message());
    Status st = cudnn_plan_named(graph, strict, cudnn_plan_text(plan), &again);
    if (st != OK) assert_int_equal(st, ERR_UNSUPPORTED);
    cudnn_plan_destroy(plan);
    cudnn_plan_destroy(again);
    return st == OK;
}

/* f32 stays f32: every convolution of Inception has a plan without tensor cores, which would round the operands
 * to TF32 (11 bits), and a deterministic one among them. Where tensor cores are allowed, all but one or two of the first plans use them. */
TEST(test_f32_without_tensor_cores)
{
    static Row storage[ROWS_MAX];
    const CudnnRules strict = {.no_runtime_compile = true};
    Rows rows = {storage, 0, 0};
    CudnnLibrary *library = library_of(0);
    int asked_for = 0, refused = 0;
    rows_of_model(inception_v3(), 256, true, &rows);
    for (int i = 0; i < rows.count; i++)
        for (CudnnConv kind = 0; kind <= CUDNN_CONV_FILTER; kind++) {
            if (!kind_applies(&rows.row[i], kind)) continue;
            CudnnGraph *graph;
            CudnnPlan *plan;
            int found;
            rows.row[i].spec.dtype = DTYPE_F32;
            rows.row[i].spec.kind = kind;
            assert_int_equal(cudnn_graph_create(library, &rows.row[i].spec, &graph), OK);
            if (cudnn_plans(graph, &strict, 1, &plan, &found) != OK)
                fail_msg("no plan '%s' in f32 for '%s'", kinds[kind], rows.row[i].name);
            cudnn_plan_destroy(plan);
            asked_for++;
            refused += !first_is_strict(graph, &strict);
            cudnn_graph_destroy(graph);
        }
    printf("  of %d plans in f32 %d use tensor cores\n", asked_for, refused);
    assert_true(asked_for > 100 && refused >= asked_for * 9 / 10);
    cudnn_close(library);
}

/* The table that the fake is held to is what this library does. */
TEST(test_refusals)
{
    if (cudnnGetVersion() / 100 != 919)
        skip("this is cuDNN %zu: before 9.19 it describes no devices, 9.26 reads operands that are left out",
             cudnnGetVersion());
    assert_refusals(GPU_H200);
}

/* A graph that cannot be built says so once, at the request for plans, and crashes nothing before. */
TEST(test_bad_graph)
{
    CudnnLibrary *library = library_of(0);
    CudnnPlan *plan;
    CudnnGraph *graph;
    int found;
    const CudnnRules rules = {0};
    const CudnnSpec spec = {
        .x = {32, 64, 35, 35}, .w = {96, 60, 3, 3}, .y = {32, 96, 35, 35}, .window = {3, 3, 1, 1, 1, 1}};
    assert_int_equal(cudnn_graph_create(library, &spec, &graph), OK);
    assert_true(cudnn_plans(graph, &rules, 1, &plan, &found) != OK);
    assert_int_equal(found, 0);
    assert_true(strlen(status_message()) > 0);
    cudnn_graph_destroy(graph);
    cudnn_close(library);
}

/* The gradient of the input is added to what is there for every convolution, and deterministic plans exist. */
TEST(test_adding_and_deterministic)
{
    static Row storage[ROWS_MAX];
    const CudnnRules rules = {.tensor_cores = true, .no_runtime_compile = true};
    Rows rows = {storage, 0, 0};
    CudnnLibrary *library = library_of(0);
    rows_of_model(inception_v3(), 256, true, &rows);
    for (int i = 0; i < rows.count; i++) {
        if (rows.row[i].first) continue;
        CudnnSpec *spec = &rows.row[i].spec;
        spec->accumulate = true;
        spec->kind = CUDNN_CONV_DATA;
        for (int k = 0; k < 2; k++) {
            spec->dtype = k ? DTYPE_BF16 : DTYPE_F16;
            if (!plan_exists(library, spec, &rules)) fail_msg("no plan that adds for '%s'", rows.row[i].name);
        }
        spec->accumulate = false;
        for (spec->kind = 0; spec->kind <= CUDNN_CONV_FILTER; spec->kind++)
            if (!plan_exists(library, spec, &rules))
                fail_msg("no deterministic plan '%s' for '%s'", kinds[spec->kind], rows.row[i].name);
    }
    cudnn_close(library);
}

#else

TEST(test_without_cuda)
{
    skip("this build has no CUDA backend: no cuDNN to ask");
}

#endif
