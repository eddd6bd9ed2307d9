/* Replica: one process's device with the weights, the optimizer's memory, and the programs that its towers run in turn.
 *
 * A tower is a batch, its loss and its batch-norm statistics; a replica is the copy of the weights that the towers of
 * one process share. With one tower a process (the usual case) the two coincide. All replicas of a run hold equal
 * weights, bit for bit. */
#ifndef TOWERS_REPLICA_REPLICA_H
#define TOWERS_REPLICA_REPLICA_H

#include "nccl_sync/comm.h"
#include "towers/data/loader.h"
#include "towers/graph/program.h"
#include "towers/replica/captured_graphs.h"

enum { REPLICA_SIZES = 2 * TOWERS_MAX + 1 /* every tower may have a batch size of its own, and a short last batch */ };

typedef struct ReplicaConfig {
    const Backend *backend;
    DeviceConfig device;
    ProgramConfig program;
    int local;                      /* towers of this process, >= 1 */
    int32_t train_n[REPLICA_SIZES]; /* distinct batch sizes, > 0; ended by 0 */
    int32_t eval_n[REPLICA_SIZES];
    OptimizerHyper optimizer;
    double weight_decay;
    bool decay_all, ema;
    bool accumulate; /* several batches make one update */
    bool capture;    /* repeat the launches of a step as captured graphs, where the device can */
    uint64_t seed;
    CommConfig sum; /* job_comm, for the memory that it takes; no towers: nothing */
} ReplicaConfig;

typedef struct StateRange {
    size_t first, count; /* elements of the STATE arena that a batch norm feeds: all but those of frozen layers */
} StateRange;

typedef struct Replica {
    /* owned */
    ReplicaConfig config;
    Device device;
    Layout *layout;
    Program *train, *eval; /* one for each batch size of config; at least one, then zeroed */
    int train_count, eval_count;
    void *arena[ARENA_COUNT];           /* PARAM, GRAD, INPUT, RESULT, SCRATCH; STATE and STAT are per tower */
    CommMemory grad_memory;             /* of ARENA_GRAD */
    float **state, **stat, **ema_state; /* [local]; device memory */
    float *slot[OPTIMIZER_SLOTS], *ema;
    float *eval_state; /* the exported statistics: what evaluation normalizes with; weights are ema if there is one,
                          else PARAM */
    float **correct;   /* [local] device: makes a batch variance unbiased, as layout->state_correct */
    OptimizerScalars *scalars; /* device */
    double *square;            /* device */
    OptimizerSegment *segments;
    int segment_count;
    CapturedGraphs *captured;
    void *half; /* 16-bit copy of PARAM, or NULL */
    bool half_stale;
    StateRange *ranges;
    int range_count;
    /* Of the batches before the last one of a step, only with config.accumulate: [local] */
    float **grad_sum;        /* summed gradients */
    float **stat_mean;       /* mean of the batch statistics */
    int *stat_count;         /* batches in it */
    float *one;              /* device: the number 1 */
    float *keep_decay;       /* device */
    const float *loss_scale; /* borrowed, device: of replica_scale; NULL: 1 */
} Replica;

/* Opens the device, builds every program, allocates everything, fills parameters and states with their
 * starting values. */
NODISCARD Status replica_create(const ReplicaConfig *config, Replica **made);
void replica_destroy(Replica *replica); /* NULL is fine */
/* Of the 16-bit copy of the weights; 0 where there is none. */
size_t replica_half_bytes(const ReplicaConfig *config, const Layout *layout);
/* What the sum over towers takes of the device, beside the gradients. */
size_t replica_sum_bytes(const ReplicaConfig *config, const Layout *layout);
/* Gradients, statistics and extras of this layout, into a communicator's config. */
void replica_sum_sized(const Layout *layout, CommConfig *sum);

Program *replica_program(Replica *replica, bool training, int32_t n); /* NULL if it was not asked for */

/* Pin the memory of a loader's pixels, from which batches will be uploaded, or, before the loader is destroyed, no
 * longer; only a matter of speed. NULL is fine. */
void replica_pin(Replica *replica, const Loader *loader, bool often);

/* Upload a batch as the input of `program`, for local tower `slot`, and bind that tower's statistics.
 * `scale`: dloss. */
NODISCARD Status replica_feed(Replica *replica, Program *program, const Batch *batch, int slot, uint64_t seed,
                              float scale);
/* PARAM was written by someone else than replica_update. */
void replica_weights_changed(Replica *replica);
/* What a forward pass found, summed over the samples. */
typedef struct LossRead {
    double sum;               /* of the loss: that of all heads, with their weights */
    double head[MODEL_HEADS]; /* with auxiliary heads: of each alone, without its weight; else 0 */
    int64_t hits[2];          /* top-1, top-5 */
} LossRead;
/* After the forward pass. */
NODISCARD Status replica_read_loss(Replica *replica, const Program *program, LossRead *read);
/* Sum of squares of f32 device memory. */
NODISCARD Status replica_square_sum(Replica *replica, const float *x, size_t count, double *sum);
/* *term (device memory) = the L2 term of the loss: sum over decayed parameters of w^2 / 2, times weight decay. */
NODISCARD Status replica_l2_term(Replica *replica, double *term);
/* A number in device memory that replica_scale multiplies the dloss of a fed program by; NULL: nothing. */
void replica_scale_by(Replica *replica, const float *scale);
NODISCARD Status replica_scale(Replica *replica, const Program *program);

/* A batch of a step with several: before the first one, after each that had samples, after each but the last (its
 * gradients), and to the gradients [first, first + count) of the last one. */
NODISCARD Status replica_keep_start(Replica *replica, int slot);
NODISCARD Status replica_keep_statistics(Replica *replica, int slot);
NODISCARD Status replica_keep_gradients(Replica *replica, int slot);
NODISCARD Status replica_add_kept(Replica *replica, int slot, size_t first, size_t count);

/* What makes element `i` of batch statistics over so many samples unbiased: n / (n - 1) for a variance, else 1. */
float replica_correct(const Replica *replica, size_t i, int64_t samples);
/* The batch statistics of a local tower are over so many samples in a full step; without it, over those of the first
 * program. */
NODISCARD Status replica_statistics_over(Replica *replica, int slot, int64_t samples);

/* Weights, slots, averages and batch-norm running statistics move in one go, as replica->scalars say, which lie in
 * device memory; nothing at all without their `commit`. `fed[slot]` tells which local towers had samples (the others'
 * statistics stay). */
NODISCARD Status replica_update(Replica *replica, const bool *fed);

#endif
