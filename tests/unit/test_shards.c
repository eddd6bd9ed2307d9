/* Data sets of shards: lists in braces, splits by the names of files and by --val-split, the reuse of the index, and a
 * shard that changes under a run. Images are PGM of one pixel in tars. And what is taken from a sample of each format. */
#include "towers/data/shards/shard_set.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "tests/support/failing_malloc.h"
#include "tests/support/scratch.h"
#include "tests/support/tar_write.h"
#include "tests/support/unit.h"
#include "towers/data/shards/example.h"
#include "towers/data/shards/shard.h"
#include "towers/data/shards/tfrecord.h"
#include "towers/files/crc32c.h"
#include "towers/files/files.h"

static struct archive *tar_begin(const char *name)
{
    char path[PATH_BYTES];
    scratch_path(path, name);
    *strrchr(path, '/') = 0;
    assert_int_equal(directory_create(path), OK);
    scratch_path(path, name);
    struct archive *to = archive_write_new();
    archive_write_set_format_ustar(to);
    assert_int_equal(archive_write_open_filename(to, path), ARCHIVE_OK);
    return to;
}

/* A tar of `count` samples, numbered from `first`, whose labels are their numbers modulo `classes`. */
static void tar_write(const char *name, int first, int count, int classes)
{
    char text[64];
    struct archive *to = tar_begin(name);
    for (int i = first; i < first + count; i++) {
        snprintf(text, sizeof text, "%04d.pgm", i);
        char image[32], label[16];
        snprintf(image, sizeof image, "P2 1 1 255 %03d\n", i % 256);
        snprintf(label, sizeof label, "%d\n", i % classes);
        member_write(to, text, image);
        snprintf(text, sizeof text, "%04d.cls", i);
        member_write(to, text, label);
    }
    assert_int_equal(archive_write_free(to), ARCHIVE_OK);
}

/* Another tar behind a tar, however many zeros lie between, is not passed over; writers fill the end with up to
 * `tar -b` times 512 zeros. */
TEST_WITH(test_concatenated, scratch_and_cache_make, scratch_drop)
{
    char path[PATH_BYTES], zeros[512] = {0};
    ShardList list = {.path = path};
    tar_write("set/a.tar", 0, 2, 2);
    scratch_path(path, "set/a.tar");
    for (int blocks = 0; blocks < 300; blocks += 130) {
        FILE *to = fopen(path, "ab");
        for (int i = 0; i < blocks; i++) assert_int_equal(fwrite(zeros, 1, sizeof zeros, to), sizeof zeros);
        assert_int_equal(fclose(to), 0);
        assert_int_equal(tar_list(&list), OK);
        assert_int_equal(list.found.parts.samples_count, 2);
        shard_list_free(&list);
        list = (ShardList){.path = path};
    }
    FILE *to = fopen(path, "ab");
    fputs("another one", to);
    assert_int_equal(fclose(to), 0);
    assert_fails(tar_list(&list), ERR_FORMAT, "concatenated tars are not supported");
    shard_list_free(&list);
}

/* Each allocation fails once while a tar with long names is listed: that is no damage to the tar. (In some places
 * libarchive ends the program with a message of its own.) */
