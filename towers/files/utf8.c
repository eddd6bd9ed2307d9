/* Characters of UTF-8, valid and invalid; see utf8.h. */
#include "towers/files/utf8.h"

#include <stdio.h>
#include <string.h>

int32_t utf8_point(const unsigned char **p)
{
    static const int32_t least[] = {0, 0x80, 0x800, 0x10000};
    const unsigned char *at = *p;
    int32_t first = *(*p)++;
    int more = first < 0x80             ? 0
               : (first & 0xe0) == 0xc0 ? 1
               : (first & 0xf0) == 0xe0 ? 2
               : (first & 0xf8) == 0xf0 ? 3
                                        : -1;
    if (!first) return -2;
    if (more < 0) return -1;
    int32_t point = more ? first & (0x3f >> more) : first;
    for (int k = 1; k <= more; k++) {
        if ((at[k] & 0xc0) != 0x80) return -1;
        point = point << 6 | (at[k] & 0x3f);
    }
    bool surrogate = point >= 0xd800 && point < 0xe000;
    if (point < least[more] || point > 0x10ffff || surrogate) return -1;
    *p = at + 1 + more;
    return point;
}

bool utf8_valid(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    int32_t point;
    do point = utf8_point(&p);
    while (point >= 0);
    return point == -2;
}

size_t utf8_mark(const char *text)
{
    static const char mark[] = "\xef\xbb\xbf";
    size_t bytes = strlen(mark);
    return strncmp(text, mark, bytes) ? 0 : bytes;
}

size_t utf8_escape(char *to, size_t room, const char *from)
{
    const unsigned char *at = (const unsigned char *)from, *next = at;
    size_t all = 0, used = 0;
    for (int32_t point; (point = utf8_point(&next)) != -2; at = next) {
        char piece[8];
        size_t bytes = (size_t)(next - at);
        if (point < 0)
            bytes = (size_t)snprintf(piece, sizeof piece, "\\x%02x", *at);
        else
            memcpy(piece, at, bytes);
        if (used == all && all + bytes < room) {
            memcpy(to + used, piece, bytes);
            used += bytes;
        }
        all += bytes;
    }
    if (room) to[used] = 0;
    return all;
}
