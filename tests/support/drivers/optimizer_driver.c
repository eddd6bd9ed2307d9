/* Updates of a backend's optimizer on given gradients, for scripts/parity/fidelity.py to compare with PyTorch's.
 *
 *   optimizer_driver kind=NAME input=FILE output=FILE [lr=X] [momentum=X] [nesterov=1] [beta1=X] [beta2=X] [decay=X]
 *                    [eps=X] [trust=X] [weight_decay=X]
 *
 * kind: a name of optimizers.def. input: "param" F32 {n} and "grad" F32 {steps, n}; output: "after.param" F32 {n}, after all steps. */

#include "kernels/backend.h"
#include "kernels/optimizer.h"
#include "tests/support/arguments.h"
#include "towers/store/safetensors.h"

typedef struct Driver {
    OptimizerHyper hyper;
    double lr, weight_decay;
    const char *output;
    SafeTensors *file;
    Device device;
    size_t n, steps;
    float *param, *state[OPTIMIZER_STATES]; /* host memory: the CPU's */
} Driver;

static Status kind_find(const char *name, OptimizerKind *kind)
{
    for (int i = 0; i < OPTIMIZER_COUNT; i++)
        if (!strcmp(optimizer_infos[i].name, name)) {
            *kind = (OptimizerKind)i;
            return OK;
        }
    return FAIL(ERR_ARG, "no optimizer '%s'", name);
}

static Status arguments_read(int argc, char **argv, Driver *d)
{
    OptimizerKind kind = OPTIMIZER_SGD;
    TRY(kind_find(argument(argc, argv, "kind", ""), &kind));
    d->hyper = (OptimizerHyper){.kind = kind,
                                .momentum = (float)number_argument(argc, argv, "momentum", 0),
                                .nesterov = number_argument(argc, argv, "nesterov", 0) > 0,
                                .beta1 = (float)number_argument(argc, argv, "beta1", 0),
                                .beta2 = (float)number_argument(argc, argv, "beta2", 0),
                                .decay = (float)number_argument(argc, argv, "decay", 0),
                                .epsilon = (float)number_argument(argc, argv, "eps", 0),
                                .trust = (float)number_argument(argc, argv, "trust", 0)};
    d->lr = number_argument(argc, argv, "lr", 0);
    d->weight_decay = number_argument(argc, argv, "weight_decay", 0);
    d->output = argument(argc, argv, "output", "");
    return safetensors_open(argument(argc, argv, "input", ""), &d->file);
}

static Status floats_create(size_t n, float start, float **made)
{
    *made = aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64);
    if (!*made) return FAIL(ERR_MEMORY, "%zu floats", n);
    for (size_t i = 0; i < n; i++) (*made)[i] = start;
    return OK;
}

static Status start(Driver *d)
{
    const Backend *backend;
    DeviceConfig config = {DEVICE_USUAL, .threads = 2};
    const StTensor *param = safetensors_find(d->file, "param"), *grad = safetensors_find(d->file, "grad");
    if (!param || !grad || param->dtype != ST_F32 || grad->dtype != ST_F32 || grad->rank != 2 || param->rank != 1 ||
        grad->dims[1] != param->dims[0])
        return FAIL(ERR_FORMAT, "wanted param F32 {n} and grad F32 {steps, n}");
    d->n = (size_t)param->dims[0];
    d->steps = (size_t)grad->dims[0];
    TRY(backend_find("cpu", &backend, NULL, 0));
    TRY(backend->open(&config, &d->device));
    TRY(floats_create(d->n, 0, &d->param));
    memcpy(d->param, param->data, d->n * sizeof *d->param);
    for (int s = 0; s < optimizer_state_count(&d->hyper); s++)
        TRY(floats_create(d->n, optimizer_state_start(&d->hyper, s), &d->state[s]));
    return OK;
}

static Status steps_run(Driver *d)
{
    Status st = OK;
    const StTensor *grad = safetensors_find(d->file, "grad");
    OptimizerSegment segment = {0, d->n, (float)d->weight_decay, 1, .adapts = true};
    OptimizerTrust trust = {0};
    float *now = NULL;
    TRY(floats_create(d->n, 0, &now));
    for (size_t step = 0; step < d->steps; step++) {
        OptimizerScalars scalars = {.lr = (float)d->lr, .step = (float)(step + 1), .grad_scale = 1, .commit = 1};
        OptimizerUpdate update = {.hyper = d->hyper,
                                  .param = d->param,
                                  .grad = now,
                                  .state = {d->state[0], d->state[1]},
                                  .segments = &segment,
                                  .segment_count = 1,
                                  .scalars = &scalars,
                                  .trust = optimizer_is_layerwise(d->hyper.kind) ? &trust : NULL};
        memcpy(now, (const char *)grad->data + step * d->n * sizeof *now, d->n * sizeof *now);
        TRY_OUT(d->device.backend->optimizer_apply(&d->device, &update));
    }
out:
    free(now);
    return st;
}

static Status drive(int argc, char **argv, Driver *d)
{
    TRY(arguments_read(argc, argv, d));
    TRY(start(d));
    TRY(steps_run(d));
    StTensor after = {.name = "after.param",
                      .dtype = ST_F32,
                      .rank = 1,
                      .dims = {(int64_t)d->n},
                      .data = d->param,
                      .bytes = d->n * sizeof *d->param};
    return safetensors_replace(d->output, &after, 1, NULL, 0);
}

int main(int argc, char **argv)
{
    Driver d = {0};
    Status st = drive(argc, argv, &d);
    if (st != OK) status_print(stderr, st, 1);
    if (d.device.backend) d.device.backend->close(&d.device);
    safetensors_close(d.file);
    free(d.param);
    for (int s = 0; s < OPTIMIZER_STATES; s++) free(d.state[s]);
    return status_exit_code(st);
}
