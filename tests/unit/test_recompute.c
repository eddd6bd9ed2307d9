/* The pass that recomputes cheap ops for the backward pass: what it adds, what it leaves unchanged, and that no number
 * changes. */
#include "tests/support/graph_text.h"
#include "tests/support/interpret.h"
#include "tests/support/unit.h"

enum { SIDE = 6, DW_COUNT = 5 * 8 * 3 * 3 };

typedef struct Net {
    Graph *g;
    Value kept, weight, loss; /* a value that must not be made again, a parameter, the end */
    int forward_end, changed;
} Net;

/* Two units whose concat is pooled and convolved: all that is cheap, and one convolution with bias that is not. */
static Net net_make(bool recompute)
{
    Net net = {.g = new_graph(true, DTYPE_F32)};
    Graph *g = net.g;
    Shape scalar = {1, 1, 1, 1};
    Value x = new_input(g, "x", 2, 3, SIDE, SIDE);
    Value a = conv_bn_relu(g, x, (ConvUnit){"a", 4, 3, 3, SAME}),
          b = conv_bn_relu(g, a, (ConvUnit){"b", 4, 1, 1, SAME});
    Value both = max_pool(g, CONCAT(g, a, b), 3, SAME);
    Value y = conv_bn_relu(g, avg_pool(g, both, 3, SAME), (ConvUnit){"c", 5, 3, 3, SAME});
    net.kept = relu(g, conv_bias(g, y, "d", 3, 1, SAME, false, (Init){INIT_UNIFORM, 1}));
    Value square = mul(g, net.kept, net.kept);
    net.loss = graph_op(g, OP_SUM_TO, "loss", &square, 1, NULL, &scalar);
    net.forward_end = graph_op_count(g);
    graph_train(g, net.loss, new_input(g, "dloss", 1, 1, 1, 1), NULL);
    net.weight = graph_find(g, "c.conv.weight");
    assert_int_equal(graph_finish(g), OK);
    if (recompute) assert_int_equal(pass_recompute(g, net.forward_end, &net.changed), OK);
    assert_sound(g);
    return net;
}

static Value gradient_of(const Graph *g, Value param)
{
    for (int32_t id = 1; id <= graph_value_count(g); id++)
        if (graph_value(g, (Value){id})->role == ROLE_GRAD && graph_value(g, (Value){id})->of.id == param.id)
            return (Value){id};
    return (Value){0};
}

/* No op of the backward pass reads what a batch norm, or a pool or concat behind one, wrote in the forward pass. */
TEST(backward_reads_copies)
{
    Net net = net_make(true);
    const Graph *g = net.g;
    int copies = 0;
    for (int i = 0; i < net.forward_end; i++) assert_null(strstr(graph_op_at(g, i)->name, ".again"));
    for (int i = net.forward_end; i < graph_op_count(g); i++) {
        const Op *op = graph_op_at(g, i);
        copies += strstr(op->name, ".again") != NULL;
        for (int k = 0; k < op->in_count; k++) {
            int32_t writer = op->in[k].id ? graph_value(g, op->in[k])->op : -1;
            if (writer < 0 || writer >= net.forward_end) continue;
            const Op *from = graph_op_at(g, writer);
            bool statistics = op->in[k].id != from->out[0].id; /* mean, variance, argmax stay */
            assert_true(statistics || from->kind == OP_CONV || from->kind == OP_MUL || op->in[k].id == net.kept.id);
        }
    }
    /* a, b, the concat, both pools, c; the ReLU behind the bias would need its input instead */
    assert_int_equal(copies, 6);
    assert_int_equal(net.changed, 6);
    graph_destroy(net.g);
}

static void run(bool recompute, double *dw, double *loss)
{
    Net net = net_make(recompute);
    Interpreter it = interpreter_create(net.g);
    for (int32_t id = 1; id <= graph_value_count(net.g); id++) {
        const ValueInfo *info = graph_value(net.g, (Value){id});
        if (info->role != ROLE_INPUT && info->role != ROLE_PARAM) continue;
        fill_uniform(interpreter_data(&it, (Value){id}), shape_count(info->shape), (uint64_t)strlen(info->name), -1, 1);
    }
    interpreter_run(&it);
    *loss = *interpreter_data(&it, net.loss);
    Value gradient = gradient_of(net.g, net.weight);
    assert_int_equal(shape_count(graph_shape(net.g, gradient)), DW_COUNT);
    memcpy(dw, interpreter_data(&it, gradient), DW_COUNT * sizeof *dw);
    interpreter_destroy(&it);
    graph_destroy(net.g);
}

TEST(numbers_stay)
{
    double loss[2], dw[2][DW_COUNT], size = 0;
    for (int k = 0; k < 2; k++) run(k, dw[k], &loss[k]);
    assert_memory_equal(&loss[0], &loss[1], sizeof loss[0]);
    assert_memory_equal(dw[0], dw[1], sizeof dw[0]);
    for (int i = 0; i < DW_COUNT; i++) size += dw[0][i] * dw[0][i];
    assert_true(size > 0);
}

TEST(nothing_to_do_without_batch_norm)
{
    Graph *g = new_graph(true, DTYPE_F32);
    Shape scalar = {1, 1, 1, 1};
    Value x = relu(g, conv_bias(g, new_input(g, "x", 1, 2, 4, 4), "c", 3, 3, SAME, false, (Init){INIT_UNIFORM, 1}));
    Value loss = graph_op(g, OP_SUM_TO, "loss", &x, 1, NULL, &scalar);
    int end = graph_op_count(g), changed = -1;
    graph_train(g, loss, new_input(g, "dloss", 1, 1, 1, 1), NULL);
    int ops = graph_op_count(g);
    assert_int_equal(pass_recompute(g, end, &changed), OK);
    assert_int_equal(changed, 0);
    assert_int_equal(graph_op_count(g), ops);
    graph_destroy(g);
}

TEST(a_failed_graph_is_refused)
{
    Graph *g = new_graph(true, DTYPE_F32);
    graph_fail(g, ERR_SHAPE, "on purpose");
    int changed = -1;
    assert_int_equal(pass_recompute(g, 0, &changed), ERR_SHAPE);
    assert_int_equal(changed, 0);
    graph_destroy(g);
}
