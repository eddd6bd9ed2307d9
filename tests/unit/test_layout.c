/* Layout: order, alignment and packs of the parameter arena; starting values. */

#include "tests/support/unit.h"
#include "towers/graph/plan.h"

static const Init zero = {INIT_ZERO, 0};
static const OpAttr point = {.conv.window = {1, 1, 1, 1, 0, 0, false}};

static Graph *new_graph(void)
{
    Graph *g = NULL;
    GraphOptions options = {.training = true, .compute = DTYPE_F32};
    assert_int_equal(graph_create(&options, &g), OK);
    return g;
}

static Layout *layout_of(Graph *g)
{
    Layout *layout = NULL;
    if (graph_finish(g) != OK) fail_msg("%s", status_message());
    if (layout_create(g, &layout) != OK) fail_msg("%s", status_message());
    return layout;
}

static Value conv(Graph *g, const char *name, Value x, Value w)
{
    return graph_op(g, OP_CONV, name, (Value[]){x, w}, 2, &point, NULL);
}

/* x -> conv a -> conv b -> sum: the gradient of b comes first. `idle` is not used at all. */
static Graph *two_convs(void)
{
    Graph *g = new_graph();
    Value x = graph_input(g, "x", (Shape){2, 3, 4, 4}, DTYPE_F32);
    Value dloss = graph_input(g, "dloss", (Shape){1, 1, 1, 1}, DTYPE_F32);
    graph_param(g, "idle", (Shape){1, 5, 1, 1}, zero, true);
    Value a = graph_param(g, "a", (Shape){7, 3, 1, 1}, (Init){INIT_HE_NORMAL, 0}, true);
    Value b = graph_param(g, "b", (Shape){4, 7, 1, 1}, (Init){INIT_GLOROT_UNIFORM, 0}, false);
    Value y = conv(g, "conv_b", conv(g, "conv_a", x, a), b);
    Shape scalar = {1, 1, 1, 1};
    graph_train(g, graph_op(g, OP_SUM_TO, "sum", (Value[]){y}, 1, NULL, &scalar), dloss, NULL);
    return g;
}

TEST(parameters_lie_in_the_order_of_their_gradients)
{
    Graph *g = two_convs();
    Layout *layout = layout_of(g);
    assert_int_equal(layout->param_count, 3);
    assert_string_equal(layout->params[0].name, "b");
    assert_string_equal(layout->params[1].name, "a");
    assert_string_equal(layout->params[2].name, "idle");
    assert_int_equal(layout->params[0].first, 0);
    assert_int_equal(layout->params[1].first, 32); /* 28 elements, next multiple of 16 */
    assert_int_equal(layout->params[2].first, 64); /* 21 */
    assert_int_equal(layout->param_elements, 80);
    assert_false(layout->params[0].decay);
    assert_true(layout->params[1].decay);
    assert_ptr_equal(layout_param(layout, "a"), &layout->params[1]);
    assert_null(layout_param(layout, "c"));
    layout_destroy(layout);
    graph_destroy(g);
}

TEST(members_of_a_pack_are_tight)
{
    Graph *g = new_graph();
    Value x = graph_input(g, "x", (Shape){1, 3, 2, 2}, DTYPE_F32);
    Value a = graph_param(g, "a", (Shape){3, 3, 1, 1}, zero, true);
    Value between = graph_param(g, "between", (Shape){5, 3, 1, 1}, zero, true);
    Value b = graph_param(g, "b", (Shape){2, 3, 1, 1}, zero, true);
    conv(g, "packed", x, graph_pack(g, (Value[]){b, a}, 2));
    conv(g, "alone", x, between);
    Layout *layout = layout_of(g);
    assert_int_equal(layout_param(layout, "a")->first, layout_param(layout, "b")->first + 6);
    assert_int_equal(layout_param(layout, "b")->first % 16, 0);
    assert_int_equal(layout_param(layout, "between")->first % 16, 0);
    assert_int_equal(layout->param_elements, 32);
    layout_destroy(layout);
    graph_destroy(g);
}

TEST(full_units_leave_no_gap)
{
    Graph *g = new_graph();
    graph_param(g, "a", (Shape){4, 4, 2, 1}, zero, true);
    graph_param(g, "b", (Shape){1, 1, 1, 1}, zero, true);
    Layout *layout = layout_of(g);
    assert_int_equal(layout_param(layout, "b")->first, 32);
    assert_int_equal(layout->param_elements, 48);
    layout_destroy(layout);
    graph_destroy(g);
}

