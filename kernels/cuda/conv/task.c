/* Candidates for a task, and the choice among them; see task.h. */
#include "kernels/cuda/conv/task.h"

#include "kernels/cuda/autotune.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/plan_cache.h"

/* Plans of cuDNN, more of them where much depends on the choice. */
enum { FEW_CANDIDATES = 10, CUDNN_CANDIDATES = 22, PRODUCT_CANDIDATES = 4 };
enum { CANDIDATES = CUDNN_CANDIDATES + PRODUCT_CANDIDATES + 2 /* direct */ };
static const double LARGE_PRODUCTS = 2e10; /* 0.1 ms of an H200 */
static const size_t WORKSPACE_MAX = (size_t)512 << 20;

typedef struct TaskChoice {
    const TaskSpec *spec;
    Task candidate[CANDIDATES];
    int count;
    void *x, *w, *y, *workspace, *cast, *bias; /* for timing; two biases: of the task's dtype, and behind it in f32 */
} TaskChoice;

/* ---- shapes */

static int32_t channels_padded(int32_t c, Dtype dtype)
{
    int32_t step = dtype == DTYPE_F32 ? 4 : 8;
    return (c + step - 1) / step * step;
}

void conv_fit(Dtype dtype, Shape *x, Shape *w, Shape *y, Window *window, int32_t *top, int32_t *left)
{
    if (conv_groups(*x, *w) == 1) {
        x->c = w->c = channels_padded(x->c, dtype);
        y->c = w->n = channels_padded(y->c, dtype);
    }
    *top = window->more_h < 0 ? -window->more_h : 0;
    *left = window->more_w < 0 ? -window->more_w : 0;
    window->pad_h -= *top, window->pad_w -= *left;
    x->h += abs(window->more_h), x->w += abs(window->more_w);
    window->more_h = window->more_w = 0;
}

/* ---- candidates */

static Product product_of(const Device *device, const TaskSpec *s)
{
    static const ProductKind kinds[] = {
        [CUDNN_CONV_FORWARD] = PRODUCT_Y, [CUDNN_CONV_DATA] = PRODUCT_DX, [CUDNN_CONV_FILTER] = PRODUCT_DW};
    return (Product){.kind = kinds[s->kind],
                     .rows = shape_pixels(s->x),
                     .ins = s->x.c,
                     .outs = s->y.c,
                     .dtype = s->dtype,
                     .accumulate = s->accumulate,
                     .tf32 = device->config.tf32,
                     .workspace_max = (size_t)64 << 20};
}

/* Products and our own kernel write the gradient of the weights in f32. */
static Dtype own_w_dtype(const TaskSpec *s)
{
    return s->kind == CUDNN_CONV_FILTER ? DTYPE_F32 : s->dtype;
}

static DirectConv direct_of(const TaskSpec *s)
{
    return (DirectConv){.x = {NULL, s->x, s->dtype, s->x.c},
                        .w = {NULL, s->w, own_w_dtype(s), s->w.c},
                        .y = {NULL, s->y, s->dtype, s->y.c},
                        .window = s->window,
                        .channels = s->channels};
}

static bool direct_fits(const Device *device, const TaskSpec *s)
{
    DirectConv direct = direct_of(s);
    if (s->accumulate || s->dense || conv_groups(s->x, s->w) > 1) return false;
    if (s->kind == CUDNN_CONV_FORWARD) return kernel_conv_direct_takes(&direct);
    bool cores = cuda_device(device)->sm >= DIRECT_DW_SM;
    return s->kind == CUDNN_CONV_FILTER && cores && kernel_conv_direct_dw_takes(&direct);
}

/* A kernel that no GPU has run may end the program there by an address that is none, before its result is compared. */
static bool untried_asked(void)
{
    const char *text = getenv("TOWERS_UNTRIED_KERNELS");
    return text && strcmp(text, "1") == 0;
}

