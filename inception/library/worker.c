/* Jobs are handed over by two semaphores; see worker.h. Every worker that may be called is in one list, and its turns are
 * under the list's lock: a call is counted, or refused, before it touches the worker. */
#include "inception/library/worker.h"

#include <errno.h>
#include <locale.h>
#include <unistd.h>

#include "kernels/base/thread.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static NetworkWorker *working; /* of this process and, behind them in a fork, of its parent */

/* ---- the thread */

static void semaphore_wait(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0 && errno == EINTR) continue;
}

static void *jobs_run(void *of)
{
    NetworkWorker *w = of;
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    uselocale(plain); /* numbers in files have points, whatever the caller's do */
    for (semaphore_wait(&w->begin); w->job; semaphore_wait(&w->begin)) {
        w->status = w->job(w->context);
        if (w->status != OK) status_keep(&w->why);
        sem_post(&w->done);
    }
    uselocale(LC_GLOBAL_LOCALE);
    freelocale(plain);
    return NULL;
}

static void job_do(NetworkWorker *w, WorkerJob *job, void *context)
{
    w->job = job;
    w->context = context;
    sem_post(&w->begin);
    if (job) semaphore_wait(&w->done);
}

/* ---- the list */

static void list_lock(void)
{
    pthread_mutex_lock(&lock);
}

static void list_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* A fork has the list as no other thread was changing it. */
static void forks_prepare(void)
{
    pthread_atfork(list_lock, list_unlock, list_unlock);
}

/* Where the list points to it; NULL if it does not. */
static NetworkWorker **place_of(const NetworkWorker *w)
{
    NetworkWorker **place = &working;
    while (*place && *place != w) place = &(*place)->next;
    return *place ? place : NULL;
}

Status worker_start(NetworkWorker *w)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, forks_prepare);
    *w = (NetworkWorker){.process = getpid()};
    pthread_cond_init(&w->turn, NULL);
    sem_init(&w->begin, 0, 0);
    sem_init(&w->done, 0, 0);
    int code = thread_start(&w->thread, jobs_run, w);
    if (code != 0) return FAIL(ERR_DEVICE, "cannot start a thread to compute in: %s", strerror(code));
    list_lock();
    w->next = working;
    working = w;
    list_unlock();
    return OK;
}

/* Counts the call, and waits until it is its turn. */
static Status turn_take(NetworkWorker *w)
{
    Status st = OK;
    list_lock();
    if (!place_of(w)) TRY_OUT(FAIL(ERR_ARG, "the network is closed, or another thread is closing it"));
    if (w->process != getpid())
        TRY_OUT(FAIL(ERR_ARG, "the network was opened by process %d, before its fork; open it again in this one",
                     (int)w->process));
    uint64_t own = w->calls++;
    while (w->served != own) pthread_cond_wait(&w->turn, &lock);
out:
    list_unlock();
    return st;
}

static void turn_give(NetworkWorker *w)
{
    list_lock();
    w->served++;
    pthread_cond_broadcast(&w->turn);
    list_unlock();
}

Status worker_run(NetworkWorker *w, WorkerJob *job, void *context)
{
    TRY(turn_take(w));
    job_do(w, job, context);
    Status st = w->status == OK ? OK : status_restore(w->status, &w->why);
    turn_give(w);
    return st;
}

bool worker_stop(NetworkWorker *w, WorkerJob *last, void *context)
{
    list_lock();
    NetworkWorker **place = place_of(w);
    bool ours = place && w->process == getpid();
    if (ours) *place = w->next;
    while (ours && w->served != w->calls) pthread_cond_wait(&w->turn, &lock);
    list_unlock();
    if (!ours) return false;
    job_do(w, last, context);
    job_do(w, NULL, NULL);
    pthread_join(w->thread, NULL);
    sem_destroy(&w->begin);
    sem_destroy(&w->done);
    pthread_cond_destroy(&w->turn);
    return true;
}
