/* Records of shards: what is written is what listing gives; a stand-in is listed as its shard; what is cut off, damaged or out of range is
 * refused, whatever its checksum says; equal shards are found without their bytes. */
#include "towers/data/shards/sidecar.h"

#include <xxhash.h>

#include "tests/support/scratch.h"
#include "tests/support/tar_write.h"
#include "tests/support/unit.h"
#include "towers/data/shards/sidecar_files.h"
#include "towers/data/sources/source.h"
#include "towers/files/files.h"

enum { HEAD_BYTES = 104, SUM_AT = 96, SAMPLE_AT = HEAD_BYTES };

/* A tar of four samples of two classes, and of members that are none: two kinds for one reason. */
static void tar_write(const char *name, const char *first)
{
    char path[PATH_BYTES], folder[PATH_BYTES];
    scratch_path(path, name);
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = 0;
    assert_int_equal(directory_create(folder), OK);
    struct archive *to = archive_write_new();
    archive_write_set_format_ustar(to);
    assert_int_equal(archive_write_open_filename(to, path), ARCHIVE_OK);
    const char *const samples[] = {first, "b", "c", "d"};
    for (int i = 0; i < 4; i++) {
        char member[64];
        snprintf(member, sizeof member, "%s.pgm", samples[i]);
        member_write(to, member, "P2 1 1 255 7\n");
        snprintf(member, sizeof member, "%s.cls", samples[i]);
        member_write(to, member, i % 2 ? "1" : "0");
    }
    member_write(to, "readme.md", "about");
    member_write(to, "notes.txt", "more");
    assert_int_equal(archive_write_free(to), ARCHIVE_OK);
}

static Draft record_of(const char *name, const char *as)
{
    char path[PATH_BYTES];
    Draft record;
    scratch_path(path, name);
    ShardList list = {.path = path};
    assert_int_equal(shard_list(SHARD_TAR, &list), OK);
    assert_int_equal(draft_begin(&record, "a record"), OK);
    assert_int_equal(draft_end(&record, sidecar_print(&list, SHARD_TAR, as, record.to)), OK);
    shard_list_free(&list);
    return record;
}

static void lists_compare(const ShardList *a, const ShardList *b)
{
    const IndexParts *x = &a->found.parts, *y = &b->found.parts;
    assert_int_equal(x->samples_count, y->samples_count);
    for (int64_t i = 0; i < x->samples_count; i++) {
        assert_int_equal(x->samples[i].offset, y->samples[i].offset);
        assert_int_equal(x->samples[i].bytes, y->samples[i].bytes);
        assert_int_equal(x->samples[i].label, y->samples[i].label);
        assert_string_equal(x->strings + x->samples[i].name, y->strings + y->samples[i].name);
    }
    assert_int_equal(x->classes_count, y->classes_count);
    for (SkipReason why = 0; why < SKIP_REASONS; why++) {
        assert_int_equal(skips_count(&a->skips, why), skips_count(&b->skips, why));
        assert_string_equal(skips_kinds(&a->skips, why), skips_kinds(&b->skips, why));
        const char *first = skips_first(&a->skips, why), *other = skips_first(&b->skips, why);
        assert_string_equal(*first ? first + strlen(a->path) : "", *other ? other + strlen(b->path) : "");
    }
}

TEST_WITH(test_stand_in, scratch_and_cache_make, scratch_drop)
{
    char path[PATH_BYTES], stand_in[PATH_BYTES];
    Sidecar made;
    tar_write("set/a.tar", "a");
    Draft record = record_of("set/a.tar", "a.tar");
    scratch_path(path, "set/a.tar");
    scratch_path(stand_in, "other/a.tar");
    assert_false(sidecar_look(path, &made));
    tar_write("other/b.tar", "a"); /* makes the folder */
    assert_int_equal(file_replace(stand_in, record.text, record.bytes), OK);
    assert_true(sidecar_look(stand_in, &made));
    assert_int_equal(made.samples, 4);
    assert_int_equal(made.kind, SHARD_TAR);
    ShardList list = {.path = path}, read = {.path = stand_in};
    assert_int_equal(shard_list(SHARD_TAR, &list), OK);
    assert_int_equal(shard_list(SHARD_TAR, &read), OK);
    assert_true(skips_count(&list.skips, SKIP_MEMBER) == 2);
    lists_compare(&list, &read);
    shard_list_free(&list);
    shard_list_free(&read);
    record.text[12] = 77; /* no kind of shards */
    assert_int_equal(file_replace(stand_in, record.text, record.bytes), OK);
    assert_false(sidecar_look(stand_in, &made));
    record.text[12] = SHARD_TAR;
    assert_int_equal(file_replace(stand_in, record.text, record.bytes), OK);
    read = (ShardList){.path = stand_in};
    assert_int_equal(shard_list(SHARD_TFRECORD, &read), ERR_FORMAT);
    shard_list_free(&read);
    free(record.text);
}

static void sum_mend(char *bytes)
{
    uint64_t size, sum;
    memcpy(&size, bytes + 16, sizeof size);
    sum = XXH3_64bits(bytes + HEAD_BYTES, size - HEAD_BYTES);
    memcpy(bytes + SUM_AT, &sum, sizeof sum);
}

