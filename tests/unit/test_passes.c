/* The passes over the forward list: what they change, what they leave unchanged, and that the list stays valid. */
#include "tests/support/graph_text.h"
#include "tests/support/interpret.h"
#include "tests/support/unit.h"

static const Init uniform = {.kind = INIT_UNIFORM, .a = 1};

static Value conv1x1(Graph *g, Value x, const char *name, int32_t out, bool with_relu)
{
    char weight[32];
    snprintf(weight, sizeof weight, "%s.w", name);
    OpAttr attr = {.conv = {.window = {1, 1, 1, 1, 0, 0}, .relu = with_relu}};
    Value in[2] = {x, graph_param(g, weight, (Shape){out, graph_shape(g, x).c, 1, 1}, uniform, true)};
    return graph_op(g, OP_CONV, name, in, 2, &attr, NULL);
}

static int run_pool_pass(Graph *g, Value *keep, int count)
{
    int changed = -1;
    assert_int_equal(pass_pool_behind_conv(g, keep, count, &changed), OK);
    assert_sound(g);
    return changed;
}

static int run_sibling_pass(Graph *g, Value *keep, int count)
{
    int changed = -1;
    assert_int_equal(pass_sibling_convs(g, keep, count, &changed), OK);
    assert_sound(g);
    return changed;
}

/* ---- pooling behind the convolution */

TEST(pooling_moves_behind_its_convolution)
{
    Graph *g = new_graph(true, DTYPE_F32);
    Value x = relu(g, new_input(g, "x", 2, 8, 9, 9));
    Value y = relu(g, conv1x1(g, avg_pool(g, x, 3, SAME), "c", 4, false));
    assert_int_equal(run_pool_pass(g, &y, 1), 1);
    assert_ops(g, 0,
               "%0 = relu(x) -> 2x8x9x9 f32 (relu)\n"
               "%1 = conv(%0, c.w) 1x1 -> 2x4x9x9 f32 (c)\n"
               "%2 = avg_pool(%1) 3x3+1 -> 2x4x9x9 f32 (avg_pool)\n"
               "%3 = relu(%2) -> 2x4x9x9 f32 (relu)\n");
    assert_int_equal(graph_value(g, y)->op, 3);
    assert_int_equal(run_pool_pass(g, &y, 1), 0);
    graph_destroy(g);
}

/* Values that the caller keeps have the same meaning afterwards: the convolution's value is the pooling's now. */
TEST(kept_values_and_results_follow)
{
    Graph *g = new_graph(true, DTYPE_F32);
    Value y = conv1x1(g, avg_pool(g, new_input(g, "x", 2, 8, 9, 9), 3, SAME), "c", 4, false);
    graph_result(g, y, "answer");
    assert_int_equal(run_pool_pass(g, &y, 1), 1);
    assert_int_equal(graph_find(g, "answer").id, y.id);
    assert_int_equal(graph_op_at(g, graph_value(g, y)->op)->kind, OP_AVG_POOL);
    graph_destroy(g);
}

typedef struct PoolCase {
    const char *why;
    int32_t k, out;
    Fit fit;
    bool conv_relu, second_reader, kept, result;
} PoolCase;

