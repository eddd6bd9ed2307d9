/* CRC32C against the vectors of RFC 3720 B.4, and event files read back record by record. */
#include <dirent.h>

#include "proto/event.pb-c.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "towers/files/crc32c.h"
#include "towers/record/events.h"

TEST(vectors_of_the_rfc)
{
    unsigned char zeros[32] = {0}, ones[32], up[32], down[32];
    static const unsigned char read_pdu[48] = {0x01, 0xc0, 0, 0, 0, 0, 0,    0, 0,    0, 0, 0,    0, 0, 0, 0,
                                               0x14, 0,    0, 0, 0, 0, 0x04, 0, 0,    0, 0, 0x14, 0, 0, 0, 0x18,
                                               0x28, 0,    0, 0, 0, 0, 0,    0, 0x02, 0, 0, 0,    0, 0, 0, 0};
    memset(ones, 0xff, 32);
    for (int i = 0; i < 32; i++) up[i] = (unsigned char)i, down[i] = (unsigned char)(31 - i);
    const struct {
        const unsigned char *bytes;
        uint64_t count;
        uint32_t crc;
    } vectors[] = {{zeros, 32, 0x8a9136aa},
                   {ones, 32, 0x62a8ab43},
                   {up, 32, 0x46dd794e},
                   {down, 32, 0x113fdb5c},
                   {read_pdu, 48, 0xd9963a56},
                   {(const unsigned char *)"123456789", 9, 0xe3069283},
                   {zeros, 0, 0}};
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        assert_int_equal(crc32c(0, vectors[i].bytes, vectors[i].count), vectors[i].crc);
        assert_int_equal(crc32c_portable(0, vectors[i].bytes, vectors[i].count), vectors[i].crc);
    }
}

/* Any start, any length, any cut: hardware, tables and pieces agree. */
TEST(pieces_make_the_whole)
{
    unsigned char bytes[257];
    for (int i = 0; i < 257; i++) bytes[i] = (unsigned char)(i * 37 + i / 8);
    for (uint64_t start = 0; start < 9; start++)
        for (uint64_t count = 0; count + start <= 257; count += 1 + count / 16) {
            uint32_t whole = crc32c(0, bytes + start, count), cut = crc32c(0, bytes + start, count / 3);
            assert_int_equal(whole, crc32c_portable(0, bytes + start, count));
            assert_int_equal(whole, crc32c(cut, bytes + start + count / 3, count - count / 3));
        }
    assert_int_equal(crc32c_masked("123456789", 9), ((0xe3069283u >> 15) | (0xe3069283u << 17)) + 0xa282ead8u);
}

static uint64_t little(const char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | (unsigned char)at[i];
    return value;
}

/* The newest event file's records, checked and unpacked. The caller frees each. */
static int events_read(Tfevent__Event **events, int room)
{
    char newest[256] = "", path[PATH_BYTES], *bytes;
    size_t count, at = 0;
    int made = 0;
    struct dirent *entry;
    DIR *listing = opendir(scratch);
    while ((entry = readdir(listing)))
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, newest) > 0) strcpy(newest, entry->d_name);
    closedir(listing);
    scratch_path(path, newest);
    assert_int_equal(file_read(path, 1 << 24, &bytes, &count), OK);
    while (at < count) {
        uint64_t length = little(bytes + at, 8);
        assert_true(made < room && length <= count - at - 16);
        assert_int_equal(little(bytes + at + 8, 4), crc32c_masked(bytes + at, 8));
        assert_int_equal(little(bytes + at + 12 + length, 4), crc32c_masked(bytes + at + 12, length));
        events[made] = tfevent__event__unpack(NULL, length, (const uint8_t *)bytes + at + 12);
        assert_non_null(events[made++]);
        at += 16 + length;
    }
    free(bytes);
    return made;
}

static void events_free(Tfevent__Event **events, int count)
{
    for (int i = 0; i < count; i++) tfevent__event__free_unpacked(events[i], NULL);
}

TEST_WITH(scalars_are_records, scratch_make, scratch_drop)
{
    Tfevent__Event *read[8];
    Events *events;
    assert_int_equal(events_open(scratch, -1, &events), OK);
    assert_int_equal(events_scalar(events, 7, "mean_loss", 2.5), OK);
    assert_int_equal(events_scalar(events, 0, "zero", 0), OK);
    assert_int_equal(events_flush(events), OK);
    int count = events_read(read, 8);
    events_close(events);
    assert_int_equal(count, 3);
    assert_string_equal(read[0]->file_version, "brain.Event:2");
    assert_true(read[1]->wall_time > 1.6e9);
    assert_int_equal(read[1]->step, 7);
    assert_string_equal(read[1]->summary->value[0]->tag, "mean_loss");
    assert_true(read[1]->summary->value[0]->simple_value == 2.5f);
    assert_int_equal(read[2]->summary->value[0]->value_case,
                     TFEVENT__SUMMARY__VALUE__VALUE_SIMPLE_VALUE); /* 0 is there */
    events_free(read, count);
}

