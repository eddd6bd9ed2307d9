/* The time of each tower's activities in a step, and the slow tower (the rule is in towers/record/straggler.h). With
 * several programs rank 0 gathers the times of all towers: durations, because clocks of hosts are never compared. */
#pragma once

#include "towers/replica/tower_process.h"

/* Filled by rank 0 from the ledger's times; the arrays are the caller's. */
typedef struct ActivityRecord {
    int64_t *arrival_us; /* [towers]: since tower 0 began the step; in other programs, since the tower's process did */
    int64_t *us[STRAGGLER_ACTIVITIES]; /* [towers]: microseconds of each activity */
    int slow_tower;
    const char *slow_activity; /* NULL: no tower is slow */
} ActivityRecord;
/* started_ns: when tower 0 began the step. */
void activities_read(const TowerProcess *p, int64_t step, int64_t started_ns, ActivityRecord *record);
/* telemetry[tower]: what each tower's device says. When the newest was read; 0: none says anything. */
int64_t activities_telemetry(const TowerProcess *p, DeviceTelemetry *telemetry);
NODISCARD Status activities_watch(TowerProcess *p, int64_t step);
/* Brings the times of steps first..last, at most LEDGER_STEPS / 2, and the newest telemetry of devices, from all programs to
 * rank 0's ledger. *number becomes that of rank 0. Collective. */
NODISCARD Status activities_gather(TowerProcess *p, int64_t first, int64_t last, int *number);
