/* The optimizer, schedule or switch that an option depends on; see uses.h. */
#include "inception/options/uses.h"

#include <string.h>

typedef struct Use {
    OptionId id, chooser;
    unsigned by;       /* bits of the values of `chooser` that use the option */
    const char *names; /* the same as text */
} Use;

#define BIT(value) (1u << (value))
#define RMSPROPS (BIT(OPT_RMSPROP) | BIT(OPT_RMSPROP_TF))
#define ADAMS (BIT(OPT_ADAM) | BIT(OPT_ADAMW) | BIT(OPT_LAMB))
#define SGDS (BIT(OPT_SGD) | BIT(OPT_MOMENTUM) | BIT(OPT_NESTEROV))
#define STAIRS (BIT(SCHEDULE_STEP) | BIT(SCHEDULE_EXPONENTIAL))
#define CURVES (BIT(SCHEDULE_COSINE) | BIT(SCHEDULE_POLYNOMIAL) | BIT(SCHEDULE_ONE_CYCLE))

static const Use uses[] = {
    {OPTION_ID_momentum, OPTION_ID_opt, SGDS | RMSPROPS | BIT(OPT_LARS),
     "sgd, momentum, nesterov, rmsprop, rmsprop-tf and lars"},
    {OPTION_ID_beta1, OPTION_ID_opt, ADAMS, "adam, adamw and lamb"},
    {OPTION_ID_beta2, OPTION_ID_opt, ADAMS, "adam, adamw and lamb"},
    {OPTION_ID_opt_eps, OPTION_ID_opt, ADAMS | RMSPROPS | BIT(OPT_LARS),
     "adam, adamw, rmsprop, rmsprop-tf, lars and lamb"},
    {OPTION_ID_trust_coefficient, OPTION_ID_opt, BIT(OPT_LARS), "lars"},
    {OPTION_ID_opt_decay, OPTION_ID_opt, RMSPROPS, "rmsprop and rmsprop-tf"},
    {OPTION_ID_lr_schedule, OPTION_ID_sched, BIT(SCHEDULE_PIECEWISE), "piecewise"},
    {OPTION_ID_min_lr, OPTION_ID_sched, CURVES | STAIRS, "step, exponential, cosine, polynomial and onecycle"},
    {OPTION_ID_decay_rate, OPTION_ID_sched, STAIRS, "step and exponential"},
    {OPTION_ID_decay_epochs, OPTION_ID_sched, STAIRS, "step and exponential"},
    {OPTION_ID_power, OPTION_ID_sched, BIT(SCHEDULE_POLYNOMIAL), "polynomial"},
    {OPTION_ID_warmup_epochs, OPTION_ID_sched, ~BIT(SCHEDULE_ONE_CYCLE),
     "all schedules except onecycle, which has its own warm-up"},
};

/* Given on the command line, and not merely to switch it off. */
static bool is_asked(const Options *o, OptionId id)
{
    char text[OPTION_FORMAT_BYTES];
    const char *value = option_format(o, id, text, sizeof text);
    return o->origin[id] == ORIGIN_COMMAND_LINE && strcmp(value, "0") != 0 && strcmp(value, "false") != 0;
}

