/* Looks at the first bytes of what would be replaced; see result_file.h. */
#include "inception/commands/result_file.h"

#include "kernels/base/open.h"
#include "towers/files/files.h"

enum { HEAD = 64 };

static const struct {
    const char *what, *begins;
    size_t at; /* where `begins` stands */
} kinds[] = {
    [RESULT_MISTAKES] = {"a list of mistakes", "sample,file,label,predicted,", 0},
    [RESULT_SCORES] = {"a table of classes", "class,name,precision,", 0},
    [RESULT_EMBEDDINGS] = {"an array of NumPy", "\x93NUMPY", 0},
    [RESULT_PNG] = {"a PNG", "\x89PNG", 0},
    [RESULT_PAGE] = {"a page of HTML", "<!doctype html", 0},
    [RESULT_CARD] = {"a page of Markdown", "# ", 0},
    [RESULT_SAFETENSORS] = {"safetensors", "{", 8},
    [RESULT_ONNX] = {"ONNX", "\x08", 0},
};

/* Whether the file lies below the folder. */
static bool is_within(const char *path, const char *folder)
{
    char *file = realpath(path, NULL), *root = realpath(folder, NULL);
    size_t bytes = root ? strlen(root) : 0;
    bool within = file && root && !strncmp(file, root, bytes) && file[bytes] == '/';
    free(file);
    free(root);
    return within;
}

Status result_file_check(const char *option, const char *path, ResultKind kind, const char *data)
{
    char head[HEAD + 1] = "";
    const char *begins = kinds[kind].begins;
    int fd = regular_open(path, O_RDONLY, NULL);
    bool hidden = fd == -1 && errno == EACCES;
    if (fd < 0 && !hidden) return OK; /* there is none, or none that is replaced, as writing it will find */
    ssize_t got = hidden ? -1 : pread(fd, head, HEAD, 0);
    if (fd >= 0) close(fd);
    bool like = got == 0 || (got > (ssize_t)kinds[kind].at && !strncmp(head + kinds[kind].at, begins, strlen(begins)));
    if (!like)
        return FAIL(ERR_ARG,
                    "%s %s: this file exists and is not %s, which would replace it: name another one, or remove it",
                    option, path, kinds[kind].what);
    if (data && is_within(path, data))
        return FAIL(ERR_ARG, "%s %s: this file exists in '%s', of which no image is replaced: name another one", option,
                    path, data);
    return OK;
}
