/* Sorts files by size, then by hashes, and keeps those that are like a neighbor; see equal_files.h. */
#include "towers/data/listing/equal_files.h"

#include <xxhash.h>

#include "kernels/base/open.h"
#include "towers/data/listing/parallel.h"

enum { HEAD_BYTES = 1 << 16 };

typedef struct Candidate {
    uint64_t bytes;
    XXH128_hash_t hash; /* of as much as has been read */
    int64_t number;
} Candidate;

typedef struct Search {
    const EqualFiles *files;
    Candidate *at;
    int64_t count;
    uint64_t most; /* bytes of each file that are read in this pass */
} Search;

static int by_content(const void *a, const void *b)
{
    const Candidate *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    int order = memcmp(&x->hash, &y->hash, sizeof x->hash);
    if (order) return order;
    return x->number < y->number ? -1 : x->number > y->number;
}

static bool is_like(const Candidate *a, const Candidate *b)
{
    return a->bytes == b->bytes && memcmp(&a->hash, &b->hash, sizeof a->hash) == 0;
}

/* Sort, and keep the candidates that are like another one. */
static void likes_keep(Search *s)
{
    int64_t kept = 0;
    qsort(s->at, (size_t)s->count, sizeof *s->at, by_content);
    for (int64_t i = 0, end; i < s->count; i = end) {
        for (end = i + 1; end < s->count && is_like(&s->at[i], &s->at[end]);) end++;
        for (int64_t k = i; end > i + 1 && k < end; k++) s->at[kept++] = s->at[k];
    }
    s->count = kept;
}

/* False if it cannot be read, or has another size by now. */
static bool content_hash(const char *path, uint64_t bytes, uint64_t most, XXH3_state_t *state, XXH128_hash_t *hash)
{
    static _Thread_local uint8_t part[HEAD_BYTES];
    uint64_t wanted = bytes < most ? bytes : most, done = 0;
    struct stat info;
    int fd = regular_open(path, O_RDONLY, &info);
    bool fits = fd >= 0 && (uint64_t)info.st_size == bytes;
    XXH3_128bits_reset(state);
    while (fits && done < wanted) {
        size_t room = wanted - done < sizeof part ? (size_t)(wanted - done) : sizeof part;
        ssize_t got = pread(fd, part, room, (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        fits = got > 0;
        if (fits) XXH3_128bits_update(state, part, (size_t)got);
        if (fits) done += (uint64_t)got;
    }
    if (fd >= 0) close(fd);
    *hash = XXH3_128bits_digest(state);
    return fits;
}

static Status candidate_read(void *context, int thread, int64_t item)
{
    Search *s = context;
    Candidate *c = &s->at[item];
    char path[PATH_BYTES];
    (void)thread;
    TRY(s->files->path(s->files->context, c->number, path));
    XXH3_state_t *state = XXH3_createState();
    if (!state) return FAIL(ERR_MEMORY, "no memory to compare files");
    if (!content_hash(path, c->bytes, s->most, state, &c->hash)) {
        c->bytes = 0; /* no other candidate has this size and number */
        c->hash = (XXH128_hash_t){.low64 = (uint64_t)c->number};
    }
    XXH3_freeState(state);
    return OK;
}

static Status pass(Search *s, uint64_t most)
{
    s->most = most;
    if (s->count) TRY(parallel_run(&(Parallel){.count = s->count, .work = candidate_read, .context = s}));
    likes_keep(s);
    return OK;
}

Status equal_files_find(const EqualFiles *files, int64_t *first)
{
    Status st = OK;
    Search s = {.files = files, .at = calloc((size_t)files->count + 1, sizeof *s.at)};
    if (!s.at) return FAIL(ERR_MEMORY, "no memory to compare %" PRId64 " files", files->count);
    for (int64_t i = 0; i < files->count; i++) {
        first[i] = i;
        if (files->bytes[i]) s.at[s.count++] = (Candidate){.bytes = files->bytes[i], .number = i};
    }
    likes_keep(&s);
    TRY_OUT(pass(&s, HEAD_BYTES));
    TRY_OUT(pass(&s, UINT64_MAX));
    for (int64_t i = 1; i < s.count; i++)
        if (is_like(&s.at[i - 1], &s.at[i])) first[s.at[i].number] = first[s.at[i - 1].number];
out:
    free(s.at);
    return st;
}

/* ---- dividing */

/* Equal files of a class that has no other training image are for training, everywhere. `left` is [classes], zeros. */
static void classes_restore(const EqualFiles *files, const int32_t *classes, const int64_t *first, int64_t *left,
                            bool *evaluation)
{
    for (int64_t i = 0; i < files->count; i++) left[classes ? classes[i] : 0] += !evaluation[i];
    for (int64_t i = 0; i < files->count; i++)
        if (first[i] != i && left[classes ? classes[i] : 0] == 0) evaluation[first[i]] = false;
    for (int64_t i = 0; i < files->count; i++) evaluation[i] = evaluation[first[i]];
}

Status equal_files_join(const EqualFiles *files, const int32_t *classes, bool *evaluation)
{
    Status st = OK;
    int64_t count = files->count, most = 0;
    for (int64_t i = 0; classes && i < count; i++) most = classes[i] > most ? classes[i] : most;
    int64_t *first = calloc((size_t)count + 1, sizeof *first), *left = calloc((size_t)most + 1, sizeof *left);
    if (!first || !left) TRY_OUT(FAIL(ERR_MEMORY, "no memory to divide %" PRId64 " images", count));
    TRY_OUT(equal_files_find(files, first));
    for (int64_t i = 0; i < count; i++) evaluation[i] = evaluation[first[i]];
    classes_restore(files, classes, first, left, evaluation);
out:
    free(first);
    free(left);
    return st;
}
