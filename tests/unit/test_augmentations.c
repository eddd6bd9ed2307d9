/* Every option of training that changes its images, and no image of an evaluation, has a row here: a setting with which the plans of some
 * images differ from those without it, or the test that has its part. An option without a row fails. */
#include "inception/job/transforms.h"
#include "inception/options/settle.h"

#include "tests/support/unit.h"

typedef struct Row {
    const char *flag;
    const char *without, *with; /* settings; NULL: it is tested elsewhere */
    const char *elsewhere;
} Row;

static const Row rows[] = {
    {"shuffle-window", NULL, NULL, "test_order: test_windows"},
    {"sampler", NULL, NULL, "test_loader: test_balanced"},
    {"augment", "augment: false", "augment: true", NULL},
    {"crop", "augment: true\ncrop: random", "augment: true\ncrop: whole", NULL},
    {"crop-area", "augment: true\ncrop-area: 0.08", "augment: true\ncrop-area: 0.9", NULL},
    {"crop-covered", "augment: true\ncrop: box\ncrop-covered: 0.1", "augment: true\ncrop: box\ncrop-covered: 0.99",
     NULL},
    {"crop-pad", "augment: true\ncrop: pad\ncrop-pad: 4", "augment: true\ncrop: pad\ncrop-pad: 64", NULL},
    {"flip", "augment: true\nflip: random", "augment: true\nflip: none", NULL},
    {"color-jitter", "color-jitter: 0", "color-jitter: 0.4", NULL},
    {"hue-jitter", "hue-jitter: 0", "hue-jitter: 0.1", NULL},
    {"color-distort", "color-distort: false", "color-distort: true", NULL},
    {"auto-augment", "auto-augment: none", "auto-augment: trivialaugment", NULL},
    {"ra-ops", "auto-augment: randaugment\nra-ops: 2", "auto-augment: randaugment\nra-ops: 3", NULL},
    {"ra-magnitude", "auto-augment: randaugment\nra-magnitude: 9", "auto-augment: randaugment\nra-magnitude: 30", NULL},
    {"random-erase", "random-erase: 0", "random-erase: 1", NULL},
    {"mixup", NULL, NULL, "test_mix"},
    {"cutmix", NULL, NULL, "test_mix"},
};
enum { ROWS = sizeof rows / sizeof *rows, IMAGES = 50 };

static void plans_make(const char *settings, SamplePlan plans[IMAGES])
{
    static const ImageInfo photo = {.h = 375, .w = 500, .c = 3, .orientation = 1};
    TrainJob job = {.program.options.side = 224};
    Options options;
    options_init(&options);
    options_serve(&options, VERB_TRAIN);
    if (options_apply_yaml(&options, settings, ORIGIN_CONFIG, "row") != OK)
        fail_msg("%s: %s", settings, status_message());
    job_transforms(&options, &job, true);
    Transform t = job.data.train;
    t.side = 224;
    t.pad = (job.program.canvas - 224) / 2;
    for (int64_t id = 0; id < IMAGES; id++) transform_plan(&t, (SampleKey){11, 1, id}, &photo, NULL, &plans[id]);
    options_close(&options);
}

TEST(test_each_augmentation_changes_images)
{
    static SamplePlan without[IMAGES], with[IMAGES];
    for (int i = 0; i < ROWS; i++) {
        if (!rows[i].with) continue;
        plans_make(rows[i].without, without);
        plans_make(rows[i].with, with);
        if (memcmp(without, with, sizeof with) == 0) fail_msg("--%s changes no image", rows[i].flag);
    }
}

TEST(test_each_augmentation_has_a_row)
{
    int found = 0;
    for (OptionId id = OPTION_FIRST_DATA; id < OPTION_FIRST_NETWORK; id++) {
        const OptionInfo *info = option_info(id);
        bool training =
            option_belongs(id, VERB_TRAIN) && option_belongs(id, VERB_BENCH) && option_belongs(id, VERB_DATA);
        if (!training || option_belongs(id, VERB_EVAL) || info->resume != RESUME_SAME) continue;
        int i = 0;
        while (i < ROWS && strcmp(rows[i].flag, info->flag) != 0) i++;
        if (i == ROWS) fail_msg("--%s has no row here: add one that shows that it changes images", info->flag);
        found++;
    }
    assert_int_equal(found, ROWS);
}
