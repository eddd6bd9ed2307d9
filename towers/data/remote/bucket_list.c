/* Lists of buckets; see bucket_list.h. */
#include "towers/data/remote/bucket_list.h"

#include <sys/mman.h>

#include "towers/remote/address.h"

enum {
    PAGE_MOST = 1 << 24, /* bytes: a thousand keys of a kibibyte each, with what else is said of them */
    NAMES_MOST = 1000000,
    EMPTY_PAGES_MOST = 16 /* one after another */
};

/* ---- one page
 *
 * XML of which four elements are wanted, whose text has no other elements. A "<" in a text is always an entity, so that an element is
 * found by its name alone. */

/* The text of the next element of this name between `at` and `end`; NULL: there is none. */
static const char *element_find(const char *at, const char *end, const char *name, size_t *bytes)
{
    char open[32], close[32];
    snprintf(open, sizeof open, "<%s>", name);
    snprintf(close, sizeof close, "</%s>", name);
    const char *begin = strstr(at, open), *behind = begin ? strstr(begin, close) : NULL;
    if (!behind || behind > end) return NULL;
    begin += strlen(open);
    *bytes = (size_t)(behind - begin);
    return begin;
}

static int code_print(unsigned long code, char *to)
{
    if (code < 0x80) return to[0] = (char)code, 1;
    if (code < 0x800) return to[0] = (char)(0xc0 | code >> 6), to[1] = (char)(0x80 | (code & 63)), 2;
    to[0] = (char)(0xe0 | code >> 12);
    to[1] = (char)(0x80 | (code >> 6 & 63));
    to[2] = (char)(0x80 | (code & 63));
    if (code < 0x10000) return 3;
    to[0] = (char)(0xf0 | code >> 18);
    to[1] = (char)(0x80 | (code >> 12 & 63));
    to[2] = (char)(0x80 | (code >> 6 & 63));
    to[3] = (char)(0x80 | (code & 63));
    return 4;
}

/* "&amp;", "&#233;", "&#xE9;": returns the bytes that it takes, 0 if it is none. */
static size_t entity_take(const char *at, const char *end, char *to, size_t *count)
{
    static const struct {
        const char *name;
        char is;
    } named[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        if (strncmp(at, named[i].name, strlen(named[i].name)) != 0) continue;
        to[(*count)++] = named[i].is;
        return strlen(named[i].name);
    }
    if (end - at < 4 || at[1] != '#') return 0;
    bool hexadecimal = at[2] == 'x';
    const char *digits = at + 2 + hexadecimal;
    size_t length = strspn(digits, hexadecimal ? "0123456789abcdefABCDEF" : "0123456789");
    if (length == 0 || length > 7 || digits[length] != ';') return 0;
    unsigned long code = strtoul(digits, NULL, hexadecimal ? 16 : 10);
    if (code == 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return 0;
    *count += (size_t)code_print(code, to + *count);
    return (size_t)(digits - at) + length + 1;
}

/* The text of an element, never longer than with its entities. False if it does not fit, or has an entity that is none. */
static bool text_plain(const char *at, size_t bytes, char *to, size_t room)
{
    size_t count = 0;
    if (bytes >= room) return false;
    for (const char *end = at + bytes; at < end;) {
        size_t taken = *at == '&' ? entity_take(at, end, to, &count) : 1;
        if (!taken) return false;
        if (*at != '&') to[count++] = *at;
        at += taken;
    }
    to[count] = 0;
    return true;
}

static Status name_take(const char *at, size_t bytes, const char *prefix, Names *names)
{
    char name[PATH_BYTES];
    size_t before = strlen(prefix);
    if (!text_plain(at, bytes, name, sizeof name) || strncmp(name, prefix, before) != 0)
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
    if (token && bytes && text_plain(token, bytes, next, BUCKET_TOKEN_BYTES)) return OK;
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

static Status page_bring(const CacheConfig *config, Transport *transport, const char *folder, const char *from,
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
                  .watch = {.again = config->again, .context = config->context}};
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

Status bucket_list(const CacheConfig *config, const char *folder, BucketList *list)
{
    Address a;
    Transport *transport = NULL;
    Status st = OK;
    char prefix[PATH_BYTES], from[BUCKET_TOKEN_BYTES] = "", next[BUCKET_TOKEN_BYTES], *text = NULL;
    *list = (BucketList){0};
    TRY(address_parse(folder, &a));
    if (strlen(a.path) >= sizeof prefix) return FAIL(ERR_ARG, "'%s': the address is too long", folder);
    path_decode(a.path, strlen(a.path), prefix);
    TRY(transport_create(&config->patience, &transport));
    int empty = 0;
    do {
        int objects = list->objects.count, folders = list->folders.count;
        TRY_OUT(page_bring(config, transport, folder, from, &text));
        TRY_OUT(bucket_page_parse(text, prefix, list, next));
        TRY_OUT(page_check(folder, list, objects, folders, &empty));
        memcpy(from, next, sizeof from);
        free(text);
        text = NULL;
    } while (*from);
out:
    free(text);
    transport_destroy(transport);
    if (st != OK) bucket_list_free(list);
    return st;
}
