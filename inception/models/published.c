/* The table of published weights; see published.h. */
#include "inception/models/published.h"

#include "inception/models/models.h"
#include "kernels/base/array.h"
#include "towers/files/files.h"
#include "towers/files/json.h"

#include <ctype.h>

enum { TABLE_BYTES = 16 << 20, ROWS_MAX = 4096, WORD_MAX = 64, ADDRESS_MAX = 2000 };
enum { SYNSET_BYTES = 10 /* "n01440764 " before the name of a class */ };

struct Published {
    json_t *root[2];               /* owned: that of --weights-table, the built-in one */
    json_t *imagenet, *background; /* owned: names of ImageNet's classes; "background", then these */
    PublishedRow *row;             /* owned */
    int count;
};

static const char *embedded(const char *name)
{
    for (int i = 0; model_texts[i].name; i++)
        if (!strcmp(model_texts[i].name, name)) return model_texts[i].text;
    return "";
}

/* ---- the checks of a row */

static int only_of(const char *text, const char *also, size_t most)
{
    size_t length = strlen(text);
    for (const char *at = text; *at; at++)
        if (!isalnum((unsigned char)*at) && !strchr(also, *at)) return 0;
    return length > 0 && length <= most;
}

int setting_is_plain(const char *text)
{
    return only_of(text, ".,+-_", WORD_MAX);
}

static int is_digest(const char *text)
{
    size_t digits = strspn(text, "0123456789abcdef");
    return digits >= SHA256_LEAST && digits <= SHA256_DIGITS && !text[digits];
}

static int is_address(const char *text)
{
    bool web = !strncmp(text, "https://", 8) || !strncmp(text, "http://", 7);
    return web && only_of(text, "-._~:/?#[]@!$&'()*+,;=%", ADDRESS_MAX);
}

static int is_file(const char *name)
{
    return name[0] != '.' && only_of(name, "._-", 255);
}

static int is_line(const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at; at++)
        if (*at < 0x20 || *at == 0x7f) return 0;
    return *text != 0;
}

static bool is_one_of(const char *key, const char *const *known)
{
    while (*known && strcmp(*known, key) != 0) known++;
    return *known;
}

static int is_word(const char *text)
{
    return only_of(text, "._-", WORD_MAX);
}

typedef struct RowPlace {
    const char *table;
    size_t index;
} RowPlace;

static Status wrong(RowPlace place, const char *key, const char *wanted)
{
    return FAIL(ERR_ARG, "%s: row %zu: '%s' is not %s", place.table, place.index + 1, key, wanted);
}

static Status text_read(RowPlace place, const json_t *row, const char *key, int (*check)(const char *),
                        const char *wanted, const char **to)
{
    const char *text = json_string_value(json_object_get(row, key));
    if (!text || json_string_length(json_object_get(row, key)) != strlen(text) || !check(text))
        return wrong(place, key, wanted);
    *to = text;
    return OK;
}

static Status settings_check(RowPlace place, const json_t *settings)
{
    static const char *const known[] = {"img_size",    "mean",      "std",           "crop",
                                        "eval_resize", "eval_crop", "interpolation", NULL};
    const char *key;
    json_t *value;
    if (!settings) return OK;
    if (!json_is_object(settings)) return wrong(place, "settings", "an object");
    json_object_foreach((json_t *)settings, key, value)
    {
        if (!is_one_of(key, known)) return wrong(place, key, "a setting of images");
        const char *text = json_string_value(value);
        if (!text || strlen(text) != json_string_length(value) || !setting_is_plain(text))
            return wrong(place, key, "a text of letters, digits and .,+-_");
    }
    return OK;
}

