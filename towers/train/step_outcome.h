/* How a run goes on after a step, as all ranks have agreed. */
#pragma once

/* A later value outweighs those before it. */
typedef enum StepOutcome {
    CONTINUE = 0,
    STOP,    /* after this step: a signal asked for it */
    GO_BACK, /* to the last checkpoint (--nan-policy rollback) */
    DRIFTED  /* replicas differ: this state must not be saved */
} StepOutcome;

/* Functions that may change it get the outcome so far. */
static inline void outcome_raise(StepOutcome *outcome, StepOutcome to)
{
    if (to > *outcome) *outcome = to;
}
