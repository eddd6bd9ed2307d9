/* Random values with the bits of kernels/cpu/random.c: element i of the step is computed from word i % 4 of group i /
 * 4 of the stream ^ 2^31. One write. */
#include "kernels/cuda/draw.cuh"
#include "kernels/cuda/map.cuh"

template <bool IN_GROUPS> struct RandomValues {
    enum { INPUTS = 0, GROUPED = IN_GROUPS };
    const uint32_t *counter; /* ops.def */
    uint32_t stream, sample; /* sample: its elements */
    bool normal;

    MEMBER void draw(uint64_t group, float *value) const
    {
        Philox bits = philox_group(counter, group, stream);
        UNROLL
        for (int k = 0; k < 4; k++) value[k] = philox_unit(bits.v[k]);
        if (!normal) return;
        UNROLL
        for (int k = 0; k < 4; k += 2) {
            float radius = sqrtf(-2.0f * logf(1.0f - value[k])), turn = 2.0f * value[k + 1];
            value[k] = radius * cospif(turn);
            value[k + 1] = radius * sinpif(turn);
        }
    }
    template <int V> MEMBER void apply(uint32_t first, const float (*)[V], float *out) const
    {
        draw_elements<V>(*this, philox_first(counter, sample) + first, out);
    }
};

struct Random : RandomValues<false> {
};
struct RandomGroups : RandomValues<true> {
};

template <typename Body> static cudaError_t random_run(const OpCall *call, cudaStream_t stream)
{
    Body body = {{(const uint32_t *)call->in[0].data, call->attr.random.stream ^ 0x80000000u,
                  elements_per_sample(call->out[0]), call->attr.random.normal}};
    return map_run(body, (const Tensor *)NULL, call->out[0], stream);
}

cudaError_t kernel_random(const OpCall *call, cudaStream_t stream)
{
    return in_groups(call->out[0]) ? random_run<RandomGroups>(call, stream) : random_run<Random>(call, stream);
}
