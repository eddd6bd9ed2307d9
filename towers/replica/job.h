/* TrainJob: all settings of a training run. Filled by the command line, used by the supervisor and the tower
 * processes. */
#pragma once

#include "kernels/backend.h"
#include "nccl_sync/comm.h"
#include "nccl_sync/mean_loss.h"
#include "towers/data/loading/loader.h"
#include "towers/data/loading/local_batch.h"
#include "towers/graph/model.h"
#include "towers/graph/program.h"
#include "towers/record/metrics.h"
#include "towers/replica/ledger.h"
#include "towers/replica/offers.h"
#include "towers/replica/policy.h"
#include "towers/replica/schedule.h"

enum { GPUS_MAX = BACKEND_DEVICES_MAX };

/* The state of a run that an observer gets between two steps: the weights that an evaluation uses. All is borrowed. */
typedef struct Observation {
    int64_t step, epoch; /* completed ones */
    Device *device;
    const Layout *layout;
    float *params, *running; /* device memory */
    const char *run_dir;
    Metrics *metrics;
    double kid; /* to be filled in: of the images of a generator; NaN: not measured */
} Observation;

/* The source of training data and its transforms. */
typedef struct DataConfig {
    Transform train, eval; /* side and pad are the program's: job_transform */
    BadSamples bad;
    int64_t bad_limit; /* samples that may be skipped before the run ends; INT64_MAX: unlimited */
    int64_t memory;    /* bytes for batches read ahead, over all processes */
    int workers;       /* threads of each process */
    int window;        /* shards among which samples are shuffled; 0: the whole set */
    Sampler sampler;
    MixRule mix;
    const float *class_weight; /* borrowed: [classes of the network]; NULL: 1 each */
    bool log_samples;          /* RUN/samples.csv: the samples of each step */
} DataConfig;

/* When to write checkpoints, and how many to keep. */
typedef struct CheckpointPolicy {
    int64_t steps; /* between checkpoints; 0: every epoch */
    double minutes;
    int keep;
} CheckpointPolicy;

/* When evaluations end the run or lower the learning rate (train/stopping.h). */
typedef struct StoppingRules {
    Monitor monitor;
    int64_t stop_epoch;                         /* 0: off */
    int64_t patience;                           /* evaluations; 0: off */
    double min_delta, stop_at;                  /* stop_at < 0: off */
    int64_t plateau_patience, plateau_cooldown; /* evaluations */
    double plateau_threshold;
    ThresholdMode plateau_mode;
} StoppingRules;

