/* Looks at each image with several threads, then counts in the order of the samples; see findings.h. */
#include "towers/data/sources/findings.h"

#include <stdatomic.h>

#include "towers/data/classes/class_match.h"
#include "towers/data/classes/look_alike.h"
#include "towers/data/images/image.h"
#include "towers/data/listing/equal_files.h"
#include "towers/data/listing/parallel.h"
#include "towers/data/sources/reader.h"

enum { HEAD_READ = 1 << 16, TINY_SIDE = 16, FEW_IMAGES = 10, WHITE = 65535, KIND_TEXT = 640 };

typedef enum FindingKind {
    KIND_LEAK = 0,
    KIND_SHARED,
    KIND_CONTRADICTION,
    KIND_ALIKE,
    KIND_ABSENT,
    KIND_EMPTY,
    KIND_UNDECODABLE,
    KIND_DEEP,
    KIND_ROTATED,
    KIND_CONSTANT,
    KIND_TINY,
    KIND_COPY,
    KIND_FEW,
    KINDS
} FindingKind;

#define KIND_BIT(kind) (1u << (kind))
#define SUSPECT KIND_BIT(KINDS) /* it may have one color: few bytes for its pixels */

/* The name of each kind, and what is said of its images; NULL: kind_text, alike_add, absent_in or few_add makes the sentence. */
static const struct {
    const char *name, *are;
} kind_texts[KINDS] = {
    [KIND_LEAK] = {"also trained on", " are also training images (equal files): what is measured on them is too good"},
    [KIND_SHARED] = {"also evaluated on",
                     " are also evaluation images (equal files): an evaluation that chose the weights has seen them"},
    [KIND_CONTRADICTION] = {"in several classes", " are in several classes (equal files)"},
    [KIND_ALIKE] = {"classes that look alike", NULL},
    [KIND_ABSENT] = {"classes without images", NULL},
    [KIND_EMPTY] = {"empty", " are empty files"},
    [KIND_UNDECODABLE] = {"without a header", " have no header of an image that can be read"},
    [KIND_DEEP] = {"gray of 16 bits", NULL},
    [KIND_ROTATED] = {"stored rotated", NULL},
    [KIND_CONSTANT] = {"of one color", " have one color only"},
    [KIND_TINY] = {"tiny", " have less than 16 pixels in width or height"},
    [KIND_COPY] = {"copies", " are copies of others of their class (equal files)"},
    [KIND_FEW] = {"small classes", NULL}};

typedef struct LookWorker {
    Bytes bytes;
    ImageDecoder *decoder; /* owned; created with the first image that is decoded */
    Pixels pixels;
} LookWorker;

typedef struct LookOver {
    const FindingsConfig *config;
    int64_t chosen[SPLITS], all;    /* images of each part, of all, to be looked at */
    _Atomic int64_t looked[SPLITS]; /* of these, at so many: others are not on this machine */
    uint32_t *kinds;                /* owned: [all], bits of kinds */
    LookWorker worker[PARALLEL_USUAL];
    int64_t *decoded; /* owned: [decoded_count], the numbers of the images that are decoded */
    int64_t decoded_count, deep_decoded;
    atomic_int brightest; /* high byte of decoded images of 16 bits */
} LookOver;

/* ---- the images that are looked at, by number: training first */

static Split part_of(const LookOver *l, int64_t *number)
{
    Split part = SPLIT_TRAIN;
    while (*number >= l->chosen[part]) *number -= l->chosen[part++];
    return part;
}

static const Source *source_of(const LookOver *l, int64_t number)
{
    return l->config->part[part_of(l, &number)];
}

static int64_t id_of(const LookOver *l, int64_t number)
{
    Split part = part_of(l, &number);
    int64_t count = source_info(l->config->part[part])->count;
    return l->chosen[part] == count ? number : (int64_t)((double)number * (double)count / (double)l->chosen[part]);
}

