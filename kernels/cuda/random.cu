/* Random values with the bits of kernels/cpu/random.c: element i is made of philox(seed; i / 4, step, tower,
 * stream ^ 2^31), word i % 4. One write. */
#include "kernels/cuda/map.cuh"
#include "kernels/philox.h"

struct Random {
    enum { INPUTS = 0 };
    const uint32_t *counter; /* seed low, seed high, step, tower */
    uint32_t stream;
    bool normal;

    /* Elements 4 * group .. 4 * group + 3. */
    MEMBER void draw(uint32_t group, float *value) const
    {
        uint64_t seed = counter[0] | (uint64_t)counter[1] << 32;
        Philox bits = philox(seed, group, counter[2], counter[3], stream);
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
        UNROLL
        for (int i = 0; i < V; i += 4) {
            float value[4];
            draw((first + i) / 4, value);
            if (V == 1) {
                uint32_t place = first % 4;
                out[0] = place == 0 ? value[0] : place == 1 ? value[1] : place == 2 ? value[2] : value[3];
            } else {
                UNROLL
                for (int k = 0; k < 4 && i + k < V; k++) out[i + k] = value[k];
            }
        }
    }
};

cudaError_t kernel_random(const OpCall *call, cudaStream_t stream)
{
    Random body = {(const uint32_t *)call->in[0].data, call->attr.random.stream ^ 0x80000000u,
                   call->attr.random.normal};
    return map_run(body, (const Tensor *)NULL, call->out[0], stream);
}
