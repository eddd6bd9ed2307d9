/* The checks of check_verdict.h. */
#include "tests/support/check_verdict.h"
#include "tests/support/device_memory.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TOWERS = 3, HEADER = 16, LANES = HEADER + TOWERS * TALLY_LANES };

/* ---- one tower's lanes */

typedef struct TallyBench {
    Device *device;
    float *loss, *hits, *lanes;
    double *squares, *square;
    TallySum *sum;
    VerdictState *state;
    VerdictOrder *order;
} TallyBench;

static TallyBench tally_open(Device *device, float scale)
{
    const double squares[3] = {9, 4, 3};
    VerdictState state = {.scale = scale};
    float zeros[LANES] = {0};
    double nothing = -1;
    return (TallyBench){.device = device,
                        .loss = to_device(device, zeros, sizeof(float)),
                        .hits = to_device(device, zeros, 2 * sizeof(float)),
                        .lanes = to_device(device, zeros, sizeof zeros),
                        .squares = to_device(device, squares, sizeof squares),
                        .square = to_device(device, &nothing, sizeof nothing),
                        .sum = to_device(device, &(TallySum){0}, sizeof(TallySum)),
                        .state = to_device(device, &state, sizeof state),
                        .order = to_device(device, &(VerdictOrder){0}, sizeof(VerdictOrder))};
}

static void tally_close(TallyBench *b)
{
    void *const all[] = {b->loss, b->hits, b->lanes, b->squares, b->square, b->sum, b->state, b->order};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) b->device->backend->release(b->device, all[i]);
}

static void tally_batch(TallyBench *b, float loss, float top1, int32_t count, bool last, bool stop)
{
    float hits[2] = {top1, top1 + 1};
    VerdictOrder order = {.stop = stop ? 1 : 0};
    TallyCall t = {.loss = count ? b->loss : NULL,
                   .head = {b->loss, b->hits},
                   .hits = count ? b->hits : NULL,
                   .count = count,
                   .last = last,
                   .squares = b->squares,
                   .square_count = 3,
                   .order = b->order,
                   .stop_lane = 2,
                   .header = HEADER,
                   .number = 1,
                   .sum = b->sum,
                   .lanes = b->lanes,
                   .square = b->square,
                   .state = b->state};
    must(b->device->backend->upload(b->device, b->loss, &loss, sizeof loss));
    must(b->device->backend->upload(b->device, b->hits, hits, sizeof hits));
    must(b->device->backend->upload(b->device, b->order, &order, sizeof order));
    must(b->device->backend->tally(b->device, &t));
}

static void lanes_read(TallyBench *b, float *lanes, double *square)
{
    to_host(b->device, lanes, b->lanes, LANES * sizeof *lanes);
    to_host(b->device, square, b->square, sizeof *square);
    for (int i = 0; i < LANES; i++) {
        bool own = i >= HEADER + TALLY_LANES && i < HEADER + 2 * TALLY_LANES;
        if (!own && i != 2) assert_true(lanes[i] == 0); /* other towers' */
    }
}

void check_tally(Device *device)
{
    TallyBench b = tally_open(device, 2);
    float lanes[LANES], *own = lanes + HEADER + TALLY_LANES;
    double square;
    const float small = 0x1p-38f; /* the sum needs 51 bits */
    tally_batch(&b, 4096, 10, 32, false, false);
    tally_batch(&b, 0, 0, 0, false, false); /* a batch without samples */
    tally_batch(&b, small, 5, 16, true, true);
    lanes_read(&b, lanes, &square);
    assert_true(lanes_joined(own + TALLY_LOSS) == 4096 + (double)small);
    assert_true(own[TALLY_COUNT] == 48 && own[TALLY_TOP1] == 15 && own[TALLY_TOP5] == 17);
    assert_true(square == 16 && lanes_joined(own + TALLY_NORM) == 2); /* sqrt(16) / scale */
    assert_true(own[TALLY_GRAD_BAD] == 0 && lanes[2] == 1);
    assert_true(lanes_joined(own + TALLY_HEAD) == 4096 + (double)small && own[TALLY_HEAD + 3] == 15);
    assert_true(own[TALLY_HEAD + 6] == 0); /* there are two heads */

    const double bad[3] = {1, INFINITY, 1};
    must(device->backend->upload(device, b.squares, bad, sizeof bad));
    tally_batch(&b, INFINITY, 0, 8, true, false); /* a step of its own: nothing is left of the one before */
    lanes_read(&b, lanes, &square);
    assert_true(isinf(own[TALLY_LOSS]) && own[TALLY_LOSS + 1] == 0 && own[TALLY_COUNT] == 8);
    assert_true(own[TALLY_GRAD_BAD] == 1 && lanes[2] == 0 && isinf(square));
    tally_close(&b);
}