TEST_WITH(test_no_memory, scratch_and_cache_make, scratch_drop)
{
    failing_malloc_or_skip();
    char path[PATH_BYTES], name[200] = "folder/";
    int status = 0;
    memset(name + 7, 'n', 150);
    scratch_path(path, "set/b.tar");
    tar_write("set/b.tar", 0, 1, 1);
    struct archive *to = archive_write_new();
    archive_write_set_format_pax(to);
    assert_int_equal(archive_write_open_filename(to, path), ARCHIVE_OK);
    snprintf(name + 157, 8, ".pgm");
    member_write(to, name, "P2 1 1 255 1\n");
    snprintf(name + 157, 8, ".cls");
    member_write(to, name, "0\n");
    assert_int_equal(archive_write_free(to), ARCHIVE_OK);
    for (int n = 1, finished = 0; !finished; n++) {
        assert_true(n < 1000);
        pid_t pid = fork();
        if (pid == 0) {
            signal(SIGSEGV, SIG_DFL); /* cmocka would go on with the next test */
            ShardList list = {.path = path};
            allocations_left = n;
            Status st = tar_list(&list);
            bool reached = allocations_left <= 0;
            allocations_left = 0;
            if (st != OK && st != ERR_MEMORY) fprintf(stderr, "%s\n", status_message());
            _exit(st == ERR_MEMORY ? 10 : st != OK ? 11 : list.found.parts.samples_count != 1 ? 12 : reached ? 10 : 13);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        finished = WIFEXITED(status) && WEXITSTATUS(status) == 13;
        if (!WIFEXITED(status) || WEXITSTATUS(status) == 11 || WEXITSTATUS(status) == 12)
            fail_msg("allocation %d fails: status %x", n, status);
    }
}

static Source *opened(const char *path, Split split, double val_split)
{
    Source *s = NULL;
    if (source_open(&(SourceConfig){.path = path, .val_split = val_split}, split, &s) != OK)
        fail_msg("%s", status_message());
    return s;
}

static void refused(const char *path, Split split, double val_split, Status code, const char *why)
{
    Source *s = NULL;
    assert_int_equal(source_open(&(SourceConfig){.path = path, .val_split = val_split}, split, &s), code);
    if (!strstr(status_message(), why)) fail_msg("no '%s' in: %s", why, status_message());
}

/* The number of a sample, from its image; its label must fit. */
static int number_of(const Source *s, int64_t i, int classes)
{
    Bytes bytes = {0};
    int32_t label = -1;
    int number = -1;
    if (source_read(s, i, &bytes, &label) != OK) fail_msg("%s", status_message());
    assert_int_equal(sscanf((const char *)bytes.data, "P2 1 1 255 %d", &number), 1);
    assert_int_equal(label, number % classes);
    bytes_free(&bytes);
    return number;
}

static void expect_braces(const char *pattern, int count, const char *const *wanted)
{
    Names paths = {0};
    if (braces_expand(pattern, &paths) != OK) fail_msg("%s", status_message());
    assert_int_equal(paths.count, count);
    for (int i = 0; i < count; i++) assert_string_equal(paths.name[i], wanted[i]);
    names_free(&paths);
}

TEST(test_braces)
{
    expect_braces("a", 1, (const char *[]){"a"});
    expect_braces("a{08..11}.tar", 4, (const char *[]){"a08.tar", "a09.tar", "a10.tar", "a11.tar"});
    expect_braces("{9..10}", 2, (const char *[]){"9", "10"});
    expect_braces("{9..010}{99..100}", 4, (const char *[]){"00999", "009100", "01099", "010100"});
    expect_braces("{1..0000000000000000000000000002}", 1, (const char *[]){"1..0000000000000000000000000002"});
    expect_braces("{00..1}", 2, (const char *[]){"00", "01"});
    expect_braces("a{0..1}{099..100}", 4, (const char *[]){"a0099", "a0100", "a1099", "a1100"});
    expect_braces("{x,y{1..2},}z", 4, (const char *[]){"xz", "y1z", "y2z", "z"});
    expect_braces("{a,b}{0..1}::c", 5, (const char *[]){"a0", "a1", "b0", "b1", "c"});
    static const char *const wrong[] = {"{a", "a{1..2}{", "{5..1}", "{0..99999999}", "{0..999}{0..999}{0..999}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        Names paths = {0};
        assert_int_equal(braces_expand(wrong[i], &paths), ERR_ARG);
        names_free(&paths);
    }
}

/* Samples in the order of the sorted names; the evaluation's labels are among the classes of training. */
TEST_WITH(test_splits, scratch_and_cache_make, scratch_drop)
{
    char path[PATH_BYTES], list[2 * PATH_BYTES];
    tar_write("set/pets-train-1.tar", 10, 7, 3);
    tar_write("set/pets-train-0.tar", 0, 10, 3);
    tar_write("set/pets-validation-0.tar", 100, 2, 3);
    tar_write("set/pets-test-0.tar", 200, 4, 3);
    scratch_path(path, "set");
    Source *train = opened(path, SPLIT_TRAIN, 0), *test = opened(path, SPLIT_VAL, 0);
    assert_int_equal(source_info(train)->count, 17);
    assert_int_equal(source_info(train)->classes, 3);
    assert_int_equal(source_info(test)->count, 2);
    assert_int_equal(source_info(test)->classes, 3);
    for (int i = 0; i < 17; i++) assert_int_equal(number_of(train, i, 3), i);
    for (int i = 0; i < 2; i++) assert_int_equal(number_of(test, i, 3), 100 + i);
    source_close(train);
    source_close(test);
    snprintf(list, sizeof list, "%s/pets-{train-{1,0},validation-0}.tar", path); /* in the order of the list */
    train = opened(list, SPLIT_TRAIN, 0);
    assert_int_equal(number_of(train, 0, 3), 10);
    assert_int_equal(number_of(train, 7, 3), 0);
    source_close(train);
    tar_write("below/train/a.tar", 0, 4, 2);
    tar_write("below/val/a.tar", 4, 2, 5);
    scratch_path(path, "below");
    refused(path, SPLIT_VAL, 0, ERR_FORMAT, "has label 4, but the training samples have 2 classes");
}

TEST_WITH(test_divided, scratch_and_cache_make, scratch_drop)
{
    char path[PATH_BYTES];
    bool seen[40] = {false};
    int of_class[2] = {0};
    tar_write("set/0.tar", 0, 30, 2);
    tar_write("set/1.tar", 30, 10, 2);
    scratch_path(path, "set");
    refused(path, SPLIT_TRAIN, 0, ERR_ARG, "--val-split 0.1");
    Source *parts[] = {opened(path, SPLIT_TRAIN, 0.2), opened(path, SPLIT_VAL, 0.2)};
    assert_int_equal(source_info(parts[0])->count, 32);
    assert_int_equal(source_info(parts[1])->count, 8);
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < source_info(parts[k])->count; i++) {
            int number = number_of(parts[k], i, 2);
            assert_false(seen[number]);
            seen[number] = true;
            of_class[number % 2] += k;
        }
        source_close(parts[k]);
    }
    assert_true(of_class[0] == 4 && of_class[1] == 4);
}

