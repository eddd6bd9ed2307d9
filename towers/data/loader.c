/* The read-ahead: a ring of preallocated batches, filled by threads and handed out in order; contract in loader.h.
 *
 * Batches are numbered q = 0, 1, ... in the order step by step, tower by tower; number q lives in slot q % depth. A
 * worker claims the next number when its slot is free and its epoch's order is ready; claims are made in order, fills
 * end in any order. Two order arrays alternate between epochs: whoever first needs an epoch's order shuffles it, once
 * no fill uses the epoch before last. Everything is allocated at the start; the zero border of a canvas is written then
 * and never again. */
#include "towers/data/loader.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/philox.h"
#include "towers/data/resize.h"

enum { WORKERS_MAX = 1024, DEPTH_MAX = 4096, SIDE_MAX = 65500, NONE = -1 };

static const uint64_t AUGMENT_KEY = 0x63726f7000000000u; /* keeps these draws apart from other uses of the seed */

typedef struct Slot {
    int64_t ready;   /* number of the batch it holds, or NONE */
    Batch batch;     /* points into the arrays below */
    uint8_t *pixels; /* owned, as are the next three */
    int32_t *labels;
    int32_t *augment;
    int64_t *ids;
} Slot;

typedef struct Order {
    int64_t epoch; /* whose order it holds, or NONE */
    int users;     /* fills that read it, and the shuffle that writes it */
    int32_t *ids;  /* owned */
} Order;

typedef struct Worker {
    Loader *loader;   /* borrowed */
    Pixels image;     /* owned: one image as read */
    Resizer *resizer; /* owned */
} Worker;

struct Loader {
    LoaderConfig config;
    DatasetInfo info;
    int64_t steps_per_epoch, batches; /* batches: how many there will be */
    int32_t canvas, capacity;         /* capacity: samples of a slot */
    size_t canvas_bytes;
    int slots_count, workers_count, threads_count;
    Slot *slots;     /* owned */
    Worker *workers; /* owned; with no threads, the caller is the only one */
    pthread_t *threads;
    int64_t wait_ns;
    bool borrowed; /* the caller holds batch number `released` */

    pthread_mutex_t lock; /* of all below, of Slot.ready, and of Order.epoch and users */
    pthread_cond_t work;  /* for workers: a slot came free, an order changed, stop */
    pthread_cond_t done;  /* for the caller: a batch is ready or has failed */
    bool stop;
    int64_t claimed, released; /* numbers below are claimed by a worker; given back by the caller */
    Order orders[2];
    int64_t failed; /* number of the first batch that could not be read, or NONE */
    Status failure;
    char why[1024];
};

/* ---- what a batch holds */

static int64_t step_of(const Loader *l, int64_t number)
{
    return l->config.start_step + number / l->config.local * l->config.stride;
}

static int64_t epoch_of(const Loader *l, int64_t number)
{
    return step_of(l, number) / l->steps_per_epoch;
}

static void choose_crop(const Loader *l, int64_t epoch, int64_t id, int32_t crop[4])
{
    const LoaderConfig *c = &l->config;
    crop[0] = crop[1] = c->pad;
    crop[2] = crop[3] = 0;
    if (!c->augment) return;
    Philox words = philox(c->seed ^ AUGMENT_KEY, (uint32_t)epoch, (uint32_t)id, (uint32_t)((uint64_t)id >> 32), 0);
    uint64_t places = 2 * (uint64_t)c->pad + 1;
    crop[0] = (int32_t)(words.v[0] * places >> 32);
    crop[1] = (int32_t)(words.v[1] * places >> 32);
    crop[2] = c->flip ? (int32_t)(words.v[2] & 1) : 0;
}

static Status place_image(const Loader *l, const Worker *worker, uint8_t *canvas)
{
    size_t pitch = (size_t)l->canvas * (size_t)l->info.c;
    uint8_t *corner = canvas + (size_t)l->config.pad * (pitch + (size_t)l->info.c);
    Resize resize = {.in_h = l->info.h,
                     .in_w = l->info.w,
                     .out_h = l->config.side,
                     .out_w = l->config.side,
                     .window = {0, 0, l->config.side, l->config.side}};
    return resizer_run(worker->resizer, &resize, &worker->image, corner, pitch);
}

