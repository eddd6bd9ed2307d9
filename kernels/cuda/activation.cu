/* ReLU, leaky ReLU, their gradients, the UNARY ops, dropout, stochastic depth: one read of each operand, one write.
 *
 * ReLU keeps NaN, so that a bad batch shows in the loss. Dropout and its bits are those of kernels/cpu/activation.c, so
 * masks do not depend on device, width or pitch. */
#include "kernels/cuda/draw.cuh"
#include "kernels/cuda/map.cuh"
#include "kernels/unary.h"

struct Relu {
    enum { INPUTS = 1 };
    EACH(0.0f > in[0][i] ? 0.0f : in[0][i])
};

struct ReluMask {
    enum { INPUTS = 2 };
    EACH(in[1][i] > 0.0f ? in[0][i] : 0.0f)
};

struct Leaky {
    enum { INPUTS = 1 };
    float alpha;
    EACH(in[0][i] > 0.0f ? in[0][i] : alpha * in[0][i])
};

struct LeakyMask {
    enum { INPUTS = 2 };
    float alpha;
    EACH(in[1][i] > 0.0f ? in[0][i] : alpha * in[0][i])
};

template <bool IN_GROUPS> struct DropoutMask {
    enum { INPUTS = 1, GROUPED = IN_GROUPS };
    const uint32_t *counter; /* ops.def */
    uint32_t stream, sample; /* sample: its elements */
    float keep, scale;

    MEMBER void draw(uint64_t group, float *unit) const
    {
        Philox bits = philox_group(counter, group, stream);
        UNROLL
        for (int k = 0; k < 4; k++) unit[k] = philox_unit(bits.v[k]);
    }
    template <int V> MEMBER void apply(uint32_t first, const float (*in)[V], float *out) const
    {
        float unit[V];
        draw_elements<V>(*this, philox_first(counter, sample) + first, unit);
        UNROLL
        for (int i = 0; i < V; i++) out[i] = unit[i] < keep ? in[0][i] * scale : 0.0f;
    }
};

cudaError_t kernel_relu(const OpCall *call, cudaStream_t stream)
{
    return map_run(Relu(), call->in, call->out[0], stream);
}

cudaError_t kernel_relu_dx(const OpCall *call, cudaStream_t stream)
{
    return map_run(ReluMask(), call->in, call->out[0], stream);
}

cudaError_t kernel_leaky_relu(const OpCall *call, cudaStream_t stream)
{
    Leaky body = {call->attr.leaky.alpha};
    return map_run(body, call->in, call->out[0], stream);
}

cudaError_t kernel_leaky_relu_dx(const OpCall *call, cudaStream_t stream)
{
    LeakyMask body = {call->attr.leaky.alpha};
    return map_run(body, call->in, call->out[0], stream);
}

#define UNARY(KIND, name, formula)                                                                                     \
    struct Unary_##name {                                                                                              \
        enum { INPUTS = 1 };                                                                                           \
        EACH(unary_##name(in[0][i]))                                                                                   \
    };                                                                                                                 \
    cudaError_t kernel_##name(const OpCall *call, cudaStream_t stream)                                                 \
    {                                                                                                                  \
        return map_run(Unary_##name(), call->in, call->out[0], stream);                                                \
    }
#define UNARY_GRAD(KIND, name, formula, slope)                                                                         \
    UNARY(KIND, name, formula)                                                                                         \
    struct Unary_##name##_dx {                                                                                         \
        enum { INPUTS = 2 };                                                                                           \
        EACH(in[0][i] * unary_##name##_slope(in[1][i]))                                                                \
    };                                                                                                                 \
    cudaError_t kernel_##name##_dx(const OpCall *call, cudaStream_t stream)                                            \
    {                                                                                                                  \
        return map_run(Unary_##name##_dx(), call->in, call->out[0], stream);                                           \
    }
#include "kernels/ops.def"

struct Dropout : DropoutMask<false> {
};
struct DropoutGroups : DropoutMask<true> {
};

template <typename Body> static cudaError_t dropout_run(const OpCall *call, cudaStream_t stream)
{
    Body body = {{(const uint32_t *)call->in[1].data, call->attr.dropout.stream, elements_per_sample(call->out[0]),
                  call->attr.dropout.keep, 1.0f / call->attr.dropout.keep}};
    return map_run(body, call->in, call->out[0], stream);
}

cudaError_t kernel_dropout(const OpCall *call, cudaStream_t stream)
{
    return in_groups(call->out[0]) ? dropout_run<DropoutGroups>(call, stream) : dropout_run<Dropout>(call, stream);
}

struct StochasticDepth {
    enum { INPUTS = 1 };
    const uint32_t *counter; /* ops.def */
    uint32_t stream;
    Divider sample; /* elements of one */
    float keep, scale;

    MEMBER float factor(uint32_t n) const
    {
        uint64_t sample_of_step = philox_first(counter, 1) + n;
        Philox bits = philox_group(counter, sample_of_step / 4, stream);
        uint32_t low = sample_of_step & 1 ? bits.v[1] : bits.v[0], high = sample_of_step & 1 ? bits.v[3] : bits.v[2];
        return philox_unit(sample_of_step & 2 ? high : low) < keep ? scale : 0.0f;
    }
    /* The elements of a vector are mostly those of one sample. */
    template <int V> MEMBER void apply(uint32_t first, const float (*in)[V], float *out) const
    {
        uint32_t from, n = divided(first, sample, &from);
        float drawn = factor(n);
        UNROLL
        for (int i = 0; i < V; i++) {
            uint32_t rest, own = divided(first + i, sample, &rest);
            if (own != n) drawn = factor(n = own);
            out[i] = drawn > 0.0f ? in[0][i] * drawn : 0.0f;
        }
    }
};

cudaError_t kernel_stochastic_depth(const OpCall *call, cudaStream_t stream)
{
    StochasticDepth body = {(const uint32_t *)call->in[1].data, call->attr.dropout.stream,
                            divider(elements_per_sample(call->out[0])), call->attr.dropout.keep,
                            1.0f / call->attr.dropout.keep};
    return map_run(body, call->in, call->out[0], stream);
}
