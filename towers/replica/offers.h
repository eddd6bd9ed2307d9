/* Offers: the checkpoints that a command, or a copy to a store, takes elsewhere while the run goes on (--after-checkpoint, --upload), and how
 * that went. Memory that
 * rank 0's process, the supervisor and the process that runs the command share; no one waits for another one.
 *
 * Rank 0's process offers each checkpoint when it is complete. The newest one is taken; those that came meanwhile are skipped. What
 * is being read must stay: a save leaves the checkpoint that is read and the last one that was offered, which is the only one that
 * may be taken while it goes on. */
#pragma once

#include <stdatomic.h>
#include <sys/types.h>

#include "kernels/base/status.h"

enum { OFFERS_KEPT = 64, FAILURES_KEPT = 16, NO_STEP = -1, FAILURE_BYTES = 1024 };

typedef enum OffersOrder { OFFERS_GO_ON = 0, OFFERS_FINISH, OFFERS_LEAVE } OffersOrder;

/* A command that has failed. */
typedef struct CommandFailure {
    int64_t step;            /* of its checkpoint */
    bool last;               /* it was the command of the end of the run */
    int ending;              /* as waitpid says; -1: it could not be started */
    char why[FAILURE_BYTES]; /* of a copy: the cause; "" */
} CommandFailure;

typedef struct Offers {
    /* Written by rank 0's process; when the towers have ended, by the supervisor. */
    _Atomic int64_t count;             /* of offers */
    _Atomic int64_t step[OFFERS_KEPT]; /* of offer number n, counted from 1: step[n % OFFERS_KEPT] */
    /* By the process that runs the command. */
    _Atomic int64_t reads;                /* the step whose checkpoint the command may read; NO_STEP */
    _Atomic int64_t run, failed, skipped; /* commands that have begun; of them that failed; offers that got none */
    CommandFailure
        failure[FAILURES_KEPT];  /* number n, counted from 0: failure[n % FAILURES_KEPT], written before `failed` */
    _Atomic int64_t sent, whole; /* bytes of the copy that goes on: sent, and all that are to go */
    char why[FAILURE_BYTES];     /* written by a copy that fails, before it ends */
    _Atomic bool finished;       /* the command of the end was run, and succeeded */
    /* By the supervisor. */
    _Atomic int order; /* OffersOrder */
    pid_t pid;         /* of the process that runs the command; 0: it has ended */
    int64_t reported;  /* failures */
    bool skips_reported, death_reported;
} Offers;

NODISCARD Status offers_create(Offers **made); /* before the fork */
void offers_destroy(Offers *offers);           /* NULL is fine, as for the next two */
void offers_put(Offers *offers, int64_t step); /* this checkpoint, and what belongs to it, is complete */
/* The steps whose checkpoints a save must leave; NO_STEP is none. */
void offers_held(const Offers *offers, int64_t held[2]);
/* Take the newest offer after number *taken: its step is in `reads`. The others are skipped. False if there is none. */
bool offers_take(Offers *offers, int64_t *taken);
/* The step of the newest offer; NO_STEP. */
int64_t offers_newest(const Offers *offers);
void offers_fail(Offers *offers, const CommandFailure *failure);
