/* y = relu?(y + b), in place: the last pass of CONV and DENSE after a product that does not include it. NaN stays NaN, as a
 * bad batch must not be hidden. The bias is for kernels of our own: oneDNN adds it before it rounds. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/span.h"

typedef struct BiasRelu {
    const Tensor *y;
    const float *bias;
    bool relu;
} BiasRelu;

VECTOR_INLINE void bias_row(Dtype dtype, void *y, const float *bias, float floor, int64_t n)
{
    VECTOR_LOOP
    for (int64_t i = 0; i < n; i++) {
        float value = load(dtype, y, i) + bias[i];
        store(dtype, y, i, floor > value ? floor : value);
    }
}

CPU_CLONES static void row_bias(Dtype dtype, void *y, const float *bias, float floor, int64_t n)
{
    BY_DTYPE(dtype, bias_row, y, bias, floor, n);
}

static void flat_chunk(void *context, int64_t first, int64_t end)
{
    const BiasRelu *run = context;
    void *from = element_at(run->y, first);
    row_relu(run->y->dtype, from, from, end - first);
}

static void pixels_chunk(void *context, int64_t first, int64_t end)
{
    const BiasRelu *run = context;
    const Tensor *y = run->y;
    for (int64_t pixel = first; pixel < end; pixel++) {
        void *row = element_at(y, pixel * y->pitch);
        if (run->bias)
            row_bias(y->dtype, row, run->bias, run->relu ? 0.0f : -INFINITY, y->shape.c);
        else
            row_relu(y->dtype, row, row, y->shape.c);
    }
}

void cpu_bias_relu(const Device *device, const Tensor *y, const float *bias, bool relu)
{
    BiasRelu run = {y, bias, relu};
    if (!bias && !relu) return;
    if (!bias && tensor_is_packed(y))
        chunks_run(device, shape_count(y->shape), CHUNK_ELEMENTS, flat_chunk, &run);
    else
        chunks_run(device, shape_pixels(y->shape), chunk_pixels(y->shape.c), pixels_chunk, &run);
}
