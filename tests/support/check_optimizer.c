/* The checks of check_optimizer.h. */
#include "tests/support/check_optimizer.h"

#include "tests/support/device_memory.h"
#include "tests/support/interpret.h"
#include "tests/support/unit.h"

enum { ELEMENTS = 24000, STEPS = 6, ARENAS = 5 }; /* arenas: param, grad, state 0, state 1, average */

/* A long segment (more than a chunk of the CPU's work), a short one that does not decay and counts its updates from
 * JOINED on, a frozen one; elements between them belong to nobody. The weights of one are zero, and so are the gradients of another. */
static const OptimizerSegment segments[] = {
    {0, 20003, 1e-2f, 1, true},       {20008, 7, 0, 2, false, true},     {20024, 33, 1e-2f, 0, true},
    {20072, 3500, 4e-2f, 0.5f, true}, {23600, 40, 1e-2f, 1, true, true}, {23640, 40, 0, 1, true},
};
enum { SEGMENTS = sizeof segments / sizeof *segments, ZERO_WEIGHTS = 4, ZERO_GRADIENTS = 5, UNFROZEN = -2 };

static bool is_within(int segment, int i)
{
    return (size_t)i >= segments[segment].first && (size_t)i < segments[segment].first + segments[segment].count;
}

/* ---- the optimizers */

typedef struct Trial {
    Device *device;
    OptimizerHyper hyper;
    float host[ARENAS][ELEMENTS];
    uint16_t half[ELEMENTS];
    double wanted[ARENAS][ELEMENTS];
    void *arena[ARENAS], *half_arena, *scalars, *trust_memory;
    OptimizerTrust trust[SEGMENTS];
    double ratio[SEGMENTS];
    Dtype half_dtype;
} Trial;

static void fill_grads(Trial *t, int step)
{
    fill_uniform(t->wanted[1], ELEMENTS, 100 + (uint64_t)step, -3, 3);
    for (int i = 0; i < ELEMENTS; i++) {
        if (is_within(ZERO_GRADIENTS, i)) t->wanted[1][i] = 0;
        t->wanted[1][i] = (double)(t->host[1][i] = (float)t->wanted[1][i]);
    }
}

static Trial *trial_create(Device *device, const OptimizerHyper *hyper, Dtype half_dtype)
{
    Trial *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->device = device;
    t->hyper = *hyper;
    t->half_dtype = half_dtype;
    fill_uniform(t->wanted[0], ELEMENTS, 1, -1, 1);
    for (int i = 0; i < ELEMENTS; i++) {
        t->wanted[0][i] = is_within(ZERO_WEIGHTS, i) ? 0 : (double)(float)t->wanted[0][i];
        t->wanted[2][i] = (double)optimizer_state_start(hyper, 0);
        t->wanted[3][i] = (double)optimizer_state_start(hyper, 1);
        t->wanted[4][i] = t->wanted[0][i] / 2; /* exact; an average has its own way to go, frozen or not */
        for (int a = 0; a < ARENAS; a++) t->host[a][i] = (float)t->wanted[a][i];
    }
    memset(t->half, 0xff, sizeof t->half);
    for (int a = 0; a < ARENAS; a++) t->arena[a] = to_device(device, t->host[a], sizeof t->host[a]);
    t->half_arena = to_device(device, t->half, sizeof t->half);
    t->scalars = to_device(device, &(OptimizerScalars){0}, sizeof(OptimizerScalars));
    t->trust_memory = to_device(device, t->trust, sizeof t->trust);
    return t;
}

static void trial_destroy(Trial *t)
{
    for (int a = 0; a < ARENAS; a++) t->device->backend->release(t->device, t->arena[a]);
    t->device->backend->release(t->device, t->half_arena);
    t->device->backend->release(t->device, t->scalars);
    t->device->backend->release(t->device, t->trust_memory);
    free(t);
}

static void trial_step(Trial *t, const OptimizerScalars *scalars)
{
    Device *device = t->device;
    int states = optimizer_state_count(&t->hyper);
    OptimizerUpdate update = {.hyper = t->hyper,
                              .param = t->arena[0],
                              .grad = t->arena[1],
                              .state = {states > 0 ? t->arena[2] : NULL, states > 1 ? t->arena[3] : NULL},
                              .ema = t->arena[4],
                              .half = t->half_arena,
                              .half_dtype = t->half_dtype,
                              .segments = segments,
                              .segment_count = SEGMENTS,
                              .scalars = t->scalars,
                              .unfrozen_updates = UNFROZEN,
                              .trust = optimizer_is_layerwise(t->hyper.kind) ? t->trust_memory : NULL};
    must(device->backend->upload(device, t->arena[1], t->host[1], sizeof t->host[1]));
    must(device->backend->upload(device, t->scalars, scalars, sizeof *scalars));
    must(device->backend->optimizer_apply(device, &update));
    for (int a = 0; a < ARENAS; a++) to_host(device, t->host[a], t->arena[a], sizeof t->host[a]);
    to_host(device, t->half, t->half_arena, sizeof t->half);
    to_host(device, t->trust, t->trust_memory, sizeof t->trust);
}

