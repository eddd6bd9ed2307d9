/* The index of a set of shards: lists them with several threads and divides their samples; see shard_index.h. */
#include "towers/data/shards/shard_index.h"

#include <xxhash.h>

#include "towers/data/classes/class_names.h"
#include "towers/data/listing/equal_files.h"
#include "towers/data/listing/parallel.h"
#include "towers/data/shards/shard_set.h"
#include "towers/data/sources/reader.h"

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

/* ---- shards that are there twice */

typedef struct Twin {
    uint64_t hash; /* of its samples */
    const char *path;
    const uint64_t *digest; /* of the bytes of a shard that is elsewhere, else zeros */
} Twin;

static size_t folder_bytes(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) : 0;
}

static int by_hash_and_folder(const void *a, const void *b)
{
    const Twin *x = a, *y = b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    size_t of_x = folder_bytes(x->path), of_y = folder_bytes(y->path);
    if (of_x != of_y) return of_x < of_y ? -1 : 1;
    int order = memcmp(x->path, y->path, of_x);
    return order ? order : strcmp(x->path, y->path);
}

static bool may_be_equal(const Twin *a, const Twin *b)
{
    size_t folder = folder_bytes(a->path);
    return a->hash == b->hash && folder == folder_bytes(b->path) && !memcmp(a->path, b->path, folder);
}

/* Equal shards have samples at equal places, of equal names and labels. */
static uint64_t list_hash(const ShardList *list)
{
    const IndexParts *p = &list->found.parts;
    return XXH3_64bits_withSeed(p->strings, p->strings_bytes,
                                XXH3_64bits(p->samples, (size_t)p->samples_count * sizeof *p->samples));
}

static Status twin_path(const void *context, int64_t number, char path[PATH_BYTES])
{
    const Twin *twins = context;
    snprintf(path, PATH_BYTES, "%s", twins[number].path);
    return OK;
}

static Status twins_fail(const Twin *a, const Twin *b)
{
    return FAIL(ERR_FORMAT,
                "'%s' and '%s' are equal, so that each of their images would count twice: remove one of them", a->path,
                b->path);
}

/* Of shards that are elsewhere. */
static Status equal_digests_refuse(const Twin *twins, int count)
{
    for (int i = 1; i < count; i++)
        for (int k = 0; k < i; k++)
            if (twins[i].digest[0] == twins[k].digest[0] && twins[i].digest[1] == twins[k].digest[1])
                return twins_fail(&twins[k], &twins[i]);
    return OK;
}

static Status equal_refuse(const Twin *twins, int count)
{
    if (twins[0].digest[0] || twins[0].digest[1]) return equal_digests_refuse(twins, count);
    Status st = OK;
    uint64_t *bytes = calloc((size_t)count, sizeof *bytes);
    int64_t *first = calloc((size_t)count, sizeof *first);
    struct stat info;
    if (!bytes || !first) TRY_OUT(FAIL(ERR_MEMORY, "no memory to compare %d shards", count));
    for (int i = 0; i < count; i++) bytes[i] = stat(twins[i].path, &info) == 0 ? (uint64_t)info.st_size : 0;
    TRY_OUT(equal_files_find(&(EqualFiles){count, bytes, twin_path, twins}, first));
    for (int i = 0; i < count; i++)
        if (first[i] != i) TRY_OUT(twins_fail(&twins[first[i]], &twins[i]));
out:
    free(bytes);
    free(first);
    return st;
}

/* A copy of a shard under another name ("train-0 (1).tar") would count its images twice. Only those of one folder are
 * compared, and only the bytes of those whose samples look alike. */
static Status twins_refuse(const Listing *l)
{
    Status st = OK;
    int count = 0;
    Twin *twins = malloc(((size_t)l->count + 1) * sizeof *twins);
    if (!twins) return FAIL(ERR_MEMORY, "no memory to compare %d shards", l->count);
    for (int i = 0; i < l->count; i++)
        if (l->lists[i].found.parts.samples_count > 0)
            twins[count++] = (Twin){list_hash(&l->lists[i]), l->lists[i].path, l->lists[i].digest};
    qsort(twins, (size_t)count, sizeof *twins, by_hash_and_folder);
    for (int i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && may_be_equal(&twins[i], &twins[end]);) end++;
        if (end > i + 1) TRY_OUT(equal_refuse(twins + i, end - i));
    }
out:
    free(twins);
    return st;
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

