/* The loader: the same batches for any number of threads and loaders, resume in the middle of an epoch, errors at
 * their sample, and an end at any point. The data set's pixels and labels are computed from the sample number, so
 * every sample can be identified. */
#include "towers/data/loading/loader.h"

#include <unistd.h>
#include <xxhash.h>

#include "kernels/base/progress.h"
#include "tests/support/local_batches.h"
#include "tests/support/unit.h"
#include "towers/data/sources/reader.h"

/* ---- a data set that counts, and fails when told to */

typedef struct CountedSource {
    Source base;
    int64_t bad;      /* this and the later samples cannot be read; -1: all can */
    bool bad_is_late; /* it fails after the later ones, else before them */
    int64_t every;    /* each so many samples one is bad; 0: none */
    Status how;       /* in which way */
} CountedSource;

static uint8_t pixel_of(int64_t index, size_t at)
{
    return (uint8_t)(1 + (index * 31 + (int64_t)at * 7) % 255); /* never 0, which is the border */
}

static Status read_counted(const Source *source, int64_t index, Bytes *bytes, int32_t *label)
{
    const CountedSource *d = (const CountedSource *)source;
    uint8_t pixels[16 * 16 * 3];
    if (d->bad >= 0 && index >= d->bad) {
        usleep((index == d->bad) == d->bad_is_late ? 2000 : 500); /* long enough for the others to begin */
        return FAIL(ERR_FORMAT, "sample %d is bad", (int)index);
    }
    if (d->every && index % d->every == 3) return FAIL(d->how, "sample %d is damaged", (int)index);
    size_t count = (size_t)(d->base.info.h * d->base.info.w * d->base.info.c);
    for (size_t i = 0; i < count; i++) pixels[i] = pixel_of(index, i);
    *label = (int32_t)(index % d->base.info.classes);
    return bytes_raw(bytes, pixels, d->base.info.h, d->base.info.w, d->base.info.c);
}

/* Eight samples of class 0, none of most, the rest of three more. */
static int32_t label_uneven(const Source *source, int64_t index)
{
    return index % 500 == 0 && index < 4000 ? 0 : index % 100 == 1 ? 2 : index % 2 ? 3 : 7;
}

static CountedSource counted(int64_t count, int32_t h, int32_t w, int32_t c)
{
    return (CountedSource){.base = {.info = {.name = "counted", .count = count, .classes = 10, .h = h, .w = w, .c = c},
                                    .read = read_counted},
                           .bad = -1};
}

static const int32_t usual_batch[] = {5, 0, 4};

static LoaderConfig config_of(const CountedSource *d)
{
    LoaderConfig c = {.source = &d->base,
                      .local_batches = {.towers = 3, .batch = usual_batch},
                      .local = 3,
                      .seed = 11,
                      .shuffle = true,
                      .transform = {.side = 6, .pad = 2, .shift = true, .flip = FLIP_RANDOM},
                      .max_steps = 40,
                      .workers = 0,
                      .depth = 4};
    return c;
}

static Loader *create(const LoaderConfig *c)
{
    Loader *l = NULL;
    if (loader_create(c, &l) != OK) fail_msg("%s", status_message());
    return l;
}

static uint64_t digest_of(const Batch *b)
{
    uint64_t head[] = {(uint64_t)b->step, (uint64_t)b->epoch, (uint64_t)b->tower, (uint64_t)b->n};
    size_t n = (size_t)b->n, bytes = (size_t)b->canvas * (size_t)b->canvas * (size_t)b->c;
    uint64_t h = XXH3_64bits(head, sizeof head);
    h = XXH3_64bits_withSeed(b->pixels, n * bytes, h);
    h = XXH3_64bits_withSeed(b->labels, n * sizeof *b->labels, h);
    h = XXH3_64bits_withSeed(b->augment, n * IMAGE_RECORD * sizeof *b->augment, h);
    return XXH3_64bits_withSeed(b->ids, n * sizeof *b->ids, h);
}