static void reference_step(Trial *t, const OptimizerScalars *scalars)
{
    static RefUpdate all[ELEMENTS];
    bool layerwise = optimizer_is_layerwise(t->hyper.kind);
    for (int i = 0; i < ELEMENTS; i++)
        all[i] = (RefUpdate){t->wanted[0][i], t->wanted[1][i], {t->wanted[2][i], t->wanted[3][i]}};
    for (int s = 0; s < SEGMENTS; s++) {
        RefUpdate *first = &all[segments[s].first];
        OptimizerScalars own = *scalars;
        if (segments[s].late) own.step -= UNFROZEN;
        if (layerwise) t->ratio[s] = reference_update_layer(&t->hyper, &segments[s], &own, first);
        for (size_t i = 0; !layerwise && i < segments[s].count; i++)
            reference_update(&t->hyper, &segments[s], &own, &first[i]);
        for (size_t i = segments[s].first; i < segments[s].first + segments[s].count; i++)
            if (scalars->commit != 0)
                t->wanted[4][i] += (1 - (double)scalars->ema_decay) * (all[i].param - t->wanted[4][i]);
    }
    for (int i = 0; i < ELEMENTS; i++) {
        t->wanted[0][i] = all[i].param;
        t->wanted[2][i] = all[i].state[0];
        t->wanted[3][i] = all[i].state[1];
    }
}

static bool owned(int i)
{
    for (int s = 0; s < SEGMENTS; s++)
        if (is_within(s, i)) return true;
    return false;
}

static double root_mean_square(const double *values)
{
    double sum = 0;
    for (int i = 0; i < ELEMENTS; i++) sum += values[i] * values[i];
    return sqrt(sum / ELEMENTS);
}

static void check_trial(const Trial *t, const char *name, int step)
{
    static const char *const arenas[ARENAS] = {"param", "grad", "slot 0", "slot 1", "average"};
    for (int a = 0; a < ARENAS; a++) {
        double size = root_mean_square(t->wanted[a]);
        for (int i = 0; i < ELEMENTS; i++) {
            double got = (double)t->host[a][i], wanted = t->wanted[a][i];
            if (!(fabs(got - wanted) <= 5e-6 * fmax(fabs(wanted), size)))
                fail_msg("%s on %s, step %d: %s[%d] is %.9g, wanted %.9g", name, t->device->backend->name, step,
                         arenas[a], i, got, wanted);
        }
    }
    for (int s = 0; optimizer_is_layerwise(t->hyper.kind) && s < SEGMENTS; s++)
        if (!(fabs((double)t->trust[s].ratio - t->ratio[s]) <= 1e-5 * t->ratio[s]) || t->trust[s].arrived)
            fail_msg("%s on %s, step %d: trust ratio %d is %.9g, wanted %.9g", name, t->device->backend->name, step, s,
                     (double)t->trust[s].ratio, t->ratio[s]);
    for (int i = 0; i < ELEMENTS; i++) {
        double got = dtype_load(t->half_dtype, t->half, i), wanted = dtype_round(t->half_dtype, (double)t->host[0][i]);
        if (owned(i) ? got != wanted : t->half[i] != 0xffff)
            fail_msg("%s on %s, step %d: half[%d] is %.9g, wanted %.9g", name, t->device->backend->name, step, i, got,
                     wanted);
    }
}

typedef struct Optimizer {
    const char *name;
    OptimizerHyper hyper;
} Optimizer;

#define BETAS .beta1 = 0.9f, .beta2 = 0.999f

