/* comm_nccl on the fake GPUs: sums for every mapping of towers to ranks, in 16 bits, in tower order; and shutdown: when
 * a rank reports an error, is late, or dies, every tower gets an error and none hangs. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <nccl.h>

#include "kernels/base/clock.h"
#include "kernels/cuda/cuda.h"
#include "nccl_sync/comm_ops.h"
#include "tests/gpu/fake_cuda/gpu_run.h"
#include "tests/support/free_port.h"
#include "tests/support/unit.h"

enum {
    COUNT = 500,
    CUT = 200,
    EXTRAS = 5 /* odd, as of most numbers of towers */,
    RANKS = 4,
    RANKS_MOST = 8,
    PATIENCE_S = 200
};

typedef struct Seen {
    volatile int ready;
    Status status[RANKS_MOST];
    char message[RANKS_MOST][400];
    int alive[RANKS_MOST];
    volatile int heard;          /* ranks that had their error while one was still in its abort */
    char failed[RANKS_MOST][64]; /* the call that was made to, "" */
    int64_t registered[RANKS_MOST], reduced[RANKS_MOST], copies[RANKS_MOST], ids[RANKS_MOST], by_roots[RANKS_MOST],
        added[RANKS_MOST], misaligned[RANKS_MOST],
        received[RANKS_MOST]; /* added, received: kernels and bytes in a round */
    size_t taken[RANKS_MOST],
        planned[RANKS_MOST]; /* device memory of the communicator, as measured and as comm_bytes says */
    char text[RANKS_MOST][128];
    float sum[RANKS_MOST][COUNT + EXTRAS], again[RANKS_MOST][COUNT];
} Seen;

typedef struct Group {
    CommConfig config; /* of all ranks */
    int ranks, groups; /* groups 0: one */
    Status (*body)(Comm *comm, Device *device, float *grads, int rank, Seen *seen);
    void (*on_start)(int rank); /* in the rank's process; NULL */
    bool any_order;             /* the device is not asked to be deterministic */
    Seen *seen;
} Group;

/* ---- ranks */

static size_t free_bytes(Device *device)
{
    size_t bytes = 0, total = 0;
    return device->backend->memory(device, &bytes, &total) == OK ? bytes : 0;
}

static Status rank_live(const Group *g, int rank, CommShared *shared)
{
    Device device = {0};
    Comm *comm = NULL;
    CommMemory memory = {0};
    DeviceConfig device_config = {DEVICE_USUAL, .threads = 1, .deterministic = !g->any_order};
    CommConfig config = g->config;
    config.place.rank = rank;
    config.place.first_tower = rank * g->config.towers / g->ranks;
    config.place.local_towers = (rank + 1) * g->config.towers / g->ranks - config.place.first_tower;
    config.place.node = rank / node_ranks(&config.place);
    snprintf(config.place.host, sizeof config.place.host, "host%d", config.place.node);
    progress_to(comm_shared_progress(shared, process_in_node(&config.place)));
    if (g->on_start) g->on_start(rank);
    TRY(cuda_backend.open(&device_config, &device));
    size_t before = free_bytes(&device);
    Status st = comm_join(&config, shared, &device, &comm);
    if (st == OK && getenv("NCCL_SOCKET_IFNAME")) st = FAIL(ERR_INTERNAL, "NCCL does not choose its interfaces itself");
    g->seen->taken[rank] = before - free_bytes(&device);
    g->seen->planned[rank] = comm_bytes(&cuda_backend, &config);
    if (st == OK) st = comm_memory_create(&device, COUNT * sizeof(float), &memory);
    if (st == OK) st = comm_register(comm, &memory, COUNT * sizeof(float));
    if (st == OK) comm_text(comm, g->seen->text[rank], sizeof g->seen->text[rank]);
    if (st == OK) st = g->body(comm, &device, memory.data, rank, g->seen);
    snprintf(g->seen->message[rank], sizeof g->seen->message[rank], "%s", st == OK ? "" : status_message());
    if (st != OK) comm_shared_abort(shared, process_in_node(&config.place)); /* as a tower process does */
    g->seen->registered[rank] = fake_gpu_count("ncclCommRegister");
    g->seen->reduced[rank] = fake_gpu_count("ncclAllReduce");
    g->seen->ids[rank] = fake_gpu_count("ncclGetUniqueId");
    g->seen->by_roots[rank] = fake_gpu_count("ncclCommInitRankScalable");
    g->seen->misaligned[rank] = fake_gpu_count("misaligned collective");
    comm_close(comm);
    comm_memory_destroy(&device, &memory);
    cuda_backend.close(&device);
    g->seen->alive[rank] = fake_gpu_alive(stderr);
    const char *failed = fake_gpu_failed();
    snprintf(g->seen->failed[rank], sizeof g->seen->failed[rank], "%s", failed ? failed : "");
    return st;
}

