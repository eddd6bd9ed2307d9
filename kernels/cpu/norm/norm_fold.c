/* NORM_FOLD: the weights and the bias of a convolution that includes the batch norm behind it. Scale and shift of a channel
 * are computed in double precision, so every weight is rounded once. */
#include "kernels/cpu/vector.h"

static void fold_channel(const OpCall *call, int64_t channel)
{
    const float *w = call->in[0].data, *beta = call->in[1].data, *mean = call->in[2].data, *var = call->in[3].data,
                *gamma = call->in[4].data;
    float *y = call->out[0].data, *bias = call->out[1].data;
    int64_t row = shape_count(call->in[0].shape) / call->in[0].shape.n, first = channel * row;
    double scale = 1 / sqrt((double)var[channel] + (double)call->attr.norm.epsilon);
    if (gamma) scale *= (double)gamma[channel];
    if (bias) bias[channel] = (float)((double)beta[channel] - scale * (double)mean[channel]);
    for (int64_t i = first; y && i < first + row; i++) y[i] = (float)(scale * (double)w[i]);
}

static void fold_chunk(void *context, int64_t first, int64_t end)
{
    for (int64_t channel = first; channel < end; channel++) fold_channel(context, channel);
}

static Status norm_fold_launch(Device *device, OpCall *call)
{
    int64_t channels = call->in[0].shape.n;
    chunks_run(device, channels, chunk_pixels(shape_count(call->in[0].shape) / channels), fold_chunk, call);
    return OK;
}

const OpKernel cpu_norm_fold = {.launch = norm_fold_launch};