Status uses_check(const Options *o)
{
    bool goes_back = o->nan_policy != NAN_POLICY_STOP || o->sdc_policy == SDC_POLICY_ROLLBACK;
    const struct {
        OptionId id;
        bool used;
        const char *what;
    } needs[] = {
        {OPTION_ID_amp_dtype, o->amp, "without --amp"},
        {OPTION_ID_crop, o->augment, "without --augment"},
        {OPTION_ID_crop_pad, o->augment, "without --augment"},
        {OPTION_ID_crop_area, o->augment, "without --augment"},
        {OPTION_ID_crop_covered, o->augment && o->crop == CROP_CHOICE_BOX, "without --augment --crop box"},
        {OPTION_ID_flip, o->augment, "without --augment"},
        {OPTION_ID_ra_ops, o->auto_augment == POLICY_RAND, "without --auto-augment randaugment"},
        {OPTION_ID_ra_magnitude, o->auto_augment == POLICY_RAND, "without --auto-augment randaugment"},
        {OPTION_ID_eval_resize, o->eval_crop <= 0, "with --eval-crop"},
        {OPTION_ID_eval_resize, o->crop_pct <= 0, "with --crop-pct"},
        {OPTION_ID_crop_pct, o->eval_crop <= 0, "with --eval-crop"},
        {OPTION_ID_warmup_lr, o->warmup_epochs > 0, "without --warmup-epochs"},
        {OPTION_ID_nan_limit, goes_back, "with --nan-policy stop"},
        {OPTION_ID_data_path, o->verb != VERB_DOCTOR || o->hosts, "without --hosts"},
        {OPTION_ID_output_dir, o->verb != VERB_DOCTOR || o->hosts, "without --hosts"},
        {OPTION_ID_comm_timeout, o->verb != VERB_DOCTOR || o->hosts, "without --hosts"},
        {OPTION_ID_split, o->dataset != DATASET_SYNTHETIC, "with --dataset synthetic"},
        {OPTION_ID_sdc_policy, o->sdc_check > 0, "with --sdc-check 0"},
    };
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (is_asked(o, needs[i].id) && !needs[i].used)
            return FAIL(ERR_ARG, "--%s has no effect %s", option_info(needs[i].id)->flag, needs[i].what);
    char by[OPTION_FORMAT_BYTES];
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        const Use *use = &uses[i];
        if (!is_asked(o, use->id) || !option_belongs(use->chooser, o->verb) ||
            use->by & BIT(use->chooser == OPTION_ID_opt ? (int)o->opt : (int)o->sched))
            continue;
        return FAIL(ERR_ARG, "--%s has no effect with --%s %s; it applies only to %s", option_info(use->id)->flag,
                    option_info(use->chooser)->flag, option_format(o, use->chooser, by, sizeof by), use->names);
    }
    return OK;
}

/* ---- options of the subcommands of towers data */

typedef enum DataUse { DATA_BENCH = 1, DATA_SHOW = 2, DATA_CONVERT = 4 } DataUse;

/* Options that only some of them use. */
static const struct {
    OptionId id;
    unsigned by;
    const char *names; /* the same as text */
} of_data[] = {
    {OPTION_ID_shuffle_window, DATA_BENCH | DATA_SHOW, "bench and show"},
    {OPTION_ID_sampler, DATA_BENCH | DATA_SHOW, "bench and show"},
    {OPTION_ID_augment, DATA_BENCH | DATA_SHOW, "bench and show"},
    {OPTION_ID_color_jitter, DATA_BENCH | DATA_SHOW, "bench and show"},
    {OPTION_ID_hue_jitter, DATA_BENCH | DATA_SHOW, "bench and show"},
    {OPTION_ID_color_distort, DATA_BENCH | DATA_SHOW, "bench and show"},
    {OPTION_ID_auto_augment, DATA_BENCH | DATA_SHOW, "bench and show"},
    {OPTION_ID_random_erase, DATA_BENCH | DATA_SHOW, "bench and show"},
    {OPTION_ID_mixup, DATA_BENCH | DATA_SHOW, "bench and show"},
    {OPTION_ID_cutmix, DATA_BENCH | DATA_SHOW, "bench and show"},
    {OPTION_ID_interpolation, DATA_BENCH | DATA_SHOW, "bench and show"},
    {OPTION_ID_eval_resize, DATA_BENCH | DATA_SHOW, "bench and show"},
    {OPTION_ID_eval_crop, DATA_BENCH | DATA_SHOW, "bench and show"},
    {OPTION_ID_crop_pct, DATA_BENCH | DATA_SHOW, "bench and show"},
    {OPTION_ID_img_size, DATA_BENCH | DATA_SHOW, "bench and show"},
    {OPTION_ID_seed, DATA_BENCH | DATA_SHOW, "bench and show"},
    {OPTION_ID_recipe, DATA_BENCH | DATA_SHOW, "bench and show"},
    {OPTION_ID_exif, DATA_BENCH | DATA_SHOW | DATA_CONVERT, "bench, show and convert"},
    {OPTION_ID_sheet, DATA_SHOW, "show"},
    {OPTION_ID_side, DATA_CONVERT, "convert"},
    {OPTION_ID_quality, DATA_CONVERT, "convert"},
    {OPTION_ID_format, DATA_CONVERT, "convert"},
    {OPTION_ID_shard_samples, DATA_CONVERT, "convert"},
};

