/* See described_gpu.h. */
#include "tests/support/described_gpu.h"

/* All that is possible is fused. */
static double time_unknown(Device *device, const OpCall *call)
{
    (void)device, (void)call;
    return -1;
}

FakeBackend *described_gpu(Device *device)
{
    FakeBackend *fake = fake_create(0, 0, 0);
    if (!fake) return NULL;
    fake->backend.storage = op_storage;
    fake->kernel[OP_IMAGE].pads_out = 1;
    fake->kernel[OP_CONV].pads_in = fake->kernel[OP_CONV_DW].pads_in = 1;
    fake->backend.op_time = time_unknown;
    fake_open(fake, device);
    return fake;
}

Status described_step(const Model *model, int32_t n, bool rewrite, Dtype dtype, Device *device, Layout **layout,
                      Program *program)
{
    Program graph;
    ProgramConfig config = {.model = model,
                            .options = {.classes = model->classes,
                                        .side = model->side,
                                        .channels = model->channels,
                                        .dropout = model->dropout,
                                        .drop_path = model->drop_path,
                                        .aux = model->aux_weight > 0,
                                        .variant = ""},
                            .data_channels = model->channels,
                            .canvas = model->side,
                            .aux_weight = model->aux_weight,
                            .compute = dtype,
                            .training = true,
                            .fuse_siblings = rewrite,
                            .pool_behind_conv = rewrite,
                            .norm_into_pool = true};
    TRY(program_graph(&config, n, &graph));
    Status st = layout_create(graph.graph, layout);
    program_destroy(&graph);
    return st == OK ? program_create(&config, n, *layout, device, program) : st;
}
