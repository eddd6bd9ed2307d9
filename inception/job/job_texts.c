/* Descriptions of a run: args.yaml, env.json, and the settings that must match on resume; see job.h. */
#include "inception/job/job.h"

#include "kernels/base/open.h"
#include "nccl_sync/hosts/control.h"
#include "towers/files/json.h"
#include "towers/files/utf8.h"

#include <jansson.h>
#include <sys/utsname.h>
#include <xxhash.h>

/* `to` becomes NULL where memory lacks; what is added to that adds nothing. */
static void __attribute__((format(printf, 3, 4))) setting_put(json_t **to, const char *key, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (json_object_set_new(*to, key, json_vsprintf(format, args)) != 0) {
        json_decref(*to);
        *to = NULL;
    }
    va_end(args);
}

static void data_put(json_t **to, const char *key, const Source *data)
{
    const SourceInfo *info = source_info(data);
    setting_put(to, key, "%" PRId64 " samples, fingerprint %016" PRIx64 "%016" PRIx64, info->count,
                info->fingerprint[0], info->fingerprint[1]);
}

/* Each option that options.def marks SAME; TOTAL too if `total_matters`. A text may contain any bytes; it is stored as
 * UTF-8. */
static void options_put(json_t **to, const Options *o, bool total_matters)
{
    char value[OPTION_FORMAT_BYTES], text[OPTION_FORMAT_BYTES];
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
        OptionResume resume = option_info(id)->resume;
        if (resume != RESUME_SAME && (resume != RESUME_TOTAL || !total_matters)) continue;
        utf8_escape(text, sizeof text, option_format(o, id, value, sizeof value));
        setting_put(to, option_info(id)->flag, "%s", text);
    }
}

/* The settings that determine the weights of a run, as texts: options that options.def marks SAME, and for those marked
 * MADE the value computed from them. Data are identified by a fingerprint, so their folder may move. */
static json_t *settings_make(const Options *o, const JobFiles *files)
{
    const TrainJob *job = &files->job;
    const Model *model = job->program.model; /* a file may be renamed */
    json_t *made = json_object();
    setting_put(&made, "model", "%s", model->digest ? "FILE.onnx" : model->name);
    setting_put(&made, "device", "%s", job->backend->name);
    setting_put(&made, "towers", "%d", job->local_batches.towers);
    if (model->digest) setting_put(&made, "network", "%s", model->digest);
    if (!job->backend->on_host && !job->comm.ordered)
        setting_put(&made, "processes", "%d", job->processes); /* they determine the order of sums */
    data_put(&made, "training data", job->train);
    if (job->test) data_put(&made, "test data", job->test);
    if (files->class_weight) /* their file may change */
        setting_put(&made, "weights of classes", "%016" PRIx64,
                    XXH3_64bits(files->class_weight, (size_t)job->program.options.classes * sizeof(float)));
    if (o->sched == SCHEDULE_PLATEAU) /* an evaluation may lower the rate */
        setting_put(&made, "evaluation interval", "%d", job->eval_interval);
    options_put(&made, o,
                o->sched == SCHEDULE_COSINE || o->sched == SCHEDULE_POLYNOMIAL || o->sched == SCHEDULE_RISE_FALL ||
                    o->sched == SCHEDULE_ONE_CYCLE);
    return made;
}

/* Options that earlier versions had are passed over. */
static json_t *defaults_make(void)
{
    json_t *made = json_object();
    options_put(&made, &option_defaults, false);
#define FLAG_FORMER(flag, instead) setting_put(&made, flag, "%s", "");
#include "inception/options/options.def"
    return made;
}

/* The command line, quoted for a shell; NULL if out of memory or without /proc. */
static char *command_text(void)
{
    char *text = NULL, *line = NULL;
    size_t bytes = 0, room = 0;
    ssize_t count;
    int fd = regular_open("/proc/self/cmdline", O_RDONLY, NULL);
    FILE *from = fd < 0 ? NULL : fdopen(fd, "r"), *to = open_memstream(&text, &bytes);
    for (bool first = true; from && to && (count = getdelim(&line, &room, 0, from)) > 0; first = false) {
        fputs(first ? "" : " ", to);
        text_shell(to, line);
    }
    if (from)
        fclose(from);
    else if (fd >= 0)
        close(fd);
    if (to && fclose(to) != 0) text = NULL;
    free(line);
    return text;
}

const char *program_commit = "";

