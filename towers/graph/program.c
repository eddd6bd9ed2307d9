/* Building the program of one batch size; see program.h. */
#include "towers/graph/program.h"

_Static_assert((int)PHASES_MAX == (int)LAYOUT_PHASES && (int)PHASES_MAX == (int)GATE_PHASES, "a range for every phase");
_Static_assert((int)PHASE_TERMS == (int)GATE_TERMS, "extras for every term");

/* ---- phases */

int program_phases(const Model *model)
{
    return model->phases ? model->phase_count : 1;
}

const Phase *program_phase(const Model *model, int phase)
{
    static const Phase train = {.name = "train", .trains = "*", .repeats = 1, .takes_batch = true};
    return model->phases ? &model->phases[phase] : &train;
}

/* ---- a classifier */

/* Keeps the loss of one of several heads, for the record. */
static void head_keep(Graph *g, Program *p, Value loss)
{
    static const char *const names[MODEL_HEADS] = {"main_loss", "aux_loss.0", "aux_loss.1"};
    const char *name = names[p->term_count];
    graph_result(g, loss, name);
    p->term[p->term_count++] = (PhaseTerm){.name = name, .sum = loss};
}

static Value loss_of_head(Graph *g, const ProgramConfig *config, Value logits, const Program *p, Value *prob,
                          Value *correct)
{
    if (config->loss == LOSS_BCE)
        return sigmoid_loss(g, logits, p->labels, p->targets, p->positive_weight, config->multi_label, prob, correct);
    if (p->targets.id) return softmax_target_loss(g, logits, p->labels, p->targets, correct);
    return softmax_loss(g, logits, p->labels, config->smoothing, prob, correct);
}

static Value loss_of_heads(Graph *g, const ProgramConfig *config, const ModelHeads *heads, Program *p)
{
    graph_scope(g, "");
    Value *prob = config->training ? NULL : &p->prob;
    Value loss = loss_of_head(g, config, heads->logits, p, prob, &p->correct);
    if (heads->aux_count) head_keep(g, p, loss);
    for (int i = 0; i < heads->aux_count; i++) {
        Value aux = loss_of_head(g, config, heads->aux[i], p, NULL, NULL);
        head_keep(g, p, aux);
        loss = add(g, loss, affine(g, aux, config->aux_weight, 0));
    }
    return loss;
}

/* Class activation maps (Zhou et al., "Learning Deep Features for Discriminative Localization", CVPR 2016): the last layer
 * without its bias, applied to each place of the map whose average it reads. The mean over the places of the map of a class,
 * plus the bias, is its logit. */
static Value class_maps(Graph *g, const Op *last)
{
    static const OpAttr point = {.conv.window = {.kh = 1, .kw = 1, .stride_h = 1, .stride_w = 1}};
    int32_t writer = graph_value(g, last->in[0])->op;
    const Op *pool = writer >= 0 ? graph_op_at(g, writer) : NULL;
    Shape map = pool ? graph_shape(g, pool->in[0]) : (Shape){0};
    if (!pool || pool->kind != OP_AVG_POOL || pool->attr.pool.window.kh != map.h || pool->attr.pool.window.kw != map.w)
        return (Value){0};
    const Value in[] = {pool->in[0], last->in[1]};
    return graph_op(g, OP_CONV, "maps", in, 2, &point, NULL);
}

static void last_layer_keep(const ProgramConfig *config, Value logits, Program *p)
{
    Graph *g = p->graph;
    const char *name = config->model->name;
    int32_t writer = graph_value(g, logits)->op, side = config->options.side;
    const Op *last = writer >= 0 ? graph_op_at(g, writer) : NULL;
    if (!last || last->kind != OP_DENSE || config->compute != DTYPE_F32) {
        graph_fail(g, ERR_UNSUPPORTED, "%s has no %s in %s: its last layer must be dense, in f32 (--no-amp)", name,
                   config->maps ? "class activation maps" : "embeddings", dtype_name(config->compute));
        return;
    }
    if (config->features) p->features = last->in[0];
    if (!config->maps) return;
    p->maps = class_maps(g, last);
    if (!p->maps.id)
        graph_fail(
            g, ERR_UNSUPPORTED,
            "%s has no class activation maps at %d x %d pixels: its last layer does not read the average of a map of "
            "several places (a global average pool)",
            name, side, side);
}

