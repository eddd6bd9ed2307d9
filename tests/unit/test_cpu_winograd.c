/* Convolutions by our own Winograd algorithms and their gradients with respect to x: the error against double
 * precision, compared with that of plain sums in f32; exact zeros where a window contains only zeros; and bits that
 * depend neither on threads nor on the other images of a batch. test_cpu_conv.c tests that small integers are exact. */
#include <stdint.h>

#include "kernels/cpu/conv/conv_impl.h"
#include "tests/support/reference.h"
#include "tests/support/unit.h"

typedef struct Case {
    const char *name;
    int n, ic, oc, h, w, kh, kw, pad_h, pad_w;
} Case;

/* Images of at least 256 pixels: one alone is computed as it is among others. */
static const Case cases[] = {
    {"3x3", 3, 48, 64, 17, 16, 3, 3, 1, 1},
    {"3x3 of many channels", 2, 192, 112, 16, 17, 3, 3, 1, 1},
    {"3x3 valid", 2, 32, 80, 19, 22, 3, 3, 0, 0},
    {"1x7", 3, 64, 48, 17, 17, 1, 7, 0, 3},
    {"7x1", 2, 160, 112, 17, 17, 7, 1, 3, 0},
    {"1x7 without a last output", 2, 32, 64, 16, 20, 1, 7, 0, 3},
    {"7x1 valid", 2, 80, 32, 28, 13, 7, 1, 0, 0},
    {"3x3 of multiples of 8", 2, 40, 56, 17, 18, 3, 3, 1, 1},
    {"1x7 of multiples of 8", 2, 56, 40, 17, 17, 1, 7, 0, 3},
};
/* Of F(4x4, 3x3) and F(2x2, 5x5): images of at least 128 tiles. */
static const Case large_cases[] = {
    {"4x4", 2, 32, 48, 46, 47, 3, 3, 1, 1},
    {"4x4 of many channels", 2, 160, 112, 48, 45, 3, 3, 1, 1},
    {"4x4 valid, of few channels", 2, 16, 80, 50, 49, 3, 3, 0, 0},
    {"4x4 padded by 2", 2, 48, 16, 45, 45, 3, 3, 2, 2},
    {"4x4 of multiples of 8", 2, 24, 40, 47, 48, 3, 3, 1, 1},
    {"5x5", 2, 48, 64, 24, 23, 5, 5, 2, 2},
    {"5x5 valid, of multiples of 8", 2, 24, 16, 29, 30, 5, 5, 0, 0},
    {"5x5 padded by 4, 0", 2, 16, 32, 22, 28, 5, 5, 4, 0},
};
enum { CASES = sizeof cases / sizeof cases[0], LARGE_CASES = sizeof large_cases / sizeof large_cases[0] };

static const OpKind kinds[] = {OP_CONV, OP_CONV_DX};
static const Backend *backend;
static uint64_t random_state = 1;

static Window window_of(const Case *c)
{
    return (Window){c->kh, c->kw, 1, 1, c->pad_h, c->pad_w, false};
}

/* The tensors that a call reads and writes: x and y, or dy and dx. */
static Shape shape_of(const Case *c, bool x)
{
    return x ? (Shape){c->n, c->ic, c->h, c->w}
             : (Shape){c->n, c->oc, c->h + 2 * c->pad_h - c->kh + 1, c->w + 2 * c->pad_w - c->kw + 1};
}

static Tensor tensor_make(Shape shape, Dtype dtype)
{
    Tensor t = {.shape = shape, .dtype = dtype, .pitch = shape.c};
    t.data = calloc((size_t)shape_count(shape), dtype_bytes(dtype));
    assert_non_null(t.data);
    return t;
}

static double value_at(const Tensor *t, int64_t at)
{
    return dtype_load(t->dtype, t->data, at);
}

static void value_set(const Tensor *t, int64_t at, double value)
{
    dtype_store(t->dtype, t->data, at, value);
}

/* Uniform in [-1, 1). */
static void fill_random(const Tensor *t)
{
    for (int64_t i = 0; i < shape_count(t->shape); i++) {
        random_state = random_state * 6364136223846793005u + 1442695040888963407u;
        value_set(t, i, (double)(random_state >> 11) / (double)(UINT64_C(1) << 52) - 1);
    }
}

/* A call of one case, and its tensors. */
typedef struct Job {
    const Case *c;
    OpKind kind;
    Tensor from, w, to;
} Job;

