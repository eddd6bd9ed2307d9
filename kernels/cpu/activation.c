/* ReLU, leaky ReLU, their gradients, the UNARY ops, dropout and stochastic depth.
 *
 * ReLU keeps NaN, so that a bad batch shows in the loss. Dropout draws a number for each element's place in the step
 * (philox.h), so the mask depends neither on pitch nor on threads nor on the number of towers, and the same op applied
 * to dy is the gradient. Stochastic depth is a dropout whose elements are samples. */
#include "kernels/cpu/span.h"
#include "kernels/philox.h"
#include "kernels/unary.h"

/* ---- ReLU */

static void relu_span(const OpCall *call, Span span)
{
    row_relu(call->out[0].dtype, span_at(&call->in[0], span), span_at(&call->out[0], span), span.n);
}

SPAN_KERNEL(relu, 1)

/* dy where sign > 0, alpha dy elsewhere: alpha 0 and y as sign for ReLU, x as sign for leaky ReLU. */
VECTOR_INLINE void slope_rows(Dtype dtype, const void *dy, const void *sign, float alpha, void *dx, int64_t n)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) {
        float value = load(dtype, dy, i), low = alpha * value;
        store(dtype, dx, i, load(dtype, sign, i) > 0.0f ? value : low);
    }
}

VECTOR_INLINE void mask_rows(Dtype dtype, const void *dy, const void *sign, void *dx, int64_t n)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) store(dtype, dx, i, load(dtype, sign, i) > 0.0f ? load(dtype, dy, i) : 0.0f);
}

CPU_CLONES static void activation_mask(Dtype dtype, const void *dy, const void *sign, void *dx, int64_t n)
{
    BY_DTYPE(dtype, mask_rows, dy, sign, dx, n);
}

CPU_CLONES static void activation_slope(Dtype dtype, const void *dy, const void *sign, float alpha, void *dx, int64_t n)
{
    BY_DTYPE(dtype, slope_rows, dy, sign, alpha, dx, n);
}

static void relu_dx_span(const OpCall *call, Span span)
{
    activation_mask(call->out[0].dtype, span_at(&call->in[0], span), span_at(&call->in[1], span),
                    span_at(&call->out[0], span), span.n);
}

SPAN_KERNEL(relu_dx, 2)

/* ---- leaky ReLU */

static void leaky_relu_span(const OpCall *call, Span span)
{
    const void *x = span_at(&call->in[0], span);
    activation_slope(call->out[0].dtype, x, x, call->attr.leaky.alpha, span_at(&call->out[0], span), span.n);
}

SPAN_KERNEL(leaky_relu, 1)

static void leaky_relu_dx_span(const OpCall *call, Span span)
{
    activation_slope(call->out[0].dtype, span_at(&call->in[0], span), span_at(&call->in[1], span),
                     call->attr.leaky.alpha, span_at(&call->out[0], span), span.n);
}

SPAN_KERNEL(leaky_relu_dx, 2)

/* ---- the UNARY rows of ops.def */

