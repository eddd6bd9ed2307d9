/* Lists of buckets: what is taken of an answer, and which answers are none. */
#include "tests/support/unit.h"
#include "towers/data/remote/bucket_list.h"
#include "towers/files/files.h"

#define LIST(inside)                                                                                                   \
    "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"x\"><Prefix>a b/</Prefix>" inside "</ListBucketResult>\n"

static void page_is_taken(const char *text, BucketList *list, const char *goes_on_from)
{
    char next[BUCKET_TOKEN_BYTES];
    assert_int_equal(bucket_page_parse(text, "a b/", list, next), OK);
    assert_string_equal(next, goes_on_from);
}

TEST(two_pages_and_their_names)
{
    BucketList list = {0};
    page_is_taken(LIST("<IsTruncated>true</IsTruncated>"
                       "<NextContinuationToken>1+/&amp;=</NextContinuationToken>"
                       "<Contents><Key>a b/</Key><Size>0</Size></Contents>"
                       "<Contents><Size>1</Size><Key>a b/x&lt;&#233;&#x1F415;&apos;%20+.tar</Key></Contents>"
                       "<CommonPrefixes><Prefix>a b/train/</Prefix></CommonPrefixes>"
                       "<CommonPrefixes><Prefix>a b/val/</Prefix></CommonPrefixes>"),
                  &list, "1+/&=");
    assert_int_equal(list.objects.count, 1);
    assert_string_equal(list.objects.name[0], "x<\xc3\xa9\xf0\x9f\x90\x95'%20+.tar");
    assert_int_equal(list.folders.count, 2);
    assert_string_equal(list.folders.name[1], "val");
    page_is_taken(LIST("<Contents><Key>a b/z</Key></Contents><IsTruncated>false</IsTruncated>"
                       "<NextContinuationToken>2</NextContinuationToken>"),
                  &list, "");
    assert_int_equal(list.objects.count, 2);
    assert_string_equal(list.objects.name[1], "z");
    assert_int_equal(list.folders.count, 2);
    bucket_list_free(&list);
}

TEST(what_is_no_list)
{
    static const char *const texts[] = {
        "",
        "<html>Welcome</html>",
        "<Error><Code>AccessDenied</Code></Error>",
        "<ListBucketResult><Contents><Key>a b/x</Key></Contents>",
        LIST("<Contents><Size>1</Size></Contents>"),
        LIST("<Contents></Contents><Contents><Key>a b/x</Key></Contents>"),
        LIST("<Contents><Key>other/x</Key></Contents>"),
        LIST("<Contents><Key>a b/&nothing;</Key></Contents>"),
        LIST("<Contents><Key>a b/&#0;</Key></Contents>"),
        LIST("<Contents><Key>a b/&#x110000;</Key></Contents>"),
        LIST("<Contents><Key>a b/&amp</Key></Contents>"),
        LIST("<IsTruncated>true</IsTruncated>"),
        LIST("<IsTruncated>true</IsTruncated><NextContinuationToken></NextContinuationToken>"),
    };
    char next[BUCKET_TOKEN_BYTES];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        BucketList list = {0};
        if (bucket_page_parse(texts[i], "a b/", &list, next) != ERR_FORMAT) fail_msg("taken: %s", texts[i]);
        bucket_list_free(&list);
    }
}

TEST(names_and_tokens_that_are_too_long)
{
    enum { LONG = PATH_BYTES + 100 };
    static char text[2 * LONG], name[LONG];
    char next[BUCKET_TOKEN_BYTES];
    BucketList list = {0};
    memset(name, 'x', sizeof name - 1);
    snprintf(text, sizeof text, LIST("<Contents><Key>a b/%s</Key></Contents>"), name);
    assert_int_equal(bucket_page_parse(text, "a b/", &list, next), ERR_FORMAT);
    name[BUCKET_TOKEN_BYTES] = 0;
    snprintf(text, sizeof text,
             LIST("<IsTruncated>true</IsTruncated><NextContinuationToken>%s</NextContinuationToken>"), name);
    assert_int_equal(bucket_page_parse(text, "a b/", &list, next), ERR_FORMAT);
    bucket_list_free(&list);
}
