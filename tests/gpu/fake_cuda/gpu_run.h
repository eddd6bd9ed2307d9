/* A short training run of a small network on the fake GPU, used by the tests of order, failures and towers. */
#pragma once

#include "tests/gpu/fake_cuda/fake_gpu.h"
#include "towers/replica/tower_process.h"

enum { GPU_RUN_STEPS = 8, GPU_RUN_RANKS = 8 };

/* In memory that the ranks' processes share. */
typedef struct GpuSeen {
    int64_t steps; /* that rank 0 has ended */
    double loss[GPU_RUN_STEPS + 1];
    char note[LEDGER_MESSAGE]; /* the last of the run */
    struct {
        Status status;   /* STATUS_COUNT: the rank never came to its end */
        int alive;       /* objects that it left behind */
        char failed[64]; /* the call that was made to fail, "" */
        char message[STATUS_MESSAGE_BYTES];
    } rank[GPU_RUN_RANKS];
} GpuSeen;

typedef struct GpuRun {
    TrainJob job; /* ready; may be changed before gpu_run_live; with a run_dir records are kept there, on_step is not
                     called then */
    GpuSeen *seen;
    /* called in each rank's process before it starts, and after each step of rank 0; NULL */
    void (*on_start)(int rank);
    void (*on_step)(int64_t step);
    Source *data;
    size_t room; /* floats of one collective */
} GpuRun;

/* `towers` on `ranks` GPUs, one process each. */
void gpu_run_open(GpuRun *run, int towers, int ranks);
/* One rank: in this process; its status is returned. Several: each in a child, all waited for; the first status that is
 * not OK. Never hangs: a child that takes a minute is ended, and has STATUS_COUNT. */
Status gpu_run_live(GpuRun *run);
void gpu_run_close(GpuRun *run);

/* Set-ups of tests: the fake without faults; and a scratch folder. */
int fake_as_new(void **state);
int fake_and_scratch_as_new(void **state);
