/* Training in phases, on a model small enough to compute by hand: a "critic" whose score of an image is the mean of
 * its pixels, and a "generator" that takes no images. The phase, batch and samples of each step; the layout of several
 * phases; and all ways of reporting a loss, compared with values computed by hand, in a run of two towers. */

#include <jansson.h>

#include "tests/support/scratch.h"
#include "tests/support/tower_run.h"
#include "tests/support/unit.h"
#include "towers/data/loading/shuffle.h"
#include "towers/files/files.h"
#include "towers/graph/layers.h"
#include "towers/store/safetensors.h"
#include "towers/train/process.h"

enum { SIDE = 2, PIXELS = SIDE * SIDE };

static const double RATE = 0.125;

/* ---- the model */

static Value sum_all(Graph *g, Value x)
{
    static const Shape scalar = {1, 1, 1, 1};
    return graph_op(g, OP_SUM_TO, "total", &x, 1, NULL, &scalar);
}

/* In units of the pixels' values, 0 to 255: the model's deviation is 1 / 255. */
static Value score(Graph *g, Value image)
{
    return dense(g, image, "critic.score", 1, false, (Init){INIT_CONSTANT, 1.0f / PIXELS});
}

static void critic(Graph *g, const ModelOptions *options, const void *networks, const PhaseInputs *inputs,
                   PhaseOutputs *outputs)
{
    Value y = score(g, inputs->image);
    outputs->loss = sum_all(g, y);
    outputs->term[outputs->term_count++] = (PhaseTerm){.name = "score", .sum = sum_all(g, y)};
    outputs->term[outputs->term_count++] = (PhaseTerm){.name = "score_spread", .sum = sum_all(g, mul(g, y, y)), true};
}

/* -D of one gray image for each sample, made from the weight alone: of 3 w, w = 1. */
static void generator(Graph *g, const ModelOptions *options, const void *networks, const PhaseInputs *inputs,
                      PhaseOutputs *outputs)
{
    OpAttr uniform = {.random = {.stream = graph_next_stream(g)}};
    Shape z = {inputs->n, 1, 1, 1};
    Value noise = graph_op(g, OP_RANDOM, "noise", &inputs->counter, 1, &uniform, &z);
    Value three = affine(g, noise, 0, 3),
          w = dense(g, three, "generator.gray", PIXELS, false, (Init){INIT_CONSTANT, 1});
    OpAttr none = {0};
    Shape image = {inputs->n, 1, SIDE, SIDE};
    outputs->loss = affine(g, sum_all(g, score(g, graph_op(g, OP_RESHAPE, "image", &w, 1, &none, &image))), -1, 0);
}

/* The same with a batch norm, for which all its images are alike. */
static void normed_generator(Graph *g, const ModelOptions *options, const void *networks, const PhaseInputs *inputs,
                             PhaseOutputs *outputs)
{
    OpAttr none = {0}, uniform = {.random = {.stream = graph_next_stream(g)}};
    Shape z = {inputs->n, 1, 1, 1}, image = {inputs->n, 1, SIDE, SIDE};
    Value noise = graph_op(g, OP_RANDOM, "noise", &inputs->counter, 1, &uniform, &z);
    Value three = affine(g, noise, 0, 3),
          w = dense(g, three, "generator.gray", PIXELS, false, (Init){INIT_CONSTANT, 1}),
          x = graph_op(g, OP_RESHAPE, "image", &w, 1, &none, &image);
    x = conv_bn_relu(g, x, (ConvUnit){"generator.unit", 1, 1, 1, .fit = VALID});
    outputs->loss = affine(g, sum_all(g, score(g, x)), -1, 0);
}

static const Phase phases[] = {
    {"critic", "critic.*", 2, true, critic},
    {"generator", "generator.*", 1, false, generator},
};

static const Phase normed_phases[] = {
    {"critic", "critic.*", 2, true, critic},
    {"generator", "generator.*", 1, false, normed_generator},
};

static const Model model = {.name = "two_phases",
                            .title = "",
                            .paper = "",
                            .side = SIDE,
                            .min_side = SIDE,
                            .channels = 1,
                            .classes = 10,
                            .std = {1.0f / 255, 1.0f / 255, 1.0f / 255},
                            .phases = phases,
                            .phase_count = 2};

/* ---- data: images whose pixels are all 2, all 3, ... in this order */

static void number_put(FILE *to, uint32_t number)
{
    for (int shift = 24; shift >= 0; shift -= 8) fputc((int)(number >> shift & 255), to);
}

