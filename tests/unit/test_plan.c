/* Plan: what shares storage, what is kept, the order of calls, and no allocation while running. The random graphs at
 * the end follow every element through memory (support/plan_run.h). */

#include "tests/support/plan_run.h"
#include "tests/support/unit.h"

/* Counts allocations of the whole program. Sanitizers bring their own allocator: there the test is skipped. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define COUNTS_ALLOCATIONS 0
#endif
#endif
#ifndef COUNTS_ALLOCATIONS
#define COUNTS_ALLOCATIONS 1
#endif

#if COUNTS_ALLOCATIONS
static long allocations;
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);

void *malloc(size_t bytes)
{
    allocations++;
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    allocations++;
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    allocations++;
    return __libc_realloc(memory, bytes);
}
#endif

static const Init zero = {INIT_ZERO, 0};
static const OpAttr point = {.conv.window = {1, 1, 1, 1, 0, 0, false}};
static const Shape scalar = {1, 1, 1, 1};

static Value unary(PlanRun *r, OpKind kind, const char *name, Value x)
{
    return graph_op(r->graph, kind, name, &x, 1, NULL, NULL);
}

static Value conv(PlanRun *r, const char *name, Value x, int out)
{
    char weight[64];
    snprintf(weight, sizeof weight, "%s.weight", name);
    Value w = graph_param(r->graph, weight, (Shape){out, graph_shape(r->graph, x).c, 1, 1}, zero, true);
    return graph_op(r->graph, OP_CONV, name, (Value[]){x, w}, 2, &point, NULL);
}

static Value concat(PlanRun *r, const char *name, const Value *parts, int count)
{
    return graph_op(r->graph, OP_CONCAT, name, parts, count, NULL, NULL);
}

static Value slice(PlanRun *r, const char *name, Value x, int first, int channels)
{
    Shape shape = graph_shape(r->graph, x);
    shape.c = channels;
    OpAttr attr = {.slice.first = first};
    return graph_op(r->graph, OP_SLICE, name, &x, 1, &attr, &shape);
}

static Value reshape(PlanRun *r, const char *name, Value x, Shape shape)
{
    return graph_op(r->graph, OP_RESHAPE, name, &x, 1, NULL, &shape);
}

static Value input(PlanRun *r, int channels)
{
    return graph_input(r->graph, "x", (Shape){2, channels, 3, 3}, DTYPE_F32);
}

static int64_t distance(const PlanRun *r, Value from, Value to)
{
    return (float *)plan_tensor(r->plan, to).data - (float *)plan_tensor(r->plan, from).data;
}

static PlanReport report_of(const PlanRun *r)
{
    PlanReport report;
    plan_report(r->plan, &report);
    return report;
}

TEST(branches_write_into_their_concat)
{
    PlanRun r;
    plan_run_open(&r);
    Value x = input(&r, 4), a = conv(&r, "a", x, 8), b = conv(&r, "b", x, 4);
    Value inner = concat(&r, "inner", (Value[]){a, b}, 2), c = conv(&r, "c", x, 4);
    Value outer = concat(&r, "outer", (Value[]){c, inner}, 2);
    graph_result(r.graph, unary(&r, OP_RELU, "relu", outer), "y");
    plan_run_create(&r, false);
    plan_run_check(&r);
    assert_int_equal(plan_tensor(r.plan, b).pitch, 16);
    assert_int_equal(distance(&r, outer, a), 4);
    assert_int_equal(distance(&r, outer, b), 12);
    assert_int_equal(distance(&r, outer, c), 0);
    assert_int_equal(fake_count(r.fake, FAKE_LAUNCH, OP_CONCAT), 0);
    assert_int_equal(fake_count(r.fake, FAKE_PREPARE, OP_CONCAT), 0);
    assert_int_equal(report_of(&r).copied_concats, 0);
    assert_int_equal(report_of(&r).shared_values, 4);
    plan_run_close(&r);
}

/* Operand 0 is in two concats, operand 1 twice in one, operand 2 is an input of the graph. */
TEST(a_value_lies_in_one_concat_only)
{
    PlanRun r;
    plan_run_open(&r);
    Value x = input(&r, 4), a = conv(&r, "a", x, 4), b = conv(&r, "b", x, 4);
    Value first = concat(&r, "first", (Value[]){a, b, b, x}, 4), second = concat(&r, "second", (Value[]){b, a}, 2);
    graph_result(r.graph, first, "y");
    graph_result(r.graph, second, "z");
    plan_run_create(&r, false);
    plan_run_check(&r);
    assert_int_equal(fake_count(r.fake, FAKE_LAUNCH, OP_CONCAT), 2);
    assert_int_equal(report_of(&r).copied_concats, 4); /* b again, x, and both of the second */
    plan_run_close(&r);
}

