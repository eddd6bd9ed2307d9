/* See scratch.h. */
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

enum { TEXT_LIMIT = 1 << 24 };

char scratch[PATH_BYTES];

int scratch_make(void **state)
{
    const char *place = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%s/towers-test.XXXXXX", place ? place : "/tmp");
    return mkdtemp(scratch) ? 0 : -1;
}

int scratch_and_cache_make(void **state)
{
    char cache[PATH_BYTES];
    int code = scratch_make(state);
    if (code == 0) scratch_path(cache, "cache");
    return code == 0 ? setenv("XDG_CACHE_HOME", cache, 1) : code;
}

int scratch_drop(void **state)
{
    bool gone = tree_remove(scratch) == OK;
    scratch[0] = 0;
    return gone ? 0 : -1;
}

void scratch_path(char path[PATH_BYTES], const char *name)
{
    assert_int_equal(path_join(path, scratch, name), OK);
}

void scratch_put(const char *name, const char *text)
{
    char path[PATH_BYTES];
    scratch_path(path, name);
    assert_int_equal(file_replace(path, text, strlen(text)), OK);
}

char *scratch_text(const char *name)
{
    char path[PATH_BYTES], *text;
    size_t count;
    scratch_path(path, name);
    assert_int_equal(file_read(path, TEXT_LIMIT, &text, &count), OK);
    return text;
}