TEST(a_state_is_fed_once)
{
    Graph *g = new_graph();
    Value x = graph_input(g, "x", (Shape){2, 3, 2, 2}, DTYPE_F32);
    Value beta = graph_param(g, "beta", (Shape){1, 3, 1, 1}, zero, false);
    Value mean = graph_running(g, "mean", (Shape){1, 3, 1, 1}, 0);
    OpAttr attr = {.norm = {.epsilon = 1e-3f}};
    for (int i = 0; i < 2; i++) {
        Value y = graph_op(g, OP_BATCHNORM, i ? "second" : "first", (Value[]){x, beta}, 2, &attr, NULL);
        graph_batch_statistic(g, graph_output(g, y, 1), mean, 8, false);
    }
    Layout *layout = NULL;
    assert_fails(layout_create(g, &layout), ERR_UNSUPPORTED, "'mean' is fed by both 'first.mean' and 'second.mean'");
    graph_destroy(g);
}

TEST(states_know_their_correction)
{
    Graph *g = new_graph();
    Value x = graph_input(g, "x", (Shape){2, 3, 2, 2}, DTYPE_F32);
    Value beta = graph_param(g, "beta", (Shape){1, 3, 1, 1}, zero, false);
    Value mean = graph_running(g, "mean", (Shape){1, 3, 1, 1}, 0),
          var = graph_running(g, "var", (Shape){1, 3, 1, 1}, 1);
    OpAttr attr = {.norm = {.epsilon = 1e-3f}};
    Value y = graph_op(g, OP_BATCHNORM, "bn", (Value[]){x, beta}, 2, &attr, NULL);
    graph_batch_statistic(g, graph_output(g, y, 1), mean, 8, false);
    graph_batch_statistic(g, graph_output(g, y, 2), var, 8, true);
    Layout *layout = layout_of(g);
    assert_int_equal(layout->running_count, 2);
    const LayoutEntry *m = layout_running(layout, "mean"), *v = layout_running(layout, "var");
    assert_true(layout->running_values[m->first] == 8 && layout->running_values[v->first + 2] == 8);
    assert_true(!layout->running_unbiased[m->first] && layout->running_unbiased[v->first + 2]);
    assert_true(layout->running_values[v->first + 3] == 0 && !layout->running_unbiased[v->first + 3]);
    float values[64];
    assert_true(layout->running_elements <= 64);
    layout_init_running(layout, values);
    assert_true(values[m->first] == 0 && values[v->first] == 1 && values[v->first + 2] == 1 &&
                values[v->first + 3] == 0);
    layout_destroy(layout);
    graph_destroy(g);
}

/* ---- starting values */

enum { SIDE = 200, COUNT = SIDE * SIDE };

/* A layout of one parameter {SIDE, SIDE, 1, 1}, after another one of `before` elements (0: none). */
static float *init_values(const char *name, Init init, int before, uint64_t seed)
{
    Graph *g = new_graph();
    if (before) graph_param(g, "before", (Shape){1, before, 1, 1}, init, true);
    graph_param(g, name, (Shape){SIDE, SIDE, 1, 1}, init, true);
    Layout *layout = layout_of(g);
    float *all = malloc(layout->param_elements * sizeof *all), *values = malloc(COUNT * sizeof *values);
    assert_true(all && values);
    layout_init_params(layout, seed, all);
    memcpy(values, all + layout_param(layout, name)->first, COUNT * sizeof *values);
    if (before) assert_true(all[before] == 0); /* the gap */
    free(all);
    layout_destroy(layout);
    graph_destroy(g);
    return values;
}

typedef struct Moments {
    double mean, std, min, max;
} Moments;

static Moments moments(const float *x)
{
    Moments m = {.min = INFINITY, .max = -INFINITY};
    double squares = 0;
    for (int i = 0; i < COUNT; i++) {
        m.mean += x[i] / COUNT;
        m.min = fmin(m.min, x[i]);
        m.max = fmax(m.max, x[i]);
    }
    for (int i = 0; i < COUNT; i++) squares += (x[i] - m.mean) * (x[i] - m.mean);
    m.std = sqrt(squares / COUNT);
    return m;
}

