/* Device memory, ring of results and launches of the verdict; see judge.h.
 *
 * What the host is told lies in one block on the device, so that one copy brings it: report, square sums of the
 * decaying weights, lanes. */
#include "towers/replica/judge.h"

#include "nccl_sync/bucket.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)NAN_CHECK_OFF == (int)GATE_NEVER && (int)NAN_CHECK_LAST == (int)GATE_LAST_NAN &&
                   (int)NAN_CHECK_MEAN == (int)GATE_LOSS && (int)NAN_CHECK_ALL == (int)GATE_ALL,
               "gates are numbered as the checks");
_Static_assert((int)TALLY_HEADS == (int)MODEL_HEADS, "lanes for every head");
_Static_assert((int)JUDGE_PARTS == (int)BUCKETS_MAX, "a square sum for every bucket");

enum { RING = JUDGE_AHEAD + 1, LINE = 64 };
_Static_assert((int)RING <= (int)BACKEND_MARKS, "a mark for every step under way");

struct Judge {
    Replica *replica; /* borrowed */
    JudgeConfig config;
    size_t l2_at, lanes_at, bytes; /* of the block */
    int l2_count;
    /* owned, device */
    char *block;
    float *lanes; /* [local - 1][judge_lane_count]: the last tower's lie in the block, where their sum is to be */
    TallySum *sums;
    double *squares; /* [JUDGE_PARTS + 1]: the last one is that of the sum */
    VerdictState *state;
    VerdictOrder *order;
    /* owned, host: [RING] blocks */
    char *ring;
    VerdictOrder orders[RING]; /* on their way to the device */
};

