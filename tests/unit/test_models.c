/* The networks at full size: numbers of parameters, multiply-adds, names, the smallest image, auxiliary heads, and
 * that training and evaluation use the same weights. The counts are those of torchvision (inception_v3, googlenet, resnet, efficientnet,
 * convnext), of timm (inception_v4, inception_resnet_v2, xception), of TF-slim (inception_v2: 10173112 with statistics, without the
 * classifier) and of the trainer of 2016 (tf2016). scripts/parity/fidelity.sh compares the
 * values that they compute. */

#include "tests/support/unit.h"

#include <sys/wait.h>

#include "inception/models/models.h"
#include "tests/support/towers_program.h"
#include "towers/files/files.h"
#include "towers/graph/program.h"

typedef struct Form {
    const char *model, *variant;
    bool aux;
} Form;

static ProgramConfig config_of(Form form, int32_t side, int classes, bool training)
{
    const Model *model;
    assert_int_equal(model_find(form.model, &model), OK);
    if (!side) side = model->side;
    ModelOptions options = {classes ? classes : model->classes, side, model->channels, 0, form.aux, form.variant};
    return (ProgramConfig){.model = model,
                           .options = options,
                           .data_channels = model->channels,
                           .canvas = side,
                           .aux_weight = model->aux_weight,
                           .training = training};
}

static void build(Form form, int32_t side, int classes, bool training, Program *program)
{
    ProgramConfig config = config_of(form, side, classes, training);
    if (program_graph(&config, 2, program) != OK) fail_msg("%s %d: %s", form.model, side, status_message());
}

/* Elements of all values of a role, and how many there are. */
static int64_t role_elements(const Graph *g, Role role, int *count)
{
    int64_t elements = 0;
    *count = 0;
    for (int32_t id = 1; id <= graph_value_count(g); id++) {
        const ValueInfo *info = graph_value(g, (Value){id});
        if (info->role != role) continue;
        elements += shape_count(info->shape);
        ++*count;
    }
    return elements;
}

static int64_t forward_macs(const Program *program)
{
    int64_t macs = 0;
    for (int i = 0; i < program->forward_end; i++) {
        const Op *op = graph_op_at(program->graph, i);
        OpCall call = {.kind = op->kind};
        for (int k = 0; k < op->in_count; k++) call.in[k].shape = graph_shape(program->graph, op->in[k]);
        call.out[0].shape = graph_shape(program->graph, op->out[0]);
        macs += op_macs(&call);
    }
    return macs / program->n;
}

/* ---- sizes */

TEST(test_counts)
{
    static const struct {
        Form form;
        int classes;
        int64_t params, macs;
        int tensors, states;
    } rows[] = {
        {{"inception_v3", "", true}, 1000, 27161264, 5718899296, 292, 192},
        {{"inception_v3", "", false}, 1000, 23834568, 5713216096, 284, 188},
        {{"inception_v3", "tf2016", true}, 1001, 27145970, 5718902112, 196, 192},
        {{"inception_v3", "tf2016", false}, 1001, 23819401, 5713218144, 190, 188},
        {{"inception_v3", "fid2015", false}, 1008, 23850960, 5713232480, 284, 188},
        {{"inception_v2", "", false}, 1000, 11178336, 1934857216, 141, 136},
        {{"xception", "", false}, 1000, 22855952, 8357403496, 156, 80},
        {{"googlenet", "", true}, 1000, 13004888, 1506748416, 187, 118},
        {{"googlenet", "", false}, 1000, 6624904, 1498376192, 173, 114},
        {{"inception_v4", "", false}, 1000, 42679816, 12253974624, 449, 298},
        {{"inception_resnet_v2", "", false}, 1000, 55843464, 13155794016, 694, 408},
        {{"resnet18", "", false}, 1000, 11689512, 1814073344, 62, 40},
        {{"resnet34", "", false}, 1000, 21797672, 3663761408, 110, 72},
        {{"resnet50", "", false}, 1000, 25557032, 4089184256, 161, 106},
        {{"resnet101", "", false}, 1000, 44549160, 7801405440, 314, 208},
        {{"mobilenet_v3_small", "", false}, 1000, 2542856, 56510400, 142, 68},
        {{"mobilenet_v3_large", "", false}, 1000, 5483032, 216589760, 174, 92},
        {{"efficientnet_b0", "", false}, 1000, 5288548, 385814752, 213, 98},
        {{"efficientnet_lite0", "", false}, 1000, 4652008, 385187552, 149, 98},
        {{"convnext_tiny", "", false}, 1000, 28589128, 4455531264, 182, 0},
        {{"inception_v3", "", true}, 10, 24371444, 0, 292, 192},
        {{"inception_mini", "", false}, 10, 234010, 15343392, 86, 56},
        {{"fashion_cnn", "", false}, 10, 121930, 2528000, 8, 0},
        {{"wgan_gp", "", false}, 10, 2584322, 117812480, 16, 0},
        {{"wgan_gp_keras", "", false}, 10, 5207491, 197791744, 22, 8},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Program program;
        int tensors, states;
        build(rows[i].form, 0, rows[i].classes, true, &program);
        int64_t params = role_elements(program.graph, ROLE_PARAM, &tensors), macs = forward_macs(&program);
        role_elements(program.graph, ROLE_RUNNING, &states);
        if (params != rows[i].params || (rows[i].macs && macs != rows[i].macs) || tensors != rows[i].tensors ||
            states != rows[i].states)
            fail_msg("%s %s, aux %d: %" PRId64 " parameters in %d tensors, %" PRId64 " multiply-adds, %d statistics",
                     rows[i].form.model, rows[i].form.variant, rows[i].form.aux, params, tensors, macs, states);
        program_destroy(&program);
    }
    for (const Model *const *m = all_models; *m; m++) { /* a new network has a row, too */
        size_t i = 0;
        while (i < sizeof rows / sizeof *rows && strcmp(rows[i].form.model, (*m)->name) != 0) i++;
        if (i == sizeof rows / sizeof *rows) fail_msg("%s has no row here: add one with its counts", (*m)->name);
    }
}

