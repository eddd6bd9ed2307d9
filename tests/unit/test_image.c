/* Decoders on damaged bytes: every image of the fuzzers' corpus, cut at every byte and with every byte changed in
 * several ways. What is rejected is reported as damaged, what is accepted has the size of its header, nothing is read
 * behind the last byte (the sanitizer checks this), and an intact image is decoded as before afterwards. And crops of
 * intact images, which must equal the same pixels of the whole. */
#include "tests/support/unit.h"
#include "towers/data/images/image.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>
#include <zlib.h>

#include <jpeglib.h> /* needs stdio.h and stddef.h before it */

#include "kernels/base/progress.h"
#include "kernels/philox.h"
#include "tests/support/failing_malloc.h"
#include "towers/data/images/image_memory.h"
#include "towers/data/listing/endings.h"

static const struct {
    const char *name;
    ImageFormat format;
} images[] = {
    {"baseline.jpg", IMAGE_JPEG},  {"progressive.jpg", IMAGE_JPEG}, {"cmyk.jpg", IMAGE_JPEG},
    {"exif.jpg", IMAGE_JPEG},      {"rgb.png", IMAGE_PNG},          {"palette.png", IMAGE_PNG},
    {"la.png", IMAGE_PNG},         {"deep.png", IMAGE_PNG},         {"lossy.webp", IMAGE_WEBP},
    {"lossless.webp", IMAGE_WEBP}, {"gray.pgm", IMAGE_PNM},         {"text.ppm", IMAGE_PNM},
    {"rgb.bmp", IMAGE_BMP},        {"palette.bmp", IMAGE_BMP},      {"runs.bmp", IMAGE_BMP},
    {"gray.gif", IMAGE_GIF},       {"palette.gif", IMAGE_GIF},      {"rgb.tiff", IMAGE_TIFF},
    {"lzw.tiff", IMAGE_TIFF},      {"palette.tiff", IMAGE_TIFF},    {"cmyk.tiff", IMAGE_TIFF},
    {"still.heic", IMAGE_HEIF},    {"still.avif", IMAGE_HEIF},
};
enum { IMAGES = sizeof images / sizeof *images, LARGEST = 4096 };

typedef struct Fixture {
    uint8_t data[LARGEST];
    size_t size;
    ImageDecoder *decoder;
    Pixels pixels, whole;
} Fixture;

static void image_load(const char *name, Fixture *f)
{
    char path[512];
    snprintf(path, sizeof path, TOWERS_SOURCE_DIR "/tests/fuzz/corpus/image/%s", name);
    FILE *from = fopen(path, "rb");
    assert_non_null(from);
    f->size = fread(f->data, 1, LARGEST, from);
    fclose(from);
    assert_in_range(f->size, 1, LARGEST - 1);
}

/* In memory that ends where the bytes do. */
static Status decode(Fixture *f, size_t size, Pixels *pixels)
{
    Bytes bytes = {.data = malloc(size ? size : 1), .size = size, .room = size};
    ImageInfo info;
    assert_non_null(bytes.data);
    memcpy(bytes.data, f->data, size);
    Status st = image_probe(&bytes, &info);
    Rect parts[] = {{0, 0, info.h, info.w}, {0, 0, 1, 1}};
    if (st == OK) parts[1] = (Rect){info.h / 3, info.w / 4, 1 + info.h / 3, 1 + info.w / 5};
    for (int i = 1; st == OK && i >= 0; i--) { /* the whole image last, which is what the caller looks at */
        st = image_decode(f->decoder, &bytes, &info, parts[i], pixels);
        if (st == OK) assert_true(pixels->h == parts[i].h && pixels->w == parts[i].w && pixels->c == info.c);
    }
    free(bytes.data);
    if (st != OK && st != ERR_FORMAT) fail_msg("%s", status_message());
    if (st != OK) assert_true(strlen(status_message()) > 10);
    return st;
}

static bool same_pixels(const Pixels *a, const Pixels *b)
{
    bool same = a->h == b->h && a->w == b->w && a->c == b->c;
    for (int32_t y = 0; same && y < a->h; y++)
        same = memcmp(a->at + (size_t)y * a->pitch, b->at + (size_t)y * b->pitch, (size_t)a->w * (size_t)a->c) == 0;
    return same;
}

