/* Files that grow by whole records; see append.h. */
#include "towers/files/append.h"

#include "kernels/base/array.h"
#include "kernels/base/clock.h"
#include "kernels/base/progress.h"
#include "kernels/base/thread.h"
#include "towers/files/files.h"

enum { FLUSH_BYTES = 1 << 16 };

struct AppendFile {
    char *path;
    char *buffer;
    size_t used, room;
    off_t whole; /* the file's size up to the last whole record */
    int fd;
    AppendQueue *queue; /* borrowed; NULL: who adds a record writes it */
};

/* ---- a file */

Status append_open(const char *path, bool exclusive, AppendFile **made)
{
    struct stat info;
    AppendFile *file = calloc(1, sizeof *file);
    if (!file || !(file->path = strdup(path))) {
        free(file);
        return FAIL(ERR_MEMORY, "no memory for the writer of '%s'", path);
    }
    Status st = run_file_open(path, true, exclusive, &file->fd);
    if (st == OK && STORAGE(fstat(file->fd, &info)) != 0) {
        st = FAIL(ERR_IO, "cannot determine the size of '%s': %s", path, strerror(errno));
        (void)STORAGE(close(file->fd));
    }
    if (st != OK) {
        free(file->path);
        free(file);
        return st;
    }
    file->whole = info.st_size;
    *made = file;
    return OK;
}

static Status flush_now(AppendFile *file)
{
    size_t done = 0;
    while (done < file->used) {
        ssize_t count = STORAGE(pwrite(file->fd, file->buffer + done, file->used - done, file->whole + (off_t)done));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) {
            Status st = FAIL(ERR_IO, "cannot write %zu bytes to '%s': %s", file->used, file->path,
                             strerror(count < 0 ? errno : ENOSPC));
            file->used = 0;
            (void)STORAGE(ftruncate(file->fd, file->whole));
            return st;
        }
        done += (size_t)count;
    }
    file->whole += (off_t)file->used;
    file->used = 0;
    return OK;
}

static Status record_now(AppendFile *file, const void *bytes, size_t count)
{
    if (file->used && file->used + count > FLUSH_BYTES) TRY(flush_now(file));
    TRY(array_reserve(&file->buffer, &file->room, file->used + count, 1, "a record of a file"));
    memcpy(file->buffer + file->used, bytes, count);
    file->used += count;
    return OK;
}

/* ---- the queue */

/* What comes before the bytes of a record. */
typedef struct Head {
    AppendFile *file;
    size_t count;
} Head;

struct AppendQueue {
    size_t bound;
    pthread_t thread;
    pthread_mutex_t lock; /* of all that follows, but for `taken` while the thread writes it */
    pthread_cond_t added, done;
    bool due, ends;    /* what was added is to be written now; there will be no more */
    char *waits;       /* heads and records */
    char *taken;       /* those that the thread writes */
    size_t used, room; /* of `waits` */
    size_t taken_used, taken_room;
    int64_t begun, ended; /* how often the thread has taken what waited, and written it */
    int64_t begun_ns;     /* of what it writes; 0: nothing */
    AppendReport report;
};

static Head head_at(const char *at)
{
    Head head;
    memcpy(&head, at, sizeof head);
    return head;
}

static void result_count(Status st, AppendReport *report)
{
    if (st == OK) return;
    if (report->failed++ == 0) snprintf(report->why, sizeof report->why, "%s", status_message());
    report->written = false;
}

/* Writes what was taken, file by file as its records came. */
static void taken_write(AppendQueue *q, AppendReport *report)
{
    report->failed = 0;
    report->written = true;
    for (size_t at = 0; at < q->taken_used;) {
        Head head = head_at(q->taken + at);
        result_count(record_now(head.file, q->taken + at + sizeof head, head.count), report);
        at += sizeof head + head.count;
    }
    for (size_t at = 0; at < q->taken_used;) {
        Head head = head_at(q->taken + at);
        result_count(flush_now(head.file), report);
        at += sizeof head + head.count;
    }
}

static void queue_take(AppendQueue *q)
{
    char *bytes = q->taken;
    size_t room = q->taken_room;
    q->taken = q->waits, q->taken_used = q->used, q->taken_room = q->room;
    q->waits = bytes, q->used = 0, q->room = room;
    q->due = false;
    q->begun++;
    q->begun_ns = clock_ns();
}

static void report_add(AppendQueue *q, const AppendReport *now)
{
    int64_t took = clock_ns() - q->begun_ns;
    if (!q->report.failed && now->failed) memcpy(q->report.why, now->why, sizeof now->why);
    q->report.failed += now->failed;
    q->report.written = now->written;
    if (took > q->report.longest_ns) q->report.longest_ns = took;
}

