/* Hosts: one run on several nodes. They meet before anything is opened, learn from rank 0 which run
 * directory and checkpoint to use, and compare their settings and data. Without a launcher every function does
 * nothing. */
#pragma once

#include "inception/job/job.h"

/* Read the launcher's variables and connect to the other programs, which have `timeout_s` to come; for `train`, `lr-find` and
 * `doctor --hosts`, which meets other builds, too (`any_build`). */
NODISCARD Status hosts_meet(const Options *options, double timeout_s, bool any_build, JobFiles *files);
/* Fill in what a job has from the channel and the launcher, if there are others. */
void hosts_join(JobFiles *files);
/* For a run whose tower processes are followed by others: start what keeps MPI meanwhile, if that connects them. */
NODISCARD Status hosts_carry(JobFiles *files);
/* Whether this program writes the records of the run, and prints: it is alone, or rank 0. */
bool hosts_lead(const JobFiles *files);
/* Choose the run directory (job_run_dir) on rank 0; the others take over its choice, and the settings of a resumed
 * run. */
NODISCARD Status hosts_run_dir(Options *options, JobFiles *files);
/* Find the programs that share this one's GPUs: those that see the same ones, wherever they run. ERR_ARG if they see
 * some of them only, or in another order. The data need not be open. */
NODISCARD Status hosts_gpus(const Options *options, JobFiles *files);
/* After job_open: compare options and data with those of rank 0. ERR_ARG names the first that differs. On CPUs also a
 * note if programs cannot connect to each other. */
NODISCARD Status hosts_compare(const Options *options, JobFiles *files);
/* host_links.c: whether the programs of a run can connect to each other, at any port, as MPI wants to. Before the fork;
 * collective. Each program listens on a free port and connects to each other one, in a run of more than 256 programs to
 * those of the 128 ranks before and behind it. `text`, on every rank: "" or the first two that cannot connect, the port,
 * the cause and the number of the other pairs. Takes NET_ATTEMPT_MS only if some cannot. */
NODISCARD Status host_links_check(ControlPlane *control, const Launch *launch, char *text, size_t bytes);
/* After rank 0 has taken the run directory: the others create theirs, unless it is the same, and print to
 * RUN/log-rankN.txt from now on. */
NODISCARD Status hosts_begin(const Options *options, JobFiles *files);
/* Report a failure to the others, and end the connections. Errors of this program, and of rank 0 if it is gone, are
 * printed to the original standard error again. */
void hosts_leave(JobFiles *files, Status status);
/* Write the message of a failure to TORCHELASTIC_ERROR_FILE, from which torchrun takes the cause. */
void hosts_error_file(Status status);
