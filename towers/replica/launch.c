/* Reads the variables of launchers; see launch.h. */
#include "towers/replica/launch.h"

#include "kernels/base/text.h"

#include <ctype.h>
#include <xxhash.h>

enum {
    PORT_FIRST = 20000,
    PORT_COUNT = 12000, /* below the ports that systems give to clients */
    PORT_MAX = 65534    /* NCCL's meeting takes the one behind it */
};

/* The variables of one launcher; NULL: it has none for this. */
typedef struct Launcher {
    const char *origin, *rank, *ranks, *local_rank, *local_ranks, *master, *port;
    int port_offset; /* torchrun listens on MASTER_PORT itself */
    bool required;   /* an incomplete set is an error, because nobody else uses these names */
    bool mpi;
    bool own_signal; /* it sends SIGUSR1 to its programs: Hydra, when another one has failed */
} Launcher;

static const Launcher launchers[] = {
    {"TOWERS_RANK", "TOWERS_RANK", "TOWERS_WORLD_SIZE", "TOWERS_LOCAL_RANK", "TOWERS_LOCAL_WORLD_SIZE",
     "TOWERS_MASTER_ADDR", "TOWERS_MASTER_PORT", 0, true, false, false},
    {"torchrun (RANK)", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", 1, false,
     false, false},
    {"Kubeflow Trainer (PET_NODE_RANK)", "PET_NODE_RANK", "PET_NNODES", NULL, NULL, "PET_MASTER_ADDR",
     "PET_MASTER_PORT", 1, false, false, false},
    {"Open MPI (OMPI_COMM_WORLD_RANK)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", NULL, NULL, 0, false, true, false},
    {"Hydra (PMI_RANK)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL, NULL, 0, false, true,
     true},
    {"Slurm (SLURM_PROCID)", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL, NULL, NULL, 0, false, false,
     false},
};
enum { LAUNCHERS = sizeof launchers / sizeof *launchers, SLURM = LAUNCHERS - 1 };

const char *environment_value(char *const *environment, const char *name)
{
    size_t bytes = name ? strlen(name) : 0;
    for (char *const *entry = environment; bytes && entry && *entry; entry++)
        if (!strncmp(*entry, name, bytes) && (*entry)[bytes] == '=' && (*entry)[bytes + 1]) return *entry + bytes + 1;
    return NULL;
}

/* A whole number of least..most, or `absent` if the variable is unset. */
static Status number_of(char *const *environment, const char *name, int least, int most, int absent, int *number)
{
    const char *text = environment_value(environment, name);
    *number = absent;
    if (!text) return OK;
    char *end;
    long value = isdigit((unsigned char)*text) ? strtol(text, &end, 10) : -1;
    if (value < least || value > most || *end)
        return FAIL(ERR_ARG, "%s is '%.32s', expected a whole number from %d to %d", name, text, least, most);
    *number = (int)value;
    return OK;
}

/* The place that the variables of one launcher name; ranks 0 if they are not complete. */
static Status place_read(const Launcher *from, char *const *environment, Launch *launch)
{
    *launch = (Launch){.origin = from->origin, .local_rank = -1};
    bool has_rank = environment_value(environment, from->rank), has_ranks = environment_value(environment, from->ranks);
    if (from->required && has_rank != has_ranks)
        return FAIL(ERR_ARG, "%s is set, but %s is not; set both, or neither", has_rank ? from->rank : from->ranks,
                    has_rank ? from->ranks : from->rank);
    if (!has_rank || !has_ranks) return OK;
    const char *ranks = environment_value(environment, from->ranks);
    if (strchr(ranks, ':'))
        return FAIL(ERR_ARG,
                    "%s is '%.32s', a range, but the number of programs must not change in a run; use a number",
                    from->ranks, ranks);
    TRY(number_of(environment, from->ranks, 1, LAUNCH_RANKS_MAX, 0, &launch->ranks));
    TRY(number_of(environment, from->rank, 0, launch->ranks - 1, 0, &launch->rank));
    TRY(number_of(environment, from->local_ranks, 1, launch->ranks, 0, &launch->local_ranks));
    return number_of(environment, from->local_rank, 0, (launch->local_ranks ? launch->local_ranks : launch->ranks) - 1,
                     -1, &launch->local_rank);
}

Status launch_first_host(const char *list, char *host, size_t bytes)
{
    size_t stem = strcspn(list, ",["), number = 0;
    const char *first = list + stem;
    if (*first == '[') {
        first++;
        number = strspn(first, "0123456789");
        size_t rest = number + strspn(first + number, "0123456789,-");
        if (!number || first[rest] != ']' || (first[rest + 1] && first[rest + 1] != ','))
            return FAIL(ERR_ARG, "cannot read the list of hosts '%.64s'; set TOWERS_MASTER_ADDR to the host of rank 0",
                        list);
    }
    if (stem + number == 0 || stem + number >= bytes)
        return FAIL(ERR_ARG, "the list of hosts '%.64s' begins with no host; set TOWERS_MASTER_ADDR", list);
    memcpy(host, list, stem);
    memcpy(host + stem, first, number);
    host[stem + number] = 0;
    return OK;
}

/* Slurm's number of tasks on a node of the step, from a list such as "8(x2),3"; 0 if the list does not say. */
static int tasks_of_node(const char *list, int node)
{
    while (isdigit((unsigned char)*list)) {
        char *end;
        long tasks = strtol(list, &end, 10), nodes = 1;
        if (!strncmp(end, "(x", 2)) {
            nodes = isdigit((unsigned char)end[2]) ? strtol(end + 2, &end, 10) : 0;
            if (nodes < 1 || *end++ != ')') return 0;
        }
        if (*end && *end != ',') return 0;
        if (node < nodes) return tasks <= LAUNCH_RANKS_MAX ? (int)tasks : 0;
        node -= (int)nodes;
        list = end + (*end == ',');
    }
    return 0;
}

