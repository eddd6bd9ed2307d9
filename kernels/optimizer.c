/* The tables of optimizers, the states that they need, and the check that an update has them; see optimizer.h. */
#include "kernels/optimizer.h"

const OptimizerInfo optimizer_infos[OPTIMIZER_COUNT] = {
#define INFO(KIND, name, states, start, uses, epsilon, layerwise)                                                      \
    [OPTIMIZER_##KIND] = {name, states, start, uses, epsilon, layerwise},
#define OPTIMIZER(KIND, rule, name, states, start, uses, momentum, epsilon, about)                                     \
    INFO(KIND, name, states, start, uses, epsilon, false)
#define OPTIMIZER_LAYERWISE(KIND, rule, name, states, start, uses, momentum, epsilon, about)                           \
    INFO(KIND, name, states, start, uses, epsilon, true)
#include "kernels/optimizers.def"
};

const struct OptimizerChoiceInfo optimizer_choices[OPT_COUNT] = {
#define OPTIMIZER(KIND, rule, name, states, start, uses, momentum, epsilon, about)                                     \
    [OPT_##KIND] = {name, OPTIMIZER_##KIND, momentum, false, about},
#define OPTIMIZER_AS(CHOICE, name, KIND, momentum, nesterov, about)                                                    \
    [OPT_##CHOICE] = {name, OPTIMIZER_##KIND, momentum, nesterov, about},
#include "kernels/optimizers.def"
};

int optimizer_state_count(const OptimizerHyper *hyper)
{
    const OptimizerInfo *info = &optimizer_infos[hyper->kind];
    return info->states + (info->uses & HYPER_MOMENTUM && hyper->momentum != 0);
}

float optimizer_state_start(const OptimizerHyper *hyper, int state)
{
    return state == 0 ? optimizer_infos[hyper->kind].start : 0.0f;
}

bool optimizer_is_layerwise(OptimizerKind kind)
{
    return optimizer_infos[kind].layerwise;
}

OptimizerRule optimizer_rule(const OptimizerHyper *h)
{
    return (OptimizerRule){.momentum = h->momentum,
                           .beta1 = h->beta1,
                           .beta2 = h->beta2,
                           .decay = h->decay,
                           .epsilon = h->epsilon,
                           .trust = h->trust,
                           .clip = h->clip_value > 0 ? h->clip_value : INFINITY,
                           .nesterov = h->nesterov};
}

Status optimizer_check(const OptimizerUpdate *u)
{
    if (u->half && u->half_dtype != DTYPE_BF16 && u->half_dtype != DTYPE_F16)
        return FAIL(ERR_UNSUPPORTED, "optimizer: expected a copy of the weights in bf16 or f16, found %s",
                    dtype_name(u->half_dtype));
    if ((unsigned)u->hyper.kind >= OPTIMIZER_COUNT)
        return FAIL(ERR_ARG, "optimizer: unknown kind %d", (int)u->hyper.kind);
    const OptimizerInfo *info = &optimizer_infos[u->hyper.kind];
    if (info->layerwise && !u->trust)
        return FAIL(ERR_INTERNAL, "optimizer: %s needs room for trust ratios, which is missing", info->name);
    for (int k = 0; k < optimizer_state_count(&u->hyper); k++)
        if (!u->state[k]) return FAIL(ERR_INTERNAL, "optimizer: %s needs state %d, which is missing", info->name, k);
    return OK;
}
