/* Spans: elementwise ops over tensors that may be slices.
 *
 * If every operand is packed, a span is a piece of the flat array; else it is the channels of one pixel. Either way,
 * operand t of the span starts at t->data[pixel * t->pitch + from] and has n elements. */
#pragma once

#include "kernels/cpu/vector.h"

typedef struct Span {
    int64_t pixel, from, n;
} Span;

typedef void SpanBody(const OpCall *call, Span span);

/* Run `body` over all of out[0]; inputs 0 .. in_count - 1 have the shape of out[0] (absent ones are skipped). */
void spans_run(const Device *device, const OpCall *call, int in_count, SpanBody *body);
/* An op that is only `name`_span over its first `in_count` inputs. */
#define SPAN_KERNEL(name, in_count)                                                                                    \
    static Status name##_launch(Device *device, OpCall *call)                                                          \
    {                                                                                                                  \
        spans_run(device, call, in_count, name##_span);                                                                \
        return OK;                                                                                                     \
    }                                                                                                                  \
    const OpKernel cpu_##name = {.prepare = cpu_check, .launch = name##_launch};

static inline uint32_t elements_per_sample(const Tensor *t)
{
    return (uint32_t)t->shape.c * (uint32_t)t->shape.h * (uint32_t)t->shape.w;
}

static inline void *span_at(const Tensor *t, Span span)
{
    return element_at(t, span.pixel * t->pitch + span.from);
}

/* Convert n elements from any activation type to f32, or back. */
void row_load(Dtype dtype, const void *from, float *to, int64_t n);
void row_store(Dtype dtype, const float *from, void *to, int64_t n);
/* y = max(x, 0), keeping NaN; y may be x. */
void row_relu(Dtype dtype, const void *x, void *y, int64_t n);
void row_add(float *to, const float *from, int64_t n); /* to += from */
