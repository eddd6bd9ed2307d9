/* The tower processes that a supervisor has started: where each is, when it last showed a sign of life, which one hangs. */
#pragma once

#include "towers/replica/job.h"
#include "towers/replica/ledger.h"

#include <signal.h>

typedef Status (*TowerMain)(const TrainJob *job, int rank, Ledger *ledger, CommShared *shared);

typedef struct Child {
    pid_t pid;         /* 0 after it was reaped */
    int64_t waited_ns; /* when it was last seen waiting for others (children_look) */
    /* its last sign of life for which silence has been reported, or the begin of its wait for storage */
    int64_t warned_ns;
} Child;

/* Processes are numbered from 0 in each node; job_placement(first + number) is their place in the run. */
typedef struct Children {
    const TrainJob *job; /* borrowed */
    Ledger *ledger;      /* owned by the supervisor, like the next */
    CommShared *shared;
    int first, count; /* rank of the first process; number of processes */
    Child *child;     /* owned [count] */
    int alive;
    int64_t killed_ns; /* 0: no process has been killed yet */
} Children;

/* Create the memory that the processes of job->node share. After an error it may be there in part. */
NODISCARD Status children_create(const TrainJob *job, Children *made);
/* Fork them; each runs `tower_main` with this signal mask. */
NODISCARD Status children_start(Children *c, TowerMain tower_main, const sigset_t *mask);
void children_kill(Children *c);
void children_free(Children *c); /* what is not shared */

/* Where process r is, by the tower whose turn it is: "tower 1 (process 1), step 5, activity forward", followed by its
 * last progress in this activity. */
typedef struct ChildPlace {
    char text[192];
} ChildPlace;
ChildPlace child_place(const Children *c, int r);
/* When process r last showed a sign of life: one of its towers changed its activity, or made progress in it; or now, while it
 * waits for storage. */
int64_t child_life(const Children *c, int r);
/* Since when process r has waited for storage; 0: it does not. One that was stopped in such a call waits for nothing. */
int64_t child_storage(const Children *c, int r);
bool child_loads(const Children *c, int r); /* it waits for its data loader */

/* Called at every look: a process that has waited long for others is not silent when they have come. */
void children_look(Children *c, int64_t now);
/* The process that has been silent longest, if longer than `limit`; else -1. A process that waits for others is not the
 * cause, as long as one of them shows signs of life, or may be in another node, whose supervisor then finds it. */
int children_silent(const Children *c, int64_t now, int64_t limit);
/* True if no process has come further for `ns`; one that waits for storage does not. */
bool children_all_stalled(const Children *c, int64_t ns);
