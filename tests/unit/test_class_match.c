/* What the classes of one side are on another (class_match.h), for everything that either side may know: names, numbers as
 * names, nothing; and names that look the same. */
#include "towers/data/classes/class_match.h"

#include "kernels/base/text.h"
#include "tests/support/unit.h"
#include "towers/data/classes/look_alike.h"

enum { MOST = 16 };

/* "a b  c" is three classes, the second of "a  c" has no name. */
typedef struct Side {
    char text[256];
    const char *names[MOST];
    bool used[MOST];
    ClassList list;
} Side;

static const ClassList *side(Side *s, const char *whose, const char *names, int32_t first, FirstLabel origin)
{
    *s = (Side){.list = {.whose = whose, .names = s->names, .used = s->used, .first = first, .origin = origin}};
    snprintf(s->text, sizeof s->text, "%s", names);
    for (char *at = s->text; at;) {
        s->names[s->list.count] = at;
        s->used[s->list.count++] = true;
        at = strchr(at, ',');
        if (at) *at++ = 0;
    }
    return &s->list;
}

/* "0 2 -1" */
static void matched(const ClassList *of, const ClassList *among, ClassRule rule, const char *wanted, const char *remark)
{
    int32_t map[MOST];
    char text[256], said[1024] = "";
    Text found = text_start(text, sizeof text), remarks = text_start(said, sizeof said);
    if (class_match(of, among, rule, map, &remarks) != OK) fail_msg("%s", status_message());
    for (int i = 0; i < of->count; i++) text_add(&found, "%s%" PRId32, i ? " " : "", map[i]);
    assert_string_equal(text, wanted);
    if (!!*remark != !!*said || !strstr(said, remark)) fail_msg("the remark is '%s'", said);
}

static void refused(const ClassList *of, const ClassList *among, ClassRule rule, Status code, const char *why)
{
    int32_t map[MOST];
    assert_fails(class_match(of, among, rule, map, NULL), code, why);
}

TEST(test_names)
{
    Side a, b;
    const ClassList *network = side(&b, "the network", "ant,bee,cow,dog", 0, FIRST_UNKNOWN);
    matched(side(&a, "val", "ant,bee,cow,dog", 0, FIRST_KNOWN), network, CLASSES_NAMED, "0 1 2 3", "");
    matched(side(&a, "val", "dog,bee", 1, FIRST_GUESSED), network, CLASSES_NAMED, "3 1", "");
    matched(&a.list, network, CLASSES_SPELLED, "3 1", "");
    matched(&a.list, network, CLASSES_NUMBERED, "0 1", "");
    refused(side(&a, "val", "dog,fox", 0, FIRST_KNOWN), network, CLASSES_NAMED, ERR_FORMAT,
            "val has a class 'fox' that is missing in the network, whose 4 classes are ant, bee, cow, dog");
    a.used[1] = false; /* without samples it may be missing */
    matched(&a.list, network, CLASSES_NAMED, "3 -1", "");
    /* the network's names are in the form of records */
    side(&b, "the network", "a\\xff,b", 0, FIRST_KNOWN);
    matched(side(&a, "val", "b,a\xff", 0, FIRST_KNOWN), &b.list, CLASSES_NAMED, "1 0", "");
    /* names of several classes */
    side(&b, "the network", "crane,maillot,crane", 0, FIRST_KNOWN);
    matched(side(&a, "val", "crane,crane,maillot", 0, FIRST_KNOWN), &b.list, CLASSES_NAMED, "0 2 1", "");
    matched(side(&a, "val", "crane", 0, FIRST_KNOWN), &b.list, CLASSES_NAMED, "0", ""); /* at the same place */
    refused(side(&a, "val", "maillot,crane", 0, FIRST_KNOWN), &b.list, CLASSES_NAMED, ERR_FORMAT,
            "several classes have the name 'crane', in val another number of them than in the network");
    refused(side(&a, "val", "ant,bee,cow,dog", 0, FIRST_KNOWN), &b.list, CLASSES_NUMBERED, ERR_FORMAT,
            "val has samples of class 3 (label 3), but the network has 3 classes");
}

