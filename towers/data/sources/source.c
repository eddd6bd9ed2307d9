/* The public source: calls through the table of its kind (reader.h). */
#include "towers/data/sources/source.h"

#include "towers/data/sources/reader.h"

void source_close(Source *source)
{
    if (!source) return;
    if (!source->borrowed) source_close(source->from);
    free(source->ids);
    if (source->close)
        source->close(source);
    else
        free(source);
}

Status source_select(const Source *from, const int64_t *ids, int64_t count, Source **made)
{
    Source *source = malloc(sizeof *source);
    int64_t *own = malloc((size_t)count * sizeof *own + 1);
    if (!source || !own) {
        free(source);
        free(own);
        return FAIL(ERR_MEMORY, "no memory for %" PRId64 " samples of '%s'", count, from->info.name);
    }
    memcpy(own, ids, (size_t)count * sizeof *own);
    *source = (Source){.info = from->info, .from = (Source *)from, .borrowed = true, .ids = own};
    source->info.count = count;
    *made = source;
    return OK;
}

const SourceInfo *source_info(const Source *source)
{
    return &source->info;
}

static int64_t id_in_from(const Source *source, int64_t index)
{
    return source->ids ? source->ids[index] : index;
}

Status source_read(const Source *source, int64_t index, Bytes *bytes, int32_t *label)
{
    if (index < 0 || index >= source->info.count)
        return FAIL(ERR_ARG, "sample %" PRId64 " of data set %s: it has samples 0 to %" PRId64, index,
                    source->info.name, source->info.count - 1);
    if (!source->read) return source_read(source->from, id_in_from(source, index), bytes, label);
    bytes->boxes.count = 0;
    TRY(source->read(source, index, bytes, label));
    return OK;
}

int32_t source_label(const Source *source, int64_t index)
{
    if (!source->label && source->from) return source_label(source->from, id_in_from(source, index));
    return source->label ? source->label(source, index) : 0;
}

int32_t source_labels(const Source *source, int64_t index, const int32_t **labels)
{
    if (!source->labels) return source_labels(source->from, id_in_from(source, index), labels);
    return source->labels(source, index, labels);
}

void source_classes_count(const Source *source, int64_t *counts)
{
    memset(counts, 0, (size_t)source->info.classes * sizeof *counts);
    for (int64_t i = 0; i < source->info.count; i++) {
        int32_t own = source_label(source, i), count = 1;
        const int32_t *labels = &own;
        if (source->info.multi_label) count = source_labels(source, i, &labels);
        for (int32_t k = 0; k < count; k++) counts[labels[k]]++;
    }
}

void source_where(const Source *source, int64_t index, char *text, size_t bytes)
{
    if (source->where)
        source->where(source, index, text, bytes);
    else if (source->from)
        source_where(source->from, id_in_from(source, index), text, bytes);
    else
        snprintf(text, bytes, "%s, sample %" PRId64, source->info.name, index);
}

bool source_file(const Source *source, int64_t index, char *path, size_t room, uint64_t *bytes)
{
    if (source->file) return source->file(source, index, path, room, bytes);
    return source->from && source_file(source->from, id_in_from(source, index), path, room, bytes);
}

bool source_is_here(const Source *source, int64_t index)
{
    if (source->is_here) return source->is_here(source, index);
    return !source->from || source_is_here(source->from, id_in_from(source, index));
}

void source_traffic(const Source *source, SourceTraffic *traffic)
{
    *traffic = (SourceTraffic){0};
    if (source->traffic)
        source->traffic(source, traffic);
    else if (source->from)
        source_traffic(source->from, traffic);
}

void source_hint(const Source *source, int64_t index)
{
    if (source->hint)
        source->hint(source, index);
    else if (source->from)
        source_hint(source->from, id_in_from(source, index));
}

void source_hint_window(const Source *source)
{
    if (source->hint_window)
        source->hint_window(source);
    else if (source->from)
        source_hint_window(source->from);
}

void source_hint_shard(const Source *source, int shard)
{
    if (source->hint_shard)
        source->hint_shard(source, shard);
    else if (source->from)
        source_hint_shard(source->from, shard);
}

void source_hint_later(const Source *source, int shard)
{
    if (source->hint_later)
        source->hint_later(source, shard);
    else if (source->from)
        source_hint_later(source->from, shard);
}

Status bytes_raw(Bytes *bytes, const uint8_t *pixels, int32_t h, int32_t w, int32_t c)
{
    size_t size = (size_t)h * (size_t)w * (size_t)c;
    TRY(bytes_reserve(bytes, size));
    memcpy(bytes->data, pixels, size);
    bytes->size = size;
    bytes->raw_h = h;
    bytes->raw_w = w;
    bytes->raw_c = c;
    return OK;
}
