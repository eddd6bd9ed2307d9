/* Set-up and tear-down of a tower process. */
#pragma once

#include "towers/replica/tower_process.h"

/* Set-up for training, evaluation and timed steps (process.h); process_close is also correct after a failed open. */
NODISCARD Status process_open(TowerProcess *p, CommShared *shared);
NODISCARD Status process_open_eval(TowerProcess *p, CommShared *shared);
NODISCARD Status process_open_timed(TowerProcess *p, CommShared *shared);
void process_close(TowerProcess *p);
/* Call after run.step was set back. */
NODISCARD Status process_restart_loader(TowerProcess *p);
