/* Convert arenas to named tensors and back; see weights.h. */
#include "towers/store/weights.h"
#include "kernels/base/array.h"
#include "towers/store/torch_file.h"
#include "towers/store/weight_archive.h"

static Status plain_parse(const void *bytes, size_t count, const char *name, SafeTensors **made)
{
    return (torch_file_is(bytes, count) ? torch_file_parse : safetensors_parse)(bytes, count, name, made);
}

static Status weights_parse(const void *bytes, size_t count, const char *name, SafeTensors **made)
{
    WeightEntry inner = {0};
    if (zip_is(bytes, count)) TRY(weight_archive_take(bytes, count, name, &inner));
    if (!inner.bytes) return plain_parse(bytes, count, name, made);
    Status st = plain_parse(inner.bytes, inner.count, name, made);
    if (st == OK) st = safetensors_own(*made, inner.bytes);
    if (st != OK) free(inner.bytes);
    return st;
}

bool network_is_named(const char *word)
{
    return ends_with(word, ".onnx");
}

Status (*weights_of_network)(const char *path, SafeTensors **made);

Status weights_open(const char *path, SafeTensors **made)
{
    if (weights_of_network && network_is_named(path)) return weights_of_network(path, made);
    return safetensors_open_as(path, weights_parse, made);
}

/* ---- the list */

void weight_list_clear(WeightList *list)
{
    for (int i = 0; i < list->count; i++) {
        free((void *)list->tensor[i].name);
        free((void *)list->tensor[i].data);
    }
    free(list->tensor);
    *list = (WeightList){0};
}

/* Append a tensor with space for `bytes` of data; *data points to that space. */
static Status list_add(WeightList *list, const char *prefix, const char *name, StTensor like, size_t bytes, void **data)
{
    TRY(array_grow(&list->tensor, list->count, sizeof *list->tensor, "a list of tensors"));
    char *full = malloc(strlen(prefix) + strlen(name) + 1);
    void *memory = malloc(bytes ? bytes : 1);
    if (!full || !memory) {
        free(full);
        free(memory);
        return FAIL(ERR_MEMORY, "no memory for the tensor %s%s (%zu bytes)", prefix, name, bytes);
    }
    strcpy(full, prefix);
    strcat(full, name);
    like.name = full;
    like.data = memory;
    like.bytes = bytes;
    list->tensor[list->count++] = like;
    *data = memory;
    return OK;
}

/* ---- OHWI <-> OIHW, and HWC <-> CHW for outputs that become a map */

typedef enum Direction { TO_DISK, FROM_DISK } Direction;

static void reorder(const LayoutEntry *entry, Direction direction, float *arena, float *disk)
{
    Shape s = entry->shape;
    int64_t n = s.n, c = s.c, area = (int64_t)s.h * s.w, block = 1; /* values that stay beside each other */
    if (entry->pixels > 1) {
        block = entry->rank == 2 ? c : 1;
        n = 1, area = entry->pixels, c = (int64_t)entry->count / block / area;
    }
    for (int64_t o = 0; o < n; o++)
        for (int64_t p = 0; p < area; p++)
            for (int64_t i = 0; i < c; i++) {
                float *here = arena + ((o * area + p) * c + i) * block,
                      *there = disk + ((o * c + i) * area + p) * block;
                for (int64_t k = 0; k < block; k++)
                    if (direction == TO_DISK)
                        there[k] = here[k];
                    else
                        here[k] = there[k];
            }
}

static StTensor disk_tensor(Shape s, int rank)
{
    StTensor t = {.dtype = ST_F32, .rank = rank};
    if (rank == 4) {
        t.dims[0] = s.n;
        t.dims[1] = s.c;
        t.dims[2] = s.h;
        t.dims[3] = s.w;
    } else if (rank == 3) {
        t.dims[0] = s.c;
        t.dims[1] = s.h;
        t.dims[2] = s.w;
    } else if (rank == 2) {
        t.dims[0] = s.n;
        t.dims[1] = (int64_t)s.c * s.h * s.w;
    } else {
        t.dims[0] = shape_count(s);
    }
    return t;
}

Status weights_pack(const WeightMap *map, const char *prefix, const float *arena, WeightList *list)
{
    for (int i = 0; i < map->count; i++) {
        const LayoutEntry *entry = &map->layout->params[i];
        void *data;
        TRY(list_add(list, prefix, entry->name, disk_tensor(entry->shape, entry->rank), entry->count * sizeof(float),
                     &data));
        reorder(entry, TO_DISK, (float *)arena + entry->first, data);
    }
    return OK;
}

Status running_pack(const WeightMap *map, const char *prefix, const float *arena, int64_t tracked, WeightList *list)
{
    for (int i = 0; i < map->layout->running_count; i++) {
        const LayoutEntry *entry = &map->layout->running[i];
        void *data;
        TRY(list_add(list, prefix, entry->name, disk_tensor(entry->shape, 1), entry->count * sizeof(float), &data));
        reorder(entry, TO_DISK, (float *)arena + entry->first, data);
        const char *last = strrchr(entry->name, '.');
        if (tracked < 0 || !last || strcmp(last, ".running_mean")) continue;
        char name[ST_MAX_NAME];
        snprintf(name, sizeof name, "%.*s.num_batches_tracked", (int)(last - entry->name), entry->name);
        TRY(list_add(list, prefix, name, (StTensor){.dtype = ST_I64}, sizeof tracked, &data));
        memcpy(data, &tracked, sizeof tracked);
    }
    return OK;
}