static Status fill_slot(const Loader *l, int64_t number, const int32_t *order, const Worker *worker, Slot *slot)
{
    const LoaderConfig *c = &l->config;
    int64_t step = step_of(l, number), first = 0;
    Batch *b = &slot->batch;
    b->step = step;
    b->epoch = epoch_of(l, number);
    b->tower = c->first_tower + (int)(number % c->local);
    shares_of(&c->shares, l->info.count, step % l->steps_per_epoch, b->tower, &first, &b->n);
    for (int32_t i = 0; i < b->n; i++) {
        int64_t id = order ? order[first + i] : first + i;
        slot->ids[i] = id;
        TRY(dataset_read(c->dataset, id, worker->image.at, &slot->labels[i]));
        choose_crop(l, b->epoch, id, slot->augment + 4 * (size_t)i);
        TRY(place_image(l, worker, slot->pixels + (size_t)i * l->canvas_bytes));
    }
    return OK;
}

/* ---- the ring; all of these with the lock held */

static void note_failure(Loader *l, int64_t number, Status status)
{
    if (l->failed != NONE && l->failed < number) return;
    l->failed = number;
    l->failure = status;
    snprintf(l->why, sizeof l->why, "batch of step %" PRId64 ", tower %d: %s", step_of(l, number),
             l->config.first_tower + (int)(number % l->config.local), status_message());
}

/* Shuffle, without the lock: the users count keeps everybody else away. */
static void prepare_order(Loader *l, Order *order, int64_t epoch)
{
    order->users = 1;
    order->epoch = NONE;
    pthread_mutex_unlock(&l->lock);
    epoch_order(l->config.seed, epoch, l->info.count, order->ids);
    pthread_mutex_lock(&l->lock);
    order->epoch = epoch;
    order->users = 0;
    pthread_cond_broadcast(&l->work);
}

static Order *order_for(Loader *l, int64_t epoch)
{
    return l->config.shuffle ? &l->orders[epoch & 1] : NULL;
}

static bool may_claim(const Loader *l)
{
    return l->failed == NONE && l->claimed < l->batches && l->claimed < l->released + l->slots_count;
}

/* The next number to fill, with its epoch's order taken; NONE if there is nothing to do now. */
static int64_t claim_number(Loader *l)
{
    if (!may_claim(l)) return NONE;
    int64_t epoch = epoch_of(l, l->claimed);
    Order *order = order_for(l, epoch);
    if (order && order->epoch != epoch) {
        if (order->users == 0) prepare_order(l, order, epoch);
        return NONE;
    }
    if (order) order->users++;
    return l->claimed++;
}

static void fill_number(Loader *l, int64_t number, const Worker *worker)
{
    Slot *slot = &l->slots[number % l->slots_count];
    Order *order = order_for(l, epoch_of(l, number));
    pthread_mutex_unlock(&l->lock);
    Status st = fill_slot(l, number, order ? order->ids : NULL, worker, slot);
    pthread_mutex_lock(&l->lock);
    if (st == OK)
        slot->ready = number;
    else
        note_failure(l, number, st);
    if (order && --order->users == 0) pthread_cond_broadcast(&l->work);
    pthread_cond_signal(&l->done);
}

/* True if claim_number could do something: it is then called again instead of waiting. */
static bool has_work(Loader *l)
{
    if (!may_claim(l)) return false;
    const Order *order = order_for(l, epoch_of(l, l->claimed));
    return !order || order->epoch == epoch_of(l, l->claimed) || order->users == 0;
}

