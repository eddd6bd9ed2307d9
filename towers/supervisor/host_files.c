/* Bringing the records of other hosts to rank 0; see host_files.h. */
#include "towers/supervisor/host_files.h"

#include "kernels/base/errand.h"
#include "kernels/base/place.h"
#include "kernels/base/timeouts.h"
#include "nccl_sync/hosts/control.h"
#include "towers/files/files.h"
#include "towers/guard/capsule.h"
#include "towers/guard/capsule_files.h"
#include "towers/replica/replica.h"
#include "towers/store/manifest.h"
#include "towers/store/run_dir.h"
#include "towers/train/samples_log.h"

#include <dirent.h>

enum { PIECE = 1 << 18 };
static const uint64_t RUN_MAX = 8ull << 30; /* bytes that rank 0 takes from all others */

static const char *const capsule_names[FILE_KINDS] = {
    [FILE_MANIFEST] = "MANIFEST", [FILE_BATCH] = CAPSULE_BATCH,  [FILE_MODEL] = CAPSULE_MODEL,
    [FILE_TRAIN] = CAPSULE_TRAIN, [FILE_CHOICES] = CHOICES_FILE, [FILE_NETWORK] = NETWORK_FILE,
    [FILE_STATE] = CAPSULE_STATE};

/* The name of a file that is no part of a capsule, in the run directory of any rank. */
static void file_name(int rank, const ControlFile *file, char *name, size_t bytes)
{
    if (file->kind == FILE_STACK)
        snprintf(name, bytes, "stack-tower-%d.txt", file->tower);
    else
        snprintf(name, bytes, "rank%d-%s", rank, file->kind == FILE_SAMPLES ? SAMPLES_FILE : BAD_SAMPLES_FILE);
}

/* A copy of the job for a thread that storage may hold until the job is gone. It follows no pointer of it but `run_dir`, which is its own,
 * and `control`, which it keeps. */
typedef struct OwnJob {
    TrainJob job;
    char run_dir[PATH_BYTES];
} OwnJob;

static void job_own(OwnJob *own, const TrainJob *job)
{
    own->job = *job;
    own->job.host = NULL;
    snprintf(own->run_dir, sizeof own->run_dir, "%s", job->run_dir ? job->run_dir : "");
    own->job.run_dir = job->run_dir ? own->run_dir : NULL;
    control_keep(job->control);
}

/* ---- receiving */

/* What comes from one rank: a file, and the capsule that it belongs to. */
typedef struct Incoming {
    ControlFile head;
    uint64_t came;
    DurableFile *to; /* owned; NULL: its pieces are ignored */
    char path[PATH_BYTES], temporary[PATH_BYTES];
    char capsule[PATH_BYTES], capsule_temporary[PATH_BYTES]; /* "": none is coming */
    int64_t capsule_step;
    int capsule_tower;
} Incoming;

struct HostFiles {
    Errand errand;
    OwnJob own;
    uint64_t taken; /* bytes */
    Text problems;
    char text[2048];
    Incoming from[]; /* [nodes] */
};

static void file_drop(Incoming *in)
{
    durable_destroy(in->to);
    in->to = NULL;
}

static void capsule_drop(Incoming *in)
{
    file_drop(in);
    if (*in->capsule) (void)!tree_remove(in->capsule_temporary);
    in->capsule[0] = 0;
}

/* Whether a file has these bytes. */
static bool is_there(const char *path, const ControlFile *head)
{
    struct stat info;
    FileSum sum;
    if (place_lstat(path, &info) != 0 || !S_ISREG(info.st_mode) || (uint64_t)info.st_size != head->bytes) return false;
    return file_sum(path, &sum) == OK && sum.high == head->high && sum.low == head->low;
}

/* *wanted: rank 0 does not have the capsule yet. */
static Status capsule_begin(HostFiles *files, Incoming *in, const ControlFile *head, bool *wanted)
{
    char manifest[PATH_BYTES], place[PATH_BYTES];
    capsule_drop(in);
    TRY(capsule_place(files->own.run_dir, head->step, head->tower, place));
    if (!*place) return FAIL(ERR_IO, "the run directory has the maximum number of capsules already");
    TRY(path_join(manifest, place, capsule_names[FILE_MANIFEST]));
    *wanted = !is_there(manifest, head);
    if (!*wanted) return OK;
    TRY(path_temporary(in->capsule_temporary, place));
    TRY(tree_remove(in->capsule_temporary));
    if (place_mkdir(in->capsule_temporary) != 0)
        return FAIL(ERR_IO, "cannot create '%s': %s", in->capsule_temporary, strerror(errno));
    memcpy(in->capsule, place, sizeof place);
    in->capsule_step = head->step;
    in->capsule_tower = head->tower;
    return OK;
}

