/* What torch.save writes (tests/support/torch_files.py, by three versions of PyTorch) is read to the bit; pickles that name
 * anything but tensors, and archives whose sizes lie, are refused by what is wrong with them. */

#include "tests/support/unit.h"
#include "towers/files/files.h"
#include "towers/store/torch_file.h"
#include "towers/store/weights.h"

#define FOLDER TOWERS_SOURCE_DIR "/tests/unit/torch/"

static const char *const versions[] = {"1.13", "2.0", "2.15"};
enum { VERSIONS = sizeof versions / sizeof *versions };

static Status open_saved(int version, const char *name, SafeTensors **file)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, FOLDER "%s-%s.pth", versions[version], name);
    return weights_open(path, file);
}

static const StTensor *wanted(const SafeTensors *file, const char *name, StDtype dtype, int rank, int64_t first,
                              int64_t second)
{
    const StTensor *t = safetensors_find(file, name);
    if (!t) fail_msg("no tensor %s", name);
    assert_int_equal(t->dtype, dtype);
    assert_int_equal(t->rank, rank);
    if (rank > 0) assert_int_equal(t->dims[0], first);
    if (rank > 1) assert_int_equal(t->dims[1], second);
    return t;
}

/* The state dict, alone or inside of what trainers save, with and without a prefix (weight_part.h). */
TEST(state_dicts_are_read)
{
    static const char *const names[] = {"plain", "checkpoint", "module", "average", "old"};
    static const char *const layers[] = {"fc.weight", "fc.bias", "bn.weight", "bn.bias", "bn.running_mean"};
    static const float weight[] = {0, 1, 2, 3, 4, 5}, bias[] = {10, 11}, one[] = {1, 1};
    for (int v = 0; v < VERSIONS; v++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            SafeTensors *file;
            if (open_saved(v, names[i], &file) != OK) fail_msg("%s %s: %s", versions[v], names[i], status_message());
            WeightPart part;
            assert_int_equal(weight_part_take(file, "saved", layers, 5, NULL, &part), OK);
            assert_int_equal(safetensors_count(file), 7);
            assert_memory_equal(wanted(file, "fc.weight", ST_F32, 2, 2, 3)->data, weight, sizeof weight);
            assert_memory_equal(wanted(file, "fc.bias", ST_F32, 1, 2, 0)->data, bias, sizeof bias);
            assert_memory_equal(wanted(file, "bn.running_var", ST_F32, 1, 2, 0)->data, one, sizeof one);
            assert_int_equal(wanted(file, "bn.num_batches_tracked", ST_I64, 0, 0, 0)->bytes, 8);
            assert_null(safetensors_metadata(file, "format"));
            safetensors_close(file);
        }
}

static float brain(const StTensor *t, int i)
{
    uint16_t word;
    memcpy(&word, (const char *)t->data + 2 * i, sizeof word);
    uint32_t bits = (uint32_t)word << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Transposed, strided and shared storages, all types, a Parameter, a zero-dimensional tensor; None is passed over. */
TEST(views_are_gathered)
{
    for (int v = 0; v < VERSIONS; v++) {
        SafeTensors *file;
        if (open_saved(v, "views", &file) != OK) fail_msg("%s: %s", versions[v], status_message());
        assert_int_equal(safetensors_count(file), 9);
        const float *turned = wanted(file, "turned", ST_F32, 2, 6, 4)->data;
        const float *some = wanted(file, "every_other", ST_F32, 2, 2, 3)->data;
        const float *last = wanted(file, "last", ST_F32, 2, 4, 6)->data;
        const double *twice = wanted(file, "double", ST_F64, 2, 4, 6)->data;
        const StTensor *half = wanted(file, "half", ST_F16, 2, 4, 6), *small = wanted(file, "brain", ST_BF16, 2, 4, 6);
        for (int r = 0; r < 4; r++)
            for (int c = 0; c < 6; c++) {
                uint16_t bits;
                memcpy(&bits, (const char *)half->data + 2 * (6 * r + c), sizeof bits);
                assert_true(turned[4 * c + r] == (float)(6 * r + c) && last[6 * r + c] == (float)(6 * r + c));
                assert_true(twice[6 * r + c] == 6 * r + c && element_read(DTYPE_F16, &bits, 0) == (float)(6 * r + c));
                assert_true(brain(small, 6 * r + c) == (float)(6 * r + c));
            }
        for (int r = 0; r < 2; r++)
            for (int c = 0; c < 3; c++) assert_true(some[3 * r + c] == (float)(6 * (r + 1) + 2 * c));
        assert_int_equal(*(const int64_t *)wanted(file, "count", ST_I64, 0, 0, 0)->data, 7);
        assert_true(((const float *)wanted(file, "parameter", ST_F32, 2, 2, 6)->data)[11] == 11);
        safetensors_close(file);
    }
}

/* expand: one number as a matrix. */
TEST(repeated_numbers_are_written_out)
{
    for (int v = 0; v < VERSIONS; v++) {
        SafeTensors *file;
        if (open_saved(v, "expand", &file) != OK) fail_msg("%s: %s", versions[v], status_message());
        const float *values = wanted(file, "e", ST_F32, 2, 4, 4)->data;
        for (int i = 0; i < 16; i++) assert_true(values[i] == 1);
        safetensors_close(file);
    }
}

TEST(other_saved_files_are_named)
{
    static const char *const rows[][2] = {
        {"whole_model", "save the weights alone: torch.save(model.state_dict(), 'weights.pth')"},
        {"script", "is a TorchScript module"},
    };
    for (int v = 0; v < VERSIONS; v++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            SafeTensors *file;
            assert_int_equal(open_saved(v, rows[i][0], &file), ERR_CHECKPOINT);
            if (!strstr(status_message(), rows[i][1])) fail_msg("%s %s: %s", versions[v], rows[i][0], status_message());
        }
}

/* A sequence of pickles and storages that ends anywhere is no shorter set of weights. */
TEST(a_sequence_ends_where_it_should)
{
    char *bytes;
    size_t count;
    SafeTensors *file = NULL;
    assert_int_equal(file_read(FOLDER "2.15-old.pth", 1 << 20, &bytes, &count), OK);
    for (size_t part = 16; part < count; part++)
        assert_int_equal(torch_file_parse(bytes, part, "part", &file), ERR_CHECKPOINT);
    assert_int_equal(torch_file_parse(bytes, count, "whole", &file), OK);
    safetensors_close(file);
    free(bytes);
}

/* How a tensor is called that no text names, and numbers of all widths as keys. */
TEST(items_are_named_by_their_places)
{
    static const char *const names[] = {"(item 0)", "-3", "300", "-70000", "(item 4)", "(item 5).(item 0)", "text.1"};
    SafeTensors *file;
    if (weights_open(FOLDER "good-keys.pth", &file) != OK) fail_msg("%s", status_message());
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) wanted(file, names[i], ST_F32, 1, 4, 0);
    assert_int_equal(safetensors_count(file), sizeof names / sizeof *names);
    safetensors_close(file);
}

