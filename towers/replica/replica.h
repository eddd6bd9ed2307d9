/* Replica: a process's device with the weights, the optimizer states, and the programs that its towers run in turn.
 *
 * A tower is a batch with its loss and its batch-norm statistics; a replica is the copy of the weights that the towers of
 * one process share. With one tower per process (the usual case) the two coincide. All replicas of a run have equal
 * weights, bit for bit. */
#pragma once

#include "nccl_sync/comm.h"
#include "towers/data/loading/loader.h"
#include "towers/graph/program.h"
#include "towers/replica/captured_graphs.h"

/* The file of a run directory, and of a capsule, with the choices of its device (Backend.choices_text). */
#define CHOICES_FILE "plans.txt"

typedef struct ReplicaConfig {
    const Backend *backend;
    DeviceConfig device;
    ProgramConfig program;
    int local; /* towers of this process, >= 1 */
    /* Borrowed by replica_begin, which copies them: distinct batch sizes, > 0, ended by 0; NULL: none. */
    const int32_t *train_n, *eval_n;
    OptimizerHyper optimizer;
    double weight_decay;
    bool decay_all, ema;
    const NameFactor *rates; /* borrowed [rate_count]: factors of the learning rate by names of parameters */
    int rate_count;
    const char *unfrozen; /* borrowed: patterns of the parameters that were frozen first (--unfreeze-epoch), or NULL */
    bool accumulate;      /* several batches make one update */
    bool capture;         /* repeat the launches of a step as captured graphs, if the device can */
    uint64_t seed;
    CommConfig sum;      /* job_comm, to account for its memory; no towers: none */
    const char *choices; /* borrowed by replica_create: those of another device (Backend.choices_text); NULL: none */
} ReplicaConfig;

typedef struct RunningRange {
    size_t first, count; /* elements of the RUNNING arena that training updates: all but those of frozen layers */
} RunningRange;

/* The elements that an update of a phase changes. */
typedef struct PhaseUpdate {
    OptimizerTrust *trust;      /* device memory [segment_count]; NULL unless the optimizer is LARS or LAMB */
    OptimizerSegment *segments; /* owned, as the next */
    RunningRange *ranges;
    int segment_count, range_count;
} PhaseUpdate;

typedef struct Replica {
    /* owned */
    ReplicaConfig config;
    int32_t *sizes; /* config.train_n and config.eval_n, which are not NULL */
    Device device;
    void **owned; /* device memory, all of it but grad_memory */
    int owned_count;
    Layout *layout;
    Program *train, *eval; /* one for each batch size of config (and in training each phase), then a zeroed one */
    int train_count, eval_count;
    int phases;
    /* PARAM, GRAD, INPUT, FOLDED, RESULT, SCRATCH; RUNNING and BATCH_STATISTICS are per tower */
    void *arena[ARENA_COUNT];
    CommMemory grad_memory; /* of ARENA_GRAD */
    /* [local], device memory: running statistics, those of the batch, running ones for `ema` */
    float **running, **batch_statistics, **ema_running;
    float *optimizer_state[OPTIMIZER_STATES], *ema;
    /* the exported statistics, used by evaluation; its weights are ema if there is one, else PARAM */
    float *eval_running;
    float **unbias;            /* [local] device: factors that make batch variances unbiased */
    int64_t *unbias_over;      /* [local] the samples for which they do so */
    OptimizerScalars *scalars; /* device */
    double *square;            /* device */
    PhaseUpdate update[PHASES_MAX];
    CapturedGraphs *captured;
    void *half;                  /* 16-bit copy of PARAM, or NULL */
    bool half_stale, fold_stale; /* of `half`, of ARENA_FOLDED */
    /* sums over the batches of a step before its last one; only with config.accumulate: [local] */
    float **grad_sum;        /* summed gradients */
    float **statistics_mean; /* mean of the batch statistics */
    /* device: 1, or 0 where the first batch has a single value a channel, and so no mean is */
    float **statistics_exist;
    int64_t *statistics_exist_over; /* the samples of that batch */
    int *statistics_count;          /* number of batches in it */
    float *one;                     /* device: the number 1 */
    float *keep_decay;              /* device */
    float unfrozen_updates;         /* updates before those of config.unfrozen */
    const GatePhase *loss_scale;    /* borrowed, device: set by replica_scale_by; NULL: 1 */
} Replica;

/* Opens the device, builds all programs, allocates all memory, and fills parameters and running statistics with their initial
 * values. */
NODISCARD Status replica_create(const ReplicaConfig *config, Replica **made);
/* replica_create in two parts, between which the device can take choices. The first opens the device and makes the layout.
 * Other functions want a built replica; one that could not be built may be destroyed. */
