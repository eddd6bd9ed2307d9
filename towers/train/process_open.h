/* Setting up and tearing down a tower process. */
#ifndef TOWERS_TRAIN_PROCESS_OPEN_H
#define TOWERS_TRAIN_PROCESS_OPEN_H

#include "towers/replica/tower_process.h"

/* Set-up for each life of a process (process.h), and the tear-down of all; right also after an open that failed. */
NODISCARD Status process_open(TowerProcess *p, CommShared *shared);
NODISCARD Status process_open_eval(TowerProcess *p, CommShared *shared);
NODISCARD Status process_open_timed(TowerProcess *p, CommShared *shared);
void process_close(TowerProcess *p);
/* After run.step was set back. */
NODISCARD Status process_restart_loader(TowerProcess *p);

#endif
