/* The IDX reader: what it accepts, what it rejects and with which message, from memory and through source_open. */
#include "towers/data/sources/idx.h"

#include <zlib.h>

#include "tests/support/scratch.h"
#include "tests/support/unit.h"

static const char debian_set[] = "/usr/share/datasets/fashion-mnist";

typedef struct Content {
    uint8_t data[4096];
    size_t size;
} Content;

static void put(Content *b, const void *data, size_t size)
{
    assert_true(b->size + size <= sizeof b->data);
    memcpy(b->data + b->size, data, size);
    b->size += size;
}

static void put_u32(Content *b, uint32_t value)
{
    uint8_t raw[] = {(uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8), (uint8_t)value};
    put(b, raw, sizeof raw);
}

static Content labels_of(uint32_t promised, const char *values, size_t n)
{
    Content b = {0};
    put_u32(&b, 0x801);
    put_u32(&b, promised);
    put(&b, values, n);
    return b;
}

static Content images_of(uint32_t count, uint32_t rows, uint32_t columns, size_t n)
{
    Content b = {0};
    put_u32(&b, 0x803);
    put_u32(&b, count);
    put_u32(&b, rows);
    put_u32(&b, columns);
    for (size_t i = 0; i < n; i++) put(&b, (uint8_t[]){(uint8_t)(i * 7)}, 1);
    return b;
}

static Content zipped(const uint8_t *data, size_t size)
{
    Content out = {0};
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)data;
    z.avail_in = (uInt)size;
    z.next_out = out.data;
    z.avail_out = sizeof out.data;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    out.size = z.total_out;
    deflateEnd(&z);
    return out;
}

static void expect_refused(const Content *b, int dimensions, const char *message)
{
    Idx idx = {.data = NULL};
    assert_int_equal(idx_parse("some.idx", b->data, b->size, dimensions, &idx), ERR_FORMAT);
    assert_null(idx.data);
    assert_non_null(strstr(status_message(), "'some.idx'"));
    if (!strstr(status_message(), message)) fail_msg("expected '%s' in '%s'", message, status_message());
}

TEST(test_parse)
{
    Content plain = images_of(2, 3, 2, 12), gz = zipped(plain.data, plain.size);
    const Content *both[] = {&plain, &gz};
    for (int i = 0; i < 2; i++) {
        Idx idx;
        assert_int_equal(idx_parse("x", both[i]->data, both[i]->size, IDX_IMAGES, &idx), OK);
        assert_int_equal(idx.size[0], 2);
        assert_int_equal(idx.size[1], 3);
        assert_int_equal(idx.size[2], 2);
        assert_int_equal(idx.bytes, 12);
        assert_memory_equal(idx.data, plain.data + 16, 12);
        idx_free(&idx);
    }
}

static Content color_of(uint32_t count, uint32_t rows, uint32_t columns, uint32_t channels, size_t n)
{
    Content b = images_of(count, rows, columns, 0);
    b.data[3] = 4;
    put_u32(&b, channels);
    for (size_t i = 0; i < n; i++) put(&b, (uint8_t[]){(uint8_t)(i * 7)}, 1);
    return b;
}

TEST(test_color)
{
    Content b = color_of(2, 2, 2, 3, 24);
    Idx idx;
    assert_int_equal(idx_parse("x", b.data, b.size, IDX_IMAGES, &idx), OK);
    assert_true(idx.size[0] == 2 && idx.size[1] == 2 && idx.size[2] == 2 && idx.size[3] == 3 && idx.bytes == 24);
    assert_memory_equal(idx.data, b.data + 20, 24);
    idx_free(&idx);
    expect_refused(&b, IDX_LABELS, "expected magic 0x00000801 (IDX");
    b = color_of(2, 2, 2, 2, 16);
    expect_refused(&b, IDX_IMAGES, "offset 16: expected 1 or 3 channels, found 2");
    b = color_of(2, 2, 2, 4, 32);
    expect_refused(&b, IDX_IMAGES, "offset 16: expected channels from 1 to 3, found 4");
    b = color_of(1u << 31, 65500, 65500, 3, 0);
    expect_refused(&b, IDX_IMAGES, "declares 9213241720832000000 pixels of 3 bytes, more than any memory has");
    b = color_of(1, 2, 2, 3, 11);
    expect_refused(&b, IDX_IMAGES, "declares 12 bytes from offset 20 on, found 11");
}

