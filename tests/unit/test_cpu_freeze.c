/* Frozen layers: no gradient ops, nothing differentiated before the first trained layer, batch norms that use and keep
 * their running averages, the layout with frozen parameters last, and a run that changes none of their bits. */

#include "inception/models/models.h"
#include "kernels/cpu/cpu.h"
#include "tests/support/tower_run.h"
#include "tests/support/unit.h"

static const Shape scalar = {1, 1, 1, 1};

/* conv a -> siblings b, c, d (1x1) -> concat -> fc */
static Graph *branches(const char *freeze, bool siblings)
{
    Graph *g = NULL;
    GraphOptions options = {.training = true, .compute = DTYPE_F32, .freeze = freeze};
    NameFilter trains = {.except = freeze};
    int changed;
    assert_int_equal(graph_create(&options, &g), OK);
    Value x = graph_input(g, "x", (Shape){2, 3, 6, 6}, DTYPE_F32),
          labels = graph_input(g, "labels", (Shape){2, 1, 1, 1}, DTYPE_I32);
    Value dloss = graph_input(g, "dloss", scalar, DTYPE_F32);
    Value stem = conv_bn_relu(g, x, (ConvUnit){"a", 4, 3, 3, SAME});
    Value b = conv_bn_relu(g, stem, (ConvUnit){"b", 5, 1, 1, SAME});
    Value c = conv_bn_relu(g, stem, (ConvUnit){"c", 6, 1, 1, SAME});
    Value d = conv_bn_relu(g, stem, (ConvUnit){"d", 7, 1, 1, SAME});
    Value logits = dense(g, global_avg_pool(g, CONCAT(g, b, c, d)), "fc", 3, false, (Init){INIT_NORMAL, 0.1f});
    Value loss = softmax_loss(g, logits, labels, 0, NULL, NULL);
    if (siblings) assert_int_equal(pass_sibling_convs(g, &loss, 1, &changed), OK);
    graph_train(g, loss, dloss, &trains);
    if (graph_finish(g) != OK) fail_msg("%s", status_message());
    return g;
}

static int count_ops(const Graph *g, OpKind kind, const char *layer)
{
    int count = 0;
    for (int i = 0; i < graph_op_count(g); i++) {
        const Op *op = graph_op_at(g, i);
        count += op->kind == kind && !strncmp(op->name, layer, strlen(layer));
    }
    return count;
}

static bool has_gradient(const Graph *g, const char *param)
{
    Value v = graph_find(g, param);
    for (int32_t id = 1; id <= graph_value_count(g); id++) {
        const ValueInfo *info = graph_value(g, (Value){id});
        if (info->role != ROLE_GRAD) continue;
        if (info->of.id == v.id) return true;
        for (int k = 0; k < graph_value(g, info->of)->member_count; k++)
            if (graph_value(g, info->of)->members[k].id == v.id) return true;
    }
    return false;
}

TEST(test_nothing_in_front_of_the_first_trained_layer)
{
    Graph *g = branches("a.*,b.*,c.*,d.*", false);
    assert_int_equal(count_ops(g, OP_CONV_DW, "") + count_ops(g, OP_CONV_DX, ""), 0);
    assert_int_equal(count_ops(g, OP_DENSE_DX, ""), 0);
    assert_int_equal(count_ops(g, OP_DENSE_DW, "fc"), 1);
    assert_int_equal(count_ops(g, OP_BATCHNORM, ""), 0);
    assert_int_equal(count_ops(g, OP_BATCHNORM_APPLY, ""), 4);
    graph_destroy(g);
    g = branches("a.*,b.*", false);
    assert_int_equal(count_ops(g, OP_CONV_DW, ""), 2);
    assert_int_equal(count_ops(g, OP_CONV_DX, ""), 0);
    assert_int_equal(count_ops(g, OP_BATCHNORM, ""), 2);
    assert_true(has_gradient(g, "c.conv.weight") && has_gradient(g, "c.bn.weight") && has_gradient(g, "fc.bias"));
    assert_false(has_gradient(g, "a.conv.weight") || has_gradient(g, "b.bn.bias") || has_gradient(g, "b.conv.weight"));
    graph_destroy(g);
}