static int64_t choose(const FindingsConfig *config, const Source *source)
{
    char path[PATH_BYTES];
    uint64_t bytes;
    int64_t count = source ? source_info(source)->count : 0;
    bool files = count > 0 && source_file(source, 0, path, sizeof path, &bytes);
    int64_t most = files || config->most < SHARDS_LOOKED ? config->most : SHARDS_LOOKED;
    return count < most ? count : most;
}

/* ---- one image */

static bool has_one_color(const Pixels *pixels, int *brightest)
{
    size_t row = (size_t)pixels->w * (size_t)pixels->c;
    bool one = true;
    for (int32_t y = 0; y < pixels->h; y++) {
        const uint8_t *at = pixels->at + (size_t)y * pixels->pitch;
        for (size_t i = 0; i < row; i++) {
            one &= at[i] == pixels->at[i % (size_t)pixels->c];
            if (at[i] > *brightest) *brightest = at[i];
        }
    }
    return one;
}

/* Few bytes for its pixels: an image of one color takes less than 3 bits for each 8 x 8 pixels of a channel. */
static bool may_have_one_color(const ImageInfo *info, uint64_t bytes)
{
    return bytes < 2048 + (uint64_t)info->h * (uint64_t)info->w * 3 / 64;
}

static uint32_t kinds_of(const ImageInfo *info, uint64_t bytes)
{
    uint32_t kinds = 0;
    if (info->orientation != 1) kinds |= KIND_BIT(KIND_ROTATED);
    if (info->h < TINY_SIDE || info->w < TINY_SIDE) kinds |= KIND_BIT(KIND_TINY);
    if (info->deep_gray) kinds |= KIND_BIT(KIND_DEEP);
    if (info->format != IMAGE_RAW && may_have_one_color(info, bytes)) kinds |= SUSPECT;
    return kinds;
}

/* The header is in the first bytes, except where large segments come before it or, in a WebP, the orientation behind. */
static Status file_probe(LookWorker *w, const char *path, ImageInfo *info, uint64_t *bytes)
{
    TRY(bytes_read_head(path, HEAD_READ, &w->bytes, bytes));
    Status st = image_probe(&w->bytes, info);
    bool whole = *bytes <= HEAD_READ || (st == OK && info->format != IMAGE_WEBP);
    if (whole || st == ERR_MEMORY) return st;
    TRY(bytes_read(path, ANY_SIZE, SAMPLE_BYTES_MAX, &w->bytes));
    return image_probe(&w->bytes, info);
}

/* Read and probe an image, of a file what its header needs. *bytes: its size, 0 for a sample that cannot be read. */
static Status sample_probe(const LookOver *l, LookWorker *w, int64_t number, ImageInfo *info, uint64_t *bytes)
{
    char path[PATH_BYTES];
    const Source *source = source_of(l, number);
    int32_t label;
    if (source_file(source, id_of(l, number), path, sizeof path, bytes)) return file_probe(w, path, info, bytes);
    *bytes = 0;
    TRY(source_read(source, id_of(l, number), &w->bytes, &label));
    *bytes = w->bytes.size;
    return image_probe(&w->bytes, info);
}

static Status sample_look(void *context, int thread, int64_t number)
{
    LookOver *l = context;
    ImageInfo info;
    uint64_t bytes;
    int64_t in_part = number;
    if (!source_is_here(source_of(l, number), id_of(l, number))) return OK; /* training must not wait for it */
    atomic_fetch_add(&l->looked[part_of(l, &in_part)], 1);
    Status st = sample_probe(l, &l->worker[thread], number, &info, &bytes);
    bool files = source_info(source_of(l, number))->shard_first == NULL;
    l->kinds[number] |= st == OK ? kinds_of(&info, bytes) : KIND_BIT(files && !bytes ? KIND_EMPTY : KIND_UNDECODABLE);
    return st == ERR_MEMORY ? st : OK;
}

/* ---- the few that are decoded */

