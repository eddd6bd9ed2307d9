/* Test hook: the faults `nan` and `inf` of TOWERS_FAULT, put into the output of a layer's op, into a tower's loss, or
 * into its gradients. The search for the cause runs a batch again through here, so it meets the same fault. Without
 * TOWERS_FAULTS nothing is left of it. */
#ifndef TOWERS_GUARD_POISON_H
#define TOWERS_GUARD_POISON_H

#include "towers/replica/fault.h"
#include "towers/replica/replica.h"

#ifdef TOWERS_FAULTS
/* Does every layer that a fault names exist? ERR_ARG names the one that does not. */
NODISCARD Status poison_check(const Program *program);
/* plan_run; the output of the fault's op is poisoned before the next op reads it. */
NODISCARD Status poison_run(Device *device, Program *program, int tower, int64_t step, int first, int end);
/* A fault without a layer: the loss, and the first gradient of the arena. */
void poison_loss(int tower, int64_t step, double *sum);
NODISCARD Status poison_gradients(Device *device, int tower, int64_t step, float *gradients);
NODISCARD Status poison_device_loss(Device *device, int tower, int64_t step, float *loss); /* one number there */
/* After the update: one number of the weights, of local tower `slot`'s statistics, or of the optimizer's first slot. */
NODISCARD Status poison_state(Replica *replica, int slot, int tower, int64_t step);
/* After the update: one bit of a weight, once (TOWERS_FAULT=bitflip). */
NODISCARD Status poison_bit(Replica *replica, int tower, int64_t step);
#else
static inline Status poison_check(const Program *program)
{
    (void)program;
    return OK;
}
static inline Status poison_run(Device *device, Program *program, int tower, int64_t step, int first, int end)
{
    (void)device, (void)tower, (void)step;
    return plan_run(program->plan, first, end);
}
static inline void poison_loss(int tower, int64_t step, double *sum)
{
    (void)tower, (void)step, (void)sum;
}
static inline Status poison_gradients(Device *device, int tower, int64_t step, float *gradients)
{
    (void)device, (void)tower, (void)step, (void)gradients;
    return OK;
}
static inline Status poison_device_loss(Device *device, int tower, int64_t step, float *loss)
{
    (void)device, (void)tower, (void)step, (void)loss;
    return OK;
}
static inline Status poison_state(Replica *replica, int slot, int tower, int64_t step)
{
    (void)replica, (void)slot, (void)tower, (void)step;
    return OK;
}
static inline Status poison_bit(Replica *replica, int tower, int64_t step)
{
    (void)replica, (void)tower, (void)step;
    return OK;
}
#endif

#endif
