/* The order of a step, as the device records it: every bucket of gradients is passed to the all-reduce after its last
 * gradient was computed, the first ones while backward still runs, all before the optimizer; a step that the gate
 * refuses changes nothing; and after the first steps nothing is allocated, neither on the device nor on the host. */

#include "inception/models/models.h"
#include "tests/support/fake_backend.h"
#include "tests/support/tower_run.h"
#include "tests/support/unit.h"

/* ---- counting allocations: malloc and its kin come by here. Those of this program's own code count; what oneDNN does
 * inside an execution is its own. */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
enum { CAN_COUNT = 0 };
static int counting, allocations;
#else
enum { CAN_COUNT = 1 };
static int counting, allocations;
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);

extern const char __executable_start, etext; /* of the linker: the program's code without the libraries' */

static void count_one(const void *caller)
{
    bool own = (const char *)caller >= &__executable_start && (const char *)caller < &etext;
    if (own && __atomic_load_n(&counting, __ATOMIC_RELAXED)) __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
}

void *malloc(size_t bytes)
{
    count_one(__builtin_return_address(0));
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    count_one(__builtin_return_address(0));
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    count_one(__builtin_return_address(0));
    return __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    count_one(__builtin_return_address(0));
    return __libc_memalign(align, bytes);
}

int posix_memalign(void **made, size_t align, size_t bytes)
{
    count_one(__builtin_return_address(0));
    *made = __libc_memalign(align, bytes);
    return *made ? 0 : 12;
}
#endif

/* ---- a network whose gradients fill two buckets */

static void build(Graph *g, const ModelOptions *options, const void *networks, Value x, ModelHeads *heads)
{
    (void)networks;
    static const Init he = {.kind = INIT_HE_NORMAL};
    graph_canonical(g, 28);
    x = conv_bias(g, x, "stem", 4, 3, VALID, true, he);
    x = dense(g, x, "large", 1500, true, he);
    x = dense(g, x, "wide", 800, true, he);
    heads->logits = dense(g, x, "head", options->classes, false, he);
}

static const Model model = {.name = "two_buckets",
                            .title = "",
                            .paper = "",
                            .side = 28,
                            .min_side = 28,
                            .channels = 1,
                            .classes = 10,
                            .std = {1, 1, 1},
                            .build = build};

/* ---- what the device is asked to do with gradients */

enum { MARKS_MAX = 4096 };
typedef enum MarkKind { MARK_GRADIENT = 0, MARK_GIVE, MARK_OPTIMIZER, MARK_REFUSED, MARK_STEP } MarkKind;

typedef struct Mark {
    MarkKind kind;
    const float *at;
    size_t count;
} Mark;

static FakeBackend *fake;
static Mark marks[MARKS_MAX];
static int mark_count;
static int64_t step_now, poisoned_step; /* of the fake: the first gradient of this step is NaN; 0: none */
static int ranges_given;

static void mark(MarkKind kind, const float *at, size_t count)
{
    if (mark_count < MARKS_MAX) marks[mark_count] = (Mark){kind, at, count};
    mark_count++;
}

/* Every f32 output of a launch might be a gradient: those that are not are sorted out by address. */
static void see_launch(void *context, OpCall *call)
{
    for (int k = 0; k < call->out_count; k++)
        if (call->out[k].data && call->out[k].dtype == DTYPE_F32)
            mark(MARK_GRADIENT, call->out[k].data, (size_t)shape_count(call->out[k].shape));
}

static Status see_square_sum(Device *device, const float *x, size_t count, double *sum)
{
    mark(MARK_GIVE, x, count);
    *sum = step_now + 1 == poisoned_step && ranges_given++ == 0 ? NAN : 1;
    return OK;
}

static Status see_optimizer(Device *device, const OptimizerUpdate *update)
{
    mark(update->scalars->commit != 0 ? MARK_OPTIMIZER : MARK_REFUSED, update->grad, 0);
    return OK;
}

static void see_step(void *context, Ledger *ledger, int64_t step, double seconds, double loss)
{
    mark(MARK_STEP, NULL, 0);
    step_now = step;
    ranges_given = 0;
    if (step == 3) counting = CAN_COUNT;
    if (step == 8) counting = 0;
}

/* ---- a run of one process, here */

static void run_open(TowerRun *run, const Backend *backend, const Model *of, int towers)
{
    tower_run_open(run, backend, of, towers);
    run->job.on_step = see_step;
}

static void run_live(TowerRun *run)
{
    mark_count = 0;
    step_now = allocations = counting = ranges_given = 0;
    tower_run_live(run);
    counting = 0;
}

static void fake_start(TowerRun *run, int towers)
{
    fake = fake_create(~0u, ~0u, 0);
    assert_non_null(fake);
    fake->backend.square_sum = see_square_sum;
    fake->backend.optimizer_apply = see_optimizer;
    fake->on_launch = see_launch;
    poisoned_step = 0;
    run_open(run, &fake->backend, &model, towers);
}

