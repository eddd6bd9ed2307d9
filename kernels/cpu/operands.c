/* Prepare and discard of ops that need no more: types of operands are checked, a state of one block is freed; see cpu.h. */
#include "kernels/cpu/cpu.h"

Status cpu_check(Device *device, OpCall *call)
{
    (void)device;
    for (int k = 0; k < call->in_count + call->out_count; k++) {
        const Tensor *t = k < call->in_count ? &call->in[k] : &call->out[k - call->in_count];
        if (t->data && t->dtype == DTYPE_F16)
            return FAIL(ERR_UNSUPPORTED, "%s '%s': the CPU computes in f32 or bf16, not %s", op_name(call->kind),
                        call->name, dtype_name(t->dtype));
    }
    return OK;
}

void cpu_discard(Device *device, OpCall *call)
{
    (void)device;
    free(call->state);
    call->state = NULL;
}
