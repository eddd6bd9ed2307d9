/* The update of the weights, square sums and running averages: the rules of optimizer_rules.h over flat arenas.
 *
 * A table of segments travels in the kernel's arguments (at most UPDATE_SEGMENTS; more take another launch), each block
 * finds its segment by bisection and does UPDATE_CHUNK elements of it in blocks of 16 bytes. Everything that changes
 * from step to step is read from device memory, also the gate, so that a captured step can be replayed.
 * Bytes per element: momentum SGD 20, Adam 28, plus 8 for the average and 2 for the 16-bit copy. LARS (8 more) and LAMB
 * (24 for its moments and norms, 16 for the update) take two launches: a block for each TRUST_CHUNK elements of a segment,
 * at most TRUST_PARTS, sums up squares, and the last of them to end adds the parts in an order that depends on the count
 * alone. */
#include "kernels/cuda/block.cuh"
#include "kernels/optimizer_rules.h"

enum { UPDATE_SEGMENTS = 128, UPDATE_STEPS = 2, UPDATE_LANES = 4, UPDATE_CHUNK = BLOCK * UPDATE_LANES * UPDATE_STEPS };

struct UpdateSegment {
    uint64_t first;
    uint32_t count, block; /* block: the number of its first chunk */
    float weight_decay, lr_factor;
};

struct Update {
    float *param;
    const float *grad;
    float *first, *second; /* states; NULL if not used */
    float *ema;
    unsigned short *half;
    const OptimizerScalars *scalars;
    OptimizerTrust *trust; /* of segment[0] and those after it; NULL: no ratios */
    OptimizerRule rule;
    float log_beta1, log_beta2;
    bool half_is_bf16, aligned;
    int segments;
    float unfrozen_updates;
    uint32_t adapts[UPDATE_SEGMENTS / 32], late[UPDATE_SEGMENTS / 32]; /* bits of the segments */
    UpdateSegment segment[UPDATE_SEGMENTS];
};

template <int V> DEVICE void flat_load(const float *from, float *to)
{
    load_vector<V>(from, to);
}

template <int V> DEVICE void flat_store(float *to, const float *from)
{
    if (V == 4) {
        *(float4 *)to = make_float4(from[0], from[V > 1 ? 1 : 0], from[V > 2 ? 2 : 0], from[V > 3 ? 3 : 0]);
    } else {
        to[0] = from[0];
    }
}

/* ---- the rows of optimizers.def */

struct UpdateKind {
    unsigned uses;
    bool layerwise;
    int early; /* states that the first pass updates */
};

constexpr UpdateKind update_kinds[] = {
#define OPTIMIZER(KIND, rule, name, states, start, uses, ...) {uses, false, 0},
#define OPTIMIZER_LAYERWISE(KIND, rule, name, states, start, uses, ...) {uses, true, states},
#include "kernels/optimizers.def"
};

