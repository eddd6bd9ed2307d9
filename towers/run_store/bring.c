/* Bringing a run from an object store; see bring.h. */
#include "towers/run_store/bring.h"

#include "kernels/base/open.h"
#include "kernels/base/place.h"
#include "kernels/base/text.h"
#include "towers/store/checkpoint.h"

enum { STEP_DIGITS = 10 };

typedef struct Bringing {
    RunStoreOpen open;
    char folder[PATH_BYTES]; /* that gets the name of the run directory in the end */
    Names steps;             /* step-N of ckpt/, sorted */
    BroughtRun *brought;
} Bringing;

static bool is_step(const char *name)
{
    size_t digits = strncmp(name, "step-", 5) == 0 ? strspn(name + 5, "0123456789") : 0;
    return digits >= STEP_DIGITS && digits <= 18 && !name[5 + digits];
}

/* ---- files */

/* The names in a list of a bucket are anybody's. */
static Status name_check(const Bringing *b, const char *name)
{
    char address[PATH_BYTES];
    if (*name && *name != '.' && !strchr(name, '/')) return run_store_address(&b->open.store, name, address);
    return FAIL(ERR_FORMAT, "%s has an object '%.200s', which is no file of a run", b->open.store.address, name);
}

static Status file_bring(Bringing *b, const char *name)
{
    char path[PATH_BYTES];
    int64_t bytes = 0;
    TRY(path_join(path, b->folder, name));
    int fd = regular_open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, NULL);
    if (fd < 0) return FAIL(ERR_IO, "cannot create '%s': %s", path, strerror(errno));
    Status st = run_store_get(&b->open, name, 0, fd, path, &bytes);
    if (st == OK && fsync(fd) != 0) st = FAIL(ERR_IO, "cannot write '%s': %s", path, strerror(errno));
    close(fd);
    b->brought->files++;
    b->brought->bytes += bytes;
    return st;
}

static Status folder_bring(Bringing *b, const char *folder, int depth);

static Status entries_bring(Bringing *b, const char *folder, const BucketList *list, int depth)
{
    char name[PATH_BYTES];
    for (int i = 0; i < list->objects.count; i++) {
        Text text = text_start(name, sizeof name);
        TRY(name_check(b, list->objects.name[i]));
        text_add(&text, "%s%s", folder, list->objects.name[i]);
        TRY(file_bring(b, name));
    }
    for (int i = 0; i < list->folders.count; i++) {
        Text text = text_start(name, sizeof name);
        TRY(name_check(b, list->folders.name[i]));
        text_add(&text, "%s%s/", folder, list->folders.name[i]);
        if (!strcmp(name, "ckpt/")) continue;
        if (depth == RUN_STORE_DEPTH)
            return FAIL(ERR_FORMAT, "%s has a folder '%.200s', deeper than those of a run", b->open.store.address,
                        name);
        TRY(folder_bring(b, name, depth + 1));
    }
    return OK;
}

/* What is in "", or "generated/", and below it. */
static Status folder_bring(Bringing *b, const char *folder, int depth)
{
    char path[PATH_BYTES];
    BucketList list;
    TRY(path_join(path, b->folder, *folder ? folder : "."));
    TRY(directory_create(path));
    TRY(run_store_list(&b->open, folder, &list));
    Status st = entries_bring(b, folder, &list, depth);
    bucket_list_free(&list);
    if (st == OK) st = directory_sync(path);
    return st;
}

/* ---- checkpoints */

static Status steps_list(Bringing *b)
{
    BucketList list;
    TRY(run_store_list(&b->open, "ckpt/", &list));
    Status st = OK;
    for (int i = 0; i < list.folders.count && st == OK; i++)
        if (is_step(list.folders.name[i])) st = names_add(&b->steps, list.folders.name[i]);
    bucket_list_free(&list);
    if (st == OK) names_sort(&b->steps);
    return st;
}

static void note_add(Bringing *b, const char *name, const char *why)
{
    Text text = text_behind(b->brought->note, sizeof b->brought->note);
    text_add(&text, "%s%s of %s was not taken: %s", text.used ? "; " : "", name, b->open.store.address, why);
}

/* Whether the store has all of it, as its MANIFEST, which went last, says. */
static Status step_is_whole(const Bringing *b, const char *name, bool *whole)
{
    char folder[PATH_BYTES];
    BucketList list;
    snprintf(folder, sizeof folder, "ckpt/%s/", name);
    TRY(run_store_list(&b->open, folder, &list));
    *whole = names_find(&list.objects, "MANIFEST") >= 0;
    bucket_list_free(&list);
    return OK;
}

/* Of a folder that has come. */
static Status step_verify(Bringing *b, const char *folder)
{
    char path[PATH_BYTES];
    Checkpoint *checkpoint = NULL;
    TRY(path_join(path, b->folder, folder));
    path[strlen(path) - 1] = 0;
    Status st = checkpoint_open(path, &checkpoint);
    if (st == OK) b->brought->step = checkpoint->step;
    checkpoint_close(checkpoint);
    return st;
}

/* *taken false: it is damaged, or the store does not give all of it, and it was removed here. What may pass, as a network that is gone, ends
 * the whole: an older checkpoint would lose steps that are safe. */
