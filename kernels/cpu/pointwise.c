/* Sums, products and powers of whole tensors.
 *
 * Each works on blocks that stay in the first-level cache as f32, so operands may be f32 and bf16 in any mixture, and
 * the output may share the storage of any input of its own type. */
#include "kernels/cpu/span.h"

/* One block as f32: the operand itself, or its conversion in `buffer`. */
static const float *block_of(const Tensor *t, Span span, float *buffer)
{
    const void *data = span_at(t, span);
    if (t->dtype == DTYPE_F32) return data;
    row_load(t->dtype, data, buffer, span.n);
    return buffer;
}

static Span span_part(Span span, int64_t at)
{
    return (Span){span.pixel, span.from + at, smaller(BLOCK_ELEMENTS, span.n - at)};
}

/* ---- add */

VECTOR_INLINE void add_rows(Dtype dtype, const void *a, const void *b, bool relu, void *y, int64_t n)
{
    float floor = relu ? 0.0f : -INFINITY;
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) {
        float sum = load(dtype, a, i) + load(dtype, b, i);
        store(dtype, y, i, floor > sum ? floor : sum);
    }
}

CPU_CLONES static void pointwise_add_two(Dtype dtype, const void *a, const void *b, bool relu, void *y, int64_t n)
{
    BY_DTYPE(dtype, add_rows, a, b, relu, y, n);
}

static void add_block(const OpCall *call, Span span)
{
    float sum[BLOCK_ELEMENTS], buffer[BLOCK_ELEMENTS];
    row_load(call->in[0].dtype, span_at(&call->in[0], span), sum, span.n);
    for (int k = 1; k < call->in_count; k++)
        if (call->in[k].data) row_add(sum, block_of(&call->in[k], span, buffer), span.n);
    if (call->attr.add.relu) row_relu(DTYPE_F32, sum, sum, span.n);
    row_store(call->out[0].dtype, sum, span_at(&call->out[0], span), span.n);
}

static void add_span(const OpCall *call, Span span)
{
    for (int64_t i = 0; i < span.n; i += BLOCK_ELEMENTS) add_block(call, span_part(span, i));
}

static void add_two_span(const OpCall *call, Span span)
{
    pointwise_add_two(call->out[0].dtype, span_at(&call->in[0], span), span_at(&call->in[1], span), call->attr.add.relu,
                      span_at(&call->out[0], span), span.n);
}

static Status add_launch(Device *device, OpCall *call)
{
    const Tensor *a = &call->in[0], *b = &call->in[1], *y = &call->out[0];
    bool two = call->in_count == 2 && b->data && a->dtype == y->dtype && b->dtype == y->dtype;
    spans_run(device, call, call->in_count, two ? add_two_span : add_span);
    return OK;
}

const OpKernel cpu_add = {.prepare = cpu_check, .launch = add_launch};

/* ---- mul */

CPU_CLONES static void pointwise_mul(const float *a, const float *b, float *y, int64_t n)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) y[i] = a[i] * b[i];
}

static void mul_span(const OpCall *call, Span span)
{
    float a[BLOCK_ELEMENTS], b[BLOCK_ELEMENTS], y[BLOCK_ELEMENTS];
    for (int64_t i = 0; i < span.n; i += BLOCK_ELEMENTS) {
        Span part = span_part(span, i);
        pointwise_mul(block_of(&call->in[0], part, a), block_of(&call->in[1], part, b), y, part.n);
        row_store(call->out[0].dtype, y, span_at(&call->out[0], part), part.n);
    }
}

/* One pixel: b is that of all pixels of the sample, or of all samples. */
static void mul_pixel(const OpCall *call, int64_t pixel)
{
    const Tensor *b = &call->in[1], *out = &call->out[0];
    int64_t sample = b->shape.n == 1 ? 0 : pixel / ((int64_t)out->shape.h * out->shape.w);
    float x[BLOCK_ELEMENTS], factor[BLOCK_ELEMENTS], y[BLOCK_ELEMENTS];
    for (int64_t i = 0; i < out->shape.c; i += BLOCK_ELEMENTS) {
        Span part = {pixel, i, smaller(BLOCK_ELEMENTS, out->shape.c - i)}, of_b = {sample, i, part.n};
        bool plain = out->dtype == DTYPE_F32;
        float *to = plain ? span_at(out, part) : y;
        pointwise_mul(block_of(&call->in[0], part, x), block_of(b, of_b, factor), to, part.n);
        if (!plain) row_store(out->dtype, y, span_at(out, part), part.n);
    }
}

static void mul_pixels(void *context, int64_t first, int64_t end)
{
    for (int64_t pixel = first; pixel < end; pixel++) mul_pixel(context, pixel);
}

static Status mul_launch(Device *device, OpCall *call)
{
    const Tensor *y = &call->out[0];
    if (shape_equal(call->in[1].shape, y->shape))
        spans_run(device, call, 2, mul_span);
    else
        chunks_run(device, shape_pixels(y->shape), chunk_pixels(y->shape.c), mul_pixels, call);
    return OK;
}

const OpKernel cpu_mul = {.prepare = cpu_check, .launch = mul_launch};

/* ---- affine */

CPU_CLONES static void pointwise_affine(const float *x, float scale, float shift, float *y, int64_t n)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) y[i] = scale * x[i] + shift;
}

static void affine_span(const OpCall *call, Span span)
{
    float x[BLOCK_ELEMENTS], y[BLOCK_ELEMENTS];
    for (int64_t i = 0; i < span.n; i += BLOCK_ELEMENTS) {
        Span part = span_part(span, i);
        pointwise_affine(block_of(&call->in[0], part, x), call->attr.affine.scale, call->attr.affine.shift, y, part.n);
        row_store(call->out[0].dtype, y, span_at(&call->out[0], part), part.n);
    }
}

SPAN_KERNEL(affine, 1)

/* ---- power */

/* The exponents of norms and their gradients are computed without powf. */
static void power_block(const float *x, float exponent, float *y, int64_t n)
{
    if (exponent == 2.0f)
        for (int64_t i = 0; i < n; i++) y[i] = x[i] * x[i];
    else if (exponent == 0.5f)
        for (int64_t i = 0; i < n; i++) y[i] = sqrtf(x[i]);
    else if (exponent == -0.5f)
        for (int64_t i = 0; i < n; i++) y[i] = 1.0f / sqrtf(x[i]);
    else if (exponent == -1.0f)
        for (int64_t i = 0; i < n; i++) y[i] = 1.0f / x[i];
    else
        for (int64_t i = 0; i < n; i++) y[i] = powf(x[i], exponent);
}

static void power_span(const OpCall *call, Span span)
{
    float x[BLOCK_ELEMENTS], y[BLOCK_ELEMENTS];
    for (int64_t i = 0; i < span.n; i += BLOCK_ELEMENTS) {
        Span part = span_part(span, i);
        power_block(block_of(&call->in[0], part, x), call->attr.power.exponent, y, part.n);
        row_store(call->out[0].dtype, y, span_at(&call->out[0], part), part.n);
    }
}

SPAN_KERNEL(power, 1)