/* A kernel that cannot write, or one that cannot read, a slice; channels that do not start at 16 bytes. */
TEST(what_cannot_be_strided_is_copied)
{
    for (int row = 0; row < 3; row++) {
        PlanRun r;
        plan_run_open(&r);
        if (row == 0) r.fake->storage[OP_CONV].strided_out = 0;
        if (row == 1) r.fake->storage[OP_TANH].strided_in = 0;
        Value x = input(&r, 4), a = conv(&r, "a", x, row == 2 ? 6 : 8), b = conv(&r, "b", x, 4);
        graph_result(r.graph, unary(&r, OP_TANH, "tanh", b), "t");
        graph_result(r.graph, concat(&r, "concat", (Value[]){a, b}, 2), "y");
        plan_run_create(&r, false);
        plan_run_check(&r);
        assert_int_equal(report_of(&r).copied_concats, row == 1 ? 1 : 2);
        assert_int_equal(fake_count(r.fake, FAKE_LAUNCH, OP_CONCAT), 1);
        plan_run_close(&r);
    }
}

/* The concat kernel does not read what is in place already, so what it can read does not matter. */
TEST(placing_asks_nothing_of_the_concat_kernel)
{
    PlanRun r;
    plan_run_open(&r);
    r.fake->storage[OP_CONCAT].strided_in = r.fake->storage[OP_CONCAT].strided_out = 0;
    Value x = input(&r, 4), inner = concat(&r, "inner", (Value[]){conv(&r, "a", x, 8), conv(&r, "b", x, 4)}, 2);
    graph_result(r.graph, concat(&r, "outer", (Value[]){inner, conv(&r, "c", x, 4)}, 2), "y");
    plan_run_create(&r, false);
    plan_run_check(&r);
    assert_int_equal(report_of(&r).copied_concats, 0);
    plan_run_close(&r);
}

/* In place inside the wider y it could not move into z; in storage of its own it can. */
TEST(a_concat_matters_more_than_in_place)
{
    PlanRun r;
    plan_run_open(&r);
    Value x = input(&r, 4), y = conv(&r, "y", x, 8), a = unary(&r, OP_RELU, "a", slice(&r, "s", y, 4, 4));
    Value z = concat(&r, "z", (Value[]){conv(&r, "b", x, 4), a}, 2);
    graph_result(r.graph, unary(&r, OP_TANH, "t", z), "end");
    plan_run_create(&r, false);
    plan_run_check(&r);
    assert_int_equal(report_of(&r).copied_concats, 0);
    assert_int_equal(distance(&r, z, a), 4);
    plan_run_close(&r);
}

TEST(slices_and_reshapes_are_views)
{
    PlanRun r;
    plan_run_open(&r);
    Value x = input(&r, 4), y = conv(&r, "y", x, 16), a = slice(&r, "a", y, 4, 8), b = slice(&r, "b", a, 4, 4);
    Value z = conv(&r, "z", x, 4), flat = reshape(&r, "flat", z, (Shape){2, 36, 1, 1});
    Value part = reshape(&r, "part", b, (Shape){2, 36, 1, 1}); /* of something strided: a copy */
    graph_result(r.graph, conv(&r, "va", a, 4), "va");
    graph_result(r.graph, conv(&r, "vb", b, 4), "vb");
    graph_result(r.graph, unary(&r, OP_TANH, "vf", flat), "vf");
    graph_result(r.graph, unary(&r, OP_TANH, "vp", part), "vp");
    plan_run_create(&r, false);
    plan_run_check(&r);
    assert_int_equal(distance(&r, y, a), 4);
    assert_int_equal(distance(&r, y, b), 8);
    assert_int_equal(distance(&r, z, flat), 0);
    assert_int_equal(fake_count(r.fake, FAKE_LAUNCH, OP_SLICE), 0);
    assert_int_equal(fake_count(r.fake, FAKE_LAUNCH, OP_RESHAPE), 1);
    plan_run_close(&r);
}

