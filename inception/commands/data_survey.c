/* towers data info and check: describe a data set, and decode all of it; see data.h. */
#include "inception/commands/data.h"
#include "inception/job/progress_line.h"
#include "kernels/base/cores.h"
#include "towers/data/shards/shard.h"
#include "towers/data/sources/findings.h"
#include "towers/data/sources/folder.h"
#include "towers/data/sources/tree.h"
#include "towers/files/json.h"

#include <limits.h>
#include <pthread.h>
#include <xxhash.h>

int data_threads(const Options *o)
{
    int64_t threads = o->threads > 0 ? o->threads : cores_allowed();
    return (int)(threads > SURVEY_THREADS ? SURVEY_THREADS : threads);
}

void data_progress(int64_t done, int64_t all)
{
    progress_count_show("", "images", done, all);
}

Status data_open(const Options *o, const char *path, Split split, Names *problems, Source **made)
{
    SourceConfig config = {.path = path,
                           .val_split = o->val_split,
                           .equal_apart = !o->join_equal,
                           .label_base = o->label_base,
                           .partial = o->partial_shards,
                           .unlabeled = split == SPLIT_TEST && folder_part_is_flat(path, split),
                           .rule = o->match_classes,
                           .whole = true,
                           .problems = problems};
    unsigned parts = source_splits(path);
    bool several = parts & (parts - 1), kept = split == SPLIT_VAL && o->val_split > 0;
    *made = NULL;
    if (split != SPLIT_TRAIN && !kept && !(several && parts & SPLIT_BIT(split))) return OK;
    return source_open(&config, split, made);
}

Split data_part(const Options *o, const char *path, Split split)
{
    unsigned parts = source_splits(path);
    bool only = split == SPLIT_TRAIN && o->val_split <= 0 && parts && !(parts & (parts - 1));
    return only ? (Split)__builtin_ctz(parts) : split;
}

/* The last error, with the place of its sample if it does not name that already; NULL without memory. */
static char *why_of(const Source *source, int64_t id)
{
    char where[PATH_BYTES], *why;
    source_where(source, id, where, sizeof where);
    bool named = strstr(status_message(), where) != NULL;
    return asprintf(&why, "%s%s%s", named ? "" : where, named ? "" : ": ", status_message()) < 0 ? NULL : why;
}

static void inventory_print(const Inventory *inventory, const char *indent, FILE *to)
{
    char line[SKIP_LINE_BYTES];
    for (SkipReason why = 0; why < SKIP_REASONS; why++)
        if (inventory->skipped[why].count) text_printf(to, "%s%s\n", indent, skip_line(inventory, why, line));
}

/* ---- info */

typedef struct Look {
    const Source *source; /* borrowed */
    pthread_mutex_t lock;
    int64_t bytes, of_format[IMAGE_FORMATS], turned, damaged;
    int32_t least_h, least_w, most_h, most_w;
    int64_t sum_h, sum_w, seen;
    int64_t *of_class;   /* owned: [classes] */
    XXH128_hash_t *hash; /* owned: [count] */
    char *first_bad;     /* owned */
} Look;

static Status look_at(void *context, SurveyWorker *worker, int64_t id, int32_t label, const ImageInfo *info, Status st)
{
    Look *l = context;
    if (st == ERR_MEMORY || st == ERR_IO) return st;
    label = source_label(l->source, id); /* also of a sample that could not be read */
    /* The buffer holds no sample, or the one before, if this one could not be read: then it equals no other of any part. */
    XXH128_hash_t hash = st == OK ? XXH3_128bits(worker->bytes.data, worker->bytes.size)
                                  : XXH3_128bits_withSeed(&id, sizeof id, (uintptr_t)l);
    pthread_mutex_lock(&l->lock);
    l->hash[id] = hash;
    const int32_t *labels = &label;
    int32_t count = source_info(l->source)->multi_label ? source_labels(l->source, id, &labels) : 1;
    for (int32_t k = 0; k < count; k++) l->of_class[labels[k]]++;
    if (st != OK && l->damaged++ == 0) l->first_bad = why_of(l->source, id);
    if (st == OK) {
        l->bytes += (int64_t)worker->bytes.size;
        bool first = l->seen++ == 0;
        l->of_format[info->format]++;
        l->turned += info->orientation != 1;
        l->sum_h += info->h;
        l->sum_w += info->w;
        if (first || info->h < l->least_h) l->least_h = info->h;
        if (first || info->w < l->least_w) l->least_w = info->w;
        if (first || info->h > l->most_h) l->most_h = info->h;
        if (first || info->w > l->most_w) l->most_w = info->w;
    }
    pthread_mutex_unlock(&l->lock);
    return OK;
}

