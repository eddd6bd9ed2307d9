/* The survey of a folder of images: each kind of finding, its text, its files and its place in the list. Images are PGM. */
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "towers/data/sources/findings.h"

static char set[PATH_BYTES];

static int set_up(void **state)
{
    int code = scratch_and_cache_make(state);
    scratch_path(set, "set");
    return code;
}

static void file_put(const char *name, const char *text, size_t bytes)
{
    char path[PATH_BYTES], folder[PATH_BYTES];
    assert_int_equal(path_join(path, set, name), OK);
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = 0;
    assert_int_equal(directory_create(folder), OK);
    assert_int_equal(file_replace(path, text, bytes), OK);
}

/* A square of 16-bit or 8-bit gray: one value, or a pattern that `seed` tells from others. */
static void square_put(const char *name, int side, int most, int value, int seed)
{
    char text[20000];
    Text to = text_start(text, sizeof text);
    text_add(&to, "P2 %d %d %d", side, side, most);
    for (int i = 0; i < side * side; i++) text_add(&to, " %d", seed && i % 7 == seed % 7 ? seed % value : value);
    assert_false(to.truncated);
    file_put(name, text, to.used);
}

/* A JPEG that says that it lies, of which only the header is looked at. `room`: bytes of a comment before the size. */
static void lying_put(const char *name, size_t room)
{
    static const char exif[] = "\xff\xd8\xff\xe1\0\42Exif\0\0II*\0\10\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0\0\0\0\0",
                      frame[] = "\xff\xc0\0\x11\10\0\x40\0\x40\3\1\x22\0\2\x11\1\3\x11\1";
    size_t at = sizeof exif - 1;
    char *text = calloc(1, room + 100000);
    assert_non_null(text);
    memcpy(text, exif, at);
    for (; room > 0; room -= room < 60000 ? room : 60000) {
        size_t part = room < 60000 ? room : 60000;
        memcpy(text + at, (const char[]){(char)0xff, (char)0xfe, (char)((part + 2) >> 8), (char)(part + 2)}, 4);
        at += part + 4;
    }
    memcpy(text + at, frame, sizeof frame - 1);
    file_put(name, text, at + sizeof frame - 1 + 20000); /* no single color for its size */
    free(text);
}

static int64_t decoded_most = 100;

static json_t *found_in(double val_split, int64_t most, int examples, const char *turned)
{
    Source *train = NULL, *val = NULL;
    json_t *root = NULL;
    SourceConfig config = {.path = set, .val_split = val_split, .equal_apart = true};
    assert_int_equal(source_open(&config, SPLIT_TRAIN, &train), OK);
    assert_int_equal(source_open(&config, SPLIT_VAL, &val), OK);
    FindingsConfig wanted = {
        .part = {train, val}, .turned = turned, .most = most, .decoded = decoded_most, .examples = examples};
    assert_int_equal(findings_make(&wanted, &root), OK);
    source_close(train);
    source_close(val);
    return root;
}

/* Finding `i`: its kind, its number, the start of its text, and the end of its first file's path. */
static void expect(const json_t *root, size_t i, const char *kind, int64_t count, const char *text, const char *file)
{
    const json_t *row = json_array_get(json_object_get(root, "findings"), i), *files = json_object_get(row, "files");
    if (!row || strcmp(json_word_or_empty(row, "kind"), kind) || json_whole(row, "count") != count ||
        strncmp(json_word_or_empty(row, "text"), text, strlen(text)))
        fail_msg("finding %zu: %s, %d, '%s' instead of %s, %d, '%s'", i, json_word_or_empty(row, "kind"),
                 (int)json_whole(row, "count"), json_word_or_empty(row, "text"), kind, (int)count, text);
    const char *first = json_string_value(json_array_get(files, 0));
    if (!first || !ends_with(first, file)) fail_msg("finding %zu: %s instead of %s", i, first ? first : "none", file);
}

static void plain_put(int from, int count, const char *folder)
{
    char name[64];
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%s/plain-%d.pgm", folder, i);
        square_put(name, 20, 255, 200, from + i);
    }
}

