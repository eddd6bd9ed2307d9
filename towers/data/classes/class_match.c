/* Comparing the classes of two sides; see class_match.h. Names are sorted, so that 65,536 of them take no time, and compared
 * as records have them, where bytes that are not UTF-8 are written as \xNN. */
#include "towers/data/classes/class_match.h"

#include "kernels/base/text.h"
#include "towers/data/classes/look_alike.h"
#include "towers/files/utf8.h"

/* ---- one side */

typedef enum Naming { NAMES_NONE, NAMES_SOME, NAMES_NUMBERS, NAMES_WORDS } Naming;

static const char *name_of(const ClassList *list, int class)
{
    return list->names && list->names[class] ? list->names[class] : "";
}

static bool is_used(const ClassList *list, int class)
{
    return !list->used || list->used[class];
}

/* The number that a name is, in digits alone; -1 for other names. */
static int32_t number_of(const char *name)
{
    enum { DIGITS_MOST = 9 };
    size_t digits = strspn(name, "0123456789");
    return digits && !name[digits] && digits <= DIGITS_MOST ? (int32_t)strtol(name, NULL, 10) : -1;
}

/* A number in digits without leading zeros. */
static const char *number_name(const char *name)
{
    size_t zeros = strspn(name, "0");
    return name + zeros - (name[zeros] == 0);
}

/* Of the classes that have samples. */
static Naming naming_of(const ClassList *list)
{
    int used = 0, named = 0, numbers = 0;
    for (int i = 0; i < list->count; i++) {
        if (!is_used(list, i)) continue;
        used++;
        named += *name_of(list, i) != 0;
        numbers += number_of(name_of(list, i)) >= 0;
    }
    if (!named) return NAMES_NONE;
    return named < used ? NAMES_SOME : numbers == used ? NAMES_NUMBERS : NAMES_WORDS;
}

void class_names_text(const char *const *names, int count, Text *to)
{
    enum { SHOWN = 8 };
    for (int i = 0; i < count && i < SHOWN; i++) text_add(to, "%s%s", i ? ", " : "", names[i]);
    if (count > SHOWN) text_add(to, " and %d more", count - SHOWN);
}

int class_of_word(const ClassList *list, const char *word)
{
    for (int i = 0; i < list->count; i++)
        if (*name_of(list, i) && !strcmp(name_of(list, i), word)) return i;
    int32_t number = naming_of(list) == NAMES_NUMBERS ? -1 : number_of(word);
    return number < list->count ? number : -1;
}

/* ---- names on both sides */

typedef struct NamedClass {
    char *name; /* owned */
    int32_t class;
} NamedClass;

typedef struct NamedClasses {
    NamedClass *at; /* owned: sorted by name, then by class */
    int count;
} NamedClasses;

static int by_name(const void *a, const void *b)
{
    const NamedClass *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->class > y->class) - (x->class < y->class);
}

static int by_name_alone(const void *a, const void *b)
{
    return strcmp(((const NamedClass *)a)->name, ((const NamedClass *)b)->name);
}

static void named_free(NamedClasses *named)
{
    for (int i = 0; i < named->count; i++) free(named->at[i].name);
    free(named->at);
}

/* `numbers`: names are numbers, and compared as such. */
static Status named_make(const ClassList *list, bool numbers, NamedClasses *named)
{
    named->at = calloc((size_t)list->count + 1, sizeof *named->at);
    if (!named->at) return FAIL(ERR_MEMORY, "no memory for the names of %d classes", list->count);
    for (int i = 0; i < list->count; i++) {
        const char *name = name_of(list, i);
        if (!*name) continue;
        if (numbers) name = number_name(name);
        size_t bytes = utf8_escape(NULL, 0, name) + 1;
        NamedClass *one = &named->at[named->count];
        *one = (NamedClass){malloc(bytes), i};
        if (!one->name) return FAIL(ERR_MEMORY, "no memory for the names of %d classes", list->count);
        utf8_escape(one->name, bytes, name);
        named->count++;
    }
    qsort(named->at, (size_t)named->count, sizeof *named->at, by_name);
    return OK;
}