/* ---- reading */

static float element(const StTensor *t, size_t i)
{
    double d;
    switch (t->dtype) {
    case ST_F64: memcpy(&d, (const char *)t->data + 8 * i, sizeof d); return (float)d;
    case ST_F32: return element_read(DTYPE_F32, t->data, (int64_t)i);
    case ST_F16: return element_read(DTYPE_F16, t->data, (int64_t)i);
    default: return element_read(DTYPE_BF16, t->data, (int64_t)i);
    }
}

static bool is_one_number(const StTensor *t)
{
    for (int d = 0; d < t->rank; d++)
        if (t->dims[d] != 1) return false;
    return true;
}

/* A single number has no dimensions in PyTorch's files, and one or more here. */
static bool same_shape(const StTensor *have, const StTensor *want)
{
    bool floats = have->dtype == ST_F32 || have->dtype == ST_F64 || have->dtype == ST_F16 || have->dtype == ST_BF16;
    if (floats && is_one_number(have) && is_one_number(want)) return true;
    if (!floats || have->rank != want->rank) return false;
    for (int d = 0; d < have->rank; d++)
        if (have->dims[d] != want->dims[d]) return false;
    return true;
}

static const char *dims_text(const StTensor *t, char *buffer, size_t bytes)
{
    Text text = text_start(buffer, bytes);
    text_add(&text, "%s[", st_dtype_name(t->dtype));
    for (int d = 0; d < t->rank; d++) text_add(&text, "%s%" PRId64, d ? "," : "", t->dims[d]);
    text_add(&text, "]");
    return buffer;
}

__attribute__((format(printf, 2, 3))) static void match_line(WeightMatch *match, const char *format, ...)
{
    enum { LINES = 12, TAIL = 40 };
    char line[2 * ST_MAX_NAME];
    size_t used = strlen(match->table);
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (match->lines < LINES && used + strlen(line) + TAIL < sizeof match->table) {
        strcpy(match->table + used, line);
        match->lines++;
    }
}

/* ---- rules */

static bool begins(const char *name, const char *part)
{
    return !strncmp(name, part, strlen(part));
}

static const char *part_of(const char *const *parts, const char *name)
{
    for (; *parts; parts++)
        if (begins(name, *parts)) return *parts;
    return NULL;
}

static bool is_reset(const WeightRules *rules, const char *name)
{
    for (const char *const *whole = rules->reset_names; *whole; whole++)
        if (!strcmp(*whole, name)) return true;
    return part_of(rules->reset, name) != NULL;
}

static bool file_has(const SafeTensors *file, const char *part)
{
    for (int i = 0; i < safetensors_count(file); i++)
        if (begins(safetensors_at(file, i)->name, part)) return true;
    return false;
}

static bool layout_has(const Layout *layout, const char *part)
{
    for (int i = 0; i < layout->param_count; i++)
        if (begins(layout->params[i].name, part)) return true;
    return false;
}

/* True if the rules exclude this name of the network: reset, or optional and not in the file (then noted as absent). */
static bool wanted_not(const WeightRules *rules, const SafeTensors *file, const char *name, WeightMatch *match)
{
    if (!rules) return false;
    if (is_reset(rules, name)) return true;
    const char *optional = part_of(rules->optional, name);
    if (!optional || file_has(file, optional)) return false;
    Text absent = text_behind(match->absent, sizeof match->absent);
    if (!strstr(match->absent, optional)) text_add(&absent, "%s%s*", absent.used ? ", " : "", optional);
    return true;
}

static bool extra_allowed(const WeightRules *rules, const Layout *layout, const char *name)
{
    if (!rules) return false;
    const char *optional = part_of(rules->optional, name);
    return is_reset(rules, name) || (optional && !layout_has(layout, optional));
}

/* ---- the network's part of a file */

static bool must_have(const WeightRules *rules, const char *name)
{
    return !rules || (!is_reset(rules, name) && !part_of(rules->optional, name));
}

Status weights_narrow(const WeightMap *map, const WeightRules *rules, const char *path, const char *key,
                      SafeTensors *file, WeightPart *part)
{
    int count = 0;
    const Layout *layout = map->layout;
    const char **names = calloc((size_t)(map->count + layout->running_count) + 1, sizeof *names);
    if (!names) return FAIL(ERR_MEMORY, "no memory for the names of a network");
    for (int i = 0; i < map->count; i++)
        if (must_have(rules, layout->params[i].name)) names[count++] = layout->params[i].name;
    for (int i = 0; i < layout->running_count; i++)
        if (must_have(rules, layout->running[i].name)) names[count++] = layout->running[i].name;
    Status st = weight_part_take(file, path, names, count, key, part);
    free(names);
    return st;
}

/* ---- entries */