static Status color_look(void *context, int thread, int64_t item)
{
    LookOver *l = context;
    LookWorker *w = &l->worker[thread];
    int64_t number = l->decoded[item];
    char path[PATH_BYTES];
    ImageInfo info;
    uint64_t bytes;
    int brightest = 0;
    if (!w->decoder) TRY(image_decoder_create(&w->decoder));
    Status st = sample_probe(l, w, number, &info, &bytes);
    if (st == OK && source_file(source_of(l, number), id_of(l, number), path, sizeof path, &bytes))
        st = bytes_read(path, ANY_SIZE, SAMPLE_BYTES_MAX, &w->bytes);
    if (st == OK) st = image_decode(w->decoder, &w->bytes, &info, (Rect){0, 0, info.h, info.w}, &w->pixels);
    if (st == OK && has_one_color(&w->pixels, &brightest)) l->kinds[number] |= KIND_BIT(KIND_CONSTANT);
    image_decoder_rest(w->decoder);
    if (st != OK || !info.deep_gray) return st == ERR_MEMORY ? st : OK; /* damage is found where it is read */
    for (int was = atomic_load(&l->brightest); was < brightest;)
        if (atomic_compare_exchange_weak(&l->brightest, &was, brightest)) break;
    return OK;
}

/* The first images of 16 bits, and the first that may have one color: which, depends on no thread. */
static Status colors_look(LookOver *l)
{
    int64_t suspects = 0;
    l->decoded = calloc((size_t)l->all + 1, sizeof *l->decoded);
    if (!l->decoded) return FAIL(ERR_MEMORY, "no memory for a survey of %" PRId64 " images", l->all);
    for (int64_t i = 0; i < l->all; i++) {
        bool deep = l->kinds[i] & KIND_BIT(KIND_DEEP), suspect = !deep && l->kinds[i] & SUSPECT;
        if ((deep && l->deep_decoded++ < l->config->decoded) || (suspect && suspects++ < l->config->decoded))
            l->decoded[l->decoded_count++] = i;
    }
    return parallel_run(&(Parallel){.count = l->decoded_count, .work = color_look, .context = l});
}

/* ---- equal files */

static Status number_path(const void *context, int64_t number, char path[PATH_BYTES])
{
    const LookOver *l = context;
    uint64_t bytes;
    (void)source_file(source_of(l, number), id_of(l, number), path, PATH_BYTES, &bytes);
    return OK;
}

static bool labels_differ(const LookOver *l, int64_t a, int64_t b)
{
    const Source *source = source_of(l, a);
    const int32_t *x, *y;
    if (!source_info(source)->multi_label)
        return source_label(source, id_of(l, a)) != source_label(source_of(l, b), id_of(l, b));
    int32_t n = source_labels(source, id_of(l, a), &x);
    return n != source_labels(source_of(l, b), id_of(l, b), &y) || memcmp(x, y, (size_t)n * sizeof *x) != 0;
}

static Split part_with(const LookOver *l, int64_t number)
{
    return part_of(l, &number);
}

/* The first of equal files has the lowest number, so it is of the training if any is, else of the evaluation. */
static Status equal_look(LookOver *l)
{
    Status st = OK;
    uint64_t *bytes = calloc((size_t)l->all + 1, sizeof *bytes);
    int64_t *first = calloc((size_t)l->all + 1, sizeof *first);
    char path[PATH_BYTES];
    if (!bytes || !first) TRY_OUT(FAIL(ERR_MEMORY, "no memory to compare %" PRId64 " images", l->all));
    bool files = l->all > 0 && source_file(source_of(l, 0), id_of(l, 0), path, sizeof path, bytes);
    for (int64_t i = 0; files && i < l->all; i++)
        if (!source_file(source_of(l, i), id_of(l, i), path, sizeof path, &bytes[i])) bytes[i] = 0;
    TRY_OUT(equal_files_find(&(EqualFiles){files ? l->all : 0, bytes, number_path, l}, first));
    for (int64_t i = 0; files && i < l->all; i++) {
        if (first[i] == i) continue;
        Split of_first = part_with(l, first[i]);
        if (part_with(l, i) != of_first)
            l->kinds[i] |= of_first == SPLIT_TRAIN ? KIND_BIT(KIND_LEAK) : KIND_BIT(KIND_SHARED);
        else if (labels_differ(l, first[i], i))
            l->kinds[i] |= KIND_BIT(KIND_CONTRADICTION), l->kinds[first[i]] |= KIND_BIT(KIND_CONTRADICTION);
        else
            l->kinds[i] |= KIND_BIT(KIND_COPY);
    }
out:
    free(bytes);
    free(first);
    return st;
}