/* digest[step - from][tower] of all batches. */
static void collect(const LoaderConfig *c, int64_t from, uint64_t (*digest)[3])
{
    Loader *l = create(c);
    for (int64_t step = c->start_step; step < c->max_steps; step += c->stride ? c->stride : 1)
        for (int t = c->first_tower; t < c->first_tower + c->local; t++) {
            const Batch *b = NULL;
            assert_int_equal(loader_next(l, &b), OK);
            assert_int_equal(b->step, step);
            assert_int_equal(b->tower, t);
            digest[step - from][t] = digest_of(b);
        }
    const Batch *none = NULL;
    assert_int_equal(loader_next(l, &none), ERR_ARG);
    assert_null(none);
    loader_destroy(l);
}

/* ---- */

TEST(test_contents)
{
    CountedSource d = counted(50, 6, 6, 3);
    LoaderConfig c = config_of(&d);
    bool seen[2][50] = {{false}};
    int flips = 0, moved = 0, places[5] = {0};
    c.max_steps = 12; /* two epochs of 6 steps, the last with 5 samples of 9 */
    Loader *l = create(&c);
    for (int k = 0; k < 36; k++) {
        const Batch *b = NULL;
        assert_int_equal(loader_next(l, &b), OK);
        assert_int_equal(b->epoch, k / 18);
        assert_int_equal(b->canvas, 10);
        int short_batch = k % 18 / 3 == 5;
        const int32_t wanted[] = {short_batch ? 3 : 5, 0, short_batch ? 2 : 4};
        assert_int_equal(b->n, wanted[k % 3]);
        for (int i = 0; i < b->n; i++) {
            assert_false(seen[b->epoch][b->ids[i]]);
            seen[b->epoch][b->ids[i]] = true;
            assert_int_equal(b->labels[i], b->ids[i] % 10);
            const int32_t *crop = b->augment + IMAGE_RECORD * i;
            assert_true(crop[0] >= 0 && crop[0] <= 4 && crop[1] >= 0 && crop[1] <= 4 && crop[3] == 0);
            flips += crop[2];
            for (int axis = 0; axis < 2; axis++) places[crop[axis]]++;
            moved += crop[0] != 2 || crop[1] != 2;
            for (int y = 0; y < 10; y++)
                for (int x = 0; x < 10; x++)
                    for (int k3 = 0; k3 < 3; k3++) {
                        bool inside = y >= 2 && y < 8 && x >= 2 && x < 8;
                        size_t at = (size_t)(((y - 2) * 6 + x - 2) * 3 + k3);
                        assert_int_equal(b->pixels[((i * 10 + y) * 10 + x) * 3 + k3],
                                         inside ? pixel_of(b->ids[i], at) : 0);
                    }
        }
    }
    for (int i = 0; i < 100; i++) assert_true(seen[i / 50][i % 50]);
    assert_in_range(flips, 30, 70);
    for (int at = 0; at < 5; at++) assert_in_range(places[at], 20, 60);
    assert_in_range(moved, 80, 100);
    loader_destroy(l);
}

/* Every epoch has an order and crops of its own, in its whole length and in its first half. */
TEST(test_epochs_differ)
{
    enum { COUNT = 50, EPOCHS = 3 };
    CountedSource d = counted(COUNT, 6, 6, 1);
    LoaderConfig c = config_of(&d);
    int64_t order[EPOCHS][COUNT];
    int32_t crops[EPOCHS][COUNT][IMAGE_RECORD];
    int at[EPOCHS] = {0};
    c.max_steps = 6 * EPOCHS;
    Loader *l = create(&c);
    for (int k = 0; k < 3 * 6 * EPOCHS; k++) {
        const Batch *b = NULL;
        assert_int_equal(loader_next(l, &b), OK);
        for (int i = 0; i < b->n; i++) {
            order[b->epoch][at[b->epoch]] = b->ids[i];
            memcpy(crops[b->epoch][b->ids[i]], b->augment + IMAGE_RECORD * i, sizeof crops[0][0]);
            at[b->epoch]++;
        }
    }
    for (int a = 0; a < EPOCHS; a++) {
        assert_int_equal(at[a], COUNT);
        for (int b = 0; b < a; b++) {
            assert_memory_not_equal(order[a], order[b], sizeof order[0] / 2);
            assert_memory_not_equal(crops[a], crops[b], sizeof crops[0]);
        }
    }
    loader_destroy(l);
}

