/* Sigmoid cross-entropy (binary cross-entropy with logits: PyTorch's BCEWithLogitsLoss), and its gradient.
 *
 * Every class is a decision of its own. Per sample, with logits x, targets t from 0 to 1, weights w of the classes (1
 * without them; PyTorch's pos_weight), K classes and p = sigmoid x:
 *     loss = 1/K sum of (1 - t) x + (1 + (w - 1) t) (max(-x, 0) + log1p(exp(-|x|)))
 *     dlogits = (p (1 + (w - 1) t) - w t) dloss / K
 * The terms of a sample are f32, their sum and that of the samples, in order, f64. A sample whose
 * label is LABEL_NONE has no loss, counts as correct nowhere and has no gradient. NaN logits, and with one class for a sample
 * labels outside 0 .. K - 1, give a NaN loss and count as wrong. What counts as correct is defined in softmax.c, and for
 * several classes for a sample in op.h. */
#include "kernels/cpu/loss.h"

typedef struct Sigmoid {
    const Tensor *logits, *prob, *targets;
    const float *weights; /* NULL: 1 each */
    const int32_t *labels;
    bool multi_label;
    LossSample *samples;
} Sigmoid;

/* Whether exactly the right classes have a probability above 0.5, and whether the most probable class is right. */
static void multi_label_correct(Dtype dtype, const void *x, const float *target, int64_t classes, bool correct[2])
{
    int64_t top = 0;
    correct[0] = true;
    for (int64_t k = 0; k < classes; k++) {
        float value = load(dtype, x, k);
        correct[0] = correct[0] && (value > 0) == (target[k] >= 0.5f);
        if (value > load(dtype, x, top)) top = k;
    }
    correct[1] = target[top] >= 0.5f;
}

static LossSample sigmoid_sample(const Sigmoid *op, const void *x, int32_t label, const float *target, float *prob)
{
    Dtype dtype = op->logits->dtype;
    int64_t classes = op->logits->shape.c;
    LossSample found = {0};
    for (int64_t k = 0; k < classes; k++) {
        float value = load(dtype, x, k), e = expf(-fabsf(value)), t = target[k];
        float mass = op->weights ? sigmoid_mass(op->weights[k], t) : 1;
        if (prob) prob[k] = sigmoid_probability(value, e);
        found.loss += (double)sigmoid_term(value, e, t, mass);
    }
    found.loss /= (double)classes;
    if (label == LABEL_NONE) return (LossSample){0};
    if (!op->multi_label && (label < 0 || label >= classes)) return (LossSample){.loss = (double)NAN};
    if (op->multi_label) {
        multi_label_correct(dtype, x, target, classes, found.correct);
    } else {
        int32_t before = classes_before(dtype, x, classes, label);
        found.correct[0] = before < 1;
        found.correct[1] = before < TOP_K;
    }
    return found;
}

static void sigmoid_chunk(void *context, int64_t first, int64_t end)
{
    const Sigmoid *op = context;
    for (int64_t i = first; i < end; i++) {
        float *prob = op->prob->data ? element_at(op->prob, i * op->prob->pitch) : NULL;
        op->samples[i] = sigmoid_sample(op, element_at(op->logits, i * op->logits->pitch), op->labels[i],
                                        element_at(op->targets, i * op->targets->pitch), prob);
    }
}

static Status sigmoid_loss_launch(Device *device, OpCall *call)
{
    Sigmoid op = {&call->in[0],     &call->out[1],    &call->in[2],
                  call->in[3].data, call->in[1].data, call->attr.loss.multi_label,
                  call->workspace};
    chunks_run(device, op.logits->shape.n, larger(1, 512 / op.logits->shape.c), sigmoid_chunk, &op);
    loss_sum(op.samples, op.logits->shape.n, call);
    return OK;
}

const OpKernel cpu_sigmoid_loss = {.prepare = loss_prepare, .launch = sigmoid_loss_launch};

typedef struct SigmoidGrad {
    const Tensor *prob, *dlogits, *targets;
    const float *weights;
    const int32_t *labels;
    float dloss; /* divided by the classes */
} SigmoidGrad;

static void sigmoid_grad_chunk(void *context, int64_t first, int64_t end)
{
    const SigmoidGrad *op = context;
    for (int64_t i = first; i < end; i++) {
        const float *prob = element_at(op->prob, i * op->prob->pitch),
                    *target = element_at(op->targets, i * op->targets->pitch);
        void *out = element_at(op->dlogits, i * op->dlogits->pitch);
        bool counts = op->labels[i] != LABEL_NONE;
        for (int32_t k = 0; k < op->prob->shape.c; k++) {
            float slope = sigmoid_slope(prob[k], target[k], op->weights ? op->weights[k] : 1);
            store(op->dlogits->dtype, out, k, counts ? slope * op->dloss : 0);
        }
    }
}

static Status sigmoid_loss_dx_launch(Device *device, OpCall *call)
{
    const float *dloss = call->in[2].data;
    SigmoidGrad op = {&call->in[0],     &call->out[0],    &call->in[3],
                      call->in[4].data, call->in[1].data, *dloss / (float)call->in[0].shape.c};
    chunks_run(device, op.prob->shape.n, chunk_pixels(op.prob->shape.c), sigmoid_grad_chunk, &op);
    return OK;
}

const OpKernel cpu_sigmoid_loss_dx = {.prepare = cpu_check, .launch = sigmoid_loss_dx_launch};