static void each_image(void (*test)(Fixture *f, const char *name))
{
    image_pixels_limit(1 << 20);
    for (int i = 0; i < IMAGES; i++) {
        const char *name = images[i].name;
        Fixture f = {.size = 0};
        if (!image_format_read(images[i].format)) continue; /* test_formats */
        assert_int_equal(image_decoder_create(&f.decoder), OK);
        image_load(name, &f);
        Status st = decode(&f, f.size, &f.whole);
        bool plugin = st == OK || !strstr(status_message(), "libheif has no decoder for it here");
        if (st != OK && plugin) fail_msg("%s: %s", name, status_message());
        if (st != OK) print_message("  %s is left out: %s\n", name, status_message());
        if (st == OK) test(&f, name);
        if (st == OK) assert_int_equal(decode(&f, f.size, &f.pixels), OK);
        assert_true(same_pixels(&f.whole, &f.pixels));
        image_decoder_destroy(f.decoder);
        pixels_free(&f.pixels);
        pixels_free(&f.whole);
    }
    image_pixels_limit(0);
}

/* Bytes lost after the last row (a JPEG's end marker, PNG's IEND, a PNM's last line feed) do not matter. */
static void cut_everywhere(Fixture *f, const char *name)
{
    size_t accepted = f->size;
    for (size_t size = 0; size < f->size; size++) {
        if (decode(f, size, &f->pixels) == OK) {
            if (size < accepted) accepted = size;
            bool text = strcmp(name, "text.ppm") == 0; /* its last number can lose a digit */
            if (!text && !same_pixels(&f->whole, &f->pixels))
                fail_msg("%s: other pixels when cut to %zu bytes", name, size);
        } else if (accepted < size) {
            fail_msg("%s: accepted when cut to %zu bytes, but not to %zu: %s", name, accepted, size, status_message());
        }
    }
    if (f->size - accepted > 24) fail_msg("%s: still decodes without its last %zu bytes", name, f->size - accepted);
}

/* Each image is recognized as what it is; one whose library the build lacks is refused with the library's name, and has no ending
 * among those of images. */
TEST(test_formats)
{
    for (int i = 0; i < IMAGES; i++) {
        Fixture f = {.size = 0};
        ImageInfo info;
        image_load(images[i].name, &f);
        Bytes bytes = {.data = f.data, .size = f.size, .room = LARGEST};
        bool read = image_format_read(images[i].format);
        assert_int_equal(ending_is_image(images[i].name), read);
        if (!read)
            assert_fails(image_probe(&bytes, &info), ERR_FORMAT, ", which this build does not read: build it with lib");
        if (!read) continue;
        if (image_probe(&bytes, &info) != OK) fail_msg("%s: %s", images[i].name, status_message());
        assert_int_equal(info.format, images[i].format);
    }
}

TEST(test_cut)
{
    each_image(cut_everywhere);
}

static void changed_everywhere(Fixture *f, const char *name)
{
    size_t refused = 0;
    for (size_t at = 0; at < f->size; at++) {
        uint8_t was = f->data[at];
        const uint8_t changed[] = {0, 0xff, (uint8_t)(was ^ 1), (uint8_t)(was ^ 0x80), (uint8_t)(was + 1)};
        for (size_t i = 0; i < sizeof changed; i++) {
            f->data[at] = changed[i];
            if (decode(f, f->size, &f->pixels) != OK) refused++;
        }
        f->data[at] = was;
    }
    if (refused == 0) fail_msg("%s: no damage was noticed", name);
}

TEST(test_changed)
{
    each_image(changed_everywhere);
}

/* A changed bit in a PNG, wherever it is, is never taken for an image: each byte counts in a checksum. */
TEST(test_png_bits)
{
    Fixture f = {.size = 0};
    assert_int_equal(image_decoder_create(&f.decoder), OK);
    image_load("palette.png", &f);
    for (size_t at = 0; at < f.size - 12; at++) /* IEND is not looked at */
        for (int bit = 0; bit < 8; bit++) {
            f.data[at] ^= (uint8_t)(1 << bit);
            if (decode(&f, f.size, &f.pixels) == OK) fail_msg("bit %d of byte %zu: not noticed", bit, at);
            f.data[at] ^= (uint8_t)(1 << bit);
        }
    image_decoder_destroy(f.decoder);
    pixels_free(&f.pixels);
}

