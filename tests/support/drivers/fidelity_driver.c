/* Runs training steps of a model on given weights and images and writes the results, for scripts/parity/fidelity.py, which does
 * the same in PyTorch and compares.
 *
 *   fidelity_driver model=NAME input=FILE output=FILE [weights=FILE] [variant=NAME] [side=N] [classes=N] [aux=0]
 * [passes=0] [lr=X] [momentum=X] [weight_decay=X] [smoothing=X] [aux_weight=X] [threads=N] [device=cuda] [tf32=1]
 * [deterministic=1] [winograd=1] [winograd_f32=0] [compute=f32] [loss_scale=1]
 *
 * input: "pixels" U8 {steps, n, side, side, 3} and "labels" I32 {steps, n}. Without weights, the starting values of
 * seed 0. output: of the first step "logits", "aux_logits.<i>" F32 {n, classes}, "loss", "l2", "main_loss",
 * "aux_loss.<i>" F32 (means over the samples), "grad.<name>" of every parameter and "state.<name>" of every running
 * statistic afterwards; "after.<name>" of both after the last step, as a state dict. Dropout is off.
 * Gradients are written without the loss scale. The model may be an ONNX file, whose weights are those of weights=FILE, too. */

#include "inception/models/models.h"
#include "inception/networks/net_file.h"
#include "kernels/base/array.h"
#include "tests/support/arguments.h"
#include "tests/support/reference.h"
#include "towers/files/files.h"
#include "towers/replica/replica.h"
#include "towers/store/weights.h"

enum { HEADS = 3 };

typedef struct Driver {
    const char *input, *output, *weights;
    double lr, loss_scale;
    ReplicaConfig config;
    /* state */
    SafeTensors *file;
    const StTensor *pixels, *labels;
    int64_t steps;
    int32_t n;
    NetFile *network; /* NULL: a model of this program */
    Replica *replica;
    WeightMap map;
    WeightList list;
} Driver;

/* ---- arguments */

static Status arguments_read(int argc, char **argv, Driver *d)
{
    const Model *model;
    const char *name = argument(argc, argv, "model", "");
    if (ends_with(name, ".onnx")) {
        TRY(net_file_open(name, &d->network));
        model = net_file_model(d->network);
    } else {
        TRY(model_find(name, &model));
    }
    TRY(backend_find(argument(argc, argv, "device", "cpu"), &d->config.backend, NULL, 0));
    d->input = argument(argc, argv, "input", NULL);
    d->output = argument(argc, argv, "output", NULL);
    d->weights = argument(argc, argv, "weights", NULL);
    if (!d->input || !d->output) return FAIL(ERR_ARG, "input=FILE and output=FILE are needed");
    bool passes = number_argument(argc, argv, "passes", 1) > 0, aux = number_argument(argc, argv, "aux", 1) > 0;
    d->lr = number_argument(argc, argv, "lr", 0.01);
    d->loss_scale = number_argument(argc, argv, "loss_scale", 1);
    Dtype compute = DTYPE_F32;
    const char *wanted = argument(argc, argv, "compute", "f32");
    while (compute <= DTYPE_F16 && strcmp(wanted, dtype_name(compute)) != 0) compute++;
    if (compute > DTYPE_F16) return FAIL(ERR_ARG, "compute=%s: wanted f32, f16 or bf16", wanted);
    d->config.local = 1;
    d->config.device = (DeviceConfig){DEVICE_USUAL};
    d->config.device.threads = (int)number_argument(argc, argv, "threads", 2);
    d->config.device.tf32 = number_argument(argc, argv, "tf32", 0) > 0;
    d->config.device.winograd = number_argument(argc, argv, "winograd", 0) > 0;
    d->config.device.winograd_f32 = number_argument(argc, argv, "winograd_f32", 1) > 0;
    d->config.device.deterministic = number_argument(argc, argv, "deterministic", 0) > 0;
    d->config.weight_decay = number_argument(argc, argv, "weight_decay", 0);
    d->config.optimizer.momentum = (float)number_argument(argc, argv, "momentum", 0);
    int32_t side = (int32_t)number_argument(argc, argv, "side", model->side);
    d->config.program = (ProgramConfig){
        .model = model,
        .options = {.classes = (int)number_argument(argc, argv, "classes", model->classes),
                    .side = side,
                    .channels = model->channels,
                    .aux = aux && model->aux_weight > 0,
                    .variant = argument(argc, argv, "variant", "")},
        .data_channels = model->channels,
        .canvas = side,
        .compute = compute,
        .smoothing = (float)number_argument(argc, argv, "smoothing", 0),
        .aux_weight = (float)number_argument(argc, argv, "aux_weight", model->aux_weight),
        .fuse_siblings = passes,
        .pool_behind_conv = passes,
        .norm_into_pool = passes,
    };
    return OK;
}

