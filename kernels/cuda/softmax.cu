/* Softmax cross-entropy with label smoothing, and its gradient: the formulas of kernels/cpu/softmax.c.
 *
 * A block computes one sample: the largest logit, then sum exp and the mean in f64, then probabilities, the loss of the
 * sample and how many classes come before its label. The block that finishes last adds the samples, always in the same
 * order. Logits are read three times, from the cache after the first. */
#include "kernels/cuda/loss.cuh"

struct Softmax {
    Tensor logits, prob; /* prob.data NULL: nobody reads it */
    Tensor targets;      /* data NULL: the labels and smoothing */
    const int32_t *labels;
    LossOutputs outputs;
    float smoothing;
};

/* The sample of this block, in every thread. */
DEVICE Sample softmax_sample(const Softmax &o)
{
    SHARED_ARRAY(double, sums, WARPS);
    SHARED_ARRAY(float, tops, WARPS);
    int64_t row = blockIdx.x * o.logits.pitch;
    int32_t classes = o.logits.shape.c, label = o.labels[blockIdx.x];
    bool known = label >= 0 && label < classes;
    float top = -INFINITY, mine = logit(o.logits, row, known ? label : 0);
    for (int32_t k = (int32_t)threadIdx.x; k < classes; k += (int32_t)blockDim.x)
        top = larger_of(top, logit(o.logits, row, k));
    top = block_largest(top, tops);
    const float *target = (const float *)o.targets.data;
    if (target) target += blockIdx.x * o.targets.pitch;
    double exps = 0, centered = 0, before = 0, mass = 0, soft = 0; /* of the targets: their sum, and times z - top */
    for (int32_t k = (int32_t)threadIdx.x; k < classes; k += (int32_t)blockDim.x) {
        float z = logit(o.logits, row, k);
        exps += (double)expf(z - top);
        centered += (double)(z - top);
        before += class_is_before(z, k, mine, label);
        if (!target || target[k] == 0) continue; /* classes of target 0 may have a logit of -Inf */
        mass += (double)target[k];
        soft += (double)target[k] * (double)(z - top);
    }
    if (target) {
        mass = block_sum(mass, sums);
        soft = block_sum(soft, sums);
    }
    exps = block_sum(exps, sums);
    centered = block_sum(centered, sums);
    before = block_sum(before, sums);
    if (o.prob.data)
        for (int32_t k = (int32_t)threadIdx.x; k < classes; k += (int32_t)blockDim.x)
            ((float *)o.prob.data)[blockIdx.x * o.prob.pitch + k] =
                (float)((double)expf(logit(o.logits, row, k) - top) / exps);
    double log_sum = log(exps);
    double loss = softmax_loss(log_sum, centered, classes, (double)mine - (double)top, (double)o.smoothing);
    Sample sample = {target ? mass * log_sum - soft : loss, {before < 1, before < TOP_K}};
    if (!known) sample = {label == LABEL_NONE ? 0 : (double)NAN, {0, 0}};
    if (sample.loss != sample.loss) sample.correct[0] = sample.correct[1] = 0;
    return sample;
}

BOUNDED softmax_loss_kernel(const __grid_constant__ Softmax o)
{
    loss_finish(o.outputs, softmax_sample(o));
}

size_t kernel_loss_bytes(int32_t samples)
{
    return (size_t)samples * sizeof(Sample);
}

cudaError_t kernel_softmax_loss(const OpCall *call, cudaStream_t stream)
{
    Softmax o;
    o.logits = call->in[0];
    o.labels = (const int32_t *)call->in[1].data;
    o.targets = call->in[2];
    o.prob = call->out[1];
    o.outputs = loss_outputs(call);
    o.smoothing = call->attr.loss.smoothing;
    LAUNCH((softmax_loss_kernel), (uint32_t)o.logits.shape.n, block_for(o.logits.shape.c), stream, o);
    return LAUNCH_ERROR();
}

/* ---- gradient: (prob - target) dloss, or with targets (prob sum(target) - target) dloss */

struct SoftmaxGrad {
    Tensor prob, dlogits, targets;
    const int32_t *labels;
    const float *dloss;
    float other, right; /* target of the other classes, and what the label has more */
    Divider classes;
    uint32_t count;
};

BOUNDED softmax_loss_dx_kernel(const __grid_constant__ SoftmaxGrad o)
{
    uint32_t i = blockIdx.x * BLOCK + threadIdx.x, k;
    if (i >= o.count) return;
    uint32_t n = divided(i, o.classes, &k);
    float target = o.other + ((int32_t)k == o.labels[n] ? o.right : 0.0f);
    float prob = ((const float *)o.prob.data)[n * o.prob.pitch + k], dlogit = (prob - target) * o.dloss[0];
    if (o.labels[n] == LABEL_NONE) dlogit = 0;
    Lanes<Any, 1>::store(o.dlogits, n * o.dlogits.pitch + k, &dlogit);
}

/* A block computes one sample. */
BOUNDED softmax_targets_dx_kernel(const __grid_constant__ SoftmaxGrad o)
{
    SHARED_ARRAY(double, sums, WARPS);
    uint32_t n = blockIdx.x;
    const float *target = (const float *)o.targets.data + n * o.targets.pitch;
    double mass = 0;
    for (int32_t k = (int32_t)threadIdx.x; k < o.prob.shape.c; k += (int32_t)blockDim.x) mass += (double)target[k];
    mass = block_sum(mass, sums);
    for (int32_t k = (int32_t)threadIdx.x; k < o.prob.shape.c; k += (int32_t)blockDim.x) {
        float prob = ((const float *)o.prob.data)[n * o.prob.pitch + k];
        float dlogit = o.labels[n] == LABEL_NONE ? 0 : (prob * (float)mass - target[k]) * o.dloss[0];
        Lanes<Any, 1>::store(o.dlogits, n * o.dlogits.pitch + k, &dlogit);
    }
}

cudaError_t kernel_softmax_loss_dx(const OpCall *call, cudaStream_t stream)
{
    SoftmaxGrad o;
    o.prob = call->in[0];
    o.labels = (const int32_t *)call->in[1].data;
    o.dloss = (const float *)call->in[2].data;
    o.targets = call->in[3];
    o.dlogits = call->out[0];
    o.other = call->attr.loss.smoothing / (float)o.prob.shape.c;
    o.right = 1.0f - call->attr.loss.smoothing;
    o.classes = divider(o.prob.shape.c);
    o.count = (uint32_t)((int64_t)o.prob.shape.n * o.prob.shape.c);
    if (o.targets.data)
        LAUNCH((softmax_targets_dx_kernel), (uint32_t)o.prob.shape.n, block_for(o.prob.shape.c), stream, o);
    else
        LAUNCH((softmax_loss_dx_kernel), (uint32_t)ceil_divided(o.count, BLOCK), BLOCK, stream, o);
    return LAUNCH_ERROR();
}