static void chunk_put(Fixture *f, const char *type, const uint8_t *content, size_t count)
{
    uint8_t *to = f->data + f->size;
    uint32_t length = htonl((uint32_t)count), sum;
    memcpy(to, &length, 4);
    memcpy(to + 4, type, 4);
    memcpy(to + 8, content, count);
    sum = htonl((uint32_t)crc32(0, to + 4, (uInt)count + 4));
    memcpy(to + 8 + count, &sum, 4);
    f->size += count + 12;
}

/* A line of five gray pixels, which Adam7 stores in four passes in the order 0 4 2 1 3: as a row the last pass has a
 * line of two, as a column two of one. */
TEST(test_interlaced_lines)
{
    static const uint8_t row[] = {0, 10, 0, 14, 0, 12, 0, 11, 13}, column[] = {0, 10, 0, 14, 0, 12, 0, 11, 0, 13};
    for (int upright = 0; upright < 2; upright++) {
        Fixture f = {.data = "\x89PNG\r\n\x1a\n", .size = 8};
        uint8_t header[13] = {[3] = upright ? 1 : 5, [7] = upright ? 5 : 1, [8] = 8, [12] = 1}, packed[64];
        uLongf count = sizeof packed;
        assert_int_equal(compress(packed, &count, upright ? column : row, upright ? sizeof column : sizeof row), Z_OK);
        chunk_put(&f, "IHDR", header, sizeof header);
        chunk_put(&f, "IDAT", packed, count);
        chunk_put(&f, "IEND", packed, 0);
        assert_int_equal(image_decoder_create(&f.decoder), OK);
        if (decode(&f, f.size, &f.pixels) != OK) fail_msg("%s", status_message());
        for (int i = 0; i < 15; i++)
            assert_int_equal(f.pixels.at[upright ? (size_t)(i / 3) * f.pixels.pitch + (size_t)(i % 3) : (size_t)i],
                             10 + i / 3);
        image_decoder_destroy(f.decoder);
        pixels_free(&f.pixels);
    }
}

/* Gray of 16 bits is scaled as colors of 16 bits are, with and without alpha, and a PGM by its own largest value. */
TEST(test_deep_gray)
{
    static const uint16_t values[] = {0, 255, 256, 4095, 32768, 65535};
    static const struct {
        uint8_t type, channels; /* of a PNG */
    } kinds[] = {{0, 1}, {4, 2}, {2, 3}};
    enum { VALUES = sizeof values / sizeof *values };
    Fixture f = {.size = 0};
    assert_int_equal(image_decoder_create(&f.decoder), OK);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        uint8_t header[13] = {[3] = VALUES, [7] = 1, [8] = 16, [9] = kinds[k].type}, row[1 + 6 * VALUES] = {0},
                packed[99];
        uLongf count = sizeof packed;
        size_t used = 1;
        for (size_t i = 0; i < (size_t)VALUES * kinds[k].channels; i++) {
            row[used++] = (uint8_t)(values[i / kinds[k].channels] >> 8);
            row[used++] = (uint8_t)values[i / kinds[k].channels];
        }
        assert_int_equal(compress(packed, &count, row, used), Z_OK);
        memcpy(f.data, "\x89PNG\r\n\x1a\n", f.size = 8);
        chunk_put(&f, "IHDR", header, sizeof header);
        chunk_put(&f, "IDAT", packed, count);
        chunk_put(&f, "IEND", packed, 0);
        if (decode(&f, f.size, &f.pixels) != OK) fail_msg("%s", status_message());
        for (size_t i = 0; i < 3 * (size_t)VALUES; i++) assert_int_equal(f.pixels.at[i], values[i / 3] >> 8);
    }
    static const struct {
        const char *text;
        uint8_t wanted[3];
    } maps[] = {{"P2 3 1 65535 0 32896 65535", {0, 128, 255}}, {"P2 3 1 4095 0 2048 4095", {0, 128, 255}}};
    for (size_t k = 0; k < sizeof maps / sizeof *maps; k++) {
        memcpy(f.data, maps[k].text, f.size = strlen(maps[k].text));
        if (decode(&f, f.size, &f.pixels) != OK) fail_msg("%s", status_message());
        for (size_t i = 0; i < 9; i++) assert_int_equal(f.pixels.at[i], maps[k].wanted[i / 3]);
    }
    image_decoder_destroy(f.decoder);
    pixels_free(&f.pixels);
}

