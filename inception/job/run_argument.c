/* From the folder of a run to options; see run_argument.h. */
#include "inception/job/run_argument.h"

#include "inception/job/facts.h"
#include "inception/job/job.h"
#include "inception/job/named_model.h"
#include "inception/options/config.h"
#include "inception/options/settle.h"
#include "towers/data/shards/shard_set.h"
#include "towers/remote/address.h"

/* Keys of args.yaml that belong to the network or its input, besides those that a file of weights has, too (facts.h): the data, where they
 * came from and the cache that they came into, crop-pct, which is the file's eval_resize, classes, which are the size of its tensors, and kernels, which
 * round otherwise. The others concern training or the machine. */
static const char *const kept_keys[] = {"data-path", "dataset",      "val-split",     "fold",       "fold-group",
                                        "seed",      "label-base",   "match-classes", "crop-pct",   "classes",
                                        "winograd",  "winograd-f32", "winograd-bf16", "join-equal", "partial-shards",
                                        "cache-dir", "cache-limit",  "s3-endpoint",   NULL};

/* A run's seed divides its data; elsewhere it draws noise, which is the call's own. */
static bool is_kept(const char *line, size_t bytes, Use use)
{
    const char *colon = memchr(line, ':', bytes);
    size_t length = colon ? (size_t)(colon - line) : bytes;
    if (length == 4 && !strncmp(line, "seed", 4) && use != USE_EVALUATE) return false;
    for (int i = 0; kept_keys[i]; i++)
        if (length == strlen(kept_keys[i]) && !strncmp(line, kept_keys[i], length)) return true;
    return facts_have(line, length);
}

/* --val-split and --fold divide the data of the run; of other data, which may have been kept apart, all images are
 * evaluated. --label-base is of shards only, and --match-classes speaks of these data. */
static void data_settings_drop(Options *options, const Options *own)
{
    char division[64];
    const char *from = own->data_path ? own->data_path : job_usual_data();
    bool same = from && options->data_path && /* a list of shards is no file */
                (!strcmp(options->data_path, from) || is_same_file(options->data_path, from));
    bool other = options->data_path && !same;
    bool shards = options->data_path && (is_address(options->data_path) || shards_are_in(options->data_path));
    if (other && option_origin(options, "label-base") <= ORIGIN_RECIPE && !shards)
        option_settle_default(options, OPTION_ID_label_base);
    if (other && option_origin(options, "partial-shards") <= ORIGIN_RECIPE)
        option_settle_default(options, OPTION_ID_partial_shards);
    if (other && option_origin(options, "match-classes") <= ORIGIN_RECIPE)
        option_settle_default(options, OPTION_ID_match_classes);
    if (!other || (own->val_split <= 0 && !own->fold) || option_origin(options, "val-split") > ORIGIN_RECIPE ||
        option_origin(options, "fold") > ORIGIN_RECIPE)
        return;
    option_settle_default(options, OPTION_ID_val_split);
    option_settle_default(options, OPTION_ID_fold);
    option_settle_default(options, OPTION_ID_fold_group);
    if (own->fold)
        snprintf(division, sizeof division, "fold %s", own->fold);
    else
        snprintf(division, sizeof division, "val-split %g", own->val_split);
    if (!options->quiet && !source_splits(options->data_path))
        fprintf(stderr,
                "all images of %s are used: --%s of the run divided %s; if the data have only moved, give it again\n",
                options->data_path, division, from ? from : "Fashion-MNIST");
}

static Status settings_apply(Options *options, const char *run, const Model *model)
{
    static const char not_set[] = "# data-path: not set";
    char path[PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    bool usual = false; /* the run found its data at their usual place */
    Options own;
    TRY(run_settings_load(run, path, &text, &bytes));
    options_init(&own);
    options_serve(&own, options->verb);
    Status st = run_settings_before(options, text, ORIGIN_RECIPE, path);
    /* Blank out all lines but those to keep, so that line numbers in messages stay correct. */
    for (char *line = text, *end = text + bytes; line < end;) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop) stop = end;
        usual |= !strncmp(line, not_set, sizeof not_set - 1);
        if (!is_kept(line, (size_t)(stop - line), options_use(options))) memset(line, ' ', (size_t)(stop - line));
        line = stop + 1;
    }
    if (st == OK) st = options_apply_bytes(options, text, bytes, ORIGIN_RECIPE, path);
    if (st == OK) st = options_apply_bytes(&own, text, bytes, ORIGIN_RECIPE, path);
    if (st == OK && usual && own.dataset == DATASET_AUTO)
        st = options_apply_yaml(options, "dataset: fmnist\n", ORIGIN_RECIPE, path);
    if (st == OK) data_settings_drop(options, &own);
    int64_t side = own.img_size > 0 ? own.img_size : model->side;
    if (st == OK && option_origin(options, "eval-resize") <= ORIGIN_RECIPE && options->img_size > 0)
        option_settle_int(options, OPTION_ID_eval_resize,
                          resize_in_proportion(options->eval_resize, side, options->img_size));
    options_close(&own);
    free(text);
    return st;
}

