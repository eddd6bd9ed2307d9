/* The slots that an optimizer needs, and the check that an update has them; see optimizer.h. */
#include "kernels/optimizer.h"

int optimizer_slot_count(const OptimizerHyper *hyper)
{
    switch (hyper->kind) {
    case OPTIMIZER_SGD:
    case OPTIMIZER_LARS: return hyper->momentum != 0 ? 1 : 0;
    case OPTIMIZER_RMSPROP_TF:
    case OPTIMIZER_RMSPROP: return hyper->momentum != 0 ? 2 : 1;
    case OPTIMIZER_ADAM:
    case OPTIMIZER_ADAMW:
    case OPTIMIZER_LAMB: return 2;
    case OPTIMIZER_COUNT: break;
    }
    return 0;
}

bool optimizer_is_layerwise(OptimizerKind kind)
{
    return kind == OPTIMIZER_LARS || kind == OPTIMIZER_LAMB;
}

Status optimizer_check(const OptimizerUpdate *u)
{
    if (u->half && u->half_dtype != DTYPE_BF16 && u->half_dtype != DTYPE_F16)
        return FAIL(ERR_UNSUPPORTED, "optimizer: expected a copy of the weights in bf16 or f16, found %s",
                    dtype_name(u->half_dtype));
    if ((unsigned)u->hyper.kind >= OPTIMIZER_COUNT)
        return FAIL(ERR_ARG, "optimizer: unknown kind %d", (int)u->hyper.kind);
    if (optimizer_is_layerwise(u->hyper.kind) && !u->trust)
        return FAIL(ERR_INTERNAL, "optimizer: kind %d needs room for trust ratios, which is missing",
                    (int)u->hyper.kind);
    for (int k = 0; k < optimizer_slot_count(&u->hyper); k++)
        if (!u->slot[k])
            return FAIL(ERR_INTERNAL, "optimizer: kind %d needs slot %d, which is missing", (int)u->hyper.kind, k);
    return OK;
}

float optimizer_slot_start(const OptimizerHyper *hyper, int slot)
{
    return hyper->kind == OPTIMIZER_RMSPROP_TF && slot == 0 ? 1.0f : 0.0f;
}