typedef struct TrainJob {
    /* model and data */
    ProgramConfig program;      /* of training; evaluation differs only in `training` */
    const Source *train, *test; /* borrowed, opened before the fork; test may be NULL */
    const char *data_path;      /* their folder; NULL for synthetic data */
    DataConfig data;
    int32_t eval_batch;
    /* These are for evaluations that are no part of a training run. */
    Tta tta;
    double temperature; /* of the probabilities (temperature.h); 0: they stay as they are */
    bool keep_scores;   /* those of every sample (Ledger.score), although samples have one class */
    bool keep_logs;     /* as the logarithms of the probabilities; needs program.logits */

    /* towers */
    const Backend *backend;
    LocalBatches local_batches; /* the list is borrowed */
    DeviceConfig device;        /* of every process; its ordinal is job_device's */
    CommConfig comm;            /* timeout, reduce, ordered, ctas; the rest is job_comm's */
    int processes;              /* of the whole run: equally many on each node */
    /* A node is one supervisor and its processes (launch.h), usually a host; nodes 0 or 1: there is only this one. */
    int nodes, node;
    int node_on_host;             /* the number of this node among those that see the same GPUs */
    bool launcher_signal;         /* SIGUSR1 is no stop request: the launcher sends it for purposes of its own */
    const char *launcher;         /* where the node's rank was found; NULL without a launcher */
    const char *host;             /* the name of this host, NULL without a launcher */
    struct ControlPlane *control; /* borrowed: the channel to the other nodes; NULL without */
    int gpu[GPUS_MAX], gpu_count;
    bool near_cores;     /* each process runs on the cores near its GPU */
    bool graphs;         /* launch each step as captured graphs, on a GPU */
    size_t bucket_bytes; /* gradients per all-reduce; 0: the default */

    /* optimization */
    OptimizerHyper optimizer;
    double weight_decay;
    bool decay_all;          /* also batch norm and biases */
    const NameFactor *rates; /* borrowed [rate_count]: factors of the learning rate */
    int rate_count;
    Schedule schedule;
    SideStage sides[SIDE_STAGES]; /* [side_count] of rising sides, the last that of the network, and epochs from 0 */
    int side_count;
    int64_t unfreeze_epoch;    /* from 1: at its start the parameters of program.freeze join; 0: never */
    const char *unfrozen;      /* borrowed: after that, program.freeze, which then is NULL */
    int accumulate;            /* global batches per step; the last step of an epoch may have fewer */
    int repeats[PHASES_MAX];   /* updates of each phase in a cycle; 0: the phase's own number */
    bool same_batch;           /* all updates of a phase in a cycle take the same batch; else each takes the next */
    int64_t epochs, max_steps; /* whichever ends first; max_steps -1 = none */
    StoppingRules stopping;
    BnStats bn_stats;
    LossDivisor divisor;
    double loss_scale; /* in f16; 0: dynamic */
    uint64_t seed;

    /* checks */
    GateRules gate; /* check, skips_max (rollbacks too), clip_norm, ema_decay, bn_decay; the rest is job_gate's */
    NanPolicy nan_policy;
    bool self_test;       /* of the collectives, before the first step */
    int64_t sdc_check;    /* steps between comparisons of all replicas; 0 = never */
    SdcPolicy sdc_policy; /* when they differ */

    /* runs and records */
    const char *run_dir;
    const char *args_yaml, *env_json;      /* texts for the run directory */
    const char *survey, *survey_lines;     /* RUN/survey.json, and what the header of the run says of it; or NULL */
    const char *objects;                   /* RUN/objects.json: those of data at an address; or NULL */
    bool surveyed;                         /* all images were looked at */
    const struct json_t *settings;         /* that must match on resume: an object of texts; borrowed; NULL: none */
    const struct json_t *setting_defaults; /* the defaults of those that are options, in the same form */
    bool resume;                           /* from the newest checkpoint of run_dir, if there is one */
    const char *resume_path;               /* or from this one of another run, making run_dir a branch; NULL: none */
    const char *recipe;                    /* for the header of the run, or NULL; borrowed */
    const char *initial_weights;           /* file of weights to start from (weights_open); NULL: none */
    bool reset_head;                       /* do not load its classifiers */
    CheckpointPolicy checkpoint;
    const char *after_checkpoint;     /* borrowed: a command for each checkpoint (after_checkpoint.h); NULL: none */
    int64_t after_checkpoint_timeout; /* seconds that the end of the run waits for it */
    const char *upload;               /* borrowed: the address that the run is copied to; NULL, "none": nowhere */
    int64_t upload_timeout;           /* seconds that the end of the run waits for that */
    const char *s3_endpoint;          /* borrowed: the store; NULL: that of the environment */
    int64_t net_timeout, stall;       /* seconds without what the network should bring (transport.h) */
    Offers *offers;                   /* of checkpoints to the command or the copy; borrowed; NULL: there is none */
    int64_t max_restarts;             /* after crashes of towers (restart.h) */
    int64_t restarts;                 /* so far, of this call */
    int64_t preempt_exit; /* exit code after a signal has stopped the run and its state was saved; -1: 128 + signal */
    LossReport report;
    bool report_l2; /* add the L2 term to the displayed loss */
    int log_interval, event_interval;
    const char *prometheus; /* file with the numbers of the last step (prometheus.h); NULL: none */
    const char *mlperf_org; /* who submits, in the log of MLPerf (train/mlperf_log.h); NULL: there is none */
    MlperfDivision mlperf_division;
    double began;             /* when the program began with this job: seconds since 1970 */
    int64_t metrics_interval; /* steps between rows of metrics.jsonl; 0: 1 */
    int scalar_interval;      /* steps between TensorBoard scalars, 0: off; event_interval is that of summaries */
    int eval_interval;        /* epochs, and at the end; 0 = never */
    bool quiet, color, tty, towers_view;
    bool log_tf2016; /* console output like the original trainer's */

    /* Benchmarks: called by rank 0's process after every step; context must be shared memory if the caller reads it. The
     * ledger's rows of step - 1 are complete, those of `step` up to the all-reduce. */
    void (*on_step)(void *context, Ledger *ledger, int64_t step, double seconds, double loss);
    /* If not NULL, called by every process, with the same result in each: false ends the steps, as does a refused step.
     * leads: the process is the first of its program. */
    bool (*goes_on)(void *context, bool leads, int64_t step, double loss);
    void *on_step_context;

    /* Called by rank 0's process before the first step, at the end of each epoch, and after every `observe_cycles` cycles
     * (0: not then). Storage errors are its own affair. NULL: nobody observes. */
    Status (*observe)(void *context, Observation *observation);
    void *observe_context;
    int64_t observe_cycles;
} TrainJob;

