/* One step of a model in the double-precision interpreter, written as 64-bit numbers: the definition of the op list and
 * its gradient rules, which scripts/parity/fidelity.py compares with PyTorch in float64.
 *
 *   reference_driver model=NAME input=FILE weights=FILE output=FILE [side=N] [classes=N] [aux=0] [passes=0]
 *
 * input: "pixels" U8 {n, side, side, 3} and "labels" I32 {n}. weights: each parameter as F64, convolutions in the order
 * {out, rows, columns, in}; so are the gradients, "grad.<name>", of output, beside "logits" and "loss" (the mean). */

#include "inception/models/models.h"
#include "tests/support/arguments.h"
#include "tests/support/interpret.h"
#include "towers/graph/program.h"
#include "towers/store/safetensors.h"

enum { TENSORS_MAX = 4096 };

typedef struct Driver {
    const char *input, *weights, *output;
    ProgramConfig config;
    int32_t n;
    SafeTensors *in, *parameters;
    Program program;
    Interpreter it;
    StTensor tensor[TENSORS_MAX]; /* borrowed data, owned names */
    int count;
} Driver;

static Status arguments_read(int argc, char **argv, Driver *d)
{
    const Model *model;
    TRY(model_find(argument(argc, argv, "model", ""), &model));
    d->input = argument(argc, argv, "input", "");
    d->weights = argument(argc, argv, "weights", "");
    d->output = argument(argc, argv, "output", "");
    int side = (int)number_argument(argc, argv, "side", model->side),
        passes = (int)number_argument(argc, argv, "passes", 1);
    d->config = (ProgramConfig){
        .model = model,
        .options = {.classes = (int)number_argument(argc, argv, "classes", model->classes),
                    .side = side,
                    .channels = model->channels,
                    .aux = model->aux_weight > 0 && (int)number_argument(argc, argv, "aux", 1) > 0,
                    .variant = ""},
        .data_channels = model->channels,
        .canvas = side,
        .aux_weight = model->aux_weight,
        .training = true,
        .fuse_siblings = passes > 0,
        .pool_behind_conv = passes > 0,
    };
    return OK;
}

/* ---- what goes in */

static Status tensor_find(const SafeTensors *file, const char *path, const char *name, size_t bytes, const void **data)
{
    const StTensor *t = safetensors_find(file, name);
    if (!t || t->bytes != bytes) return FAIL(ERR_FORMAT, "%s: no %s of %zu bytes", path, name, bytes);
    *data = t->data;
    return OK;
}

static Status inputs_fill(Driver *d)
{
    const void *pixels, *labels;
    size_t count = (size_t)shape_count(graph_shape(d->program.graph, d->program.pixels));
    TRY(tensor_find(d->in, d->input, "pixels", count, &pixels));
    TRY(tensor_find(d->in, d->input, "labels", (size_t)d->n * sizeof(int32_t), &labels));
    for (size_t i = 0; i < count; i++) interpreter_data(&d->it, d->program.pixels)[i] = ((const uint8_t *)pixels)[i];
    for (int32_t i = 0; i < d->n; i++) {
        int32_t label;
        memcpy(&label, (const char *)labels + (size_t)i * sizeof label, sizeof label);
        interpreter_data(&d->it, d->program.labels)[i] = label;
    }
    interpreter_data(&d->it, d->program.dloss)[0] = 1.0 / d->n;
    return OK;
}

static Status parameters_fill(Driver *d)
{
    const Graph *g = d->program.graph;
    for (int32_t id = 1; id <= graph_value_count(g); id++) {
        const ValueInfo *info = graph_value(g, (Value){id});
        size_t bytes = (size_t)shape_count(info->shape) * sizeof(double);
        const void *data = NULL;
        if (info->role != ROLE_PARAM) continue;
        TRY(tensor_find(d->parameters, d->weights, info->name, bytes, &data));
        memcpy(interpreter_data(&d->it, (Value){id}), data, bytes);
    }
    return OK;
}

/* ---- what comes out */

static Status keep(Driver *d, const char *prefix, const char *name, const double *data, int64_t count)
{
    char *whole = NULL;
    if (d->count == TENSORS_MAX || asprintf(&whole, "%s%s", prefix, name) < 0) return FAIL(ERR_MEMORY, "%s", name);
    d->tensor[d->count++] = (StTensor){.name = whole,
                                       .dtype = ST_F64,
                                       .rank = 1,
                                       .dims = {count},
                                       .data = data,
                                       .bytes = (size_t)count * sizeof *data};
    return OK;
}

static Status results_keep(Driver *d)
{
    const Graph *g = d->program.graph;
    int softmax = 0;
    while (graph_op_at(g, softmax)->kind != OP_SOFTMAX_LOSS) softmax++;
    Value logits = graph_op_at(g, softmax)->in[0];
    double *loss = interpreter_data(&d->it, d->program.loss);
    *loss /= d->n;
    TRY(keep(d, "", "logits", interpreter_data(&d->it, logits), shape_count(graph_shape(g, logits))));
    TRY(keep(d, "", "loss", loss, 1));
    for (int32_t id = 1; id <= graph_value_count(g); id++) {
        const ValueInfo *info = graph_value(g, (Value){id});
        if (info->role != ROLE_PARAM) continue;
        double *grad = interpreter_gradient(&d->it, (Value){id});
        if (!grad) return FAIL(ERR_INTERNAL, "%s has no gradient", info->name);
        TRY(keep(d, "grad.", info->name, grad, shape_count(info->shape)));
    }
    return safetensors_replace(d->output, d->tensor, d->count, NULL, 0);
}

static Status drive(int argc, char **argv, Driver *d)
{
    TRY(arguments_read(argc, argv, d));
    TRY(safetensors_open(d->input, &d->in));
    TRY(safetensors_open(d->weights, &d->parameters));
    const StTensor *labels = safetensors_find(d->in, "labels");
    d->n = labels ? (int32_t)labels->dims[0] : 1;
    TRY(program_graph(&d->config, d->n, &d->program));
    d->it = interpreter_create(d->program.graph);
    TRY(inputs_fill(d));
    TRY(parameters_fill(d));
    interpreter_run(&d->it);
    return results_keep(d);
}

int main(int argc, char **argv)
{
    static Driver d;
    Status st = drive(argc, argv, &d);
    if (st != OK) status_print(stderr, st, 1);
    for (int i = 0; i < d.count; i++) free((char *)d.tensor[i].name);
    if (d.it.values) interpreter_destroy(&d.it);
    program_destroy(&d.program);
    safetensors_close(d.in);
    safetensors_close(d.parameters);
    return status_exit_code(st);
}