/* ---- normalization */

/* Whether the numbers at `text`, one for all channels or one for each, are these up to the digits that a page has. */
static bool numbers_are(const char *text, const float values[3])
{
    bool one = true;
    for (int c = 0; c < 3; c++) {
        char *end = NULL;
        float value = strtof(text, &end);
        if (end == text || fabsf(value - values[c]) > 6e-4f) return false;
        one = one && *end != ',';
        if (!one) text = end + (*end == ',');
    }
    return true;
}

/* docs/data.md has the mean and deviation of every network, but of those that take pixels as they are. */
TEST(test_normalizations_of_the_page)
{
    static const float zeros[3] = {0, 0, 0}, ones[3] = {1, 1, 1};
    char *page = NULL;
    size_t bytes;
    assert_int_equal(file_load(TOWERS_SOURCE_DIR "/docs/data.md", OF_USER, ERR_IO, 1 << 20, &page, &bytes), OK);
    char *table = strstr(page, "| networks | mean | deviation |"), *end = table ? strstr(table, "\n\n") : NULL;
    if (!end) fail_msg("docs/data.md has no table of networks, mean and deviation");
    *end = 0;
    for (const Model *const *m = all_models; *m; m++) {
        char name[80];
        snprintf(name, sizeof name, "`%s`", (*m)->name);
        const char *named = strstr(table, name);
        if (!named && !memcmp((*m)->mean, zeros, sizeof zeros) && !memcmp((*m)->std, ones, sizeof ones)) continue;
        const char *mean = named ? strstr(named, " | ") : NULL, *deviation = mean ? strstr(mean + 3, " | ") : NULL;
        if (!deviation) fail_msg("docs/data.md does not say how the pixels of %s are normalized", (*m)->name);
        if (!numbers_are(mean + 3, (*m)->mean) || !numbers_are(deviation + 3, (*m)->std))
            fail_msg("docs/data.md gives %s another mean or deviation: %.80s", (*m)->name, mean);
    }
    free(page);
}

/* ---- names */

