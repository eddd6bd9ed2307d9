/* NaN and Inf on purpose; see poison.h. Empty without TOWERS_FAULTS.
 *
 * "layer=conv2" means the first op in the list whose name is conv2 or begins with "conv2."; with activity=backward, the
 * first such op of the backward pass. */
#include "towers/guard/poison.h"

#ifdef TOWERS_FAULTS

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_poison(const Fault *fault)
{
    return fault->kind == FAULT_NAN || fault->kind == FAULT_INF;
}

static float value_of(const Fault *fault)
{
    return fault->kind == FAULT_NAN ? NAN : INFINITY;
}

static bool op_is_of(const Program *program, int op, const char *layer)
{
    const char *name = plan_call(program->plan, op)->name;
    size_t length = strlen(layer);
    return !strncmp(name, layer, length) && (name[length] == 0 || name[length] == '.');
}

/* The op that the fault strikes, -1 if the program has none. */
static int poisoned_op(const Program *program, const Fault *fault)
{
    bool backward = fault->activity == ACTIVITY_BACKWARD;
    int first = backward ? program->forward_end : 0,
        end = backward ? plan_op_count(program->plan) : program->forward_end;
    for (int op = first; op < end; op++)
        if (op_is_of(program, op, fault->layer)) return op;
    return -1;
}

Status poison_check(const Program *program)
{
    for (int i = 0; i < fault_count(); i++) {
        const Fault *fault = fault_at(i);
        if (!is_poison(fault) || !*fault->layer || poisoned_op(program, fault) >= 0) continue;
        return FAIL(ERR_ARG, "TOWERS_FAULT: no layer '%s' in the %s pass (see: towers info MODEL --ops)", fault->layer,
                    activity_name((Activity)fault->activity));
    }
    return OK;
}

/* One element of a tensor on the host that spans all its pixels. */
static void element_set(char *host, const Tensor *t, int64_t index, float value)
{
    int64_t at = index / t->shape.c * t->pitch + index % t->shape.c;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t half = t->dtype == DTYPE_BF16 ? (uint16_t)(bits >> 16) : isnan(value) ? 0x7E00 : 0x7C00;
    if (t->dtype == DTYPE_F32)
        memcpy(host + at * 4, &bits, 4);
    else
        memcpy(host + at * 2, &half, 2);
}

static Status tensor_poison(Device *device, const Tensor *t, const Fault *fault)
{
    Status st = OK;
    int64_t count = shape_count(t->shape);
    size_t bytes = (size_t)((shape_pixels(t->shape) - 1) * t->pitch + t->shape.c) * dtype_bytes(t->dtype);
    if (fault->index >= count)
        return FAIL(ERR_ARG, "TOWERS_FAULT: index %lld of layer '%s', whose output has %lld elements",
                    (long long)fault->index, fault->layer, (long long)count);
    char *host = malloc(bytes);
    if (!host)
        return FAIL(ERR_MEMORY, "no memory for the fault injected into layer '%s' (%zu bytes)", fault->layer, bytes);
    TRY_OUT(device->backend->download(device, host, t->data, bytes));
    TRY_OUT(device->backend->finish(device, STREAM_COMPUTE));
    for (int64_t i = 0; i < count; i++)
        if (fault->index < 0 || fault->index == i) element_set(host, t, i, value_of(fault));
    TRY_OUT(device->backend->upload(device, t->data, host, bytes));
    TRY_OUT(device->backend->finish(device, STREAM_COMPUTE));
out:
    free(host);
    return st;
}

static bool poison_strikes(const Program *program, int tower, int64_t step, int first, int end)
{
    const Fault *fault = fault_poison(tower, step);
    int op = fault && *fault->layer ? poisoned_op(program, fault) : -1;
    return op >= first && op < end;
}

Status poison_run(Device *device, Program *program, int tower, int64_t step, int first, int end)
{
    const Fault *fault = fault_poison(tower, step);
    if (!poison_strikes(program, tower, step, first, end)) return plan_run(program->plan, first, end);
    int op = poisoned_op(program, fault);
    TRY(plan_run(program->plan, first, op + 1));
    TRY(tensor_poison(device, &plan_call(program->plan, op)->out[0], fault));
    return plan_run(program->plan, op + 1, end);
}

void poison_loss(int tower, int64_t step, double *sum)
{
    const Fault *fault = fault_poison(tower, step);
    if (fault && !*fault->layer && fault->loss) *sum = (double)value_of(fault);
}

Status poison_gradients(Device *device, int tower, int64_t step, float *gradients)
{
    const Fault *fault = fault_poison(tower, step);
    if (!fault || *fault->layer || !fault->grad) return OK;
    return device->backend->fill(device, gradients, value_of(fault), 1);
}

Status poison_device_loss(Device *device, int tower, int64_t step, float *loss)
{
    const Fault *fault = fault_poison(tower, step);
    if (!fault || *fault->layer || !fault->loss) return OK;
    return device->backend->fill(device, loss, value_of(fault), 1);
}

Status poison_state(Replica *replica, int slot, int tower, int64_t step)
{
    const Fault *fault = fault_poison(tower, step);
    float *arena = !fault              ? NULL
                   : fault->weights    ? replica->arena[ARENA_PARAM]
                   : fault->statistics ? replica->state[slot]
                   : fault->slot       ? replica->slot[0]
                                       : NULL;
    if (!arena) return OK;
    return replica->device.backend->fill(&replica->device, arena + (fault->index < 0 ? 0 : fault->index),
                                         value_of(fault), 1);
}

Status poison_bit(Replica *replica, int tower, int64_t step)
{
    Device *device = &replica->device;
    uint32_t *weight = replica->arena[ARENA_PARAM], bits;
    if (!fault_once(FAULT_BITFLIP, tower, step)) return OK;
    TRY(device->backend->download(device, &bits, weight, sizeof bits));
    TRY(device->backend->finish(device, STREAM_COMPUTE));
    bits ^= 1u << 20;
    TRY(device->backend->upload(device, weight, &bits, sizeof bits));
    return device->backend->finish(device, STREAM_COMPUTE);
}

#endif
