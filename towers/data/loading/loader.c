/* The read-ahead: a ring of preallocated batches, filled by threads and returned in order; contract in loader.h.
 *
 * Batches are numbered q = 0, 1, ... step by step and, within a step, tower by tower; batch q uses buffer q % buffers. A
 * batch is opened when its buffer is free and its epoch's order is ready. Its samples are then claimed in order, in
 * pieces, and finished in any order; the thread that finishes the last piece completes the batch. Two order tables
 * alternate between epochs: the first thread that needs an epoch's order shuffles it, once no batch uses the table. */
#include "towers/data/loading/loader.h"

#include <stdatomic.h>

#include "kernels/base/clock.h"
#include "kernels/base/progress.h"
#include "kernels/base/thread.h"
#include "towers/data/loading/batch_buffer.h"

enum { WORKERS_MAX = 1024, DEPTH_MAX = LOADER_DEPTH(TOWERS_MAX), NONE = -1, PIECE = 8, PREPARING = -1 };

typedef struct Worker {
    Loader *loader; /* borrowed */
    SampleReader reader;
    ProgressSlot progress; /* of the thread */
} Worker;

/* Images [first, end) of batch `number`. */
typedef struct BatchPiece {
    int64_t number;
    int32_t first, end;
} BatchPiece;

struct Loader {
    LoaderConfig config;
    int32_t *local_batch;             /* owned: the list of config.local_batches */
    int64_t steps_per_epoch, batches; /* batches: total number */
    int32_t capacity;                 /* images of a buffer, with mixing the partner behind a batch, too */
    int buffers_count, workers_count, threads_count;
    BatchBuffer *buffers; /* owned */
    Worker *workers;      /* owned; with no threads, the caller is the only one */
    pthread_t *threads;
    _Atomic int64_t hinted; /* 1 + the number of the last window that was announced to the storage */
    int lent;               /* number of batches that the caller holds, from `released` on */

    pthread_mutex_t lock; /* protects everything below, and a buffer's ready, next, left and bad samples */
    pthread_cond_t work;  /* for workers: a buffer came free, an order changed, stop */
    pthread_cond_t done;  /* for the caller: a batch is ready or has failed */
    bool stop;
    int64_t opened, released; /* batches below are open or complete; returned by the caller */
    Order order;
    int order_users[2]; /* number of batches being filled with each table, or PREPARING */
    int64_t failed;     /* number of the first batch that could not be read, or NONE */
    int32_t failed_at;  /* its failed sample */
    Status failure;
    char why[1024];
    LoaderClocks clocks;
};

static int64_t step_of(const Loader *l, int64_t number)
{
    return l->config.start_step + number / l->config.local * l->config.stride;
}

static int64_t epoch_of(const Loader *l, int64_t number)
{
    return step_of(l, number) / l->steps_per_epoch;
}

static int tower_of(const Loader *l, int64_t number)
{
    return l->config.first_tower + (int)(number % l->config.local);
}

static BatchBuffer *buffer_of(const Loader *l, int64_t number)
{
    return &l->buffers[number % l->buffers_count];
}

/* ---- the ring; these functions are called with the lock held */

static void note_failure(Loader *l, int64_t number, int32_t sample, Status status)
{
    bool earlier = l->failed == NONE || number < l->failed || (number == l->failed && sample < l->failed_at);
    if (!earlier) return;
    l->failed = number;
    l->failed_at = sample;
    l->failure = status;
    snprintf(l->why, sizeof l->why, "batch of step %" PRId64 ", tower %d: %s", step_of(l, number), tower_of(l, number),
             status_message());
}

/* While a table is being prepared, no thread may read it or its epoch. */
static bool order_is_there(const Loader *l, int64_t epoch)
{
    return l->order_users[epoch & 1] != PREPARING && order_is_ready(&l->order, epoch);
}

static void batch_finish(Loader *l, int64_t number)
{
    BatchBuffer *buffer = buffer_of(l, number);
    pthread_mutex_unlock(&l->lock); /* no other thread uses a buffer whose pieces are all finished */
    batch_buffer_finish(buffer);
    pthread_mutex_lock(&l->lock);
    buffer->ready = number;
    if (--l->order_users[epoch_of(l, number) & 1] == 0) pthread_cond_broadcast(&l->work);
    pthread_cond_signal(&l->done);
}

