/* Fault points: how tests make a tower fail at a given step. Compiled in only with -DTOWERS_FAULTS=ON.
 *
 * TOWERS_FAULT="kind:tower=T,step=S[,activity=A][,layer=NAME][,index=N][,ms=N]
 * [,where=loss|grad|both|weights|statistics|slot]", several joined by ';'. Kinds: nan, inf (poison the tower's loss and
 * gradients, or one number of its process's weights, statistics or slot 0 after the update; with a layer, its output in
 * the activity forward or the first gradient that it makes in the activity backward: the element `index`, or all), hang,
 * exit, kill, delay (ms each step from S on), crawl (ms of showing progress and nothing else), bitflip (one bit of a
 * weight, after the update). Steps count from 1. */
#ifndef TOWERS_REPLICA_FAULT_H
#define TOWERS_REPLICA_FAULT_H

#include "towers/replica/ledger.h"

typedef enum FaultKind {
    FAULT_NONE = 0,
    FAULT_NAN,
    FAULT_INF,
    FAULT_HANG,
    FAULT_EXIT,
    FAULT_KILL,
    FAULT_DELAY,
    FAULT_BITFLIP,
    FAULT_CRAWL
} FaultKind;

typedef struct Fault {
    FaultKind kind;
    int tower;
    int64_t step;
    int activity; /* where hang, exit, kill, delay and crawl strike, and nan and inf in a layer; default ACTIVITY_FORWARD */
    int ms;
    int64_t index;                              /* of the element that is poisoned in a layer; -1: all */
    bool loss, grad, weights, statistics, slot; /* what nan and inf poison */
    bool spent;                                 /* by fault_once */
    char layer[128];                            /* "" or the op whose output is poisoned */
} Fault;

enum { FAULTS_MAX = 16 };

#ifdef TOWERS_FAULTS
/* Reads TOWERS_FAULT once. ERR_ARG names the word that is not understood. */
NODISCARD Status faults_load(void);
NODISCARD Status faults_load_text(const char *text); /* the same from a text; "": none */
const char *faults_text(void);                       /* as it was read last; "" if there are none */
int fault_count(void);
const Fault *fault_at(int index);
/* The first nan or inf set for (tower, step), or NULL. */
const Fault *fault_poison(int tower, int64_t step);
/* hang, exit, kill, delay: strike here if one is set for (tower, step, activity). */
void fault_strike(int tower, int64_t step, Activity activity);
/* The fault of this kind set for (tower, step), or NULL. */
const Fault *fault_of(FaultKind kind, int tower, int64_t step);
/* The same, and gone from then on: what strikes by chance does not strike a step again when it is repeated. */
const Fault *fault_once(FaultKind kind, int tower, int64_t step);
#else
static inline Status faults_load(void)
{
    return OK;
}
static inline Status faults_load_text(const char *text)
{
    if (!*text) return OK;
    return FAIL(ERR_UNSUPPORTED, "this build has no fault points (-DTOWERS_FAULTS=ON) to repeat '%s'", text);
}
static inline const char *faults_text(void)
{
    return "";
}
static inline const Fault *fault_poison(int tower, int64_t step)
{
    (void)tower, (void)step;
    return NULL;
}
static inline void fault_strike(int tower, int64_t step, Activity activity)
{
    (void)tower, (void)step, (void)activity;
}
static inline const Fault *fault_of(FaultKind kind, int tower, int64_t step)
{
    (void)kind, (void)tower, (void)step;
    return NULL;
}
static inline const Fault *fault_once(FaultKind kind, int tower, int64_t step)
{
    return fault_of(kind, tower, step);
}
#endif

#endif