static Status look_run(const Options *o, const Source *source, Look *l)
{
    const SourceInfo *info = source_info(source);
    *l = (Look){.source = source};
    pthread_mutex_init(&l->lock, NULL);
    l->of_class = calloc((size_t)info->classes + 1, sizeof *l->of_class);
    l->hash = calloc((size_t)info->count + 1, sizeof *l->hash);
    if (!l->of_class || !l->hash) return FAIL(ERR_MEMORY, "no memory for a survey of %" PRId64 " images", info->count);
    SurveyConfig config = {
        .source = source, .threads = data_threads(o), .visit = look_at, .context = l, .progress = data_progress};
    return survey_run(&config);
}

enum { CLASSES_SHOWN = 1000 };

static const char *const part_titles[SPLITS] = {"training", "evaluation", "test"};

static void look_print(const char *name, const Source *source, const Look *l, FILE *to)
{
    const SourceInfo *info = source_info(source);
    int64_t seen = l->seen ? l->seen : 1;
    text_printf(to, "%s: %" PRId64 " images, %.1f MiB\n  formats     ", name, info->count,
                (double)l->bytes / (1 << 20));
    for (int f = 0; f < IMAGE_FORMATS; f++)
        if (l->of_format[f]) text_printf(to, " %s %" PRId64, image_format_name((ImageFormat)f), l->of_format[f]);
    fprintf(to, "\n  width        %d to %d, mean %.0f\n  height       %d to %d, mean %.0f\n", l->least_w, l->most_w,
            (double)l->sum_w / (double)seen, l->least_h, l->most_h, (double)l->sum_h / (double)seen);
    fprintf(to, "  EXIF         %" PRId64 " images are stored rotated (--exif corrects this)\n", l->turned);
    if (info->labels_note) text_printf(to, "  labels       %s\n", info->labels_note);
    inventory_print(&info->inventory, "  ", to);
    if (l->damaged)
        text_printf(to, "  damaged      %" PRId64 " headers, the first: %s (towers data check names all)\n", l->damaged,
                    l->first_bad ? l->first_bad : "");
}

static void classes_print(const Source *train, const Look looks[SPLITS], FILE *to)
{
    const SourceInfo *info = source_info(train);
    text_printf(to, "classes: %d%s\n", info->classes, info->multi_label ? ", any number for an image" : "");
    for (int c = 0; c < info->classes && c < CLASSES_SHOWN; c++) {
        fprintf(to, "  %6d", c);
        for (Split s = SPLIT_TRAIN; s < SPLITS; s++)
            if (looks[s].source && source_info(looks[s].source)->classes == info->classes)
                fprintf(to, "  %8" PRId64, looks[s].of_class[c]);
        text_printf(to, "  %s\n", info->class_names[c]);
    }
    if (info->classes > CLASSES_SHOWN) fprintf(to, "  and %d more classes\n", info->classes - CLASSES_SHOWN);
}

