/* The update of the weights, the global square sum, the running averages, and the gate, on the CPU.
 *
 * One pass over memory: every block of a few KiB goes through the rule (optimizer_rules.h), the weight average and the
 * 16-bit copy while it is in the first-level cache. Layer-wise optimizers first take the norms of a whole tensor, in parts
 * that depend only on its size, so that the sums are the same for any number of threads. */
#include "kernels/cpu/vector.h"
#include "kernels/optimizer_rules.h"

typedef struct UpdateRange {
    const OptimizerUpdate *update;
    OptimizerRule rule;
    bool frozen;
    float *state[OPTIMIZER_STATES]; /* NULL: not used */
    size_t first;
} UpdateRange;

#define RULE_LOOP(rule, a, b)                                                                                          \
    VECTOR_LOOP                                                                                                        \
    for (int64_t i = 0; i < n; i++) p[i] = rule_##rule(&r, g[i], p[i], a, b)

typedef void RuleLoop(OptimizerRule r, float *p, const float *g, float *a, float *b, int64_t n);

#define OPTIMIZER(KIND, rule, ...)                                                                                     \
    CPU_CLONES static void optimizer_##rule(OptimizerRule r, float *p, const float *g, float *a, float *b, int64_t n)  \
    {                                                                                                                  \
        if (b)                                                                                                         \
            RULE_LOOP(rule, a + i, b + i);                                                                             \
        else if (a)                                                                                                    \
            RULE_LOOP(rule, a + i, NULL);                                                                              \
        else                                                                                                           \
            RULE_LOOP(rule, NULL, NULL);                                                                               \
    }
#include "kernels/optimizers.def"

static RuleLoop *const rules[OPTIMIZER_COUNT] = {
#define OPTIMIZER(KIND, rule, ...) [OPTIMIZER_##KIND] = optimizer_##rule,
#include "kernels/optimizers.def"
};

static float *state_at(const UpdateRange *range, int state, size_t at)
{
    return range->state[state] ? range->state[state] + at : NULL;
}

/* Written so that a weight equal to its average leaves it exactly as it is. */
CPU_CLONES static void optimizer_average(float *average, const float *p, float decay, int64_t n)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) average[i] += (1.0f - decay) * (p[i] - average[i]);
}

CPU_CLONES static void optimizer_to_bf16(uint16_t *half, const float *p, int64_t n)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) half[i] = bf16_from_f32(p[i]);
}

/* IEEE half precision, rounded to nearest even: 11 bits, overflow to infinity, subnormals below 2^-14. */
VECTOR_INLINE uint16_t f16_from_f32(float value)
{
    uint32_t word, sign;
    memcpy(&word, &value, sizeof word);
    sign = word >> 16 & 0x8000u;
    word &= 0x7FFFFFFFu;
    uint32_t normal = (word - 0x38000000u + 0xFFFu + (word >> 13 & 1u)) >> 13;
    float magnitude, shifted;
    memcpy(&magnitude, &word, sizeof magnitude);
    shifted = magnitude + 0.5f; /* an ulp of 0.5 is 2^-24, the step of subnormal halves */
    uint32_t small;
    memcpy(&small, &shifted, sizeof small);
    uint32_t bits = word < 0x38800000u ? small - 0x3F000000u : normal;
    bits = word >= 0x477FF000u ? 0x7C00u : bits;
    bits = word > 0x7F800000u ? 0x7E00u : bits;
    return (uint16_t)(bits | sign);
}

CPU_CLONES static void optimizer_to_f16(uint16_t *half, const float *p, int64_t n)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) half[i] = f16_from_f32(p[i]);
}

