/* Survey: visits every sample of a source once, by several threads in no particular order; for checks and
 * conversions. */
#pragma once

#include "towers/data/images/transform.h"
#include "towers/data/sources/source.h"

typedef struct SurveyWorker {
    int thread; /* 0 and up */
    Bytes bytes;
    TransformWorker tools;
} SurveyWorker;

/* Called for one sample after reading and probing it; `st` is the result, with this thread's status_message(). If it
 * returns an error, the survey ends. Called by many threads at once. */
typedef Status SurveyVisit(void *context, SurveyWorker *worker, int64_t id, int32_t label, const ImageInfo *info,
                           Status st);

typedef struct SurveyConfig {
    const Source *source;
    int threads; /* 1 to SURVEY_THREADS */
    SurveyVisit *visit;
    void *context;
    void (*progress)(int64_t done, int64_t all); /* called in the calling thread; may be NULL */
} SurveyConfig;

enum { SURVEY_THREADS = 256 };

NODISCARD Status survey_run(const SurveyConfig *config);
