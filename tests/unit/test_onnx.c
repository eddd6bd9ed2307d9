/* ONNX export of graphs that no network has: what spreads over the channels here does so there. */

#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "towers/graph/layers.h"
#include "towers/store/onnx.h"

TESTS_WITH(scratch_make, scratch_drop)

enum { CHANNELS = 3, SIDE = 2 };

static Graph *new_graph(Value *z)
{
    Graph *g = NULL;
    GraphOptions options = {.compute = DTYPE_F32};
    assert_int_equal(graph_create(&options, &g), OK);
    *z = graph_input(g, "z", (Shape){1, CHANNELS, SIDE, SIDE}, DTYPE_F32);
    return g;
}

/* Writes the graph from "z" to `result`, whose parameter of this name has `rank` dimensions, and destroys it. */
static Status written_with(Graph *g, Value result, const char *name, int rank)
{
    char path[PATH_BYTES];
    float factor[CHANNELS] = {1, 2, 3};
    StTensor tensor = {
        .name = name, .dtype = ST_F32, .rank = rank, .dims = {CHANNELS, 1, 1}, .data = factor, .bytes = sizeof factor};
    WeightList weights = {&tensor, 1};
    const float zero[CHANNELS] = {0}, one[CHANNELS] = {1, 1, 1};
    scratch_path(path, "file.onnx");
    graph_result(g, result, "images");
    assert_int_equal(graph_finish(g), OK);
    Status st = onnx_write(path, "a test", g, &weights, NULL, 0, &(OnnxPixels){zero, one}, NULL, NULL);
    graph_destroy(g);
    return st;
}

static Status written(Graph *g, Value result, int rank)
{
    return written_with(g, result, "factor", rank);
}

/* Whether the file that was written last has a node of this kind. */
static bool has_node(const char *kind)
{
    static char bytes[1 << 16];
    char path[PATH_BYTES];
    scratch_path(path, "file.onnx");
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    assert_in_range(size, 1, sizeof bytes - 1);
    return memmem(bytes, size, kind, strlen(kind)) != NULL;
}

/* A factor of three dimensions lies on the channels as it is; a vector would spread along the width, and gets them first. */
TEST(test_factors_of_channels)
{
    Value z;
    Graph *g = new_graph(&z);
    assert_int_equal(written(g, layer_scale(g, z, "factor", 1), 3), OK);
    assert_false(has_node("Reshape"));
    g = new_graph(&z);
    Value vector = graph_param(g, "factor", (Shape){1, CHANNELS, 1, 1}, (Init){INIT_CONSTANT, 1}, false);
    assert_int_equal(written(g, mul(g, z, vector), 1), OK);
    assert_true(has_node("Reshape"));
}

/* As many nodes as an op may have. */
TEST(test_gelu_by_tanh)
{
    Value z;
    Graph *g = new_graph(&z);
    assert_int_equal(written(g, gelu_tanh(g, layer_scale(g, z, "factor", 1)), 3), OK);
}

/* Of two tensors of one name a file would have only one. */
TEST(test_names_of_constants)
{
    char name[32];
    int found = 0;
    for (int k = 0; k < 8; k++) {
        Value z;
        Graph *g = new_graph(&z);
        snprintf(name, sizeof name, ONNX_CONSTANT "scale_%d", k);
        assert_int_equal(written_with(g, affine(g, layer_scale(g, z, name, 1), 3, 0), name, 3), OK);
        found += has_node("_" ONNX_CONSTANT "scale_");
    }
    assert_int_equal(found, 1);
}
