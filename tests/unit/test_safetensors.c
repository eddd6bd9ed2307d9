/* safetensors: written files are read back bit for bit, and every kind of invalid header is rejected. The names of the
 * bad files follow the attacks of the format's reference implementation. */
#include <dirent.h>
#include <sys/resource.h>

#include "tests/support/sample_checkpoint.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

enum { FILE_ROOM = 4096 };

/* A file of the given header and so many bytes of data. */
static size_t file_make(unsigned char *to, const char *header, size_t data_bytes)
{
    size_t length = strlen(header);
    for (int i = 0; i < 8; i++) to[i] = (unsigned char)((uint64_t)length >> 8 * i);
    memcpy(to + 8, header, length);
    memset(to + 8 + length, 7, data_bytes);
    return 8 + length + data_bytes;
}

static Status parse(const char *header, size_t data_bytes, SafeTensors **made)
{
    unsigned char bytes[FILE_ROOM];
    return safetensors_parse(bytes, file_make(bytes, header, data_bytes), "sample", made);
}

TEST(written_is_read)
{
    char path[PATH_BYTES];
    Sample sample;
    SafeTensors *file;
    uint64_t wanted;
    struct stat info;
    sample_make(&sample, 3, 100);
    scratch_path(path, "written.safetensors");
    assert_int_equal(safetensors_write(path, sample.model, SAMPLE_MODEL, sample.metadata, 2, NULL), OK);
    assert_int_equal(safetensors_bytes(sample.model, SAMPLE_MODEL, sample.metadata, 2, &wanted), OK);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, wanted);
    assert_int_equal(safetensors_open(path, &file), OK);
    assert_int_equal(safetensors_count(file), SAMPLE_MODEL);
    assert_string_equal(safetensors_at(file, 0)->name, "stem.bn.num_batches_tracked"); /* widest first */
    assert_string_equal(safetensors_at(file, 4)->name, "head.half");
    for (int i = 0; i < SAMPLE_MODEL; i++) {
        const StTensor *got = safetensors_find(file, sample.model[i].name);
        assert_non_null(got);
        assert_int_equal(got->bytes, sample.model[i].bytes);
        assert_int_equal((uintptr_t)got->data % st_dtype_bytes(got->dtype), 0);
        if (got->bytes) assert_memory_equal(got->data, sample.model[i].data, got->bytes);
    }
    assert_null(safetensors_find(file, "stem"));
    assert_null(safetensors_at(file, SAMPLE_MODEL));
    assert_string_equal(safetensors_metadata(file, "model"), "sample \"quoted\" \xc3\xbc");
    safetensors_close(file);
    assert_int_equal(safetensors_write(path, sample.model, SAMPLE_MODEL, NULL, 0, NULL), ERR_IO); /* it exists */
    assert_int_equal(safetensors_replace(path, sample.train, SAMPLE_TRAIN, NULL, 0), OK);
    assert_int_equal(safetensors_open(path, &file), OK);
    assert_int_equal(safetensors_count(file), SAMPLE_TRAIN);
    safetensors_close(file);
    sample_free(&sample);
}