/* Limits hold before memory is taken. */
TEST(test_limits)
{
    const char *const names[] = {"baseline.jpg", "rgb.png", "lossy.webp", "text.ppm"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Fixture f = {.size = 0};
        assert_int_equal(image_decoder_create(&f.decoder), OK);
        image_load(names[i], &f);
        image_pixels_limit(1);
        assert_int_equal(decode(&f, f.size, &f.pixels), ERR_FORMAT);
        image_pixels_limit(0);
        if (!strstr(status_message(), "expected at most 1 pixels")) fail_msg("%s: %s", names[i], status_message());
        image_decoder_destroy(f.decoder);
        pixels_free(&f.pixels);
    }
}

static Status decode_bytes(const uint8_t *data, size_t size)
{
    ImageDecoder *decoder;
    Pixels pixels = {0};
    ImageInfo info;
    Bytes bytes = {0};
    assert_int_equal(bytes_reserve(&bytes, size), OK);
    memcpy(bytes.data, data, size);
    bytes.size = size;
    assert_int_equal(image_decoder_create(&decoder), OK);
    Status st = image_probe(&bytes, &info);
    if (st == OK) st = image_decode(decoder, &bytes, &info, (Rect){0, 0, info.h, info.w}, &pixels);
    image_decoder_destroy(decoder);
    pixels_free(&pixels);
    bytes_free(&bytes);
    return st;
}

/* What is too short for a format is shown as it is, and no byte more. */
TEST(test_few_bytes)
{
    static const struct {
        size_t size;
        const char *found;
    } rows[] = {{1, ", found the byte 41"}, {2, ", found bytes 41 42"}, {6, ", found bytes 41 42 43 44"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(decode_bytes((const uint8_t *)"ABCDEF", rows[i].size), ERR_FORMAT);
        const char *end = strstr(status_message(), ", found");
        assert_non_null(end);
        assert_string_equal(end, rows[i].found);
    }
}

/* A last scan that comes again and again: each covers the whole image. The larger the image, the fewer are allowed. */
TEST(test_scans)
{
    const struct {
        int64_t pixels_max;
        int copies;
        const char *why; /* NULL: decoded */
    } rows[] = {{0, 80, NULL}, {0, 110, "more than 100 scans"}, {221, 20, "more than 10 scans"}};
    Fixture f = {.size = 0};
    assert_int_equal(image_decoder_create(&f.decoder), OK);
    image_load("progressive.jpg", &f);
    size_t last = f.size - 2, all;
    while (memcmp(f.data + last, "\xff\xda", 2) != 0) last--;
    size_t scan = f.size - 2 - last;
    uint8_t *many = malloc(f.size + 128 * scan);
    memcpy(many, f.data, f.size);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int k = 1; k <= rows[i].copies; k++) memcpy(many + last + (size_t)k * scan, f.data + last, scan);
        all = last + ((size_t)rows[i].copies + 1) * scan;
        memcpy(many + all, "\xff\xd9", 2);
        image_pixels_limit(rows[i].pixels_max);
        Status st = decode_bytes(many, all + 2);
        image_pixels_limit(0);
        if ((st == OK) != !rows[i].why) fail_msg("%d copies: %s", rows[i].copies, st ? status_message() : "decoded");
        if (rows[i].why && !strstr(status_message(), rows[i].why)) fail_msg("%s", status_message());
    }
    free(many);
    image_decoder_destroy(f.decoder);
}

/* A sequential JPEG of 148 million pixels in three scans, with the codes of a few blocks. Nothing is decoded of a file
 * that is too small for its header, and after the end of the data nothing is made up. */