NODISCARD Status replica_begin(const ReplicaConfig *config, Replica **made);
NODISCARD Status replica_build(Replica *replica);
/* Make the device's choices for a batch size of training that this replica does not have. */
NODISCARD Status replica_choose_for(Replica *replica, int32_t n);
void replica_destroy(Replica *replica); /* NULL is fine */
/* Size of the 16-bit copy of the weights; 0 if there is none. */
size_t replica_half_bytes(const ReplicaConfig *config, const Layout *layout);
/* Device memory of the all-reduce, besides the gradients. */
size_t replica_sum_bytes(const ReplicaConfig *config, const Layout *layout);
/* Device memory for uploads of up to n images, if there is room. */
size_t replica_upload_bytes(const ReplicaConfig *config, int32_t n);
/* Set the sizes of gradients, statistics and extras of this layout in a communicator's config. */
void replica_sum_sized(const Layout *layout, CommConfig *sum);

/* The batch size for which the layout was made. */
int32_t replica_layout_samples(const Replica *replica);
/* NULL if it was not configured. */
Program *replica_program(Replica *replica, int phase, int32_t n); /* of training */
Program *replica_eval_program(Replica *replica, int32_t n);

/* Pin the memory of a loader's pixels, from which batches will be uploaded, or, before the loader is destroyed, no
 * longer; only a matter of speed. NULL is fine. */
void replica_pin(Replica *replica, const Loader *loader, bool often);

/* Upload a batch as the input of `program` for local tower `local`, and bind that tower's statistics. `scale`: dloss. */
NODISCARD Status replica_feed(Replica *replica, Program *program, const Batch *batch, int local, const RandomKey *key,
                              float scale);
/* Call after PARAM was written other than by replica_update. */
void replica_weights_changed(Replica *replica);
/* Bring the weights of evaluation programs that include batch norms up to date, if need be. Call before such a program runs
 * from its fold_end on. */
NODISCARD Status replica_fold(Replica *replica);
/* Results of a forward pass, summed over the samples. */
typedef struct LossRead {
    double sum;               /* of the loss */
    double term[PHASE_TERMS]; /* 0 beyond the program's last */
    int64_t correct[2];       /* top-1, top-5; 0 if nothing is predicted */
} LossRead;
/* Call after the forward pass. */
NODISCARD Status replica_read_loss(Replica *replica, const Program *program, LossRead *read);
/* Copies between the host and the device, which have ended when they return. */
NODISCARD Status replica_download(Replica *replica, void *host, const void *from, size_t bytes);
NODISCARD Status replica_upload(Replica *replica, void *to, const void *host, size_t bytes);
/* The weights, with their average, and the running statistics of every tower become these. */
NODISCARD Status replica_values_set(Replica *replica, const float *params, const float *running);
/* Sum of squares of f32 device memory. */
NODISCARD Status replica_square_sum(Replica *replica, const float *x, size_t count, double *sum);
/* *term (device memory) = the L2 term of a phase's loss: sum over its decayed parameters of w^2 / 2, times weight
 * decay. */
NODISCARD Status replica_l2_term(Replica *replica, int phase, double *term);
/* [PHASES_MAX] in device memory, by whose scale replica_scale multiplies the dloss of a fed program; NULL: none. */
void replica_scale_by(Replica *replica, const GatePhase *scale);
NODISCARD Status replica_scale(Replica *replica, const Program *program);

/* Accumulation of several batches: call before the first batch; after each batch with samples (of which later ones have no
 * more than earlier ones, so that statistics that exist are a mean over the first batches); after each batch but the last
 * (for its gradients); and for the gradients [first, first + count) of the last one. */
NODISCARD Status replica_keep_start(Replica *replica, int local);
NODISCARD Status replica_keep_statistics(Replica *replica, int local);
NODISCARD Status replica_keep_gradients(Replica *replica, int local);
NODISCARD Status replica_add_kept(Replica *replica, int local, size_t first, size_t count);

/* The values of a channel behind element `i` of batch statistics over this many samples; 0: no batch norm feeds it. */
int64_t replica_values(const Replica *replica, size_t i, int64_t samples);
/* The factor that makes element `i` of these statistics unbiased: n / (n - 1) for variances of n values, else 1. 0 where
 * there is a single value: it has no variance, and running statistics stay as they are. */
float replica_unbias(const Replica *replica, size_t i, int64_t samples);
/* Set the number of samples behind a local tower's batch statistics; by default that of the first program. Does nothing if
 * it is that already. */
NODISCARD Status replica_statistics_over(Replica *replica, int local, int64_t samples);

/* Update a phase's weights, optimizer states, averages and batch-norm running statistics together, using replica->scalars in device
 * memory; nothing changes if their `commit` is 0. `fed[local]`: local towers that had samples (the statistics of others
 * do not change). */
NODISCARD Status replica_update(Replica *replica, int phase, const bool *fed);