/* The classes of the samples that are indexed, and which ones they are of the index. */
typedef struct SampleClasses {
    Names file;         /* of classes.txt; empty: there is none */
    const char **names; /* owned: [count], "" for a class that nothing names */
    bool *used;         /* owned: [count]: it has samples */
    int32_t *map;       /* owned: [count]: the class of the training samples */
    int count;
    bool named;                 /* by the file, or some by the samples */
    int32_t first, least, most; /* label of the first class; the least and largest label */
} SampleClasses;

static void sample_classes_free(SampleClasses *c)
{
    names_free(&c->file);
    free(c->names);
    free(c->used);
    free(c->map);
}

/* Labels of TFRecords begin with 1 if there is none of 0, and the largest is the number of the names, if that is known:
 * the original builders keep 0 for the background. */
static bool labels_from_one(LabelBase base, ShardKind kind, const SampleClasses *c)
{
    if (base != LABEL_BASE_AUTO) return base == LABEL_BASE_1;
    return kind == SHARD_TFRECORD && c->least >= 1 && c->most >= c->least &&
           (c->file.count == 0 || c->most == c->file.count);
}

/* classes.txt, if there is one. */
static Status list_read(const ShardSet *set, SampleClasses *c)
{
    return *set->classes ? class_names_load(set->classes, SHARD_CLASSES_MAX, &c->file) : OK;
}

/* The names that the samples give, which must agree in all shards. */
static Status names_collect(const Listing *l, SampleClasses *c)
{
    Status st = OK;
    const ShardList **by = calloc((size_t)c->count + 1, sizeof *by);
    if (!by) return FAIL(ERR_MEMORY, "no memory for the names of %d classes", c->count);
    for (int i = 0; i < l->count; i++)
        for (int k = 0; k < c->count && k + c->first < l->lists[i].found.parts.classes_count; k++) {
            const char *name = shard_class_name(&l->lists[i], k + c->first);
            if (!*name) continue;
            if (by[k]) TRY_OUT(shard_names_compare(by[k], &l->lists[i], k + c->first));
            if (!by[k]) by[k] = &l->lists[i];
            c->names[k] = name;
            c->named = true;
        }
out:
    free(by);
    return st;
}

static Status sample_classes_find(const SourceConfig *config, const ShardSet *set, const Listing *l, const Index *train,
                                  SampleClasses *c)
{
    labels_range(l, &c->least, &c->most);
    TRY(list_read(set, c));
    c->first = train ? (train->header->kind & SHARDS_FROM_ONE) != 0 : labels_from_one(config->label_base, set->kind, c);
    c->count = c->file.count ? c->file.count : c->most + 1 - c->first;
    if (c->count < 0) c->count = 0;
    if (!train && !c->file.count && c->count > listing_samples(l) + CLASSES_FREE)
        return FAIL(ERR_FORMAT,
                    "'%s': the largest label of %" PRId64 " samples is %d: expected less than %" PRId64
                    " without a list of names; if there are as many classes, name them in classes.txt",
                    config->path, listing_samples(l), c->most, listing_samples(l) + CLASSES_FREE);
    size_t room = (size_t)c->count + 1;
    c->names = calloc(room, sizeof *c->names);
    c->used = calloc(room, sizeof *c->used);
    c->map = calloc(room, sizeof *c->map);
    if (!c->names || !c->used || !c->map) return FAIL(ERR_MEMORY, "no memory for the list of %d classes", c->count);
    c->named = c->file.count > 0;
    for (int i = 0; i < c->count; i++) {
        c->names[i] = c->named ? c->file.name[i] : "";
        c->map[i] = i;
    }
    return c->named ? OK : names_collect(l, c);
}

static Status label_check(const ShardSet *set, const ShardList *list, const Sample *sample, int32_t first,
                          int64_t classes)
{
    if (sample->label < first)
        return FAIL(ERR_FORMAT, "'%s': %s at offset %" PRIu64 " has label %d, but labels begin with 1 (--label-base)",
                    list->path, list->found.parts.strings + sample->name, sample->offset, sample->label);
    if (sample->label - first < classes) return OK;
    bool listed = *set->classes;
    return FAIL(ERR_FORMAT, "'%s': %s at offset %" PRIu64 " has label %d, but %s%s %" PRId64 " classes", list->path,
                list->found.parts.strings + sample->name, sample->offset, sample->label,
                listed ? set->classes : "the training samples have", listed ? " names" : "", classes);
}