TEST(test_announced_size)
{
    static uint8_t bytes[1024];
    uint8_t *at = bytes;
    const uint8_t tables[] = {0xff, 0xc4, 0, 20, 0x00, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    const uint8_t frame[] = {0xff, 0xc0, 0, 17, 8, 0x08, 0xd5, 0xff, 0xdc, 3, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0};
    const uint8_t scan[] = {0xff, 0xda, 0, 8, 1, 1, 0x00, 0, 63, 0};
    *at++ = 0xff, *at++ = 0xd8;
    *at++ = 0xff, *at++ = 0xdb, *at++ = 0, *at++ = 67, *at++ = 0;
    memset(at, 1, 64), at += 64;
    memcpy(at, tables, sizeof tables), at += sizeof tables;
    memcpy(at, tables, sizeof tables), at[4] = 0x10, at += sizeof tables;
    memcpy(at, frame, sizeof frame), at += sizeof frame;
    memcpy(at, scan, sizeof scan), at += sizeof scan;
    assert_fails(decode_bytes(bytes, (size_t)(at - bytes) + 4), ERR_FORMAT, "65500 x 2261 pixels in");
}

/* Of threads that each want more than half of the budget, one has it at a time, also one that wants more than all. */
static atomic_int holders, together;

static void *holder_run(void *wants)
{
    for (int i = 0; i < 50; i++) {
        int64_t taken = image_memory_take(*(const int64_t *)wants);
        if (atomic_fetch_add(&holders, 1) > 0) atomic_store(&together, 1);
        sched_yield();
        atomic_fetch_sub(&holders, 1);
        image_memory_give(taken);
    }
    return NULL;
}

TEST(test_budget)
{
    pthread_t threads[4];
    int64_t wants[4] = {9000, 16000, INT64_MAX, 8001};
    image_pixels_limit(1000);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, holder_run, &wants[i]), 0);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(together, 0);
    assert_int_equal(image_memory_take(16001), 16000);
    image_memory_give(16000);
    image_pixels_limit(0);
    assert_int_equal(image_pixels_max(), 178956970);
}

static atomic_int arrived;

/* Takes half of the budget, and gives it back when the other half is taken, too. */
static void *half_run(void *unused)
{
    int64_t taken = image_memory_take(8000);
    atomic_fetch_add(&arrived, 1);
    while (atomic_load(&arrived) < 2) sched_yield();
    image_memory_give(taken);
    return unused;
}

/* What is given back may be enough for several that wait: all of them look. */
TEST(test_budget_wakes_all)
{
    enum { GUARD_S = 120 };
    pthread_t threads[2];
    image_pixels_limit(1000);
    alarm(GUARD_S);
    for (int turn = 0; turn < 20; turn++) {
        int64_t all = image_memory_take(16000);
        atomic_store(&arrived, 0);
        for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, half_run, NULL), 0);
        nanosleep(&(struct timespec){0, 2000000l}, NULL); /* most turns find both waiting */
        image_memory_give(all);
        for (int i = 0; i < 2; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    alarm(0);
    image_pixels_limit(0);
}

/* ---- crops */

static int32_t below(uint32_t word, int32_t bound)
{
    return (int32_t)((uint64_t)word * (uint64_t)bound >> 32);
}

/* Random parts of all sizes, and one pixel in each corner, equal the same pixels of the whole image. */
static void expect_crops(ImageDecoder *decoder, const Bytes *bytes, const char *name)
{
    enum { CROPS = 60 };
    ImageInfo info;
    Pixels whole = {0}, part = {0};
    assert_int_equal(image_probe(bytes, &info), OK);
    assert_int_equal(image_decode(decoder, bytes, &info, (Rect){0, 0, info.h, info.w}, &whole), OK);
    for (int i = 0; i < CROPS; i++) {
        Philox words = philox(1, (uint32_t)i, 0, 0, 0);
        int32_t y = below(words.v[0], info.h), x = below(words.v[1], info.w);
        Rect r = {y, x, 1 + below(words.v[2], info.h - y), 1 + below(words.v[3], info.w - x)};
        if (i < 4) r = (Rect){i / 2 * (info.h - 1), i % 2 * (info.w - 1), 1, 1};
        if (image_decode(decoder, bytes, &info, r, &part) != OK) fail_msg("%s: %s", name, status_message());
        assert_true(part.h == r.h && part.w == r.w && part.c == whole.c);
        for (int32_t k = 0; k < r.h; k++)
            if (memcmp(part.at + (size_t)k * part.pitch,
                       whole.at + (size_t)(r.y + k) * whole.pitch + (size_t)(r.x * whole.c), (size_t)(r.w * part.c)))
                fail_msg("%s: row %d of %d x %d pixels at (%d, %d) differs from the whole", name, k, r.h, r.w, r.y,
                         r.x);
    }
    pixels_free(&whole);
    pixels_free(&part);
}