static void images_put(const char *folder, const char *part, int count)
{
    char name[64], path[PATH_BYTES], file[PATH_BYTES];
    scratch_path(path, folder);
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", part);
    assert_int_equal(path_join(file, path, name), OK);
    FILE *to = fopen(file, "wb");
    assert_non_null(to);
    number_put(to, 0x803), number_put(to, (uint32_t)count), number_put(to, SIDE), number_put(to, SIDE);
    for (int i = 0; i < count * PIXELS; i++) fputc(2 + i / PIXELS, to);
    assert_int_equal(fclose(to), 0);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", part);
    assert_int_equal(path_join(file, path, name), OK);
    to = fopen(file, "wb");
    assert_non_null(to);
    number_put(to, 0x801), number_put(to, (uint32_t)count);
    for (int i = 0; i < count; i++) fputc(i % 10, to);
    assert_int_equal(fclose(to), 0);
}

static Source *source_make(const char *folder, int count)
{
    char path[PATH_BYTES];
    Source *source;
    scratch_path(path, folder);
    assert_int_equal(directory_create(path), OK);
    images_put(folder, "train", count);
    images_put(folder, "t10k", count);
    if (source_open(&(SourceConfig){.path = path}, SPLIT_TRAIN, &source) != OK) fail_msg("%s", status_message());
    return source;
}

/* A seed whose first epoch is in the order of the images. */
static uint64_t seed_of_order(int count)
{
    int32_t order[8];
    for (uint64_t seed = 0;; seed++) {
        bool ascending = true;
        epoch_order(seed, 0, count, order);
        for (int i = 0; i < count; i++) ascending &= order[i] == i;
        if (ascending) return seed;
    }
}

/* ---- jobs */

static TrainJob job_of(const Source *source, const int32_t *batch, int towers)
{
    const Backend *cpu;
    assert_int_equal(backend_find("cpu", &cpu, NULL, 0), OK);
    TrainJob job = job_plain(cpu, &model, source, SIDE, towers, 0);
    job.schedule.lr = RATE;
    job.epochs = 10;
    job.max_steps = 1;
    job.gate.bn_decay = 0.9;
    job.local_batches = batches_of(towers, batch);
    return job;
}

/* Rows of metrics.jsonl of a run into the new folder `name`; `weights` receives critic.score's and generator.gray's. */
static json_t *run_live(TrainJob job, const char *name, float weights[2])
{
    char run_dir[PATH_BYTES], path[PATH_BYTES];
    SafeTensors *file;
    scratch_path(run_dir, name);
    assert_int_equal(directory_create(run_dir), OK);
    job.run_dir = run_dir;
    JobMemory memory = job_memory(&job);
    if (tower_process_train(&job, 0, memory.ledger, memory.shared) != OK) fail_msg("%s", status_message());
    job_memory_free(&memory);
    assert_int_equal(path_join(path, run_dir, "last.safetensors"), OK);
    assert_int_equal(safetensors_open(path, &file), OK);
    memcpy(&weights[0], safetensors_find(file, "critic.score.weight")->data, sizeof(float));
    memcpy(&weights[1], safetensors_find(file, "generator.gray.weight")->data, sizeof(float));
    safetensors_close(file);
    snprintf(path, sizeof path, "%s/metrics.jsonl", name);
    char *text = scratch_text(path);
    json_t *rows = json_array();
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));)
        if (*line) assert_int_equal(json_array_append_new(rows, json_loads(line, 0, NULL)), 0);
    free(text);
    return rows;
}

static double number_of(const json_t *rows, size_t row, const char *key)
{
    const json_t *value = json_object_get(json_array_get(rows, row), key);
    if (!json_is_number(value)) fail_msg("row %zu has no number %s", row, key);
    return json_number_value(value);
}

static double element_of(const json_t *rows, size_t row, const char *key, size_t tower)
{
    return json_number_value(json_array_get(json_object_get(json_array_get(rows, row), key), tower));
}

static double term_of(const json_t *rows, size_t row, const char *term, int tower)
{
    const json_t *all = json_object_get(json_array_get(rows, row), tower < 0 ? "terms" : "tower_terms"),
                 *value = json_object_get(all, term);
    return json_number_value(tower < 0 ? value : json_array_get(value, (size_t)tower));
}

static void is(const char *what, double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-6 * fmax(1, fabs(wanted)))) fail_msg("%s: %.9g, wanted %.9g", what, got, wanted);
}

