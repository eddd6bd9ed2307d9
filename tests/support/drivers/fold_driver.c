/* Divides samples into folds as --fold does. Arguments: folds, seed, and "groups" if samples of one group stay together.
 * Standard input has a line for each sample: its class and its group, both numbers; standard output its part. */
#include "towers/data/loading/fold.h"
#include "towers/data/sources/reader.h"

enum { SAMPLES = 1 << 16 };

static int32_t label[SAMPLES];
static int group[SAMPLES];

static int32_t label_read(const Source *source, int64_t index)
{
    (void)source;
    return label[index];
}

static void where_read(const Source *source, int64_t index, char *text, size_t bytes)
{
    (void)source;
    snprintf(text, bytes, "data/%d/%" PRId64 ".jpg", group[index], index);
}

int main(int argc, char **argv)
{
    static int32_t part[SAMPLES];
    Source source = {.info = {.name = "standard input"}, .label = label_read, .where = where_read};
    if (argc < 3) return 2;
    SourceInfo *info = &source.info;
    while (info->count < SAMPLES && scanf("%d %d", &label[info->count], &group[info->count]) == 2) {
        if (label[info->count] >= info->classes) info->classes = label[info->count] + 1;
        info->count++;
    }
    FoldConfig config = {.fold = 1,
                         .folds = atoi(argv[1]),
                         .seed = strtoull(argv[2], NULL, 10),
                         .group = argc > 3 && !strcmp(argv[3], "groups") ? "1" : NULL};
    if (fold_parts(&source, &config, part) != OK) {
        fprintf(stderr, "%s\n", status_message());
        return 1;
    }
    for (int64_t i = 0; i < info->count; i++) printf("%d\n", part[i]);
    return 0;
}
