/* Softmax cross-entropy with label smoothing, and its gradient.
 *
 * Per sample, with z = logits - max, L = log sum exp z, K classes and smoothing s:
 *     loss = (1 - s) (L - z[label]) + s (L - mean z),    prob = exp(z - L)
 * in f64, summed over the samples in order. With targets t, any numbers >= 0:
 *     loss = sum of t[k] (L - z[k]),    dlogits = (prob sum(t) - t) dloss
 * A sample is top-k correct if fewer than k classes come before its label (of equal logits, the lower class comes first).
 * NaN logits, and labels outside 0 .. K - 1, give a NaN loss and count as wrong. A sample whose label is LABEL_NONE has no
 * loss and no gradient, and is not counted as correct. */
#include "kernels/cpu/loss.h"

typedef struct Softmax {
    const Tensor *logits, *prob;
    const Tensor *targets; /* data NULL: the labels and smoothing */
    const int32_t *labels;
    float smoothing;
    LossSample *samples;
} Softmax;

static float largest(Dtype dtype, const void *z, int64_t classes)
{
    float top = load(dtype, z, 0);
    for (int64_t k = 1; k < classes; k++) {
        float value = load(dtype, z, k);
        if (value > top || value != value) top = value;
    }
    return top;
}

/* Sums over the classes: of exp(z - top) and of z - top. */
static void softmax_sums(Dtype dtype, const void *z, int64_t classes, float top, float *prob, double *exps,
                         double *centered)
{
    *exps = 0;
    *centered = 0;
    for (int64_t k = 0; k < classes; k++) {
        float value = load(dtype, z, k) - top, e = expf(value);
        if (prob) prob[k] = e;
        *exps += (double)e;
        *centered += (double)value;
    }
}

/* The loss of a sample with targets: log sum exp z = log_sum + top. Classes of target 0 may have a logit of -Inf. */
static double target_loss(Dtype dtype, const void *z, int64_t classes, double top, double log_sum, const float *target)
{
    double loss = 0;
    for (int64_t k = 0; k < classes; k++)
        if (target[k] != 0) loss += (double)target[k] * (log_sum - ((double)load(dtype, z, k) - top));
    return loss;
}

static LossSample softmax_sample(Dtype dtype, const void *z, int64_t classes, int32_t label, float smoothing,
                                 const float *target, float *prob)
{
    float top = largest(dtype, z, classes);
    double exps, centered;
    softmax_sums(dtype, z, classes, top, prob, &exps, &centered);
    for (int64_t k = 0; prob && k < classes; k++) prob[k] = (float)((double)prob[k] / exps);
    if (label == LABEL_NONE) return (LossSample){0};
    if (label < 0 || label >= classes || exps != exps) return (LossSample){.loss = (double)NAN};
    double log_sum = log(exps), mine = (double)load(dtype, z, label) - (double)top;
    double loss = softmax_loss(log_sum, centered, (int32_t)classes, mine, (double)smoothing);
    if (target) loss = target_loss(dtype, z, classes, (double)top, log_sum, target);
    int32_t before = classes_before(dtype, z, classes, label);
    return (LossSample){loss, {before < 1, before < TOP_K}};
}

static const float *target_at(const Tensor *targets, int64_t i)
{
    return targets->data ? element_at(targets, i * targets->pitch) : NULL;
}

static void softmax_chunk(void *context, int64_t first, int64_t end)
{
    const Softmax *op = context;
    const Tensor *z = op->logits;
    for (int64_t i = first; i < end; i++) {
        float *prob = op->prob->data ? element_at(op->prob, i * op->prob->pitch) : NULL;
        op->samples[i] = softmax_sample(z->dtype, element_at(z, i * z->pitch), z->shape.c, op->labels[i], op->smoothing,
                                        target_at(op->targets, i), prob);
    }
}

static Status softmax_loss_launch(Device *device, OpCall *call)
{
    Softmax op = {&call->in[0],   &call->out[1], &call->in[2], call->in[1].data, call->attr.loss.smoothing,
                  call->workspace};
    chunks_run(device, op.logits->shape.n, larger(1, 512 / op.logits->shape.c), softmax_chunk, &op);
    loss_sum(op.samples, op.logits->shape.n, call);
    return OK;
}

const OpKernel cpu_softmax_loss = {.prepare = loss_prepare, .launch = softmax_loss_launch};

typedef struct SoftmaxGrad {
    const Tensor *prob, *dlogits, *targets;
    const int32_t *labels;
    float smoothing, dloss;
} SoftmaxGrad;

static void softmax_grad_chunk(void *context, int64_t first, int64_t end)
{
    const SoftmaxGrad *op = context;
    int32_t classes = op->prob->shape.c;
    float other = op->smoothing / (float)classes;
    for (int64_t i = first; i < end; i++) {
        const float *prob = element_at(op->prob, i * op->prob->pitch);
        void *out = element_at(op->dlogits, i * op->dlogits->pitch);
        bool counts = op->labels[i] != LABEL_NONE;
        const float *targets = target_at(op->targets, i);
        double sum = 0;
        for (int32_t k = 0; targets && k < classes; k++) sum += (double)targets[k];
        for (int32_t k = 0; k < classes; k++) {
            float target = other + (k == op->labels[i] ? 1.0f - op->smoothing : 0.0f), mass = 1;
            if (targets) target = targets[k], mass = (float)sum;
            store(op->dlogits->dtype, out, k, counts ? (prob[k] * mass - target) * op->dloss : 0);
        }
    }
}

static Status softmax_loss_dx_launch(Device *device, OpCall *call)
{
    SoftmaxGrad op = {&call->in[0],
                      &call->out[0],
                      &call->in[3],
                      call->in[1].data,
                      call->attr.loss.smoothing,
                      *(const float *)call->in[2].data};
    chunks_run(device, op.prob->shape.n, chunk_pixels(op.prob->shape.c), softmax_grad_chunk, &op);
    return OK;
}

const OpKernel cpu_softmax_loss_dx = {.prepare = cpu_check, .launch = softmax_loss_dx_launch};
