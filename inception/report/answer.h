/* Answer: what a run has come to, in words, the first thing on its page: accuracy and whether it still rises, the weakest classes
 * and what they are taken for, damaged steps, and one sentence about what to try next (advice.h). Every sentence follows from the
 * records; of what they do not have it says so, or nothing. */
#pragma once

#include "inception/report/advice.h"

enum { ANSWER_BYTES = 4096, CLASS_NAME_BYTES = 64 };

/* The class names of env.json; of a class without one, or if the confusion matrix has other classes, "class 7"; in `text`. */
const char *class_name(const json_t *environment, const Run *run, int class, char text[CLASS_NAME_BYTES]);

typedef struct RunAnswer {
    char found[ANSWER_BYTES]; /* what the run has come to */
    char next[ANSWER_BYTES];  /* what to try next: a sentence, or "" */
} RunAnswer;

/* Not escaped. The arguments are those of advice_make, and what it has made. */
void answer_make(const Run *run, const Run *whole, const json_t *environment, const Advice *advice, RunAnswer *answer);