static bool may_open(const Loader *l)
{
    return l->failed == NONE && l->opened < l->batches && l->opened < l->released + l->buffers_count;
}

/* True if a sample has not been claimed yet. */
static bool has_claimable(const Loader *l)
{
    if (l->failed != NONE || l->opened == 0) return false;
    const BatchBuffer *buffer = buffer_of(l, l->opened - 1);
    return buffer->ready != l->opened - 1 && buffer->next < buffer->count;
}

/* Open the next batch, if its epoch's order is ready or can be prepared now. */
static void open_next(Loader *l)
{
    int64_t number = l->opened, epoch = epoch_of(l, number);
    if (!order_is_there(l, epoch)) {
        if (l->order_users[epoch & 1] == 0) {
            /* Runs without the lock; the PREPARING mark protects the table. */
            l->order_users[epoch & 1] = PREPARING;
            pthread_mutex_unlock(&l->lock);
            order_prepare(&l->order, epoch);
            pthread_mutex_lock(&l->lock);
            l->order_users[epoch & 1] = 0;
            pthread_cond_broadcast(&l->work);
        }
        return;
    }
    BatchBuffer *buffer = buffer_of(l, number);
    l->opened++;
    l->order_users[epoch & 1]++;
    batch_buffer_place(buffer, step_of(l, number), tower_of(l, number));
    buffer->next = 0;
    buffer->left = buffer->count;
    if (buffer->count == 0) batch_finish(l, number);
}

/* True if work_once would find something to do, so that the caller need not wait. */
static bool has_work(const Loader *l)
{
    if (has_claimable(l)) return true;
    if (!may_open(l)) return false;
    int64_t epoch = epoch_of(l, l->opened);
    return order_is_there(l, epoch) || l->order_users[epoch & 1] == 0;
}

/* Number `number` of what is announced begins: true for the first who says so. */
static bool hint_begins(Loader *l, int64_t number, int64_t *before)
{
    *before = atomic_load(&l->hinted);
    if (number <= *before || !atomic_compare_exchange_strong(&l->hinted, before, number)) return false;
    source_hint_window(l->config.source);
    return true;
}

static void shards_hint(const Loader *l, int64_t epoch, int window)
{
    const Order *o = &l->order;
    for (int place = window * o->window; place < (window + 1) * o->window && place < o->shards; place++)
        source_hint_shard(l->config.source, order_shard(o, epoch, place));
}

/* In which order the shards behind the next window will be read. */
static void later_hint(const Loader *l, int64_t epoch, int window)
{
    const Order *o = &l->order;
    for (int place = (window + 2) * o->window; place < o->shards; place++)
        source_hint_later(l->config.source, order_shard(o, epoch, place));
}

/* At the first sample of a window, announce its shards and those of the next window to the storage, each once; what comes behind them is said
 * at the first one. Behind the last window of an epoch comes the first of the next one. */
static void window_hint(Loader *l, int64_t epoch, int64_t position)
{
    const Order *o = &l->order;
    int window = order_window(o, epoch, position), last = (o->shards - 1) / o->window;
    int64_t before, number = epoch * o->shards + window + 1;
    if (!hint_begins(l, number, &before)) return;
    bool known = before == number - 1 && window > 0;
    if (!known) {
        shards_hint(l, epoch, window);
        source_hint_window(l->config.source);
        later_hint(l, epoch, window);
    }
    shards_hint(l, epoch, window + 1);
    if (window == last) shards_hint(l, epoch + 1, 0);
}

/* Shards that are read one behind another: at the first sample of each, it and some that follow. */
static void shard_hint(Loader *l, int64_t epoch, int64_t position)
{
    enum { AHEAD = 2 };
    const SourceInfo *info = source_info(l->config.source);
    int least = 0, end = info->shards;
    int64_t before;
    while (end - least > 1) {
        int middle = least + (end - least) / 2;
        if (info->shard_first[middle] <= position)
            least = middle;
        else
            end = middle;
    }
    if (!hint_begins(l, epoch * info->shards + least + 1, &before)) return;
    for (int shard = least; shard <= least + AHEAD && shard < info->shards; shard++)
        source_hint_shard(l->config.source, shard);
}

/* The message of a damaged sample at which the loader stops, with the ways on. */
static Status damage_advise(Status st)
{
    StatusText why;
    if (st != ERR_FORMAT) return st;
    status_keep(&why);
    return FAIL(st, "%s (--bad-samples skip leaves damaged images out; towers data check DIR names all of them)",
                why.message);
}

