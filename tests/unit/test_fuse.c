/* Joined ops in a training graph: what the passes write, what they leave unchanged, and that no number changes, in the
 * double-precision interpreter and as a plan on the CPU backend, whose kernels of joined ops compute the same as a
 * GPU's. */
#include "inception/models/models.h"
#include "tests/support/graph_text.h"
#include "tests/support/interpret.h"
#include "tests/support/unit.h"
#include "towers/graph/program.h"

/* ---- a device that joins what it is told to */

typedef struct Asked {
    OpKind refused;
    int questions;
    int64_t widest_in, widest_out; /* pitch of the normalized input, and of its gradient */
} Asked;

static bool answer(void *context, const OpCall *call)
{
    Asked *asked = context;
    asked->questions++;
    int64_t in = call->kind == OP_CONV_DX_SUMS ? call->in[2].pitch : call->in[0].pitch;
    if (in > asked->widest_in) asked->widest_in = in;
    if (call->kind == OP_CONV_DX_SUMS && call->out[0].pitch > asked->widest_out) asked->widest_out = call->out[0].pitch;
    return call->kind != asked->refused;
}

typedef struct Net {
    Graph *g;
    Value loss;
    int forward_end, statistics;
    NormJoins norms, pools;
} Net;

static Net net_make(bool recompute, bool join);

static void join_statistics(Net *net, Asked *asked)
{
    Joins joins = {answer, asked, NULL};
    if (pass_conv_statistics(net->g, &joins, &net->forward_end, &net->statistics) != OK)
        fail_msg("%s", status_message());
    assert_sound(net->g);
}

static void join_norms(Net *net, Asked *asked)
{
    Joins joins = {answer, asked, NULL};
    if (pass_norm_into_conv(net->g, &joins, &net->norms) != OK) fail_msg("%s", status_message());
    assert_sound(net->g);
}

static Value conv_plain(Graph *g, Value x, const char *name, int32_t out, bool with_relu)
{
    char weight[32];
    snprintf(weight, sizeof weight, "%s.w", name);
    OpAttr attr = {.conv = {.window = {1, 1, 1, 1, 0, 0}, .relu = with_relu}};
    Init uniform = {.kind = INIT_UNIFORM, .a = 1};
    Value in[2] = {x, graph_param(g, weight, (Shape){out, graph_shape(g, x).c, 1, 1}, uniform, true)};
    return graph_op(g, OP_CONV, name, in, 2, &attr, NULL);
}

static Value norm_plain(Graph *g, Value x, const char *name)
{
    char beta[32];
    snprintf(beta, sizeof beta, "%s.beta", name);
    OpAttr attr = {.norm = {1e-3f, true}};
    Value in[2] = {x, graph_param(g, beta, (Shape){1, graph_shape(g, x).c, 1, 1}, (Init){INIT_ZERO}, false)};
    return graph_op(g, OP_BATCHNORM, name, in, 2, &attr, NULL);
}

/* ---- statistics */

TEST(convolution_makes_the_sums)
{
    Asked asked = {0};
    Net net = {.g = new_graph(true, DTYPE_F32)};
    norm_plain(net.g, conv_plain(net.g, new_input(net.g, "x", 2, 3, 4, 4), "c", 8, false), "n");
    net.forward_end = graph_op_count(net.g);
    join_statistics(&net, &asked);
    assert_ops(net.g, 0,
               "%0 = conv_statistics(x, c.w) 1x1 -> 2x8x4x4 f32 (c)\n"
               "%1 = batchnorm_sums(%0, n.beta, %0.1, %0.2) eps 0.001 relu -> 2x8x4x4 f32 (n)\n");
    assert_int_equal(net.statistics, 1);
    assert_int_equal(net.forward_end, 2);
    graph_destroy(net.g);
}