TEST(test_plain_order)
{
    CountedSource d = counted(20, 6, 6, 1);
    LoaderConfig c = config_of(&d);
    c.shuffle = c.transform.shift = false;
    c.transform.flip = FLIP_NONE;
    c.workers = 2;
    c.max_steps = 6;
    Loader *l = create(&c);
    for (int64_t k = 0, next = 0; k < 18; k++) {
        const Batch *b = NULL;
        assert_int_equal(loader_next(l, &b), OK);
        for (int i = 0; i < b->n; i++, next++) {
            assert_int_equal(b->ids[i], next % 20);
            const int32_t *crop = b->augment + IMAGE_RECORD * i;
            assert_true(crop[IMAGE_OY] == 2 && crop[IMAGE_OX] == 2 && crop[IMAGE_FLIP] == 0);
        }
    }
    loader_destroy(l);
}

TEST(test_same_for_any_workers)
{
    CountedSource d = counted(50, 9, 8, 1); /* resized to 6 x 6 */
    LoaderConfig c = config_of(&d);
    uint64_t wanted[40][3], found[40][3];
    collect(&c, 0, wanted);
    const int workers[] = {0, 1, 4, 16}, depths[] = {2, 3, 9};
    for (int i = 0; i < 12; i++) {
        c.workers = workers[i % 4];
        c.depth = depths[i / 4];
        collect(&c, 0, found);
        assert_memory_equal(found, wanted, sizeof wanted);
    }
    c.seed++;
    collect(&c, 0, found);
    for (int step = 0; step < 40; step++) assert_true(found[step][0] != wanted[step][0]);
}

/* One step an epoch: the ring spans more epochs than there are order arrays. */
TEST(test_short_epochs)
{
    CountedSource d = counted(7, 6, 6, 1);
    LoaderConfig c = config_of(&d);
    uint64_t wanted[200][3], found[200][3];
    c.max_steps = 200;
    collect(&c, 0, wanted);
    c.workers = 8;
    c.depth = 16;
    collect(&c, 0, found);
    assert_memory_equal(found, wanted, sizeof wanted);
}

TEST(test_same_in_several_loaders)
{
    CountedSource d = counted(50, 6, 6, 1);
    LoaderConfig c = config_of(&d);
    uint64_t wanted[40][3], found[40][3];
    collect(&c, 0, wanted);
    c.workers = 2;
    for (int first = 0; first < 3; first += c.local) {
        c.first_tower = first;
        c.local = first == 0 ? 1 : 2;
        collect(&c, 0, found);
    }
    assert_memory_equal(found, wanted, sizeof wanted);
}

/* Evaluation deals whole steps out to the processes: together they see every step once. */
TEST(test_strides)
{
    uint64_t whole[11][3] = {0}, parts[11][3] = {0};
    CountedSource d = counted(50, 6, 6, 1);
    LoaderConfig c = config_of(&d);
    c.start_step = 0;
    c.max_steps = 11;
    collect(&c, 0, whole);
    c.stride = 3;
    for (int first = 0; first < 3; first++) {
        c.start_step = first;
        collect(&c, 0, parts);
    }
    assert_memory_equal(whole, parts, sizeof whole);
}

TEST(test_resume_in_the_middle)
{
    CountedSource d = counted(50, 6, 6, 1);
    LoaderConfig c = config_of(&d);
    uint64_t wanted[40][3], found[40][3];
    collect(&c, 0, wanted);
    for (int64_t start = 0; start <= 40; start += 4) {
        c.start_step = start;
        c.workers = (int)(start / 4 % 3);
        collect(&c, start, found);
        assert_memory_equal(found, wanted + start, (size_t)(40 - start) * sizeof *wanted);
    }
}