static void fake_end(TowerRun *run)
{
    tower_run_close(run);
    fake_destroy(fake);
}

/* ---- the order of one step */

static bool overlap(const Mark *a, const Mark *b)
{
    return a->at < b->at + b->count && b->at < a->at + a->count;
}

/* No gradient that lies in the bucket given at `give` may come between there and the end of the tower's turn: it would
 * be lost. Returns how many others do. */
static int check_bucket(int give, int turn_end)
{
    int others = 0;
    for (int k = give + 1; k < turn_end; k++) {
        if (marks[k].kind != MARK_GRADIENT) continue;
        if (overlap(&marks[give], &marks[k])) fail_msg("a gradient of %zu elements after its bucket", marks[k].count);
        others++;
    }
    return others;
}

enum { BUCKETS = 3 /* of the network: the last one is its small tail */ };

/* Marks [first, end) of one step: each tower gives one bucket after the other, then the gate looks at the whole sum
 * (that of a single tower has been seen), then the optimizer runs. */
static void check_step(int first, int end, int towers)
{
    int give[16], gives = 0, optimizers = 0;
    for (int i = first; i < end; i++) {
        if (marks[i].kind == MARK_OPTIMIZER) optimizers++;
        if (marks[i].kind != MARK_GIVE) continue;
        assert_int_equal(optimizers, 0); /* nothing is given after the update began */
        assert_in_range(gives, 0, 15);
        give[gives++] = i;
    }
    assert_int_equal(optimizers, 1);
    assert_int_equal(gives, towers == 1 ? BUCKETS : BUCKETS * towers + 1);
    for (int t = 0; t < towers; t++) {
        const int *own = &give[BUCKETS * t];
        const Mark *all = &marks[give[gives - 1]];
        size_t count = marks[own[0]].count;
        for (int k = 1; k < BUCKETS; k++) {
            assert_true(marks[own[k]].at == marks[own[k - 1]].at + marks[own[k - 1]].count);
            count += marks[own[k]].count;
        }
        if (towers > 1) assert_true(marks[own[0]].at == all->at && count == all->count);
        assert_true(check_bucket(own[0], own[1]) > 0); /* it goes while backward still runs */
    }
}

TEST(test_buckets_follow_backward)
{
    for (int towers = 1; towers <= 2; towers++) {
        TowerRun run;
        fake_start(&run, towers);
        run_live(&run);
        if (run.status != OK) fail_msg("%s", status_message());
        assert_true(mark_count < MARKS_MAX);
        int steps = 0, first = 0;
        for (int i = 0; i < mark_count; i++) {
            if (marks[i].kind != MARK_STEP) continue;
            check_step(first, i, towers);
            first = i + 1;
            steps++;
        }
        assert_int_equal(steps, 12);
        fake_end(&run);
    }
}

/* ---- the gate */

static int optimizers_seen(void)
{
    int count = 0;
    for (int i = 0; i < mark_count; i++) count += marks[i].kind == MARK_OPTIMIZER;
    return count;
}

TEST(test_refused_step_moves_nothing)
{
    TowerRun run;
    fake_start(&run, 2);
    poisoned_step = 3;
    run_live(&run);
    assert_fails(run.status, ERR_NUMERIC, "tower 0, step 3: the gradient is not finite");
    assert_int_equal(optimizers_seen(), 2);
    assert_int_equal(step_now, 2);
    fake_end(&run);

    fake_start(&run, 2);
    poisoned_step = 3;
    run.job.nan_policy = NAN_POLICY_SKIP;
    run_live(&run);
    assert_int_equal(run.status, OK);
    assert_int_equal(optimizers_seen(), 11);
    assert_int_equal(step_now, 12);
    fake_end(&run);
}

/* ---- memory */

static void skip_unless_counted(void)
{
    if (CAN_COUNT) return;
    skip("a sanitizer has an allocator of its own");
}

TEST(test_steps_allocate_nothing)
{
    skip_unless_counted();
    TowerRun run;
    fake_start(&run, 2);
    run_live(&run);
    assert_int_equal(run.status, OK);
    assert_int_equal(allocations, 0);
    fake_end(&run);
}

TEST(test_steps_of_the_cpu_allocate_nothing)
{
    const Backend *cpu = NULL;
    skip_unless_counted();
    if (backend_find("cpu", &cpu, NULL, 0) != OK) skip("no CPU backend here: %s", status_message());
    TowerRun run;
    run_open(&run, cpu, &model_fashion_cnn, 2);
    run_live(&run);
    if (run.status != OK) fail_msg("%s", status_message());
    assert_int_equal(step_now, 12);
    if (allocations) fail_msg("%d allocations in 5 steps", allocations);
    tower_run_close(&run);
}
