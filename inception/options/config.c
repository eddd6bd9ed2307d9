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

static Status next_event(ConfigReader *reader, yaml_event_t *event)
{
    return yaml_parser_parse(&reader->parser, event) ? OK : refuse_syntax(reader);
}

/* The reason why this event is not a plain or quoted scalar; NULL if it is one. */
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

static Status check_scalar(const ConfigReader *reader, const yaml_event_t *event)
{
    const char *objection = scalar_objection(event);
    return objection ? refuse(reader, event->start_mark, objection) : OK;
}

static Status visit_pair(ConfigReader *reader, const yaml_event_t *key, const yaml_event_t *value)
{
    TRY(check_scalar(reader, value));
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

/* Read the value of a "key: value" pair whose key has been read. */
static Status read_pair(ConfigReader *reader, const yaml_event_t *key)
{
    TRY(check_scalar(reader, key));
    yaml_event_t value;
    TRY(next_event(reader, &value));
    Status st = visit_pair(reader, key, &value);
    yaml_event_delete(&value);
    return st;
}

static Status read_mapping(ConfigReader *reader)
{
    for (bool more = true; more;) {
        yaml_event_t key;
        TRY(next_event(reader, &key));
        more = key.type != YAML_MAPPING_END_EVENT;
        Status st = more ? read_pair(reader, &key) : OK;
        yaml_event_delete(&key);
        if (st != OK) return st;
    }
    return OK;
}

/* Check the first event of the document; *enter is true if it starts a mapping. */
static Status check_root(const ConfigReader *reader, const yaml_event_t *event, bool *enter)
{
    *enter = event->type == YAML_MAPPING_START_EVENT;
    if (!*enter) {
        bool nothing = event->type == YAML_SCALAR_EVENT && event->data.scalar.length == 0 && !event->data.scalar.tag &&
                       !event->data.scalar.anchor && event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
        return nothing ? OK
                       : refuse(reader, event->start_mark,
                                "expected lines of the form 'flag: value', e.g. 'batch-size: 32'");
    }
    if (event->data.mapping_start.anchor) return refuse(reader, event->start_mark, "anchors (&name) are not allowed");
    if (event->data.mapping_start.tag) return refuse(reader, event->start_mark, "tags (!name) are not allowed");
    if (event->data.mapping_start.style == YAML_FLOW_MAPPING_STYLE)
        return refuse(reader, event->start_mark, "mappings in {} are not allowed; write one 'flag: value' per line");
    return OK;
}

static Status read_root(ConfigReader *reader)
{
    yaml_event_t event;
    bool enter = false;
    TRY(next_event(reader, &event));
    Status st = check_root(reader, &event, &enter);
    yaml_event_delete(&event);
    if (st == OK && enter) st = read_mapping(reader);
    return st;
}

/* Read an event outside of the document: *begins if the document starts, *ends if the stream ends. */
static Status read_boundary(ConfigReader *reader, bool first, bool *begins, bool *ends)
{
    yaml_event_t event;
    Status st = OK;
    TRY(next_event(reader, &event));
    *begins = event.type == YAML_DOCUMENT_START_EVENT;
    *ends = event.type == YAML_STREAM_END_EVENT;
    if (*begins && !first)
        st = refuse(reader, event.start_mark, "a second document (---) is not allowed");
    else if (*begins &&
             (event.data.document_start.version_directive ||
              event.data.document_start.tag_directives.start != event.data.document_start.tag_directives.end))
        st = refuse(reader, event.start_mark, "directives (%YAML, %TAG) are not allowed");
    yaml_event_delete(&event);
    return st;
}

static Status read_stream(ConfigReader *reader)
{
    bool begins = false, ends = false, first = true;
    while (!ends) {
        TRY(read_boundary(reader, first, &begins, &ends));
        if (begins) TRY(read_root(reader));
        first = first && !begins;
    }
    return OK;
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

Status config_parse(const char *name, const void *bytes, size_t count, ConfigVisit visit, void *context)
{
    ConfigReader reader = {.name = name, .visit = visit, .context = context};
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

Status config_load(const char *path, char **bytes, size_t *count)
{
    return file_load(path, OF_USER, ERR_ARG, CONFIG_MAX_BYTES, bytes, count);
}
