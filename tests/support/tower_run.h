/* A short training run of one process, in this process, without records, for tests that check the device's calls. */
#pragma once

#include "towers/replica/tower_process.h"

typedef struct TowerRun {
    TrainJob job; /* may be changed between open and live */
    Source *data;
    Status status;
} TowerRun;

/* 64 made-up images of 28x28 in 10 classes, batches of 16 in all, 3 epochs: 12 steps of Adam. */
void tower_run_open(TowerRun *run, const Backend *backend, const Model *model, int towers);
void tower_run_live(TowerRun *run); /* status: how it ended */
void tower_run_close(TowerRun *run);
