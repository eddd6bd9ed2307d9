/* The monotonic clock, for durations and deadlines; and the time of day, for dates alone. */
#pragma once

#include <stdint.h>
#include <time.h>

static inline int64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* So many seconds from now, for pthread_cond_clockwait and pthread_clockjoin_np with CLOCK_MONOTONIC: the time of day, by which
 * their older forms wait, may be set back by hours. */
static inline struct timespec clock_deadline(int seconds)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += seconds;
    return t;
}

/* The time of day: seconds since 1970. */
static inline double clock_date(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
