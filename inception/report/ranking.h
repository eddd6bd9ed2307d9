/* A ranking: several runs, the best first, each tested against the best. By test accuracy if all runs have one, or by KID if all
 * have one of the same features; else by the loss over the same images. Of runs with several phases the first is compared: losses of
 * several cannot be ranked together. */
#pragma once

#include "inception/report/run_images.h"

/* What makes a run better than another. The loss of a phase tells nothing: that of a critic falls with its success and
 * rises with that of the generator. */
typedef enum RankedBy { RANKED_BY_LOSS = 0, RANKED_BY_ACCURACY, RANKED_BY_KID, RANKED_BY_NOTHING } RankedBy;

typedef struct RankedRun {
    const Run *run; /* a view of the ranking */
    int number;     /* position on the command line, from 1 */
    Number loss, accuracy, kid, speed;
    Number score; /* the least is the best, what is not finite the worst */
    Number p;     /* of the hypothesis that it equals the best run; ABSENT: not tested */
} RankedRun;

typedef struct Ranking {
    RankedBy by;
    int count;
    RankedRun *row;  /* owned: [count], in the order of runs if RANKED_BY_NOTHING */
    Run *view;       /* owned: [count]: the first phases of the runs */
    StepSpan images; /* over which losses and speeds are compared */
} Ranking;

/* `ranking` is to be cleared after errors, too. Errors: ERR_MEMORY. */
NODISCARD Status ranking_make(Run *const *runs, int count, Ranking *ranking);
void ranking_clear(Ranking *ranking);

/* "the last test accuracy" */
const char *ranking_name(const Ranking *ranking);
enum { RANKING_TEXT = 64 };
/* What the test against the best run says, and the score as a reader wants it, "87.21 %"; Fisher's "not significant" is no
 * proof that runs are equal. */
void ranked_test_text(const RankedRun *run, char text[RANKING_TEXT]);
void ranked_score_text(const Ranking *ranking, const RankedRun *run, char text[RANKING_TEXT]);
