/* The time of each tower's activities in a step, and the slow tower (the rule is in towers/record/straggler.h). */
#ifndef TOWERS_TRAIN_ACTIVITIES_H
#define TOWERS_TRAIN_ACTIVITIES_H

#include "towers/replica/tower_process.h"

/* Filled by rank 0 from the ledger's times. */
typedef struct ActivityRecord {
    int64_t us[STRAGGLER_ACTIVITIES][TOWERS_MAX]; /* microseconds of each activity and tower */
    int slow_tower;
    const char *slow_activity; /* NULL: no tower is slow */
} ActivityRecord;
void activities_read(const TowerProcess *p, int64_t step, ActivityRecord *record);
NODISCARD Status activities_watch(TowerProcess *p, int64_t step);

#endif