/* Slices of one convolution are normalized by slices of its sums. */
TEST(slices_have_slices_of_the_sums)
{
    Asked asked = {0};
    Net net = {.g = new_graph(true, DTYPE_F32)};
    Graph *g = net.g;
    int changed;
    Value x = new_input(g, "x", 2, 3, 4, 4), a = conv_plain(g, x, "a", 8, false), b = conv_plain(g, x, "b", 4, false);
    Value keep = CONCAT(g, norm_plain(g, a, "n"), relu(g, b));
    assert_int_equal(pass_sibling_convs(g, &keep, 1, &changed), OK);
    net.forward_end = graph_op_count(g);
    join_statistics(&net, &asked);
    assert_ops(g, 0,
               "%0 = conv_statistics(x, a.w+1) 1x1 -> 2x12x4x4 f32 (a+1)\n"
               "%1 = slice(%0) from 0 -> 2x8x4x4 f32 (a)\n"
               "%2 = slice(%0) from 8 -> 2x4x4x4 f32 (b)\n"
               "%3 = slice(%0.1) from 0 -> 1x8x1x1 f32 (n.sum)\n"
               "%4 = slice(%0.2) from 0 -> 1x8x1x1 f32 (n.square_sum)\n"
               "%5 = batchnorm_sums(%1, n.beta, %3, %4) eps 0.001 relu -> 2x8x4x4 f32 (n)\n"
               "%6 = relu(%2) -> 2x4x4x4 f32 (relu)\n"
               "%7 = concat(%5, %6) -> 2x12x4x4 f32 (concat)\n");
    assert_int_equal(net.forward_end, 8);
    graph_destroy(g);
}

TEST(others_keep_their_statistics)
{
    for (int row = 0; row < 5; row++) {
        Asked asked = {.refused = row == 0 ? OP_CONV_STATISTICS : OP_NONE};
        Net net = {.g = new_graph(true, DTYPE_F32)};
        Graph *g = net.g;
        Value x = new_input(g, "x", 2, 3, 4, 4), y = x;
        if (row == 0) y = conv_plain(g, x, "c", 8, false);
        if (row == 1) y = conv_plain(g, x, "c", 8, true);
        if (row == 2) y = conv_bias(g, x, "c", 8, 1, SAME, false, (Init){INIT_UNIFORM, 1});
        if (row == 3) y = avg_pool(g, conv_plain(g, x, "c", 8, false), 3, SAME);
        norm_plain(g, y, "n");
        net.forward_end = graph_op_count(g);
        join_statistics(&net, &asked);
        assert_int_equal(net.statistics, 0);
        assert_int_equal(net.forward_end, graph_op_count(g));
        assert_int_equal(asked.questions, row == 0);
        graph_destroy(g);
    }
}

TEST(a_failed_graph_is_refused)
{
    Asked asked = {0};
    Joins joins = {answer, &asked, NULL};
    int forward_end = 0, changed = -1;
    Graph *g = new_graph(true, DTYPE_F32);
    graph_fail(g, ERR_SHAPE, "on purpose");
    NormJoins norms = {.inputs = 1};
    assert_int_equal(pass_conv_statistics(g, &joins, &forward_end, &changed), ERR_SHAPE);
    assert_int_equal(pass_norm_into_conv(g, &joins, &norms), ERR_SHAPE);
    assert_int_equal(changed + norms.inputs, 0);
    norms.inputs = 1;
    assert_int_equal(pass_norm_into_pool(g, &joins, &forward_end, &norms), ERR_SHAPE);
    assert_int_equal(norms.inputs, 0);
    graph_destroy(g);
}

/* ---- normalization inside the convolutions */

/* Two units and their training: sums of c's result are the loss. */
static Net two_units(void)
{
    Net net = {.g = new_graph(true, DTYPE_F32)};
    Graph *g = net.g;
    Shape scalar = {1, 1, 1, 1};
    Value y = norm_plain(g, conv_plain(g, new_input(g, "x", 2, 3, 4, 4), "b", 8, false), "n");
    y = norm_plain(g, conv_plain(g, y, "c", 4, false), "m");
    net.loss = graph_op(g, OP_SUM_TO, "loss", &y, 1, NULL, &scalar);
    net.forward_end = graph_op_count(g);
    graph_train(g, net.loss, new_input(g, "dloss", 1, 1, 1, 1), NULL);
    assert_int_equal(graph_finish(g), OK);
    return net;
}

