/* Batch norm over the batches of several towers, kernel by kernel, of the CPU and (test_cuda_norm_sync) of the
 * emulated GPU: each tower's y, mean, variance and dx are those of the reference in double precision on all batches
 * together, and the towers' dbeta and dgamma add up to its own. Batches differ in size, and values are far from zero,
 * where a difference of squares would cancel. The towers take turns: each runs up to the first sum that is not known
 * yet, until all are. */
#include "kernels/backend.h"

#include "kernels/philox.h"
#include "tests/support/reference.h"
#include "tests/support/unit.h"
#ifdef TOWERS_EMULATE_CUDA
#include "tests/gpu/emulation/emulated_backend.h"
#endif

enum { TOWERS = 3, SIDE = 5, CHANNELS_MAX = 40, BATCH = 9, SUMS = 3, SUM_MAX = 1 + 2 * CHANNELS_MAX };
enum { IMAGE_MAX = SIDE * SIDE * CHANNELS_MAX, IMAGES_MAX = BATCH * IMAGE_MAX };
static const int shares[TOWERS] = {5, 1, 3};

/* ---- the meeting */

typedef struct Meeting {
    int known, calls; /* sums that all towers have given to; calls of this tower so far */
    int count[SUMS];
    float sum[SUMS][SUM_MAX], gift[SUM_MAX];
} Meeting;

static Status meet(void *context, float *values, int count)
{
    Meeting *m = context;
    int call = m->calls++;
    assert_in_range(call, 0, SUMS - 1);
    if (call < m->known) {
        assert_int_equal(count, m->count[call]);
        memcpy(values, m->sum[call], (size_t)count * sizeof *values);
        return OK;
    }
    m->count[call] = count;
    memcpy(m->gift, values, (size_t)count * sizeof *values);
    return FAIL(ERR_COMM, "the others have not come yet");
}

/* ---- one tower: forward and backward of `n` images */

typedef struct Tower {
    int n;
    void *x, *dy, *y, *dx; /* [n][SIDE][SIDE][channels] of `dtype` */
    float mean[CHANNELS_MAX], var[CHANNELS_MAX], dbeta[CHANNELS_MAX], dgamma[CHANNELS_MAX];
} Tower;

static Device device;
static Dtype dtype;
static int channels;
static float beta[CHANNELS_MAX], gamma_[CHANNELS_MAX];

static Tensor image(void *data, int n)
{
    return (Tensor){.data = data, .shape = {n, channels, SIDE, SIDE}, .dtype = dtype, .pitch = channels};
}

static Tensor vector(float *data)
{
    return (Tensor){.data = data, .shape = {1, channels, 1, 1}, .dtype = DTYPE_F32, .pitch = channels};
}

static const OpAttr attr = {.norm = {.epsilon = 1e-3f, .relu = true}};

static Status call_run(OpCall *call)
{
    const OpKernel *kernel = device.backend->kernels[call->kind];
    TRY(kernel->prepare(&device, call));
    TRY(device.backend->alloc(&device, call->workspace_bytes, &call->workspace));
    Status st = kernel->launch(&device, call);
    device.backend->release(&device, call->workspace);
    if (kernel->discard) kernel->discard(&device, call);
    return st;
}

static Status tower_run(Tower *t)
{
    OpCall forward = {.kind = OP_BATCHNORM, .name = "norm", .attr = attr, .in_count = 3, .out_count = 3};
    forward.in[0] = image(t->x, t->n), forward.in[1] = vector(beta), forward.in[2] = vector(gamma_);
    forward.out[0] = image(t->y, t->n), forward.out[1] = vector(t->mean), forward.out[2] = vector(t->var);
    TRY(call_run(&forward));
    OpCall back = {.kind = OP_BATCHNORM_DX, .name = "norm", .attr = attr, .in_count = 6, .out_count = 3};
    back.in[0] = image(t->dy, t->n), back.in[1] = forward.in[0], back.in[2] = vector(beta);
    back.in[3] = vector(t->mean), back.in[4] = vector(t->var), back.in[5] = vector(gamma_);
    back.out[0] = image(t->dx, t->n), back.out[1] = vector(t->dbeta), back.out[2] = vector(t->dgamma);
    return call_run(&back);
}

static void towers_run(Tower towers[TOWERS], Meeting *m)
{
    device.allreduce = meet;
    device.allreduce_context = m;
    for (m->known = 0; m->known <= SUMS; m->known++) {
        for (int t = 0; t < TOWERS; t++) {
            m->calls = 0;
            Status st = tower_run(&towers[t]);
            if (st != (m->known < SUMS ? ERR_COMM : OK)) fail_msg("sum %d: %s", m->known, status_message());
            for (int i = 0; m->known < SUMS && i < m->count[m->known]; i++)
                m->sum[m->known][i] = (t ? m->sum[m->known][i] : 0) + m->gift[i];
        }
    }
    device.allreduce = NULL;
}

/* ---- the reference */

typedef struct Wanted {
    double x[IMAGES_MAX], dy[IMAGES_MAX], y[IMAGES_MAX], dx[IMAGES_MAX];
    double beta[CHANNELS_MAX], gamma[CHANNELS_MAX], mean[CHANNELS_MAX], var[CHANNELS_MAX], dbeta[CHANNELS_MAX],
        dgamma[CHANNELS_MAX];
} Wanted;

static RefTensor whole(double *data)
{
    return (RefTensor){{BATCH, channels, SIDE, SIDE}, data};
}

static RefTensor row(double *data)
{
    return (RefTensor){{1, channels, 1, 1}, data};
}

