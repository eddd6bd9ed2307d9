/* Means over images; see run_images.h. */
#include "inception/report/run_images.h"

Status seen_steps_make(const Run *run, SeenSteps *made)
{
    bool known = true;
    *made = (SeenSteps){.run = run, .span = calloc((size_t)run->steps + 1, sizeof *made->span)};
    if (!made->span) return FAIL(ERR_MEMORY, "no memory for the images of %" PRId64 " steps", run->steps);
    for (int64_t i = 0; i < run->steps; i++) {
        const RunStep *step = &run->step[i];
        known &= step->images_seen >= step->images && (step->images_seen > 0 || !step->images);
        made->span[i] = (StepSpan){step->images_seen - step->images, step->images_seen};
    }
    if (!known) seen_steps_free(made);
    return OK;
}

void seen_steps_free(SeenSteps *seen)
{
    free(seen->span);
    seen->span = NULL;
}

int64_t seen_images(const SeenSteps *seen)
{
    return seen->span && seen->run->steps ? seen->span[seen->run->steps - 1].to : 0;
}

SpanMeans seen_means(SeenSteps *seen, StepSpan wanted)
{
    const RunStep *step = seen->run->step;
    double losses = 0, seconds = 0;
    int64_t covered = 0, whole = wanted.to - wanted.from;
    while (seen->next < seen->run->steps && seen->span[seen->next].to <= wanted.from) seen->next++;
    for (int64_t i = seen->next; i < seen->run->steps && seen->span[i].from < wanted.to; i++) {
        int64_t from = seen->span[i].from > wanted.from ? seen->span[i].from : wanted.from,
                to = seen->span[i].to < wanted.to ? seen->span[i].to : wanted.to;
        if (from >= to) continue; /* a step without samples */
        if (to - from == whole) return (SpanMeans){step[i].mean_loss, step[i].images_per_sec};
        losses += step[i].mean_loss * (double)(to - from);
        seconds += (double)(to - from) / step[i].images_per_sec;
        covered += to - from;
    }
    if (covered < whole || !covered) return (SpanMeans){ABSENT, ABSENT};
    return (SpanMeans){isfinite(losses) ? losses / (double)covered : NAN, (double)covered / seconds};
}

SeenSteps *seen_coarsest(SeenSteps *seen, int count)
{
    double most = 0;
    SeenSteps *coarsest = count ? &seen[0] : NULL;
    for (int r = 0; r < count; r++) {
        double images = 0;
        if (!seen[r].span) return NULL;
        for (int64_t i = 0; i < seen[r].run->steps; i++) images += (double)seen[r].run->step[i].images;
        images /= fmax((double)seen[r].run->steps, 1);
        if (images > most) most = images, coarsest = &seen[r];
    }
    return coarsest;
}

Status seen_common(SeenSteps *seen, int count, StepSpan within, SpanMeans *means)
{
    double images = 0;
    SeenSteps *coarsest = seen_coarsest(seen, count);
    SpanMeans *one = calloc((size_t)count + 1, sizeof *one);
    if (!one) return FAIL(ERR_MEMORY, "no memory for the means of %d runs", count);
    for (int r = 0; r < count; r++) seen[r].next = 0, means[r] = (SpanMeans){0, 0};
    for (int64_t i = 0; coarsest && i < coarsest->run->steps; i++) {
        StepSpan span = coarsest->span[i];
        bool covered = span.from >= within.from && span.to <= within.to && span.to > span.from;
        for (int r = 0; covered && r < count; r++) {
            one[r] = seen_means(&seen[r], span);
            covered = !is_absent(one[r].loss);
        }
        for (int r = 0; covered && r < count; r++) {
            means[r].loss += (double)(span.to - span.from) * one[r].loss;
            means[r].speed += (double)(span.to - span.from) / one[r].speed;
        }
        if (covered) images += (double)(span.to - span.from);
    }
    for (int r = 0; r < count; r++)
        means[r] =
            images > 0 ? (SpanMeans){means[r].loss / images, images / means[r].speed} : (SpanMeans){ABSENT, ABSENT};
    free(one);
    return OK;
}
