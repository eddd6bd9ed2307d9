/* The two networks of WGAN-GP: sizes, the passes of a step, and the gradients of both phases against central
 * differences in double precision, with the reference as the device. The critic's are second derivatives; they also
 * satisfy the identities of a function that is linear in the weights of each layer. Other critics against PyTorch's
 * gradients, on the reference and on the CPU's kernels (golden_wgan.h). */
#include <zlib.h>

#include "inception/models/models.h"
#include "inception/models/wasserstein.h"
#include "tests/support/interpret.h"
#include "tests/support/unit.h"
#include "tests/unit/golden_wgan.h"
#include "towers/graph/plan.h"

enum { N = 3, CRITIC = 0, GENERATOR = 1 };

static const Model *const models[] = {&model_wgan_gp, &model_wgan_gp_keras};
static const ModelOptions canonical = {.side = 28, .channels = 1, .penalty_weight = -1, .variant = ""},
                          tiny = {.side = 9, .channels = 2, .width = 1, .penalty_weight = -1, .variant = ""};

/* ---- phases as graphs */

typedef struct Built {
    Graph *g;
    PhaseOutputs out;
    Value dloss;
} Built;

static Built phase_build(const Model *model, int phase, const ModelOptions *options)
{
    Built b = {.out = {.term_count = 0}};
    const GraphOptions training = {.training = true, .compute = DTYPE_F32};
    assert_int_equal(graph_create(&training, &b.g), OK);
    PhaseInputs inputs = {.n = N};
    if (model->phases[phase].takes_batch)
        inputs.image =
            graph_input(b.g, "image", (Shape){N, options->channels, options->side, options->side}, DTYPE_F32);
    inputs.counter = graph_input(b.g, "counter", (Shape){1, 4, 1, 1}, DTYPE_I32);
    b.dloss = graph_input(b.g, "dloss", (Shape){1, 1, 1, 1}, DTYPE_F32);
    model->phases[phase].build(b.g, options, model->networks, &inputs, &b.out);
    return b;
}

static Value term(const Built *b, const char *name)
{
    for (int i = 0; i < b->out.term_count; i++)
        if (!strcmp(b->out.term[i].name, name)) return b->out.term[i].sum;
    fail_msg("no term %s", name);
    return (Value){0};
}

static void check_built(const char *what, const Built *b)
{
    if (graph_finish(b->g) != OK) fail_msg("%s: %s", what, status_message());
}

static int64_t elements(const Graph *g, Role role, const char *of)
{
    int64_t sum = 0;
    for (int32_t id = 1; id <= graph_value_count(g); id++) {
        const ValueInfo *info = graph_value(g, (Value){id});
        if (info->role == role && !strncmp(info->name, of, strlen(of))) sum += shape_count(info->shape);
    }
    return sum;
}

/* ---- sizes */

