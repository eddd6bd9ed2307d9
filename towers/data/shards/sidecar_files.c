/* Lists the shards of a set by threads, and writes a file for each folder; see sidecar_files.h. */
#include "towers/data/shards/sidecar_files.h"

#include "towers/data/listing/parallel.h"
#include "towers/data/shards/shard_set.h"
#include "towers/data/shards/sidecar.h"
#include "towers/files/files.h"

typedef struct Shards {
    ShardKind kind;
    Names paths;   /* sorted, so that those of a folder follow each other */
    Draft *record; /* owned: [paths.count] */
    int64_t *samples;
} Shards;

static Status record_make(void *context, int thread, int64_t item)
{
    Shards *s = context;
    Draft *draft = &s->record[item];
    ShardList list = {.path = s->paths.name[item]};
    (void)thread;
    TRY(draft_begin(draft, "the index of a shard"));
    Status st = shard_list(s->kind, &list);
    if (st == OK) st = sidecar_print(&list, s->kind, path_base(list.path), draft->to);
    s->samples[item] = list.found.parts.samples_count;
    shard_list_free(&list);
    return draft_end(draft, st);
}

static Status shards_find(const char *path, Shards *s)
{
    ShardSet set = {0};
    Sidecar stand_in;
    Status st = OK;
    TRY_OUT(shard_set_find(path, &set));
    s->kind = set.kind;
    for (int part = 0; part <= SPLITS; part++)
        for (int i = 0; i < set.of[part].count; i++) TRY_OUT(names_add(&s->paths, set.of[part].name[i]));
    names_sort(&s->paths);
    for (int i = 0; i < s->paths.count; i++)
        if (sidecar_look(s->paths.name[i], &stand_in))
            TRY_OUT(FAIL(ERR_ARG, "'%s' stands in for a shard that is elsewhere: give the address of its set",
                         s->paths.name[i]));
out:
    shard_set_free(&set);
    return st;
}

static bool is_beside(const char *a, const char *b)
{
    size_t bytes = (size_t)(path_base(a) - a);
    return (size_t)(path_base(b) - b) == bytes && !memcmp(a, b, bytes);
}

/* The sidecar of the folder of shard `first`, up to shard `end`. */
static Status folder_write(const Shards *s, int first, int end, SidecarsMade *made)
{
    char path[PATH_BYTES];
    Draft all;
    const char *of = s->paths.name[first];
    if (snprintf(path, sizeof path, "%.*s" SIDECAR_NAME, (int)(path_base(of) - of), of) >= PATH_BYTES)
        return FAIL(ERR_ARG, "'%s': the path of its index is too long", of);
    TRY(draft_begin(&all, "the index of a folder of shards"));
    for (int i = first; i < end; i++) {
        if (i > first && !strcmp(of, s->paths.name[i])) continue; /* a list may name a shard twice */
        fwrite(s->record[i].text, 1, s->record[i].bytes, all.to);
        of = s->paths.name[i];
        made->samples += s->samples[i];
        made->shards++;
    }
    TRY(draft_end(&all, OK));
    Status st = file_replace(path, all.text, all.bytes);
    made->folders++;
    made->bytes += all.bytes;
    free(all.text);
    return st;
}

Status sidecars_write(const char *path, void (*progress)(void *context, int64_t done, int64_t all), SidecarsMade *made)
{
    Status st = OK;
    Shards s = {0};
    *made = (SidecarsMade){0};
    if (!shards_are_in(path)) return FAIL(ERR_ARG, "'%s' holds no shards: expected tars, TFRecords or MDS", path);
    TRY_OUT(shards_find(path, &s));
    s.record = calloc((size_t)s.paths.count + 1, sizeof *s.record);
    s.samples = calloc((size_t)s.paths.count + 1, sizeof *s.samples);
    if (!s.record || !s.samples) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the index of %d shards", s.paths.count));
    TRY_OUT(
        parallel_run(&(Parallel){.count = s.paths.count, .work = record_make, .context = &s, .progress = progress}));
    for (int first = 0, end; first < s.paths.count; first = end) {
        for (end = first + 1; end < s.paths.count && is_beside(s.paths.name[first], s.paths.name[end]);) end++;
        TRY_OUT(folder_write(&s, first, end, made));
    }
out:
    for (int i = 0; s.record && i < s.paths.count; i++) free(s.record[i].text);
    free(s.record);
    free(s.samples);
    names_free(&s.paths);
    return st;
}
