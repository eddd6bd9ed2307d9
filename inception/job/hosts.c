/* One run on several nodes; see hosts.h. */
#include "inception/job/hosts.h"
#include "inception/job/notes.h"
#include "inception/options/settle.h"

#include "inception/job/named_model.h"
#include "kernels/base/open.h"
#include "towers/files/json.h"

extern char **environ;

_Static_assert((int)LAUNCH_RANKS_MAX == (int)CONTROL_RANKS_MAX,
               "a control plane connects all ranks that a launcher may start");

bool hosts_lead(const JobFiles *files)
{
    return files->launch.rank == 0;
}

/* A program that nobody else comes to may have been launched by nobody: variables stay behind in a shell. */
static void wait_print(void *context, double seconds, const char *for_whom)
{
    const Launch *launch = context;
    text_printf(stderr,
                "waiting for %.0f s %s; this is rank %d of %d according to %s. To train alone, without the others: %s "
                "towers ...\n",
                seconds, for_whom, launch->rank, launch->ranks, launch->origin, launch->alone);
}

Status hosts_meet(const Options *o, double timeout_s, bool any_build, JobFiles *files)
{
    files->console[0] = files->console[1] = -1;
    TRY(launch_read(environ, &files->launch));
    if (files->launch.ranks == 1) return OK;
    TRY(launch_secret(environ, &files->launch));
    const ControlConfig control = {.rank = files->launch.rank,
                                   .ranks = files->launch.ranks,
                                   .master = files->launch.master,
                                   .port = files->launch.port,
                                   .secret = files->launch.secret,
                                   .secret_from = files->launch.secret_from,
                                   .channel = "control",
                                   .part = "supervisor",
                                   .any_build = any_build,
                                   .waits = wait_print,
                                   .waits_context = &files->launch,
                                   .timeout_ms = (int64_t)(timeout_s * 1000)};
    TRY(control_open(&control, &files->control));
    if (o->max_restarts > 0)
        job_note(files, "--max-restarts has no effect here: only %s can start all programs again",
                 files->launch.origin);
    hosts_join(files);
    return OK;
}

void hosts_join(JobFiles *files)
{
    TrainJob *job = &files->job;
    if (!files->control) return;
    job->control = files->control;
    job->launcher = files->launch.origin;
    job->host = control_host(files->control, files->launch.rank);
    job->launcher_signal = files->launch.own_signal;
    job->nodes = files->launch.ranks;
    char mpi[128]; /* connects GPUs, too, if it is there */
    job->comm.master = files->launch.mpi && comm_mpi_text(mpi, sizeof mpi) ? NULL : files->launch.master;
    job->comm.port = files->launch.port + 1;
    job->comm.secret = files->launch.secret;
    job->comm.carrier = files->carrier;
    job->node = files->launch.rank;
}

Status hosts_carry(JobFiles *files)
{
    TrainJob *job = &files->job;
    Placement place = {.node = files->launch.rank, .nodes = files->launch.ranks, .origin = files->launch.origin};
    if (!files->control || job->comm.master) return OK;
    snprintf(place.host, sizeof place.host, "%s", job->host);
    TRY(comm_carrier_start(&place, files->control, &files->carrier));
    job->comm.carrier = files->carrier;
    return OK;
}

/* ---- the run directory */

static Status run_send(const Options *o, JobFiles *files)
{
    json_t *root = json_pack("{s:o, s:o, s:o, s:b, s:b, s:b, s:o, s:o}", "run_dir", json_text(files->run_dir),
                             "resume_path", json_text(files->resume_path), "branch_of", json_text(files->branch_of),
                             "fresh_name", files->fresh_name, "nothing_to_resume", files->nothing_to_resume, "resume",
                             files->job.resume, "model", json_text(o->argument_count ? o->arguments[0] : ""),
                             "settings", json_text(files->resumed_settings ? files->resumed_settings : ""));
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (!text) return FAIL(ERR_MEMORY, "no memory for the run directory's message to other hosts");
    size_t count = strlen(text);
    Status st = control_broadcast(files->control, &text, &count);
    free(text);
    return st;
}

static void path_take(const json_t *root, const char *key, char path[PATH_BYTES])
{
    const char *value = json_word(root, key);
    snprintf(path, PATH_BYTES, "%s", value ? value : "");
}