static Status step_bring(Bringing *b, const char *name, bool *taken)
{
    char folder[PATH_BYTES], path[PATH_BYTES];
    BroughtRun before = *b->brought;
    snprintf(folder, sizeof folder, "ckpt/%s/", name);
    b->open.refused = false;
    Status st = folder_bring(b, folder, 0);
    bool unfit = b->open.refused || st == ERR_FORMAT;
    if (st == OK) st = step_verify(b, folder);
    *taken = st == OK;
    if (st == OK || !(unfit || st == ERR_CHECKPOINT)) return st;
    *b->brought = before;
    note_add(b, name, status_message());
    TRY(path_join(path, b->folder, folder));
    path[strlen(path) - 1] = 0;
    return tree_remove(path);
}

static Status newest_bring(Bringing *b)
{
    char ckpt[PATH_BYTES], line[64];
    for (int i = b->steps.count - 1; i >= 0; i--) {
        const char *name = b->steps.name[i];
        bool whole, taken = false;
        TRY(step_is_whole(b, name, &whole));
        if (whole) TRY(step_bring(b, name, &taken));
        if (!whole) note_add(b, name, "its copy is not complete");
        if (!taken) continue;
        TRY(path_join(ckpt, b->folder, "ckpt"));
        TRY(directory_sync(ckpt));
        snprintf(line, sizeof line, "%s\n", name);
        return text_replace(ckpt, "latest", line);
    }
    return FAIL(ERR_CHECKPOINT, "--resume %s: %s%s", b->open.store.address,
                b->steps.count ? "none of its checkpoints can be used: " : "there is no checkpoint of a run",
                b->brought->note);
}

/* ---- the directory */

/* The newest checkpoint that is named in a directory, -1: there is none. */
static int64_t newest_here(const char *run_dir)
{
    char path[PATH_BYTES];
    int64_t newest = -1;
    struct dirent *entry;
    DIR *listing = path_join(path, run_dir, "ckpt") == OK ? place_list(path) : NULL;
    while (listing && (entry = place_next(listing))) {
        int64_t step = is_step(entry->d_name) ? strtoll(entry->d_name + 5, NULL, 10) : -1;
        if (step > newest) newest = step;
    }
    if (listing) closedir(listing);
    return newest;
}

/* The newest checkpoint of which the store has all, -1: there is none. Half a copy of a newer one is nothing to go on from. */
static Status newest_there(const Bringing *b, int64_t *step)
{
    bool whole = false;
    int i = b->steps.count;
    while (!whole && --i >= 0) TRY(step_is_whole(b, b->steps.name[i], &whole));
    *step = whole ? strtoll(b->steps.name[i] + 5, NULL, 10) : -1;
    return OK;
}

/* A run that is here goes on here, unless the store has more of it: nobody knows which of the two is wanted then. */
static Status here_check(Bringing *b, const char *run_dir)
{
    char own[RUN_NUMBER_BYTES], theirs[RUN_NUMBER_BYTES];
    const char *address = b->open.store.address;
    run_number(run_dir, own);
    TRY(run_store_number(&b->open, theirs));
    if (!*own || strcmp(own, theirs) != 0)
        return FAIL(ERR_ARG,
                    "--resume %s: the directory %s is there already, and is not of that run: remove it, or choose "
                    "another one with --experiment NAME or --output-dir",
                    address, run_dir);
    int64_t here = newest_here(run_dir), there;
    TRY(newest_there(b, &there));
    b->brought->step = here;
    b->brought->here = here >= there;
    if (b->brought->here) return OK;
    return FAIL(ERR_ARG,
                "--resume %s: that run is in %s, too, up to step %" PRId64 ", and in the store up to step %" PRId64
                ": remove or rename the directory to go on from the store, or give --resume %s to go on from here",
                address, run_dir, here, there, run_dir);
}

static Status directory_bring(Bringing *b, const char *run_dir)
{
    Status st = OK;
    char parent[PATH_BYTES];
    TRY(path_join(parent, run_dir, ".."));
    TRY(path_temporary(b->folder, run_dir));
    TRY(tree_remove(b->folder));
    TRY_OUT(folder_bring(b, "", 0));
    if (b->open.store.check) TRY_OUT(b->open.store.check(b->open.store.context, b->folder));
    TRY_OUT(newest_bring(b));
    if (place_rename(b->folder, run_dir, RENAME_NOREPLACE) != 0 &&
        (errno != EINVAL || place_rename(b->folder, run_dir, 0) != 0))
        TRY_OUT(FAIL(ERR_IO, "cannot rename '%s' to '%s': %s", b->folder, run_dir, strerror(errno)));
    TRY_OUT(directory_sync(parent));
out:
    if (st != OK) (void)!tree_remove(b->folder);
    return st;
}

Status run_bring(const RunStore *store, const char *run_dir, BroughtRun *brought)
{
    Status st = OK;
    struct stat info;
    Bringing b = {.brought = brought};
    *brought = (BroughtRun){.step = -1};
    TRY(run_store_open(store, &b.open));
    TRY_OUT(steps_list(&b));
    if (!b.steps.count)
        TRY_OUT(FAIL(ERR_CHECKPOINT,
                     "--resume %s: there is no checkpoint of a run; expected the address that --upload has filled",
                     store->address));
    st = place_lstat(run_dir, &info) == 0 ? here_check(&b, run_dir) : directory_bring(&b, run_dir);
out:
    names_free(&b.steps);
    run_store_close(&b.open);
    return st;
}