static Job job_make(const Case *c, OpKind kind, Dtype dtype)
{
    Job job = {c, kind};
    job.from = tensor_make(shape_of(c, kind == OP_CONV), dtype);
    job.to = tensor_make(shape_of(c, kind != OP_CONV), dtype);
    job.w = tensor_make((Shape){c->oc, c->ic, c->kh, c->kw}, DTYPE_F32);
    fill_random(&job.from);
    fill_random(&job.w);
    return job;
}

static void job_free(Job *job)
{
    free(job->from.data);
    free(job->to.data);
    free(job->w.data);
}

static void job_run(const Job *job, const DeviceConfig *config)
{
    Device device;
    OpCall call = {.kind = job->kind, .name = job->c->name, .in_count = 3, .out_count = 1};
    call.attr.conv.window = window_of(job->c);
    call.in[0] = job->from, call.in[1] = job->w, call.out[0] = job->to;
    assert_int_equal(backend->open(config, &device), OK);
    const OpKernel *kernel = backend->kernels[job->kind];
    if (kernel->prepare(&device, &call) != OK) fail_msg("%s", status_message());
    call.workspace = aligned_alloc(64, (call.workspace_bytes + 127) / 64 * 64);
    assert_non_null(call.workspace);
    memset(call.workspace, 0xFF, call.workspace_bytes);
    if (kernel->launch(&device, &call) != OK) fail_msg("%s", status_message());
    kernel->discard(&device, &call);
    free(call.workspace);
    backend->close(&device);
}

static void *result_copy(const Job *job)
{
    size_t bytes = (size_t)shape_count(job->to.shape) * dtype_bytes(job->to.dtype);
    void *copy = malloc(bytes);
    assert_non_null(copy);
    return memcpy(copy, job->to.data, bytes);
}

/* visit(context, value of what is read, of the weight, output) for every product. */
typedef void Visit(void *context, double from, double w, int64_t to);

static void each_product(const Job *job, Visit *visit, void *context)
{
    const Case *c = job->c;
    const Shape x = shape_of(c, true), y = shape_of(c, false);
    for (int64_t p = 0; p < shape_pixels(y); p++)
        for (int k = 0; k < c->kh * c->kw; k++) {
            int h = (int)(p / y.w % y.h) + k / c->kw - c->pad_h, w = (int)(p % y.w) + k % c->kw - c->pad_w;
            if (h < 0 || w < 0 || h >= x.h || w >= x.w) continue;
            int64_t pixel = (p / y.w / y.h * x.h + h) * x.w + w;
            for (int o = 0; o < c->oc; o++)
                for (int i = 0; i < c->ic; i++) {
                    int64_t at_x = pixel * c->ic + i, at_y = p * c->oc + o;
                    double weight = value_at(&job->w, ((int64_t)o * c->kh * c->kw + k) * c->ic + i);
                    bool forward = job->kind == OP_CONV;
                    visit(context, value_at(&job->from, forward ? at_x : at_y), weight, forward ? at_y : at_x);
                }
        }
}

static void sum_products(void *context, double from, double w, int64_t to)
{
    ((double *)context)[to] += from * w;
}

static void note_values(void *context, double from, double w, int64_t to)
{
    ((bool *)context)[to] |= from != 0;
}

static void need_winograd(Dtype dtype)
{
    Tensor t = {.shape = {2, 64, 16, 16}, .dtype = dtype, .pitch = 64};
    Device device = {.config = {DEVICE_USUAL, .threads = 1}};
    ConvProblem square = {.kind = OP_CONV, .x = &t, .y = &t, .window = {3, 3, 1, 1, 1, 1, false}};
    const char *declines = conv_winograd_f2_3.takes(&device, &square);
    if (!declines) return;
    assert_true(strstr(declines, "processor") || strstr(declines, "AMX")); /* not for this tensor */
    skip("this processor has no use for it: %s", declines);
}

/* ---- accuracy */

static double error_of(const Job *job, const double *wanted)
{
    double error = 0, norm = 0;
    for (int64_t i = 0; i < shape_count(job->to.shape); i++) {
        double off = value_at(&job->to, i) - wanted[i];
        error += off * off;
        norm += wanted[i] * wanted[i];
    }
    return sqrt(error / norm);
}

/* The bits are not those of plain sums, nor with `winograd` those of the finer algorithm, if there is one. The error is
 * at most `most` times that of plain sums. */
