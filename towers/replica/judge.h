/* Judge: the verdict on every step (kernels/verdict.h) for the towers of one process, and the steps under way.
 *
 * What the towers find stays on the device and travels in the lanes of the sum; the decision is made there too, so the
 * host only enqueues. What came out is copied to the host behind the update and read when it has arrived: at once on a
 * device whose calls return when their work is done, else JUDGE_AHEAD steps later. */
#ifndef TOWERS_REPLICA_JUDGE_H
#define TOWERS_REPLICA_JUDGE_H

#include "nccl_sync/mean_loss.h"
#include "towers/replica/replica.h"

enum { JUDGE_AHEAD = 2, JUDGE_PARTS = 64 };

typedef struct JudgeConfig {
    VerdictRules rules;
    int first, local, towers; /* of this process; of all */
    bool l2;                  /* the L2 term of the loss is wanted */
    bool scaled;              /* the loss scale is not always 1 */
} JudgeConfig;

/* What came out of a step. */
typedef struct Judgement {
    VerdictReport report;
    double l2; /* of the weights before the update; 0 if it is not wanted */
    bool stop; /* some process was asked to */
} Judgement;

typedef struct TowerTally {
    TowerLoss loss;
    bool loss_finite, grad_finite;
    double grad_norm; /* before the sum */
    int64_t hits[2];
    double head[MODEL_HEADS]; /* loss of each head, if there are several; else 0 */
} TowerTally;

typedef struct Judge Judge;

/* `replica` is borrowed and must outlive it. */
NODISCARD Status judge_create(Replica *replica, const JudgeConfig *config, Judge **made);
void judge_destroy(Judge *judge); /* NULL is fine */
/* Where to go on: at the start, and after a restore. */
NODISCARD Status judge_start(Judge *judge, const VerdictState *state);
/* Steps that may be under way when one more is begun: 0, or JUDGE_AHEAD. */
int judge_ahead(const Judge *judge);

/* The lanes: floats behind the gradients in the sum. `judge_lanes`: of one tower, to give; `judge_sum`: where the sum
 * belongs, which is where the last tower of this process has its own. Device memory. */
float *judge_lanes(const Judge *judge, int slot);
float *judge_sum(const Judge *judge);

/* Device memory for square sums: of part 0 .. JUDGE_PARTS - 1 of a tower's gradient; of the sum over towers. */
double *judge_square(const Judge *judge, int part);
double *judge_square_of_sum(const Judge *judge);

/* In the order of a step; what is between begin and send may be recorded and repeated. `hold`: this step commits in no
 * case; `stop`: this process was asked to stop; `samples`: as in VerdictOrder. */
NODISCARD Status judge_begin(Judge *judge, int64_t number, double lr, bool hold, bool stop, int64_t samples);
/* `program` ran for a tower's batch of n samples (NULL: it had none); `parts`: square sums. */
NODISCARD Status judge_tally(Judge *judge, int slot, const Program *program, int32_t n, bool last, int parts);
/* After the sum, before the update: scalars for the optimizer. */
NODISCARD Status judge_decide(Judge *judge);
/* After the update: what is known of step `number` goes to the host. */
NODISCARD Status judge_send(Judge *judge, int64_t number);
/* Has it come? Then it may be read, until JUDGE_AHEAD + 1 further steps are sent. */
NODISCARD Status judge_arrived(Judge *judge, int64_t number, bool *arrived);
void judge_read(const Judge *judge, int64_t number, Judgement *judgement, TowerTally *towers);

#endif
