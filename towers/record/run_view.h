/* A part of a run: the steps of a phase, or of one of its terms. A view borrows everything but its list of steps, which
 * run_view_free frees. */
#pragma once

#include "towers/record/run_read.h"

/* A model with several phases mixes their losses in its rows. *view receives the steps of the phase of number `phase`, in
 * the order of their first steps; of a run with one phase, all steps. *found: there is such a phase. KID is that of the
 * first phase. */
NODISCARD Status run_phase(const Run *run, int phase, Run *view, bool *found);
/* The steps of a phase's view that have this term, with the term in the place of the loss: mean_loss, last_tower_loss and
 * tower_loss are those of the term. *found: there is such a step. */
NODISCARD Status run_term(const Run *phase, int name, Run *view, bool *found);
void run_view_free(Run *view);
