/* Standard streams whose writers never wait; see outlet.h. */
#include "kernels/base/outlet.h"

#include "kernels/base/clock.h"
#include "kernels/base/pause.h"
#include "kernels/base/thread.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

enum { ROOM = 1 << 16, PIECE = 4096, LINE = 1 << 14 };

typedef struct Outlet {
    int fd;
    bool open;
    pid_t owner; /* the process that has the thread */
    FILE *stream;
    pthread_mutex_t lock;
    pthread_cond_t filled;
    pthread_t thread;
    bool running, ends; /* the thread, which is to end once the queue is empty */
    size_t first, used; /* of the queue */
    int64_t moved_ns;   /* when the thread has last got rid of some of it */
    int64_t left_out;   /* bytes */
    int error;          /* of the last write that failed */
    char queue[ROOM], line[LINE];
} Outlet;

static Outlet outlets[OUTLETS] = {
    [OUTLET_STDOUT] = {.fd = STDOUT_FILENO, .lock = PTHREAD_MUTEX_INITIALIZER, .filled = PTHREAD_COND_INITIALIZER},
    [OUTLET_STDERR] = {.fd = STDERR_FILENO, .lock = PTHREAD_MUTEX_INITIALIZER, .filled = PTHREAD_COND_INITIALIZER}};

/* ---- the queue; its lock is held */

static void queue_add(Outlet *o, const char *bytes, size_t count)
{
    size_t at = (o->first + o->used) % ROOM, head = count < ROOM - at ? count : ROOM - at;
    memcpy(o->queue + at, bytes, head);
    memcpy(o->queue, bytes + head, count - head);
    o->used += count;
    pthread_cond_signal(&o->filled);
}

static void queue_moved(Outlet *o, size_t count)
{
    o->first = (o->first + count) % ROOM;
    o->used -= count;
    o->moved_ns = clock_ns();
}

static void gap_note(Outlet *o)
{
    char note[128];
    int bytes = snprintf(note, sizeof note, "\n(%" PRId64 " bytes were left out here, because nobody read them)\n",
                         o->left_out);
    o->left_out = 0;
    queue_add(o, note, (size_t)bytes);
}

/* ---- the thread */

/* Writes a piece, without the lock, waiting as long as it takes. Returns the error, or 0. */
static int piece_write(int fd, const char *piece, size_t count, size_t *put)
{
    ssize_t done;
    while ((done = write(fd, piece, count)) < 0 && (errno == EINTR || errno == EAGAIN))
        if (errno == EAGAIN) (void)poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
    *put = done < 0 ? 0 : (size_t)done;
    return done < 0 ? errno : 0;
}