/* No training makes a running variance below 0, and its root is NaN. */
static void spoiled_note(const char *name, const float *values, size_t count, WeightMatch *match)
{
    bool variance = ends_with(name, ".running_var");
    size_t bad = 0, first = 0;
    for (size_t i = count; i-- > 0;)
        if (!isfinite(values[i]) || (variance && values[i] < 0)) bad++, first = i;
    if (!bad) return;
    match->spoiled++;
    match_line(match, "  %s  %s: %zu of %zu values; element %zu is %g\n",
               isfinite(values[first]) ? "below 0   " : "not finite", name, bad, count, first, (double)values[first]);
}

static Status entry_unpack(const LayoutEntry *entry, const char *prefix, const SafeTensors *file, float *arena,
                           WeightMatch *match)
{
    char name[ST_MAX_NAME], have[96], want[96];
    StTensor wanted = disk_tensor(entry->shape, entry->rank);
    snprintf(name, sizeof name, "%s%s", prefix, entry->name);
    const StTensor *t = safetensors_find(file, name);
    if (!t) {
        match->missing++;
        match_line(match, "  missing     %s %s\n", name, dims_text(&wanted, want, sizeof want));
        return OK;
    }
    if (!same_shape(t, &wanted)) {
        match->mismatched++;
        match_line(match, "  mismatched  %s: expected %s, the file has %s\n", name,
                   dims_text(&wanted, want, sizeof want), dims_text(t, have, sizeof have));
        return OK;
    }
    float *disk = malloc(entry->count * sizeof *disk);
    if (!disk) return FAIL(ERR_MEMORY, "no memory for the tensor %s", name);
    for (size_t i = 0; i < entry->count; i++) disk[i] = element(t, i);
    spoiled_note(name, disk, entry->count, match);
    reorder(entry, FROM_DISK, arena + entry->first, disk);
    free(disk);
    return OK;
}

static void extras_count(const WeightMap *map, const char *prefix, const SafeTensors *file, const WeightRules *rules,
                         bool running, WeightMatch *match)
{
    size_t skip = strlen(prefix);
    for (int i = 0; i < safetensors_count(file); i++) {
        const char *name = safetensors_at(file, i)->name, *last = strrchr(name, '.');
        if (strncmp(name, prefix, skip) || (last && !strcmp(last, ".num_batches_tracked"))) continue;
        if (layout_param(map->layout, name + skip) || (running && layout_running(map->layout, name + skip))) continue;
        if (extra_allowed(rules, map->layout, name + skip)) continue;
        match->extra++;
        match_line(match, "  extra       %s\n", name);
    }
}

/* Files of ours without the mark were written when outputs that become a map lay pixel by pixel, in files too. */
static Status maps_check(const WeightMap *map, const SafeTensors *file)
{
    if (!safetensors_metadata(file, "towers_version") || safetensors_metadata(file, "maps")) return OK;
    for (int i = 0; i < map->count; i++)
        if (map->layout->params[i].pixels > 1)
            return FAIL(ERR_CHECKPOINT,
                        "%s: the file has the outputs of this layer pixel by pixel, as an earlier version of this "
                        "program wrote them; expected PyTorch's order: use the version that wrote the file, or train "
                        "again",
                        map->layout->params[i].name);
    return OK;
}

Status weights_unpack(const WeightMap *map, const char *prefix, const SafeTensors *file, const WeightRules *rules,
                      float *params, float *running, WeightMatch *match)
{
    *match = (WeightMatch){0};
    const Layout *layout = map->layout;
    TRY(maps_check(map, file));
    for (int i = 0; params && i < map->count; i++)
        if (!wanted_not(rules, file, layout->params[i].name, match))
            TRY(entry_unpack(&layout->params[i], prefix, file, params, match));
    for (int i = 0; running && i < layout->running_count; i++)
        if (!wanted_not(rules, file, layout->running[i].name, match))
            TRY(entry_unpack(&layout->running[i], prefix, file, running, match));
    extras_count(map, prefix, file, rules, running != NULL, match);
    Text table = text_behind(match->table, sizeof match->table);
    int left = match->missing + match->mismatched + match->extra + match->spoiled - match->lines;
    if (left > 0)
        text_add(&table, "  ... and %d more", left);
    else if (table.used)
        match->table[table.used - 1] = 0; /* drop the last newline */
    return OK;
}

Status weights_spoiled(const char *path, const WeightMatch *match)
{
    return FAIL(ERR_CHECKPOINT,
                "%s: values of %d tensors are not finite, or variances below 0; use earlier weights\n%s", path,
                match->spoiled, match->table);
}

Status weights_unpack_exact(const WeightMap *map, const char *prefix, const SafeTensors *file, float *params,
                            float *running)
{
    WeightMatch match;
    TRY(weights_unpack(map, prefix, file, NULL, params, running, &match));
    bool extra_matters = !*prefix && params && running;
    if (match.missing || match.mismatched || (extra_matters && match.extra))
        return FAIL(ERR_CHECKPOINT,
                    "the file does not hold this network's weights: %d missing, %d mismatched, %d extra\n%s",
                    match.missing, match.mismatched, match.extra, match.table);
    return OK;
}