/* ---- the verdict */

typedef struct Bench {
    Device *device;
    VerdictRules rules;
    VerdictState state;
    VerdictOrder order;
    OptimizerScalars scalars;
    VerdictReport report;
    float lanes[TOWERS * TALLY_LANES];
    double square;
} Bench;

static Bench bench_of(Device *device)
{
    Bench b = {.device = device,
               .rules = {.gate = GATE_ALL, .skips_max = 2},
               .state = {.scale = 1},
               .order = {.lr = 0.125f},
               .square = 4};
    for (int t = 0; t < TOWERS; t++) {
        b.lanes[t * TALLY_LANES + TALLY_LOSS] = 1.5f;
        b.lanes[t * TALLY_LANES + TALLY_COUNT] = 8;
    }
    return b;
}

static void decide(Bench *b)
{
    Device *device = b->device;
    void *lanes = to_device(device, b->lanes, sizeof b->lanes), *square = to_device(device, &b->square, sizeof(double)),
         *state = to_device(device, &b->state, sizeof b->state), *order = to_device(device, &b->order, sizeof b->order),
         *scalars = to_device(device, &b->scalars, sizeof b->scalars),
         *report = to_device(device, &b->report, sizeof b->report);
    Verdict v = {.rules = b->rules,
                 .order = order,
                 .towers = TOWERS,
                 .lanes = lanes,
                 .square = square,
                 .state = state,
                 .scalars = scalars,
                 .report = report};
    must(device->backend->decide(device, &v));
    to_host(device, &b->state, state, sizeof b->state);
    to_host(device, &b->scalars, scalars, sizeof b->scalars);
    to_host(device, &b->report, report, sizeof b->report);
    void *const all[] = {lanes, square, state, order, scalars, report};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) device->backend->release(device, all[i]);
}

typedef enum Trouble { FINE = 0, LOSS_NAN, LAST_NAN, LAST_INF, EMPTY_NAN, GRAD_BAD, SUM_BAD, TROUBLES } Trouble;

static void trouble_make(Bench *b, Trouble trouble)
{
    float *second = b->lanes + TALLY_LANES, *last = b->lanes + (TOWERS - 1) * TALLY_LANES;
    if (trouble == LOSS_NAN) second[TALLY_LOSS] = NAN;
    if (trouble == LAST_NAN) last[TALLY_LOSS] = NAN;
    if (trouble == LAST_INF) last[TALLY_LOSS] = INFINITY;
    if (trouble == EMPTY_NAN) second[TALLY_LOSS] = NAN, second[TALLY_COUNT] = 0;
    if (trouble == GRAD_BAD) second[TALLY_GRAD_BAD] = 1;
    if (trouble == SUM_BAD) b->square = INFINITY;
}

