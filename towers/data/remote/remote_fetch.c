/* A queue of shards and the threads that bring them; see remote_fetch.h.
 *
 * The queue is of one process: a process that was forked begins its own, with threads of its own, when it first asks. What was counted is
 * shared by all. A process that only reads what is here and compared starts no threads. The supervisor's survey does no more, unless another
 * run takes a shard out of the cache at that moment: threads that download when it forks leave the locks of their files to its children. */
#include "towers/data/remote/remote_fetch.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "kernels/base/clock.h"
#include "kernels/base/progress.h"
#include "kernels/base/thread.h"
#include "kernels/base/timeouts.h"
#include "towers/data/remote/stand_in.h"
#include "towers/remote/room.h"

/* So many shards come at once, if nobody waits for more: enough to fill a long link. More would come at the cost of what is needed first. */
enum { THREADS = 8, PIPE = 4, COMPARISONS = 2, TRIES = 4 };

/* Connections share a link unevenly: one may get next to nothing while those behind it come. So none begins while one that comes has been
 * passed by so many, for as long as that may take: four times as long as others took, but at least some seconds. */
enum { PASSES = 6, PATIENCE = 4 };

/* WANTED waits for a thread, COMING has one; HERE came, and may be gone again. */
typedef enum ComingState { AWAY, WANTED, COMING, HERE, FAILED } ComingState;

typedef struct Coming {
    const CachedObject *object; /* of the list */
    ComingState state;
    int64_t priority;   /* the lowest comes first; below 0: a reader waits */
    int64_t place;      /* of what is AWAY, the lowest comes first; 0: nobody has said when it is needed */
    int64_t crowded_ns; /* since when a reader waits and there is no room; 0: there was */
    int64_t look_ns;    /* no thread looks for its room again before: others that readers wait for may fit meanwhile */
    int64_t turn, begun_ns; /* of what is COMING: how many had begun, and when it did */
    int holds;              /* of readers that need it in their windows */
    int window;             /* of RemoteFetch.windows, when it was wanted */
    Status status;
    char *why;        /* owned: of a failure, else NULL */
    struct stat seen; /* the file that a thread of this process has compared with the stand-in */
} Coming;

typedef struct Traffic {
    _Atomic int64_t bytes, retries, wait_ns;
    _Atomic bool met; /* a server has answered (TransportConfig) */
} Traffic;

struct RemoteFetch {
    ShardFetch door; /* first, as it leads back here */
    CacheConfig config;
    char *dir; /* owned */
    bool rest;
    CachedObjects objects; /* owned */
    json_t *places;        /* owned: of the path of each stand-in, its number in `coming` */
    json_t *notes;         /* owned: likewise of the note beside its object (remote/room.h) */
    Coming *coming;        /* owned: [count] */
    int count;
    Traffic *traffic; /* owned; shared by all processes */
    _Atomic bool stop;
    _Atomic int process; /* whose the queue is; negative: that it is being made */

    pthread_mutex_t lock; /* protects what follows, and `coming` */
    pthread_cond_t work, came;
    pthread_t thread[THREADS];
    int threads;           /* how many */
    bool full_said;        /* that the disk is full */
    int64_t crowded_until; /* ns: nothing is read ahead before, as there was no room */
    int windows;           /* that readers have begun to want */
    bool begun;            /* a shard of the first of them has come, or all of it is here, or cannot come */
    int64_t turns;         /* how many shards have begun to come */
    int64_t took_ns;       /* how long one takes, of late */
    int64_t later;         /* priorities given out to what is read ahead */
    int64_t ordered;       /* likewise, places */
    int64_t urgent;        /* likewise, to what readers wait for */
};

static Coming *coming_find(const ShardFetch *door, const char *path, RemoteFetch **fetch)
{
    RemoteFetch *f = *fetch = (RemoteFetch *)(uintptr_t)door;
    const json_t *at = json_object_get(f->places, path);
    return at ? &f->coming[json_integer_value(at)] : NULL;
}

/* ---- the threads */