static Status run_take(Options *o, JobFiles *files)
{
    Status st = OK;
    char *text = NULL;
    size_t count = 0;
    TrainJob *job = &files->job;
    const Model *model;
    TRY(control_broadcast(files->control, &text, &count));
    json_t *root = json_loadb(text, count, 0, NULL);
    const char *settings = json_word(root, "settings"), *word = json_word(root, "model");
    free(text);
    if (!settings || !word) TRY_OUT(FAIL(ERR_INTERNAL, "rank 0 sent an unreadable run directory"));
    path_take(root, "run_dir", files->run_dir);
    TRY_OUT(job_run_dir_check(o, files->run_dir));
    path_take(root, "resume_path", files->resume_path);
    path_take(root, "branch_of", files->branch_of);
    files->nothing_to_resume = json_is_true(json_object_get(root, "nothing_to_resume"));
    job->run_dir = files->run_dir;
    job->resume_path = files->branch_of[0] ? files->resume_path : NULL;
    job->resume = json_is_true(json_object_get(root, "resume"));
    if (!o->argument_count && *word) { /* --resume RUN names the model */
        TRY_OUT(model_named(word, &model));
        options_name_model(o, model_argument(model));
    }
    if (*settings) TRY_OUT(options_apply_bytes(o, settings, strlen(settings), ORIGIN_RUN, "the resumed run"));
out:
    json_decref(root);
    return st;
}

Status hosts_run_dir(Options *o, JobFiles *files)
{
    if (!files->control) return job_run_dir(o, files);
    if (!hosts_lead(files)) return run_take(o, files);
    TRY(job_run_dir(o, files));
    return run_send(o, files);
}

/* ---- GPUs */

/* What a program would use: all visible GPUs, or those of --gpus. */
typedef struct Gpus {
    int32_t count;
    DeviceId id[GPUS_MAX];
} Gpus;

static bool sees(const Gpus *gpus, const DeviceId *id)
{
    for (int i = 0; i < gpus->count; i++)
        if (!memcmp(&gpus->id[i], id, sizeof *id)) return true;
    return false;
}

static Status gpus_share(const Gpus *all, JobFiles *files)
{
    const Gpus *mine = &all[files->launch.rank];
    for (int r = 0; r < files->launch.ranks; r++) {
        if (all[r].count < 0 || all[r].count > GPUS_MAX)
            return FAIL(ERR_COMM, "rank %d on %s reports %d GPUs, expected 0 to %d", r, control_host(files->control, r),
                        (int)all[r].count, GPUS_MAX);
        bool same = all[r].count == mine->count && !memcmp(all[r].id, mine->id, (size_t)mine->count * sizeof *mine->id);
        if (same) files->gpu_program += r < files->launch.rank;
        if (same) files->gpu_programs++;
        for (int i = 0; !same && i < mine->count; i++)
            if (sees(&all[r], &mine->id[i]))
                return FAIL(ERR_ARG,
                            "GPU %d is seen by rank %d on %s, too, which otherwise sees other GPUs, or has them in "
                            "another order; let programs see the same GPUs, or none in common (CUDA_VISIBLE_DEVICES, "
                            "--gpus)",
                            i, r, control_host(files->control, r));
    }
    return OK;
}

Status hosts_gpus(const Options *o, JobFiles *files)
{
    Gpus mine = {0};
    DeviceId visible[BACKEND_DEVICES_MAX];
    int count;
    if (!files->control) return OK;
    TRY(backend_device_list(files->job.backend, visible, &count));
    int chosen = o->gpus.count < GPUS_MAX ? o->gpus.count : GPUS_MAX;
    for (int i = 0; i < (chosen ? chosen : count); i++) {
        int64_t gpu = chosen ? o->gpus.value[i] : i;
        if (gpu < count) mine.id[mine.count++] = visible[gpu];
    }
    Gpus *all = calloc((size_t)files->launch.ranks, sizeof *all);
    if (!all) return FAIL(ERR_MEMORY, "no memory for the GPUs of %d programs", files->launch.ranks);
    Status st = control_gather(files->control, &mine, sizeof mine, "its GPUs", all);
    if (st == OK) st = gpus_share(all, files);
    free(all);
    return st;
}

/* ---- settings and data */

/* Lines "--flag: value", then what follows from data and devices. */
static Status settings_draft(const Options *o, const JobFiles *files, Draft *draft)
{
    char value[OPTION_FORMAT_BYTES];
    TRY(draft_begin(draft, "the settings of the run"));
    fprintf(draft->to, "--pretrained: %s\n--features: %s\n", o->pretrained ? "set" : "not set",
            o->features ? "set" : "not set"); /* first: other settings follow from these */
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++)
        if (option_is_shared(o, id))
            fprintf(draft->to, "--%s: %s\n", option_info(id)->flag, option_format(o, id, value, sizeof value));
    const char *key;
    json_t *setting;
    json_object_foreach(files->settings, key, setting) fprintf(draft->to, "%s: %s\n", key, json_string_value(setting));
    fprintf(draft->to, "processes: %d\n", files->job.processes);
    return draft_end(draft, OK);
}