/* fault: F26 */
TEST(test_refused_headers)
{
    Content b = labels_of(3, "\0\1\2", 3);
    expect_refused(&b, IDX_IMAGES,
                   "offset 0: expected magic 0x00000803 or 0x00000804 (IDX, unsigned bytes, images), found "
                   "0x00000801");
    b.data[2] = 0x0d; /* floats */
    expect_refused(&b, IDX_LABELS, "found 0x00000d01");
    b = labels_of(0, "", 0);
    expect_refused(&b, IDX_LABELS, "offset 4: expected a number of records from 1 to 2147483648, found 0");
    b = labels_of(0x80000001u, "", 0);
    expect_refused(&b, IDX_LABELS, "found 2147483649");
    b = images_of(1, 0, 2, 0);
    expect_refused(&b, IDX_IMAGES, "offset 8: expected rows from 1 to 65500, found 0");
    b = images_of(1, 2, 65501, 2);
    expect_refused(&b, IDX_IMAGES, "offset 12: expected columns from 1 to 65500, found 65501");
    b = images_of(1, 1, 1, 0);
    for (b.size = 0; b.size < 4; b.size++) expect_refused(&b, IDX_IMAGES, "expected 4 bytes from offset 0 on");
    for (; b.size < 16; b.size++) expect_refused(&b, IDX_IMAGES, "expected 12 bytes from offset 4 on");
}

TEST(test_refused_sizes)
{
    Content b = images_of(2, 2, 2, 7);
    expect_refused(&b, IDX_IMAGES, "declares 8 bytes from offset 16 on, found 7");
    b = images_of(2, 2, 2, 9);
    expect_refused(&b, IDX_IMAGES, "declares 8 bytes from offset 16 on, found 9");
    b = images_of(0x80000000u, 65500, 65500, 9);
    expect_refused(&b, IDX_IMAGES, "declares 9213241720832000000 bytes");
}

TEST(test_refused_gzip)
{
    Content b = images_of(2, 2, 2, 7), gz = zipped(b.data, b.size);
    expect_refused(&gz, IDX_IMAGES, "ends at offset 23: expected 8 bytes from offset 16 on, found 7");
    b = images_of(2, 2, 2, 9);
    gz = zipped(b.data, b.size);
    expect_refused(&gz, IDX_IMAGES, "offset 24: expected the end of the file, found more bytes");
    b = images_of(0x80000000u, 65500, 65500, 9);
    gz = zipped(b.data, b.size);
    expect_refused(&gz, IDX_IMAGES, "compressed bytes can hold");

    b = images_of(2, 2, 2, 8);
    gz = zipped(b.data, b.size);
    size_t whole = gz.size;
    for (gz.size = 2; gz.size < whole; gz.size++) expect_refused(&gz, IDX_IMAGES, "gzip stream ends too early");
    gz.size = whole;
    put(&gz, "x", 1);
    expect_refused(&gz, IDX_IMAGES, "expected the end of the file");
    gz.size = whole;
    gz.data[whole - 8] ^= 1; /* the checksum */
    expect_refused(&gz, IDX_IMAGES, "corrupt gzip data");
}

/* Streams one behind another are one file, wherever they are cut. */
TEST(test_several_gzip_streams)
{
    Content b = images_of(2, 2, 2, 8);
    for (size_t cut = 0; cut <= b.size; cut++) {
        Idx idx;
        Content first = zipped(b.data, cut), rest = zipped(b.data + cut, b.size - cut);
        put(&first, rest.data, rest.size);
        if (idx_parse("two", first.data, first.size, IDX_IMAGES, &idx) != OK)
            fail_msg("cut at %zu: %s", cut, status_message());
        assert_memory_equal(idx.data, b.data + 16, 8);
        idx_free(&idx);
        first.size--;
        expect_refused(&first, IDX_IMAGES, "gzip stream ends too early");
        first.size++;
        put(&first, "\x1f\x8b", 2);
        expect_refused(&first, IDX_IMAGES, "gzip stream ends too early");
    }
    Content twice = zipped(b.data, b.size), again = zipped(b.data, b.size);
    put(&twice, again.data, again.size);
    expect_refused(&twice, IDX_IMAGES, "offset 24: expected the end of the file, found more bytes");
}