/* One large label is damage, or no label, unless a list says that there are as many classes. */
TEST_WITH(test_few_samples_of_many_classes, scratch_and_cache_make, scratch_drop)
{
    char path[PATH_BYTES], names[PATH_BYTES];
    tar_write("set/0.tar", 1100, 8, 1 << 20);
    scratch_path(path, "set");
    refused(path, SPLIT_TRAIN, 0.1, ERR_FORMAT, "the largest label of 8 samples is 1107: expected less than 1008");
    scratch_path(names, "set/classes.txt");
    FILE *to = fopen(names, "w");
    for (int i = 0; i < 1200; i++) fprintf(to, "%d\n", i);
    assert_int_equal(fclose(to), 0);
    Source *s = opened(path, SPLIT_TRAIN, 0.1);
    assert_int_equal(source_info(s)->classes, 1200);
    source_close(s);
    assert_int_equal(file_replace(names, "cat\ndog\n", 8), OK);
    refused(path, SPLIT_TRAIN, 0.1, ERR_FORMAT, "classes.txt names 2 classes");
}

/* The index is used while the shards are as they were; a changed shard is named, and indexed again by the next run. */
TEST_WITH(test_changed, scratch_and_cache_make, scratch_drop)
{
    char path[PATH_BYTES], shard[PATH_BYTES];
    Bytes bytes = {0};
    int32_t label;
    tar_write("set/train/0.tar", 0, 6, 2);
    tar_write("set/val/0.tar", 6, 2, 2);
    scratch_path(path, "set");
    scratch_path(shard, "set/train/0.tar");
    Source *s = opened(path, SPLIT_TRAIN, 0);
    uint64_t first = source_info(s)->fingerprint[0];
    source_close(s);
    assert_int_equal(chmod(shard, 0), 0); /* the index is enough to open it */
    s = opened(path, SPLIT_TRAIN, 0);
    assert_true(source_info(s)->fingerprint[0] == first);
    assert_int_equal(chmod(shard, 0600), 0);
    assert_int_equal(source_read(s, 5, &bytes, &label), OK);
    tar_write("set/train/0.tar", 1, 6, 2);
    assert_fails(source_read(s, 0, &bytes, &label), ERR_FORMAT, "set/train/0.tar' has changed since it was indexed");
    source_close(s);
    s = opened(path, SPLIT_TRAIN, 0);
    assert_true(source_info(s)->fingerprint[0] != first);
    assert_int_equal(number_of(s, 0, 2), 1);
    assert_int_equal(unlink(shard), 0);
    assert_int_equal(source_read(s, 0, &bytes, &label), ERR_FORMAT);
    source_close(s);
    bytes_free(&bytes);
}

