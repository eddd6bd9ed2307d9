/* Choose the run directory to create or to resume, and the weights file of a run; see job.h. */
#include "inception/job/job.h"

#include "inception/job/cached_weights.h"
#include "inception/job/named_model.h"
#include "inception/job/notes.h"
#include "inception/job/remote_run.h"
#include "inception/job/run_argument.h"
#include "inception/models/models.h"
#include "inception/options/settle.h"
#include "towers/files/json.h"
#include "towers/remote/address.h"
#include "towers/store/checkpoint.h"
#include "towers/store/run_dir.h"
#include "towers/train/samples_log.h"

#include <ctype.h>
#include <dirent.h>

enum { PROBE_BYTES = PATH_BYTES + 104 /* a run, and a name in it */ };

/* ---- weights */

Status job_weights(const Options *o, const char *given, char *path, size_t bytes)
{
    static const char *const names[] = {"best.safetensors", "last.safetensors", "model.safetensors"};
    struct stat info;
    snprintf(path, bytes, "%s", given);
    if (stat(given, &info) != 0) {
        char cached[PATH_BYTES];
        const Model *model;
        if (o && o->argument_count && !strchr(given, '/') && model_find(o->arguments[0], &model) == OK) {
            TRY(cached_named(o, model->name, given, cached));
            snprintf(path, bytes, "%s", cached);
        }
        return OK; /* opening it reports any error */
    }
    if (!S_ISDIR(info.st_mode)) return OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, bytes, "%s/%s", given, names[i]);
        if (access(path, R_OK) == 0) return OK;
    }
    return FAIL(ERR_CHECKPOINT, "%s contains no weights; expected %s, %s or %s", given, names[0], names[1], names[2]);
}

/* ---- the run directory */

static bool is_later(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec > b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec > b->tv_nsec);
}

/* It has ended, and says so. */
static bool took_no_step(const char *run)
{
    json_t *outcome = json_of_run(run, "outcome.json");
    const json_t *step = json_object_get(outcome, "step");
    bool none = json_is_integer(step) && json_integer_value(step) == 0;
    json_decref(outcome);
    return none;
}

/* When a run last saved something that it can go on from or should have: false if it never did, or took no step. */
static bool saved_when(const char *run, struct timespec *when)
{
    static const char *const names[] = {"ckpt/latest", "ckpt", "last.safetensors", "best.safetensors"};
    RunSaved saved;
    *when = (struct timespec){0};
    if (run_saved(run, &saved) == OK && !saved.checkpoints && (!saved.results || took_no_step(run)))
        return false; /* unreadable counts */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[PROBE_BYTES];
        struct stat info;
        snprintf(path, sizeof path, "%s/%s", run, names[i]);
        if (lstat(path, &info) == 0 && is_later(&info.st_mtim, when)) *when = info.st_mtim;
    }
    return true;
}

static bool run_is_of(const char *run, const char *model)
{
    json_t *environment = json_of_run(run, "env.json");
    bool is = !strcmp(json_word_or_empty(environment, "model"), model);
    json_decref(environment);
    return is;
}

/* The newest run of this model below `root`, by the time of its last save, intact or not; "" if there is none. */
static void newest_run(const char *root, const char *model, char *found, size_t bytes)
{
    struct timespec best = {0};
    DIR *dir = opendir(root);
    *found = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char run[PATH_BYTES];
        struct timespec when;
        if (entry->d_name[0] == '.') continue;
        snprintf(run, sizeof run, "%s/%s", root, entry->d_name);
        if (!run_is_of(run, model)) continue;
        if (!saved_when(run, &when) || !is_later(&when, &best)) continue;
        best = when;
        snprintf(found, bytes, "%s", run);
    }
    if (dir) closedir(dir);
}

/* run_dir_create appends a number if another run has taken this name. */
static void fresh_name(const char *root, const char *model, char *path, size_t bytes)
{
    char when[32] = "";
    time_t now = time(NULL);
    struct tm local;
    if (localtime_r(&now, &local)) strftime(when, sizeof when, "%Y%m%d-%H%M%S", &local);
    snprintf(path, bytes, "%s/%s-%s", root, model, when);
}

/* RUN/ckpt/step-N -> RUN */
static Status run_of_checkpoint(const char *given, char *run)
{
    char *real = realpath(given, NULL), *name = real ? strrchr(real, '/') : NULL;
    if (name) *name = 0;
    name = name ? strrchr(real, '/') : NULL;
    bool inside = name && name > real && !strcmp(name, "/ckpt");
    if (inside) snprintf(run, PATH_BYTES, "%.*s", (int)(name - real), real);
    free(real);
    return inside ? OK
                  : FAIL(ERR_CHECKPOINT,
                         "--resume %s: the checkpoint is not in the directory ckpt/ of a run; to start a new run from "
                         "its weights, use --pretrained %s/model.safetensors",
                         given, given);
}

