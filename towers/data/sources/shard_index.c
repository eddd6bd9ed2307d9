/* The index of a set of shards: lists them with several threads and divides their samples; see shard_index.h. */
#include "towers/data/sources/shard_index.h"

#include <xxhash.h>

#include "towers/data/sources/class_names.h"
#include "towers/data/sources/parallel.h"
#include "towers/data/sources/shard_set.h"

/* So many classes need no samples. */
enum { CLASSES_FREE = 1000 };

typedef struct Listing {
    ShardKind kind;
    ShardList *lists; /* owned: [count] */
    int count;
} Listing;

static Status listing_item(void *context, int thread, int64_t item)
{
    Listing *l = context;
    (void)thread;
    return shard_list(l->kind, &l->lists[item]);
}

static Status listing_run(const SourceConfig *config, const Names *files, Listing *l)
{
    l->lists = calloc((size_t)files->count + 1, sizeof *l->lists);
    if (!l->lists) return FAIL(ERR_MEMORY, "no memory for the list of %d shards", files->count);
    l->count = files->count;
    for (int i = 0; i < files->count; i++) l->lists[i].path = files->name[i];
    return parallel_run(&(Parallel){.count = files->count,
                                    .work = listing_item,
                                    .context = l,
                                    .progress = config->progress,
                                    .progress_context = config->context});
}

static int64_t listing_samples(const Listing *l)
{
    int64_t count = 0;
    for (int i = 0; i < l->count; i++) count += l->lists[i].found.parts.samples_count;
    return count;
}

static void labels_range(const Listing *l, int32_t *least, int32_t *most)
{
    *least = INT32_MAX;
    *most = -1;
    for (int i = 0; i < l->count; i++)
        for (int64_t k = 0; k < l->lists[i].found.parts.samples_count; k++) {
            int32_t label = l->lists[i].found.parts.samples[k].label;
            if (label > *most) *most = label;
            if (label < *least) *least = label;
        }
}

/* The name that a shard gives to a label, or "". */
static const char *class_name(const Listing *l, int64_t label)
{
    for (int i = 0; i < l->count; i++) {
        const IndexParts *p = &l->lists[i].found.parts;
        if (label < p->classes_count && p->classes[label]) return p->strings + p->classes[label] - 1;
    }
    return "";
}

/* ---- dividing the samples of each class between the splits */

static uint64_t sample_hash(const ShardList *list, const Sample *sample)
{
    const char *slash = strrchr(list->path, '/'), *shard = slash ? slash + 1 : list->path;
    const char *name = list->found.parts.strings + sample->name;
    return XXH3_64bits_withSeed(name, strlen(name), XXH3_64bits(shard, strlen(shard)) + sample->offset);
}

/* limits[class]: samples whose hash is below it are for evaluation. */
static Status limits_find(const Listing *l, double val_split, int32_t first_label, int classes, uint64_t *limits)
{
    Status st = OK;
    int64_t count = listing_samples(l);
    int64_t *end = calloc((size_t)classes + 1, sizeof *end); /* in `hashes`: where a class begins, then where it ends */
    uint64_t *hashes = malloc((size_t)(count + 1) * sizeof *hashes);
    if (!end || !hashes) TRY_OUT(FAIL(ERR_MEMORY, "no memory to divide %" PRId64 " images", count));
    for (int i = 0; i < l->count; i++)
        for (int64_t k = 0; k < l->lists[i].found.parts.samples_count; k++)
            end[l->lists[i].found.parts.samples[k].label - first_label + 1]++;
    for (int c = 0; c < classes; c++) end[c + 1] += end[c];
    for (int i = 0; i < l->count; i++)
        for (int64_t k = 0; k < l->lists[i].found.parts.samples_count; k++) {
            const Sample *sample = &l->lists[i].found.parts.samples[k];
            hashes[end[sample->label - first_label]++] = sample_hash(&l->lists[i], sample);
        }
    for (int c = 0; c < classes; c++) {
        int64_t first = c ? end[c - 1] : 0;
        limits[c] = split_limit(hashes + first, end[c] - first, val_split);
    }
out:
    free(end);
    free(hashes);
    return st;
}

/* ---- building the index */

typedef struct Request {
    const SourceConfig *config;
    Split split;
    double val_split; /* 0: all samples of the shards are the split's */
    uint64_t key[2];
} Request;

