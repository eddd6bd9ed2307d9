/* Learning rates; formulas in schedule.h. A warm-up replaces the first steps of the schedule. Staircase and pieces
 * nevertheless count from step 0; cosine and polynomial start where the warm-up ends, so that the rate has no jump;
 * rise-fall and one-cycle have a rise of their own and no warm-up. A staircase decays every int(epoch * decay_epochs) steps, but not below
 * min_lr. */
#include "towers/replica/schedule.h"

/* Of PyTorch's OneCycleLR: pct_start, div_factor, final_div_factor. */
static const double RISE_SHARE = 0.3, START_DIVISOR = 25, END_DIVISOR = 1e4;

enum { PIECES_MAX = sizeof((Schedule *)0)->piece_lr / sizeof(double) };

/* ---- "LR0;E1;LR1;..." */

static Status read_number(const char *text, const char **at, double *value)
{
    char *end = NULL;
    size_t length = strspn(*at, "0123456789.eE+-"); /* strtod alone would accept blanks, names and hexadecimals */
    *value = strtod(*at, &end);
    if (length == 0 || end != *at + length || !isfinite(*value) || *value < 0)
        return FAIL(ERR_ARG, "learning rates '%s': character %d: expected a number >= 0", text, (int)(*at - text) + 1);
    *at = end;
    return OK;
}

static Status read_separator(const char *text, const char **at)
{
    if (**at != ';')
        return FAIL(ERR_ARG, "learning rates '%s': character %d: expected ';' (LR0;EPOCH1;LR1;...)", text,
                    (int)(*at - text) + 1);
    ++*at;
    return OK;
}

static Status read_piece(const char *text, const char **at, Schedule *s)
{
    double epoch = 0;
    const char *start = *at;
    if (s->pieces == PIECES_MAX) return FAIL(ERR_ARG, "learning rates '%s': more than %d pieces", text, PIECES_MAX);
    if (s->pieces > 0) {
        TRY(read_number(text, at, &epoch));
        if (epoch <= s->piece_epoch[s->pieces - 1])
            return FAIL(ERR_ARG, "learning rates '%s': character %d: expected an epoch after %g, found %g", text,
                        (int)(start - text) + 1, s->piece_epoch[s->pieces - 1], epoch);
        TRY(read_separator(text, at));
    }
    TRY(read_number(text, at, &s->piece_lr[s->pieces]));
    s->piece_epoch[s->pieces++] = epoch;
    return OK;
}

Status schedule_parse_pieces(const char *text, Schedule *schedule)
{
    Schedule s = *schedule;
    const char *at = text;
    s.kind = SCHEDULE_PIECEWISE;
    s.pieces = 0;
    TRY(read_piece(text, &at, &s));
    while (*at) {
        TRY(read_separator(text, &at));
        TRY(read_piece(text, &at, &s));
    }
    s.lr = s.piece_lr[0];
    *schedule = s;
    return OK;
}

/* ---- the learning rate of a step */

static double staircase(const Schedule *s, int64_t step, double epoch_steps)
{
    double decay_steps = floor(epoch_steps * s->decay_epochs);
    if (!(s->decay_epochs > 0)) return s->lr;
    if (decay_steps < 1) decay_steps = 1;
    return fmax(s->min_lr, s->lr * pow(s->decay_rate, floor((double)step / decay_steps)));
}

static double piecewise(const Schedule *s, int64_t step, int64_t steps_per_epoch)
{
    double lr = s->lr;
    for (int i = 0; i < s->pieces; i++)
        if ((double)step >= floor(s->piece_epoch[i] * (double)steps_per_epoch)) lr = s->piece_lr[i];
    return lr;
}

/* Position of `step` between `start` and `end`: 0 to 1. */
static double progress(double step, double start, double end)
{
    if (step >= end) return 1;
    return step <= start ? 0 : (step - start) / (end - start);
}

static double cosine(double high, double low, double t)
{
    return low + (high - low) * (1 + cos(M_PI * t)) / 2;
}

/* A rise from 0 begins with its first step's share, because an update with a rate of 0 would change nothing. */
static double rise(double low, double high, double step, double steps)
{
    return low + (high - low) * fmin(1, (step + (low <= 0)) / steps);
}

static double rise_fall(const Schedule *s, double step, double total)
{
    double top = RISE_SHARE * total;
    if (step < top) return rise(s->min_lr, s->lr, step, top);
    return cosine(s->lr, s->min_lr, progress(step, top, total));
}

/* PyTorch counts the ends of its phases as steps: the highest rate at 0.3 total - 1, the lowest one in the last step. */
static double one_cycle(const Schedule *s, double step, double total)
{
    double start = s->lr / START_DIVISOR, top = RISE_SHARE * total - 1;
    if (step <= top) return cosine(start, s->lr, progress(step, 0, top));
    return cosine(s->lr, start / END_DIVISOR, progress(step, top, total - 1));
}

double schedule_warmup(const Schedule *s, int64_t steps_per_epoch)
{
    bool rises = s->kind == SCHEDULE_RISE_FALL || s->kind == SCHEDULE_ONE_CYCLE;
    return rises ? 0 : floor(s->warmup_epochs * (double)steps_per_epoch);
}

double schedule_lr(const Schedule *s, int64_t step, int64_t steps_per_epoch, int64_t total_steps)
{
    double warmup = schedule_warmup(s, steps_per_epoch);
    double first = s->kind == SCHEDULE_PIECEWISE && s->pieces > 0 ? s->piece_lr[0] : s->lr;
    if ((double)step < warmup) return rise(s->warmup_lr, first, (double)step, warmup);
    double t = progress((double)step, warmup, (double)total_steps);
    switch (s->kind) {
    case SCHEDULE_EXPONENTIAL: return staircase(s, step, s->epoch_steps > 0 ? s->epoch_steps : (double)steps_per_epoch);
    case SCHEDULE_STEP: return staircase(s, step, (double)steps_per_epoch);
    case SCHEDULE_PIECEWISE: return piecewise(s, step, steps_per_epoch);
    case SCHEDULE_COSINE: return cosine(s->lr, s->min_lr, t);
    case SCHEDULE_POLYNOMIAL: return s->min_lr + (s->lr - s->min_lr) * pow(1 - t, s->power);
    case SCHEDULE_RISE_FALL: return rise_fall(s, (double)step, (double)total_steps);
    case SCHEDULE_ONE_CYCLE: return one_cycle(s, (double)step, (double)total_steps);
    case SCHEDULE_PLATEAU: return s->plateau_lr > 0 ? s->plateau_lr : s->lr;
    case SCHEDULE_CONSTANT: break;
    }
    return s->lr;
}