TEST(norm_moves_into_its_convolution)
{
    Asked asked = {0};
    Net net = two_units();
    join_statistics(&net, &asked);
    join_norms(&net, &asked);
    assert_ops(
        net.g, 0,
        "%0 = conv_statistics(x, b.w) 1x1 -> 2x8x4x4 f32 (b)\n"
        "%1 = batchnorm_finish(%0, n.beta, %0.1, %0.2) eps 0.001 relu -> 2x8x1x1 f32 (n)\n"
        "%2 = conv_statistics(%0, c.w, %1) 1x1 -> 2x4x4x4 f32 (c)\n"
        "%3 = batchnorm_sums(%2, m.beta, %2.1, %2.2) eps 0.001 relu -> 2x4x4x4 f32 (m)\n"
        "%4 = sum_to(%3) -> 1x1x1x1 f32 (loss)\n"
        "%5 = spread_to(dloss) -> 2x4x4x4 f32 (loss.dx)\n"
        "%6 = batchnorm_dx(%5, %2, m.beta, %3.1, %3.2) eps 0.001 relu -> 2x4x4x4 f32 (m.dx) [grad of m.beta]\n"
        "%7 = conv_dw_apply(%0, %6, %1) 1x1 -> 4x8x1x1 f32 (c.dw) [grad of c.w]\n"
        "%8 = conv_dx_sums(%6, c.w, %0, n.beta, %1.1, %1.2, -, %1.3) 1x1 -> 2x8x4x4 f32 (c.dx) [grad of n.beta]\n"
        "%9 = batchnorm_dx_apply(%8, %0, %1.1, %1.2, %8.1, %8.2) eps 0.001 relu -> 2x8x4x4 f32 (n.dx)\n"
        "%10 = conv_dw(x, %9) 1x1 -> 8x3x1x1 f32 (b.dw) [grad of b.w]\n");
    assert_int_equal(net.norms.inputs, 1);
    assert_int_equal(net.norms.gradients, 1);
    graph_destroy(net.g);
}