void check_gates(Device *device)
{
    /* Does the step commit? [gate][trouble] */
    static const char *const commits[] = {
        [GATE_NEVER] = "yyyyyyy", [GATE_LAST_NAN] = "yyyyyyy", [GATE_LOSS] = "ynnnyyy", [GATE_ALL] = "ynnnynn"};
    /* Does it end the run? */
    static const char *const halts[] = {
        [GATE_NEVER] = "nnnnnnn", [GATE_LAST_NAN] = "nnynnnn", [GATE_LOSS] = "nyyynnn", [GATE_ALL] = "nyyynyy"};
    for (int gate = GATE_NEVER; gate <= GATE_ALL; gate++)
        for (int trouble = FINE; trouble < TROUBLES; trouble++) {
            Bench b = bench_of(device);
            b.rules.gate = (VerdictGate)gate;
            trouble_make(&b, (Trouble)trouble);
            decide(&b);
            bool commit = commits[gate][trouble] == 'y', halt = halts[gate][trouble] == 'y';
            if (b.report.commit != commit || b.scalars.commit != (commit ? 1.0f : 0.0f) || b.state.halted != halt ||
                b.state.updates != commit || b.report.overflow)
                fail_msg("gate %d, trouble %d: commit %d, halted %d, %d updates", gate, trouble, b.report.commit,
                         b.state.halted, (int)b.state.updates);
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
    assert_true(good.report.halted && !good.report.commit && good.scalars.commit == 0 && good.state.updates == 0);

    b = bench_of(device);
    b.rules.skip = true;
    for (int row = 1; row <= 3; row++) {
        trouble_make(&b, LOSS_NAN);
        decide(&b);
        assert_int_equal(b.state.skips, row);
        assert_int_equal(b.state.halted, row > b.rules.skips_max);
    }
    b.state = (VerdictState){.scale = 1, .skips = 2};
    b.lanes[TALLY_LANES + TALLY_LOSS] = 1;
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
        VerdictState state = {.scale = row->start};
        for (int i = 0; row->steps[i]; i++) {
            Bench b = bench_of(device);
            b.rules = (VerdictRules){
                .gate = GATE_ALL, .skip = true, .skips_max = 9, .dynamic = true, .grow_after = 3, .scale_max = 64};
            b.state = state;
            char step = row->steps[i];
            if (step != 'G') trouble_make(&b, step == 'O' ? GRAD_BAD : step == 'S' ? SUM_BAD : LOSS_NAN);
            decide(&b);
            bool overflow = (step == 'O' || step == 'S') && state.scale > 1;
            if (b.state.scale != row->after[i] || b.report.scale != state.scale ||
                b.report.next_scale != b.state.scale || b.report.overflow != overflow ||
                b.report.commit != (step == 'G'))
                fail_msg("row %zu (%s), step %d: scale %g, overflow %d, commit %d", r, row->steps, i,
                         (double)b.state.scale, b.report.overflow, b.report.commit);
            state = b.state;
        }
        assert_int_equal(state.updates, row->updates);
        assert_int_equal(state.skips, row->skips);
    }
    Bench fixed = bench_of(device);
    fixed.state.scale = 1024;
    trouble_make(&fixed, GRAD_BAD);
    decide(&fixed); /* a fixed scale stays: an overflow is a gradient that is not finite, like any other */
    assert_true(fixed.state.scale == 1024 && !fixed.report.overflow && fixed.state.halted);
}

/* What the optimizer is told. */
void check_scalars(Device *device)
{
    Bench b = bench_of(device);
    b.rules.clip_norm = 0.5;
    b.rules.ema_decay = 0.9;
    b.rules.bn_decay = 0.75;
    b.state = (VerdictState){.scale = 4, .updates = 9};
    b.square = 64; /* the norm is 8 / 4 */
    decide(&b);
    assert_true(b.report.grad_norm == 2 && b.scalars.grad_scale == 0.0625f); /* 0.5 / 2, and 1 / 4 */
    assert_true(b.scalars.lr == 0.125f && b.scalars.step == 10 && b.scalars.bn_decay == 0.75f);
    assert_true(b.scalars.ema_decay == (float)(10.0 / 19.0)); /* not warm yet */
    b.state.updates = 1000;
    b.square = 1;
    decide(&b);
    assert_true(b.scalars.grad_scale == 0.25f && b.scalars.ema_decay == 0.9f);
    b.order.hold = 1;
    decide(&b);
    assert_true(!b.report.commit && b.scalars.commit == 0 && b.state.updates == 1001 && b.state.skips == 0);
}