/* A folder in --output-dir, where `towers runs` and --resume auto look. */
static Status experiment_dir(const char *root, const char *name, char run[PATH_BYTES])
{
    for (const char *c = name; *c; c++)
        if (iscntrl((unsigned char)*c))
            return FAIL(ERR_ARG,
                        "--experiment: byte %d is a control character, which is not allowed in the name of a run",
                        (int)(c - name) + 1);
    if (*name == '.' || strchr(name, '/'))
        return FAIL(ERR_ARG,
                    "--experiment '%s': expected a plain name, a folder in --output-dir; use --output-dir for another "
                    "directory",
                    name);
    return path_join(run, root, name);
}

static Status path_copy(char to[PATH_BYTES], const char *path)
{
    if (snprintf(to, PATH_BYTES, "%s", path) < PATH_BYTES) return OK;
    return FAIL(ERR_ARG, "the path '%.64s...' is longer than %d bytes", path, PATH_BYTES - 1);
}

/* Does the command line name a run directory other than `run`? */
static Status is_elsewhere(const Options *o, const char *run, bool *elsewhere)
{
    char folder[PATH_BYTES], named[PATH_BYTES];
    TRY(path_join(folder, run, ".."));
    *elsewhere = o->origin[OPTION_ID_output_dir] == ORIGIN_COMMAND_LINE && !is_same_file(o->output_dir, folder);
    if (o->origin[OPTION_ID_experiment] != ORIGIN_COMMAND_LINE) return OK;
    TRY(path_join(named, o->output_dir, o->experiment));
    *elsewhere = !is_same_file(named, run);
    return OK;
}

/* A run that has saved nothing: it goes on at this moment, or has ended before its first checkpoint. OK: it is no run. */
static Status checkpointless_refuse(const char *run)
{
    char settings[PROBE_BYTES], pid[48] = "";
    snprintf(settings, sizeof settings, "%s/args.yaml", run);
    if (access(settings, R_OK) != 0) return OK;
    pid_t holder = run_dir_holder(run);
    if (holder) snprintf(pid, sizeof pid, ", pid %ld", (long)holder);
    if (run_dir_taken(run))
        return FAIL(
            ERR_CHECKPOINT,
            "--resume %s: this run goes on (%s%s), and has saved nothing yet: wait for it, or let it save and end by "
            "'towers stop %s'",
            run, holder ? "here" : "elsewhere", pid, run);
    return FAIL(ERR_CHECKPOINT,
                "--resume %s: this run ended before its first checkpoint, so there is nothing to go on from: start it "
                "again without --resume, with --config %s for its settings",
                run, settings);
}

/* --resume PATH. A run continues in place, unless the command line names another directory. A checkpoint, or a run
 * together with another directory, starts a branch: a new run with copies of the records up to that step; the old run
 * is unchanged. */
static Status resume_from(const Options *o, JobFiles *files)
{
    char probe[PROBE_BYTES], note[1024];
    bool elsewhere = false;
    Checkpoint *newest = NULL;
    snprintf(probe, sizeof probe, "%s/MANIFEST", o->resume);
    if (access(probe, R_OK) == 0) {
        snprintf(files->resume_path, sizeof files->resume_path, "%s", o->resume);
        return run_of_checkpoint(o->resume, files->branch_of);
    }
    snprintf(probe, sizeof probe, "%s/ckpt", o->resume);
    if (access(probe, R_OK) != 0) TRY(checkpointless_refuse(o->resume));
    if (access(probe, R_OK) != 0)
        return FAIL(ERR_CHECKPOINT,
                    "--resume %s: neither a checkpoint (it has no MANIFEST) nor a run directory (it has no ckpt/)",
                    o->resume);
    TRY(is_elsewhere(o, o->resume, &elsewhere));
    if (!elsewhere) return path_copy(files->run_dir, o->resume);
    TRY(checkpoint_open_latest(o->resume, false, &newest, note, sizeof note));
    if (!newest) return FAIL(ERR_CHECKPOINT, "--resume %s: the run has no checkpoint to resume from", o->resume);
    snprintf(files->resume_path, sizeof files->resume_path, "%s", newest->path);
    checkpoint_close(newest);
    return path_copy(files->branch_of, o->resume);
}

static Status run_is_there(const JobFiles *files)
{
    return FAIL(ERR_ARG, "%s already contains a run; continue it with --resume auto, or choose another --experiment",
                files->run_dir);
}