static bool wgmma_fits(const Device *device, const TaskSpec *s)
{
    DirectConv direct = direct_of(s);
    if (!untried_asked()) return false;
    if (s->kind != CUDNN_CONV_FILTER || s->dense || conv_groups(s->x, s->w) > 1) return false;
    return cuda_device(device)->sm == WGMMA_DW_SM && kernel_conv_wgmma_dw_takes(&direct);
}

static Status graph_create(Device *device, const TaskSpec *s, bool ends, CudnnGraph **made)
{
    const CudnnSpec spec = {s->kind,         s->x,           s->w, s->y, s->dtype, s->window, s->accumulate,
                            ends && s->bias, ends && s->relu};
    return cudnn_graph_create(cuda_device(device)->cudnn, &spec, made);
}

static void offer_plan(TaskChoice *c, CudnnPlan *plan, bool ends)
{
    c->candidate[c->count++] =
        (Task){.plan = plan, .ends = ends, .w_dtype = c->spec->dtype, .workspace_bytes = cudnn_plan_workspace(plan)};
}

static void offer_product(TaskChoice *c, ProductPlan *plan)
{
    c->candidate[c->count++] =
        (Task){.product = plan, .w_dtype = own_w_dtype(c->spec), .workspace_bytes = product_plan_workspace(plan)};
}

static void offer_direct(TaskChoice *c)
{
    Task task = {.direct = direct_of(c->spec), .w_dtype = own_w_dtype(c->spec)};
    task.direct_dw = c->spec->kind == CUDNN_CONV_FILTER;
    if (task.direct_dw) task.workspace_bytes = kernel_conv_direct_dw_bytes(&task.direct);
    c->candidate[c->count++] = task;
}

static void offer_wgmma(TaskChoice *c)
{
    Task task = {.direct = direct_of(c->spec), .direct_dw = true, .wgmma = true, .w_dtype = own_w_dtype(c->spec)};
    task.workspace_bytes = kernel_conv_wgmma_dw_bytes(&task.direct);
    c->candidate[c->count++] = task;
}

/* The rules that every plan must follow, however it was found. */
static CudnnRules rules_of(const Device *device, const TaskSpec *s)
{
    return (CudnnRules){.tensor_cores = device->config.tf32 || s->dtype != DTYPE_F32};
}

static Status offer_plans_of(TaskChoice *c, Device *device, int wanted, bool ends)
{
    CudnnGraph *graph = NULL;
    CudnnPlan *plans[CUDNN_CANDIDATES];
    CudnnRules rules = rules_of(device, c->spec);
    int found = 0;
    rules.no_runtime_compile = true; /* seconds each, and rarely the best */
    rules.workspace_max = WORKSPACE_MAX;
    Status st = graph_create(device, c->spec, ends, &graph);
    if (st == OK) st = cudnn_plans(graph, &rules, wanted, plans, &found);
    if (graph && !ends && st != OK && st != ERR_MEMORY) { /* better a slow start or a large workspace than none */
        rules.no_runtime_compile = false;
        rules.workspace_max = 0;
        st = cudnn_plans(graph, &rules, wanted, plans, &found);
    }
    for (int i = 0; i < found; i++) offer_plan(c, plans[i], ends);
    cudnn_graph_destroy(graph);
    return st;
}

/* A pass behind a plan reads and writes y once more, so plans that end with the bias are asked for first. */
static Status offer_plans(TaskChoice *c, Device *device, int wanted)
{
    Status st = c->spec->bias ? offer_plans_of(c, device, wanted, true) : ERR_UNSUPPORTED;
    return st == OK || st == ERR_MEMORY ? st : offer_plans_of(c, device, wanted, false);
}

static Status offer_products(TaskChoice *c, Device *device, int wanted)
{
    ProductPlan *plans[PRODUCT_CANDIDATES];
    Product product = product_of(device, c->spec);
    int found = 0;
    TRY(product_plans(cuda_device(device)->cublas, &product, wanted, plans, &found));
    for (int i = 0; i < found; i++) offer_product(c, plans[i]);
    return OK;
}

