/* Gate: the decision over every step (kernels/gate.h) for the towers of one process, and the steps in flight.
 *
 * Losses and norms stay on the device and travel as extras of the all-reduce; the decision is made there too, so the
 * host only enqueues. The result is copied to the host after the update and read when it has arrived: at once on a
 * device whose calls return when their work is done, else GATE_AHEAD steps later. */
#pragma once

#include "nccl_sync/mean_loss.h"
#include "towers/replica/replica.h"

enum { GATE_AHEAD = 2, GATE_PARTS = 64 };

typedef struct GateConfig {
    GateRules rules;
    Placement place;
    int towers;  /* in all processes */
    bool l2;     /* compute the L2 term of the loss */
    bool scaled; /* the loss scale is not always 1 */
} GateConfig;

/* Result of a step. */
typedef struct GateResult {
    GateReport report;
    double l2; /* of the weights before the update; 0 if not requested */
    bool stop; /* a process was requested to stop */
} GateResult;

typedef struct Gate Gate;

/* `replica` is borrowed and must outlive it. */
NODISCARD Status gate_create(Replica *replica, const GateConfig *config, Gate **made);
void gate_destroy(Gate *gate); /* NULL is fine */
/* Set the state at the start or after a restore. */
NODISCARD Status gate_start(Gate *gate, const GateState *state);
/* Number of steps that may be in flight when another one starts: 0 or GATE_AHEAD. */
int gate_ahead(const Gate *gate);

/* The extras: floats after the gradients in the all-reduce. `gate_extras` of a tower is its contribution; `gate_sum`
 * receives the sum and overwrites the extras of this process's last tower. Device memory. */
float *gate_extras(const Gate *gate, int local);
float *gate_sum(const Gate *gate);

/* Device memory for square sums: of part 0 .. GATE_PARTS - 1 of a tower's gradient; of the sum over towers. */
double *gate_square(const Gate *gate, int part);
double *gate_square_of_sum(const Gate *gate);

/* A step, as far as it is known at its start. */
typedef struct GateStep {
    int64_t number;
    int phase;
    double lr;
    bool closed;     /* never commit it */
    bool stop;       /* this process was requested to stop */
    int64_t samples; /* as in GateInput */
} GateStep;

/* The functions below are called in the order of a step; the launches between begin and send may be captured and
 * repeated. */
NODISCARD Status gate_begin(Gate *gate, const GateStep *step);
/* After `program` ran for a tower's batch of n samples (NULL: no samples); `parts`: number of square sums. */
NODISCARD Status gate_contribute(Gate *gate, int local, const Program *program, int32_t n, bool last, int parts);
/* After the all-reduce, before the update: compute the scalars for the optimizer. */
NODISCARD Status gate_decide(Gate *gate);
/* After the update: copy the result of step `number` to the host. */
NODISCARD Status gate_send(Gate *gate, int64_t number);
/* *arrived: the result has arrived and may be read until GATE_AHEAD + 1 further steps are sent. */
NODISCARD Status gate_arrived(Gate *gate, int64_t number, bool *arrived);
void gate_read(const Gate *gate, int64_t number, GateResult *result, TowerLoss *towers);