/* With the lock held: whether no shard of the first window, for which the first step waits, has come yet. Nothing else comes meanwhile, which
 * would take its share of the network; behind that, others fill the PIPE. Readers that take samples of all shards have no windows. */
static bool is_first_window(RemoteFetch *f)
{
    if (f->begun || !f->windows) return false;
    bool wanted = false; /* by a window: threads may look before the first one has said what it needs */
    for (int i = 0; i < f->count; i++) {
        const Coming *c = &f->coming[i];
        if (c->window <= 1 && (c->state == WANTED || c->state == COMING)) return true;
        wanted = wanted || c->window > 0;
    }
    f->begun = f->windows > 1;
    return !wanted && !f->begun;
}

/* With the lock held: what is needed first of what nobody has wanted. */
static Coming *rest_of(RemoteFetch *f)
{
    Coming *first = NULL;
    for (int i = 0; i < f->count; i++) {
        Coming *c = &f->coming[i];
        if (c->state == AWAY && (!first || (c->place && (!first->place || c->place < first->place)))) first = c;
    }
    return first;
}

/* With the lock held: whether something that comes lacks its part of the link. */
static bool is_passed(const RemoteFetch *f, int64_t now)
{
    int64_t least = PASSED_SECONDS * INT64_C(1000000000), wait = PATIENCE * f->took_ns;
    if (wait < least) wait = least;
    for (int i = 0; i < f->count; i++) {
        const Coming *c = &f->coming[i];
        if (c->state == COMING && c->turn && f->turns - c->turn >= PASSES && now - c->begun_ns < wait) return true;
    }
    return false;
}

/* With the lock held: what is to come next. What readers wait for comes at once. What is read ahead shares the link with that, so it fills the
 * PIPE alone, in the order in which it is needed, and behind it comes the rest. Readers that have no windows always wait for something. */
static Coming *next_of(RemoteFetch *f)
{
    Coming *first = NULL;
    int64_t now = clock_ns();
    int coming = 0;
    bool crowded = now < f->crowded_until, alone = is_first_window(f), wanted = false;
    for (int i = 0; i < f->count; i++) {
        Coming *c = &f->coming[i];
        bool due = c->state == WANTED && (c->priority < 0 ? now >= c->look_ns : !crowded && !(alone && c->window > 1));
        if (due && (!first || c->priority < first->priority)) first = c;
        wanted = wanted || (f->windows && c->state == WANTED);
        coming += c->state == COMING;
    }
    if (first && first->priority < 0) return first;
    if (coming >= PIPE || is_passed(f, now)) return NULL;
    return first || wanted || alone || !f->rest ? first : rest_of(f);
}

static bool is_seen(RemoteFetch *f, const Coming *c, int fd)
{
    struct stat now;
    pthread_mutex_lock(&f->lock);
    bool seen = fstat(fd, &now) == 0 && now.st_ino == c->seen.st_ino && now.st_dev == c->seen.st_dev &&
                now.st_mtim.tv_sec == c->seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == c->seen.st_mtim.tv_nsec;
    pthread_mutex_unlock(&f->lock);
    return seen;
}

static void seen_put(RemoteFetch *f, Coming *c, int fd)
{
    struct stat now;
    pthread_mutex_lock(&f->lock);
    if (fstat(fd, &now) == 0) c->seen = now;
    pthread_mutex_unlock(&f->lock);
}

/* Compare what is here with its stand-in. *here is false if it must come, or come again. */
static Status here_check(RemoteFetch *f, Coming *c, bool last, bool *here)
{
    char why[STATUS_MESSAGE_BYTES];
    int fd;
    const CachedObject *o = c->object;
    *here = false;
    TRY(cache_open(&f->config, o, &fd));
    if (fd < 0) return OK;
    Status st = stand_in_check(&f->config, o, fd, here, why);
    if (st == OK && *here) seen_put(f, c, fd);
    close(fd);
    if (st != OK || *here) return st;
    stand_in_drop(&f->config, o, last);
    for (int i = 0; last && i < f->count; i++) stand_in_doubt(&f->config, f->coming[i].object);
    return last ? FAIL(ERR_IO,
                       "%s does not fit what its set was opened with: %.1200s; the same command finds anew what it "
                       "holds",
                       o->address, why)
                : OK;
}