/* {"part": "training", "images": 60000, "formats": {"PNG": 60000}, "width": [28, 28, 28.0], ...}: the least, the largest, the mean. */
static json_t *look_json(const char *part, const Source *source, const Look *l)
{
    const SourceInfo *info = source_info(source);
    double seen = l->seen ? (double)l->seen : 1;
    json_t *formats = json_object(), *classes = json_array();
    for (int f = 0; f < IMAGE_FORMATS; f++)
        if (l->of_format[f])
            json_object_set_new(formats, image_format_name((ImageFormat)f), json_integer(l->of_format[f]));
    for (int c = 0; c < info->classes; c++) json_array_append_new(classes, json_integer(l->of_class[c]));
    json_t *row =
        json_pack("{s:s, s:I, s:I, s:o, s:[i,i,f], s:[i,i,f], s:I, s:I, s:o}", "part", part, "images",
                  (json_int_t)info->count, "bytes", (json_int_t)l->bytes, "formats", formats, "width", l->least_w,
                  l->most_w, (double)l->sum_w / seen, "height", l->least_h, l->most_h, (double)l->sum_h / seen,
                  "rotated", (json_int_t)l->turned, "damaged", (json_int_t)l->damaged, "images_of_classes", classes);
    json_t *inventory = inventory_json(&info->inventory);
    if (row && inventory) json_object_set_new(row, "inventory", inventory);
    return row;
}

static Status info_emit(const Options *o, Source *const sets[SPLITS], const Look looks[SPLITS], FILE *to)
{
    const char *path = o->arguments[1];
    const SourceInfo *train = source_info(sets[SPLIT_TRAIN]);
    json_t *parts = json_array(), *names = json_array();
    for (Split s = SPLIT_TRAIN; s < SPLITS; s++)
        if (sets[s]) json_array_append_new(parts, look_json(part_titles[data_part(o, path, s)], sets[s], &looks[s]));
    for (int c = 0; c < train->classes; c++) json_array_append_new(names, json_text(train->class_names[c]));
    return json_emit(json_pack("{s:o, s:s, s:b, s:o, s:o}", "path", json_text(path), "format", train->format, "several",
                               train->multi_label, "classes", names, "parts", parts),
                     JSON_COMPACT, to);
}

static int by_hash(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(XXH128_hash_t));
}

/* Images of other parts whose bytes are also in the training set: they invalidate the accuracy. */
static void duplicates_print(const Look looks[SPLITS], FILE *to)
{
    const Look *train = &looks[SPLIT_TRAIN];
    int64_t count = source_info(train->source)->count, twice = 0, found = 0;
    char where[512] = "";
    qsort(train->hash, (size_t)count, sizeof *train->hash, by_hash);
    for (int64_t i = 1; i < count; i++) twice += by_hash(&train->hash[i - 1], &train->hash[i]) == 0;
    fprintf(to, "duplicates: %" PRId64 " within the training images", twice);
    for (Split s = SPLIT_VAL; s < SPLITS; s++) {
        if (!looks[s].source) continue;
        int64_t also = 0;
        for (int64_t i = 0; i < source_info(looks[s].source)->count; i++) {
            if (!bsearch(&looks[s].hash[i], train->hash, (size_t)count, sizeof *train->hash, by_hash)) continue;
            also++;
            if (found++ == 0) source_where(looks[s].source, i, where, sizeof where);
        }
        text_printf(to, ", %" PRId64 " %s images that are also training images", also, part_titles[s]);
    }
    if (found) text_printf(to, "; the first: %s", where);
    fputc('\n', to);
}

/* The folders that were left out, each once, though several parts may be of one folder. Returns their number. */
static int problems_print(Names *problems, FILE *to)
{
    int count = 0;
    names_sort(problems);
    for (int i = 0; i < problems->count; i++) {
        if (i > 0 && !strcmp(problems->name[i], problems->name[i - 1])) continue;
        text_printf(to, "%s\n", problems->name[i]);
        count++;
    }
    return count;
}

/* A folder of a bucket is here as a list of all its shards. */
static void heading_print(const char *path, const char *format, FILE *to)
{
    int count = 1;
    const char *last = path;
    for (const char *joint; (joint = strstr(last, "::")) != NULL; count++) last = joint + 2;
    if (count > 2)
        text_printf(to, "%d paths, from %.*s to %s: %s\n", count, (int)(strstr(path, "::") - path), path, last, format);
    else
        text_printf(to, "%s: %s\n", path, format);
}

