/* The ranges of values; see activation_ranges.h. Every value has a storage of its own, where it lies until the next
 * batch. */
#include "inception/commands/activation_ranges.h"

#include "kernels/base/cores.h"
#include "towers/data/loading/fold.h"

enum { RANGE_BATCH = 8 };

/* False if a number is not finite. */
static bool tensor_widen(const Tensor *t, OnnxRange *range)
{
    OnnxRange wide = *range;
    bool finite = true;
    for (int64_t p = 0; p < shape_pixels(t->shape); p++) {
        const float *x = (const float *)t->data + p * t->pitch;
        for (int32_t k = 0; k < t->shape.c; k++) {
            wide.low = x[k] < wide.low ? x[k] : wide.low;
            wide.high = x[k] > wide.high ? x[k] : wide.high;
            finite &= isfinite(x[k]) != 0;
        }
    }
    *range = wide;
    return finite;
}

static Status batch_widen(void *context, const Inferred *found)
{
    ActivationRanges *r = context;
    const Program *program = replica_eval_program(r->classifier.replica, found->batch.n);
    for (int id = 1; id <= graph_value_count(program->graph); id++) {
        const ValueInfo *info = graph_value(program->graph, (Value){id});
        Tensor t = plan_tensor(program->plan, (Value){id});
        if (info->role != ROLE_TEMP || info->dtype != DTYPE_F32 || !t.data) continue;
        if (!tensor_widen(&t, &r->range[id]))
            return FAIL(ERR_NUMERIC, "towers export --int8: %s computes numbers that are not finite",
                        graph_op_at(program->graph, info->op)->name);
    }
    return OK;
}

Status activation_ranges_measure(const Options *o, JobFiles *files, const ProgramConfig *program, const char *path,
                                 ActivationRanges *r)
{
    char why[256];
    TrainJob *job = &files->job;
    *r = (ActivationRanges){.classifier = {.files = files}};
    job->program = *program;
    job->program.fuse_siblings = job->program.pool_behind_conv = false;
    job->program.compute = DTYPE_F32;
    job->program.separate_storage = true;
    TRY(backend_find("cpu", &job->backend, why, sizeof why));
    TRY(job_data_open(o, 0, files));
    /* One part of as many as leave at most RANGE_IMAGES in it, with the shares that classes have in all. */
    int64_t parts = (source_info(files->train)->count + RANGE_IMAGES - 1) / RANGE_IMAGES;
    const FoldConfig some = {.fold = 1, .folds = (int)parts, .seed = (uint64_t)o->seed};
    if (parts > 1) TRY(source_fold(&files->train, &some, true));
    const SourceInfo *info = source_info(files->train);
    int32_t rest = (int32_t)(info->count % RANGE_BATCH), sizes[] = {RANGE_BATCH, rest, 0};
    r->images = info->count;
    snprintf(r->classifier.weights, sizeof r->classifier.weights, "%s", path);
    TRY(classifier_load(o, info->c, sizes, &r->classifier));
    int values = graph_value_count(r->classifier.replica->eval[0].graph);
    r->range = calloc((size_t)values + 1, sizeof *r->range);
    if (!r->range) return FAIL(ERR_MEMORY, "no memory for the ranges of %d values", values);
    return classifier_run(&r->classifier, files->train, RANGE_BATCH, cores_allowed(), batch_widen, r);
}
