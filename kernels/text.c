/* Bounded texts; see text.h. */
#include "kernels/text.h"

#include <stdlib.h>
#include <string.h>

Text text_start(char *buffer, size_t bytes)
{
    if (bytes) buffer[0] = 0;
    return (Text){.at = buffer, .bytes = bytes};
}

Text text_behind(char *buffer, size_t bytes)
{
    size_t used = strnlen(buffer, bytes);
    if (used && used == bytes) buffer[--used] = 0;
    return (Text){.at = buffer, .bytes = bytes, .used = used};
}

void text_vadd(Text *text, const char *format, va_list args)
{
    size_t left = text->bytes - text->used;
    if (text->truncated || left == 0) {
        text->truncated = true;
        return;
    }
    int count = vsnprintf(text->at + text->used, left, format, args);
    if (count < 0) {
        text->at[text->used] = 0;
        text->truncated = true;
    } else if ((size_t)count < left) {
        text->used += (size_t)count;
    } else {
        text->used = text->bytes - 1;
        text->truncated = true;
    }
}

void text_add(Text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    text_vadd(text, format, args);
    va_end(args);
}

void text_real(double value, char *text, size_t bytes)
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, bytes, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
}

void text_print(FILE *to, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        bool second = p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0; /* U+0080 to U+009F in UTF-8 */
        if ((*p < 0x20 && *p != '\n' && *p != '\t') || *p == 0x7f)
            fprintf(to, "\\x%02x", *p);
        else if (second)
            fprintf(to, "\\x%02x\\x%02x", p[0], p[1]);
        else
            fputc(*p, to);
        p += second;
    }
}
