/* Expansion of lists in braces, as in bash and the Python package braceexpand; see shard_set.h. */
#include "towers/data/shards/shard_set.h"

#include "towers/files/files.h"

enum { PATHS_MAX = 1 << 20, WIDTH_MAX = 18, NESTED_MAX = 32 };

static Status text_expand(const char *before, const char *text, int depth, Names *paths);

/* The end of the brace that opens at `text`, or NULL. */
static const char *brace_end(const char *text)
{
    int open = 0;
    for (const char *at = text; *at; at++) {
        open += (*at == '{') - (*at == '}');
        if (open == 0) return at;
    }
    return NULL;
}

/* One choice of a brace, and what follows it. */
static Status choice_expand(const char *before, const char *choice, size_t count, const char *after, int depth,
                            Names *paths)
{
    char text[PATH_BYTES];
    if (snprintf(text, sizeof text, "%.*s%s", (int)count, choice, after) >= PATH_BYTES)
        return FAIL(ERR_ARG, "'%s%s': the path is too long", before, after);
    return text_expand(before, text, depth + 1, paths);
}

/* "000..099": numbers, all as wide as the wider end if one of the two begins with a 0 that it does not need. False if it is
 * no range. */
static bool range_parse(const char *inside, size_t count, int64_t *first, int64_t *last, int *width)
{
    char text[2 * WIDTH_MAX + 4], *end;
    const char *dots = strstr(inside, "..");
    if (count >= sizeof text || !dots || (size_t)(dots - inside) > WIDTH_MAX || dots >= inside + count) return false;
    memcpy(text, inside, count);
    text[count] = 0;
    if (text[strspn(text, "0123456789.")]) return false;
    *first = strtoll(text, &end, 10);
    if (end == text || strncmp(end, "..", 2) != 0) return false;
    const char *second = end + 2;
    *last = strtoll(second, &end, 10);
    int first_width = (int)(dots - inside), last_width = (int)strlen(second);
    bool padded = (text[0] == '0' && first_width > 1) || (*second == '0' && last_width > 1);
    *width = !padded ? 1 : first_width > last_width ? first_width : last_width;
    return end != second && *end == 0 && last_width <= WIDTH_MAX;
}

static Status text_expand(const char *before, const char *text, int depth, Names *paths)
{
    char head[PATH_BYTES], number[WIDTH_MAX + 8];
    int64_t first, last;
    int width;
    const char *open = strchr(text, '{'), *close = open ? brace_end(open) : NULL;
    size_t plain = open ? (size_t)(open - text) : strlen(text);
    if (open && !close) return FAIL(ERR_ARG, "'%s%s': a brace is not closed", before, text);
    if (depth > NESTED_MAX) return FAIL(ERR_ARG, "'%s%s': more than %d braces", before, text, NESTED_MAX);
    if (snprintf(head, sizeof head, "%s%.*s", before, (int)plain, text) >= PATH_BYTES)
        return FAIL(ERR_ARG, "'%s%s': the path is too long", before, text);
    if (!open) {
        if (paths->count == PATHS_MAX) return FAIL(ERR_ARG, "'%s': more than %d paths in braces", head, PATHS_MAX);
        return names_add(paths, head);
    }
    const char *inside = open + 1;
    if (range_parse(inside, (size_t)(close - inside), &first, &last, &width)) {
        if (last < first || last - first >= PATHS_MAX)
            return FAIL(ERR_ARG, "'%s': the range {%" PRId64 "..%" PRId64 "} must ascend and have at most %d numbers",
                        text, first, last, PATHS_MAX);
        for (int64_t i = first; i <= last; i++) {
            int n = snprintf(number, sizeof number, "%0*" PRId64, width, i);
            TRY(choice_expand(head, number, (size_t)n, close + 1, depth, paths));
        }
        return OK;
    }
    int nested = 0;
    for (const char *at = inside;; at++) {
        nested += (*at == '{') - (*at == '}' && at < close);
        if (at < close && (*at != ',' || nested > 0)) continue;
        TRY(choice_expand(head, inside, (size_t)(at - inside), close + 1, depth, paths));
        inside = at + 1;
        if (at == close) return OK;
    }
}

Status braces_expand(const char *pattern, Names *paths)
{
    char part[PATH_BYTES];
    for (const char *at = pattern;;) {
        const char *end = strstr(at, "::");
        size_t count = end ? (size_t)(end - at) : strlen(at);
        if (count >= sizeof part) return FAIL(ERR_ARG, "'%s': the path is too long", at);
        memcpy(part, at, count);
        part[count] = 0;
        TRY(text_expand("", part, 0, paths));
        if (!end) return OK;
        at = end + 2;
    }
}