static Status file_begin(HostFiles *files, int rank, const ControlFile *head, bool *wanted)
{
    Incoming *in = &files->from[rank];
    const char *name = capsule_names[head->kind];
    char own[64];
    file_drop(in);
    in->head = *head;
    in->came = 0;
    *wanted = false;
    bool named = head->kind == FILE_SAMPLES || head->kind == FILE_BAD_SAMPLES;
    if (!named &&
        (head->tower >= files->own.job.local_batches.towers || job_tower_node(&files->own.job, head->tower) != rank))
        return FAIL(ERR_COMM, "tower %d is not one of its towers", head->tower);
    if (files->taken + head->bytes > RUN_MAX)
        return FAIL(ERR_IO, "the others have sent more than %" PRIu64 " bytes", RUN_MAX);
    if (head->kind == FILE_MANIFEST) TRY(capsule_begin(files, in, head, wanted));
    if (name) {
        *wanted = *in->capsule && head->step == in->capsule_step && head->tower == in->capsule_tower;
        if (!*wanted) return OK;
        TRY(path_join(in->temporary, in->capsule_temporary, name));
    } else {
        file_name(rank, head, own, sizeof own);
        TRY(path_join(in->path, files->own.run_dir, own));
        *wanted = !is_there(in->path, head);
        if (!*wanted) return OK;
        TRY(path_temporary(in->temporary, in->path));
        (void)place_unlink(in->temporary);
    }
    files->taken += head->bytes;
    return durable_create(in->temporary, head->bytes, &in->to);
}

/* Whether a file begins with all bytes of another one. */
static bool continues(const char *path, const char *older)
{
    char new_bytes[4096], old_bytes[4096];
    uint64_t left = 0, whole;
    int new_fd = -1, old_fd = -1;
    bool same = file_open(older, OF_RUN, ERR_IO, CONTROL_FILE_MAX, &old_fd, &left) == OK &&
                file_open(path, OF_RUN, ERR_IO, CONTROL_FILE_MAX, &new_fd, &whole) == OK && left <= whole;
    while (same && left > 0) {
        ssize_t got = read(old_fd, old_bytes, sizeof old_bytes);
        same = got > 0 && read(new_fd, new_bytes, (size_t)got) == got && !memcmp(old_bytes, new_bytes, (size_t)got);
        if (same) left -= (uint64_t)got;
    }
    if (old_fd >= 0) close(old_fd);
    if (new_fd >= 0) close(new_fd);
    return same;
}

/* A resumed run may have rank N on a host that lacks the rows from before. The list that has them is then kept beside the
 * new one, as NAME.1, NAME.2, ... */
static Status older_keep(const Incoming *in)
{
    char aside[PATH_BYTES + 16];
    struct stat info;
    if (place_lstat(in->path, &info) != 0 || !S_ISREG(info.st_mode) || continues(in->temporary, in->path)) return OK;
    int number = 1;
    do snprintf(aside, sizeof aside, "%s.%d", in->path, number++);
    while (place_lstat(aside, &info) == 0);
    return place_rename(in->path, aside, 0) == 0 ? OK
                                                 : FAIL(ERR_IO, "cannot rename '%s': %s", in->path, strerror(errno));
}

static Status capsule_end(HostFiles *files, Incoming *in)
{
    Status st = OK;
    Manifest *manifest = NULL;
    TRY_OUT(manifest_open(in->capsule_temporary, &manifest));
    TRY_OUT(manifest_verify(manifest, in->capsule_temporary));
    TRY_OUT(capsule_publish(in->capsule_temporary, in->capsule, files->own.run_dir));
out:
    manifest_destroy(manifest);
    capsule_drop(in); /* after an exchange the temporary name has the older capsule */
    return st;
}

static Status file_end(HostFiles *files, Incoming *in)
{
    FileSum sum;
    Status st = durable_finish(in->to, &sum);
    if (st == OK && (sum.high != in->head.high || sum.low != in->head.low))
        st = FAIL(ERR_COMM, "its digest differs from that of what has come");
    if (st != OK) (void)place_unlink(in->temporary);
    file_drop(in);
    TRY(st);
    if (in->head.kind != FILE_STACK && !capsule_names[in->head.kind]) st = older_keep(in);
    if (st == OK && !capsule_names[in->head.kind]) st = file_publish(in->temporary, in->path);
    if (st != OK && !capsule_names[in->head.kind]) (void)place_unlink(in->temporary);
    TRY(st);
    return in->head.kind == FILE_STATE ? capsule_end(files, in) : OK;
}