/* The end of the classes that share the name of the first. */
static int group_end(const NamedClasses *named, int first)
{
    int end = first;
    while (end < named->count && !strcmp(named->at[end].name, named->at[first].name)) end++;
    return end;
}

/* *torn: a used class whose name one side has several times and the other another number of times, or -1. */
static void groups_pair(const ClassList *of, const NamedClasses *own, const NamedClasses *other, int32_t *map,
                        int *torn)
{
    int at = 0;
    for (int first = 0, end; first < own->count; first = end) {
        end = group_end(own, first);
        while (at < other->count && strcmp(other->at[at].name, own->at[first].name) < 0) at++;
        bool found = at < other->count && !strcmp(other->at[at].name, own->at[first].name);
        int count = found ? group_end(other, at) - at : 0;
        for (int i = first; i < end && count; i++) {
            bool pairs = count == end - first;
            if (pairs) map[own->at[i].class] = other->at[at + i - first].class;
            if (!pairs && is_used(of, own->at[i].class)) *torn = own->at[i].class;
        }
    }
}

/* A name of the other side that looks the same, as a part of a sentence. */
static void alike_add(const ClassList *among, const char *name, Text *to)
{
    char why[ALIKE_BYTES];
    for (int i = 0; i < among->count; i++) {
        if (!look_alike(name, name_of(among, i), why)) continue;
        text_add(to, "; '%s' there looks the same: %s", name_of(among, i), why);
        return;
    }
}

static Status lacks(const ClassList *of, const ClassList *among, int class)
{
    char text[1024];
    Text known = text_start(text, sizeof text);
    class_names_text(among->names, among->count, &known);
    alike_add(among, name_of(of, class), &known);
    return FAIL(ERR_FORMAT, "%s has a class '%s' that is missing in %s, whose %d classes are %s", of->whose,
                name_of(of, class), among->whose, among->count, text);
}

/* *found: how many used classes have a name of the other side. */
static Status names_pair(const ClassList *of, const ClassList *among, bool numbers, int32_t *map, int *found)
{
    Status st = OK;
    NamedClasses own = {0}, other = {0};
    int torn = -1;
    TRY_OUT(named_make(of, numbers, &own));
    TRY_OUT(named_make(among, numbers, &other));
    groups_pair(of, &own, &other, map, &torn);
    if (torn >= 0)
        TRY_OUT(FAIL(ERR_FORMAT,
                     "several classes have the name '%s', in %s another number of them than in %s: give each class a "
                     "name of its own",
                     name_of(of, torn), of->whose, among->whose));
    *found = 0;
    for (int i = 0; i < of->count; i++) *found += map[i] >= 0 && is_used(of, i);
out:
    named_free(&own);
    named_free(&other);
    return st;
}

static Status all_found(const ClassList *of, const ClassList *among, const int32_t *map)
{
    for (int i = 0; i < of->count; i++)
        if (map[i] < 0 && is_used(of, i)) return lacks(of, among, i);
    return OK;
}

/* ---- labels */

/* Two names for one label, "1" and "01". */
static Status labels_check(const ClassList *of, const ClassList *among, const int32_t *map)
{
    bool *taken = calloc((size_t)among->count + 1, sizeof *taken);
    int twice = -1;
    if (!taken) return FAIL(ERR_MEMORY, "no memory for the labels of %d classes", among->count);
    for (int i = 0; i < of->count; i++) {
        if (!is_used(of, i)) continue;
        if (taken[map[i]]) twice = i;
        taken[map[i]] = true;
    }
    free(taken);
    return twice < 0 ? OK
                     : FAIL(ERR_FORMAT, "two classes of %s are named by the number %" PRId32 ": give each its own",
                            of->whose, number_of(name_of(of, twice)));
}