Status data_info(const Options *o, FILE *to)
{
    Status st = OK;
    const char *path = o->arguments[1];
    Source *sets[SPLITS] = {NULL};
    Look looks[SPLITS] = {{0}};
    for (Split s = SPLIT_TRAIN; s < SPLITS; s++) TRY_OUT(data_open(o, path, s, NULL, &sets[s]));
    if (!o->json) heading_print(path, source_info(sets[SPLIT_TRAIN])->format, to);
    for (Split s = SPLIT_TRAIN; s < SPLITS; s++) {
        if (!sets[s]) continue;
        TRY_OUT(look_run(o, sets[s], &looks[s]));
        if (!o->json) look_print(part_titles[data_part(o, path, s)], sets[s], &looks[s], to);
    }
    if (o->json) TRY_OUT(info_emit(o, sets, looks, to));
    if (o->json) goto out;
    classes_print(sets[SPLIT_TRAIN], looks, to);
    duplicates_print(looks, to);
out:
    for (Split s = SPLIT_TRAIN; s < SPLITS; s++) {
        if (looks[s].source) pthread_mutex_destroy(&looks[s].lock);
        free(looks[s].of_class);
        free(looks[s].hash);
        free(looks[s].first_bad);
        source_close(sets[s]);
    }
    return st;
}

/* ---- check */

typedef struct Check {
    pthread_mutex_t lock;
    int64_t damaged, unreadable, warnings; /* of all splits */
    const Source *source;                  /* of this split; borrowed */
    char **why;                            /* owned: [count], NULL for an intact image */
} Check;

static Status check_one(void *context, SurveyWorker *worker, int64_t id, int32_t label, const ImageInfo *info,
                        Status st)
{
    Check *c = context;
    (void)label;
    int64_t warnings = image_decoder_warnings(worker->tools.decoder);
    if (st == OK)
        st = image_decode(worker->tools.decoder, &worker->bytes, info, (Rect){0, 0, info->h, info->w},
                          &worker->tools.decoded);
    if (st == ERR_MEMORY) {
        char *where = why_of(c->source, id);
        st = FAIL(ERR_MEMORY, "%s", where ? where : "no memory for a message");
        free(where);
        return st;
    }
    char *why = st == OK ? NULL : why_of(c->source, id);
    if (st != OK && !why) return FAIL(ERR_MEMORY, "no memory for a message");
    pthread_mutex_lock(&c->lock);
    c->damaged += st == ERR_FORMAT;
    c->unreadable += st != OK && st != ERR_FORMAT;
    c->warnings += st == OK && image_decoder_warnings(worker->tools.decoder) > warnings;
    c->why[id] = why;
    pthread_mutex_unlock(&c->lock);
    return OK;
}

static Status check_split(const Options *o, const Source *source, Check *c, FILE *to)
{
    int64_t count = source_info(source)->count;
    c->source = source;
    c->why = calloc((size_t)count + 1, sizeof *c->why);
    if (!c->why) return FAIL(ERR_MEMORY, "no memory to check %" PRId64 " images", count);
    SurveyConfig config = {
        .source = source, .threads = data_threads(o), .visit = check_one, .context = c, .progress = data_progress};
    Status st = survey_run(&config);
    for (int64_t i = 0; i < count; i++) {
        if (c->why[i]) text_printf(to, "%s\n", c->why[i]);
        free(c->why[i]);
    }
    free(c->why);
    return st;
}

static bool has_mds(const char *path, const char *name, char found[PATH_BYTES])
{
    return path_join(found, path, name) == OK && mds_is_in(found);
}

/* The hashes of a set of MDS shards, which may be in the folder itself or in one for each split. */
static Status hashes_check(const char *path, int64_t *damaged, FILE *to)
{
    static const TreeKind kind = {has_mds, ""};
    char parts[SPLITS][PATH_BYTES];
    MdsHashes found = {0};
    Status st = mds_is_in(path) ? mds_hashes_check(path, &found) : OK;
    if (tree_parts(path, &kind, parts) != OK)
        *parts[SPLIT_TRAIN] = *parts[SPLIT_VAL] = *parts[SPLIT_TEST] = 0; /* one shard */
    for (Split s = SPLIT_TRAIN; s < SPLITS && st == OK; s++)
        if (*parts[s]) st = mds_hashes_check(parts[s], &found);
    for (int i = 0; i < found.differ.count; i++) text_printf(to, "%s\n", found.differ.name[i]);
    if (found.equal) fprintf(to, "%" PRId64 " hashes of shards are right\n", found.equal);
    if (found.unknown)
        fprintf(to,
                "%" PRId64
                " hashes of shards are of kinds that are not checked (xxh32, xxh64, xxh3_64 and xxh128 are)\n",
                found.unknown);
    *damaged = found.differ.count;
    mds_hashes_free(&found);
    return st;
}

