/* A run directory belongs to one trainer at a time: flock(2) on RUN/.lock, which also contains the holder's pid for
 * the error message. The kernel releases the lock however the process ends. The file itself stays, because removing it
 * would race with the next trainer. The holder of the lock may remove half-written files of dead processes. */
#pragma once

#include "towers/files/files.h"

/* While the run lasts: a sign of life of this machine. */
#define HEARTBEAT_FILE "heartbeat.json"
/* The structure of a network that was read from a file: nodes, names and shapes, without trained values. */
#define NETWORK_FILE "network.onnx"

/* Create a new run directory: `path`, or if that exists `path`-2, -3, ...; `path` receives the name taken. */
NODISCARD Status run_dir_create(char path[PATH_BYTES]);
/* Create the run directory if needed and lock it for this process: a second trainer gets ERR_ARG with the holder's pid.
 * The lock ends with run_dir_release, or when this process and all that it has forked have ended. Removes temporary
 * directories of dead processes. */
NODISCARD Status run_dir_take(const char *run_dir, int *lock);
void run_dir_release(int lock);
/* Whether a trainer holds the lock of this run directory. It never keeps a trainer from taking it. */
bool run_dir_taken(const char *run_dir);
/* The process of this machine that has taken it: the pid in its .lock, if that process has this very file open. 0: it is on another
 * machine, in another container, or another user's. */
pid_t run_dir_holder(const char *run_dir);
/* Remove the temporary files and directories of dead processes. For the holder of the lock. */
NODISCARD Status run_dir_sweep(const char *run_dir);