/* A slice view keeps the whole alive, and nothing may be done in place on it while the whole is read. */
TEST(in_place_waits_for_every_reader)
{
    PlanRun r;
    plan_run_open(&r);
    Value x = input(&r, 4), y = conv(&r, "y", x, 8), a = slice(&r, "a", y, 4, 4);
    Value early = unary(&r, OP_RELU, "early", a);
    Value last = unary(&r, OP_RELU, "last", y);
    Value late = unary(&r, OP_TANH, "late", last);
    graph_result(r.graph, conv(&r, "c", early, 4), "c");
    graph_result(r.graph, conv(&r, "d", late, 4), "d");
    plan_run_create(&r, false);
    plan_run_check(&r);
    assert_true(plan_tensor(r.plan, early).data != plan_tensor(r.plan, a).data);
    assert_ptr_equal(plan_tensor(r.plan, last).data, plan_tensor(r.plan, y).data);
    assert_ptr_equal(plan_tensor(r.plan, late).data, plan_tensor(r.plan, y).data);
    plan_run_close(&r);
}

/* Inputs, results and an operand that is there twice keep their storage. */
TEST(in_place_spares_what_is_kept)
{
    PlanRun r;
    plan_run_open(&r);
    Value x = input(&r, 4), a = unary(&r, OP_RELU, "a", x), b = unary(&r, OP_TANH, "b", a);
    Value c = graph_op(r.graph, OP_MUL, "c", (Value[]){b, b}, 2, NULL, NULL), d = unary(&r, OP_TANH, "d", c);
    graph_result(r.graph, a, "kept");
    graph_result(r.graph, d, "end");
    plan_run_create(&r, false);
    plan_run_check(&r);
    assert_true(plan_tensor(r.plan, a).data != plan_tensor(r.plan, x).data);
    assert_true(plan_tensor(r.plan, b).data != plan_tensor(r.plan, a).data);
    assert_true(plan_tensor(r.plan, c).data != plan_tensor(r.plan, b).data);
    assert_true(plan_tensor(r.plan, d).data != plan_tensor(r.plan, c).data);
    assert_int_equal(report_of(&r).shared_values, 0);
    plan_run_close(&r);
}

TEST(without_aliases_everything_has_its_place)
{
    PlanRun r;
    plan_run_open(&r);
    Value x = input(&r, 4), a = conv(&r, "a", x, 8), b = unary(&r, OP_RELU, "b", a);
    Value c = concat(&r, "c", (Value[]){b, slice(&r, "s", b, 4, 4)}, 2);
    graph_result(r.graph, unary(&r, OP_TANH, "d", c), "end");
    plan_run_create(&r, true);
    plan_run_check(&r);
    assert_int_equal(report_of(&r).shared_values, 0);
    assert_int_equal(report_of(&r).copied_concats, 3);
    assert_true(report_of(&r).arena_bytes[ARENA_SCRATCH] >= (size_t)report_of(&r).all_elements * sizeof(float));
    plan_run_close(&r);
}

