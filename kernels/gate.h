/* The gate: whether a step is committed, and the loss scale of the next one, from what all towers computed.
 *
 * Every tower writes its loss, correct predictions and gradient norm as extras, which travel behind the gradients in
 * the all-reduce. After it every rank makes the same decision on the device from the same numbers, so the optimizer
 * does not wait for a host. A step that must end the run closes the gate for all later steps, because the host learns
 * of it later. The scale rule is that of Micikevicius et al. 2018, "Mixed Precision Training", section 3.2: double
 * after so many good steps, halve at an overflow. Also compiled as CUDA device code. */
#pragma once

#include "kernels/optimizer.h"

#ifdef __CUDACC__
#define GATE_CALL __host__ __device__ static inline
#else
#define GATE_CALL static inline
#endif

enum { GATE_PHASES = 4, GATE_TERMS = 8 /* numbers for the record that a phase may have */ };

/* A phase of training has its own loss, parameters and optimizer (towers/graph/model.h); a classifier has one. */
typedef struct GatePhase {
    int64_t updates; /* committed steps of this phase */
    float scale;     /* of its loss, >= 1 */
    int32_t good;    /* its steps since the scale last moved */
} GatePhase;

/* State from one step to the next: device memory, equal on all ranks, saved with checkpoints. */
typedef struct GateState {
    GatePhase phase[GATE_PHASES];
    int32_t skips;  /* refused steps in a row, of any phase */
    int32_t halted; /* nothing commits any more */
} GateState;

/* Input of one step from the host: device memory, so that the launches of a captured step stay the same. */
typedef struct GateInput {
    float lr, stop; /* stop: 1 if this process was asked to */
    int32_t closed; /* if set, never commit and leave the state unchanged */
    float samples;  /* the divisor of losses and gradients if samples may be ignored or weighted; 0: none are */
} GateInput;

/* One tower's extras. A number that needs more than the 24 bits of a float is sent as three floats that sum to it. */
typedef enum GateExtra {
    GATE_EXTRA_LOSS = 0,
    GATE_EXTRA_COUNT = 3, /* samples; a tower without any is ignored */
    GATE_EXTRA_TOP1,
    GATE_EXTRA_TOP5,
    GATE_EXTRA_NORM,         /* of this tower's gradient */
    GATE_EXTRA_GRAD_BAD = 9, /* 1: the gradient is not finite */
    GATE_EXTRA_WEIGHT,       /* sum of the samples' weights; without weights the count */
    GATE_EXTRA_TERM = 13,    /* the named terms of the phase */
    GATE_EXTRAS = GATE_EXTRA_TERM + 3 * GATE_TERMS
} GateExtra;

/* Sums over the batches of a step so far, of one tower. Device memory, zero before the first step. */
typedef struct GateSums {
    double loss, count, weight, correct[2], term[GATE_TERMS];
} GateSums;

/* Adds a batch of one tower to its sums; writes its extras after the last one. */
typedef struct GateExtrasCall {
    const float *loss;             /* device memory: [1]; NULL for a tower without samples in this batch */
    const float *correct;          /* device: [2]; NULL: nothing is predicted */
    const float *weight;           /* device: [1]; NULL: each sample has weight 1 */
    const float *term[GATE_TERMS]; /* device: [1]; NULL beyond the last */
    int32_t phase;
    int32_t count;         /* samples */
    bool last;             /* of the step: write the extras and reset the sums */
    const double *squares; /* device: square sums of the parts of this tower's gradient */
    int32_t square_count;
    const GateInput *input;             /* device: its `stop` goes to extra `stop_extra` of the header */
    int32_t stop_extra, header, number; /* extras before the towers' own; this tower's number */
    GateSums *sum;                      /* device */
    float *extras;                      /* device: header, then GATE_EXTRAS a tower; those of others stay zero */
    double *square;                     /* device: of the whole gradient of this tower */
    const GateState *state;             /* device: for the loss scale */
} GateExtrasCall;

/* Which towers are checked for NaN and Inf before a step commits: MEAN looks at all losses, ALL at losses, gradients and
 * their sum. LAST, as the original Inception trainer, commits first, and looks only for NaN in the last tower's loss. */
