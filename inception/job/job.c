/* From options to a TrainJob: model, learning rate, rules for stopping, and settings that are copied as they are; see job.h. */
#include "inception/job/job.h"

#include "inception/job/facts.h"
#include "inception/job/hosts.h"
#include "inception/job/notes.h"
#include "inception/job/own_network.h"
#include "inception/job/resolve.h"
#include "inception/job/trained_classes.h"
#include "inception/job/transforms.h"
#include "inception/models/models.h"
#include "inception/options/fill.h"
#include "towers/data/remote/remote_fetch.h"
#include "towers/files/json.h"

/* ---- the model */

/* *found is NULL for "", the base model. */
static Status variant_find(const Model *model, const char *name, const ModelVariant **found)
{
    char list[256];
    Text names = text_start(list, sizeof list);
    *found = model_variant(model, name);
    if (!*name || *found) return OK;
    for (int i = 0; i < MODEL_VARIANTS && model->variants[i].name; i++)
        text_add(&names, " %s", model->variants[i].name);
    return FAIL(ERR_ARG, "%s has no variant '%s'; its variants are:%s", model->name, name, *list ? list : " none");
}

/* Auxiliary heads are built unless they are switched off or the images are too small, which is noted. */
static Status aux_choose(const Options *o, const Model *model, int32_t side, JobFiles *files, bool *aux)
{
    bool has = model->aux_weight > 0, fits = side >= model->aux_min_side;
    bool weighed = option_origin(o, "aux-weight") > ORIGIN_CONFIG; /* a file may serve several models */
    bool asked = (option_origin(o, "aux") > ORIGIN_CONFIG && o->aux) || weighed;
    *aux = has && o->aux && fits;
    if (!has && asked)
        return FAIL(ERR_ARG, "--%s: %s has no auxiliary classifier", weighed ? "aux-weight" : "aux", model->name);
    if (!o->aux && weighed) return FAIL(ERR_ARG, "--aux-weight has no effect with --no-aux");
    if (has && o->aux && !fits && asked)
        return FAIL(ERR_ARG, "the auxiliary classifier of %s needs --img-size %d or more (got %d); use --no-aux",
                    model->name, model->aux_min_side, side);
    if (has && o->aux && !fits)
        job_note(files, "%s at %dx%d is trained without its auxiliary classifier, which needs %dx%d", model->name, side,
                 side, model->aux_min_side, model->aux_min_side);
    return OK;
}

static Status model_options(const Options *o, const Model *model, JobFiles *files, ModelOptions *made)
{
    const ModelVariant *variant;
    bool aux;
    TRY(variant_find(model, o->variant ? o->variant : "", &variant));
    int32_t side = o->img_size > 0 ? (int32_t)o->img_size : model->side;
    if (side < model->min_side)
        return FAIL(ERR_ARG, "--img-size %d is too small for %s, which needs at least %d", side, model->name,
                    model->min_side);
    TRY(aux_choose(o, model, side, files, &aux));
    *made = (ModelOptions){
        .classes = o->classes > 0 ? (int)o->classes
                   : variant      ? variant->classes
                                  : model->classes,
        .side = side,
        .channels = model->channels,
        .dropout = o->dropout >= 0 ? (float)o->dropout
                   : variant       ? variant->dropout
                                   : model->dropout,
        .drop_path = o->drop_path >= 0 ? (float)o->drop_path : model->drop_path,
        .aux = aux,
        .variant = variant ? variant->name : "",
        .width = o->width > 0 ? (int32_t)o->width : model->width,
        .penalty_weight = o->penalty_weight >= 0 ? (float)o->penalty_weight : model->penalty_weight,
    };
    return OK;
}

/* --mean and --std; what is not given is the model's. */
static Status normalization_fill(const Options *o, const Model *model, ModelOptions *made)
{
    if (!o->mean && !o->std) return OK;
    memcpy(made->mean, model->mean, sizeof made->mean);
    memcpy(made->std, model->std, sizeof made->std);
    if (o->mean) TRY(channels_parse("--mean", o->mean, -10, made->mean));
    return o->std ? channels_parse("--std", o->std, 1e-6, made->std) : OK;
}

static void optimizer_fill(const Options *o, OptimizerHyper *optimizer)
{
    optimizer->kind = optimizer_choices[o->opt].kind;
    optimizer->momentum = (float)o->momentum;
    optimizer->nesterov = optimizer_choices[o->opt].nesterov;
    optimizer->epsilon = o->opt_eps >= 0 ? (float)o->opt_eps : optimizer_infos[optimizer->kind].epsilon;
}