/* Labels of TFRecords begin with 1 if there is none of 0, and the largest is the number of the names, if that is known:
 * the original builders keep 0 for the background. */
static bool labels_from_one(LabelBase base, ShardKind kind, int32_t least, int32_t most, int names)
{
    if (base != LABEL_BASE_AUTO) return base == LABEL_BASE_1;
    return kind == SHARD_TFRECORD && least >= 1 && most >= least && (names == 0 || most == names);
}

/* The names of the classes: those of the training split, or of their file, or of the shards; and *first, the label of the
 * first class. */
static Status classes_add(const SourceConfig *config, const ShardSet *set, const Listing *l, const Index *train,
                          IndexBuilder *b, int32_t *first)
{
    Names names = {0};
    char folder[PATH_BYTES];
    Status st = OK;
    int32_t least, most;
    labels_range(l, &least, &most);
    if (*set->classes) {
        snprintf(folder, sizeof folder, "%s", set->classes);
        *strrchr(folder, '/') = 0;
        TRY_OUT(class_names_read(folder, SHARD_CLASSES_MAX, &names));
    }
    bool one = train ? train->header->kind & SHARDS_FROM_ONE
                     : labels_from_one(config->label_base, set->kind, least, most, names.count);
    *first = one;
    b->parts.kind = (uint64_t)set->kind | (one ? SHARDS_FROM_ONE : 0);
    int count = train ? (int)train->header->classes : names.count ? names.count : most + 1 - *first;
    if (!train && !names.count && count > listing_samples(l) + CLASSES_FREE)
        TRY_OUT(FAIL(ERR_FORMAT,
                     "'%s': the largest label of %" PRId64 " samples is %d: expected less than %" PRId64
                     " without a list of names; if there are as many classes, name them in classes.txt",
                     config->path, listing_samples(l), most, listing_samples(l) + CLASSES_FREE));
    b->parts.classes = calloc((size_t)(count > 0 ? count : 0) + 1, sizeof *b->parts.classes);
    if (!b->parts.classes) st = FAIL(ERR_MEMORY, "no memory for the list of %d classes", count);
    for (int i = 0; i < count && st == OK; i++)
        st = index_string_add(b,
                              train         ? index_string(train, train->classes[i])
                              : names.count ? names.name[i]
                                            : class_name(l, i + *first),
                              &b->parts.classes[i]);
    b->parts.classes_count = count > 0 ? count : 0;
out:
    names_free(&names);
    return st;
}

static Status label_check(const ShardSet *set, const ShardList *list, const Sample *sample, int32_t first,
                          int64_t classes)
{
    if (sample->label < first)
        return FAIL(ERR_FORMAT, "'%s': %s at offset %" PRIu64 " has label %d, but labels begin with 1 (--label-base)",
                    list->path, list->found.parts.strings + sample->name, sample->offset, sample->label);
    if (sample->label - first < classes) return OK;
    return FAIL(ERR_FORMAT, "'%s': %s at offset %" PRIu64 " has label %d, but %s %" PRId64 " classes", list->path,
                list->found.parts.strings + sample->name, sample->offset, sample->label,
                *set->classes ? set->classes : "the training samples have", classes);
}

/* Adds the samples of all shards that belong to the split. */
static Status samples_add(const Request *r, const ShardSet *set, const Listing *l, uint32_t first_file,
                          int32_t first_label, IndexBuilder *b)
{
    Status st = OK;
    double val_split = r->val_split;
    int classes = (int)b->parts.classes_count;
    for (int i = 0; i < l->count; i++)
        for (int64_t k = 0; k < l->lists[i].found.parts.samples_count; k++)
            TRY(label_check(set, &l->lists[i], &l->lists[i].found.parts.samples[k], first_label, classes));
    uint64_t *limits = calloc((size_t)classes + 1, sizeof *limits);
    if (!limits) return FAIL(ERR_MEMORY, "no memory for %d classes", classes);
    if (val_split > 0) TRY_OUT(limits_find(l, val_split, first_label, classes, limits));
    for (int i = 0; i < l->count; i++) {
        const IndexParts *p = &l->lists[i].found.parts;
        for (int64_t k = 0; k < p->samples_count; k++) {
            Sample sample = p->samples[k];
            bool is_test = val_split > 0 && sample_hash(&l->lists[i], &sample) < limits[sample.label - first_label];
            if (val_split > 0 && is_test != (r->split == SPLIT_VAL)) continue;
            sample.file = first_file + (uint32_t)i;
            sample.label -= first_label;
            TRY_OUT(index_sample_add(b, &sample, p->strings + p->samples[k].name));
        }
    }
out:
    free(limits);
    return st;
}

