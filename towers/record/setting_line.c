/* The reader of a line of args.yaml; see setting_line.h. */
#include "towers/record/setting_line.h"

/* Append a code point as UTF-8 (RFC 3629). */
static size_t point_put(uint32_t point, char to[4])
{
    static const uint8_t first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t bytes = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (size_t i = bytes; i-- > 1; point >>= 6) to[i] = (char)(0x80 | (point & 0x3f));
    to[0] = (char)(first[bytes] | point);
    return bytes;
}

/* The byte at `from`, or what a backslash and the following stand for, to `to`; returns the place behind it. */
static const char *character_read(const char *from, char to[4], size_t *bytes)
{
    char digits[9] = "";
    bool escaped = *from == '\\' && from[1] && from[1] != '\n';
    from += escaped;
    to[0] = *from;
    *bytes = 1;
    size_t count = escaped && *from == 'u' ? 4 : escaped && *from == 'U' ? 8 : 0;
    from++;
    if (!count || strspn(from, "0123456789ABCDEFabcdef") < count) return from;
    memcpy(digits, from, count);
    unsigned long point = strtoul(digits, NULL, 16);
    *bytes = point_put(point && point < 0x110000 ? (uint32_t)point : 0xfffd, to);
    return from + count;
}

/* Returns the place behind the closing quotation mark. */
static const char *quoted_read(const char *from, char *to, size_t room)
{
    size_t length = 0;
    while (*from && *from != '\n' && *from != '"') {
        char one[4];
        size_t bytes;
        from = character_read(from, one, &bytes);
        if (length + bytes >= room) room = 0; /* cut here */
        if (!room) continue;
        memcpy(to + length, one, bytes);
        length += bytes;
    }
    return from + (*from == '"');
}

bool setting_line_read(const char *line, SettingLine *setting)
{
    static const char mark[] = "# from ";
    size_t all = strcspn(line, "\n"), key = strcspn(line, ":\n");
    memset(setting, 0, sizeof *setting);
    if (!key || *line == '#' || line[key] != ':' || key >= sizeof setting->key) return false;
    memcpy(setting->key, line, key);
    const char *from = line + key + 1 + strspn(line + key + 1, " "), *end = line + all;
    bool quoted = *from == '"';
    if (quoted)
        from = quoted_read(from + 1, setting->value, sizeof setting->value);
    else {
        size_t length = strcspn(from, " \n");
        snprintf(setting->value, sizeof setting->value, "%.*s", (int)length, *from == '#' ? "" : from);
        from += length;
    }
    if (!*setting->value) return false;
    from += strspn(from, " ");
    if (end - from <= (ptrdiff_t)strlen(mark) || strncmp(from, mark, strlen(mark)) != 0) return true;
    from += strlen(mark);
    snprintf(setting->origin, sizeof setting->origin, "%.*s", (int)(end - from), from);
    return true;
}

Status settings_whole(const char *path, const char *text)
{
    if (strstr(text, "\nquiet: ")) return OK; /* what follows it concerns the console only */
    return FAIL(ERR_FORMAT,
                "%s is %s: the run's settings, which end with 'quiet' and others, are lost; restore it from a copy, or "
                "remove it and say with options what matters",
                path, *text ? "cut short" : "empty");
}