typedef enum NanCheck { NAN_CHECK_OFF = 0, NAN_CHECK_LAST, NAN_CHECK_MEAN, NAN_CHECK_ALL } NanCheck;

/* Rules of a whole run. */
typedef struct GateRules {
    NanCheck check;
    bool skip;          /* a refused step is skipped; otherwise it ends the run */
    int32_t skips_max;  /* in a row */
    bool dynamic;       /* the loss scale adapts */
    int32_t grow_after; /* good steps in a row until it doubles */
    float scale_max;
    double clip_norm; /* 0: off */
    double ema_decay, bn_decay;
} GateRules;

/* Result of a step, copied to the host. */
typedef struct GateReport {
    double grad_norm; /* of the averaged gradient */
    float scale;      /* that it was computed with */
    float refill;     /* gate_refill, which grad_norm includes */
    float next_scale;
    int32_t commit, overflow, halted, good;
    int32_t culprit; /* the first tower at fault by the rule of the run; -1: none */
} GateReport;

typedef struct GateDecideCall {
    GateRules rules;
    int32_t towers, phase;
    const GateInput *input;    /* device */
    const float *extras;       /* device: the sum over towers, behind the header */
    const double *square;      /* device: square sum of the summed gradient */
    GateState *state;          /* device */
    OptimizerScalars *scalars; /* device: for the update */
    GateReport *report;        /* device */
} GateDecideCall;

GATE_CALL bool gate_finite(double x)
{
    return x - x == 0;
}

/* to[0] + to[1] + to[2] = x */
GATE_CALL void extra_split(float *to, double x)
{
    for (int i = 0; i < 3; i++) {
        to[i] = (float)x;
        x = gate_finite((double)to[i]) ? x - (double)to[i] : 0;
    }
}

/* And back. */
GATE_CALL double extra_sum(const float *extras)
{
    return (double)extras[0] + ((double)extras[1] + (double)extras[2]);
}

GATE_CALL void gate_extras_write(const GateExtrasCall *t)
{
    GateSums *sum = t->sum;
    if (t->loss) {
        sum->loss += (double)t->loss[0];
        sum->count += (double)t->count;
        sum->weight += t->weight ? (double)t->weight[0] : (double)t->count;
        for (int k = 0; k < 2 && t->correct; k++) sum->correct[k] += (double)t->correct[k];
        for (int k = 0; k < GATE_TERMS; k++) sum->term[k] += t->term[k] ? (double)t->term[k][0] : 0;
    }
    if (!t->last) return;
    float *extras = t->extras + t->header + t->number * GATE_EXTRAS;
    double square = 0;
    for (int k = 0; k < t->square_count; k++) square += t->squares[k];
    extra_split(extras + GATE_EXTRA_LOSS, sum->loss);
    extras[GATE_EXTRA_COUNT] = (float)sum->count;
    extras[GATE_EXTRA_TOP1] = (float)sum->correct[0];
    extras[GATE_EXTRA_TOP5] = (float)sum->correct[1];
    extra_split(extras + GATE_EXTRA_NORM, sqrt(square) / (double)t->state->phase[t->phase].scale);
    extras[GATE_EXTRA_GRAD_BAD] = gate_finite(square) ? 0.0f : 1.0f;
    extra_split(extras + GATE_EXTRA_WEIGHT, sum->weight);
    t->extras[t->stop_extra] = t->input->stop;
    *t->square = square;
    for (int k = 0; k < GATE_TERMS; k++) extra_split(extras + GATE_EXTRA_TERM + 3 * k, sum->term[k]);
    sum->loss = sum->count = sum->weight = sum->correct[0] = sum->correct[1] = 0;
    for (int k = 0; k < GATE_TERMS; k++) sum->term[k] = 0;
}

/* All towers together. */
typedef struct GateView {
    bool losses, gradients; /* all finite */
    int32_t culprit;        /* as in GateReport */
} GateView;