/* May a run start or continue in this directory? A new run must not overwrite anything that was saved. */
static Status begin_check(bool automatic, JobFiles *files)
{
    RunSaved saved;
    char list[STATUS_MESSAGE_BYTES / 2];
    TRY(run_saved(files->run_dir, &saved));
    if (automatic && saved.checkpoints) return OK; /* the towers verify them */
    if (!automatic && !files->fresh_name && (saved.folder || saved.results)) return run_is_there(files);
    files->nothing_to_resume = automatic;
    if (!automatic || !saved.results) return OK;
    checkpoint_list(files->run_dir, list, sizeof list);
    return FAIL(ERR_CHECKPOINT,
                "--resume auto: '%s' has results but no checkpoint to resume from; nothing was changed:\n%s\n  (to "
                "start a new run, choose another folder with --experiment NAME; --pretrained starts it from these "
                "weights)",
                files->run_dir, list);
}

/* The model on the command line, else that of the run that --resume names; NULL: job_model reports that it is
 * missing. Another model than the run's is refused here, before its data or batch are found not to fit that model. */
static Status model_name_find(Options *o, const char *run, const char **name)
{
    const Model *model, *then;
    char old[MODEL_TEXT], now[MODEL_TEXT];
    *name = NULL;
    if (o->argument_count) {
        TRY(model_named(o->arguments[0], &model));
        bool known = *run && run_model(run, &then) == OK, kept = false;
        if (known && model->file && !model_same(then, model)) TRY(network_is_kept(model, then, &kept));
        if (kept) model = then; /* which has the norms that were restored, and trains the numbers that it trained */
        if (known && !model_same(then, model))
            return FAIL(ERR_ARG,
                        "%s is a run of another model: then model: %s, now model: %s (name the old one, or start a new "
                        "run without --resume)",
                        run, model_text(then->name, then->digest, old), model_text(model->name, model->digest, now));
    } else if (*run)
        TRY(run_model(run, &model));
    else
        return OK;
    *name = model->name;
    options_name_model(o, model_argument(model));
    return OK;
}

static Status directory_choose(Options *o, JobFiles *files)
{
    const char *root = o->output_dir ? o->output_dir : "runs", *name;
    bool named = o->resume && strcmp(o->resume, "auto") != 0, automatic = o->resume && !named;
    char to[PATH_BYTES];
    bool away = named && is_address(o->resume);
    if (away && o->experiment) TRY(experiment_dir(root, o->experiment, to));
    if (away) TRY(remote_run_bring(o, root, files));
    if (named) TRY(resume_from(o, files));
    TRY(model_name_find(o, files->branch_of[0] ? files->branch_of : files->run_dir, &name));
    if (!name) return OK;
    if (files->run_dir[0]) {
        TRY(begin_check(true, files));
        if (!files->nothing_to_resume) return OK;
        TRY(checkpointless_refuse(o->resume));
        return FAIL(ERR_CHECKPOINT, "--resume %s: the run has no checkpoint to resume from", o->resume);
    }
    if (o->experiment)
        TRY(experiment_dir(root, o->experiment, files->run_dir));
    else if (automatic)
        newest_run(root, name, files->run_dir, sizeof files->run_dir);
    files->fresh_name = !files->run_dir[0];
    if (files->fresh_name) fresh_name(root, name, files->run_dir, sizeof files->run_dir);
    return begin_check(automatic, files);
}