static void group_live(Group *g, int towers, int ranks)
{
    CommShared *shared[RANKS_MOST];
    pid_t child[RANKS_MOST];
    int groups = g->groups > 1 ? g->groups : 1, per = ranks / groups;
    g->ranks = g->config.place.ranks = ranks;
    g->config.place.nodes = groups;
    g->config.towers = towers;
    g->config.max_count = COUNT + EXTRAS;
    g->config.gradients = COUNT;
    if (!g->config.timeout_ms) g->config.timeout_ms = 60000;
    g->seen = mmap(NULL, sizeof *g->seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(g->seen != MAP_FAILED);
    for (int k = 0; k < groups; k++)
        assert_int_equal(comm_shared_create(towers / groups, per, COUNT + EXTRAS, &shared[k]), OK);
    GpuWorld *world = fake_gpu_world_create(ranks, COMM_RELAY_BYTES);
    assert_non_null(world);
    for (int r = 0; r < ranks; r++) {
        g->seen->status[r] = STATUS_COUNT;
        child[r] = fork();
        assert_true(child[r] >= 0);
        if (child[r]) continue;
        alarm(PATIENCE_S);
        g->seen->status[r] = rank_live(g, r, shared[r / per]);
        _exit(0);
    }
    for (int left = ranks; left > 0; left--) {
        int ending;
        pid_t gone = wait(&ending);
        for (int r = 0; r < ranks; r++) /* as the supervisor does */
            if (gone == child[r] && g->seen->status[r] != OK) comm_shared_abort(shared[r / per], r % per);
    }
    fake_gpu_world_destroy(world);
    for (int k = 0; k < groups; k++) comm_shared_destroy(shared[k]);
}

static void group_end(Group *g)
{
    munmap(g->seen, sizeof *g->seen);
}

static void all_well(const Group *g)
{
    for (int r = 0; r < g->ranks; r++) {
        if (g->seen->status[r] != OK) fail_msg("rank %d: %s", r, g->seen->message[r]);
        if (g->seen->alive[r]) fail_msg("rank %d left objects behind", r);
    }
}

/* Every rank in `ranks` ended with ERR_COMM and words that hold `text` or `other`. */
static void check_reports(const Group *g, unsigned ranks, const char *text, const char *other)
{
    for (int r = 0; r < g->ranks; r++) {
        if (!(ranks >> r & 1)) continue;
        const char *message = g->seen->message[r];
        if (g->seen->status[r] != ERR_COMM || !(strstr(message, text) || (other && strstr(message, other))))
            fail_msg("rank %d: status %d, '%s'", r, (int)g->seen->status[r], message);
        if (g->seen->alive[r]) fail_msg("rank %d left objects behind", r);
    }
}

/* ---- sums */

static float gift(int tower, size_t i)
{
    uint32_t x = (uint32_t)(i * 2654435761u) ^ (uint32_t)(tower * 40503u + 977u);
    x ^= x >> 13;
    x *= 0x5bd1e995u;
    return (float)(int32_t)x / 2147483648.0f * (float)(1u << x % 20u);
}

static float gift_factor;

/* Gradients from the device in two ranges, extras from the host, as a step gives them; twice. */
static Status rounds(Comm *comm, Device *device, float *grads, int rank, Seen *seen)
{
    const CommConfig *config = comm_config(comm);
    const size_t cut = CUT;
    float host[COUNT], extras[EXTRAS] = {1, 2, 3, 16777216, 5};
    for (int round = 0; round < 2; round++) {
        int64_t kernels = fake_gpu_count("kernel"), received = fake_gpu_received();
        for (int t = config->place.first_tower; t < config->place.first_tower + config->place.local_towers; t++) {
            for (size_t i = 0; i < COUNT; i++) host[i] = gift_factor * gift(t + 7 * round, i);
            TRY(device->backend->upload(device, grads, host, sizeof host));
            TRY(comm_allreduce_begin(comm, t, 0, grads, cut));
            TRY(comm_allreduce_begin(comm, t, cut, grads + cut, COUNT - cut));
        }
        for (int t = config->place.first_tower; t < config->place.first_tower + config->place.local_towers; t++)
            TRY(comm_allreduce_begin(comm, t, COUNT, extras, EXTRAS));
        seen->added[rank] = fake_gpu_count("kernel") - kernels;
        seen->received[rank] = fake_gpu_received() - received;
        TRY(comm_allreduce_end(comm, 0, grads, cut));
        TRY(comm_allreduce_end(comm, cut, grads + cut, COUNT - cut));
        TRY(comm_allreduce_end(comm, COUNT, seen->sum[rank] + COUNT, EXTRAS));
        TRY(device->backend->download(device, seen->sum[rank], grads, sizeof host));
        TRY(device->backend->finish(device, STREAM_COMPUTE));
    }
    return comm_barrier(comm);
}

static double wanted_sum(int towers, size_t i)
{
    double sum = 0;
    for (int t = 0; t < towers; t++) sum += (double)gift_factor * gift(t + 7, i);
    return sum;
}

static double wanted_size(int towers, size_t i)
{
    double sum = 0;
    for (int t = 0; t < towers; t++) sum += fabs((double)gift_factor * gift(t + 7, i));
    return sum;
}

static void check_sums(const Group *g, double tolerance)
{
    int towers = g->config.towers;
    for (int r = 0; r < g->ranks; r++) {
        for (size_t i = 0; i < COUNT; i++) {
            double wanted = wanted_sum(towers, i), have = g->seen->sum[r][i];
            if (!(fabs(have - wanted) <= tolerance * wanted_size(towers, i)))
                fail_msg("rank %d, element %zu: %g instead of %g", r, i, have, wanted);
        }
        assert_memory_equal(g->seen->sum[r], g->seen->sum[0], sizeof g->seen->sum[0]); /* of all ranks alike */
        for (int k = 0; k < EXTRAS; k++) { /* exact, whatever the gradients travel in */
            float extra = (float)((k == 3 ? 16777217 : k + 1) * towers);
            assert_true(fabsf(g->seen->sum[r][COUNT + k] - extra) <= 1e-6f * extra);
        }
    }
}

TEST_WITH(test_sums_in_f32, fake_as_new, NULL)
{
    gift_factor = 1;
    static const int mappings[][2] = {{1, 1}, {3, 1}, {2, 2}, {4, 4}, {4, 2}, {5, 3}};
    for (size_t m = 0; m < sizeof mappings / sizeof *mappings; m++) {
        Group g = {.body = rounds};
        group_live(&g, mappings[m][0], mappings[m][1]);
        all_well(&g);
        check_sums(&g, 1e-6);
        if (g.ranks > 1) assert_int_equal(g.seen->registered[0], 1); /* the gradients, which are the sum */
        group_end(&g);
    }
}

/* ---- several hosts, connected by TCP */

TEST_WITH(test_sums_of_several_hosts, fake_as_new, NULL)
{
    gift_factor = 1;
    for (int ordered = 0; ordered < 2; ordered++) {
        Group g = {.body = rounds, .groups = 2};
        g.config.master = "127.0.0.1";
        g.config.port = free_port();
        g.config.secret = (Secret){{7}};
        g.config.ordered = ordered;
        group_live(&g, 4, 4);
        all_well(&g);
        check_sums(&g, 1e-6);
        group_end(&g);
    }
}

/* A sum that comes to the host, as the self-test takes it. */
static Status first_sum(Comm *comm)
{
    const CommConfig *config = comm_config(comm);
    float extras[EXTRAS] = {1}, sum[EXTRAS];
    for (int t = config->place.first_tower; t < config->place.first_tower + config->place.local_towers; t++)
        TRY(comm_allreduce_begin(comm, t, COUNT, extras, EXTRAS));
    TRY(comm_allreduce_end(comm, COUNT, sum, EXTRAS));
    return sum[0] == (float)config->towers ? OK : FAIL(ERR_INTERNAL, "the sum is %g", (double)sum[0]);
}

/* What is large goes by the processors, too, until a sum has shown that the GPUs reach each other. */
static Status large_before_a_sum(Comm *comm, unsigned char *bytes, unsigned char *all, size_t n)
{
    int rank = comm_config(comm)->place.rank;
    fake_gpu_counts_clear();
    for (size_t k = 0; k < n; k++) bytes[k] = rank == RANKS - 1 ? (unsigned char)(k * 31) : 99;
    TRY(comm_broadcast(comm, bytes, n, RANKS - 1));
    for (size_t k = 0; k < n; k++)
        if (bytes[k] != (unsigned char)(k * 31)) return FAIL(ERR_INTERNAL, "before a sum: byte %zu", k);
    TRY(comm_gather(comm, bytes, n, all));
    for (size_t k = 0; k < RANKS * n; k++)
        if (all[k] != (unsigned char)(k % n * 31)) return FAIL(ERR_INTERNAL, "gather before a sum: byte %zu", k);
    return fake_gpu_count("ncclBroadcast") == 0 ? OK : FAIL(ERR_INTERNAL, "by NCCL before a sum");
}

/* Broadcasts and gathers: NCCL makes the large ones, so that they do not all pass the first host. */
static Status large_and_small(Comm *comm, Device *device, float *grads, int rank, Seen *seen)
{
    enum { LARGE = COMM_RELAY_BYTES + 70001, PART = 70001, SMALL = 100 };
    Status st = OK;
    unsigned char *bytes = malloc(LARGE), *all = malloc((size_t)RANKS * PART);
    (void)device, (void)grads, (void)seen;
    if (!bytes || !all) TRY_OUT(FAIL(ERR_MEMORY, "no memory"));
    TRY_OUT(large_before_a_sum(comm, bytes, all, PART));
    TRY_OUT(first_sum(comm));
    fake_gpu_counts_clear();
    for (int i = 0; i < 4; i++) {
        int root = i % 2 ? RANKS - 1 : 0;
        size_t n = i < 2 ? LARGE : SMALL;
        for (size_t k = 0; k < n; k++) bytes[k] = rank == root ? (unsigned char)(k * 31 + (size_t)i) : 99;
        TRY_OUT(comm_broadcast(comm, bytes, n, root));
        for (size_t k = 0; k < n; k++)
            if (bytes[k] != (unsigned char)(k * 31 + (size_t)i))
                TRY_OUT(FAIL(ERR_INTERNAL, "broadcast %d: byte %zu", i, k));
    }
    if (fake_gpu_count("ncclBroadcast") != 4) /* two large ones, of two pieces each */
        TRY_OUT(FAIL(ERR_INTERNAL, "%" PRId64 " pieces by NCCL", fake_gpu_count("ncclBroadcast")));
    for (size_t n = SMALL; n <= PART; n += PART - SMALL) {
        for (size_t k = 0; k < n; k++) bytes[k] = (unsigned char)(k * 7 + (size_t)rank);
        TRY_OUT(comm_gather(comm, bytes, n, all));
        for (size_t k = 0; k < RANKS * n; k++)
            if (all[k] != (unsigned char)(k % n * 7 + k / n)) TRY_OUT(FAIL(ERR_INTERNAL, "gather: byte %zu", k));
    }
    if (fake_gpu_count("ncclBroadcast") != 4 + RANKS) TRY_OUT(FAIL(ERR_INTERNAL, "the gather goes elsewhere"));
    st = comm_barrier(comm);
out:
    free(bytes);
    free(all);
    return st;
}

TEST_WITH(test_broadcasts_of_several_hosts, fake_as_new, NULL)
{
    Group g = {.body = large_and_small, .groups = 2};
    g.config.master = "127.0.0.1";
    g.config.port = free_port();
    group_live(&g, 4, 4);
    all_well(&g);
    for (int r = 0; r < 4; r++) assert_true(g.seen->taken[r] <= g.seen->planned[r]);
    group_end(&g);
}

/* The library does not notice that ranks name different roots: what they get is worth nothing. */
static Status two_roots(Comm *comm, Device *device, float *grads, int rank, Seen *seen)
{
    unsigned char bytes[COMM_RELAY_BYTES / 2];
    (void)device, (void)grads, (void)seen;
    memset(bytes, 7, sizeof bytes);
    TRY(first_sum(comm));
    TRY(comm_broadcast(comm, bytes, sizeof bytes, rank % 2));
    for (size_t k = 0; rank > 1 && k < sizeof bytes; k++)
        if (bytes[k] != 0xff) return FAIL(ERR_INTERNAL, "byte %zu came from one of two roots", k);
    return comm_barrier(comm);
}

TEST_WITH(test_broadcast_from_two_roots, fake_as_new, NULL)
{
    Group g = {.body = two_roots, .groups = 2};
    g.config.master = "127.0.0.1";
    g.config.port = free_port();
    group_live(&g, 4, 4);
    all_well(&g);
    group_end(&g);
}

/* Rank 3 fails; those of the other host wait for it in a sum. */
static Status one_fails(Comm *comm, Device *device, float *grads, int rank, Seen *seen)
{
    TRY(device->backend->fill(device, grads, 1, COUNT));
    if (rank == 3) return FAIL(ERR_IO, "an error of its own");
    TRY(comm_allreduce_begin(comm, rank, 0, grads, COUNT));
    TRY(comm_allreduce_end(comm, 0, grads, COUNT));
    return comm_barrier(comm);
}

TEST_WITH(test_error_on_another_host, fake_as_new, NULL)
{
    Group g = {.body = one_fails, .groups = 2};
    g.config.master = "127.0.0.1";
    g.config.port = free_port();
    group_live(&g, 4, 4);
    check_reports(&g, 7, "tower process 3", "tower process 3");
    group_end(&g);
}

/* The first memory after the device's own is the communicator's: the leaders have met, and wait for the NCCL id. */
static void start_failing_after_meeting(int rank)
{
    Device device = {0};
    DeviceConfig config = {DEVICE_USUAL, .threads = 1, .deterministic = true};
    if (rank != 2 || cuda_backend.open(&config, &device) != OK) return;
    int64_t own = fake_gpu_count("cudaMalloc");
    cuda_backend.close(&device);
    fake_gpu_fail_named("cudaMalloc", own + 1);
}

TEST_WITH(test_open_that_fails_on_another_host, fake_as_new, NULL)
{
    Group g = {.body = rounds, .groups = 2, .on_start = start_failing_after_meeting};
    g.config.master = "127.0.0.1";
    g.config.port = free_port();
    group_live(&g, 8, 4);
    assert_string_equal(g.seen->failed[2], "cudaMalloc");
    assert_non_null(strstr(g.seen->message[2], "cudaMalloc"));
    check_reports(&g, 11, "tower process 2", "tower process 2");
    group_end(&g);
}

/* A tower a rank: the same gradients summed up where they lie, and then to somewhere else. */
static Status summed_twice(Comm *comm, Device *device, float *grads, int rank, Seen *seen)
{
    Status st = OK;
    void *other = NULL;
    float host[COUNT];
    int tower = comm_config(comm)->place.first_tower;
    for (size_t i = 0; i < COUNT; i++) host[i] = gift(tower, i);
    TRY(device->backend->alloc(device, sizeof host, &other));
    for (int round = 0; round < 2; round++) {
        float *to = round ? other : grads;
        TRY_OUT(device->backend->upload(device, grads, host, sizeof host));
        fake_gpu_counts_clear();
        TRY_OUT(comm_allreduce_begin(comm, tower, 0, grads, COUNT));
        TRY_OUT(comm_allreduce_end(comm, 0, to, COUNT));
        if (round == 0) seen->copies[rank] = fake_gpu_count("cudaMemcpyAsync");
        TRY_OUT(device->backend->download(device, round ? seen->again[rank] : seen->sum[rank], to, sizeof host));
        TRY_OUT(device->backend->finish(device, STREAM_COMPUTE));
    }
    if (comm_allreduce_end(comm, 0, grads, COUNT) != ERR_INTERNAL ||
        comm_allreduce_begin(comm, tower, 0, host, COUNT) != ERR_INTERNAL)
        TRY_OUT(FAIL(ERR_ARG, "a sum that nobody gave, or host memory that has no room, is taken"));
    st = comm_barrier(comm);
out:
    device->backend->release(device, other);
    return st;
}

TEST_WITH(test_sums_in_place, fake_as_new, NULL)
{
    gift_factor = 1;
    for (int ranks = 1; ranks <= 4; ranks++) {
        Group g = {.body = summed_twice};
        group_live(&g, ranks, ranks);
        all_well(&g);
        for (int r = 0; r < ranks; r++) {
            assert_int_equal(g.seen->copies[r], 0);
            assert_memory_equal(g.seen->sum[r], g.seen->again[0], sizeof g.seen->again[0]);
        }
        for (size_t i = 0; i < COUNT; i++) {
            double wanted = 0, size = 0;
            for (int t = 0; t < ranks; t++) wanted += (double)gift(t, i), size += fabs((double)gift(t, i));
            assert_true(fabs((double)g.seen->sum[0][i] - wanted) <= 1e-6 * size);
        }
        group_end(&g);
    }
}

/* No second buffer for a tower a rank: that of the extras and that of large broadcasts alone; and the plan says what is taken. */
TEST_WITH(test_memory_of_a_sum, fake_as_new, NULL)
{
    const size_t relay = COMM_RELAY_BYTES, extras = EXTRAS * sizeof(float), all = COUNT * sizeof(float) + extras,
                 chunks = 544 * sizeof(float); /* of half the round, and 16 bytes more for each of its ranges */
    struct {
        CommConfig config;
        int towers, ranks;
        size_t bytes;
    } cases[] = {
        {{.staged = 0}, 2, 2, relay + extras},
        {{.staged = 10}, 2, 2, relay + extras + 10 * sizeof(float)},
        {{.reduce = DTYPE_BF16}, 2, 2, relay + extras + COUNT * 2},
        {{.staged = 0}, 3, 1, all + extras},     /* the sum of the first towers, and what one brings from the host */
        {{.ordered = true}, 3, 1, all + extras}, /* likewise */
        {{.ordered = true}, 3, 2, relay + extras + (2 + 2) * chunks},
        {{.ordered = true}, 8, 2, relay + extras + 3 * ((all + 63) / 64 * 64) + (4 + 2) * chunks},
    };
    gift_factor = 1;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        Group g = {.body = rounds, .config = cases[k].config};
        group_live(&g, cases[k].towers, cases[k].ranks);
        all_well(&g);
        if (g.seen->taken[0] != cases[k].bytes || g.seen->planned[0] != cases[k].bytes)
            fail_msg("case %zu: %zu bytes are taken, %zu planned, %zu wanted", k, g.seen->taken[0], g.seen->planned[0],
                     cases[k].bytes);
        group_end(&g);
    }
}

