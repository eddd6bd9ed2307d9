/* Networks of files that a test puts together; see made_network.h. */
#include "tests/support/made_network.h"

NetFile *made;

Status parsed(OnnxMaker *m)
{
    size_t count;
    unsigned char *bytes = maker_bytes(m, &count);
    made = NULL;
    Status st = net_file_parse(bytes, count, "net.onnx", &made);
    free(bytes);
    maker_end(m);
    return st;
}

void good(OnnxMaker *m)
{
    if (parsed(m) != OK) fail_msg("%s", status_message());
}

void refused(OnnxMaker *m, Status code, const char *why)
{
    assert_int_equal(parsed(m), code);
    if (!strstr(status_message(), why)) fail_msg("expected '%s', found: %s", why, status_message());
}

void has_ops(int classes, const char *wanted)
{
    const Model *model = net_file_model(made);
    Graph *g = new_graph(false, DTYPE_F32);
    Value x = new_input(g, "image", 1, model->channels, model->side, model->side);
    ModelOptions options = {.classes = classes ? classes : model->classes, .side = model->side, .dropout = -1};
    ModelHeads heads = {{0}};
    model->build(g, &options, model->networks, x, &heads);
    assert_int_equal(graph_finish(g), OK);
    assert_ops(g, 0, wanted);
    graph_destroy(g);
    net_file_close(made);
}

OnnxMaker *ended(OnnxMaker *m, int64_t channels)
{
    maker_node(m, "GlobalAveragePool", "y", "pooled");
    maker_node(m, "Flatten", "pooled", "flat");
    maker_node(m, "Gemm", "flat fc.weight fc.bias", "logits");
    maker_int(m, "transB", 1);
    maker_floats(m, "fc.weight", 2, SIZES(5, channels));
    maker_floats(m, "fc.bias", 1, SIZES(5));
    return m;
}

OnnxMaker *started(void)
{
    return maker_start(SIZES(0, 3, 8, 8), "logits");
}