static Status names_read(RowPlace place, const json_t *value, const Published *table, const json_t **names)
{
    const char *list = json_string_value(value);
    size_t i;
    json_t *name;
    *names = NULL;
    if (!value) return OK;
    if (list && !strcmp(list, "imagenet")) *names = table->imagenet;
    if (list && !strcmp(list, "imagenet-background")) *names = table->background;
    if (*names) return OK;
    if (!json_is_array(value))
        return wrong(place, "class_names", "a list of names, \"imagenet\" or \"imagenet-background\"");
    json_array_foreach((json_t *)value, i, name)
    {
        const char *text = json_string_value(name);
        if (!text || strlen(text) != json_string_length(name) || !is_line(text))
            return wrong(place, "class_names", "a list of names without control characters");
    }
    *names = value;
    return OK;
}

static Status also_check(RowPlace place, const json_t *also)
{
    size_t i;
    json_t *name;
    if (also && !json_is_array(also)) return wrong(place, "also", "a list of names of files");
    json_array_foreach((json_t *)also, i, name)
    {
        const char *text = json_string_value(name);
        if (!text || strlen(text) != json_string_length(name) || !is_file(text))
            return wrong(place, "also", "a list of names of files");
    }
    return OK;
}

static Status row_read(RowPlace place, const json_t *row, const Published *table, PublishedRow *to)
{
    static const char *const known[] = {"model", "name",        "title",    "license", "address", "sha256",
                                        "bytes", "class_names", "settings", "also",    NULL};
    const char *key;
    json_t *value;
    if (!json_is_object(row)) return wrong(place, "the row", "an object");
    json_object_foreach((json_t *)row, key, value)
    {
        if (!is_one_of(key, known)) return wrong(place, key, "a column of the table");
    }
    *to = (PublishedRow){.settings = json_object_get(row, "settings"), .also = json_object_get(row, "also")};
    TRY(text_read(place, row, "model", is_word, "the name of a model", &to->model));
    const Model *model;
    if (model_find(to->model, &model) != OK) return wrong(place, "model", "the name of a model of this program");
    to->model = model->name;
    TRY(text_read(place, row, "name", is_word, "a name of letters, digits and ._-", &to->name));
    TRY(text_read(place, row, "title", is_line, "a line of text", &to->title));
    TRY(text_read(place, row, "license", is_line, "a line of text", &to->license));
    TRY(text_read(place, row, "address", is_address, "an address that begins with http:// or https://", &to->address));
    TRY(text_read(place, row, "sha256", is_digest, "8 to 64 hexadecimal digits in lower case", &to->sha256));
    to->file = strrchr(to->address, '/') + 1;
    if (!is_file(to->file)) return wrong(place, "address", "one that ends in the name of a file");
    value = json_object_get(row, "bytes");
    to->bytes = json_integer_value(value);
    if (value && (!json_is_integer(value) || to->bytes < 1)) return wrong(place, "bytes", "a size");
    TRY(settings_check(place, to->settings));
    TRY(also_check(place, to->also));
    return names_read(place, json_object_get(row, "class_names"), table, &to->names);
}

/* ---- tables */

static Status table_add(Published *table, int k, const char *text, size_t bytes, const char *name)
{
    json_error_t error;
    TRY(json_parse(text, bytes, &table->root[k], &error));
    json_t *root = table->root[k];
    if (!root)
        return FAIL(ERR_ARG, "%s: not JSON at line %d, column %d: %s", name, error.line, error.column, error.text);
    size_t rows = json_array_size(root);
    if (!json_is_array(root) || rows > ROWS_MAX)
        return FAIL(ERR_ARG, "%s: expected a list of at most %d rows", name, ROWS_MAX);
    for (size_t i = 0; i < rows; i++) {
        TRY(array_grow(&table->row, table->count, sizeof *table->row, "the table of published weights"));
        TRY(row_read((RowPlace){name, i}, json_array_get(root, i), table, &table->row[table->count]));
        table->count++;
    }
    return OK;
}

