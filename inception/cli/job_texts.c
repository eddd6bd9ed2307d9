/* A run described in words: args.yaml, env.json, and the settings that decide its course; see job.h. */
#include "inception/cli/job.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static char *text_of(void (*print)(const void *, FILE *), const void *subject)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to) return NULL;
    print(subject, to);
    if (fclose(to) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static void config_print(const void *options, FILE *to)
{
    options_print_config(options, to);
}

/* What decides the course of a run: everything that data order, gradients and updates depend on. */
static void settings_print(const void *options, FILE *to)
{
    static const OptionId ids[] = {
        OPTION_ID_img_size,      OPTION_ID_classes,    OPTION_ID_variant,           OPTION_ID_dropout,
        OPTION_ID_aux,           OPTION_ID_aux_weight, OPTION_ID_augment,           OPTION_ID_flip,
        OPTION_ID_crop_pad,      OPTION_ID_batch_size, OPTION_ID_global_batch_size, OPTION_ID_tower_batch,
        OPTION_ID_opt,           OPTION_ID_lr,         OPTION_ID_momentum,          OPTION_ID_weight_decay,
        OPTION_ID_beta1,         OPTION_ID_beta2,      OPTION_ID_opt_eps,           OPTION_ID_opt_decay,
        OPTION_ID_clip_norm,     OPTION_ID_clip_value, OPTION_ID_ema_decay,         OPTION_ID_sched,
        OPTION_ID_lr_schedule,   OPTION_ID_min_lr,     OPTION_ID_decay_rate,        OPTION_ID_decay_epochs,
        OPTION_ID_warmup_epochs, OPTION_ID_warmup_lr,  OPTION_ID_loss_divisor,      OPTION_ID_smoothing,
        OPTION_ID_decay_all,     OPTION_ID_freeze,     OPTION_ID_accumulate,        OPTION_ID_power,
        OPTION_ID_bn_decay,      OPTION_ID_amp,        OPTION_ID_amp_dtype,         OPTION_ID_loss_scale,
        OPTION_ID_seed,
    };
    const Options *o = options;
    char value[OPTION_FORMAT_BYTES];
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        fprintf(to, "%s: %s\n", option_info(ids[i])->flag, option_format(o, ids[i], value, sizeof value));
    bool total_matters =
        o->sched == SCHEDULE_COSINE || o->sched == SCHEDULE_POLYNOMIAL || o->sched == SCHEDULE_ONE_CYCLE;
    if (o->bn_stats == BN_STATS_SYNC) fprintf(to, "bn-stats: sync\n");
    if (total_matters) fprintf(to, "epochs: %lld\nmax-steps: %lld\n", (long long)o->epochs, (long long)o->max_steps);
}

static char *settings_text(const Options *o, const TrainJob *job)
{
    const DatasetInfo *info = dataset_info(job->train);
    char *settings = text_of(settings_print, o), *all = NULL;
    if (settings &&
        asprintf(&all, "model: %s\ntowers: %d\ndata: %s %lld %016llx%016llx\n%s", job->program.model->name,
                 job->shares.towers, info->name, (long long)info->count, (unsigned long long)info->fingerprint[0],
                 (unsigned long long)info->fingerprint[1], settings) < 0)
        all = NULL;
    free(settings);
    return all;
}

/* The command line as a shell reads it back; NULL without memory or /proc. */
static char *command_text(void)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./=:,@%";
    char *text = NULL, *line = NULL;
    size_t bytes = 0, room = 0;
    ssize_t count;
    FILE *from = fopen("/proc/self/cmdline", "re"), *to = open_memstream(&text, &bytes);
    for (bool first = true; from && to && (count = getdelim(&line, &room, 0, from)) > 0; first = false) {
        bool quote = !line[0] || line[strspn(line, plain)];
        fputs(first ? "" : " ", to);
        if (quote) fputc('\'', to);
        for (const char *at = line; *at; at++) fprintf(to, quote && *at == '\'' ? "'\\''" : "%c", *at);
        if (quote) fputc('\'', to);
    }
    if (from) fclose(from);
    if (to && fclose(to) != 0) text = NULL;
    free(line);
    return text;
}

static json_t *class_names(const DatasetInfo *info)
{
    json_t *names = json_array();
    for (int i = 0; i < info->classes && i < DATASET_NAMES && info->class_names[i][0]; i++)
        if (json_array_append_new(names, json_string(info->class_names[i])) != 0)
            json_array_append_new(names, json_string("")); /* not UTF-8 */
    return names;
}

static char *environment_text(const TrainJob *job)
{
    struct utsname host;
    char when[64] = "";
    time_t now = time(NULL);
    struct tm local;
    if (uname(&host) != 0) memset(&host, 0, sizeof host);
    if (localtime_r(&now, &local)) strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S%z", &local);
    json_t *root = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i}", "towers", TOWERS_VERSION, "compiler",
                             __VERSION__, "backend", job->backend->name, "system", host.sysname, "release",
                             host.release, "started", when, "cores", (int)sysconf(_SC_NPROCESSORS_ONLN), "towers_count",
                             job->shares.towers, "processes", job->processes, "threads", job->device.threads);
    char *command = command_text();
    json_object_set_new(root, "model", json_string(job->program.model->name));
    json_object_set_new(root, "data", json_string(dataset_info(job->train)->name));
    json_object_set_new(root, "class_names", class_names(dataset_info(job->train)));
    if (command) json_object_set_new(root, "command", json_string(command)); /* left out if it is not UTF-8 */
    free(command);
    char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    return text;
}

Status job_texts(const Options *o, JobFiles *files)
{
    files->args_yaml = text_of(config_print, o);
    files->settings = settings_text(o, &files->job);
    files->env_json = environment_text(&files->job);
    if (!files->args_yaml || !files->settings || !files->env_json) return FAIL(ERR_MEMORY, "description of the run");
    files->job.args_yaml = files->args_yaml;
    files->job.settings = files->settings;
    files->job.env_json = files->env_json;
    return OK;
}
