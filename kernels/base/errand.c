/* Work in a thread that nobody has to wait for; see errand.h. */
#include "kernels/base/errand.h"

#include "kernels/base/clock.h"
#include "kernels/base/thread.h"

static void errand_free(Errand *e)
{
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
    e->drop(e);
}

bool errand_start(Errand *e, void *(*run)(void *), void (*drop)(void *))
{
    pthread_t thread;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    e->drop = drop;
    if (thread_start(&thread, run, e) != 0) {
        errand_free(e);
        return false;
    }
    pthread_detach(thread);
    return true;
}

/* Waits until *flag, which the lock guards, is set. */
static bool flag_wait(Errand *e, const bool *flag, int ms)
{
    struct timespec until = clock_deadline(ms / 1000);
    until.tv_nsec += ms % 1000 * 1000000l;
    if (until.tv_nsec >= 1000000000l) until.tv_sec++, until.tv_nsec -= 1000000000l;
    pthread_mutex_lock(&e->lock);
    for (int error = 0; !*flag && error == 0;)
        error = pthread_cond_clockwait(&e->changed, &e->lock, CLOCK_MONOTONIC, &until);
    bool set = *flag;
    pthread_mutex_unlock(&e->lock);
    return set;
}

/* Sets one of the flags; whether the other side has set `other` before. */
static bool flag_set(Errand *e, bool *flag, const bool *other)
{
    pthread_mutex_lock(&e->lock);
    *flag = true;
    bool both = *other;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    return both;
}

bool errand_asked(Errand *e, int seconds)
{
    return flag_wait(e, &e->asked, seconds * 1000);
}

void errand_done(Errand *e)
{
    if (flag_set(e, &e->ended, &e->left)) errand_free(e);
}

void errand_ask(Errand *e)
{
    (void)flag_set(e, &e->asked, &e->ended);
}

bool errand_wait(Errand *e, int ms)
{
    return flag_wait(e, &e->ended, ms);
}

void errand_leave(Errand *e)
{
    if (flag_set(e, &e->left, &e->ended)) errand_free(e);
}