static Status table_begin(Published **made)
{
    Published *table = calloc(1, sizeof *table);
    if (!table || !(table->imagenet = json_array()) || !(table->background = json_pack("[s]", "background"))) {
        published_close(table);
        return FAIL(ERR_MEMORY, "no memory for the table of published weights");
    }
    for (const char *line = embedded("imagenet"); *line;) {
        size_t length = strcspn(line, "\n");
        json_array_append_new(table->imagenet, json_stringn(line + SYNSET_BYTES, length - SYNSET_BYTES));
        line += length + (line[length] == '\n');
    }
    json_array_extend(table->background, table->imagenet);
    *made = table;
    return OK;
}

Status published_parse(const char *text, size_t bytes, const char *name, Published **made)
{
    Published *table;
    TRY(table_begin(&table));
    Status st = table_add(table, 0, text, bytes, name);
    if (st == OK)
        *made = table;
    else
        published_close(table);
    return st;
}

Status published_open(const char *more, Published **made)
{
    Status st = OK;
    Published *table;
    char *text = NULL;
    size_t bytes = 0;
    TRY(table_begin(&table));
    if (more) TRY_OUT(file_load(more, OF_USER, ERR_ARG, TABLE_BYTES, &text, &bytes));
    if (more) TRY_OUT(table_add(table, 0, text, bytes, more));
    TRY_OUT(table_add(table, 1, embedded("weights"), strlen(embedded("weights")), "the built-in table of weights"));
    *made = table;
    table = NULL;
out:
    free(text);
    published_close(table);
    return st;
}

void published_close(Published *table)
{
    if (!table) return;
    for (int i = 0; i < 2; i++) json_decref(table->root[i]);
    json_decref(table->imagenet);
    json_decref(table->background);
    free(table->row);
    free(table);
}

const PublishedRow *published_at(const Published *table, int index)
{
    return index >= 0 && index < table->count ? &table->row[index] : NULL;
}

const PublishedRow *published_find(const Published *table, const char *model, const char *name)
{
    for (int i = 0; i < table->count; i++)
        if ((!model || !strcmp(table->row[i].model, model)) && (!name || !strcmp(table->row[i].name, name)))
            return &table->row[i];
    return NULL;
}

Status published_refuse(const Published *table, const char *model, const char *name)
{
    char known[STATUS_MESSAGE_BYTES / 2];
    Text text = text_start(known, sizeof known);
    for (int i = 0; i < table->count; i++)
        text_add(&text, "%s%s:%s", i ? ", " : "", table->row[i].model, table->row[i].name);
    return FAIL(ERR_ARG,
                "no published weights%s%s%s of %s are known, only %s: choose one of these ('towers fetch' describes "
                "them), or give a file of other weights",
                name ? " '" : "", name ? name : "", name ? "'" : "", model, known);
}

static bool has_file(const PublishedRow *row, const char *file)
{
    size_t i;
    json_t *name;
    json_array_foreach((json_t *)row->also, i, name)
    {
        if (!strcmp(json_string_value(name), file)) return true;
    }
    return !strcmp(row->file, file);
}

const PublishedRow *published_file(const Published *table, const char *file)
{
    for (int i = 0; i < table->count; i++)
        if (has_file(&table->row[i], file)) return &table->row[i];
    return NULL;
}

/* ---- ImageNet's classes */

json_t *published_synsets(const json_t *names)
{
    enum { CLASSES = 1000 };
    size_t count = json_array_size(names), first = count == CLASSES + 1;
    const char *line = embedded("imagenet");
    json_t *ids = count == CLASSES + first ? json_array() : NULL;
    if (first) json_array_append(ids, json_array_get(names, 0));
    for (size_t i = first; ids && i < count; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        size_t length = strcspn(line, "\n") - SYNSET_BYTES;
        if (!name || strlen(name) != length || strncmp(name, line + SYNSET_BYTES, length) != 0) {
            json_decref(ids);
            return NULL;
        }
        json_array_append_new(ids, json_stringn(line, SYNSET_BYTES - 1));
        line += SYNSET_BYTES + length + 1;
    }
    return ids;
}