/* All of them, or only the first of a library. */
static Status offer_all(TaskChoice *c, Device *device, bool first)
{
    bool product = c->spec->dense || (window_is_point(&c->spec->window) && conv_groups(c->spec->x, c->spec->w) == 1);
    if (product) TRY(offer_products(c, device, first ? 1 : PRODUCT_CANDIDATES));
    if (first && c->count) return OK;
    const TaskSpec *s = c->spec;
    bool large = (double)shape_pixels(s->y) * (double)shape_count(s->w) > LARGE_PRODUCTS;
    Status st = offer_plans(c, device, first ? 1 : large ? CUDNN_CANDIDATES : FEW_CANDIDATES);
    if (st == ERR_MEMORY) return st;
    if (!first && direct_fits(device, s)) offer_direct(c); /* last: the first is taken where nothing can be timed */
    if (!first && wgmma_fits(device, s)) offer_wgmma(c);
    return c->count ? OK : st;
}

/* ---- the plan cache */

static const char DIRECT[] = "direct", WGMMA[] = "direct wgmma", ENDS[] = "ends ";

void task_plan_text(const Task *task, char *text, size_t bytes)
{
    if (task->product)
        product_plan_text(task->product, text, bytes);
    else
        snprintf(text, bytes, "%s%s", task->ends ? ENDS : "",
                 task->plan    ? cudnn_plan_text(task->plan)
                 : task->wgmma ? WGMMA
                               : DIRECT);
}

/* A plan from the cache; one that this library refuses, or that breaks a rule, is no failure: it is found anew. */
static bool offer_named(TaskChoice *c, Device *device, const char *text)
{
    CudnnGraph *graph = NULL;
    CudnnPlan *plan = NULL;
    ProductPlan *made = NULL;
    Product product = product_of(device, c->spec);
    CudnnRules rules = rules_of(device, c->spec);
    if (strcmp(text, DIRECT) == 0) {
        if (!direct_fits(device, c->spec)) return false;
        offer_direct(c);
        return true;
    }
    if (strcmp(text, WGMMA) == 0) {
        if (!wgmma_fits(device, c->spec)) return false;
        offer_wgmma(c);
        return true;
    }
    if (strncmp(text, "product", 7) == 0) {
        if (product_plan_named(cuda_device(device)->cublas, &product, text, &made) != OK) return false;
        offer_product(c, made);
        return true;
    }
    bool ends = strncmp(text, ENDS, strlen(ENDS)) == 0;
    if (ends && !c->spec->bias) return false;
    if (graph_create(device, c->spec, ends, &graph) == OK &&
        cudnn_plan_named(graph, &rules, ends ? text + strlen(ENDS) : text, &plan) == OK)
        offer_plan(c, plan, ends);
    cudnn_graph_destroy(graph);
    return plan != NULL;
}

/* ---- timing */

static float *bias_wide(const TaskChoice *c)
{
    return (float *)c->bias + c->spec->y.c;
}

static Status bias_fill(Device *device, const TaskChoice *c)
{
    Tensor wide = {bias_wide(c), {1, c->spec->y.c, 1, 1}, DTYPE_F32, c->spec->y.c};
    TRY(autotune_fill(device, &wide, 3, true));
    TRY_CUDA(
        convert_flat(c->bias, c->spec->dtype, wide.data, DTYPE_F32, c->spec->y.c, cuda_stream(device, STREAM_COMPUTE)));
    return OK;
}

