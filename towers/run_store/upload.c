/* Copying a run into an object store; see upload.h. */
#include "towers/run_store/upload.h"

#include "kernels/base/open.h"
#include "kernels/base/place.h"
#include "kernels/base/text.h"
#include "towers/remote/send.h"
#include "towers/store/run_dir.h"

static const char manifest_name[] = "MANIFEST";

typedef struct Upload {
    RunStoreOpen open;
    const char *run_dir;
    const UploadWatch *watch;
    UploadCount *count;
    Names names;    /* of files, relative to the run directory, in the order in which they go */
    int checkpoint; /* the first so many are those of the checkpoint; the last one is its MANIFEST */
} Upload;

/* ---- what goes */

/* The MANIFEST goes last, and is added then. */
static bool is_left(const char *folder, const char *name)
{
    static const char *const own[] = {"ckpt", "upload.log", HEARTBEAT_FILE,
                                      RUN_STORE_FILE}; /* the last one is there since the beginning */
    if (*name == '.' || (!strncmp(folder, "ckpt/", 5) && !strcmp(name, manifest_name))) return true;
    for (size_t i = 0; !*folder && i < sizeof own / sizeof *own; i++)
        if (!strcmp(name, own[i])) return true;
    return false;
}

static Status folder_add(Upload *u, const char *folder, int depth);

static Status entry_add(Upload *u, const char *folder, const char *name, int depth)
{
    char path[PATH_BYTES], relative[PATH_BYTES], address[PATH_BYTES];
    struct stat info;
    Text text = text_start(relative, sizeof relative);
    text_add(&text, "%s%s", folder, name);
    TRY(path_join(path, u->run_dir, relative));
    if (place_lstat(path, &info) != 0) return OK;
    if (S_ISDIR(info.st_mode) && depth < RUN_STORE_DEPTH) {
        text_add(&text, "/");
        return folder_add(u, relative, depth + 1);
    }
    bool named = S_ISREG(info.st_mode) && run_store_address(&u->open.store, relative, address) == OK;
    if (!named) {
        u->count->left_out++;
        return OK;
    }
    u->count->bytes += info.st_size;
    return names_add(&u->names, relative);
}

/* Files of "" or "generated/", and of the folders below it. */
static Status folder_add(Upload *u, const char *folder, int depth)
{
    char path[PATH_BYTES];
    Status st = OK;
    struct dirent *entry;
    Names names = {0};
    TRY(path_join(path, u->run_dir, *folder ? folder : "."));
    DIR *listing = place_list(path);
    if (!listing) return errno == ENOENT ? OK : FAIL(ERR_IO, "cannot list '%s': %s", path, strerror(errno));
    while (st == OK && (entry = place_next(listing)))
        if (!is_left(folder, entry->d_name)) st = names_add(&names, entry->d_name);
    closedir(listing);
    names_sort(&names);
    for (int i = 0; st == OK && i < names.count; i++) st = entry_add(u, folder, names.name[i], depth);
    names_free(&names);
    return st;
}

static Status files_list(Upload *u, int64_t step)
{
    char folder[64];
    snprintf(folder, sizeof folder, "ckpt/step-%010" PRId64 "/", step);
    TRY(folder_add(u, folder, 0));
    u->checkpoint = u->names.count;
    TRY(folder_add(u, "", 0));
    int records = u->names.count;
    TRY(entry_add(u, folder, manifest_name, 0));
    return u->names.count > records
               ? OK
               : FAIL(ERR_IO, "'%s/%s%s' is not there: the checkpoint was removed", u->run_dir, folder, manifest_name);
}

/* ---- how it goes */

static void bytes_sent(void *context, int64_t bytes)
{
    Upload *u = context;
    u->count->came += bytes;
    if (u->watch->progress) u->watch->progress(u->watch->context, u->count->came, u->count->bytes);
}

static void tries_again(void *context, const char *line)
{
    const Upload *u = context;
    if (u->open.store.again) u->open.store.again(u->open.store.context, line);
}

static Status one_send(Upload *u, const char *name, bool needed)
{
    char path[PATH_BYTES], address[PATH_BYTES];
    struct stat info;
    bool sent;
    const SendWatch watch = {bytes_sent, tries_again, u};
    TRY(path_join(path, u->run_dir, name));
    TRY(run_store_address(&u->open.store, name, address));
    int fd = place_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT && !needed) return OK;
    if (fd < 0 || fstat(fd, &info) != 0) {
        int error = errno;
        if (fd >= 0) close(fd);
        return FAIL(ERR_IO, "cannot read '%s': %s", path, strerror(error));
    }
    Status st = send_file(u->open.transport, &watch, fd, path, info.st_size, address, &sent);
    close(fd);
    if (st == OK && !sent) u->count->bytes -= info.st_size; /* of those that are to go */
    u->count->files++;
    u->count->sent += st == OK && sent;
    return st;
}

static Status place_held(Upload *u)
{
    Status st = run_store_held(&u->open, u->run_dir);
    u->count->taken = st == ERR_ARG;
    return st;
}

Status upload_run(const RunStore *store, const char *run_dir, int64_t step, const UploadWatch *watch,
                  UploadCount *count)
{
    Status st = OK;
    *count = (UploadCount){0};
    Upload u = {.run_dir = run_dir, .watch = watch, .count = count};
    TRY(run_store_open(store, &u.open));
    TRY_OUT(files_list(&u, step));
    TRY_OUT(place_held(&u));
    for (int i = 0; i < u.names.count; i++) {
        bool last = i + 1 == u.names.count;
        if (last) TRY_OUT(place_held(&u));
        TRY_OUT(one_send(&u, u.names.name[i], i < u.checkpoint || last));
    }
out:
    names_free(&u.names);
    run_store_close(&u.open);
    return st;
}