TEST(numbers_of_the_report)
{
    PlanRun r;
    plan_run_open(&r);
    r.fake->workspace_bytes = 100;
    for (int kind = 0; kind < OP_COUNT; kind++) r.fake->storage[kind].in_place = 0;
    Value x = input(&r, 4); /* 18 pixels */
    Value a = conv(&r, "a", x, 16), b = conv(&r, "b", a, 4), c = conv(&r, "c", b, 8);
    graph_result(r.graph, conv(&r, "d", c, 4), "end");
    plan_run_create(&r, false);
    plan_run_check(&r);
    PlanReport report = report_of(&r);
    assert_int_equal(report.all_elements, 18 * (16 + 4 + 8));
    assert_int_equal(report.peak_elements, 18 * (16 + 4));
    assert_int_equal(report.workspace_bytes, 128);
    /* a: 1152 bytes, then b: 288 (up to 320) behind it, and c in the place of a */
    assert_int_equal(report.arena_bytes[ARENA_SCRATCH], 1152 + 320 + 128);
    assert_int_equal(report.arena_bytes[ARENA_RESULT], 320);
    assert_int_equal(report.arena_bytes[ARENA_INPUT], 320);
    assert_int_equal(report.arena_bytes[ARENA_GRAD], 0);
    assert_int_equal(report.arena_bytes[ARENA_PARAM], r.layout->param_elements * sizeof(float));
    const OpCall *call = plan_call(r.plan, 0);
    assert_int_equal((char *)call->workspace - (char *)r.arena[ARENA_SCRATCH], 1152 + 320);
    assert_int_equal(plan_op_count(r.plan), 4);
    plan_run_close(&r);
}

TEST(outputs_nobody_reads_are_absent)
{
    PlanRun r;
    plan_run_open(&r);
    OpAttr attr = {.pool.window = {2, 2, 1, 1, 0, 0, false}};
    Value x = input(&r, 4), y = graph_op(r.graph, OP_MAX_POOL, "pool", &x, 1, &attr, NULL);
    graph_result(r.graph, y, "y");
    plan_run_create(&r, false);
    plan_run_check(&r);
    assert_null(plan_call(r.plan, 0)->out[1].data);
    assert_non_null(plan_call(r.plan, 0)->out[0].data);
    plan_run_close(&r);
}

/* ---- gradients */

/* x -> a -> pack of b and c -> two slices -> concat -> sum */
static void build_trained(PlanRun *r)
{
    Value x = input(r, 4), dloss = graph_input(r->graph, "dloss", scalar, DTYPE_F32), a = conv(r, "a", x, 8);
    Value b = graph_param(r->graph, "b.weight", (Shape){4, 8, 1, 1}, zero, true);
    Value c = graph_param(r->graph, "c.weight", (Shape){8, 8, 1, 1}, zero, true);
    Value both = graph_pack(r->graph, (Value[]){b, c}, 2);
    Value y = graph_op(r->graph, OP_CONV, "bc", (Value[]){a, both}, 2, &point, NULL);
    Value u = unary(r, OP_RELU, "u", slice(r, "sb", y, 0, 4)), v = unary(r, OP_RELU, "v", slice(r, "sc", y, 4, 8));
    Value joined = concat(r, "joined", (Value[]){u, v}, 2);
    graph_train(r->graph, graph_op(r->graph, OP_SUM_TO, "sum", &joined, 1, NULL, &scalar), dloss, NULL);
}

TEST(gradients_lie_where_their_parameters_do)
{
    PlanRun r;
    plan_run_open(&r);
    build_trained(&r);
    plan_run_create(&r, false);
    plan_run_check(&r);
    int seen = 0;
    for (int32_t id = 1; id <= graph_value_count(r.graph); id++) {
        const ValueInfo *info = graph_value(r.graph, (Value){id});
        if (info->role != ROLE_GRAD) continue;
        Tensor gradient = plan_tensor(r.plan, (Value){id}), weight = plan_tensor(r.plan, info->of);
        assert_int_equal((char *)gradient.data - (char *)r.arena[ARENA_GRAD],
                         (char *)weight.data - (char *)r.arena[ARENA_PARAM]);
        seen++;
    }
    assert_int_equal(seen, 2);
    assert_int_equal(plan_bytes(r.plan, ARENA_GRAD), plan_bytes(r.plan, ARENA_PARAM));
    plan_run_close(&r);
}

static int gradient_op(const PlanRun *r, const char *param)
{
    for (int32_t id = 1; id <= graph_value_count(r->graph); id++) {
        const ValueInfo *info = graph_value(r->graph, (Value){id});
        if (info->role != ROLE_GRAD) continue;
        const ValueInfo *of = graph_value(r->graph, info->of);
        const char *name = of->member_count ? graph_value(r->graph, of->members[0])->name : of->name;
        if (!strcmp(name, param)) return info->op;
    }
    fail_msg("'%s' has no gradient", param);
    return -1;
}