/* The whole list, with every file. */
static Status findings_print(Source *const sets[SPLITS], FILE *to)
{
    size_t i, k;
    json_t *root, *row, *file;
    FindingsConfig config = {
        .part = {sets[SPLIT_TRAIN], sets[SPLIT_VAL], sets[SPLIT_TEST]},
        .turned = "are turned upright by trainings on pictures, unless their recipe or --no-exif leaves them as stored",
        .most = INT64_MAX,
        .decoded = INT64_MAX,
        .examples = INT_MAX};
    if (source_info(sets[SPLIT_TRAIN])->h > 0) {
        inventory_print(&source_info(sets[SPLIT_TRAIN])->inventory, "", to);
        return OK;
    }
    TRY(findings_make(&config, &root));
    json_array_foreach(json_object_get(root, "findings"), i, row)
    {
        bool named = json_is_true(json_object_get(row, "left_out")); /* its text names the first; only that is known */
        text_printf(to, "%s%s\n", json_word_or_empty(row, "text"), named ? "" : ":");
        json_array_foreach(json_object_get(row, "files"), k, file) if (!named)
            text_printf(to, "  %s\n", json_string_value(file));
    }
    json_decref(root);
    return OK;
}

static Status check_result(const Check *total, int64_t count, int64_t shards, int folders)
{
    char also[96] = "";
    if (folders)
        snprintf(also, sizeof also, "%d folder%s of classes cannot be used (above)", folders, folders == 1 ? "" : "s");
    if (total->unreadable)
        return FAIL(ERR_IO,
                    "%" PRId64 " of %" PRId64
                    " images cannot be read (above); every run ends there, also with --bad-samples skip%s%s",
                    total->unreadable, count, *also ? "; " : "", also);
    if (total->damaged)
        return FAIL(ERR_FORMAT,
                    "%" PRId64 " of %" PRId64 " images cannot be decoded; training needs --bad-samples skip%s%s",
                    total->damaged, count, *also ? "; " : "", also);
    if (shards)
        return FAIL(ERR_FORMAT,
                    "%" PRId64 " hashes of shards differ: copy these shards again from where they were written",
                    shards);
    return folders ? FAIL(ERR_FORMAT, "%s; all %" PRId64 " images of the others can be decoded", also, count) : OK;
}

Status data_check(const Options *o, FILE *to)
{
    Status st = OK;
    const char *path = o->arguments[1];
    Check total = {.lock = PTHREAD_MUTEX_INITIALIZER};
    Source *sets[SPLITS] = {NULL};
    Names problems = {0};
    int64_t count = 0, shards = 0;
    for (Split s = SPLIT_TRAIN; s < SPLITS; s++) TRY_OUT(data_open(o, path, s, &problems, &sets[s]));
    int folders = problems_print(&problems, to);
    for (Split s = SPLIT_TRAIN; s < SPLITS; s++) {
        if (!sets[s]) continue;
        TRY_OUT(check_split(o, sets[s], &total, to));
        count += source_info(sets[s])->count;
    }
    TRY_OUT(hashes_check(path, &shards, to));
    TRY_OUT(findings_print(sets, to));
    if (total.warnings) fprintf(to, "%" PRId64 " images have minor damage that the decoder repairs\n", total.warnings);
    TRY_OUT(check_result(&total, count, shards, folders));
    fprintf(to, "all %" PRId64 " images can be decoded\n", count);
out:
    for (Split s = SPLIT_TRAIN; s < SPLITS; s++) source_close(sets[s]);
    names_free(&problems);
    return st;
}
