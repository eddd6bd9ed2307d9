/* --nan-policy rollback: return to the last good checkpoint and continue without the step that caused the problem.
 *
 * The steps in between run again and give the same bits; the bad step runs without its update, like a skipped one. The
 * bad step is the refused step itself or, if the weights before it were not finite, the previous one, whose update
 * damaged them. The skipped steps are part of the state, so a resumed run skips the same ones. */
#pragma once

#include "towers/replica/tower_process.h"

/* Collective, called after the search of a refused step. ERR_NUMERIC if the limit is reached or a rollback cannot
 * help. */
NODISCARD Status rollback_run(TowerProcess *p, int64_t refused_step);

/* Roll back because replicas differ, and repeat the same steps. `why`: the difference. */
NODISCARD Status rollback_drift(TowerProcess *p, const char *why);