/* ---- room */

static bool is_held(void *context, const char *note)
{
    RemoteFetch *f = context;
    const json_t *at = json_object_get(f->notes, note);
    bool held = false;
    if (at) {
        pthread_mutex_lock(&f->lock);
        held = f->coming[json_integer_value(at)].holds > 0;
        pthread_mutex_unlock(&f->lock);
    }
    return held;
}

/* Room for a shard that is wanted. What the windows of this process hold stays for one that is read ahead, but not for one that a reader waits
 * for, unless it is open. */
static Status room_find(RemoteFetch *f, const Coming *c, bool urgent, Room *room)
{
    char line[PATH_BYTES];
    int fd;
    *room = ROOM_MADE;
    if (f->config.limit <= 0) return OK;
    TRY(cache_open(&f->config, c->object, &fd));
    if (fd >= 0) close(fd);
    if (fd >= 0) return OK; /* it is here */
    const RoomConfig config = {&f->config, urgent ? NULL : is_held, f};
    TRY(room_make(&config, c->object, room));
    if (*room != ROOM_DISK) return OK;
    pthread_mutex_lock(&f->lock);
    bool said = f->full_said;
    f->full_said = true;
    pthread_mutex_unlock(&f->lock);
    snprintf(line, sizeof line,
             "the disk of '%.2000s' is full before --cache-limit is reached: fewer shards are read ahead", f->dir);
    if (!said && f->config.again) f->config.again(f->config.context, line);
    return OK;
}

/* `transport`: of the thread, so that one shard comes by the connection of another. */
static Status object_bring(RemoteFetch *f, const CachedObject *o, Transport **transport)
{
    CachedObjects one = {0};
    CacheState state = {0};
    if (!*transport) TRY(transport_create(&f->config.patience, transport));
    CacheConfig config = f->config;
    config.transport = *transport;
    Status st = cached_objects_add(&one, o->address, false);
    if (st == OK) {
        one.object->was = o;
        one.object->asked = true;
        st = cache_bring(&config, &one, &state);
    }
    atomic_fetch_add(&f->traffic->bytes, state.came);
    atomic_fetch_add(&f->traffic->retries, state.retries);
    cached_objects_free(&one);
    return st;
}

/* From now on it uses the link. What is here, or finds no room, passes nobody. */
static void download_begin(RemoteFetch *f, Coming *c)
{
    pthread_mutex_lock(&f->lock);
    c->turn = ++f->turns;
    c->begun_ns = clock_ns();
    pthread_mutex_unlock(&f->lock);
}

/* *came: it was not here. */
static Status shard_bring(RemoteFetch *f, Coming *c, Transport **transport, bool *came)
{
    bool here;
    TRY(here_check(f, c, false, &here));
    *came = !here;
    if (!here) download_begin(f, c);
    for (int i = 1; !here && i <= COMPARISONS; i++) {
        TRY(object_bring(f, c->object, transport));
        TRY(here_check(f, c, i == COMPARISONS, &here));
    }
    room_touch(&f->config, c->object); /* who waits for it has not opened it yet */
    return OK;                         /* or it has left the cache already: whoever reads it asks again */
}

static void work_wait(RemoteFetch *f, int64_t ns)
{
    const int64_t ns_per_s = 1000000000;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    ns += until.tv_nsec;
    until.tv_sec += ns / ns_per_s;
    until.tv_nsec = ns % ns_per_s;
    pthread_cond_clockwait(&f->work, &f->lock, CLOCK_MONOTONIC, &until);
}

/* With the lock held: without room, a shard is wanted as before. One that is read ahead waits until a window has passed, or for a second; one
 * that a reader waits for has --net-timeout. */
