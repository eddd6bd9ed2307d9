/* Advice: what to try after a run, by rules over its records. The first rule that applies is the advice, and a rule applies only
 * if chance makes its finding in less than DIFFERENCE_LEVEL of runs without it (loss_truth.h):
 *
 *   DAMAGED      a step had a loss or gradient that was not finite, or was refused; an overflow in fp16 is no damage
 *   FEW_IMAGES   accuracy may be that of naming the most frequent class, or better by GUESSING_MARGIN and more: too few images to tell
 *   LEARNED_NOTHING   accuracy is not above that of naming the most frequent class by so much; without an evaluation: the loss of the
 *                last tenth of the steps is not below that of the first by three deviations of the steps' noise
 *   RATE         the loss of the last tenth of the steps is above that of the best tenth, by a tenth of it or more
 *   OVERFITS     over the last evaluations the test loss rises and the training loss falls
 *   UNBALANCED   a class has three times the training images of another, nothing makes up for it, and test images of the
 *                classes with less than half of the mean are recognized less often than the others
 *   SHORT        over the last evaluations accuracy rises, unless the rate has fallen by half meanwhile and the training loss is
 *                below the test loss: such a rise ends with the rate
 *   FEW          fewer than TREND_LEAST evaluations: no rule about their course can tell
 *
 * Models of several phases have no advice: the losses of networks that train against each other say little. */
#pragma once

#include <jansson.h>

#include "inception/report/loss_truth.h"

enum { TREND_LEAST = 5, TREND_MOST = 12 /* evaluations: the later half of them all, within these ends */ };

typedef enum AdviceKind {
    ADVICE_NONE, /* of a model with several phases */
    ADVICE_DAMAGED,
    ADVICE_LEARNED_NOTHING,
    ADVICE_FEW_IMAGES,
    ADVICE_RATE,
    ADVICE_OVERFITS,
    ADVICE_UNBALANCED,
    ADVICE_SHORT,
    ADVICE_FEW,
    ADVICE_NOTHING, /* stands out */
} AdviceKind;

/* An accuracy above that of guessing by less shows nothing learned. */
#define GUESSING_MARGIN 0.1

/* Less of the rate is left at the end of a trend: what rises then may do so by that alone. */
#define RATE_FALLEN 0.5

/* How the evaluations of a run end. */
typedef struct Trend {
    int64_t evaluations, used; /* all; of the trend */
    double up, down; /* probability of so clear a rise, and fall, of the accuracy by chance; 1: too few to tell */
    double slope;    /* of the accuracy, from an evaluation to the next */
    double loss_up, train_down; /* of the test loss, of the training loss */
    double rate_kept;           /* rate of the last evaluation, divided by that of the first one used */
} Trend;

/* Test images of rare classes and of the others. */
typedef struct Balance {
    int64_t most, least; /* training images of a class */
    int64_t rare, rare_right, others, others_right;
} Balance;

typedef struct Advice {
    AdviceKind kind;
    int64_t damaged, overflows;         /* steps */
    const RunStep *first_damaged;       /* borrowed; NULL: none */
    double best_tenth, last_tenth;      /* mean training losses; NaN: too few steps */
    int64_t right, images, most_images; /* test images: recognized, all, of the most frequent class; 0: not known */
    Trend trend;
    Balance balance;
} Advice;

/* `run`: its first phase; `whole`: all of it; `environment`: env.json, may be NULL. */
void advice_make(const Run *run, const Run *whole, const json_t *environment, Advice *advice);
/* An option of the run has this value. */
bool run_has(const Run *run, const char *option, const char *value);
