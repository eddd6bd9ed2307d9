/* Forensics: after the gate has refused a step, where did the first number that is not finite come from? Nothing here
 * runs, and nothing is kept, in a step that passes.
 *
 * The process of the tower at fault looks at its weights, runs the tower's batch again op by op (trace.h), looks at
 * statistics and optimizer slots, and writes a capsule (capsule.h). The others wait; all tell the same report. */
#ifndef TOWERS_GUARD_FORENSICS_H
#define TOWERS_GUARD_FORENSICS_H

#include "towers/replica/tower_process.h"

typedef struct Refusal {
    int64_t step;
    int tower;       /* the first at fault; -1: none, only the sum of the gradients */
    float scale;     /* of every sample's gradient in that step */
    bool moved;      /* the update has happened already (--nan-check last): there is no step to run again */
    int64_t last;    /* the last step that was begun: the gradients are its own */
    int64_t weights; /* the step after which the weights are */
} Refusal;

/* Collective. Leaves what it found in p->ledger->search; trouble on the way is told there too. */
NODISCARD Status forensics_search(TowerProcess *p, const Refusal *refusal);

/* Are weights, their average, optimizer slots and all towers' statistics finite? Collective; equal on all ranks. If
 * not, p->ledger->search tells which. */
NODISCARD Status forensics_state(TowerProcess *p, bool *finite);

#endif