static void no_room(RemoteFetch *f, Coming *c, Room room)
{
    const int64_t look = FETCH_LOOK_MS * INT64_C(1000000), now = clock_ns();
    c->state = WANTED;
    if (c->priority >= 0) {
        f->crowded_until = now + 10 * look;
        return;
    }
    if (!c->crowded_ns) c->crowded_ns = now;
    if (now - c->crowded_ns <= f->config.patience.net_timeout * INT64_C(1000000000)) {
        c->look_ns = now + look;
        return;
    }
    c->state = FAILED;
    c->status =
        FAIL(ERR_IO,
             room == ROOM_DISK ? "%s: the disk of '%s' is full, and nothing in the cache can leave it"
                               : "%s: --cache-limit of '%s' leaves no room for it: what is there is read just now, "
                                 "by this run or by others",
             c->object->address, f->dir);
    free(c->why);
    c->why = strdup(status_message());
    pthread_cond_broadcast(&f->came);
}

static void *thread_main(void *context)
{
    RemoteFetch *f = context;
    Transport *transport = NULL;
    pthread_mutex_lock(&f->lock);
    while (!atomic_load(&f->stop)) {
        Room room;
        Coming *c = next_of(f);
        if (!c) {
            work_wait(f, FETCH_LOOK_MS * INT64_C(1000000));
            continue;
        }
        bool urgent = c->priority < 0, came = false;
        c->state = COMING;
        c->turn = 0;
        pthread_mutex_unlock(&f->lock);
        Status st = room_find(f, c, urgent, &room);
        if (st == OK && room == ROOM_MADE) st = shard_bring(f, c, &transport, &came);
        pthread_mutex_lock(&f->lock);
        if (st == OK && room != ROOM_MADE) {
            no_room(f, c, room);
            continue;
        }
        f->begun = f->begun || (came && c->window == 1);
        if (came) f->took_ns += (clock_ns() - c->begun_ns - f->took_ns) / PIPE;
        c->state = st == OK ? HERE : FAILED;
        c->status = st;
        c->crowded_ns = 0;
        free(c->why);
        c->why = st == OK ? NULL : strdup(status_message());
        pthread_cond_broadcast(&f->came);
    }
    pthread_mutex_unlock(&f->lock);
    transport_destroy(transport);
    return NULL;
}

/* ---- the queue of a process */

static void queue_init(RemoteFetch *f)
{
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->work, NULL);
    pthread_cond_init(&f->came, NULL);
    f->threads = f->windows = 0;
    f->ordered = f->turns = f->took_ns = 0;
    f->begun = false;
    for (int i = 0; i < f->count; i++) f->coming[i] = (Coming){.object = f->coming[i].object};
}

static Status threads_start(RemoteFetch *f)
{
    pthread_mutex_lock(&f->lock);
    int code = 0;
    while (f->threads < THREADS && code == 0) {
        code = thread_start(&f->thread[f->threads], thread_main, f);
        f->threads += code == 0;
    }
    int threads = f->threads;
    pthread_mutex_unlock(&f->lock);
    return threads ? OK : FAIL(ERR_DEVICE, "cannot start a thread that brings data: %s", strerror(code));
}

/* Of this process. Threads do not come along to one that was forked, and their lock may have been held at that moment. */
static void queue_take(RemoteFetch *f)
{
    int own = (int)getpid(), whose = atomic_load(&f->process);
    while (whose != own) {
        if (whose == -own) {
            sched_yield(); /* another thread makes it */
            whose = atomic_load(&f->process);
        } else if (atomic_compare_exchange_strong(&f->process, &whose, -own)) {
            queue_init(f);
            atomic_store(&f->process, own);
            break;
        }
    }
}

/* ---- the door */

/* With the lock held; `reader`: one waits for it. */
static void shard_want(RemoteFetch *f, Coming *c, bool reader)
{
    if (c->state == WANTED || c->state == COMING) {
        if (reader && c->priority >= 0) c->priority = INT64_MIN + f->urgent++;
        return;
    }
    c->priority = reader ? INT64_MIN + f->urgent++ : f->later++;
    c->crowded_ns = c->look_ns = 0;
    c->window = f->windows;
    c->state = WANTED;
    pthread_cond_signal(&f->work);
}