/* The schedules detect a sum that does not wait for the gradients: its result is wrong. */
static Status rounds_without_waits(Comm *comm, Device *device, float *grads, int rank, Seen *seen)
{
    fake_gpu_ignore_waits(true);
    return rounds(comm, device, grads, rank, seen);
}

TEST_WITH(test_missing_wait_is_noticed, fake_as_new, NULL)
{
    gift_factor = 1;
    for (int ordered = 0; ordered < 2; ordered++) {
        Group right = {.body = rounds, .config.ordered = ordered};
        Group wrong = {.body = rounds_without_waits, .config.ordered = ordered};
        group_live(&right, 2, 2);
        group_live(&wrong, 2, 2);
        all_well(&right);
        all_well(&wrong);
        assert_memory_not_equal(right.seen->sum[0], wrong.seen->sum[0], COUNT * sizeof(float));
        group_end(&right);
        group_end(&wrong);
    }
}

TEST_WITH(test_sums_in_16_bits, fake_as_new, NULL)
{
    gift_factor = 1;
    Group g = {.body = rounds, .config.reduce = DTYPE_BF16};
    group_live(&g, 5, 3);
    all_well(&g);
    check_sums(&g, 0.02);
    group_end(&g);

    gift_factor = 0.07f; /* up to 37000 each: four of them do not fit into f16, their mean does */
    g = (Group){.body = rounds, .config.reduce = DTYPE_F16};
    group_live(&g, 4, 4);
    all_well(&g);
    check_sums(&g, 0.003);
    group_end(&g);
}

