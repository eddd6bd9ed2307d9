/* Digests of replicas: they cover every element, and there is no false alarm after any step of a long undisturbed run
 * (10,000 steps). The network has only a few numbers, so that a step is little more than the comparison of the towers. */
#include "tests/support/tower_run.h"
#include "tests/support/unit.h"
#include "towers/guard/digest.h"
#include "towers/train/process.h"

#include <sys/wait.h>

enum { STEPS = 10000, TOWERS = 2, HANG_S = 300 };

static void build(Graph *g, const ModelOptions *options, const void *networks, Value x, ModelHeads *heads)
{
    (void)networks;
    static const Init he = {.kind = INIT_HE_NORMAL};
    graph_canonical(g, 2);
    heads->logits = dense(g, x, "head", options->classes, false, he);
}

static const Model model = {.name = "one_layer",
                            .title = "",
                            .paper = "",
                            .side = 2,
                            .min_side = 2,
                            .channels = 1,
                            .classes = 3,
                            .std = {1, 1, 1},
                            .build = build};

static void step_seen(void *context, Ledger *ledger, int64_t step, double seconds, double loss)
{
}

static TrainJob job_make(const Backend *backend, const Source *data)
{
    TrainJob job = job_plain(backend, &model, data, 2, TOWERS, 1);
    job.processes = TOWERS;
    job.optimizer = (OptimizerHyper){.kind = OPTIMIZER_ADAM, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-7f};
    job.schedule.lr = 0.001;
    job.epochs = job.max_steps = STEPS;
    job.gate.bn_decay = 0.9;
    job.comm.timeout_ms = HANG_S * 1000;
    job.sdc_check = 1;
    job.on_step = step_seen;
    return job;
}

static void towers_live(const TrainJob *job, Ledger *ledger, CommShared *shared)
{
    pid_t pid[TOWERS];
    for (int r = 0; r < TOWERS; r++) {
        pid[r] = fork();
        assert_true(pid[r] >= 0);
        if (pid[r]) continue;
        alarm(HANG_S);
        _exit(status_exit_code(tower_process_timed(job, r, ledger, shared)));
    }
    for (int r = 0; r < TOWERS; r++) {
        int status;
        assert_int_equal(waitpid(pid[r], &status, 0), pid[r]);
        if (status) fail_msg("tower %d: %s", r, ledger->process[r].words.message);
    }
}

TEST(test_no_false_alarm)
{
    const Backend *cpu = NULL;
    Source *data;
    if (backend_find("cpu", &cpu, NULL, 0) != OK) skip("no CPU backend here: %s", status_message());
    assert_int_equal(source_synthetic(64, 3, 2, 2, 1, 1, &data), OK);
    TrainJob job = job_make(cpu, data);
    JobMemory memory = job_memory(&job);
    towers_live(&job, memory.ledger, memory.shared);
    assert_int_equal(atomic_load(&memory.ledger->run.digests), STEPS);
    job_memory_free(&memory);
    source_close(data);
}

/* ---- what a digest covers */

/* The digest changes with this element, and comes back with it. */
static void element_counts(TowerProcess *p, float *memory, size_t element, const char *what)
{
    uint64_t before, after;
    float kept = memory[element];
    assert_int_equal(digest_replica(p, &before), OK);
    memory[element] = kept + 1;
    assert_int_equal(digest_replica(p, &after), OK);
    if (before == after) fail_msg("the digest does not see element %zu of %s", element, what);
    memory[element] = kept;
    assert_int_equal(digest_replica(p, &after), OK);
    assert_true(before == after);
}

/* Every element of every parameter, in the weights, both slots of Adam, and the average of the weights. */
TEST(test_sees_every_element)
{
    const Backend *cpu = NULL;
    Source *data;
    TowerProcess p = {0};
    ReplicaConfig config;
    int32_t *sizes;
    if (backend_find("cpu", &cpu, NULL, 0) != OK) skip("no CPU backend here: %s", status_message());
    assert_int_equal(source_synthetic(64, 3, 2, 2, 1, 1, &data), OK);
    TrainJob job = job_make(cpu, data);
    job.gate.ema_decay = 0.9;
    p.job = &job;
    p.place.local_towers = 1;
    assert_int_equal(process_config(&job, &p.place, &config, &sizes), OK);
    assert_int_equal(replica_create(&config, &p.replica), OK);
    free(sizes);
    const Layout *layout = p.replica->layout;
    p.scratch = calloc(layout->param_elements, sizeof *p.scratch);
    assert_non_null(p.scratch);
    float *memory[] = {p.replica->arena[ARENA_PARAM], p.replica->optimizer_state[0], p.replica->optimizer_state[1],
                       p.replica->ema};
    static const char *const names[] = {"the weights", "the first slot", "the second slot", "the average"};
    for (int k = 0; k < 4; k++) {
        assert_non_null(memory[k]);
        for (int i = 0; i < layout->param_count; i++)
            for (size_t e = 0; e < layout->params[i].count; e++)
                element_counts(&p, memory[k], layout->params[i].first + e, names[k]);
    }
    free(p.scratch);
    replica_destroy(p.replica);
    source_close(data);
}
