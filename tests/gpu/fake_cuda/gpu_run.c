/* See gpu_run.h. */
#include "tests/gpu/fake_cuda/gpu_run.h"

#include <sys/mman.h>
#include <sys/wait.h>

#include "kernels/cuda/cuda.h"
#include "tests/support/local_batches.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "towers/replica/norm_sync.h"
#include "towers/train/process.h"

enum { SIDE = 8, CHANNELS = 3, CLASSES = 4, BATCH = 2, PATIENCE_S = 300 };

/* Every way that a gradient takes through the host code: convolutions that convert (3 channels, a slice), batch norm, a
 * concat, dense layers, dropout; four buckets of `bucket_bytes`. */
static void build(Graph *g, const ModelOptions *options, const void *networks, Value x, ModelHeads *heads)
{
    (void)networks;
    static const Init he = {.kind = INIT_HE_NORMAL};
    graph_canonical(g, SIDE);
    x = conv_bn_relu(g, x, (ConvUnit){"stem", 8, 3, 3, HALVE_SAME});
    Value a = conv_bn_relu(g, x, (ConvUnit){"a", 8, 1, 1}), b = conv_bn_relu(g, x, (ConvUnit){"b", 16, 3, 3});
    x = CONCAT(g, a, b);
    x = max_pool(g, x, 2, HALVE);
    x = dense(g, x, "wide", 24, true, he);
    heads->logits = dense(g, dropout(g, x, options->dropout), "head", options->classes, false, he);
}

static const Model model = {.name = "small",
                            .title = "",
                            .paper = "",
                            .side = SIDE,
                            .min_side = SIDE,
                            .channels = CHANNELS,
                            .classes = CLASSES,
                            .mean = {0.5f, 0.5f, 0.5f},
                            .std = {0.25f, 0.25f, 0.25f},
                            .build = build};

static GpuRun *current;

static void step_seen(void *context, Ledger *ledger, int64_t step, double seconds, double loss)
{
    GpuSeen *seen = context;
    int64_t notes = atomic_load(&ledger->run.notes);
    (void)seconds;
    seen->steps = step;
    if (notes > 0) snprintf(seen->note, sizeof seen->note, "%s", ledger->run.note[(notes - 1) % LEDGER_NOTES]);
    if (step <= GPU_RUN_STEPS) seen->loss[step] = loss;
    if (current->on_step) current->on_step(step);
}

void gpu_run_open(GpuRun *run, int towers, int ranks)
{
    *run = (GpuRun){0};
    setenv("XDG_CACHE_HOME", "", 1); /* no plans on disk */
    setenv("HOME", "", 1);
    run->seen = mmap(NULL, sizeof *run->seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(run->seen != MAP_FAILED);
    assert_int_equal(source_synthetic(64, CLASSES, SIDE, SIDE, CHANNELS, 1, &run->data), OK);
    run->job = (TrainJob){
        .program =
            {.model = &model,
             .options = {.classes = CLASSES, .side = SIDE, .channels = CHANNELS, .dropout = 0.25f, .variant = ""},
             .data_channels = CHANNELS,
             .canvas = SIDE,
             .fuse_siblings = true},
        .train = run->data,
        .backend = &cuda_backend,
        .local_batches = batches_equal(towers, BATCH),
        .processes = ranks,
        .device = {DEVICE_USUAL, .threads = 1, .deterministic = true},
        .gpu_count = 1, /* every rank's own number 0 */
        .optimizer = {.kind = OPTIMIZER_SGD, .momentum = 0.9f},
        .weight_decay = 1e-4,
        .schedule = {.kind = SCHEDULE_CONSTANT, .lr = 0.05},
        .epochs = 3,
        .max_steps = 4,
        .accumulate = 1,
        .gate.bn_decay = 0.9,
        .gate.check = NAN_CHECK_ALL,
        .comm.timeout_ms = 60000,
        .bucket_bytes = 2048,
        .on_step = step_seen,
        .args_yaml = "",
        .env_json = "{}",
        .checkpoint.keep = 1,
    };
}

void gpu_run_close(GpuRun *run)
{
    munmap(run->seen, sizeof *run->seen);
    source_close(run->data);
}

static void rank_live(GpuRun *run, int rank, Ledger *ledger, CommShared *shared)
{
    run->job.on_step_context = run->seen;
    current = run;
    if (run->on_start) run->on_start(rank);
    Status st = run->job.run_dir ? tower_process_train(&run->job, rank, ledger, shared)
                                 : tower_process_timed(&run->job, rank, ledger, shared);
    const char *failed = fake_gpu_failed();
    snprintf(run->seen->rank[rank].failed, sizeof run->seen->rank[rank].failed, "%s", failed ? failed : "");
    run->seen->rank[rank].alive = fake_gpu_alive(stderr);
    snprintf(run->seen->rank[rank].message, sizeof run->seen->rank[rank].message, "%s",
             st == OK ? "" : ledger->process[rank].words.message);
    run->seen->rank[rank].status = st;
}

static void ranks_live(GpuRun *run, Ledger *ledger, CommShared *shared)
{
    pid_t child[GPU_RUN_RANKS];
    GpuWorld *world = fake_gpu_world_create(run->job.processes, run->room * sizeof(float));
    assert_non_null(world);
    for (int r = 0; r < run->job.processes; r++) {
        child[r] = fork();
        assert_true(child[r] >= 0);
        if (child[r]) continue;
        alarm(PATIENCE_S);
        rank_live(run, r, ledger, shared);
        _exit(0);
    }
    for (int left = run->job.processes; left > 0; left--) {
        int ending;
        pid_t gone = wait(&ending);
        for (int r = 0; r < run->job.processes; r++) /* as the supervisor does */
            if (gone == child[r] && run->seen->rank[r].status != OK) comm_shared_abort(shared, r);
    }
    fake_gpu_world_destroy(world);
}

Status gpu_run_live(GpuRun *run)
{
    Layout *layout;
    Ledger *ledger;
    CommShared *shared;
    int ranks = run->job.processes;
    assert_int_equal(program_layout(&run->job.program, 1, &layout), OK);
    run->room = job_comm_room(&run->job, layout);
    assert_int_equal(ledger_create(run->job.local_batches.towers, ranks, &ledger), OK);
    assert_int_equal(comm_shared_create(run->job.local_batches.towers, ranks, run->room, &shared), OK);
    memset(run->seen, 0, sizeof *run->seen);
    for (int r = 0; r < ranks; r++) run->seen->rank[r].status = STATUS_COUNT;
    if (ranks == 1)
        rank_live(run, 0, ledger, shared);
    else
        ranks_live(run, ledger, shared);
    ledger_destroy(ledger);
    comm_shared_destroy(shared);
    layout_destroy(layout);
    for (int r = 0; r < ranks; r++)
        if (run->seen->rank[r].status != OK) return run->seen->rank[r].status;
    return OK;
}

int fake_as_new(void **state)
{
    fake_gpu_reset();
    return 0;
}

int fake_and_scratch_as_new(void **state)
{
    fake_gpu_reset();
    return scratch_make(state);
}
