/* Elements of XML; see elements.h. */
#include "towers/remote/elements.h"

const char *element_find(const char *at, const char *end, const char *name, size_t *bytes)
{
    char open[32], close[32];
    snprintf(open, sizeof open, "<%s>", name);
    snprintf(close, sizeof close, "</%s>", name);
    const char *begin = strstr(at, open), *behind = begin ? strstr(begin, close) : NULL;
    if (!behind || behind > end) return NULL;
    begin += strlen(open);
    *bytes = (size_t)(behind - begin);
    return begin;
}

static int code_print(unsigned long code, char *to)
{
    if (code < 0x80) return to[0] = (char)code, 1;
    if (code < 0x800) return to[0] = (char)(0xc0 | code >> 6), to[1] = (char)(0x80 | (code & 63)), 2;
    to[0] = (char)(0xe0 | code >> 12);
    to[1] = (char)(0x80 | (code >> 6 & 63));
    to[2] = (char)(0x80 | (code & 63));
    if (code < 0x10000) return 3;
    to[0] = (char)(0xf0 | code >> 18);
    to[1] = (char)(0x80 | (code >> 12 & 63));
    to[2] = (char)(0x80 | (code >> 6 & 63));
    to[3] = (char)(0x80 | (code & 63));
    return 4;
}

/* "&amp;", "&#233;", "&#xE9;": returns the bytes that it takes, 0 if it is none. */
static size_t entity_take(const char *at, const char *end, char *to, size_t *count)
{
    static const struct {
        const char *name;
        char is;
    } named[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        if (strncmp(at, named[i].name, strlen(named[i].name)) != 0) continue;
        to[(*count)++] = named[i].is;
        return strlen(named[i].name);
    }
    if (end - at < 4 || at[1] != '#') return 0;
    bool hexadecimal = at[2] == 'x';
    const char *digits = at + 2 + hexadecimal;
    size_t length = strspn(digits, hexadecimal ? "0123456789abcdefABCDEF" : "0123456789");
    if (length == 0 || length > 7 || digits[length] != ';') return 0;
    unsigned long code = strtoul(digits, NULL, hexadecimal ? 16 : 10);
    if (code == 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return 0;
    *count += (size_t)code_print(code, to + *count);
    return (size_t)(digits - at) + length + 1;
}

bool element_text(const char *at, size_t bytes, char *to, size_t room)
{
    size_t count = 0;
    if (bytes >= room) return false;
    for (const char *end = at + bytes; at < end;) {
        size_t taken = *at == '&' ? entity_take(at, end, to, &count) : 1;
        if (!taken) return false;
        if (*at != '&') to[count++] = *at;
        at += taken;
    }
    to[count] = 0;
    return true;
}