Status uses_of_data_check(const Options *o, const char *subcommand)
{
    unsigned is = !strcmp(subcommand, "bench")     ? DATA_BENCH
                  : !strcmp(subcommand, "show")    ? DATA_SHOW
                  : !strcmp(subcommand, "convert") ? DATA_CONVERT
                                                   : 0;
    for (size_t i = 0; i < sizeof of_data / sizeof *of_data; i++)
        if (is_asked(o, of_data[i].id) && !(of_data[i].by & is))
            return FAIL(ERR_ARG, "--%s has no effect with towers data %s; it applies only to %s",
                        option_info(of_data[i].id)->flag, subcommand, of_data[i].names);
    if (is == DATA_CONVERT && is_asked(o, OPTION_ID_shard_samples) && o->format != FORMAT_TAR &&
        o->format != FORMAT_MDS)
        return FAIL(ERR_ARG, "--shard-samples has no effect without --format tar or mds");
    return OK;
}

/* ---- options of classifiers and of adversarial models */

static const OptionId of_classifiers[] = {
    OPTION_ID_classes,       OPTION_ID_background,    OPTION_ID_smoothing,       OPTION_ID_aux,
    OPTION_ID_aux_weight,    OPTION_ID_reset_head,    OPTION_ID_eval_batch_size, OPTION_ID_eval_resize,
    OPTION_ID_eval_crop,     OPTION_ID_eval_interval, OPTION_ID_mixup,           OPTION_ID_cutmix,
    OPTION_ID_class_weights, OPTION_ID_loss,          OPTION_ID_crop_pct,
};
static const OptionId of_adversaries[] = {OPTION_ID_critic_steps, OPTION_ID_critic_batches, OPTION_ID_sample_interval};

static Status kind_check(const Options *o, const OptionId *ids, size_t count, const Model *model, const char *lacks)
{
    for (size_t i = 0; i < count; i++)
        if (is_asked(o, ids[i]))
            return FAIL(ERR_ARG, "--%s has no effect: %s %s", option_info(ids[i])->flag, model->name, lacks);
    return OK;
}

static Status phases_check(const Options *o, const Model *model)
{
    if (o->verb == VERB_EVAL || o->verb == VERB_PREDICT)
        return FAIL(ERR_UNSUPPORTED, "%s predicts no classes, so it cannot be evaluated as a classifier", model->name);
    if (o->accumulate > 1)
        return FAIL(ERR_UNSUPPORTED,
                    "--accumulate: %s trains in phases, whose steps take one batch each; use a larger "
                    "batch",
                    model->name);
    if (o->verb == VERB_TRAIN && o->log_style == LOG_TF2016)
        return FAIL(ERR_UNSUPPORTED, "--log-style tf2016: its lines have one loss, but %s has one for each phase",
                    model->name);
    if (o->bad_samples && strcmp(o->bad_samples, "stop") != 0)
        return FAIL(ERR_UNSUPPORTED,
                    "--bad-samples %s: the losses of %s cannot leave out single images; remove the "
                    "damaged ones (towers data check DIR lists them)",
                    o->bad_samples, model->name);
    if (o->amp && o->amp_dtype != AMP_TF32)
        return FAIL(ERR_UNSUPPORTED,
                    "--amp-dtype %s: %s trains in fp32 (or TF32) only, because the sums of its gradient "
                    "penalty would be rounded to 16 bits",
                    o->amp_dtype == AMP_BF16 ? "bf16" : "fp16", model->name);
    const OptionId dropout = OPTION_ID_dropout;
    if (!(model->dropout > 0)) TRY(kind_check(o, &dropout, 1, model, "has no dropout"));
    return kind_check(o, of_classifiers, sizeof of_classifiers / sizeof *of_classifiers, model, "predicts no classes");
}

Status uses_of_model_check(const Options *o, const Model *model)
{
    const OptionId width = OPTION_ID_width, penalty = OPTION_ID_penalty_weight, features = OPTION_ID_features;
    if (!model->width) TRY(kind_check(o, &width, 1, model, "has no such size"));
    if (!(model->penalty_weight > 0)) TRY(kind_check(o, &penalty, 1, model, "has no gradient penalty"));
    if (model->phases) return phases_check(o, model);
    if (o->verb == VERB_TRAIN) TRY(kind_check(o, &features, 1, model, "generates no images"));
    return kind_check(o, of_adversaries, sizeof of_adversaries / sizeof *of_adversaries, model, "has no critic");
}