/* ---- in words */

static const char *const part_names[SPLITS] = {"training", "evaluation", "test"};

typedef struct Count {
    int64_t of[SPLITS];
    json_t *files; /* owned */
} Count;

static void kind_count(const LookOver *l, FindingKind kind, Count *count)
{
    *count = (Count){.files = json_array()};
    for (int64_t i = 0; i < l->all; i++) {
        char where[PATH_BYTES];
        int64_t number = i;
        if (!(l->kinds[i] & KIND_BIT(kind))) continue;
        count->of[part_of(l, &number)]++;
        if ((int)json_array_size(count->files) >= l->config->examples) continue;
        source_where(source_of(l, i), id_of(l, i), where, sizeof where);
        json_array_append_new(count->files, json_text(where));
    }
}

/* "186 of 490 training images and 3 of 90 evaluation images" */
static void parts_text(const LookOver *l, const Count *count, Text *to)
{
    bool some = false, all = true;
    for (Split part = SPLIT_TRAIN; part < SPLITS; part++) {
        if (!count->of[part]) continue;
        text_add(to, "%s%" PRId64 " of %" PRId64 " %s images", some ? " and " : "", count->of[part],
                 atomic_load(&l->looked[part]), part_names[part]);
        some = true;
        all &= atomic_load(&l->looked[part]) == source_info(l->config->part[part])->count;
    }
    if (!all) text_add(to, " that were looked at");
}

static void deep_text(const LookOver *l, Text *to)
{
    int64_t tried = l->deep_decoded;
    int most = (atomic_load(&l->brightest) + 1) * 256 - 1;
    if (tried > l->config->decoded) tried = l->config->decoded;
    text_add(to, " are gray of 16 bits, of which %d becomes white", WHITE);
    if (most < WHITE / 4)
        text_add(to,
                 "; but the largest value of %" PRId64
                 " that were decoded is at most %d, so they are almost black: stretch them, as by 'mogrify -level 0,%d "
                 "FILE' (ImageMagick)",
                 tried, most, most);
}

static void kind_text(const LookOver *l, FindingKind kind, const Count *count, Text *to)
{
    parts_text(l, count, to);
    if (kind == KIND_ROTATED)
        text_add(to, " are stored rotated (EXIF orientation) and %s", l->config->turned);
    else if (kind == KIND_DEEP)
        deep_text(l, to);
    else
        text_add(to, "%s", kind_texts[kind].are);
}

static Status finding_add(json_t *list, const char *kind, bool left_out, const char *text, int64_t count, json_t *files)
{
    json_t *row = json_pack("{s:s, s:b, s:o, s:I, s:o}", "kind", kind, "left_out", left_out, "text", json_text(text),
                            "count", (json_int_t)count, "files", files);
    return json_array_append_new(list, row) == 0 ? OK : FAIL(ERR_MEMORY, "no memory for the survey of the images");
}

/* ---- classes, and files that are left out */

/* Its name, or "class 3" in `number` where the files name none. */
static const char *name_of_class(const SourceInfo *info, int class, char number[24])
{
    if (*info->class_names[class]) return info->class_names[class];
    snprintf(number, 24, "class %d", class);
    return number;
}

