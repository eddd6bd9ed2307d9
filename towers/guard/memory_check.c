/* Compare a job's needs with the memory of the machine; see memory_check.h. */
#include "towers/guard/memory_check.h"

#include "towers/guard/batch_max.h"
#include "towers/replica/tower_process.h"

#include <sys/resource.h>

enum { SIZE_TEXT = 32 };

/* Memory of one process, in bytes. */
typedef struct Needs {
    size_t arenas, training, evaluation; /* all arenas; SCRATCH of each kind of program */
} Needs;

typedef struct MemorySum {
    size_t all, largest; /* of all processes; of the process that needs most */
    Needs of_largest;
} MemorySum;

static Status programs_measure(const ReplicaConfig *c, bool training, const Layout *layout, size_t *largest,
                               size_t *scratch)
{
    ProgramConfig config = c->program;
    const int32_t *sizes = training ? c->train_n : c->eval_n;
    int phases = training ? program_phases(config.model) : 1;
    config.training = training;
    for (int i = 0; sizes[i / phases]; i++) {
        size_t bytes[ARENA_COUNT];
        config.phase = i % phases;
        TRY(program_measure(&config, sizes[i / phases], layout, c->backend, bytes));
        for (int a = 0; a < ARENA_COUNT; a++) largest[a] = bytes[a] > largest[a] ? bytes[a] : largest[a];
        *scratch = bytes[ARENA_SCRATCH] > *scratch ? bytes[ARENA_SCRATCH] : *scratch;
    }
    return OK;
}

static Status arenas_measure(const ReplicaConfig *c, const Layout *layout, Needs *needs)
{
    size_t largest[ARENA_COUNT] = {0};
    *needs = (Needs){0};
    TRY(programs_measure(c, true, layout, largest, &needs->training));
    TRY(programs_measure(c, false, layout, largest, &needs->evaluation));
    for (int a = 0; a < ARENA_COUNT; a++)
        needs->arenas += a == ARENA_RUNNING || a == ARENA_BATCH_STATISTICS ? 0 : largest[a];
    return OK;
}

static int32_t largest_of(const int32_t *sizes)
{
    int32_t n = 0;
    for (int i = 0; sizes[i]; i++) n = sizes[i] > n ? sizes[i] : n;
    return n;
}

static bool sizes_equal(const int32_t *a, const int32_t *b)
{
    while (*a && *a == *b) a++, b++;
    return *a == *b;
}

/* The processes of this program. Adjacent ones usually have the same batch sizes and are measured only once; those of evaluation are
 * the same in all. */
static Status processes_measure(const TrainJob *job, const Layout *layout, MemorySum *sum)
{
    Status st = OK;
    Needs needs = {0};
    int32_t *before = NULL, *sizes = NULL;
    *sum = (MemorySum){0};
    int first = job->node * job_node_processes(job);
    for (int rank = first; rank < first + job_node_processes(job); rank++) {
        Placement place = job_placement(job, rank);
        ReplicaConfig config;
        TRY_OUT(process_config(job, &place, &config, &sizes));
        if (!before || !sizes_equal(config.train_n, before)) TRY_OUT(arenas_measure(&config, layout, &needs));
        size_t bytes = needs.arenas + replica_rest_bytes(&config, layout, largest_of(config.train_n));
        sum->all += bytes;
        if (bytes > sum->largest) {
            sum->largest = bytes;
            sum->of_largest = needs;
        }
        free(before);
        before = sizes;
        sizes = NULL;
    }
out:
    free(before);
    free(sizes);
    return st;
}

static Status job_measure(const TrainJob *job, MemorySum *sum)
{
    Layout *layout;
    TRY(program_layout(&job->program, 1, &layout));
    Status st = processes_measure(job, layout, sum);
    layout_destroy(layout);
    return st;
}

/* A limit on address space applies to each process separately; physical memory is shared. */
static bool memory_is_shared(void)
{
    struct rlimit space;
    return getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY;
}

/* "3.2 GiB", "310 MiB". */
static const char *size_text(size_t bytes, char text[SIZE_TEXT])
{
    if (bytes >= (size_t)1 << 30)
        snprintf(text, SIZE_TEXT, "%.1f GiB", (double)bytes / (1 << 30));
    else
        snprintf(text, SIZE_TEXT, "%.0f MiB", (double)bytes / (1 << 20));
    return text;
}

static Status refuse(const TrainJob *job, const MemorySum *sum, size_t wanted, size_t free_bytes, size_t total)
{
    char processes[96] = "", advice[160], needed[SIZE_TEXT], available[SIZE_TEXT], all[SIZE_TEXT];
    if (job_node_processes(job) > 1)
        snprintf(processes, sizeof processes, " (%d processes; the largest needs %s)", job_node_processes(job),
                 size_text(sum->largest, needed));
    if (sum->of_largest.evaluation > sum->of_largest.training)
        snprintf(advice, sizeof advice, "evaluation in batches of %d needs most of it; try --eval-batch-size 1",
                 job->eval_batch);
    else
        snprintf(advice, sizeof advice, "try a smaller batch (train, bench: --batch-size max), smaller images%s",
                 job_node_processes(job) > 1 ? ", fewer --processes" : "");
    return FAIL(ERR_MEMORY, "the run needs at least %s of memory%s, but only %s of %s are free; %s",
                size_text(wanted, needed), processes, size_text(free_bytes, available), size_text(total, all), advice);
}

Status memory_check(const TrainJob *job)
{
    size_t free_bytes, total;
    Device closed = {.backend = job->backend};
    MemorySum sum;
    if (!job->backend->memory_closed) return OK;
    if (job->backend->memory(&closed, &free_bytes, &total) != OK) return OK; /* unknown */
    TRY(job_measure(job, &sum));
    size_t wanted = memory_is_shared() ? sum.all : sum.largest;
    return wanted <= free_bytes ? OK : refuse(job, &sum, wanted, free_bytes, total);
}