/* A link to a shard, or to the folder of a list, that leads elsewhere than before. */
TEST_WITH(test_links, scratch_and_cache_make, scratch_drop)
{
    static const char *const lists[] = {"set/latest/{0,1}.tar", "set/latest/0.tar"};
    char link[PATH_BYTES], path[PATH_BYTES];
    for (int version = 1; version <= 2; version++)
        for (int k = 0; k < 2; k++) {
            snprintf(path, sizeof path, "set/v%d/%d.tar", version, k);
            tar_write(path, 20 * version + 10 * k, 4 + version, 2);
        }
    usleep(50000); /* so that the index is trusted */
    scratch_path(link, "set/latest");
    for (int version = 1; version <= 2; version++) {
        assert_int_equal(symlink(version == 1 ? "v1" : "v2", link), 0);
        for (int k = 0; k < 2; k++) {
            scratch_path(path, lists[k]);
            Source *s = opened(path, SPLIT_TRAIN, 0.2);
            assert_int_equal(number_of(s, 0, 2) / 20, version);
            source_close(s);
        }
        assert_int_equal(unlink(link), 0);
    }
}

/* A sample's key ends at the first dot of its name, not of its folder's: other images of it are not its image. */
TEST_WITH(test_keys, scratch_and_cache_make, scratch_drop)
{
    char path[PATH_BYTES];
    struct archive *to = tar_begin("set/train/0.tar");
    for (int i = 0; i < 3; i++) {
        char name[64], image[32];
        const char *const suffix[] = {"pgm", "cls", "left.pgm", "mask.of.it.png"};
        for (int k = 0; k < 4; k++) {
            snprintf(name, sizeof name, "v1.0/%04d.%s", i, suffix[k]);
            snprintf(image, sizeof image, k == 1 ? "%d" : "P2 1 1 255 %03d\n", k < 2 ? i : 99);
            member_write(to, name, image);
        }
    }
    assert_int_equal(archive_write_free(to), ARCHIVE_OK);
    tar_write("set/val/0.tar", 0, 3, 3);
    scratch_path(path, "set");
    Source *s = opened(path, SPLIT_TRAIN, 0);
    assert_int_equal(source_info(s)->count, 3);
    for (int i = 0; i < 3; i++) assert_int_equal(number_of(s, i, 3), i);
    source_close(s);
}

static void u32_write(FILE *to, uint32_t value)
{
    for (int i = 0; i < 4; i++) fputc((int)(value >> 8 * i & 0xff), to);
}

/* Two samples of an MDS shard: a key of any length, a label, and pixels of 2 rows and 3 columns that count from the number of
 * the sample. */
