/* Summaries: what rank 0 writes for people now and then, from values that the step has computed anyway. At the start
 * the settings as text and the memory plan (memory.json); of the first batch some images; every summary interval the
 * histograms of all parameters and of their summed gradients, and their root mean squares (layers.jsonl). No data are
 * read and no op is run for it. Trouble with storage is told as in metrics.h. */
#ifndef TOWERS_TRAIN_SUMMARY_H
#define TOWERS_TRAIN_SUMMARY_H

#include "towers/replica/tower_process.h"

NODISCARD Status summary_start(TowerProcess *p);
NODISCARD Status summary_images(TowerProcess *p, const Batch *batch);
/* After the update of step `step`; does nothing unless the interval is full. */
bool summary_is_due(const TowerProcess *p, int64_t step);
NODISCARD Status summary_step(TowerProcess *p, int64_t step);

#endif