/* Behind a trained layer a frozen one passes the gradient on. */
TEST(test_frozen_behind_trained)
{
    Graph *g = branches("b.*,c.*,d.*", false);
    assert_int_equal(count_ops(g, OP_CONV_DX, ""), 3);
    assert_int_equal(count_ops(g, OP_CONV_DW, ""), 1);
    assert_true(has_gradient(g, "a.conv.weight"));
    assert_false(has_gradient(g, "b.conv.weight"));
    graph_destroy(g);
}

/* A batch norm of which one parameter is trained is trained as a whole. */
TEST(test_half_frozen_norm_uses_the_batch)
{
    Graph *g = branches("a.bn.weight,b.conv.*", false);
    assert_int_equal(count_ops(g, OP_BATCHNORM, ""), 4);
    assert_false(has_gradient(g, "a.bn.weight"));
    assert_true(has_gradient(g, "a.bn.bias"));
    graph_destroy(g);
}

TEST(test_siblings_are_joined_with_their_like)
{
    Graph *g = branches("b.*", true);
    assert_false(has_gradient(g, "b.conv.weight"));
    assert_true(has_gradient(g, "c.conv.weight") && has_gradient(g, "d.conv.weight"));
    assert_int_equal(count_ops(g, OP_CONV, "c"), 1); /* with d */
    assert_int_equal(count_ops(g, OP_CONV, "b"), 1);
    graph_destroy(g);
}

TEST(test_pack_of_both_is_refused)
{
    Graph *g = NULL;
    GraphOptions options = {.training = true, .compute = DTYPE_F32};
    OpAttr point = {.conv.window = {1, 1, 1, 1, 0, 0, false}};
    assert_int_equal(graph_create(&options, &g), OK);
    Value x = graph_input(g, "x", (Shape){2, 3, 4, 4}, DTYPE_F32);
    Value w[] = {graph_param(g, "mine", (Shape){4, 3, 1, 1}, (Init){INIT_ZERO}, true),
                 graph_param(g, "theirs", (Shape){5, 3, 1, 1}, (Init){INIT_ZERO}, true)};
    Value y = graph_op(g, OP_CONV, "conv", (Value[]){x, graph_pack(g, w, 2)}, 2, &point, NULL);
    graph_train(g, graph_op(g, OP_SUM_TO, "sum", &y, 1, NULL, &scalar), graph_input(g, "dloss", scalar, DTYPE_F32),
                &(NameFilter){.only = "mine"});
    assert_fails(graph_finish(g), ERR_UNSUPPORTED, "1 of its 2 parameters");
    graph_destroy(g);
}

TEST(test_layout_has_the_frozen_behind)
{
    Layout *layout;
    Graph *g = branches("a.*,b.*", true);
    assert_int_equal(layout_create(g, &layout), OK);
    assert_int_equal(layout->param_count, 14);
    assert_int_equal(layout->trained_count, 8); /* c, d: three each; fc: two */
    assert_int_equal(layout->trained_elements, layout->params[8].first);
    assert_true(layout->trained_elements < layout->param_elements);
    for (int i = 0; i < layout->param_count; i++) {
        const LayoutEntry *entry = &layout->params[i];
        assert_int_equal(entry->moves, i < layout->trained_count);
        assert_int_equal(entry->moves, *entry->name != 'a' && *entry->name != 'b');
    }
    for (int i = 0; i < layout->running_count; i++)
        assert_int_equal(layout->running[i].moves, *layout->running[i].name == 'c' || *layout->running[i].name == 'd');
    layout_destroy(layout);
    graph_destroy(g);
}

static double macs_of(const char *freeze)
{
    Program program;
    const Model *model;
    double macs = 0;
    assert_int_equal(model_find("inception_v3", &model), OK);
    ProgramConfig config = {.model = model,
                            .options = {model->classes, model->side, model->channels, 0, true, ""},
                            .data_channels = model->channels,
                            .canvas = model->side,
                            .aux_weight = model->aux_weight,
                            .training = true,
                            .fuse_siblings = true,
                            .pool_behind_conv = true,
                            .freeze = freeze};
    if (program_graph(&config, 2, &program) != OK) fail_msg("%s", status_message());
    for (int i = 0; i < graph_op_count(program.graph); i++) {
        const Op *op = graph_op_at(program.graph, i);
        OpCall call = {.kind = op->kind};
        for (int k = 0; k < op->in_count; k++) call.in[k].shape = graph_shape(program.graph, op->in[k]);
        call.out[0].shape = graph_shape(program.graph, op->out[0]);
        macs += (double)op_macs(&call);
    }
    program_destroy(&program);
    return macs;
}