/* The classes of `of` are named by numbers: labels of the other side. */
static Status by_numbers(const ClassList *of, const ClassList *among, int32_t *map, Text *remark)
{
    int32_t first = among->origin == FIRST_UNKNOWN ? 0 : among->first, least = INT32_MAX, most = -1;
    for (int i = 0; i < of->count; i++) {
        int32_t number = number_of(name_of(of, i));
        if (!is_used(of, i)) continue;
        if (number < least) least = number;
        if (number > most) most = number;
        map[i] = number - first;
    }
    if (least < first || most - first >= among->count)
        return FAIL(ERR_ARG,
                    "the classes of %s are named by the numbers %" PRId32 " to %" PRId32 ", but %s has the labels "
                    "%" PRId32 " to %" PRId32 "%s: rename them by these labels, or, if the first class (as towers data "
                    "info lists them) is the first of %s and so on, give --match-classes number",
                    of->whose, least, most, among->whose, first, first + among->count - 1,
                    among->origin == FIRST_UNKNOWN ? " (it does not say with which it begins: 0 is taken)" : "",
                    among->whose);
    TRY(labels_check(of, among, map));
    if (remark)
        text_add(remark,
                 "the classes of %s, named by the numbers %" PRId32 " to %" PRId32 ", are the classes with these "
                 "numbers of %s, which has %d",
                 of->whose, least, most, among->whose, among->count);
    return OK;
}

/* The other way round: the labels of `of` are the names of the other side. */
static Status by_named_numbers(const ClassList *of, const ClassList *among, int32_t *map, Text *remark)
{
    Status st = OK;
    NamedClasses other = {0};
    TRY_OUT(named_make(among, true, &other));
    for (int i = 0; i < of->count; i++) {
        char name[16];
        snprintf(name, sizeof name, "%" PRId32, i + of->first);
        const NamedClass wanted = {name, 0},
                         *found = bsearch(&wanted, other.at, (size_t)other.count, sizeof *other.at, by_name_alone);
        map[i] = found ? found->class : -1;
        if (!found && is_used(of, i))
            TRY_OUT(FAIL(ERR_FORMAT,
                         "%s has the label %s, but no class of %s, which are named by numbers, has this name",
                         of->whose, name, among->whose));
    }
    if (remark)
        text_add(remark, "the labels of %s are the names of the classes of %s, which are numbers", of->whose,
                 among->whose);
out:
    named_free(&other);
    return st;
}

static Status firsts_differ(const ClassList *of, const ClassList *among)
{
    int32_t own = of->first, other = among->first;
    if (among->origin == FIRST_UNKNOWN)
        return FAIL(ERR_ARG,
                    "the labels of %s, which are numbers only, seem to begin with %" PRId32 ", and %s, which has %d "
                    "classes, does not say with which label those of its training began: give --label-base 0 or 1",
                    of->whose, own, among->whose, among->count);
    return FAIL(ERR_ARG,
                "the labels of %s, which are numbers only, %s with %" PRId32 ", but those of the training began with "
                "%" PRId32 ": give --label-base %" PRId32 ", or %" PRId32 " if they do begin so; or, where the first "
                "class is the first, --match-classes number",
                of->whose, of->origin == FIRST_GUESSED ? "seem to begin" : "begin", own, other, other, own);
}

/* Class i is class i. */
static Status by_place(const ClassList *of, const ClassList *among, int32_t *map)
{
    for (int i = 0; i < of->count; i++) {
        map[i] = i < among->count ? i : -1;
        if (map[i] < 0 && is_used(of, i))
            return FAIL(ERR_FORMAT, "%s has samples of class %d (label %" PRId32 "), but %s has %d classes", of->whose,
                        i, i + of->first, among->whose, among->count);
    }
    return OK;
}