static json_t *class_names(const SourceInfo *info)
{
    json_t *names = json_array();
    for (int i = 0; i < info->classes && info->class_names[i][0]; i++)
        json_array_append_new(names, json_text(info->class_names[i]));
    return names;
}

/* Number of images, fingerprint as in the settings of checkpoints, the images of each class, and what the reader used and left
 * out. */
static json_t *data_json(const Source *data)
{
    const SourceInfo *info = source_info(data);
    char fingerprint[40];
    int64_t *count = info->classes > 0 ? calloc((size_t)info->classes + 1, sizeof *count) : NULL;
    snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64 "%016" PRIx64, info->fingerprint[0], info->fingerprint[1]);
    json_t *made = json_pack("{s:I, s:s}", "images", (json_int_t)info->count, "fingerprint", fingerprint);
    if (count) source_classes_count(data, count);
    if (count) json_object_set_new(made, "class_images", json_counts(count, info->classes));
    json_object_set_new(made, "inventory", inventory_json(&info->inventory));
    free(count);
    return made;
}

static char *environment_text(const JobFiles *files)
{
    const TrainJob *job = &files->job;
    struct utsname host;
    char when[64] = "", base[16];
    struct timespec now;
    struct tm local;
    clock_gettime(CLOCK_REALTIME, &now);
    if (uname(&host) != 0) memset(&host, 0, sizeof host);
    if (localtime_r(&now.tv_sec, &local)) strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S%z", &local);
    json_t *root = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:f, s:i, s:i, s:i, s:i}", "towers", TOWERS_VERSION,
                             "commit", program_commit, "compiler", __VERSION__, "backend", job->backend->name, "system",
                             host.sysname, "release", host.release, "started", when, "started_at",
                             (double)now.tv_sec + 1e-9 * (double)now.tv_nsec, "cores",
                             (int)sysconf(_SC_NPROCESSORS_ONLN), "towers_count", job->local_batches.towers, "processes",
                             job->processes, "threads", job->device.threads);
    char *command = command_text();
    json_object_set_new(root, "model", json_string(job->program.model->name));
    if (job->program.model->digest) json_object_set_new(root, "network", json_string(job->program.model->digest));
    json_object_set_new(root, "data", json_text(source_info(job->train)->name));
    json_object_set_new(root, "training_data", data_json(job->train));
    if (job->test) json_object_set_new(root, "evaluation_data", data_json(job->test));
    json_object_set_new(root, "data_format", json_string(source_info(job->train)->format));
    json_object_set_new(root, "classes", json_integer(job->program.options.classes));
    json_object_set_new(root, "channels", json_integer(job->program.options.channels));
    json_object_set_new(root, "several_classes", json_boolean(source_info(job->train)->multi_label));
    json_object_set_new(root, "class_names", class_names(source_info(job->train)));
    snprintf(base, sizeof base, "%" PRId32, source_info(job->train)->first_label);
    json_object_set_new(root, "label_base", json_string(base));
    json_t *weights = files->class_weight ? json_array() : NULL;
    for (int i = 0; weights && i < job->program.options.classes; i++)
        json_array_append_new(weights, json_real((double)files->class_weight[i]));
    if (weights) json_object_set_new(root, "class_weights", weights);
    json_t *hosts = job->control ? json_array() : NULL; /* of each tower */
    for (int t = 0; hosts && t < job->local_batches.towers; t++)
        json_array_append_new(hosts, json_text(control_host(job->control, job_tower_node(job, t))));
    if (hosts) json_object_set_new(root, "hosts", hosts);
    if (command) json_object_set_new(root, "command", json_text(command));
    free(command);
    char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    return text;
}

Status job_texts(const Options *o, JobFiles *files)
{
    static const char what[] = "the description of the run";
    Draft args;
    TRY(draft_begin(&args, what));
    options_print_config(o, args.to);
    TRY(draft_end(&args, OK));
    files->args_yaml = args.text;
    files->settings = settings_make(o, files);
    files->setting_defaults = defaults_make();
    files->env_json = environment_text(files);
    if (!files->settings || !files->setting_defaults || !files->env_json)
        return FAIL(ERR_MEMORY, "no memory for %s", what);
    files->job.args_yaml = files->args_yaml;
    files->job.settings = files->settings;
    files->job.setting_defaults = files->setting_defaults;
    files->job.env_json = files->env_json;
    return OK;
}
