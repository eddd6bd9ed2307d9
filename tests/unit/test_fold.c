/* Folds: every sample is in one part, parts are even by class, groups are never divided, and only the seed and the samples
 * decide. */
#include "towers/data/loading/fold.h"

#include "kernels/philox.h"
#include "tests/support/unit.h"
#include "towers/data/sources/reader.h"

enum { COUNT = 503, CLASSES = 7, PATIENTS = 60 };

/* Sample i is of a drawn class and patient, in the folder of both. */
static int32_t label_of(int64_t i)
{
    return (int32_t)(philox(5, (uint32_t)i, 0, 0, 0).v[0] % CLASSES);
}

static int patient_of(int64_t i)
{
    return (int)(philox(5, (uint32_t)i, 0, 0, 0).v[1] % PATIENTS);
}

static Status read_nothing(const Source *source, int64_t index, Bytes *bytes, int32_t *label)
{
    *label = label_of(index);
    return OK;
}

static int32_t label_read(const Source *source, int64_t index)
{
    return label_of(index);
}

static void where_read(const Source *source, int64_t index, char *text, size_t bytes)
{
    if (source->info.shard_first) /* each patient is in several shards */
        snprintf(text, bytes, "data/%d.tar: p%d/%d.jpg, offset 512", (int)index % 5, patient_of(index), (int)index);
    else
        snprintf(text, bytes, "data/c%d/p%d/%" PRId64 ".jpg", label_of(index), patient_of(index), index);
}

static int closed;

static void close_count(Source *source)
{
    closed++;
}

static Source samples(int64_t count)
{
    return (Source){.info = {.name = "drawn", .count = count, .classes = CLASSES, .fingerprint = {1, 2}},
                    .read = read_nothing,
                    .label = label_read,
                    .where = where_read,
                    .close = close_count};
}

static void parts_of(const FoldConfig *config, bool in_shards, int32_t part[COUNT])
{
    Source s = samples(COUNT);
    if (in_shards) s.info.shard_first = (const int64_t[]){0};
    assert_int_equal(fold_parts(&s, config, part), OK);
    for (int64_t i = 0; i < COUNT; i++) assert_in_range(part[i], 0, config->folds - 1);
}

TEST(test_even_by_class)
{
    for (int folds = 2; folds <= 11; folds++) {
        int32_t part[COUNT], other[COUNT];
        int in[CLASSES][12] = {{0}}, size[12] = {0}, moved = 0;
        parts_of(&(FoldConfig){1, folds, 3, NULL, NULL}, false, part);
        parts_of(&(FoldConfig){folds, folds, 4, NULL, NULL}, false, other);
        for (int64_t i = 0; i < COUNT; i++) {
            in[label_of(i)][part[i]]++;
            size[part[i]]++;
            moved += part[i] != other[i];
        }
        assert_true(moved > COUNT / 4); /* another seed */
        for (int f = 0; f < folds; f++) {
            assert_in_range(size[f], COUNT / folds, COUNT / folds + 1);
            for (int c = 0; c < CLASSES; c++)
                for (int g = 0; g < folds; g++) assert_true(in[c][f] - in[c][g] <= 1);
        }
    }
}

TEST(test_groups_stay_together)
{
    for (int folds = 2; folds <= 11; folds++) {
        int32_t part[COUNT];
        int of[PATIENTS], size[11] = {0};
        parts_of(&(FoldConfig){1, folds, 9, "1", NULL}, folds % 2, part);
        for (int p = 0; p < PATIENTS; p++) of[p] = -1;
        for (int64_t i = 0; i < COUNT; i++) {
            int *own = &of[patient_of(i)];
            if (*own < 0) *own = part[i];
            assert_int_equal(*own, part[i]);
            size[part[i]]++;
        }
        for (int f = 0; f < folds; f++) assert_in_range(size[f], COUNT / folds * 3 / 4, COUNT / folds * 5 / 4 + 1);
    }
}

TEST(test_folder_above)
{
    int32_t part[COUNT], of[CLASSES];
    parts_of(&(FoldConfig){1, 3, 9, "2", NULL}, false, part);
    for (int c = 0; c < CLASSES; c++) of[c] = -1;
    for (int64_t i = 0; i < COUNT; i++) {
        if (of[label_of(i)] < 0) of[label_of(i)] = part[i];
        assert_int_equal(of[label_of(i)], part[i]);
    }
}

TEST(test_both_sides)
{
    bool seen[COUNT] = {false};
    int64_t all = 0;
    uint64_t print[4];
    for (int fold = 1; fold <= 4; fold++)
        for (int evaluation = 0; evaluation < 2; evaluation++) {
            Source whole = samples(COUNT), *s = &whole;
            FoldConfig config = {fold, 4, 8, NULL, NULL};
            assert_int_equal(source_fold(&s, &config, evaluation), OK);
            int64_t count = source_info(s)->count;
            for (int64_t i = 0; i < count; i++) {
                char where[64];
                int32_t label;
                Bytes bytes = {0};
                source_where(s, i, where, sizeof where);
                long long id = strtoll(strrchr(where, '/') + 1, NULL, 10);
                assert_int_equal(source_label(s, i), label_of(id));
                assert_int_equal(source_read(s, i, &bytes, &label), OK);
                assert_int_equal(label, label_of(id));
                if (evaluation) {
                    assert_false(seen[id]);
                    seen[id] = true;
                }
            }
            all += count;
            print[fold - 1] = source_info(s)->fingerprint[0];
            for (int k = 0; evaluation && k < fold - 1; k++) assert_true(print[k] != print[fold - 1]);
            closed = 0;
            source_close(s);
            assert_int_equal(closed, 1);
        }
    assert_int_equal(all, 4 * COUNT); /* what is not for evaluation is for training */
}

static void refused(int64_t count, const FoldConfig *config, const char *why)
{
    Source whole = samples(count), *s = &whole;
    closed = 0;
    assert_fails(source_fold(&s, config, true), ERR_ARG, why);
    assert_null(s);
    assert_int_equal(closed, 1);
}

TEST(test_refused)
{
    refused(3, &(FoldConfig){1, 4, 0, NULL, NULL}, "3 training images, too few for 4 folds");
    refused(COUNT, &(FoldConfig){1, 8, 0, "2", NULL}, "7 groups, too few for 8 folds");
    refused(COUNT, &(FoldConfig){1, 3, 0, "4", NULL}, "data/c");
    refused(COUNT, &(FoldConfig){1, 3, 0, "patient", "/nowhere"}, "/nowhere");
}