static void *run_worker(void *argument)
{
    const Worker *worker = argument;
    Loader *l = worker->loader;
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        int64_t number = claim_number(l);
        if (number != NONE) fill_number(l, number, worker);
        while (!l->stop && !has_work(l)) pthread_cond_wait(&l->work, &l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- the caller's side */

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Until batch `number` is ready or has failed; without workers, by doing the work here. */
static void wait_for(Loader *l, int64_t number)
{
    const Slot *slot = &l->slots[number % l->slots_count];
    if (slot->ready == number || l->failed == number) return;
    int64_t start = now_ns();
    while (slot->ready != number && l->failed != number) {
        int64_t mine = l->threads_count == 0 ? claim_number(l) : NONE;
        if (mine != NONE)
            fill_number(l, mine, &l->workers[0]);
        else if (l->threads_count > 0)
            pthread_cond_wait(&l->done, &l->lock);
    }
    l->wait_ns += now_ns() - start;
}

static void release_borrowed(Loader *l)
{
    if (!l->borrowed) return;
    l->borrowed = false;
    l->released++;
    pthread_cond_signal(&l->work);
}

Status loader_next(Loader *loader, const Batch **batch)
{
    Loader *l = loader;
    Status st = OK;
    pthread_mutex_lock(&l->lock);
    release_borrowed(l);
    int64_t number = l->released;
    if (number >= l->batches) {
        st = FAIL(ERR_ARG, "no batch left: the loader was asked to end before step %" PRId64, l->config.max_steps);
        goto out;
    }
    wait_for(l, number);
    if (l->failed == number) {
        st = FAIL(l->failure, "%s", l->why);
        goto out;
    }
    l->borrowed = true;
    *batch = &l->slots[number % l->slots_count].batch;
out:
    pthread_mutex_unlock(&l->lock);
    return st;
}

int64_t loader_wait_ns(const Loader *loader)
{
    return loader->wait_ns;
}

/* ---- birth and death */

static Status check_config(const LoaderConfig *c)
{
    const Shares *s = &c->shares;
    int64_t global = 0;
    if (!c->dataset) return FAIL(ERR_ARG, "loader: no data set");
    if (s->towers < 1 || s->towers > TOWERS_MAX)
        return FAIL(ERR_ARG, "loader: expected 1 to %d towers, found %d", TOWERS_MAX, s->towers);
    for (int t = 0; t < s->towers; t++) {
        if (s->batch[t] < 0) return FAIL(ERR_ARG, "loader: tower %d has a share of %d samples", t, s->batch[t]);
        global += s->batch[t];
    }
    if (global < 1 || global > INT32_MAX)
        return FAIL(ERR_ARG, "loader: expected a global batch of 1 to %d samples, found %" PRId64, INT32_MAX, global);
    if (c->first_tower < 0 || c->local < 1 || c->local > s->towers || c->first_tower > s->towers - c->local)
        return FAIL(ERR_ARG, "loader: %d towers from tower %d on, of %d", c->local, c->first_tower, s->towers);
    if (c->side < 1 || c->side > SIDE_MAX || c->pad < 0 || c->pad > SIDE_MAX || c->side + 2 * c->pad > SIDE_MAX)
        return FAIL(ERR_ARG, "loader: side %d with padding %d: expected at most %d in all", c->side, c->pad, SIDE_MAX);
    if (c->start_step < 0 || c->max_steps < c->start_step)
        return FAIL(ERR_ARG, "loader: expected 0 <= first step <= last step, found %" PRId64 " and %" PRId64,
                    c->start_step, c->max_steps);
    if (c->stride < 0) return FAIL(ERR_ARG, "loader: expected a stride of 1 or more, found %" PRId64, c->stride);
    if (c->workers < 0 || c->workers > WORKERS_MAX || c->depth < 2 || c->depth > DEPTH_MAX)
        return FAIL(ERR_ARG, "loader: expected 0 to %d workers and 2 to %d batches ahead, found %d and %d", WORKERS_MAX,
                    DEPTH_MAX, c->workers, c->depth);
    return OK;
}

static void set_sizes(Loader *l)
{
    const LoaderConfig *c = &l->config;
    int64_t steps = (c->max_steps - c->start_step) / c->stride + ((c->max_steps - c->start_step) % c->stride > 0);
    l->info = *dataset_info(c->dataset);
    l->steps_per_epoch = shares_steps_per_epoch(&c->shares, l->info.count);
    l->batches = steps > INT64_MAX / c->local ? INT64_MAX : steps * c->local;
    l->canvas = c->side + 2 * c->pad;
    l->canvas_bytes = (size_t)l->canvas * (size_t)l->canvas * (size_t)l->info.c;
    l->capacity = 1;
    for (int t = c->first_tower; t < c->first_tower + c->local; t++)
        if (c->shares.batch[t] > l->capacity) l->capacity = c->shares.batch[t];
    l->slots_count = c->workers > 0 ? c->depth : 1;
    l->workers_count = c->workers > 0 ? c->workers : 1;
}

static Status slot_init(const Loader *l, Slot *slot)
{
    size_t n = (size_t)l->capacity;
    slot->ready = NONE;
    slot->pixels = calloc(n, l->canvas_bytes);
    slot->labels = calloc(n, sizeof *slot->labels);
    slot->augment = calloc(n, 4 * sizeof *slot->augment);
    slot->ids = calloc(n, sizeof *slot->ids);
    if (!slot->pixels || !slot->labels || !slot->augment || !slot->ids)
        return FAIL(ERR_MEMORY,
                    "no memory for %d batches of %d images of %zu bytes: lower the batch size or the batches ahead",
                    l->slots_count, l->capacity, l->canvas_bytes);
    slot->batch = (Batch){.canvas = l->canvas,
                          .c = l->info.c,
                          .pixels = slot->pixels,
                          .labels = slot->labels,
                          .augment = slot->augment,
                          .ids = slot->ids};
    return OK;
}

static Status worker_init(Loader *l, Worker *worker)
{
    worker->loader = l;
    TRY(pixels_shape(&worker->image, l->info.h, l->info.w, l->info.c));
    return resizer_create(&worker->resizer);
}

static Status orders_init(Loader *l)
{
    for (int i = 0; i < 2 && l->config.shuffle; i++) {
        l->orders[i].ids = calloc((size_t)l->info.count, sizeof *l->orders[i].ids);
        if (!l->orders[i].ids) return FAIL(ERR_MEMORY, "no memory for the order of %" PRId64 " samples", l->info.count);
    }
    return OK;
}

static Status allocate(Loader *l)
{
    l->slots = calloc((size_t)l->slots_count, sizeof *l->slots);
    l->workers = calloc((size_t)l->workers_count, sizeof *l->workers);
    l->threads = calloc((size_t)l->workers_count, sizeof *l->threads);
    if (!l->slots || !l->workers || !l->threads) return FAIL(ERR_MEMORY, "no memory for loader");
    for (int i = 0; i < l->slots_count; i++) TRY(slot_init(l, &l->slots[i]));
    for (int i = 0; i < l->workers_count; i++) TRY(worker_init(l, &l->workers[i]));
    TRY(orders_init(l));
    return OK;
}

static Status start_worker(Loader *l, int index)
{
    int code = pthread_create(&l->threads[index], NULL, run_worker, &l->workers[index]);
    if (code != 0)
        return FAIL(ERR_DEVICE, "cannot start loader thread %d of %d: %s; lower the number of workers", index,
                    l->config.workers, strerror(code));
    return OK;
}

/* Signals are the main thread's business: the workers start with all of them blocked. */
static Status start_workers(Loader *l)
{
    Status st = OK;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int started = 0;
    while (st == OK && started < l->config.workers) {
        st = start_worker(l, started);
        if (st == OK) started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    l->threads_count = started;
    return st;
}

Status loader_create(const LoaderConfig *config, Loader **made)
{
    Status st = OK;
    TRY(check_config(config));
    Loader *l = calloc(1, sizeof *l);
    if (!l) return FAIL(ERR_MEMORY, "no memory for loader");
    l->config = *config;
    if (l->config.stride == 0) l->config.stride = 1;
    l->failed = NONE;
    l->orders[0].epoch = l->orders[1].epoch = NONE;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->done, NULL);
    set_sizes(l);
    TRY_OUT(allocate(l));
    TRY_OUT(start_workers(l));
    *made = l;
    l = NULL;
out:
    loader_destroy(l);
    return st;
}

static void stop_workers(Loader *l)
{
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->threads_count; i++) pthread_join(l->threads[i], NULL);
}

static void free_slots(Loader *l)
{
    for (int i = 0; l->slots && i < l->slots_count; i++) {
        free(l->slots[i].pixels);
        free(l->slots[i].labels);
        free(l->slots[i].augment);
        free(l->slots[i].ids);
    }
    free(l->slots);
}

bool loader_pixels(const Loader *l, int index, void **memory, size_t *bytes)
{
    if (index >= l->slots_count) return false;
    *memory = l->slots[index].pixels;
    *bytes = (size_t)l->capacity * l->canvas_bytes;
    return true;
}

void loader_destroy(Loader *loader)
{
    Loader *l = loader;
    if (!l) return;
    stop_workers(l);
    free_slots(l);
    for (int i = 0; l->workers && i < l->workers_count; i++) {
        pixels_free(&l->workers[i].image);
        resizer_destroy(l->workers[i].resizer);
    }
    free(l->workers);
    free(l->threads);
    free(l->orders[0].ids);
    free(l->orders[1].ids);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->done);
    free(l);
}