/* Whether equal places in both lists are equal labels. */
static bool labels_agree(const ClassList *of, const ClassList *among)
{
    if (of->origin == FIRST_UNKNOWN) return false;
    if (among->origin != FIRST_UNKNOWN) return of->first == among->first;
    return of->first == 0 || of->origin == FIRST_KNOWN || of->count == among->count; /* others would leave the range */
}

static Status by_labels(const ClassList *of, const ClassList *among, int32_t *map, Text *remark)
{
    if (!labels_agree(of, among)) return firsts_differ(of, among);
    if (remark && among->origin == FIRST_UNKNOWN)
        text_add(remark,
                 "neither %s nor %s names its classes, and %s does not say with which label they begin: the first "
                 "class of one is taken for the first of the other",
                 of->whose, among->whose, among->whose);
    return by_place(of, among, map);
}

/* ---- both */

/* The same names at the same places, and where both have none, the same labels. */
static bool lists_agree(const ClassList *of, const ClassList *among)
{
    bool named = true;
    for (int i = 0; i < of->count; i++) {
        if (!is_used(of, i)) continue;
        char name[1024];
        if (i >= among->count) return false;
        if (utf8_escape(name, sizeof name, name_of(of, i)) >= sizeof name) return false;
        if (strcmp(name, name_of(among, i)) != 0 && strcmp(name_of(of, i), name_of(among, i)) != 0) return false;
        named = named && *name;
    }
    return named || (among->origin != FIRST_UNKNOWN && labels_agree(of, among));
}

static void side_add(const ClassList *list, Naming naming, Text *to)
{
    text_add(to, "%s has ", list->whose);
    if (naming == NAMES_NONE) text_add(to, "no names of classes");
    if (naming == NAMES_SOME) text_add(to, "names of some classes only");
    if (naming != NAMES_NONE && naming != NAMES_SOME) {
        text_add(to, "the classes ");
        class_names_text(list->names, list->count, to);
    }
}

static Status one_sided(const ClassList *of, Naming own, const ClassList *among, Naming other)
{
    char text[1024];
    Text sides = text_start(text, sizeof text);
    side_add(of, own, &sides);
    text_add(&sides, ", but ");
    side_add(among, other, &sides);
    return FAIL(ERR_ARG,
                "%s: it is not known which of them are the same. Name them on both sides (shards and IDX files by a "
                "file classes.txt), or, if the first class of one is the first of the other and so on, give "
                "--match-classes number",
                text);
}

Status class_match(const ClassList *of, const ClassList *among, ClassRule rule, int32_t *map, Text *remark)
{
    Naming own = naming_of(of), other = naming_of(among);
    for (int i = 0; i < of->count; i++) map[i] = -1;
    if (rule == CLASSES_NUMBERED || lists_agree(of, among)) return by_place(of, among, map);
    if (own == NAMES_NONE && other == NAMES_NONE) return by_labels(of, among, map, remark);
    bool named = own >= NAMES_NUMBERS && other >= NAMES_NUMBERS,
         numbers = own == NAMES_NUMBERS && rule == CLASSES_NAMED;
    int found = 0;
    if (named) TRY(names_pair(of, among, numbers && other == NAMES_NUMBERS, map, &found));
    if (named && (found || !numbers || other == NAMES_NUMBERS)) return all_found(of, among, map);
    if (numbers && other != NAMES_SOME) return by_numbers(of, among, map, remark);
    if (rule == CLASSES_NAMED && own == NAMES_NONE && other == NAMES_NUMBERS)
        return by_named_numbers(of, among, map, remark);
    return one_sided(of, own, among, other);
}

/* ---- one list */

typedef struct HashedClass {
    uint64_t hash;
    int32_t class;
    bool alike;
} HashedClass;

static int by_hash(const void *a, const void *b)
{
    const HashedClass *x = a, *y = b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    return (x->class > y->class) - (x->class < y->class);
}

