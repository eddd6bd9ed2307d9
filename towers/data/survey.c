/* Threads that take sample numbers from a counter; contract in survey.h. */
#include "towers/data/survey.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct Survey {
    const SurveyConfig *config;
    _Atomic int64_t next, done;
    atomic_int running;
    pthread_mutex_t lock; /* protects the rest */
    Status status;
    StatusText why;
} Survey;

typedef struct Thread {
    Survey *survey;
    SurveyWorker worker;
    pthread_t id;
} Thread;

static Status sample_visit(Survey *s, SurveyWorker *worker, int64_t id)
{
    const SurveyConfig *c = s->config;
    ImageInfo info = {0};
    int32_t label = 0;
    Status st = source_read(c->source, id, &worker->bytes, &label);
    if (st == OK) st = image_probe(worker->tools.decoder, &worker->bytes, &info);
    st = c->visit(c->context, worker, id, label, &info, st);
    atomic_fetch_add(&s->done, 1);
    return st;
}

static void *thread_run(void *argument)
{
    Thread *thread = argument;
    Survey *s = thread->survey;
    int64_t count = source_info(s->config->source)->count;
    Status st = transform_worker_init(&thread->worker.tools, NULL);
    for (int64_t id; st == OK && (id = atomic_fetch_add(&s->next, 1)) < count;)
        st = sample_visit(s, &thread->worker, id);
    if (st != OK) {
        pthread_mutex_lock(&s->lock);
        if (s->status == OK) {
            s->status = st;
            status_keep(&s->why);
        }
        pthread_mutex_unlock(&s->lock);
        atomic_store(&s->next, count);
    }
    transform_worker_free(&thread->worker.tools);
    bytes_free(&thread->worker.bytes);
    atomic_fetch_sub(&s->running, 1);
    return NULL;
}

Status survey_run(const SurveyConfig *config)
{
    Survey s = {.config = config};
    Thread *threads = calloc((size_t)config->threads, sizeof *threads);
    sigset_t all, before;
    int started = 0;
    if (!threads) return FAIL(ERR_MEMORY, "no memory for %d threads", config->threads);
    pthread_mutex_init(&s.lock, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are handled by the main thread */
    for (; started < config->threads; started++) {
        threads[started].survey = &s;
        threads[started].worker.thread = started;
        atomic_fetch_add(&s.running, 1);
        if (pthread_create(&threads[started].id, NULL, thread_run, &threads[started]) != 0) break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started < config->threads) atomic_fetch_sub(&s.running, 1);
    while (config->progress && atomic_load(&s.running) > 0) {
        config->progress(atomic_load(&s.done), source_info(config->source)->count);
        usleep(100000);
    }
    for (int i = 0; i < started; i++) pthread_join(threads[i].id, NULL);
    if (started == 0 && s.status == OK) s.status = FAIL(ERR_DEVICE, "cannot start a thread");
    if (config->progress) config->progress(atomic_load(&s.done), source_info(config->source)->count);
    free(threads);
    pthread_mutex_destroy(&s.lock);
    return s.status == OK || started == 0 ? s.status : status_restore(s.status, &s.why);
}