TEST(legal_corners_are_read)
{
    static const struct {
        const char *header;
        size_t data;
        int count;
    } good[] = {
        {"{}", 0, 0},
        {"{}      ", 0, 0},
        {"{\"__metadata__\":{}}", 0, 0},
        {"{\"scalar\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, 1},
        {"{\"empty\":{\"dtype\":\"F32\",\"shape\":[0,9223372036854775807],\"data_offsets\":[0,0]}}", 0, 1},
        {"{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]},\"a\":{\"dtype\":\"BOOL\",\"shape\":[1],"
         "\"data_offsets\":[0,1]},\"none\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]}}",
         3, 3},
        {"{\"\\u00fc\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, 1},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        SafeTensors *file = NULL;
        assert_int_equal(parse(good[i].header, good[i].data, &file), OK);
        assert_int_equal(safetensors_count(file), good[i].count);
        safetensors_close(file);
    }
}

#define ENTRY(name, dtype, shape, offsets)                                                                             \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

/* Headers that claim what cannot be, and how many bytes of data follow them. */
static const struct {
    const char *header;
    size_t data;
    const char *says; /* part of the message */
} lies[] = {
    {"{" ENTRY("x", "F32", "[1]", "[0,4]") "}", 5, "follow the last tensor"},
    {"{" ENTRY("x", "F32", "[1]", "[0,4]") "}", 3, "'x'"},
    {"{" ENTRY("x", "F32", "[1]", "[4,8]") "}", 8, "hole"},
    {"{" ENTRY("x", "U8", "[4]", "[0,4]") "," ENTRY("y", "U8", "[4]", "[2,6]") "}", 6, "overlap"},
    {"{" ENTRY("x", "U8", "[2]", "[0,2]") "," ENTRY("y", "U8", "[2]", "[3,5]") "}", 5, "hole"},
    {"{" ENTRY("x", "U8", "[4]", "[0,4]") "," ENTRY("x", "U8", "[4]", "[4,8]") "}", 8, "duplicate"},
    {"{" ENTRY("x", "F4", "[1]", "[0,4]") "}", 4, "dtype 'F4'"},
    {"{" ENTRY("x", "F32", "[2]", "[0,4]") "}", 4, "size of its shape"},
    {"{" ENTRY("x", "F32", "[-1]", "[0,4]") "}", 4, "dimension 0"},
    {"{" ENTRY("x", "F32", "[1.0]", "[0,4]") "}", 4, "dimension 0"},
    {"{" ENTRY("x", "F32", "[4611686018427387904,4]", "[0,0]") "}", 0, "size of its shape"},
    {"{" ENTRY("x", "F32", "[9223372036854775808]", "[0,0]") "}", 0, "JSON"},
    {"{" ENTRY("x", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, "9 dimensions"},
    {"{" ENTRY("x", "F32", "[1]", "[4,0]") "}", 4, "outside"},
    {"{" ENTRY("x", "F32", "[1]", "[-4,0]") "}", 4, "outside"},
    {"{" ENTRY("x", "F32", "[1]", "[0,4,8]") "}", 4, "data_offsets"},
    {"{" ENTRY("x", "F32", "[1]", "\"0\"") "}", 4, "data_offsets"},
    {"{" ENTRY("x", "F32", "1", "[0,4]") "}", 4, "no shape"},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"more\":1}}", 4, "exactly"},
    {"{\"x\":{\"dtype\":4,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "no dtype"},
    {"{\"x\":3}", 0, "exactly"},
    {"{" ENTRY("a\\nb", "U8", "[1]", "[0,1]") "}", 1, "control characters"},
    {"{" ENTRY("a\\u0000b", "U8", "[1]", "[0,1]") "}", 1, "JSON"},
    {"{" ENTRY("\xff", "U8", "[1]", "[0,1]") "}", 1, "unable to decode byte"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "not a string"},
    {"{\"__metadata__\":[]}", 0, "not an object"},
    {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "duplicate"},
    {"[]", 0, "not with '{'"},
    {" {}", 0, "not with '{'"},
    {"{} x", 0, "JSON"},
    {"{", 1, "header"},
    {"{\"x\":", 0, "JSON"},
};

/* fault: F8 */
TEST(lies_are_refused)
{
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        SafeTensors *file = NULL;
        assert_int_equal(parse(lies[i].header, lies[i].data, &file), ERR_CHECKPOINT);
        if (!strstr(status_message(), lies[i].says))
            fail_msg("%s\n  does not say '%s'", status_message(), lies[i].says);
        if (!strstr(status_message(), "'sample'")) fail_msg("%s\n  does not name the file", status_message());
    }
}

/* fault: F7 */
TEST(impossible_lengths_are_refused)
{
    static const uint64_t lengths[] = {
        0, 1, 9, 100000001, 1ull << 63, UINT64_MAX, UINT64_MAX - 7, ST_MAX_HEADER + 1ull};
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        unsigned char bytes[16] = "        {}      ";
        SafeTensors *file = NULL;
        for (int k = 0; k < 8; k++) bytes[k] = (unsigned char)(lengths[i] >> 8 * k);
        assert_int_equal(safetensors_parse(bytes, sizeof bytes, "sample", &file), ERR_CHECKPOINT);
    }
    for (size_t count = 0; count < 10; count++) {
        SafeTensors *file = NULL;
        assert_int_equal(safetensors_parse("\2\0\0\0\0\0\0\0{}", count, "sample", &file), ERR_CHECKPOINT);
    }
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < 1024); /* KiB */
}

