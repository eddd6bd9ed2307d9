/* See described_gpu.h. */
#include "tests/support/described_gpu.h"

enum { CHANNEL_STEP = 8, IMAGE_CHANNELS = 3 };

FakeBackend *described_gpu(Device *device)
{
    FakeBackend *fake = fake_create(0, 0, 0);
    if (!fake) return NULL;
    fake->backend.storage = op_storage;
    fake->kernel[OP_IMAGE].pads_out = 1;
    fake->kernel[OP_CONV].pads_in = fake->kernel[OP_CONV_STATISTICS].pads_in = fake->kernel[OP_CONV_DW].pads_in = 1;
    fake_open(fake, device);
    return fake;
}

static bool steps(int64_t channels)
{
    return channels % CHANNEL_STEP == 0;
}

bool described_joins(Device *device, const OpCall *call)
{
    (void)device;
    const Tensor *in = call->in, *out = call->out;
    bool applies = call->in_count > 2 && in[2].data, of_image = in[0].shape.c <= IMAGE_CHANNELS;
    if (call->kind == OP_MAX_POOL_NORM || call->kind == OP_MAX_POOL_NORM_DX) return true;
    if (in[0].dtype != DTYPE_F16) return false;
    switch (call->kind) {
    case OP_CONV_STATISTICS:
        if (applies) return steps(in[0].shape.c) && steps(in[0].pitch) && steps(out[0].shape.c);
        return steps(out[0].shape.c) && !(of_image && call->attr.conv.window.kh == 7);
    case OP_CONV_DX_SUMS: return steps(in[0].shape.c) && steps(out[0].shape.c) && steps(in[2].pitch);
    case OP_CONV_DW_APPLY: return steps(in[0].shape.c) && steps(in[0].pitch) && steps(in[1].shape.c);
    default: return false;
    }
}

Status described_step(const Model *model, int32_t n, bool rewrite, Dtype dtype, FuseLevel fuse, Device *device,
                      Layout **layout, Program *program)
{
    Program graph;
    ProgramConfig config = {.model = model,
                            .options = {.classes = model->classes,
                                        .side = model->side,
                                        .channels = model->channels,
                                        .dropout = model->dropout,
                                        .aux = model->aux_weight > 0,
                                        .variant = ""},
                            .data_channels = model->channels,
                            .canvas = model->side,
                            .aux_weight = model->aux_weight,
                            .compute = dtype,
                            .training = true,
                            .fuse_siblings = rewrite,
                            .pool_behind_conv = rewrite,
                            .fuse = fuse};
    TRY(program_graph(&config, n, &graph));
    Status st = layout_create(graph.graph, layout);
    program_destroy(&graph);
    return st == OK ? program_create(&config, n, *layout, device, program) : st;
}
