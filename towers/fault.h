/* Fault points: how tests make a tower fail at a given step. Compiled in only with -DTOWERS_FAULTS=ON.
 *
 * TOWERS_FAULT="kind:tower=T,step=S[,phase=P][,layer=NAME][,ms=N][,where=loss|grad|both]", several joined by ';'.
 * Kinds: nan, inf (poison the tower's loss and gradients, or the output of one layer), hang, exit, kill, delay (ms each
 * step from S on), bitflip (one bit of a weight, after the update). Steps count from 1. */
#ifndef TOWERS_FAULT_H
#define TOWERS_FAULT_H

#include "towers/ledger.h"

typedef enum FaultKind {
    FAULT_NONE = 0,
    FAULT_NAN,
    FAULT_INF,
    FAULT_HANG,
    FAULT_EXIT,
    FAULT_KILL,
    FAULT_DELAY,
    FAULT_BITFLIP
} FaultKind;

typedef struct Fault {
    FaultKind kind;
    int tower;
    int64_t step;
    int phase; /* where hang, exit, kill and delay strike; default PHASE_FORWARD */
    int ms;
    bool loss, grad; /* what nan and inf poison */
    char layer[128]; /* "" or the op whose output is poisoned */
} Fault;

enum { FAULTS_MAX = 16 };

#ifdef TOWERS_FAULTS
/* Reads TOWERS_FAULT once. ERR_ARG names the word that is not understood. */
NODISCARD Status faults_load(void);
/* hang, exit, kill, delay: strike here if one is set for (tower, step, phase). */
void fault_strike(int tower, int64_t step, Phase phase);
/* nan, inf, bitflip: the fault set for (tower, step), or NULL. */
const Fault *fault_of(FaultKind kind, int tower, int64_t step);
#else
static inline Status faults_load(void)
{
    return OK;
}
static inline void fault_strike(int tower, int64_t step, Phase phase)
{
    (void)tower, (void)step, (void)phase;
}
static inline const Fault *fault_of(FaultKind kind, int tower, int64_t step)
{
    (void)kind, (void)tower, (void)step;
    return NULL;
}
#endif

#endif
