/* DENSE, DENSE_DX, DENSE_DW: matrix products over the packed values of each sample.
 *
 * x {n,c,h,w} packed is a matrix of n rows, and w {out,c,h,w}, in the same order of axes, one of `out` rows. */
#include "kernels/cpu/choice.h"

static Status dense_prepare(Device *device, OpCall *call, OnednnProductKind kind, const Tensor *x, const Tensor *w,
                            const Tensor *y)
{
    Status st = OK;
    int64_t ins = shape_count(w->shape) / w->shape.n;
    OnednnProduct product = {.kind = kind,
                             .rows = x->shape.n,
                             .ins = ins,
                             .outs = w->shape.n,
                             .x_pitch = ins,
                             .y_pitch = y->pitch,
                             .x = x->dtype,
                             .y = y->dtype,
                             .bias = kind == PRODUCT_Y && call->in_count > 2 && call->in[2].data};
    OnednnChoice *choice = calloc(1, sizeof *choice);
    if (!choice) return FAIL(ERR_MEMORY, "no memory for the state of the dense layer '%s'", call->name);
    TRY_OUT(choice_offer_product(choice, device, &product));
    TRY_OUT(choice_settle(choice, device, call));
    call->workspace_bytes = choice_workspace_bytes(choice);
    call->state = choice;
    choice = NULL;
out:
    if (choice) choice_free(choice);
    free(choice);
    return st;
}

static Status forward_prepare(Device *device, OpCall *call)
{
    return dense_prepare(device, call, PRODUCT_Y, &call->in[0], &call->in[1], &call->out[0]);
}

static Status dx_prepare(Device *device, OpCall *call)
{
    return dense_prepare(device, call, PRODUCT_DX, &call->out[0], &call->in[1], &call->in[0]);
}

static Status dw_prepare(Device *device, OpCall *call)
{
    return dense_prepare(device, call, PRODUCT_DW, &call->in[0], &call->out[0], &call->in[1]);
}

static Status dense_launch(Device *device, OpCall *call)
{
    TRY(choice_run(call->state, device, call, call->out[0].data));
    cpu_bias_relu(device, &call->out[0], NULL, call->kind == OP_DENSE && call->attr.dense.relu);
    return OK;
}

static void dense_discard(Device *device, OpCall *call)
{
    (void)device;
    if (call->state) choice_free(call->state);
    free(call->state);
    call->state = NULL;
}

static void dense_explain(Device *device, const OpCall *call, KernelChoice *choice)
{
    (void)device;
    snprintf(choice->name, sizeof choice->name, "oneDNN, product (%s)", choice_impl(call->state));
}

const OpKernel cpu_dense = {
    .prepare = forward_prepare, .launch = dense_launch, .discard = dense_discard, .explain = dense_explain};
const OpKernel cpu_dense_dx = {
    .prepare = dx_prepare, .launch = dense_launch, .discard = dense_discard, .explain = dense_explain};
const OpKernel cpu_dense_dw = {
    .prepare = dw_prepare, .launch = dense_launch, .discard = dense_discard, .explain = dense_explain};