static void check_accuracy(const Case *c, OpKind kind, bool winograd, double most)
{
    Job job = job_make(c, kind, DTYPE_F32);
    int64_t count = shape_count(job.to.shape);
    double *wanted = calloc((size_t)count, sizeof *wanted);
    assert_non_null(wanted);
    each_product(&job, sum_products, wanted);
    job_run(&job, &(DeviceConfig){.threads = 2, .winograd_bf16 = true});
    double direct = error_of(&job, wanted);
    float *plain = result_copy(&job);
    job_run(&job, &(DeviceConfig){DEVICE_USUAL, .threads = 2});
    float *small = result_copy(&job);
    if (winograd) job_run(&job, &(DeviceConfig){DEVICE_USUAL, .winograd = true, .threads = 2});
    double own = error_of(&job, wanted);
    print_message("%s, %s: %.2g, direct %.2g, ratio %.2f\n", c->name, op_name(kind), own, direct, own / direct);
    if (!memcmp(plain, job.to.data, (size_t)count * sizeof *plain)) fail_msg("%s: computed directly", c->name);
    if (winograd && !memcmp(small, job.to.data, (size_t)count * sizeof *small))
        fail_msg("%s: not computed with six points", c->name);
    if (!(own <= most * direct)) fail_msg("%s, %s: an error of %g, direct %g", c->name, op_name(kind), own, direct);
    free(plain);
    free(small);
    free(wanted);
    job_free(&job);
}

static void test_near_double_precision(void **state)
{
    /* oneDNN's plain sums for NEON are cut into short ones, and their error is half of that on other processors. */
    const double scale = cpu_isa() == CPU_NEON ? 2 : 1;
    need_winograd(DTYPE_F32);
    for (int i = 0; i < CASES; i++)
        for (int k = 0; k < 2; k++) check_accuracy(&cases[i], kinds[k], false, 2 * scale);
    for (int i = 0; i < LARGE_CASES; i++)
        for (int k = 0; k < 2; k++) check_accuracy(&large_cases[i], kinds[k], true, 4 * scale);
}

/* ---- zeros */

/* Only some pixels are not zero: a few alone, and a rectangle. */
static void leave_some(const Tensor *t)
{
    const Shape s = t->shape;
    for (int64_t p = 0; p < shape_pixels(s); p++) {
        int64_t h = p / s.w % s.h, w = p % s.w;
        bool alone = (h * 31 + w * 17) % 61 == 0, inside = h > s.h / 2 && w > s.w / 2;
        for (int i = 0; !alone && !inside && i < s.c; i++) value_set(t, p * s.c + i, 0);
    }
}

/* bf16 has no code for other multiples of 8. */
static bool is_for(const Case *c, Dtype dtype)
{
    return dtype == DTYPE_F32 || (c->ic % 16 == 0 && c->oc % 16 == 0);
}

static void check_zeros(const Case *c, OpKind kind, Dtype dtype)
{
    if (!is_for(c, dtype)) return;
    Job job = job_make(c, kind, dtype);
    int64_t zeros = 0, count = shape_count(job.to.shape);
    bool *seen = calloc((size_t)count, sizeof *seen);
    assert_non_null(seen);
    leave_some(&job.from);
    each_product(&job, note_values, seen);
    job_run(&job, &(DeviceConfig){DEVICE_USUAL, .threads = 2});
    for (int64_t i = 0; i < count; i++) {
        zeros += !seen[i];
        if (!seen[i] && value_at(&job.to, i) != 0)
            fail_msg("%s, %s %s: %" PRId64 " is %g where the window sees zeros alone", c->name, op_name(kind),
                     dtype_name(dtype), i, value_at(&job.to, i));
    }
    assert_true(zeros > count / 16 && zeros < count);
    free(seen);
    job_free(&job);
}

static void test_zeros_stay_zeros(void **state)
{
    const Dtype dtype = *(Dtype *)*state;
    need_winograd(dtype);
    for (int i = 0; i < CASES; i++)
        for (int k = 0; k < 2; k++) check_zeros(&cases[i], kinds[k], dtype);
}

/* ---- bits */

static void check_threads(const Case *c, OpKind kind, Dtype dtype, bool winograd)
{
    if (!is_for(c, dtype)) return;
    Job job = job_make(c, kind, dtype);
    size_t bytes = (size_t)shape_count(job.to.shape) * dtype_bytes(dtype);
    job_run(&job, &(DeviceConfig){DEVICE_USUAL, .winograd = winograd, .threads = 1});
    void *one = result_copy(&job);
    for (int threads = 2; threads <= 5; threads++) {
        job_run(&job, &(DeviceConfig){DEVICE_USUAL, .winograd = winograd, .threads = threads});
        if (memcmp(one, job.to.data, bytes)) fail_msg("%s: %d threads make other bits than one", c->name, threads);
    }
    free(one);
    job_free(&job);
}

