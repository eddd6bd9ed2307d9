/* Weights trained elsewhere; see pretrained.h. A classifier is the last product whose output a loss reads: a dense layer, or a
 * convolution before the average over its places (SqueezeNet). */
#include "towers/store/pretrained.h"

/* ---- the heads of a network */

static const Op *writer_of(const Graph *g, Value v)
{
    int32_t writer = graph_value(g, v)->op;
    return writer >= 0 ? graph_op_at(g, writer) : NULL;
}

enum { WEIGHT, GAIN, WEIGHT_PARTS };

/* The parameters of which an op computes the weights of a product, each once: the weights themselves come first, then their gain. */
static void weight_parts(const Graph *g, Value v, const char *part[WEIGHT_PARTS])
{
    const ValueInfo *info = graph_value(g, v);
    const Op *op = writer_of(g, v);
    for (int i = 0; op && i < op->in_count; i++)
        if (op->in[i].id) weight_parts(g, op->in[i], part);
    if (info->role != ROLE_PARAM) return;
    int i = 0;
    while (i < WEIGHT_PARTS && part[i] && strcmp(part[i], info->name) != 0) i++;
    if (i < WEIGHT_PARTS) part[i] = info->name;
}

/* What leaves the classes where they are, between the product and the loss: pools, a factor of all logits. */
static bool is_behind_head(const Op *op)
{
    return op->kind == OP_AVG_POOL || op->kind == OP_RELU || op->kind == OP_RESHAPE || op->kind == OP_AFFINE ||
           op->kind == OP_MUL;
}

static void head_add(const Graph *g, Value logits, bool layers, HeadNames *heads)
{
    const char *part[WEIGHT_PARTS] = {NULL};
    const Op *op = writer_of(g, logits);
    while (op && is_behind_head(op)) op = writer_of(g, op->in[0]);
    if (!op || (op->kind != OP_DENSE && op->kind != OP_CONV) || heads->count == 3) return;
    weight_parts(g, op->in[1], part);
    if (!part[WEIGHT]) return;
    int index = heads->count++;
    const char *weight = part[WEIGHT], *last = strrchr(weight, '.');
    /* "AuxLogits.fc.weight" -> "AuxLogits.fc." */
    int bytes = layers && last ? (int)(last - weight) + 1 : 0;
    snprintf(heads->weight[index], sizeof heads->weight[index], "%s", weight);
    snprintf(heads->layer[index], sizeof heads->layer[index], "%.*s", bytes, weight);
    if (op->in[2].id) snprintf(heads->bias[index], sizeof heads->bias[index], "%s", graph_value(g, op->in[2])->name);
    if (part[GAIN]) snprintf(heads->gain[index], sizeof heads->gain[index], "%s", part[GAIN]);
    if (index) snprintf(heads->part[index], sizeof heads->part[index], "%.*s", (int)strcspn(weight, ".") + 1, weight);
}

/* At its canonical size, with all its heads. */
static Status whole_program(const ProgramConfig *config, Program *program)
{
    ProgramConfig whole = *config;
    whole.training = true;
    whole.options.side = whole.canvas = config->model->side;
    whole.train_side = 0;
    whole.options.aux = config->model->aux_weight > 0;
    if (whole.options.classes <= 0) whole.options.classes = 2; /* not known yet; names do not depend on them */
    return program_graph(&whole, 1, program);
}

static void heads_find(const Program *program, const Model *model, HeadNames *heads)
{
    bool layers = !model->file;
    *heads = (HeadNames){0};
    for (int i = 0; i < program->forward_end; i++) {
        const Op *op = graph_op_at(program->graph, i);
        if (op->kind == OP_SOFTMAX_LOSS || op->kind == OP_SIGMOID_LOSS)
            head_add(program->graph, op->in[0], layers, heads);
    }
}

Status head_names(const ProgramConfig *config, HeadNames *heads)
{
    Program program;
    TRY(whole_program(config, &program));
    heads_find(&program, config->model, heads);
    program_destroy(&program);
    return OK;
}

