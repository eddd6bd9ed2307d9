/* The update of the weights, the global square sum, the running averages, and the gate, on the CPU.
 *
 * One pass over memory: every block of a few KiB goes through the rule, the weight average and the 16-bit copy while it
 * is in the first-level cache. The rules are those of optimizer.h; g is the scaled and clipped gradient, with the L2
 * term added except for AdamW, which shrinks p by lr * decay first, and LAMB. LARS and LAMB first take the norms of a
 * whole tensor, in parts that depend only on its size, so that the sums are the same for any number of threads. */
#include "kernels/cpu/vector.h"

#include <math.h>

/* The scalars of an update rule. */
typedef struct Rule {
    OptimizerKind kind;
    bool frozen;
    float lr, grad_scale, clip, weight_decay;
    float momentum, beta1, beta2, decay, epsilon;
    bool nesterov;
    float step_size;  /* Adam: lr / (1 - beta1^t) */
    float first_fix;  /* LAMB: 1 / (1 - beta1^t) */
    float second_fix; /* Adam, LAMB: 1 / sqrt(1 - beta2^t) */
} Rule;

typedef struct UpdateRange {
    const OptimizerUpdate *update;
    Rule rule;
    size_t first;
} UpdateRange;

VECTOR_INLINE float gradient(const Rule *r, float g, float p, bool decoupled)
{
    g *= r->grad_scale;
    g = g > r->clip ? r->clip : g;
    g = g < -r->clip ? -r->clip : g;
    return decoupled ? g : g + r->weight_decay * p;
}

CPU_CLONES static void optimizer_sgd_plain(Rule r, float *p, const float *g, int64_t n)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) p[i] -= r.lr * gradient(&r, g[i], p[i], false);
}

CPU_CLONES static void optimizer_sgd_momentum(Rule r, float *p, const float *g, float *momentum, int64_t n)
{
    float of_gradient = r.nesterov ? 1.0f : 0.0f, of_buffer = r.nesterov ? r.momentum : 1.0f;
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) {
        float d = gradient(&r, g[i], p[i], false);
        float buffer = r.momentum * momentum[i] + d;
        momentum[i] = buffer;
        p[i] -= r.lr * (of_gradient * d + of_buffer * buffer);
    }
}

/* TensorFlow's: epsilon under the root, rate inside the momentum. Without a momentum slot the buffer is the step. */
CPU_CLONES static void optimizer_rmsprop_tf(Rule r, float *p, const float *g, float *square, float *momentum, int64_t n)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) {
        float d = gradient(&r, g[i], p[i], false);
        float mean = square[i] + (1.0f - r.decay) * (d * d - square[i]);
        float step = r.lr * d / sqrtf(mean + r.epsilon);
        square[i] = mean;
        if (momentum) {
            step += r.momentum * momentum[i];
            momentum[i] = step;
        }
        p[i] -= step;
    }
}

CPU_CLONES static void optimizer_rmsprop(Rule r, float *p, const float *g, float *square, float *momentum, int64_t n)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) {
        float d = gradient(&r, g[i], p[i], false);
        float mean = r.decay * square[i] + (1.0f - r.decay) * d * d;
        float step = d / (sqrtf(mean) + r.epsilon);
        square[i] = mean;
        if (momentum) {
            step += r.momentum * momentum[i];
            momentum[i] = step;
        }
        p[i] -= r.lr * step;
    }
}

VECTOR_INLINE void adam_rows(Rule r, bool decoupled, float *p, const float *g, float *first, float *second, int64_t n)
{
    float shrink = decoupled ? 1.0f - r.lr * r.weight_decay : 1.0f;
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) {
        float d = gradient(&r, g[i], p[i], decoupled);
        float m = r.beta1 * first[i] + (1.0f - r.beta1) * d;
        float v = r.beta2 * second[i] + (1.0f - r.beta2) * d * d;
        first[i] = m;
        second[i] = v;
        p[i] = p[i] * shrink - r.step_size * m / (sqrtf(v) * r.second_fix + r.epsilon);
    }
}

