/* Writes one file of each kind that this project records, for other programs to read: sample.safetensors,
 * metrics.jsonl, results.csv, log.txt and two event files. They are those of a process that was killed in the middle
 * of a line and of an event, and of a second one that resumed at step 4. Used by check_python_readers.sh.
 *
 *   record_driver DIRECTORY */
#include <glob.h>

#include "tests/support/sample_checkpoint.h"
#include "towers/record/metrics.h"

static Status steps_write(Metrics *metrics, int64_t from, int64_t to, double offset)
{
    for (int64_t step = from; step <= to; step++) {
        const TowerLoss towers[] = {{2.0 * (double)step, 2, true, .grad_norm = 0.1},
                                    {6.0 * (double)step + offset, 2, step != 3, .grad_norm = NAN}};
        const int64_t times[] = {step, 2 * step}, copies[] = {3, 4};
        const double heads[] = {1.0 * (double)step, NAN};
        StepRecord record = {.step = step,
                             .lr = 0.1,
                             .images = 4,
                             .images_per_sec = 100,
                             .tower = towers,
                             .towers = 2,
                             .mean_loss = 2.0 * (double)step,
                             .base_loss = 2.0 * (double)step,
                             .total_loss = INFINITY,
                             .head_loss = heads,
                             .heads = 2,
                             .l2_loss = 0.25,
                             .averages = true,
                             .base_average = 1.5 * (double)step,
                             .total_average = 3.0 * (double)step,
                             .grad_norm = 1.0 / 3,
                             .arrival_us = times,
                             .data_us = times,
                             .copy_us = copies,
                             .slow_tower = 1,
                             .slow_activity = step == 5 ? "forward" : NULL,
                             .top1 = 0.5};
        metrics_step(metrics, &record);
    }
    return OK;
}

static Status run_write(const char *directory, int64_t resume_step)
{
    static Histogram histogram;
    Status st = OK;
    static const float values[] = {-1, 0, 0.5f, 2, 2};
    static const uint8_t pixels[] = {0, 50, 100, 150, 200, 250};
    Metrics *metrics = NULL;
    EpochRecord epoch = {.epoch = 1, .step = 6, .train_top1 = 0.25, .test_loss = 1.5, .test_top1 = 0.75, .kid = NAN};
    TRY(metrics_open(directory, resume_step, 1, 2, false, &metrics));
    TRY_OUT(steps_write(metrics, resume_step < 0 ? 1 : resume_step + 1, 6, resume_step < 0 ? 0 : 2));
    metrics_epoch(metrics, &epoch);
    metrics_log(metrics, "a name with\na line break");
    histogram_count(values, 5, &histogram);
    TRY_OUT(events_histogram(metrics_events(metrics), 6, "weights", &histogram));
    TRY_OUT(events_image(metrics_events(metrics), 6, "first", pixels, 3, 2, 1));
    TRY_OUT(events_text(metrics_events(metrics), 6, "options", "lr: 0.1"));
out:
    metrics_close(metrics);
    return st;
}

/* The files of a process that was killed while it wrote: the last event and the last line lack their ends. */
static Status crash_leave(const char *directory)
{
    char path[PATH_BYTES];
    glob_t found;
    struct stat info;
    TRY(path_join(path, directory, "events.out.tfevents.*"));
    if (glob(path, 0, NULL, &found) != 0) return FAIL(ERR_IO, "no event file in %s", directory);
    bool cut = found.gl_pathc == 1 && stat(found.gl_pathv[0], &info) == 0 &&
               truncate(found.gl_pathv[0], info.st_size - 7) == 0;
    globfree(&found);
    TRY(path_join(path, directory, "metrics.jsonl"));
    FILE *steps = fopen(path, "a");
    cut = cut && steps && fputs("{\"step\":7,\"epo", steps) >= 0;
    if (steps) cut &= fclose(steps) == 0;
    return cut ? OK : FAIL(ERR_IO, "cannot cut the files in %s", directory);
}

static Status all_write(const char *directory)
{
    char path[PATH_BYTES];
    Sample sample;
    TRY(directory_create(directory));
    TRY(path_join(path, directory, "sample.safetensors"));
    sample_make(&sample, 5, 10);
    Status st = safetensors_write(path, sample.model, SAMPLE_MODEL, sample.metadata, 2, NULL);
    sample_free(&sample);
    TRY(st);
    TRY(run_write(directory, -1));
    TRY(crash_leave(directory));
    return run_write(directory, 4);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: record_driver DIRECTORY\n");
        return 2;
    }
    Status st = all_write(argv[1]);
    if (st != OK) status_print(stderr, st, 1);
    return status_exit_code(st);
}
