/* Recognizes other formats, and shards one folder too high; see foreign.h. */
#include "towers/data/foreign.h"

#include <dirent.h>
#include <strings.h>

#include "towers/data/listing/endings.h"
#include "towers/data/listing/leftovers.h"
#include "towers/data/shards/shard_set.h"

#define TO_FILES                                                                                                       \
    "write its images to files, CLASS/NAME.jpg; docs/data.md (Other formats) has the lines of Python that do it"
#define TO_TARS "scripts/parquet_tars.py makes tars of such tables, with the same images (docs/data.md, Other formats)"
#define TO_UNPACK "unpack it, and give the folder that it holds"

static const struct {
    const char *ending, *what, *way;
} formats[] = {
    {".parquet", "a Parquet table", TO_TARS}, {".arrow", "an Arrow table", TO_FILES},
    {".h5", "an HDF5 file", TO_FILES},        {".hdf5", "an HDF5 file", TO_FILES},
    {".mdb", "an LMDB database", TO_FILES},   {".lmdb", "an LMDB database", TO_FILES},
    {".rec", "RecordIO of MXNet", TO_FILES},  {".npz", "arrays of NumPy", TO_FILES},
    {".npy", "an array of NumPy", TO_FILES},  {".mat", "arrays of MATLAB", TO_FILES},
    {".beton", "a set of FFCV", TO_FILES},    {".zip", "a zip archive", TO_UNPACK},
    {".7z", "a 7z archive", TO_UNPACK},       {".rar", "a rar archive", TO_UNPACK},
};

static int format_of(const char *name)
{
    const char *dot = strrchr(name, '.');
    for (int i = 0; dot && i < (int)(sizeof formats / sizeof *formats); i++)
        if (!strcasecmp(dot, formats[i].ending)) return i;
    return -1;
}

enum { LEVELS = 3 /* DIR/train/CLASS */ };

typedef struct ForeignLook {
    bool image;
    int format;              /* of `file`; -1: none was found */
    char file[PATH_BYTES];   /* the first of another format */
    char shards[PATH_BYTES]; /* the first folder of shards, "" if there is none */
} ForeignLook;

static void folder_look(const char *path, int level, ForeignLook *look);

static void entry_look(const char *path, bool folder, int level, ForeignLook *look)
{
    const char *base = strrchr(path, '/') + 1;
    if (folder && shards_are_in(path)) {
        if (!*look->shards) snprintf(look->shards, sizeof look->shards, "%s", path);
    } else if (folder && level < LEVELS) {
        folder_look(path, level + 1, look);
    } else if (!folder && ending_is_image(base)) {
        look->image = true;
    } else if (!folder && look->format < 0 && (look->format = format_of(base)) >= 0) {
        snprintf(look->file, sizeof look->file, "%s", path);
    }
}

static void folder_look(const char *path, int level, ForeignLook *look)
{
    Names names = {0};
    char below[PATH_BYTES];
    struct stat info;
    const struct dirent *entry;
    DIR *directory = opendir(path);
    Status st = OK;
    while (directory && st == OK && !look->image && (entry = readdir(directory)) != NULL) {
        if (leftover_of(entry->d_name, true)) continue;
        if (ending_is_image(entry->d_name) && entry->d_type != DT_DIR) look->image = true;
        st = names_add(&names, entry->d_name);
    }
    if (directory) closedir(directory);
    names_sort(&names);
    for (int i = 0; i < names.count && !look->image; i++)
        if (path_join(below, path, names.name[i]) == OK && stat(below, &info) == 0)
            entry_look(below, S_ISDIR(info.st_mode), level, look);
    names_free(&names);
}

static Status format_refuse(const char *path, int format)
{
    return FAIL(ERR_FORMAT, "'%s' is %s, which is not read: %s", path, formats[format].what, formats[format].way);
}

Status foreign_name_refuse(const char *name)
{
    int format = format_of(name);
    return format < 0 ? OK : format_refuse(name, format);
}

Status foreign_refuse(const char *path)
{
    struct stat info;
    ForeignLook look = {.format = -1};
    if (stat(path, &info) != 0) return OK;
    if (S_ISDIR(info.st_mode)) {
        folder_look(path, 0, &look);
    } else if ((look.format = format_of(path)) >= 0) {
        snprintf(look.file, sizeof look.file, "%s", path);
    }
    if (look.image) return OK;
    if (*look.shards)
        return FAIL(ERR_FORMAT, "'%s' is one folder too high: its shards lie in '%s'; use --data-path '%s'", path,
                    look.shards, look.shards);
    return look.format < 0 ? OK : format_refuse(look.file, look.format);
}
