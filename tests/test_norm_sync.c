/* Batch norm over the batches of several towers, kernel by kernel: each tower's y, mean, variance and dx are those of
 * the one call on all batches together, and the towers' dbeta and dgamma add up to its own. The towers are threads here
 * that meet in Device.towers_sum, with batches of different size; far from zero, where squares would cancel. */
#include "kernels/backend.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/philox.h"

enum { TOWERS = 3, SIDE = 5, CHANNELS = 19, BATCH = 9, SUMS_MAX = 1 + 2 * CHANNELS };
static const int shares[TOWERS] = {5, 1, 3};

/* ---- the meeting */

typedef struct Meeting {
    pthread_barrier_t all;
    float gift[TOWERS][SUMS_MAX];
} Meeting;

typedef struct Seat {
    Meeting *meeting;
    int tower;
} Seat;

static Status meet(void *context, float *values, int count)
{
    Seat *seat = context;
    memcpy(seat->meeting->gift[seat->tower], values, (size_t)count * sizeof *values);
    pthread_barrier_wait(&seat->meeting->all);
    for (int i = 0; i < count; i++) {
        values[i] = 0;
        for (int t = 0; t < TOWERS; t++) values[i] += seat->meeting->gift[t][i];
    }
    pthread_barrier_wait(&seat->meeting->all);
    return OK;
}

/* ---- one side: forward and backward of `n` images */

typedef struct Side {
    int n;
    float *x, *dy, *y, *dx; /* [n][SIDE][SIDE][CHANNELS]; pointers into the arrays of the whole */
    float mean[CHANNELS], var[CHANNELS], dbeta[CHANNELS], dgamma[CHANNELS];
    Seat *seat; /* NULL: alone */
    Status status;
} Side;

static float beta[CHANNELS], gamma_[CHANNELS];

static Tensor image(float *data, int n)
{
    return (Tensor){.data = data, .shape = {n, CHANNELS, SIDE, SIDE}, .dtype = DTYPE_F32, .pitch = CHANNELS};
}

static Tensor vector(float *data)
{
    return (Tensor){.data = data, .shape = {1, CHANNELS, 1, 1}, .dtype = DTYPE_F32, .pitch = CHANNELS};
}

static Status call_run(Device *device, OpCall *call)
{
    const OpKernel *kernel = device->backend->kernels[call->kind];
    TRY(kernel->prepare(device, call));
    call->workspace = aligned_alloc(64, (call->workspace_bytes + 127) / 64 * 64);
    Status st = kernel->launch(device, call);
    free(call->workspace);
    return st;
}

static Status side_run(Device *device, Side *s)
{
    OpCall forward = {.kind = OP_BATCHNORM, .name = "norm", .in_count = 3, .out_count = 3};
    forward.attr.norm.epsilon = 1e-3f;
    forward.attr.norm.relu = true;
    forward.in[0] = image(s->x, s->n), forward.in[1] = vector(beta), forward.in[2] = vector(gamma_);
    forward.out[0] = image(s->y, s->n), forward.out[1] = vector(s->mean), forward.out[2] = vector(s->var);
    TRY(call_run(device, &forward));
    OpCall back = {.kind = OP_BATCHNORM_DX, .name = "norm", .attr = forward.attr, .in_count = 6, .out_count = 3};
    back.in[0] = image(s->dy, s->n), back.in[1] = forward.in[0], back.in[2] = vector(beta);
    back.in[3] = vector(s->mean), back.in[4] = vector(s->var), back.in[5] = vector(gamma_);
    back.out[0] = image(s->dx, s->n), back.out[1] = vector(s->dbeta), back.out[2] = vector(s->dgamma);
    return call_run(device, &back);
}

static void *side_live(void *context)
{
    Side *s = context;
    const Backend *cpu;
    Device device = {0};
    s->status = backend_find("cpu", &cpu, NULL, 0);
    if (s->status == OK) s->status = cpu->open(&(DeviceConfig){.threads = 1}, &device);
    if (s->status != OK) return NULL;
    if (s->seat) {
        device.towers_sum = meet;
        device.towers_context = s->seat;
    }
    s->status = side_run(&device, s);
    cpu->close(&device);
    return NULL;
}

