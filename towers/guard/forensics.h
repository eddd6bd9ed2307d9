/* Forensics: after the gate refused a step, find the origin of the first value that is not finite. Steps that pass cost
 * no time and no memory here.
 *
 * The process of the failing tower checks its weights, runs the tower's batch again op by op (trace.h), checks
 * statistics and optimizer states, and writes a capsule (capsule.h). The other processes wait; all of them report the
 * same result. */
#pragma once

#include "towers/replica/tower_process.h"

typedef struct Refusal {
    int64_t step;
    int tower;       /* the first that failed; -1: no tower, only the sum of the gradients */
    float scale;     /* of every sample's gradient in that step */
    bool moved;      /* the update has been applied (--nan-check last), so the step cannot be run again */
    int64_t last;    /* the last step that was started; the gradients are those of this step */
    int64_t weights; /* the weights are those after this step */
} Refusal;

/* Writes the result to p->ledger->search, including errors during the search. Collective. */
NODISCARD Status forensics_search(TowerProcess *p, const Refusal *refusal);

/* Check that weights, their average, optimizer states and all towers' statistics are finite. Collective; *finite is
 * equal on all ranks. If false, p->ledger->search names the first value. */
NODISCARD Status forensics_state(TowerProcess *p, bool *finite);