/* The result points into `heads`. */
static WeightRules head_rules(const HeadNames *heads, bool reset_head)
{
    WeightRules rules = {0};
    int layers = 0, names = 0;
    for (int i = 0; reset_head && i < heads->count; i++) {
        if (*heads->layer[i]) rules.reset[layers++] = heads->layer[i];
        rules.reset_names[names++] = heads->weight[i];
        if (*heads->bias[i]) rules.reset_names[names++] = heads->bias[i];
        if (*heads->gain[i]) rules.reset_names[names++] = heads->gain[i];
    }
    for (int i = 1; i < heads->count; i++) rules.optional[i - 1] = heads->part[i];
    return rules;
}

/* ---- reading */

/* Names of other programs become the network's. */
static Status names_adopt(const ProgramConfig *config, SafeTensors *file)
{
    return config->model->renames ? safetensors_rename(file, config->model->renames) : OK;
}

Status pretrained_narrow(const ProgramConfig *config, HeadUse use, const char *path, SafeTensors *file,
                         WeightPart *part)
{
    Status st = OK;
    HeadNames heads;
    Layout *layout = NULL;
    Program program;
    TRY(names_adopt(config, file));
    TRY(whole_program(config, &program));
    heads_find(&program, config->model, &heads);
    TRY_OUT(layout_create(program.graph, &layout));
    WeightMap map = weight_map(layout);
    WeightRules rules = head_rules(&heads, use == HEAD_RESET);
    TRY_OUT(weights_narrow(&map, &rules, path, config->weights_key, file, part));
out:
    layout_destroy(layout);
    program_destroy(&program);
    return st;
}

Status pretrained_open(const ProgramConfig *config, HeadUse use, const char *path, SafeTensors **file, WeightPart *part)
{
    SafeTensors *made;
    TRY(weights_open(path, &made));
    Status st = pretrained_narrow(config, use, path, made, part);
    if (st == OK)
        *file = made;
    else
        safetensors_close(made);
    return st;
}

int32_t file_channels(const SafeTensors *file, const ProgramConfig *config)
{
    Program program;
    const Model *model = config->model;
    const char *channels = safetensors_metadata(file, "channels");
    int32_t found = model->channels;
    if (channels && (!strcmp(channels, "1") || !strcmp(channels, "3"))) return channels[0] - '0';
    if (!model->build || whole_program(config, &program) != OK) return found;
    for (int id = 1; id <= graph_value_count(program.graph); id++) {
        const ValueInfo *info = graph_value(program.graph, (Value){id});
        if (info->role != ROLE_PARAM) continue;
        const StTensor *first = safetensors_find(file, info->name);
        if (first && first->rank == 4 && (first->dims[1] == 1 || first->dims[1] == 3)) found = (int32_t)first->dims[1];
        break;
    }
    program_destroy(&program);
    return found;
}

int head_classes(const SafeTensors *file, const char *weight)
{
    const StTensor *t = safetensors_find(file, weight);
    bool matrix = t && (t->rank == 2 || t->rank == 4);
    return matrix && t->dims[0] > 0 && t->dims[0] <= 1000000 ? (int)t->dims[0] : 0;
}

static Status refusal(const char *path, const ProgramConfig *config, const HeadNames *heads, const SafeTensors *file,
                      HeadUse use, const WeightMatch *match)
{
    char head[256] = "";
    int found = head_classes(file, heads->weight[0]), wanted = config->options.classes;
    if (found && found != wanted)
        snprintf(head, sizeof head, "\n  the file's classifier has %d classes, this model's %d: use --classes %d%s",
                 found, wanted, found, use == HEAD_READ_OR_RESET ? ", or --reset-head to train a new classifier" : "");
    return FAIL(ERR_CHECKPOINT, "%s does not hold the weights of this %s: %d missing, %d mismatched, %d extra%s\n%s",
                path, config->model->name, match->missing, match->mismatched, match->extra, head, match->table);
}

/* The standard deviation of a parameter's initial values. */
static double init_deviation(Init init)
{
    switch (init.kind) {
    case INIT_UNIFORM: return init.a / sqrt(3);
    case INIT_TRUNCATED_NORMAL: return 0.88 * init.a; /* of a normal distribution that is cut at two deviations */
    case INIT_NORMAL: return init.a;
    default: return 0;
    }
}

/* A new classifier behind trained features begins with a deviation of 1 / sqrt(inputs) at most (LeCun et al., "Efficient
 * BackProp", 1998), so that its outputs are no larger than the features. Some networks draw it wider where all else begins at
 * random, too (EfficientNet: within 1 / sqrt(classes), 0.7 for two); here that would be a loss of several times chance, whose
 * gradients spoil what the features have learned. */