static Status alike_add(const LookOver *l, json_t *list)
{
    const SourceInfo *info = source_info(l->config->part[SPLIT_TRAIN]);
    const ClassList classes = {.names = info->class_names, .count = info->classes};
    char text[KIND_TEXT], why[ALIKE_BYTES];
    int count, left_out, pair[2];
    TRY(classes_alike(&classes, &count, &left_out, pair, why));
    if (left_out) {
        snprintf(text, sizeof text, "%d of %d classes were not compared: too many names of one length", left_out,
                 info->classes);
        TRY(finding_add(list, kind_texts[KIND_ALIKE].name, false, text, left_out, json_array()));
    }
    if (!count) return OK;
    json_t *names = json_array();
    for (int i = 0; i < 2; i++) json_array_append_new(names, json_text(info->class_names[pair[i]]));
    snprintf(text, sizeof text, "%d of %d classes have names that look like another's: '%.100s' and '%.100s': %s",
             count, info->classes, info->class_names[pair[0]], info->class_names[pair[1]], why);
    return finding_add(list, kind_texts[KIND_ALIKE].name, false, text, count, names);
}

/* Of so many classes of `split` that may have images: nothing is learned of one without training images, and no score says anything of
 * one without others. `images`: of each class in that part; `among`: NULL, or the images of those that are looked at. */
static Status absent_in(const LookOver *l, Split split, const int64_t *images, const int64_t *among, json_t *list)
{
    const SourceInfo *info = source_info(l->config->part[SPLIT_TRAIN]);
    int64_t absent = 0, all = 0;
    char number[24], first[256] = "", text[KIND_TEXT];
    json_t *names = json_array();
    for (int c = 0; c < info->classes; c++) {
        if (among && !among[c]) continue;
        all++;
        if (images[c]) continue;
        const char *name = name_of_class(info, c, number);
        if (!absent) snprintf(first, sizeof first, "%.200s", name);
        if (absent++ < l->config->examples) json_array_append_new(names, json_text(name));
    }
    snprintf(text, sizeof text, "%" PRId64 " of %" PRId64 " classes ha%s no %s images%s: %s", absent, all,
             absent == 1 ? "s" : "ve", part_names[split], absent == 1 ? "" : ", the first", first);
    if (absent) return finding_add(list, kind_texts[KIND_ABSENT].name, false, text, absent, names);
    json_decref(names);
    return OK;
}

static Status absent_add(const LookOver *l, json_t *list)
{
    const int classes = source_info(l->config->part[SPLIT_TRAIN])->classes;
    int64_t *trained = calloc((size_t)classes + 1, sizeof *trained),
            *images = calloc((size_t)classes + 1, sizeof *images);
    Status st = trained && images ? OK : FAIL(ERR_MEMORY, "no memory for the images of %d classes", classes);
    if (st == OK) source_classes_count(l->config->part[SPLIT_TRAIN], trained);
    if (st == OK) st = absent_in(l, SPLIT_TRAIN, trained, NULL, list);
    for (Split split = SPLIT_VAL; st == OK && split < SPLITS; split++) {
        const Source *part = l->config->part[split];
        if (!part || source_info(part)->classes != classes) continue;
        source_classes_count(part, images);
        st = absent_in(l, split, images, trained, list);
    }
    free(trained);
    free(images);
    return st;
}

static Status few_add(const LookOver *l, json_t *list)
{
    const SourceInfo *info = source_info(l->config->part[SPLIT_TRAIN]);
    int64_t *images = calloc((size_t)info->classes + 1, sizeof *images), few = 0;
    int least = -1, trained = 0;
    char number[24];
    if (!images) return FAIL(ERR_MEMORY, "no memory for the images of %d classes", info->classes);
    json_t *names = json_array();
    source_classes_count(l->config->part[SPLIT_TRAIN], images);
    for (int c = 0; c < info->classes; c++) {
        trained += images[c] > 0;
        if (images[c] == 0 || images[c] >= FEW_IMAGES) continue;
        if (least < 0 || images[c] < images[least]) least = c;
        if (few++ < l->config->examples) json_array_append_new(names, json_text(name_of_class(info, c, number)));
    }
    char text[KIND_TEXT];
    Text to = text_start(text, sizeof text);
    if (few)
        text_add(&to, "%" PRId64 " of %d classes ha%s fewer than %d training images, the smallest %" PRId64 ": %.200s",
                 few, trained, few == 1 ? "s" : "ve", FEW_IMAGES, images[least], name_of_class(info, least, number));
    free(images);
    if (few) return finding_add(list, kind_texts[KIND_FEW].name, false, text, few, names);
    json_decref(names);
    return OK;
}