static void classifier_build(const ProgramConfig *config, Value x, Program *p)
{
    ModelOptions options = config->options;
    ModelHeads heads = {0};
    options.aux = options.aux && (config->training || config->as_trained);
    config->model->build(p->graph, &options, config->model->networks, x, &heads);
    p->loss = loss_of_heads(p->graph, config, &heads, p);
    if (config->logits && !config->training) p->logits = heads.logits;
    if ((config->features || config->maps) && !config->training && !graph_failed(p->graph))
        last_layer_keep(config, heads.logits, p);
}

/* ---- any model */

static void phase_build(const ProgramConfig *config, Value x, Program *p)
{
    Graph *g = p->graph;
    PhaseInputs inputs = {.n = p->n, .image = x, .labels = p->labels};
    PhaseOutputs outputs = {0};
    inputs.counter = graph_input(g, "counter", (Shape){1, 4, 1, 1}, DTYPE_I32);
    program_phase(config->model, p->phase)->build(g, &config->options, config->model->networks, &inputs, &outputs);
    graph_scope(g, "");
    p->loss = outputs.loss;
    p->term_count = outputs.term_count;
    for (int i = 0; i < outputs.term_count; i++) {
        p->term[i] = outputs.term[i];
        graph_result(g, p->term[i].sum, p->term[i].name);
    }
}

static void inputs_make(const ProgramConfig *config, bool takes_batch, Program *p)
{
    Graph *g = p->graph;
    int32_t n = p->n, images = config->training && config->mixes ? n + 1 : n;
    if (takes_batch) {
        Shape pixels = {images, config->data_channels, config->canvas, config->canvas};
        p->pixels = graph_input(g, "pixels", pixels, DTYPE_U8);
        p->labels = graph_input(g, "labels", (Shape){n, 1, 1, 1}, DTYPE_I32);
    }
    if (takes_batch && config->training)
        p->augment = graph_input(g, "augment", (Shape){images, IMAGE_RECORD, 1, 1}, DTYPE_I32);
    if (takes_batch && config->training && config->positive_weight)
        p->positive_weight = graph_input(g, "positive_weight", (Shape){1, config->options.classes, 1, 1}, DTYPE_F32);
    if (takes_batch && (config->training || config->loss == LOSS_BCE) && config->targets)
        p->targets = graph_input(g, "targets", (Shape){n, config->options.classes, 1, 1}, DTYPE_F32);
    if (takes_batch && config->training && config->weighted)
        p->weight = graph_input(g, "weight", (Shape){1, 1, 1, 1}, DTYPE_F32);
    if (config->training) p->dloss = graph_input(g, "dloss", (Shape){1, 1, 1, 1}, DTYPE_F32);
}

static Status graph_build(const ProgramConfig *config, Program *p)
{
    Graph *g = p->graph;
    const Model *model = config->model;
    const ModelOptions *options = &config->options;
    const Phase *phase = program_phase(model, p->phase);
    Value x = {0};
    if (!config->training && model->phases)
        return FAIL(ERR_UNSUPPORTED, "%s has no evaluation: it predicts no classes", model->name);
    inputs_make(config, phase->takes_batch, p);
    if (phase->takes_batch)
        x = images_mixed(g, p->n, p->pixels, p->augment, options->channels, options->side, model_mean(model, options),
                         model_std(model, options));
    if (model->phases)
        phase_build(config, x, p);
    else
        classifier_build(config, x, p);
    if (p->weight.id) p->weight_sum = affine(g, p->weight, 1, 0);
    Value *const held[] = {&p->pixels,          &p->labels,   &p->targets, &p->weight,  &p->augment,
                           &p->positive_weight, &p->dloss,    &p->loss,    &p->correct, &p->prob,
                           &p->weight_sum,      &p->features, &p->maps,    &p->logits};
    enum { KEEP = sizeof held / sizeof *held };
    Value keep[KEEP];
    int changed;
    for (int i = 0; i < KEEP; i++) keep[i] = *held[i];
    if (config->pool_behind_conv) TRY(pass_pool_behind_conv(g, keep, KEEP, &changed));
    if (config->fuse_siblings) TRY(pass_sibling_convs(g, keep, KEEP, &changed));
    for (int i = 0; i < KEEP; i++) *held[i] = keep[i];
    graph_result(g, p->loss, "loss");
    if (p->correct.id) graph_result(g, p->correct, "correct");
    if (p->weight_sum.id) graph_result(g, p->weight_sum, "weight_sum");
    if (!config->training) graph_result(g, p->prob, "prob");
    if (p->features.id) graph_result(g, p->features, "features");
    if (p->maps.id) graph_result(g, p->maps, "maps");
    if (p->logits.id) graph_result(g, p->logits, "logits");
    p->forward_end = graph_op_count(g);
    NameFilter trains = {.only = phase->trains, .except = config->freeze};
    if (config->training) graph_train(g, p->loss, p->dloss, &trains);
    if (config->training && config->recompute) TRY(pass_recompute(g, p->forward_end, &p->recomputed));
    p->counter = graph_find(g, "counter");
    return graph_finish(g);
}

