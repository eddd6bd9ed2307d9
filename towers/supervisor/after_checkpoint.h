/* --after-checkpoint: a command that takes checkpoints elsewhere, with rclone, rsync or any other tool, while the run goes on.
 *
 * Rank 0's supervisor forks a process that takes the newest checkpoint on offer (towers/replica/offers.h) and runs the command for it,
 * one at a time, in a session of its own: no tower and no loop of a supervisor waits for it, for its console or for storage. When the
 * supervisor has gone, however it ended, that process ends the command's process group.
 *
 * --upload is the same with a process of this program in place of the command, which copies the run to an object store
 * (towers/run_store/upload.h). */
#pragma once

#include "towers/replica/job.h"
#include "towers/train/console.h"

#define AFTER_CHECKPOINT_LOG "after_checkpoint.log"
#define UPLOAD_LOG "upload.log"

bool upload_is_on(const TrainJob *job);
/* With --upload: the place in the store becomes that of this run, before anything is trained. Errors: those of run_store_claim. */
NODISCARD Status upload_claim(TrainJob *job);

/* Fork that process and set job->offers, if the job has a command; before the towers, in rank 0's supervisor, which has taken the run
 * directory. Errors: ERR_UNSUPPORTED of a command without /bin/sh, ERR_MEMORY. */
NODISCARD Status after_checkpoint_start(TrainJob *job);
/* Warn of commands that have failed since the last look, and once if checkpoints are skipped. Waits for nothing; does nothing without
 * offers, as those below. */
void after_checkpoint_look(const TrainJob *job, Console *console);
/* A child of the supervisor has ended, and was reaped. */
void after_checkpoint_reaped(const TrainJob *job, pid_t pid);
/* The run has ended. `waits`: run the command once more, for its end, if there was a checkpoint, and wait for it, until a stop signal
 * or for job->after_checkpoint_timeout; else end a command that runs. ERR_IO if the command of the end did not succeed. */
NODISCARD Status after_checkpoint_end(const TrainJob *job, bool waits);