/* ---- which phase, batch and samples a step has */

typedef struct Place {
    int phase;
    int64_t batch, before; /* of the step, or the next if it takes none; taken by all steps before */
    int batches;
} Place;

static void check_places(const char *what, const TrainJob *job, const Place *wanted, int count)
{
    for (int s = 0; s < count; s++) {
        Place got = {job_phase_of(job, s), job_first_batch(job, s), job_batches_before(job, s),
                     job_step_batches(job, s)};
        const Place *w = &wanted[s];
        if (got.phase == w->phase && got.batch == w->batch && got.before == w->before && got.batches == w->batches)
            continue;
        fail_msg("%s, step %d: phase %d, batch %" PRId64 ", %" PRId64 " before, %d taken", what, s, got.phase,
                 got.batch, got.before, got.batches);
    }
}

TEST(test_places)
{
    static const int32_t batch[] = {2};
    Source *source = source_make("places", 5); /* batches of 2, 2 and 1 */
    TrainJob job = job_of(source, batch, 1);
    static const Place next[] = {{0, 0, 0, 1}, {0, 1, 1, 1}, {1, 2, 2, 0}, {0, 2, 2, 1},
                                 {0, 3, 3, 1}, {1, 4, 4, 0}, {0, 4, 4, 1}};
    check_places("new", &job, next, 7);
    assert_int_equal(job_cycle(&job), 3);
    assert_int_equal(job_steps_per_epoch(&job), 6); /* two cycles cover three batches */
    static const int64_t samples[] = {2, 2, 2, 1, 2, 2, 2};
    for (int s = 0; s < 7; s++) assert_int_equal(job_step_samples(&job, s), samples[s]);

    job.same_batch = true;
    job.repeats[0] = 3;
    static const Place same[] = {{0, 0, 0, 1}, {0, 0, 1, 1}, {0, 0, 1, 1}, {1, 1, 1, 0},
                                 {0, 1, 1, 1}, {0, 1, 2, 1}, {0, 1, 2, 1}, {1, 2, 2, 0}};
    check_places("same", &job, same, 8);
    assert_int_equal(job_steps_per_epoch(&job), 12);
    assert_int_equal(job_step_samples(&job, 9), 1);  /* the short batch */
    assert_int_equal(job_step_samples(&job, 11), 2); /* no batch: as many as in a full one */

    job.local_batches = batches_of(3, (int32_t[]){2, 0, 5});
    Batch none = job_batch_without_images(&job, 3, 2);
    assert_true(none.n == 5 && none.first == 2 && none.tower == 2 && none.step == 1 && !none.pixels);
    RandomKey key = job_random_key(&job, 4, &none);
    assert_true(key.step == 3 && key.first == 2);
    source_close(source);
}

/* ---- the layout */

static Graph *graph_of(void (*build)(Graph *, Value))
{
    Graph *g;
    GraphOptions options = {.training = true, .compute = DTYPE_F32};
    assert_int_equal(graph_create(&options, &g), OK);
    build(g, graph_input(g, "x", (Shape){2, 3, 1, 1}, DTYPE_F32));
    assert_int_equal(graph_finish(g), OK);
    return g;
}

static Value layer(Graph *g, Value x, const char *name)
{
    return dense(g, x, name, 3, false, (Init){INIT_CONSTANT, 1});
}

static void train(Graph *g, Value y, const char *trains)
{
    NameFilter filter = {.only = trains};
    graph_train(g, sum_all(g, y), graph_input(g, "dloss", (Shape){1, 1, 1, 1}, DTYPE_F32), &filter);
}

static void first_phase(Graph *g, Value x)
{
    train(g, layer(g, layer(g, layer(g, x, "b.in"), "a.in"), "a.out"), "a.*");
}

static void second_phase(Graph *g, Value x)
{
    train(g, layer(g, layer(g, x, "b.in"), "b.out"), "b.*");
}

static void greedy_phase(Graph *g, Value x)
{
    train(g, layer(g, x, "a.in"), "*");
}

static void wide_phase(Graph *g, Value x)
{
    train(g, dense(g, layer(g, x, "b.in"), "a.in", 4, false, (Init){INIT_CONSTANT, 1}), "b.*");
}