/* ---- in tower order */

/* Of a range of `count`: the floats of a rank's chunk, and how many of them the range fills. */
static int chunk_floats(int count, int ranks)
{
    return (count + 4 * ranks - 1) / (4 * ranks) * 4;
}

static int chunk_filled(int count, int ranks, int rank)
{
    int each = chunk_floats(count, ranks), left = count - rank * each;
    return left < 0 ? 0 : left < each ? left : each;
}

/* What a rank receives: its chunks of the towers of others, and the sums of their chunks; and in how many launches it adds. */
static void check_traffic(const Group *g, int rank)
{
    static const int counts[] = {CUT, COUNT - CUT, EXTRAS};
    int towers = g->config.towers, ranks = g->ranks,
        others = towers - ((rank + 1) * towers / ranks - rank * towers / ranks);
    int64_t floats = 0, launches = 0;
    for (int k = 0; k < 3; k++) {
        int filled = chunk_filled(counts[k], ranks, rank);
        floats += others * filled + (ranks - 1) * chunk_floats(counts[k], ranks);
        launches += filled ? (towers - 2) / (OP_MAX_IN - 1) + 1 : 0;
    }
    assert_int_equal(g->seen->received[rank], floats * (int64_t)sizeof(float));
    assert_int_equal(g->seen->added[rank], launches);
    assert_int_equal(g->seen->misaligned[rank], 0);
}

/* The towers' contributions to the last round, added one after another. */
static void sum_in_order(int towers, float *sum)
{
    static const float extras[EXTRAS] = {1, 2, 3, 16777216, 5};
    for (int t = 0; t < towers; t++)
        for (size_t i = 0; i < COUNT + EXTRAS; i++) {
            float given = i < COUNT ? gift_factor * gift(t + 7, i) : extras[i - COUNT];
            sum[i] = t ? sum[i] + given : given;
        }
}

/* The same bits on any number of ranks; with a tower on each of eight less than a third of what all contributions would be. */
TEST_WITH(test_ordered_sums_have_the_same_bits, fake_as_new, NULL)
{
    static const int mappings[][2] = {{8, 1}, {8, 2}, {8, 3}, {8, 4}, {8, 8}, {5, 1}, {5, 3}, {5, 4}, {19, 7}, {2, 2}};
    float wanted[COUNT + EXTRAS];
    gift_factor = 1;
    for (size_t m = 0; m < sizeof mappings / sizeof *mappings; m++) {
        Group g = {.body = rounds, .config.ordered = true};
        group_live(&g, mappings[m][0], mappings[m][1]);
        all_well(&g);
        check_sums(&g, 1e-6);
        sum_in_order(g.config.towers, wanted);
        for (int r = 0; r < g.ranks; r++) {
            assert_memory_equal(g.seen->sum[r], wanted, sizeof wanted);
            assert_true(g.seen->taken[r] <= g.seen->planned[r]);
            if (g.ranks > 1) check_traffic(&g, r);
        }
        if (g.ranks == 8) assert_true(g.seen->received[0] < (int64_t)(7 * sizeof wanted / 3));
        group_end(&g);
    }
    Group fast = {.body = rounds};
    group_live(&fast, 8, 4);
    all_well(&fast);
    sum_in_order(8, wanted);
    assert_memory_not_equal(wanted, fast.seen->sum[0], COUNT * sizeof *wanted); /* or order would not matter here */
    group_end(&fast);
}

