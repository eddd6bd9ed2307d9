/* Threads that leave signals to the main thread: to a stop, and to the question in which call a process hangs. */
#pragma once

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

/* pthread_create with all signals blocked; returns its error, 0 if the thread has started. */
static inline int thread_start(pthread_t *id, void *(*run)(void *), void *context)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(id, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
