/* Our own convolutions with few channels: their results by emulation against the reference, and their choice among the
 * library's plans on the fake GPU: by time, from the cache, from the choices of a run. */

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/plan_cache.h"
#include "tests/gpu/fake_cuda/fake_gpu.h"
#include "tests/support/reference.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

static Device device;

static void device_open(bool deterministic)
{
    const Backend *backend;
    const DeviceConfig config = {.threads = 1, .deterministic = deterministic};
    assert_int_equal(backend_find("cuda", &backend, NULL, 0), OK);
    if (backend->open(&config, &device) != OK) fail_msg("%s", status_message());
}

static int setup(void **state)
{
    fake_gpu_reset();
    if (scratch_make(state) != 0 || setenv("XDG_CACHE_HOME", scratch, 1) != 0) return -1;
    if (setenv("TOWERS_UNTRIED_KERNELS", "1", 1) != 0) return -1;
    device_open(false);
    return 0;
}

static int teardown(void **state)
{
    device.backend->close(&device);
    int alive = fake_gpu_alive(stderr);
    return scratch_drop(state) == 0 ? alive : -1;
}

/* ---- one convolution */

typedef struct Row {
    const char *name;
    OpKind kind; /* OP_CONV or OP_CONV_DW */
    Shape x;
    int32_t pitch; /* of x; zeros behind the channels */
    int32_t outs;
    Window window;
} Row;

typedef struct Conv {
    OpCall call;
    void *memory[4];
    RefTensor in[OP_MAX_IN], out[OP_MAX_OUT];
    Dtype dtype;   /* of the result */
    Dtype rounded; /* the one to which the chosen candidate rounds it */
} Conv;

static Shape result_shape(const Row *row)
{
    return window_out(&row->window, row->x, row->outs);
}

static void *uploaded(const void *host, size_t bytes)
{
    void *memory;
    assert_int_equal(device.backend->alloc(&device, bytes, &memory), OK);
    assert_int_equal(device.backend->upload(&device, memory, host, bytes), OK);
    assert_int_equal(device.backend->finish(&device, STREAM_COMPUTE), OK);
    return memory;
}

/* NaN where no window looks: on the right of the last one. */
static void *image_uploaded(const Row *row, Dtype dtype, RefTensor *x)
{
    size_t bytes = (size_t)(shape_pixels(row->x) * row->pitch) * dtype_bytes(dtype);
    const Window *k = &row->window;
    int32_t seen = (result_shape(row).w - 1) * k->stride_w + k->kw - k->pad_w;
    void *host = calloc(1, bytes);
    for (int64_t i = 0; i < shape_count(row->x); i++) {
        x->data[i] = dtype_round(dtype, sin((double)i * 0.7));
        bool unseen = i / row->x.c % row->x.w >= seen;
        dtype_store(dtype, host, i / row->x.c * row->pitch + i % row->x.c, unseen ? (double)NAN : x->data[i]);
    }
    void *memory = uploaded(host, bytes);
    free(host);
    return memory;
}

/* Of values that `dtype` has, held in `as`. */
static void *operand_uploaded(Dtype dtype, Dtype as, RefTensor *operand)
{
    int64_t count = shape_count(operand->shape);
    void *host = calloc((size_t)count, dtype_bytes(as));
    for (int64_t i = 0; i < count; i++)
        dtype_store(as, host, i, operand->data[i] = dtype_round(dtype, cos((double)i * 1.3)));
    void *memory = uploaded(host, (size_t)count * dtype_bytes(as));
    free(host);
    return memory;
}

