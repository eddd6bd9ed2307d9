/* Device memory, ring of results and launches of the gate; see gate.h.
 *
 * The results for the host are in one block on the device, so that one copy transfers them: report, L2 term, extras. */
#include "towers/replica/gate.h"

#include "nccl_sync/bucket.h"

_Static_assert((int)GATE_PARTS == (int)BUCKETS_MAX, "a square sum for every bucket");

enum { RING = GATE_AHEAD + 1, LINE = 64 };
_Static_assert((int)RING <= (int)BACKEND_MARKS, "a mark for every step in flight");

struct Gate {
    Replica *replica; /* borrowed */
    GateConfig config;
    int phase;                      /* of the step that began last */
    size_t l2_at, extras_at, bytes; /* of the block */
    /* owned, device */
    char *block;
    float *extras; /* [local - 1][sum_extra_count]: those of the last tower are in the block, where their sum will be */
    GateSums *sums;
    double *squares; /* [GATE_PARTS + 1]: the last is that of the sum over towers */
    GateState *state;
    GateInput *input;
    /* owned, host: [RING] blocks */
    char *ring;
    GateInput inputs[RING]; /* on their way to the device */
};

static size_t lined(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

/* ---- creation and destruction */

/* `made` is a pointer to a pointer. */
static Status device_zeros(Gate *g, size_t bytes, void *made)
{
    void *memory;
    TRY(g->replica->device.backend->alloc(&g->replica->device, bytes, &memory));
    memcpy(made, &memory, sizeof memory);
    return OK;
}

Status gate_create(Replica *replica, const GateConfig *config, Gate **made)
{
    Status st = OK;
    const Backend *backend = replica->device.backend;
    GateState start = {0};
    Gate *g = calloc(1, sizeof *g);
    if (!g) return FAIL(ERR_MEMORY, "no memory for the gate results of the towers");
    g->replica = replica;
    g->config = *config;
    g->l2_at = lined(sizeof(GateReport));
    g->extras_at = g->l2_at + lined(sizeof(double));
    g->bytes = g->extras_at + lined(sum_extra_count(config->towers) * sizeof(float));
    size_t local = (size_t)g->config.place.local_towers, extras = sum_extra_count(g->config.towers);
    TRY_OUT(device_zeros(g, g->bytes, &g->block));
    if (local > 1) TRY_OUT(device_zeros(g, (local - 1) * extras * sizeof *g->extras, &g->extras));
    TRY_OUT(device_zeros(g, local * sizeof *g->sums, &g->sums));
    TRY_OUT(device_zeros(g, (GATE_PARTS + 1) * sizeof *g->squares, &g->squares));
    TRY_OUT(device_zeros(g, sizeof *g->state, &g->state));
    TRY_OUT(device_zeros(g, sizeof *g->input, &g->input));
    g->ring = pages_alloc(RING * g->bytes);
    TRY_OUT(g->ring ? OK : FAIL(ERR_MEMORY, "no memory for results of %d steps", RING));
    if (backend->pin) backend->pin(&replica->device, g->ring, RING * g->bytes, PIN_DOWNLOADS);
    for (int p = 0; p < GATE_PHASES; p++) start.phase[p].scale = 1;
    TRY_OUT(gate_start(g, &start));
    *made = g;
    g = NULL;
out:
    gate_destroy(g);
    return st;
}

void gate_destroy(Gate *g)
{
    if (!g) return;
    Device *device = &g->replica->device;
    void *const memory[] = {g->block, g->extras, g->sums, g->squares, g->state, g->input};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (memory[i]) device->backend->release(device, memory[i]);
    if (g->ring && device->backend->pin) device->backend->pin(device, g->ring, RING * g->bytes, PIN_NOT);
    free(g->ring);
    free(g);
}

Status gate_start(Gate *g, const GateState *state)
{
    Device *device = &g->replica->device;
    TRY(device->backend->upload(device, g->state, state, sizeof *state));
    if (g->config.scaled) replica_scale_by(g->replica, g->state->phase);
    return device->backend->finish(device, STREAM_COMPUTE);
}

int gate_ahead(const Gate *g)
{
    return g->replica->device.backend->mark ? GATE_AHEAD : 0;
}

/* ---- addresses */

float *gate_extras(const Gate *g, int local)
{
    if (local == g->config.place.local_towers - 1) return gate_sum(g);
    return g->extras + (size_t)local * sum_extra_count(g->config.towers);
}

float *gate_sum(const Gate *g)
{
    return (float *)(g->block + g->extras_at);
}

double *gate_square(const Gate *g, int part)
{
    return g->squares + part;
}

double *gate_square_of_sum(const Gate *g)
{
    return g->squares + GATE_PARTS;
}

static void *result(const Program *program, Value value)
{
    return program && value.id ? plan_tensor(program->plan, value).data : NULL;
}

/* ---- a step */

Status gate_begin(Gate *g, const GateStep *step)
{
    Device *device = &g->replica->device;
    GateInput *input = &g->inputs[step->number % RING];
    g->phase = step->phase;
    *input = (GateInput){
        .lr = (float)step->lr, .stop = step->stop ? 1 : 0, .closed = step->closed, .samples = (float)step->samples};
    return device->backend->upload(device, g->input, input, sizeof *input);
}

Status gate_contribute(Gate *g, int local, const Program *program, int32_t n, bool last, int parts)
{
    Device *device = &g->replica->device;
    GateExtrasCall call = {
        .loss = program ? result(program, program->loss) : NULL,
        .correct = program ? result(program, program->correct) : NULL,
        .weight = program ? result(program, program->weight_sum) : NULL,
        .phase = g->phase,
        .count = n,
        .last = last,
        .squares = g->squares,
        .square_count = parts,
        .input = g->input,
        .stop_extra = SUM_EXTRA_STOP,
        .header = SUM_EXTRAS,
        .number = g->config.place.first_tower + local,
        .sum = g->sums + local,
        .extras = gate_extras(g, local),
        .square = gate_square_of_sum(g), /* final for a single tower; otherwise overwritten by that of the sum */
        .state = g->state,
    };
    for (int k = 0; program && k < program->term_count; k++) call.term[k] = result(program, program->term[k].sum);
    if (last && local == g->config.place.local_towers - 1 &&
        g->config.towers > 1) /* the extras of other towers still contain the sum of the last step */
        TRY(device->backend->fill(device, call.extras, 0, sum_extra_count(g->config.towers)));
    return device->backend->gate_extras(device, &call);
}

Status gate_decide(Gate *g)
{
    Device *device = &g->replica->device;
    GateDecideCall call = {
        .rules = g->config.rules,
        .towers = g->config.towers,
        .phase = g->phase,
        .input = g->input,
        .extras = gate_sum(g) + SUM_EXTRAS,
        .square = gate_square_of_sum(g),
        .state = g->state,
        .scalars = g->replica->scalars,
        .report = (GateReport *)g->block,
    };
    if (g->config.l2) TRY(replica_l2_term(g->replica, g->phase, (double *)(g->block + g->l2_at)));
    return device->backend->gate_decide(device, &call);
}

static char *ring_at(const Gate *g, int64_t number)
{
    return g->ring + (size_t)(number % RING) * g->bytes;
}

Status gate_send(Gate *g, int64_t number)
{
    Device *device = &g->replica->device;
    TRY(device->backend->download(device, ring_at(g, number), g->block, g->bytes));
    return device->backend->mark ? device->backend->mark(device, (int)(number % RING)) : OK;
}

Status gate_arrived(Gate *g, int64_t number, bool *arrived)
{
    Device *device = &g->replica->device;
    *arrived = true;
    return device->backend->mark ? device->backend->reached(device, (int)(number % RING), arrived) : OK;
}

/* ---- results */

static TowerLoss tower_read(const float *extras)
{
    TowerLoss t = {.sum = extra_sum(extras + GATE_EXTRA_LOSS),
                   .count = (int64_t)extras[GATE_EXTRA_COUNT],
                   .weight = extra_sum(extras + GATE_EXTRA_WEIGHT),
                   .grad_finite = extras[GATE_EXTRA_GRAD_BAD] == 0,
                   .grad_norm = extra_sum(extras + GATE_EXTRA_NORM)};
    t.finite = isfinite(t.sum) && t.grad_finite;
    for (int k = 0; k < 2; k++) t.correct[k] = (int64_t)extras[GATE_EXTRA_TOP1 + k];
    for (int k = 0; k < GATE_TERMS; k++) t.term[k] = extra_sum(extras + GATE_EXTRA_TERM + 3 * k);
    return t;
}

void gate_read(const Gate *g, int64_t number, GateResult *result, TowerLoss *towers)
{
    const char *block = ring_at(g, number);
    const float *extras = (const float *)(block + g->extras_at);
    result->report = *(const GateReport *)block;
    result->l2 = g->config.l2 ? *(const double *)(block + g->l2_at) : 0;
    result->stop = extras[SUM_EXTRA_STOP] > 0;
    for (int t = 0; t < g->config.towers; t++) {
        towers[t] = tower_read(extras + SUM_EXTRAS + t * GATE_EXTRAS);
        towers[t].grad_norm *= (double)result->report.refill;
    }
}
