/* The checks of check_gate.h. */
#include "tests/support/check_gate.h"
#include "tests/support/device_memory.h"
#include "tests/support/unit.h"

enum { TOWERS = 3, HEADER = 16, EXTRAS = HEADER + TOWERS * GATE_EXTRAS, EXTRAS_PHASE = 2 };

/* ---- one tower's extras */

typedef struct ExtrasBench {
    Device *device;
    float *loss, *correct, *extras;
    double *squares, *square;
    GateSums *sum;
    GateState *state;
    GateInput *input;
} ExtrasBench;

static ExtrasBench extras_open(Device *device, float scale)
{
    const double squares[3] = {9, 4, 3};
    GateState state = {.phase[EXTRAS_PHASE].scale = scale};
    float zeros[EXTRAS] = {0};
    double nothing = -1;
    return (ExtrasBench){.device = device,
                         .loss = to_device(device, zeros, sizeof(float)),
                         .correct = to_device(device, zeros, 2 * sizeof(float)),
                         .extras = to_device(device, zeros, sizeof zeros),
                         .squares = to_device(device, squares, sizeof squares),
                         .square = to_device(device, &nothing, sizeof nothing),
                         .sum = to_device(device, &(GateSums){0}, sizeof(GateSums)),
                         .state = to_device(device, &state, sizeof state),
                         .input = to_device(device, &(GateInput){0}, sizeof(GateInput))};
}

static void extras_close(ExtrasBench *b)
{
    void *const all[] = {b->loss, b->correct, b->extras, b->squares, b->square, b->sum, b->state, b->input};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) b->device->backend->release(b->device, all[i]);
}

static void extras_batch(ExtrasBench *b, float loss, float top1, int32_t count, bool last, bool stop)
{
    float correct[2] = {top1, top1 + 1};
    GateInput input = {.stop = stop ? 1 : 0};
    GateExtrasCall t = {.loss = count ? b->loss : NULL,
                        .term = {b->loss, b->correct},
                        .phase = EXTRAS_PHASE,
                        .correct = count ? b->correct : NULL,
                        .weight = count == 16 ? b->loss : NULL,
                        .count = count,
                        .last = last,
                        .squares = b->squares,
                        .square_count = 3,
                        .input = b->input,
                        .stop_extra = 2,
                        .header = HEADER,
                        .number = 1,
                        .sum = b->sum,
                        .extras = b->extras,
                        .square = b->square,
                        .state = b->state};
    must(b->device->backend->upload(b->device, b->loss, &loss, sizeof loss));
    must(b->device->backend->upload(b->device, b->correct, correct, sizeof correct));
    must(b->device->backend->upload(b->device, b->input, &input, sizeof input));
    must(b->device->backend->gate_extras(b->device, &t));
}

static void extras_read(ExtrasBench *b, float *extras, double *square)
{
    to_host(b->device, extras, b->extras, EXTRAS * sizeof *extras);
    to_host(b->device, square, b->square, sizeof *square);
    for (int i = 0; i < EXTRAS; i++) {
        bool own = i >= HEADER + GATE_EXTRAS && i < HEADER + 2 * GATE_EXTRAS;
        if (!own && i != 2) assert_true(extras[i] == 0); /* other towers' */
    }
}

void check_extras(Device *device)
{
    ExtrasBench b = extras_open(device, 2);
    float extras[EXTRAS], *own = extras + HEADER + GATE_EXTRAS;
    double square;
    const float small = 0x1p-38f; /* the sum needs 51 bits */
    extras_batch(&b, 4096, 10, 32, false, false);
    extras_batch(&b, 0, 0, 0, false, false); /* a batch without samples */
    extras_batch(&b, small, 5, 16, true, true);
    extras_read(&b, extras, &square);
    assert_true(extra_sum(own + GATE_EXTRA_LOSS) == 4096 + (double)small);
    assert_true(own[GATE_EXTRA_COUNT] == 48 && own[GATE_EXTRA_TOP1] == 15 && own[GATE_EXTRA_TOP5] == 17);
    assert_true(extra_sum(own + GATE_EXTRA_WEIGHT) == 32 + (double)small);
    assert_true(square == 16 && extra_sum(own + GATE_EXTRA_NORM) == 2); /* sqrt(16) / scale */
    assert_true(own[GATE_EXTRA_GRAD_BAD] == 0 && extras[2] == 1);
    assert_true(extra_sum(own + GATE_EXTRA_TERM) == 4096 + (double)small && own[GATE_EXTRA_TERM + 3] == 15);
    assert_true(own[GATE_EXTRA_TERM + 6] == 0); /* there are two terms */

    const double bad[3] = {1, INFINITY, 1};
    must(device->backend->upload(device, b.squares, bad, sizeof bad));
    extras_batch(&b, INFINITY, 0, 8, true, false); /* a step of its own: nothing is left of the one before */
    extras_read(&b, extras, &square);
    assert_true(isinf(own[GATE_EXTRA_LOSS]) && own[GATE_EXTRA_LOSS + 1] == 0 && own[GATE_EXTRA_COUNT] == 8);
    assert_true(own[GATE_EXTRA_GRAD_BAD] == 1 && extras[2] == 0 && isinf(square));
    extras_close(&b);
}

