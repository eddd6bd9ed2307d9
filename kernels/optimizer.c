/* Which slots an optimizer needs; see optimizer.h. */
#include "kernels/optimizer.h"

int optimizer_slot_count(const OptimizerHyper *hyper)
{
    switch (hyper->kind) {
    case OPTIMIZER_SGD: return hyper->momentum != 0 ? 1 : 0;
    case OPTIMIZER_RMSPROP_TF:
    case OPTIMIZER_RMSPROP: return hyper->momentum != 0 ? 2 : 1;
    case OPTIMIZER_ADAM:
    case OPTIMIZER_ADAMW: return 2;
    case OPTIMIZER_COUNT: break;
    }
    return 0;
}

float optimizer_slot_start(const OptimizerHyper *hyper, int slot)
{
    return hyper->kind == OPTIMIZER_RMSPROP_TF && slot == 0 ? 1.0f : 0.0f;
}
