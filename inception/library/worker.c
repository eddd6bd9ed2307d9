/* Jobs are handed over by two semaphores; see worker.h. */
#include "inception/library/worker.h"

#include <errno.h>
#include <locale.h>
#include <unistd.h>

#include "kernels/thread.h"

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

Status worker_start(NetworkWorker *w)
{
    pthread_mutex_init(&w->lock, NULL);
    sem_init(&w->begin, 0, 0);
    sem_init(&w->done, 0, 0);
    int code = thread_start(&w->thread, jobs_run, w);
    if (code != 0) return FAIL(ERR_DEVICE, "cannot start a thread to compute in: %s", strerror(code));
    w->process = getpid();
    return OK;
}

bool worker_is_ours(const NetworkWorker *w)
{
    return w->process == getpid();
}

Status worker_run(NetworkWorker *w, WorkerJob *job, void *context)
{
    if (!worker_is_ours(w))
        return FAIL(ERR_ARG, "the network was opened by process %d, before its fork; open it again in this one",
                    (int)w->process);
    pthread_mutex_lock(&w->lock);
    w->job = job;
    w->context = context;
    sem_post(&w->begin);
    semaphore_wait(&w->done);
    Status st = w->status == OK ? OK : status_restore(w->status, &w->why);
    pthread_mutex_unlock(&w->lock);
    return st;
}

void worker_stop(NetworkWorker *w)
{
    if (!w->process) return;
    w->job = NULL;
    sem_post(&w->begin);
    pthread_join(w->thread, NULL);
    sem_destroy(&w->begin);
    sem_destroy(&w->done);
    pthread_mutex_destroy(&w->lock);
    w->process = 0;
}