/* What conv.c does behind a task takes its time, too: a gradient of weights that was not written in f32 is cast, a bias added. */
static Status candidate_run(Device *device, void *context, int number)
{
    const TaskChoice *c = context;
    const TaskSpec *s = c->spec;
    const Task *task = &c->candidate[number];
    Dtype made = task->w_dtype;
    Tensor y = {c->y, s->y, s->dtype, s->y.c};
    TRY(task_run(device, task, c->x, c->w, c->y, task->ends ? c->bias : NULL, c->workspace));
    if (s->bias && !task->ends) TRY_CUDA(convert_bias(&y, bias_wide(c), s->relu, cuda_stream(device, STREAM_COMPUTE)));
    if (c->spec->kind != CUDNN_CONV_FILTER || made == DTYPE_F32) return OK;
    return device->backend->convert(device, c->cast, DTYPE_F32, c->w, made, (size_t)shape_count(c->spec->w));
}

/* Weights of a padded image as they will be, zeros behind its channels: only then do all candidates find the same. The
 * memory was made for f32, so the random numbers fit behind the weights. */
static Status weights_pad(Device *device, const TaskChoice *c)
{
    const TaskSpec *s = c->spec;
    Tensor to = {c->w, s->w, s->dtype, s->w.c}, from = to;
    from.data = (char *)c->w + (size_t)shape_count(s->w) * dtype_bytes(s->dtype);
    from.shape.c = from.pitch = s->channels;
    TRY(autotune_fill(device, &from, 1, true));
    TRY_CUDA(convert_pixels(&to, &from, cuda_stream(device, STREAM_COMPUTE)));
    return OK;
}

static Status operands_fill(Device *device, void *context)
{
    const TaskChoice *c = context;
    const TaskSpec *s = c->spec;
    const Tensor operands[] = {
        {c->x, s->x, s->dtype, s->x.c}, {c->w, s->w, s->dtype, s->w.c}, {c->y, s->y, s->dtype, s->y.c}};
    for (uint32_t k = 0; k < 3; k++) TRY(autotune_fill(device, &operands[k], k, true));
    if (s->bias) TRY(bias_fill(device, c));
    if (s->kind == CUDNN_CONV_FORWARD && direct_fits(device, s) && s->channels < s->w.c) TRY(weights_pad(device, c));
    return OK;
}

static Tensor candidate_result(void *context, int number)
{
    const TaskChoice *c = context;
    const TaskSpec *s = c->spec;
    if (s->kind == CUDNN_CONV_FILTER) return (Tensor){c->w, s->w, c->candidate[number].w_dtype, s->w.c};
    return s->kind == CUDNN_CONV_DATA ? (Tensor){c->x, s->x, s->dtype, s->x.c} : (Tensor){c->y, s->y, s->dtype, s->y.c};
}

static Status buffer(Device *device, Shape shape, void **made)
{
    return device->backend->alloc(device, (size_t)shape_count(shape) * sizeof(float), made);
}

/* The library's first guess, and a negative time, if there is no memory for timing. */
static Status choose_by_time(TaskChoice *c, Device *device, int *best, double *time)
{
    enum { BUFFERS = 6 };
    void *memory[BUFFERS] = {NULL};
    size_t workspace = 1;
    *best = 0;
    for (int i = 0; i < c->count; i++)
        if (c->candidate[i].workspace_bytes > workspace) workspace = c->candidate[i].workspace_bytes;
    Status st = buffer(device, c->spec->x, &memory[0]);
    if (st == OK) st = buffer(device, c->spec->w, &memory[1]);
    if (st == OK) st = buffer(device, c->spec->y, &memory[2]);
    if (st == OK) st = device->backend->alloc(device, workspace, &memory[3]);
    if (st == OK && c->spec->kind == CUDNN_CONV_FILTER) st = buffer(device, c->spec->w, &memory[4]);
    if (st == OK && c->spec->bias) st = buffer(device, (Shape){2, c->spec->y.c, 1, 1}, &memory[5]);
    c->x = memory[0], c->w = memory[1], c->y = memory[2], c->workspace = memory[3], c->cast = memory[4];
    c->bias = memory[5];
    const Candidates candidates = {c->count, c, candidate_run, operands_fill, candidate_result};
    if (st == OK) st = autotune(device, &candidates, best, time);
    for (int i = 0; i < BUFFERS; i++)
        if (memory[i]) device->backend->release(device, memory[i]);
    return st == ERR_MEMORY ? OK : st;
}

