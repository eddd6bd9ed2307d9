/* The variables of launchers: which set counts, what is refused, and where rank 0 is found. The sets are those that the
 * launchers' sources and manuals name; values as seen in runs of them. And the secret: where it comes from, and who has
 * the same. */
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "towers/replica/launch.h"

#include <sys/mman.h>
#include <sys/wait.h>

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
    {{OPEN_MPI}, NULL, {1, 2, 1, 2, "Open MPI (OMPI_COMM_WORLD_RANK)", true, false, "127.0.0.1", -1, 1}},
    {{HYDRA}, NULL, {1, 2, 1, 2, "Hydra (PMI_RANK)", true, true, "127.0.0.1", LAUNCH_PORT, 0}},
    {{STEP}, NULL, {5, 8, 1, 0, "Slurm (SLURM_PROCID)", false, false, "gpu07", -1, 1}},
    {{STEP, "PMIX_RANK=5"}, NULL, {5, 8, 1, 0, "Slurm (SLURM_PROCID)", true, false, "gpu07", -1, 1}},
    {{STEP, "PMI_RANK=5", "PMI_SIZE=8"}, NULL, {5, 8, 1, 0, "Hydra (PMI_RANK)", true, false, "gpu07", -1, 1}},
    /* the tasks on the node of this index; a list that contradicts the rest says nothing */
    {{STEP, "SLURM_STEP_TASKS_PER_NODE=1,2(x3),1", "SLURM_NODEID=0"},
     NULL,
     {5, 8, 1, 0, "Slurm (SLURM_PROCID)", false, false, "gpu07", -1, 1}},
    {{STEP, "SLURM_STEP_TASKS_PER_NODE=1,2(x3),1", "SLURM_NODEID=3"},
     NULL,
     {5, 8, 1, 2, "Slurm (SLURM_PROCID)", false, false, "gpu07", -1, 1}},
    {{STEP, "SLURM_STEP_TASKS_PER_NODE=2(x2),4", "SLURM_NODEID=2"},
     NULL,
     {5, 8, 1, 4, "Slurm (SLURM_PROCID)", false, false, "gpu07", -1, 1}},
    {{STEP, "SLURM_STEP_TASKS_PER_NODE=8", "SLURM_NODEID=0"},
     NULL,
     {5, 8, 1, 8, "Slurm (SLURM_PROCID)", false, false, "127.0.0.1", -1, 1}},
    {{STEP, "SLURM_STEP_TASKS_PER_NODE=8", "SLURM_NODEID=1"},
     NULL,
     {5, 8, 1, 0, "Slurm (SLURM_PROCID)", false, false, "gpu07", -1, 1}},
    {{STEP, "SLURM_STEP_TASKS_PER_NODE=2(x4", "SLURM_NODEID=1"},
     NULL,
     {5, 8, 1, 0, "Slurm (SLURM_PROCID)", false, false, "gpu07", -1, 1}},
    {{STEP, "SLURM_STEP_TASKS_PER_NODE=9", "SLURM_NODEID=0"},
     NULL,
     {5, 8, 1, 0, "Slurm (SLURM_PROCID)", false, false, "gpu07", -1, 1}},
    {{"PET_NODE_RANK=2", "PET_NNODES=3", "PET_MASTER_ADDR=job-node-0-0.job", "PET_MASTER_PORT=29500"},
     NULL,
     {2, 3, -1, 0, "Kubeflow Trainer (PET_NODE_RANK)", false, false, "job-node-0-0.job", 29501, 0}},
    {{"TOWERS_RANK=0", "TOWERS_WORLD_SIZE=2", "TOWERS_MASTER_ADDR=a", "TOWERS_MASTER_PORT=5000", "TOWERS_TOKEN=x"},
     NULL,
     {0, 2, -1, 0, "TOWERS_RANK", false, false, "a", 5000, 1}},
    /* mpirun inside of an allocation, whose step starts its daemons; torchrun inside of srun: the inner one counts */
    {{OPEN_MPI, STEP}, NULL, {1, 2, 1, 2, "Open MPI (OMPI_COMM_WORLD_RANK)", true, false, "127.0.0.1", -1, 1}},
    /* programs of one host alone need no name of it, and listen on no network */
    {{"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=node0", "MASTER_PORT=29500"},
     NULL,
     {1, 2, 1, 2, "torchrun (RANK)", false, false, "127.0.0.1", 29501, 0}},
    {{TORCHRUN, "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2"},
     NULL,
     {3, 4, 1, 2, "torchrun (RANK)", false, false, "node0", 29501, 0}},
    /* programs of a torchrun that srun --mpi=pmix has started inherit its rank, which is not theirs */
    {{TORCHRUN, "PMIX_RANK=3", "SLURM_PROCID=3", "SLURM_STEP_NUM_TASKS=5"},
     NULL,
     {3, 4, 1, 2, "torchrun (RANK)", false, false, "node0", 29501, 0}},
    /* a batch script is no node of a run; nor is the only program of a launcher */
    {{"SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_JOB_ID=1"}, NULL, {.ranks = 1, .local_rank = -1, .origin = ""}},
    {{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1"}, NULL, {.ranks = 1, .local_rank = -1, .origin = ""}},
    {{"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1"}, NULL, {.ranks = 1, .local_rank = -1, .origin = ""}},
    {{"PMI_RANK=0", "PMI_SIZE=1"}, NULL, {.ranks = 1, .local_rank = -1, .origin = ""}},
    {{"RANK=3"}, NULL, {.ranks = 1, .local_rank = -1, .origin = ""}},
    {{"TOWERS_RANK=3"}, "TOWERS_RANK is set, but TOWERS_WORLD_SIZE is not", {0}},
    {{"RANK=4095", "WORLD_SIZE=4096", "MASTER_ADDR=a", "MASTER_PORT=29500"},
     NULL,
     {4095, 4096, -1, 0, "torchrun (RANK)", false, false, "a", 29501, 0}},
    {{"RANK=0", "WORLD_SIZE=4097"}, "WORLD_SIZE is '4097', expected a whole number from 1 to 4096", {0}},
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
    {{HYDRA, "TOWERS_MASTER_PORT=65534"}, NULL, {1, 2, 1, 2, "Hydra (PMI_RANK)", true, true, "127.0.0.1", 65534, 0}},
    {{HYDRA, "TOWERS_MASTER_PORT=65535"}, "TOWERS_MASTER_PORT is '65535'", {0}},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=65533"},
     NULL,
     {0, 2, -1, 0, "torchrun (RANK)", false, false, "a", 65534, 0}},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=65534"}, "MASTER_PORT is '65534'", {0}},
};