/* How often the critic is updated in a cycle, and with which images. */
static void cycle_fill(const Options *o, TrainJob *job)
{
    const Model *model = job->program.model;
    for (int p = 0; model->phases && p < model->phase_count; p++)
        job->repeats[p] = o->critic_steps > 0 && !strcmp(model->phases[p].name, "critic") ? (int)o->critic_steps
                                                                                          : model->phases[p].repeats;
    job->same_batch = o->critic_batches == CRITIC_BATCHES_SAME;
}

/* ---- what begins after the end */

/* A size or a rate of a schedule that is not reached: a run that is to go on says so by --stop-epoch. */
static void unreached_note(const Options *o, JobFiles *files, const char *schedule, double epoch, const char *result)
{
    if (options_use(o) != USE_LEARN || o->epochs == 0 || epoch < (double)o->epochs) return;
    job_note(files,
             "warning: %s: its last part begins after %g epochs and is not reached by --epochs %" PRId64
             "%s; to train a part of a longer run, give the whole in --epochs and its end in --stop-epoch",
             schedule, epoch, o->epochs, result);
}

static void sides_note(const Options *o, JobFiles *files)
{
    const TrainJob *job = &files->job;
    if (!job->side_count) return;
    unreached_note(o, files, "--img-size-schedule", (double)job->sides[job->side_count - 1].epoch,
                   ", so that evaluations have a size that was not trained");
}

/* What follows from the options and the model alone. */
static Status model_fill(const Options *o, JobFiles *files)
{
    TrainJob *job = &files->job;
    const Model *model = job->program.model;
    options_fill(o, job);
    job->recipe = o->recipe;
    job->program.aux_weight = o->aux_weight >= 0 ? (float)o->aux_weight : model->aux_weight;
    job->program.separate_storage = !o->share_storage;
    TRY(model_options(o, model, files, &job->program.options));
    TRY(normalization_fill(o, model, &job->program.options));
    job_transforms(o, job, false);
    job->program.data_channels = model->channels;
    job->program.mixes = !model->phases && mix_is_on(&job->data.mix);
    job->program.targets = job->program.mixes || job->program.loss == LOSS_BCE;
    job->device.threads = 1; /* until the towers are assigned to processes */
    job->device.tf32 = o->amp && o->amp_dtype == AMP_TF32;
    optimizer_fill(o, &job->optimizer);
    cycle_fill(o, job);
    TRY(job_sides_check(job));
    sides_note(o, files);
    return job_rates(o, files);
}

Status job_model(Options *o, JobFiles *files)
{
    TRY(job_resolve(o, files));
    TRY(model_fill(o, files));
    if (files->job.program.model->file) own_network_say(o, files);
    return OK;
}

/* ---- the learning rate */

/* The pieces of --lr-schedule, and checks: contradictory rates are errors; a recipe's warm-up that is longer than the run
 * only gives a warning. */
static Status schedule_fill(const Options *o, JobFiles *files, Schedule *schedule)
{
    bool pieces = o->sched == SCHEDULE_PIECEWISE;
    if (pieces && !o->lr_schedule) return FAIL(ERR_ARG, "--sched piecewise needs --lr-schedule, e.g. '0.1;30;0.01'");
    if (pieces) TRY(schedule_parse_pieces(o->lr_schedule, schedule));
    if (pieces) unreached_note(o, files, "--lr-schedule", schedule->piece_epoch[schedule->pieces - 1], "");
    double first = schedule->lr; /* of piecewise, that of the first piece */
    const char *name = pieces ? "the first rate of --lr-schedule" : "--lr";
    bool ends_at_min = o->sched != SCHEDULE_CONSTANT && !pieces;
    if (ends_at_min && o->min_lr > o->lr)
        return FAIL(ERR_ARG, "--min-lr %g is above --lr %g, but the learning rate falls from --lr to --min-lr",
                    o->min_lr, o->lr);
    if (o->warmup_epochs > 0 && o->warmup_lr > first && o->lr_reference_batch <= 0) /* else in rates_scale */
        return FAIL(ERR_ARG, "--warmup-lr %g is above %s %g, but the warm-up rises from --warmup-lr to it",
                    o->warmup_lr, name, first);
    if (options_use(o) != USE_LEARN || o->epochs == 0 || o->warmup_epochs == 0 || o->warmup_epochs < (double)o->epochs)
        return OK;
    if (o->origin[OPTION_ID_warmup_epochs] > ORIGIN_CONFIG) /* a run's args.yaml must train it again */
        return FAIL(ERR_ARG,
                    "--warmup-epochs %g does not end before --epochs %" PRId64
                    ", so the learning rate never reaches %s; use a shorter warm-up or more epochs",
                    o->warmup_epochs, o->epochs, name);
    job_note(files,
             "warning: the warm-up of %g epochs does not end within --epochs %" PRId64
             ": the learning rate never reaches %g",
             o->warmup_epochs, o->epochs, first);
    return OK;
}

/* --lr-reference-batch: the linear scaling rule (Goyal et al., arXiv:1706.02677). --warmup-lr is not scaled, because a
 * warm-up rises from the rate of a small batch. */
