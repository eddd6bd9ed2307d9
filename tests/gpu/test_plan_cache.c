/* The plan cache: an added entry is found, also by the next process; a later line replaces an earlier one; files that
 * cannot be read or written are ignored. */

#include "tests/support/unit.h"

#ifdef TOWERS_HAVE_CUDA

#include "kernels/cuda/plan_cache.h"
#include "tests/support/scratch.h"

#include <cublasLt.h>
#include <cudnn.h>
#include <glob.h>

static int folder_make(void **state)
{
    return scratch_make(state) == 0 && setenv("XDG_CACHE_HOME", scratch, 1) == 0 ? 0 : -1;
}

static PlanCache *cache_open(void)
{
    PlanCache *cache;
    assert_int_equal(plan_cache_open("NVIDIA H200 (test/..)", &cache), OK);
    return cache;
}

/* Plans of one version of a library mean nothing to another: both are part of the name. */
static void assert_version(const char *path, const char *library, size_t version, size_t major, size_t minor)
{
    char part[64];
    snprintf(part, sizeof part, "_%s_%zu.%zu.%zu", library, version / major, version % major / minor, version % minor);
    if (!strstr(path, part)) fail_msg("'%s' does not say '%s'", path, part);
}

/* The one file that the cache writes. */
static FILE *cache_file_open(const char *mode)
{
    glob_t found;
    char pattern[PATH_BYTES + 32];
    snprintf(pattern, sizeof pattern, "%s/towers/plans/*.txt", scratch);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    assert_non_null(strstr(found.gl_pathv[0], "NVIDIA_H200"));
    assert_version(found.gl_pathv[0], "cuDNN", cudnnGetVersion(), 10000, 100);
    assert_version(found.gl_pathv[0], "cuBLASLt", cublasLtGetVersion(), 10000, 100);
    FILE *file = fopen(found.gl_pathv[0], mode);
    globfree(&found);
    assert_non_null(file);
    return file;
}

TEST_WITH(test_found_again, folder_make, scratch_drop)
{
    PlanCache *cache = cache_open();
    assert_null(plan_cache_find(cache, "forward f16 x 1x8x4x4"));
    for (int i = 0; i < 600; i++) {
        char task[64], plan[64];
        snprintf(task, sizeof task, "task %d", i);
        snprintf(plan, sizeof plan, "engine %d knobs 1=2", i);
        assert_int_equal(plan_cache_add(cache, task, plan, i), OK);
    }
    assert_int_equal(plan_cache_add(cache, "task 7", "engine 70 knobs", 1.5), OK);
    assert_string_equal(plan_cache_find(cache, "task 7"), "engine 70 knobs");
    plan_cache_close(cache);
    cache = cache_open();
    assert_string_equal(plan_cache_find(cache, "task 599"), "engine 599 knobs 1=2");
    assert_string_equal(plan_cache_find(cache, "task 7"), "engine 70 knobs");
    assert_null(plan_cache_find(cache, "task 600"));
    plan_cache_close(cache);
}

TEST_WITH(test_broken_lines, folder_make, scratch_drop)
{
    PlanCache *cache = cache_open();
    assert_int_equal(plan_cache_add(cache, "good", "engine 1 knobs", 1), OK);
    plan_cache_close(cache);
    FILE *file = cache_file_open("a");
    fputs("no tabs at all\nhalf\tengine 2", file);
    for (int i = 0; i < 5000; i++) fputc('x', file);
    fputs("\n\t\t\n", file);
    fputs("cut", file);
    fclose(file);
    cache = cache_open();
    assert_string_equal(plan_cache_find(cache, "good"), "engine 1 knobs");
    assert_null(plan_cache_find(cache, "half"));
    plan_cache_close(cache);
}

TEST_WITH(test_no_folder, folder_make, scratch_drop)
{
    setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
    PlanCache *cache = cache_open();
    assert_int_equal(plan_cache_add(cache, "task", "engine 3 knobs", 1), OK);
    assert_string_equal(plan_cache_find(cache, "task"), "engine 3 knobs");
    plan_cache_close(cache);
    setenv("XDG_CACHE_HOME", scratch, 1);
}

#else

TEST(test_without_cuda)
{
    skip("this build has no CUDA backend");
}

#endif
