/* Summaries: occasional records of rank 0, from values that the step has computed anyway. At the start the settings as
 * text and the memory plan (memory.json), and the first batch as images; at every summary interval the histograms of all
 * parameters and of their summed gradients, and their root mean squares (layers.jsonl); at the end of each epoch and of
 * the run the statistics of the loaders (data.json). No additional data are read and no additional op is run: weights
 * and gradients are copied, and a thread processes them during the following steps. The results are written before the
 * next summary, before a checkpoint, before a rollback, and at the end. Storage errors are reported as in metrics.h. */
#pragma once

#include "towers/replica/tower_process.h"

#define FIRST_BATCH_CSV "first-batch.csv"
#define FIRST_BATCH_SHEET "first-batch.jpg"
#define DATA_SUMMARY "data.json"
#define OBJECTS_FILE "objects.json" /* of data at an address: what the servers said of each object */
#define SURVEY_FILE "survey.json"   /* what is conspicuous about the images, from before the first step */

NODISCARD Status summary_start(TowerProcess *p);
/* The first batch as the network sees it: images for TensorBoard, and RUN/first-batch.csv and .jpg for the report. */
NODISCARD Status summary_images(TowerProcess *p, const Batch *batch);
/* Gather the statistics of all processes' loaders and write RUN/data.json: images, time of each stage over all threads,
 * decoder warnings, images stored rotated, damaged images. Collective. */
NODISCARD Status summary_data(TowerProcess *p);
/* True if step `step` completes a summary interval. */
bool summary_is_due(const TowerProcess *p, int64_t step);
/* `unscale`: a factor of the gradients (Step). */
NODISCARD Status summary_step(TowerProcess *p, int64_t step, float unscale);
/* Write the results of the last summary, unless they are written. */
void summary_finish(TowerProcess *p);
/* summary_finish, then free everything; before the replica and the metrics are closed. */
void summary_close(TowerProcess *p);
