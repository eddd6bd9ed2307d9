/* A thread that computes for those of the caller, which keep their own rounding of denormal numbers, their OpenMP
 * settings, their teams of OpenMP threads and their locale: its own is "C".
 *
 * Calls take turns in the order in which they come. A worker may be stopped while calls wait: they are served, those that
 * come later are refused, even if its memory is gone, because the workers of this process are a list. */
#pragma once

#include <pthread.h>
#include <semaphore.h>
#include <sys/types.h>

#include "kernels/base/status.h"

typedef Status WorkerJob(void *context);

typedef struct NetworkWorker {
    struct NetworkWorker *next; /* in the list of those that work */
    pthread_t thread;
    pthread_cond_t turn;    /* a call has been served */
    uint64_t calls, served; /* numbers of the next call to come, and of the one whose turn it is */
    sem_t begin, done;
    WorkerJob *job; /* NULL: end */
    void *context;
    Status status;
    StatusText why;
    pid_t process; /* whose thread it is; a fork of it has no such thread */
} NetworkWorker;

NODISCARD Status worker_start(NetworkWorker *w);
/* Waits for the job's end, and for jobs of other threads before it. ERR_ARG in a fork of the process, and if the worker has been
 * stopped or is being stopped. */
NODISCARD Status worker_run(NetworkWorker *w, WorkerJob *job, void *context);
/* Waits for the calls that have come, runs a last job and ends the thread. False if there is nothing to stop: in a fork of the
 * process, or if another thread has stopped it. */
bool worker_stop(NetworkWorker *w, WorkerJob *last, void *context);
