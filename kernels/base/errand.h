/* Errands: work in a thread that storage or a name server may delay for any time, so that nobody has to wait for its end. The
 * thread and who has started it use one struct, which begins with the Errand; the one that leaves last frees it. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

typedef struct Errand {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool asked, ended, left; /* to end; it has ended; who has started it has left */
    void (*drop)(void *errand);
} Errand;

/* Run `run`, which gets the struct and calls errand_done last. `drop` frees the struct. False without a thread: it is freed. */
bool errand_start(Errand *errand, void *(*run)(void *), void (*drop)(void *));
/* In the thread: whether it is asked to end; waits for that up to so many seconds. */
bool errand_asked(Errand *errand, int seconds);
void errand_done(Errand *errand);

/* By who has started it: ask it to end; whether it has, within so many milliseconds; and leave it. */
void errand_ask(Errand *errand);
bool errand_wait(Errand *errand, int ms);
void errand_leave(Errand *errand);