static Status input_open(Driver *d)
{
    const ModelOptions *options = &d->config.program.options;
    TRY(safetensors_open(d->input, &d->file));
    d->pixels = safetensors_find(d->file, "pixels");
    d->labels = safetensors_find(d->file, "labels");
    bool fits = d->pixels && d->labels && d->pixels->dtype == ST_U8 && d->pixels->rank == 5 &&
                d->labels->dtype == ST_I32 && d->labels->rank == 2 && d->pixels->dims[2] == options->side &&
                d->pixels->dims[3] == options->side && d->pixels->dims[4] == options->channels &&
                d->labels->dims[0] == d->pixels->dims[0] && d->labels->dims[1] == d->pixels->dims[1];
    if (!fits)
        return FAIL(ERR_FORMAT, "%s: wanted pixels U8 {steps, n, %d, %d, %d} and labels I32 {steps, n}", d->input,
                    options->side, options->side, options->channels);
    d->steps = d->pixels->dims[0];
    d->n = (int32_t)d->pixels->dims[1];
    return OK;
}

/* ---- memory of the device */

static Status fetch(Driver *d, const void *from, size_t count, float **made)
{
    const Backend *backend = d->config.backend;
    float *host = malloc((count ? count : 1) * sizeof *host);
    if (!host) return FAIL(ERR_MEMORY, "%zu values", count);
    *made = host;
    TRY(backend->download(&d->replica->device, host, from, count * sizeof *host));
    return backend->finish(&d->replica->device, STREAM_COMPUTE);
}

static Status weights_load(Driver *d)
{
    Status st = OK;
    Replica *r = d->replica;
    const Backend *backend = d->config.backend;
    SafeTensors *file = NULL;
    float *params = NULL, *states = NULL;
    if (!d->weights) return OK;
    TRY(safetensors_open(d->weights, &file));
    TRY_OUT(fetch(d, r->arena[ARENA_PARAM], r->layout->param_elements, &params));
    TRY_OUT(fetch(d, r->running[0], r->layout->running_elements, &states));
    TRY_OUT(weights_unpack_exact(&d->map, "", file, params, states));
    TRY_OUT(backend->upload(&r->device, r->arena[ARENA_PARAM], params, r->layout->param_elements * sizeof *params));
    TRY_OUT(backend->upload(&r->device, r->running[0], states, r->layout->running_elements * sizeof *states));
    TRY_OUT(backend->finish(&r->device, STREAM_COMPUTE));
out:
    free(params);
    free(states);
    safetensors_close(file);
    return st;
}

/* ---- what is written down */

/* Append a tensor {rows, columns} (a scalar if both are 0) to the list; takes `data`. */
static Status list_floats(Driver *d, const char *name, int64_t rows, int64_t columns, float *data)
{
    size_t count = rows ? (size_t)(rows * columns) : 1;
    TRY(array_grow(&d->list.tensor, d->list.count, sizeof *d->list.tensor, "a list of tensors"));
    char *copy = strdup(name);
    if (!copy) return FAIL(ERR_MEMORY, "tensor %s", name);
    d->list.tensor[d->list.count++] = (StTensor){.name = copy,
                                                 .dtype = ST_F32,
                                                 .rank = rows ? 2 : 0,
                                                 .dims = {rows, columns},
                                                 .data = data,
                                                 .bytes = count * sizeof *data};
    return OK;
}