TEST(test_error_in_its_place)
{
    CountedSource d = counted(50, 6, 6, 1);
    LoaderConfig c = config_of(&d);
    c.shuffle = false;
    d.bad = 9 + 9 + 5;                         /* step 2, the first sample of tower 2 */
    for (int round = 0; round < 10; round++) { /* the batches after it fail too, sooner or later */
        c.workers = round / 2;
        d.bad_is_late = round % 2;
        Loader *l = create(&c);
        const Batch *b = NULL;
        for (int k = 0; k < 8; k++) assert_int_equal(loader_next(l, &b), OK);
        for (int again = 0; again < 3; again++) {
            assert_int_equal(loader_next(l, &b), ERR_FORMAT);
            assert_string_equal(status_message(),
                                "batch of step 2, tower 2: sample 23 is bad (--bad-samples skip leaves damaged images "
                                "out; towers data check DIR names all of them)");
            usleep(3000);
        }
        loader_destroy(l);
    }
}

/* ---- mixing and targets */

/* What a sample of a global batch is made of, whatever tower it is in. */
typedef struct MixedSample {
    int64_t id, partner; /* partner: -1 without one */
    int32_t predicted, record[IMAGE_RECORD], partner_record[IMAGE_RECORD];
    uint64_t pixels, partner_pixels;
    float targets[10];
} MixedSample;

static MixedSample mixed_sample(const Batch *b, int32_t i)
{
    size_t image = (size_t)b->canvas * (size_t)b->canvas * (size_t)b->c, record = IMAGE_RECORD * sizeof *b->augment;
    MixedSample s = {.id = b->ids[i], .partner = -1, .predicted = b->predicted[i]};
    int32_t at = b->augment[i * IMAGE_RECORD + IMAGE_PARTNER] - 1;
    memcpy(s.targets, b->targets + i * 10, sizeof s.targets);
    if (b->labels[i] == LABEL_NONE) return s; /* the rest is a neighbor's */
    memcpy(s.record, b->augment + i * IMAGE_RECORD, record);
    s.record[IMAGE_PARTNER] = at >= 0;
    s.pixels = XXH3_64bits(b->pixels + (size_t)i * image, image);
    if (at < 0) return s;
    assert_true(at <= b->n && at == (i > 0 ? i - 1 : b->n));
    s.partner = b->ids[at];
    memcpy(s.partner_record, b->augment + at * IMAGE_RECORD, IMAGE_PARTNER * sizeof *b->augment);
    s.partner_pixels = XXH3_64bits(b->pixels + (size_t)at * image, image);
    return s;
}

static void mixed_collect(const LoaderConfig *c, int steps, MixedSample *samples, double *weight, int *skipped)
{
    Loader *l = create(c);
    int64_t at = 0;
    for (int k = 0; k < steps; k++)
        for (int t = 0; t < c->local; t++) {
            const Batch *b = NULL;
            assert_int_equal(loader_next(l, &b), OK);
            for (int32_t i = 0; i < b->n; i++) samples[at++] = mixed_sample(b, i);
            weight[k] += (double)b->weight * (b->n > 0);
            skipped[k] += b->skipped;
            for (int32_t i = 0; i < b->skipped; i++) assert_in_range(b->bad[i].index, 0, b->n - 1);
        }
    loader_destroy(l);
}

