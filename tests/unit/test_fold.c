/* Folds: every sample is in one part, parts are even by class, groups are never divided, and only the seed and the samples
 * decide. */
#include "towers/data/loading/fold.h"

#include "kernels/philox.h"
#include "tests/support/scratch.h"
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

/* As ranges for int8 are measured on one of the 512-image parts of a large set: more parts than --fold takes. */
TEST(test_thousands_of_folds)
{
    enum { MANY = 5003, FOLDS = 1700 };
    static int32_t part[MANY];
    static int size[FOLDS];
    Source s = samples(MANY);
    assert_int_equal(fold_parts(&s, &(FoldConfig){1, FOLDS, 3, NULL, NULL}, part), OK);
    for (int64_t i = 0; i < MANY; i++) size[part[i]]++;
    for (int f = 0; f < FOLDS; f++) assert_in_range(size[f], MANY / FOLDS, MANY / FOLDS + 1);
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

/* ---- groups of very different sizes and classes */

enum { GROUPS = 12, GROUP_CLASSES = 3 };

/* Samples of each class in each group. The last class is rare. */
static const int group_has[GROUPS][GROUP_CLASSES] = {{60, 11, 1}, {44, 7, 0}, {36, 1, 3}, {23, 4, 3},
                                                     {16, 3, 0},  {13, 1, 1}, {9, 1, 2},  {7, 1, 2},
                                                     {6, 0, 3},   {3, 1, 3},  {2, 1, 1},  {2, 0, 0}};

/* The group and the class of sample i, counted group by group and class by class; the number of samples if i is -1. */
static int64_t uneven_find(int64_t i, int *group, int32_t *label)
{
    int64_t before = 0;
    for (int g = 0; g < GROUPS; g++)
        for (int c = 0; c < GROUP_CLASSES; c++) {
            if (i >= before && i < before + group_has[g][c]) *group = g, *label = c;
            before += group_has[g][c];
        }
    return before;
}

static int32_t uneven_label(const Source *source, int64_t i)
{
    int group;
    int32_t label = 0;
    uneven_find(i, &group, &label);
    return label;
}

static void uneven_where(const Source *source, int64_t i, char *text, size_t bytes)
{
    int group = 0;
    int32_t label;
    uneven_find(i, &group, &label);
    snprintf(text, bytes, "data/p%d/%" PRId64 ".jpg", group, i);
}

static Source uneven(void)
{
    return (Source){.info = {.name = "uneven", .count = uneven_find(-1, NULL, NULL), .classes = GROUP_CLASSES},
                    .label = uneven_label,
                    .where = uneven_where};
}

/* The largest groups are placed first, each where its classes are most missed, rare ones as much as frequent ones. */
TEST(test_uneven_groups_are_balanced)
{
    static const int bound[GROUP_CLASSES] = {8, 5, 1}; /* between any two of three folds; of 221, 31 and 19 samples */
    int32_t part[COUNT];
    Source s = uneven();
    for (uint64_t seed = 0; seed < 5; seed++) {
        int in[GROUP_CLASSES][3] = {{0}};
        assert_int_equal(fold_parts(&s, &(FoldConfig){1, 3, seed, "1", NULL}, part), OK);
        for (int64_t i = 0; i < s.info.count; i++) in[uneven_label(&s, i)][part[i]]++;
        for (int c = 0; c < GROUP_CLASSES; c++)
            for (int f = 0; f < 3; f++)
                for (int g = 0; g < 3; g++)
                    if (in[c][f] - in[c][g] > bound[c])
                        fail_msg("class %d: %d and %d samples in two folds", c, in[c][f], in[c][g]);
    }
}

/* As many groups as folds: leave one out. */
TEST(test_one_group_a_fold)
{
    int32_t part[COUNT], of[GROUPS], label;
    int group = 0, taken[GROUPS] = {0};
    Source s = uneven();
    assert_int_equal(fold_parts(&s, &(FoldConfig){1, GROUPS, 3, "1", NULL}, part), OK);
    for (int64_t i = 0; i < s.info.count; i++) {
        uneven_find(i, &group, &label);
        of[group] = part[i];
    }
    for (int g = 0; g < GROUPS; g++) assert_int_equal(taken[of[g]]++, 0);
    for (int64_t i = 0; i < s.info.count; i++) {
        uneven_find(i, &group, &label);
        assert_int_equal(part[i], of[group]);
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

static char folder[PATH_BYTES];

static bool file_of_text(const Source *source, int64_t index, char *path, size_t room, uint64_t *bytes)
{
    (void)source;
    int64_t number = index % 30 == 27 ? index - 27 : index; /* its text */
    *bytes = number < 10 ? 1 : number < 100 ? 2 : 3;
    return snprintf(path, room, "%s/%" PRId64, folder, index) < (int)room;
}

/* Equal files are in the part of the first of them; all others are where they are without the copies. */
TEST_WITH(test_equal_files, scratch_make, scratch_drop)
{
    scratch_path(folder, ".");
    for (int i = 0; i < COUNT; i++) {
        char name[32], text[32];
        snprintf(name, sizeof name, "%d", i);
        snprintf(text, sizeof text, "%d", i % 30 == 27 ? i - 27 : i);
        scratch_put(name, text);
    }
    Source s = samples(COUNT);
    s.file = file_of_text;
    int32_t together[COUNT], apart[COUNT];
    int torn = 0;
    assert_int_equal(fold_parts(&s, &(FoldConfig){1, 5, 3}, together), OK);
    assert_int_equal(fold_parts(&s, &(FoldConfig){1, 5, 3, .equal_apart = true}, apart), OK);
    for (int i = 0; i < COUNT; i++) {
        bool copy = i % 30 == 27;
        assert_int_equal(together[i], copy ? apart[i - 27] : apart[i]);
        torn += copy && apart[i] != apart[i - 27];
    }
    assert_in_range(torn, 1, COUNT / 30);
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