static Status rates_scale(const Options *o, JobFiles *files)
{
    Schedule *s = &files->job.schedule;
    int64_t images = global_batch_of(&files->job.local_batches) * files->job.accumulate;
    if (o->lr_reference_batch <= 0) return OK;
    double factor = (double)images / (double)o->lr_reference_batch;
    s->lr *= factor;
    s->min_lr *= factor;
    for (int i = 0; i < s->pieces; i++) s->piece_lr[i] *= factor;
    job_note(files,
             "learning rate %g for steps of %" PRId64 " images: %g times that for %" PRId64 " (--lr-reference-batch)",
             s->lr, images, factor, o->lr_reference_batch);
    if (s->warmup_epochs <= 0 || s->warmup_lr <= s->lr) return OK;
    return FAIL(ERR_ARG, "--warmup-lr %g is above the learning rate for steps of %" PRId64 " images, %g", s->warmup_lr,
                images, s->lr);
}

/* ---- stopping */

/* What the decisions of evaluations need: --monitor auto is resolved, and its number must be measured. Without
 * decisions it stays auto. */
static Status stopping_fill(const Options *o, JobFiles *files)
{
    TrainJob *job = &files->job;
    StoppingRules *rules = &job->stopping;
    bool generates = job->program.model->phases != NULL, plateau = job->schedule.kind == SCHEDULE_PLATEAU;
    if (options_use(o) != USE_LEARN || (rules->patience == 0 && rules->stop_at < 0 && !plateau)) {
        rules->monitor = MONITOR_AUTO;
        return OK;
    }
    if (rules->monitor == MONITOR_AUTO) rules->monitor = generates ? MONITOR_KID : MONITOR_ACCURACY;
    bool kid = rules->monitor == MONITOR_KID;
    const char *what = rules->patience > 0 ? "--patience" : rules->stop_at >= 0 ? "--stop-at" : "--sched plateau";
    if (kid && (!job->program.model->generate || !o->features))
        return FAIL(ERR_ARG, "%s watches the KID of generated images, but %s; %s", what,
                    generates ? "none is measured" : "this model generates none",
                    generates ? "give --features RUN, a classifier whose features measure them"
                              : "use --monitor accuracy or loss");
    if (!kid && generates) return FAIL(ERR_ARG, "--monitor: a GAN predicts no classes; its number is kid");
    if (!kid && !job->test)
        return FAIL(ERR_ARG,
                    "%s decides by evaluations, but there are no images for them; keep some with --val-split 0.1",
                    what);
    if (!kid && job->eval_interval == 0)
        return FAIL(ERR_ARG, "%s decides by evaluations, but --eval-interval 0 makes none", what);
    if (rules->monitor == MONITOR_ACCURACY && rules->stop_at > 1)
        return FAIL(ERR_ARG, "--stop-at %g: accuracies are from 0 to 1; for %g %% use --stop-at %g", rules->stop_at,
                    rules->stop_at, rules->stop_at / 100);
    if (plateau && (o->decay_rate <= 0 || o->decay_rate >= 1))
        return FAIL(ERR_ARG, "--sched plateau: --decay-rate %g must be between 0 and 1", o->decay_rate);
    return OK;
}

/* ---- the whole job */

static Status sizes_check(const JobFiles *files)
{
    const TrainJob *job = &files->job;
    int64_t count = source_info(job->train)->count, global = global_batch_of(&job->local_batches);
    int64_t most = count / job->local_batches.towers;
    if (count >= global) return OK;
    if (job_resumes(files)) /* which refuses other batches and other data */
        return FAIL(ERR_ARG,
                    "a resumed run goes on with its own data and batches, but the global batch of %" PRId64
                    " is larger than the training set of %" PRId64
                    " samples; give the data that the run began with, or start a new run from its weights with "
                    "--pretrained",
                    global, count);
    if (most == 0)
        return FAIL(ERR_ARG,
                    "%d towers cannot share a training set of %" PRId64 " samples; use --towers %" PRId64 " or less",
                    job->local_batches.towers, count, count);
    return FAIL(ERR_ARG,
                "the global batch of %" PRId64 " is larger than the training set of %" PRId64
                " samples; use --batch-size %" PRId64 " or less (for each of %d towers)",
                global, count, most, job->local_batches.towers);
}

/* Synchronized batch norm communicates in the middle of a layer, so all towers must run at the same time. */
static Status sync_check(TrainJob *job)
{
    if (job->bn_stats != BN_STATS_SYNC || job->local_batches.towers == 1) return OK;
    if (job->processes != job->local_batches.towers)
        return FAIL(ERR_ARG,
                    "--bn-stats sync needs one process per tower, because towers in one process run in turns; for %d "
                    "towers use --processes %d, or use --bn-stats pooled",
                    job->local_batches.towers, job->local_batches.towers);
    job->program.norm_into_pool = false; /* its sums cover one tower */
    return OK;
}