TEST(test_cases)
{
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
        assert_int_equal(got.own_signal, c->wanted.own_signal);
        if (got.ranks == 1) continue;
        assert_int_equal(got.mpi, c->wanted.mpi);
        if (*c->wanted.master) assert_string_equal(got.master, c->wanted.master);
        if (c->wanted.port > 0) assert_int_equal(got.port, c->wanted.port);
        assert_true(got.port >= 1024 && got.port < 65536);
        if (c->wanted.job) assert_true(got.job != 0);
    }
}

/* Programs of one job have the same token and port; those of others do not. */
TEST(test_tokens)
{
    Launch a, b, other;
    char *const one[] = {OPEN_MPI, NULL};
    char *const two[] = {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
                         "OMPI_MCA_ess_base_jobid=3541303297", NULL};
    char *const three[] = {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
                           "OMPI_MCA_ess_base_jobid=3541303298", NULL};
    assert_int_equal(launch_read(one, &a), OK);
    assert_int_equal(launch_read(two, &b), OK);
    assert_int_equal(launch_read(three, &other), OK);
    assert_true(a.job == b.job && a.port == b.port);
    assert_true(a.job != other.job);
    char *const step[] = {STEP, "SLURM_STEP_ID=0", NULL};
    char *const same[] = {"SLURM_PROCID=0",    "SLURM_STEP_NUM_TASKS=8", "SLURM_STEP_NODELIST=gpu[07-09,12],login",
                          "SLURM_JOB_ID=4711", "SLURM_STEP_ID=0",        NULL};
    char *const next[] = {STEP, "SLURM_STEP_ID=1", NULL};
    assert_int_equal(launch_read(step, &a), OK);
    assert_int_equal(launch_read(same, &b), OK);
    assert_int_equal(launch_read(next, &other), OK);
    assert_true(a.job == b.job && a.port == b.port);
    assert_true(a.job != other.job && a.port != other.port);
}

/* ---- the secret */

static Status secret_of(char *const *environment, uint64_t job, Launch *launch)
{
    *launch = (Launch){.job = job};
    return launch_secret(environment, launch);
}

