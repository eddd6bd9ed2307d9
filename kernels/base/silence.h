/* Silence: for how long nothing new was seen of others, by who looks at them regularly. Time in which who looks was stopped itself,
 * as the others may have been, begins it anew. */
#pragma once

#include "kernels/base/clock.h"
#include "kernels/base/timeouts.h"

#include <stdbool.h>

/* All zero at first. */
typedef struct Silence {
    int64_t looked_ns, since_ns, sign_ns;
} Silence;

/* A look, with the time of the latest sign of life that is known (0: none). Returns for how long (ns), at most since the first look,
 * that time has not changed to a later one. */
static inline int64_t silence_look(Silence *s, int64_t sign_ns)
{
    int64_t now = clock_ns();
    bool stopped = now - s->looked_ns > SUSPENDED_MS * INT64_C(1000000); /* or it is the first look */
    if (stopped || sign_ns > s->sign_ns) s->since_ns = now;
    s->looked_ns = now;
    s->sign_ns = sign_ns;
    return now - s->since_ns;
}
