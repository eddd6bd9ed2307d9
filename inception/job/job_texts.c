/* Descriptions of a run: args.yaml, env.json, and the settings that must match on resume; see job.h. */
#include "inception/job/job.h"

#include "kernels/base/open.h"
#include "nccl_sync/hosts/control.h"
#include "towers/files/json.h"
#include "towers/files/utf8.h"

#include <jansson.h>
#include <sys/utsname.h>
#include <xxhash.h>

static void data_print(const char *key, const Source *data, FILE *to)
{
    const SourceInfo *info = source_info(data);
    fprintf(to, "%s: %" PRId64 " samples, fingerprint %016" PRIx64 "%016" PRIx64 "\n", key, info->count,
            info->fingerprint[0], info->fingerprint[1]);
}

/* A line for each option that options.def marks SAME; TOTAL too if `total_matters`. A text may contain any bytes; it is
 * stored as UTF-8. */
static void options_print(const Options *o, bool total_matters, FILE *to)
{
    char value[OPTION_FORMAT_BYTES], text[OPTION_FORMAT_BYTES];
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
        OptionResume resume = option_info(id)->resume;
        if (resume != RESUME_SAME && (resume != RESUME_TOTAL || !total_matters)) continue;
        utf8_escape(text, sizeof text, option_format(o, id, value, sizeof value));
        fprintf(to, "%s: %s\n", option_info(id)->flag, text);
    }
}

/* The settings that determine the weights of a run, as lines "key: value": options that options.def marks SAME, and for
 * those marked MADE the value computed from them. Data are identified by a fingerprint, so their folder may move. */
static void settings_print(const Options *o, const JobFiles *files, FILE *to)
{
    const TrainJob *job = &files->job;
    bool cpu = job->backend->on_host;
    const Model *model = job->program.model; /* a file may be renamed */
    fprintf(to, "model: %s\ndevice: %s\ntowers: %d\n", model->digest ? "FILE.onnx" : model->name, job->backend->name,
            job->local_batches.towers);
    if (model->digest) fprintf(to, "network: %s\n", model->digest);
    if (!cpu && !job->comm.ordered)
        fprintf(to, "processes: %d\n", job->processes); /* they determine the order of sums */
    data_print("training data", job->train, to);
    if (job->test) data_print("test data", job->test, to);
    if (files->class_weight) /* their file may change */
        fprintf(to, "weights of classes: %016" PRIx64 "\n",
                XXH3_64bits(files->class_weight, (size_t)job->program.options.classes * sizeof(float)));
    if (o->sched == SCHEDULE_PLATEAU) /* an evaluation may lower the rate */
        fprintf(to, "evaluation interval: %d\n", job->eval_interval);
    options_print(o,
                  o->sched == SCHEDULE_COSINE || o->sched == SCHEDULE_POLYNOMIAL || o->sched == SCHEDULE_RISE_FALL ||
                      o->sched == SCHEDULE_ONE_CYCLE,
                  to);
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
    char **const made[] = {&files->args_yaml, &files->settings, &files->setting_defaults};
    for (int i = 0; i < 3; i++) {
        Draft draft;
        TRY(draft_begin(&draft, what));
        if (i == 0) options_print_config(o, draft.to);
        if (i == 1) settings_print(o, files, draft.to);
        if (i == 2) {
            options_print(&option_defaults, false, draft.to);
#define FLAG_FORMER(flag, instead) fputs(flag ":\n", draft.to);
#include "inception/options/options.def"
        }
        TRY(draft_end(&draft, OK));
        *made[i] = draft.text;
    }
    files->env_json = environment_text(files);
    if (!files->env_json) return FAIL(ERR_MEMORY, "no memory for %s", what);
    files->job.args_yaml = files->args_yaml;
    files->job.settings = files->settings;
    files->job.setting_defaults = files->setting_defaults;
    files->job.env_json = files->env_json;
    return OK;
}
