/* Building the program of one batch size; see program.h. */
#include "towers/graph/program.h"

#include <string.h>

/* Keeps the loss of one of several heads, for the record. */
static void head_keep(Graph *g, Program *p, Value loss)
{
    char name[32] = "main_loss";
    if (p->head_count) snprintf(name, sizeof name, "aux_loss.%d", p->head_count - 1);
    graph_result(g, loss, name);
    p->head[p->head_count++] = loss;
}

static Value loss_of_heads(Graph *g, const ProgramConfig *config, const ModelHeads *heads, Program *p)
{
    graph_scope(g, "");
    Value *prob = config->training ? NULL : &p->prob;
    Value loss = softmax_loss(g, heads->logits, p->labels, config->smoothing, prob, &p->hits);
    if (heads->aux_count) head_keep(g, p, loss);
    for (int i = 0; i < heads->aux_count; i++) {
        Value aux = softmax_loss(g, heads->aux[i], p->labels, config->smoothing, NULL, NULL);
        head_keep(g, p, aux);
        loss = add(g, loss, affine(g, aux, config->aux_weight, 0));
    }
    return loss;
}

static Status passes_run(Graph *g, const ProgramConfig *config, Program *p)
{
    Value keep[] = {p->pixels, p->labels, p->augment, p->dloss, p->loss, p->hits, p->prob};
    enum { KEEP = sizeof keep / sizeof *keep };
    int changed;
    if (config->pool_behind_conv) TRY(pass_pool_behind_conv(g, keep, KEEP, &changed));
    if (config->fuse_siblings) TRY(pass_sibling_convs(g, keep, KEEP, &changed));
    p->pixels = keep[0];
    p->labels = keep[1];
    p->augment = keep[2];
    p->dloss = keep[3];
    p->loss = keep[4];
    p->hits = keep[5];
    p->prob = keep[6];
    return OK;
}

static Status graph_build(const ProgramConfig *config, int32_t n, Program *p)
{
    Graph *g = p->graph;
    const Model *model = config->model;
    ModelOptions options = config->options;
    options.aux = options.aux && config->training;
    p->pixels = graph_input(g, "pixels", (Shape){n, config->data_channels, config->canvas, config->canvas}, DTYPE_U8);
    p->labels = graph_input(g, "labels", (Shape){n, 1, 1, 1}, DTYPE_I32);
    if (config->training) {
        p->augment = graph_input(g, "augment", (Shape){n, IMAGE_RECORD, 1, 1}, DTYPE_I32);
        p->dloss = graph_input(g, "dloss", (Shape){1, 1, 1, 1}, DTYPE_F32);
    }
    Value x = image(g, p->pixels, p->augment, options.channels, options.side, model->mean, model->std);
    ModelHeads heads = {0};
    model->build(g, &options, x, &heads);
    p->loss = loss_of_heads(g, config, &heads, p);
    TRY(passes_run(g, config, p));
    graph_result(g, p->loss, "loss");
    graph_result(g, p->hits, "hits");
    if (!config->training) graph_result(g, p->prob, "prob");
    p->forward_end = graph_op_count(g);
    NameFilter trains = {.except = config->freeze};
    if (config->training) graph_train(g, p->loss, p->dloss, &trains);
    if (config->training && config->recompute) TRY(pass_recompute(g, p->forward_end, &p->recomputed));
    p->counter = graph_find(g, "counter");
    return graph_finish(g);
}

Status program_graph(const ProgramConfig *config, int32_t n, Program *program)
{
    Status st = OK;
    GraphOptions options = {.training = config->training, .compute = config->compute, .freeze = config->freeze};
    *program = (Program){.n = n};
    TRY(graph_create(&options, &program->graph));
    TRY_OUT(graph_build(config, n, program));
out:
    if (st != OK) program_destroy(program);
    return st;
}

Status program_create(const ProgramConfig *config, int32_t n, const Layout *layout, Device *device, Program *program)
{
    Status st = OK;
    PlanOptions options = {.no_alias = config->separate_storage};
    TRY(program_graph(config, n, program));
    if (config->training)
        TRY_OUT(fuse_graph(program->graph, config->fuse, device, &program->forward_end, &program->fusion));
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
    TRY(program_graph(config, n, &program));
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
