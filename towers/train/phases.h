/* Where the time of a step went, tower by tower, and who is slow (towers/record/straggler.h has the rule). */
#ifndef TOWERS_TRAIN_PHASES_H
#define TOWERS_TRAIN_PHASES_H

#include "towers/replica/tower_process.h"

/* Made by rank 0 from the ledger's times. */
typedef struct PhaseRecord {
    int64_t us[STRAGGLER_PHASES][TOWERS_MAX]; /* microseconds of each phase and tower */
    int slow_tower;
    const char *slow_phase; /* NULL: nobody */
} PhaseRecord;
void phases_read(const TowerProcess *p, int64_t step, PhaseRecord *record);
NODISCARD Status phases_watch(TowerProcess *p, int64_t step);

#endif