TEST_WITH(test_each_kind, set_up, scratch_drop)
{
    plain_put(1000, 12, "train/a");
    plain_put(2000, 12, "train/b");
    plain_put(3000, 3, "val/a");
    plain_put(1000, 1, "val/b");                     /* that of train/a */
    square_put("train/c/1.pgm", 20, 255, 200, 2003); /* that of train/b */
    square_put("train/c/2.pgm", 20, 255, 200, 4000);
    square_put("train/c/3.pgm", 20, 255, 200, 4000);
    file_put("train/a/empty.jpg", "", 0);
    file_put("val/a/text.jpg", "text", 4);
    square_put("train/b/x-ray.pgm", 20, 65535, 3000, 5000);
    square_put("train/b/flat.pgm", 30, 255, 9, 0);
    square_put("train/b/small.pgm", 4, 255, 200, 6000);
    lying_put("train/b/lying.jpg", 0);
    lying_put("val/a/lying.jpg", 200000); /* the size comes behind what is read first */
    file_put("train/a/notes.txt", "notes", 5);
    json_t *root = found_in(0, 1000, 10, "stay");
    assert_int_equal(json_whole(root, "images"), 38);
    assert_int_equal(json_whole(root, "looked"), 38);
    expect(root, 0, "also trained on", 1,
           "1 of 6 evaluation images are also training images (equal files): what is measured on them is too good",
           "/val/b/plain-0.pgm");
    expect(root, 1, "in several classes", 2, "2 of 32 training images are in several classes (equal files)",
           "/train/b/plain-3.pgm");
    expect(root, 2, "classes without images", 1, "1 of 3 classes has no evaluation images: c", "c");
    expect(root, 3, "empty", 1, "1 of 32 training images are empty files", "/train/a/empty.jpg");
    expect(root, 4, "without a header", 1, "1 of 6 evaluation images have no header of an image that can be read",
           "/val/a/text.jpg");
    expect(root, 5, "gray of 16 bits", 1,
           "1 of 32 training images are gray of 16 bits, of which 65535 becomes white; but the largest value of 1 that "
           "were decoded is at most 3327, so they are almost black: stretch them, as by 'mogrify -level 0,3327 FILE' "
           "(ImageMagick)",
           "/train/b/x-ray.pgm");
    expect(root, 6, "stored rotated", 2,
           "1 of 32 training images and 1 of 6 evaluation images are stored rotated (EXIF orientation) and stay",
           "/train/b/lying.jpg");
    expect(root, 7, "of one color", 1, "1 of 32 training images have one color only", "/train/b/flat.pgm");
    expect(root, 8, "tiny", 1, "1 of 32 training images have less than 16 pixels in width or height",
           "/train/b/small.pgm");
    expect(root, 9, "copies", 1, "1 of 32 training images are copies of others of their class (equal files)",
           "/train/c/3.pgm");
    expect(root, 10, "small classes", 1, "1 of 3 classes has fewer than 10 training images, the smallest 3: c", "c");
    expect(root, 11, "not-an-image", 1, "warning: 1 file is ignored (1 .txt), the first is", "/train/a/notes.txt");
    assert_int_equal(json_array_size(json_object_get(root, "findings")), 12);
    json_decref(root);
}

static json_t *found_with_test(void)
{
    Source *part[SPLITS] = {0};
    json_t *root = NULL;
    SourceConfig config = {.path = set};
    FindingsConfig wanted = {.turned = "stay", .most = 1000, .decoded = decoded_most, .examples = 10};
    for (int s = 0; s < SPLITS; s++) {
        assert_int_equal(source_open(&config, (Split)s, &part[s]), OK);
        wanted.part[s] = part[s];
    }
    assert_int_equal(findings_make(&wanted, &root), OK);
    for (int s = 0; s < SPLITS; s++) source_close(part[s]);
    return root;
}

/* Between each two of three parts, and within those that are not trained on. */
TEST_WITH(test_equal_files_of_three_parts, set_up, scratch_drop)
{
    plain_put(1000, 12, "train/a");
    plain_put(2000, 12, "train/b");
    plain_put(3000, 4, "val/a");
    plain_put(4000, 4, "val/b");
    plain_put(5000, 4, "test/a");
    plain_put(6000, 4, "test/b");
    square_put("test/a/evaluated.pgm", 20, 255, 200, 3001);
    square_put("test/a/trained.pgm", 20, 255, 200, 1001);
    square_put("val/b/twin.pgm", 20, 255, 200, 4001);
    square_put("test/b/other.pgm", 20, 255, 200, 5001);
    json_t *root = found_with_test();
    expect(root, 0, "also trained on", 1, "1 of 11 test images are also training images", "/test/a/trained.pgm");
    expect(root, 1, "also evaluated on", 1, "1 of 11 test images are also evaluation images", "/test/a/evaluated.pgm");
    expect(root, 2, "in several classes", 2, "2 of 11 test images are in several classes", "/test/a/plain-1.pgm");
    expect(root, 3, "copies", 1, "1 of 9 evaluation images are copies of others of their class", "/val/b/twin.pgm");
    assert_int_equal(json_array_size(json_object_get(root, "findings")), 4);
    json_decref(root);
}