/* Ranges in another order than that of their elements, one of which begins anew while others are in progress. */
static Status ranges_mixed(Comm *comm, Device *device, float *grads, int rank, Seen *seen)
{
    static const size_t range[][2] = {{300, 200}, {0, 3}, {3, 297}};
    int tower = comm_config(comm)->place.first_tower;
    float host[COUNT];
    for (size_t i = 0; i < COUNT; i++) host[i] = gift_factor * gift(tower + 7, i);
    TRY(device->backend->upload(device, grads, host, sizeof host));
    for (int k = 0; k < 3; k++) TRY(comm_allreduce_begin(comm, tower, range[k][0], grads + range[k][0], range[k][1]));
    for (int k = 0; k < 50; k++) {
        TRY(comm_allreduce_end(comm, 0, grads, 3));
        TRY(device->backend->upload(device, grads, host, 3 * sizeof *host));
        TRY(comm_allreduce_begin(comm, tower, 0, grads, 3));
    }
    for (int k = 2; k >= 0; k--) TRY(comm_allreduce_end(comm, range[k][0], grads + range[k][0], range[k][1]));
    TRY(device->backend->download(device, seen->sum[rank], grads, sizeof host));
    TRY(device->backend->finish(device, STREAM_COMPUTE));
    return comm_barrier(comm);
}

TEST_WITH(test_ordered_ranges_in_progress, fake_as_new, NULL)
{
    float wanted[COUNT + EXTRAS];
    gift_factor = 1;
    sum_in_order(3, wanted);
    Group g = {.body = ranges_mixed, .config.ordered = true};
    group_live(&g, 3, 3);
    all_well(&g);
    for (int r = 0; r < 3; r++) assert_memory_equal(g.seen->sum[r], wanted, COUNT * sizeof *wanted);
    group_end(&g);
}

TEST_WITH(test_library_without_memory, fake_as_new, NULL)
{
    gift_factor = 1;
    fake_gpu_nccl_version(NCCL_VERSION(2, 18, 5));
    Group g = {.body = rounds};
    group_live(&g, 2, 2);
    all_well(&g);
    check_sums(&g, 1e-6);
    assert_int_equal(g.seen->registered[0], 0);
    group_end(&g);
}

/* ---- what NCCL knows of memory */

static int version_of[2]; /* of each rank's library */
static GpuWindows windows_of[2];

static void start_libraries(int rank)
{
    fake_gpu_nccl_version(version_of[rank]);
    fake_gpu_windows(windows_of[rank]);
}

/* Two ranks sum well, and say `text` of how. */
static void check_reported_as(bool any_order, const char *text)
{
    Group g = {.body = rounds, .on_start = start_libraries, .any_order = any_order};
    group_live(&g, 2, 2);
    all_well(&g);
    check_sums(&g, 1e-6);
    for (int r = 0; r < 2; r++)
        if (!strstr(g.seen->text[r], text)) fail_msg("rank %d: '%s', not '%s'", r, g.seen->text[r], text);
    group_end(&g);
}

static void libraries(int version, int other, GpuWindows windows, GpuWindows others)
{
    version_of[0] = version;
    version_of[1] = other;
    windows_of[0] = windows;
    windows_of[1] = others;
}

/* The best way that all ranks can: NCCL would wait for ever where they differ. */
TEST_WITH(test_windows_and_what_replaces_them, fake_as_new, NULL)
{
    const int newest = FAKE_GPU_NCCL_VERSION, without_windows = NCCL_VERSION(2, 26, 2),
              deaf_windows = NCCL_VERSION(2, 29, 3), without_memory = NCCL_VERSION(2, 18, 5);
    gift_factor = 1;
    libraries(newest, newest, GPU_WINDOWS_MADE, GPU_WINDOWS_MADE);
    check_reported_as(true, "sums the gradients in place, in a symmetric window");
    check_reported_as(false, "registered memory"); /* their kernels do not heed NCCL_ALGO */
    libraries(newest, newest, GPU_WINDOWS_NONE, GPU_WINDOWS_NONE);
    check_reported_as(true, "registered memory");
    libraries(newest, newest, GPU_WINDOWS_REFUSED, GPU_WINDOWS_REFUSED);
    check_reported_as(true, "registered memory");
    libraries(newest, newest, GPU_WINDOWS_MADE, GPU_WINDOWS_NONE);
    check_reported_as(true, "registered memory");
    libraries(newest, without_windows, GPU_WINDOWS_MADE, GPU_WINDOWS_MADE);
    check_reported_as(true, "registered memory");
    libraries(deaf_windows, deaf_windows, GPU_WINDOWS_MADE,
              GPU_WINDOWS_MADE); /* their kernels would not heed an abort */
    check_reported_as(true, "registered memory");
    libraries(newest, without_memory, GPU_WINDOWS_MADE, GPU_WINDOWS_MADE);
    check_reported_as(true, "unregistered memory");
}

/* A refusal that comes late leaves no communicator to go on with: all ranks report it, and what does without. */
TEST_WITH(test_window_refused_late, fake_as_new, NULL)
{
    gift_factor = 1;
    for (int late = 1; late < 4; late++) {
        Group g = {.body = rounds, .on_start = start_libraries, .any_order = true};
        libraries(FAKE_GPU_NCCL_VERSION, FAKE_GPU_NCCL_VERSION, late & 1 ? GPU_WINDOWS_REFUSED_LATE : GPU_WINDOWS_MADE,
                  late & 2 ? GPU_WINDOWS_REFUSED_LATE : GPU_WINDOWS_MADE);
        group_live(&g, 2, 2);
        check_reports(&g, 3, "NCCL_WIN_ENABLE=0", "left the run; the others");
        group_end(&g);
    }
}

/* A step that ends in between: its kernels still use the memory that is given back. */
static Status left_in_between(Comm *comm, Device *device, float *grads, int rank, Seen *seen)
{
    TRY(device->backend->fill(device, grads, 1, COUNT));
    TRY(comm_allreduce_begin(comm, comm_config(comm)->place.first_tower, 0, grads, COUNT));
    TRY(device->backend->fill(device, grads, 2, COUNT));
    return FAIL(ERR_COMM, "rank %d has had enough", rank);
}

TEST_WITH(test_memory_outlives_its_kernels, fake_as_new, NULL)
{
    Group g = {.body = left_in_between, .any_order = true};
    group_live(&g, 2, 2);
    check_reports(&g, 3, "has had enough", "left the run; the others");
    group_end(&g);
}

static const char *failing;
static unsigned failing_ranks;

static void start_with_failing_call(int rank)
{
    if (failing_ranks >> rank & 1) fake_gpu_fail_named(failing, 1);
}

