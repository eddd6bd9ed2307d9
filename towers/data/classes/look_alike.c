/* Compares names letter by letter; see look_alike.h. A letter is a code point with the combining marks behind it. Korean
 * syllables are composed by Unicode's formula (The Unicode Standard, section 3.12). */
#include "towers/data/classes/look_alike.h"

#include "kernels/base/text.h"
#include "towers/files/utf8.h"

enum { MARKS = 6 };

typedef struct Letter {
    int32_t point; /* -2: the end of the name */
    int32_t mark[MARKS];
    int marks;
    bool odd; /* it, or something before it, is drawn as a blank or not at all */
} Letter;

static bool is_between(int32_t point, int32_t first, int32_t last)
{
    return first <= point && point <= last;
}

static bool is_mark(int32_t point)
{
    return is_between(point, 0x300, 0x36f) || is_between(point, 0x1ab0, 0x1aff) || is_between(point, 0x1dc0, 0x1dff) ||
           is_between(point, 0x20d0, 0x20ff) || point == 0x3099 || point == 0x309a;
}

static bool is_unseen(int32_t point)
{
    return point == 0xad || is_between(point, 0x200b, 0x200f) || point == 0x2060 || point == 0xfeff;
}

static bool is_blank(int32_t point)
{
    return point == ' ' || point == 0xa0 || is_between(point, 0x2000, 0x200a) || point == 0x202f || point == 0x3000;
}

/* The syllable of a first consonant and the vowel and last consonant that follow it. */
static int32_t syllable_take(const unsigned char **at, int32_t first)
{
    enum { CONSONANT = 0x1100, VOWEL = 0x1161, LAST = 0x11a7, SYLLABLE = 0xac00 };
    const unsigned char *next = *at;
    int32_t point = utf8_point(&next);
    if (!is_between(point, VOWEL, VOWEL + 20)) return first;
    int32_t made = SYLLABLE + ((first - CONSONANT) * 21 + (point - VOWEL)) * 28;
    *at = next;
    point = utf8_point(&next);
    if (!is_between(point, LAST + 1, LAST + 27)) return made;
    *at = next;
    return made + point - LAST;
}

/* utf8_point, which stays at the end. */
static int32_t point_next(const unsigned char **at)
{
    return **at ? utf8_point(at) : -2;
}

static Letter letter_next(const unsigned char **at)
{
    Letter letter = {.point = point_next(at)};
    while (is_unseen(letter.point)) {
        letter.odd = true;
        letter.point = point_next(at);
    }
    letter.odd = letter.odd || (is_blank(letter.point) && letter.point != ' ');
    if (is_blank(letter.point)) letter.point = ' ';
    if (is_between(letter.point, 0x1100, 0x1112)) letter.point = syllable_take(at, letter.point);
    const unsigned char *next = *at;
    for (int32_t point; letter.point >= 0 && letter.marks < MARKS && is_mark(point = utf8_point(&next)); *at = next)
        letter.mark[letter.marks++] = point;
    return letter;
}

static int32_t lower(int32_t point)
{
    return is_between(point, 'A', 'Z') ? point - 'A' + 'a' : point;
}

/* "U+0065 U+0301" */
static void points_add(const Letter *letter, Text *to)
{
    text_add(to, "U+%04" PRIX32, letter->point);
    for (int i = 0; i < letter->marks; i++) text_add(to, " U+%04" PRIX32, letter->mark[i]);
}

/* Whether one is the composed form of the other, as far as can be seen: it has fewer marks and is no letter of ASCII. */
static bool is_composed(const Letter *x, const Letter *y)
{
    if (x->point < 0 || y->point < 0 || x->marks == y->marks) return false;
    return (x->marks < y->marks ? x : y)->point >= 0xc0;
}

static bool is_same(const Letter *x, const Letter *y)
{
    return x->point == y->point && x->marks == y->marks &&
           !memcmp(x->mark, y->mark, (size_t)x->marks * sizeof *x->mark);
}

bool look_alike(const char *a, const char *b, char why[ALIKE_BYTES])
{
    const unsigned char *x_at = (const unsigned char *)a, *y_at = (const unsigned char *)b;
    bool cased = false, odd = false;
    Text text = text_start(why, ALIKE_BYTES);
    if (!strcmp(a, b) || !utf8_valid(a) || !utf8_valid(b)) return false;
    for (Letter x = {0}, y = {0}; x.point != -2;) {
        x = letter_next(&x_at);
        y = letter_next(&y_at);
        while (x.point == ' ' && y.point != ' ') x = letter_next(&x_at), odd = true;
        while (y.point == ' ' && x.point != ' ') y = letter_next(&y_at), odd = true;
        odd = odd || x.odd || y.odd;
        if (is_same(&x, &y)) continue;
        if (!x.marks && !y.marks && lower(x.point) == lower(y.point)) {
            cased = true;
            continue;
        }
        if (!is_composed(&x, &y)) return false;
        if (text.used) continue;
        text_add(&text, "a letter is ");
        points_add(&x, &text);
        text_add(&text, " in the first and ");
        points_add(&y, &text);
        text_add(&text, " in the second, once composed and once with its accent apart (Unicode's forms NFC and NFD)");
    }
    if (text.used) return true;
    text_add(&text, "%s",
             cased && odd ? "they differ in upper and lower case, and in blanks or characters that are not seen"
             : cased      ? "they differ in upper and lower case"
             : odd        ? "they differ in blanks or characters that are not seen"
                   : "the same syllables are composed in one and not in the other (Unicode's forms NFC and NFD)");
    return true;
}

bool look_alike_seen(const char *name, char *seen, size_t bytes)
{
    size_t used = 0;
    const unsigned char *at = (const unsigned char *)name;
    while (*at) {
        const unsigned char *from = at;
        int32_t point = utf8_point(&at);
        size_t length = (size_t)(at - from);
        if (is_unseen(point) || is_blank(point)) continue;
        if (used + length >= bytes) return false;
        memcpy(seen + used, from, length);
        used += length;
    }
    seen[used] = 0;
    return true;
}

uint64_t look_alike_hash(const char *name)
{
    uint64_t hash = 0;
    const unsigned char *at = (const unsigned char *)name;
    for (Letter x = letter_next(&at); x.point != -2; x = letter_next(&at)) {
        bool alone = !x.marks && (x.point < 0xc0 || is_between(x.point, 0x3400, 0x9fff)); /* the rest may be composed */
        if (x.point != ' ') hash = (hash ^ (uint64_t)(alone ? lower(x.point) : 0)) * UINT64_C(0x9e3779b97f4a7c15) + 1;
    }
    return hash;
}
