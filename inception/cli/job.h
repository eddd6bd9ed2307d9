/* From options to a TrainJob: defaults of the model, checks that need model, data and device together, the run
 * directory. */
#ifndef TOWERS_INCEPTION_CLI_JOB_H
#define TOWERS_INCEPTION_CLI_JOB_H

#include "inception/cli/options.h"
#include "towers/files/files.h"
#include "towers/replica/job.h"

typedef struct JobFiles {
    TrainJob job;
    /* owned */
    Source *train, *test;
    char run_dir[PATH_BYTES];
    bool fresh_name; /* of run_dir: made from the time, to be taken with run_dir_create */
    char *args_yaml, *env_json, *settings;
    char resume_path[PATH_BYTES], pretrained[PATH_BYTES];
    char branch_of[PATH_BYTES]; /* the run that --resume branches off, or "" */
    char no_aux[128];           /* one line when auxiliary heads were left out because they do not fit, or "" */
    bool nothing_to_resume;     /* --resume auto found no run of this model */
    char threads[256];          /* one line when --threads are more than the cores, or "" */
    char batch[160];            /* one line when --batch-size max found one, or "" */
    char warmup[160];           /* one line when the run ends before its warm-up does, or "" */
    char unread[512];           /* one line when files of the data set are of a format that is not read, or "" */
    char why_cpu[512];          /* one line when --device auto fell back to the CPU, or "" */
} JobFiles;

/* Model, program and device part only: for info, and the start of the others. Applies the model's default settings to
 * `options` first. */
NODISCARD Status job_model(Options *options, JobFiles *files);
/* Data, towers, optimizer, schedule. `synthetic` replaces the data set by one of `synthetic` samples (0: the
 * real one). */
NODISCARD Status job_open(Options *options, int64_t synthetic, JobFiles *files);
/* job_data.c. What is done to pictures, by the options; `photos`: they are of any size. Sets the canvas too. */
void job_transforms(const Options *options, TrainJob *job, bool photos);
/* Opens the training and the test data, and tells what they mean for the network. */
NODISCARD Status job_data_open(const Options *options, int64_t synthetic, JobFiles *files);
/* job_texts.c: fills in args_yaml, env_json and settings. job_open has called it. */
NODISCARD Status job_texts(const Options *options, JobFiles *files);

/* job_run.c. The weights file that RUN or FILE means: a file itself, of a run its best (else last) weights, of a checkpoint its
 * model. */
NODISCARD Status job_weights(const char *given, char *path, size_t bytes);
/* Name (and with --resume find) the run directory, and take over the settings of the run that is resumed: before
 * job_open. Creates nothing. */
NODISCARD Status job_run_dir(Options *options, JobFiles *files);
/* Give the records of the run that this one branches off to the run directory, which is taken. */
NODISCARD Status job_branch(const JobFiles *files);
void job_close(JobFiles *files);

#endif