TEST(a_prefix_is_ready_as_early_as_it_can)
{
    PlanRun r;
    plan_run_open(&r);
    build_trained(&r);
    plan_run_create(&r, false);
    int pack = gradient_op(&r, "b.weight"), a = gradient_op(&r, "a.weight");
    size_t border = layout_param(r.layout, "a.weight")->first;
    assert_true(pack < a && border == 96);
    assert_int_equal(plan_ready_after(r.plan, 0), 0);
    assert_int_equal(plan_ready_after(r.plan, 1), pack + 1);
    assert_int_equal(plan_ready_after(r.plan, border), pack + 1);
    assert_int_equal(plan_ready_after(r.plan, border + 1), a + 1);
    assert_int_equal(plan_ready_after(r.plan, r.layout->param_elements), a + 1);
    plan_run_close(&r);
}

/* One branch of a block: convolution, batch norm with ReLU. */
static Value branch(PlanRun *r, int block, int index, Value x, int channels)
{
    char name[32];
    snprintf(name, sizeof name, "block%d.branch%d", block, index);
    Value y = conv(r, name, x, channels);
    snprintf(name, sizeof name, "block%d.beta%d", block, index);
    Value beta = graph_param(r->graph, name, (Shape){1, channels, 1, 1}, zero, false);
    OpAttr attr = {.norm = {.epsilon = 1e-3f, .relu = true}};
    return graph_op(r->graph, OP_BATCHNORM, name, (Value[]){y, beta}, 2, &attr, NULL);
}

/* Six blocks of three branches, with gradients: scratch is what must be alive at once, and hardly more. */
TEST(scratch_is_close_to_what_is_alive)
{
    PlanRun r;
    plan_run_open(&r);
    Value dloss = graph_input(r.graph, "dloss", scalar, DTYPE_F32);
    Value x = graph_input(r.graph, "x", (Shape){4, 32, 8, 8}, DTYPE_F32);
    for (int block = 0; block < 6; block++) {
        Value a = branch(&r, block, 0, x, 16), b = branch(&r, block, 2, branch(&r, block, 1, x, 12), 24);
        Value c = branch(&r, block, 5, branch(&r, block, 4, branch(&r, block, 3, x, 8), 12), 12);
        x = concat(&r, "concat", (Value[]){a, b, c}, 3);
    }
    graph_train(r.graph, graph_op(r.graph, OP_SUM_TO, "sum", &x, 1, NULL, &scalar), dloss, NULL);
    plan_run_create(&r, false);
    plan_run_check(&r);
    PlanReport report = report_of(&r);
    assert_int_equal(report.copied_concats, 0);
    assert_true(report.peak_elements < report.all_elements * 6 / 10);
    assert_true(report.arena_bytes[ARENA_SCRATCH] < (size_t)report.peak_elements * sizeof(float) * 21 / 20);
    plan_run_close(&r);
}

/* ---- errors */

/* Two losses give a parameter two gradients in one place. */
TEST(gradients_may_not_overlap)
{
    PlanRun r;
    plan_run_open(&r);
    Value y = conv(&r, "a", input(&r, 4), 4), dloss = graph_input(r.graph, "dloss", scalar, DTYPE_F32);
    for (int i = 0; i < 2; i++)
        graph_train(r.graph, graph_op(r.graph, OP_SUM_TO, "sum", &y, 1, NULL, &scalar), dloss, NULL);
    assert_int_equal(graph_finish(r.graph), OK);
    assert_int_equal(layout_create(r.graph, &r.layout), OK);
    Plan *plan = NULL;
    assert_fails(plan_create(r.graph, r.layout, &r.device, NULL, &plan), ERR_UNSUPPORTED, "belong to the same weights");
    plan_run_close(&r);
}

static Status plan_status(PlanRun *r, const Layout *layout)
{
    Plan *plan = NULL;
    Status st = plan_create(r->graph, layout, &r->device, NULL, &plan);
    plan_destroy(plan);
    return st;
}

static void assert_message(const char *part)
{
    if (!strstr(status_message(), part)) fail_msg("'%s' is not in '%s'", part, status_message());
}