static bool same_secret(const Launch *a, const Launch *b)
{
    return !memcmp(&a->secret, &b->secret, sizeof a->secret);
}

TEST(test_secret_of_a_variable)
{
    Launch a, b, other;
    char *const set[] = {"TOWERS_TOKEN=a long random text", NULL}, *const else_set[] = {"TOWERS_TOKEN=another", NULL};
    assert_int_equal(secret_of(set, 5, &a), OK);
    assert_int_equal(secret_of(set, 5, &b), OK);
    assert_true(same_secret(&a, &b));
    assert_int_equal(secret_of(else_set, 5, &other), OK);
    assert_false(same_secret(&a, &other));
    assert_int_equal(secret_of(set, 6, &other), OK);
    assert_false(same_secret(&a, &other));
    assert_string_equal(a.secret_from, "TOWERS_TOKEN");
}

/* The key of mpirun counts; what Slurm puts under the same name follows from the job's number and does not. */
TEST(test_secret_of_mpirun)
{
    char home[PATH_BYTES + 8];
    Launch one, two, slurm, file;
    snprintf(home, sizeof home, "HOME=%s", scratch);
    char *const first[] = {OPEN_MPI, "OMPI_MCA_orte_precondition_transports=29cba90e0f01889d-3fb9890830110681", NULL};
    char *const next[] = {OPEN_MPI, "OMPI_MCA_orte_precondition_transports=29cba90e0f01889d-3fb9890830110682", NULL};
    char *const step[] = {STEP, "OMPI_MCA_orte_precondition_transports=0000126700000000-0000000000000000", home, NULL};
    char *const bare[] = {home, NULL};
    assert_int_equal(secret_of(first, 5, &one), OK);
    assert_int_equal(secret_of(next, 5, &two), OK);
    assert_false(same_secret(&one, &two));
    assert_string_equal(one.secret_from, "mpirun");
    assert_int_equal(secret_of(step, 5, &slurm), OK);
    assert_int_equal(secret_of(bare, 5, &file), OK);
    assert_true(same_secret(&slurm, &file));
}

/* Programs that start at once agree on the file that one of them makes, which nobody else can read; without a number of
 * the job, too, and other users have another one. */
TEST(test_secret_of_a_file)
{
    enum { PROGRAMS = 16 };
    Launch *seen = mmap(NULL, PROGRAMS * sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0),
           other;
    char home[PATH_BYTES + 32], path[PATH_BYTES];
    struct stat info;
    snprintf(home, sizeof home, "XDG_CONFIG_HOME=%s/config", scratch);
    char *const environment[] = {"HOME=/nowhere", home, NULL};
    assert_true(seen != MAP_FAILED);
    for (int i = 0; i < PROGRAMS; i++)
        if (fork() == 0) _exit(secret_of(environment, 0, &seen[i]) == OK ? 0 : 1);
    for (int i = 0, status; i < PROGRAMS; i++) {
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    for (int i = 1; i < PROGRAMS; i++) assert_true(same_secret(&seen[0], &seen[i]));
    scratch_path(path, "config/towers/token");
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(secret_of(environment, 1, &other), OK);
    assert_false(same_secret(&seen[0], &other));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(secret_of(environment, 0, &other), OK);
    assert_false(same_secret(&seen[0], &other));
    munmap(seen, PROGRAMS * sizeof *seen);
}

TEST(test_file_that_others_know)
{
    char home[PATH_BYTES + 8], path[PATH_BYTES];
    Launch launch;
    snprintf(home, sizeof home, "HOME=%s/home", scratch);
    char *const environment[] = {home, NULL}, *const homeless[] = {NULL};
    assert_int_equal(secret_of(environment, 0, &launch), OK);
    scratch_path(path, "home/.config/towers/token");
    assert_int_equal(chmod(path, 0640), 0);
    assert_fails(secret_of(environment, 0, &launch), ERR_ARG, "has mode 640, expected user");
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(secret_of(environment, 0, &launch), OK);
    assert_int_equal(truncate(path, 40), 0);
    assert_fails(secret_of(environment, 0, &launch), ERR_ARG, "does not hold a token of 64 hexadecimal digits");
    assert_fails(secret_of(homeless, 0, &launch), ERR_ARG, "set TOWERS_TOKEN to the same random text for all of them");
}

TEST(test_first_host)
{
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

TESTS_WITH(scratch_make, scratch_drop)