/* fault: F54 */
TEST_WITH(a_resumed_run_starts_a_later_file, scratch_make, scratch_drop)
{
    Tfevent__Event *read[8];
    Events *first, *second;
    assert_int_equal(events_open(scratch, -1, &first), OK);
    assert_int_equal(events_scalar(first, 1, "a", 1), OK);
    assert_int_equal(events_open(scratch, 40, &second), OK); /* in the same second */
    int count = events_read(read, 8);
    assert_int_equal(count, 2);
    assert_int_equal(read[1]->session_log->status, TFEVENT__SESSION_LOG__STATUS__START);
    assert_int_equal(read[1]->step, 41);
    events_free(read, count);
    events_close(first);
    events_close(second);
}

static Status histogram_write(Events *events, int64_t step, const char *tag, const float *values, int64_t count)
{
    static Histogram histogram;
    histogram_count(values, count, &histogram);
    return events_histogram(events, step, tag, &histogram);
}

TEST_WITH(histograms_count_every_finite_value, scratch_make, scratch_drop)
{
    static const float values[] = {-3, -3, 0, 1e-20f, 1, 3e38f, NAN, INFINITY, -INFINITY};
    Tfevent__Event *read[4];
    Events *events;
    double total = 0;
    assert_int_equal(events_open(scratch, -1, &events), OK);
    assert_int_equal(histogram_write(events, 1, "w", values, 9), OK);
    assert_int_equal(histogram_write(events, 2, "none", values, 0), OK);
    events_close(events);
    int count = events_read(read, 4);
    assert_int_equal(count, 3);
    const Tfevent__HistogramProto *h = read[1]->summary->value[0]->histo;
    assert_true(h->num == 6 && h->min == -3 && h->max == 3e38f);
    assert_int_equal(h->n_bucket, h->n_bucket_limit);
    for (size_t i = 0; i < h->n_bucket; i++) {
        total += h->bucket[i];
        if (i) assert_true(h->bucket_limit[i] > h->bucket_limit[i - 1]);
    }
    assert_true(total == 6);
    events_free(read, count);
}

/* Each value alone: it lies below the limit of its bucket, and not below that of the bucket before. */
TEST_WITH(values_are_in_their_buckets, scratch_make, scratch_drop)
{
    enum { VALUES = 3000 };
    Tfevent__Event **read = calloc(VALUES + 1, sizeof *read);
    float *values = calloc(VALUES, sizeof *values);
    Events *events;
    assert_int_equal(events_open(scratch, -1, &events), OK);
    for (int i = 0; i < VALUES; i++) {
        uint32_t bits = i < 64 ? (uint32_t)i << 26 : (uint32_t)i * 2654435761u;
        memcpy(&values[i], &bits, sizeof bits);
        if (i >= 64 && i < 1000) values[i] = (float)((i % 2 ? 1 : -1) * 1e-12 * pow(1.1, i - 64)); /* near limits */
        if (!isfinite(values[i])) values[i] = 0;
        assert_int_equal(histogram_write(events, i, "w", &values[i], 1), OK);
    }
    events_close(events);
    assert_int_equal(events_read(read, VALUES + 1), VALUES + 1);
    for (int i = 0; i < VALUES; i++) {
        const Tfevent__HistogramProto *h = read[i + 1]->summary->value[0]->histo;
        size_t k = 0;
        while (k < h->n_bucket && h->bucket[k] == 0) k++;
        assert_true(k < h->n_bucket && h->bucket[k] == 1);
        if (!((double)values[i] < h->bucket_limit[k]) || (k && (double)values[i] < h->bucket_limit[k - 1]))
            fail_msg("%.9g is in the bucket below %.17g", (double)values[i], h->bucket_limit[k]);
    }
    events_free(read, VALUES + 1);
    free(read);
    free(values);
}

TEST_WITH(images_are_png, scratch_make, scratch_drop)
{
    static const uint8_t pixels[2 * 3 * 3] = {1, 2, 3};
    Tfevent__Event *read[4];
    Events *events;
    assert_int_equal(events_open(scratch, -1, &events), OK);
    assert_int_equal(events_image(events, 5, "first_batch/0", pixels, 3, 2, 3), OK);
    assert_int_equal(events_image(events, 5, "none", pixels, 0, 2, 3), ERR_ARG);
    events_close(events);
    int count = events_read(read, 4);
    assert_int_equal(count, 2);
    const Tfevent__Summary__Image *image = read[1]->summary->value[0]->image;
    assert_true(image->width == 3 && image->height == 2 && image->colorspace == 3);
    assert_memory_equal(image->encoded_image_string.data, "\x89PNG", 4);
    events_free(read, count);
}

TEST(a_place_that_is_none_is_reported)
{
    Events *events = NULL;
    assert_int_equal(events_open("/nonexistent/run", -1, &events), ERR_IO);
    assert_null(events);
}