/* Each call fails once, on one rank or on both: the sums are right, or all ranks report it. */
TEST_WITH(test_failing_calls_about_memory, fake_as_new, NULL)
{
    static const char *const calls[] = {
        "ncclGetVersion",           "ncclMemAlloc",     "ncclMemFree",       "ncclCommWindowRegister",
        "ncclCommWindowDeregister", "ncclCommRegister", "ncclCommDeregister"};
    gift_factor = 1;
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
        for (int any_order = 0; any_order < 2; any_order++) {
            for (failing_ranks = 1; failing_ranks < 4; failing_ranks++) {
                Group g = {.body = rounds, .on_start = start_with_failing_call, .any_order = any_order};
                failing = calls[k];
                group_live(&g, 2, 2);
                if (any_order && !strcmp(failing, "ncclCommWindowRegister") && failing_ranks != 3) {
                    check_reports(&g, 3, failing, "left the run; the others");
                } else {
                    all_well(&g);
                    check_sums(&g, 1e-6);
                }
                group_end(&g);
            }
        }
    }
}

/* ---- roots */

/* Which ranks make unique ids: the first of each part into which NCCL divides the ranks; only the first one if a library lacks
 * ncclCommInitRankScalable. */
TEST_WITH(test_several_roots, fake_as_new, NULL)
{
    const int newest = FAKE_GPU_NCCL_VERSION;
    static const struct {
        int ranks, root_ranks, groups, version;
        unsigned makers;
    } cases[] = {{4, 0, 1, 0, 1},
                 {4, 4, 1, 0, 1},
                 {4, 3, 1, 0, 1 | 4},
                 {4, 1, 1, 0, 15},
                 {3, 2, 1, 0, 1 | 4},
                 {4, 2, 2, 0, 1 | 4},
                 {2, 1, 1, NCCL_VERSION(2, 22, 3), 1}};
    gift_factor = 1;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        Group g = {.body = rounds, .groups = cases[k].groups, .config.root_ranks = cases[k].root_ranks};
        if (cases[k].groups > 1) {
            g.config.master = "127.0.0.1";
            g.config.port = free_port();
        }
        libraries(newest, cases[k].version ? cases[k].version : newest, GPU_WINDOWS_MADE, GPU_WINDOWS_MADE);
        if (cases[k].ranks == 2) g.on_start = start_libraries;
        group_live(&g, cases[k].ranks, cases[k].ranks);
        all_well(&g);
        check_sums(&g, 1e-6);
        for (int r = 0; r < g.ranks; r++) {
            assert_int_equal(g.seen->ids[r], cases[k].makers >> r & 1);
            assert_int_equal(g.seen->by_roots[r], cases[k].makers != 1);
        }
        group_end(&g);
    }
}

/* A root that makes no id ends all. */
TEST_WITH(test_root_that_fails, fake_as_new, NULL)
{
    Group g = {.body = rounds, .on_start = start_with_failing_call, .config.root_ranks = 2};
    failing = "ncclGetUniqueId";
    failing_ranks = 4;
    group_live(&g, 4, 4);
    check_reports(&g, 15, "ncclGetUniqueId", "left the run; the others");
    group_end(&g);
}

/* Questions that have an answer all the same, and calls at the end. */
static bool may_fail(const char *call)
{
    static const char *const calls[] = {"cudaMemGetInfo", "cudaDeviceSynchronize", "ncclGetVersion",
                                        "ncclMemAlloc",   "ncclCommGetAsyncError", "ncclCommFinalize"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(call, calls[i]) == 0) return true;
    return strstr(call, "Destroy") || strstr(call, "Free") || strstr(call, "Deregister");
}

enum { ASKED = 1 << 18, MOST = 24 /* of a name: events are made by the hundred */ };

static char *asked; /* [ASKED], shared with the ranks: the calls of the second one */
static int64_t failing_nth;

static void start_written_down(int rank)
{
    if (rank == 1) fake_gpu_log(asked, ASKED);
}

static void start_failing_second(int rank)
{
    if (rank == 1) fake_gpu_fail_named(failing, failing_nth);
}

static Status one_sum(Comm *comm, Device *device, float *grads, int rank, Seen *seen)
{
    float extras[EXTRAS] = {1};
    int tower = comm_config(comm)->place.first_tower;
    TRY(comm_allreduce_begin(comm, tower, 0, grads, COUNT));
    TRY(comm_allreduce_begin(comm, tower, COUNT, extras, EXTRAS));
    TRY(comm_allreduce_end(comm, 0, grads, COUNT));
    TRY(comm_allreduce_end(comm, COUNT, seen->sum[rank], EXTRAS));
    TRY(device->backend->finish(device, STREAM_COMPUTE));
    return comm_barrier(comm);
}

/* The nth call of this name fails on one of two ranks: both are well, or both report it. False if there are fewer. */
static bool check_failing(bool ordered, const char *name, int64_t nth)
{
    Group g = {.body = one_sum, .on_start = start_failing_second, .any_order = true, .config.ordered = ordered};
    failing = name;
    failing_nth = nth;
    group_live(&g, 2, 2);
    const Seen *seen = g.seen;
    bool reached = seen->failed[1][0] || seen->status[1] == ERR_DEVICE; /* one that did not open leaves no name */
    bool well[2] = {seen->status[0] == OK, seen->status[1] == OK};
    if (well[0] != well[1] || seen->alive[0] || seen->alive[1] || seen->status[1] == STATUS_COUNT)
        fail_msg("call %" PRId64 " of %s: status %d and %d ('%s'), %d and %d objects left", nth, name,
                 (int)seen->status[0], (int)seen->status[1], seen->message[1], seen->alive[0], seen->alive[1]);
    if (well[1] && reached && !may_fail(name)) fail_msg("call %" PRId64 " of %s: nobody noticed", nth, name);
    group_end(&g);
    return reached;
}

