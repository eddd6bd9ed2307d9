/* The manifest of a checkpoint: formatting, parsing, checking; the format is in manifest.h. The version line is read
 * before the hash is checked, so that a newer format is not reported as damage. */
#include "towers/store/manifest.h"
#include "kernels/base/array.h"

#include "towers/files/crc32c.h"

enum { HASH_DIGITS = 32, HASH_LINE = 5 + HASH_DIGITS + 1 };

/* ---- making */

Status manifest_create(int64_t step, Manifest **made)
{
    Manifest *manifest = calloc(1, sizeof *manifest);
    if (!manifest) return FAIL(ERR_MEMORY, "no memory for a manifest");
    manifest->step = step;
    *made = manifest;
    return OK;
}

void manifest_destroy(Manifest *manifest)
{
    if (!manifest) return;
    free(manifest->tensor);
    free(manifest->text);
    free(manifest);
}

static Status tensor_add(Manifest *manifest, uint32_t crc, const char *name)
{
    int count = manifest->tensors;
    if (count == MANIFEST_FILES * ST_MAX_TENSORS)
        return FAIL(ERR_CHECKPOINT, "the manifest lists more than %d tensors", count);
    TRY(array_grow(&manifest->tensor, count, sizeof *manifest->tensor, "the tensors of a manifest"));
    manifest->tensor[manifest->tensors++] = (ManifestTensor){crc, name};
    manifest->file[manifest->files - 1].tensors++;
    return OK;
}

/* A file name may not contain a directory, start with a dot or contain anything but plain ASCII. */
static bool file_name_is_plain(const char *name)
{
    size_t count = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    return count > 0 && count < MANIFEST_NAME && name[count] == 0 && name[0] != '.';
}

static Status file_add(Manifest *manifest, const char *name, const FileSum *sum)
{
    if (!file_name_is_plain(name))
        return FAIL(ERR_CHECKPOINT, "'%.64s' is not a file name that a manifest may list", name);
    if (manifest_find(manifest, name)) return FAIL(ERR_CHECKPOINT, "the manifest lists '%s' twice", name);
    if (manifest->files == MANIFEST_FILES)
        return FAIL(ERR_CHECKPOINT, "the manifest lists more than %d files", MANIFEST_FILES);
    ManifestFile *file = &manifest->file[manifest->files++];
    *file = (ManifestFile){.sum = *sum, .first = manifest->tensors};
    memcpy(file->name, name, strlen(name) + 1);
    return OK;
}

Status manifest_add(Manifest *manifest, const char *name, const FileSum *sum, const StTensor *tensors, int count)
{
    TRY(file_add(manifest, name, sum));
    for (int i = 0; i < count; i++)
        TRY(tensor_add(manifest, crc32c(0, tensors[i].data, tensors[i].bytes), tensors[i].name));
    return OK;
}

const ManifestFile *manifest_find(const Manifest *manifest, const char *name)
{
    for (int i = 0; i < manifest->files; i++)
        if (strcmp(manifest->file[i].name, name) == 0) return &manifest->file[i];
    return NULL;
}

static void file_print(FILE *to, const Manifest *manifest, const ManifestFile *file)
{
    fprintf(to, "file %" PRIu64 " %016" PRIx64 "%016" PRIx64 " %s\n", file->sum.bytes, file->sum.high, file->sum.low,
            file->name);
    for (int i = 0; i < file->tensors; i++) {
        const ManifestTensor *tensor = &manifest->tensor[file->first + i];
        fprintf(to, "tensor %08" PRIx32 " %s\n", tensor->crc, tensor->name);
    }
}

Status manifest_format(const Manifest *manifest, char **text, size_t *count)
{
    FileSum sum;
    Draft draft;
    TRY(draft_begin(&draft, "the text of a manifest"));
    fprintf(draft.to, "towers-checkpoint %d\nstep %" PRId64 "\n", MANIFEST_VERSION, manifest->step);
    for (int i = 0; i < manifest->files; i++) file_print(draft.to, manifest, &manifest->file[i]);
    bool whole = fflush(draft.to) == 0;
    if (whole) memory_sum(draft.text, draft.bytes, &sum);
    if (whole) fprintf(draft.to, "hash %016" PRIx64 "%016" PRIx64 "\n", sum.high, sum.low);
    TRY(draft_end(&draft, whole ? OK : FAIL(ERR_MEMORY, "no memory for the text of a manifest")));
    *text = draft.text;
    *count = draft.bytes;
    return OK;
}

/* ---- writing a directory */