/* Weights and their gradient are f32, all else has the type. */
static void conv_create(Conv *c, const Row *row, Dtype dtype)
{
    bool dw = row->kind == OP_CONV_DW;
    Shape w = {row->outs, row->x.c, row->window.kh, row->window.kw}, y = result_shape(row);
    Shape second = dw ? y : w, result = dw ? w : y;
    Dtype second_type = dw ? dtype : DTYPE_F32, result_type = dw ? DTYPE_F32 : dtype;
    *c = (Conv){.dtype = result_type,
                .rounded = dtype,
                .call = {.kind = row->kind, .name = row->name, .in_count = 2, .out_count = 1}};
    c->in[0] = ref_create(row->x), c->in[1] = ref_create(second), c->out[0] = ref_create(result);
    c->memory[0] = image_uploaded(row, dtype, &c->in[0]);
    c->memory[1] = operand_uploaded(dtype, second_type, &c->in[1]);
    size_t bytes = (size_t)shape_count(result) * dtype_bytes(result_type);
    assert_int_equal(device.backend->alloc(&device, bytes, &c->memory[2]), OK);
    c->call.in[0] = (Tensor){c->memory[0], row->x, dtype, row->pitch};
    c->call.in[1] = (Tensor){c->memory[1], second, second_type, second.c};
    c->call.out[0] = (Tensor){c->memory[2], result, result_type, result.c};
    c->call.padded_in = row->pitch > row->x.c;
    c->call.attr.conv.window = row->window;
}

static void conv_destroy(Conv *c)
{
    device.backend->kernels[c->call.kind]->discard(&device, &c->call);
    for (int i = 0; i < 4; i++)
        if (c->memory[i]) device.backend->release(&device, c->memory[i]);
    ref_destroy(&c->in[0]), ref_destroy(&c->in[1]), ref_destroy(&c->out[0]);
}

/* What the cache calls the task: `of` ends its name. */
static void task_text(const Row *row, Dtype dtype, const char *of, char *text, size_t bytes)
{
    const Window *k = &row->window;
    int32_t ins = (row->x.c + 7) / 8 * 8;
    const Shape x = {row->x.n, ins, row->x.h, row->x.w}, w = {(row->outs + 7) / 8 * 8, ins, k->kh, k->kw};
    snprintf(text, bytes, "%s %s x %s w %s stride %dx%d pad %dx%d%s", row->kind == OP_CONV ? "forward" : "filter",
             dtype_name(dtype), shape_text(x), shape_text(w), k->stride_h, k->stride_w, k->pad_h, k->pad_w, of);
}

/* How the name of a task ends that has candidates of ours; on this GPU gradients have one of warpgroups, too. */
static const char *own_text(const Row *row, char *text, size_t bytes)
{
    bool wgmma = row->kind == OP_CONV_DW && row->window.stride_h == 1 && cuda_device(&device)->sm == WGMMA_DW_SM;
    snprintf(text, bytes, " of %d%s", row->x.c, wgmma ? " wgmma" : "");
    return text;
}

static const char *plan_in_cache(const Row *row, Dtype dtype, const char *of)
{
    char text[256];
    task_text(row, dtype, of, text, sizeof text);
    const char *plan = plan_cache_find(cuda_device(&device)->plans, text);
    return plan ? plan : "";
}

static void conv_prepare(Conv *c, char *chosen, size_t bytes)
{
    const OpKernel *kernel = device.backend->kernels[c->call.kind];
    KernelChoice choice = {.name = ""};
    if (kernel->prepare(&device, &c->call) != OK) fail_msg("%s: %s", c->call.name, status_message());
    kernel->explain(&device, &c->call, &choice);
    snprintf(chosen, bytes, "%s", choice.name);
    if (strncmp(chosen, "direct", 6) == 0) c->rounded = c->dtype;
}

/* Every element within a rounding of the sum in double precision. */
static void conv_check(Conv *c)
{
    int64_t count = shape_count(c->out[0].shape);
    double step = c->rounded == DTYPE_F16 ? 0x1p-11 : c->rounded == DTYPE_BF16 ? 0x1p-8 : 0x1p-20;
    void *y = calloc((size_t)count, dtype_bytes(c->dtype));
    assert_int_equal(device.backend->alloc(&device, c->call.workspace_bytes, &c->memory[3]), OK);
    c->call.workspace = c->memory[3];
    if (device.backend->kernels[c->call.kind]->launch(&device, &c->call) != OK) fail_msg("%s", status_message());
    assert_int_equal(device.backend->download(&device, y, c->memory[2], (size_t)count * dtype_bytes(c->dtype)), OK);
    assert_int_equal(device.backend->finish(&device, STREAM_COMPUTE), OK);
    reference_run(c->call.kind, &c->call.attr, c->in, c->out);
    for (int64_t i = 0; i < count; i++) {
        double found = dtype_load(c->dtype, y, i), wanted = c->out[0].data[i];
        if (!(fabs(found - wanted) <= step * fabs(wanted) + 1e-4))
            fail_msg("%s in %s: element %" PRId64 " is %g, not %g", c->call.name, dtype_name(c->dtype), i, found,
                     wanted);
    }
    free(y);
}