/* With the lock held, until a thread has brought it. A failure from before anybody waited is tried again. */
static Status shard_wait(RemoteFetch *f, Coming *c)
{
    int64_t since = clock_ns();
    shard_want(f, c, true);
    while (c->state == WANTED || c->state == COMING) {
        struct timespec until = clock_deadline(FETCH_LIFE_SECONDS);
        pthread_cond_clockwait(&f->came, &f->lock, CLOCK_MONOTONIC, &until);
        progress_made("data from a server");
    }
    atomic_fetch_add(&f->traffic->wait_ns, clock_ns() - since);
    if (c->state == HERE) return OK;
    return FAIL(c->status == ERR_FORMAT ? ERR_IO : c->status, "%s", c->why ? c->why : "no memory for a message");
}

static Status fetch_bring(const ShardFetch *door, const char *path, int *fd)
{
    RemoteFetch *f;
    Coming *c = coming_find(door, path, &f);
    *fd = -1;
    if (!c) return FAIL(ERR_INTERNAL, "'%s' stands in for no object of the set", path);
    queue_take(f);
    for (int i = 0; i < TRIES; i++) {
        TRY(cache_open(&f->config, c->object, fd));
        if (*fd >= 0 && is_seen(f, c, *fd)) return OK;
        if (*fd >= 0 &&
            stand_in_is_seen(&f->config, c->object, *fd)) { /* by another process, so that no thread is needed */
            seen_put(f, c, *fd);
            return OK;
        }
        if (*fd >= 0) close(*fd);
        *fd = -1;
        TRY(threads_start(f));
        pthread_mutex_lock(&f->lock);
        Status st = shard_wait(f, c);
        pthread_mutex_unlock(&f->lock);
        TRY(st);
    }
    return FAIL(ERR_IO, "%s leaves the cache before it is read: give it more room (--cache-limit)", c->object->address);
}

static bool fetch_is_here(const ShardFetch *door, const char *path)
{
    RemoteFetch *f;
    int fd = -1;
    const Coming *c = coming_find(door, path, &f);
    bool here = c && cache_open(&f->config, c->object, &fd) == OK && fd >= 0;
    if (here) here = stand_in_is_seen(&f->config, c->object, fd);
    if (fd >= 0) close(fd);
    return here;
}

static bool fetch_want(const ShardFetch *door, const char *path, char file[PATH_BYTES])
{
    RemoteFetch *f;
    int fd = -1;
    Coming *c = coming_find(door, path, &f);
    if (!c) return false;
    queue_take(f);
    if (cache_open(&f->config, c->object, &fd) == OK && fd >= 0) {
        bool seen = is_seen(f, c, fd);
        close(fd);
        if (seen) return cache_place(&f->config, c->object->address, file) == OK;
    }
    if (threads_start(f) != OK) return false; /* whoever reads it says so */
    pthread_mutex_lock(&f->lock);
    if (c->state == AWAY || c->state == HERE) shard_want(f, c, false);
    pthread_mutex_unlock(&f->lock);
    return false;
}

static void fetch_later(const ShardFetch *door, const char *path)
{
    RemoteFetch *f;
    Coming *c = coming_find(door, path, &f);
    if (!c) return;
    queue_take(f);
    pthread_mutex_lock(&f->lock);
    c->place = ++f->ordered;
    pthread_mutex_unlock(&f->lock);
}

static void fetch_window(const ShardFetch *door)
{
    RemoteFetch *f = (RemoteFetch *)(uintptr_t)door;
    queue_take(f);
    pthread_mutex_lock(&f->lock);
    f->windows++;
    pthread_mutex_unlock(&f->lock);
}

static void holds_change(const ShardFetch *door, const char *path, int by)
{
    RemoteFetch *f;
    Coming *c = coming_find(door, path, &f);
    if (!c) return;
    queue_take(f);
    pthread_mutex_lock(&f->lock);
    c->holds += by;
    if (by < 0) {
        f->crowded_until = 0;
        pthread_cond_broadcast(&f->work);
    }
    pthread_mutex_unlock(&f->lock);
    if (by > 0) room_touch(&f->config, c->object);
}

