/* Checkpoints: implements the protocol of checkpoint.h. Whichever call fails, and whenever the power fails, the newest
 * directory step-N whose MANIFEST verifies is a complete checkpoint. A save touches no older checkpoint until the new
 * one has been read back. Pruning renames a directory before it removes it, so a directory named step-N is never half
 * removed. */
#include "towers/store/checkpoint.h"
#include "kernels/base/array.h"
#include "kernels/base/place.h"
#include "kernels/base/progress.h"
#include "towers/files/json.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>

#include "towers/store/manifest.h"

enum { STATE_LIMIT = 64 << 20 };
static const char model_name[] = "model.safetensors", train_name[] = "train.safetensors", state_name[] = "state.json";

/* ---- the directories step-N */

static Status step_path(char path[PATH_BYTES], const char *ckpt, int64_t step)
{
    char name[32];
    snprintf(name, sizeof name, "step-%010" PRId64, step);
    return path_join(path, ckpt, name);
}

/* "step-0000012000" -> 12000; anything else, `.corrupt` included, -> -1 */
static int64_t step_of_name(const char *name)
{
    size_t digits = strncmp(name, "step-", 5) == 0 ? strspn(name + 5, "0123456789") : 0;
    if (digits < 10 || digits > 18 || name[5 + digits]) return -1;
    return strtoll(name + 5, NULL, 10);
}

static int compare_newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* All steps under `ckpt`, newest first. A missing directory counts as no steps. */
static Status steps_list(const char *ckpt, int64_t **steps, int *count)
{
    Status st = OK;
    struct dirent *entry;
    int64_t *list = NULL;
    int used = 0;
    DIR *listing = place_list(ckpt);
    if (!listing && errno != ENOENT) return FAIL(ERR_IO, "cannot list '%s': %s", ckpt, strerror(errno));
    while (listing && (entry = place_next(listing))) {
        int64_t step = step_of_name(entry->d_name);
        if (step < 0) continue;
        TRY_OUT(ARRAY_ADD(list, used, "the list of checkpoints", step));
    }
    if (list) qsort(list, (size_t)used, sizeof *list, compare_newest_first);
    *steps = list;
    *count = used;
    list = NULL;
out:
    if (listing) closedir(listing);
    free(list);
    return st;
}

/* Rename a bad checkpoint, never delete it: step-N.corrupt, step-N.corrupt.1, ... */
static Status set_aside(const char *path, char aside[PATH_BYTES])
{
    for (int i = 0; i < 1000; i++) {
        int count = snprintf(aside, PATH_BYTES, i ? "%s.corrupt.%d" : "%s.corrupt", path, i);
        if (count < 0 || count >= PATH_BYTES) break;
        if (place_rename(path, aside, RENAME_NOREPLACE) == 0) return OK;
        if (errno == EINVAL && place_access(aside, F_OK) != 0 && place_rename(path, aside, 0) == 0)
            return OK; /* the file system has no rename flags (NFS) */
        if (errno != EEXIST && errno != ENOTEMPTY) break;
    }
    return FAIL(ERR_IO, "cannot rename '%s' to '.corrupt': %s", path, strerror(errno));
}

/* ---- saving */

static Status content_check(const CheckpointContent *content)
{
    json_error_t error;
    if (content->step < 0)
        return FAIL(ERR_ARG, "cannot save a checkpoint: step %" PRId64 " is negative", content->step);
    json_t *state;
    TRY(json_parse(content->state_json, strlen(content->state_json), &state, &error));
    if (!state || !json_is_object(state)) {
        Status st = FAIL(ERR_ARG, "the state of step %" PRId64 " is not a JSON object: %s", content->step,
                         state ? "it has another type" : error.text);
        json_decref(state);
        return st;
    }
    json_decref(state);
    return OK;
}

/* Require free space for 1.1 times the checkpoint, so that a full disk is noticed before anything is written. */
static Status room_check(const char *ckpt, const CheckpointContent *content)
{
    uint64_t model, train, there;
    TRY(safetensors_bytes(content->model, content->model_count, content->metadata, content->metadata_count, &model));
    TRY(safetensors_bytes(content->train, content->train_count, NULL, 0, &train));
    uint64_t wanted = model + train + strlen(content->state_json);
    wanted += wanted / 10;
    TRY(disk_spare(ckpt, &there));
    if (there < wanted)
        return FAIL(ERR_IO,
                    "the checkpoint of step %" PRId64
                    " needs %.2f MiB, %.2f MiB more than is free in '%s'; free some space or keep fewer checkpoints",
                    content->step, (double)wanted / 1048576, (double)(wanted - there) / 1048576, ckpt);
    return OK;
}