/* Variables that name the job: equal in all of its programs, and another in other jobs of launchers that number them.
 * The steps of a Slurm allocation have its number in common. */
static uint64_t job_number(char *const *environment, bool in_step)
{
    const char *step = in_step ? environment_value(environment, "SLURM_STEP_ID") : NULL;
    static const char *const names[] = {"TOWERS_TOKEN", "TORCHELASTIC_RUN_ID", "OMPI_MCA_ess_base_jobid",
                                        "PMIX_NAMESPACE", "SLURM_JOB_ID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = environment_value(environment, names[i]);
        if (!value) continue;
        uint64_t job = XXH3_64bits_withSeed(value, strlen(value), i);
        return step && !strcmp(names[i], "SLURM_JOB_ID") ? XXH3_64bits_withSeed(step, strlen(step), job) : job;
    }
    return 0;
}

/* Where rank 0 listens: on this host alone if all programs are here, else at a given address, else on the first host of the step. */
static Status master_find(char *const *environment, const Launcher *from, bool in_step, Launch *launch)
{
    static const char *const names[] = {"TOWERS_MASTER_ADDR", "MASTER_ADDR", "PET_MASTER_ADDR"};
    const char *nodes = environment_value(environment, "SLURM_STEP_NODELIST"),
               *host = environment_value(environment, from->master);
    for (size_t i = 0; !host && i < sizeof names / sizeof *names; i++) host = environment_value(environment, names[i]);
    if (host && strlen(host) >= sizeof launch->master)
        return FAIL(ERR_ARG, "the address of rank 0, '%.64s...', is longer than %d bytes", host, LAUNCH_HOST_BYTES - 1);
    if (launch->local_ranks == launch->ranks) /* nobody else needs to reach rank 0, whatever its host is called */
        snprintf(launch->master, sizeof launch->master, "127.0.0.1");
    else if (host)
        snprintf(launch->master, sizeof launch->master, "%s", host);
    else if (in_step && nodes)
        TRY(launch_first_host(nodes, launch->master, sizeof launch->master));
    else
        return FAIL(ERR_ARG,
                    "%s starts %d programs, not all of them on this host, and does not say where rank 0 is; set "
                    "MASTER_ADDR to that host (Open MPI: mpirun -x MASTER_ADDR=HOST, Hydra: mpiexec -genv MASTER_ADDR "
                    "HOST)",
                    from->origin, launch->ranks);
    /* One job's port, so that several jobs on a host rarely meet; if they do, the token tells them apart. */
    int port;
    TRY(number_of(environment, "TOWERS_MASTER_PORT", 1, PORT_MAX, 0, &launch->port));
    if (launch->port) return OK;
    TRY(number_of(environment, from->port, 1, PORT_MAX - from->port_offset, 0, &port));
    launch->port = port          ? port + from->port_offset
                   : launch->job ? PORT_FIRST + (int)(launch->job % PORT_COUNT)
                                 : LAUNCH_PORT;
    return OK;
}

Status launch_read(char *const *environment, Launch *launch)
{
    Launch read[LAUNCHERS];
    Launch *step = &read[SLURM];
    int chosen = -1, node;
    *launch = (Launch){.ranks = 1, .local_rank = -1, .origin = ""};
    for (int i = 0; i < LAUNCHERS; i++) {
        TRY(place_read(&launchers[i], environment, &read[i]));
        if (read[i].ranks && chosen < 0) chosen = i;
    }
    if (chosen < 0 || read[chosen].ranks == 1) return OK;
    TRY(number_of(environment, "SLURM_NODEID", 0, INT32_MAX, -1, &node));
    const char *tasks = environment_value(environment, "SLURM_STEP_TASKS_PER_NODE");
    if (tasks && node >= 0) step->local_ranks = tasks_of_node(tasks, node);
    if (step->local_ranks > step->ranks || step->local_ranks <= step->local_rank) step->local_ranks = 0; /* unknown */
    *launch = read[chosen];
    /* srun may provide for MPI, and so for Hydra's variables; mpirun in an allocation starts its daemons by srun, whose
     * step is another one. */
    bool in_step = step->ranks == launch->ranks && step->rank == launch->rank;
    launch->own_signal = launchers[chosen].own_signal && !in_step;
    for (int i = chosen; i < (in_step ? LAUNCHERS : SLURM); i++) {
        if (read[i].ranks != launch->ranks) continue;
        if (read[i].rank != launch->rank)
            return FAIL(ERR_ARG,
                        "%s is %d and %s is %d, both of %d programs; unset the variables of the launcher that did not "
                        "start this program",
                        launchers[chosen].rank, launch->rank, launchers[i].rank, read[i].rank, launch->ranks);
        launch->mpi |= launchers[i].mpi;
        if (launch->local_rank < 0) launch->local_rank = read[i].local_rank;
        if (!launch->local_ranks) launch->local_ranks = read[i].local_ranks;
    }
    int pmix; /* srun --mpi=pmix sets no other variable of MPI's; programs that a task starts inherit it */
    TRY(number_of(environment, "PMIX_RANK", 0, INT32_MAX, -1, &pmix));
    launch->mpi |= in_step && pmix == launch->rank;
    launch->job = job_number(environment, in_step);
    Text alone = text_start(launch->alone, sizeof launch->alone);
    text_add(&alone, "env");
    for (int i = 0; i < LAUNCHERS; i++)
        if (read[i].ranks > 1) text_add(&alone, " -u %s -u %s", launchers[i].rank, launchers[i].ranks);
    return master_find(environment, &launchers[chosen], in_step, launch);
}
