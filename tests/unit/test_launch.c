/* The variables of launchers: which set counts, what is refused, and where rank 0 is found. The sets are those that the
 * launchers' sources and manuals name; values as seen in runs of them. */
#include "towers/replica/launch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define TORCHRUN                                                                                                       \
    "RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=node0", "MASTER_PORT=29500"
#define OPEN_MPI                                                                                                       \
    "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1",                                \
        "OMPI_COMM_WORLD_LOCAL_SIZE=2", "OMPI_MCA_ess_base_jobid=3541303297"
#define HYDRA "PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2", "PMI_FD=6"
#define STEP                                                                                                           \
    "SLURM_PROCID=5", "SLURM_STEP_NUM_TASKS=8", "SLURM_LOCALID=1", "SLURM_STEP_NODELIST=gpu[07-09,12],login",          \
        "SLURM_JOB_ID=4711"

typedef struct Case {
    const char *environment[16];
    const char *refused; /* part of the message; NULL: accepted */
    Launch wanted;
} Case;

static const Case cases[] = {
    {{"HOME=/root", "RANKS=4"}, NULL, {.ranks = 1, .local_rank = -1, .origin = ""}},
    {{TORCHRUN}, NULL, {3, 4, 1, 2, "torchrun (RANK)", false, false, "node0", 29501, 0}},
    {{OPEN_MPI}, NULL, {1, 2, 1, 2, "Open MPI (OMPI_COMM_WORLD_RANK)", true, true, "127.0.0.1", -1, 1}},
    {{HYDRA}, NULL, {1, 2, 1, 2, "Hydra (PMI_RANK)", true, false, "127.0.0.1", LAUNCH_PORT, 0}},
    {{STEP}, NULL, {5, 8, 1, 0, "Slurm (SLURM_PROCID)", false, true, "gpu07", -1, 1}},
    {{STEP, "PMIX_RANK=5"}, NULL, {5, 8, 1, 0, "Slurm (SLURM_PROCID)", true, true, "gpu07", -1, 1}},
    {{STEP, "PMI_RANK=5", "PMI_SIZE=8"}, NULL, {5, 8, 1, 0, "Hydra (PMI_RANK)", true, true, "gpu07", -1, 1}},
    /* the tasks on the node of this index; a list that contradicts the rest says nothing */
    {{STEP, "SLURM_STEP_TASKS_PER_NODE=1,2(x3),1", "SLURM_NODEID=0"},
     NULL,
     {5, 8, 1, 0, "Slurm (SLURM_PROCID)", false, true, "gpu07", -1, 1}},
    {{STEP, "SLURM_STEP_TASKS_PER_NODE=1,2(x3),1", "SLURM_NODEID=3"},
     NULL,
     {5, 8, 1, 2, "Slurm (SLURM_PROCID)", false, true, "gpu07", -1, 1}},
    {{STEP, "SLURM_STEP_TASKS_PER_NODE=2(x2),4", "SLURM_NODEID=2"},
     NULL,
     {5, 8, 1, 4, "Slurm (SLURM_PROCID)", false, true, "gpu07", -1, 1}},
    {{STEP, "SLURM_STEP_TASKS_PER_NODE=8", "SLURM_NODEID=0"},
     NULL,
     {5, 8, 1, 8, "Slurm (SLURM_PROCID)", false, true, "127.0.0.1", -1, 1}},
    {{STEP, "SLURM_STEP_TASKS_PER_NODE=8", "SLURM_NODEID=1"},
     NULL,
     {5, 8, 1, 0, "Slurm (SLURM_PROCID)", false, true, "gpu07", -1, 1}},
    {{STEP, "SLURM_STEP_TASKS_PER_NODE=2(x4", "SLURM_NODEID=1"},
     NULL,
     {5, 8, 1, 0, "Slurm (SLURM_PROCID)", false, true, "gpu07", -1, 1}},
    {{STEP, "SLURM_STEP_TASKS_PER_NODE=9", "SLURM_NODEID=0"},
     NULL,
     {5, 8, 1, 0, "Slurm (SLURM_PROCID)", false, true, "gpu07", -1, 1}},
    {{"PET_NODE_RANK=2", "PET_NNODES=3", "PET_MASTER_ADDR=job-node-0-0.job", "PET_MASTER_PORT=29500"},
     NULL,
     {2, 3, -1, 0, "Kubeflow Trainer (PET_NODE_RANK)", false, false, "job-node-0-0.job", 29501, 0}},
    {{"TOWERS_RANK=0", "TOWERS_WORLD_SIZE=2", "TOWERS_MASTER_ADDR=a", "TOWERS_MASTER_PORT=5000", "TOWERS_TOKEN=x"},
     NULL,
     {0, 2, -1, 0, "TOWERS_RANK", false, true, "a", 5000, 1}},
    /* mpirun inside of an allocation, whose step starts its daemons; torchrun inside of srun: the inner one counts */
    {{OPEN_MPI, STEP}, NULL, {1, 2, 1, 2, "Open MPI (OMPI_COMM_WORLD_RANK)", true, true, "127.0.0.1", -1, 1}},
    {{TORCHRUN, "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2"},
     NULL,
     {3, 4, 1, 2, "torchrun (RANK)", false, false, "node0", 29501, 0}},
    /* programs of a torchrun that srun --mpi=pmix has started inherit its rank, which is not theirs */
    {{TORCHRUN, "PMIX_RANK=3", "SLURM_PROCID=3", "SLURM_STEP_NUM_TASKS=5"},
     NULL,
     {3, 4, 1, 2, "torchrun (RANK)", false, false, "node0", 29501, 0}},
    /* a batch script is not a launched program; nor is the only program of a launcher */
    {{"SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_JOB_ID=1"}, NULL, {.ranks = 1, .local_rank = -1, .origin = ""}},
    {{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1"}, NULL, {.ranks = 1, .local_rank = -1, .origin = ""}},
    {{"RANK=3"}, NULL, {.ranks = 1, .local_rank = -1, .origin = ""}},
    {{"TOWERS_RANK=3"}, "TOWERS_RANK is set, but TOWERS_WORLD_SIZE is not", {0}},
    {{"RANK=4", "WORLD_SIZE=4"}, "RANK is '4', expected a whole number from 0 to 3", {0}},
    {{"RANK=-1", "WORLD_SIZE=4"}, "RANK is '-1'", {0}},
    {{"RANK=1x", "WORLD_SIZE=4"}, "RANK is '1x'", {0}},
    {{"RANK=0", "WORLD_SIZE=99999999999999999999"}, "WORLD_SIZE is '99999999999999999999'", {0}},
    {{"PET_NODE_RANK=0", "PET_NNODES=1:4"}, "PET_NNODES is '1:4', a range", {0}},
    {{"RANK=0", "WORLD_SIZE=2", "PMI_RANK=1", "PMI_SIZE=2", "MASTER_ADDR=a"},
     "RANK is 0 and PMI_RANK is 1, both of 2 programs",
     {0}},
    {{"PMI_RANK=0", "PMI_SIZE=2", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=1"}, "mpiexec -genv MASTER_ADDR", {0}},
    {{"TOWERS_RANK=0", "TOWERS_WORLD_SIZE=2", "TOWERS_MASTER_ADDR=a", "TOWERS_MASTER_PORT=70000"},
     "TOWERS_MASTER_PORT is '70000'",
     {0}},
    /* NCCL meets on the port behind it */
    {{HYDRA, "TOWERS_MASTER_PORT=65534"}, NULL, {1, 2, 1, 2, "Hydra (PMI_RANK)", true, false, "127.0.0.1", 65534, 0}},
    {{HYDRA, "TOWERS_MASTER_PORT=65535"}, "TOWERS_MASTER_PORT is '65535'", {0}},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=65533"},
     NULL,
     {0, 2, -1, 0, "torchrun (RANK)", false, false, "a", 65534, 0}},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=65534"}, "MASTER_PORT is '65534'", {0}},
};

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Case *c = &cases[i];
        Launch got;
        Status st = launch_read((char *const *)c->environment, &got);
        if (c->refused) {
            assert_int_equal(st, ERR_ARG);
            if (!strstr(status_message(), c->refused)) fail_msg("case %zu: '%s'", i, status_message());
            continue;
        }
        if (st != OK) fail_msg("case %zu: %s", i, status_message());
        assert_string_equal(got.origin, c->wanted.origin);
        assert_int_equal(got.rank, c->wanted.rank);
        assert_int_equal(got.ranks, c->wanted.ranks);
        assert_int_equal(got.local_rank, c->wanted.local_rank);
        assert_int_equal(got.local_ranks, c->wanted.local_ranks);
        if (got.ranks == 1) continue;
        assert_int_equal(got.mpi, c->wanted.mpi);
        if (*c->wanted.master) assert_string_equal(got.master, c->wanted.master);
        if (c->wanted.port > 0) assert_int_equal(got.port, c->wanted.port);
        assert_true(got.port >= 1024 && got.port < 65536);
        assert_int_equal(got.user_signal, c->wanted.user_signal);
        if (c->wanted.token) assert_true(got.token != 0);
    }
}

/* Programs of one job have the same token and port; those of others do not. */
static void test_tokens(void **state)
{
    (void)state;
    Launch a, b, other;
    char *const one[] = {OPEN_MPI, NULL};
    char *const two[] = {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
                         "OMPI_MCA_ess_base_jobid=3541303297", NULL};
    char *const three[] = {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
                           "OMPI_MCA_ess_base_jobid=3541303298", NULL};
    assert_int_equal(launch_read(one, &a), OK);
    assert_int_equal(launch_read(two, &b), OK);
    assert_int_equal(launch_read(three, &other), OK);
    assert_true(a.token == b.token && a.port == b.port);
    assert_true(a.token != other.token);
    char *const step[] = {STEP, "SLURM_STEP_ID=0", NULL};
    char *const same[] = {"SLURM_PROCID=0",    "SLURM_STEP_NUM_TASKS=8", "SLURM_STEP_NODELIST=gpu[07-09,12],login",
                          "SLURM_JOB_ID=4711", "SLURM_STEP_ID=0",        NULL};
    char *const next[] = {STEP, "SLURM_STEP_ID=1", NULL};
    assert_int_equal(launch_read(step, &a), OK);
    assert_int_equal(launch_read(same, &b), OK);
    assert_int_equal(launch_read(next, &other), OK);
    assert_true(a.token == b.token && a.port == b.port);
    assert_true(a.token != other.token && a.port != other.port);
}

static void test_first_host(void **state)
{
    (void)state;
    static const struct {
        const char *list, *host;
    } lists[] = {
        {"node1", "node1"},
        {"node1,node2", "node1"},
        {"gpu[07-09,12],login", "gpu07"},
        {"n[3]", "n3"},
        {"a.b-c[001-999]", "a.b-c001"},
        {"", NULL},
        {"[1-2]", "1"},
        {"n[", NULL},
        {"n[]", NULL},
        {"n[1-2", NULL},
        {"n[a]", NULL},
        {"n[1]x", NULL},
        {",a", NULL},
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        char host[16] = "?";
        Status st = launch_first_host(lists[i].list, host, sizeof host);
        assert_int_equal(st, lists[i].host ? OK : ERR_ARG);
        if (lists[i].host) assert_string_equal(host, lists[i].host);
    }
    char narrow[4];
    assert_int_equal(launch_first_host("node1", narrow, sizeof narrow), ERR_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_first_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