/* ---- the decision */

typedef struct Bench {
    Device *device;
    GateRules rules;
    GateState state;
    GateInput input;
    OptimizerScalars scalars;
    GateReport report;
    float extras[TOWERS * GATE_EXTRAS];
    double square;
    int phase;
} Bench;

static Bench bench_of(Device *device)
{
    Bench b = {.device = device,
               .rules = {.check = NAN_CHECK_ALL, .skips_max = 2},
               .state = {.phase[0].scale = 1},
               .input = {.lr = 0.125f},
               .square = 4};
    for (int t = 0; t < TOWERS; t++) {
        b.extras[t * GATE_EXTRAS + GATE_EXTRA_LOSS] = 1.5f;
        b.extras[t * GATE_EXTRAS + GATE_EXTRA_COUNT] = b.extras[t * GATE_EXTRAS + GATE_EXTRA_WEIGHT] = 8;
    }
    return b;
}

static void decide(Bench *b)
{
    Device *device = b->device;
    void *extras = to_device(device, b->extras, sizeof b->extras),
         *square = to_device(device, &b->square, sizeof(double)),
         *state = to_device(device, &b->state, sizeof b->state), *input = to_device(device, &b->input, sizeof b->input),
         *scalars = to_device(device, &b->scalars, sizeof b->scalars),
         *report = to_device(device, &b->report, sizeof b->report);
    GateDecideCall v = {.rules = b->rules,
                        .input = input,
                        .towers = TOWERS,
                        .phase = b->phase,
                        .extras = extras,
                        .square = square,
                        .state = state,
                        .scalars = scalars,
                        .report = report};
    must(device->backend->gate_decide(device, &v));
    to_host(device, &b->state, state, sizeof b->state);
    to_host(device, &b->scalars, scalars, sizeof b->scalars);
    to_host(device, &b->report, report, sizeof b->report);
    void *const all[] = {extras, square, state, input, scalars, report};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) device->backend->release(device, all[i]);
}

typedef enum Trouble {
    FINE = 0,
    LOSS_NAN,
    LAST_NAN,
    LAST_INF,
    EMPTY_NAN,
    GRAD_BAD,
    SUM_BAD,
    BOTH_INF,         /* Inf in one tower and -Inf in another: their sum is NaN */
    NAN_BEFORE_EMPTY, /* the last tower that has samples */
    TROUBLES
} Trouble;

static void trouble_make(Bench *b, Trouble trouble)
{
    float *second = b->extras + GATE_EXTRAS, *last = b->extras + (TOWERS - 1) * GATE_EXTRAS;
    if (trouble == LOSS_NAN) second[GATE_EXTRA_LOSS] = NAN;
    if (trouble == LAST_NAN) last[GATE_EXTRA_LOSS] = NAN;
    if (trouble == LAST_INF) last[GATE_EXTRA_LOSS] = INFINITY;
    if (trouble == EMPTY_NAN) second[GATE_EXTRA_LOSS] = NAN, second[GATE_EXTRA_COUNT] = 0;
    if (trouble == GRAD_BAD) second[GATE_EXTRA_GRAD_BAD] = 1;
    if (trouble == SUM_BAD) b->square = INFINITY;
    if (trouble == BOTH_INF) second[GATE_EXTRA_LOSS] = INFINITY, last[GATE_EXTRA_LOSS] = -INFINITY;
    if (trouble == NAN_BEFORE_EMPTY) second[GATE_EXTRA_LOSS] = NAN, last[GATE_EXTRA_COUNT] = 0;
}