/* Fill a piece. Called with the lock held; releases it while samples are read. */
static void piece_fill(Loader *l, SampleReader *reader, BatchPiece piece)
{
    BatchBuffer *buffer = buffer_of(l, piece.number);
    pthread_mutex_unlock(&l->lock);
    if (l->order.window)
        window_hint(l, buffer->batch.epoch, buffer->first + piece.first);
    else if (!l->config.shuffle && source_info(l->config.source)->elsewhere)
        shard_hint(l, buffer->batch.epoch, buffer->first + piece.first);
    for (int32_t i = piece.first; i < piece.end; i++) {
        buffer->ids[i] = order_at(&l->order, buffer->batch.epoch, batch_buffer_position(buffer, i));
        source_hint(l->config.source, buffer->ids[i]);
    }
    Status st = OK;
    for (int32_t i = piece.first; st == OK && i < piece.end; i++) {
        st = batch_buffer_read(buffer, i, reader);
        if (st == OK) continue;
        pthread_mutex_lock(&l->lock);
        st = st == ERR_FORMAT && l->config.bad == BAD_SKIP ? batch_buffer_skip(buffer, i) : damage_advise(st);
        if (st != OK) note_failure(l, piece.number, i, st);
        pthread_mutex_unlock(&l->lock);
    }
    pthread_mutex_lock(&l->lock);
    reader_take(reader, buffer, &l->clocks);
    buffer->left -= piece.end - piece.first;
    if (st == OK && buffer->left == 0 && l->failed != piece.number)
        batch_finish(l, piece.number);
    else
        pthread_cond_signal(&l->done);
}

static void work_once(Loader *l, SampleReader *reader)
{
    if (!has_claimable(l) && may_open(l)) open_next(l);
    if (!has_claimable(l)) return;
    BatchBuffer *buffer = buffer_of(l, l->opened - 1);
    BatchPiece piece = {l->opened - 1, buffer->next,
                        buffer->count - buffer->next < PIECE ? buffer->count : buffer->next + PIECE};
    buffer->next = piece.end;
    piece_fill(l, reader, piece);
}