/* A number of `bytes` bytes at a place of the record, behind a checksum that is right. */
static void refused(const Draft *record, size_t at, uint64_t number, size_t bytes, const char *why)
{
    Sidecar made;
    ShardList list = {.path = "x"};
    char *copy = malloc(record->bytes);
    assert_non_null(copy);
    memcpy(copy, record->text, record->bytes);
    memcpy(copy + at, &number, bytes);
    if (at >= HEAD_BYTES) sum_mend(copy);
    assert_int_equal(sidecar_parse("set/towers.index", copy, record->bytes, &made, &list), ERR_FORMAT);
    if (!strstr(status_message(), why)) fail_msg("expected '%s', found '%s'", why, status_message());
    assert_non_null(strstr(status_message(), "set/towers.index"));
    shard_list_free(&list);
    free(copy);
}

TEST_WITH(test_refusals, scratch_and_cache_make, scratch_drop)
{
    Sidecar made;
    tar_write("set/a.tar", "a");
    Draft record = record_of("set/a.tar", "a.tar");
    assert_int_equal(sidecar_parse("i", record.text, record.bytes, &made, NULL), OK);
    assert_int_equal(made.size, record.bytes);
    for (size_t size = 0; size < record.bytes; size += 13)
        assert_int_equal(sidecar_parse("i", record.text, size, &made, NULL), ERR_FORMAT);
    refused(&record, 0, 'x', 1, "is no index of shards");
    refused(&record, 8, 99, 4, "of version 99");
    refused(&record, 12, 77, 4, "does not fit");
    refused(&record, 16, UINT64_MAX, 8, "does not fit");
    refused(&record, 48, UINT64_MAX, 8, "does not fit");         /* samples */
    refused(&record, 48, UINT64_C(1) << 59, 8, "does not fit");  /* as many as wrap to 0 bytes */
    refused(&record, 72, UINT64_MAX - 7, 8, "does not fit");     /* strings */
    refused(&record, 80, UINT64_C(1) << 40, 8, "a string");      /* name */
    refused(&record, SAMPLE_AT, 1 << 20, 8, "a sample");         /* behind the end of the shard */
    refused(&record, SAMPLE_AT + 8, 1 << 20, 8, "a sample");     /* its name */
    refused(&record, SAMPLE_AT + 16, 0, 4, "a sample");          /* no bytes */
    refused(&record, SAMPLE_AT + 16, UINT32_MAX, 4, "a sample"); /* more than the shard has */
    refused(&record, SAMPLE_AT + 20, 1, 4, "a sample");          /* another file */
    refused(&record, SAMPLE_AT + 24, UINT32_MAX, 4, "a sample"); /* a label below 0 */
    refused(&record, SAMPLE_AT + 24, SHARD_CLASSES_MAX, 4, "a sample");
    char *copy = malloc(record.bytes);
    memcpy(copy, record.text, record.bytes);
    copy[SAMPLE_AT + 24] = 1; /* without its checksum */
    assert_int_equal(sidecar_parse("i", copy, record.bytes, &made, NULL), ERR_FORMAT);
    assert_non_null(strstr(status_message(), "a checksum is wrong"));
    free(copy);
    free(record.text);
    record = record_of("set/a.tar", "../a.tar");
    assert_int_equal(sidecar_parse("i", record.text, record.bytes, &made, NULL), ERR_FORMAT);
    free(record.text);
}

/* A set of stand-ins is one as that of their shards, but its bytes cannot be read; a copy of a shard is found by its digest. */
TEST_WITH(test_set, scratch_and_cache_make, scratch_drop)
{
    char path[PATH_BYTES];
    Source *source;
    Bytes bytes = {0};
    int32_t label;
    SidecarsMade made;
    static const char *const names[] = {"train-0.tar", "train-1.tar", "val-0.tar"};
    for (int i = 0; i < 3; i++) {
        char shard[64], stand_in[64];
        snprintf(shard, sizeof shard, "set/%s", names[i]);
        snprintf(stand_in, sizeof stand_in, "view/%s", names[i]);
        tar_write(shard, i ? "y" : "a");
        tar_write(stand_in, "a");
        Draft record = record_of(shard, names[i]);
        scratch_path(path, stand_in);
        assert_int_equal(file_replace(path, record.text, record.bytes), OK);
        free(record.text);
    }
    scratch_path(path, "set");
    assert_int_equal(sidecars_write(path, NULL, &made), OK);
    assert_int_equal(made.shards, 3);
    assert_int_equal(made.samples, 12);
    assert_int_equal(source_open(&(SourceConfig){.path = path}, SPLIT_TRAIN, &source), OK);
    uint64_t fingerprint = source_info(source)->fingerprint[0];
    source_close(source);
    scratch_path(path, "view");
    assert_int_equal(source_open(&(SourceConfig){.path = path}, SPLIT_TRAIN, &source), OK);
    assert_int_equal(source_info(source)->count, 8);
    assert_int_equal(source_info(source)->fingerprint[0], fingerprint);
    assert_int_equal(source_read(source, 0, &bytes, &label), ERR_IO);
    assert_non_null(strstr(status_message(), "stands in for a shard that is elsewhere"));
    source_close(source);
    assert_int_equal(sidecars_write(path, NULL, &made), ERR_ARG);

    scratch_path(path, "set/train-1.tar");
    Draft record = record_of("set/train-1.tar", "train-2.tar");
    scratch_path(path, "view/train-2.tar");
    assert_int_equal(file_replace(path, record.text, record.bytes), OK);
    scratch_path(path, "view");
    assert_int_equal(source_open(&(SourceConfig){.path = path}, SPLIT_TRAIN, &source), ERR_FORMAT);
    assert_non_null(strstr(status_message(), "are equal"));
    free(record.text);
    bytes_free(&bytes);
}
