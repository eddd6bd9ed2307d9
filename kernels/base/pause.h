/* Pauses of who waits by looking. */
#pragma once

#include "kernels/base/timeouts.h"

#include <stdint.h>
#include <time.h>

/* Sleeps so long, or until a signal comes. */
static inline void pause_ns(int64_t ns)
{
    nanosleep(&(struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000}, NULL);
}

static inline void pause_ms(int ms)
{
    pause_ns(ms * INT64_C(1000000));
}

/* Behind so many polls: at first none, then one of POLL_NS, which grows slowly up to `longest_ns`. */
enum { POLL_SPINS = 200 };
static inline void poll_pause(int64_t polls, int64_t longest_ns)
{
    int64_t ns = POLL_NS * (polls / POLL_SPINS);
    if (ns > 0) pause_ns(ns < longest_ns ? ns : longest_ns);
}