/* One tower of 9 = towers of 5, 0 and 4 = nine of 1, with threads and without, short batches and damaged samples too. */
TEST(test_mixed_alike)
{
    enum { STEPS = 18, SAMPLES = 150 }; /* three epochs of 50 in steps of 9 */
    static const float weights[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    static MixedSample wanted[SAMPLES], found[SAMPLES];
    for (int damaged = 0; damaged < 2; damaged++) {
        CountedSource d = counted(50, 6, 6, 3);
        LoaderConfig c = config_of(&d);
        double weight[STEPS] = {0};
        int skipped[STEPS] = {0}, mixed = 0, cut = 0, odd = 0;
        d.every = damaged ? 7 : 0;
        d.how = ERR_FORMAT;
        c.bad = BAD_SKIP;
        c.max_steps = STEPS;
        c.mix = (MixRule){0.4, 1};
        c.targets = (TargetRule){10, 0.1f, weights};
        c.local_batches = (LocalBatches){.towers = 1, .batch = (const int32_t[]){9}};
        c.local = 1;
        memset(wanted, 0, sizeof wanted);
        mixed_collect(&c, STEPS, wanted, weight, skipped);
        for (int i = 0; i < SAMPLES; i++) {
            const MixedSample *s = &wanted[i];
            int epoch = i / 50, place = i % 50, first = place / 9 * 9, last = first + 9 < 50 ? first + 8 : 49;
            const MixedSample *before = &wanted[epoch * 50 + (place > first ? place - 1 : last)];
            double sum = 0, own = damaged && s->id % 7 == 3 ? 0 : 1, other = damaged && before->id % 7 == 3 ? 0 : 1;
            for (int k = 0; k < 10; k++) sum += (double)(s->targets[k] / weights[k]);
            assert_true(own > 0 ? sum > 0.99999 && sum < 1.00001 : sum == 0 && s->predicted == LABEL_NONE);
            if (own == 0 || other == 0) assert_true(s->partner == -1);
            if (s->partner >= 0) assert_true(s->partner == before->id && s->partner_pixels == before->pixels);
            mixed += s->partner >= 0;
            cut += s->record[IMAGE_CUT_H] > 0;
            odd += s->partner >= 0 && s->predicted == s->partner % 10 && s->partner % 10 != s->id % 10;
        }
        assert_true(mixed > 70 && cut > 20 && cut < mixed && odd > 5 && odd < mixed / 2);
        const LocalBatches others[] = {{3, usual_batch}, batches_equal(9, 1), {2, (const int32_t[]){0, 9}}};
        for (int k = 0; k < 6; k++) {
            double weights_found[STEPS] = {0};
            int skipped_found[STEPS] = {0};
            c.local_batches = others[k % 3];
            c.local = c.local_batches.towers;
            c.workers = k < 3 ? 0 : 3;
            c.depth = 12;
            memset(found, 0, sizeof found);
            mixed_collect(&c, STEPS, found, weights_found, skipped_found);
            assert_memory_equal(found, wanted, sizeof wanted);
            assert_memory_equal(skipped_found, skipped, sizeof skipped);
            for (int i = 0; i < STEPS; i++)
                assert_true(weights_found[i] < weight[i] + 1e-4 && weights_found[i] > weight[i] - 1e-4);
        }
    }
}

/* All classes come equally often, however many samples they have; the same again from any step on. */
TEST(test_balanced)
{
    enum { COUNT = 4001 };
    CountedSource d = counted(COUNT, 1, 1, 1);
    Order order;
    int seen[10] = {0}, again = 0;
    bool used[COUNT] = {false};
    d.base.label = label_uneven;
    assert_int_equal(order_init_balanced(&order, 3, &d.base), OK);
    assert_int_equal(order.classes, 4);
    for (int64_t i = 0; i < COUNT; i++) {
        int64_t id = order_at(&order, 1, i);
        assert_in_range(id, 0, COUNT - 1);
        assert_true(order_at(&order, 1, i) == id && order_is_ready(&order, 1));
        seen[label_uneven(&d.base, id)]++;
        again += order_at(&order, 2, i) == id;
        used[id] = true;
    }
    order_free(&order);
    double chi2 = 0;
    static const int classes[] = {0, 2, 3, 7};
    for (int k = 0; k < 4; k++) chi2 += (seen[classes[k]] - 1000.25) * (seen[classes[k]] - 1000.25) / 1000.25;
    assert_true(chi2 < 16.3 && again < COUNT / 10); /* 3 degrees of freedom, p = 0.001 */
    int of_first = 0;                               /* 8 samples of class 0, each about 125 times */
    for (int64_t i = 0; i < 8; i++) of_first += used[i * 500];
    assert_int_equal(of_first, 8);
}

/* An image that a balanced epoch draws many times is cut and mirrored anew each time. */
TEST(test_balanced_draws_differ)
{
    enum { COUNT = 2001 };
    CountedSource d = counted(COUNT, 6, 6, 1);
    LoaderConfig c = config_of(&d);
    bool seen[5][5][2] = {{{false}}};
    int drawn = 0, kinds = 0;
    d.base.label = label_uneven;
    c.sampler = SAMPLER_BALANCED;
    Loader *l = create(&c);
    for (int64_t k = 0; k < c.max_steps * c.local; k++) {
        const Batch *b = NULL;
        assert_int_equal(loader_next(l, &b), OK);
        for (int32_t i = 0; i < b->n; i++) {
            const int32_t *record = b->augment + (size_t)i * IMAGE_RECORD;
            if (b->ids[i] != 500 || b->epoch != 0) continue;
            bool *kind = &seen[record[IMAGE_OY]][record[IMAGE_OX]][record[IMAGE_FLIP]];
            kinds += !*kind;
            *kind = true;
            drawn++;
        }
    }
    assert_true(drawn > 5); /* of class 0, one of five samples: 18 times in 360 draws of 4 classes */
    assert_true(kinds > drawn / 2);
    loader_destroy(l);
}

/* Bad samples have no label and look like a good neighbor; the rest of the batch is as it would be without them. */
TEST(test_skip)
{
    CountedSource d = counted(50, 9, 8, 1), good = counted(50, 9, 8, 1);
    LoaderConfig c = config_of(&d), all = config_of(&good);
    uint64_t wanted[40][3], found[40][3];
    int skipped = 0;
    d.every = 7;
    d.how = ERR_FORMAT;
    c.bad = BAD_SKIP;
    Loader *l = create(&c), *whole = create(&all);
    for (int k = 0; k < 120; k++) {
        const Batch *b = NULL, *w = NULL;
        assert_int_equal(loader_next(l, &b), OK);
        assert_int_equal(loader_next(whole, &w), OK);
        int bad = 0;
        for (int i = 0; i < b->n; i++) {
            size_t image = (size_t)(b->canvas * b->canvas);
            assert_int_equal(b->ids[i], w->ids[i]);
            if (b->ids[i] % 7 != 3) {
                assert_int_equal(b->labels[i], w->labels[i]);
                assert_memory_equal(b->pixels + (size_t)i * image, w->pixels + (size_t)i * image, image);
                continue;
            }
            assert_int_equal(b->labels[i], LABEL_NONE);
            assert_int_equal(b->bad[bad].index, i);
            assert_int_equal(b->bad[bad].id, b->ids[i]);
            assert_non_null(strstr(b->bad[bad].why, "is damaged"));
            bad++;
            bool same = b->n == 1 || bad == b->n;
            for (int j = 0; j < b->n && !same; j++)
                same = b->labels[j] != LABEL_NONE &&
                       !memcmp(b->pixels + (size_t)i * image, b->pixels + (size_t)j * image, image);
            assert_true(same);
        }
        assert_int_equal(b->skipped, bad);
        skipped += bad;
    }
    assert_true(skipped > 30);
    loader_destroy(l);
    loader_destroy(whole);
    collect(&c, 0, wanted);
    for (c.workers = 1; c.workers <= 8; c.workers *= 2) {
        collect(&c, 0, found);
        assert_memory_equal(found, wanted, sizeof wanted);
    }
}

/* A storage that fails is no bad sample. */
TEST(test_unreadable_is_never_skipped)
{
    CountedSource d = counted(50, 6, 6, 1);
    LoaderConfig c = config_of(&d);
    const Batch *b = NULL;
    d.every = 40;
    d.how = ERR_IO;
    c.bad = BAD_SKIP;
    Loader *l = create(&c);
    Status st = OK;
    for (int k = 0; k < 120 && st == OK; k++) st = loader_next(l, &b);
    assert_int_equal(st, ERR_IO);
    loader_destroy(l);
}

/* The ring is as deep as the memory allows, and the batches of a step and one more must fit. Each begins a page, as
 * cudaHostRegister refuses one that another batch has locked. */
TEST(test_memory)
{
    CountedSource d = counted(50, 6, 6, 1);
    LoaderConfig c = config_of(&d);
    void *memory;
    size_t bytes;
    c.workers = 2;
    c.depth = 9;
    c.memory = 4 * 5 * 10 * 10 + 7; /* four batches of five images of ten by ten, of three towers */
    Loader *l = create(&c);
    assert_true(loader_pixels(l, 3, &memory, &bytes));
    assert_int_equal(bytes, 500);
    assert_int_equal((uintptr_t)memory % (uintptr_t)sysconf(_SC_PAGESIZE), 0);
    assert_false(loader_pixels(l, 4, &memory, &bytes));
    loader_destroy(l);
    c.targets.classes = 25; /* as many bytes as the pixels have */
    c.memory = 8 * 500;
    l = create(&c);
    assert_false(loader_pixels(l, 4, &memory, &bytes));
    loader_destroy(l);
    c.targets.classes = 0;
    c.memory = 4 * 500 - 1;
    l = NULL;
    assert_fails(loader_create(&c, &l), ERR_ARG, "--data-memory");
}

/* The caller's list of local batches may go once the loader is there. */
TEST(test_local_batches_are_copied)
{
    CountedSource d = counted(50, 6, 6, 1);
    LoaderConfig c = config_of(&d);
    int32_t batch[] = {5, 0, 4};
    const Batch *b = NULL;
    c.local_batches.batch = batch;
    Loader *l = create(&c);
    batch[0] = 1;
    assert_int_equal(loader_next(l, &b), OK);
    assert_int_equal(b->n, 5);
    loader_destroy(l);
}

/* All towers that a run may have, in one process. */
TEST(test_most_towers)
{
    CountedSource d = counted(50, 6, 6, 1);
    LoaderConfig c = config_of(&d);
    c.local_batches = batches_equal(TOWERS_MAX, 1);
    c.local = TOWERS_MAX;
    c.depth = 2 * TOWERS_MAX + 2;
    c.workers = 1;
    loader_destroy(create(&c));
}

TEST(test_early_end)
{
    CountedSource d = counted(5000, 16, 16, 3);
    LoaderConfig c = config_of(&d);
    c.max_steps = INT64_MAX;
    for (int k = 0; k < 60; k++) {
        c.workers = k % 5;
        Loader *l = create(&c);
        const Batch *b = NULL;
        for (int i = 0; i < k % 7; i++) assert_int_equal(loader_next(l, &b), OK);
        loader_destroy(l);
    }
    loader_destroy(NULL);
}

/* A step holds the batches of all its towers until the next one begins; a reader that fills the ring stays out of them. */
TEST(test_a_step_lends_all)
{
    CountedSource d = counted(50, 6, 6, 1);
    LoaderConfig c = config_of(&d);
    for (c.workers = 0; c.workers <= 4; c.workers += 4) {
        Loader *l = create(&c), *one_by_one = create(&c);
        for (int64_t step = 0; step < 3; step++) {
            const Batch *lent[3] = {NULL}, *fourth = NULL, *b = NULL;
            loader_step(l);
            for (int t = 0; t < 3; t++) assert_int_equal(loader_batch(l, &lent[t]), OK);
            assert_int_equal(loader_batch(l, &fourth), ERR_INTERNAL);
            for (int t = 0; t < 3; t++) {
                assert_int_equal(loader_next(one_by_one, &b), OK);
                assert_true(lent[t]->step == step && lent[t]->tower == t && lent[t]->n == b->n);
                assert_memory_equal(lent[t]->ids, b->ids, (size_t)b->n * sizeof *b->ids);
                assert_memory_equal(lent[t]->pixels, b->pixels, (size_t)(b->n * b->canvas * b->canvas * b->c));
            }
        }
        loader_destroy(one_by_one);
        loader_destroy(l);
    }
}

/* Towers without a share still get their batches of nothing. */
TEST(test_no_share)
{
    CountedSource d = counted(50, 6, 6, 1);
    LoaderConfig c = config_of(&d);
    c.first_tower = c.local = c.workers = 1;
    Loader *l = create(&c);
    for (int k = 0; k < 40; k++) {
        const Batch *b = NULL;
        assert_int_equal(loader_next(l, &b), OK);
        assert_true(b->n == 0 && b->step == k && b->tower == 1);
    }
    loader_destroy(l);
}

static void expect_refused(const LoaderConfig *c)
{
    Loader *l = NULL;
    assert_int_equal(loader_create(c, &l), ERR_ARG);
    assert_null(l);
}

TEST(test_refused)
{
    CountedSource d = counted(50, 6, 6, 1);
    const LoaderConfig good = config_of(&d);
    LoaderConfig c;
#define REFUSE(field, value) (c = good, c.field = (value), expect_refused(&c))
    REFUSE(source, NULL);
    REFUSE(local_batches.towers, 0);
    REFUSE(local_batches.towers, TOWERS_MAX + 1);
    REFUSE(local_batches.batch, ((const int32_t[]){5, -1, 4}));
    REFUSE(local_batches.batch, ((const int32_t[]){5, INT32_MAX, 4}));
    REFUSE(first_tower, -1);
    REFUSE(first_tower, 1);
    REFUSE(local, 0);
    REFUSE(local, 4);
    REFUSE(transform.side, 0);
    REFUSE(transform.side, 65500);
    REFUSE(transform.pad, -1);
    REFUSE(transform.pad, INT32_MAX);
    REFUSE(start_step, -1);
    REFUSE(start_step, 41);
    REFUSE(workers, -1);
    REFUSE(workers, 1025);
    REFUSE(depth, 1);
    REFUSE(local_batches.batch, ((const int32_t[]){0, 0, 0}));
#undef REFUSE
}

/* The work of the threads; a loader that was replaced begins at zero again. */
/* While the caller waits for a batch, the images that the threads finish are its signs of life. */
TEST(test_progress)
{
    CountedSource d = counted(4000, 8, 8, 3);
    LoaderConfig c = config_of(&d);
    ProgressSlot slot = {.at_ns = 0};
    c.workers = 1;
    c.local_batches = (LocalBatches){.towers = 3, .batch = (const int32_t[]){400, 400, 400}};
    c.max_steps = 1000;
    Loader *l = create(&c);
    progress_to(&slot);
    for (int i = 0; i < 3000 && slot.at_ns == 0; i++) { /* it need not wait for each */
        const Batch *batch;
        assert_int_equal(loader_next(l, &batch), OK);
    }
    progress_to(NULL);
    assert_string_equal(slot.what, "an image");
    loader_destroy(l);
}

TEST(test_cause)
{
    CountedSource memory = counted(10, 6, 6, 1), files = counted(10, 0, 0, 3);
    const LoaderClocks none = {0}, early = {.read = 900, .decode = 10},
                       late = {.read = 950, .decode = 50, .resize = 30},
                       augmented = {.augment = 7, .decode = 3, .resize = 3};
    assert_string_equal(loader_cause(&files.base, &none, &none), "");
    assert_string_equal(loader_cause(&files.base, &none, &late), "disk");
    assert_string_equal(loader_cause(&memory.base, &none, &late), "read");
    assert_string_equal(loader_cause(&files.base, &early, &late), "decode");
    assert_string_equal(loader_cause(&files.base, &late, &augmented), "augment");
}