TEST(names_and_shapes_must_be_those_of_the_layout)
{
    PlanRun training, other;
    plan_run_open(&training);
    graph_result(training.graph, conv(&training, "a", input(&training, 4), 8), "y");
    plan_run_create(&training, false);
    for (int row = 0; row < 2; row++) {
        plan_run_open(&other);
        graph_result(other.graph, conv(&other, row ? "a" : "b", input(&other, 4), 4), "y");
        assert_int_equal(plan_status(&other, training.layout), row ? ERR_SHAPE : ERR_ARG);
        assert_message(row ? "'a.weight' is 4x4x1x1 here and 8x4x1x1" : "'b.weight' is not in the layout");
        plan_run_close(&other);
    }
    plan_run_close(&training);
}

TEST(a_pack_must_be_one_in_the_layout_too)
{
    PlanRun training, other;
    plan_run_open(&training);
    Value x = input(&training, 4);
    conv(&training, "a", x, 2);
    conv(&training, "b", x, 2);
    plan_run_create(&training, false);
    plan_run_open(&other);
    Value a = graph_param(other.graph, "a.weight", (Shape){2, 4, 1, 1}, zero, true);
    Value b = graph_param(other.graph, "b.weight", (Shape){2, 4, 1, 1}, zero, true);
    Value both = graph_pack(other.graph, (Value[]){a, b}, 2);
    graph_op(other.graph, OP_CONV, "ab", (Value[]){input(&other, 4), both}, 2, &point, NULL);
    assert_int_equal(plan_status(&other, training.layout), ERR_ARG);
    assert_message("are not adjacent in the layout");
    plan_run_close(&other);
    plan_run_close(&training);
}

TEST(a_refusal_names_the_layer)
{
    PlanRun r;
    plan_run_open(&r);
    graph_scope(r.graph, "Mixed_5b");
    graph_result(r.graph, unary(&r, OP_TANH, "t", conv(&r, "a", input(&r, 4), 8)), "y");
    plan_run_create(&r, false);
    r.fake->refused = OP_TANH;
    assert_int_equal(plan_status(&r, r.layout), ERR_UNSUPPORTED);
    assert_message("Mixed_5b.t (tanh): told to refuse");
    r.fake->table[OP_TANH] = NULL;
    assert_int_equal(plan_status(&r, r.layout), ERR_UNSUPPORTED);
    assert_message("no kernel for 'tanh'");
    r.fake->table[OP_TANH] = &r.fake->kernel[OP_TANH];
    plan_run_close(&r);
}

TEST(running_needs_memory)
{
    PlanRun r;
    plan_run_open(&r);
    graph_result(r.graph, unary(&r, OP_TANH, "t", conv(&r, "a", input(&r, 4), 8)), "y");
    plan_run_create(&r, false);
    static const Arena needed[] = {ARENA_PARAM, ARENA_INPUT, ARENA_RESULT, ARENA_SCRATCH};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        plan_bind(r.plan, needed[i], NULL);
        assert_int_equal(plan_run(r.plan, 0, 2), ERR_INTERNAL);
        assert_message("plan_bind");
        plan_bind(r.plan, needed[i], r.arena[needed[i]]);
    }
    plan_bind(r.plan, ARENA_GRAD, NULL); /* nothing lies there */
    assert_int_equal(plan_run(r.plan, 0, 2), OK);
    assert_int_equal(plan_run(r.plan, 0, 3), ERR_INTERNAL);
    assert_int_equal(plan_run(r.plan, -1, 1), ERR_INTERNAL);
    plan_run_close(&r);
}

/* ---- binding and running */

TEST(arenas_can_move)
{
    PlanRun r;
    plan_run_open(&r);
    r.fake->workspace_bytes = 64;
    build_trained(&r);
    plan_run_create(&r, false);
    plan_run_check(&r);
    for (int a = 0; a < ARENA_COUNT; a++) {
        void *old = r.arena[a];
        r.arena[a] = malloc(plan_bytes(r.plan, (Arena)a) + 1);
        assert_non_null(r.arena[a]);
        free(old);
        plan_bind(r.plan, (Arena)a, r.arena[a]);
    }
    plan_run_check(&r);
    plan_run_close(&r);
}