#define UNARY(KIND, name, formula)                                                                                     \
    VECTOR_INLINE void name##_rows(Dtype dtype, const void *x, void *y, int64_t n)                                     \
    {                                                                                                                  \
        VECTOR_LOOP                                                                                                    \
        for (int64_t i = 0; i < n; i++) store(dtype, y, i, unary_##name(load(dtype, x, i)));                           \
    }                                                                                                                  \
    CPU_CLONES static void activation_##name(Dtype dtype, const void *x, void *y, int64_t n)                           \
    {                                                                                                                  \
        BY_DTYPE(dtype, name##_rows, x, y, n);                                                                         \
    }                                                                                                                  \
    static void name##_span(const OpCall *call, Span span)                                                             \
    {                                                                                                                  \
        activation_##name(call->out[0].dtype, span_at(&call->in[0], span), span_at(&call->out[0], span), span.n);      \
    }                                                                                                                  \
    SPAN_KERNEL(name, 1)
#define UNARY_GRAD(KIND, name, formula, slope)                                                                         \
    UNARY(KIND, name, formula)                                                                                         \
    VECTOR_INLINE void name##_dx_rows(Dtype dtype, const void *dy, const void *x, void *dx, int64_t n)                 \
    {                                                                                                                  \
        VECTOR_LOOP                                                                                                    \
        for (int64_t i = 0; i < n; i++)                                                                                \
            store(dtype, dx, i, load(dtype, dy, i) * unary_##name##_slope(load(dtype, x, i)));                         \
    }                                                                                                                  \
    CPU_CLONES static void activation_##name##_dx(Dtype dtype, const void *dy, const void *x, void *dx, int64_t n)     \
    {                                                                                                                  \
        BY_DTYPE(dtype, name##_dx_rows, dy, x, dx, n);                                                                 \
    }                                                                                                                  \
    static void name##_dx_span(const OpCall *call, Span span)                                                          \
    {                                                                                                                  \
        activation_##name##_dx(call->out[0].dtype, span_at(&call->in[0], span), span_at(&call->in[1], span),           \
                               span_at(&call->out[0], span), span.n);                                                  \
    }                                                                                                                  \
    SPAN_KERNEL(name##_dx, 2)
#include "kernels/ops.def"

/* ---- dropout */

/* factor[i] of elements 4 * group .. 4 * (group + groups) - 1: 1 / keep or 0. */
CPU_CLONES static void activation_draw(const uint32_t counter[4], uint32_t stream, float keep, uint64_t group,
                                       uint64_t groups, float *factor)
{
    float scale = 1.0f / keep;
    for (uint64_t i = 0; i < groups; i++) {
        Philox bits = philox_group(counter, group + i, stream);
        factor[4 * i] = philox_unit(bits.v[0]) < keep ? scale : 0.0f;
        factor[4 * i + 1] = philox_unit(bits.v[1]) < keep ? scale : 0.0f;
        factor[4 * i + 2] = philox_unit(bits.v[2]) < keep ? scale : 0.0f;
        factor[4 * i + 3] = philox_unit(bits.v[3]) < keep ? scale : 0.0f;
    }
}

/* The factors of elements first .. first + n - 1, somewhere in `space`. */
static const float *dropout_factors(const OpCall *call, int64_t first, int64_t n, float *space)
{
    const uint32_t *counter = call->in[1].data;
    uint64_t at = philox_first(counter, elements_per_sample(&call->out[0])) + (uint64_t)first, group = at / 4,
             end = (at + (uint64_t)n + 3) / 4;
    activation_draw(counter, call->attr.dropout.stream, call->attr.dropout.keep, group, end - group, space);
    return space + at % 4;
}

CPU_CLONES static void activation_drop(Dtype dtype, const void *x, const float *factor, void *y, int64_t n)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) {
        float value = load(dtype, x, i) * factor[i];
        store(dtype, y, i, factor[i] > 0.0f ? value : 0.0f);
    }
}

static void dropout_span(const OpCall *call, Span span)
{
    const Tensor *x = &call->in[0], *y = &call->out[0];
    float space[BLOCK_ELEMENTS + 8];
    for (int64_t i = 0; i < span.n; i += BLOCK_ELEMENTS) {
        Span part = {span.pixel, span.from + i, smaller(BLOCK_ELEMENTS, span.n - i)};
        const float *factor = dropout_factors(call, part.pixel * y->shape.c + part.from, part.n, space);
        activation_drop(y->dtype, span_at(x, part), factor, span_at(y, part), part.n);
    }
}

SPAN_KERNEL(dropout, 1)

/* ---- stochastic depth */

VECTOR_INLINE void scale_rows(Dtype dtype, const void *x, float factor, void *y, int64_t n)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) store(dtype, y, i, load(dtype, x, i) * factor);
}

CPU_CLONES static void activation_scale(Dtype dtype, const void *x, float factor, void *y, int64_t n)
{
    BY_DTYPE(dtype, scale_rows, x, factor, y, n);
}

/* 1 / keep or 0, for sample `n` of the batch. */
static float sample_factor(const OpCall *call, int64_t n)
{
    const uint32_t *counter = call->in[1].data;
    uint64_t sample = philox_first(counter, 1) + (uint64_t)n;
    Philox bits = philox_group(counter, sample / 4, call->attr.dropout.stream);
    float keep = call->attr.dropout.keep;
    return philox_unit(bits.v[sample % 4]) < keep ? 1.0f / keep : 0.0f;
}

/* A span may end within a sample and begin within another. What is dropped is 0 even where x is not finite. */
static void stochastic_depth_span(const OpCall *call, Span span)
{
    const Tensor *x = &call->in[0], *y = &call->out[0];
    int64_t size = elements_per_sample(y), first = span.pixel * y->shape.c + span.from;
    for (int64_t i = 0; i < span.n;) {
        int64_t n = (first + i) / size, rest = (n + 1) * size - (first + i);
        Span part = {span.pixel, span.from + i, smaller(rest, span.n - i)};
        float factor = sample_factor(call, n);
        void *to = span_at(y, part);
        if (factor > 0.0f)
            activation_scale(y->dtype, span_at(x, part), factor, to, part.n);
        else
            memset(to, 0, (size_t)part.n * dtype_bytes(y->dtype));
        i += part.n;
    }
}

SPAN_KERNEL(stochastic_depth, 1)