TEST(hostile_files_are_refused)
{
    static const float four[] = {1, 2, 3, 4};
    static const char *const rows[][2] = {
        {"none", NULL},
        {"system", "wants posix.system at offset 2, which no state dict needs"},
        {"stack_global", "wants posix.system at offset 23"},
        {"protocol", "an unknown protocol at offset 0"},
        {"opcode", "the instruction 0xff at offset 3"},
        {"cut", "cut off"},
        {"no_stop", "cut off at offset 3"},
        {"long_text", "cut off at offset 2"},
        {"long_text8", "cut off at offset 2"},
        {"empty_stack", "the end of a list that has not begun at offset 2"},
        {"below_mark", "takes more than there is"},
        {"odd_items", "a key without a value"},
        {"open_list", "its end in a list at offset 4"},
        {"memo", "a memo that was never made"},
        {"memo_far", "a memo with a number larger than the pickle"},
        {"build", "a state for an object that has none"},
        {"call", "a call of something that is no function"},
        {"call_storage", "a call of a storage's type"},
        {"ring", "holds no state dict"},
        {"no_dict", "holds no state dict"},
        {"name", "not UTF-8 or holds control characters"},
        {"twice", "has two tensors 'w'"},
        {"outside", "tensor 'w' lies outside of its storage"},
        {"far", "tensor 'w' lies outside of its storage"},
        {"negative", "tensor 'w' has a negative size or stride"},
        {"stride", "tensor 'w' lies outside of its storage"},
        {"negative_size", "tensor 'w' has a negative size or stride"},
        {"expand", "tensor 'w' is too large"},
        {"overflow", "tensor 'w' is too large"},
        {"deep", "the name of a tensor in 'a.a.a."},
        {"rank", "sizes or strides make no sense"},
        {"rank_differs", "sizes or strides make no sense"},
        {"negated", "a lazily negated or conjugated tensor at offset 157"},
        {"missing", "tensor 'w' has a storage that the file lacks"},
        {"short", "has 8 bytes, but its pickle says 4 numbers of type F32"},
        {"long", "has 32 bytes, but its pickle says 4 numbers of type F32"},
        {"two_types", "gives storage 0 two types or sizes"},
        {"kind", "wants torch.ComplexFloatStorage"},
        {"huge", "but its pickle says 2147483647 numbers"},
        {"reference", "a reference to no storage"},
        {"line_number", "a memo without a number"},
        {"line_long", "a number without its end"},
        {"line_text", "a string without quotes"},
        {"line_storage", "a storage of an unknown kind"},
        {"line_view", "a storage of an unknown kind"},
        {"big_endian", "was written on a big-endian machine"},
        {"no_pickle", "is a zip archive without data.pkl"},
        {"half", "is a damaged zip archive"},
        {"views", "repeats its numbers (expand) too often for a file of this size"},
        {"sequence_none", NULL},
        {"sequence_python2", NULL},
        {"sequence_little_last", NULL},
        {"sequence_odd_pair", "an OrderedDict of something else than pairs"},
        {"sequence_version", "of another version than 1001"},
        {"sequence_big_endian", "was written on a big-endian machine"},
        {"sequence_short", "'0' has 8 bytes, but its pickle says 4 numbers of type F32"},
        {"sequence_cut", "it ends within its weights"},
        {"sequence_huge", "it ends within its weights"},
        {"sequence_unnamed", "lists a storage that its pickle does not name"},
        {"sequence_twice", "has '0' twice"},
        {"sequence_missing", "tensor 'w' has a storage that the file lacks"},
        {"sequence_view", "a storage that is a view of another one"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[PATH_BYTES];
        SafeTensors *file = NULL;
        snprintf(path, sizeof path, FOLDER "bad-%s.pth", rows[i][0]);
        Status st = weights_open(path, &file);
        if (!rows[i][1]) {
            if (st != OK) fail_msg("%s: %s", rows[i][0], status_message());
            assert_memory_equal(wanted(file, "w", ST_F32, 1, 4, 0)->data, four, sizeof four);
            safetensors_close(file);
        } else if (st != ERR_CHECKPOINT || !strstr(status_message(), rows[i][1])) {
            fail_msg("%s: %d, %s", rows[i][0], st, st == OK ? "accepted" : status_message());
        }
    }
}