static void wanted_make(Wanted *w)
{
    RefTensor in[OP_MAX_IN] = {whole(w->x), row(w->beta), row(w->gamma)},
              out[OP_MAX_OUT] = {whole(w->y), row(w->mean), row(w->var)};
    reference_run(OP_BATCHNORM, &attr, in, out);
    RefTensor back_in[OP_MAX_IN] = {whole(w->dy), whole(w->x), row(w->beta), row(w->mean), row(w->var), row(w->gamma)},
              back_out[OP_MAX_OUT] = {whole(w->dx), row(w->dbeta), row(w->dgamma)};
    reference_run(OP_BATCHNORM_DX, &attr, back_in, back_out);
}

/* ---- the comparison */

static double uniform(uint32_t i)
{
    return (double)philox(3, i, 0, 0, 0).v[0] / 4294967296.0 - 0.5;
}

static void images_fill(Wanted *w, double offset)
{
    for (int i = 0; i < BATCH * SIDE * SIDE * channels; i++) {
        w->x[i] = dtype_round(dtype, uniform((uint32_t)i) * (1 + i / 1000 % 3) + offset);
        w->dy[i] = dtype_round(dtype, uniform(1000000 + (uint32_t)i));
    }
    for (int i = 0; i < channels; i++) {
        w->beta[i] = (double)(beta[i] = (float)uniform(2000000 + (uint32_t)i));
        w->gamma[i] = (double)(gamma_[i] = (float)(1 + uniform(3000000 + (uint32_t)i)));
    }
}

static void *memory(size_t bytes)
{
    void *made;
    assert_int_equal(device.backend->alloc(&device, bytes, &made), OK);
    return made;
}

static void tower_open(Tower *t, const Wanted *w, int n, int first)
{
    int each = SIDE * SIDE * channels;
    size_t bytes = (size_t)(n * each) * dtype_bytes(dtype);
    *t = (Tower){.n = n, .x = memory(bytes), .dy = memory(bytes), .y = memory(bytes), .dx = memory(bytes)};
    for (int i = 0; i < n * each; i++) {
        dtype_store(dtype, t->x, i, w->x[first * each + i]);
        dtype_store(dtype, t->dy, i, w->dy[first * each + i]);
    }
}

static void tower_close(Tower *t)
{
    void *const all[] = {t->x, t->dy, t->y, t->dx};
    for (int i = 0; i < 4; i++) device.backend->release(&device, all[i]);
}

static void near_one(const char *what, int i, double have, double wanted, double tolerance)
{
    if (!(fabs(have - wanted) <= tolerance))
        fail_msg("%s, %d channels: %s[%d] is %.9g, wanted %.9g", dtype_name(dtype), channels, what, i, have, wanted);
}

static void near(const char *what, const float *have, const double *wanted, double tolerance)
{
    for (int i = 0; i < channels; i++) near_one(what, i, (double)have[i], wanted[i], tolerance);
}

static void near_images(const char *what, const Tower *t, const void *have, const double *wanted, double tolerance)
{
    static const double rounding[] = {[DTYPE_F32] = 0, [DTYPE_BF16] = 1.0 / 256, [DTYPE_F16] = 1.0 / 2048};
    for (int i = 0; i < t->n * SIDE * SIDE * channels; i++)
        near_one(what, i, dtype_load(dtype, have, i), wanted[i],
                 tolerance + rounding[dtype] * (fabs(wanted[i]) + 0.01));
}

static void compare(double offset, double tolerance)
{
    static Wanted w;
    static Meeting meeting;
    Tower towers[TOWERS];
    float dbeta[CHANNELS_MAX] = {0}, dgamma[CHANNELS_MAX] = {0};
    int first = 0;
    images_fill(&w, offset);
    wanted_make(&w);
    for (int t = 0; t < TOWERS; first += shares[t++]) tower_open(&towers[t], &w, shares[t], first);
    towers_run(towers, &meeting);
    first = 0;
    for (int t = 0; t < TOWERS; first += shares[t++] * SIDE * SIDE * channels) {
        near("mean", towers[t].mean, w.mean, tolerance);
        near("var", towers[t].var, w.var, tolerance);
        near_images("y", &towers[t], towers[t].y, w.y + first, 4 * tolerance);
        near_images("dx", &towers[t], towers[t].dx, w.dx + first, 4 * tolerance);
        for (int i = 0; i < channels; i++) dbeta[i] += towers[t].dbeta[i], dgamma[i] += towers[t].dgamma[i];
        tower_close(&towers[t]);
    }
    near("dbeta", dbeta, w.dbeta, 40 * tolerance);
    near("dgamma", dgamma, w.dgamma, 40 * tolerance);
}

static bool backend_here(const Backend **backend)
{
#ifdef TOWERS_EMULATE_CUDA
    *backend = &emulated_backend;
    return true;
#else
    return backend_find("cpu", backend, NULL, 0) == OK;
#endif
}

/* 19: one element at a time on a GPU; 40: 16 bytes. */
TEST(test_towers_are_one_batch)
{
    static const int counts[] = {1, 19, 40};
    const Backend *backend;
    if (!backend_here(&backend)) skip("no CPU backend here: %s", status_message());
    assert_int_equal(backend->open(&(DeviceConfig){DEVICE_USUAL, .threads = 1}, &device), OK);
    for (dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
        if (backend->computes && backend->computes(dtype) != OK) continue;
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            channels = counts[i];
            compare(0, 2e-6);
            compare(100, 3e-5); /* a mean of 100 is known to 4e-6 */
        }
    }
    backend->close(&device);
}