/* ---- results */

static void check_row(const Row *row, Dtype dtype, const char *plan)
{
    Conv c;
    char task[256], of[24], chosen[256];
    task_text(row, dtype, own_text(row, of, sizeof of), task, sizeof task);
    assert_int_equal(plan_cache_add(cuda_device(&device)->plans, task, plan, -1), OK);
    conv_create(&c, row, dtype);
    conv_prepare(&c, chosen, sizeof chosen);
    if (strcmp(chosen, plan) != 0) fail_msg("%s: '%s'", row->name, chosen);
    conv_check(&c);
    conv_destroy(&c);
}

static void check_rows(const Row *rows, size_t count, const char *plan)
{
    for (size_t i = 0; i < count; i++) {
        check_row(&rows[i], DTYPE_BF16, plan);
        check_row(&rows[i], DTYPE_F16, plan);
    }
}

TEST_WITH(test_results, setup, teardown)
{
    static const Row rows[] = {
        {"3x3 / 2, odd sides, as in Inception", OP_CONV, {2, 3, 19, 67}, 8, 32, {3, 3, 2, 2, 0, 0, false}},
        {"7x7 / 2, as in ResNets", OP_CONV, {1, 3, 35, 70}, 8, 64, {7, 7, 2, 2, 3, 3, false}},
        {"5x5, packed", OP_CONV, {2, 3, 9, 33}, 3, 8, {5, 5, 1, 1, 2, 2, false}},
        {"3x3, packed, one channel", OP_CONV, {3, 1, 8, 32}, 1, 8, {3, 3, 1, 1, 1, 1, false}},
        {"3x3, four channels, a tile and a pixel", OP_CONV, {1, 4, 9, 33}, 8, 16, {3, 3, 1, 1, 1, 1, false}},
        {"7x7 / 2, four channels", OP_CONV, {1, 4, 21, 65}, 8, 40, {7, 7, 2, 2, 3, 3, false}},
        {"7x7, smaller than the window", OP_CONV, {2, 3, 4, 5}, 8, 24, {7, 7, 1, 1, 3, 3, false}},
        {"1x1 / 2, two channels", OP_CONV, {2, 2, 7, 9}, 8, 8, {1, 1, 2, 2, 0, 0, false}},
        {"1x7", OP_CONV, {1, 3, 5, 40}, 8, 8, {1, 7, 1, 1, 0, 3, false}},
        {"5x2 / 2x1", OP_CONV, {1, 3, 23, 34}, 8, 72, {5, 2, 2, 1, 1, 0, false}},
        {"3x3 / 1x2, twelve out", OP_CONV, {1, 3, 10, 64}, 8, 12, {3, 3, 1, 2, 2, 1, false}},
        {"dw of 3x3 / 2, odd sides, as in Inception", OP_CONV_DW, {2, 3, 19, 135}, 8, 32, {3, 3, 2, 2, 0, 0, false}},
        {"dw of 3x3, a strip, as Inception's second", OP_CONV_DW, {3, 32, 11, 34}, 32, 32, {3, 3, 1, 1, 0, 0, false}},
        {"dw of 3x3, padded, as Inception's third", OP_CONV_DW, {2, 32, 9, 35}, 32, 64, {3, 3, 1, 1, 1, 1, false}},
        {"dw of 3x3 / 2, padded, even sides, 64 out", OP_CONV_DW, {2, 4, 14, 68}, 8, 64, {3, 3, 2, 2, 1, 1, false}},
        {"dw of 3x3 / 2, a column that nothing sees", OP_CONV_DW, {1, 3, 9, 20}, 8, 16, {3, 3, 2, 2, 0, 0, false}},
        {"dw of 3x3, eight in, 40 out, many images", OP_CONV_DW, {37, 8, 3, 5}, 8, 40, {3, 3, 1, 1, 1, 1, false}},
        {"dw of 3x3, 16 in, 24 out, wide padding", OP_CONV_DW, {1, 16, 5, 40}, 16, 24, {3, 3, 1, 1, 2, 2, false}},
        {"dw of 3x3, 24 in, 56 out", OP_CONV_DW, {5, 24, 6, 33}, 24, 56, {3, 3, 1, 1, 0, 1, false}},
        {"dw of 3x3, smaller than the window", OP_CONV_DW, {2, 8, 1, 2}, 8, 8, {3, 3, 1, 1, 1, 1, false}},
        {"dw of 3x3, strips of one row", OP_CONV_DW, {9, 8, 1, 5}, 8, 8, {3, 3, 1, 1, 1, 1, false}},
        {"dw of 3x3, strips of one row, 32 in", OP_CONV_DW, {9, 32, 1, 5}, 32, 32, {3, 3, 1, 1, 1, 1, false}},
        {"dw of 3x3, packed, one channel", OP_CONV_DW, {3, 1, 8, 32}, 1, 8, {3, 3, 1, 1, 1, 1, false}},
        {"dw of 3x3, twelve out", OP_CONV_DW, {2, 32, 7, 9}, 32, 12, {3, 3, 1, 1, 1, 1, false}},
    };
    check_rows(rows, sizeof rows / sizeof *rows, "direct");
}