static Status list_scalar(Driver *d, const char *name, double value)
{
    float *data = malloc(sizeof *data);
    if (!data) return FAIL(ERR_MEMORY, "tensor %s", name);
    *data = (float)value;
    return list_floats(d, name, 0, 0, data);
}

/* "main_loss", or "aux_loss.<i>": a head's tensor by its place among the losses. */
static const char *head_name(const char *main, const char *aux, int head, char text[32])
{
    snprintf(text, 32, head ? "%s.%d" : "%s", head ? aux : main, head - 1);
    return text;
}

/* Right after the op that wrote it: logits do not outlive the loss. */
static Status logits_keep(Driver *d, const Program *program, Value logits, int head)
{
    char name[32];
    float *data;
    Tensor t = plan_tensor(program->plan, logits);
    int64_t count = shape_count(t.shape);
    TRY(fetch(d, t.data, ((size_t)count * dtype_bytes(t.dtype) + 3) / 4, &data));
    float *plain = malloc((size_t)count * sizeof *plain);
    for (int64_t i = 0; plain && i < count; i++) plain[i] = (float)dtype_load(t.dtype, data, i);
    free(data);
    if (!plain) return FAIL(ERR_MEMORY, "%" PRId64 " logits", count);
    return list_floats(d, head_name("logits", "aux_logits", head, name), t.shape.n, t.shape.c, plain);
}

static Status loss_keep(Driver *d, const Program *program, Value loss, int head)
{
    char name[32];
    float *data;
    TRY(fetch(d, plan_tensor(program->plan, loss).data, 1, &data));
    *data /= (float)program->n;
    return list_floats(d, head_name("main_loss", "aux_loss", head, name), 0, 0, data);
}

/* The loss ops of the forward pass, the main head's first. */
static int losses_find(const Program *program, int losses[HEADS])
{
    int count = 0;
    for (int i = 0; i < program->forward_end && count < HEADS; i++)
        if (graph_op_at(program->graph, i)->kind == OP_SOFTMAX_LOSS) losses[count++] = i;
    return count;
}

static Status forward_kept(Driver *d, const Program *program)
{
    int losses[HEADS], heads = losses_find(program, losses);
    for (int i = 0; i < program->forward_end; i++) {
        TRY(plan_run(program->plan, i, i + 1));
        for (int h = 0; h < heads; h++) {
            const Op *op = graph_op_at(program->graph, losses[h]);
            if (graph_value(program->graph, op->in[0])->op == i) TRY(logits_keep(d, program, op->in[0], h));
            if (losses[h] == i) TRY(loss_keep(d, program, op->out[0], h));
        }
    }
    return OK;
}

static Status l2_read(Replica *r, double *l2)
{
    const Backend *backend = r->device.backend;
    void *term = NULL;
    TRY(backend->alloc(&r->device, sizeof *l2, &term));
    Status st = replica_l2_term(r, 0, term);
    if (st == OK) st = backend->download(&r->device, l2, term, sizeof *l2);
    if (st == OK) st = backend->finish(&r->device, STREAM_COMPUTE);
    backend->release(&r->device, term);
    return st;
}

static Status first_step_keep(Driver *d, const Program *program)
{
    Status st = OK;
    Replica *r = d->replica;
    float *grads = NULL;
    double l2 = 0;
    LossRead read;
    TRY_OUT(fetch(d, r->arena[ARENA_GRAD], r->layout->param_elements, &grads));
    for (size_t i = 0; i < r->layout->param_elements; i++) grads[i] /= (float)d->loss_scale;
    TRY_OUT(weights_pack(&d->map, "grad.", grads, &d->list));
    TRY_OUT(replica_read_loss(r, program, &read));
    TRY_OUT(l2_read(r, &l2));
    TRY_OUT(list_scalar(d, "loss", read.sum / program->n));
    TRY_OUT(list_scalar(d, "l2", l2));
out:
    free(grads);
    return st;
}

