/* Files of equal bytes are found, however large, and wherever the others differ. */
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "towers/data/listing/equal_files.h"

enum { FILES = 12, LARGE = 200000 };

static uint64_t sizes[FILES];

static Status path_of(const void *context, int64_t number, char path[PATH_BYTES])
{
    char name[32];
    (void)context;
    snprintf(name, sizeof name, "%d", (int)number);
    scratch_path(path, name);
    return OK;
}

static void file_make(int number, size_t bytes, size_t changed)
{
    char path[PATH_BYTES], *content = malloc(bytes + 1);
    assert_non_null(content);
    memset(content, 'x', bytes);
    if (changed < bytes) content[changed] = 'y';
    assert_int_equal(path_of(NULL, number, path), OK);
    assert_int_equal(file_replace(path, content, bytes), OK);
    sizes[number] = bytes;
    free(content);
}

TEST_WITH(test_equal, scratch_make, scratch_drop)
{
    const size_t none = SIZE_MAX;
    file_make(0, 100, none);
    file_make(1, 100, 50); /* of the same size */
    file_make(2, LARGE, none);
    file_make(3, LARGE, LARGE - 1); /* behind the part that is read first */
    file_make(4, 100, 50);
    file_make(5, LARGE, none);
    file_make(6, 0, none); /* empty files are no images, and so no copies */
    file_make(7, 0, none);
    file_make(8, 100, 50);
    file_make(9, 101, none); /* gone when it is read, as is the next one */
    file_make(10, 101, none);
    file_make(11, 300, 0); /* has another size by now */
    sizes[11] = 100;
    for (int i = 9; i < 11; i++) {
        char path[PATH_BYTES];
        assert_int_equal(path_of(NULL, i, path), OK);
        assert_int_equal(unlink(path), 0);
    }
    static const int64_t wanted[FILES] = {0, 1, 2, 3, 1, 2, 6, 7, 1, 9, 10, 11};
    int64_t first[FILES];
    assert_int_equal(equal_files_find(&(EqualFiles){FILES, sizes, path_of, NULL}, first), OK);
    assert_memory_equal(first, wanted, sizeof wanted);
}

/* Copies follow the first one, but the last training image of a class stays. */
TEST_WITH(test_join, scratch_make, scratch_drop)
{
    for (int i = 0; i < 6; i++) file_make(i, 100, i < 3 ? 1 : (size_t)i);
    static const int32_t classes[] = {0, 0, 1, 0, 1, 1};
    bool evaluation[] = {true, false, false, false, true, false}, alone[] = {true, false, false, false, true, true};
    EqualFiles files = {6, sizes, path_of, NULL};
    assert_int_equal(equal_files_join(&files, classes, evaluation), OK);
    assert_memory_equal(evaluation, ((const bool[]){true, true, true, false, true, false}), 6);
    assert_int_equal(equal_files_join(&files, classes, alone), OK); /* else class 1 would have no training image */
    assert_memory_equal(alone, ((const bool[]){false, false, false, false, true, true}), 6);
}