static bool file_take(void *context, int rank, ControlKind kind, const void *content, size_t bytes)
{
    HostFiles *files = context;
    Incoming *in = &files->from[rank];
    bool wanted = true;
    Status st = OK;
    ControlFile head = in->head;
    if (kind == CONTROL_FILE) {
        memcpy(&head, content, sizeof head);
        st = file_begin(files, rank, &head, &wanted);
    } else if (in->to) {
        st = bytes <= head.bytes - in->came ? durable_write(in->to, content, bytes)
                                            : FAIL(ERR_COMM, "more has come than its size");
        in->came += bytes;
    }
    if (st == OK && in->to && in->came == head.bytes) st = file_end(files, in);
    if (st == OK) return wanted;
    char what[64];
    if (capsule_names[head.kind])
        snprintf(what, sizeof what, "capsule nan-step-%" PRId64 "-tower-%d", head.step, head.tower);
    else
        file_name(rank, &head, what, sizeof what);
    text_add(&files->problems, "%s%s of rank %d stays on %s: %s", files->problems.used ? "\n" : "", what, rank,
             control_host(files->own.job.control, rank), status_message());
    capsule_drop(in);
    return false;
}

static void files_drop(void *context)
{
    HostFiles *files = context;
    control_release(files->own.job.control);
    free(files);
}

static void *files_take(void *context)
{
    HostFiles *files = context;
    ControlPlane *control = files->own.job.control;
    while (!errand_asked(&files->errand, 0)) (void)control_file_next(control, 1, file_take, files);
    for (int r = 0; r < control_ranks(control); r++) capsule_drop(&files->from[r]);
    errand_done(&files->errand);
    return NULL;
}

Status host_files_open(const TrainJob *job, HostFiles **made)
{
    int nodes = control_ranks(job->control);
    *made = NULL;
    if (!job->run_dir) return OK;
    HostFiles *files = calloc(1, sizeof *files + (size_t)nodes * sizeof *files->from);
    if (!files) return FAIL(ERR_MEMORY, "no memory for the files of %d nodes", nodes);
    job_own(&files->own, job);
    files->problems = text_start(files->text, sizeof files->text);
    control_take(job->control, true);
    if (!errand_start(&files->errand, files_take, files_drop)) {
        control_take(job->control, false);
        return FAIL(ERR_MEMORY, "cannot start the thread that takes the files of other nodes");
    }
    *made = files;
    return OK;
}

void host_files_close(HostFiles *files, char *problems, size_t bytes)
{
    *problems = 0;
    if (!files) return;
    errand_ask(&files->errand);
    control_take(files->own.job.control, false);
    if (errand_wait(&files->errand, FILES_LEAVE_MS))
        snprintf(problems, bytes, "%s", files->text);
    else
        snprintf(problems, bytes, "files of other nodes stay on their hosts: the storage of %s does not answer",
                 files->own.run_dir);
    errand_leave(&files->errand);
}

/* ---- sending */

static Status file_send(ControlPlane *control, const char *path, ControlFile head, const ControlFile *capsule)
{
    Status st = OK;
    uint64_t bytes;
    int fd = -1;
    FileSum sum;
    char *piece = malloc(PIECE);
    if (!piece) TRY_OUT(FAIL(ERR_MEMORY, "no memory for a piece of '%s'", path));
    TRY_OUT(file_sum(path, &sum));
    TRY_OUT(file_open(path, OF_RUN, ERR_IO, CONTROL_FILE_MAX, &fd, &bytes));
    head.bytes = sum.bytes;
    head.high = sum.high;
    head.low = sum.low;
    if (head.bytes > CONTROL_FILE_MAX) TRY_OUT(FAIL(ERR_IO, "'%s' is too large to be brought", path));
    TRY_OUT(control_send(control, CONTROL_FILE, &head, sizeof head));
    for (uint64_t sent = 0; sent < head.bytes;) {
        ssize_t got = read(fd, piece, head.bytes - sent < PIECE ? (size_t)(head.bytes - sent) : PIECE);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0)
            TRY_OUT(FAIL(ERR_IO, "cannot read '%s': %s", path, got ? strerror(errno) : "it has become shorter"));
        if (control_unwanted(control, &head) || (capsule && control_unwanted(control, capsule))) break;
        TRY_OUT(control_send(control, CONTROL_PIECE, piece, (size_t)got));
        sent += (uint64_t)got;
    }