TEST(pooling_stays_otherwise)
{
    const PoolCase rows[] = {
        {"stride 2", 3, 4, HALVE_SAME},
        {"no padding", 3, 4, VALID},
        {"more channels", 3, 9, SAME},
        {"a fused relu", 3, 4, SAME, .conv_relu = true},
        {"a second reader", 3, 4, SAME, .second_reader = true},
        {"the pooled value is kept", 3, 4, SAME, .kept = true},
        {"the pooled value is a result", 3, 4, SAME, .result = true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Graph *g = new_graph(true, DTYPE_F32);
        Value keep[2] = {avg_pool(g, new_input(g, "x", 2, 8, 9, 9), rows[i].k, rows[i].fit)};
        keep[1] = conv1x1(g, keep[0], "c", rows[i].out, rows[i].conv_relu);
        if (rows[i].second_reader) relu(g, keep[0]);
        if (rows[i].result) graph_result(g, keep[0], "pooled");
        int changed = run_pool_pass(g, rows[i].kept ? keep : keep + 1, rows[i].kept ? 2 : 1);
        if (changed) fail_msg("%s: the pooling moved", rows[i].why);
        graph_destroy(g);
    }
}

/* ---- batch norms in convolutions */

static int run_fold_pass(Graph *g)
{
    int changed = -1;
    assert_int_equal(pass_fold_norms(g, &changed), OK);
    assert_sound(g);
    return changed;
}

TEST(convolutions_include_their_norms)
{
    Graph *g = new_graph(false, DTYPE_F32);
    layer_style(g, (LayerStyle){.bn_epsilon = 0.25f, .bn_no_gamma = true});
    Value a = conv_bn_relu(g, new_input(g, "x", 2, 8, 9, 9), (ConvUnit){"a", 4, 3, 3, SAME});
    Value b = batch_norm(g, conv1x1(g, a, "b", 5, false), "b", false);
    Value y = CONCAT(g, a, b);
    graph_result(g, y, "answer");
    assert_int_equal(run_fold_pass(g), 2);
    assert_ops(
        g, 0,
        "%0 = norm_fold(a.conv.weight, a.bn.bias, a.bn.running_mean, a.bn.running_var) eps 0.25 -> 4x8x3x3 f32 (a.bn)\n"
        "%1 = norm_fold(b.w, b.bn.bias, b.bn.running_mean, b.bn.running_var) eps 0.25 -> 5x4x1x1 f32 (b.bn)\n"
        "%2 = conv(x, %0, %0.1) 3x3+1 relu -> 2x4x9x9 f32 (a.conv)\n"
        "%3 = conv(%2, %1, %1.1) 1x1 -> 2x5x9x9 f32 (b)\n"
        "%4 = concat(%2, %3) -> 2x9x9x9 f32 (concat) [answer]\n");
    assert_int_equal(graph_value(g, graph_op_at(g, 0)->out[0])->role, ROLE_FOLDED);
    assert_int_equal(graph_value(g, graph_op_at(g, 0)->out[1])->role, ROLE_FOLDED);
    assert_int_equal(graph_value(g, a)->op, 2);
    assert_int_equal(run_fold_pass(g), 0);
    graph_destroy(g);
}

typedef struct NormCase {
    const char *why;
    bool training, bias, conv_relu, pooled, second_reader, result;
} NormCase;

TEST(norms_stay_otherwise)
{
    const NormCase rows[] = {
        {"a bias", .bias = true},
        {"a fused relu", .conv_relu = true},
        {"a pooling between", .pooled = true},
        {"a second reader", .second_reader = true},
        {"the value between is a result", .result = true},
        {"statistics of the batch", .training = true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Graph *g = new_graph(rows[i].training, DTYPE_F32);
        Value x = new_input(g, "x", 2, 8, 9, 9);
        Value z =
            rows[i].bias ? conv_bias(g, x, "c", 4, 1, SAME, false, uniform) : conv1x1(g, x, "c", 4, rows[i].conv_relu);
        if (rows[i].pooled) z = avg_pool(g, z, 3, SAME);
        if (rows[i].result) graph_result(g, z, "between");
        Value y = batch_norm(g, z, "c", true);
        graph_result(g, rows[i].second_reader ? add(g, y, z) : y, "answer");
        if (run_fold_pass(g)) fail_msg("%s: the batch norm was folded", rows[i].why);
        graph_destroy(g);
    }
}

/* ---- siblings */

TEST(siblings_become_one)
{
    Graph *g = new_graph(true, DTYPE_F32);
    Value x = relu(g, new_input(g, "x", 2, 8, 9, 9));
    Value a = conv1x1(g, x, "a", 4, false), b = relu(g, conv1x1(g, x, "b", 5, false));
    Value y = CONCAT(g, relu(g, a), b, x);
    Value keep[2] = {y, a};
    assert_int_equal(run_sibling_pass(g, keep, 2), 1);
    assert_ops(g, 0,
               "%0 = relu(x) -> 2x8x9x9 f32 (relu)\n"
               "%1 = conv(%0, a.w+1) 1x1 -> 2x9x9x9 f32 (a+1)\n"
               "%2 = slice(%1) from 0 -> 2x4x9x9 f32 (a)\n"
               "%3 = slice(%1) from 4 -> 2x5x9x9 f32 (b)\n"
               "%4 = relu(%3) -> 2x5x9x9 f32 (relu)\n"
               "%5 = relu(%2) -> 2x4x9x9 f32 (relu)\n"
               "%6 = concat(%5, %4, %0) -> 2x17x9x9 f32 (concat)\n");
    assert_int_equal(graph_value(g, keep[0])->op, 6);
    assert_int_equal(graph_value(g, keep[1])->op, 2);
    assert_int_equal(run_sibling_pass(g, keep, 2), 0);
    graph_destroy(g);
}

/* Training through a PACK: one gradient for all members, none for each. */
TEST(pack_has_the_gradient)
{
    Graph *g = new_graph(true, DTYPE_F32);
    Value x = new_input(g, "x", 2, 8, 1, 1);
    Shape scalar = {1, 1, 1, 1};
    Value a = relu(g, conv1x1(g, x, "a", 4, false)), b = conv1x1(g, x, "b", 4, false), y = add(g, a, b);
    Value loss = graph_op(g, OP_SUM_TO, "loss", &y, 1, NULL, &scalar);
    assert_int_equal(run_sibling_pass(g, &loss, 1), 1);
    graph_train(g, loss, new_input(g, "dloss", 1, 1, 1, 1), NULL);
    assert_sound(g);
    assert_ops(g, 6,
               "%6 = spread_to(dloss) -> 2x4x1x1 f32 (loss.dx)\n"
               "%7 = relu_dx(%6, %3) -> 2x4x1x1 f32 (relu.relu)\n"
               "%8 = concat(%7, %6) -> 2x8x1x1 f32 (a+1.joined)\n"
               "%9 = conv_dw(x, %8) 1x1 -> 8x8x1x1 f32 (a+1.dw) [grad of a.w+1]\n");
    const ValueInfo *pack = graph_value(g, graph_op_at(g, 0)->in[1]);
    assert_int_equal(pack->role, ROLE_PACK);
    assert_int_equal(pack->member_count, 2);
    assert_int_equal(pack->members[0].id, graph_find(g, "a.w").id);
    assert_int_equal(pack->members[1].id, graph_find(g, "b.w").id);
    graph_destroy(g);
}

TEST(member_alone_has_no_gradient)
{
    Graph *g = new_graph(true, DTYPE_F32);
    Value x = new_input(g, "x", 2, 8, 1, 1), grad;
    Value y = add(g, conv1x1(g, x, "a", 4, false), conv1x1(g, x, "b", 4, false));
    assert_int_equal(run_sibling_pass(g, &y, 1), 1);
    Value w = graph_find(g, "a.w");
    graph_grad(g, y, new_input(g, "dy", 2, 4, 1, 1), &w, 1, &grad);
    assert_failure(g, ERR_UNSUPPORTED, "a.w: lies in a pack, which has a gradient only as a whole");
    graph_destroy(g);
}

/* Nine siblings: eight fit into a pack, the ninth has nobody left to join. */
TEST(groups_are_as_large_as_a_pack)
{
    Graph *g = new_graph(true, DTYPE_F32);
    Value x = new_input(g, "x", 2, 8, 1, 1), y = x;
    for (int i = 0; i < 9; i++) {
        char name[16];
        snprintf(name, sizeof name, "c%d", i);
        y = add(g, y, conv1x1(g, x, name, 8, false));
    }
    assert_int_equal(run_sibling_pass(g, &y, 1), 1);
    int convs = 0;
    for (int i = 0; i < graph_op_count(g); i++) convs += graph_op_at(g, i)->kind == OP_CONV;
    assert_int_equal(convs, 2);
    assert_int_equal(graph_shape(g, graph_op_at(g, 0)->in[1]).n, 64);
    graph_destroy(g);
}

TEST(others_stay_apart)
{
    for (int row = 0; row < 4; row++) {
        Graph *g = new_graph(true, DTYPE_F32);
        Value x = new_input(g, "x", 2, 8, 9, 9), other = new_input(g, "z", 2, 8, 9, 9), y[2];
        y[0] = relu(g, conv1x1(g, x, "a", 4, false));
        if (row == 0) y[1] = conv1x1(g, x, "b", 4, true);
        if (row == 1) y[1] = conv_bias(g, x, "b", 4, 1, SAME, false, uniform);
        if (row == 2) y[1] = conv1x1(g, other, "b", 4, false);
        if (row == 3) y[1] = CHAIN(g, x, {"b", 4, 3, 3});
        relu(g, y[1]);
        assert_int_equal(run_sibling_pass(g, y, 2), 0);
        graph_destroy(g);
    }
}

/* Weights with a second reader have gradients of their own and cannot go into a pack. */
TEST(shared_weights_stay_apart)
{
    Graph *g = new_graph(true, DTYPE_F32);
    Value x = new_input(g, "x", 2, 8, 9, 9), y = relu(g, conv1x1(g, x, "a", 4, false));
    OpAttr attr = {.conv.window = {1, 1, 1, 1, 0, 0}};
    Value again[2] = {x, graph_find(g, "a.w")};
    relu(g, graph_op(g, OP_CONV, "b", again, 2, &attr, NULL));
    assert_int_equal(run_sibling_pass(g, &y, 1), 0);
    graph_destroy(g);
}

/* ---- both, on an Inception block */

static Value block(Graph *g, Value x)
{
    Value b0 = CHAIN(g, x, {"b0", 4, 1, 1});
    Value b1 = CHAIN(g, x, {"b1_1", 4, 1, 1}, {"b1_2", 6, 5, 5});
    Value b2 = avg_pool(g, x, 3, SAME);
    b2 = CHAIN(g, b2, {"b2", 3, 1, 1});
    return CONCAT(g, b0, b1, b2);
}

TEST(block_becomes_one_convolution_and_branches)
{
    for (int training = 0; training < 2; training++) {
        Graph *g = new_graph(training, DTYPE_F32);
        Value y = block(g, new_input(g, "x", 2, 8, 9, 9));
        Shape shape = graph_shape(g, y);
        assert_int_equal(run_pool_pass(g, &y, 1), 1);
        assert_int_equal(run_sibling_pass(g, &y, 1), 1);
        assert_true(shape_equal(graph_shape(g, y), shape));
        assert_int_equal(graph_shape(g, graph_op_at(g, 0)->out[0]).c, 4 + 4 + 3);
        int stats = 0;
        for (int32_t id = 1; id <= graph_value_count(g); id++) {
            const ValueInfo *info = graph_value(g, (Value){id});
            if (info->role != ROLE_BATCH_STATISTIC) continue;
            assert_int_equal(graph_value(g, info->of)->role, ROLE_RUNNING);
            stats++;
        }
        assert_int_equal(stats, training ? 2 * 4 : 0);
        graph_destroy(g);
    }
}

/* Run the block and its training on numbers that depend on names alone: its output, and the gradient of a weight. */
static void run_block(bool passes, bool include_pad, double *y_out, double *dw_out)
{
    Graph *g = new_graph(true, DTYPE_F32);
    Shape scalar = {1, 1, 1, 1};
    layer_style(g, (LayerStyle){.include_pad = include_pad});
    Value y = block(g, new_input(g, "x", 2, 8, 5, 5)), keep[2] = {y};
    Value square = mul(g, y, y), dw;
    keep[1] = graph_op(g, OP_SUM_TO, "loss", &square, 1, NULL, &scalar);
    if (passes) assert_int_equal(run_pool_pass(g, keep, 2) + run_sibling_pass(g, keep, 2), 2);
    Value w = graph_find(g, "b1_2.conv.weight");
    graph_grad(g, keep[1], new_input(g, "dloss", 1, 1, 1, 1), &w, 1, &dw);
    assert_sound(g);
    Interpreter it = interpreter_create(g);
    for (int32_t id = 1; id <= graph_value_count(g); id++) {
        const ValueInfo *info = graph_value(g, (Value){id});
        if (info->role != ROLE_INPUT && info->role != ROLE_PARAM) continue;
        uint64_t seed = 5381;
        for (const char *c = info->name; *c; c++) seed = seed * 33 + (unsigned char)*c;
        fill_uniform(interpreter_data(&it, (Value){id}), shape_count(info->shape), seed, -1, 1);
    }
    interpreter_run(&it);
    memcpy(y_out, interpreter_data(&it, keep[0]), sizeof *y_out * (size_t)shape_count(graph_shape(g, keep[0])));
    memcpy(dw_out, interpreter_data(&it, dw), sizeof *dw_out * (size_t)shape_count(graph_shape(g, dw)));
    interpreter_destroy(&it);
    graph_destroy(g);
}

TEST(passes_leave_the_numbers_alone)
{
    enum { Y_COUNT = 2 * 13 * 5 * 5, DW_COUNT = 6 * 4 * 5 * 5 };
    static double y[2][Y_COUNT], dw[2][DW_COUNT];
    for (int include_pad = 0; include_pad < 2; include_pad++) {
        for (int passes = 0; passes < 2; passes++) run_block(passes, include_pad, y[passes], dw[passes]);
        double size = 0;
        for (int i = 0; i < Y_COUNT; i++) {
            assert_true(fabs(y[0][i] - y[1][i]) < 1e-9);
            size += fabs(y[0][i]);
        }
        assert_true(size > 1);
        for (int i = 0; i < DW_COUNT; i++) assert_true(fabs(dw[0][i] - dw[1][i]) < 1e-9 * (1 + fabs(dw[0][i])));
    }
}

TEST(passes_refuse_a_failed_graph)
{
    Graph *g = new_graph(true, DTYPE_F32);
    Value y = add(g, new_input(g, "x", 2, 8, 9, 9), new_input(g, "z", 2, 8, 9, 8));
    int changed = -1;
    assert_int_equal(pass_pool_behind_conv(g, &y, 1, &changed), ERR_SHAPE);
    assert_int_equal(pass_sibling_convs(g, &y, 1, &changed), ERR_SHAPE);
    assert_int_equal(changed, 0);
    graph_destroy(g);
}
