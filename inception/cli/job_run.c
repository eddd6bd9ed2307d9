/* Which run directory a job writes to or goes on in, and which file is meant by a run's weights; see job.h. */
#include "inception/cli/job.h"

#include <ctype.h>
#include <dirent.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PROBE_BYTES = PATH_BYTES + 104 /* a run, and a name in it */ };

/* ---- weights */

Status job_weights(const char *given, char *path, size_t bytes)
{
    static const char *const names[] = {"best.safetensors", "last.safetensors", "model.safetensors"};
    struct stat info;
    snprintf(path, bytes, "%s", given);
    if (stat(given, &info) != 0 || !S_ISDIR(info.st_mode)) return OK; /* whoever opens it says what is wrong */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, bytes, "%s/%s", given, names[i]);
        if (access(path, R_OK) == 0) return OK;
    }
    return FAIL(ERR_CHECKPOINT, "%s holds no weights (%s, %s or %s)", given, names[0], names[1], names[2]);
}

/* ---- the run directory */

static bool is_run_of(const char *run, const char *model)
{
    char path[PROBE_BYTES];
    snprintf(path, sizeof path, "%s/env.json", run);
    json_t *root = json_load_file(path, 0, NULL);
    const char *found = json_string_value(json_object_get(root, "model"));
    bool same = found && !strcmp(found, model);
    json_decref(root);
    return same;
}

/* The newest run of this model below `root`: the one whose ckpt/latest was written last. "" if there is none. */
static void newest_run(const char *root, const char *model, char *found, size_t bytes)
{
    struct timespec best = {0};
    DIR *dir = opendir(root);
    *found = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char run[PATH_BYTES], path[PROBE_BYTES];
        struct stat info;
        snprintf(run, sizeof run, "%s/%s", root, entry->d_name);
        snprintf(path, sizeof path, "%s/ckpt/latest", run);
        if (stat(path, &info) != 0 || !is_run_of(run, model)) continue;
        bool newer = info.st_mtim.tv_sec > best.tv_sec ||
                     (info.st_mtim.tv_sec == best.tv_sec && info.st_mtim.tv_nsec > best.tv_nsec);
        if (!newer) continue;
        best = info.st_mtim;
        snprintf(found, bytes, "%s", run);
    }
    if (dir) closedir(dir);
}

/* run_dir_create adds a number where another run has taken this name. */
static void fresh_name(const char *root, const char *model, char *path, size_t bytes)
{
    char when[32] = "";
    time_t now = time(NULL);
    struct tm local;
    if (localtime_r(&now, &local)) strftime(when, sizeof when, "%Y%m%d-%H%M%S", &local);
    snprintf(path, bytes, "%s/%s-%s", root, model, when);
}

/* RUN/ckpt/step-N -> RUN */
static Status run_of_checkpoint(const char *given, JobFiles *files)
{
    char *real = realpath(given, NULL), *name = real ? strrchr(real, '/') : NULL;
    if (name) *name = 0;
    name = name ? strrchr(real, '/') : NULL;
    bool inside = name && name > real && !strcmp(name, "/ckpt");
    if (inside) snprintf(files->run_dir, sizeof files->run_dir, "%.*s", (int)(name - real), real);
    free(real);
    return inside ? OK
                  : FAIL(ERR_CHECKPOINT,
                         "--resume %s: not in the folder ckpt/ of a run; a run begins from its weights with "
                         "--pretrained %s/model.safetensors",
                         given, given);
}

/* A name below --output-dir, which does not lead out of it. */
static Status experiment_dir(const char *root, const char *name, JobFiles *files)
{
    for (const char *c = name; *c; c++)
        if (iscntrl((unsigned char)*c))
            return FAIL(ERR_ARG, "--experiment: byte %d is a control character, which no name of a run has",
                        (int)(c - name) + 1);
    for (const char *part = name; *part; part += strcspn(part, "/"), part += *part == '/') {
        size_t length = strcspn(part, "/");
        if ((length == 1 && *part == '.') || (length == 2 && !strncmp(part, "..", 2)))
            return FAIL(ERR_ARG, "--experiment %s: '.' and '..' name no run; use --output-dir for another folder",
                        name);
    }
    return path_join(files->run_dir, root, name);
}

/* PATH may be a checkpoint (holds MANIFEST) or a run directory (holds ckpt). */
static Status resume_from(const char *given, JobFiles *files)
{
    char probe[PROBE_BYTES];
    snprintf(probe, sizeof probe, "%s/MANIFEST", given);
    if (access(probe, R_OK) == 0) {
        snprintf(files->resume_path, sizeof files->resume_path, "%s", given);
        files->job.resume_path = files->resume_path;
        return run_of_checkpoint(given, files);
    }
    snprintf(probe, sizeof probe, "%s/ckpt", given);
    if (access(probe, R_OK) != 0)
        return FAIL(ERR_CHECKPOINT, "--resume %s: neither a checkpoint (no MANIFEST) nor a run directory (no ckpt/)",
                    given);
    snprintf(files->run_dir, sizeof files->run_dir, "%s", given);
    files->job.resume = true;
    return OK;
}

Status job_run_dir(const Options *o, JobFiles *files)
{
    const char *root = o->output_dir ? o->output_dir : "runs", *model = files->job.program.model->name;
    bool automatic = o->resume && !strcmp(o->resume, "auto");
    files->job.run_dir = files->run_dir;
    files->job.resume = automatic;
    if (o->resume && !automatic && option_origin(o, "experiment") == ORIGIN_COMMAND_LINE)
        return FAIL(ERR_ARG, "--experiment names a run, and --resume %s another: give one of them", o->resume);
    if (o->resume && !automatic) return resume_from(o->resume, files);
    if (o->experiment)
        TRY(experiment_dir(root, o->experiment, files));
    else if (automatic)
        newest_run(root, model, files->run_dir, sizeof files->run_dir);
    files->fresh_name = !files->run_dir[0];
    if (files->fresh_name) fresh_name(root, model, files->run_dir, sizeof files->run_dir);
    char probe[PROBE_BYTES];
    snprintf(probe, sizeof probe, "%s/ckpt", files->run_dir);
    files->nothing_to_resume = automatic && access(probe, F_OK) != 0;
    if (!automatic && !files->fresh_name && access(probe, F_OK) == 0)
        return FAIL(ERR_ARG, "%s holds a run already: go on with --resume auto, or choose another --experiment",
                    files->run_dir);
    return OK;
}
