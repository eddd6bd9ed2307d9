/* Summaries: what rank 0 writes for people now and then, from values that the step has computed anyway. At the start
 * the settings as text and the memory plan (memory.json); the first batch as pictures; every summary interval the
 * histograms of all parameters and of their summed gradients, and their root mean squares (layers.jsonl); at the end of
 * an epoch and of the run what the loaders have done (data.json). No data are read and no op is run for it: weights and
 * gradients are copied, and a thread counts them beside the steps that follow. The results are written before the next
 * summary, before a checkpoint, before a return to one, and at the end. Trouble with storage is reported as in
 * metrics.h. */
#ifndef TOWERS_TRAIN_SUMMARY_H
#define TOWERS_TRAIN_SUMMARY_H

#include "towers/replica/tower_process.h"

#define FIRST_BATCH_CSV "first-batch.csv"
#define FIRST_BATCH_SHEET "first-batch.jpg"
#define DATA_SUMMARY "data.json"

NODISCARD Status summary_start(TowerProcess *p);
/* The first batch as the network sees it: some of it for TensorBoard, and RUN/first-batch.csv and .jpg for the report. */
NODISCARD Status summary_images(TowerProcess *p, const Batch *batch);
/* RUN/data.json: images, time of each stage over all threads, decoder warnings, images stored rotated, damaged ones. */
NODISCARD Status summary_data(TowerProcess *p);
/* After the update of step `step`; does nothing unless the interval is full. */
bool summary_is_due(const TowerProcess *p, int64_t step);
NODISCARD Status summary_step(TowerProcess *p, int64_t step);
/* Write the results of the last summary, unless they are written. */
void summary_finish(TowerProcess *p);
/* summary_finish, then free everything; before the replica and the metrics are closed. */
void summary_close(TowerProcess *p);

#endif
