/* See plan_run.h. */
#include "tests/support/plan_run.h"
#include "tests/support/unit.h"

void plan_run_open(PlanRun *run)
{
    *run = (PlanRun){.fake = fake_create(ALL_OPERANDS, ALL_OPERANDS, ALL_OPERANDS)};
    assert_non_null(run->fake);
    fake_open(run->fake, &run->device);
    GraphOptions options = {.training = true, .compute = DTYPE_F32};
    assert_int_equal(graph_create(&options, &run->graph), OK);
}

static void free_plan(PlanRun *run)
{
    plan_destroy(run->plan);
    run->plan = NULL;
    for (int a = 0; a < ARENA_COUNT; a++) {
        free(run->arena[a]);
        run->arena[a] = NULL;
    }
}

static void free_expected(PlanRun *run)
{
    for (int id = 1; run->expected && id <= graph_value_count(run->graph); id++) free(run->expected[id]);
    free(run->expected);
    run->expected = NULL;
}

void plan_run_close(PlanRun *run)
{
    free_plan(run);
    free_expected(run);
    layout_destroy(run->layout);
    graph_destroy(run->graph);
    assert_int_equal(run->fake->states, 0);
    fake_destroy(run->fake);
}

void plan_run_again(PlanRun *run, bool no_alias)
{
    free_plan(run);
    PlanOptions options = {.no_alias = no_alias};
    Status st = plan_create(run->graph, run->layout, &run->device, &options, &run->plan);
    if (st != OK) fail_msg("%s", status_message());
    for (int a = 0; a < ARENA_COUNT; a++) {
        run->arena[a] = malloc(plan_bytes(run->plan, (Arena)a) + 1);
        assert_non_null(run->arena[a]);
        memset(run->arena[a], 0xA5, plan_bytes(run->plan, (Arena)a));
        plan_bind(run->plan, (Arena)a, run->arena[a]);
    }
}

void plan_run_create(PlanRun *run, bool no_alias)
{
    if (graph_finish(run->graph) != OK) fail_msg("%s", status_message());
    assert_int_equal(layout_create(run->graph, &run->layout), OK);
    plan_run_again(run, no_alias);
}

/* ---- what every value should hold */

static uint32_t pattern(int32_t id, int64_t element)
{
    uint64_t x = ((uint64_t)id << 32 | (uint64_t)element) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(x >> 32 ^ x >> 13);
}

static void copy_channels(uint8_t *to, Shape y, int32_t to_first, const uint8_t *from, Shape x, int32_t from_first,
                          int32_t channels, size_t bytes)
{
    for (int64_t p = 0; p < shape_pixels(y); p++)
        memcpy(to + (size_t)(p * y.c + to_first) * bytes, from + (size_t)(p * x.c + from_first) * bytes,
               (size_t)channels * bytes);
}

/* CONCAT, SLICE and RESHAPE move what is there. */
static bool expect_moved(PlanRun *run, const Op *op, uint8_t *to)
{
    const ValueInfo *y = graph_value(run->graph, op->out[0]);
    size_t bytes = dtype_bytes(y->dtype);
    const uint8_t *from = run->expected[op->in[0].id];
    Shape x = graph_shape(run->graph, op->in[0]);
    if (op->kind == OP_RESHAPE) memcpy(to, from, (size_t)shape_count(x) * bytes);
    if (op->kind == OP_SLICE) copy_channels(to, y->shape, 0, from, x, op->attr.slice.first, y->shape.c, bytes);
    for (int k = 0, first = 0; op->kind == OP_CONCAT && k < op->in_count; k++) {
        x = graph_shape(run->graph, op->in[k]);
        copy_channels(to, y->shape, first, run->expected[op->in[k].id], x, 0, x.c, bytes);
        first += x.c;
    }
    return op->kind == OP_RESHAPE || op->kind == OP_SLICE || op->kind == OP_CONCAT;
}

static void fill_expected(PlanRun *run, int32_t id)
{
    const ValueInfo *info = graph_value(run->graph, (Value){id});
    size_t bytes = dtype_bytes(info->dtype);
    uint8_t *to = malloc((size_t)shape_count(info->shape) * bytes);
    assert_non_null(to);
    run->expected[id] = to;
    if (info->op >= 0 && expect_moved(run, graph_op_at(run->graph, info->op), to)) return;
    for (int64_t i = 0; i < shape_count(info->shape); i++) {
        uint32_t word = pattern(id, i);
        memcpy(to + (size_t)i * bytes, &word, bytes);
    }
}

/* The members of a pack are the pack. */
static void expect_members(PlanRun *run, int32_t pack)
{
    const ValueInfo *info = graph_value(run->graph, (Value){pack});
    size_t at = 0;
    for (int k = 0; k < info->member_count; k++) {
        size_t bytes = (size_t)shape_count(graph_shape(run->graph, info->members[k])) * sizeof(float);
        memcpy(run->expected[info->members[k].id], run->expected[pack] + at, bytes);
        at += bytes;
    }
}