/* From opening the device over windows and sums to the end: every call of a rank, but how often it asks. */
static int check_every_call(bool ordered)
{
    char *name, *rest;
    int checked = 0;
    Group g = {.body = one_sum, .on_start = start_written_down, .any_order = true, .config.ordered = ordered};
    asked = mmap(NULL, ASKED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(asked != MAP_FAILED);
    group_live(&g, 2, 2);
    all_well(&g);
    group_end(&g);
    for (rest = asked; (name = strsep(&rest, "\n")) && *name;) {
        bool is_question = !strcmp(name, "ncclCommGetAsyncError") || !strcmp(name, "cudaEventQuery");
        bool again = false;
        for (const char *before = asked; before < name && !again; before += strlen(before) + 1)
            again = strcmp(before, name) == 0;
        int64_t most = again ? 0 : is_question ? 3 : MOST;
        for (int64_t nth = 1; nth <= most && check_failing(ordered, name, nth); nth++) checked++;
    }
    munmap(asked, ASKED);
    print_message("  %d calls\n", checked);
    return checked;
}

TEST_WITH(test_every_call_of_one_rank, fake_as_new, NULL)
{
    int fast = check_every_call(false);
    assert_true(fast > 40);
    assert_true(check_every_call(true) > fast); /* messages, and a sum of its own */
}

/* Whole trainings: the mapping of towers to GPUs leaves no trace. */
TEST_WITH(test_ordered_training, fake_as_new, NULL)
{
    double first[GPU_RUN_STEPS + 1];
    for (int ranks = 1; ranks <= 8; ranks += ranks < 4 ? 1 : 4) {
        GpuRun run;
        gpu_run_open(&run, 8, ranks);
        run.job.comm.ordered = true;
        if (gpu_run_live(&run) != OK) fail_msg("%d ranks: %s", ranks, run.seen->rank[0].message);
        if (ranks == 1) memcpy(first, run.seen->loss, sizeof first);
        for (int s = 1; s <= 4; s++)
            if (memcmp(&first[s], &run.seen->loss[s], sizeof *first))
                fail_msg("step %d on %d ranks: %.17g instead of %.17g", s, ranks, run.seen->loss[s], first[s]);
        gpu_run_close(&run);
    }
}

/* ---- leaving */

static Status broken_on_one(Comm *comm, Device *device, float *grads, int rank, Seen *seen)
{
    TRY(comm_barrier(comm));
    if (rank == 1) fake_gpu_nccl_message("Duplicate GPU detected"); /* earlier, and about something else */
    if (rank == 1) fake_gpu_break_comm(ncclRemoteError);
    for (;;) TRY(rounds(comm, device, grads, rank, seen));
}

TEST_WITH(test_error_of_one_ends_all, fake_as_new, NULL)
{
    Group g = {.body = broken_on_one};
    group_live(&g, 3, 3);
    check_reports(&g, 2, "remote process exited", "remote process exited");
    if (strstr(g.seen->message[1], "let each see")) fail_msg("a remedy of another failure: %s", g.seen->message[1]);
    check_reports(&g, 5, "tower process 1 has left the run", "tower process 1 has left the run");
    group_end(&g);
}

/* An abort that is held up holds up nobody else: before it begins, the peers know and the rank has said why. */
static Seen *seen_by_all;

static void wait_for_the_others(void)
{
    int ended = 0;
    for (int i = 0; i < 100000 && ended < RANKS; i++) {
        ended = 0;
        for (int r = 0; r < RANKS; r++) ended += seen_by_all->message[r][0] != 0;
        if (ended < RANKS) usleep(1000);
    }
    seen_by_all->heard = ended;
}

static Status error_and_slow_abort(Comm *comm, Device *device, float *grads, int rank, Seen *seen)
{
    seen_by_all = seen;
    if (rank == 1) fake_gpu_on_abort(wait_for_the_others);
    return broken_on_one(comm, device, grads, rank, seen);
}

TEST_WITH(test_slow_abort_keeps_nobody, fake_as_new, NULL)
{
    Group g = {.body = error_and_slow_abort, .any_order = true};
    group_live(&g, RANKS, RANKS);
    check_reports(&g, 2, "remote process exited", "remote process exited");
    check_reports(&g, 13, "tower process 1 has left the run", "tower process 1 has left the run");
    assert_int_equal(g.seen->heard, RANKS);
    group_end(&g);
}

/* Nothing of rank 1 arrives: no sign of progress, and nobody says that it has left. */
static Status late_one(Comm *comm, Device *device, float *grads, int rank, Seen *seen)
{
    TRY(comm_barrier(comm));
    for (int i = 0; rank == 1 && i < 100000 && !seen->ready; i++) usleep(1000);
    Status st = rank == 1 ? FAIL(ERR_COMM, "late") : rounds(comm, device, grads, rank, seen);
    seen->ready = 1;
    return st;
}

TEST_WITH(test_late_one_ends_all, fake_as_new, NULL)
{
    Group g = {.body = late_one, .config.timeout_ms = 6000};
    group_live(&g, 3, 3);
    check_reports(&g, 5, "did not end within 6.0 s (--comm-timeout); nothing has passed", "left the run; the others");
    group_end(&g);
}

/* fault: F61 */
TEST_WITH(test_first_sum_that_hangs, fake_as_new, NULL)
{
    Group g = {.body = late_one, .config.timeout_ms = 600000, .config.first_ms = 3000};
    int64_t begun = clock_ns();
    group_live(&g, 2, 2);
    double seconds = (double)(clock_ns() - begun) / 1e9;
    check_reports(&g, 1, "did not end within 3.0 s (--comm-timeout waits longer); nothing has passed", NULL);
    check_reports(&g, 1, "try NCCL_P2P_DISABLE=1, then NCCL_NVLS_ENABLE=0, and check ACS and IOMMU in the BIOS;", NULL);
    if (seconds > 30) fail_msg("it took %.1f s", seconds);
    group_end(&g);
}

/* Without the self-test the first sum is that of a step, in device memory: the one who waits for its results looks. */
static Status late_in_a_step(Comm *comm, Device *device, float *grads, int rank, Seen *seen)
{
    CommWait wait = {0};
    Status st = OK;
    TRY(comm_barrier(comm));
    for (int i = 0; rank == 1 && i < 30000 && !seen->ready; i++) usleep(1000);
    if (rank == 1) return FAIL(ERR_COMM, "late");
    TRY(comm_allreduce_begin(comm, comm_config(comm)->place.first_tower, 0, grads, COUNT));
    TRY(comm_allreduce_end(comm, 0, grads, COUNT));
    do {
        st = comm_look(comm, &wait);
        usleep(1000);
    } while (st == OK && wait.left_ms > 0);
    seen->ready = 1;
    return st == OK ? FAIL(ERR_INTERNAL, "nobody says what to try") : st;
}

/* fault: F61 */
TEST_WITH(test_first_sum_of_a_step_that_hangs, fake_as_new, NULL)
{
    Group g = {.body = late_in_a_step, .config.timeout_ms = 3000};
    group_live(&g, 2, 2);
    check_reports(&g, 1, "the sum over the towers of rank 0 did not end within 3.0 s (--comm-timeout); nothing has",
                  NULL);
    check_reports(&g, 1, "try NCCL_P2P_DISABLE=1, then NCCL_NVLS_ENABLE=0, and check ACS and IOMMU in the BIOS;", NULL);
    group_end(&g);
}

enum { FIRST_MS = 500, SLOW_MS = 2000 };

static void start_slow_to_join(int rank)
{
    if (rank == 1) fake_gpu_joins_after(SLOW_MS);
}

/* Connecting them may take longer than the first sum may. */
TEST_WITH(test_slow_connections_are_waited_for, fake_as_new, NULL)
{
    Group g = {.body = one_sum, .on_start = start_slow_to_join, .config.first_ms = FIRST_MS};
    group_live(&g, 2, 2);
    all_well(&g);
    group_end(&g);
}

/* The first sum goes to device memory, where no rank waits for it; rank 1 is late for the second. */
static Status late_for_the_second(Comm *comm, Device *device, float *grads, int rank, Seen *seen)
{
    float extras[EXTRAS] = {1};
    int tower = comm_config(comm)->place.first_tower;
    TRY(comm_allreduce_begin(comm, tower, 0, grads, COUNT));
    TRY(comm_allreduce_end(comm, 0, grads, COUNT));
    TRY(device->backend->finish(device, STREAM_COMPUTE));
    TRY(comm_barrier(comm));
    if (rank == 1) usleep(SLOW_MS * 1000);
    TRY(comm_allreduce_begin(comm, tower, COUNT, extras, EXTRAS));
    TRY(comm_allreduce_end(comm, COUNT, seen->sum[rank], EXTRAS));
    return comm_barrier(comm);
}

TEST_WITH(test_second_sum_has_the_whole_time, fake_as_new, NULL)
{
    Group g = {.body = late_for_the_second, .config.first_ms = FIRST_MS};
    group_live(&g, 2, 2);
    all_well(&g);
    group_end(&g);
}

static const char *failing_words, *interface_set;

static void start_with_words(int rank)
{
    if (rank != 1) return;
    if (interface_set) setenv("NCCL_SOCKET_IFNAME", interface_set, 1);
    fake_gpu_fail_named(failing, 1);
    fake_gpu_nccl_message(failing_words);
}

/* Each of NCCL's words brings its remedy, and the other rank ends; "": it brings none. */
TEST_WITH(test_first_failures_of_nccl, fake_as_new, NULL)
{
    static const struct {
        const char *call, *said, *remedy, *interface;
    } cases[] = {
        /* fault: F62 */
        {"ncclCommInitRankConfig",
         "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401", "NCCL_NVLS_ENABLE=0"},
        /* fault: F63 */
        {"ncclCommInitRankConfig", "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 98000",
         "let each see a whole GPU of its own"},
        /* fault: F64 */
        {"ncclAllReduce",
         "Error while creating shared memory segment /dev/shm/nccl-x (size 9637888), error: No space left",
         "docker run --shm-size=1g"},
        /* fault: F65 */
        {"ncclCommInitRankConfig", "Bootstrap : no socket interface found", "unset it, or take one of 'ip -br addr'",
         "eth7"},
        {"ncclCommInitRankConfig", "Bootstrap : no socket interface found", "NCCL_SOCKET_IFNAME=NAME"},
        /* fault: F66 */
        {"ncclCommInitRankConfig", "Cuda failure 802 'system not yet initialized'",
         "systemctl status nvidia-fabricmanager"},
        {"ncclCommInitRankConfig", "no details", ""},
        {"ncclAllReduce", "attaching to shared memory segment /dev/shm/nccl-x failed: No such file or directory", ""},
    };
    gift_factor = 1;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        Group g = {.body = rounds, .on_start = start_with_words};
        failing = cases[k].call;
        failing_words = cases[k].said;
        interface_set = cases[k].interface;
        int64_t begun = clock_ns();
        group_live(&g, 2, 2);
        check_reports(&g, 2, cases[k].said, NULL);
        check_reports(&g, 2, cases[k].remedy, NULL);
        bool ends = strstr(g.seen->message[1], "): ") == NULL;
        if (ends != !*cases[k].remedy) fail_msg("'%s'", g.seen->message[1]);
        check_reports(&g, 1, "tower process 1", "tower 1");
        assert_true(clock_ns() - begun < (int64_t)20 * 1000000000);
        group_end(&g);
    }
}