void check_gates(Device *device)
{
    /* Does the step commit? [gate][trouble] */
    static const char *const commits[] = {[NAN_CHECK_OFF] = "yyyyyyyyy",
                                          [NAN_CHECK_LAST] = "yyyyyyyyy",
                                          [NAN_CHECK_MEAN] = "ynnnyyynn",
                                          [NAN_CHECK_ALL] = "ynnnynnnn"};
    /* Does it end the run? */
    static const char *const halts[] = {[NAN_CHECK_OFF] = "nnnnnnnnn",
                                        [NAN_CHECK_LAST] = "nnynnnnny",
                                        [NAN_CHECK_MEAN] = "nyyynnnyy",
                                        [NAN_CHECK_ALL] = "nyyynyyyy"};
    /* Which tower is named? -: none. */
    static const char *const culprits[] = {[NAN_CHECK_OFF] = "---------",
                                           [NAN_CHECK_LAST] = "--2-----1",
                                           [NAN_CHECK_MEAN] = "-122---11",
                                           [NAN_CHECK_ALL] = "-122-1-11"};
    for (int gate = NAN_CHECK_OFF; gate <= NAN_CHECK_ALL; gate++)
        for (int trouble = FINE; trouble < TROUBLES; trouble++) {
            Bench b = bench_of(device);
            b.rules.check = (NanCheck)gate;
            trouble_make(&b, (Trouble)trouble);
            decide(&b);
            bool commit = commits[gate][trouble] == 'y', halt = halts[gate][trouble] == 'y';
            int culprit = culprits[gate][trouble] == '-' ? -1 : culprits[gate][trouble] - '0';
            if (b.report.commit != commit || b.scalars.commit != (commit ? 1.0f : 0.0f) || b.state.halted != halt ||
                b.state.phase[0].updates != commit || b.report.culprit != culprit || b.report.overflow)
                fail_msg("gate %d, trouble %d: commit %d, halted %d, %d updates, culprit %d", gate, trouble,
                         b.report.commit, b.state.halted, (int)b.state.phase[0].updates, b.report.culprit);
        }
}

/* Once the run is to end nothing commits, however good; steps that are left out end it after too many in a row. */
void check_halt(Device *device)
{
    Bench b = bench_of(device), good = bench_of(device);
    trouble_make(&b, GRAD_BAD);
    decide(&b);
    good.state = b.state;
    decide(&good);
    assert_true(good.report.halted && !good.report.commit && good.scalars.commit == 0 &&
                good.state.phase[0].updates == 0);

    b = bench_of(device);
    b.rules.skip = true;
    for (int row = 1; row <= 3; row++) {
        trouble_make(&b, LOSS_NAN);
        decide(&b);
        assert_int_equal(b.state.skips, row);
        assert_int_equal(b.state.halted, row > b.rules.skips_max);
    }
    b.state = (GateState){.phase[0].scale = 1, .skips = 2};
    b.extras[GATE_EXTRAS + GATE_EXTRA_LOSS] = 1;
    decide(&b);
    assert_true(b.report.commit && b.state.skips == 0);
}

/* G: good step, O: a gradient overflows, S: their sum does, N: a loss is NaN. The scale after each step. */
typedef struct ScaleRow {
    const char *steps;
    float start;
    float after[8];
    int updates, skips;
} ScaleRow;

