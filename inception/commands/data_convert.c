/* towers data convert: writes images as smaller JPEG files, which decode several times as fast; see data.h. Each file
 * is written under a temporary name and renamed, so a conversion can be killed and started again: existing files are
 * decoded, and kept if they are intact and of the right size. The folder's towers-convert.json records the settings;
 * continuing with other settings is an error. */
#include "inception/commands/data.h"
#include "inception/job/job.h"
#include "towers/data/sources/reader.h"

#include <dirent.h>
#include <fts.h>
#include <strings.h>

enum { SETTINGS_BYTES = 4096 };
static const char *const format_names[] = {[FORMAT_FOLDER] = "folder", [FORMAT_TAR] = "tar", [FORMAT_MDS] = "mds"};

/* DST/train/CLASS/name.jpg, of a sample in shards DST/train/CLASS/NUMBER.jpg. Other extensions stay in the name
 * (name.png.jpg), so that two files never become one. */
static Status target_of(const Convert *c, int64_t id, int32_t label, char path[PATH_BYTES])
{
    char from[PATH_BYTES], name[PATH_BYTES];
    if (!c->root_bytes) {
        if (snprintf(name, sizeof name, "%s/%s/%08" PRId64 ".jpg", c->part, c->class_folder[label], id) >= PATH_BYTES)
            return FAIL(ERR_ARG, "'%s': the path is too long", c->class_folder[label]);
        return path_join(path, c->to, name);
    }
    source_where(c->source, id, from, sizeof from);
    size_t length = strlen(from);
    bool jpeg = (length > 4 && !strcasecmp(from + length - 4, ".jpg")) ||
                (length > 5 && !strcasecmp(from + length - 5, ".jpeg"));
    if (snprintf(name, sizeof name, "%s%s", from + c->root_bytes, jpeg ? "" : ".jpg") >= PATH_BYTES)
        return FAIL(ERR_ARG, "'%s': the path is too long", from);
    char twin[PATH_BYTES];
    int length_of_twin = jpeg ? 0 : snprintf(twin, sizeof twin, "%s.jpg", from);
    if (length_of_twin > 0 && length_of_twin < PATH_BYTES && access(twin, F_OK) == 0)
        return FAIL(ERR_FORMAT, "'%s' and '%s' would both be converted to '%s': rename one of them", from, twin, name);
    return path_join(path, c->to, name);
}

/* True if `path` is an intact file of an earlier conversion with the size that this image becomes. */
static Status target_is_done(const Convert *c, SurveyWorker *worker, const ImageInfo *from, const char *path,
                             bool *done)
{
    Bytes bytes = {0};
    ImageInfo info;
    bool turned = c->exif && from->orientation >= 5; /* height and width are swapped */
    Resize wanted = convert_size(c, turned ? from->w : from->h, turned ? from->h : from->w);
    *done = false;
    if (access(path, F_OK) != 0) return OK;
    Status st = bytes_read(path, ANY_SIZE, SAMPLE_BYTES_MAX, &bytes);
    if (st == OK) st = image_probe(&bytes, &info);
    if (st == OK && info.h == wanted.out_h && info.w == wanted.out_w) {
        st = image_decode(worker->tools.decoder, &bytes, &info, (Rect){0, 0, info.h, info.w}, &worker->tools.decoded);
        *done = st == OK;
    }
    bytes_free(&bytes);
    return st == ERR_FORMAT ? OK : st;
}

static Status file_put(const char *path, const uint8_t *bytes, size_t count)
{
    char folder[PATH_BYTES];
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = 0;
    if (access(folder, F_OK) != 0) TRY(directory_create(folder));
    return file_replace(path, bytes, count);
}

static Status convert_one(void *context, SurveyWorker *worker, int64_t id, int32_t label, const ImageInfo *info,
                          Status st)
{
    Convert *c = context;
    char path[PATH_BYTES];
    uint8_t *bytes = NULL;
    size_t count = 0;
    TRY(target_of(c, id, label, path));
    bool done = false;
    if (st == OK) TRY(target_is_done(c, worker, info, path, &done));
    if (done) {
        if (info->orientation != 1) atomic_fetch_add(&c->rotated, 1);
        atomic_fetch_add(&c->kept, 1);
        return OK;
    }
    if (st == OK) st = convert_encode(c, &worker->tools, &worker->bytes, info, &bytes, &count);
    if (st == ERR_FORMAT) {
        convert_skip(c, id);
        return OK;
    }
    if (st != OK) return st;
    st = file_put(path, bytes, count);
    free(bytes);
    atomic_fetch_add(&c->written, 1);
    atomic_fetch_add(&c->bytes_before, (int64_t)worker->bytes.size);
    atomic_fetch_add(&c->bytes_after, (int64_t)count);
    return st;
}

/* ---- the destination */

/* Nothing, or what a conversion left that was killed before it had written its settings. */
static bool is_empty(const char *path)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    bool empty = true;
    if (!folder) return errno == ENOENT;
    while (empty && (entry = readdir(folder)))
        empty = !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") || name_is_stale(entry->d_name);
    closedir(folder);
    return empty;
}