static void crops_of_image(Fixture *f, const char *name)
{
    Bytes bytes = {.data = f->data, .size = f->size, .room = sizeof f->data};
    expect_crops(f->decoder, &bytes, name);
}

/* A JPEG of several blocks in both directions; chroma has one sample for `across` x `down` of luma. */
typedef struct JpegKind {
    const char *name;
    int across, down;
    J_COLOR_SPACE from, stored;
    bool progressive;
    unsigned restart; /* blocks between restart markers; 0: none */
} JpegKind;

static Bytes jpeg_made(const JpegKind *kind)
{
    enum { H = 91, W = 150 };
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    unsigned char *bytes = NULL;
    unsigned long size = 0;
    info.err = jpeg_std_error(&errors); /* ends the program */
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &bytes, &size);
    info.image_height = H;
    info.image_width = W;
    info.in_color_space = kind->from;
    info.input_components = kind->from == JCS_CMYK ? 4 : kind->from == JCS_RGB ? 3 : 1;
    jpeg_set_defaults(&info);
    jpeg_set_colorspace(&info, kind->stored);
    for (int i = 0; i < info.num_components; i++) { /* black of YCCK is as fine as luma */
        info.comp_info[i].h_samp_factor = i % 3 == 0 ? kind->across : 1;
        info.comp_info[i].v_samp_factor = i % 3 == 0 ? kind->down : 1;
    }
    if (kind->progressive) jpeg_simple_progression(&info);
    info.restart_interval = kind->restart;
    jpeg_start_compress(&info, TRUE);
    for (uint32_t y = 0; y < H; y++) { /* patches of 5 x 3 pixels, so that no two blocks are alike */
        JSAMPLE row[W * 4], *rows[] = {row};
        for (uint32_t x = 0; x < (uint32_t)(W * info.input_components); x++)
            row[x] = (JSAMPLE)philox(2, y / 3, x / (uint32_t)info.input_components / 5,
                                     x % (uint32_t)info.input_components, 0)
                         .v[0];
        assert_int_equal(jpeg_write_scanlines(&info, rows, 1), 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    return (Bytes){.data = bytes, .size = size, .room = size};
}

TEST(test_crops)
{
    static const JpegKind kinds[] = {
        {"4:4:4", 1, 1, JCS_RGB, JCS_YCbCr, false, 0},
        {"4:2:2", 2, 1, JCS_RGB, JCS_YCbCr, false, 0},
        {"4:2:0", 2, 2, JCS_RGB, JCS_YCbCr, false, 0},
        {"4:4:0", 1, 2, JCS_RGB, JCS_YCbCr, false, 0},
        {"4:1:1", 4, 1, JCS_RGB, JCS_YCbCr, false, 0},
        {"4:1:0", 4, 2, JCS_RGB, JCS_YCbCr, false, 0},
        {"4:2:0 with restarts", 2, 2, JCS_RGB, JCS_YCbCr, false, 3},
        {"4:2:0, progressive", 2, 2, JCS_RGB, JCS_YCbCr, true, 0},
        {"4:2:2, progressive", 2, 1, JCS_RGB, JCS_YCbCr, true, 0},
        {"RGB", 1, 1, JCS_RGB, JCS_RGB, false, 0},
        {"gray", 1, 1, JCS_GRAYSCALE, JCS_GRAYSCALE, false, 0},
        {"CMYK", 1, 1, JCS_CMYK, JCS_CMYK, false, 0},
        {"YCCK 4:2:0", 2, 2, JCS_CMYK, JCS_YCCK, false, 0},
    };
    ImageDecoder *decoder;
    each_image(crops_of_image);
    assert_int_equal(image_decoder_create(&decoder), OK);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        Bytes bytes = jpeg_made(&kinds[i]);
        expect_crops(decoder, &bytes, kinds[i].name);
        free(bytes.data);
    }
    image_decoder_destroy(decoder);
}

