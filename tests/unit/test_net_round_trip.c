/* The networks of inception/models/, written as ONNX and read back: the same ops of the same parameters in the same order, and the same
 * bits of every value; so the same logits and gradients. */

#include "inception/models/models.h"
#include "inception/networks/net_file.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "towers/graph/program.h"
#include "towers/store/onnx.h"

TESTS_WITH(scratch_make, scratch_drop)

enum { CLASSES = 7, IMAGES = 2, SEED = 3 };

static ProgramConfig config_of(const Model *model, int32_t side)
{
    return (ProgramConfig){.model = model,
                           .options = {.classes = CLASSES,
                                       .side = side,
                                       .channels = model->channels,
                                       .dropout = model->dropout,
                                       .variant = ""},
                           .data_channels = model->channels,
                           .canvas = side};
}

/* The evaluation as text, without the names of layers, which a file does not have for all. */
static char *ops_of(const ProgramConfig *config)
{
    Program program = {0};
    char *text = NULL, *to;
    size_t bytes = 0;
    assert_int_equal(program_graph(config, IMAGES, &program), OK);
    FILE *stream = open_memstream(&text, &bytes);
    graph_print(program.graph, stream);
    fclose(stream);
    program_destroy(&program);
    to = text;
    for (const char *line = text, *next; *line; line = next) {
        next = line + strcspn(line, "\n") + 1;
        const char *name = next - 1;
        while (name > line && name[-1] != '(') name--;
        memmove(to, line, (size_t)(name - line));
        to += name - line;
        *to++ = '\n';
    }
    *to = 0;
    return text;
}

/* Starting values as a list, which is also what the file is to have. */
static void weights_make(const ProgramConfig *config, WeightList *list)
{
    Layout *layout;
    assert_int_equal(program_layout(config, IMAGES, &layout), OK);
    float *params = calloc(layout->param_elements + 1, sizeof *params),
          *states = calloc(layout->running_elements + 1, sizeof *states);
    assert_true(params && states);
    layout_init_params(layout, SEED, params);
    layout_init_running(layout, states);
    WeightMap map = weight_map(layout);
    assert_int_equal(weights_pack(&map, "", params, list), OK);
    assert_int_equal(running_pack(&map, "", states, -1, list), OK);
    free(params);
    free(states);
    layout_destroy(layout);
}

static const NetTensor *tensor_named(const NetFile *net, const char *name)
{
    int count;
    const NetTensor *tensors = net_file_tensors(net, &count);
    for (int i = 0; i < count; i++)
        if (!strcmp(tensors[i].name, name)) return &tensors[i];
    fail_msg("the file has no '%s'", name);
    return NULL;
}

/* A batch norm without a factor is written with ones, and comes back with a factor of them. */
static void ones_drop(char *text)
{
    for (char *at = strstr(text, ", ones"); at; at = strstr(at, ", ones")) {
        const char *end = strchr(at, ')');
        memmove(at, end, strlen(end) + 1);
    }
}

static void comes_back(const Model *model)
{
    char path[PATH_BYTES];
    Program program = {0};
    WeightList list = {0};
    NetFile *net;
    int32_t side = model->min_side > 64 ? model->min_side : 64;
    if (side > model->side) side = model->side;
    ProgramConfig config = config_of(model, side);
    weights_make(&config, &list);
    assert_int_equal(program_graph(&config, IMAGES, &program), OK);
    scratch_path(path, "net.onnx");
    assert_int_equal(onnx_write(path, model->name, program.graph, &list, NULL, 0, NULL, NULL, NULL), OK);
    program_destroy(&program);
    if (net_file_open(path, &net) != OK) fail_msg("%s: %s", model->name, status_message());
    unlink(path);
    ProgramConfig again = config_of(net_file_model(net), side);
    char *wanted = ops_of(&config), *found = ops_of(&again);
    ones_drop(found);
    if (strcmp(wanted, found) != 0) fail_msg("%s: wanted\n%s\nfound\n%s", model->name, wanted, found);
    for (int i = 0; i < list.count; i++) {
        const NetTensor *t = tensor_named(net, list.tensor[i].name);
        int rank = list.tensor[i].rank; /* a product of each pixel is written as a convolution */
        assert_true(t->rank == rank || (t->rank == 4 && rank == 2 && t->dims[2] == 1 && t->dims[3] == 1));
        assert_memory_equal(t->dims, list.tensor[i].dims, (size_t)rank * sizeof *t->dims);
        assert_memory_equal(t->data, list.tensor[i].data, list.tensor[i].bytes);
    }
    free(wanted);
    free(found);
    net_file_close(net);
    weight_list_clear(&list);
}

TEST(test_models_come_back)
{
    for (int i = 0; all_models[i]; i++)
        if (all_models[i]->build) comes_back(all_models[i]);
}