static Status files_write(const char *directory, const CheckpointContent *content)
{
    Status st = OK;
    Manifest *manifest = NULL;
    TRY(manifest_create(content->step, &manifest));
    TRY_OUT(manifest_write_tensors(manifest, directory, model_name, content->model, content->model_count,
                                   content->metadata, content->metadata_count));
    TRY_OUT(manifest_write_tensors(manifest, directory, train_name, content->train, content->train_count, NULL, 0));
    TRY_OUT(manifest_write_text(manifest, directory, state_name, content->state_json));
    TRY_OUT(manifest_finish(manifest, directory));
out:
    manifest_destroy(manifest);
    return st;
}

static Status latest_write(const char *ckpt, int64_t step)
{
    char text[32];
    snprintf(text, sizeof text, "step-%010" PRId64 "\n", step);
    return text_replace(ckpt, "latest", text);
}

/* Read the new checkpoint back. If it is not what was written, rename it to .corrupt and point `latest` to the previous
 * one. */
static Status published_verify(const char *ckpt, const char *path)
{
    Status st = OK;
    Checkpoint *opened = NULL;
    char aside[PATH_BYTES], why[1024];
    int64_t *steps = NULL;
    int count = 0;
    st = checkpoint_open(path, &opened);
    checkpoint_close(opened);
    if (st == OK || st == ERR_MEMORY) return st; /* out of memory says nothing about the checkpoint */
    snprintf(why, sizeof why, "%s", status_message());
    if (st == ERR_CHECKPOINT && set_aside(path, aside) == OK && steps_list(ckpt, &steps, &count) == OK && count)
        (void)!latest_write(ckpt, steps[0]);
    free(steps);
    return FAIL(ERR_IO, "the checkpoint just written cannot be read back (is the disk failing?): %s", why);
}

static bool is_held(int64_t step, const int64_t held[], int count)
{
    for (int i = 0; i < count; i++)
        if (held[i] == step) return true;
    return false;
}

/* Remove all checkpoints but the `keep` newest, those that are held and the one just saved (which is not the newest after
 * a run went back to an older one). If a removal fails, the next save tries again. */
static void prune(const char *ckpt, int keep, const int64_t held[], int held_count, int64_t saved)
{
    char path[PATH_BYTES], temporary[PATH_BYTES];
    int64_t *steps = NULL;
    int count = 0;
    if (steps_list(ckpt, &steps, &count) != OK) return;
    for (int i = keep < 1 ? 1 : keep; i < count; i++) {
        if (is_held(steps[i], held, held_count) || steps[i] == saved || step_path(path, ckpt, steps[i]) != OK ||
            path_temporary(temporary, path) != OK)
            continue;
        if (place_rename(path, temporary, 0) != 0) continue;
        if (directory_sync(ckpt) == OK) (void)!tree_remove(temporary); /* remove only after the rename is durable */
    }
    free(steps);
}

Status checkpoint_save(const char *run_dir, const CheckpointContent *content, int keep, const int64_t held[],
                       int held_count)
{
    Status st = OK;
    char ckpt[PATH_BYTES], path[PATH_BYTES], temporary[PATH_BYTES];
    TRY(content_check(content));
    TRY(path_join(ckpt, run_dir, "ckpt"));
    TRY(step_path(path, ckpt, content->step));
    TRY(path_temporary(temporary, path));
    TRY(directory_create(ckpt));
    TRY(tree_remove(temporary)); /* left by an earlier failed attempt of this process */
    TRY(room_check(ckpt, content));
    if (place_mkdir(temporary) != 0) return FAIL(ERR_IO, "cannot create '%s': %s", path, strerror(errno));
    TRY_OUT(files_write(temporary, content));
    /* Rename `temporary` to `path`. If `path` exists (a resumed run saves the same step again), the two are exchanged
     * in one call, and the old checkpoint becomes the temporary directory. */
    char aside[PATH_BYTES] = "";
    if (place_rename(temporary, path, 0) != 0) {
        if (errno != ENOTEMPTY && errno != EEXIST)
            TRY_OUT(FAIL(ERR_IO, "cannot rename '%s' to '%s': %s", temporary, path, strerror(errno)));
        if (place_rename(temporary, path, RENAME_EXCHANGE) != 0) {
            if (errno != EINVAL && errno != ENOSYS)
                TRY_OUT(FAIL(ERR_IO, "cannot exchange '%s' and '%s': %s", temporary, path, strerror(errno)));
            TRY_OUT(set_aside(path, aside)); /* no RENAME_EXCHANGE (NFS): the old one stays until the end */
            if (place_rename(temporary, path, 0) != 0)
                TRY_OUT(FAIL(ERR_IO, "cannot rename '%s' to '%s': %s", temporary, path, strerror(errno)));
        }
    }
    TRY_OUT(directory_sync(ckpt));
    TRY_OUT(latest_write(ckpt, content->step));
    TRY_OUT(published_verify(ckpt, path));
    if (*aside) (void)!tree_remove(aside);
    prune(ckpt, keep, held, held_count, content->step);
out:
    (void)!tree_remove(temporary); /* a failed save, or the checkpoint that was replaced */
    return st;
}

