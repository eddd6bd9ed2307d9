/* Images seen: the losses and speeds of runs over the same images.
 *
 * Steps of two runs may have other sizes, and not each step has a row (--metrics-interval, a branch of another run). A row
 * says how many images its run had seen (images_seen), so it stands for these images, and runs are compared where their
 * rows cover the same ones. */
#pragma once

#include "towers/record/run_read.h"

typedef struct StepSpan { /* the images of a step: those after `from`, up to `to` */
    int64_t from, to;
} StepSpan;

/* The rows of a run, and their images. */
typedef struct SeenSteps {
    const Run *run; /* borrowed */
    StepSpan
        *span;    /* owned: [run->steps]; NULL: an older version recorded not all steps, nor how many images they had */
    int64_t next; /* where a search begins, for calls with ascending spans */
} SeenSteps;

NODISCARD Status seen_steps_make(const Run *run, SeenSteps *made);
void seen_steps_free(SeenSteps *seen);
/* Number of images seen by the end of the run; 0: not known. */
int64_t seen_images(const SeenSteps *seen);

/* Over the images of a span, weighting each row by what it has in common: the mean loss, and images per second. ABSENT: not all of
 * them have rows. NaN: a loss is not finite. */
typedef struct SpanMeans {
    Number loss, speed;
} SpanMeans;
SpanMeans seen_means(SeenSteps *seen, StepSpan wanted);

/* The one whose rows have the most images; the images of its rows that all others cover, too, are compared. NULL: the images of a run
 * are not known. */
SeenSteps *seen_coarsest(SeenSteps *seen, int count);

/* The means of all runs over the images in (from, to] that the rows of all cover; ABSENT if there are none. */
NODISCARD Status seen_common(SeenSteps *seen, int count, StepSpan within, SpanMeans *means);
