/* Spans and conversions of rows; see span.h. */
#include "kernels/cpu/span.h"

typedef struct SpanRun {
    const OpCall *call;
    SpanBody *body;
    int64_t c;
} SpanRun;

static void span_flat(void *context, int64_t first, int64_t end)
{
    const SpanRun *run = context;
    run->body(run->call, (Span){0, first, end - first});
}

static void span_pixels(void *context, int64_t first, int64_t end)
{
    const SpanRun *run = context;
    for (int64_t pixel = first; pixel < end; pixel++) run->body(run->call, (Span){pixel, 0, run->c});
}

void spans_run(const Device *device, const OpCall *call, int in_count, SpanBody *body)
{
    const Tensor *out = &call->out[0];
    SpanRun run = {call, body, out->shape.c};
    bool packed = tensor_is_packed(out);
    for (int k = 0; k < in_count; k++) packed = packed && (!call->in[k].data || tensor_is_packed(&call->in[k]));
    if (packed)
        chunks_run(device, shape_count(out->shape), CHUNK_ELEMENTS, span_flat, &run);
    else
        chunks_run(device, shape_pixels(out->shape), chunk_pixels(run.c), span_pixels, &run);
}

VECTOR_INLINE void load_rows(Dtype dtype, const void *from, float *to, int64_t n)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) to[i] = load(dtype, from, i);
}

CPU_CLONES void row_load(Dtype dtype, const void *from, float *to, int64_t n)
{
    BY_DTYPE(dtype, load_rows, from, to, n);
}

VECTOR_INLINE void store_rows(Dtype dtype, const float *from, void *to, int64_t n)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) store(dtype, to, i, from[i]);
}

CPU_CLONES void row_store(Dtype dtype, const float *from, void *to, int64_t n)
{
    BY_DTYPE(dtype, store_rows, from, to, n);
}

VECTOR_INLINE void relu_rows(Dtype dtype, const void *x, void *y, int64_t n)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) {
        float value = load(dtype, x, i);
        store(dtype, y, i, 0.0f > value ? 0.0f : value);
    }
}

CPU_CLONES void row_relu(Dtype dtype, const void *x, void *y, int64_t n)
{
    BY_DTYPE(dtype, relu_rows, x, y, n);
}

CPU_CLONES void row_add(float *to, const float *from, int64_t n)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) to[i] += from[i];
}