/* By products of warpgroups, whose emulation reads shared memory no earlier than a GPU may. */
TEST_WITH(test_results_of_warpgroups, setup, teardown)
{
    static const Row rows[] = {
        {"as Inception's second", OP_CONV_DW, {3, 32, 11, 34}, 32, 32, {3, 3, 1, 1, 0, 0, false}},
        {"as Inception's third", OP_CONV_DW, {2, 32, 9, 35}, 32, 64, {3, 3, 1, 1, 1, 1, false}},
        {"as Inception's fifth", OP_CONV_DW, {2, 80, 9, 13}, 80, 192, {3, 3, 1, 1, 0, 0, false}},
        {"8 in, 40 out, many images", OP_CONV_DW, {37, 8, 3, 5}, 8, 40, {3, 3, 1, 1, 1, 1, false}},
        {"16 in, 24 out, wide padding", OP_CONV_DW, {1, 16, 5, 40}, 16, 24, {3, 3, 1, 1, 2, 2, false}},
        {"64 in, 72 out, padded across", OP_CONV_DW, {5, 64, 6, 33}, 64, 72, {3, 3, 1, 1, 0, 1, false}},
        {"40 in, 8 out, smaller than the window", OP_CONV_DW, {2, 40, 1, 2}, 40, 8, {3, 3, 1, 1, 1, 1, false}},
        {"72 in, 136 out, rows of one pixel", OP_CONV_DW, {9, 72, 5, 1}, 72, 136, {3, 3, 1, 1, 1, 1, false}},
        {"32 in, 64 out, several blocks", OP_CONV_DW, {8, 32, 14, 15}, 32, 64, {3, 3, 1, 1, 1, 1, false}},
        {"packed, one channel", OP_CONV_DW, {3, 1, 8, 32}, 1, 8, {3, 3, 1, 1, 1, 1, false}},
        {"twelve out", OP_CONV_DW, {2, 32, 7, 9}, 32, 12, {3, 3, 1, 1, 1, 1, false}},
    };
    check_rows(rows, sizeof rows / sizeof *rows, "direct wgmma");
}

/* ---- the choice */

static const Row image = {"image", OP_CONV, {1, 3, 9, 9}, 8, 8, {3, 3, 2, 2, 1, 1, false}};

/* The name of the plan that is taken where every engine takes so long, and a launch of ours so long. */
static void choice(const Row *row, int64_t engines, int64_t kernel, char *chosen, size_t bytes)
{
    Conv c;
    for (int engine = 0; engine < 8; engine++) fake_gpu_engine(engine, engines, false);
    fake_gpu_launch_time(kernel, engines);
    conv_create(&c, row, DTYPE_BF16);
    fake_gpu_counts_clear();
    conv_prepare(&c, chosen, bytes);
    conv_check(&c);
    conv_destroy(&c);
    assert_int_equal(device.unconfirmed, 0); /* all candidates find the same */
}

