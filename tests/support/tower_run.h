/* Short training runs in this process. */
#pragma once

#include "tests/support/local_batches.h"
#include "towers/replica/tower_process.h"

/* A job of one process, an epoch of SGD with batches of `batch` samples for each tower. Has records if it gets a run_dir. */
TrainJob job_plain(const Backend *backend, const Model *model, const Source *data, int32_t side, int towers,
                   int32_t batch);

/* What the processes of a job share. */
typedef struct JobMemory {
    Ledger *ledger;
    CommShared *shared;
} JobMemory;
JobMemory job_memory(const TrainJob *job);
void job_memory_free(JobMemory *memory);

/* A run of one process without records, for tests that check the device's calls. */
typedef struct TowerRun {
    TrainJob job; /* may be changed between open and live */
    Source *data;
    Status status;
} TowerRun;

/* 64 made-up images of 28x28 in 10 classes, batches of 16 in all, 3 epochs: 12 steps of Adam. */
void tower_run_open(TowerRun *run, const Backend *backend, const Model *model, int towers);
void tower_run_live(TowerRun *run); /* status: how it ended */
void tower_run_close(TowerRun *run);