/* A small file that expands to 2 MB although its header declares 3 bytes: stopped one byte after the promise. */
/* fault: F26 */
TEST(test_gzip_bomb)
{
    size_t size = 2 << 20;
    uint8_t *data = calloc(1, size);
    Content head = labels_of(3, "", 0);
    memcpy(data, head.data, head.size);
    Content gz = zipped(data, size);
    expect_refused(&gz, IDX_LABELS, "offset 11: expected the end of the file");
    free(data);
}

/* ---- a directory of files */

static void write_file(const char *folder, const char *name, const Content *b)
{
    char path[PATH_BYTES];
    assert_int_equal(path_join(path, folder, name), OK);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b->data, 1, b->size, f), b->size);
    assert_int_equal(fclose(f), 0);
}

static void expect_no_set(const char *path, Status code, const char *message)
{
    Source *d = NULL;
    assert_int_equal(source_open(&(SourceConfig){.path = path}, SPLIT_TRAIN, &d), code);
    assert_null(d);
    if (!strstr(status_message(), message)) fail_msg("expected '%s' in '%s'", message, status_message());
}

/* A sample's pixels, of which there must be `count`. */
static Status sample_read(const Source *d, int64_t index, uint8_t *pixels, size_t count, int32_t *label)
{
    Bytes bytes = {0};
    Status st = source_read(d, index, &bytes, label);
    if (st == OK) {
        assert_int_equal(bytes.size, count);
        assert_int_equal((size_t)(bytes.raw_h * bytes.raw_w * bytes.raw_c), count);
        memcpy(pixels, bytes.data, count);
    }
    bytes_free(&bytes);
    return st;
}

TEST_WITH(test_dataset, scratch_make, scratch_drop)
{
    char inner[PATH_BYTES];
    scratch_path(inner, "fashion-mnist");
    assert_int_equal(mkdir(inner, 0700), 0);
    Content images = images_of(3, 2, 2, 12), labels = labels_of(3, "\4\0\11", 3), gz = zipped(labels.data, labels.size);
    write_file(inner, "train-images-idx3-ubyte", &images);
    write_file(inner, "train-labels-idx1-ubyte.gz", &gz);
    Source *d = NULL, *again = NULL;
    assert_int_equal(source_open(&(SourceConfig){.path = scratch}, SPLIT_TRAIN, &d), OK);
    const SourceInfo *info = source_info(d);
    assert_string_equal(info->name, "fashion-mnist");
    assert_string_equal(info->class_names[9], "Ankle boot");
    assert_int_equal(info->count, 3);
    assert_int_equal(info->classes, 10);
    assert_true(info->h == 2 && info->w == 2 && info->c == 1);
    uint8_t pixels[4];
    int32_t label = -1;
    assert_int_equal(sample_read(d, 2, pixels, sizeof pixels, &label), OK);
    assert_int_equal(label, 9);
    assert_memory_equal(pixels, images.data + 16 + 8, 4);
    assert_int_equal(sample_read(d, 3, pixels, sizeof pixels, &label), ERR_ARG);
    assert_int_equal(sample_read(d, -1, pixels, sizeof pixels, &label), ERR_ARG);

    labels.data[8] = 5;
    gz = zipped(labels.data, labels.size);
    write_file(inner, "train-labels-idx1-ubyte.gz", &gz);
    write_file(inner, "train-labels-idx1-ubyte", &labels);
    assert_int_equal(source_open(&(SourceConfig){.path = inner}, SPLIT_TRAIN, &again), OK);
    assert_memory_not_equal(info->fingerprint, source_info(again)->fingerprint, sizeof info->fingerprint);
    source_close(again);
    source_close(d);
    source_close(NULL);
}

TEST_WITH(test_dataset_without_name, scratch_make, scratch_drop)
{
    Content images = images_of(1, 1, 1, 1), labels = labels_of(1, "\0", 1);
    write_file(scratch, "train-images-idx3-ubyte", &images);
    write_file(scratch, "train-labels-idx1-ubyte", &labels);
    Source *d = NULL;
    assert_int_equal(source_open(&(SourceConfig){.path = scratch}, SPLIT_TRAIN, &d), OK);
    assert_string_equal(source_info(d)->name, strrchr(scratch, '/') + 1);
    assert_string_equal(source_info(d)->class_names[0], "");
    source_close(d);
}