TEST(test_names_on_one_side)
{
    Side a, b;
    side(&a, "val", "ant,bee", 0, FIRST_KNOWN);
    refused(&a.list, side(&b, "the network", ",,,", 0, FIRST_UNKNOWN), CLASSES_NAMED, ERR_ARG,
            "val has the classes ant, bee, but the network has no names of classes: it is not known");
    refused(&b.list, &a.list, CLASSES_NAMED, ERR_ARG, "the network has no names of classes, but val has the classes");
    refused(&b.list, &a.list, CLASSES_SPELLED, ERR_ARG, "--match-classes number");
    matched(&a.list, &b.list, CLASSES_NUMBERED, "0 1", "");
    refused(&a.list, side(&b, "the network", "ant,,cow", 0, FIRST_KNOWN), CLASSES_NAMED, ERR_ARG,
            "the network has names of some classes only");
    matched(side(&a, "val", "ant,,cow", 0, FIRST_KNOWN), &b.list, CLASSES_SPELLED, "0 1 2", ""); /* as they are there */
    side(&a, "val", "cow,,ant", 0, FIRST_KNOWN);
    a.used[1] = b.used[1] = false;
    matched(&a.list, &b.list, CLASSES_SPELLED, "2 -1 0", "");
}

/* Folders named by numbers, in the order of their bytes. */
TEST(test_numbers_as_names)
{
    static const char folders[] = "0,1,10,11,2,3,4,5,6,7,8,9", labels[] = "0 1 10 11 2 3 4 5 6 7 8 9";
    Side a, b;
    side(&a, "v2", folders, 0, FIRST_KNOWN);
    matched(&a.list, side(&b, "the network", ",,,,,,,,,,,", 0, FIRST_UNKNOWN), CLASSES_NAMED, labels,
            "the classes of v2, named by the numbers 0 to 11, are the classes with these numbers");
    matched(&a.list, side(&b, "the network", "a,b,c,d,e,f,g,h,i,j,k,l", 0, FIRST_UNKNOWN), CLASSES_NAMED, labels,
            "numbers");
    matched(&a.list, side(&b, "the network", "00,01,02,03,04,05,06,07,08,09,10,11", 0, FIRST_KNOWN), CLASSES_NAMED,
            labels, "");
    matched(&b.list, &a.list, CLASSES_NAMED, "0 1 4 5 6 7 8 9 10 11 2 3", "");
    refused(&a.list, &b.list, CLASSES_SPELLED, ERR_FORMAT, "has a class '0' that is missing");
    /* some of them; a name of the other side that is a number; labels that begin with 1 */
    matched(side(&a, "v2", "10,5", 0, FIRST_KNOWN), side(&b, "the network", ",,,,,,,,,,,", 0, FIRST_UNKNOWN),
            CLASSES_NAMED, "10 5", "numbers");
    matched(side(&a, "v2", "7", 0, FIRST_KNOWN), side(&b, "the network", "4711,7,cola", 0, FIRST_KNOWN), CLASSES_NAMED,
            "1", "");
    matched(side(&a, "v2", "1,12,2", 0, FIRST_KNOWN), side(&b, "the network", ",,,,,,,,,,,", 1, FIRST_KNOWN),
            CLASSES_NAMED, "0 11 1", "numbers");
    refused(&a.list, side(&b, "the network", ",,,,,,,,,,,", 0, FIRST_UNKNOWN), CLASSES_NAMED, ERR_ARG,
            "named by the numbers 1 to 12, but the network has the labels 0 to 11 (it does not say with which it "
            "begins: 0 is taken)");
    refused(side(&a, "v2", "0,1", 0, FIRST_KNOWN), side(&b, "the network", ",,", 1, FIRST_KNOWN), CLASSES_NAMED,
            ERR_ARG, "has the labels 1 to 3");
    matched(&a.list, &b.list, CLASSES_NUMBERED, "0 1", "");
    refused(side(&a, "v2", "1,01", 0, FIRST_KNOWN), &b.list, CLASSES_NAMED, ERR_FORMAT,
            "two classes of v2 are named by the number 1");
    /* labels without names of a network whose classes are named by numbers */
    side(&b, "the network", folders, 0, FIRST_KNOWN);
    matched(side(&a, "idx", ",,", 0, FIRST_KNOWN), &b.list, CLASSES_NAMED, "0 1 4",
            "names of the classes of the network, which are numbers");
    matched(side(&a, "records", ",", 1, FIRST_GUESSED), &b.list, CLASSES_NAMED, "1 4", "numbers");
    refused(side(&a, "idx", ",,,,,,,,,,,,", 0, FIRST_KNOWN), &b.list, CLASSES_NAMED, ERR_FORMAT,
            "has the label 12, but no class of the network");
    /* numbers and words have nothing in common */
    refused(side(&a, "val", "zero,one", 0, FIRST_KNOWN), &b.list, CLASSES_NAMED, ERR_FORMAT, "has a class 'zero'");
}

