/* Lists of samples: RUN/samples.csv with --log-samples, and RUN/bad-samples.csv for samples that could not be decoded.
 * Every tower process appends whole lines. */
#pragma once

#include "towers/replica/tower_process.h"

#define SAMPLES_FILE "samples.csv"
#define BAD_SAMPLES_FILE "bad-samples.csv"

/* Append a batch of a step, "step,batch,tower,id id id ...", if requested, and its bad samples. The list that was asked
 * for has no gaps: ERR_IO if it cannot be written. */
NODISCARD Status samples_log(TowerProcess *p, const Batch *batch, int64_t step);
/* fsync the lists before a checkpoint, so that no row is missing behind it. ERR_IO as samples_log. */
NODISCARD Status samples_sync(const TowerProcess *p);
/* Append "STEP,tower,id,why", or "evaluation STEP,...", for each bad sample of a batch; the first ones are also noted in the
 * log, as is the first failure to write. */
void bad_samples_log(TowerProcess *p, const Batch *batch, bool evaluates, int64_t step);
/* Before the first step after p->run.step: remove what later steps had written, or set aside the lists of another run.
 * Collective: nobody appends before that. */
NODISCARD Status samples_forget(TowerProcess *p, bool goes_on);
/* Reported once per run by rank 0, unless a survey of all images has said it before: `rotated` of `count` images are stored
 * rotated (EXIF), and --exif was not given. */
void rotated_note(TowerProcess *p, int64_t rotated, int64_t count, const char *kind);
