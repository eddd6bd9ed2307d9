/* What the losses of this processor have in common; see loss.h. */
#include "kernels/cpu/loss.h"

int32_t classes_before(Dtype dtype, const void *z, int64_t classes, int32_t label)
{
    float mine = load(dtype, z, label);
    int32_t before = 0;
    for (int64_t k = 0; k < classes; k++) before += class_is_before(load(dtype, z, k), (int32_t)k, mine, label);
    return before;
}

Status loss_prepare(Device *device, OpCall *call)
{
    TRY(cpu_check(device, call));
    call->workspace_bytes = (size_t)call->in[0].shape.n * sizeof(LossSample);
    return OK;
}

void loss_sum(const LossSample *samples, int32_t n, OpCall *call)
{
    int32_t correct[2] = {0, 0};
    double loss = 0;
    for (int32_t i = 0; i < n; i++) {
        bool known = samples[i].loss == samples[i].loss;
        loss += samples[i].loss;
        for (int k = 0; k < 2; k++) correct[k] += known && samples[i].correct[k];
    }
    if (call->out[0].data) *(float *)call->out[0].data = (float)loss;
    for (int k = 0; k < 2 && call->out[2].data; k++) ((float *)call->out[2].data)[k] = (float)correct[k];
}