static void fetch_hold(const ShardFetch *door, const char *path)
{
    holds_change(door, path, 1);
}

static void fetch_leave(const ShardFetch *door, const char *path)
{
    holds_change(door, path, -1);
}

static void fetch_traffic(const ShardFetch *door, SourceTraffic *traffic)
{
    const Traffic *t = ((const RemoteFetch *)(const void *)door)->traffic;
    *traffic = (SourceTraffic){atomic_load(&t->bytes), atomic_load(&t->retries), atomic_load(&t->wait_ns)};
}

const ShardFetch *remote_fetch_door(const RemoteFetch *fetch)
{
    return &fetch->door;
}

const CachedObjects *remote_fetch_objects(const RemoteFetch *fetch)
{
    return &fetch->objects;
}

/* ---- creation */

static Status coming_fill(RemoteFetch *f)
{
    char path[PATH_BYTES], note[PATH_BYTES];
    f->places = json_object();
    f->notes = json_object();
    f->coming = calloc((size_t)f->objects.count + 1, sizeof *f->coming);
    if (!f->places || !f->notes || !f->coming)
        return FAIL(ERR_MEMORY, "no memory for a list of %d objects", f->objects.count);
    for (int i = 0; i < f->objects.count; i++) {
        const CachedObject *o = &f->objects.object[i];
        if (!o->later) continue;
        TRY(cache_view_place(&f->config, o->address, path));
        TRY(cache_note_place(&f->config, o->address, ROOM_NOTE, note));
        if (json_object_set_new(f->places, path, json_integer(f->count)) != 0 ||
            json_object_set_new(f->notes, note, json_integer(f->count)) != 0)
            return FAIL(ERR_MEMORY, "no memory for the path of an object");
        f->coming[f->count++] = (Coming){.object = o};
    }
    return OK;
}

Status remote_fetch_create(const CacheConfig *config, bool rest, RemoteSet *set, RemoteFetch **made)
{
    RemoteFetch *f = calloc(1, sizeof *f);
    if (!f) return FAIL(ERR_MEMORY, "no memory for the shards of a set");
    void *shared = mmap(NULL, sizeof *f->traffic, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    f->traffic = shared == MAP_FAILED ? NULL : shared;
    f->dir = strdup(config->dir);
    f->config = *config;
    f->config.dir = f->dir;
    f->config.stop = &f->stop;
    f->config.progress = NULL;
    f->config.shared = true;
    f->rest = rest;
    f->door = (ShardFetch){fetch_bring, fetch_want,  fetch_later,   fetch_window,
                           fetch_hold,  fetch_leave, fetch_is_here, fetch_traffic};
    if (f->traffic) {
        *f->traffic = (Traffic){.bytes = set->state.came, .retries = set->state.retries, .met = set->met};
        f->config.patience.met = &f->traffic->met;
    }
    f->objects = set->objects;
    set->objects = (CachedObjects){0};
    Status st = f->dir && f->traffic ? coming_fill(f) : FAIL(ERR_MEMORY, "no memory for the shards of a set");
    if (st == OK)
        *made = f;
    else
        remote_fetch_close(f);
    return st;
}

void remote_fetch_close(RemoteFetch *f)
{
    if (!f) return;
    if (atomic_load(&f->process) == (int)getpid()) {
        pthread_mutex_lock(&f->lock);
        atomic_store(&f->stop, true);
        pthread_cond_broadcast(&f->work);
        pthread_mutex_unlock(&f->lock);
        for (int i = 0; i < f->threads; i++) pthread_join(f->thread[i], NULL);
    }
    for (int i = 0; i < f->count; i++) free(f->coming[i].why);
    free(f->coming);
    json_decref(f->places);
    json_decref(f->notes);
    cached_objects_free(&f->objects);
    if (f->traffic) munmap(f->traffic, sizeof *f->traffic);
    free(f->dir);
    free(f);
}