static void *run_worker(void *argument)
{
    Worker *worker = argument;
    Loader *l = worker->loader;
    progress_of_thread(&worker->progress);
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        work_once(l, &worker->reader);
        while (!l->stop && !has_work(l)) pthread_cond_wait(&l->work, &l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- the caller's side */

/* True if the batch has failed and no piece of it in progress could still fail at an earlier sample. */
static bool has_failed(const Loader *l, int64_t number)
{
    const BatchBuffer *buffer = buffer_of(l, number);
    return l->failed == number && buffer->left <= buffer->count - buffer->next;
}

/* Until a thread reports, or for a second. What the threads do since `*seen` is a sign of life while this one waits. */
static void threads_wait(Loader *l, int64_t *seen)
{
    struct timespec until = clock_deadline(1);
    pthread_cond_clockwait(&l->done, &l->lock, CLOCK_MONOTONIC, &until);
    int64_t last = *seen;
    for (int i = 0; i < l->threads_count; i++) {
        int64_t at = atomic_load(&l->workers[i].progress.at_ns);
        if (at > last) last = at;
    }
    if (last > *seen) progress_made("an image");
    *seen = last;
}

/* Wait until batch `number` is ready or has failed; without workers, do the work here. */
static void wait_for(Loader *l, int64_t number)
{
    const BatchBuffer *buffer = buffer_of(l, number);
    int64_t seen = clock_ns();
    while (buffer->ready != number && !has_failed(l, number)) {
        if (l->threads_count == 0)
            work_once(l, &l->workers[0].reader);
        else
            threads_wait(l, &seen);
    }
}

void loader_step(Loader *l)
{
    pthread_mutex_lock(&l->lock);
    l->released += l->lent;
    if (l->lent) pthread_cond_broadcast(&l->work); /* several workers can fill a batch */
    l->lent = 0;
    pthread_mutex_unlock(&l->lock);
}

Status loader_batch(Loader *l, const Batch **batch)
{
    Status st = OK;
    pthread_mutex_lock(&l->lock);
    int64_t number = l->released + l->lent;
    if (l->lent == l->config.local)
        TRY_OUT(FAIL(ERR_INTERNAL, "loader: the batches of all %d towers are already in use", l->lent));
    if (number >= l->batches)
        TRY_OUT(FAIL(ERR_ARG, "no batch left: the loader ends before step %" PRId64, l->config.max_steps));
    wait_for(l, number);
    if (l->failed == number) TRY_OUT(FAIL(l->failure, "%s", l->why));
    l->lent++;
    *batch = &buffer_of(l, number)->batch;
out:
    pthread_mutex_unlock(&l->lock);
    return st;
}

Status loader_next(Loader *loader, const Batch **batch)
{
    loader_step(loader);
    return loader_batch(loader, batch);
}

void loader_clocks(Loader *loader, LoaderClocks *clocks)
{
    pthread_mutex_lock(&loader->lock);
    *clocks = loader->clocks;
    pthread_mutex_unlock(&loader->lock);
}

static int64_t since(int64_t from, int64_t till)
{
    return till >= from ? till - from : till;
}

const char *loader_cause(const Source *source, const LoaderClocks *from, const LoaderClocks *till)
{
    int64_t disk = since(from->read, till->read), augment = since(from->augment, till->augment),
            decode = since(from->decode, till->decode) + since(from->resize, till->resize);
    if (disk + augment + decode == 0) return "";
    if (disk >= decode && disk >= augment) return source_info(source)->h == 0 ? "disk" : "read";
    return decode >= augment ? "decode" : "augment";
}

/* ---- creation and destruction */

static Status check_config(const LoaderConfig *c)
{
    const LocalBatches *s = &c->local_batches;
    int64_t global = 0;
    if (!c->source) return FAIL(ERR_ARG, "loader: no data set");
    if (s->towers < 1 || s->towers > TOWERS_MAX)
        return FAIL(ERR_ARG, "loader: expected 1 to %d towers, found %d", TOWERS_MAX, s->towers);
    for (int t = 0; t < s->towers; t++) {
        if (s->batch[t] < 0) return FAIL(ERR_ARG, "loader: tower %d has a local batch of %d samples", t, s->batch[t]);
        global += s->batch[t];
    }
    if (global < 1 || global > INT32_MAX)
        return FAIL(ERR_ARG, "loader: expected a global batch of 1 to %d samples, found %" PRId64, INT32_MAX, global);
    if (c->first_tower < 0 || c->local < 1 || c->local > s->towers || c->first_tower > s->towers - c->local)
        return FAIL(ERR_ARG, "loader: %d towers from tower %d on, of %d", c->local, c->first_tower, s->towers);
    TRY(transform_check(&c->transform));
    if (c->start_step < 0 || c->max_steps < c->start_step)
        return FAIL(ERR_ARG, "loader: expected 0 <= first step <= last step, found %" PRId64 " and %" PRId64,
                    c->start_step, c->max_steps);
    if (c->stride < 0) return FAIL(ERR_ARG, "loader: expected a stride of 1 or more, found %" PRId64, c->stride);
    if (c->workers < 0 || c->workers > WORKERS_MAX || c->depth < 2 || c->depth > DEPTH_MAX)
        return FAIL(ERR_ARG, "loader: expected 0 to %d workers and 2 to %d batches ahead, found %d and %d", WORKERS_MAX,
                    DEPTH_MAX, c->workers, c->depth);
    return OK;
}

static Status set_sizes(Loader *l)
{
    const LoaderConfig *c = &l->config;
    int64_t steps = (c->max_steps - c->start_step) / c->stride + ((c->max_steps - c->start_step) % c->stride > 0);
    l->steps_per_epoch = steps_per_epoch_of(&c->local_batches, source_info(c->source)->count);
    l->batches = steps > INT64_MAX / c->local ? INT64_MAX : steps * c->local;
    l->capacity = 1;
    for (int t = c->first_tower; t < c->first_tower + c->local; t++)
        if (c->local_batches.batch[t] > l->capacity) l->capacity = c->local_batches.batch[t];
    l->capacity += mix_is_on(&c->mix);
    l->buffers_count = c->workers > 0 && c->depth > c->local ? c->depth : c->local + (c->workers > 0);
    l->workers_count = c->workers > 0 ? c->workers : 1;
    int64_t buffer = ((int64_t)batch_buffer_image_bytes(c) + c->targets.classes * (int64_t)sizeof(float)) * l->capacity;
    if (c->memory > 0 && c->workers > 0 && c->memory / buffer < l->buffers_count) {
        l->buffers_count = (int)(c->memory / buffer);
        if (l->buffers_count <= c->local)
            return FAIL(ERR_ARG,
                        "--data-memory: %d batches of %d images need %" PRId64 " MiB, expected at most %" PRId64,
                        c->local + 1, l->capacity, ((c->local + 1) * buffer >> 20) + 1, c->memory >> 20);
    }
    return OK;
}

static Status local_batches_keep(Loader *l)
{
    LocalBatches *batches = &l->config.local_batches;
    size_t towers = (size_t)batches->towers;
    l->local_batch = malloc(towers * sizeof *l->local_batch);
    if (!l->local_batch) return FAIL(ERR_MEMORY, "no memory for the local batches of %zu towers", towers);
    memcpy(l->local_batch, batches->batch, towers * sizeof *l->local_batch);
    batches->batch = l->local_batch;
    return OK;
}

static Status start_workers(Loader *l)
{
    Status st = OK;
    for (int i = 0; i < l->config.workers && st == OK; i++) {
        int code = thread_start(&l->threads[i], run_worker, &l->workers[i]);
        l->threads_count += code == 0;
        if (code != 0)
            st = FAIL(ERR_DEVICE, "cannot start loader thread %d of %d: %s; lower the number of workers", i,
                      l->config.workers, strerror(code));
    }
    return st;
}

static Status order_choose(Loader *l)
{
    const SourceInfo *info = source_info(l->config.source);
    if (l->config.sampler == SAMPLER_BALANCED && l->config.shuffle)
        return order_init_balanced(&l->order, l->config.seed, l->config.source);
    if (l->config.window > 0 && l->config.shuffle)
        return order_init_window(&l->order, l->config.seed, info->shard_first, info->shards, l->config.window);
    return order_init(&l->order, l->config.seed, info->count, l->config.shuffle);
}

Status loader_create(const LoaderConfig *config, Loader **made)
{
    Status st = OK;
    TRY(check_config(config));
    Loader *l = calloc(1, sizeof *l);
    if (!l) return FAIL(ERR_MEMORY, "no memory for the loader");
    l->config = *config;
    if (l->config.stride == 0) l->config.stride = 1;
    l->failed = NONE;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->done, NULL);
    TRY_OUT(local_batches_keep(l));
    TRY_OUT(set_sizes(l));
    l->buffers = calloc((size_t)l->buffers_count, sizeof *l->buffers);
    l->workers = calloc((size_t)l->workers_count, sizeof *l->workers);
    l->threads = calloc((size_t)l->workers_count, sizeof *l->threads);
    if (!l->buffers || !l->workers || !l->threads) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the loader"));
    for (int i = 0; i < l->buffers_count; i++) {
        l->buffers[i].ready = NONE;
        if (!batch_buffer_init(&l->config, l->capacity, &l->buffers[i]))
            TRY_OUT(FAIL(ERR_MEMORY,
                         "no memory for %d batches of %d images of %zu bytes: lower the batch size or --data-memory",
                         l->buffers_count, l->capacity, batch_buffer_image_bytes(config)));
    }
    for (int i = 0; i < l->workers_count; i++) {
        l->workers[i].loader = l;
        TRY_OUT(transform_worker_init(&l->workers[i].reader.transform));
    }
    TRY_OUT(order_choose(l));
    TRY_OUT(start_workers(l));
    *made = l;
    l = NULL;
out:
    loader_destroy(l);
    return st;
}

bool loader_pixels(const Loader *l, int index, void **memory, size_t *bytes)
{
    if (index >= l->buffers_count) return false;
    *memory = l->buffers[index].pixels;
    *bytes = (size_t)l->capacity * batch_buffer_image_bytes(&l->config);
    return true;
}

void loader_destroy(Loader *l)
{
    if (!l) return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->threads_count; i++) pthread_join(l->threads[i], NULL);
    for (int i = 0; l->config.source && i < 2; i++)
        source_hint_window(l->config.source); /* it needs no shard any more */
    for (int i = 0; l->buffers && i < l->buffers_count; i++) batch_buffer_free(&l->buffers[i]);
    free(l->buffers);
    for (int i = 0; l->workers && i < l->workers_count; i++) {
        bytes_free(&l->workers[i].reader.bytes);
        transform_worker_free(&l->workers[i].reader.transform);
    }
    free(l->workers);
    free(l->threads);
    free(l->local_batch);
    order_free(&l->order);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->done);
    free(l);
}