void check_loss_scale(Device *device)
{
    static const ScaleRow rows[] = {
        {"GGGG", 8, {8, 8, 16, 16}, 4, 0},              /* grows after three */
        {"GGOGGG", 8, {8, 8, 4, 4, 4, 8}, 5, 0},        /* an overflow starts the count anew */
        {"GGNGG", 8, {8, 8, 8, 16, 16}, 4, 0},          /* a NaN says nothing about the scale */
        {"SO", 8, {4, 2}, 0, 0},                        /* of the sum, of a tower: the same */
        {"OO", 1.5f, {1, 1}, 0, 1},                     /* below one there is no scale to blame: it is a NaN */
        {"GGGGGG", 32, {32, 32, 64, 64, 64, 64}, 6, 0}, /* no further than the most */
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const ScaleRow *row = &rows[r];
        GateState state = {.phase[0].scale = row->start};
        for (int i = 0; row->steps[i]; i++) {
            Bench b = bench_of(device);
            b.rules = (GateRules){.check = NAN_CHECK_ALL,
                                  .skip = true,
                                  .skips_max = 9,
                                  .dynamic = true,
                                  .grow_after = 3,
                                  .scale_max = 64};
            b.state = state;
            char step = row->steps[i];
            if (step != 'G') trouble_make(&b, step == 'O' ? GRAD_BAD : step == 'S' ? SUM_BAD : LOSS_NAN);
            decide(&b);
            bool overflow = (step == 'O' || step == 'S') && state.phase[0].scale > 1;
            if (b.state.phase[0].scale != row->after[i] || b.report.scale != state.phase[0].scale ||
                b.report.next_scale != b.state.phase[0].scale || b.report.overflow != overflow ||
                b.report.commit != (step == 'G'))
                fail_msg("row %zu (%s), step %d: scale %g, overflow %d, commit %d", r, row->steps, i,
                         (double)b.state.phase[0].scale, b.report.overflow, b.report.commit);
            state = b.state;
        }
        assert_int_equal(state.phase[0].updates, row->updates);
        assert_int_equal(state.skips, row->skips);
    }
    Bench fixed = bench_of(device);
    fixed.state.phase[0].scale = 1024;
    trouble_make(&fixed, GRAD_BAD);
    decide(&fixed); /* a fixed scale stays: an overflow is a gradient that is not finite, like any other */
    assert_true(fixed.state.phase[0].scale == 1024 && !fixed.report.overflow && fixed.state.halted);
}

/* The inputs of the optimizer. */
void check_scalars(Device *device)
{
    Bench b = bench_of(device);
    b.rules.clip_norm = 0.5;
    b.rules.ema_decay = 0.9;
    b.rules.bn_decay = 0.75;
    b.state = (GateState){.phase[0] = {.scale = 4, .updates = 9}};
    b.square = 64; /* the norm is 8 / 4 */
    decide(&b);
    assert_true(b.report.grad_norm == 2 && b.scalars.grad_scale == 0.0625f); /* 0.5 / 2, and 1 / 4 */
    assert_true(b.scalars.lr == 0.125f && b.scalars.step == 10 && b.scalars.bn_decay == 0.75f);
    assert_true(b.scalars.ema_decay == (float)(10.0 / 19.0)); /* not warm yet */
    b.state.phase[0].updates = 1000;
    b.square = 1;
    decide(&b);
    assert_true(b.scalars.grad_scale == 0.25f && b.scalars.ema_decay == 0.9f);
    b.input.samples = 24; /* three towers of 8: nothing changes */
    decide(&b);
    assert_true(b.scalars.grad_scale == 0.25f && b.report.grad_norm == 0.25);
    b.extras[GATE_EXTRA_WEIGHT] = 40, b.extras[GATE_EXTRA_WEIGHT + 1] = 8; /* weights of 64 in all */
    decide(&b);
    assert_true(b.scalars.grad_scale == 0.09375f && b.report.grad_norm == 0.09375);
    b.state.phase[0].updates = 1001;
    b.input.closed = 1;
    decide(&b);
    assert_true(!b.report.commit && b.scalars.commit == 0 && b.state.phase[0].updates == 1001 && b.state.skips == 0);

    /* another phase has its own count and scale, but the refusals and the halt are those of the run */
    b = bench_of(device);
    b.state.phase[1] = (GatePhase){.scale = 4, .updates = 9};
    b.phase = 1;
    b.square = 64;
    decide(&b);
    assert_true(b.report.grad_norm == 2 && b.scalars.grad_scale == 0.25f && b.scalars.step == 10);
    assert_true(b.state.phase[1].updates == 10 && b.state.phase[0].updates == 0);
    trouble_make(&b, GRAD_BAD);
    decide(&b);
    assert_true(b.state.halted && b.state.skips == 1);
    b = (Bench){.device = device, .rules = b.rules, .state = b.state, .input = b.input, .square = 4};
    decide(&b); /* phase 0 */
    assert_true(!b.report.commit && b.state.phase[0].updates == 0);
}
