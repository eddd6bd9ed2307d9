/* Launches of a step that are captured once and then repeated: when capture begins, that only launches are captured,
 * that each slot and the update have graphs of their own, that all are destroyed, and what happens if the device
 * refuses. */

#include "inception/models/models.h"
#include "tests/support/fake_backend.h"
#include "tests/support/tower_run.h"
#include "tests/support/unit.h"

enum { STEPS = 12, RECORDINGS = 64, NOTES = 8 };

/* What a recording must really do again, since the sum over towers is made over what it wrote. */
typedef struct Note {
    bool is_gate;
    GateExtrasCall call;
    void *to; /* fill */
    float value;
    size_t count;
} Note;

static FakeBackend *fake;
static struct Recording {
    int count; /* launches */
    bool freed;
    int runs, notes;
    Note note[NOTES];
} recording[RECORDINGS];
static int recordings, events_before, launches, bad_events, updates;
static bool recording_now, refuse;
static Status (*fake_fill)(Device *device, void *to, float value, size_t count);
static Status (*fake_gate_extras)(Device *device, const GateExtrasCall *call);

static void see_launch(void *context, OpCall *call)
{
    launches++;
}

static Status ones(Device *device, const float *x, size_t count, double *sum)
{
    *sum = 1;
    return OK;
}

static Status see_begin(Device *device)
{
    assert_false(recording_now);
    recording_now = true;
    assert_in_range(recordings, 0, RECORDINGS - 1);
    recording[recordings] = (struct Recording){0};
    events_before = fake->event_count;
    return OK;
}

static void note(const Note *what)
{
    if (!recording_now) return;
    assert_in_range(recording[recordings].notes, 0, NOTES - 1);
    recording[recordings].note[recording[recordings].notes++] = *what;
}

static Status see_fill(Device *device, void *to, float value, size_t count)
{
    note(&(Note){.to = to, .value = value, .count = count});
    return fake_fill(device, to, value, count);
}

static Status see_gate_extras(Device *device, const GateExtrasCall *call)
{
    note(&(Note){.is_gate = true, .call = *call});
    return fake_gate_extras(device, call);
}

static bool is_launch(FakeEventKind kind)
{
    return kind == FAKE_LAUNCH || kind == FAKE_FILL || kind == FAKE_OPTIMIZER || kind == FAKE_SQUARE_SUM ||
           kind == FAKE_AVERAGE || kind == FAKE_GATE_EXTRAS || kind == FAKE_GATE_DECIDE;
}

static Status see_end(Device *device, void **graph)
{
    assert_true(recording_now);
    recording_now = false;
    for (int i = events_before; i < fake->event_count; i++) bad_events += !is_launch(fake->event[i].kind);
    *graph = NULL;
    if (refuse) return FAIL(ERR_DEVICE, "told to refuse");
    for (int i = events_before; i < fake->event_count; i++)
        recording[recordings].count += fake->event[i].kind == FAKE_LAUNCH;
    *graph = &recording[recordings++];
    return OK;
}

static Status see_run(Device *device, void *graph)
{
    struct Recording *again = graph;
    assert_false(recording_now);
    again->runs++;
    for (int i = 0; i < again->notes; i++) {
        const Note *n = &again->note[i];
        TRY(n->is_gate ? fake_gate_extras(device, &n->call) : fake_fill(device, n->to, n->value, n->count));
    }
    return OK;
}

static void see_free(Device *device, void *graph)
{
    assert_false(((struct Recording *)graph)->freed);
    ((struct Recording *)graph)->freed = true;
}

static int run_with(bool graphs, bool refusing)
{
    TowerRun run;
    fake = fake_create(~0u, ~0u, 0);
    assert_non_null(fake);
    fake->backend.square_sum = ones;
    fake_fill = fake->backend.fill, fake_gate_extras = fake->backend.gate_extras;
    fake->backend.fill = see_fill, fake->backend.gate_extras = see_gate_extras;
    fake->backend.capture_begin = see_begin;
    fake->backend.capture_end = see_end;
    fake->backend.graph_launch = see_run;
    fake->backend.graph_free = see_free;
    fake->on_launch = see_launch;
    recordings = launches = bad_events = 0;
    refuse = refusing;
    tower_run_open(&run, &fake->backend, &model_fashion_cnn, 2);
    run.job.graphs = graphs;
    tower_run_live(&run);
    if (run.status != OK) fail_msg("%s", status_message());
    tower_run_close(&run);
    assert_true(fake->event_count < FAKE_MAX_EVENTS);
    updates = fake_count(fake, FAKE_OPTIMIZER, OP_NONE);
    assert_int_equal(fake_count(fake, FAKE_GATE_DECIDE, OP_NONE), updates);
    fake_destroy(fake);
    return launches;
}

TEST(test_recorded_and_repeated)
{
    int one_by_one = run_with(false, false), step = one_by_one / STEPS;
    assert_int_equal(recordings, 0);
    int recorded = run_with(true, false), inside = 0;
    assert_int_equal(bad_events, 0);
    assert_int_equal(recorded, (CAPTURE_WARM + 1) * step); /* the last of them into the recordings */
    assert_int_equal(updates, CAPTURE_WARM + 1);
    assert_in_range(recordings, 5, RECORDINGS); /* two slots, forward and at least one bucket; the update */
    assert_int_equal(recordings % 2, 1);
    for (int i = 0; i < recordings; i++) {
        assert_int_equal(recording[i].runs, STEPS - CAPTURE_WARM);
        assert_true(recording[i].freed);
        inside += recording[i].count;
    }
    assert_int_equal(inside, step);
}

TEST(test_refused)
{
    int one_by_one = run_with(false, false);
    int recorded = run_with(true, true);
    assert_int_equal(recorded, one_by_one + one_by_one / STEPS); /* one attempt each, and all the same */
    assert_int_equal(recordings, 0);
}

static Status count_launch(void *context)
{
    ++*(int *)context;
    return OK;
}

/* Launches carry the number of samples that count: after a damaged image the graph of another number must not run. */
TEST(test_another_count_is_another_graph)
{
    Device device;
    CapturedGraphs *graphs;
    int launched = 0;
    CaptureKey all = {.of = &device, .count = 8}, fewer = {.of = &device, .count = 7};
    fake = fake_create(~0u, ~0u, 0);
    assert_non_null(fake);
    fake->backend.capture_begin = see_begin;
    fake->backend.capture_end = see_end;
    fake->backend.graph_launch = see_run;
    fake->backend.graph_free = see_free;
    fake_open(fake, &device);
    recordings = 0;
    refuse = false;
    assert_int_equal(captured_graphs_create(&device, true, &graphs), OK);
    for (int i = 0; i <= CAPTURE_WARM; i++)
        assert_int_equal(captured_graphs_run(graphs, &all, count_launch, &launched), OK);
    assert_int_equal(recordings, 1);
    assert_int_equal(recording[0].runs, 1);
    assert_int_equal(captured_graphs_run(graphs, &fewer, count_launch, &launched), OK);
    assert_int_equal(launched, CAPTURE_WARM + 2);
    assert_int_equal(recording[0].runs, 1);
    captured_graphs_destroy(graphs);
    fake_destroy(fake);
}
