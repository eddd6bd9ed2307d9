/* The entrances of the commands that main.c calls, each implemented in the file of its name. Results are printed to `to`. */
#ifndef TOWERS_INCEPTION_CLI_COMMANDS_H
#define TOWERS_INCEPTION_CLI_COMMANDS_H

#include "inception/job/job.h"
#include "towers/train/train.h"

/* bench: opens a job that trains on synthetic data unless --data-path is given, and times its steps. As train_timed. */
NODISCARD Status bench_open(Options *options, JobFiles *files);
NODISCARD Status bench_run(const Options *options, JobFiles *files, int *signal_number);
NODISCARD Status scaling_run(Options *options, JobFiles *files, int *signal_number); /* after bench_open */

/* doctor --hosts: meets the programs that a launcher has started, and prints on rank 0 what they are, the network between
 * their hosts, and what is odd. ERR_ARG if anything is, and without a launcher. */
NODISCARD Status doctor_hosts_run(Options *options, JobFiles *files, FILE *to);

/* eval: before the data are opened, the classes of the run that these weights are of; then which of them have no images. */
void eval_classes(Options *options, const char *weights, JobFiles *files);
NODISCARD Status eval_classes_note(JobFiles *files);
/* eval: prints the data to be evaluated as one line on stderr; then results to stdout, --errors and --class-scores to
 * their files. `samples` [of the test set], `scores` [of the test set][classes] or NULL, as eval_run gives them. */
void eval_introduce(const JobFiles *files);
NODISCARD Status eval_print(const Options *options, const JobFiles *files, const EvalResult *result,
                            const EvalSample *samples, const float *scores);

/* export: writes safetensors that PyTorch's load_state_dict(strict=True) accepts, or ONNX (towers/store/onnx.h).
 * job_model must have been called. */
NODISCARD Status export_run(const Options *options, const JobFiles *files, FILE *to);

NODISCARD Status fid_run(Options *options, JobFiles *files, FILE *to);
NODISCARD Status generate_run(Options *options, JobFiles *files, FILE *to);

/* models: the list of models and their variants. info: layers with output shape, parameters and multiply-adds; totals; the
 * memory plan by class in bytes, for a batch of `n`; if asked for, the op list and the kernel of each op. --dry-run:
 * towers, data, steps, and the memory plan of one tower. */
NODISCARD Status info_models(FILE *to);
NODISCARD Status info_model(const JobFiles *files, int32_t n, bool ops, bool kernels, FILE *to);
NODISCARD Status info_run(const JobFiles *files, FILE *to);

/* predict: a table, JSON lines (--json) or CSV (--csv). ERR_FORMAT if any image is damaged, after all predictions. */
NODISCARD Status predict_run(Options *options, JobFiles *files, FILE *to);

/* replay: a line for every output of every op, up to the first that is not finite, which ERR_NUMERIC names. */
NODISCARD Status replay_run(const Options *options, const char *path, FILE *to);

/* train: the observer of a generator (watch.c). watch_start does nothing for other models; it is called after job_open,
 * before the processes are forked. watch_stop accepts NULL. */
NODISCARD Status watch_start(const Options *options, JobFiles *files);
void watch_stop(Watch *watch);

#endif