static void *outlet_run(void *context)
{
    Outlet *o = context;
    char piece[PIECE];
    pthread_mutex_lock(&o->lock);
    for (;;) {
        while (!o->used && !o->ends) pthread_cond_wait(&o->filled, &o->lock);
        if (!o->used) break;
        size_t count = o->used < PIECE ? o->used : PIECE, put;
        if (count > ROOM - o->first) count = ROOM - o->first;
        memcpy(piece, o->queue + o->first, count);
        pthread_mutex_unlock(&o->lock);
        int error = piece_write(o->fd, piece, count, &put);
        pthread_mutex_lock(&o->lock);
        if (error) o->error = error;
        queue_moved(o, error ? o->used : put);
        if (!o->used && o->left_out && !error && o == &outlets[OUTLET_STDERR]) gap_note(o);
    }
    o->running = false;
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

/* A full pipe, a stopped terminal; what is a file is ready always. */
static bool takes_nothing(int fd)
{
    struct pollfd out = {.fd = fd, .events = POLLOUT};
    return poll(&out, 1, 0) == 0;
}

/* Until the queue is empty, or nothing of it has left for OUTLET_STALL_MS because the stream takes nothing. If it would, the
 * thread is late: on a machine that is busy it has had no processor, and what the process ends with would be lost. It gets
 * `late_ms`. */
static bool outlet_drain(Outlet *o, int late_ms)
{
    int64_t since = clock_ns();
    pthread_mutex_lock(&o->lock);
    while (o->running && o->used) {
        int64_t last = o->moved_ns > since ? o->moved_ns : since;
        int64_t silent_ms = (clock_ns() - last) / 1000000;
        if (silent_ms > OUTLET_STALL_MS && (silent_ms > late_ms || takes_nothing(o->fd))) break;
        pthread_mutex_unlock(&o->lock);
        pause_ms(OUTLET_LOOK_MS);
        pthread_mutex_lock(&o->lock);
    }
    bool empty = !o->used;
    pthread_mutex_unlock(&o->lock);
    return empty;
}

/* ---- the stream */

static ssize_t direct_write(int fd, const char *bytes, size_t count)
{
    size_t done = 0, put;
    while (done < count && piece_write(fd, bytes + done, count - done, &put) == 0) done += put;
    return (ssize_t)done;
}

/* What the stream writes: for stdio, 0 is an error. Of standard error nobody asks whether it was written. */
static ssize_t outlet_write(void *context, const char *bytes, size_t count)
{
    Outlet *o = context;
    if (getpid() != o->owner) return direct_write(o->fd, bytes, count);
    pthread_mutex_lock(&o->lock);
    bool queued = o->running, failed = o->error && o == &outlets[OUTLET_STDOUT];
    if (queued && o->used + count <= ROOM)
        queue_add(o, bytes, count);
    else if (queued)
        o->left_out += (int64_t)count;
    pthread_mutex_unlock(&o->lock);
    if (!queued) return direct_write(o->fd, bytes, count);
    return failed ? 0 : (ssize_t)count;
}

void outlet_open(OutletStream stream)
{
    Outlet *o = &outlets[stream];
    FILE **standard = stream == OUTLET_STDOUT ? &stdout : &stderr;
    if (o->open) return;
    fflush(*standard);
    FILE *made = fopencookie(o, "w", (cookie_io_functions_t){.write = outlet_write});
    if (!made) return; /* without memory it stays as it is */
    (void)setvbuf(made, o->line, stream == OUTLET_STDOUT ? _IOFBF : _IOLBF, sizeof o->line);
    o->owner = getpid();
    o->open = true;
    o->stream = *standard = made;
    if (!outlets[!stream].open) (void)atexit(outlets_finish);
}

static bool is_ours(const Outlet *o)
{
    return o->open && o->owner == getpid();
}

void outlets_pause(void)
{
    for (int i = 0; i < OUTLETS; i++) {
        Outlet *o = &outlets[i];
        if (!is_ours(o)) continue;
        fflush(o->stream);
        bool empty = outlet_drain(o, OUTLET_STALL_MS); /* what stays is written afterwards */
        pthread_mutex_lock(&o->lock);
        bool joins = o->running && empty;
        o->ends = joins;
        pthread_cond_signal(&o->filled);
        pthread_mutex_unlock(&o->lock);
        if (joins) pthread_join(o->thread, NULL);
    }
}

void outlets_resume(void)
{
    for (int i = 0; i < OUTLETS; i++) {
        Outlet *o = &outlets[i];
        if (!is_ours(o)) continue;
        pthread_mutex_lock(&o->lock);
        o->ends = false;
        if (!o->running) o->running = thread_start(&o->thread, outlet_run, o) == 0;
        pthread_mutex_unlock(&o->lock);
    }
}

bool outlet_waits(OutletStream stream)
{
    Outlet *o = &outlets[stream];
    pthread_mutex_lock(&o->lock);
    bool waits = o->used > 0;
    pthread_mutex_unlock(&o->lock);
    return waits;
}

void outlets_finish(void)
{
    for (int i = 0; i < OUTLETS; i++) {
        if (!is_ours(&outlets[i])) continue;
        fflush(outlets[i].stream);
        (void)outlet_drain(&outlets[i], OUTLET_LATE_MS);
    }
}

/* ---- results */

/* True if the reader of our standard output (`| head`) has closed it. */
static bool reader_left(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&out, 1, 0) == 1 && (out.revents & POLLERR);
}

Status output_end(Status st, Ending *ending)
{
    Outlet *o = &outlets[OUTLET_STDOUT];
    bool failed = fflush(stdout) != 0 || ferror(stdout), unread = is_ours(o) && !outlet_drain(o, OUTLET_LATE_MS);
    failed |= unread || o->error || o->left_out;
    if (!failed) return st;
    if (reader_left()) {
        *ending = (Ending){.signal = SIGPIPE};
        return FAIL(ERR_INTERRUPTED, "the reader of standard output has left");
    }
    return st != OK ? st : FAIL(ERR_IO, "cannot write to standard output%s", unread ? ": nobody reads it" : "");
}
