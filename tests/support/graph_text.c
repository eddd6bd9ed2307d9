/* See graph_text.h. */
#include "tests/support/graph_text.h"
#include "tests/support/unit.h"

Graph *new_graph(bool training, Dtype compute)
{
    Graph *g = NULL;
    GraphOptions options = {.training = training, .compute = compute};
    assert_int_equal(graph_create(&options, &g), OK);
    return g;
}

Value new_input(Graph *g, const char *name, int32_t n, int32_t c, int32_t h, int32_t w)
{
    return graph_input(g, name, (Shape){n, c, h, w}, DTYPE_F32);
}

void assert_ops(const Graph *g, int first, const char *wanted)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    assert_non_null(to);
    graph_print(g, to);
    fclose(to);
    char *from = text;
    while (first-- > 0 && from) {
        from = strchr(from, '\n');
        from = from ? from + 1 : NULL;
    }
    assert_string_equal(from ? from : "", wanted);
    free(text);
}

void assert_failure(Graph *g, Status code, const char *message)
{
    assert_true(graph_failed(g));
    assert_int_equal(graph_finish(g), code);
    assert_string_equal(status_message(), message);
}

static bool is_written(const Graph *g, const bool *written, Value v)
{
    return !v.id || graph_value(g, v)->op < 0 || written[v.id];
}

/* A result whose op has left the list. */
static bool is_gone(const Graph *g, Value v)
{
    return v.id && graph_value(g, v)->op < 0 && graph_value(g, v)->role == ROLE_TEMP;
}

void assert_sound(Graph *g)
{
    Status st = graph_finish(g);
    if (st != OK) fail_msg("%s", status_message());
    bool *written = calloc((size_t)graph_value_count(g) + 1, sizeof *written);
    assert_non_null(written);
    for (int index = 0; index < graph_op_count(g); index++) {
        const Op *op = graph_op_at(g, index);
        for (int i = 0; i < op->in_count; i++) assert_true(is_written(g, written, op->in[i]) && !is_gone(g, op->in[i]));
        for (int o = 0; o < op_outputs(op->kind); o++) {
            assert_int_equal(graph_value(g, op->out[o])->op, index);
            assert_int_equal(graph_value(g, op->out[o])->out, o);
            assert_false(written[op->out[o].id]);
            written[op->out[o].id] = true;
        }
    }
    for (int32_t id = 1; id <= graph_value_count(g); id++) {
        Role role = graph_value(g, (Value){id})->role;
        bool leaf = role == ROLE_INPUT || role == ROLE_PARAM || role == ROLE_PACK || role == ROLE_RUNNING ||
                    is_gone(g, (Value){id});
        assert_int_equal(written[id], !leaf);
    }
    free(written);
}