/* Whether the second number of an evaluation says anything: with five classes or fewer, every prediction is in the top
 * five. If samples have any number of classes it is the share of samples with exactly the right ones. */
static inline bool top5_says(const TrainJob *job)
{
    return job->program.multi_label || job->program.options.classes > 5;
}

/* Values that follow from a job. A step is one update of one phase; steps count from 0. A cycle is job_repeats updates of
 * the first phase, then of the second, and so on; a step's place in it gives its phase.
 *
 * A classifier takes `accumulate` global batches of one epoch in a step. With several phases, an epoch is the least
 * number of whole cycles whose batches cover the training set; batches run on from one epoch to the next, so every
 * sample is used equally often, and an epoch of batches may end inside of a cycle. */
static inline const Phase *job_phase(const TrainJob *job, int phase)
{
    return program_phase(job->program.model, phase);
}
int job_repeats(const TrainJob *job, int phase);
int job_cycle(const TrainJob *job); /* steps */
int job_phase_of(const TrainJob *job, int64_t step);
int64_t job_batches_per_epoch(const TrainJob *job); /* of the data */
int64_t job_steps_per_epoch(const TrainJob *job);
/* The step after which frozen parameters join (--unfreeze-epoch). */
int64_t job_unfreeze_step(const TrainJob *job);
/* Bring what differs between the stages of a run, train_side, program.freeze and unfrozen, to those of a step. A stage begins
 * on new processes (restart.h). */
void job_stage(TrainJob *job, int64_t step);
/* Is the job at the stage of this step? */
bool job_stage_is(const TrainJob *job, int64_t step);
/* After `step` steps: does the next one belong to another stage? */
bool job_stage_ends(const TrainJob *job, int64_t step);
/* The first global batch that this step or a later one takes, counted from the start of the run. */
int64_t job_first_batch(const TrainJob *job, int64_t step);
/* Number of global batches that the steps before this one take. */
int64_t job_batches_before(const TrainJob *job, int64_t step);
/* Number of global batches of a step; 0: a phase that takes none, whose towers have the samples of a full batch. */
int job_step_batches(const TrainJob *job, int64_t step);
int64_t job_step_samples(const TrainJob *job, int64_t step);   /* of all towers */
int64_t job_batch_samples(const TrainJob *job, int64_t batch); /* of all towers in a global batch of images */
/* The batch of a tower in a phase that takes no images. */
Batch job_batch_without_images(const TrainJob *job, int64_t step, int tower);
int64_t job_total_steps(const TrainJob *job);
/* The key of the random numbers of a batch of step `step`, counted from 1. */
RandomKey job_random_key(const TrainJob *job, int64_t step, const Batch *batch);
static inline int job_nodes(const TrainJob *job)
{
    return job->nodes > 1 ? job->nodes : 1;
}
static inline int job_node_processes(const TrainJob *job)
{
    return job->processes / job_nodes(job);
}
int job_tower_rank(const TrainJob *job, int tower); /* the process that runs it */
/* The rank of its node. */
static inline int job_tower_node(const TrainJob *job, int tower)
{
    return job_tower_rank(job, tower) / job_node_processes(job);
}
/* The place of the process of this rank, and its towers: consecutive ones for each node, and in it for each process. */
Placement job_placement(const TrainJob *job, int rank);
/* The transform of images in training, or in evaluation. */
Transform job_transform(const TrainJob *job, bool training);
/* The device configuration of a process, the same for every command: the job's, with the index of its GPU. */
DeviceConfig job_device(const TrainJob *job, int local_rank);

/* The rules of the gate. */
GateRules job_gate(const TrainJob *job);
/* How its labels become targets. */
TargetRule job_targets(const TrainJob *job, bool training);
/* The configuration of a loader of training or evaluation data, without local batches, depth and steps. */
LoaderConfig job_loader(const TrainJob *job, bool training);
/* The communicator of the process at `place`, as far as it is known without a layout. */
CommConfig job_comm(const TrainJob *job, Placement place);
/* Floats of an evaluation's only all-reduce: values of its blocks, the confusion matrix, and stop requests. */
enum { EVAL_STOP_FIELDS = 1 };
int64_t job_eval_blocks(const TrainJob *job);
int64_t job_eval_confusion(const TrainJob *job); /* counts of (true, predicted); 0: too many classes */
int64_t job_eval_floats(const TrainJob *job);
/* Values of a block. Each is exact in f32: the loss is computed in f32, and a block has fewer than 2^24 samples. */
typedef enum BlockField { BLOCK_LOSS = 0, BLOCK_COUNT, BLOCK_TOP1, BLOCK_TOP5, BLOCK_FIELDS } BlockField;