/* Labels without names are those of the training samples. */
static Status labels_check(const ShardSet *set, const Listing *l, const Index *train, SampleClasses *c)
{
    int64_t most = train && !c->named ? train->header->classes : c->count;
    for (int i = 0; i < l->count; i++)
        for (int64_t k = 0; k < l->lists[i].found.parts.samples_count; k++) {
            const Sample *sample = &l->lists[i].found.parts.samples[k];
            TRY(label_check(set, &l->lists[i], sample, c->first, most));
            c->used[sample->label - c->first] = true;
        }
    return OK;
}

/* A label that means another class than the same label of the training samples is worth a note. */
static Status labels_note(const ClassList *of, const ClassList *among, const int32_t *map, IndexBuilder *b)
{
    char note[1024];
    for (int i = 0; i < of->count; i++) {
        if (map[i] < 0 || map[i] == i) continue;
        snprintf(note, sizeof note,
                 "the labels of %s are others than those of %s: %" PRId32 " is '%.100s', which has %" PRId32 " there; "
                 "their classes are matched by name",
                 of->whose, among->whose, i + of->first, of->names[i], map[i] + among->first);
        return index_note_set(b, note);
    }
    return OK;
}

static Status train_match(const Request *r, const Index *train, SampleClasses *c, IndexBuilder *b)
{
    Status st = OK;
    char whose[PATH_BYTES + 32];
    int count = (int)train->header->classes;
    const char **names = calloc((size_t)count + 1, sizeof *names);
    if (!names) return FAIL(ERR_MEMORY, "no memory for the names of %d classes", count);
    for (int i = 0; i < count; i++) names[i] = index_string(train, train->classes[i]);
    snprintf(whose, sizeof whose, "the %s shards of '%.*s'", split_name(r->split), PATH_BYTES - 1, r->config->path);
    const ClassList of = {.whose = whose, .names = c->names, .used = c->used, .count = c->count, .first = c->first},
                    among = {.whose = "the training shards", .names = names, .count = count, .first = c->first};
    ClassRule rule = r->config->rule == CLASSES_NUMBERED ? CLASSES_NUMBERED : CLASSES_SPELLED;
    TRY_OUT(class_match(&of, &among, rule, c->map, NULL));
    TRY_OUT(labels_note(&of, &among, c->map, b));
out:
    free(names);
    return st;
}

/* The classes of the index are those of the training samples. */
static Status classes_add(const Request *r, const ShardSet *set, const Listing *l, const Index *train, IndexBuilder *b,
                          SampleClasses *c)
{
    bool guessed = r->config->label_base == LABEL_BASE_AUTO && set->kind == SHARD_TFRECORD;
    TRY(sample_classes_find(r->config, set, l, train, c));
    TRY(labels_check(set, l, train, c));
    if (train) TRY(train_match(r, train, c, b));
    int64_t count = train ? train->header->classes : c->count;
    b->parts.kind = (uint64_t)set->kind | (c->first ? SHARDS_FROM_ONE : 0) |
                    (train                      ? train->header->kind & SHARDS_GUESSED
                     : guessed && c->least >= 1 ? SHARDS_GUESSED
                                                : 0);
    for (int64_t i = 0; i < count; i++)
        TRY(index_class_add(b, train ? index_string(train, train->classes[i]) : c->names[i]));
    return OK;
}

/* Adds the samples of all shards that belong to the split. */
static Status samples_add(const Request *r, const Listing *l, uint32_t first_file, const SampleClasses *c,
                          IndexBuilder *b)
{
    Status st = OK;
    double val_split = r->val_split;
    uint64_t *limits = calloc((size_t)c->count + 1, sizeof *limits);
    if (!limits) return FAIL(ERR_MEMORY, "no memory for %d classes", c->count);
    if (val_split > 0) TRY_OUT(limits_find(l, val_split, c->first, c->count, limits));
    for (int i = 0; i < l->count; i++) {
        const IndexParts *p = &l->lists[i].found.parts;
        for (int64_t k = 0; k < p->samples_count; k++) {
            Sample sample = p->samples[k];
            int32_t class = sample.label - c->first;
            bool is_test = val_split > 0 && sample_hash(&l->lists[i], &sample) < limits[class];
            if (val_split > 0 && is_test != (r->split == SPLIT_VAL)) continue;
            sample.file = first_file + (uint32_t)i;
            sample.label = c->map[class];
            TRY_OUT(index_sample_add(b, &sample, p->strings + p->samples[k].name));
        }
    }
out:
    free(limits);
    return st;
}