/* Fashion-MNIST is known by the name of its own folder, in torchvision's layout of the one above. */
TEST_WITH(test_names_of_folders, scratch_make, scratch_drop)
{
    static const struct {
        const char *folder, *name, *first;
    } cases[] = {{"fashion/digits", "digits", ""},
                 {"fashion/KMNIST/raw", "KMNIST", ""},
                 {"FashionMNIST/raw", "fashion-mnist", "T-shirt/top"}};
    Content images = images_of(1, 1, 1, 1), labels = labels_of(1, "\0", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char folder[PATH_BYTES];
        scratch_path(folder, cases[i].folder);
        assert_int_equal(directory_create(folder), OK);
        write_file(folder, "train-images-idx3-ubyte", &images);
        write_file(folder, "train-labels-idx1-ubyte", &labels);
        Source *d = NULL;
        assert_int_equal(source_open(&(SourceConfig){.path = folder}, SPLIT_TRAIN, &d), OK);
        assert_string_equal(source_info(d)->name, cases[i].name);
        assert_string_equal(source_info(d)->class_names[0], cases[i].first);
        source_close(d);
    }
}

static void write_text(const char *folder, const char *name, const char *text)
{
    Content b = {0};
    put(&b, text, strlen(text));
    write_file(folder, name, &b);
}

/* Color, and classes of one's own: their number and names, of any length. */
TEST_WITH(test_own_classes, scratch_make, scratch_drop)
{
    Content images = color_of(2, 2, 2, 3, 24), labels = labels_of(2, "\0\2", 2);
    write_file(scratch, "train-images-idx4-ubyte", &images);
    write_file(scratch, "train-labels-idx1-ubyte", &labels);
    write_text(scratch, "classes.txt",
               "\xef\xbb\xbf"
               "cat\r\ndog\nabcdefghijklmnopqrstuvwxyzabcd\303\251");
    Source *d = NULL;
    assert_int_equal(source_open(&(SourceConfig){.path = scratch}, SPLIT_TRAIN, &d), OK);
    const SourceInfo *info = source_info(d);
    assert_true(info->classes == 3 && info->h == 2 && info->w == 2 && info->c == 3);
    assert_string_equal(info->class_names[0], "cat");
    assert_string_equal(info->class_names[2], "abcdefghijklmnopqrstuvwxyzabcd\303\251");
    uint8_t pixels[12];
    int32_t label = -1;
    assert_int_equal(sample_read(d, 1, pixels, sizeof pixels, &label), OK);
    assert_int_equal(label, 2);
    assert_memory_equal(pixels, images.data + 20 + 12, 12);
    source_close(d);

    char twenty[] = "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm\nn\no\np\nq\nr\ns\nt\n";
    write_text(scratch, "classes.txt", twenty);
    assert_int_equal(source_open(&(SourceConfig){.path = scratch}, SPLIT_TRAIN, &d), OK);
    assert_int_equal(source_info(d)->classes, 20);
    assert_string_equal(source_info(d)->class_names[19], "t");
    source_close(d);
}

/* Numbers that are the places of their lines, from 0 or 1, and numbers that are part of names. */
TEST_WITH(test_numbered_classes, scratch_make, scratch_drop)
{
    static const char *const lists[] = {"0: cat\n1: dog\n2: owl\n",
                                        "1 , cat\n2 , dog\n3 , owl\n",
                                        "9: cat\n3 of hearts\n1: owl\n",
                                        "2012 Audi\n1999 BMW\n7\n",
                                        "1:1\n16:9\n4:3\n",
                                        "1,2-xylene\n1,4-xylene\n1,3-xylene\n"};
    Content images = images_of(1, 1, 1, 1), labels = labels_of(1, "\2", 1);
    write_file(scratch, "train-images-idx3-ubyte", &images);
    write_file(scratch, "train-labels-idx1-ubyte", &labels);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        Source *d = NULL;
        write_text(scratch, "classes.txt", lists[i]);
        assert_int_equal(source_open(&(SourceConfig){.path = scratch}, SPLIT_TRAIN, &d), OK);
        assert_int_equal(source_info(d)->classes, 3);
        source_close(d);
    }
}