/* ---- loading */

static Status manifest_is_complete(const Manifest *manifest, const char *path)
{
    const char *const names[] = {model_name, train_name, state_name};
    for (int i = 0; i < 3; i++)
        if (!manifest_find(manifest, names[i]))
            return FAIL(ERR_CHECKPOINT, "'%s/MANIFEST' does not list %s", path, names[i]);
    return OK;
}

static Status content_open(const char *path, Checkpoint *checkpoint)
{
    char name[PATH_BYTES];
    size_t count;
    TRY(path_join(name, path, model_name));
    TRY(safetensors_open(name, &checkpoint->model));
    TRY(path_join(name, path, train_name));
    TRY(safetensors_open(name, &checkpoint->train));
    TRY(path_join(name, path, state_name));
    return file_read(name, STATE_LIMIT, &checkpoint->state_json, &count);
}

/* *damaged: true if the checkpoint itself is bad (a checksum, a missing file). It stays false if the reader lacks
 * memory, permissions or descriptors, or does not know the format version. */
static Status checkpoint_read(const char *path, Checkpoint **made, bool *damaged)
{
    Status st = OK;
    Manifest *manifest = NULL;
    Checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    *damaged = false;
    if (!checkpoint) return FAIL(ERR_MEMORY, "no memory for the checkpoint '%s'", path);
    if (strlen(path) >= sizeof checkpoint->path)
        TRY_OUT(FAIL(ERR_ARG, "the path '%.64s...' is longer than %zu bytes", path, sizeof checkpoint->path - 1));
    st = manifest_open(path, &manifest);
    if (st == OK) st = manifest_is_complete(manifest, path);
    if (st == OK) st = manifest_verify(manifest, path);
    *damaged = st == ERR_CHECKPOINT;
    TRY_OUT(st);
    TRY_OUT(content_open(path, checkpoint)); /* after verification */
    strcpy(checkpoint->path, path);
    checkpoint->step = manifest->step;
    *made = checkpoint;
    checkpoint = NULL;
out:
    manifest_destroy(manifest);
    checkpoint_close(checkpoint);
    return st;
}

Status checkpoint_open(const char *path, Checkpoint **made)
{
    bool damaged;
    return checkpoint_read(path, made, &damaged);
}

void checkpoint_close(Checkpoint *checkpoint)
{
    if (!checkpoint) return;
    safetensors_close(checkpoint->model);
    safetensors_close(checkpoint->train);
    free(checkpoint->state_json);
    free(checkpoint);
}

static Status step_open(const char *path, int64_t step, Checkpoint **made, bool *damaged)
{
    TRY(checkpoint_read(path, made, damaged));
    int64_t said = (*made)->step;
    if (said == step) return OK;
    checkpoint_close(*made);
    *made = NULL;
    *damaged = true;
    return FAIL(ERR_CHECKPOINT, "'%s': the manifest belongs to step %" PRId64, path, said);
}

/* Append a line to `text`; a line that does not fit is cut or dropped. */
static void line_add(char *text, size_t room, const char *line)
{
    if (!text || !room) return;
    Text lines = text_behind(text, room);
    text_add(&lines, "%s%s", lines.used ? "\n" : "", line);
}

/* Open the newest complete checkpoint of `steps`; *index receives its position. Damaged ones are skipped. Any other
 * error ends the search: silently going on from an older checkpoint would change the run. */
static Status newest_open(const char *ckpt, const int64_t *steps, int count, Checkpoint **made, int *index)
{
    char path[PATH_BYTES];
    for (*index = 0; *index < count; ++*index) {
        bool damaged = false;
        TRY(step_path(path, ckpt, steps[*index]));
        Status st = step_open(path, steps[*index], made, &damaged);
        if (st == OK || !damaged) return st;
    }
    return OK;
}

/* Rename damaged checkpoints so that their steps can be saved again; `note` receives the reason for each. */
static Status damaged_set_aside(const char *ckpt, const int64_t *steps, int count, char *note, size_t note_bytes)
{
    char path[PATH_BYTES], aside[PATH_BYTES], line[STATUS_MESSAGE_BYTES + 64];
    for (int i = 0; i < count; i++) {
        Checkpoint *opened = NULL;
        bool damaged = false;
        TRY(step_path(path, ckpt, steps[i]));
        Status st = step_open(path, steps[i], &opened, &damaged);
        checkpoint_close(opened);
        if (st == OK || !damaged) continue; /* no longer found damaged: keep its name */
        snprintf(line, sizeof line, "%s", status_message());
        strcat(line, set_aside(path, aside) == OK ? "; renamed to .corrupt" : "; could not be renamed to .corrupt");
        line_add(note, note_bytes, line);
    }
    return OK;
}

