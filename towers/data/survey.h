/* Survey: every sample of a source once, by several threads, in no certain order; for checking and converting a set. */
#ifndef TOWERS_DATA_SURVEY_H
#define TOWERS_DATA_SURVEY_H

#include "towers/data/source.h"
#include "towers/data/transform.h"

typedef struct SurveyWorker {
    int thread; /* 0 and up */
    Bytes bytes;
    TransformWorker tools;
} SurveyWorker;

/* One sample, as read and probed: `st` is why it could not be, with status_message() of this thread. A status that is
 * returned ends the survey. Called by many threads at once. */
typedef Status SurveyVisit(void *context, SurveyWorker *worker, int64_t id, int32_t label, const ImageInfo *info,
                           Status st);

typedef struct SurveyConfig {
    const Source *source;
    int threads; /* 1 to SURVEY_THREADS */
    SurveyVisit *visit;
    void *context;
    void (*progress)(int64_t done, int64_t all); /* in the calling thread, now and then; NULL */
} SurveyConfig;

enum { SURVEY_THREADS = 256 };

NODISCARD Status survey_run(const SurveyConfig *config);

#endif