/* A packed file beside the plain one that it was packed from, and beside another one. */
TEST_WITH(test_packed_beside_plain, scratch_make, scratch_drop)
{
    Content images = images_of(2, 1, 1, 2), labels = labels_of(2, "\0\1", 2), others = labels_of(2, "\1\0", 2);
    Content packed = zipped(labels.data, labels.size), other = zipped(others.data, others.size);
    Source *d = NULL;
    write_file(scratch, "train-images-idx3-ubyte", &images);
    write_file(scratch, "train-labels-idx1-ubyte", &labels);
    write_file(scratch, "train-labels-idx1-ubyte.gz", &packed);
    assert_int_equal(source_open(&(SourceConfig){.path = scratch}, SPLIT_TRAIN, &d), OK);
    source_close(d);
    write_file(scratch, "train-labels-idx1-ubyte.gz", &other);
    expect_no_set(scratch, ERR_FORMAT, "differ, and each could be the labels: keep one of them");
    other.size = 9; /* cut off */
    write_file(scratch, "train-labels-idx1-ubyte.gz", &other);
    expect_no_set(scratch, ERR_FORMAT, "differ, and each could be the labels: keep one of them");
}

TEST_WITH(test_own_classes_refused, scratch_make, scratch_drop)
{
    char path[PATH_BYTES], many[2 * 257 + 1];
    Content images = images_of(1, 1, 1, 1), labels = labels_of(1, "\2", 1);
    write_file(scratch, "train-images-idx3-ubyte", &images);
    write_file(scratch, "train-labels-idx1-ubyte", &labels);
    write_text(scratch, "classes.txt", "cat\ndog\n");
    expect_no_set(scratch, ERR_FORMAT, "expected a label from 0 to 1, found 2 (to declare more classes, put a file");
    write_text(scratch, "classes.txt", "cat\n\nowl\n");
    expect_no_set(scratch, ERR_FORMAT, "classes.txt': line 2: expected the name of class 1, found nothing");
    write_text(scratch, "classes.txt", "cat\nd\tg\nowl\n");
    expect_no_set(scratch, ERR_FORMAT, "line 2: expected the name of class 1, found control characters");
    write_text(scratch, "classes.txt", "cat\rdog\nowl\n");
    expect_no_set(scratch, ERR_FORMAT,
                  "line 1: expected the name of class 0, found control characters: expected UTF-8");
    write_text(scratch, "classes.txt", "# the classes\ncat\ndog\nowl\n");
    expect_no_set(scratch, ERR_FORMAT, "line 1: '# the classes' looks like a comment");
    static const char wide[] = "cat\0\ndog\nowl\n";
    scratch_path(path, "classes.txt");
    assert_int_equal(file_replace(path, wide, sizeof wide - 1), OK);
    expect_no_set(scratch, ERR_FORMAT, "line 1: expected the name of class 0, found control characters");
    write_text(scratch, "classes.txt", "2: cat\n1: dog\n0: owl\n");
    expect_no_set(scratch, ERR_FORMAT, "line 1: '2: cat' has another number than its place says");
    write_text(scratch, "classes.txt", "0,cat\n2,dog\n1,owl\n");
    expect_no_set(scratch, ERR_FORMAT, "line 2: '2,dog' has another number than its place says");
    write_text(scratch, "classes.txt", "");
    expect_no_set(scratch, ERR_FORMAT, "is empty");
    for (int i = 0; i < 257; i++) memcpy(many + 2 * i, "a\n", 3);
    write_text(scratch, "classes.txt", many);
    expect_no_set(scratch, ERR_FORMAT, "at most 256 classes");
    scratch_path(path, "classes.txt");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    expect_no_set(scratch, ERR_FORMAT, "classes.txt' is not a regular file");
}