/* One image at a time. */
static void check_batch(const Case *c, OpKind kind, Dtype dtype, bool winograd)
{
    if (!is_for(c, dtype)) return;
    Job job = job_make(c, kind, dtype);
    Case alone = *c;
    alone.n = 1;
    job_run(&job, &(DeviceConfig){DEVICE_USUAL, .winograd = winograd, .threads = 2});
    char *all = result_copy(&job);
    size_t from = (size_t)shape_count(job.from.shape) * dtype_bytes(dtype) / (size_t)c->n;
    size_t to = (size_t)shape_count(job.to.shape) * dtype_bytes(dtype) / (size_t)c->n;
    for (int image = 0; image < c->n; image++) {
        Job single = {.c = &alone, .kind = kind, .from = job.from, .w = job.w, .to = job.to};
        single.from.data = (char *)job.from.data + (size_t)image * from;
        single.to.data = (char *)job.to.data + (size_t)image * to;
        single.from.shape.n = single.to.shape.n = 1;
        job_run(&single, &(DeviceConfig){DEVICE_USUAL, .winograd = winograd, .threads = 2});
        if (memcmp(single.to.data, all + (size_t)image * to, to))
            fail_msg("%s: image %d has other bits alone than among %d", c->name, image, c->n);
    }
    free(all);
    job_free(&job);
}

static void test_threads_and_batches_change_no_bit(void **state)
{
    const Dtype dtype = *(Dtype *)*state;
    need_winograd(dtype);
    for (int i = 0; i < CASES; i++)
        for (int k = 0; k < 2; k++) {
            check_threads(&cases[i], kinds[k], dtype, false);
            check_batch(&cases[i], kinds[k], dtype, false);
        }
    for (int i = 0; dtype == DTYPE_F32 && i < LARGE_CASES; i++)
        for (int k = 0; k < 2; k++) {
            check_threads(&large_cases[i], kinds[k], dtype, true);
            check_batch(&large_cases[i], kinds[k], dtype, true);
        }
}

/* ---- what it takes */

static const char *why_not(int n, int side, int window, int pad, bool keeps_w)
{
    Tensor x = {.shape = {n, 32, side, side}, .dtype = DTYPE_F32, .pitch = 32}, y = x;
    y.shape.h = y.shape.w = side + 2 * pad - window + 1;
    Device device = {.config = {DEVICE_USUAL, .winograd = true, .threads = 1}};
    ConvProblem p = {.kind = OP_CONV, .x = &x, .y = &y, .window = {window, window, 1, 1, pad, pad, false}};
    p.keeps_w = keeps_w;
    const char *why = (window == 3 ? &conv_winograd_f4_3 : &conv_winograd_f2_5)->takes(&device, &p);
    return why ? why : "";
}

static void test_six_points_where_they_save(void **state)
{
    need_winograd(DTYPE_F32);
    assert_string_equal(why_not(32, 8, 3, 1, false), "");
    assert_string_equal(why_not(31, 8, 3, 1, false), "too few tiles for so many weights");
    assert_string_equal(why_not(31, 8, 3, 1, true), "");
    assert_string_equal(why_not(15, 8, 3, 1, true), "too few tiles for so many weights");
    assert_string_equal(why_not(128, 6, 3, 1, false), "tiles of 2x2 fit the image better");
    assert_string_equal(why_not(128, 3, 3, 1, false), "plain sums skip the padding");
    assert_string_equal(why_not(8, 8, 5, 2, false), "");
    assert_string_equal(why_not(128, 3, 5, 2, false), "plain sums skip the padding");
}

static int setup(void **state)
{
    char why[512];
    if (backend_find("cpu", &backend, why, sizeof why) == OK) return 0;
    print_message("%s\n", why);
    return -1;
}

int main(void)
{
    static Dtype f32 = DTYPE_F32, bf16 = DTYPE_BF16;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_near_double_precision),
        {"test_zeros_stay_zeros, f32", test_zeros_stay_zeros, NULL, NULL, &f32},
        {"test_zeros_stay_zeros, bf16", test_zeros_stay_zeros, NULL, NULL, &bf16},
        {"test_threads_and_batches_change_no_bit, f32", test_threads_and_batches_change_no_bit, NULL, NULL, &f32},
        {"test_threads_and_batches_change_no_bit, bf16", test_threads_and_batches_change_no_bit, NULL, NULL, &bf16},
        cmocka_unit_test(test_six_points_where_they_save),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
