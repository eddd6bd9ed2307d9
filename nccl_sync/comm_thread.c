/* The thread of a communicator; see comm_thread.h. */
#include "nccl_sync/comm_thread.h"

#include <stdatomic.h>

#include "kernels/base/thread.h"
#include "nccl_sync/bucket.h"

enum { QUEUE = 2 * BUCKETS_MAX }; /* a step gives a sum for each bucket and one for the extras */

typedef struct Work {
    CommWork work;
    void *of; /* borrowed */
    bool anyway;
} Work;

struct CommThread {
    Comm *comm; /* borrowed */
    pthread_t id;
    pthread_mutex_t lock; /* of everything below */
    pthread_cond_t more, fewer;
    Work queue[QUEUE];    /* number n at [n % QUEUE] */
    int64_t given, ended; /* so many */
    bool stops;
    Status status; /* of the first that failed */
    StatusText why;
    atomic_bool awaited;
};

/* One turn: sleeps until there is work, and does it. False at the end. */
static bool work_next(CommThread *t)
{
    pthread_mutex_lock(&t->lock);
    while (t->ended == t->given && !t->stops) pthread_cond_wait(&t->more, &t->lock);
    bool any = t->ended < t->given;
    Work next = t->queue[t->ended % QUEUE];
    bool due = any && (t->status == OK || next.anyway);
    pthread_mutex_unlock(&t->lock);
    if (!any) return false;
    Status st = due ? next.work(t->comm, next.of) : OK;
    pthread_mutex_lock(&t->lock);
    if (st != OK && t->status == OK) {
        t->status = st;
        status_keep(&t->why);
    }
    t->ended++;
    pthread_cond_signal(&t->fewer);
    pthread_mutex_unlock(&t->lock);
    return true;
}

static void *thread_run(void *argument)
{
    while (work_next(argument)) continue;
    return NULL;
}

Status comm_thread_start(Comm *comm, CommThread **made)
{
    CommThread *t = calloc(1, sizeof *t);
    if (!t) return FAIL(ERR_MEMORY, "no memory for the queue of the communication thread");
    t->comm = comm;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->more, NULL);
    pthread_cond_init(&t->fewer, NULL);
    int error = thread_start(&t->id, thread_run, t);
    if (error == 0) {
        *made = t;
        return OK;
    }
    free(t);
    return FAIL(ERR_DEVICE, "cannot start the communication thread of rank %d: %s", comm_config(comm)->place.rank,
                strerror(error));
}

static Status work_add(CommThread *t, Work work, int64_t *number)
{
    pthread_mutex_lock(&t->lock);
    while (t->given - t->ended == QUEUE) pthread_cond_wait(&t->fewer, &t->lock);
    Status st = t->status == OK || work.anyway ? OK : status_restore(t->status, &t->why);
    if (st == OK) {
        t->queue[t->given % QUEUE] = work;
        *number = t->given++;
        pthread_cond_signal(&t->more);
    }
    pthread_mutex_unlock(&t->lock);
    return st;
}

Status comm_thread_give(CommThread *t, CommWork work, void *of, int64_t *number)
{
    return work_add(t, (Work){work, of, false}, number);
}

Status comm_thread_wait(CommThread *t, int64_t number)
{
    atomic_store(&t->awaited, true);
    pthread_mutex_lock(&t->lock);
    while (t->ended <= number) pthread_cond_wait(&t->fewer, &t->lock);
    Status st = t->status == OK ? OK : status_restore(t->status, &t->why);
    pthread_mutex_unlock(&t->lock);
    atomic_store(&t->awaited, false);
    return st;
}

Status comm_thread_run(CommThread *t, CommWork work, void *of)
{
    int64_t number;
    TRY(comm_thread_give(t, work, of, &number));
    return comm_thread_wait(t, number);
}

void comm_thread_run_anyway(CommThread *t, CommWork work)
{
    StatusText words;
    int64_t number;
    status_keep(&words);
    Status st = work_add(t, (Work){work, NULL, true}, &number);
    if (st == OK) st = comm_thread_wait(t, number);
    st = status_restore(OK, &words); /* the error that led here */
    (void)st;
}

bool comm_thread_is_awaited(const CommThread *t)
{
    return atomic_load(&t->awaited);
}

void comm_thread_end(CommThread *t)
{
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    t->stops = true;
    pthread_cond_signal(&t->more);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->id, NULL);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->more);
    pthread_cond_destroy(&t->fewer);
    free(t);
}