static Status states_keep(Driver *d, const char *prefix, int64_t tracked)
{
    float *states = NULL;
    Status st = fetch(d, d->replica->running[0], d->replica->layout->running_elements, &states);
    if (st == OK) st = running_pack(&d->map, prefix, states, tracked, &d->list);
    free(states);
    return st;
}

static Status weights_keep(Driver *d)
{
    float *params = NULL;
    Status st = fetch(d, d->replica->arena[ARENA_PARAM], d->replica->layout->param_elements, &params);
    if (st == OK) st = weights_pack(&d->map, "after.", params, &d->list);
    free(params);
    TRY(st);
    return states_keep(d, "after.", d->steps);
}

/* ---- steps */

static Batch batch_of(const Driver *d, int64_t step, const int32_t *augment)
{
    int32_t side = d->config.program.options.side, channels = d->config.program.options.channels;
    size_t image = (size_t)side * (size_t)side * (size_t)channels;
    return (Batch){
        .step = step,
        .n = d->n,
        .canvas = side,
        .c = channels,
        .pixels = (const uint8_t *)d->pixels->data + (size_t)(step * d->n) * image,
        .labels = (const int32_t *)d->labels->data + step * d->n,
        .augment = augment,
    };
}

static Status step_run(Driver *d, int64_t step, const int32_t *augment)
{
    Program *program = replica_program(d->replica, 0, d->n);
    Batch batch = batch_of(d, step, augment);
    bool fed = true;
    OptimizerScalars now = {.lr = (float)d->lr,
                            .grad_scale = (float)(1 / d->loss_scale),
                            .bn_decay = 0.9f,
                            .step = (float)(step + 1),
                            .commit = 1};
    TRY(replica_feed(d->replica, program, &batch, 0, &(RandomKey){0}, (float)(d->loss_scale / d->n)));
    if (step == 0)
        TRY(forward_kept(d, program));
    else
        TRY(plan_run(program->plan, 0, program->forward_end));
    TRY(plan_run(program->plan, program->forward_end, plan_op_count(program->plan)));
    if (step == 0) TRY(first_step_keep(d, program));
    TRY(d->replica->device.backend->upload(&d->replica->device, d->replica->scalars, &now, sizeof now));
    TRY(replica_update(d->replica, 0, &fed));
    TRY(d->replica->device.backend->finish(&d->replica->device, STREAM_COMPUTE));
    return step == 0 ? states_keep(d, "state.", -1) : OK;
}

static Status drive(int argc, char **argv, Driver *d)
{
    Status st = OK;
    int32_t *augment = NULL;
    TRY(arguments_read(argc, argv, d));
    TRY(input_open(d));
    d->config.train_n = (const int32_t[]){d->n, 0};
    TRY(replica_create(&d->config, &d->replica));
    d->map = weight_map(d->replica->layout);
    TRY(weights_load(d));
    augment = calloc((size_t)d->n * IMAGE_RECORD, sizeof *augment);
    if (!augment) return FAIL(ERR_MEMORY, "augmentation of %d images", d->n);
    for (int64_t step = 0; step < d->steps; step++) TRY_OUT(step_run(d, step, augment));
    TRY_OUT(weights_keep(d));
    TRY_OUT(safetensors_replace(d->output, d->list.tensor, d->list.count, NULL, 0));
out:
    free(augment);
    return st;
}

int main(int argc, char **argv)
{
    Driver d = {0};
    Status st = drive(argc, argv, &d);
    if (st != OK) status_print(stderr, st, 1);
    weight_list_clear(&d.list);
    replica_destroy(d.replica);
    safetensors_close(d.file);
    net_file_close(d.network);
    return status_exit_code(st);
}