/* Without a kernel for one of its readers the value is made for all of them; the gradient is asked for by itself. */
TEST(refused_norms_stay)
{
    static const struct {
        OpKind refused;
        int inputs, gradients;
    } rows[] = {{OP_CONV_DW_APPLY, 0, 1}, {OP_CONV_DX_SUMS, 1, 0}, {OP_CONV_STATISTICS, 0, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Asked all = {0}, some = {.refused = rows[i].refused};
        Net net = two_units();
        join_statistics(&net, &all);
        join_norms(&net, &some);
        assert_int_equal(net.norms.inputs, rows[i].inputs);
        assert_int_equal(net.norms.gradients, rows[i].gradients);
        graph_destroy(net.g);
    }
}

/* ---- times: the batch norm 10, each of its two readers 20 and, joined, as a test says; the four ops of a gradient 20, but
 * the joined one */

static double joined_time, gradient_time;

static double timed(void *context, const OpCall *call)
{
    bool joined = call->kind == OP_CONV_DW_APPLY || (call->kind == OP_CONV_STATISTICS && call->in_count > 2);
    if (call->kind == OP_CONV_DX_SUMS) return gradient_time;
    return joined ? joined_time : call->kind == OP_BATCHNORM_SUMS ? 10 : 20;
}

/* Together they must be faster than one pass more; where a time is not known, the kernel that is there is taken. */
TEST(slower_kernels_are_not_taken)
{
    static const struct {
        double time, gradient;
        int inputs, gradients;
    } rows[] = {{24, 19, 1, 1}, {26, 19, 0, 1}, {-1, 19, 1, 1}, {24, 21, 1, 0}, {24, -1, 1, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Asked asked = {0};
        Net net = two_units();
        Joins joins = {answer, &asked, timed};
        joined_time = rows[i].time;
        gradient_time = rows[i].gradient;
        join_statistics(&net, &asked);
        if (pass_norm_into_conv(net.g, &joins, &net.norms) != OK) fail_msg("%s", status_message());
        assert_sound(net.g);
        assert_int_equal(net.norms.inputs, rows[i].inputs);
        assert_int_equal(net.norms.gradients, rows[i].gradients);
        graph_destroy(net.g);
    }
}

/* A result, and a value that something else reads too, are made. */
TEST(values_that_others_read_are_made)
{
    for (int row = 0; row < 3; row++) {
        Asked asked = {0};
        Net net = {.g = new_graph(true, DTYPE_F32)};
        Graph *g = net.g;
        Value y = norm_plain(g, conv_plain(g, new_input(g, "x", 2, 3, 4, 4), "b", 8, false), "n");
        norm_plain(g, conv_plain(g, y, "c", 4, row == 2), "m");
        if (row == 0) graph_result(g, y, "kept");
        if (row == 1) relu(g, y);
        net.forward_end = graph_op_count(g);
        join_statistics(&net, &asked);
        join_norms(&net, &asked);
        assert_int_equal(net.norms.inputs, 0);
        graph_destroy(g);
    }
}

/* A device is asked with the strides that the plan will give: those of the joined convolution of siblings. */
TEST(strides_are_those_of_the_plan)
{
    Asked asked = {0};
    Net net = {.g = new_graph(true, DTYPE_F32)};
    Graph *g = net.g;
    int changed;
    Shape scalar = {1, 1, 1, 1};
    Value x = relu(g, new_input(g, "x", 2, 3, 4, 4)), a = norm_plain(g, conv_plain(g, x, "a", 8, false), "n");
    Value b = norm_plain(g, conv_plain(g, x, "b", 4, false), "m");
    Value y = CONCAT(g, norm_plain(g, conv_plain(g, a, "c", 4, false), "k"), b);
    net.loss = graph_op(g, OP_SUM_TO, "loss", &y, 1, NULL, &scalar);
    assert_int_equal(pass_sibling_convs(g, &net.loss, 1, &changed), OK);
    net.forward_end = graph_op_count(g);
    graph_train(g, net.loss, new_input(g, "dloss", 1, 1, 1, 1), NULL);
    join_statistics(&net, &asked);
    join_norms(&net, &asked);
    assert_int_equal(net.norms.inputs, 1);
    assert_int_equal(net.norms.gradients, 1);
    assert_int_equal(asked.widest_in, 12);
    assert_int_equal(asked.widest_out, 12);
    graph_destroy(g);
}

/* ---- normalization inside the max pools */

static void join_pools(Net *net, Joins joins)
{
    if (pass_norm_into_pool(net->g, &joins, &net->forward_end, &net->pools) != OK) fail_msg("%s", status_message());
    assert_sound(net->g);
}

/* A unit, a pool of it, and their training. */
static Net pooled_unit(bool with_relu)
{
    Net net = {.g = new_graph(true, DTYPE_F32)};
    Graph *g = net.g;
    Shape scalar = {1, 1, 1, 1};
    Value y = batch_norm(g, conv_plain(g, new_input(g, "x", 2, 3, 7, 7), "b", 8, false), "n", with_relu);
    y = max_pool(g, y, 3, HALVE);
    net.loss = graph_op(g, OP_SUM_TO, "loss", &y, 1, NULL, &scalar);
    net.forward_end = graph_op_count(g);
    graph_train(g, net.loss, new_input(g, "dloss", 1, 1, 1, 1), NULL);
    assert_int_equal(graph_finish(g), OK);
    return net;
}

#define POOLED_UNIT                                                                                                    \
    " eps 0.001 relu -> 2x8x7x7 f32 (n.bn) [feeds n.bn.running_mean] [feeds n.bn.running_var]\n"                       \
    "%2 = max_pool_norm(%0, n.bn.bias, %1.1, %1.2, n.bn.weight) 3x3/2 eps 0.001 -> 2x8x3x3 f32 (max_pool)\n"           \
    "%3 = sum_to(%2) -> 1x1x1x1 f32 (loss)\n"                                                                          \
    "%4 = spread_to(dloss) -> 2x8x3x3 f32 (loss.dx)\n"                                                                 \
    "%5 = max_pool_norm_dx(%4, %2.1, %0, n.bn.bias, %1.1, %1.2, n.bn.weight) 3x3/2 eps 0.001 -> 2x8x7x7 f32 "          \
    "(n.bn.dx) [grad of n.bn.bias] [grad of n.bn.weight]\n"                                                            \
    "%6 = conv_dw(x, %5) 1x1 -> 8x3x1x1 f32 (b.dw) [grad of b.w]\n"

TEST(norm_moves_into_its_pool)
{
    for (int sums = 0; sums < 2; sums++) {
        Asked asked = {0};
        Net net = pooled_unit(true);
        if (sums) join_statistics(&net, &asked);
        join_pools(&net, (Joins){answer, &asked, NULL});
        assert_ops(net.g, 1,
                   sums ? "%1 = batchnorm_sums(%0, n.bn.bias, %0.1, %0.2, n.bn.weight)" POOLED_UNIT
                        : "%1 = batchnorm(%0, n.bn.bias, n.bn.weight)" POOLED_UNIT);
        assert_int_equal(net.pools.inputs, 1);
        assert_int_equal(net.pools.gradients, 1);
        assert_int_equal(net.forward_end, 4);
        graph_destroy(net.g);
    }
}

/* One direction may be refused alone; without a ReLU, or with another reader of what lies between, both are. */
TEST(other_pools_stay)
{
    static const OpKind refused[] = {OP_NONE, OP_NONE, OP_MAX_POOL_NORM, OP_MAX_POOL_NORM_DX};
    for (int row = 0; row < 4; row++) {
        Asked asked = {.refused = refused[row]};
        Net net = row == 1 ? net_make(false, false) : pooled_unit(row > 0);
        join_pools(&net, (Joins){answer, &asked, NULL});
        assert_int_equal(net.pools.inputs, row == 1 || row == 3);
        assert_int_equal(net.pools.gradients, row == 1 || row == 2);
        graph_destroy(net.g);
    }
}

/* Pool, batch norm and the statistics alone take 10 each. */
static double pooled_time;

static double timed_pool(void *context, const OpCall *call)
{
    return call->kind == OP_MAX_POOL_NORM || call->kind == OP_MAX_POOL_NORM_DX ? pooled_time : 10;
}

TEST(slower_pools_are_not_taken)
{
    static const struct {
        double time;
        int inputs, gradients;
    } rows[] = {{10, 1, 1}, {11, 0, 1}, {21, 0, 0}, {-1, 1, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Asked asked = {0};
        Net net = pooled_unit(true);
        pooled_time = rows[i].time;
        join_pools(&net, (Joins){answer, &asked, timed_pool});
        assert_int_equal(net.pools.inputs, rows[i].inputs);
        assert_int_equal(net.pools.gradients, rows[i].gradients);
        graph_destroy(net.g);
    }
}

/* ---- levels */

static bool joins_all(Device *device, const OpCall *call)
{
    return true;
}

TEST(levels_need_a_backend_that_joins)
{
    Backend without = {.name = "plain"}, with = {.name = "joining", .joins = joins_all};
    for (FuseLevel level = FUSE_AUTO; level <= FUSE_III_H; level++) {
        assert_int_equal(fuse_check(level, &with), OK);
        assert_int_equal(fuse_check(level, &without), level <= FUSE_II ? OK : ERR_UNSUPPORTED);
    }
    assert_string_equal(status_message(),
                        "--fuse iii-h: the plain backend has no fused convolutions; use --fuse auto or ii");
}

/* ---- no number changes: in double precision */

/* Branches with every neighbor that matters: siblings, a pool moved behind its convolution, one value read by two
 * convolutions, a maximum, a bias. */
static Net net_make(bool recompute, bool join)
{
    Net net = {.g = new_graph(true, DTYPE_F32)};
    Graph *g = net.g;
    Shape scalar = {1, 1, 1, 1};
    int changed;
    Value x = CHAIN(g, new_input(g, "x", 2, 3, 9, 9), {"stem0", 5, 1, 1});
    x = CHAIN(g, max_pool(g, x, 3, SAME), {"stem1", 6, 3, 3, SAME}, {"stem2", 8, 3, 3, HALVE});
    Value b0 = CHAIN(g, x, {"b0", 4, 1, 1});
    Value b1 = CHAIN(g, x, {"b1_1", 4, 1, 1}, {"b1_2", 6, 3, 3}, {"b1_3", 5, 1, 3});
    Value fork = CHAIN(g, x, {"b2_1", 4, 1, 1});
    Value b2 = CHAIN(g, fork, {"b2_2", 3, 1, 3}), b3 = CHAIN(g, fork, {"b2_3", 3, 3, 1});
    Value b4 = avg_pool(g, x, 3, SAME);
    b4 = CHAIN(g, b4, {"b4", 3, 1, 1});
    Value y = CONCAT(g, b0, b1, b2, b3, b4, max_pool(g, x, 3, SAME));
    y = CHAIN(g, conv_bias(g, y, "d", 4, 3, SAME, true, (Init){INIT_UNIFORM, 1}), {"e", 4, 3, 3});
    Value square = mul(g, y, y);
    net.loss = graph_op(g, OP_SUM_TO, "loss", &square, 1, NULL, &scalar);
    assert_int_equal(pass_pool_behind_conv(g, &net.loss, 1, &changed), OK);
    assert_int_equal(pass_sibling_convs(g, &net.loss, 1, &changed), OK);
    net.forward_end = graph_op_count(g);
    graph_train(g, net.loss, new_input(g, "dloss", 1, 1, 1, 1), NULL);
    if (recompute) assert_int_equal(pass_recompute(g, net.forward_end, &changed), OK);
    if (graph_finish(g) != OK) fail_msg("%s", status_message());
    Asked all = {0};
    if (join) join_statistics(&net, &all);
    if (join) join_norms(&net, &all);
    if (join) join_pools(&net, (Joins){answer, &all, NULL});
    return net;
}

static Interpreter net_run(const Net *net)
{
    Interpreter it = interpreter_create(net->g);
    for (int32_t id = 1; id <= graph_value_count(net->g); id++) {
        const ValueInfo *info = graph_value(net->g, (Value){id});
        if (info->role != ROLE_INPUT && info->role != ROLE_PARAM) continue;
        uint64_t seed = 5381;
        for (const char *c = info->name; *c; c++) seed = seed * 33 + (unsigned char)*c;
        fill_uniform(interpreter_data(&it, (Value){id}), shape_count(info->shape), seed, -1, 1);
    }
    interpreter_run(&it);
    return it;
}

/* The value of this role that belongs to what has this name. */
static Value value_of(const Graph *g, Role role, const char *name)
{
    for (int32_t id = 1; id <= graph_value_count(g); id++) {
        const ValueInfo *info = graph_value(g, (Value){id});
        if (info->role == role && !strcmp(graph_value(g, info->of)->name, name)) return (Value){id};
    }
    fail_msg("nothing belongs to %s", name);
    return (Value){0};
}

/* Every gradient and every batch statistic. */
static int compare(const Net *plain, Interpreter *a, const Net *joined, Interpreter *b)
{
    int compared = 0;
    for (int32_t id = 1; id <= graph_value_count(plain->g); id++) {
        const ValueInfo *info = graph_value(plain->g, (Value){id});
        if (info->role != ROLE_GRAD && info->role != ROLE_STAT) continue;
        Value other = value_of(joined->g, info->role, graph_value(plain->g, info->of)->name);
        const double *x = interpreter_data(a, (Value){id}), *y = interpreter_data(b, other);
        int64_t count = shape_count(info->shape);
        double size = 0, error = 0;
        for (int64_t i = 0; i < count; i++) {
            size += x[i] * x[i];
            error = fmax(error, fabs(x[i] - y[i]));
        }
        if (!(error <= 1e-9 * sqrt(size / (double)count) + 1e-12)) fail_msg("%s: off by %g", info->name, error);
        compared++;
    }
    return compared;
}

TEST(numbers_stay)
{
    for (int recompute = 0; recompute < 2; recompute++) {
        Net plain = net_make(recompute, false), joined = net_make(recompute, true);
        assert_int_equal(joined.norms.inputs, 5);    /* stem2, b1_2, b1_3, b2_2, b2_3 */
        assert_int_equal(joined.norms.gradients, 3); /* of stem1, b1_1, b1_2; that of b2_1 is a sum of two */
        assert_int_equal(joined.pools.inputs, 1);    /* of stem0 */
        assert_int_equal(joined.pools.gradients, 1);
        assert_int_equal(joined.statistics, 9); /* stem0, stem1, stem2, the siblings, b1_2, b1_3, b2_2, b2_3, e */
        Interpreter a = net_run(&plain), b = net_run(&joined);
        assert_int_equal(compare(&plain, &a, &joined, &b), 2 * 12 + 9 + 2 * 12 + 2);
        interpreter_destroy(&a);
        interpreter_destroy(&b);
        graph_destroy(plain.g);
        graph_destroy(joined.g);
    }
}

/* ---- and in a plan, on the CPU's kernels */

enum { SAMPLES = 4 };

typedef struct Trained {
    float loss;
    float *grads, *stats; /* owned */
    size_t grad_count, stat_count;
    Fusion fusion;
    int unmade; /* batch norms without a result */
} Trained;

static void upload(const Program *p, Device *device, Value v, const void *from, size_t bytes)
{
    if (v.id) assert_int_equal(device->backend->upload(device, plan_tensor(p->plan, v).data, from, bytes), OK);
}

static float *fetch(Device *device, const void *from, size_t count)
{
    float *floats = malloc(count * sizeof *floats);
    assert_non_null(floats);
    assert_int_equal(device->backend->download(device, floats, from, count * sizeof *floats), OK);
    return floats;
}

/* All ops, and the gradients, each taken as soon as it is said to be final. The sum over towers is made where they lie:
 * from then on nothing else is there. */
static float *run_and_take(const Program *p, const Layout *layout, Device *device, float *grads)
{
    int ran = 0;
    size_t start = 0;
    float *taken = calloc(layout->param_elements, sizeof *taken);
    assert_non_null(taken);
    for (int i = 0; i <= layout->param_count; i++) {
        bool last = i == layout->param_count;
        size_t end = last ? layout->param_elements : layout_param_end(layout, i);
        int ready = last ? plan_op_count(p->plan) : plan_ready_after(p->plan, end);
        if (ready > ran && plan_run(p->plan, ran, ready) != OK) fail_msg("%s", status_message());
        if (ready > ran) ran = ready;
        assert_int_equal(device->backend->download(device, taken + start, grads + start, (end - start) * sizeof *grads),
                         OK);
        assert_int_equal(device->backend->fill(device, grads + start, 1e3f, end - start), OK);
        start = end;
    }
    return taken;
}

static void program_run(Program *p, const Layout *layout, Device *device, Trained *result)
{
    static uint8_t pixels[SAMPLES * 28 * 28 * 3];
    static const int32_t labels[SAMPLES] = {3, 1, 4, 9}, crops[SAMPLES * IMAGE_RECORD], counter[4] = {1, 2, 3, 0};
    void *arena[ARENA_COUNT];
    float one = 1;
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 2654435761u >> 13);
    for (int a = 0; a < ARENA_COUNT; a++) {
        assert_int_equal(device->backend->alloc(device, plan_bytes(p->plan, (Arena)a) + 64, &arena[a]), OK);
        plan_bind(p->plan, (Arena)a, arena[a]);
    }
    layout_init_params(layout, 7, arena[ARENA_PARAM]);
    layout_init_states(layout, arena[ARENA_STATE]);
    upload(p, device, p->pixels, pixels, (size_t)shape_count(graph_shape(p->graph, p->pixels)));
    upload(p, device, p->labels, labels, sizeof labels);
    upload(p, device, p->augment, crops, sizeof crops);
    upload(p, device, p->counter, counter, sizeof counter);
    upload(p, device, p->dloss, &one, sizeof one);
    *result = (Trained){.grad_count = layout->param_elements, .stat_count = layout->state_elements};
    result->grads = run_and_take(p, layout, device, arena[ARENA_GRAD]);
    result->loss = *(float *)plan_tensor(p->plan, p->loss).data;
    result->stats = fetch(device, arena[ARENA_STAT], result->stat_count);
    for (int a = 0; a < ARENA_COUNT; a++) device->backend->release(device, arena[a]);
}

static Trained train(const char *name, int32_t channels, FuseLevel level, bool siblings)
{
    const Backend *cpu;
    const Model *model;
    DeviceConfig threads = {DEVICE_USUAL, .threads = 1, .allow_reference = true};
    Device device = {0};
    Program graph, program;
    Layout *layout;
    Trained result;
    if (backend_find("cpu", &cpu, NULL, 0) != OK) skip();
    assert_int_equal(cpu->open(&threads, &device), OK);
    Backend joining = *cpu;
    joining.joins = joins_all;
    device.backend = &joining;
    assert_int_equal(model_find(name, &model), OK);
    ProgramConfig config = {
        .model = model,
        .options = {.classes = 10, .side = 28, .channels = channels, .dropout = 0.2f, .variant = ""},
        .data_channels = channels,
        .canvas = 28,
        .training = true,
        .fuse_siblings = siblings,
        .pool_behind_conv = siblings,
        .fuse = level};
    assert_int_equal(program_graph(&config, SAMPLES, &graph), OK);
    assert_int_equal(layout_create(graph.graph, &layout), OK);
    if (program_create(&config, SAMPLES, layout, &device, &program) != OK) fail_msg("%s", status_message());
    program_run(&program, layout, &device, &result);
    result.fusion = program.fusion;
    for (int i = 0; i < plan_op_count(program.plan); i++) {
        const OpCall *call = plan_call(program.plan, i);
        bool norm = call->kind == OP_BATCHNORM || call->kind == OP_BATCHNORM_SUMS;
        result.unmade += norm && !call->out[0].data;
    }
    program_destroy(&program);
    program_destroy(&graph);
    layout_destroy(layout);
    cpu->close(&device);
    return result;
}

static void trained_free(Trained *t)
{
    free(t->grads);
    free(t->stats);
}

static double distance(const float *a, const float *b, size_t count)
{
    double size = 0, error = 0;
    for (size_t i = 0; i < count; i++) {
        size += (double)a[i] * (double)a[i];
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    }
    assert_true(size > 0);
    return sqrt(error / size);
}

TEST(plans_agree)
{
    for (int siblings = 0; siblings < 2; siblings++) {
        Trained plain = train("inception_mini", 1, FUSE_II, siblings),
                joined = train("inception_mini", 1, FUSE_AUTO, siblings);
        assert_int_equal(joined.fusion.norms.inputs, siblings ? 14 : 13);
        assert_int_equal(joined.fusion.norms.gradients, siblings ? 14 : 13);
        assert_int_equal(plain.fusion.statistics, 0);
        assert_false(plain.fusion.possible);
        assert_int_equal(joined.fusion.statistics, siblings ? 18 : 28);
        assert_true(fabsf(plain.loss - joined.loss) < 1e-5f * plain.loss);
        assert_true(distance(plain.stats, joined.stats, plain.stat_count) < 1e-5);
        assert_true(distance(plain.grads, joined.grads, plain.grad_count) < 1e-4);
        trained_free(&plain);
        trained_free(&joined);
    }
}

TEST(plans_of_pools_agree)
{
    Trained plain = train("resnet18", 3, FUSE_II, false), joined = train("resnet18", 3, FUSE_AUTO, false);
    assert_int_equal(joined.fusion.pools.inputs, 1);
    assert_int_equal(joined.fusion.pools.gradients, 1);
    assert_int_equal(plain.unmade, 0);
    assert_int_equal(joined.unmade, 1);
    assert_true(fabsf(plain.loss - joined.loss) < 1e-5f * plain.loss);
    assert_true(distance(plain.stats, joined.stats, plain.stat_count) < 1e-5);
    assert_true(distance(plain.grads, joined.grads, plain.grad_count) < 1e-3);
    trained_free(&plain);
    trained_free(&joined);
}

TEST(fusion_in_words)
{
    char text[256];
    Fusion none = {.convolutions = 18},
           some = {.possible = true, .convolutions = 18, .statistics = 17, .norms = {9, 8}, .pools = {2, 1}};
    fusion_text(&none, text, sizeof text);
    assert_string_equal(text, "none");
    fusion_text(&some, text, sizeof text);
    assert_string_equal(text,
                        "sums in 17 of 18 convolutions, 9 normalize their input, 8 sum the gradient of it; so do 2 and "
                        "1 max pools");
}
