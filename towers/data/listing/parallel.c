/* Threads that take item numbers from a counter; contract in parallel.h. */
#include "towers/data/listing/parallel.h"

#include <stdatomic.h>
#include <unistd.h>

#include "kernels/base/cores.h"
#include "kernels/base/thread.h"

typedef struct Pool {
    const Parallel *config;
    _Atomic int64_t next, done;
    atomic_int running;
    pthread_mutex_t lock; /* of the rest */
    int64_t failed;       /* the lowest item that failed, or count */
    Status status;
    StatusText why;
} Pool;

typedef struct Thread {
    Pool *pool;
    int number;
    pthread_t id;
} Thread;

static void *thread_run(void *argument)
{
    Thread *thread = argument;
    Pool *p = thread->pool;
    const Parallel *c = p->config;
    for (int64_t item; (item = atomic_fetch_add(&p->next, 1)) < c->count;) {
        Status st = c->work(c->context, thread->number, item);
        atomic_fetch_add(&p->done, 1);
        if (st == OK) continue;
        pthread_mutex_lock(&p->lock);
        if (item < p->failed) {
            p->failed = item;
            p->status = st;
            status_keep(&p->why);
        }
        pthread_mutex_unlock(&p->lock);
        atomic_store(&p->next, c->count);
    }
    atomic_fetch_sub(&p->running, 1);
    return NULL;
}

static int threads_wanted(const Parallel *c)
{
    int64_t cores = cores_allowed();
    int64_t wanted = c->threads > 0 ? c->threads : cores > PARALLEL_USUAL ? PARALLEL_USUAL : cores;
    return (int)(wanted < c->count || c->count < 1 ? wanted : c->count);
}

Status parallel_run(const Parallel *c)
{
    Pool p = {.config = c, .failed = c->count};
    int wanted = threads_wanted(c), started = 0;
    Thread *threads = calloc((size_t)wanted, sizeof *threads);
    if (!threads) return FAIL(ERR_MEMORY, "no memory for %d threads", wanted);
    pthread_mutex_init(&p.lock, NULL);
    for (; started < wanted; started++) {
        threads[started] = (Thread){.pool = &p, .number = started};
        atomic_fetch_add(&p.running, 1);
        if (thread_start(&threads[started].id, thread_run, &threads[started]) != 0) break;
    }
    if (started < wanted) atomic_fetch_sub(&p.running, 1);
    while (c->progress && atomic_load(&p.running) > 0) {
        c->progress(c->progress_context, atomic_load(&p.done), c->count);
        usleep(50000);
    }
    for (int i = 0; i < started; i++) pthread_join(threads[i].id, NULL);
    if (c->progress) c->progress(c->progress_context, c->count, c->count);
    free(threads);
    pthread_mutex_destroy(&p.lock);
    if (started == 0) return FAIL(ERR_DEVICE, "cannot start a thread");
    return p.failed < c->count ? status_restore(p.status, &p.why) : OK;
}