/* What lies beside the shards, and in them. Files whose names say no part are counted with the training's. */
static Status skips_put(ShardSet *set, const Listing *l, Split from)
{
    Skips all = {0};
    Status st = skips_join(&all, &set->skips[from]);
    if (st == OK && from == SPLIT_TRAIN) st = skips_join(&all, &set->skips[SPLITS]);
    for (int i = 0; i < l->count && st == OK; i++) st = skips_join(&all, &l->lists[i].skips);
    if (st == OK) st = index_skips_put(&set->index, &all);
    skips_free(&all);
    return st;
}

/* What a shard says about how its labels were read. */
static Status note_take(const IndexParts *shard, IndexBuilder *b)
{
    return shard->note ? index_note_set(b, shard->strings + shard->note - 1) : OK;
}

/* `train`: NULL, or the index of the training samples, whose classes are those of all. */
static Status index_build(const Request *r, ShardSet *set, Split from, const Index *train, Index *index)
{
    Status st = OK;
    const Names *files = &set->of[from];
    IndexBuilder *b = &set->index;
    SampleClasses classes = {0};
    Listing listing = {.kind = set->kind};
    if (*set->classes) TRY_OUT(index_watched_add(b, set->classes));
    b->parts.train = train ? train->header->sum : 0;
    uint32_t first_file = (uint32_t)b->parts.watched_count;
    for (int i = 0; i < files->count; i++) TRY_OUT(index_watched_add(b, files->name[i]));
    TRY_OUT(listing_run(r->config, files, &listing));
    if (!set->listed) TRY_OUT(twins_refuse(&listing));
    TRY_OUT(skips_put(set, &listing, from));
    for (int i = 0; i < listing.count && !b->parts.note; i++) TRY_OUT(note_take(&listing.lists[i].found.parts, b));
    TRY_OUT(classes_add(r, set, &listing, train, b, &classes));
    TRY_OUT(samples_add(r, &listing, first_file, &classes, b));
    if (b->parts.samples_count == 0) {
        st = listing_samples(&listing) == 0
                 ? FAIL(ERR_FORMAT, "'%s': no sample in %d shards", r->config->path, files->count)
                 : FAIL(ERR_FORMAT, "'%s': --val-split %g leaves no image for evaluation", r->config->path,
                        r->config->val_split);
        goto out;
    }
    TRY_OUT(index_write(r->key, &b->parts, index));
out:
    sample_classes_free(&classes);
    for (int i = 0; i < listing.count; i++) shard_list_free(&listing.lists[i]);
    free(listing.lists);
    return st;
}

/* `instead`: the samples stand in for a part that the set lacks. Only a config with `whole`, which may take them, looks for such an
 * index. */
static void request_key(Request *r, bool instead)
{
    char text[3 * PATH_BYTES], here[PATH_BYTES] = "", *full = NULL;
    bool list = is_shard_list(r->config->path); /* whose links are watched since version 4 */
    if (list) {
        if (!getcwd(here, sizeof here)) here[0] = 0;
    } else {
        full = realpath(r->config->path, NULL);
    }
    const char *path = full ? full : r->config->path; /* a list may be of any length */
    XXH128_hash_t of_path = XXH3_128bits(path, strlen(path));
    int n = snprintf(text, sizeof text, "shards %d\n%s\n%016" PRIx64 "%016" PRIx64 "\n%d %d %d %d %d %d %.17g",
                     11 + list, here, (uint64_t)of_path.high64, (uint64_t)of_path.low64, (int)r->split, instead,
                     (int)r->config->label_base, (int)r->config->rule, r->config->partial,
                     shard_class_files(r->config->path), r->config->val_split);
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
    request_key(&request, false);
    TRY(index_find(request.key, index, &found));
    if (!found && config->whole) {
        request_key(&request, true);
        TRY(index_find(request.key, index, &found));
    }
    if (found && !index->header->train) return OK;
    if (found) {
        TRY_OUT(train_open(config, open, &own, &train));
        if (train->header->sum == index->header->train) goto out;
        index_unmap(index);
    }
    TRY_OUT(shard_set_find(config->path, &set));
    TRY_OUT(shard_set_choose(config, &set, split, &choice));
    shard_set_classes(&set, choice.from);
    TRY_OUT(shard_set_check(config, &set, choice.from));
    request.val_split = choice.divided ? config->val_split : 0;
    request_key(&request, choice.from != split && !choice.divided);
    bool trained = split != SPLIT_TRAIN && (choice.divided || set.of[SPLIT_TRAIN].count);
    if (trained && !train) TRY_OUT(train_open(config, open, &own, &train));
    TRY_OUT(index_build(&request, &set, choice.from, trained ? train : NULL, index));
out:
    index_unmap(&own);
    shard_set_free(&set);
    return st;
}