TEST(values_have_their_distribution)
{
    static const struct {
        Init init;
        double mean, std, limit; /* limit: of |x| */
    } rows[] = {
        {{INIT_ZERO, 0}, 0, 0, 0},
        {{INIT_CONSTANT, 0.25f}, 0.25, 0, 0.25},
        {{INIT_UNIFORM, 0.5f}, 0, 0.288675, 0.5},
        {{INIT_NORMAL, 0.1f}, 0, 0.1, 0.6},
        {{INIT_TRUNCATED_NORMAL, 0.1f}, 0, 0.0879626, 0.2000001}, /* of the normal distribution cut at 2 */
        {{INIT_GLOROT_UNIFORM, 0}, 0, 0.0707107, 0.1224745},      /* limit sqrt(6 / 400) */
        {{INIT_HE_NORMAL, 0}, 0, 0.1, 0.6},                       /* sqrt(2 / 200) */
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        float *x = init_values("w", rows[r].init, 0, 7);
        Moments m = moments(x);
        if (fabs(m.mean - rows[r].mean) > 0.02 * rows[r].std + 1e-7 ||
            fabs(m.std - rows[r].std) > 0.015 * rows[r].std + 1e-7)
            fail_msg("row %zu: mean %g, std %g", r, m.mean, m.std);
        if (m.max > rows[r].limit || m.min < -rows[r].limit || m.max < 0.98 * rows[r].limit * (rows[r].limit < 0.6))
            fail_msg("row %zu: between %g and %g", r, m.min, m.max);
        free(x);
    }
}

TEST(values_depend_on_seed_and_name_only)
{
    for (InitKind kind = INIT_UNIFORM; kind <= INIT_TRUNCATED_NORMAL; kind++) {
        Init init = {kind, 1};
        float *x = init_values("w", init, 0, 7), *moved = init_values("w", init, 13, 7);
        float *named = init_values("v", init, 0, 7), *seeded = init_values("w", init, 0, 8);
        assert_memory_equal(x, moved, COUNT * sizeof *x);
        int same_name = 0, same_seed = 0;
        for (int i = 0; i < COUNT; i++) same_name += x[i] == named[i], same_seed += x[i] == seeded[i];
        assert_true(same_name < 100 && same_seed < 100);
        free(x), free(moved), free(named), free(seeded);
    }
}

/* Neighbours in one Philox block, and the two halves of a Box-Muller pair, are independent. */
TEST(neighbors_are_independent)
{
    float *x = init_values("w", (Init){INIT_NORMAL, 1}, 0, 3);
    for (int lag = 1; lag <= 4; lag++) {
        double sum = 0;
        for (int i = 0; i + lag < COUNT; i++) sum += x[i] * x[i + lag] / COUNT;
        if (fabs(sum) > 0.02) fail_msg("correlation %g at distance %d", sum, lag);
    }
    free(x);
}

TEST(fans_of_dense_and_conv_differ)
{
    Graph *g = new_graph();
    Value x = graph_input(g, "x", (Shape){2, 6, 3, 3}, DTYPE_F32);
    Init glorot = {INIT_GLOROT_UNIFORM, 0}, he = {INIT_HE_NORMAL, 0};
    Value d = graph_param(g, "dense", (Shape){10, 6, 3, 3}, glorot, true),
          h = graph_param(g, "he", (Shape){8, 6, 3, 3}, he, true);
    Value c = graph_param(g, "conv", (Shape){10, 6, 3, 3}, glorot, true);
    OpAttr window = {.conv.window = {3, 3, 1, 1, 0, 0, false}};
    graph_op(g, OP_DENSE, "d", (Value[]){x, d}, 2, NULL, NULL);
    graph_op(g, OP_CONV, "c", (Value[]){x, c}, 2, &window, NULL);
    graph_op(g, OP_CONV, "h", (Value[]){x, h}, 2, &window, NULL);
    Layout *layout = layout_of(g);
    assert_true(fabs(layout_param(layout, "dense")->init.a - sqrt(6.0 / (54 + 10))) < 1e-6);
    assert_true(fabs(layout_param(layout, "conv")->init.a - sqrt(6.0 / (54 + 90))) < 1e-6);
    assert_true(fabs(layout_param(layout, "he")->init.a - sqrt(2.0 / 72)) < 1e-6);
    layout_destroy(layout);
    graph_destroy(g);
}
