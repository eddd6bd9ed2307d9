/* MAX_POOL_NORM and MAX_POOL_NORM_DX, composed of the ops that they join.
 *
 * The caches of a processor hold what lies between the two for a few rows at best, so these are no faster than the
 * separate ops, and passes do not join ops on a CPU (it has no Backend.op_time). They compute the same as a GPU's
 * kernels, so that graphs of fused ops can be tested without one. */
#include "kernels/cpu/span.h"

/* The inner calls. The workspace holds what the first gives to the second, then what either of them needs. */
typedef struct PoolNorm {
    OpCall first, second; /* keep no states */
    size_t inner_offset;
} PoolNorm;

static Tensor between(const Tensor *like, void *memory)
{
    return (Tensor){memory, like->shape, like->dtype, like->shape.c};
}

/* x, beta, mean, var, gamma -> relu -> maximum */
static void forward_bind(PoolNorm *p, const OpCall *call)
{
    memcpy(p->first.in, call->in, 5 * sizeof call->in[0]);
    memcpy(p->second.out, call->out, 2 * sizeof call->out[0]);
    p->first.out[0] = p->second.in[0] = between(&call->in[0], call->workspace);
}

/* dy, argmax -> dy of the batch norm, with x, beta, mean, var, gamma -> dx */
static void backward_bind(PoolNorm *p, const OpCall *call)
{
    memcpy(p->first.in, call->in, 2 * sizeof call->in[0]);
    memcpy(p->second.in + 1, call->in + 2, 5 * sizeof call->in[0]);
    memcpy(p->second.out, call->out, 3 * sizeof call->out[0]);
    p->first.out[0] = p->second.in[0] = between(&call->in[2], call->workspace);
}

static const OpKernel *kernel_of(OpKind kind)
{
    static const OpKernel *const kernels[OP_COUNT] = {[OP_BATCHNORM_APPLY] = &cpu_batchnorm_apply,
                                                      [OP_MAX_POOL] = &cpu_max_pool,
                                                      [OP_MAX_POOL_DX] = &cpu_max_pool_dx,
                                                      [OP_BATCHNORM_DX] = &cpu_batchnorm_dx};
    return kernels[kind];
}

static void pair_bind(PoolNorm *p, const OpCall *call)
{
    if (call->kind == OP_MAX_POOL_NORM)
        forward_bind(p, call);
    else
        backward_bind(p, call);
    p->first.workspace = p->second.workspace = (char *)call->workspace + p->inner_offset;
}

static Status pair_prepare(Device *device, OpCall *call)
{
    bool forward = call->kind == OP_MAX_POOL_NORM;
    PoolNorm *p = calloc(1, sizeof *p);
    if (!p) return FAIL(ERR_MEMORY, "no memory for the state of the pooling '%s'", call->name);
    call->state = p;
    OpAttr pool = {.pool.window = call->attr.pool.window}, norm = {.norm = {call->attr.pool.epsilon, true}};
    int shared = call->in_count - (forward ? 0 : 1); /* gamma may be absent */
    p->first = (OpCall){.kind = forward ? OP_BATCHNORM_APPLY : OP_MAX_POOL_DX, .name = call->name, .out_count = 1};
    p->second = (OpCall){.kind = forward ? OP_MAX_POOL : OP_BATCHNORM_DX, .name = call->name};
    p->first.attr = forward ? norm : pool;
    p->second.attr = forward ? pool : norm;
    p->first.in_count = forward ? shared : 2;
    p->second.in_count = forward ? 1 : shared;
    p->second.out_count = call->out_count;
    call->workspace = (void *)64; /* prepare looks at which operands there are, no further */
    pair_bind(p, call);
    call->workspace = NULL;
    const Tensor *middle = &p->second.in[0];
    p->inner_offset = align_up((size_t)shape_count(middle->shape) * dtype_bytes(middle->dtype), CPU_ALIGNMENT);
    TRY(kernel_of(p->first.kind)->prepare(device, &p->first));
    TRY(kernel_of(p->second.kind)->prepare(device, &p->second));
    size_t first = p->first.workspace_bytes, second = p->second.workspace_bytes;
    call->workspace_bytes = p->inner_offset + (first > second ? first : second);
    return OK;
}

static Status pair_launch(Device *device, OpCall *call)
{
    PoolNorm *p = call->state;
    pair_bind(p, call);
    TRY(kernel_of(p->first.kind)->launch(device, &p->first));
    return kernel_of(p->second.kind)->launch(device, &p->second);
}

const OpKernel cpu_max_pool_norm = {.prepare = pair_prepare, .launch = pair_launch, .discard = cpu_discard};
const OpKernel cpu_max_pool_norm_dx = {.prepare = pair_prepare, .launch = pair_launch, .discard = cpu_discard};
