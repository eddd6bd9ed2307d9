/* The verdict on a step: what the towers found, whether the step commits, and the loss scale of the next one.
 *
 * Every tower writes its tally (loss, hits, norm of its gradient) as lanes that travel with the sum over towers; after
 * it every rank decides alike, on the device, from memory that all have: no host has to look before the optimizer runs.
 * A step that must end the run closes the gate for all that follow, since the host hears of it only later. The scale
 * rule is that of Micikevicius et al. 2018, "Mixed Precision Training", section 3.2: double after so many good steps,
 * halve at an overflow. Also compiled as CUDA device code. */
#ifndef TOWERS_KERNELS_VERDICT_H
#define TOWERS_KERNELS_VERDICT_H

#include "kernels/optimizer.h"

#include <math.h>

#ifdef __CUDACC__
#define VERDICT_CALL __host__ __device__ static inline
#else
#define VERDICT_CALL static inline
#endif

/* What one step leaves for the next: device memory, equal on all ranks, saved with checkpoints. */
typedef struct VerdictState {
    int64_t updates; /* committed steps */
    float scale;     /* of the loss, >= 1 */
    int32_t good;    /* steps since the scale last moved */
    int32_t skips;   /* refused steps in a row */
    int32_t halted;  /* nothing commits any more */
} VerdictState;

/* What the host decides for one step: device memory, so that the launches of a recorded step need not change. */
typedef struct VerdictOrder {
    float lr, stop; /* stop: 1 if this process was asked to */
    int32_t hold;   /* commit in no case, and let the state be */
    float samples;  /* that losses and gradients were divided by, where fewer may have counted; 0: all have */
} VerdictOrder;

enum { TALLY_HEADS = 3 /* of a network: its own loss and auxiliary ones */ };

/* One tower's lanes. A number that needs more than the 24 bits of a float comes as three that add up to it. */
typedef enum TallyLane {
    TALLY_LOSS = 0,
    TALLY_COUNT = 3, /* samples; a tower without any has no say */
    TALLY_TOP1,
    TALLY_TOP5,
    TALLY_NORM,         /* of this tower's gradient */
    TALLY_GRAD_BAD = 9, /* 1: the gradient is not finite */
    TALLY_HEAD,         /* the loss of each head, if there are several */
    TALLY_LANES = TALLY_HEAD + 3 * TALLY_HEADS
} TallyLane;

/* What is kept of a step's batches until the last one of this tower. Device memory, zero before the first step. */
typedef struct TallySum {
    double loss, count, hits[2], head[TALLY_HEADS];
} TallySum;

/* One batch of one tower is done. */
typedef struct TallyCall {
    const float *loss, *hits;       /* device memory: [1], [2]; NULL for a tower without samples in this batch */
    const float *head[TALLY_HEADS]; /* device: [1]; NULL beyond the last */
    int32_t count;                  /* samples */
    bool last;                      /* of the step: write the lanes, and start anew */
    const double *squares;          /* device: square sums of the parts of this tower's gradient */
    int32_t square_count;
    const VerdictOrder *order;         /* device: its `stop` goes to lane `stop_lane` of the header */
    int32_t stop_lane, header, number; /* lanes before the towers' own; this tower's number */
    TallySum *sum;                     /* device */
    float *lanes;                      /* device: header, then TALLY_LANES a tower; those of others stay zero */
    double *square;                    /* device: of the whole gradient of this tower */
    const VerdictState *state;         /* device: for the loss scale */
} TallyCall;

/* What closes the gate. */
typedef enum VerdictGate {
    GATE_NEVER = 0,
    GATE_LAST_NAN, /* the last tower's loss is NaN: seen after the update, as the original trainer */
    GATE_LOSS,     /* any loss that is not finite */
    GATE_ALL       /* any loss or gradient, or the sum of the gradients */
} VerdictGate;

/* What stays the same for a whole run. */
typedef struct VerdictRules {
    VerdictGate gate;
    bool skip;          /* a step that is refused is left out; else it ends the run */
    int32_t skips_max;  /* in a row */
    bool dynamic;       /* the loss scale moves */
    int32_t grow_after; /* good steps in a row until it doubles */
    float scale_max;
    double clip_norm; /* 0: off */
    double ema_decay, bn_decay;
} VerdictRules;

/* What the host is told of a step. */
typedef struct VerdictReport {
    double grad_norm; /* of the averaged gradient */
    float scale;      /* that it was computed with */
    float next_scale;
    int32_t commit, overflow, halted, good;
} VerdictReport;

typedef struct Verdict {
    VerdictRules rules;
    int32_t towers;
    const VerdictOrder *order; /* device */
    const float *lanes;        /* device: the sum over towers, behind the header */
    const double *square;      /* device: square sum of the summed gradient */
    VerdictState *state;       /* device */
    OptimizerScalars *scalars; /* device: for the update */
    VerdictReport *report;     /* device */
} Verdict;

VERDICT_CALL bool verdict_finite(double x)
{
    return x - x == 0;
}

/* to[0] + to[1] + to[2] = x */
VERDICT_CALL void lanes_split(float *to, double x)
{
    for (int i = 0; i < 3; i++) {
        to[i] = (float)x;
        x = verdict_finite((double)to[i]) ? x - (double)to[i] : 0;
    }
}

/* And back. */
VERDICT_CALL double lanes_joined(const float *lanes)
{
    return (double)lanes[0] + ((double)lanes[1] + (double)lanes[2]);
}