CPU_CLONES static void optimizer_adam(Rule r, float *p, const float *g, float *first, float *second, int64_t n)
{
    if (r.kind == OPTIMIZER_ADAMW)
        adam_rows(r, true, p, g, first, second, n);
    else
        adam_rows(r, false, p, g, first, second, n);
}

/* The learning rate, with the trust ratio in it, is inside the momentum. */
CPU_CLONES static void optimizer_lars(Rule r, float *p, const float *g, float *momentum, int64_t n)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) {
        float step = r.lr * gradient(&r, g[i], p[i], false);
        if (momentum) {
            step += r.momentum * momentum[i];
            momentum[i] = step;
        }
        p[i] -= step;
    }
}

VECTOR_INLINE float lamb_direction(const Rule *r, float p, float first, float second)
{
    return first * r->first_fix / (sqrtf(second) * r->second_fix + r->epsilon) + r->weight_decay * p;
}

/* The moments are those that trust_chunk has just updated. */
CPU_CLONES static void optimizer_lamb(Rule r, float *p, const float *first, const float *second, int64_t n)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) p[i] -= r.lr * lamb_direction(&r, p[i], first[i], second[i]);
}

static void rule_apply(const Rule *r, const OptimizerUpdate *u, size_t at, int64_t n)
{
    float *p = u->param + at, *a = u->slot[0] ? u->slot[0] + at : NULL, *b = u->slot[1] ? u->slot[1] + at : NULL;
    const float *g = u->grad + at;
    switch (r->kind) {
    case OPTIMIZER_SGD:
        if (r->momentum != 0)
            optimizer_sgd_momentum(*r, p, g, a, n);
        else
            optimizer_sgd_plain(*r, p, g, n);
        break;
    case OPTIMIZER_RMSPROP_TF: optimizer_rmsprop_tf(*r, p, g, a, r->momentum != 0 ? b : NULL, n); break;
    case OPTIMIZER_RMSPROP: optimizer_rmsprop(*r, p, g, a, r->momentum != 0 ? b : NULL, n); break;
    case OPTIMIZER_ADAM:
    case OPTIMIZER_ADAMW: optimizer_adam(*r, p, g, a, b, n); break;
    case OPTIMIZER_LARS: optimizer_lars(*r, p, g, a, n); break;
    case OPTIMIZER_LAMB: optimizer_lamb(*r, p, a, b, n); break;
    case OPTIMIZER_COUNT: break;
    }
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
static void update_chunk(void *context, int64_t first, int64_t end, int thread)
{
    (void)thread;
    const UpdateRange *range = context;
    const OptimizerUpdate *u = range->update;
    for (int64_t i = first; i < end; i += BLOCK_ELEMENTS) {
        size_t at = range->first + (size_t)i;
        int64_t n = smaller(BLOCK_ELEMENTS, end - i);
        if (!range->rule.frozen) rule_apply(&range->rule, u, at, n);
        if (u->ema) optimizer_average(u->ema + at, u->param + at, u->scalars->ema_decay, n);
        if (u->half && u->half_dtype == DTYPE_BF16) optimizer_to_bf16((uint16_t *)u->half + at, u->param + at, n);
        if (u->half && u->half_dtype == DTYPE_F16) optimizer_to_f16((uint16_t *)u->half + at, u->param + at, n);
    }
}

static Rule rule_of(const OptimizerUpdate *u, const OptimizerSegment *segment)
{
    const OptimizerHyper *h = &u->hyper;
    double step = (double)u->scalars->step, lr = (double)u->scalars->lr * (double)segment->lr_factor;
    return (Rule){.kind = h->kind,
                  .frozen = segment->lr_factor == 0,
                  .lr = (float)lr,
                  .grad_scale = u->scalars->grad_scale,
                  .clip = h->clip_value > 0 ? h->clip_value : INFINITY,
                  .weight_decay = segment->weight_decay,
                  .momentum = h->momentum,
                  .beta1 = h->beta1,
                  .beta2 = h->beta2,
                  .decay = h->decay,
                  .epsilon = h->epsilon,
                  .nesterov = h->nesterov,
                  .step_size = (float)(lr / (1 - pow((double)h->beta1, step))),
                  .first_fix = (float)(1 / (1 - pow((double)h->beta1, step))),
                  .second_fix = (float)(1 / sqrt(1 - pow((double)h->beta2, step)))};
}

/* ---- trust ratios */

enum { SQUARE_PARTS = 256 };

typedef struct TrustSum {
    UpdateRange range;
    int64_t size;                 /* elements per part */
    double part[SQUARE_PARTS][2]; /* squares of the parameters, and of their gradients or directions */
} TrustSum;

CPU_CLONES static void lars_squares(Rule r, const float *p, const float *g, int64_t n, double sums[2])
{
    double params = 0, grads = 0;
#ifdef _OPENMP
#pragma omp simd reduction(+ : params, grads)
#endif
    for (int64_t i = 0; i < n; i++) {
        float d = gradient(&r, g[i], p[i], true);
        params += (double)p[i] * (double)p[i];
        grads += (double)d * (double)d;
    }
    sums[0] = params;
    sums[1] = grads;
}

/* Updates the moments, too. */
CPU_CLONES static void lamb_squares(Rule r, const float *p, const float *g, float *first, float *second, int64_t n,
                                    double sums[2])
{
    double params = 0, directions = 0;
#ifdef _OPENMP
#pragma omp simd reduction(+ : params, directions)
#endif
    for (int64_t i = 0; i < n; i++) {
        float d = gradient(&r, g[i], p[i], true);
        float m = r.beta1 * first[i] + (1.0f - r.beta1) * d;
        float v = r.beta2 * second[i] + (1.0f - r.beta2) * d * d;
        first[i] = m;
        second[i] = v;
        float direction = lamb_direction(&r, p[i], m, v);
        params += (double)p[i] * (double)p[i];
        directions += (double)direction * (double)direction;
    }
    sums[0] = params;
    sums[1] = directions;
}

static void trust_chunk(void *context, int64_t first, int64_t end, int thread)
{
    (void)thread;
    TrustSum *op = context;
    const OptimizerUpdate *u = op->range.update;
    size_t at = op->range.first + (size_t)first;
    double *sums = op->part[first / op->size];
    if (op->range.rule.kind == OPTIMIZER_LARS)
        lars_squares(op->range.rule, u->param + at, u->grad + at, end - first, sums);
    else
        lamb_squares(op->range.rule, u->param + at, u->grad + at, u->slot[0] + at, u->slot[1] + at, end - first, sums);
}

static float trust_ratio(Device *device, const UpdateRange *range, const OptimizerSegment *segment)
{
    int64_t count = (int64_t)segment->count;
    TrustSum op = {.range = *range, .size = larger(CHUNK_ELEMENTS, (count + SQUARE_PARTS - 1) / SQUARE_PARTS)};
    const OptimizerHyper *h = &range->update->hyper;
    double params = 0, others = 0;
    if (range->rule.frozen || (h->kind == OPTIMIZER_LARS && !segment->adapts)) return 1;
    chunks_run(device, count, op.size, trust_chunk, &op);
    for (int64_t k = 0; k * op.size < count; k++) {
        params += op.part[k][0];
        others += op.part[k][1];
    }
    if (!segment->adapts || params == 0 || others == 0) return 1;
    params = sqrt(params);
    others = sqrt(others);
    bool lamb = h->kind == OPTIMIZER_LAMB;
    double below = lamb ? others : others + (double)segment->weight_decay * params + (double)h->epsilon;
    return (float)((lamb ? 1 : (double)h->trust) * params / below);
}

Status cpu_optimizer_apply(Device *device, const OptimizerUpdate *update)
{
    TRY(optimizer_check(update));
    if (update->scalars->commit == 0) return OK;
    for (int k = 0; k < update->segment_count; k++) {
        const OptimizerSegment *segment = &update->segments[k];
        UpdateRange range = {update, rule_of(update, segment), segment->first};
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

static void square_chunk(void *context, int64_t first, int64_t end, int thread)
{
    (void)thread;
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
        float value = correct ? batch[i] * correct[i] : batch[i];
        running[i] += weight * (value - running[i]);
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