out:
    if (fd >= 0) close(fd);
    free(piece);
    return st;
}

static Status capsule_send(const TrainJob *job, const char *directory, ControlFile head)
{
    ControlFile manifest = head;
    FileSum sum;
    for (int kind = FILE_MANIFEST; kind <= FILE_STATE; kind++) {
        char path[PATH_BYTES];
        TRY(path_join(path, directory, capsule_names[kind]));
        if (place_access(path, F_OK) != 0) continue; /* not every capsule has all */
        head.kind = kind;
        if (kind == FILE_MANIFEST) {
            TRY(file_sum(path, &sum));
            manifest = (ControlFile){FILE_MANIFEST, head.tower, head.step, sum.bytes, sum.high, sum.low};
        }
        if (control_unwanted(job->control, &manifest)) return OK;
        TRY(file_send(job->control, path, head, &manifest));
    }
    return OK;
}

/* What a name in the run directory is; false: nothing that is brought. */
static bool name_read(const TrainJob *job, const char *name, ControlFile *head)
{
    char same[80];
    *head = (ControlFile){0};
    for (head->kind = FILE_SAMPLES; head->kind <= FILE_BAD_SAMPLES; head->kind++) {
        file_name(job->node, head, same, sizeof same);
        if (!strcmp(name, same)) return true;
    }
    if (sscanf(name, "stack-tower-%" SCNd32, &head->tower) == 1) {
        head->kind = FILE_STACK;
        file_name(job->node, head, same, sizeof same);
    } else if (sscanf(name, "nan-step-%" SCNd64 "-tower-%" SCNd32, &head->step, &head->tower) == 2) {
        head->kind = FILE_MANIFEST;
        snprintf(same, sizeof same, "nan-step-%" PRId64 "-tower-%" PRId32, head->step, head->tower);
    } else {
        return false;
    }
    return !strcmp(name, same) && head->tower >= 0 && head->tower < job->local_batches.towers && head->step >= 0 &&
           job_tower_node(job, head->tower) == job->node;
}

Status host_files_send(const TrainJob *job, time_t since)
{
    Status st = OK, first = OK;
    StatusText words;
    struct dirent *entry;
    DIR *listing = job->run_dir ? place_list(job->run_dir) : NULL;
    while (listing && st != ERR_COMM && (entry = place_next(listing))) {
        char path[PATH_BYTES];
        struct stat info;
        ControlFile head;
        if (!name_read(job, entry->d_name, &head)) continue;
        if (path_join(path, job->run_dir, entry->d_name) != OK || place_lstat(path, &info) != 0 ||
            info.st_mtime < since)
            continue;
        st = head.kind == FILE_MANIFEST ? capsule_send(job, path, head) : file_send(job->control, path, head, NULL);
        if (st == OK || first != OK) continue;
        first = st;
        status_keep(&words);
    }
    if (listing) closedir(listing);
    return first == OK ? OK : status_restore(first, &words);
}

/* ---- sending, in a thread */

struct HostSender {
    Errand errand;
    OwnJob own;
    time_t since;
    Status status;
    StatusText words;
};

static void sender_drop(void *context)
{
    HostSender *sender = context;
    control_release(sender->own.job.control);
    free(sender);
}

static void *sender_run(void *context)
{
    HostSender *sender = context;
    sender->status = host_files_send(&sender->own.job, sender->since);
    status_keep(&sender->words);
    errand_done(&sender->errand);
    return NULL;
}

Status host_sender_start(const TrainJob *job, time_t since, HostSender **made)
{
    *made = calloc(1, sizeof **made);
    if (!*made) return FAIL(ERR_MEMORY, "no memory for the thread that sends them");
    job_own(&(*made)->own, job);
    (*made)->since = since;
    if (errand_start(&(*made)->errand, sender_run, sender_drop)) return OK;
    *made = NULL;
    return FAIL(ERR_MEMORY, "cannot start the thread that sends them");
}

bool host_sender_ended(HostSender *sender)
{
    return errand_wait(&sender->errand, 0);
}

Status host_sender_leave(HostSender *sender)
{
    Status st = errand_wait(&sender->errand, 0) ? status_restore(sender->status, &sender->words)
                                                : FAIL(ERR_IO, "storage does not answer");
    errand_leave(&sender->errand);
    return st;
}