TEST(test_layout)
{
    Graph *g[] = {graph_of(first_phase), graph_of(second_phase), graph_of(greedy_phase), graph_of(wide_phase)};
    Layout *layout;
    assert_int_equal(layout_create_phases((const Graph *const *)g, 2, &layout), OK);
    assert_int_equal(layout->phase_count, 2);
    const LayoutPhase *a = &layout->phase[0], *b = &layout->phase[1];
    assert_true(a->first == 0 && b->first == a->elements && layout->trained_elements == a->elements + b->elements);
    assert_true(a->first_param == 0 && a->param_count == 4 && b->first_param == 4 && b->param_count == 4);
    for (int i = 0; i < layout->param_count; i++) {
        const LayoutEntry *entry = &layout->params[i];
        assert_int_equal(entry->name[0], i < 4 ? 'a' : 'b');
        assert_int_equal(entry->moves, i < 4 ? 1 : 2);
        assert_int_equal(entry->rank, strstr(entry->name, "weight") ? 2 : 1);
    }
    assert_non_null(strstr(layout->params[0].name, "a.out")); /* backward completes it first */
    layout_destroy(layout);

    const Graph *const twice[] = {g[0], g[2]}, *const other[] = {g[0], g[3]};
    assert_fails(layout_create_phases(twice, 2, &layout), ERR_UNSUPPORTED, "is trained by two phases");
    assert_fails(layout_create_phases(other, 2, &layout), ERR_SHAPE, "in one phase and");
    for (int i = 0; i < 4; i++) graph_destroy(g[i]);
}

/* ---- the loss vector: two towers with the losses [2, 3] and [4, 5] */

TEST(test_loss_vector)
{
    static const int32_t batch[] = {2, 2};
    float weights[2];
    Source *source = source_make("vector", 4);
    TrainJob job = job_of(source, batch, 2);
    job.seed = seed_of_order(4);
    json_t *rows = run_live(job, "vector-run", weights);
    TowerLoss tower[2];
    for (size_t t = 0; t < 2; t++)
        tower[t] =
            (TowerLoss){element_of(rows, 0, "tower_loss", t) * 2, (int64_t)element_of(rows, 0, "tower_count", t), true};
    is("tower 0", element_of(rows, 0, "tower_loss", 0), 2.5);
    is("tower 1", element_of(rows, 0, "tower_loss", 1), 4.5);
    is("last", number_of(rows, 0, "last_tower_loss"), 4.5);
    is("last as reported", reported_loss(tower, 2, LOSS_REPORT_LAST, LOSS_DIVISOR_SAMPLES, 4), 4.5);
    is("first", reported_loss(tower, 2, LOSS_REPORT_FIRST, LOSS_DIVISOR_SAMPLES, 4), 2.5);
    is("mean_loss", number_of(rows, 0, "mean_loss"), 3.5);
    is("scaled per replica, tower 0", tower[0].sum / 4, 1.25);
    is("scaled per replica, tower 1", tower[1].sum / 4, 2.25);
    is("sum of the scaled", (tower[0].sum + tower[1].sum) / 4, number_of(rows, 0, "mean_loss"));
    is("Mean metric of the scaled, x replicas", (tower[0].sum + tower[1].sum) / 4 / 2 * 2, 3.5);
    is("the trap: means x replicas, not scaled before", 2 * number_of(rows, 0, "mean_loss"), 7);
    is("a term", term_of(rows, 0, "score", -1), 3.5);
    is("a term of tower 1", term_of(rows, 0, "score", 1), 4.5);
    is("its spread", term_of(rows, 0, "score_spread", -1), sqrt(1.25));
    is("its spread in tower 0", term_of(rows, 0, "score_spread", 0), 0.5);
    is("the gradient is that of the mean", weights[0], 0.25 - RATE * 3.5);
    is("the other phase has not moved", weights[1], 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 0), "phase")), "critic");
    json_decref(rows);
    source_close(source);
}

