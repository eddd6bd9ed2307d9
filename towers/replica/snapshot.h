/* Snapshots: saving and restoring the checkpoints of a run by its tower processes, and exporting weights. */
#pragma once

#include "towers/replica/tower_process.h"

/* Rank 0 copies the state, and a thread writes and verifies the copy while training goes on; only one at a time, so the
 * save before must be settled. `best`: these are also the best weights so far, which are written to
 * RUN/best.safetensors after the checkpoint. Collective, as are those from snapshot_restore on but snapshot_pack: every
 * rank calls them at the same step. */
NODISCARD Status snapshot_save(TowerProcess *p, bool best);
/* Only rank 0 has something to settle. Waits for the save in progress, if there is one, and takes its result:
 * p->good_step, or a note about storage that failed. That failure is returned if it is the third in a row, or if this
 * is the `last` save of the run. */
NODISCARD Status snapshot_settle(TowerProcess *p, bool last);
bool snapshot_ended(const TowerProcess *p); /* a save has a result to settle, without waiting */
void snapshot_close(TowerProcess *p);       /* waits for the save in progress, and drops its result */
NODISCARD Status snapshot_restore(TowerProcess *p,
                                  bool *restored); /* according to the job; run.step is the step to continue after */
NODISCARD Status snapshot_return(TowerProcess *p, int64_t step);     /* to a checkpoint of this run directory */
NODISCARD Status snapshot_export(TowerProcess *p, const char *name); /* weights and exported statistics to RUN/NAME */
NODISCARD Status snapshot_load_weights(TowerProcess *p, const char *path);
/* The content of an arena: all parameters, the trained ones only (optimizer states), or batch-norm statistics. */
typedef enum SnapshotPart { SNAPSHOT_PARAMS, SNAPSHOT_TRAINED, SNAPSHOT_RUNNING } SnapshotPart;
/* Download a device arena and append its tensors, with `prefix` before each name. */
NODISCARD Status snapshot_pack(TowerProcess *p, const char *prefix, const float *arena, SnapshotPart part,
                               int64_t tracked, WeightList *list);