static const Optimizer optimizers[] = {
    {"SGD, clipped", {OPTIMIZER_SGD, .clip_value = 0.5f}},
    {"RMSProp of TensorFlow, epsilon 1", {OPTIMIZER_RMSPROP_TF, .momentum = 0.9f, .decay = 0.9f, .epsilon = 1}},
    {"RMSProp of TensorFlow, plain", {OPTIMIZER_RMSPROP_TF, .decay = 0.9f, .epsilon = 1e-3f}},
    {"RMSProp, plain", {OPTIMIZER_RMSPROP, .decay = 0.9f, .epsilon = 1e-3f}},
    {"Adam, clipped", {OPTIMIZER_ADAM, BETAS, .epsilon = 1e-8f, .clip_value = 0.25f}},
    {"AdamW, epsilon 1e-8", {OPTIMIZER_ADAMW, BETAS, .epsilon = 1e-8f}},
    {"LARS, epsilon 0", {OPTIMIZER_LARS, .momentum = 0.9f, .trust = 0.02f}},
    {"LARS, clipped, plain", {OPTIMIZER_LARS, .trust = 0.02f, .clip_value = 0.5f, .epsilon = 0.5f}},
    {"LAMB, clipped", {OPTIMIZER_LAMB, .beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-2f, .clip_value = 0.25f}},
#define OPTIMIZER(KIND, rule, label, states, start, uses, usual_momentum, usual_epsilon, about)                        \
    {label, {OPTIMIZER_##KIND, BETAS, .momentum = usual_momentum, .decay = 0.9f, .trust = 0.02f, .epsilon = 1e-3f}},
#define OPTIMIZER_AS(CHOICE, label, KIND, usual_momentum, is_nesterov, about)                                          \
    {label, {OPTIMIZER_##KIND, .momentum = usual_momentum, .nesterov = is_nesterov}},
#include "kernels/optimizers.def"
};

void check_optimizers(Device *device)
{
    for (size_t k = 0; k < sizeof optimizers / sizeof *optimizers; k++) {
        Trial *t = trial_create(device, &optimizers[k].hyper, k % 2 ? DTYPE_F16 : DTYPE_BF16);
        for (int step = 1; step <= STEPS; step++) {
            OptimizerScalars scalars = {0.05f / (float)step, (float)step, 0.5f, 0.9f, 1, {0}};
            fill_grads(t, step);
            reference_step(t, &scalars);
            trial_step(t, &scalars);
            check_trial(t, optimizers[k].name, step);
        }
        trial_destroy(t);
    }
}

/* A step that is not finite changes nothing, to the bit. */
void check_gate(Device *device)
{
    static float before[ARENAS][ELEMENTS];
    for (size_t k = 0; k < sizeof optimizers / sizeof *optimizers; k++) {
        Trial *t = trial_create(device, &optimizers[k].hyper, DTYPE_BF16);
        OptimizerScalars closed = {0.05f, 1, NAN, 0.9f, 0, {0}};
        for (int i = 0; i < ELEMENTS; i++) t->host[1][i] = i % 2 ? NAN : INFINITY;
        memcpy(before, t->host, sizeof before);
        trial_step(t, &closed);
        assert_memory_equal(before, t->host, sizeof before);
        for (int i = 0; i < ELEMENTS; i++) assert_int_equal(t->half[i], 0xffff);
        for (int s = 0; s < SEGMENTS; s++) assert_true(t->trust[s].ratio == 0 && t->trust[s].arrived == 0);
        trial_destroy(t);
    }
}

void check_state_counts(void)
{
    static const int wanted[] = {0, 2, 1, 1, 2, 2, 1, 0, 2};
    for (size_t k = 0; k < sizeof wanted / sizeof *wanted; k++)
        assert_int_equal(optimizer_state_count(&optimizers[k].hyper), wanted[k]);
}

/* ---- the other kernels of the vtable */

static double squares_of(Device *device, const float *x, size_t count)
{
    double sum = -1;
    void *from = to_device(device, x, count * sizeof *x), *to = to_device(device, &sum, sizeof sum);
    must(device->backend->square_sum(device, from, count, to));
    to_host(device, &sum, to, sizeof sum);
    device->backend->release(device, from);
    device->backend->release(device, to);
    return sum;
}

void check_square_sum(Device *device)
{
    static const size_t counts[] = {1, 7, 1000, 300001};
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        double wanted = 0, *values = calloc(counts[k], sizeof *values);
        float *x = calloc(counts[k], sizeof *x);
        assert_true(values && x);
        fill_uniform(values, (int64_t)counts[k], 5, -1, 1);
        for (size_t i = 0; i < counts[k]; i++) x[i] = (float)values[i], wanted += (double)x[i] * (double)x[i];
        assert_true(fabs(squares_of(device, x, counts[k]) - wanted) <= 1e-9 * wanted);
        x[counts[k] - 1] = NAN;
        assert_false(isfinite(squares_of(device, x, counts[k])));
        x[counts[k] - 1] = -INFINITY;
        assert_false(isfinite(squares_of(device, x, counts[k])));
        x[counts[k] - 1] = 3e30f; /* its square is no f32 */
        assert_true(isfinite(squares_of(device, x, counts[k])));
        free(values);
        free(x);
    }
}

/* Segments of all lengths, more than go into one launch; every third does not decay. */
void check_l2_term(Device *device)
{
    enum { PARTS = 600, ROOM = PARTS * 40 + 30000 };
    static double values[ROOM];
    static float x[ROOM];
    static OptimizerSegment part[PARTS];
    size_t end = 3;
    double wanted = 0, term[3] = {0, 0, 7};
    fill_uniform(values, ROOM, 5, -1, 1);
    for (int i = 0; i < ROOM; i++) x[i] = (float)values[i];
    for (int k = 0; k < PARTS; k++) {
        OptimizerSegment *s = &part[k];
        double square = 0;
        *s = (OptimizerSegment){end, k == 300 ? 20011 : (size_t)(k % 37), k % 3 ? 1e-4f * (float)(1 + k % 5) : 0, 1};
        end += s->count;
        for (size_t i = s->first; i < end; i++) square += (double)x[i] * (double)x[i];
        wanted += (double)s->weight_decay / 2 * square;
    }
    assert_true(end <= ROOM);
    void *from = to_device(device, x, sizeof x), *to = to_device(device, term, sizeof term);
    for (int round = 0; round < 2; round++)
        must(device->backend->l2_term(device, from, part, PARTS, (double *)to + round));
    must(device->backend->l2_term(device, from, part, 0, (double *)to + 2));
    to_host(device, term, to, sizeof term);
    device->backend->release(device, from);
    device->backend->release(device, to);
    assert_true(fabs(term[0] - wanted) <= 1e-12 * wanted);
    assert_true(term[0] == term[1]);
    assert_true(term[2] == 0);
}

static void run_average(Device *device, float *running, const float *batch, const float *correct, size_t n,
                        float commit)
{
    size_t bytes = n * sizeof(float);
    void *r = to_device(device, running, bytes), *b = to_device(device, batch, bytes);
    float decay = 0.9f;
    void *c = correct ? to_device(device, correct, bytes) : NULL, *gate = to_device(device, &commit, sizeof commit);
    void *d = to_device(device, &decay, sizeof decay);
    must(device->backend->average(device, r, b, c, d, n, gate));
    to_host(device, running, r, bytes);
    void *const all[] = {r, b, c, gate, d};
    for (int i = 0; i < 5; i++)
        if (all[i]) device->backend->release(device, all[i]);
}

void check_average(Device *device)
{
    enum { COUNT = 1003 };
    static float running[COUNT], batch[COUNT], correct[COUNT];
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < COUNT; i++) {
            bool none = round == 3 && i % 3 == 0;
            running[i] = (float)i / 64;
            batch[i] = round == 2 || none ? NAN : (float)(COUNT - i) / 32;
            correct[i] = none ? 0 : 1 + (float)(i % 5) / 4;
        }
        run_average(device, running, batch, round % 2 ? correct : NULL, COUNT, round == 2 ? 0 : 1);
        for (int i = 0; i < COUNT; i++) {
            double old = (double)((float)i / 64), seen = (double)batch[i] * (round % 2 ? (double)correct[i] : 1);
            bool stays = round == 2 || (round == 3 && i % 3 == 0);
            double wanted = stays ? old : old + (1 - (double)0.9f) * (seen - old);
            assert_true(!stays || running[i] == (float)old);
            assert_true(fabs((double)running[i] - wanted) <= 1e-6 * fmax(1, wanted));
        }
    }
}

void check_memory(Device *device)
{
    enum { COUNT = 1003 };
    float host[COUNT];
    void *memory = NULL;
    must(device->backend->alloc(device, sizeof host, &memory));
    assert_int_equal((uintptr_t)memory % 64, 0);
    to_host(device, host, memory, sizeof host);
    for (int i = 0; i < COUNT; i++) assert_true(host[i] == 0.0f);
    must(device->backend->fill(device, memory, 2.5f, COUNT - 1));
    to_host(device, host, memory, sizeof host);
    for (int i = 0; i < COUNT; i++) assert_true(host[i] == (i < COUNT - 1 ? 2.5f : 0.0f));
    device->backend->release(device, memory);
    char text[256] = "";
    device->backend->describe(device, text, sizeof text);
    assert_true(strlen(text) > 0);
}