TEST(test_names)
{
    static const struct {
        Form form;
        const char *name;
        Shape shape;
    } rows[] = {
        {{"inception_v3", "", true}, "Conv2d_1a_3x3.conv.weight", {32, 3, 3, 3}},
        {{"inception_v3", "", true}, "Mixed_5b.branch5x5_2.bn.running_var", {1, 64, 1, 1}},
        {{"inception_v3", "", true}, "Mixed_6c.branch7x7dbl_2.conv.weight", {160, 160, 7, 1}},
        {{"inception_v3", "", true}, "Mixed_7c.branch3x3dbl_3b.conv.weight", {384, 384, 3, 1}},
        {{"inception_v3", "", true}, "AuxLogits.conv1.conv.weight", {768, 128, 5, 5}},
        {{"inception_v3", "", true}, "AuxLogits.fc.bias", {1, 1000, 1, 1}},
        {{"googlenet", "", true}, "inception3a.branch2.0.conv.weight", {96, 192, 1, 1}},
        {{"googlenet", "", true}, "inception5b.branch4.1.bn.bias", {1, 128, 1, 1}},
        {{"googlenet", "", true}, "aux2.conv.conv.weight", {128, 528, 1, 1}},
        {{"googlenet", "", true}, "aux1.fc1.weight", {1024, 128, 4, 4}},
        {{"inception_v4", "", false}, "features.3.conv.conv.weight", {96, 64, 3, 3}},
        {{"inception_v4", "", false}, "features.18.branch1.2.conv.weight", {320, 256, 7, 1}},
        {{"inception_v4", "", false}, "last_linear.weight", {1000, 1536, 1, 1}},
        {{"inception_resnet_v2", "", false}, "repeat_1.19.conv2d.bias", {1, 1088, 1, 1}},
        {{"inception_resnet_v2", "", false}, "block8.branch1.1.bn.weight", {1, 224, 1, 1}},
        {{"inception_resnet_v2", "", false}, "classif.bias", {1, 1000, 1, 1}},
        {{"inception_v2", "", false}, "Conv2d_1a_7x7.depthwise.weight", {24, 1, 7, 7}},
        {{"inception_v2", "", false}, "Conv2d_1a_7x7.pointwise.bias", {1, 64, 1, 1}},
        {{"inception_v2", "", false}, "Mixed_3b.Branch_2.Conv2d_0c_3x3.conv.weight", {96, 96, 3, 3}},
        {{"inception_v2", "", false}, "Mixed_5a.Branch_1.Conv2d_1a_3x3.bn.running_var", {1, 256, 1, 1}},
        {{"inception_v2", "", false}, "Logits.Conv2d_1c_1x1.bias", {1, 1000, 1, 1}},
        {{"xception", "", false}, "block1.rep.0.conv1.weight", {64, 1, 3, 3}},
        {{"xception", "", false}, "block12.rep.4.pointwise.weight", {1024, 728, 1, 1}},
        {{"xception", "", false}, "block12.rep.5.running_mean", {1, 1024, 1, 1}},
        {{"xception", "", false}, "block3.skipbn.bias", {1, 728, 1, 1}},
        {{"resnet18", "", false}, "layer2.0.downsample.1.running_var", {1, 128, 1, 1}},
        {{"resnet18", "", false}, "layer4.1.conv2.weight", {512, 512, 3, 3}},
        {{"resnet50", "", false}, "layer1.0.conv3.weight", {256, 64, 1, 1}},
        {{"resnet50", "", false}, "fc.weight", {1000, 2048, 1, 1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Program program;
        build(rows[i].form, 0, 0, true, &program);
        Value v = graph_find(program.graph, rows[i].name);
        if (!v.id || !shape_equal(graph_shape(program.graph, v), rows[i].shape))
            fail_msg("%s: %s is %s", rows[i].form.model, rows[i].name, shape_text(graph_shape(program.graph, v)));
        program_destroy(&program);
    }
}

/* tf2016 has no gamma; the variances of both have a correction. */
TEST(test_variant)
{
    Program program;
    build((Form){"inception_v3", "tf2016", true}, 0, 1001, true, &program);
    assert_int_equal(graph_find(program.graph, "Mixed_5b.branch1x1.bn.weight").id, 0);
    assert_int_not_equal(graph_find(program.graph, "Mixed_5b.branch1x1.bn.bias").id, 0);
    for (int i = 0; i < program.forward_end; i++)
        if (graph_op_at(program.graph, i)->kind == OP_AVG_POOL)
            assert_false(graph_op_at(program.graph, i)->attr.pool.include_pad);
    const ValueInfo *wide = graph_value(program.graph, graph_find(program.graph, "AuxLogits.conv1.conv.weight"));
    const ValueInfo *usual = graph_value(program.graph, graph_find(program.graph, "Mixed_7b.branch1x1.conv.weight"));
    assert_true(wide->init.kind == INIT_TRUNCATED_NORMAL && wide->init.a == 0.01f);
    assert_true(usual->init.kind == INIT_TRUNCATED_NORMAL && usual->init.a == 0.1f);
    program_destroy(&program);
}

/* ---- images of other sizes */

TEST(test_smallest_images)
{
    for (const Model *const *m = all_models; *m; m++) {
        Form form = {(*m)->name, "", false};
        Program program;
        build(form, (*m)->min_side, 0, true, &program);
        program_destroy(&program);
        ProgramConfig config = config_of(form, (*m)->min_side - 1, 0, true);
        if ((*m)->min_side > 8) assert_int_equal(program_graph(&config, 2, &program), ERR_SHAPE);
        if ((*m)->aux_weight == 0) continue;
        form.aux = true;
        build(form, (*m)->aux_min_side, 0, true, &program);
        program_destroy(&program);
        config = config_of(form, (*m)->aux_min_side - 1, 0, true);
        assert_int_equal(program_graph(&config, 2, &program), ERR_SHAPE);
    }
}

TEST(test_other_sizes)
{
    static const int32_t sides[] = {75, 100, 128, 139, 160, 224, 299, 331, 512};
    static const char *const models[] = {"inception_v3",        "googlenet", "inception_v4",
                                         "inception_resnet_v2", "resnet18",  "resnet50"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (size_t s = 0; s < sizeof sides / sizeof *sides; s++) {
            Program program;
            build((Form){models[m], "", m == 1}, sides[s], 7, true, &program);
            program_destroy(&program);
        }
}

/* ---- kernels */

static bool feeds_norm(const Graph *g, Value v)
{
    for (int i = 0; i < graph_op_count(g); i++)
        if (graph_op_at(g, i)->kind == OP_BATCHNORM && graph_op_at(g, i)->in[0].id == v.id) return true;
    return false;
}

/* Six points round coarsely: docs/decisions/0006-winograd.md. */
TEST(test_six_points_where_batch_norms_follow)
{
    for (const Model *const *m = all_models; *m; m++) {
        Program program;
        if ((*m)->phases) continue; /* batch norms, but none in critics */
        bool asks = (*m)->defaults && strstr((*m)->defaults, "winograd: true\n"), norms = true;
        build((Form){(*m)->name, "", false}, 0, 0, true, &program);
        for (int i = 0; i < program.forward_end; i++) {
            const Op *op = graph_op_at(program.graph, i);
            if (op->kind != OP_CONV || op->attr.conv.window.kh == 1) continue;
            Shape x = graph_shape(program.graph, op->in[0]), w = graph_shape(program.graph, op->in[1]);
            if (conv_groups(x, w) == 1) norms &= feeds_norm(program.graph, op->out[0]); /* others have no such code */
        }
        if (asks != norms) fail_msg("%s %s for --winograd", (*m)->name, asks ? "asks" : "does not ask");
        program_destroy(&program);
    }
}

/* ---- evaluation */

/* Every weight that evaluation reads is one that training makes, and the heads at the side are gone. */
TEST(test_evaluation)
{
    for (const Model *const *m = all_models; *m; m++) {
        Program training, evaluation;
        Layout *layout;
        bool aux = (*m)->aux_weight > 0;
        if ((*m)->phases) continue; /* predicts no classes */
        build((Form){(*m)->name, "", aux}, 0, 0, true, &training);
        build((Form){(*m)->name, "", aux}, 0, 0, false, &evaluation);
        assert_int_equal(layout_create(training.graph, &layout), OK);
        int heads = 0;
        for (int i = 0; i < graph_op_count(evaluation.graph); i++)
            heads += graph_op_at(evaluation.graph, i)->kind == OP_SOFTMAX_LOSS;
        assert_int_equal(heads, 1);
        for (int32_t id = 1; id <= graph_value_count(evaluation.graph); id++) {
            const ValueInfo *info = graph_value(evaluation.graph, (Value){id});
            const LayoutEntry *entry = info->role == ROLE_PARAM     ? layout_param(layout, info->name)
                                       : info->role == ROLE_RUNNING ? layout_running(layout, info->name)
                                                                    : NULL;
            if (info->role != ROLE_PARAM && info->role != ROLE_RUNNING) continue;
            if (!entry || !shape_equal(entry->shape, info->shape)) fail_msg("%s: %s", (*m)->name, info->name);
        }
        layout_destroy(layout);
        program_destroy(&evaluation);
        program_destroy(&training);
    }
}

/* ---- class activation maps */

static Status maps_build(Form form, int32_t side, Dtype compute, Program *program)
{
    ProgramConfig config = config_of(form, side, 0, false);
    config.maps = true;
    config.compute = compute;
    config.fuse_siblings = config.pool_behind_conv = true;
    return program_graph(&config, 2, program);
}

/* A place for each pixel of the map before the pool, for every network that has one; else the reason. */
/* Files of weights have the shapes of torchvision's ConvNeXt: a layer of each pixel is a matrix, factors stand before two axes. */
TEST(test_shapes_in_files)
{
    Program program;
    Layout *layout;
    build((Form){"convnext_tiny", "", false}, 64, 10, true, &program);
    assert_int_equal(layout_create(program.graph, &layout), OK);
    assert_int_equal(layout_param(layout, "features.1.0.block.0.weight")->rank, 4);
    assert_int_equal(layout_param(layout, "features.1.0.layer_scale")->rank, 3);
    assert_int_equal(layout_param(layout, "features.1.0.block.3.weight")->rank, 2);
    assert_int_equal(layout_param(layout, "features.1.0.block.2.weight")->rank, 1);
    layout_destroy(layout);
    program_destroy(&program);
}

TEST(test_class_maps)
{
    Program program;
    static const char *const pooled[] = {
        "inception_v3", "inception_v4", "inception_resnet_v2", "googlenet", "inception_mini", "resnet18", "resnet50"};
    for (size_t i = 0; i < sizeof pooled / sizeof *pooled; i++) {
        Form form = {pooled[i], "", false};
        const Model *model;
        assert_int_equal(model_find(pooled[i], &model), OK);
        if (maps_build(form, 0, DTYPE_F32, &program) != OK) fail_msg("%s: %s", pooled[i], status_message());
        const ValueInfo *maps = graph_value(program.graph, program.maps);
        assert_int_equal(maps->role, ROLE_RESULT);
        assert_int_equal(maps->shape.c, model->classes);
        assert_in_range(maps->shape.h, 7, 8);
        program_destroy(&program);
        assert_fails(maps_build(form, 0, DTYPE_BF16, &program), ERR_UNSUPPORTED,
                     "in bf16: its last layer must be dense, in f32");
    }
    assert_fails(maps_build((Form){"fashion_cnn", "", false}, 0, DTYPE_F32, &program), ERR_UNSUPPORTED,
                 "fashion_cnn has no class activation maps at 28 x 28 pixels");
    assert_fails(maps_build((Form){"googlenet", "", false}, 32, DTYPE_F32, &program), ERR_UNSUPPORTED,
                 "the average of a map of several places (a global average pool)");
}

/* ---- the command line about models */

typedef struct Answer {
    int code;
    char text[2048];
} Answer;

static Answer ask(const char *arguments)
{
    Answer answer = {.code = -1};
    char command[1024];
    snprintf(command, sizeof command, "%s %s 2>&1 >/dev/null", towers_program(), arguments);
    FILE *from = popen(command, "r");
    assert_non_null(from);
    size_t got = fread(answer.text, 1, sizeof answer.text - 1, from);
    answer.text[got] = 0;
    int state = pclose(from);
    if (WIFEXITED(state)) answer.code = WEXITSTATUS(state);
    return answer;
}

TEST(test_bad_input)
{
    const Backend *any;
    if (backend_find("auto", &any, NULL, 0) != OK) {
        skip("there is no device to compute on: %s", status_message());
    }
    static const char *const rows[][2] = {
        {"info inception_v5", "error: unknown model 'inception_v5'; did you mean inception_v3?"},
        {"info inception_v3 --variant tf2015",
         "error: inception_v3 has no variant 'tf2015'; its variants are: tf2016 fid2015\n"},
        {"info inception_v4 --variant tf2016", "error: inception_v4 has no variant 'tf2016'; its variants are: none\n"},
        {"info inception_v3 --img-size 74",
         "error: --img-size 74 is too small for inception_v3, which needs at least 75\n"},
        {"info inception_v3 --img-size 139 --aux", "use --no-aux\n"},
        {"info inception_v4 --aux", "error: --aux: inception_v4 has no auxiliary classifier\n"},
        {"bench inception_v4 --aux-weight 0.3", "error: --aux-weight: inception_v4 has no auxiliary classifier\n"},
        {"bench inception_v3 --no-aux --aux-weight 0.3", "error: --aux-weight has no effect with --no-aux\n"},
        {"bench inception_v3 --img-size 139 --aux-weight 0.3", "use --no-aux\n"},
        {"info inception_v3 --classes 0", "error: --classes: 0 is out of range"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Answer answer = ask(rows[i][0]);
        if (answer.code != 2 || !strstr(answer.text, rows[i][1]))
            fail_msg("towers %s: exit code %d, %s", rows[i][0], answer.code, answer.text);
    }
}