static size_t lined(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

/* ---- life */

static Status device_zeros(Judge *j, size_t bytes, void **made)
{
    return j->replica->device.backend->alloc(&j->replica->device, bytes, made);
}

static Status memory_open(Judge *j)
{
    void *memory;
    size_t local = (size_t)j->config.local, lanes = sum_lane_count(j->config.towers);
    TRY(device_zeros(j, j->bytes, &memory));
    j->block = memory;
    if (local > 1) TRY(device_zeros(j, (local - 1) * lanes * sizeof *j->lanes, &memory));
    j->lanes = local > 1 ? memory : NULL;
    TRY(device_zeros(j, local * sizeof *j->sums, &memory));
    j->sums = memory;
    TRY(device_zeros(j, (JUDGE_PARTS + 1) * sizeof *j->squares, &memory));
    j->squares = memory;
    TRY(device_zeros(j, sizeof *j->state, &memory));
    j->state = memory;
    TRY(device_zeros(j, sizeof *j->order, &memory));
    j->order = memory;
    j->ring = aligned_alloc(LINE, RING * j->bytes);
    return j->ring ? OK : FAIL(ERR_MEMORY, "no memory for results of %d steps", RING);
}

Status judge_create(Replica *replica, const JudgeConfig *config, Judge **made)
{
    Status st = OK;
    const Backend *backend = replica->device.backend;
    VerdictState start = {.scale = 1};
    Judge *j = calloc(1, sizeof *j);
    if (!j) return FAIL(ERR_MEMORY, "no memory for the gate results of the towers");
    j->replica = replica;
    j->config = *config;
    j->l2_count = config->l2 ? replica_l2_parts(replica) : 0;
    j->l2_at = lined(sizeof(VerdictReport));
    j->lanes_at = j->l2_at + lined((size_t)j->l2_count * sizeof(double));
    j->bytes = j->lanes_at + lined(sum_lane_count(config->towers) * sizeof(float));
    TRY_OUT(memory_open(j));
    if (backend->pin) backend->pin(&replica->device, j->ring, RING * j->bytes, true);
    TRY_OUT(judge_start(j, &start));
    *made = j;
    j = NULL;
out:
    judge_destroy(j);
    return st;
}

void judge_destroy(Judge *j)
{
    if (!j) return;
    Device *device = &j->replica->device;
    void *const memory[] = {j->block, j->lanes, j->sums, j->squares, j->state, j->order};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (memory[i]) device->backend->release(device, memory[i]);
    if (j->ring && device->backend->pin) device->backend->pin(device, j->ring, RING * j->bytes, false);
    free(j->ring);
    free(j);
}

Status judge_start(Judge *j, const VerdictState *state)
{
    Device *device = &j->replica->device;
    TRY(device->backend->upload(device, j->state, state, sizeof *state));
    if (j->config.scaled) replica_scale_by(j->replica, &j->state->scale);
    return device->backend->finish(device, STREAM_COMPUTE);
}

int judge_ahead(const Judge *j)
{
    return j->replica->device.backend->mark ? JUDGE_AHEAD : 0;
}

/* ---- places */

float *judge_lanes(const Judge *j, int slot)
{
    if (slot == j->config.local - 1) return judge_sum(j);
    return j->lanes + (size_t)slot * sum_lane_count(j->config.towers);
}

float *judge_sum(const Judge *j)
{
    return (float *)(j->block + j->lanes_at);
}

double *judge_square(const Judge *j, int part)
{
    return j->squares + part;
}

double *judge_square_of_sum(const Judge *j)
{
    return j->squares + JUDGE_PARTS;
}

static void *result(const Program *program, Value value)
{
    return program ? plan_tensor(program->plan, value).data : NULL;
}

/* ---- a step */

Status judge_begin(Judge *j, int64_t number, double lr, bool hold, bool stop, int64_t samples)
{
    Device *device = &j->replica->device;
    VerdictOrder *order = &j->orders[number % RING];
    *order = (VerdictOrder){.lr = (float)lr, .stop = stop ? 1 : 0, .hold = hold, .samples = (float)samples};
    return device->backend->upload(device, j->order, order, sizeof *order);
}

Status judge_tally(Judge *j, int slot, const Program *program, int32_t n, bool last, int parts)
{
    Device *device = &j->replica->device;
    TallyCall tally = {
        .loss = program ? result(program, program->loss) : NULL,
        .hits = program ? result(program, program->hits) : NULL,
        .count = n,
        .last = last,
        .squares = j->squares,
        .square_count = parts,
        .order = j->order,
        .stop_lane = SUM_LANE_STOP,
        .header = SUM_LANES,
        .number = j->config.first + slot,
        .sum = j->sums + slot,
        .lanes = judge_lanes(j, slot),
        .square = judge_square_of_sum(j), /* of the only tower; others' is overwritten by that of the sum */
        .state = j->state,
    };
    for (int k = 0; program && k < program->head_count; k++) tally.head[k] = result(program, program->head[k]);
    if (last && slot == j->config.local - 1 && j->config.towers > 1) /* the others' hold the sum of the last step */
        TRY(device->backend->fill(device, tally.lanes, 0, sum_lane_count(j->config.towers)));
    return device->backend->tally(device, &tally);
}

Status judge_decide(Judge *j)
{
    Device *device = &j->replica->device;
    Verdict verdict = {
        .rules = j->config.rules,
        .towers = j->config.towers,
        .order = j->order,
        .lanes = judge_sum(j) + SUM_LANES,
        .square = judge_square_of_sum(j),
        .state = j->state,
        .scalars = j->replica->scalars,
        .report = (VerdictReport *)j->block,
    };
    if (j->config.l2) TRY(replica_l2_start(j->replica, (double *)(j->block + j->l2_at)));
    return device->backend->decide(device, &verdict);
}

static char *ring_at(const Judge *j, int64_t number)
{
    return j->ring + (size_t)(number % RING) * j->bytes;
}

Status judge_send(Judge *j, int64_t number)
{
    Device *device = &j->replica->device;
    TRY(device->backend->download(device, ring_at(j, number), j->block, j->bytes));
    return device->backend->mark ? device->backend->mark(device, (int)(number % RING)) : OK;
}

Status judge_arrived(Judge *j, int64_t number, bool *arrived)
{
    Device *device = &j->replica->device;
    *arrived = true;
    return device->backend->mark ? device->backend->reached(device, (int)(number % RING), arrived) : OK;
}

/* ---- what came out */

static TowerTally tower_read(const float *lanes)
{
    TowerTally t = {.grad_norm = lanes_joined(lanes + TALLY_NORM), .grad_finite = lanes[TALLY_GRAD_BAD] == 0};
    t.loss.sum = lanes_joined(lanes + TALLY_LOSS);
    t.loss.count = (int64_t)lanes[TALLY_COUNT];
    t.loss_finite = isfinite(t.loss.sum);
    t.loss.finite = t.loss_finite && t.grad_finite;
    for (int k = 0; k < 2; k++) t.hits[k] = (int64_t)lanes[TALLY_TOP1 + k];
    for (int k = 0; k < MODEL_HEADS; k++) t.head[k] = lanes_joined(lanes + TALLY_HEAD + 3 * k);
    return t;
}

void judge_read(const Judge *j, int64_t number, Judgement *judgement, TowerTally *towers)
{
    const char *block = ring_at(j, number);
    const float *lanes = (const float *)(block + j->lanes_at);
    judgement->report = *(const VerdictReport *)block;
    judgement->l2 = j->config.l2 ? replica_l2_end(j->replica, (const double *)(block + j->l2_at)) : 0;
    judgement->stop = lanes[SUM_LANE_STOP] > 0;
    for (int t = 0; t < j->config.towers; t++) towers[t] = tower_read(lanes + SUM_LANES + t * TALLY_LANES);
}
