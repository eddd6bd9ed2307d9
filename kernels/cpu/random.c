/* Random values: element i of the step (philox.h) is computed from group i / 4 of the stream ^ 2^31.
 *
 * Uniform: word i % 4 as a number in [0, 1). Normal (Box & Muller 1958): words 0 and 1 give elements 0 and 1 of the
 * group of four, words 2 and 3 give elements 2 and 3. With the two words as u and v in [0, 1), r = sqrt(-2 ln(1 - u))
 * and t = 2 pi v, the values are r cos t and r sin t. */
#include "kernels/cpu/span.h"
#include "kernels/philox.h"

static const uint32_t RANDOM_STREAMS = 0x80000000u; /* disjoint from dropout's streams */

static void random_group(const OpCall *call, uint64_t group, float value[4])
{
    Philox bits = philox_group(call->in[0].data, group, call->attr.random.stream ^ RANDOM_STREAMS);
    for (int k = 0; k < 4; k++) value[k] = philox_unit(bits.v[k]);
    if (!call->attr.random.normal) return;
    for (int k = 0; k < 4; k += 2) {
        float r = sqrtf(-2.0f * logf(1.0f - value[k])), t = 6.2831853071795865f * value[k + 1];
        value[k] = r * cosf(t);
        value[k + 1] = r * sinf(t);
    }
}

static void random_span(const OpCall *call, Span span)
{
    const Tensor *y = &call->out[0];
    uint64_t first =
        philox_first(call->in[0].data, elements_per_sample(y)) + (uint64_t)(span.pixel * y->shape.c + span.from);
    float value[4];
    for (uint64_t i = 0; i < (uint64_t)span.n; i++) {
        if (i == 0 || (first + i) % 4 == 0) random_group(call, (first + i) / 4, value);
        store(y->dtype, span_at(y, span), (int64_t)i, value[(first + i) % 4]);
    }
}

SPAN_KERNEL(random, 0)