/* A plain name in a folder. */
static bool is_in(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    const char *name = path + length;
    if (strncmp(path, folder, length) != 0 || (*name != '/' && !(length && name[-1] == '/'))) return false;
    while (*name == '/') name++;
    return *name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

bool job_resumes(const JobFiles *files)
{
    return files->job.resume_path || (files->job.resume && !files->nothing_to_resume);
}

Status job_run_dir_check(const Options *o, const char *run)
{
    const char *root = o->output_dir ? o->output_dir : "runs";
    char named[PATH_BYTES];
    if (!*run || (o->resume && !strcmp(run, o->resume))) return OK;
    if (o->experiment) TRY(experiment_dir(root, o->experiment, named));
    if (o->experiment ? !strcmp(run, named) : is_in(run, root)) return OK;
    return FAIL(ERR_ARG,
                "rank 0 has the run directory %s, but the options of this rank mean %s%s; start all programs with the "
                "same --output-dir, --experiment and --resume",
                run, o->experiment ? named : root, o->experiment ? "" : "/NAME");
}

/* --norms is given anew: the run's network has its norms for good. Otherwise its digest would be all that differs. */
static Status norms_compare(const Options *o, const char *run)
{
    static const char *const words[] = {[NORMS_KEEP] = "keep", [NORMS_RESTORE] = "restore"};
    const Model *then, *file, *restored = NULL;
    if (option_origin(o, "norms") <= ORIGIN_RUN || !o->argument_count || run_model(run, &then) != OK) return OK;
    TRY(model_named(o->arguments[0], &file));
    if (file->file) TRY(network_restore(file, &restored));
    const Model *other = o->norms == NORMS_KEEP ? restored : file;
    if (!restored || !model_same(then, other)) return OK;
    return FAIL(ERR_ARG, "%s: then norms: %s, now norms: %s (leave --norms out, or start a new run without --resume)",
                run, words[o->norms == NORMS_KEEP ? NORMS_RESTORE : NORMS_KEEP], words[o->norms]);
}

/* An option that changes no weights would go without a word: nothing of a checkpoint differs then. */
static void displaced_note(const Options *o, JobFiles *files)
{
    for (OptionId id = 0; id < OPTION_ID_COUNT; id++) {
        OptionId by = o->displaced[id] ? option_replaced_by(o, id) : OPTION_ID_COUNT;
        if (by < OPTION_ID_COUNT && option_info(id)->resume == RESUME_FREE)
            job_note(files,
                     "warning: the run had --%s, which --%s excludes, so that it has it no more: start this resume "
                     "without --%s to keep it",
                     option_info(id)->flag, option_info(by)->flag, option_info(by)->flag);
    }
}

Status job_run_dir(Options *o, JobFiles *files)
{
    TrainJob *job = &files->job;
    char address[PATH_BYTES] = "";
    if (o->resume && is_address(o->resume)) TRY(path_copy(address, o->resume));
    TRY(directory_choose(o, files));
    job->run_dir = files->run_dir;
    job->resume_path = files->branch_of[0] ? files->resume_path : NULL;
    job->resume = o->resume && !files->branch_of[0];
    if (!o->resume || files->nothing_to_resume) return OK;
    const char *run = files->branch_of[0] ? files->branch_of : files->run_dir;
    TRY(norms_compare(o, run));
    TRY(run_settings_apply(o, run, &files->resumed_settings, &files->resumed_bytes));
    displaced_note(o, files);
    if (*address) TRY(remote_run_settle(o, address));
    if (!files->resumed_settings)
        job_note(files, "warning: %s has no args.yaml: the settings are those of this command, else the defaults", run);
    return OK;
}

/* The grids of a generator's images up to the checkpoint, which has the name of its step as they do. */
static Status images_branch(const JobFiles *files)
{
    Status st = OK;
    char folder[PATH_BYTES], own[PATH_BYTES], from[PATH_BYTES], to[PATH_BYTES],
        *real = realpath(files->resume_path, NULL);
    const char *last = real ? strrchr(real, '/') : NULL;
    struct dirent *entry;
    DIR *listing = NULL;
    if (!last) TRY_OUT(FAIL(ERR_IO, "cannot find '%s': %s", files->resume_path, strerror(errno)));
    TRY_OUT(path_join(folder, files->branch_of, "generated"));
    TRY_OUT(path_join(own, files->run_dir, "generated"));
    listing = opendir(folder);
    if (listing) TRY_OUT(directory_create(own));
    while (listing && (entry = readdir(listing))) {
        if (strncmp(entry->d_name, "step-", 5) != 0 || strncmp(entry->d_name, last + 1, strlen(last + 1)) > 0) continue;
        TRY_OUT(path_join(from, folder, entry->d_name));
        TRY_OUT(path_join(to, own, entry->d_name));
        TRY_OUT(run_file_copy(from, to));
    }
out:
    if (listing) closedir(listing);
    free(real);
    return st;
}

Status job_branch(const JobFiles *files)
{
    static const char *const names[] = {"metrics.jsonl", "results.csv",    "layers.jsonl",   "norms.jsonl",
                                        SAMPLES_FILE,    BAD_SAMPLES_FILE, "generated.jsonl"};
    char from[PATH_BYTES], to[PATH_BYTES];
    RunSaved saved;
    TRY(run_saved(files->run_dir, &saved));
    bool goes_on = files->job.resume && !files->nothing_to_resume;
    if (!goes_on && (saved.checkpoints || saved.results)) return run_is_there(files);
    for (size_t i = 0; files->branch_of[0] && i < sizeof names / sizeof *names; i++) {
        TRY(path_join(from, files->branch_of, names[i]));
        TRY(path_join(to, files->run_dir, names[i]));
        TRY(run_file_copy(from, to));
    }
    return files->branch_of[0] ? images_branch(files) : OK;
}
