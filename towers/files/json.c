/* JSON values of texts and numbers of any kind. */
#include "towers/files/json.h"

#include "towers/files/files.h"
#include "towers/files/utf8.h"

json_t *json_text(const char *bytes)
{
    size_t room = utf8_escape(NULL, 0, bytes) + 1;
    char *text = malloc(room);
    if (!text) return NULL;
    utf8_escape(text, room, bytes);
    json_t *made = json_string(text);
    free(text);
    return made;
}

/* jansson does not report out-of-memory at every allocation; errno of the failing malloc does. */
Status json_parse(const char *text, size_t bytes, json_t **made, json_error_t *error)
{
    errno = 0;
    *made = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, error);
    return !*made && errno == ENOMEM ? FAIL(ERR_MEMORY, "no memory to parse %zu bytes of JSON", bytes) : OK;
}

json_t *json_of_run(const char *run, const char *name)
{
    char path[PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    if (path_join(path, run, name) != OK || file_read(path, RUN_TEXT_BYTES, &text, &bytes) != OK) return NULL;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    if (json_is_object(root)) return root;
    json_decref(root);
    return NULL;
}

const char *json_word(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

const char *json_word_or_empty(const json_t *object, const char *key)
{
    const char *text = json_word(object, key);
    return text ? text : "";
}

int64_t json_whole(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

json_t *json_counts(const int64_t *values, int64_t count)
{
    json_t *all = json_array();
    for (int64_t i = 0; i < count; i++) json_array_append_new(all, json_integer((json_int_t)values[i]));
    return all;
}

const char **json_texts(const json_t *list)
{
    size_t count = json_array_size(list);
    const char **texts = calloc(count + 1, sizeof *texts);
    for (size_t i = 0; texts && i < count; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        texts[i] = text ? text : "";
    }
    return texts;
}

Status json_emit(json_t *root, size_t flags, FILE *to)
{
    if (!root) return FAIL(ERR_MEMORY, "no memory for the result as JSON");
    bool whole = json_dumpf(root, to, flags) == 0 && fputc('\n', to) != EOF;
    json_decref(root);
    return whole ? OK : FAIL(ERR_IO, "cannot write the result as JSON");
}

Status json_replace(const char *directory, const char *name, json_t *root, size_t flags)
{
    char *text = root ? json_dumps(root, flags) : NULL;
    Status st = text ? text_replace(directory, name, text) : FAIL(ERR_MEMORY, "no memory for %s", name);
    free(text);
    json_decref(root);
    return st;
}

json_t *json_finite(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}
