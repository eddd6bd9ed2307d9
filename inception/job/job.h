/* From options to a TrainJob: model defaults, checks that need model, data and device together, and the run
 * directory. */
#pragma once

#include "inception/options/options.h"
#include "nccl_sync/hosts/control.h"
#include "towers/files/files.h"
#include "towers/replica/job.h"
#include "towers/replica/launch.h"

typedef struct Watch Watch; /* watch.c */

typedef struct JobFiles {
    TrainJob job;
    /* owned */
    Source *train, *test;
    const char *part; /* of a data set, that is evaluated: "val"; NULL: all of it. Static */
    Watch *watch;     /* of a generator; else NULL */
    char run_dir[PATH_BYTES];
    bool fresh_name;      /* run_dir is a generated name with the time; create it with run_dir_create */
    int32_t *local_batch; /* [towers], of job.local_batches */
    float *class_weight;  /* [classes]; NULL: none */
    NameFactor *rates;    /* of --lr-mult and --layer-decay (rates.c), or NULL */
    char *lr_curve;       /* of --lr auto, for RUN/lr-find.json; or NULL */
    char *args_yaml, *env_json, *survey, *survey_lines;
    struct json_t *settings, *setting_defaults;
    /* Of data at an address (remote_data.h): their path on this machine, and RUN/objects.json; or NULL. */
    char *data_here, *objects;
    struct RemoteFetch *fetch; /* what brings its shards while they are read, with the keys that it uses; or NULL */
    struct S3Access *s3;
    char *resumed_settings; /* those of the run that is resumed (run_argument.h), or NULL */
    size_t resumed_bytes;
    ControlPlane *control; /* to the other programs of the run (hosts.h), or NULL */
    Carrier *carrier;      /* of that run (hosts_carry), or NULL */
    Launch launch;
    int gpu_programs, gpu_program; /* programs that see the GPUs of this one, and its number among them (hosts_gpus) */
    int console[2];                /* copies of the standard streams, which another rank redirects; -1: none */
    char resume_path[PATH_BYTES], pretrained[PATH_BYTES];
    char branch_of[PATH_BYTES]; /* the run that --resume branches off from, or "" */
    bool nothing_to_resume;     /* --resume auto found no run of this model */
    char trained[PATH_BYTES];   /* the weights whose classes those of the data must be, or "" (trained_classes.h) */
    bool uncalibrates;          /* eval: the temperature that is stored with the weights goes (--no-calibrate) */
    bool whole;                 /* the weights to be evaluated were trained with whole images (about.h: crop) */
    char notes[8192];           /* lines for the person who started the command, each with a newline */
    char settled[2048];         /* those of them that a second job of the same options would not say again (notes.h) */
    char
        would_fetch[PATH_BYTES + 256]; /* of a --dry-run: the published weights that a run would download; "" if none */
    char without_gpu[512];             /* why --device auto is the CPU; "" if it is not */
    Ending ending;                     /* how the command ended: the signal, and its code */
} JobFiles;

extern const char *program_commit; /* that the program was built from, as main.c sets it; "": unknown */

/* Model, program and device only: used by info, and as the first step of the functions below. Resolves `options` (resolve.h). */
NODISCARD Status job_model(Options *options, JobFiles *files);
/* sides.c: job->sides from --img-size-schedule. ERR_ARG if --img-size is given and is not the last side. */
NODISCARD Status job_sides(const Options *options, TrainJob *job);
/* Whether the network has the same parameters at all sides; needs the options of the model. */
NODISCARD Status job_sides_check(const TrainJob *job);
/* rates.c: factors of the learning rate from --lr-mult and --layer-decay. job->program must be complete. */
NODISCARD Status job_rates(const Options *options, JobFiles *files);
/* A pattern "MODULE.*" for each module, which is the name of a parameter up to the first dot, in the order in which the forward
 * pass first uses one of its parameters; returns their number. */
enum { RATES_MAX = 256 };
int modules_list(const Program *program, NameFactor modules[RATES_MAX]);
/* rates.c: elements of the parameters or running averages with such names (names.h); NULL: all. */
int64_t role_count(const Graph *graph, Role role, const char *names);
/* job_towers.c: towers, processes, devices and threads; and each tower's local batch. The data need not be open. */
NODISCARD Status job_towers(const Options *options, JobFiles *files);
/* The batch of each of `towers` towers, by --tower-batch, --global-batch-size or --batch-size; 1 each while that is "max". */
NODISCARD Status job_local_batches(const Options *options, int towers, JobFiles *files);
/* Data, towers, optimizer, schedule. Resolves `options`, the batch at last, which depends on all of these; then they are const.
 * `synthetic` > 0 replaces the data set by that many synthetic samples. */
NODISCARD Status job_open(Options *options, int64_t synthetic, JobFiles *files);
/* How the data of a job are read. */
SourceConfig job_source(const Options *options, const JobFiles *files, const char *path, const Model *model);
/* Channels of a network that adapts to its data: those of the weights that it starts from, if any, else `channels`. */
NODISCARD Status job_channels(const Options *options, TrainJob *job, int32_t channels);
/* Whether a data set has what --sampler and --shuffle-window need: ERR_ARG, ERR_UNSUPPORTED. */
NODISCARD Status job_order_check(const Options *options, const SourceInfo *info);
/* The part of a data set that an evaluation uses: that of --split, else what training evaluates on, else that for tests.
 * ERR_ARG if it is not there. */
NODISCARD Status job_part(const Options *options, const char *path, Split *part);
/* Where packages put Fashion-MNIST, which is used where no data are given; NULL: there is none. */
const char *job_usual_data(void);
/* Whether these are photos of any size, and so few that a default recipe is for them. */
bool job_set_is_small(const SourceInfo *info);
/* The record of `towers data convert` in the folder that it has written. */
#define CONVERSION_FILE "towers-convert.json"
/* Whether the run goes on from a state of its own, or of the run that it branches off from. */
bool job_resumes(const JobFiles *files);
/* Open training and test data, and set the properties of the network that follow from them. */
NODISCARD Status job_data_open(const Options *options, int64_t synthetic, JobFiles *files);
/* survey_record.c: what is conspicuous about the images of a training (findings.h), for the header and RUN/survey.json. Done
 * once for a state of the set; data that are no encoded images have none. */
NODISCARD Status job_survey(const Options *options, JobFiles *files);
/* class_weights.c: the weights of the classes, from --class-weights; opened data are needed. */
NODISCARD Status job_class_weights(const Options *options, JobFiles *files);
/* job_texts.c: fill in args_yaml, env_json, settings and their defaults. Called by job_open. */
NODISCARD Status job_texts(const Options *options, JobFiles *files);

/* job_run.c: find the weights file for `given`: a file itself, a run's best (else last) weights, a checkpoint's
 * model, or the name of published weights of the model, which are downloaded (cached_weights.h; `options` NULL: not). */
NODISCARD Status job_weights(const Options *options, const char *given, char *path, size_t bytes);
/* Determine the run directory (with --resume: find it) and take over the settings of a resumed run. Must precede
 * job_open. Creates nothing. */
NODISCARD Status job_run_dir(Options *options, JobFiles *files);
/* Is a run directory that another program has chosen one that this program's --output-dir, --experiment and --resume
 * mean? ERR_ARG. */
NODISCARD Status job_run_dir_check(const Options *options, const char *run_dir);
/* In the run directory, which is now locked: refuse it if another trainer has saved there since it was chosen, and copy
 * the records of the run that this one branches off from. */
NODISCARD Status job_branch(const JobFiles *files);
void job_close(JobFiles *files);