GATE_CALL GateView gate_view(const float *extras, int towers, NanCheck check)
{
    GateView view = {true, true, -1};
    for (int t = 0; t < towers; t++, extras += GATE_EXTRAS) {
        bool loss = gate_finite((double)extras[GATE_EXTRA_LOSS]), gradient = extras[GATE_EXTRA_GRAD_BAD] == 0;
        if (!(extras[GATE_EXTRA_COUNT] > 0)) continue;
        view.losses = view.losses && loss;
        view.gradients = view.gradients && gradient;
        if (check == NAN_CHECK_LAST) /* that of the last tower alone; Inf passes, as in the original trainer */
            view.culprit = extras[GATE_EXTRA_LOSS] != extras[GATE_EXTRA_LOSS] ? t : -1;
        else if (view.culprit < 0 &&
                 ((check == NAN_CHECK_MEAN && !loss) || (check == NAN_CHECK_ALL && !(loss && gradient))))
            view.culprit = t;
    }
    return view;
}

/* The scale of the next step. A step that was refused for another reason leaves it as it is. */
GATE_CALL void scale_move(const GateRules *rules, bool commit, bool overflow, GatePhase *state)
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

/* The factor by which gradients are multiplied so that they are divided by the weights of the samples: ignored samples
 * (LABEL_NONE) contribute nothing to the sum. */
GATE_CALL double gate_refill(const GateDecideCall *v)
{
    double weight = 0;
    for (int t = 0; t < v->towers; t++) weight += extra_sum(v->extras + t * GATE_EXTRAS + GATE_EXTRA_WEIGHT);
    return weight > 0 && v->input->samples > 0 ? (double)v->input->samples / weight : 1;
}

GATE_CALL void scalars_write(const GateDecideCall *v, double norm, double refill, bool commit)
{
    const GateRules *rules = &v->rules;
    const GatePhase *phase = &v->state->phase[v->phase];
    OptimizerScalars *now = v->scalars;
    double updates = (double)phase->updates, warm = (1.0 + updates) / (10.0 + updates); /* TensorFlow's */
    double clip = rules->clip_norm > 0 && norm > rules->clip_norm ? rules->clip_norm / norm : 1;
    now->lr = v->input->lr;
    now->step = (float)(phase->updates + 1);
    now->grad_scale = (float)(clip * refill / (double)phase->scale);
    now->ema_decay = (float)(rules->ema_decay < warm ? rules->ema_decay : warm);
    now->bn_decay = (float)rules->bn_decay;
    now->commit = commit ? 1.0f : 0.0f;
}

GATE_CALL void state_move(const GateDecideCall *v, bool commit, bool passed, bool overflow)
{
    const GateRules *rules = &v->rules;
    GateState *state = v->state;
    if (commit) state->phase[v->phase].updates++;
    if (commit) state->skips = 0;
    if (!passed && !overflow) {
        state->skips++;
        state->halted = !rules->skip || rules->check == NAN_CHECK_LAST || state->skips > rules->skips_max;
    }
    scale_move(rules, commit, overflow, &state->phase[v->phase]);
}

GATE_CALL void gate_rules_apply(const GateDecideCall *v)
{
    const GateRules *rules = &v->rules;
    GateState *state = v->state;
    const GatePhase *phase = &state->phase[v->phase];
    bool closed = v->input->closed != 0;
    GateView view = gate_view(v->extras, v->towers, rules->check);
    double refill = gate_refill(v), norm = sqrt(*v->square) * refill / (double)phase->scale;
    bool gradients = view.gradients && gate_finite(norm);
    bool overflow = rules->dynamic && !closed && view.losses && !gradients && phase->scale > 1;
    bool passed = view.culprit < 0 && (rules->check != NAN_CHECK_ALL || gradients);
    bool commit = !state->halted && !closed && !overflow && (passed || rules->check == NAN_CHECK_LAST);
    scalars_write(v, norm, refill, commit);
    GateReport *report = v->report;
    report->grad_norm = norm;
    report->scale = phase->scale;
    report->refill = (float)refill;
    report->commit = commit;
    report->overflow = overflow && !state->halted;
    report->halted = state->halted;
    report->culprit = view.culprit;
    if (!state->halted && !closed) state_move(v, commit, passed, overflow);
    report->next_scale = phase->scale;
    report->good = phase->good;
}
