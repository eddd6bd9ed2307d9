/* state.json of a checkpoint: the numbers of a run (RunState), and the settings with which alone they make sense. */
#pragma once

#include "towers/replica/tower_process.h"

/* Owned by the caller; NULL: no memory. */
char *run_state_text(const TowerProcess *p);
/* Sets p->run. ERR_ARG names every setting that differs from this run's, ERR_CHECKPOINT what is missing or wrong; `path`, of the
 * checkpoint, is for messages. */
NODISCARD Status run_state_parse(TowerProcess *p, const char *text, const char *path);