/* True if `path`, which need not exist yet, is `folder` or lies in it. */
static bool is_within(const char *path, const char *folder)
{
    char above[PATH_BYTES], *root = realpath(folder, NULL), *full;
    snprintf(above, sizeof above, "%s", path);
    while (!(full = realpath(*above ? above : ".", NULL)) && *above) {
        char *slash = strrchr(above, '/');
        above[slash == above && slash[1] ? 1 : slash ? slash - above : 0] = 0;
    }
    size_t bytes = root ? strlen(root) : 0;
    bool within = root && full && !strncmp(full, root, bytes) && (full[bytes] == 0 || full[bytes] == '/');
    free(root);
    free(full);
    return within;
}

/* Remove the temporary files of a killed conversion. */
static Status stale_remove(const char *path)
{
    char *roots[] = {(char *)path, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, NULL);
    if (!walk) return FAIL(ERR_IO, "cannot open '%s': %s", path, strerror(errno));
    for (const FTSENT *entry; (entry = fts_read(walk));)
        if (entry->fts_info == FTS_F && name_is_stale(entry->fts_name)) unlink(entry->fts_path);
    fts_close(walk);
    return OK;
}

/* The settings; and where names are numbers, which say nothing of the image, the source with all of its parts. */
static void settings_print(const Convert *c, char *text, size_t bytes)
{
    Text to = text_start(text, bytes);
    text_add(&to, "{\"side\": %d, \"quality\": %d, \"exif\": %s", c->side, c->quality, c->exif ? "true" : "false");
    if (c->format != FORMAT_FOLDER || !c->root_bytes)
        text_add(&to, ", \"format\": \"%s\", \"source\": \"%016" PRIx64 "%016" PRIx64 "\"", format_names[c->format],
                 c->fingerprint[0], c->fingerprint[1]);
    if (c->format != FORMAT_FOLDER) text_add(&to, ", \"shard_samples\": %" PRId64, c->shard_samples);
    text_add(&to, "}\n");
}

static Status destination_open(const Convert *c)
{
    char path[PATH_BYTES], wanted[256], *found = NULL;
    size_t count;
    struct stat info;
    if (stat(c->to, &info) == 0 && !S_ISDIR(info.st_mode))
        return FAIL(ERR_ARG, "'%s' is a file: expected a new or empty folder to write to", c->to);
    settings_print(c, wanted, sizeof wanted);
    TRY(path_join(path, c->to, CONVERSION_FILE));
    if (access(path, F_OK) != 0) {
        if (!is_empty(c->to))
            return FAIL(ERR_ARG,
                        "'%s' is not empty and contains no earlier conversion (no " CONVERSION_FILE
                        "); use a new or empty folder",
                        c->to);
        TRY(directory_create(c->to));
        TRY(file_replace(path, wanted, strlen(wanted)));
    }
    TRY(file_load(path, OF_USER, ERR_FORMAT, SETTINGS_BYTES, &found, &count));
    Status st = OK;
    found[strcspn(found, "\n")] = 0;
    wanted[strcspn(wanted, "\n")] = 0;
    if (strcmp(found, wanted) != 0)
        st = FAIL(ERR_ARG, "'%s' contains a conversion with %.200s, but this one has %s; use another folder", c->to,
                  found, wanted);
    free(found);
    return st == OK ? stale_remove(c->to) : st;
}

/* ---- folders for the classes of a source that has none */

static bool names_are_folders(const SourceInfo *info)
{
    for (int i = 0; i < info->classes; i++) {
        const char *name = info->class_names[i];
        if (!*name || *name == '.' || strchr(name, '/') || strlen(name) >= 200) return false;
        if (i > 0 && strcmp(info->class_names[i - 1], name) >= 0) return false;
    }
    return true;
}

/* A reader sorts them, and must find the same labels: the names of the classes if that is their order, else numbers. */
static Status class_folders_make(Convert *c)
{
    const SourceInfo *info = source_info(c->source);
    bool named = names_are_folders(info);
    c->class_folder = calloc((size_t)info->classes + 1, sizeof *c->class_folder);
    if (!c->class_folder) return FAIL(ERR_MEMORY, "no memory for the names of %d folders", info->classes);
    for (int i = 0; i < info->classes; i++)
        if (asprintf(&c->class_folder[i], named ? "%s" : "%s%07d", named ? info->class_names[i] : "", i) < 0)
            return FAIL(ERR_MEMORY, "no memory for the names of %d folders", info->classes);
    return OK;
}

/* Of folders with numbers for names; and of classes without training images, which get no folder, so that whoever reads
 * the folders numbers the classes behind them anew. */