static void mds_write(const char *split)
{
    static const char json[] = "{\"column_names\": [\"image\", \"key\", \"label\"], \"column_encodings\": "
                               "[\"ndarray:uint8:2,3,3\", \"str\", \"uint8\"], \"column_sizes\": [18, null, 1]}";
    enum { SAMPLES = 2, BEGIN = 4 * (SAMPLES + 2) + sizeof json - 1, SAMPLE = 4 + 18 + 1 };
    char name[64], path[PATH_BYTES], index[512];
    snprintf(name, sizeof name, "set/%s", split);
    scratch_path(path, name);
    assert_int_equal(directory_create(path), OK);
    snprintf(name, sizeof name, "set/%s/shard.mds", split);
    scratch_path(path, name);
    FILE *to = fopen(path, "wb");
    assert_non_null(to);
    u32_write(to, SAMPLES);
    for (uint32_t i = 0; i <= SAMPLES; i++) u32_write(to, BEGIN + i * SAMPLE + i * (i + 1) / 2);
    fputs(json, to);
    for (int i = 0; i < SAMPLES; i++) {
        u32_write(to, (uint32_t)i + 1);
        for (int k = 0; k < 18; k++) fputc(100 * i + k, to);
        fprintf(to, "%.*s%c", i + 1, "abc", i);
    }
    long bytes = ftell(to);
    assert_int_equal(fclose(to), 0);
    snprintf(name, sizeof name, "set/%s/index.json", split);
    snprintf(index, sizeof index,
             "{\"version\": 2, \"shards\": [{\"version\": 2, \"format\": \"mds\", \"samples\": %d, \"zip_data\": null, "
             "\"raw_data\": {\"basename\": \"shard.mds\", \"bytes\": %ld, \"hashes\": {}}}]}",
             SAMPLES, bytes);
    scratch_put(name, index);
}

TEST_WITH(test_pixels_of_mds, scratch_and_cache_make, scratch_drop)
{
    char path[PATH_BYTES];
    Bytes bytes = {0};
    mds_write("train");
    mds_write("val");
    scratch_path(path, "set");
    Source *s = opened(path, SPLIT_TRAIN, 0);
    assert_int_equal(source_info(s)->count, 2);
    for (int i = 0; i < 2; i++) {
        int32_t label;
        assert_int_equal(source_read(s, i, &bytes, &label), OK);
        assert_int_equal(label, i);
        assert_true(bytes.raw_h == 2 && bytes.raw_w == 3 && bytes.raw_c == 3 && bytes.size == 18);
        for (int k = 0; k < 18; k++) assert_int_equal(bytes.data[k], 100 * i + k);
    }
    bytes_free(&bytes);
    source_close(s);
}

/* Whoever removes what is damaged must not be led out of the folder. */
TEST_WITH(test_damaged_mds_are_files_of_their_folder, scratch_and_cache_make, scratch_drop)
{
    static const char *const names[] = {"shard.mds", "../val/shard.mds", "/etc/shard.mds", ".hidden"};
    char path[PATH_BYTES], index[512];
    mds_write("train");
    mds_write("val");
    scratch_path(path, "set/train");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        MdsHashes found = {0};
        snprintf(index, sizeof index,
                 "{\"version\": 2, \"shards\": [{\"version\": 2, \"format\": \"mds\", \"samples\": 7, "
                 "\"raw_data\": {\"basename\": \"%s\", \"bytes\": 1}}]}",
                 names[i]);
        scratch_put("set/train/index.json", index);
        assert_int_equal(mds_hashes_check(path, &found), OK);
        assert_int_equal(found.differ.count, 1);
        assert_int_equal(found.damaged.count, i == 0);
        mds_hashes_free(&found);
    }
}

/* ---- TFRecords */

/* A field of a protocol buffer that holds bytes. */
static size_t field_put(uint8_t *to, const void *bytes, size_t count, int number)
{
    assert_true(count < 128);
    to[0] = (uint8_t)(number << 3 | 2);
    to[1] = (uint8_t)count;
    memcpy(to + 2, bytes, count);
    return count + 2;
}