TEST(a_part_of_the_list_can_run)
{
    PlanRun r;
    plan_run_open(&r);
    build_trained(&r);
    plan_run_create(&r, false);
    plan_run_check(&r);
    int all = fake_count(r.fake, FAKE_LAUNCH, OP_NONE), half = plan_op_count(r.plan) / 2;
    assert_int_equal(plan_run(r.plan, 0, half), OK);
    assert_int_equal(plan_run(r.plan, half, half), OK);
    assert_true(fake_count(r.fake, FAKE_LAUNCH, OP_NONE) < 2 * all);
    assert_int_equal(plan_run(r.plan, half, plan_op_count(r.plan)), OK);
    assert_int_equal(fake_count(r.fake, FAKE_LAUNCH, OP_NONE), 2 * all);
    plan_run_close(&r);
}

TEST(running_and_binding_do_not_allocate)
{
#if COUNTS_ALLOCATIONS
    PlanRun r;
    plan_run_open(&r);
    build_trained(&r);
    plan_run_create(&r, false);
    long before = allocations;
    Status st = OK;
    for (int step = 0; step < 3 && st == OK; step++) {
        for (int a = 0; a < ARENA_COUNT; a++) plan_bind(r.plan, (Arena)a, r.arena[a]);
        st = plan_run(r.plan, 0, plan_op_count(r.plan));
    }
    long made = allocations - before;
    assert_int_equal(st, OK);
    assert_int_equal(made, 0);
    assert_true(before > 0);
    plan_run_close(&r);
#else
    skip("a sanitizer has an allocator of its own");
#endif
}

/* ---- random graphs */

typedef struct Random {
    uint64_t state;
    Value pool[256];
    int count, names;
} Random;

static int draw(Random *random, int below)
{
    random->state = random->state * 6364136223846793005u + 1442695040888963407u;
    return (int)((random->state >> 33) % (uint64_t)below);
}

static const char *next_name(Random *random)
{
    static char name[32];
    snprintf(name, sizeof name, "v%d", random->names++);
    return name;
}

static void keep(Random *random, Value v)
{
    if (v.id && random->count < 256) random->pool[random->count++] = v;
}

/* Mostly recent values, now and then any. */
static Value pick(Random *random)
{
    int recent = random->count < 6 || draw(random, 4) == 0 ? random->count : 6;
    return random->pool[random->count - 1 - draw(random, recent)];
}

/* A value of these channels (0: any) with pixels 3x3; Value 0 if a few tries find none. */
static Value pick_image(PlanRun *r, Random *random, int channels)
{
    for (int attempt = 0; attempt < 20; attempt++) {
        Value v = pick(random);
        Shape s = graph_shape(r->graph, v);
        if (s.h == 3 && (!channels || s.c == channels)) return v;
    }
    return (Value){0};
}

static Value random_concat(PlanRun *r, Random *random)
{
    Value parts[5];
    int count = 0, wanted = 2 + draw(random, 4), channels = 0;
    while (count < wanted) {
        Value part = pick_image(r, random, 0);
        if (!part.id || (channels += graph_shape(r->graph, part).c) > 96) break;
        parts[count++] = part;
    }
    return count ? concat(r, next_name(random), parts, count) : (Value){0};
}

static Value random_slice(PlanRun *r, Random *random)
{
    Value x = pick_image(r, random, 0);
    if (!x.id) return x;
    int c = graph_shape(r->graph, x).c, first = draw(random, c), channels = 1 + draw(random, c - first);
    if (c % 4 == 0 && draw(random, 4)) {
        first = first / 4 * 4;
        channels = 4 * (1 + draw(random, (c - first) / 4));
    }
    return slice(r, next_name(random), x, first, channels);
}

static Value random_norm(PlanRun *r, Random *random)
{
    Value x = pick_image(r, random, 0);
    if (!x.id) return x;
    OpAttr attr = {.norm = {.epsilon = 1e-3f}};
    Shape vector = {1, graph_shape(r->graph, x).c, 1, 1};
    Value beta = graph_param(r->graph, next_name(random), vector, zero, false);
    Value y = graph_op(r->graph, OP_BATCHNORM, next_name(random), (Value[]){x, beta}, 2, &attr, NULL);
    if (draw(random, 2))
        graph_batch_statistic(r->graph, graph_output(r->graph, y, 1),
                              graph_running(r->graph, next_name(random), vector, 0), 0, false);
    return y;
}