/* Each allocation of a decoder fails in turn: what that prevents is reported as a lack of memory, never as damage. */
TEST(test_no_memory)
{
    failing_malloc_or_skip();
    /* lossless.webp and TIFF are not here: libwebp 1.2.4 and libtiff 4.5.0 crash when one of their allocations fails. */
    static const char *const names[] = {"baseline.jpg", "progressive.jpg", "cmyk.jpg",   "rgb.png",
                                        "deep.png",     "lossy.webp",      "palette.gif"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        if (strstr(names[k], ".gif") && !image_format_read(IMAGE_GIF)) continue;
        Fixture f;
        bool reached = true;
        int refused = 0;
        image_load(names[k], &f);
        for (int n = 1; reached; n++) {
            Bytes bytes = {.data = f.data, .size = f.size, .room = f.size};
            ImageInfo info;
            Pixels pixels = {0};
            assert_int_equal(image_decoder_create(&f.decoder), OK);
            assert_int_equal(image_probe(&bytes, &info), OK);
            allocations_left = n;
            Status st = image_decode(f.decoder, &bytes, &info, (Rect){0, 0, info.h, info.w}, &pixels);
            reached = allocations_left < 0;
            allocations_left = 0;
            bool missing = st == ERR_MEMORY && strstr(status_message(), "no memory");
            if (reached ? st != OK && !missing : st != OK)
                fail_msg("%s, allocation %d: %d, %s", names[k], n, st, status_message());
            refused += st == ERR_MEMORY;
            pixels_free(&pixels);
            image_decoder_destroy(f.decoder);
        }
        assert_in_range(refused, 4, 500);
    }
}

/* Images that take long say so while they are decoded. */
static void shows_progress(Fixture *f, const char *name)
{
    ProgressSlot slot = {.at_ns = 0};
    progress_of_thread(&slot);
    Status st = decode(f, f->size, &f->pixels);
    progress_of_thread(NULL);
    if (st != OK || (slot.at_ns > 0) != (strstr(name, ".jpg") || strstr(name, ".png") || strstr(name, ".tiff")))
        fail_msg("%s", name);
}

TEST(test_progress)
{
    each_image(shows_progress);
}

/* Any bytes are an orientation of 1 to 8; the last entry may end where the block does. */
TEST(test_exif)
{
    static const uint8_t block[] = {'I', 'I', '*', 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0};
    static const uint8_t wide[] = {'M', 'M', 0, '*', 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 4, 0, 0, 0, 1, 0, 0, 0, 6};
    assert_int_equal(exif_orientation(block, sizeof block), 6);
    assert_int_equal(exif_orientation(wide, sizeof wide), 6); /* as a number of 32 bits, which Pillow reads, too */
    for (size_t size = 0; size < sizeof block; size++) {
        uint8_t *copy = malloc(size ? size : 1);
        assert_non_null(copy);
        memcpy(copy, block, size);
        assert_int_equal(exif_orientation(copy, size), 1);
        for (size_t at = 0; at < size; at++)
            for (int value = 0; value < 256; value += 5) {
                copy[at] = (uint8_t)value;
                assert_in_range(exif_orientation(copy, size), 1, 8);
                copy[at] = block[at];
            }
        free(copy);
    }
}

/* Of two segments the first has the orientation; the second is what did not fit into it. */
TEST(test_exif_in_two)
{
    uint8_t jpeg[] = "\xff\xd8\xff\xe1\0\x1e"
                     "Exif\0\0II*\0\10\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0"
                     "\xff\xe1\0\x10"
                     "Exif\0\0xxxxxxxx"
                     "\xff\xc0\0\10\10\0\2\0\3\1";
    ImageInfo info;
    assert_int_equal(image_probe(&(Bytes){.data = jpeg, .size = sizeof jpeg}, &info), OK);
    assert_int_equal(info.orientation, 6);
}