TEST(test_labels)
{
    Side a, b;
    const ClassList *network = side(&b, "the network", ",,", 0, FIRST_KNOWN);
    matched(side(&a, "val", ",", 0, FIRST_KNOWN), network, CLASSES_NAMED, "0 1", "");
    refused(side(&a, "val", ",,,", 0, FIRST_KNOWN), network, CLASSES_NAMED, ERR_FORMAT,
            "has samples of class 3 (label 3), but the network has 3");
    refused(side(&a, "val", ",", 1, FIRST_GUESSED), network, CLASSES_NAMED, ERR_ARG,
            "the labels of val, which are numbers only, seem to begin with 1, but those of the training began with 0: "
            "give --label-base 0, or 1 if");
    matched(&a.list, network, CLASSES_NUMBERED, "0 1", "");
    network = side(&b, "the network", ",,", 1, FIRST_KNOWN);
    matched(&a.list, network, CLASSES_NAMED, "0 1", "");
    refused(side(&a, "val", ",,", 0, FIRST_KNOWN), network, CLASSES_NAMED, ERR_ARG,
            "begin with 0, but those of the training began with 1");
    /* weights that do not say with which label they begin */
    network = side(&b, "the network", ",,", 0, FIRST_UNKNOWN);
    matched(side(&a, "val", ",", 0, FIRST_KNOWN), network, CLASSES_NAMED, "0 1",
            "the first class of one is taken for the first");
    refused(side(&a, "val", ",", 1, FIRST_GUESSED), network, CLASSES_NAMED, ERR_ARG,
            "seem to begin with 1, and the network, which has 3 classes, does not say with which label");
    matched(side(&a, "val", ",,", 1, FIRST_GUESSED), network, CLASSES_NAMED, "0 1 2",
            "taken"); /* from 0 there would be too many */
}

TEST(test_words)
{
    Side s;
    const ClassList *list = side(&s, "", "ant,7,cow", 0, FIRST_KNOWN);
    assert_int_equal(class_of_word(list, "cow"), 2);
    assert_int_equal(class_of_word(list, "7"), 1);
    assert_int_equal(class_of_word(list, "0"), 0);
    assert_int_equal(class_of_word(list, "3"), -1);
    assert_int_equal(class_of_word(list, "ox"), -1);
    list = side(&s, "", "1,10,2", 0, FIRST_KNOWN); /* where numbers are names, no other numbers are meant */
    assert_int_equal(class_of_word(list, "2"), 2);
    assert_int_equal(class_of_word(list, "0"), -1);
}

static void alike(const char *a, const char *b, const char *why)
{
    char found[ALIKE_BYTES];
    bool same = look_alike(a, b, found);
    if (same && look_alike_hash(a) != look_alike_hash(b)) fail_msg("'%s' and '%s' have other hashes", a, b);
    if (same != (why != NULL)) fail_msg("'%s' and '%s' look %s", a, b, same ? "the same" : "different");
    if (why && !strstr(found, why)) fail_msg("no '%s' in '%s'", why, found);
}

TEST(test_look_alike)
{
    alike("cafe\xcc\x81", "caf\xc3\xa9", "a letter is U+0065 U+0301 in the first and U+00E9 in the second");
    alike("caf\xc3\xa9", "cafe\xcc\x81", "NFC and NFD");
    alike("\xe1\xba\xbf", "\xc3\xaa\xcc\x81", "U+1EBF in the first and U+00EA U+0301");         /* half composed */
    alike("\xea\xb0\x81", "\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", "syllables are composed");    /* Hangul */
    alike("\xea\xb0\x81", "\xe1\x84\x80\xe1\x85\xa1", NULL);                                    /* another syllable */
    alike("\xe3\x81\x8c", "\xe3\x81\x8b\xe3\x82\x99", "U+304C in the first and U+304B U+3099"); /* kana */
    alike("Cat", "cat", "upper and lower case");
    alike("cat ", "cat", "blanks");
    alike("a\xc2\xa0pie", "a pie", "not seen");
    alike("cat\xe2\x80\x8b", "cat", "not seen");
    alike("cat", "cat", NULL);
    alike("cat", "car", NULL);
    alike("cat", "cats", NULL);
    alike("caf\xc3\xa9", "cafe", NULL); /* an accent more is another word */
    alike("\xe7\x8c\xab", "\xe7\x8a\xac", NULL);
    alike("cat\xff", "cat", NULL);
    Side a, b;
    refused(side(&a, "val", "tea,caf\xc3\xa9", 0, FIRST_KNOWN), side(&b, "train", "cafe\xcc\x81,tea", 0, FIRST_KNOWN),
            CLASSES_SPELLED, ERR_FORMAT,
            "there looks the same: a letter is U+00E9 in the first and U+0065 U+0301 in the second");
}