static Status class_folders_warn(const Source *train)
{
    const SourceInfo *info = source_info(train);
    if (!names_are_folders(info))
        fprintf(stderr,
                "warning: the folders are numbers, 0000000 to %07d, in the order of the labels: the classes have no "
                "names, or names that cannot be folders or are not sorted as these are (--format tar and mds keep "
                "names and order)\n",
                info->classes - 1);
    int64_t *images = calloc((size_t)info->classes + 1, sizeof *images);
    int empty = 0;
    if (!images) return FAIL(ERR_MEMORY, "no memory to count the images of %d classes", info->classes);
    source_classes_count(train, images);
    for (int i = 0; i < info->classes; i++) empty += images[i] == 0;
    free(images);
    if (empty)
        fprintf(stderr,
                "warning: %d of %d classes have no training image and get no folder, so other classes get smaller "
                "numbers (--format tar and mds keep the numbers)\n",
                empty, info->classes);
    return OK;
}

/* ---- */

static Status split_convert(Convert *c)
{
    int classes = source_info(c->source)->classes;
    if (c->format != FORMAT_FOLDER) return pack_split(c);
    Status st = c->root_bytes ? OK : class_folders_make(c);
    SurveyConfig config = {
        .source = c->source, .threads = c->threads, .visit = convert_one, .context = c, .progress = data_progress};
    if (st == OK) st = survey_run(&config);
    for (int i = 0; c->class_folder && i < classes; i++) free(c->class_folder[i]);
    free(c->class_folder);
    c->class_folder = NULL;
    return st;
}

/* The sets of `from`, one for each split that there is; the caller closes them. */
static Status convert_open(const Options *o, const char *from, Convert *c, Source *sources[SPLITS])
{
    for (Split split = SPLIT_TRAIN; split < SPLITS; split++) {
        TRY(data_open(o, from, split, NULL, &sources[split]));
        for (int k = 0; sources[split] && k < 2; k++)
            c->fingerprint[k] ^= (2 * (uint64_t)split + 1) * source_info(sources[split])->fingerprint[k];
    }
    const SourceInfo *train = source_info(sources[SPLIT_TRAIN]);
    if (train->multi_label)
        return FAIL(ERR_UNSUPPORTED,
                    "'%s' has a labels file; convert writes one class for each image. Shrink the images with "
                    "another program and keep labels.csv",
                    from);
    if (train->h > 0) return FAIL(ERR_ARG, "towers data convert: '%s' is neither a folder of images nor shards", from);
    if (!strncmp(train->format, "folder", 6)) {
        char *root = realpath(from, NULL);
        c->root_bytes = root ? strlen(root) + 1 : 0;
        free(root);
    }
    c->source = sources[SPLIT_TRAIN];
    return OK;
}

static Status convert_report(Convert *c, FILE *to)
{
    text_printf(to,
                "%" PRId64 " images written to %s, %.1f MiB instead of %.1f; %" PRId64 " existed already; %" PRId64
                " damaged\n",
                atomic_load(&c->written), c->to, (double)atomic_load(&c->bytes_after) / (1 << 20),
                (double)atomic_load(&c->bytes_before) / (1 << 20), atomic_load(&c->kept), atomic_load(&c->damaged));
    if (c->rotated > 0 && !c->exif)
        fprintf(stderr,
                "warning: %" PRId64 " of these images were stored rotated (EXIF orientation) and are not upright in "
                "the new files, which have no orientation; convert into another folder without --no-exif, to turn them "
                "upright\n",
                atomic_load(&c->rotated));
    if (c->damaged == 0) return OK;
    return FAIL(ERR_FORMAT, "%" PRId64 " images cannot be decoded and were skipped", atomic_load(&c->damaged));
}

Status data_convert(const Options *o, FILE *to)
{
    Status st = OK;
    const char *from = o->arguments[1];
    Source *sources[SPLITS] = {NULL};
    Convert c = {.to = o->arguments[2],
                 .side = (int32_t)o->side,
                 .quality = (int)o->quality,
                 .exif = o->exif || !option_is_set(o, "exif"), /* the new files keep no orientation */
                 .threads = data_threads(o),
                 .format = o->format == FORMAT_AUTO ? FORMAT_FOLDER : o->format,
                 .shard_samples = o->shard_samples};
    if (c.format < FORMAT_FOLDER) return FAIL(ERR_ARG, "towers data convert --format: expected folder, tar or mds");
    if (is_within(c.to, from)) /* the next reader of `from` would find one more class */
        return FAIL(ERR_ARG, "towers data convert: '%s' is in '%s', whose images are read; use a folder outside of it",
                    c.to, from);
    TRY_OUT(convert_open(o, from, &c, sources));
    TRY_OUT(destination_open(&c));
    if (c.format == FORMAT_FOLDER && !c.root_bytes) TRY_OUT(class_folders_warn(c.source));
    for (Split split = SPLIT_TRAIN; split < SPLITS; split++) {
        c.source = sources[split];
        c.part = split_name(data_part(o, from, split));
        if (c.source) TRY_OUT(split_convert(&c));
    }
    st = convert_report(&c, to);
out:
    for (Split split = SPLIT_TRAIN; split < SPLITS; split++) source_close(sources[split]);
    return st;
}
