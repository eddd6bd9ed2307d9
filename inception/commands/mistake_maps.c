/* Class maps of mistakes; see commands.h. */
#include "inception/commands/commands.h"

#include "inception/commands/class_maps.h"
#include "inception/library/classifier.h"
#include "inception/report/report_data.h"
#include "towers/train/mistakes.h"

typedef struct MistakeMaps {
    const JobFiles *files;
    const EvalSample *samples;
    const int64_t *ids; /* of the mistakes that are shown */
    const char *folder;
} MistakeMaps;

static Status batch_take(void *context, const Inferred *found)
{
    const MistakeMaps *m = context;
    char path[PATH_BYTES];
    for (int32_t i = 0; i < found->batch.n; i++) {
        const EvalSample *mistake = &m->samples[m->ids[found->batch.ids[i]]];
        ClassMaps maps = {.program = &m->files->job.program,
                          .found = found,
                          .image = i,
                          .classes = {mistake->predicted, mistake->label},
                          .count = 2};
        if (found->batch.labels[i] != LABEL_NONE) TRY(class_maps_write(&maps, m->folder, MISTAKE_MAP, path));
    }
    return OK;
}

Status mistake_maps_write(const Options *o, JobFiles *files, const char *weights, const EvalSample *samples)
{
    Status st = OK;
    int64_t *ids = NULL, found;
    Source *shown = NULL;
    Classifier network = {.files = files};
    TRY(mistakes_find(samples, source_info(files->test)->count, &ids, &found));
    int32_t count = (int32_t)(found < MISTAKE_MAPS ? found : MISTAKE_MAPS), sizes[] = {count, 0};
    MistakeMaps maps = {files, samples, ids, o->cam};
    Draft list;
    TRY_OUT(draft_begin(&list, "a list of mistakes"));
    mistakes_print(files->test, samples, NULL, 0, ids, count, list.to);
    TRY_OUT(draft_replace(&list, OK, o->cam, MISTAKE_MAPS_CSV));
    if (!count) goto out;
    snprintf(network.weights, sizeof network.weights, "%s", weights);
    files->job.program.maps = true;
    TRY_OUT(source_select(files->test, ids, count, &shown));
    TRY_OUT(classifier_load(o, source_info(shown)->c, sizes, &network));
    TRY_OUT(classifier_run(&network, shown, count, 0, batch_take, &maps));
    if (!o->quiet)
        text_printf(stderr,
                    "class maps of the %d most confident mistake%s, of %d x %d pixels, what the network sees, and "
                    "cam.csv in %s; towers report shows those in RUN/cam\n",
                    count, count == 1 ? "" : "s", files->job.program.options.side, files->job.program.options.side,
                    o->cam);
out:
    classifier_close(&network);
    source_close(shown);
    free(ids);
    return st;
}
