/* Which names are those of shards, and whether numbered ones are complete; see shard_names.h. */
#include "towers/data/shards/shard_names.h"

#include <ctype.h>
#include <strings.h>

enum { DIGITS_USUAL = 5, DIGITS_MOST = 9 };

static bool ends_in(const char *name, size_t bytes, const char *ending)
{
    size_t count = strlen(ending);
    return bytes > count && !strncasecmp(name + bytes - count, ending, count);
}

/* ---- K of N */

typedef struct ShardNumber {
    const char *path;      /* borrowed */
    size_t stem, end;      /* of the path: where "K-of-N" begins, and ends */
    int digits, of_digits; /* of K and of N */
    int64_t k, n;
} ShardNumber;

/* The last "K-of-N" (or "K_of_N") of a name. */
static bool number_parse(const char *path, ShardNumber *number)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    for (const char *at = base + strlen(base); at > base; at--) {
        const char *of = at, *first = at, *end = of + 4;
        if (strncasecmp(of, "-of-", 4) != 0 && strncasecmp(of, "_of_", 4) != 0) continue;
        while (first > base && isdigit((unsigned char)first[-1])) first--;
        while (isdigit((unsigned char)*end)) end++;
        int digits = (int)(of - first), of_digits = (int)(end - of - 4);
        if (digits < 1 || of_digits < 1 || digits > DIGITS_MOST || of_digits > DIGITS_MOST) continue;
        *number = (ShardNumber){path,      (size_t)(first - path),   (size_t)(end - path),     digits,
                                of_digits, strtoll(first, NULL, 10), strtoll(of + 4, NULL, 10)};
        return true;
    }
    return false;
}

static int by_number(const void *a, const void *b)
{
    const ShardNumber *x = a, *y = b;
    size_t less = x->stem < y->stem ? x->stem : y->stem;
    int order = memcmp(x->path, y->path, less);
    if (order) return order;
    if (x->stem != y->stem) return x->stem < y->stem ? -1 : 1;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return (x->k > y->k) - (x->k < y->k);
}

static bool is_one_set(const ShardNumber *a, const ShardNumber *b)
{
    return a->stem == b->stem && !memcmp(a->path, b->path, a->stem);
}

/* The numbers of one name, in their order. */
static Status set_check(const ShardNumber *of, int count, int64_t *absent, char first[PATH_BYTES])
{
    int64_t n = of->n, base = of[count - 1].k == n && of->k > 0, next = base;
    for (int i = 0; i < count; i++) {
        const ShardNumber *other = &of[i > 0 ? i - 1 : 0];
        if (of[i].n != n)
            return FAIL(ERR_FORMAT,
                        "'%s' is one of %" PRId64 ", but '%s' is one of %" PRId64
                        ": the shards of two writings of a set lie together; remove those of one",
                        of->path, n, of[i].path, of[i].n);
        if (i > 0 && of[i].k == other->k)
            return FAIL(ERR_FORMAT, "'%s' and '%s' have the same number: remove one of them", other->path, of[i].path);
        if (of[i].k - base >= n)
            return FAIL(ERR_FORMAT, "'%s': expected a number from %" PRId64 " to %" PRId64 " in its name", of[i].path,
                        base, n - 1 + base);
    }
    for (int i = 0; i <= count; i++) {
        int64_t until = i < count ? of[i].k : n + base;
        if (until > next && !*absent)
            snprintf(first, PATH_BYTES, "%.*s%0*" PRId64 "%.*s%s", (int)of->stem, of->path, of->digits, next,
                     4 + of->of_digits, of->path + of->end - of->of_digits - 4, of->path + of->end);
        *absent += until - next;
        next = until + 1;
    }
    return OK;
}

Status shard_numbers_check(const Names *paths, int64_t *absent, char first[PATH_BYTES])
{
    Status st = OK;
    int count = 0;
    ShardNumber *numbers = calloc((size_t)paths->count + 1, sizeof *numbers);
    *absent = 0;
    if (!numbers) return FAIL(ERR_MEMORY, "no memory for the numbers of %d shards", paths->count);
    for (int i = 0; i < paths->count; i++) count += number_parse(paths->name[i], &numbers[count]);
    if (count) qsort(numbers, (size_t)count, sizeof *numbers, by_number);
    for (int from = 0, end; from < count && st == OK; from = end) {
        for (end = from + 1; end < count && is_one_set(&numbers[from], &numbers[end]);) end++;
        st = set_check(&numbers[from], end - from, absent, first);
    }
    free(numbers);
    return st;
}

/* ---- kinds */

static ShardKind kind_of(const char *base, size_t bytes)
{
    static const char *const records[] = {".tfrecord", ".tfrecords", ".tfrec", ".record"};
    char name[PATH_BYTES];
    ShardNumber number;
    snprintf(name, sizeof name, "%.*s", (int)bytes, base);
    bool numbered = number_parse(name, &number) && !name[number.end];
    size_t stem = numbered ? number.stem : bytes;
    if (numbered && stem > 0 && strchr("-_", name[stem - 1])) stem--;
    if (ends_in(name, stem, ".tar")) return SHARD_TAR;
    for (size_t i = 0; i < sizeof records / sizeof *records; i++)
        if (ends_in(name, stem, records[i])) return SHARD_TFRECORD;
    bool usual = numbered && number.digits >= DIGITS_USUAL && number.of_digits >= DIGITS_USUAL;
    return usual ? SHARD_TFRECORD : SHARD_NONE;
}

size_t shard_packed_stem(const char *base)
{
    static const char *const packed[] = {".gz", ".bz2", ".xz", ".zst", ".lz4"};
    size_t bytes = strlen(base);
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++)
        if (ends_in(base, bytes, packed[i])) return bytes - strlen(packed[i]);
    return 0;
}

ShardKind shard_named(const char *base)
{
    static const char *const tars[] = {".tgz", ".tbz2", ".txz", ".tzst"};
    size_t bytes = strlen(base), stem = shard_packed_stem(base);
    for (size_t i = 0; i < sizeof tars / sizeof *tars; i++)
        if (ends_in(base, bytes, tars[i])) return SHARD_PACKED;
    if (!stem) return kind_of(base, bytes);
    ShardKind kind = kind_of(base, stem);
    return kind == SHARD_TAR || kind == SHARD_TFRECORD ? SHARD_PACKED : SHARD_NONE;
}
