/* Average precision against values worked out by hand, and for many samples against another way to compute it; the list of
 * mistakes with any number of classes. */
#include "towers/train/average_precision.h"

#include "kernels/base/progress.h"
#include "kernels/op.h"
#include "kernels/philox.h"
#include "tests/support/unit.h"
#include "towers/data/sources/reader.h"
#include "towers/train/mistakes.h"

enum { SAMPLES = 300, CLASSES = 4, MANY = 32 };

typedef struct Listed {
    Source base;
    int32_t list[SAMPLES][MANY], count[SAMPLES];
} Listed;

static int32_t labels_of(const Source *source, int64_t index, const int32_t **labels)
{
    const Listed *l = (const Listed *)source;
    *labels = l->list[index];
    return l->count[index];
}

/* Samples whose bit k of has[i] says whether they have class k. */
static Listed listed(const unsigned *has, int count)
{
    Listed l = {.base = {.info = {.count = count, .classes = CLASSES, .multi_label = true}, .labels = labels_of}};
    for (int i = 0; i < count; i++)
        for (int k = 0; k < CLASSES; k++)
            if (has[i] >> k & 1) l.list[i][l.count[i]++] = k;
    return l;
}

TEST(test_by_hand)
{
    /* Class 0: scores fall 1 0 1 0: (1/2)(1/1) + (1/2)(2/3). Class 1: all scores equal: 2/4. Class 2: nobody. Class 3: everybody. */
    const unsigned has[4] = {0xb, 0xa, 0x9, 0x8};
    const float scores[4][CLASSES] = {
        {0.9f, 0.5f, 0.1f, 0.2f}, {0.8f, 0.5f, 0.9f, 0.4f}, {0.3f, 0.5f, 0.1f, 0.1f}, {0.2f, 0.5f, 0.1f, 0}};
    EvalSample samples[4] = {{0}};
    double precision[CLASSES], mean;
    Listed l = listed(has, 4);
    ProgressSlot slot = {0}; /* the others wait while one process sorts: the supervisor must see that it works */
    progress_to(&slot);
    assert_int_equal(average_precision(&l.base, samples, scores[0], CLASSES, precision, &mean), OK);
    progress_to(NULL);
    assert_string_equal(slot.what, "average precision");
    assert_true(fabs(precision[0] - (0.5 + 1.0 / 3)) < 1e-12 && precision[1] == 0.5 && isnan(precision[2]) &&
                precision[3] == 1);
    assert_true(fabs(mean - (precision[0] + 0.5 + 1) / 3) < 1e-12);
    samples[1].label = LABEL_NONE; /* damaged: class 0 is then sorted perfectly, class 1 is one of three */
    assert_int_equal(average_precision(&l.base, samples, scores[0], CLASSES, precision, &mean), OK);
    assert_true(precision[0] == 1 && fabs(precision[1] - 1.0 / 3) < 1e-12);
    samples[1].label = 0;
    float lost
        [4]
        [CLASSES]; /* a score that is no number is the last: class 1 is then sorted 1 1 0 0, with the NaN at the end */
    memcpy(lost, scores, sizeof lost);
    lost[0][1] = 0.7f, lost[1][1] = 0.6f, lost[2][1] = 0.5f, lost[3][1] = NAN;
    assert_int_equal(average_precision(&l.base, samples, lost[0], CLASSES, precision, &mean), OK);
    assert_true(precision[1] == 1);
    lost[0][1] = NAN; /* one that has the class: (1/2)(1/1) + (1/2)(2/4) or (2/3), by the order of the two at the end */
    lost[3][1] = 0.1f;
    assert_int_equal(average_precision(&l.base, samples, lost[0], CLASSES, precision, &mean), OK);
    assert_true(precision[1] == 0.75);
    const unsigned none[4] = {0};
    l = listed(none, 4);
    assert_int_equal(average_precision(&l.base, samples, scores[0], CLASSES, NULL, &mean), OK);
    assert_true(isnan(mean));
}

/* The mean over the samples with the class of the precision among the samples with at least their score. */
TEST(test_against_ranks)
{
    static unsigned has[SAMPLES];
    static float scores[SAMPLES][CLASSES];
    static EvalSample samples[SAMPLES];
    double precision[CLASSES], mean;
    for (int i = 0; i < SAMPLES; i++) {
        Philox words = philox(7, (uint32_t)i, 0, 0, 0);
        has[i] = words.v[0] & 0xf;
        for (int k = 0; k < CLASSES; k++) scores[i][k] = (float)(words.v[1] >> 8 * k & 0x3f) / 64; /* many are equal */
        if (i % 17 == 3) samples[i].label = LABEL_NONE;
    }
    Listed l = listed(has, SAMPLES);
    assert_int_equal(average_precision(&l.base, samples, scores[0], CLASSES, precision, &mean), OK);
    for (int k = 0; k < CLASSES; k++) {
        double sum = 0;
        int own = 0;
        for (int i = 0; i < SAMPLES; i++) {
            int above = 0, right = 0;
            if (samples[i].label == LABEL_NONE || !(has[i] >> k & 1)) continue;
            for (int j = 0; j < SAMPLES; j++) {
                bool counts = samples[j].label != LABEL_NONE && scores[j][k] >= scores[i][k];
                above += counts;
                right += counts && has[j] >> k & 1;
            }
            sum += (double)right / above;
            own++;
        }
        assert_true(fabs(precision[k] - sum / own) < 1e-12);
    }
}

/* Each sample has all classes but one, and scores that say so: every label is found in a long list. */
TEST(test_many_labels)
{
    static float scores[MANY][MANY];
    static EvalSample samples[MANY];
    static Listed l = {.base = {.info = {.count = MANY, .classes = MANY, .multi_label = true}, .labels = labels_of}};
    double precision[MANY], mean;
    for (int i = 0; i < MANY; i++)
        for (int k = 0; k < MANY; k++) {
            scores[i][k] = i != k;
            if (i != k) l.list[i][l.count[i]++] = k;
        }
    assert_int_equal(average_precision(&l.base, samples, scores[0], MANY, precision, &mean), OK);
    for (int k = 0; k < MANY; k++) assert_true(precision[k] == 1);
    assert_true(mean == 1);
}

/* The network has more classes than the data. */
TEST(test_mistakes)
{
    enum { MORE = 6 };
    const unsigned has[2] = {0x2, 0x9};
    static const char *const names[CLASSES] = {"a", "b", "c", "d"};
    const float scores[2][MORE] = {{0.9f, 0.8f, 0.1f, 0.1f, 0.1f, 0.7f}, {0.6f, 0.2f, 0.1f, 0.4f, 0.1f, 0.1f}};
    const EvalSample samples[2] = {{0, 1, 0.9f, 1}, {0, 1, 0.6f, 0.5f}};
    const int64_t ids[2] = {1, 0};
    char *text = NULL;
    size_t bytes;
    Listed l = listed(has, 2);
    l.base.info.class_names = names;
    FILE *to = open_memstream(&text, &bytes);
    assert_non_null(to);
    mistakes_print(&l.base, samples, scores[0], MORE, ids, 2, to);
    assert_int_equal(fclose(to), 0);
    assert_string_equal(text, "sample,file,label,predicted,probability,loss\n"
                              "1,\", sample 1\",\"a;d\",\"a\",0.600000,0.5\n"
                              "0,\", sample 0\",\"b\",\"a;b;5\",0.900000,1\n");
    free(text);
}
