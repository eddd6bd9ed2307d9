/* The commands, each implemented in the file of its name: the functions that the rows of commands.def name, which main.c
 * calls. Results are printed to `to`, which is standard output; notes and progress to standard error. `files` is empty at
 * first; main.c closes it. A signal that ends the command early goes to files->ending.signal. */
#pragma once

#include <jansson.h>

#include "inception/job/job.h"
#include "towers/supervisor/train.h"

typedef Status OpenFunction(Options *options, JobFiles *files);
typedef Status CommandFunction(const Options *options, JobFiles *files, FILE *to);
#define COMMAND(id, name, open, run, ...)                                                                              \
    NODISCARD OpenFunction open;                                                                                       \
    NODISCARD CommandFunction run;
#include "inception/options/commands.def"

/* train --lr auto, before job_open: the sweep of lr-find with the options of this run. The rate goes to options->lr, what
 * lr-find --json prints to files->lr_curve, and a signal that ended the sweep to files->ending.signal. Errors: those of
 * job_open and of training; ERR_NUMERIC if the loss falls nowhere. */
NODISCARD Status lr_auto(Options *options, JobFiles *files);
/* bench --scaling and bench --inference, after bench_open. */
NODISCARD Status scaling_run(const Options *options, JobFiles *files);
NODISCARD Status bench_inference_run(const Options *options, JobFiles *files);
/* bench --profile: runs one tower's program, of a step or of a forward pass in evaluation, several times in this process,
 * and prints the time of each op: by kind of op, and the slowest layers. The machine's peak rates are measured first. Receives all
 * ops in `made`, unless that is NULL: owned by the caller. */
NODISCARD Status profile_run(const JobFiles *files, bool inference, FILE *to, json_t **made);
/* The kernel that computes a prepared op, and why others were passed over; its name is "-" if the op has one kernel or the
 * device does not name it. */
KernelChoice kernel_chosen(Device *device, const OpCall *call);
/* eval --cam, of the most confident mistakes of an evaluation: DIR/cam.csv (rows as of mistakes.h), and for its row k, from 0,
 * DIR/00000k-mistake.png with two class maps side by side (class_maps.h): of the class that the network took the image for,
 * and of its own. Only for samples of one class; program.h says which networks have maps. */
NODISCARD Status mistake_maps_write(const Options *options, JobFiles *files, const char *weights,
                                    const EvalSample *samples);
/* doctor --hosts: meets the programs that a launcher has started, and prints on rank 0 what they are, and what is odd:
 * hosts that differ from most others, and programs that cannot connect to each other. ERR_ARG if anything is odd, and
 * without a launcher. */
NODISCARD Status doctor_hosts_run(const Options *options, JobFiles *files, FILE *to);
/* --dry-run: the weights that a run would download. */
void would_fetch_print(const JobFiles *files, FILE *to);
/* train --dry-run: how long the run would take. Nothing is printed of a model with phases. */
NODISCARD Status expected_print(const JobFiles *files, FILE *to);
/* --dry-run: towers, data, steps, and the memory plan of one tower. */
NODISCARD Status info_run(const JobFiles *files, FILE *to);

/* train: the observer of a generator (watch.c). watch_start does nothing for other models; it is called after job_open,
 * before the processes are forked. watch_stop accepts NULL. */
NODISCARD Status watch_start(const Options *options, JobFiles *files);
void watch_stop(Watch *watch);