static void head_narrow(const LayoutEntry *weight, float *params)
{
    double inputs = (double)weight->count / weight->shape.n;
    double wanted = 1 / sqrt(inputs), drawn = init_deviation(weight->init);
    for (size_t i = 0; drawn > wanted && i < weight->count; i++) params[weight->first + i] *= (float)(wanted / drawn);
}

static void heads_narrow(const WeightMap *map, const HeadNames *heads, float *params)
{
    for (int i = 0; i < map->count; i++)
        for (int h = 0; h < heads->count; h++)
            if (!strcmp(map->layout->params[i].name, heads->weight[h])) head_narrow(&map->layout->params[i], params);
}

Status pretrained_read(const WeightMap *map, const ProgramConfig *config, const char *path, HeadUse use, float *params,
                       float *running, PretrainedNotes *notes)
{
    Status st = OK;
    SafeTensors *file = NULL;
    HeadNames heads;
    WeightMatch match;
    WeightPart part;
    TRY(head_names(config, &heads));
    WeightRules rules = head_rules(&heads, use == HEAD_RESET);
    TRY_OUT(weights_open(path, &file));
    TRY_OUT(names_adopt(config, file));
    TRY_OUT(weights_narrow(map, &rules, path, config->weights_key, file, &part));
    TRY_OUT(weights_unpack(map, "", file, &rules, params, running, &match));
    if (match.missing || match.mismatched || match.extra)
        st = refusal(path, config, &heads, file, use, &match);
    else if (match.spoiled)
        st = weights_spoiled(path, &match);
    if (use == HEAD_RESET) heads_narrow(map, &heads, params);
    if (notes) {
        *notes = (PretrainedNotes){.part = part};
        snprintf(notes->absent, sizeof notes->absent, "%s", match.absent);
    }
out:
    safetensors_close(file);
    return st;
}

/* ---- checks before a run */

static Status freeze_check(const char *patterns, const Model *model, const Layout *layout)
{
    int matched = 0;
    for (int i = 0; i < layout->param_count; i++) matched += names_match(patterns, layout->params[i].name);
    for (int p = 0; p < layout->phase_count && matched && matched < layout->param_count; p++)
        if (!layout->phase[p].param_count)
            return FAIL(ERR_ARG, "--freeze '%s' leaves the phase %s nothing to train", patterns,
                        program_phase(model, p)->name);
    if (matched == layout->param_count)
        return FAIL(ERR_ARG, "--freeze '%s' matches all parameters and leaves nothing to train", patterns);
    return matched ? OK
                   : FAIL(ERR_ARG,
                          "--freeze '%s' matches no parameter; parameters have names like %s ('towers info MODEL' "
                          "lists the layers)",
                          patterns, layout->params[layout->param_count - 1].name);
}

static Status file_check(const ProgramConfig *config, const char *path, bool reset_head, const Layout *layout,
                         PretrainedNotes *notes)
{
    Status st = OK;
    WeightMap map = weight_map(layout);
    float *params = calloc(layout->param_elements + 1, sizeof *params),
          *running = calloc(layout->running_elements + 1, sizeof *running);
    if (!params || !running)
        TRY_OUT(FAIL(ERR_MEMORY, "no memory for a copy of the weights (%zu MiB)",
                     layout->param_elements * sizeof *params >> 20));
    TRY_OUT(pretrained_read(&map, config, path, reset_head ? HEAD_RESET : HEAD_READ_OR_RESET, params, running, notes));
out:
    free(params);
    free(running);
    return st;
}

Status pretrained_check(const ProgramConfig *program, const char *path, bool reset_head, PretrainedNotes *notes)
{
    Status st = OK;
    Layout *layout = NULL;
    if (notes) *notes = (PretrainedNotes){0};
    if (reset_head && !path) return FAIL(ERR_ARG, "--reset-head has no effect without --pretrained");
    if (program->weights_key && !path) return FAIL(ERR_ARG, "--weights-key has no effect without --pretrained");
    if (!path && !program->freeze) return OK;
    TRY(program_layout(program, 1, &layout));
    if (program->freeze) TRY_OUT(freeze_check(program->freeze, program->model, layout));
    if (path) TRY_OUT(file_check(program, path, reset_head, layout, notes));
out:
    layout_destroy(layout);
    return st;
}