/* `train`: NULL, or the index of the training samples, whose classes are those of all. */
static Status index_build(const Request *r, ShardSet *set, const Names *files, const Index *train, Index *index)
{
    Status st = OK;
    IndexBuilder *b = &set->index;
    int32_t first_label = 0;
    Listing listing = {.kind = set->kind};
    if (*set->classes) TRY_OUT(index_watched_add(b, set->classes));
    b->parts.train = train ? train->header->sum : 0;
    uint32_t first_file = (uint32_t)b->parts.watched_count;
    for (int i = 0; i < files->count; i++) TRY_OUT(index_watched_add(b, files->name[i]));
    TRY_OUT(listing_run(r->config, files, &listing));
    TRY_OUT(classes_add(r->config, set, &listing, train, b, &first_label));
    TRY_OUT(samples_add(r, set, &listing, first_file, first_label, b));
    if (b->parts.samples_count == 0) {
        st = listing_samples(&listing) == 0
                 ? FAIL(ERR_FORMAT, "'%s': no sample in %d shards", r->config->path, files->count)
                 : FAIL(ERR_FORMAT, "'%s': --val-split %g leaves no image for evaluation", r->config->path,
                        r->config->val_split);
        goto out;
    }
    TRY_OUT(index_write(r->key, &b->parts, index));
out:
    for (int i = 0; i < listing.count; i++) index_builder_free(&listing.lists[i].found);
    free(listing.lists);
    return st;
}

static void request_key(Request *r)
{
    /* Whether the whole of a set without parts may be evaluated: for training it may not, though an index is there. */
    int whole = r->config->whole && r->split != SPLIT_TRAIN;
    char text[3 * PATH_BYTES], here[PATH_BYTES] = "", *full = NULL;
    bool list = is_shard_list(r->config->path); /* whose links are watched since version 4 */
    if (list) {
        if (!getcwd(here, sizeof here)) here[0] = 0;
    } else {
        full = realpath(r->config->path, NULL);
    }
    const char *path = full ? full : r->config->path; /* a list may be of any length */
    XXH128_hash_t of_path = XXH3_128bits(path, strlen(path));
    int n = snprintf(text, sizeof text, "shards %d\n%s\n%016" PRIx64 "%016" PRIx64 "\n%d %d %d %d %.17g", 3 + list,
                     here, (uint64_t)of_path.high64, (uint64_t)of_path.low64, (int)r->split, whole,
                     (int)r->config->label_base, shard_class_files(r->config->path), r->config->val_split);
    free(full);
    XXH128_hash_t hash = XXH3_128bits(text, n < (int)sizeof text ? (size_t)n : sizeof text);
    r->key[0] = hash.low64;
    r->key[1] = hash.high64;
}

/* The index of the training samples: the one that is open, or *own, which is unmapped by the caller. */
static Status train_open(const SourceConfig *config, const Index *open, Index *own, const Index **train)
{
    *train = open ? open : own;
    return open ? OK : shard_index_open(config, SPLIT_TRAIN, NULL, own);
}

Status shard_index_open(const SourceConfig *config, Split split, const Index *open, Index *index)
{
    Status st = OK;
    bool found;
    ShardSet set = {0};
    SplitChoice choice;
    Index own = {0};
    const Index *train = NULL;
    Request request = {.config = config, .split = split};
    request_key(&request);
    TRY(index_find(request.key, index, &found));
    if (found && !index->header->train) return OK;
    if (found) {
        TRY_OUT(train_open(config, open, &own, &train));
        if (train->header->sum == index->header->train) goto out;
        index_unmap(index);
    }
    TRY_OUT(shard_set_find(config->path, &set));
    TRY_OUT(shard_set_choose(config, &set, split, &choice));
    shard_set_classes(&set);
    request.val_split = choice.divided ? config->val_split : 0;
    bool trained = split != SPLIT_TRAIN && (choice.divided || set.of[SPLIT_TRAIN].count);
    if (trained && !train) TRY_OUT(train_open(config, open, &own, &train));
    TRY_OUT(index_build(&request, &set, &set.of[choice.from], trained ? train : NULL, index));
out:
    index_unmap(&own);
    shard_set_free(&set);
    return st;
}
