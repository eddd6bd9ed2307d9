/* Sigmoid cross-entropy and its gradient: the formulas of kernels/cpu/sigmoid_loss.c. A block computes one sample. */
#include "kernels/cuda/loss.cuh"

struct Sigmoid {
    Tensor logits, prob, targets; /* prob.data NULL: nobody reads it */
    const float *weights;         /* NULL: 1 each */
    const int32_t *labels;
    LossOutputs outputs;
    bool multi_label;
};

/* The loss of this block's sample times the classes; writes the probabilities. */
DEVICE double sigmoid_terms(const Sigmoid &o, int64_t row, const float *target, double *sums)
{
    double loss = 0;
    for (int32_t k = (int32_t)threadIdx.x; k < o.logits.shape.c; k += (int32_t)blockDim.x) {
        float x = logit(o.logits, row, k), e = expf(-fabsf(x)), t = target[k];
        float mass = o.weights ? sigmoid_mass(o.weights[k], t) : 1;
        if (o.prob.data) ((float *)o.prob.data)[blockIdx.x * o.prob.pitch + k] = sigmoid_probability(x, e);
        loss += (double)sigmoid_term(x, e, t, mass);
    }
    return block_sum(loss, sums);
}

/* Hits with several classes for a sample. */
DEVICE void multi_label_correct(const Sigmoid &o, int64_t row, const float *target, double *sums, int32_t correct[2])
{
    SHARED_ARRAY(float, tops, WARPS);
    SHARED_ARRAY(float, places, WARPS);
    double wrong = 0;
    float top = -INFINITY, place = -INFINITY; /* place: minus the first class of the largest logit */
    for (int32_t k = (int32_t)threadIdx.x; k < o.logits.shape.c; k += (int32_t)blockDim.x) {
        float x = logit(o.logits, row, k);
        wrong += (x > 0) != (target[k] >= 0.5f);
        top = larger_of(top, x);
    }
    wrong = block_sum(wrong, sums);
    top = block_largest(top, tops);
    for (int32_t k = (int32_t)threadIdx.x; k < o.logits.shape.c; k += (int32_t)blockDim.x)
        if (logit(o.logits, row, k) == top) place = larger_of(place, (float)-k);
    place = block_largest(place, places);
    correct[0] = wrong == 0;
    correct[1] = place > -INFINITY && target[(int32_t)-place] >= 0.5f;
}

BOUNDED sigmoid_loss_kernel(const __grid_constant__ Sigmoid o)
{
    SHARED_ARRAY(double, sums, WARPS);
    int32_t classes = o.logits.shape.c, label = o.labels[blockIdx.x];
    int64_t row = blockIdx.x * o.logits.pitch;
    const float *target = (const float *)o.targets.data + blockIdx.x * o.targets.pitch;
    Sample sample = {sigmoid_terms(o, row, target, sums) / classes, {0, 0}};
    bool known = o.multi_label || (label >= 0 && label < classes);
    if (o.multi_label) {
        multi_label_correct(o, row, target, sums, sample.correct);
    } else {
        float mine = logit(o.logits, row, known ? label : 0);
        double before = 0;
        for (int32_t k = (int32_t)threadIdx.x; k < classes; k += (int32_t)blockDim.x) {
            before += class_is_before(logit(o.logits, row, k), k, mine, label);
        }
        before = block_sum(before, sums);
        sample.correct[0] = before < 1;
        sample.correct[1] = before < TOP_K;
    }
    if (!known) sample.loss = (double)NAN;
    if (label == LABEL_NONE) sample.loss = 0;
    if (label == LABEL_NONE || sample.loss != sample.loss) sample.correct[0] = sample.correct[1] = 0;
    loss_finish(o.outputs, sample);
}

cudaError_t kernel_sigmoid_loss(const OpCall *call, cudaStream_t stream)
{
    Sigmoid o;
    o.logits = call->in[0];
    o.labels = (const int32_t *)call->in[1].data;
    o.targets = call->in[2];
    o.weights = (const float *)call->in[3].data;
    o.prob = call->out[1];
    o.outputs = loss_outputs(call);
    o.multi_label = call->attr.loss.multi_label;
    LAUNCH((sigmoid_loss_kernel), (uint32_t)o.logits.shape.n, block_for(o.logits.shape.c), stream, o);
    return LAUNCH_ERROR();
}

struct SigmoidGrad {
    Tensor prob, dlogits, targets;
    const float *weights;
    const int32_t *labels;
    const float *dloss;
    Divider classes;
    uint32_t count;
};

BOUNDED sigmoid_loss_dx_kernel(const __grid_constant__ SigmoidGrad o)
{
    uint32_t i = blockIdx.x * BLOCK + threadIdx.x, k;
    if (i >= o.count) return;
    uint32_t n = divided(i, o.classes, &k);
    float prob = ((const float *)o.prob.data)[n * o.prob.pitch + k],
          t = ((const float *)o.targets.data)[n * o.targets.pitch + k], weight = o.weights ? o.weights[k] : 1;
    float dlogit = sigmoid_slope(prob, t, weight) * (o.dloss[0] / (float)o.prob.shape.c);
    if (o.labels[n] == LABEL_NONE) dlogit = 0;
    Lanes<Any, 1>::store(o.dlogits, n * o.dlogits.pitch + k, &dlogit);
}

cudaError_t kernel_sigmoid_loss_dx(const OpCall *call, cudaStream_t stream)
{
    SigmoidGrad o;
    o.prob = call->in[0];
    o.labels = (const int32_t *)call->in[1].data;
    o.dloss = (const float *)call->in[2].data;
    o.targets = call->in[3];
    o.weights = (const float *)call->in[4].data;
    o.dlogits = call->out[0];
    o.classes = divider(o.prob.shape.c);
    o.count = (uint32_t)((int64_t)o.prob.shape.n * o.prob.shape.c);
    LAUNCH((sigmoid_loss_dx_kernel), (uint32_t)ceil_divided(o.count, BLOCK), BLOCK, stream, o);
    return LAUNCH_ERROR();
}