Status checkpoint_open_latest(const char *run_dir, bool tidy, Checkpoint **made, char *note, size_t note_bytes)
{
    Status st = OK;
    char ckpt[PATH_BYTES], list[STATUS_MESSAGE_BYTES / 2];
    int64_t *steps = NULL;
    int count = 0, index = 0;
    Checkpoint *opened = NULL;
    if (note && note_bytes) note[0] = 0;
    TRY(path_join(ckpt, run_dir, "ckpt"));
    TRY(steps_list(ckpt, &steps, &count));
    TRY_OUT(newest_open(ckpt, steps, count, &opened, &index));
    if (count && !opened) {
        checkpoint_list(run_dir, list, sizeof list);
        st = FAIL(ERR_CHECKPOINT,
                  "no checkpoint in '%s' can be used; nothing was changed:\n%s\n  (to start a new run, choose another "
                  "folder with --experiment NAME)",
                  ckpt, list);
        goto out;
    }
    if (opened && tidy) TRY_OUT(damaged_set_aside(ckpt, steps, index, note, note_bytes));
    *made = opened;
    opened = NULL;
out:
    checkpoint_close(opened);
    free(steps);
    return st;
}

/* ---- contents of a run directory */

static bool is_ours_half_written(const char *name)
{
    return strncmp(name, ".tmp-", 5) == 0;
}

static bool has_file(const char *run_dir, const char *name)
{
    char path[PATH_BYTES];
    struct stat info;
    return path_join(path, run_dir, name) == OK && place_lstat(path, &info) == 0;
}

Status run_saved(const char *run_dir, RunSaved *saved)
{
    char ckpt[PATH_BYTES];
    struct dirent *entry;
    *saved = (RunSaved){.results = has_file(run_dir, "last.safetensors") || has_file(run_dir, "best.safetensors")};
    TRY(path_join(ckpt, run_dir, "ckpt"));
    DIR *listing = place_list(ckpt);
    if (!listing && errno == ENOENT) return OK;
    if (!listing) return FAIL(ERR_IO, "cannot list '%s': %s", ckpt, strerror(errno));
    saved->folder = true;
    while ((entry = place_next(listing))) {
        const char *name = entry->d_name;
        if (!strcmp(name, ".") || !strcmp(name, "..") || is_ours_half_written(name)) continue;
        if (step_of_name(name) >= 0)
            saved->checkpoints++;
        else
            saved->results = true; /* `latest` or step-N.corrupt: remains of a checkpoint */
    }
    closedir(listing);
    return OK;
}

/* Describe one entry of ckpt/ as a line of text: complete, or what is wrong with it. */
static void entry_report(const char *ckpt, const char *name, char *line, size_t bytes)
{
    char path[PATH_BYTES], step_name[64];
    Checkpoint *opened = NULL;
    snprintf(step_name, sizeof step_name, "%.*s", (int)strcspn(name, "."), name);
    if (step_of_name(step_name) < 0 || path_join(path, ckpt, name) != OK) {
        snprintf(line, bytes, "  %s: %s", name,
                 strcmp(name, "latest") ? "not a checkpoint" : "name of the newest checkpoint");
        return;
    }
    bool whole = checkpoint_open(path, &opened) == OK;
    if (!whole)
        snprintf(line, bytes, "  %s: %s", name, status_message());
    else if (strcmp(name, step_name) == 0)
        snprintf(line, bytes, "  %s: complete", name);
    else
        snprintf(line, bytes, "  %s: complete; rename it to %s to resume from it", name, step_name);
    checkpoint_close(opened);
}

void checkpoint_list(const char *run_dir, char *text, size_t bytes)
{
    static const char *const weights[] = {"best.safetensors", "last.safetensors"};
    char ckpt[PATH_BYTES], line[STATUS_MESSAGE_BYTES];
    struct dirent **entries = NULL;
    text[0] = 0;
    if (path_join(ckpt, run_dir, "ckpt") != OK) return;
    int count = (int)STORAGE(scandirat(place_of(ckpt).at, place_of(ckpt).name, &entries, NULL, alphasort));
    for (int i = count - 1; i >= 0; i--) {
        const char *name = entries[i]->d_name;
        if (strcmp(name, ".") && strcmp(name, "..") && !is_ours_half_written(name)) {
            entry_report(ckpt, name, line, sizeof line);
            line_add(text, bytes, line);
        }
        free(entries[i]);
    }
    free(entries);
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        snprintf(line, sizeof line, "  %s: weights only, cannot be resumed from", weights[i]);
        if (has_file(run_dir, weights[i])) line_add(text, bytes, line);
    }
}