ProgramConfig program_training(const ProgramConfig *config)
{
    ProgramConfig made = *config;
    made.training = true;
    if (!made.train_side) return made;
    made.canvas += made.train_side - made.options.side;
    made.options.side = made.train_side;
    made.train_side = 0;
    return made;
}

Status program_graph(const ProgramConfig *config, int32_t n, Program *program)
{
    Status st = OK;
    ProgramConfig run = config->training ? program_training(config) : *config;
    GraphOptions options = {.training = run.training, .compute = run.compute, .freeze = run.freeze};
    *program = (Program){.n = n, .phase = run.phase};
    TRY(graph_create(&options, &program->graph));
    TRY_OUT(graph_build(&run, program));
out:
    if (st != OK) program_destroy(program);
    return st;
}

Status program_layout(const ProgramConfig *config, int32_t n, Layout **layout)
{
    Status st = OK;
    ProgramConfig phase = *config;
    Program program[PHASES_MAX] = {0};
    const Graph *graph[PHASES_MAX];
    int count = program_phases(config->model);
    phase.training = true;
    for (phase.phase = 0; phase.phase < count; phase.phase++) {
        TRY_OUT(program_graph(&phase, n, &program[phase.phase]));
        graph[phase.phase] = program[phase.phase].graph;
    }
    TRY_OUT(layout_create_phases(graph, count, layout));
out:
    for (int i = 0; i < PHASES_MAX; i++) program_destroy(&program[i]);
    return st;
}

/* In f16 scaled weights may leave its range; where bf16 is no faster for it, nothing is gained. */
static bool folds(const ProgramConfig *config, const Backend *backend)
{
    if (config->training || config->as_trained) return false;
    return config->compute == DTYPE_F32 || (config->compute == DTYPE_BF16 && backend->conv_ends);
}

/* The graph as it runs. In an evaluation siblings are not fused: each convolution writes its own part of a concat, and has
 * its own ReLU. */
static Status running_graph(const ProgramConfig *config, int32_t n, const Backend *backend, Program *program)
{
    ProgramConfig apart = *config;
    if (!folds(config, backend)) return program_graph(config, n, program);
    apart.fuse_siblings = false;
    TRY(program_graph(&apart, n, program));
    Status st = pass_fold_norms(program->graph, &program->fold_end);
    if (st != OK) program_destroy(program);
    return st;
}

Status program_create(const ProgramConfig *config, int32_t n, const Layout *layout, Device *device, Program *program)
{
    Status st = OK;
    PlanOptions options = {.no_alias = config->separate_storage};
    TRY(running_graph(config, n, device->backend, program));
    if (config->training && config->norm_into_pool && device->backend->op_time)
        TRY_OUT(pass_norm_into_pool(program->graph, device, &program->forward_end, &program->pools));
    TRY_OUT(plan_create(program->graph, layout, device, &options, &program->plan));
out:
    if (st != OK) program_destroy(program);
    return st;
}

Status program_measure(const ProgramConfig *config, int32_t n, const Layout *layout, const Backend *backend,
                       size_t bytes[ARENA_COUNT])
{
    Program program;
    PlanOptions options = {.no_alias = config->separate_storage};
    TRY(running_graph(config, n, backend, &program));
    Status st = plan_measure(program.graph, layout, backend, &options, bytes);
    program_destroy(&program);
    return st;
}

void program_destroy(Program *program)
{
    plan_destroy(program->plan);
    graph_destroy(program->graph);
    memset(program, 0, sizeof *program);
}