/* The fastest is taken, and by the next process from the cache, without a run of the others. */
TEST_WITH(test_fastest_is_taken_and_kept, setup, teardown)
{
    char chosen[256], old[256];
    task_text(&image, DTYPE_BF16, "", old, sizeof old); /* the cache of a version that did not have this kernel */
    assert_int_equal(plan_cache_add(cuda_device(&device)->plans, old, "engine 4 knobs", 900), OK);
    choice(&image, 1000, 100, chosen, sizeof chosen);
    assert_string_equal(chosen, "direct");
    assert_true(fake_gpu_count("cudnnBackendExecute") > 0);
    assert_string_equal(plan_in_cache(&image, DTYPE_BF16, " of 3"), "direct");
    device.backend->close(&device);
    device_open(false);
    choice(&image, 1, 100, chosen, sizeof chosen);
    assert_string_equal(chosen, "direct");
    assert_int_equal(fake_gpu_count("cudnnBackendExecute"), 0);
}

TEST_WITH(test_slower_is_not_taken, setup, teardown)
{
    char chosen[256];
    choice(&image, 100, 1000, chosen, sizeof chosen);
    assert_memory_equal(chosen, "engine ", 7);
    assert_string_equal(plan_in_cache(&image, DTYPE_BF16, " of 3"), chosen);
}

/* Nothing is timed there, and runs of earlier versions have the library's first. */
TEST_WITH(test_deterministic_is_as_it_was, setup, teardown)
{
    char chosen[256];
    device.backend->close(&device);
    device_open(true);
    choice(&image, 1000, 100, chosen, sizeof chosen);
    assert_memory_equal(chosen, "engine ", 7);
}

/* The choices of a run, taken by a device that has never timed anything. */
TEST_WITH(test_choices_of_a_run, setup, teardown)
{
    char chosen[256], *choices, path[PATH_BYTES];
    int anew;
    bool taken;
    choice(&image, 1000, 100, chosen, sizeof chosen);
    assert_int_equal(device.backend->choices_text(&device, &choices, &anew), OK);
    assert_non_null(strstr(choices, " of 3\tdirect\t"));
    device.backend->close(&device);
    scratch_path(path, "towers");
    assert_int_equal(tree_remove(path), OK);
    device_open(false);
    assert_int_equal(device.backend->choices_take(&device, choices, &taken), OK);
    assert_true(taken);
    free(choices);
    choice(&image, 1, 100, chosen, sizeof chosen);
    assert_string_equal(chosen, "direct");
    assert_int_equal(device.backend->choices_text(&device, &choices, &anew), OK);
    assert_int_equal(anew, 0);
    free(choices);
}

static void refused(const Row *row)
{
    char chosen[256], task[256];
    task_text(row, DTYPE_BF16, "", task, sizeof task);
    assert_int_equal(plan_cache_add(cuda_device(&device)->plans, task, "direct", -1), OK);
    choice(row, 1000, 1, chosen, sizeof chosen);
    if (strncmp(chosen, "engine ", 7) != 0) fail_msg("%s: '%s'", row->name, chosen);
}

