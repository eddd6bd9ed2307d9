/* Bounded texts; see text.h. */
#include "kernels/text.h"

#include <stdio.h>
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
