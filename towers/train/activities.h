/* Where the time of a step went, tower by tower, and who is slow (towers/record/straggler.h has the rule). */
#ifndef TOWERS_TRAIN_ACTIVITIES_H
#define TOWERS_TRAIN_ACTIVITIES_H

#include "towers/replica/tower_process.h"

/* Made by rank 0 from the ledger's times. */
typedef struct ActivityRecord {
    int64_t us[STRAGGLER_ACTIVITIES][TOWERS_MAX]; /* microseconds of each activity and tower */
    int slow_tower;
    const char *slow_activity; /* NULL: nobody */
} ActivityRecord;
void activities_read(const TowerProcess *p, int64_t step, ActivityRecord *record);
NODISCARD Status activities_watch(TowerProcess *p, int64_t step);

#endif