/* All but the last block, the classifier and the auxiliary head of Inception v3: little more than a forward pass. */
TEST(test_fine_tuning_costs_little_more_than_forward)
{
    double all = macs_of(NULL), few = macs_of("Conv2d*,Mixed_5*,Mixed_6*,Mixed_7a*,Mixed_7b*");
    if (!(all > 2.7 * few)) fail_msg("%.3g multiply-adds, %.3g with frozen layers", all, few);
}

/* ---- a run */

typedef struct Seen { /* at the last update */
    float *param, *ema;
    size_t params, trained;
    int updates;
} Seen;
static Seen seen;
static Status (*real_apply)(Device *device, const OptimizerUpdate *update);
static Backend watched;

static Status watch_apply(Device *device, const OptimizerUpdate *update)
{
    size_t end = 0;
    for (int i = 0; i < update->segment_count; i++) {
        end = update->segments[i].first + update->segments[i].count;
        assert_true(update->segments[i].lr_factor > 0);
    }
    Status st = real_apply(device, update);
    if (!seen.param) {
        seen.param = malloc(seen.params * sizeof *seen.param);
        seen.ema = malloc(seen.params * sizeof *seen.ema);
        memcpy(seen.param, update->param, seen.params * sizeof *seen.param);
        memcpy(seen.ema, update->ema, seen.params * sizeof *seen.ema);
    }
    assert_int_equal(end, seen.trained);
    size_t rest = (seen.params - end) * sizeof(float);
    assert_memory_equal(update->param + end, seen.param + end, rest);
    assert_memory_equal(update->ema + end, seen.ema + end, rest);
    assert_true(seen.updates == 0 || memcmp(update->param, seen.param, end * sizeof(float)) != 0);
    seen.updates++;
    return st;
}

/* Running averages are moved one range at a time: no range touches a frozen layer. */
static size_t averaged;
static Status (*real_average)(Device *, float *, const float *, const float *, const float *, size_t, const float *);
static Status watch_average(Device *device, float *running, const float *batch, const float *correct,
                            const float *decay, size_t count, const float *commit)
{
    averaged += count;
    return real_average(device, running, batch, correct, decay, count, commit);
}

static Status watch_open(const DeviceConfig *config, Device *device)
{
    TRY(cpu_backend.open(config, device));
    device->backend = &watched;
    return OK;
}

TEST(test_run_leaves_them_bit_for_bit)
{
    TowerRun run;
    Program program;
    Layout *layout;
    const Model *model;
    size_t moving = 0;
    assert_int_equal(model_find("inception_mini", &model), OK);
    watched = cpu_backend;
    real_apply = cpu_backend.optimizer_apply;
    real_average = cpu_backend.average;
    watched.optimizer_apply = watch_apply;
    watched.average = watch_average;
    watched.open = watch_open;
    tower_run_open(&run, &watched, model, 2);
    run.job.program.options.channels = run.job.program.data_channels = 1;
    run.job.program.freeze = "Conv2d*,Mixed_3a*";
    run.job.program.fuse_siblings = run.job.program.pool_behind_conv = true;
    run.job.gate.ema_decay = 0.9;
    ProgramConfig config = run.job.program;
    config.training = true;
    assert_int_equal(program_graph(&config, 1, &program), OK);
    assert_int_equal(layout_create(program.graph, &layout), OK);
    seen = (Seen){.params = layout->param_elements, .trained = layout->trained_elements};
    for (int i = 0; i < layout->running_count; i++)
        if (layout->running[i].moves) moving += layout_running_end(layout, i) - layout->running[i].first;
    assert_true(moving > 0 && moving < layout->running_elements);
    averaged = 0;
    tower_run_live(&run);
    if (run.status != OK) fail_msg("%s", status_message());
    assert_int_equal(seen.updates, 12);
    assert_int_equal(averaged, 12 * 2 * 2 * moving); /* of two towers: the running averages, and their own average */
    layout_destroy(layout);
    program_destroy(&program);
    tower_run_close(&run);
    free(seen.param);
    free(seen.ema);
}