template <int KIND> DEVICE float update_element(const OptimizerRule &r, float g, float p, float *a, float *b)
{
#define OPTIMIZER(K, rule, ...)                                                                                        \
    if (KIND == OPTIMIZER_##K) return rule_##rule(&r, g, p, a, b);
#include "kernels/optimizers.def"
    return p;
}

template <int KIND> DEVICE float update_direction(const OptimizerRule &r, float g, float p, float *a, float *b)
{
#define OPTIMIZER(...)
#define OPTIMIZER_LAYERWISE(K, rule, ...)                                                                              \
    if (KIND == OPTIMIZER_##K) return rule_##rule##_direction(&r, g, p, a, b);
#include "kernels/optimizers.def"
    return 0;
}

template <int KIND> DEVICE double update_ratio(const OptimizerRule &r, double params, double others)
{
#define OPTIMIZER(...)
#define OPTIMIZER_LAYERWISE(K, rule, ...)                                                                              \
    if (KIND == OPTIMIZER_##K) return rule_##rule##_ratio(&r, params, others);
#include "kernels/optimizers.def"
    return 1;
}

/* The 16-bit copy of V elements. */
template <int V> DEVICE void update_half(const Update &u, uint64_t at, const float *p)
{
    unsigned short bits[V];
    UNROLL
    for (int i = 0; i < V; i++) bits[i] = u.half_is_bf16 ? bf16_bits(p[i]) : f16_bits(p[i]);
    if (V == 4) {
        uint2 block = {bits[0] | (unsigned)bits[V > 1 ? 1 : 0] << 16,
                       bits[V > 2 ? 2 : 0] | (unsigned)bits[V > 3 ? 3 : 0] << 16};
        *(uint2 *)(u.half + at) = block;
    } else {
        u.half[at] = bits[0];
    }
}

/* V elements from `at`. */
template <int KIND, int V> DEVICE void update_lanes(const Update &u, const OptimizerRule &r, bool frozen, uint64_t at)
{
    float p[V], g[V], a[V], b[V], average[V];
    flat_load<V>(u.param + at, p);
    UNROLL
    for (int i = 0; i < V; i++) a[i] = b[i] = 0;
    if (!frozen) {
        flat_load<V>(u.grad + at, g);
        if (u.first) flat_load<V>(u.first + at, a);
        if (u.second) flat_load<V>(u.second + at, b);
    }
    if (u.ema) flat_load<V>(u.ema + at, average);
    if (!frozen) {
        UNROLL
        for (int i = 0; i < V; i++) p[i] = update_element<KIND>(r, g[i], p[i], &a[i], &b[i]);
        flat_store<V>(u.param + at, p);
        if (u.first && update_kinds[KIND].early < 1) flat_store<V>(u.first + at, a);
        if (u.second && update_kinds[KIND].early < 2) flat_store<V>(u.second + at, b);
    }
    if (u.ema) {
        float weight = 1.0f - u.scalars->ema_decay;
        UNROLL
        for (int i = 0; i < V; i++) average[i] += weight * (p[i] - average[i]);
        flat_store<V>(u.ema + at, average);
    }
    if (u.half) update_half<V>(u, at, p);
}

/* The segment that chunk number `chunk` of all of them belongs to. */
DEVICE int segment_find(const UpdateSegment *segment, int count, uint32_t chunk)
{
    int low = 0, high = count;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (segment[middle].block <= chunk)
            low = middle;
        else
            high = middle;
    }
    return low;
}

template <int KIND> DEVICE OptimizerRule update_rule(const Update &u, uint32_t number)
{
    const UpdateSegment &segment = u.segment[number];
    OptimizerRule r = u.rule;
    r.lr = u.scalars->lr * segment.lr_factor;
    r.grad_scale = u.scalars->grad_scale;
    r.weight_decay = segment.weight_decay;
    if (update_kinds[KIND].uses & HYPER_BETAS) {
        bool late = u.late[number / 32] >> number % 32 & 1;
        float step = u.scalars->step - (late ? u.unfrozen_updates : 0),
              below = -expm1f(step * u.log_beta1); /* 1 - beta^step, without cancellation */
        r.first_fix = 1.0f / below;
        r.step_size = r.lr / below;
        r.second_fix = 1.0f / sqrtf(-expm1f(step * u.log_beta2));
    }
    return r;
}

template <int KIND> BOUNDED update_kernel(const __grid_constant__ Update u)
{
    if (u.scalars->commit == 0.0f) return;
    int number = segment_find(u.segment, u.segments, blockIdx.x);
    const UpdateSegment &segment = u.segment[number];
    OptimizerRule rule = update_rule<KIND>(u, (uint32_t)number);
    if (update_kinds[KIND].layerwise) rule.lr *= u.trust[number].ratio;
    bool frozen = segment.lr_factor == 0.0f, wide = u.aligned && segment.first % UPDATE_LANES == 0;
    uint32_t start = (blockIdx.x - segment.block) * UPDATE_CHUNK + threadIdx.x * UPDATE_LANES;
    UNROLL
    for (int s = 0; s < UPDATE_STEPS; s++) {
        uint32_t at = start + s * (BLOCK * UPDATE_LANES);
        if (at >= segment.count) return;
        uint32_t end = min(at + UPDATE_LANES, segment.count);
        if (wide && end - at == UPDATE_LANES)
            update_lanes<KIND, UPDATE_LANES>(u, rule, frozen, segment.first + at);
        else
            for (; at < end; at++) update_lanes<KIND, 1>(u, rule, frozen, segment.first + at);
    }
}

/* ---- the trust ratios of layer-wise optimizers */

enum { TRUST_CHUNK = BLOCK * 32 };

/* The blocks of a segment. */
constexpr uint32_t trust_parts(uint32_t count)
{
    uint32_t parts = (count + TRUST_CHUNK - 1) / TRUST_CHUNK, most = TRUST_PARTS;
    return parts < 1 ? 1 : parts > most ? most : parts;
}

static_assert((int)TRUST_PARTS == (int)BLOCK, "a thread for each part");

/* In `u` the number of a segment's first block is that of this kernel. */
template <int KIND> BOUNDED trust_kernel(const __grid_constant__ Update u)
{
    SHARED_ARRAY(double, space, WARPS);
    if (u.scalars->commit == 0.0f) return;
    uint32_t number = (uint32_t)segment_find(u.segment, u.segments, blockIdx.x);
    const UpdateSegment &segment = u.segment[number];
    uint32_t part = blockIdx.x - segment.block, parts = trust_parts(segment.count);
    OptimizerTrust &trust = u.trust[number];
    OptimizerRule r = update_rule<KIND>(u, number);
    constexpr int early = update_kinds[KIND].early;
    bool adapts = segment.lr_factor != 0.0f && u.adapts[number / 32] >> number % 32 & 1,
         moves = early > 0 && segment.lr_factor != 0.0f;
    double params = 0, others = 0;
    for (uint64_t i = part * BLOCK + threadIdx.x; (adapts || moves) && i < segment.count; i += parts * BLOCK) {
        uint64_t at = segment.first + i;
        float p = u.param[at], a = early > 0 ? u.first[at] : 0, b = early > 1 ? u.second[at] : 0;
        float d = update_direction<KIND>(r, u.grad[at], p, &a, &b);
        if (early > 0) u.first[at] = a;
        if (early > 1) u.second[at] = b;
        params += (double)p * (double)p;
        others += (double)d * (double)d;
    }
    params = block_sum(params, space);
    others = block_sum(others, space);
    if (threadIdx.x == 0) {
        trust.part[part][0] = params;
        trust.part[part][1] = others;
    }
    if (!block_is_last(&trust.arrived, parts)) return;
    bool holds = threadIdx.x < parts;
    params = block_sum(holds ? __ldcg(&trust.part[threadIdx.x][0]) : 0, space);
    others = block_sum(holds ? __ldcg(&trust.part[threadIdx.x][1]) : 0, space);
    if (threadIdx.x != 0) return;
    trust.ratio = 1.0f;
    if (adapts && params != 0 && others != 0) trust.ratio = (float)update_ratio<KIND>(r, sqrt(params), sqrt(others));
}

/* ---- launches */

static Update update_of(const OptimizerUpdate *from)
{
    const OptimizerHyper &h = from->hyper;
    Update u;
    int states = optimizer_state_count(&h);
    u.param = from->param, u.grad = from->grad;
    u.first = states > 0 ? from->state[0] : NULL;
    u.second = states > 1 ? from->state[1] : NULL;
    u.ema = from->ema;
    u.half = (unsigned short *)from->half;
    u.scalars = from->scalars;
    u.rule = optimizer_rule(&h);
    u.log_beta1 = h.beta1 > 0 ? (float)log((double)h.beta1) : -INFINITY;
    u.log_beta2 = h.beta2 > 0 ? (float)log((double)h.beta2) : -INFINITY;
    u.half_is_bf16 = from->half_dtype == DTYPE_BF16;
    u.aligned = aligned_16(from->param) && aligned_16(from->grad) && aligned_16(from->state[0]) &&
                aligned_16(from->state[1]) && aligned_16(from->ema) && aligned_16(from->half);
    u.trust = from->trust;
    u.unfrozen_updates = from->unfrozen_updates;
    u.segments = 0;
    memset(u.adapts, 0, sizeof u.adapts);
    memset(u.late, 0, sizeof u.late);
    return u;
}

template <int KIND> static void trust_launch(Update u, cudaStream_t stream)
{
    uint32_t blocks = 0;
    for (int k = 0; k < u.segments; k++) {
        u.segment[k].block = blocks;
        blocks += trust_parts(u.segment[k].count);
    }
    LAUNCH((trust_kernel<KIND>), blocks, BLOCK, stream, u);
}

template <int KIND> static void update_launch(const Update &u, uint32_t blocks, cudaStream_t stream)
{
    if constexpr (update_kinds[KIND].layerwise) trust_launch<KIND>(u, stream);
    LAUNCH((update_kernel<KIND>), blocks, BLOCK, stream, u);
}

typedef void UpdateLaunch(const Update &u, uint32_t blocks, cudaStream_t stream);

static UpdateLaunch *const update_launches[] = {
#define OPTIMIZER(KIND, ...) update_launch<OPTIMIZER_##KIND>,
#include "kernels/optimizers.def"
};

cudaError_t kernel_optimizer(const OptimizerUpdate *update, cudaStream_t stream)
{
    Update u = update_of(update);
    uint32_t blocks = 0;
    for (int k = 0; k < update->segment_count; k++) {
        const OptimizerSegment &from = update->segments[k];
        u.adapts[u.segments / 32] |= (uint32_t)from.adapts << u.segments % 32;
        u.late[u.segments / 32] |= (uint32_t)from.late << u.segments % 32;
        u.segment[u.segments++] = {from.first, (uint32_t)from.count, blocks, from.weight_decay, from.lr_factor};
        blocks += (uint32_t)ceil_divided((int64_t)from.count, UPDATE_CHUNK);
        if (u.segments < UPDATE_SEGMENTS && k + 1 < update->segment_count) continue;
        if (update->trust) u.trust = update->trust + (k + 1 - u.segments);
        if (blocks > 0) update_launches[update->hyper.kind](u, blocks, stream);
        memset(u.adapts, 0, sizeof u.adapts);
        memset(u.late, 0, sizeof u.late);
        u.segments = 0;
        blocks = 0;
    }
    return LAUNCH_ERROR();
}

/* ---- square sums: the partial sums of a grid that depends on the count alone, added by the last block */

enum { SQUARE_PARTS = 512, SQUARE_LOADS = 4 };

struct SquareScratch {
    unsigned counter;
    double partial[SQUARE_PARTS];
};

DEVICE double squares(float4 v)
{
    return (double)v.x * (double)v.x + (double)v.y * (double)v.y + (double)v.z * (double)v.z +
           (double)v.w * (double)v.w;
}

/* *total = before + the sum over all threads of the grid; the last block writes it. */
DEVICE void squares_total(double sum, SquareScratch *scratch, double before, double *total)
{
    SHARED_ARRAY(double, space, WARPS);
    sum = block_sum(sum, space);
    if (threadIdx.x == 0) scratch->partial[blockIdx.x] = sum;
    if (!block_is_last(&scratch->counter, gridDim.x)) return;
    sum = 0;
    for (uint32_t i = threadIdx.x; i < gridDim.x; i += BLOCK) sum += __ldcg(&scratch->partial[i]);
    sum = block_sum(sum, space);
    if (threadIdx.x == 0) *total = before + sum;
}

BOUNDED square_sum_kernel(const float *x, uint64_t count, bool wide, SquareScratch *scratch, double *total)
{
    double sum = 0;
    uint64_t quads = wide ? count / 4 : 0, step = (uint64_t)gridDim.x * BLOCK;
    uint64_t start = (uint64_t)blockIdx.x * BLOCK + threadIdx.x, i = start;
    for (; i + (SQUARE_LOADS - 1) * step < quads; i += SQUARE_LOADS * step) {
        float4 v[SQUARE_LOADS];
        UNROLL
        for (int k = 0; k < SQUARE_LOADS; k++) v[k] = ((const float4 *)x)[i + k * step];
        UNROLL
        for (int k = 0; k < SQUARE_LOADS; k++) sum += squares(v[k]);
    }
    for (; i < quads; i += step) sum += squares(((const float4 *)x)[i]);
    for (i = quads * 4 + start; i < count; i += step) sum += (double)x[i] * (double)x[i];
    squares_total(sum, scratch, 0, total);
}

static_assert(sizeof(SquareScratch) <= KERNEL_SQUARE_SUM_BYTES, "scratch of kernel_square_sum");

cudaError_t kernel_square_sum(const float *x, size_t count, void *scratch, double *sum, cudaStream_t stream)
{
    uint32_t blocks = (uint32_t)clamped((int64_t)count / (BLOCK * 16), 1, SQUARE_PARTS);
    LAUNCH((square_sum_kernel), blocks, BLOCK, stream, x, (uint64_t)count, aligned_16(x), (SquareScratch *)scratch,
           sum);
    return LAUNCH_ERROR();
}

/* ---- the L2 term: all decaying parameters in one launch, as far as their segments fit into its arguments */

struct Decaying {
    const float *param;
    bool wide, more; /* more: add to what earlier launches have found */
    uint32_t chunks;
    int segments;
    UpdateSegment segment[UPDATE_SEGMENTS];
};

BOUNDED l2_term_kernel(const __grid_constant__ Decaying d, SquareScratch *scratch, double *term)
{
    double sum = 0, before = d.more ? *term : 0;
    for (uint32_t chunk = blockIdx.x; chunk < d.chunks; chunk += gridDim.x) {
        const UpdateSegment &segment = d.segment[segment_find(d.segment, d.segments, chunk)];
        uint32_t at = (chunk - segment.block) * UPDATE_CHUNK + threadIdx.x * UPDATE_LANES;
        double part = 0;
        UNROLL
        for (int s = 0; s < UPDATE_STEPS; s++, at += BLOCK * UPDATE_LANES) {
            const float *p = d.param + segment.first + at;
            if (d.wide && at + UPDATE_LANES <= segment.count && segment.first % UPDATE_LANES == 0)
                part += squares(*(const float4 *)p);
            else
                for (uint32_t i = at; i < segment.count && i < at + UPDATE_LANES; i++, p++)
                    part += (double)*p * (double)*p;
        }
        sum += (double)segment.weight_decay / 2 * part;
    }
    squares_total(sum, scratch, before, term);
}

cudaError_t kernel_l2_term(const float *param, const OptimizerSegment *segments, int count, void *scratch, double *term,
                           cudaStream_t stream)
{
    Decaying d;
    d.param = param;
    d.wide = aligned_16(param);
    d.more = false;
    d.chunks = 0;
    d.segments = 0;
    for (int k = 0; k < count || !d.more; k++) { /* without a segment, too: the term is 0 */
        if (k < count && segments[k].count > 0 && segments[k].weight_decay != 0) {
            const OptimizerSegment &from = segments[k];
            UpdateSegment segment = {from.first, (uint32_t)from.count, d.chunks, from.weight_decay, 0};
            d.segment[d.segments++] = segment;
            d.chunks += (uint32_t)ceil_divided((int64_t)from.count, UPDATE_CHUNK);
        }
        if (d.segments < UPDATE_SEGMENTS && k + 1 < count) continue;
        LAUNCH((l2_term_kernel), (uint32_t)clamped(d.chunks, 1, SQUARE_PARTS), BLOCK, stream, d,
               (SquareScratch *)scratch, term);
        d.more = true;
        d.chunks = 0;
        d.segments = 0;
    }
    return LAUNCH_ERROR();
}

/* ---- running averages */

BOUNDED average_kernel(float *running, const float *batch, const float *correct, const float *decay, uint32_t count,
                       const float *commit)
{
    uint32_t i = blockIdx.x * BLOCK + threadIdx.x;
    if (i >= count || *commit == 0.0f) return;
    float factor = correct ? correct[i] : 1.0f;
    if (factor != 0.0f) running[i] += (1.0f - *decay) * (batch[i] * factor - running[i]);
}

cudaError_t kernel_average(float *running, const float *batch, const float *correct, const float *decay, size_t count,
                           const float *commit, cudaStream_t stream)
{
    if (count == 0) return LAUNCH_ERROR();
    LAUNCH((average_kernel), (uint32_t)ceil_divided((int64_t)count, BLOCK), BLOCK, stream, running, batch, correct,
           decay, (uint32_t)count, commit);
    return LAUNCH_ERROR();
}