TEST(deep_nesting_is_refused)
{
    enum { DEPTH = 1 << 20 };
    char *header = malloc(DEPTH + 1);
    unsigned char *bytes = malloc(DEPTH + 16);
    SafeTensors *file = NULL;
    memset(header, '[', DEPTH);
    memcpy(header, "{\"x\":", 5);
    header[DEPTH] = 0;
    size_t count = file_make(bytes, header, 0);
    assert_int_equal(safetensors_parse(bytes, count, "sample", &file), ERR_CHECKPOINT);
    free(header);
    free(bytes);
}

TEST(what_cannot_be_read_back_is_not_written)
{
    static const float one = 1;
    char path[PATH_BYTES], longest[ST_MAX_NAME + 2];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    StTensor good = {"x", ST_F32, 1, {1}, &one, 4};
    StTensor bad[] = {{longest, ST_F32, 1, {1}, &one, 4},     {"a\nb", ST_F32, 1, {1}, &one, 4},
                      {"\xff", ST_F32, 1, {1}, &one, 4},      {"y", ST_F32, 1, {2}, &one, 4},
                      {"y", ST_F32, 1, {-1}, &one, 4},        {"y", ST_F32, 9, {1}, &one, 4},
                      {"y", ST_DTYPE_COUNT, 1, {1}, &one, 4}, {"__metadata__", ST_F32, 1, {1}, &one, 4},
                      {"x", ST_F32, 1, {1}, &one, 4}};
    scratch_path(path, "bad.safetensors");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        StTensor both[] = {good, bad[i]};
        assert_int_equal(safetensors_write(path, both, 2, NULL, 0, NULL), ERR_ARG);
        assert_int_equal(access(path, F_OK), -1);
    }
}

TEST(what_is_not_a_file_is_refused)
{
    char path[PATH_BYTES];
    SafeTensors *file = NULL;
    scratch_path(path, "absent");
    assert_int_equal(safetensors_open(path, &file), ERR_CHECKPOINT);
    assert_int_equal(safetensors_open(scratch, &file), ERR_CHECKPOINT);
    scratch_path(path, "pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(safetensors_open(path, &file), ERR_CHECKPOINT); /* and does not wait for a writer */
    scratch_path(path, "nothing");
    assert_int_equal(file_replace(path, "", 0), OK);
    assert_int_equal(safetensors_open(path, &file), ERR_CHECKPOINT);
}

#define BYTES(text) text, sizeof(text) - 1

/* Files of other formats are named. */
TEST(other_formats_are_named)
{
    static const struct {
        const char *name, *bytes;
        size_t count;
        const char *about;
    } cases[] = {
        {"w.pkl", BYTES("\200\4\225\25\0\0\0\0\0\0\0}\224."), "is a pickle, but not of torch.save"},
        {"w.npz", BYTES("PK\3\4\24\0\0\0\0\0\0\0!\0\0\0\0\0\0\0\0\0\0\0\0\0\5\0\0\0w.npy"), "is a zip archive"},
        {"w.h5", BYTES("\211HDF\r\n\032\n\0\0\0\0\0\10\10\0"), "is an HDF5 file"},
        {"w.onnx", BYTES("\10\10\22\6towers\32\5"), "is an ONNX model"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        SafeTensors *file = NULL;
        assert_int_equal(safetensors_parse(cases[i].bytes, cases[i].count, cases[i].name, &file), ERR_CHECKPOINT);
        if (!strstr(status_message(), cases[i].about)) fail_msg("%s: %s", cases[i].name, status_message());
    }
}

TEST(the_corpus_does_no_harm)
{
    const char *corpus = TOWERS_SOURCE_DIR "/tests/fuzz/corpus/safetensors";
    struct dirent *entry;
    int seen = 0;
    DIR *listing = opendir(corpus);
    assert_non_null(listing);
    while ((entry = readdir(listing))) {
        char path[PATH_BYTES], *bytes;
        size_t count;
        SafeTensors *file = NULL;
        if (entry->d_name[0] == '.') continue;
        assert_int_equal(path_join(path, corpus, entry->d_name), OK);
        assert_int_equal(file_read(path, 1 << 20, &bytes, &count), OK);
        if (safetensors_parse(bytes, count, "corpus", &file) == OK) safetensors_close(file);
        free(bytes);
        seen++;
    }
    closedir(listing);
    assert_true(seen >= 10);
}

TESTS_WITH(scratch_make, scratch_drop)
