/* Looks at the first bytes of what would be replaced; see result_file.h. */
#include "inception/commands/result_file.h"

#include <dirent.h>

#include "kernels/base/open.h"
#include "kernels/base/place.h"
#include "towers/files/files.h"

enum { HEAD = 8192 /* the heading of a card has the path of its data */ };

static const struct {
    const char *what, *begins;
    size_t at;          /* where `begins` stands */
    const char *second; /* NULL, or how the first line behind the heading begins */
} kinds[] = {
    [RESULT_MISTAKES] = {"a list of mistakes", "sample,file,label,predicted,", 0},
    [RESULT_SCORES] = {"a table of classes", "class,name,precision,", 0},
    [RESULT_EMBEDDINGS] = {"an array of NumPy", "\x93NUMPY", 0},
    [RESULT_PNG] = {"a PNG", "\x89PNG", 0},
    [RESULT_PAGE] = {"a page of HTML", "<!doctype html", 0},
    [RESULT_CARD] = {"the card of a run", "# ", 0, "\n\nRun "},
    [RESULT_SAFETENSORS] = {"safetensors", "{", 8},
    [RESULT_ONNX] = {"ONNX", "\x08", 0},
    [RESULT_GAUGES] = {"numbers of a run", "# HELP towers_", 0},
};

static bool has_folders(const char *path)
{
    char below[PATH_BYTES];
    struct stat info;
    bool found = false;
    struct dirent *entry;
    DIR *listing = place_list(path);
    while (listing && !found && (entry = place_next(listing)))
        found = *entry->d_name != '.' && path_join(below, path, entry->d_name) == OK && stat(below, &info) == 0 &&
                S_ISDIR(info.st_mode);
    if (listing) closedir(listing);
    return found;
}

/* Whether images of a set may lie in its folder itself. Beside the folders of classes none are read, but a list of labels names them wherever
 * they are. */
static bool root_has_images(const char *root)
{
    char labels[PATH_BYTES];
    return !has_folders(root) || path_join(labels, root, "labels.csv") != OK || access(labels, F_OK) == 0;
}

/* Whether the file lies where the images of this folder do. */
static bool is_among(const char *path, const char *folder)
{
    char *file = realpath(path, NULL), *root = realpath(folder, NULL);
    size_t bytes = root ? strlen(root) : 0;
    bool within = file && root && !strncmp(file, root, bytes) && file[bytes] == '/' &&
                  (strchr(file + bytes + 1, '/') || root_has_images(root));
    free(file);
    free(root);
    return within;
}

static bool is_result(ResultKind kind, const char *head, ssize_t bytes)
{
    const char *begins = kinds[kind].begins, *second = kinds[kind].second, *line = strchr(head, '\n');
    if (bytes <= (ssize_t)kinds[kind].at || strncmp(head + kinds[kind].at, begins, strlen(begins)) != 0) return false;
    return !second || (line && !strncmp(line, second, strlen(second)));
}

Status result_file_check(const char *option, const char *path, ResultKind kind, const char *data)
{
    char head[HEAD + 1] = "";
    int fd = regular_open(path, O_RDONLY, NULL);
    bool hidden = fd == -1 && errno == EACCES;
    if (fd < 0 && !hidden) return OK; /* there is none, or none that is replaced, as writing it will find */
    ssize_t got = hidden ? -1 : pread(fd, head, HEAD, 0);
    if (fd >= 0) close(fd);
    if (got != 0 && !is_result(kind, head, got))
        return FAIL(ERR_ARG,
                    "%s %s: this file exists and is not %s, which would replace it: name another one, or remove it",
                    option, path, kinds[kind].what);
    if (data && is_among(path, data))
        return FAIL(ERR_ARG, "%s %s: this file exists in '%s', of which no image is replaced: name another one", option,
                    path, data);
    return OK;
}