VERDICT_CALL void tally_write(const TallyCall *t)
{
    TallySum *sum = t->sum;
    if (t->loss) {
        sum->loss += (double)t->loss[0];
        sum->count += (double)t->count;
        for (int k = 0; k < 2; k++) sum->hits[k] += (double)t->hits[k];
        for (int k = 0; k < TALLY_HEADS; k++) sum->head[k] += t->head[k] ? (double)t->head[k][0] : 0;
    }
    if (!t->last) return;
    float *lanes = t->lanes + t->header + t->number * TALLY_LANES;
    double square = 0;
    for (int k = 0; k < t->square_count; k++) square += t->squares[k];
    lanes_split(lanes + TALLY_LOSS, sum->loss);
    lanes[TALLY_COUNT] = (float)sum->count;
    lanes[TALLY_TOP1] = (float)sum->hits[0];
    lanes[TALLY_TOP5] = (float)sum->hits[1];
    lanes_split(lanes + TALLY_NORM, sqrt(square) / (double)t->state->scale);
    lanes[TALLY_GRAD_BAD] = verdict_finite(square) ? 0.0f : 1.0f;
    t->lanes[t->stop_lane] = t->order->stop;
    *t->square = square;
    for (int k = 0; k < TALLY_HEADS; k++) lanes_split(lanes + TALLY_HEAD + 3 * k, sum->head[k]);
    sum->loss = sum->count = sum->hits[0] = sum->hits[1] = 0;
    for (int k = 0; k < TALLY_HEADS; k++) sum->head[k] = 0;
}

/* What the towers say together. */
typedef struct VerdictSight {
    bool losses, gradients; /* all finite */
    bool last_nan;
} VerdictSight;

VERDICT_CALL VerdictSight verdict_look(const float *lanes, int towers)
{
    VerdictSight sight = {true, true, false};
    for (int t = 0; t < towers; t++, lanes += TALLY_LANES) {
        if (!(lanes[TALLY_COUNT] > 0)) continue;
        if (!verdict_finite((double)lanes[TALLY_LOSS])) sight.losses = false;
        if (lanes[TALLY_GRAD_BAD] != 0) sight.gradients = false;
        sight.last_nan = lanes[TALLY_LOSS] != lanes[TALLY_LOSS];
    }
    return sight;
}

/* The scale of the next step. A step that was refused for another reason says nothing about it. */
VERDICT_CALL void scale_move(const VerdictRules *rules, bool commit, bool overflow, VerdictState *state)
{
    if (!rules->dynamic) return;
    if (overflow) {
        state->scale = state->scale > 2 ? state->scale / 2 : 1;
        state->good = 0;
    } else if (commit && ++state->good >= rules->grow_after) {
        if (state->scale * 2 <= rules->scale_max) state->scale *= 2;
        state->good = 0;
    }
}

/* What gradients must be multiplied with, so that they are divided by the samples that counted: those that were skipped
 * (LABEL_NONE) gave nothing to the sum. */
VERDICT_CALL double verdict_refill(const Verdict *v)
{
    double counted = 0;
    for (int t = 0; t < v->towers; t++) counted += (double)v->lanes[t * TALLY_LANES + TALLY_COUNT];
    return counted > 0 && counted < (double)v->order->samples ? (double)v->order->samples / counted : 1;
}

VERDICT_CALL void scalars_write(const Verdict *v, double norm, double refill, bool commit)
{
    const VerdictRules *rules = &v->rules;
    OptimizerScalars *now = v->scalars;
    double updates = (double)v->state->updates, warm = (1.0 + updates) / (10.0 + updates); /* TensorFlow's */
    double clip = rules->clip_norm > 0 && norm > rules->clip_norm ? rules->clip_norm / norm : 1;
    now->lr = v->order->lr;
    now->step = (float)(v->state->updates + 1);
    now->grad_scale = (float)(clip * refill / (double)v->state->scale);
    now->ema_decay = (float)(rules->ema_decay < warm ? rules->ema_decay : warm);
    now->bn_decay = (float)rules->bn_decay;
    now->commit = commit ? 1.0f : 0.0f;
}

VERDICT_CALL void state_move(const VerdictRules *rules, bool commit, bool passed, bool overflow, VerdictState *state)
{
    if (commit) state->updates++;
    if (commit) state->skips = 0;
    if (!passed && !overflow) {
        state->skips++;
        state->halted = !rules->skip || rules->gate == GATE_LAST_NAN || state->skips > rules->skips_max;
    }
    scale_move(rules, commit, overflow, state);
}

VERDICT_CALL void verdict_decide(const Verdict *v)
{
    const VerdictRules *rules = &v->rules;
    VerdictState *state = v->state;
    bool hold = v->order->hold != 0;
    VerdictSight sight = verdict_look(v->lanes, v->towers);
    double refill = verdict_refill(v), norm = sqrt(*v->square) * refill / (double)state->scale;
    bool gradients = sight.gradients && verdict_finite(norm);
    bool overflow = rules->dynamic && !hold && sight.losses && !gradients && state->scale > 1;
    bool passed = rules->gate == GATE_NEVER || (rules->gate == GATE_LAST_NAN && !sight.last_nan) ||
                  (rules->gate == GATE_LOSS && sight.losses) || (rules->gate == GATE_ALL && sight.losses && gradients);
    bool commit = !state->halted && !hold && !overflow && (passed || rules->gate == GATE_LAST_NAN);
    scalars_write(v, norm, refill, commit);
    VerdictReport *report = v->report;
    report->grad_norm = norm;
    report->scale = state->scale;
    report->commit = commit;
    report->overflow = overflow && !state->halted;
    report->halted = state->halted;
    if (!state->halted && !hold) state_move(rules, commit, passed, overflow, state);
    report->next_scale = state->scale;
    report->good = state->good;
}

#endif