static void make_expected(PlanRun *run)
{
    free_expected(run);
    int values = graph_value_count(run->graph);
    run->expected = calloc((size_t)values + 1, sizeof *run->expected);
    assert_non_null(run->expected);
    for (int32_t id = 1; id <= values; id++)
        if (graph_value(run->graph, (Value){id})->op < 0) fill_expected(run, id);
    for (int32_t id = 1; id <= values; id++) expect_members(run, id);
    for (int i = 0; i < graph_op_count(run->graph); i++)
        for (int k = 0; k < OP_MAX_OUT; k++)
            if (graph_op_at(run->graph, i)->out[k].id) fill_expected(run, graph_op_at(run->graph, i)->out[k].id);
}

/* ---- memory against expectation */

static uint8_t *pixel(const Tensor *t, int64_t p)
{
    return (uint8_t *)t->data + (size_t)(p * t->pitch) * dtype_bytes(t->dtype);
}

static bool holds(const PlanRun *run, const Tensor *t, int32_t id)
{
    size_t row = (size_t)t->shape.c * dtype_bytes(t->dtype);
    for (int64_t p = 0; p < shape_pixels(t->shape); p++)
        if (memcmp(pixel(t, p), run->expected[id] + (size_t)p * row, row)) return false;
    return true;
}

static void write_expected(const PlanRun *run, const Tensor *t, int32_t id)
{
    size_t row = (size_t)t->shape.c * dtype_bytes(t->dtype);
    for (int64_t p = 0; p < shape_pixels(t->shape); p++) memcpy(pixel(t, p), run->expected[id] + (size_t)p * row, row);
}

static void complain(PlanRun *run, const OpCall *call, const char *what, int operand)
{
    if (run->errors++ == 0)
        snprintf(run->why, sizeof run->why, "op %d, %s (%s): %s %d", (int)(call - plan_call(run->plan, 0)), call->name,
                 op_name(call->kind), what, operand);
}

/* A concat skips the parts that lie in its output already. */
static bool is_in_place(const OpCall *call, int k)
{
    const char *part = call->in[k].data, *whole = call->out[0].data;
    return call->kind == OP_CONCAT && part >= whole && part < whole + call->out[0].shape.c * (int64_t)sizeof(float) &&
           call->in[k].pitch == call->out[0].pitch;
}

static void check_strides(PlanRun *run, const OpCall *call)
{
    const OpStorage *storage = &run->fake->storage[call->kind];
    for (int k = 0; k < call->in_count; k++)
        if (call->in[k].data && !tensor_is_packed(&call->in[k]) && !is_in_place(call, k) &&
            !(storage->strided_in >> k & 1))
            complain(run, call, "the kernel takes no slice as operand", k);
    for (int k = 0; k < call->out_count; k++)
        if (call->out[k].data && !tensor_is_packed(&call->out[k]) && !(storage->strided_out >> k & 1))
            complain(run, call, "the kernel takes no slice as output", k);
}

static bool is_taken(const PlanRun *run, const OpCall *call, int k)
{
    return run->fake->storage[call->kind].in_place >> k & 1 && call->in[k].data == call->out[0].data &&
           call->in[k].pitch == call->out[0].pitch;
}

static void follow_launch(void *context, OpCall *call)
{
    PlanRun *run = context;
    const Op *op = graph_op_at(run->graph, (int)(call - plan_call(run->plan, 0)));
    int taken = 0;
    check_strides(run, call);
    for (int k = 0; k < op->in_count; k++)
        if (op->in[k].id && !holds(run, &call->in[k], op->in[k].id))
            complain(run, call, "wrong contents in operand", k);
    for (int k = 0; k < call->out_count; k++)
        if (call->out[k].data) write_expected(run, &call->out[k], op->out[k].id);
    if (call->workspace_bytes) memset(call->workspace, 0xEE, call->workspace_bytes);
    for (int k = 0; k < call->out_count; k++)
        if (call->out[k].data && !holds(run, &call->out[k], op->out[k].id))
            complain(run, call, "overlapping output", k);
    for (int k = 0; k < op->in_count; k++) {
        if (!op->in[k].id || holds(run, &call->in[k], op->in[k].id)) continue;
        if (!is_taken(run, call, k) || taken++) complain(run, call, "an output overwrites operand", k);
    }
}

static void write_leaves(PlanRun *run)
{
    for (int32_t id = 1; id <= graph_value_count(run->graph); id++) {
        if (graph_value(run->graph, (Value){id})->op >= 0) continue;
        Tensor t = plan_tensor(run->plan, (Value){id});
        if (t.data) write_expected(run, &t, id);
    }
}

static void check_kept(PlanRun *run)
{
    for (int32_t id = 1; id <= graph_value_count(run->graph); id++) {
        const ValueInfo *info = graph_value(run->graph, (Value){id});
        Tensor t = plan_tensor(run->plan, (Value){id});
        if (info->role != ROLE_TEMP && !holds(run, &t, id)) fail_msg("'%s' was not kept", info->name);
    }
}

void plan_run_check(PlanRun *run)
{
    make_expected(run);
    write_leaves(run);
    run->fake->on_launch = follow_launch;
    run->fake->context = run;
    run->errors = 0;
    Status st = plan_run(run->plan, 0, plan_op_count(run->plan));
    run->fake->on_launch = NULL;
    if (st != OK) fail_msg("%s", status_message());
    if (run->errors) fail_msg("%s", run->why);
    check_kept(run);
}