/* Elements [first, end) of a segment, counted from its start. */
static void update_chunk(void *context, int64_t first, int64_t end)
{
    const UpdateRange *range = context;
    const OptimizerUpdate *u = range->update;
    for (int64_t i = first; i < end; i += BLOCK_ELEMENTS) {
        size_t at = range->first + (size_t)i;
        int64_t n = smaller(BLOCK_ELEMENTS, end - i);
        if (!range->frozen)
            rules[u->hyper.kind](range->rule, u->param + at, u->grad + at, state_at(range, 0, at),
                                 state_at(range, 1, at), n);
        if (u->ema) optimizer_average(u->ema + at, u->param + at, u->scalars->ema_decay, n);
        if (u->half && u->half_dtype == DTYPE_BF16) optimizer_to_bf16((uint16_t *)u->half + at, u->param + at, n);
        if (u->half && u->half_dtype == DTYPE_F16) optimizer_to_f16((uint16_t *)u->half + at, u->param + at, n);
    }
}

static UpdateRange range_of(const OptimizerUpdate *u, const OptimizerSegment *segment)
{
    int states = optimizer_state_count(&u->hyper);
    double step = (double)(u->scalars->step - (segment->late ? u->unfrozen_updates : 0)),
           lr = (double)u->scalars->lr * (double)segment->lr_factor;
    UpdateRange range = {.update = u,
                         .rule = optimizer_rule(&u->hyper),
                         .frozen = segment->lr_factor == 0,
                         .state = {states > 0 ? u->state[0] : NULL, states > 1 ? u->state[1] : NULL},
                         .first = segment->first};
    OptimizerRule *r = &range.rule;
    r->lr = (float)lr;
    r->grad_scale = u->scalars->grad_scale;
    r->weight_decay = segment->weight_decay;
    r->step_size = (float)(lr / (1 - pow((double)r->beta1, step)));
    r->first_fix = (float)(1 / (1 - pow((double)r->beta1, step)));
    r->second_fix = (float)(1 / sqrt(1 - pow((double)r->beta2, step)));
    return range;
}

/* ---- trust ratios */

enum { SQUARE_PARTS = 256 };

typedef struct TrustSum {
    UpdateRange range;
    int64_t size;                 /* elements per part */
    double part[SQUARE_PARTS][2]; /* squares of the parameters, and of their directions */
} TrustSum;

typedef void SquareLoop(OptimizerRule r, const float *p, const float *g, float *a, float *b, int64_t n, double sums[2]);

#ifdef _OPENMP
#define SUM_LOOP _Pragma("omp simd reduction(+ : params, others)")
#else
#define SUM_LOOP
#endif

#define OPTIMIZER(...)
#define OPTIMIZER_LAYERWISE(KIND, rule, name, states, ...)                                                             \
    CPU_CLONES static void optimizer_##rule##_squares(OptimizerRule r, const float *p, const float *g, float *a,       \
                                                      float *b, int64_t n, double sums[2])                             \
    {                                                                                                                  \
        double params = 0, others = 0;                                                                                 \
        SUM_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            float d = rule_##rule##_direction(&r, g[i], p[i], states > 0 ? a + i : NULL, states > 1 ? b + i : NULL);   \
            params += (double)p[i] * (double)p[i];                                                                     \
            others += (double)d * (double)d;                                                                           \
        }                                                                                                              \
        sums[0] = params;                                                                                              \
        sums[1] = others;                                                                                              \
    }
#include "kernels/optimizers.def"

static const struct {
    SquareLoop *squares;
    double (*ratio)(const OptimizerRule *r, double params, double others);
} trusts[OPTIMIZER_COUNT] = {
#define OPTIMIZER(...)
#define OPTIMIZER_LAYERWISE(KIND, rule, ...) [OPTIMIZER_##KIND] = {optimizer_##rule##_squares, rule_##rule##_ratio},
#include "kernels/optimizers.def"
};

static void trust_chunk(void *context, int64_t first, int64_t end)
{
    TrustSum *op = context;
    const OptimizerUpdate *u = op->range.update;
    size_t at = op->range.first + (size_t)first;
    trusts[u->hyper.kind].squares(op->range.rule, u->param + at, u->grad + at, state_at(&op->range, 0, at),
                                  state_at(&op->range, 1, at), end - first, op->part[first / op->size]);
}

