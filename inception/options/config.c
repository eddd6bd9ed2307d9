/* The reader of config.h: accepts those of libyaml's events that make up a flat mapping of scalars.
 *
 * libyaml (https://pyyaml.org/wiki/LibYAML) does the syntax and the positions; all limits are imposed here. It reads
 * from memory and is stopped at the first event that is not allowed, so nested structures are never followed and
 * aliases never expanded. */
#include "inception/options/config.h"

#include "towers/files/files.h"

#include <yaml.h>

typedef struct ConfigReader {
    const char *name; /* borrowed: "train.yaml" */
    ConfigVisit visit;
    void *context;
    bool lists;           /* values may be lists */
    Draft items;          /* of the list that is read */
    yaml_parser_t parser; /* owned */
} ConfigReader;

static Status refuse(const ConfigReader *reader, yaml_mark_t mark, const char *what)
{
    return FAIL(ERR_ARG, "%s:%zu:%zu: %s", reader->name, mark.line + 1, mark.column + 1, what);
}

/* Report libyaml's syntax error with its position. */
static Status refuse_syntax(const ConfigReader *reader)
{
    const yaml_parser_t *p = &reader->parser;
    if (p->error == YAML_MEMORY_ERROR) return FAIL(ERR_MEMORY, "no memory to read %s", reader->name);
    if (p->error == YAML_READER_ERROR)
        return FAIL(ERR_ARG, "%s: byte %zu: %s; a configuration file must be UTF-8 text", reader->name,
                    p->problem_offset + 1, p->problem ? p->problem : "cannot be read");
    return FAIL(ERR_ARG, "%s:%zu:%zu: invalid YAML: %s%s%s", reader->name, p->problem_mark.line + 1,
                p->problem_mark.column + 1, p->problem ? p->problem : "syntax error", p->context ? ", " : "",
                p->context ? p->context : "");
}

/* ---- why an event cannot stand at its place; NULL if it can */

/* A value that readers of YAML take for different things, or for none: what to do about it. NULL: it means the same to all.
 * Quoted, it is a text. A number is octal if it begins with 0 in YAML 1.1 (tag int), but not in YAML 1.2. */