enum { PLAIN_BYTES = 64 };

/* A decimal number as short as it can be written, "-1.5" for " -01.50": an integer became 1.0 when another program read a column with
 * gaps. False: the name is no such number. */
static bool number_plain(const char *name, char plain[PLAIN_BYTES])
{
    const char *digits = "0123456789", *begin = name + strspn(name, " ");
    bool negative = *begin == '-';
    begin += negative || *begin == '+';
    size_t whole = strspn(begin, digits), point = begin[whole] == '.';
    const char *fraction = begin + whole + point;
    size_t part = point ? strspn(fraction, digits) : 0, zeros = strspn(begin, "0");
    if (whole + part == 0 || whole + part > PLAIN_BYTES - 8 || fraction[part + strspn(fraction + part, " ")])
        return false;
    while (part && fraction[part - 1] == '0') part--;
    bool none = zeros == whole; /* before the point */
    snprintf(plain, PLAIN_BYTES, "%s%.*s%s%.*s", negative && !(none && !part) ? "-" : "",
             none ? 1 : (int)(whole - zeros), none ? "0" : begin + zeros, part ? "." : "", (int)part, fraction);
    return true;
}

static bool names_alike(const char *a, const char *b, char why[ALIKE_BYTES])
{
    if (!*a || !*b) return false; /* a class without a name is none that a blank looks like */
    if (!strcmp(a, b)) {
        snprintf(why, ALIKE_BYTES, "they are equal");
        return true;
    }
    if (look_alike(a, b, why)) return true;
    char x[PLAIN_BYTES], y[PLAIN_BYTES];
    if (!number_plain(a, x) || !number_plain(b, y) || strcmp(x, y) != 0) return false;
    snprintf(why, ALIKE_BYTES, "both are the number %s", x);
    return true;
}

/* Compare the classes of one hash. The first pair is that of the least class. */
static void bucket_compare(const ClassList *list, HashedClass *of, int count, int pair[2], char why[ALIKE_BYTES])
{
    char found[ALIKE_BYTES];
    for (int i = 0; i < count; i++)
        for (int k = i + 1; k < count; k++) {
            if (!names_alike(name_of(list, of[i].class), name_of(list, of[k].class), found)) continue;
            of[i].alike = of[k].alike = true;
            if (pair[0] >= 0 && of[i].class >= pair[0]) continue;
            pair[0] = of[i].class;
            pair[1] = of[k].class;
            memcpy(why, found, ALIKE_BYTES);
        }
}

Status classes_alike(const ClassList *list, int *count, int *left_out, int pair[2], char *why)
{
    enum { BUCKET_MOST = 1024 /* of one length in letters with accents: to compare more would take seconds */ };
    HashedClass *hashed = calloc((size_t)list->count + 1, sizeof *hashed);
    if (!hashed) return FAIL(ERR_MEMORY, "no memory for the names of %d classes", list->count);
    for (int i = 0; i < list->count; i++) {
        char plain[PLAIN_BYTES], seen[PLAIN_BYTES];
        const char *name = name_of(list, i);
        if (look_alike_seen(name, seen, sizeof seen) && number_plain(seen, plain)) name = plain;
        hashed[i] = (HashedClass){look_alike_hash(name), i, false};
    }
    qsort(hashed, (size_t)list->count, sizeof *hashed, by_hash);
    *count = *left_out = 0;
    pair[0] = pair[1] = -1;
    for (int first = 0, end; first < list->count; first = end) {
        for (end = first + 1; end < list->count && hashed[end].hash == hashed[first].hash;) end++;
        if (end - first > BUCKET_MOST) *left_out += end - first;
        if (end - first <= BUCKET_MOST) bucket_compare(list, hashed + first, end - first, pair, why);
        for (int i = first; i < end; i++) *count += hashed[i].alike;
    }
    free(hashed);
    return OK;
}
