/* The only file of weights in a zip archive, by libarchive; see weight_archive.h. */
#include "towers/store/weight_archive.h"

#include <archive.h>
#include <archive_entry.h>

#include "towers/files/files.h"
#include "towers/store/torch_file.h"

typedef struct ArchiveScan {
    const void *bytes; /* borrowed */
    size_t count;
    const char *name;
    bool torch;       /* torch.save's own archive */
    int files;        /* of weights */
    char first[256];  /* the name of the first of them */
    char second[256]; /* and of the second */
} ArchiveScan;

/* "._NAME" is what macOS knows about NAME (AppleDouble). */
static bool holds_weights(const char *name)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    if (!strncmp(base, "._", 2)) return false;
    return ends_with(name, ".pth") || ends_with(name, ".pt") || ends_with(name, ".bin") ||
           ends_with(name, ".safetensors");
}

static Status scan_refuse(const ArchiveScan *scan, struct archive *archive)
{
    const char *why = archive_error_string(archive);
    why = why ? why : "it ends too early";
    return FAIL(ERR_CHECKPOINT, "'%s' is a damaged zip archive: %.*s; download it again", scan->name,
                (int)strcspn(why, "\n"), why); /* libarchive ends some with a new line */
}

typedef Status (*Visit)(ArchiveScan *scan, struct archive *archive, struct archive_entry *entry, void *with);

static Status entries_visit(ArchiveScan *scan, Visit visit, void *with)
{
    Status st = OK;
    int code;
    struct archive_entry *entry;
    struct archive *archive = archive_read_new();
    if (!archive) return FAIL(ERR_MEMORY, "no memory for the reader of '%s'", scan->name);
    archive_read_support_format_zip_seekable(archive);
    if (archive_read_open_memory(archive, scan->bytes, scan->count) != ARCHIVE_OK) TRY_OUT(scan_refuse(scan, archive));
    while ((code = archive_read_next_header(archive, &entry)) == ARCHIVE_OK || code == ARCHIVE_WARN)
        TRY_OUT(visit(scan, archive, entry, with));
    if (code != ARCHIVE_EOF) TRY_OUT(scan_refuse(scan, archive));
out:
    archive_read_free(archive);
    return st;
}

static Status entry_count(ArchiveScan *scan, struct archive *archive, struct archive_entry *entry, void *with)
{
    (void)archive, (void)with;
    const char *name = archive_entry_pathname(entry);
    if (!name) return OK;
    scan->torch |= ends_with(name, "/data.pkl");
    if (!holds_weights(name)) return OK;
    if (scan->files < 2) snprintf(scan->files ? scan->second : scan->first, sizeof scan->first, "%s", name);
    scan->files++;
    return OK;
}

static Status entry_take(ArchiveScan *scan, struct archive *archive, struct archive_entry *entry, void *with)
{
    WeightEntry *found = with;
    const char *name = archive_entry_pathname(entry);
    size_t most = torch_unpacked_most(scan->count), got = 0;
    if (!name || !holds_weights(name)) return OK;
    if (archive_entry_is_data_encrypted(entry))
        return FAIL(ERR_CHECKPOINT, "'%s': '%s' is encrypted; unpack it, and name the file that comes out", scan->name,
                    name);
    int64_t size = archive_entry_size(entry);
    if (size < 0 || (uint64_t)size > most)
        return FAIL(ERR_CHECKPOINT,
                    "'%s': '%s' would have %" PRId64 " bytes; of an archive of %zu bytes at most %zu are unpacked",
                    scan->name, name, size, scan->count, most);
    found->bytes = malloc((size_t)size + 1);
    if (!found->bytes)
        return FAIL(ERR_MEMORY, "no memory for '%s' of '%s' (%" PRId64 " bytes)", name, scan->name, size);
    while (got < (size_t)size + 1) { /* to the end, where libarchive compares the checksum */
        la_ssize_t now = archive_read_data(archive, (char *)found->bytes + got, (size_t)size + 1 - got);
        if (now < 0) return scan_refuse(scan, archive);
        if (now == 0) break;
        got += (size_t)now;
    }
    if (got > (size_t)size)
        return FAIL(ERR_CHECKPOINT, "'%s' is a damaged zip archive: '%s' is longer than it says; download it again",
                    scan->name, name);
    found->count = got;
    return got == (size_t)size ? OK : scan_refuse(scan, archive);
}

Status weight_archive_take(const void *bytes, size_t count, const char *name, WeightEntry *found)
{
    ArchiveScan scan = {.bytes = bytes, .count = count, .name = name};
    WeightEntry made = {0};
    *found = made;
    TRY(entries_visit(&scan, entry_count, NULL));
    if (scan.torch || !scan.files) return OK;
    if (scan.files > 1)
        return FAIL(ERR_CHECKPOINT,
                    "'%s' holds %d files of weights: '%s', '%s'%s; unpack it and name the one that is meant", name,
                    scan.files, scan.first, scan.second, scan.files > 2 ? ", ..." : "");
    Status st = entries_visit(&scan, entry_take, &made);
    if (st == OK)
        *found = made;
    else
        free(made.bytes);
    return st;
}