/* Two images each of the labels 0 and 2 and one of the label 1, which nothing names. */
TEST_WITH(test_classes_without_names, set_up, scratch_drop)
{
    static const unsigned char labels[] = {0, 0, 8, 1, 0, 0, 0, 5, 0, 1, 2, 0, 2};
    unsigned char images[16 + 5 * 400] = {0, 0, 8, 3, 0, 0, 0, 5, 0, 0, 0, 20, 0, 0, 0, 20};
    for (size_t i = 16; i < sizeof images; i++) images[i] = (unsigned char)(i * i / 7);
    for (int part = 0; part < 2; part++) {
        file_put(part ? "t10k-images-idx3-ubyte" : "train-images-idx3-ubyte", (const char *)images, sizeof images);
        file_put(part ? "t10k-labels-idx1-ubyte" : "train-labels-idx1-ubyte", (const char *)labels, sizeof labels);
    }
    json_t *root = found_in(0, 1000, 10, "stay");
    expect(root, 0, "classes without images", 7, "7 of 10 classes have no training images, the first: class 3",
           "class 3");
    expect(root, 1, "small classes", 3, "3 of 3 classes have fewer than 10 training images, the smallest 1: class 1",
           "class 0");
    json_decref(root);
}

/* One class in two folders. */
TEST_WITH(test_classes_that_look_alike, set_up, scratch_drop)
{
    plain_put(1000, 12, "train/cat");
    plain_put(2000, 12, "train/Cat");
    plain_put(3000, 12, "train/dog");
    plain_put(4000, 2, "val/Cat");
    json_t *root = found_in(0, 1000, 10, "stay");
    expect(root, 0, "classes that look alike", 2,
           "2 of 3 classes have names that look like another's: 'Cat' and 'cat': they differ in upper and lower case",
           "Cat");
    expect(root, 1, "classes without images", 2, "2 of 3 classes have no evaluation images, the first: cat", "cat");
    assert_int_equal(json_array_size(json_object_get(root, "findings")), 2);
    json_decref(root);
}

/* A set without anything conspicuous; gray of 16 bits that reaches white; and what is counted if not all are looked at. */
TEST_WITH(test_bounds, set_up, scratch_drop)
{
    plain_put(1000, 12, "train/a");
    plain_put(2000, 12, "train/b");
    plain_put(3000, 5, "val/a");
    plain_put(4000, 5, "val/b");
    json_t *root = found_in(0, 1000, 10, "stay");
    assert_int_equal(json_array_size(json_object_get(root, "findings")), 0);
    json_decref(root);
    for (int i = 0; i < 12; i++) {
        char name[32];
        snprintf(name, sizeof name, "train/a/plain-%d.pgm", i);
        square_put(name, 20, 65535, 65000, 7000 + i);
    }
    square_put("train/a/plain-0.pgm", 20, 65535, 500, 7000);
    square_put("train/a/plain-1.pgm", 20, 65535, 500, 7001);
    decoded_most = 2; /* the first two, whichever thread is faster */
    root = found_in(0, 1000, 10, "stay");
    expect(
        root, 0, "gray of 16 bits", 12,
        "12 of 24 training images are gray of 16 bits, of which 65535 becomes white; but the largest value of 2 that "
        "were decoded is at most 767,",
        "/train/a/plain-0.pgm");
    json_decref(root);
    decoded_most = 100;
    root = found_in(0, 8, 2, "stay");
    assert_int_equal(json_whole(root, "images"), 34);
    assert_int_equal(json_whole(root, "looked"), 16);
    expect(root, 0, "gray of 16 bits", 4,
           "4 of 8 training images that were looked at are gray of 16 bits, of which 65535 becomes white",
           "/train/a/plain-0.pgm");
    assert_int_equal(json_array_size(json_object_get(json_array_get(json_object_get(root, "findings"), 0), "files")),
                     2);
    json_decref(root);
}
