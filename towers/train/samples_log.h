/* Which samples went where: RUN/samples.csv with --log-samples, and RUN/bad-samples.csv for those that could not be
 * decoded. Every tower process appends whole lines. A step that is run again after a resume writes its lines again; they
 * are the same, since what a batch holds follows from its number. */
#ifndef TOWERS_TRAIN_SAMPLES_LOG_H
#define TOWERS_TRAIN_SAMPLES_LOG_H

#include "towers/replica/tower_process.h"

#define BAD_SAMPLES_FILE "bad-samples.csv"

/* A batch of a step: "step,batch,tower,id id id ..." if asked for, and its bad samples. */
NODISCARD Status samples_log(TowerProcess *p, const Batch *batch, int64_t step);
/* "when,tower,id,why" for each bad sample of a batch; the first ones are also noted in the log. */
NODISCARD Status bad_samples_log(TowerProcess *p, const Batch *batch, const char *when);
/* Once a run, by rank 0: `rotated` of `count` images are stored rotated (EXIF), and --exif was not given. */
NODISCARD Status rotated_note(TowerProcess *p, int64_t rotated, int64_t count, const char *kind);

#endif
