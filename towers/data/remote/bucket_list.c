/* Lists of buckets; see bucket_list.h. */
#include "towers/data/remote/bucket_list.h"

#include <sys/mman.h>

#include "towers/files/files.h"
#include "towers/remote/address.h"
#include "towers/remote/elements.h"

enum {
    PAGE_MOST = 1 << 24, /* bytes: a thousand keys of a kibibyte each, with what else is said of them */
    NAMES_MOST = 1000000,
    EMPTY_PAGES_MOST = 16 /* one after another */
};

/* ---- one page */

static Status name_take(const char *at, size_t bytes, const char *prefix, Names *names)
{
    char name[PATH_BYTES];
    size_t before = strlen(prefix);
    if (!element_text(at, bytes, name, sizeof name) || strncmp(name, prefix, before) != 0)
        return FAIL(ERR_FORMAT, "a list of objects has a key that does not begin with '%s', or is none: '%.*s'", prefix,
                    bytes < 200 ? (int)bytes : 200, at);
    return name[before] ? names_add(names, name + before) : OK; /* the folder itself, which some tools make */
}

/* The children of all elements of this name: of each <Contents> its <Key>, of each <CommonPrefixes> its <Prefix>. */
static Status elements_take(const char *text, const char *end, const char *parent, const char *child,
                            const char *prefix, Names *names)
{
    size_t bytes, length;
    for (const char *at = text; (at = element_find(at, end, parent, &bytes)) != NULL; at += bytes) {
        const char *value = element_find(at, at + bytes, child, &length);
        if (!value) return FAIL(ERR_FORMAT, "a list of objects has <%s> without <%s>", parent, child);
        TRY(name_take(value, length, prefix, names));
    }
    return OK;
}

Status bucket_page_parse(const char *text, const char *prefix, BucketList *list, char next[BUCKET_TOKEN_BYTES])
{
    static const char last[] = "</ListBucketResult>";
    size_t bytes;
    const char *end = strstr(text, last);
    *next = 0;
    if (!strstr(text, "<ListBucketResult") || !end)
        return FAIL(ERR_FORMAT, "the answer is no list of objects of S3: '%.60s'", text);
    int folders = list->folders.count;
    TRY(elements_take(text, end, "Contents", "Key", prefix, &list->objects));
    TRY(elements_take(text, end, "CommonPrefixes", "Prefix", prefix, &list->folders));
    for (int i = folders; i < list->folders.count; i++) {
        char *name = list->folders.name[i];
        size_t length = strlen(name);
        if (name[length - 1] == '/') name[length - 1] = 0;
    }
    const char *more = element_find(text, end, "IsTruncated", &bytes);
    if (!more || bytes != 4 || memcmp(more, "true", 4) != 0) return OK;
    const char *token = element_find(text, end, "NextContinuationToken", &bytes);
    if (token && bytes && element_text(token, bytes, next, BUCKET_TOKEN_BYTES)) return OK;
    return FAIL(ERR_FORMAT, "a list of objects goes on, but does not say from where (NextContinuationToken)");
}

/* ---- all pages */

void bucket_list_free(BucketList *list)
{
    names_free(&list->objects);
    names_free(&list->folders);
}

static Status page_fail(const Transfer *t)
{
    char why[STATUS_MESSAGE_BYTES];
    if (t->answer != 403) return status_restore(t->status, &t->why);
    snprintf(why, sizeof why, "%.1500s", t->why.message);
    return FAIL(t->status, "%s. Whoever may read objects may not always list them: then name the shards in braces",
                why);
}

/* `text` is freed by the caller. */
static Status page_read(int fd, size_t bytes, char **text)
{
    *text = calloc(1, bytes + 1);
    if (!*text) return FAIL(ERR_MEMORY, "no memory for a list of objects");
    ssize_t got = pread(fd, *text, bytes, 0);
    return got == (ssize_t)bytes ? OK : FAIL(ERR_IO, "cannot read a list of objects again: %s", strerror(errno));
}

static Status page_bring(Transport *transport, const TransferWatch *watch, const char *folder, const char *from,
                         char **text)
{
    int fd = memfd_create("towers-bucket", MFD_CLOEXEC);
    if (fd < 0) return FAIL(ERR_MEMORY, "no memory for a list of objects: %s", strerror(errno));
    Transfer t = {.address = folder,
                  .path = folder,
                  .list_from = from,
                  .fd = fd,
                  .bytes = -1,
                  .limit = PAGE_MOST,
                  .watch = {.again = watch->again, .context = watch->context}};
    Status st = transport_run(transport, &t);
    if (st != OK && t.done) st = page_fail(&t);
    if (st == OK) st = page_read(fd, (size_t)t.have, text);
    close(fd);
    return st;
}

/* Stores give names in the order of their bytes. What goes back, or on and on, would never end. */
static Status page_check(const char *folder, const BucketList *list, int objects, int folders, int *empty)
{
    const Names *of = &list->objects;
    bool back = objects && of->count > objects && strcmp(of->name[objects], of->name[objects - 1]) <= 0;
    *empty = of->count + list->folders.count > objects + folders ? 0 : *empty + 1;
    if (back || *empty > EMPTY_PAGES_MOST)
        return FAIL(ERR_FORMAT, "%s: the list of its objects never ends; name the shards in braces", folder);
    if (of->count + list->folders.count <= NAMES_MOST) return OK;
    return FAIL(ERR_FORMAT, "%s has more than %d objects and folders; name the shards in braces", folder, NAMES_MOST);
}

Status bucket_list(Transport *transport, const TransferWatch *watch, const char *folder, BucketList *list)
{
    Address a;
    Status st = OK;
    char prefix[PATH_BYTES], from[BUCKET_TOKEN_BYTES] = "", next[BUCKET_TOKEN_BYTES], *text = NULL;
    *list = (BucketList){0};
    TRY(address_parse(folder, &a));
    if (strlen(a.path) >= sizeof prefix) return FAIL(ERR_ARG, "'%s': the address is too long", folder);
    path_decode(a.path, strlen(a.path), prefix);
    int empty = 0;
    do {
        int objects = list->objects.count, folders = list->folders.count;
        TRY_OUT(page_bring(transport, watch, folder, from, &text));
        TRY_OUT(bucket_page_parse(text, prefix, list, next));
        TRY_OUT(page_check(folder, list, objects, folders, &empty));
        memcpy(from, next, sizeof from);
        free(text);
        text = NULL;
    } while (*from);
out:
    free(text);
    if (st != OK) bucket_list_free(list);
    return st;
}