static void *queue_run(void *context)
{
    AppendQueue *q = context;
    ProgressSlot nobody_waits = {0};
    AppendReport now;
    progress_of_thread(&nobody_waits);
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (!(q->due && q->used) && !q->ends) pthread_cond_wait(&q->added, &q->lock);
        if (!q->used) break;
        queue_take(q);
        pthread_mutex_unlock(&q->lock);
        taken_write(q, &now);
        pthread_mutex_lock(&q->lock);
        report_add(q, &now);
        q->taken_used = 0;
        q->begun_ns = 0;
        q->ended++;
        pthread_cond_broadcast(&q->done);
    }
    pthread_mutex_unlock(&q->lock);
    progress_of_thread(NULL);
    return NULL;
}

static void due_now(AppendQueue *q)
{
    q->due = true;
    pthread_cond_signal(&q->added);
}

static Status queue_add(AppendQueue *q, AppendFile *file, const void *bytes, size_t count)
{
    Head head = {file, count};
    pthread_mutex_lock(&q->lock);
    while (q->used && q->used + q->taken_used + count > q->bound) {
        due_now(q);
        progress_storage_begin();
        pthread_cond_wait(&q->done, &q->lock);
        (void)progress_storage_end(0);
    }
    Status st = array_reserve(&q->waits, &q->room, q->used + sizeof head + count, 1, "records that wait for storage");
    if (st == OK) {
        memcpy(q->waits + q->used, &head, sizeof head);
        memcpy(q->waits + q->used + sizeof head, bytes, count);
        q->used += sizeof head + count;
    }
    if (q->used > FLUSH_BYTES) due_now(q);
    pthread_mutex_unlock(&q->lock);
    return st;
}

static void queue_flush(AppendQueue *q)
{
    pthread_mutex_lock(&q->lock);
    if (q->used) due_now(q);
    pthread_mutex_unlock(&q->lock);
}

void append_queue_settle(AppendQueue *q)
{
    pthread_mutex_lock(&q->lock);
    int64_t last = q->begun + (q->used > 0);
    if (q->used) due_now(q);
    progress_storage_begin();
    while (q->ended < last) pthread_cond_wait(&q->done, &q->lock);
    (void)progress_storage_end(0);
    pthread_mutex_unlock(&q->lock);
}

void append_queue_report(AppendQueue *q, AppendReport *report)
{
    pthread_mutex_lock(&q->lock);
    *report = q->report;
    q->report = (AppendReport){0};
    pthread_mutex_unlock(&q->lock);
}

int64_t append_queue_waiting(AppendQueue *q)
{
    pthread_mutex_lock(&q->lock);
    int64_t ns = q->begun_ns ? clock_ns() - q->begun_ns : 0;
    pthread_mutex_unlock(&q->lock);
    return ns;
}

Status append_queue_open(size_t bound, AppendQueue **made)
{
    AppendQueue *q = calloc(1, sizeof *q);
    if (!q) return FAIL(ERR_MEMORY, "no memory for the records that wait for storage");
    q->bound = bound;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->added, NULL);
    pthread_cond_init(&q->done, NULL);
    int error = thread_start(&q->thread, queue_run, q);
    if (error) {
        free(q);
        return FAIL(ERR_MEMORY, "cannot start the thread that writes records: %s", strerror(error));
    }
    *made = q;
    return OK;
}

void append_queue_close(AppendQueue *q)
{
    if (!q) return;
    pthread_mutex_lock(&q->lock);
    q->ends = true;
    pthread_cond_signal(&q->added);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
    pthread_cond_destroy(&q->done);
    pthread_cond_destroy(&q->added);
    pthread_mutex_destroy(&q->lock);
    free(q->waits);
    free(q->taken);
    free(q);
}

/* ---- either */

void append_through(AppendFile *file, AppendQueue *queue)
{
    file->queue = queue;
}

Status append_record(AppendFile *file, const void *bytes, size_t count)
{
    return file->queue ? queue_add(file->queue, file, bytes, count) : record_now(file, bytes, count);
}

Status append_flush(AppendFile *file)
{
    if (!file->queue) return flush_now(file);
    queue_flush(file->queue);
    return OK;
}

Status append_sync(const AppendFile *file)
{
    if (file->queue) append_queue_settle(file->queue);
    return STORAGE(fsync(file->fd)) == 0 ? OK : FAIL(ERR_IO, "fsync of '%s' failed: %s", file->path, strerror(errno));
}

void append_close(AppendFile *file)
{
    if (!file) return;
    if (file->queue) append_queue_settle(file->queue);
    (void)!flush_now(file);
    (void)STORAGE(close(file->fd));
    free(file->buffer);
    free(file->path);
    free(file);
}