/* What the reader of each part has left out. Parts of one folder, which --val-split divides, have left out the same. */
static Status left_out_add(const LookOver *l, json_t *list)
{
    for (SkipReason why = 0; why < SKIP_REASONS; why++) {
        const char *last = "";
        for (Split part = SPLIT_TRAIN; part < SPLITS; part++) {
            const Source *source = l->config->part[part];
            const Skipped *skipped = source ? &source_info(source)->inventory.skipped[why] : NULL;
            char line[SKIP_LINE_BYTES];
            if (!skipped || !skipped->count || !strcmp(last, skipped->first)) continue;
            last = skipped->first;
            json_t *files = json_array();
            json_array_append_new(files, json_text(last));
            skip_line(&source_info(source)->inventory, why, line);
            TRY(finding_add(list, skip_name(why), true, line, skipped->count, files));
        }
    }
    return OK;
}

/* ---- */

static Status list_make(const LookOver *l, json_t *list)
{
    for (FindingKind kind = 0; kind < KIND_FEW; kind++) {
        if (kind == KIND_ALIKE) TRY(alike_add(l, list)); /* no image is of these two kinds */
        if (kind == KIND_ABSENT) TRY(absent_add(l, list));
        char text[KIND_TEXT];
        Text to = text_start(text, sizeof text);
        Count count;
        kind_count(l, kind, &count);
        int64_t sum = count.of[SPLIT_TRAIN] + count.of[SPLIT_VAL] + count.of[SPLIT_TEST];
        if (sum) kind_text(l, kind, &count, &to);
        if (sum)
            TRY(finding_add(list, kind_texts[kind].name, false, text, sum, count.files));
        else
            json_decref(count.files);
    }
    TRY(few_add(l, list));
    return left_out_add(l, list);
}

static void look_free(LookOver *l)
{
    for (int i = 0; i < PARALLEL_USUAL; i++) {
        bytes_free(&l->worker[i].bytes);
        image_decoder_destroy(l->worker[i].decoder);
        pixels_free(&l->worker[i].pixels);
    }
    free(l->kinds);
    free(l->decoded);
}

Status findings_make(const FindingsConfig *config, json_t **made)
{
    Status st = OK;
    LookOver l = {.config = config};
    json_t *list = json_array(), *root = NULL;
    int64_t all = 0, looked = 0;
    for (Split part = SPLIT_TRAIN; part < SPLITS; part++) {
        l.chosen[part] = choose(config, config->part[part]);
        l.all += l.chosen[part];
        all += config->part[part] ? source_info(config->part[part])->count : 0;
    }
    l.kinds = calloc((size_t)l.all + 1, sizeof *l.kinds);
    if (!l.kinds || !list) TRY_OUT(FAIL(ERR_MEMORY, "no memory for a survey of %" PRId64 " images", l.all));
    if (l.all)
        TRY_OUT(parallel_run(&(Parallel){.count = l.all,
                                         .work = sample_look,
                                         .context = &l,
                                         .progress = config->progress,
                                         .progress_context = config->context}));
    TRY_OUT(colors_look(&l));
    TRY_OUT(equal_look(&l));
    TRY_OUT(list_make(&l, list));
    for (Split part = SPLIT_TRAIN; part < SPLITS; part++) looked += atomic_load(&l.looked[part]);
    root = json_pack("{s:I, s:I, s:I, s:O}", "images", (json_int_t)all, "looked", (json_int_t)looked, "away",
                     (json_int_t)(l.all - looked), "findings", list);
    if (!root) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the survey of the images"));
    *made = root;
out:
    json_decref(list);
    look_free(&l);
    return st;
}
