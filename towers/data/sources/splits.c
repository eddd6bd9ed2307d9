/* The words for the parts of a data set, and the choice among them; see splits.h. */
#include "towers/data/sources/splits.h"

#include <ctype.h>
#include <strings.h>

#include "kernels/base/text.h"

static const char *const split_names[SPLITS] = {[SPLIT_TRAIN] = "train", [SPLIT_VAL] = "val", [SPLIT_TEST] = "test"};

const char *split_name(Split split)
{
    return split_names[split];
}

Split split_of_word(const char *word, size_t bytes)
{
    static const struct {
        const char *word;
        Split split;
    } words[] = {{"train", SPLIT_TRAIN},    {"training", SPLIT_TRAIN}, {"val", SPLIT_VAL},  {"valid", SPLIT_VAL},
                 {"validation", SPLIT_VAL}, {"eval", SPLIT_VAL},       {"test", SPLIT_TEST}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i].word) == bytes && !strncasecmp(words[i].word, word, bytes)) return words[i].split;
    return SPLITS;
}

/* Bytes of UTF-8 beyond ASCII are taken for letters: "pr\303\251test" is one word. */
static size_t letters_count(const char *text)
{
    size_t count = 0;
    while (isalpha((unsigned char)text[count]) || (unsigned char)text[count] > 127) count++;
    return count;
}

Split split_of_folder(const char *name)
{
    Split first = SPLITS, last = SPLITS;
    for (size_t at = 0, count; name[at]; at += count ? count : 1) {
        count = letters_count(name + at);
        if (!count) continue;
        last = split_of_word(name + at, count);
        if (at == 0) first = last;
    }
    return first != SPLITS ? first : last;
}

void splits_text(unsigned bits, char text[SPLITS_TEXT_BYTES])
{
    Text to = text_start(text, SPLITS_TEXT_BYTES);
    for (Split s = SPLIT_TRAIN; s < SPLITS; s++)
        if (bits & SPLIT_BIT(s)) text_add(&to, "%s%s", to.used ? " and " : "", split_names[s]);
}

/* For training, there must be something to evaluate on. */
static Status evaluation_check(const SourceConfig *config, unsigned parts, const char *kind, const char *tenth)
{
    bool folder = kind[0] == 'f';
    if (parts & SPLIT_BIT(SPLIT_TEST))
        return FAIL(ERR_ARG,
                    "'%s' has images for tests, but none for the evaluation during training, which chooses the best "
                    "weights: expected a %s named val, or --val-split 0.1 to keep %s of the training images",
                    config->path, folder ? "folder" : "shard", tenth);
    return FAIL(ERR_ARG, "'%s' has no %s for evaluation: expected %s, or --val-split 0.1 to keep %s", config->path,
                folder ? "images" : "shards",
                folder ? "train/ and val/" : "train/ and val/, or names with train and val", tenth);
}

Status split_choose(const SourceConfig *config, unsigned parts, Split split, const char *kind, const char *tenth,
                    SplitChoice *choice)
{
    char has[SPLITS_TEXT_BYTES];
    bool divide = config->val_split > 0, one = parts && !(parts & (parts - 1));
    splits_text(parts, has);
    if (divide && parts & SPLIT_BIT(SPLIT_VAL) && !one)
        return FAIL(ERR_ARG, "--val-split: '%s' already has %s for evaluation, in val", config->path,
                    kind[0] == 'f' ? "images" : "shards");
    if (!divide && !config->whole && !(parts & SPLIT_BIT(SPLIT_VAL)))
        return evaluation_check(config, parts, kind, tenth);
    *choice = (SplitChoice){.from = split, .divided = divide && split != SPLIT_TEST};
    if (choice->divided) choice->from = SPLIT_TRAIN;
    if (!parts && split != SPLIT_TEST) choice->from = SPLITS;
    bool tests = divide && parts == SPLIT_BIT(SPLIT_TEST); /* nothing is trained on these */
    if (one && choice->from == SPLIT_TRAIN && (divide || config->whole) && !tests)
        choice->from = (Split)__builtin_ctz(parts); /* the only part is all there is */
    if (choice->from == SPLITS || parts & SPLIT_BIT(choice->from)) return OK;
    return FAIL(ERR_ARG, "'%s' has no %s named %s, but %s", config->path, kind, split_names[choice->from],
                parts ? has : "no parts at all");
}

static int by_hash(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

uint64_t split_limit(uint64_t *hashes, int64_t count, double val_split)
{
    int64_t wanted = llrint((double)count * val_split);
    if (wanted >= count) wanted = count - 1;
    if (wanted <= 0) return 0;
    qsort(hashes, (size_t)count, sizeof *hashes, by_hash);
    return hashes[wanted];
}