/* fault: F17 */
TEST_WITH(test_dataset_refused, scratch_make, scratch_drop)
{
    char path[PATH_BYTES];
    expect_no_set("", ERR_ARG, "empty name");
    expect_no_set("/nowhere/at/all", ERR_ARG, "'/nowhere/at/all': No such file");
    expect_no_set(scratch, ERR_FORMAT, "dataset-fashion-mnist");
    expect_no_set(scratch, ERR_FORMAT, "train-images-idx3-ubyte");
    Content images = images_of(3, 2, 2, 12), labels = labels_of(3, "\4\12\11", 3);
    write_file(scratch, "train-images-idx3-ubyte", &images);
    scratch_path(path, "train-images-idx3-ubyte");
    expect_no_set(path, ERR_ARG, "is not a directory");
    expect_no_set(scratch, ERR_FORMAT, "there or in its folder");
    write_file(scratch, "train-labels-idx1-ubyte", &labels);
    /* fault: F16 */
    expect_no_set(scratch, ERR_FORMAT, "record 1 (offset 9): expected a label from 0 to 9, found 10");
    labels = labels_of(2, "\4\1", 2);
    write_file(scratch, "train-labels-idx1-ubyte", &labels);
    expect_no_set(scratch, ERR_FORMAT, "has 2 labels, but");
    scratch_path(path, "train-labels-idx1-ubyte");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_no_set(scratch, ERR_FORMAT, "is not a regular file");
}

TEST(test_debian_fashion_mnist)
{
    struct stat info;
    if (stat(debian_set, &info) != 0) skip("%s is not installed", debian_set);
    const int64_t counts[] = {60000, 10000};
    for (Split split = SPLIT_TRAIN; split <= SPLIT_VAL; split++) {
        Source *d = NULL;
        assert_int_equal(source_open(&(SourceConfig){.path = debian_set}, split, &d), OK);
        assert_int_equal(source_info(d)->count, counts[split]);
        int64_t of_class[10] = {0};
        uint8_t pixels[784];
        int32_t label = 0;
        for (int64_t i = 0; i < counts[split]; i++) {
            assert_int_equal(sample_read(d, i, pixels, sizeof pixels, &label), OK);
            of_class[label]++;
        }
        for (int k = 0; k < 10; k++) assert_int_equal(of_class[k], counts[split] / 10);
        source_close(d);
    }
}

/* ---- the synthetic reader */

TEST(test_synthetic)
{
    Source *d = NULL, *other = NULL;
    uint8_t a[300], b[300];
    int32_t label = 0, same = 0;
    int of_class[7] = {0};
    double sum = 0, squares = 0;
    assert_int_equal(source_synthetic(7000, 7, 10, 10, 3, 42, &d), OK);
    assert_int_equal(source_synthetic(7000, 7, 10, 10, 3, 43, &other), OK);
    for (int64_t i = 0; i < 7000; i++) {
        assert_int_equal(sample_read(d, i, a, sizeof a, &label), OK);
        assert_in_range(label, 0, 6);
        of_class[label]++;
        for (int k = 0; k < 300; k++) {
            assert_in_range(a[k], 7, 247);
            sum += a[k];
            squares += (double)a[k] * a[k];
        }
        assert_int_equal(sample_read(other, i, b, sizeof b, &label), OK);
        same += memcmp(a, b, sizeof a) == 0;
    }
    double mean = sum / 2100000, deviation2 = squares / 2100000 - mean * mean;
    assert_float_equal(mean, 127, 0.5);
    assert_float_equal(deviation2, 60 * 60 * 0.7737, 30); /* cut at 2 deviations the variance is 0.7737 of the whole */
    for (int k = 0; k < 7; k++) assert_in_range(of_class[k], 850, 1150);
    assert_int_equal(same, 0);
    assert_int_equal(sample_read(d, 5, a, sizeof a, &label), OK);
    assert_int_equal(sample_read(d, 5, b, sizeof b, &same), OK);
    assert_memory_equal(a, b, sizeof a);
    assert_int_equal(label, same);
    source_close(d);
    source_close(other);
    assert_int_equal(source_synthetic(0, 7, 10, 10, 3, 42, &d), ERR_ARG);
    assert_int_equal(source_synthetic(1, 0, 10, 10, 3, 42, &d), ERR_ARG);
    assert_int_equal(source_synthetic(1, 1, 10, 0, 3, 42, &d), ERR_ARG);
    assert_int_equal(source_synthetic(1, 1, 10, 10, 2, 42, &d), ERR_ARG);
}