static float trust_ratio(Device *device, const UpdateRange *range, const OptimizerSegment *segment)
{
    int64_t count = (int64_t)segment->count;
    TrustSum op = {.range = *range, .size = larger(CHUNK_ELEMENTS, (count + SQUARE_PARTS - 1) / SQUARE_PARTS)};
    OptimizerKind kind = range->update->hyper.kind;
    double params = 0, others = 0;
    if (range->frozen || (!segment->adapts && optimizer_infos[kind].states == 0)) return 1;
    chunks_run(device, count, op.size, trust_chunk, &op);
    for (int64_t k = 0; k * op.size < count; k++) {
        params += op.part[k][0];
        others += op.part[k][1];
    }
    if (!segment->adapts || params == 0 || others == 0) return 1;
    return (float)trusts[kind].ratio(&range->rule, sqrt(params), sqrt(others));
}

Status cpu_optimizer_apply(Device *device, const OptimizerUpdate *update)
{
    TRY(optimizer_check(update));
    if (update->scalars->commit == 0) return OK;
    for (int k = 0; k < update->segment_count; k++) {
        const OptimizerSegment *segment = &update->segments[k];
        UpdateRange range = range_of(update, segment);
        if (update->trust) range.rule.lr *= update->trust[k].ratio = trust_ratio(device, &range, segment);
        chunks_run(device, (int64_t)segment->count, CHUNK_ELEMENTS, update_chunk, &range);
    }
    return OK;
}

/* ---- square sum */

typedef struct SquareSum {
    const float *x;
    int64_t size; /* elements per part */
    double part[SQUARE_PARTS];
} SquareSum;

CPU_CLONES static double optimizer_square_sum(const float *x, int64_t n)
{
    double sum = 0;
#ifdef _OPENMP
#pragma omp simd reduction(+ : sum)
#endif
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

static void square_chunk(void *context, int64_t first, int64_t end)
{
    SquareSum *op = context;
    op->part[first / op->size] = optimizer_square_sum(op->x + first, end - first);
}

Status cpu_square_sum(Device *device, const float *x, size_t count, double *sum_of_squares)
{
    SquareSum op = {.x = x, .size = larger(CHUNK_ELEMENTS, ((int64_t)count + SQUARE_PARTS - 1) / SQUARE_PARTS)};
    chunks_run(device, (int64_t)count, op.size, square_chunk, &op);
    double sum = 0;
    for (int64_t k = 0; k * op.size < (int64_t)count; k++) sum += op.part[k];
    *sum_of_squares = sum;
    return OK;
}

Status cpu_l2_term(Device *device, const float *param, const OptimizerSegment *segments, int count, double *term)
{
    *term = 0;
    for (int k = 0; k < count; k++) {
        double square;
        if (segments[k].weight_decay == 0) continue;
        TRY(cpu_square_sum(device, param + segments[k].first, segments[k].count, &square));
        *term += (double)segments[k].weight_decay * square / 2;
    }
    return OK;
}

/* ---- running averages */

CPU_CLONES static void optimizer_running(float *running, const float *batch, const float *correct, float weight,
                                         int64_t n)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) {
        float factor = correct ? correct[i] : 1;
        float after = running[i] + weight * (batch[i] * factor - running[i]);
        running[i] = factor == 0 ? running[i] : after;
    }
}

Status cpu_average(Device *device, float *running, const float *batch, const float *correct, const float *decay,
                   size_t count, const float *commit)
{
    (void)device;
    if (*commit != 0) optimizer_running(running, batch, correct, 1.0f - *decay, (int64_t)count);
    return OK;
}

/* ---- the gate */

Status cpu_gate_extras(Device *device, const GateExtrasCall *call)
{
    (void)device;
    gate_extras_write(call);
    return OK;
}

Status cpu_gate_decide(Device *device, const GateDecideCall *call)
{
    (void)device;
    gate_rules_apply(call);
    return OK;
}
