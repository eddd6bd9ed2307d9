/* Host files: records that a node of rank N > 0 has written on its own host, brought to rank 0's run directory when the
 * run ends, by the control channel: rankN-samples.csv, rankN-bad-samples.csv, the call stacks and the capsules of its
 * towers.
 *
 * Threads read and write the files, because storage may delay them for any time.
 *
 * It works however the run ended, as long as both supervisors live, because the towers take no part; if the sender dies,
 * what has come of a file is removed. No message names a file (frames.h), and rank 0 takes files only of towers
 * that the sender runs, verifies every digest, and the whole capsule before it appears. A file that rank 0 has already,
 * because both see the same directory, is not sent. */
#pragma once

#include "towers/replica/job.h"

typedef struct HostFiles HostFiles;

/* On rank 0: take files from now on, in a thread. NULL and OK without a run directory; ERR_MEMORY. */
NODISCARD Status host_files_open(const TrainJob *job, HostFiles **made);
/* Takes no more, and removes what is not complete; NULL is fine. `problems` receives a line about each file that stayed on
 * its host, or one if storage does not answer, or "". */
void host_files_close(HostFiles *files, char *problems, size_t bytes);
/* On another rank: bring what has changed since then. ERR_COMM if rank 0 takes no more; ERR_IO for the first file that
 * cannot be read or is too large, after all others have been brought. */
NODISCARD Status host_files_send(const TrainJob *job, time_t since);

/* The same in a thread, which uses nothing of the job. ERR_MEMORY. */
typedef struct HostSender HostSender;
NODISCARD Status host_sender_start(const TrainJob *job, time_t since, HostSender **made);
bool host_sender_ended(HostSender *sender);
/* Its status; ERR_IO if it has not ended: then it is left alone. Frees the sender. */
NODISCARD Status host_sender_leave(HostSender *sender);