/* "" for none; else "count: first, second: why" */
static void alike_in(const char *names, const char *wanted)
{
    Side s;
    const ClassList *list = side(&s, "train", names, 0, FIRST_KNOWN);
    int count, left_out, pair[2];
    char why[ALIKE_BYTES], found[512] = "";
    assert_int_equal(classes_alike(list, &count, &left_out, pair, why), OK);
    assert_int_equal(left_out, 0);
    if (count) snprintf(found, sizeof found, "%d: %s, %s: %s", count, list->names[pair[0]], list->names[pair[1]], why);
    assert_string_equal(found, wanted);
}

TEST(test_classes_alike)
{
    alike_in("ant,bee,cow", "");
    alike_in("crane,cow,crane", "2: crane, crane: they are equal"); /* a bird and a machine of ImageNet */
    alike_in(",cow,", "");
    alike_in(",cow, ", ""); /* without a name, and named by a blank */
    alike_in("Cat,Dog,cat", "2: Cat, cat: they differ in upper and lower case");
    alike_in("b ee,Cat,b  ee,cat,CAT,x", "5: b ee, b  ee: they differ in blanks or characters that are not seen");
    alike_in("1,10,01,0,00,2", "4: 1, 01: both are the number 1");
    alike_in("1,1 ,10", "2: 1, 1 : they differ in blanks or characters that are not seen");
    alike_in("0,1,2,10,100", "");
    alike_in("2,1,x,1.0", "2: 1, 1.0: both are the number 1"); /* as pandas writes a column with gaps */
    alike_in("1.0,1.0\xc2\xa0", "2: 1.0, 1.0\xc2\xa0: they differ in blanks or characters that are not seen");
    alike_in("+2,\xe2\x80\x8b+2,3", "2: +2, \xe2\x80\x8b+2: they differ in blanks or characters that are not seen");
    alike_in("1.0,1.0 ,1.00 ", "3: 1.0, 1.0 : they differ in blanks or characters that are not seen");
    alike_in("+1,.5,-01.50,0.50,-1.5,1", "6: +1, 1: both are the number 1");
    alike_in("-0,0.,.0", "3: -0, 0.: both are the number 0");
    alike_in("123456789012,0123456789012.0", "2: 123456789012, 0123456789012.0: both are the number 123456789012");
    alike_in("1.1,1.10.0,11,1.01,-1.1,1e0,1,-,.,+.,1.1a", "");
    alike_in("\xe7\x8c\xab,\xe7\x8a\xac,caf\xc3\xa9,cafe", "");
    Side many = {.list = {.count = 0}};
    static const char *names[65536];
    static char text[65536][8];
    for (int i = 0; i < 65536; i++) snprintf(text[i], sizeof text[i], "%s%04x", i == 9 ? "N" : "n", i == 9 ? 8 : i);
    for (int i = 0; i < 65536; i++) names[i] = text[i];
    many.list = (ClassList){.names = names, .count = 65536};
    int count, left_out, pair[2];
    char why[ALIKE_BYTES];
    assert_int_equal(classes_alike(&many.list, &count, &left_out, pair, why), OK);
    assert_true(count == 2 && left_out == 0 && pair[0] == 8 && pair[1] == 9);
    for (int i = 0; i < 2000; i++) snprintf(text[i], sizeof text[i], "\xd0%c\xd0%c", 0xb0 + i % 10, 0xb0 + i / 10 % 10);
    many.list.count = 2000; /* of two letters of Cyrillic each */
    assert_int_equal(classes_alike(&many.list, &count, &left_out, pair, why), OK);
    assert_true(count == 0 && left_out == 2000);
}