/* Variables of NCCL that somebody has left in the environment. */
TEST_WITH(test_settings_left_over, fake_as_new, NULL)
{
    gift_factor = 1;
    libraries(FAKE_GPU_NCCL_VERSION, FAKE_GPU_NCCL_VERSION, GPU_WINDOWS_NONE, GPU_WINDOWS_NONE);
    setenv("NCCL_COMM_BLOCKING", "1", 1); /* without deadlines */
    check_reported_as(true, "in registered memory");
    setenv("NCCL_LOCAL_REGISTER", "0", 1);
    check_reported_as(true, "in unregistered memory");
    unsetenv("NCCL_COMM_BLOCKING");
    unsetenv("NCCL_LOCAL_REGISTER");
}

enum { TIMEOUT_MS = 3000, LATE_MS = 4500, SIGN_MS = 20 };

/* Later than the deadline, but at work. */
static Status busy_one(Comm *comm, Device *device, float *grads, int rank, Seen *seen)
{
    TRY(comm_barrier(comm));
    for (int ms = 0; rank == 1 && ms < LATE_MS; ms += SIGN_MS) {
        progress_made("busy");
        usleep(SIGN_MS * 1000);
    }
    return rounds(comm, device, grads, rank, seen);
}

TEST_WITH(test_busy_one_is_waited_for, fake_as_new, NULL)
{
    gift_factor = 1;
    Group g = {.body = busy_one, .config.timeout_ms = TIMEOUT_MS};
    group_live(&g, 3, 3);
    all_well(&g);
    check_sums(&g, 1e-6);
    group_end(&g);
}

static Status killed_one(Comm *comm, Device *device, float *grads, int rank, Seen *seen)
{
    TRY(comm_barrier(comm));
    if (rank == 1) raise(SIGKILL);
    for (;;) TRY(rounds(comm, device, grads, rank, seen));
}

TEST_WITH(test_killed_one_ends_all, fake_as_new, NULL)
{
    Group g = {.body = killed_one};
    group_live(&g, 4, 4);
    assert_int_equal(g.seen->status[1], STATUS_COUNT);
    check_reports(&g, 13, "tower process 1 has left the run", "tower process 1 has left the run");
    group_end(&g);
}

/* NCCL lacks memory: the run ends as for any other lack of memory, and says what to do. */
static const char *starved;

static void start_starved(int rank)
{
    if (rank == 1) fake_gpu_fail_memory(starved);
}

TEST_WITH(test_memory_of_nccl, fake_as_new, NULL)
{
    static const char *const calls[] = {"ncclCommInitRankConfig", "ncclAllReduce"};
    for (int i = 0; i < 2; i++) {
        GpuRun run;
        starved = calls[i];
        gpu_run_open(&run, 2, 2);
        run.on_start = start_starved;
        (void)gpu_run_live(&run);
        const char *message = run.seen->rank[1].message;
        if (run.seen->rank[1].status != ERR_MEMORY || !strstr(message, "'out of memory'): use a smaller batch") ||
            run.seen->rank[0].status != ERR_COMM)
            fail_msg("%s: '%s', rank 0: '%s'", starved, message, run.seen->rank[0].message);
        gpu_run_close(&run);
    }
}

/* A whole run of two ranks in which a call of one fails: both end, neither hangs. */
static int64_t fail_at;

static void start_failing(int rank)
{
    if (rank == 1) fake_gpu_fail_call(fail_at);
}

TEST_WITH(test_failing_rank_ends_the_run, fake_as_new, NULL)
{
    int ended = 0;
    for (fail_at = 200; fail_at < 200000; fail_at = fail_at * 5 / 3) {
        GpuRun run;
        gpu_run_open(&run, 2, 2);
        run.on_start = start_failing;
        Status st = gpu_run_live(&run);
        for (int r = 0; r < 2; r++) {
            if (run.seen->rank[r].status == STATUS_COUNT) fail_msg("call %" PRId64 ": rank %d hung", fail_at, r);
            if (run.seen->rank[r].alive) fail_msg("call %" PRId64 ": rank %d left objects", fail_at, r);
        }
        /* Rank 0 is through only if rank 1 has given its part of every sum: it may have failed behind the last. */
        if (run.seen->rank[1].status == OK && run.seen->rank[0].status != OK)
            fail_msg("call %" PRId64 " (%s): rank 0: '%s', rank 1: '%s'", fail_at, run.seen->rank[1].failed,
                     run.seen->rank[0].message, run.seen->rank[1].message);
        ended += st != OK;
        gpu_run_close(&run);
    }
    assert_true(ended >= 3);
}