TEST(test_parameters)
{
    static const struct {
        const char *of;
        int64_t critic, generator, states;
        int32_t width;
    } rows[] = {
        {"wgan_gp", 25 * 64 + 64 + 25 * 64 * 128 + 128 + 25 * 128 * 256 + 256 + 4097,
         129 * 4096 + 25 * 256 * 128 + 128 + 25 * 128 * 64 + 64 + 25 * 64 + 1, 0, 0},
        {"wgan_gp", 25 * 16 + 16 + 25 * 16 * 32 + 32 + 25 * 32 * 64 + 64 + 1025,
         129 * 1024 + 25 * 64 * 32 + 32 + 25 * 32 * 16 + 16 + 25 * 16 + 1, 0, 16},
        {"wgan_gp_keras", 4305409, 902082, 910660 - 902082, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ModelOptions options = canonical;
        options.width = rows[i].width;
        const Model *model = strcmp(rows[i].of, "wgan_gp") ? &model_wgan_gp_keras : &model_wgan_gp;
        assert_string_equal(model->name, rows[i].of);
        for (int phase = CRITIC; phase <= GENERATOR; phase++) {
            Built b = phase_build(model, phase, &options);
            check_built(rows[i].of, &b);
            assert_int_equal(elements(b.g, ROLE_PARAM, "critic."), rows[i].critic);
            assert_int_equal(elements(b.g, ROLE_PARAM, "generator."), rows[i].generator);
            assert_int_equal(elements(b.g, ROLE_PARAM, ""), rows[i].critic + rows[i].generator);
            assert_int_equal(elements(b.g, ROLE_RUNNING, "generator."), rows[i].states);
            assert_int_equal(elements(b.g, ROLE_RUNNING, ""), rows[i].states);
            graph_destroy(b.g);
        }
    }
}

/* Images of any side and number of channels, as large as the real ones. */
TEST(test_sides)
{
    for (int side = 8; side <= 70; side++) {
        for (int m = 0; m < 2; m++) {
            ModelOptions options = {.side = side, .channels = 1 + side % 3, .width = 2, .penalty_weight = -1};
            const GraphOptions evaluation = {.compute = DTYPE_F32};
            Graph *g;
            Value images;
            Built b = phase_build(models[m], CRITIC, &options);
            check_built(models[m]->name, &b);
            graph_destroy(b.g);
            assert_int_equal(graph_create(&evaluation, &g), OK);
            models[m]->generate(g, &options, models[m]->networks, graph_input(g, "z", (Shape){5, 128, 1, 1}, DTYPE_F32),
                                &images);
            Shape wanted = {5, options.channels, side, side}, found = graph_shape(g, images);
            if (!shape_equal(wanted, found)) fail_msg("%s, side %d: %s", models[m]->name, side, shape_text(found));
            assert_int_equal(graph_finish(g), OK);
            graph_destroy(g);
        }
    }
}

/* TensorFlow pads 5x5 of stride 2 by one row before an even side and by two before an odd one. With the filter's only 1
 * where the first pixel then lies, the convolution takes every second pixel, and its transpose puts them back. */
TEST(test_same_padding)
{
    for (int32_t side = 6; side <= 7; side++) {
        const GraphOptions evaluation = {.compute = DTYPE_F32};
        Graph *g;
        assert_int_equal(graph_create(&evaluation, &g), OK);
        Value x = graph_input(g, "x", (Shape){1, 1, side, side}, DTYPE_F32);
        Value y = halving_conv(g, x, "half", 1, (Init){INIT_ZERO}), z = doubling_conv(g, y, "double", 1, side, false);
        assert_int_equal(graph_finish(g), OK);
        Interpreter it = interpreter_create(g);
        fill_uniform(interpreter_data(&it, x), side * side, 1, 1, 2);
        interpreter_data(&it, graph_find(g, "half.weight"))[side % 2 ? 12 : 6] = 1;
        interpreter_data(&it, graph_find(g, "double.weight"))[side % 2 ? 12 : 6] = 1;
        interpreter_run(&it);
        int32_t half = (side + 1) / 2;
        for (int32_t i = 0; i < side * side; i++) {
            int32_t h = i / side, w = i % side;
            double pixel = interpreter_data(&it, x)[i];
            if (h % 2 == 0 && w % 2 == 0) assert_true(interpreter_data(&it, y)[h / 2 * half + w / 2] == pixel);
            assert_true(interpreter_data(&it, z)[i] == (h % 2 == 0 && w % 2 == 0 ? pixel : 0));
        }
        interpreter_destroy(&it);
        graph_destroy(g);
    }
}

/* The Keras example pads 28 to 32 on all sides alike, and cuts so. */
TEST(test_borders)
{
    Built b = phase_build(&model_wgan_gp_keras, GENERATOR, &canonical);
    int found[2] = {0};
    check_built("borders", &b);
    for (int i = 0; i < graph_op_count(b.g); i++) {
        const Op *op = graph_op_at(b.g, i);
        for (int k = 0; k < 2; k++) {
            int32_t s = k ? 2 : -2;
            found[k] += op->kind == OP_PAD && op->attr.pad.top == s && op->attr.pad.bottom == s &&
                        op->attr.pad.left == s && op->attr.pad.right == s;
        }
    }
    assert_true(found[0] == 1 && found[1] == 1);
    graph_destroy(b.g);
}

TEST(test_16_bits_are_refused)
{
    const GraphOptions half = {.training = true, .compute = DTYPE_BF16};
    Graph *g;
    PhaseOutputs out = {.term_count = 0};
    assert_int_equal(graph_create(&half, &g), OK);
    PhaseInputs inputs = {.n = N, .counter = graph_input(g, "counter", (Shape){1, 4, 1, 1}, DTYPE_I32)};
    model_wgan_gp.phases[GENERATOR].build(g, &canonical, model_wgan_gp.networks, &inputs, &out);
    assert_fails(graph_finish(g), ERR_UNSUPPORTED, "f32 only, not in bf16");
    graph_destroy(g);
}

/* ---- passes */

static int count_of(const Graph *g, OpKind kind)
{
    int count = 0;
    for (int i = 0; i < graph_op_count(g); i++) count += graph_op_at(g, i)->kind == kind;
    return count;
}

/* A critic step of three layers: real and fake together have a forward pass, weight gradients, and data gradients of all
 * layers but the first; the penalty forward, data gradients, the tangent's forward and weight gradients. Nothing is computed
 * that nobody reads. */
TEST(test_passes)
{
    static const NameFilter critic = {.only = "critic.*"}, generator = {.only = "generator.*"};
    for (int phase = CRITIC; phase <= GENERATOR; phase++) {
        Built b = phase_build(&model_wgan_gp, phase, &canonical);
        graph_train(b.g, b.out.loss, b.dloss, phase == CRITIC ? &critic : &generator);
        check_built("passes", &b);
        assert_int_equal(count_of(b.g, OP_CONV), phase == CRITIC ? 3 * 3 : 3 + 3);
        assert_int_equal(count_of(b.g, OP_CONV_DX), phase == CRITIC ? 3 + 2 + 3 : 3 + 3);
        assert_int_equal(count_of(b.g, OP_CONV_DW), phase == CRITIC ? 2 * 3 : 3);
        for (int i = 0; i < graph_op_count(b.g); i++) {
            const Op *op = graph_op_at(b.g, i);
            bool read = false;
            for (int k = 0; k < b.out.term_count; k++) read |= b.out.term[k].sum.id == op->out[0].id;
            read |= b.out.loss.id == op->out[0].id || graph_value(b.g, op->out[0])->role == ROLE_GRAD;
            for (int j = i + 1; j < graph_op_count(b.g) && !read; j++)
                for (int k = 0; k < OP_MAX_IN; k++) read |= graph_op_at(b.g, j)->in[k].id == op->out[0].id;
            if (!read) fail_msg("phase %d: nobody reads op %d, %s (%s)", phase, i, op->name, op_name(op->kind));
        }
        graph_destroy(b.g);
    }
}

/* ---- gradients */

static void fill(Interpreter *it)
{
    for (int id = 1; id <= it->count; id++) {
        const ValueInfo *info = graph_value(it->graph, (Value){id});
        int64_t count = shape_count(info->shape);
        if (info->op >= 0) continue;
        double scale = info->role == ROLE_PARAM ? 0.5 : 1;
        fill_uniform(it->values[id].data, count, (uint64_t)id, -scale, scale);
        if (!strcmp(info->name, "dloss")) it->values[id].data[0] = 1;
        if (!strcmp(info->name, "counter"))
            for (int i = 0; i < 4; i++) it->values[id].data[i] = 7 * i;
    }
}

static double at(Interpreter *it, Value loss, double *element, double value)
{
    double old = *element;
    *element = value;
    interpreter_run(it);
    *element = old;
    return *interpreter_data(it, loss);
}

/* The largest difference of a gradient from the differences of the loss, relative to the largest of those. A leaky ReLU
 * that changes sides within the difference would be seen at once, so few are; `skipped` counts elements where the
 * two-sided differences of two widths disagree. */
static double off(Interpreter *it, Value loss, Value x, Value gradient, int *skipped)
{
    const double h = 1e-6;
    double worst = 0, size = 1e-3;
    int64_t count = shape_count(graph_shape(it->graph, x));
    interpreter_run(it);
    double *analytic = malloc((size_t)count * sizeof *analytic), *values = interpreter_data(it, x);
    assert_non_null(analytic);
    memcpy(analytic, interpreter_data(it, gradient), (size_t)count * sizeof *analytic);
    for (int64_t i = 0; i < count; i++) {
        double was = values[i];
        double wide = (at(it, loss, &values[i], was + h) - at(it, loss, &values[i], was - h)) / (2 * h);
        double narrow = (at(it, loss, &values[i], was + h / 4) - at(it, loss, &values[i], was - h / 4)) / (h / 2);
        size = fmax(size, fabs(wide));
        if (fabs(wide - narrow) > 1e-4 * fmax(1, fabs(wide)))
            ++*skipped;
        else
            worst = fmax(worst, fabs(wide - analytic[i]));
    }
    free(analytic);
    return worst / size;
}

TEST(test_differences)
{
    for (int m = 0; m < 2; m++) {
        for (int phase = CRITIC; phase <= GENERATOR; phase++) {
            Value params[32], grads[32];
            int count = 0, skipped = 0;
            ModelOptions options = tiny;
            options.dropout = models[m]->dropout;
            Built b = phase_build(models[m], phase, &options);
            const char *of = phase == CRITIC ? "critic." : "generator.";
            for (int32_t id = 1; id <= graph_value_count(b.g); id++) {
                const ValueInfo *info = graph_value(b.g, (Value){id});
                if (info->role == ROLE_PARAM && !strncmp(info->name, of, strlen(of))) params[count++] = (Value){id};
            }
            graph_grad(b.g, b.out.loss, b.dloss, params, count, grads);
            check_built(models[m]->name, &b);
            Interpreter it = interpreter_create(b.g);
            fill(&it);
            for (int k = 0; k < count; k++) {
                if (shape_count(graph_shape(b.g, params[k])) > 1000)
                    continue; /* the dense layer of z: like the others */
                double worst = off(&it, b.out.loss, params[k], grads[k], &skipped);
                if (!(worst < 2e-6))
                    fail_msg("%s: %s is off by %.3g", models[m]->name, graph_value(b.g, params[k])->name, worst);
            }
            if (skipped > 4) fail_msg("%s: %d differences across a bend", models[m]->name, skipped);
            interpreter_destroy(&it);
            graph_destroy(b.g);
        }
    }
}

/* dD/dx is linear in the weights of each layer, so for every one <dP/dW, W> = sum of P'(slope) slope over the samples:
 * the tangent against the gradient, seen from each layer. */
TEST(test_identities)
{
    for (int m = 0; m < 2; m++) {
        Value weights[8], grads[8];
        int count = 0;
        ModelOptions options = tiny;
        options.width = 2;
        options.dropout = models[m]->dropout;
        Built b = phase_build(models[m], CRITIC, &options);
        for (int32_t id = 1; id <= graph_value_count(b.g); id++) {
            const ValueInfo *info = graph_value(b.g, (Value){id});
            if (info->role == ROLE_PARAM && !strncmp(info->name, "critic.", 7) && info->decay)
                weights[count++] = (Value){id};
        }
        graph_grad(b.g, term(&b, "penalty"), b.dloss, weights, count, grads);
        check_built(models[m]->name, &b);
        Interpreter it = interpreter_create(b.g);
        fill(&it);
        interpreter_run(&it);
        double slope = *interpreter_data(&it, term(&b, "slope")),
               square = *interpreter_data(&it, term(&b, "slope_spread")), wanted = 2 * (square - slope);
        assert_true(slope > 0 && fabs(wanted) > 1e-3 && count == (m ? 5 : 4));
        for (int k = 0; k < count; k++) {
            double sum = 0;
            for (int64_t i = 0; i < shape_count(graph_shape(b.g, weights[k])); i++)
                sum += interpreter_data(&it, weights[k])[i] * interpreter_data(&it, grads[k])[i];
            if (fabs(sum - wanted) > 1e-9 * fabs(wanted))
                fail_msg("%s: <dP/dW, W> of %s is %.15g, wanted %.15g", models[m]->name,
                         graph_value(b.g, weights[k])->name, sum, wanted);
        }
        interpreter_destroy(&it);
        graph_destroy(b.g);
    }
}

/* A critic that is flat everywhere has slope 0 and a finite gradient. */
TEST(test_flat_critic)
{
    Value weight, grad;
    Built b = phase_build(&model_wgan_gp, CRITIC, &tiny);
    weight = graph_find(b.g, "critic.conv1.weight");
    graph_grad(b.g, b.out.loss, b.dloss, &weight, 1, &grad);
    check_built("flat", &b);
    Interpreter it = interpreter_create(b.g);
    fill(&it);
    Value score = graph_find(b.g, "critic.score.weight");
    memset(interpreter_data(&it, score), 0, (size_t)shape_count(graph_shape(b.g, score)) * sizeof(double));
    interpreter_run(&it);
    assert_true(fabs(*interpreter_data(&it, term(&b, "penalty")) - N) < 1e-5);
    for (int64_t i = 0; i < shape_count(graph_shape(b.g, weight)); i++)
        assert_true(isfinite(interpreter_data(&it, grad)[i]));
    interpreter_destroy(&it);
    graph_destroy(b.g);
}

/* ---- beside PyTorch */

enum { GOLDEN_N = 4, GOLDEN = sizeof golden_critics / sizeof *golden_critics };
static int golden; /* the critic that is being built */

static Value golden_fake(Graph *g, const ModelOptions *options, Value z)
{
    return graph_input(g, "fake", (Shape){GOLDEN_N, options->channels, options->side, options->side}, DTYPE_F32);
}

static Value golden_features(Graph *g, const ModelOptions *options, Value x)
{
    int convs = 0;
    for (const char *const *layer = golden_critics[golden].layers; *layer; layer++) {
        char name[16];
        const char *value = strchr(*layer, ' ') + 1;
        int32_t count = (int32_t)strtol(value, NULL, 10);
        snprintf(name, sizeof name, "conv%d", ++convs);
        if (**layer == 'h') x = leaky_relu(g, halving_conv(g, x, name, count, (Init){INIT_ZERO}), 0.2f);
        if (**layer == 'd') x = dropout(g, x, strtof(value, NULL));
        if (**layer == 'p') x = pad(g, x, count, count, count, count);
        convs -= **layer != 'h';
    }
    return x;
}

typedef struct Golden {
    Graph *g;
    PhaseOutputs out;
    Value dloss, params[16];
    int count;
} Golden;

static Golden golden_build(int critic)
{
    static const Adversaries of[] = {{1, 10, golden_fake, golden_features, .one_batch = true},
                                     {1, 10, golden_fake, golden_features}};
    static const NameFilter trains = {.only = "critic.*"};
    const GraphOptions training = {.training = true, .compute = DTYPE_F32};
    ModelOptions options = {
        .side = golden_critics[critic].side, .channels = golden_critics[critic].channels, .penalty_weight = -1};
    Golden b = {.count = 0};
    golden = critic;
    assert_int_equal(graph_create(&training, &b.g), OK);
    Shape images = {GOLDEN_N, options.channels, options.side, options.side};
    PhaseInputs inputs = {.n = GOLDEN_N, .image = graph_input(b.g, "real", images, DTYPE_F32)};
    inputs.counter = graph_input(b.g, "counter", (Shape){1, 4, 1, 1}, DTYPE_I32);
    b.dloss = graph_input(b.g, "dloss", (Shape){1, 1, 1, 1}, DTYPE_F32);
    wasserstein_critic(b.g, &options, &of[critic > 0], &inputs, &b.out); /* the first has no dropout */
    graph_result(b.g, b.out.loss, "loss");
    graph_train(b.g, b.out.loss, b.dloss, &trains);
    if (graph_finish(b.g) != OK) fail_msg("critic %d: %s", critic, status_message());
    for (int32_t id = 1; id <= graph_value_count(b.g); id++)
        if (graph_value(b.g, (Value){id})->role == ROLE_PARAM) b.params[b.count++] = (Value){id};
    return b;
}

/* Element i of what the golden numbers were made with. */
static double golden_input(const Graph *g, Value v, int64_t i)
{
    static const double counter[] = {5, 0, 3, 2};
    const char *name = graph_value(g, v)->name;
    Shape s = graph_shape(g, v);
    if (!strcmp(name, "dloss")) return 1;
    if (!strcmp(name, "counter")) return counter[i];
    if (!strncmp(name, "critic.", 7)) name += 7;
    uint32_t crc = (uint32_t)crc32(0, (const Bytef *)name, (uInt)strlen(name));
    float u = (float)(((uint32_t)(i + 1) * 2654435761u + crc) >> 8) / 16777216.0f;
    if (graph_value(g, v)->role != ROLE_PARAM) return (double)u;
    float scale = strstr(name, "weight") ? (float)sqrt(24.0 / ((double)s.c * s.h * s.w)) : 0.5f;
    return (double)((u - 0.5f) * scale);
}

/* The gradient of each parameter, after another. */
typedef double GoldenGradient(void *machine, Value gradient, int64_t i);

static double golden_distance(const Golden *b, int critic, GoldenGradient *element, void *machine)
{
    double error = 0, size = 0;
    int count = 0;
    for (int k = 0; k < b->count; k++) {
        Value gradient = {0};
        for (int32_t id = 1; id <= graph_value_count(b->g); id++)
            if (graph_value(b->g, (Value){id})->role == ROLE_GRAD &&
                graph_value(b->g, (Value){id})->of.id == b->params[k].id)
                gradient.id = id;
        for (int64_t i = 0; i < shape_count(graph_shape(b->g, b->params[k])); i++, count++) {
            assert_true(count < golden_critics[critic].count);
            double wanted = golden_critics[critic].gradients[count], off = element(machine, gradient, i) - wanted;
            error += off * off;
            size += wanted * wanted;
        }
    }
    assert_int_equal(count, golden_critics[critic].count);
    return sqrt(error / size);
}

static double of_reference(void *machine, Value gradient, int64_t i)
{
    return interpreter_data(machine, gradient)[i];
}

static double of_plan(void *machine, Value gradient, int64_t i)
{
    return (double)((const float *)plan_tensor(machine, gradient).data)[i];
}

TEST(test_reference_as_pytorch)
{
    for (int critic = 0; critic < GOLDEN; critic++) {
        Golden b = golden_build(critic);
        Interpreter it = interpreter_create(b.g);
        for (int32_t id = 1; id <= graph_value_count(b.g); id++)
            for (int64_t i = 0; graph_value(b.g, (Value){id})->op < 0 && i < shape_count(graph_shape(b.g, (Value){id}));
                 i++)
                interpreter_data(&it, (Value){id})[i] = golden_input(b.g, (Value){id}, i);
        interpreter_run(&it);
        double loss = *interpreter_data(&it, b.out.loss), wanted = golden_critics[critic].loss,
               distance = golden_distance(&b, critic, of_reference, &it);
        if (!(fabs(loss - wanted) < 1e-6 * fmax(1, fabs(wanted)) && distance < 1e-6))
            fail_msg("critic %d: loss %.12g, wanted %.12g; gradients %.2g apart", critic, loss, wanted, distance);
        interpreter_destroy(&it);
        graph_destroy(b.g);
    }
}

TEST(test_cpu_as_pytorch)
{
    const Backend *cpu;
    if (backend_find("cpu", &cpu, NULL, 0) != OK) skip("no CPU backend here: %s", status_message());
    for (int critic = 0; critic < GOLDEN; critic++) {
        DeviceConfig threads = {DEVICE_USUAL, .threads = 2, .allow_reference = true};
        PlanOptions usual = {0};
        Device device = {0};
        Layout *layout;
        Plan *plan;
        void *arena[ARENA_COUNT];
        Golden b = golden_build(critic);
        assert_int_equal(cpu->open(&threads, &device), OK);
        assert_int_equal(layout_create(b.g, &layout), OK);
        if (plan_create(b.g, layout, &device, &usual, &plan) != OK) fail_msg("%s", status_message());
        for (int a = 0; a < ARENA_COUNT; a++) {
            assert_int_equal(cpu->alloc(&device, plan_bytes(plan, (Arena)a) + 64, &arena[a]), OK);
            plan_bind(plan, (Arena)a, arena[a]);
        }
        for (int32_t id = 1; id <= graph_value_count(b.g); id++) {
            const ValueInfo *info = graph_value(b.g, (Value){id});
            for (int64_t i = 0; info->op < 0 && i < shape_count(info->shape); i++) {
                void *data = plan_tensor(plan, (Value){id}).data;
                double value = golden_input(b.g, (Value){id}, i);
                if (info->dtype == DTYPE_I32)
                    ((int32_t *)data)[i] = (int32_t)value;
                else
                    ((float *)data)[i] = (float)value;
            }
        }
        if (plan_run(plan, 0, plan_op_count(plan)) != OK) fail_msg("%s", status_message());
        double distance = golden_distance(&b, critic, of_plan, plan), peer = golden_critics[critic].distance;
        print_message("  critic %d: %.2g from float64, PyTorch %.2g\n", critic, distance, peer);
        if (!(distance < 1e-5 && distance <= 2 * peer))
            fail_msg("critic %d: gradients are %.2g from float64, PyTorch's %.2g", critic, distance, peer);
        plan_destroy(plan);
        for (int a = 0; a < ARENA_COUNT; a++) cpu->release(&device, arena[a]);
        layout_destroy(layout);
        cpu->close(&device);
        graph_destroy(b.g);
    }
}