/* None of the candidates, though a cache says so. */
TEST_WITH(test_only_for_few_channels, setup, teardown)
{
    static const Row rows[] = {
        {"eight channels", OP_CONV, {1, 8, 9, 9}, 8, 8, {3, 3, 1, 1, 1, 1, false}},
        {"a long stride", OP_CONV, {1, 3, 9, 9}, 8, 8, {3, 3, 3, 3, 1, 1, false}},
        {"a large window", OP_CONV, {1, 3, 9, 9}, 8, 8, {9, 9, 1, 1, 4, 4, false}},
        {"dw, a large window", OP_CONV_DW, {1, 8, 9, 9}, 8, 8, {5, 5, 1, 1, 2, 2, false}},
        {"dw, two strides", OP_CONV_DW, {1, 8, 9, 9}, 8, 8, {3, 3, 1, 2, 1, 1, false}},
        {"dw, a stride and 16 channels", OP_CONV_DW, {1, 16, 9, 9}, 16, 8, {3, 3, 2, 2, 1, 1, false}},
        {"dw, 88 channels", OP_CONV_DW, {1, 88, 9, 9}, 88, 8, {3, 3, 1, 1, 1, 1, false}},
        {"dw, 264 channels out", OP_CONV_DW, {1, 8, 9, 9}, 8, 264, {3, 3, 1, 1, 1, 1, false}},
        {"dw, rows as long as shared memory", OP_CONV_DW, {1, 80, 3, 700}, 80, 8, {3, 3, 1, 1, 1, 1, false}},
    };
    static const Row older[] = {
        {"dw, 40 channels", OP_CONV_DW, {1, 40, 9, 9}, 40, 8, {3, 3, 1, 1, 1, 1, false}},
        {"dw, 72 channels out", OP_CONV_DW, {1, 8, 9, 9}, 8, 72, {3, 3, 1, 1, 1, 1, false}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) refused(&rows[i]);
    cuda_device(&device)->sm = 80; /* no warpgroups */
    for (size_t i = 0; i < sizeof older / sizeof *older; i++) refused(&older[i]);
    cuda_device(&device)->sm = 100;
    for (size_t i = 0; i < sizeof older / sizeof *older; i++) refused(&older[i]);
    cuda_device(&device)->sm = WGMMA_DW_SM;
    unsetenv("TOWERS_UNTRIED_KERNELS"); /* nobody has asked for a kernel that no GPU has run */
    for (size_t i = 0; i < sizeof older / sizeof *older; i++) refused(&older[i]);
}

static const Row gradient = {"gradient", OP_CONV_DW, {2, 32, 9, 9}, 32, 64, {3, 3, 1, 1, 1, 1, false}};
static const Row wide = {"wide gradient", OP_CONV_DW, {2, 80, 5, 6}, 80, 72, {3, 3, 1, 1, 0, 0, false}};

TEST_WITH(test_gradient_is_taken_if_faster, setup, teardown)
{
    char chosen[256];
    cuda_device(&device)->sm = 80;
    choice(&gradient, 1000, 100, chosen, sizeof chosen);
    assert_string_equal(chosen, "direct");
    assert_string_equal(plan_in_cache(&gradient, DTYPE_BF16, " of 32"), "direct");
}

/* Both of ours are asked where there is a choice, whatever an older cache or one of another GPU says. */
TEST_WITH(test_warpgroups_are_taken_if_faster, setup, teardown)
{
    char chosen[256], old[256];
    task_text(&wide, DTYPE_BF16, "", old, sizeof old);
    assert_int_equal(plan_cache_add(cuda_device(&device)->plans, old, "engine 4 knobs", 900), OK);
    choice(&wide, 1000, 100, chosen, sizeof chosen);
    assert_string_equal(chosen, "direct wgmma");
    assert_string_equal(plan_in_cache(&wide, DTYPE_BF16, " of 80 wgmma"), "direct wgmma");
    choice(&gradient, 1000, 100, chosen, sizeof chosen);
    assert_memory_equal(chosen, "direct", 6);
    assert_string_equal(plan_in_cache(&gradient, DTYPE_BF16, " of 32 wgmma"), chosen);
}

/* A cache with that name goes with its user to other GPUs. */
TEST_WITH(test_warpgroups_need_hopper, setup, teardown)
{
    char chosen[256], task[256];
    cuda_device(&device)->sm = 100;
    task_text(&gradient, DTYPE_BF16, " of 32", task, sizeof task);
    assert_int_equal(plan_cache_add(cuda_device(&device)->plans, task, "direct wgmma", -1), OK);
    choice(&gradient, 1000, 100, chosen, sizeof chosen);
    assert_string_equal(chosen, "direct");
}

/* Turing has no products of bf16, and no copies that do not wait. */
TEST_WITH(test_gradient_needs_ampere, setup, teardown)
{
    cuda_device(&device)->sm = 75;
    refused(&gradient);
}
