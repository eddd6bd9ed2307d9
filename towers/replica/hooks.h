/* Hooks: functions with which tests make a run fail. Without a test run_hooks is NULL and none of them is called. Builds
 * with -DTOWERS_FAULTS=ON have a source of them (tests/faults/fault.c), which reads what is to fail from a text. Steps
 * count from 1; `tower` is a number in the run. */
#pragma once

#include "towers/replica/ledger.h"
#include "towers/replica/replica.h"

typedef struct RunHooks {
    void (*activity)(int tower, int64_t step, Activity activity); /* the tower has entered an activity */
    Status (*opened)(const Program *programs, int count);         /* of training, before the first step */
    bool (*changes)(int tower,
                    int64_t step); /* launches of this step differ from those of others: do not capture them */
    /* Called instead of plan_run. */
    Status (*ops)(Device *device, Program *program, int tower, int64_t step, int first, int end);
    /* The loss in device memory, after the forward pass of a step's last batch; the first gradients after backward. */
    Status (*loss)(Device *device, int tower, int64_t step, float *loss);
    Status (*gradients)(Device *device, int tower, int64_t step, float *gradients);
    /* After the update; `left_out`: a rollback excludes this step. */
    Status (*updated)(Replica *replica, int local, int tower, int64_t step, bool left_out);
    /* The self-test: values of a bucket that a tower sends (ACTIVITY_START) or receives (ACTIVITY_REDUCE). */
    void (*self_test)(int tower, Activity activity, float *values);
} RunHooks;

extern const RunHooks *run_hooks;

typedef struct HookSource {
    Status (*load)(const char *text); /* ERR_ARG names an invalid word */
    const char *(*text_at)(int tower, int64_t step);
} HookSource;
extern const HookSource fault_source; /* only with -DTOWERS_FAULTS=ON */

/* Set run_hooks according to the environment variable TOWERS_FAULT; nothing in a build without a source. */
NODISCARD Status hooks_load(void);
/* According to a text; "": none. ERR_UNSUPPORTED in a build without a source. */
NODISCARD Status hooks_load_text(const char *text);
/* Whether processes share a GPU (CommConfig.shared_gpu), to try ranks of NCCL on a machine that has one GPU: where the environment variable
 * TOWERS_SHARE_GPU is not empty, in a build with fault points. */
bool hooks_share_gpus(void);
/* That text if it says that something fails in this step of this tower; else "". */
const char *hooks_text_at(int tower, int64_t step);