/* MODEL with --weights FILE, or with those of a run. */
static Status file_facts_apply(Options *options, const Model *model)
{
    char path[PATH_BYTES];
    json_t *facts;
    options_name_model(options, model_argument(model));
    bool own = model->file && !options->weights && network_has_values(model);
    if (own) TRY(option_settle_text(options, OPTION_ID_weights, model->file));
    if (!options->weights) return OK;
    TRY(job_weights(options, options->weights, path, sizeof path));
    TRY(facts_read(options, path, &facts));
    bool other = !own && !facts_are_of(facts, model); /* its weights will be refused by name, not for its settings */
    Status st = other ? OK : facts_apply(facts, path, options);
    json_decref(facts);
    return st;
}

/* FILE alone, which says what network it is of. */
static Status file_argument_apply(Options *options, char *file)
{
    json_t *facts;
    const Model *model = NULL;
    TRY(facts_read(options, file, &facts));
    const char *name = json_word(facts, "model");
    Status st = name ? model_of_weights(name, file, &model)
                     : FAIL(ERR_ARG,
                            "'%s' does not say which model it is of (its metadata have no \"model\"); use MODEL "
                            "--weights %s",
                            file, file);
    json_decref(facts);
    if (st != OK) return st;
    if (!options->weights) TRY(option_settle_text(options, OPTION_ID_weights, file));
    return file_facts_apply(options, model);
}

/* Of a copy of a run without its settings the weights can be used. */
static Status run_files_check(const Options *options, const char *run)
{
    static const char *const needed[] = {"env.json", "args.yaml"};
    char path[PATH_BYTES], weights[PATH_BYTES];
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        TRY(path_join(path, run, needed[i]));
        if (access(path, F_OK) != 0 && job_weights(options, run, weights, sizeof weights) == OK)
            return FAIL(ERR_ARG,
                        "'%s' has no %s, as a run has; its weights say themselves how images are prepared: give '%s' "
                        "in its place",
                        run, needed[i], weights);
    }
    return OK;
}

static Status argument_apply(Options *options)
{
    struct stat info;
    const Model *model = NULL;
    char *run = options->argument_count ? options->arguments[0] : NULL;
    if (!run) return OK;
    Status named = model_named(run, &model);
    if (named == OK) return file_facts_apply(options, model); /* it takes precedence over a folder */
    if (network_is_named(run)) return named;
    if (stat(run, &info) != 0) {
        char unknown[512], usual[PATH_BYTES];
        if (strchr(run, '/')) return FAIL(ERR_ARG, "cannot open the run '%s': %s", run, strerror(errno));
        snprintf(unknown, sizeof unknown, "%s", status_message());
        if (path_join(usual, "runs", run) == OK && stat(usual, &info) == 0)
            return FAIL(ERR_ARG, "'%s' is neither a model nor a run; did you mean %s?", run, usual);
        return FAIL(ERR_ARG, "%s; and there is no run directory '%s' here", unknown, run);
    }
    if (!S_ISDIR(info.st_mode)) return file_argument_apply(options, run);
    TRY(run_files_check(options, run));
    TRY(run_model(run, &model));
    TRY(settings_apply(options, run, model));
    options_name_model(options, model_argument(model));
    return options->weights ? OK : option_settle_text(options, OPTION_ID_weights, run);
}

/* --int8 sees images as an evaluation does, in f32. */
Status run_argument_apply(Options *options)
{
    if (!options->int8) return argument_apply(options);
    Verb verb = options_serve(options, VERB_EVAL);
    Status st = argument_apply(options);
    options_serve(options, verb);
    option_settle_flag(options, OPTION_ID_amp, false);
    return st;
}
