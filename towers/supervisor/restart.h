/* Starting all towers of a run again. Restarts (--max-restarts): after a crash of a tower the supervisor starts all
 * towers again from the newest checkpoint, on the devices that still work. Each restart is a line of
 * RUN/restarts.jsonl. */
#pragma once

#include "towers/train/result.h"

#define RESTARTS_FILE "restarts.jsonl"

typedef struct Restarts {
    bool begun;       /* towers of this call have been set up at least once */
    int64_t furthest; /* step reached so far */
    int fruitless;    /* restarts in a row that reached none beyond it */
} Restarts;

/* The towers of *job have ended with *st and *result. If that was a crash and a restart is left, wait, make *job continue
 * from the newest checkpoint, and return true. Else false; *st is ERR_INTERRUPTED if a stop signal ended the wait, and
 * its message says why there is no restart where one was asked for. */
bool restart_due(Restarts *restarts, TrainJob *job, TrainResult *result, Status *st);

/* Where frozen parameters join (--unfreeze-epoch) or images grow (--img-size-schedule), the towers have ended after a
 * checkpoint, or because the one that they have restored is of another stage. If this is such an end, make *job continue
 * from there in that stage, and return true. Else false; *st is ERR_INTERRUPTED if a stop signal has come meanwhile. */
bool stage_due(TrainJob *job, TrainResult *result, Status *st);