static const char *value_objection(const yaml_event_t *event)
{
    static const char *const nulls[] = {"~", "null", "Null", "NULL"};
    const char *text = (const char *)event->data.scalar.value;
    if (event->type != YAML_SCALAR_EVENT || event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return NULL;
    for (size_t k = 0; k < sizeof nulls / sizeof *nulls; k++)
        if (!strcmp(text, nulls[k])) return "null is no value: leave the line out to keep the default, or quote a text";
    const char *digits = text + (*text == '+' || *text == '-');
    size_t zeros = strspn(digits, "0"), octal = strspn(digits, "01234567");
    bool differs = zeros > 0 && octal > zeros + 1 && !digits[octal]; /* 07 is 7 in both */
    return differs ? "a number that begins with 0 is octal to some readers: write it without, or quote a text" : NULL;
}

/* A plain or quoted scalar. */
static const char *scalar_objection(const yaml_event_t *event)
{
    if (event->type == YAML_ALIAS_EVENT) return "aliases (*name) are not allowed; write the value";
    if (event->type == YAML_SEQUENCE_START_EVENT) return "lists in [] or with dashes are not allowed; write 0,1,2";
    if (event->type == YAML_MAPPING_START_EVENT)
        return "nested mappings are not allowed; write one 'flag: value' per line";
    if (event->type != YAML_SCALAR_EVENT) return "the value is missing";
    if (event->data.scalar.anchor) return "anchors (&name) are not allowed";
    if (event->data.scalar.tag) return "tags (!name) are not allowed";
    if (event->data.scalar.style == YAML_LITERAL_SCALAR_STYLE || event->data.scalar.style == YAML_FOLDED_SCALAR_STYLE)
        return "text blocks (| or >) are not allowed; write the value after the colon";
    if (event->start_mark.line != event->end_mark.line) return "values over several lines are not allowed";
    if (memchr(event->data.scalar.value, 0, event->data.scalar.length)) return "NUL characters are not allowed";
    return NULL;
}

/* A block mapping, or nothing. */
static const char *root_objection(const yaml_event_t *event)
{
    if (event->type == YAML_SCALAR_EVENT && event->data.scalar.length == 0 && !event->data.scalar.tag &&
        !event->data.scalar.anchor && event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
        return NULL;
    if (event->type != YAML_MAPPING_START_EVENT)
        return "expected lines of the form 'flag: value', e.g. 'batch-size: 32'";
    if (event->data.mapping_start.anchor) return "anchors (&name) are not allowed";
    if (event->data.mapping_start.tag) return "tags (!name) are not allowed";
    if (event->data.mapping_start.style == YAML_FLOW_MAPPING_STYLE)
        return "mappings in {} are not allowed; write one 'flag: value' per line";
    return NULL;
}

static const char *document_objection(const yaml_event_t *event, bool first)
{
    if (event->type != YAML_DOCUMENT_START_EVENT) return NULL;
    if (!first) return "a second document (---) is not allowed";
    bool plain = !event->data.document_start.version_directive &&
                 event->data.document_start.tag_directives.start == event->data.document_start.tag_directives.end;
    return plain ? NULL : "directives (%YAML, %TAG) are not allowed";
}

/* ---- the events in their order */

static Status visit_pair(const ConfigReader *reader, const yaml_event_t *key, const yaml_event_t *value)
{
    ConfigEntry entry = {
        .key = (const char *)key->data.scalar.value,
        .value = (const char *)value->data.scalar.value,
        .quoted = value->data.scalar.style != YAML_PLAIN_SCALAR_STYLE,
        .key_line = (int)key->start_mark.line + 1,
        .key_column = (int)key->start_mark.column + 1,
        .line = (int)value->start_mark.line + 1,
        .column = (int)value->start_mark.column + 1,
    };
    if (!value->data.scalar.length)
        return FAIL(ERR_ARG, "%s:%d:%d: '%s' has no value; leave the line out to keep the default", reader->name,
                    entry.key_line, entry.key_column, entry.key);
    return reader->visit(reader->context, &entry);
}

/* One more value of a list. */
static Status item_take(ConfigReader *reader, const yaml_event_t *item)
{
    const char *text = (const char *)item->data.scalar.value;
    if (!*text || strchr(text, '|')) return refuse(reader, item->start_mark, "a value of a list is empty or has a '|'");
    fprintf(reader->items.to, "%s%s", ftell(reader->items.to) > 0 ? " | " : "", text);
    return OK;
}

static Status visit_list(ConfigReader *reader, const yaml_event_t *key, yaml_mark_t end)
{
    ConfigEntry entry = {
        .key = (const char *)key->data.scalar.value,
        .key_line = (int)key->start_mark.line + 1,
        .key_column = (int)key->start_mark.column + 1,
        .line = (int)key->start_mark.line + 1,
        .column = (int)key->end_mark.column + 1,
        .list = true,
    };
    TRY(draft_end(&reader->items, OK));
    entry.value = reader->items.text;
    Status st = *entry.value ? reader->visit(reader->context, &entry) : refuse(reader, end, "the list is empty");
    free(reader->items.text);
    reader->items.text = NULL;
    return st;
}

static bool begins_list(const ConfigReader *reader, const yaml_event_t *event)
{
    return reader->lists && event->type == YAML_SEQUENCE_START_EVENT && !event->data.sequence_start.anchor &&
           !event->data.sequence_start.tag;
}

/* What is read next. BEHIND the mapping is the end of the stream. */
typedef enum Place { BEFORE, ROOT, KEY, VALUE, ITEM, BEHIND } Place;

static Status read_stream(ConfigReader *reader)
{
    Status st = OK;
    Place place = BEFORE;
    yaml_event_t event = {0}, key = {0};
    for (bool more = true; more && st == OK;) {
        if (!yaml_parser_parse(&reader->parser, &event)) TRY_OUT(refuse_syntax(reader));
        bool ends = place == KEY && event.type == YAML_MAPPING_END_EVENT,
             list = place == VALUE && begins_list(reader, &event),
             listed = place == ITEM && event.type == YAML_SEQUENCE_END_EVENT;
        const char *why = ends || list || listed          ? NULL
                          : place >= KEY && place <= ITEM ? scalar_objection(&event)
                          : place == ROOT                 ? root_objection(&event)
                                                          : document_objection(&event, place == BEFORE);
        more = event.type != YAML_STREAM_END_EVENT;
        if (!why && !listed && (place == VALUE || place == ITEM)) why = value_objection(&event);
        if (why) TRY_OUT(refuse(reader, event.start_mark, why));
        if (list) st = draft_begin(&reader->items, "a list of values");
        if (place == VALUE && !list) st = visit_pair(reader, &key, &event);
        if (place == ITEM && !listed) st = item_take(reader, &event);
        if (listed) st = visit_list(reader, &key, event.start_mark);
        if (place == KEY && !ends) {
            yaml_event_delete(&key);
            key = event; /* until its value has come */
            event = (yaml_event_t){0};
        }
        if (ends)
            place = BEHIND;
        else if (list)
            place = ITEM;
        else if (place == KEY || place == VALUE || listed)
            place = place == KEY ? VALUE : KEY;
        else if (place == ROOT)
            place = event.type == YAML_MAPPING_START_EVENT ? KEY : BEHIND;
        else if (event.type == YAML_DOCUMENT_START_EVENT)
            place = ROOT;
        yaml_event_delete(&event);
    }
out:
    if (place == ITEM && st != OK && reader->items.to) (void)!draft_end(&reader->items, OK), free(reader->items.text);
    yaml_event_delete(&event);
    yaml_event_delete(&key);
    return st;
}

/* libyaml accepts tabs between tokens; they are rejected here because they are invisible. */
static Status check_tabs(const ConfigReader *reader, const char *text, size_t count)
{
    const char *tab = memchr(text, '\t', count);
    if (!tab) return OK;
    yaml_mark_t mark = {0};
    for (const char *p = text; p < tab; p++) {
        mark.column = *p == '\n' ? 0 : mark.column + 1;
        mark.line += *p == '\n';
    }
    return refuse(reader, mark, "tabs are not allowed; use spaces");
}

static Status text_read(ConfigReader reader, const void *bytes, size_t count)
{
    const char *name = reader.name;
    const char *text = bytes;
    if (count > CONFIG_MAX_BYTES)
        return FAIL(ERR_ARG, "%s has %zu bytes, but a configuration file may have at most %d", name, count,
                    CONFIG_MAX_BYTES);
    if (count >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) { /* a byte order mark */
        text += 3;
        count -= 3;
    }
    if (!count) return OK;
    TRY(check_tabs(&reader, text, count));
    if (!yaml_parser_initialize(&reader.parser)) return FAIL(ERR_MEMORY, "no memory to read %s", name);
    yaml_parser_set_encoding(&reader.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, count);
    Status st = read_stream(&reader);
    yaml_parser_delete(&reader.parser);
    return st;
}

Status config_parse(const char *name, const void *bytes, size_t count, ConfigVisit visit, void *context)
{
    return text_read((ConfigReader){.name = name, .visit = visit, .context = context}, bytes, count);
}

Status config_parse_lists(const char *name, const void *bytes, size_t count, ConfigVisit visit, void *context)
{
    return text_read((ConfigReader){.name = name, .visit = visit, .context = context, .lists = true}, bytes, count);
}

Status config_load(const char *path, char **bytes, size_t *count)
{
    return file_load(path, OF_USER, ERR_ARG, CONFIG_MAX_BYTES, bytes, count);
}
