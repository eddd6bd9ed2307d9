/* Applying the passes that join ops; see fuse.h. */
#include "towers/graph/fuse.h"

static const char *const level_names[] = {
    [FUSE_AUTO] = "auto", [FUSE_II] = "ii", [FUSE_II_S] = "ii-s", [FUSE_III_H] = "iii-h"};

Status fuse_check(FuseLevel level, const Backend *backend)
{
    if (level <= FUSE_II || backend->joins) return OK;
    return FAIL(ERR_UNSUPPORTED, "--fuse %s: the %s backend has no fused convolutions; use --fuse auto or ii",
                level_names[level], backend->name);
}

static bool device_joins(void *context, const OpCall *call)
{
    Device *device = context;
    return device->backend->joins(device, call);
}

static double device_time(void *context, const OpCall *call)
{
    Device *device = context;
    return device->backend->op_time(device, call);
}

Status fuse_graph(Graph *g, FuseLevel level, Device *device, int *forward_end, Fusion *made)
{
    Joins joins = {device_joins, device, device->backend->op_time ? device_time : NULL};
    *made = (Fusion){.possible = device->backend->joins && level != FUSE_II};
    for (int i = 0; i < *forward_end; i++) made->convolutions += graph_op_at(g, i)->kind == OP_CONV;
    if (made->possible) TRY(pass_conv_statistics(g, &joins, forward_end, &made->statistics));
    if (made->possible && level != FUSE_II_S) TRY(pass_norm_into_conv(g, &joins, &made->norms));
    if (made->possible && level != FUSE_II_S) TRY(pass_norm_into_pool(g, &joins, forward_end, &made->pools));
    return OK;
}

void fusion_text(const Fusion *fusion, char *text, size_t bytes)
{
    if (!fusion->possible)
        snprintf(text, bytes, "none");
    else
        snprintf(text, bytes,
                 "sums in %d of %d convolutions, %d normalize their input, %d sum the gradient of it; so do %d and %d "
                 "max pools",
                 fusion->statistics, fusion->convolutions, fusion->norms.inputs, fusion->norms.gradients,
                 fusion->pools.inputs, fusion->pools.gradients);
}