/* An entry of a tf.Example's features: bytes (kind 1), or floats (2). */
static size_t feature_put(uint8_t *to, const char *key, int kind, const void *bytes, size_t count)
{
    uint8_t list[128], feature[128], entry[128];
    size_t size = field_put(feature, list, field_put(list, bytes, count, 1), kind);
    size_t used = field_put(entry, key, strlen(key), 1);
    used += field_put(entry + used, feature, size, 2);
    return field_put(to, entry, used, 1);
}

/* Each side of the boxes has its place, in whatever order the record has them. */
TEST(test_sides_of_boxes)
{
    static const char *const keys[] = {"image/object/bbox/xmax", "image/object/bbox/ymin", "image/object/bbox/xmin",
                                       "image/object/bbox/ymax"};
    static const float sides[4][2] = {{0.75f, 1}, {0.125f, 0.25f}, {0.5f, 0.625f}, {0.875f, 0.9375f}};
    static const int place[] = {3, 0, 1, 2}; /* of pixels.h: ymin, xmin, ymax, xmax */
    uint8_t features[512];
    size_t size = feature_put(features, "image/encoded", 1, "P2 1 1 255 7", 12);
    Bytes bytes = {0};
    for (int k = 0; k < 4; k++) size += feature_put(features + size, keys[k], 2, sides[k], sizeof sides[k]);
    assert_int_equal(bytes_reserve(&bytes, size + 3), OK);
    bytes.data[0] = 1 << 3 | 2;
    bytes.data[1] = (uint8_t)(size & 127) | 128;
    bytes.data[2] = (uint8_t)(size >> 7);
    memcpy(bytes.data + 3, features, size);
    bytes.size = size + 3;
    if (tfrecord_image(&bytes, crc32c_masked(bytes.data, bytes.size), "a record") != OK)
        fail_msg("%s", status_message());
    assert_int_equal(bytes.size, 12);
    assert_memory_equal(bytes.data, "P2 1 1 255 7", 12);
    assert_int_equal(bytes.boxes.count, 2);
    for (int k = 0; k < 4; k++) assert_memory_equal(bytes.boxes.at + 2 * place[k], sides[k], sizeof sides[k]);
    bytes_free(&bytes);
}

/* Features of a record beside its image: the boxes of the original's distortions, packed and not, and the last of two. */
TEST(test_boxes)
{
    static const char *const keys[] = {"box", "label", "name", "none"};
    static const uint8_t message[] = {0x0a, 19,   0x0a, 17,   0x0a, 3,    'b',  'o',  'x',  0x12, 10,   0x12,
                                      8,    0x0a, 6, /* 6 bytes: not floats */
                                      0,    0,    0,    0,    0,    0,    0x0a, 58,   0x0a, 21,   0x0a, 3,
                                      'b',  'o',  'x',  0x12, 14,   0x12, 12,   0x0d, 0,    0,    0x80, 0x3e,
                                      0x0a, 0,    0x0d, 0,    0,    0,    0x3f, /* two unpacked floats, an empty packed list */
                                      0x0a, 19,   0x0a, 5,    'l',  'a',  'b',  'e',  'l',  0x12, 10,   0x1a,
                                      8,    0x08, 5,    0x0a, 4,    0xff, 0x01, 0x2a, 0x00, 0x0a, 12,   0x0a,
                                      4,    'n',  'a',  'm',  'e',  0x12, 4,    0x0a, 2,    0x0a, 0};
    static ExampleBytes bytes;
    Feature found[4];
    float boxes[2];
    int64_t labels[2];
    int count;
    char name[EXAMPLE_TEXT];
    bytes = (ExampleBytes){.where = "a record", .memory = message, .size = sizeof message};
    if (example_find(&bytes, keys, 4, found) != OK) fail_msg("%s", status_message());
    assert_int_equal(feature_floats(&bytes, &found[0], boxes, 2, &count), OK);
    assert_true(count == 2 && boxes[0] == 0.25f && boxes[1] == 0.5f);
    assert_int_equal(feature_ints(&bytes, &found[1], labels, 2, &count), OK);
    assert_true(count == 4 && labels[0] == 5 && labels[1] == 255);
    assert_int_equal(feature_text(&bytes, &found[2], name), OK);
    assert_string_equal(name, "");
    assert_int_equal(found[3].kind, FEATURE_NONE);
    bytes.size = 21; /* only the first feature */
    assert_int_equal(example_find(&bytes, keys, 4, found), OK);
    assert_fails(feature_floats(&bytes, &found[0], boxes, 2, &count), ERR_FORMAT,
                 "a record: byte 15 of 21 of its tf.Example: a list of floats");
    for (size_t cut = 1; cut < sizeof message; cut++) { /* cut anywhere, it is refused or has what is whole */
        uint8_t *copy = malloc(cut);
        assert_non_null(copy);
        memcpy(copy, message, cut);
        bytes = (ExampleBytes){.where = "cut", .memory = copy, .size = cut};
        assert_int_equal(example_find(&bytes, keys, 4, found), cut == 21 ? OK : ERR_FORMAT);
        free(copy);
    }
}