static Value random_pool(PlanRun *r, Random *random)
{
    Value x = pick_image(r, random, 0);
    OpAttr attr = {.pool.window = {3, 3, 1, 1, 1, 1, false}};
    if (!x.id) return x;
    Value y = graph_op(r->graph, OP_MAX_POOL, next_name(random), &x, 1, &attr, NULL);
    Shape shape = graph_shape(r->graph, x);
    if (draw(random, 2)) {
        Value in[] = {y, graph_output(r->graph, y, 1), pick_image(r, random, shape.c)};
        keep(random, graph_op(r->graph, OP_MAX_POOL_DX, next_name(random), in, 3, &attr, &shape));
    }
    return y;
}

static Value random_sum(PlanRun *r, Random *random)
{
    Value x = pick_image(r, random, 0);
    if (!x.id) return x;
    Value in[] = {x, pick_image(r, random, graph_shape(r->graph, x).c), x};
    if (!in[1].id) in[1] = x;
    if (draw(random, 2)) return graph_op(r->graph, OP_MUL, next_name(random), in, 2, NULL, NULL);
    return graph_op(r->graph, OP_ADD, next_name(random), in, 2 + draw(random, 2), NULL, NULL);
}

static Value random_reshape(PlanRun *r, Random *random)
{
    Value x = pick(random);
    Shape s = graph_shape(r->graph, x);
    Shape flat = {s.n, s.c * 9, 1, 1}, image = {s.n, s.c / 9, 3, 3};
    return reshape(r, next_name(random), x, s.h == 3 ? flat : image);
}

static Value random_op(PlanRun *r, Random *random)
{
    switch (draw(random, 10)) {
    case 0:
    case 1: return random_concat(r, random);
    case 2: return random_slice(r, random);
    case 3: return random_norm(r, random);
    case 4: return random_pool(r, random);
    case 5: return random_sum(r, random);
    case 6: return random_reshape(r, random);
    case 7: return conv(r, next_name(random), pick_image(r, random, 0), 4 * (1 + draw(random, 6)));
    default: return unary(r, draw(random, 2) ? OP_RELU : OP_TANH, next_name(random), pick(random));
    }
}

static void random_masks(FakeBackend *fake, Random *random)
{
    for (int kind = 0; kind < OP_COUNT; kind++) {
        if (draw(random, 8) == 0) fake->storage[kind].strided_in = (uint32_t)draw(random, 256);
        if (draw(random, 8) == 0) fake->storage[kind].strided_out = (uint32_t)draw(random, 8);
        if (draw(random, 3) == 0) fake->storage[kind].in_place = (uint32_t)draw(random, 256);
    }
    fake->workspace_bytes = (size_t)draw(random, 300);
}

static void build_random(PlanRun *r, Random *random)
{
    keep(random, graph_input(r->graph, "x", (Shape){2, 8, 3, 3}, DTYPE_F32));
    keep(random, conv(r, "first", random->pool[0], 16));
    int ops = 5 + draw(random, 60);
    for (int i = 0; i < ops; i++) {
        Value y = random_op(r, random);
        keep(random, y);
        if (y.id && draw(random, 10) == 0) graph_result(r->graph, y, next_name(random));
    }
}

TEST(no_two_living_values_overlap)
{
    int shared = 0, copied = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        PlanRun r;
        Random random = {.state = seed * 0x9E3779B97F4A7C15u};
        plan_run_open(&r);
        random_masks(r.fake, &random);
        build_random(&r, &random);
        if (graph_finish(r.graph) != OK) fail_msg("seed %d: %s", (int)seed, status_message());
        plan_run_create(&r, false);
        plan_run_check(&r);
        shared += report_of(&r).shared_values;
        copied += report_of(&r).copied_concats;
        plan_run_again(&r, true);
        plan_run_check(&r);
        plan_run_close(&r);
    }
    assert_true(shared > 1000 && copied > 1000); /* both kinds of decision were tried */
}