/* ---- the comparison */

static float uniform(uint32_t i)
{
    return (float)philox(3, i, 0, 0, 0).v[0] / 4294967296.0f - 0.5f;
}

static void near(const char *what, const float *a, const float *b, size_t count, double tolerance)
{
    for (size_t i = 0; i < count; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= tolerance))
            fail_msg("%s[%zu]: %.9g, wanted %.9g", what, i, (double)b[i], (double)a[i]);
}

typedef struct Images {
    float x[BATCH * SIDE * SIDE * CHANNELS], dy[BATCH * SIDE * SIDE * CHANNELS], y[BATCH * SIDE * SIDE * CHANNELS],
        dx[BATCH * SIDE * SIDE * CHANNELS];
} Images;

static void images_fill(Images *im, float offset)
{
    for (uint32_t i = 0; i < BATCH * SIDE * SIDE * CHANNELS; i++) {
        im->x[i] = uniform(i) * (1 + (float)(i / 1000 % 3)) + offset;
        im->dy[i] = uniform(1000000 + i);
    }
    for (uint32_t i = 0; i < CHANNELS; i++) {
        beta[i] = uniform(2000000 + i);
        gamma_[i] = 1 + uniform(3000000 + i);
    }
}

static void towers_run(Images *im, Side towers[TOWERS], Meeting *meeting)
{
    Seat seats[TOWERS];
    pthread_t thread[TOWERS];
    size_t first = 0;
    pthread_barrier_init(&meeting->all, NULL, TOWERS);
    for (int t = 0; t < TOWERS; t++) {
        seats[t] = (Seat){meeting, t};
        towers[t] =
            (Side){.n = shares[t], .x = im->x + first, .dy = im->dy + first, .y = im->y + first, .seat = &seats[t]};
        towers[t].dx = im->dx + first;
        first += (size_t)shares[t] * SIDE * SIDE * CHANNELS;
        assert_int_equal(pthread_create(&thread[t], NULL, side_live, &towers[t]), 0);
    }
    for (int t = 0; t < TOWERS; t++) pthread_join(thread[t], NULL);
    pthread_barrier_destroy(&meeting->all);
}

static void compare(float offset, double tolerance)
{
    static Images whole, parts;
    static Meeting meeting;
    Side one = {.n = BATCH, .x = whole.x, .dy = whole.dy, .y = whole.y, .dx = whole.dx}, towers[TOWERS];
    size_t count = sizeof whole.x / sizeof *whole.x;
    float dbeta[CHANNELS] = {0}, dgamma[CHANNELS] = {0};
    images_fill(&whole, offset);
    images_fill(&parts, offset);
    side_live(&one);
    assert_int_equal(one.status, OK);
    towers_run(&parts, towers, &meeting);
    for (int t = 0; t < TOWERS; t++) {
        assert_int_equal(towers[t].status, OK);
        near("mean", one.mean, towers[t].mean, CHANNELS, tolerance);
        near("var", one.var, towers[t].var, CHANNELS, tolerance);
        for (int i = 0; i < CHANNELS; i++) dbeta[i] += towers[t].dbeta[i], dgamma[i] += towers[t].dgamma[i];
    }
    near("y", whole.y, parts.y, count, 4 * tolerance);
    near("dx", whole.dx, parts.dx, count, 4 * tolerance);
    near("dbeta", one.dbeta, dbeta, CHANNELS, 40 * tolerance);
    near("dgamma", one.dgamma, dgamma, CHANNELS, 40 * tolerance);
}

static void test_towers_are_one_batch(void **state)
{
    (void)state;
    const Backend *cpu;
    if (backend_find("cpu", &cpu, NULL, 0) != OK) skip();
    compare(0, 1e-6);
    compare(100, 2e-5); /* a mean of 100 is known to 4e-6 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_towers_are_one_batch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
