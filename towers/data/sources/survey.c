/* A visit is an item of parallel_run; contract in survey.h. */
#include "towers/data/sources/survey.h"

#include "towers/data/listing/parallel.h"

typedef struct Survey {
    const SurveyConfig *config;
    SurveyWorker *workers; /* owned */
} Survey;

static Status sample_visit(void *context, int thread, int64_t id)
{
    Survey *s = context;
    SurveyWorker *worker = &s->workers[thread];
    ImageInfo info = {0};
    int32_t label = 0;
    Status st = source_read(s->config->source, id, &worker->bytes, &label);
    if (st == OK) st = image_probe(&worker->bytes, &info);
    st = s->config->visit(s->config->context, worker, id, label, &info, st);
    transform_worker_rest(&worker->tools);
    bytes_rest(&worker->bytes);
    return st;
}

static void progress_pass(void *context, int64_t done, int64_t all)
{
    ((const Survey *)context)->config->progress(done, all);
}

Status survey_run(const SurveyConfig *config)
{
    Survey s = {.config = config, .workers = calloc((size_t)config->threads, sizeof *s.workers)};
    if (!s.workers) return FAIL(ERR_MEMORY, "no memory for %d threads", config->threads);
    Status st = OK;
    for (int i = 0; st == OK && i < config->threads; i++) {
        s.workers[i].thread = i;
        st = transform_worker_init(&s.workers[i].tools);
    }
    if (st == OK)
        st = parallel_run(&(Parallel){.count = source_info(config->source)->count,
                                      .threads = config->threads,
                                      .work = sample_visit,
                                      .context = &s,
                                      .progress = config->progress ? progress_pass : NULL,
                                      .progress_context = &s});
    for (int i = 0; i < config->threads; i++) {
        transform_worker_free(&s.workers[i].tools);
        bytes_free(&s.workers[i].bytes);
    }
    free(s.workers);
    return st;
}