static Status start_fill(const Options *o, JobFiles *files)
{
    bool resumes = job_resumes(files);
    if (o->pretrained && resumes && o->origin[OPTION_ID_pretrained] == ORIGIN_COMMAND_LINE)
        job_note(files, "--pretrained %s has no effect: a resumed run goes on with its own weights", o->pretrained);
    if (resumes) { /* as of --pretrained, which they belong to */
        files->job.reset_head = false;
        files->job.program.weights_key = NULL;
    }
    if (!o->pretrained || resumes || *files->would_fetch) return OK;
    own_network_head(o, files);
    if (files->job.node == 0) /* rank 0 reads the file */
        TRY(job_weights(o, o->pretrained, files->pretrained, sizeof files->pretrained));
    files->job.initial_weights = files->pretrained;
    return files->job.node == 0 ? trained_head_check(o, files->pretrained, files) : OK;
}

/* Gradients are summed in tower order and in f32 on a CPU. */
static Status comm_fill(const Options *o, TrainJob *job)
{
    static const Dtype dtypes[] = {[REDUCE_FP32] = DTYPE_F32, [REDUCE_BF16] = DTYPE_BF16, [REDUCE_FP16] = DTYPE_F16};
    bool cpu = job->backend->on_host;
    if (cpu && o->reduce_dtype != REDUCE_FP32)
        return FAIL(ERR_UNSUPPORTED, "--reduce-dtype needs GPUs; on a CPU gradients are always summed in fp32");
    if (cpu && o->nccl_ctas > 0) return FAIL(ERR_UNSUPPORTED, "--nccl-ctas needs GPUs; NCCL is not used on a CPU");
    if (o->reduce == REDUCE_ORDERED && o->reduce_dtype != REDUCE_FP32)
        return FAIL(ERR_ARG, "--reduce ordered always sums in fp32; omit --reduce-dtype");
    job->comm.reduce = dtypes[o->reduce_dtype];
    job->comm.ordered = o->reduce == REDUCE_ORDERED;
    job->comm.timeout_ms = (int64_t)(o->comm_timeout * 1000);
    job->comm.first_ms = option_is_set(o, "comm-timeout") ? 0 : FIRST_SUM_MS;
    return OK;
}

/* Evaluation, console and TensorBoard. */
static void console_fill(const Options *o, TrainJob *job)
{
    bool batch_asked = options_use(o) == USE_EVALUATE && option_origin(o, "batch-size") > ORIGIN_RECIPE;
    job->eval_batch = (int32_t)(batch_asked ? o->batch_size : o->eval_batch_size);
    job->log_tf2016 = o->log_style == LOG_TF2016;
    job->event_interval = o->summary_interval > 0 ? (int)o->summary_interval : 0;
    job->scalar_interval = job->event_interval ? job->log_interval : 0;
    job->tty = isatty(STDERR_FILENO) && getenv("TERM") && strcmp(getenv("TERM"), "dumb");
    job->color = job->tty && o->color && !(getenv("NO_COLOR") && *getenv("NO_COLOR"));
}

Status job_open(Options *o, int64_t synthetic, JobFiles *files)
{
    TrainJob *job = &files->job;
    job->began = clock_date();
    TRY(job_model(o, files));
    TRY(hosts_gpus(o, files));
    TRY(job_data_open(o, synthetic, files));
    TRY(job_towers(o, files));
    TRY(comm_fill(o, job));
    TRY(schedule_fill(o, files, &job->schedule));
    TRY(stopping_fill(o, files));
    TRY(start_fill(o, files));
    console_fill(o, job);
    TRY(sync_check(job));
    TRY(batch_resolve(o, files)); /* the options are final now */
    if (options_use(o) != USE_EVALUATE) TRY(sizes_check(files));
    if (options_use(o) == USE_LEARN) TRY(rates_scale(o, files));
    job->schedule.epoch_steps =
        (double)source_info(job->train)->count / (double)(global_batch_of(&job->local_batches) * job->accumulate);
    return job_texts(o, files);
}

void job_close(JobFiles *files)
{
    source_close(files->train);
    source_close(files->test);
    remote_fetch_close(files->fetch);
    s3_access_free(files->s3);
    free(files->local_batch);
    free(files->class_weight);
    free(files->lr_curve);
    free(files->args_yaml);
    free(files->env_json);
    free(files->survey);
    free(files->survey_lines);
    free(files->data_here);
    free(files->objects);
    json_decref(files->settings);
    json_decref(files->setting_defaults);
    free(files->resumed_settings);
    free(files->rates);
    carrier_destroy(files->carrier);
    control_close(files->control);
    memset(files, 0, sizeof *files);
}