Status hosts_compare(const Options *o, JobFiles *files)
{
    Status st = OK;
    if (!files->control) return OK;
    Draft mine;
    char *theirs = NULL, closed[512] = "";
    size_t count;
    TRY(settings_draft(o, files, &mine));
    TRY_OUT(control_barrier(files->control, "open its data"));
    if (hosts_lead(files)) {
        TRY_OUT(control_broadcast(files->control, &mine.text, &mine.bytes));
    } else {
        TRY_OUT(control_broadcast(files->control, &theirs, &count));
        for (const char *a = mine.text, *b = theirs; *a || *b;) {
            int of_a = (int)strcspn(a, "\n"), of_b = (int)strcspn(b, "\n");
            if (of_a != of_b || strncmp(a, b, (size_t)of_a) != 0)
                TRY_OUT(FAIL(ERR_ARG, "this rank has other settings than rank 0: '%.*s' here, '%.*s' there", of_a, a,
                             of_b, b));
            a += of_a + (a[of_a] == '\n');
            b += of_b + (b[of_b] == '\n');
        }
    }
    TRY_OUT(control_barrier(files->control, "compare its settings"));
    if (files->job.backend->on_host) TRY_OUT(host_links_check(files->control, &files->launch, closed, sizeof closed));
    if (*closed) job_note(files, "warning: %s; if MPI needs this connection the run ends after --comm-timeout", closed);
out:
    free(mine.text);
    free(theirs);
    return st;
}

/* ---- the beginning and the end */

static Status streams_redirect(JobFiles *files)
{
    int fd;
    char path[PATH_BYTES], name[32];
    snprintf(name, sizeof name, "log-rank%d.txt", files->launch.rank);
    TRY(directory_create(files->run_dir));
    TRY(path_join(path, files->run_dir, name));
    TRY(run_file_open(path, true, false, &fd));
    (void)fcntl(fd, F_SETFL, O_APPEND);
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        files->console[i] = fcntl(i + 1, F_DUPFD_CLOEXEC, 3);
        if (dup2(fd, i + 1) < 0) return FAIL(ERR_IO, "cannot print to '%s': %s", path, strerror(errno));
    }
    close(fd);
    return OK;
}

Status hosts_begin(const Options *o, JobFiles *files)
{
    char *text = files->run_dir;
    size_t count = strlen(text);
    if (!files->control) return OK;
    TRY(control_broadcast(files->control, &text, &count));
    if (hosts_lead(files)) return OK;
    snprintf(files->run_dir, sizeof files->run_dir, "%s", text);
    free(text);
    TRY(job_run_dir_check(o, files->run_dir));
    files->job.quiet = true;
    return streams_redirect(files);
}

void hosts_leave(JobFiles *files, Status status)
{
    ControlEnd end = {.rank = files->launch.rank, .status = (int32_t)status}, failure;
    if (!files->control) return;
    if (status != OK) {
        snprintf(end.message, sizeof end.message, "%.*s", CONTROL_TEXT_BYTES - 1, status_message());
        control_fail(files->control, &end);
    }
    carrier_end(files->carrier); /* once the others know of a failure: they end theirs, too */
    bool own = control_orphaned(files->control) ||
               (control_failed(files->control, &failure) && failure.rank == files->launch.rank);
    fflush(NULL);
    for (int i = 0; i < 2; i++)
        if (own && files->console[i] >= 0) (void)dup2(files->console[i], i + 1);
}

void hosts_error_file(Status status)
{
    const char *path = getenv("TORCHELASTIC_ERROR_FILE");
    char when[32];
    if (!path || !*path || status == OK) return;
    snprintf(when, sizeof when, "%" PRId64, time(NULL));
    json_t *root =
        json_pack("{s:{s:o, s:{s:s}}}", "message", "message", json_text(status_message()), "extraInfo", "timestamp",
                  when); /* with a "py_callstack" torchrun would show that instead of the message */
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    int fd = text ? regular_open(path, O_WRONLY | O_CREAT | O_TRUNC, NULL) : -1;
    if (fd >= 0) (void)!write(fd, text, strlen(text)); /* the exit code remains */
    if (fd >= 0) close(fd);
    free(text);
    json_decref(root);
}