Status manifest_write_tensors(Manifest *manifest, const char *directory, const char *name, const StTensor *tensors,
                              int count, const StPair *metadata, int pairs)
{
    char path[PATH_BYTES];
    FileSum sum;
    TRY(path_join(path, directory, name));
    TRY(safetensors_write(path, tensors, count, metadata, pairs, &sum));
    return manifest_add(manifest, name, &sum, tensors, count);
}

static Status text_write(const char *directory, const char *name, const char *text, size_t count, FileSum *sum)
{
    Status st = OK;
    char path[PATH_BYTES];
    DurableFile *file = NULL;
    TRY(path_join(path, directory, name));
    TRY(durable_create(path, count, &file));
    TRY_OUT(durable_write(file, text, count));
    TRY_OUT(durable_finish(file, sum));
out:
    durable_destroy(file);
    return st;
}

Status manifest_write_text(Manifest *manifest, const char *directory, const char *name, const char *text)
{
    FileSum sum;
    TRY(text_write(directory, name, text, strlen(text), &sum));
    return manifest_add(manifest, name, &sum, NULL, 0);
}

Status manifest_finish(const Manifest *manifest, const char *directory)
{
    char *text;
    size_t count;
    TRY(manifest_format(manifest, &text, &count));
    Status st = text_write(directory, "MANIFEST", text, count, NULL);
    free(text);
    return st == OK ? directory_sync(directory) : st;
}

/* ---- parsing: `at` moves along the text; a reader that fails leaves it unchanged */

static bool take_text(const char **at, const char *word)
{
    size_t count = strlen(word);
    if (strncmp(*at, word, count) != 0) return false;
    *at += count;
    return true;
}

static bool take_decimal(const char **at, uint64_t *value)
{
    const char *p = *at;
    uint64_t made = 0;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(made, 10, &made) || __builtin_add_overflow(made, (uint64_t)(*p - '0'), &made))
            return false;
    if (p == *at || (**at == '0' && p - *at > 1)) return false; /* no digits, or leading zeros */
    *at = p;
    *value = made;
    return true;
}

