/* Snapshots: saving and restoring the checkpoints of a run by its tower processes, and exporting weights. */
#ifndef TOWERS_REPLICA_SNAPSHOT_H
#define TOWERS_REPLICA_SNAPSHOT_H

#include "towers/replica/tower_process.h"

/* Collective: every rank calls them at the same step. */
NODISCARD Status snapshot_save(TowerProcess *p);
NODISCARD Status snapshot_restore(TowerProcess *p,
                                  bool *restored); /* according to the job; run.step is the step to continue after */
NODISCARD Status snapshot_return(TowerProcess *p, int64_t step);     /* to a checkpoint of this run directory */
NODISCARD Status snapshot_export(TowerProcess *p, const char *name); /* weights and exported statistics to RUN/NAME */
NODISCARD Status snapshot_load_weights(TowerProcess *p, const char *path);
/* The content of an arena: all parameters, the trained ones only (optimizer slots), or batch-norm statistics. */
typedef enum SnapshotPart { SNAPSHOT_PARAMS, SNAPSHOT_TRAINED, SNAPSHOT_STATES } SnapshotPart;
/* Download a device arena and append its tensors, with `prefix` before each name. */
NODISCARD Status snapshot_pack(TowerProcess *p, const char *prefix, const float *arena, SnapshotPart part,
                               int64_t tracked, WeightList *list);

#endif
