/* Measuring what convolutions compute; see restored_norms.h. Every value has a storage of its own, where it lies until the next batch.
 * A child process does it, because towers are forked by a process that never had other threads. */
#include "inception/commands/restored_norms.h"

#include "inception/job/hosts.h"
#include "inception/job/named_model.h"
#include "inception/library/classifier.h"
#include "kernels/base/cores.h"

#include <sys/mman.h>
#include <sys/wait.h>

enum { IMAGES_MOST = 512, IMAGES_BATCH = 8 };

/* In memory that both processes share. */
typedef struct ChannelSums {
    Status status;
    char message[STATUS_MESSAGE_BYTES];
    double sum[]; /* of each norm in the order of the graph: numbers of a channel; sums [c]; sums of squares [c] */
} ChannelSums;

typedef struct NormMeasure {
    Classifier classifier;
    ChannelSums *sums;
} NormMeasure;

static bool is_restored(const Model *model, const Graph *g, const Op *op)
{
    return op->kind == OP_BATCHNORM_APPLY && network_has_restored(model, graph_value(g, op->in[2])->name);
}

static void tensor_add(const Tensor *x, double *sum)
{
    int64_t pixels = shape_pixels(x->shape);
    double *square = sum + 1 + x->shape.c;
    *sum++ += (double)pixels;
    for (int64_t p = 0; p < pixels; p++) {
        const float *value = (const float *)x->data + p * x->pitch;
        for (int32_t c = 0; c < x->shape.c; c++) {
            sum[c] += (double)value[c];
            square[c] += (double)value[c] * (double)value[c];
        }
    }
}

static Status batch_add(void *context, const Inferred *found)
{
    NormMeasure *m = context;
    const Program *program = replica_eval_program(m->classifier.replica, found->batch.n);
    const Model *model = m->classifier.files->job.program.model;
    double *sum = m->sums->sum;
    for (int i = 0; i < graph_op_count(program->graph); i++) {
        const Op *op = graph_op_at(program->graph, i);
        if (!is_restored(model, program->graph, op)) continue;
        Tensor x = plan_tensor(program->plan, op->in[0]);
        tensor_add(&x, sum);
        sum += 1 + 2 * x.shape.c;
    }
    return OK;
}

static Status images_measure(const Options *o, JobFiles *files, ChannelSums *sums)
{
    Status st = OK;
    char why[256];
    Source *some = NULL;
    NormMeasure m = {.classifier = {.files = files}, .sums = sums};
    const SourceInfo *info = source_info(files->job.train);
    int64_t ids[IMAGES_MOST], count = info->count < IMAGES_MOST ? info->count : IMAGES_MOST;
    for (int64_t i = 0; i < count; i++) ids[i] = i * info->count / count;
    int32_t rest = (int32_t)(count % IMAGES_BATCH), sizes[] = {IMAGES_BATCH, rest, 0};
    snprintf(m.classifier.weights, sizeof m.classifier.weights, "%s", o->pretrained);
    TRY_OUT(backend_find("cpu", &files->job.backend, why, sizeof why));
    TRY_OUT(source_select(files->job.train, ids, count, &some));
    TRY_OUT(classifier_load(o, info->c, sizes, &m.classifier));
    TRY_OUT(classifier_run(&m.classifier, some, IMAGES_BATCH, cores_allowed(), batch_add, &m));
out:
    classifier_close(&m.classifier);
    source_close(some);
    return st;
}

static Status child_run(const Options *o, JobFiles *files, ChannelSums *sums)
{
    sums->status =
        FAIL(ERR_INTERNAL, "--norms restore: the process that measures the training images ended unexpectedly");
    snprintf(sums->message, sizeof sums->message, "%s", status_message());
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        sums->status = images_measure(o, files, sums);
        if (sums->status != OK) snprintf(sums->message, sizeof sums->message, "%s", status_message());
        _exit(0);
    }
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;
    return sums->status == OK ? OK : FAIL(sums->status, "%s", sums->message);
}

/* Sums become means and variances, in place. */
static Status norm_set(const Model *model, const Graph *g, const Op *op, double *sum)
{
    const NormNames names = {.gamma = graph_value(g, op->in[4])->name,
                             .beta = graph_value(g, op->in[1])->name,
                             .mean = graph_value(g, op->in[2])->name,
                             .var = graph_value(g, op->in[3])->name};
    int32_t channels = graph_shape(g, op->in[0]).c;
    double count = *sum++, *square = sum + channels;
    for (int32_t c = 0; c < channels; c++) {
        sum[c] /= count;
        square[c] = square[c] / count - sum[c] * sum[c];
        if (square[c] < 0) square[c] = 0; /* by rounding */
    }
    return network_norm_set(model, &names, channels, sum, square);
}

/* `g`: of an evaluation as that of `files`. */
static Status norms_measure(const Options *o, JobFiles *files, const Graph *g)
{
    Status st = OK;
    const Model *model = files->job.program.model;
    size_t bytes = sizeof(ChannelSums);
    for (int i = 0; i < graph_op_count(g); i++)
        if (is_restored(model, g, graph_op_at(g, i)))
            bytes += (1 + 2 * (size_t)graph_shape(g, graph_op_at(g, i)->in[0]).c) * sizeof(double);
    ChannelSums *sums = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sums == MAP_FAILED) return FAIL(ERR_MEMORY, "no memory for the statistics of norms (%zu bytes)", bytes);
    TRY_OUT(child_run(o, files, sums));
    double *sum = sums->sum;
    for (int i = 0; i < graph_op_count(g); i++) {
        const Op *op = graph_op_at(g, i);
        if (!is_restored(model, g, op)) continue;
        TRY_OUT(norm_set(model, g, op, sum));
        sum += 1 + 2 * graph_shape(g, op->in[0]).c;
    }
out:
    munmap(sums, bytes);
    return st;
}

static bool is_due(const Options *o, const JobFiles *files)
{
    const Model *model = files->job.program.model;
    bool begins = model->file && o->pretrained && is_same_file(o->pretrained, model->file) && !job_resumes(files);
    return begins && network_facts(model).restored && hosts_lead(files) && !o->dry_run && !o->print_config;
}

Status restored_norms_measure(const Options *o, JobFiles *files)
{
    static const Model *measured; /* by --lr auto, for the run */
    Program program;
    JobFiles own = *files;
    ProgramConfig *config = &own.job.program;
    const Model *model = config->model;
    if (!is_due(o, files) || model == measured) return OK;
    if (!o->quiet)
        text_printf(stderr, "%s: mean and variance for %d norms from training images (--norms restore)\n", model->name,
                    network_facts(model).restored);
    config->training = config->fuse_siblings = config->pool_behind_conv = false;
    config->separate_storage = config->as_trained = true;
    config->compute = DTYPE_F32;
    TRY(program_graph(config, 1, &program));
    Status st = norms_measure(o, &own, program.graph);
    if (st == OK) measured = model;
    program_destroy(&program);
    return st;
}
