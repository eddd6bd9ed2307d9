/* A thread that computes for those of the caller, which keep their own rounding of denormal numbers, their OpenMP
 * settings, their teams of OpenMP threads and their locale: its own is "C". */
#pragma once

#include <pthread.h>
#include <semaphore.h>
#include <sys/types.h>

#include "kernels/status.h"

typedef Status WorkerJob(void *context);

typedef struct NetworkWorker {
    pthread_t thread;
    pthread_mutex_t lock; /* one job at a time */
    sem_t begin, done;
    WorkerJob *job; /* NULL: end */
    void *context;
    Status status;
    StatusText why;
    pid_t process; /* whose thread it is; a fork of it has no such thread */
} NetworkWorker;

NODISCARD Status worker_start(NetworkWorker *w);
/* Waits for the job's end, and for jobs of other threads before it. ERR_ARG in a fork of the process. */
NODISCARD Status worker_run(NetworkWorker *w, WorkerJob *job, void *context);
bool worker_is_ours(const NetworkWorker *w); /* false in a fork of the process */
void worker_stop(NetworkWorker *w);          /* a zeroed one is fine */