static bool take_hexadecimal(const char **at, int digits, uint64_t *value)
{
    uint64_t made = 0;
    for (int i = 0; i < digits; i++) {
        char c = (*at)[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
        made = made << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    *at += digits;
    *value = made;
    return true;
}

static bool take_hash(const char **at, FileSum *sum)
{
    return take_hexadecimal(at, HASH_DIGITS / 2, &sum->high) && take_hexadecimal(at, HASH_DIGITS / 2, &sum->low);
}

/* Check version line and hash line; *end receives the start of the hash line. */
static Status frame_check(const Manifest *manifest, size_t count, const char *label, const char **at, char **end)
{
    uint64_t version;
    FileSum said, is;
    const char *last;
    if (!take_text(at, "towers-checkpoint ") || !take_decimal(at, &version) || !take_text(at, "\n"))
        return FAIL(ERR_CHECKPOINT, "'%s': the first line is not 'towers-checkpoint %d': not a manifest", label,
                    MANIFEST_VERSION);
    if (version != MANIFEST_VERSION)
        return FAIL(version > MANIFEST_VERSION ? ERR_NEWER : ERR_CHECKPOINT,
                    "'%s' has format version %" PRIu64 "; this program reads version %d: use the one that wrote it",
                    label, version, MANIFEST_VERSION);
    *end = manifest->text + (count < HASH_LINE ? 0 : count - HASH_LINE);
    last = *end;
    if (last < *at || last[-1] != '\n' || !take_text(&last, "hash ") || !take_hash(&last, &said) ||
        strcmp(last, "\n") != 0)
        return FAIL(ERR_CHECKPOINT, "'%s' (%zu bytes) does not end with its hash: truncated, or damaged at its end",
                    label, count);
    memory_sum(manifest->text, (size_t)(*end - manifest->text), &is);
    if (is.high != said.high || is.low != said.low)
        return FAIL(ERR_CHECKPOINT, "'%s' is damaged: its first %zu bytes do not have the hash of its last line", label,
                    (size_t)is.bytes);
    return OK;
}

/* `line`: one line without its newline. */
static Status line_parse(Manifest *manifest, const char *label, int number, const char *line)
{
    FileSum sum = {0};
    uint64_t crc;
    if (take_text(&line, "file ")) {
        if (take_decimal(&line, &sum.bytes) && take_text(&line, " ") && take_hash(&line, &sum) && take_text(&line, " "))
            return file_add(manifest, line, &sum);
    } else if (manifest->files && take_text(&line, "tensor ")) {
        if (take_hexadecimal(&line, 8, &crc) && take_text(&line, " ")) return tensor_add(manifest, (uint32_t)crc, line);
    }
    return FAIL(ERR_CHECKPOINT, "'%s': line %d is neither 'file' nor 'tensor': '%.64s'", label, number, line);
}

static Status body_parse(Manifest *manifest, const char *label, char *at)
{
    uint64_t step;
    const char *line = at;
    char *newline = strchr(at, '\n');
    if (newline) *newline = 0;
    if (!newline || !take_text(&line, "step ") || !take_decimal(&line, &step) || *line || step > INT64_MAX)
        return FAIL(ERR_CHECKPOINT, "'%s': line 2 is not 'step' and a number", label);
    manifest->step = (int64_t)step;
    at = newline + 1;
    for (int number = 3; *at; number++, at = newline + 1) {
        newline = strchr(at, '\n'); /* frame_check guarantees one */
        *newline = 0;
        TRY(line_parse(manifest, label, number, at));
    }
    return OK;
}

Status manifest_parse(const char *text, size_t count, const char *label, Manifest **made)
{
    Status st = OK;
    Manifest *manifest = NULL;
    char *end = NULL;
    if (count > MANIFEST_LIMIT || memchr(text, 0, count))
        return FAIL(ERR_CHECKPOINT, "'%s' (%zu bytes) is not a manifest", label, count);
    TRY(manifest_create(0, &manifest));
    manifest->text = malloc(count + 1);
    if (!manifest->text) TRY_OUT(FAIL(ERR_MEMORY, "no memory for %zu bytes of '%s'", count, label));
    memcpy(manifest->text, text, count);
    manifest->text[count] = 0;
    const char *at = manifest->text;
    TRY_OUT(frame_check(manifest, count, label, &at, &end));
    *end = 0;
    TRY_OUT(body_parse(manifest, label, manifest->text + (at - manifest->text)));
    *made = manifest;
    manifest = NULL;
out:
    manifest_destroy(manifest);
    return st;
}

/* ---- checking */

Status manifest_open(const char *directory, Manifest **made)
{
    char path[PATH_BYTES], *text;
    size_t count;
    TRY(path_join(path, directory, "MANIFEST"));
    TRY(file_read(path, MANIFEST_LIMIT, &text, &count));
    Status st = manifest_parse(text, count, path, made);
    free(text);
    return st;
}

/* The file's hash is wrong: name the damaged tensor if the header can still be read. */
static Status damage_describe(const Manifest *manifest, const ManifestFile *file, const char *path)
{
    SafeTensors *opened;
    if (file->tensors == 0)
        return FAIL(ERR_CHECKPOINT, "'%s' is damaged: its %" PRIu64 " bytes do not have the manifest's hash", path,
                    file->sum.bytes);
    TRY(safetensors_open(path, &opened)); /* its message names the offset */
    Status st = FAIL(ERR_CHECKPOINT, "'%s' is damaged in its header", path);
    const char *data = NULL;
    for (int i = 0; i < safetensors_count(opened); i++) {
        const StTensor *tensor = safetensors_at(opened, i);
        if (!data) data = tensor->data;
        for (int k = file->first; k < file->first + file->tensors; k++) {
            const ManifestTensor *said = &manifest->tensor[k];
            if (strcmp(said->name, tensor->name) != 0 || said->crc == crc32c(0, tensor->data, tensor->bytes)) continue;
            st = FAIL(ERR_CHECKPOINT,
                      "'%s' is damaged: tensor '%s' (%zu bytes from data offset %zu) does not have the manifest's CRC",
                      path, tensor->name, tensor->bytes, (size_t)((const char *)tensor->data - data));
            goto out;
        }
    }
out:
    safetensors_close(opened);
    return st;
}

Status manifest_verify(const Manifest *manifest, const char *directory)
{
    char path[PATH_BYTES];
    FileSum is;
    for (int i = 0; i < manifest->files; i++) {
        const ManifestFile *file = &manifest->file[i];
        TRY(path_join(path, directory, file->name));
        TRY(file_sum(path, &is));
        if (is.bytes != file->sum.bytes)
            return FAIL(ERR_CHECKPOINT, "'%s' has %" PRIu64 " bytes; the manifest says %" PRIu64 ": %s", path, is.bytes,
                        file->sum.bytes, is.bytes < file->sum.bytes ? "truncated" : "bytes were appended");
        if (is.high != file->sum.high || is.low != file->sum.low) return damage_describe(manifest, file, path);
    }
    return OK;
}