/* [2, 3], nothing, [4]: an uneven batch with an empty tower. */
TEST(test_uneven)
{
    static const int32_t batch[] = {2, 0, 1};
    float weights[2];
    Source *source = source_make("uneven", 3);
    TrainJob job = job_of(source, batch, 3);
    job.seed = seed_of_order(3);
    json_t *rows = run_live(job, "uneven-run", weights);
    is("mean over samples, not of means", number_of(rows, 0, "mean_loss"), 3);
    const json_t *losses = json_object_get(json_array_get(rows, 0), "tower_loss");
    assert_int_equal(json_array_size(losses), 2); /* of the first and the last tower */
    is("the first tower's loss", json_number_value(json_array_get(losses, 0)), 2.5);
    is("the last tower's loss", json_number_value(json_array_get(losses, 1)), 4);
    is("a term", term_of(rows, 0, "score", -1), 3);
    is("the gradient", weights[0], 0.25 - RATE * 3);
    json_decref(rows);

    job.divisor = LOSS_DIVISOR_GLOBAL_BATCH; /* a full batch, so nothing changes */
    rows = run_live(job, "uneven-full", weights);
    is("a full global batch", number_of(rows, 0, "mean_loss"), 3);
    json_decref(rows);

    job.local_batches = batches_equal(2, 2); /* [2, 3] and [4]: a batch that is one short */
    rows = run_live(job, "uneven-short", weights);
    is("divided by the global batch", number_of(rows, 0, "mean_loss"), 2.25);
    is("its gradient", weights[0], 0.25 - RATE * 2.25);
    json_decref(rows);
    source_close(source);
}

/* ---- two cycles, computed by hand: each phase moves its own weights with its own count of images */

typedef struct Hand {
    double w, b, gray, gray_b; /* of every pixel alike */
} Hand;

static double critic_step(Hand *h, double value)
{
    double loss = PIXELS * h->w * value + h->b;
    h->w -= RATE * value;
    h->b -= RATE;
    return loss;
}

static double generator_step(Hand *h)
{
    double loss = -(PIXELS * h->w * (3 * h->gray + h->gray_b) + h->b);
    h->gray += RATE * 3 * h->w;
    h->gray_b += RATE * h->w;
    return loss;
}

TEST(test_cycles)
{
    static const int32_t batch[] = {1, 1};
    float weights[2];
    Source *source = source_make("cycles", 4);
    TrainJob job = job_of(source, batch, 2);
    job.seed = seed_of_order(4);
    job.max_steps = 6;
    json_t *rows = run_live(job, "cycles-run", weights);
    assert_int_equal(json_array_size(rows), 6);
    Hand h = {.w = 1.0 / PIXELS, .gray = 1};
    is("critic, images 2 and 3", number_of(rows, 0, "mean_loss"), critic_step(&h, 2.5));
    is("critic, images 4 and 5", number_of(rows, 1, "mean_loss"), critic_step(&h, 4.5));
    is("generator", number_of(rows, 2, "mean_loss"), generator_step(&h));
    double fourth = (number_of(rows, 3, "mean_loss") - h.b) / (PIXELS * h.w); /* the order of this epoch is another */
    critic_step(&h, fourth);
    is("critic, the other two", number_of(rows, 4, "mean_loss"), critic_step(&h, 7 - fourth));
    is("generator again", number_of(rows, 5, "mean_loss"), generator_step(&h));
    is("the critic's weight", weights[0], h.w);
    is("the generator's", weights[1], h.gray);
    for (size_t s = 0; s < 6; s++)
        assert_string_equal(json_string_value(json_object_get(json_array_get(rows, s), "phase")),
                            s % 3 < 2 ? "critic" : "generator");
    assert_true(number_of(rows, 2, "images") == 2);
    json_decref(rows);

    job.same_batch = true;
    rows = run_live(job, "same-run", weights);
    h = (Hand){.w = 1.0 / PIXELS, .gray = 1};
    is("the same batch", number_of(rows, 0, "mean_loss"), critic_step(&h, 2.5));
    is("the same batch again", number_of(rows, 1, "mean_loss"), critic_step(&h, 2.5));
    generator_step(&h);
    is("the next", number_of(rows, 3, "mean_loss"), critic_step(&h, 4.5));
    json_decref(rows);
    source_close(source);
}

/* The running averages of a phase move in its own steps only. */
TEST(test_statistics_of_phases)
{
    static const int32_t batch[] = {2};
    char path[PATH_BYTES];
    float weights[2], variance;
    SafeTensors *file;
    Source *source = source_make("normed images", 6);
    Model normed = model;
    normed.phases = normed_phases;
    TrainJob job = job_of(source, batch, 1);
    job.program.model = &normed;
    job.max_steps = 6; /* twice two of the critic and one of the generator */
    json_decref(run_live(job, "normed", weights));
    scratch_path(path, "normed/last.safetensors");
    assert_int_equal(safetensors_open(path, &file), OK);
    memcpy(&variance, safetensors_find(file, "generator.unit.bn.running_var")->data, sizeof variance);
    is("running_var", (double)variance, 0.9 * 0.9); /* it began at 1, and gray has none */
    safetensors_close(file);
    source_close(source);
}

TESTS_WITH(scratch_make, scratch_drop)