static void task_name(const Device *device, const TaskSpec *s, char *text, size_t bytes)
{
    static const char *const kinds[] = {"forward", "data", "filter"};
    bool tf32 = s->dtype == DTYPE_F32 && device->config.tf32;
    char of[24] = "";
    bool wgmma = wgmma_fits(device, s);
    if (wgmma || direct_fits(device, s)) /* with 8 of 8, or on another GPU, it has other candidates */
        snprintf(of, sizeof of, " of %d%s", s->channels, wgmma ? " wgmma" : "");
    char window[WINDOW_TEXT_BYTES];
    snprintf(text, bytes, "%s %s x %s w %s %s%s%s%s%s%s", kinds[s->kind], tf32 ? "tf32" : dtype_name(s->dtype),
             shape_text(s->x), shape_text(s->w), window_text(&s->window, window), s->accumulate ? " add" : "",
             s->dense ? " dense" : "", of, s->bias ? " bias" : "", s->relu ? " relu" : "");
}

static Status choose(TaskChoice *c, Device *device, int *best)
{
    char task[256], plan[CUDNN_PLAN_BYTES + sizeof ENDS];
    double time = -1;
    *best = 0;
    if (device->config.deterministic) return offer_all(c, device, true);
    task_name(device, c->spec, task, sizeof task);
    const char *known = plan_cache_find(cuda_device(device)->plans, task);
    if (known && offer_named(c, device, known)) return OK;
    TRY(offer_all(c, device, false));
    if (c->count > 1) TRY(choose_by_time(c, device, best, &time));
    task_plan_text(&c->candidate[*best], plan, sizeof plan);
    return plan_cache_add(cuda_device(device)->plans, task, plan, time);
}

Status task_choose(Device *device, const char *name, const TaskSpec *spec, Task *task)
{
    TaskChoice c = {.spec = spec};
    int best = 0;
    const PlanRefusals before = device->refused;
    device->refused = (PlanRefusals){0};
    Status st = choose(&c, device, &best);
    if (st == ERR_UNSUPPORTED)
        st = FAIL(ERR_UNSUPPORTED, "'%s': neither cuDNN nor cuBLASLt has a%s plan for x %s, w %s in %s%s%s", name,
                  device->config.deterministic ? " deterministic" : "", shape_text(spec->x), shape_text(spec->w),
                  dtype_name(spec->dtype), device->refused.count ? "; of those that failed the first said: " : "",
                  device->refused.first);
    device->refused.count += before.count;
    if (before.count) memcpy(device->refused.first, before.first, sizeof before.first);
    for (int i = 0; i < c.count; i++)
        if (st != OK || i != best) task_free(device, &c.candidate[i]);
    TRY(st);
    *task = c.candidate[best];
    return OK;
}

void task_free(Device *device, Task *task)
{
    (void)device;
    cudnn_plan_destroy(task->plan);
    product_plan_destroy(task->product);
    *task = (Task){0};
}

Status task_run(Device *device, const Task *task, void *x, void *w, void *y, void *bias, void *workspace)
{
    if (task->product) return product_run(task->product, x, w, y, workspace, cuda_stream(device, STREAM_COMPUTE));
    if (task->plan) return cudnn_plan_run(task->plan, x, w, y, bias, workspace);
    cudaStream_t stream = cuda_stream(device, STREAM_COMPUTE);
    DirectConv direct = task->direct;
    direct.x.data = x, direct.w.data = w, direct.y.data = y;
    if (task->wgmma)
        TRY_CUDA(kernel_conv_wgmma_dw(&direct, workspace, stream));
    else if (task->direct_dw)
        TRY_CUDA(kernel_conv_direct_dw(&direct, workspace, stream));
    else
        TRY_CUDA(kernel_conv_direct(&direct, stream));
    return OK;
}