/* The classes of the evaluation are those of the training, whose shards may be written anew in place. */
TEST_WITH(test_changed_training, scratch_and_cache_make, scratch_drop)
{
    char path[PATH_BYTES];
    scratch_path(path, "set");
    tar_write("set/train/0.tar", 0, 4, 2);
    tar_write("set/val/0.tar", 0, 2, 2);
    for (int classes = 2; classes < 4; classes++) {
        Source *test = opened(path, SPLIT_VAL, 0), *train = opened(path, SPLIT_TRAIN, 0);
        assert_int_equal(source_info(train)->classes, classes);
        assert_int_equal(source_info(test)->classes, classes);
        source_close(train);
        source_close(test);
        usleep(20000); /* the clock of a file system may be coarse */
        tar_write("set/train/0.tar", 0, 5, 3);
    }
}

/* A shard stays open between its images, and the training shards are examined once in a start. */
TEST_WITH(test_opened_and_examined_once, scratch_and_cache_make, scratch_drop)
{
    char path[PATH_BYTES], folder[PATH_BYTES], away[PATH_BYTES];
    Source *val = NULL;
    scratch_path(path, "set");
    scratch_path(folder, "set/train");
    scratch_path(away, "away");
    tar_write("set/train/0.tar", 0, 4, 2);
    tar_write("set/val/0.tar", 0, 2, 2);
    usleep(50000); /* so that the index is trusted */
    source_close(opened(path, SPLIT_VAL, 0));
    Source *train = opened(path, SPLIT_TRAIN, 0);
    tar_write("set/train/0.tar", 0, 5, 3);
    assert_int_equal(source_open(&(SourceConfig){.path = path, .train = train}, SPLIT_VAL, &val), OK);
    assert_int_equal(source_info(val)->classes, 2);
    source_close(val);
    source_close(train);
    val = opened(path, SPLIT_VAL, 0);
    assert_int_equal(source_info(val)->classes, 3);
    source_close(val);
    train = opened(path, SPLIT_TRAIN, 0);
    number_of(train, 0, 3);
    assert_int_equal(rename(folder, away), 0);
    assert_int_equal(number_of(train, 3, 3), 3);
    source_close(train);
}

static void shard_late(void *context, int64_t done, int64_t all)
{
    if (done == all) tar_write("set/val/1.tar", 2, 2, 2);
}

/* A shard for evaluation that comes while those for training are listed. */
TEST_WITH(test_changed_during_the_listing, scratch_and_cache_make, scratch_drop)
{
    char path[PATH_BYTES];
    Source *test = NULL;
    scratch_path(path, "set");
    tar_write("set/train/0.tar", 0, 4, 2);
    tar_write("set/val/0.tar", 0, 2, 2);
    usleep(20000);
    assert_int_equal(source_open(&(SourceConfig){.path = path, .progress = shard_late}, SPLIT_VAL, &test), OK);
    assert_int_equal(source_info(test)->count, 2);
    source_close(test);
    test = opened(path, SPLIT_VAL, 0);
    assert_int_equal(source_info(test)->count, 4);
    source_close(test);
}
