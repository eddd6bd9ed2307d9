/* The instruction set of all CPU kernels (kernels/cpu/isa.c) follows ONEDNN_MAX_CPU_ISA, also in those that once asked the
 * processor themselves: batch norm and max pool. In f32 these need AVX-512 alone, not its bf16. oneDNN reads the variable
 * once, so every set is tried by a process of its own. */
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cpu/norm/norm_rows.h"
#include "kernels/cpu/pool/pool_rows.h"
#include "tests/support/unit.h"

enum { CHANNELS = 40 };

static bool norm_is_wide(Dtype dtype)
{
    static uint32_t x[CHANNELS];
    static float zero[CHANNELS], sum[CHANNELS], second[CHANNELS];
    const NormRows rows = {.dtype = dtype, .rows = 1, .width = CHANNELS, .x = x, .x_stride = CHANNELS, .mean = zero};
    return norm_rows_avx512(NORM_STAT, &rows, sum, second);
}

static bool pool_is_by(CpuIsa isa, Dtype dtype)
{
#if defined(__x86_64__)
    return pool_code(dtype) == (isa == CPU_AVX2 ? &pool_avx2 : &pool_avx512);
#elif defined(__aarch64__)
    return isa == CPU_AVX2 && pool_code(dtype) == &pool_neon;
#else
    (void)isa, (void)dtype;
    return false;
#endif
}

/* The set in the low bits, and which kernels have code for AVX-512 in it, or (POOL_NARROW) for AVX2 or NEON. */
enum { NORM_F32 = 8, NORM_BF16 = 16, POOL_F32 = 32, POOL_BF16 = 64, POOL_NARROW = 128 };

static int found(void)
{
    return (int)cpu_isa() | (norm_is_wide(DTYPE_F32) ? NORM_F32 : 0) | (norm_is_wide(DTYPE_BF16) ? NORM_BF16 : 0) |
           (pool_is_by(CPU_AVX512, DTYPE_F32) ? POOL_F32 : 0) | (pool_is_by(CPU_AVX512, DTYPE_BF16) ? POOL_BF16 : 0) |
           (pool_is_by(CPU_AVX2, DTYPE_F32) ? POOL_NARROW : 0);
}

/* What a process finds that the variable limits to `name`; NULL: by nothing. */
static int found_within(const char *name)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        unsetenv("ONEDNN_MAX_CPU_ISA");
        if (name) setenv("ONEDNN_MAX_CPU_ISA", name, 1);
        _exit(found());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

#if defined(__aarch64__)
TEST(test_arm_has_neon)
{
    char text[128];
    assert_int_equal(found_within(NULL), CPU_NEON | POOL_NARROW);
    cpu_isa_describe(text, sizeof text);
    assert_non_null(strstr(text, "NEON"));
}
#elif defined(__x86_64__)
TEST(test_one_variable_lowers_all_kernels)
{
    static const struct {
        const char *name;
        CpuIsa isa;
        int kernels;
    } sets[] = {{"SSE41", CPU_PLAIN, 0},
                {"AVX2", CPU_AVX2, POOL_NARROW},
                {"AVX512_CORE", CPU_AVX512, NORM_F32 | POOL_F32},
                {"AVX512_CORE_BF16", CPU_AVX512_BF16, NORM_F32 | POOL_F32 | NORM_BF16 | POOL_BF16}};
    enum { SETS = sizeof sets / sizeof *sets };
    int highest = found_within(NULL) & (NORM_F32 - 1), tried = 0;
    for (; tried < SETS && (int)sets[tried].isa <= highest; tried++)
        assert_int_equal(found_within(sets[tried].name), (int)sets[tried].isa | sets[tried].kernels);
    if (tried < SETS)
        print_message("skipped: this processor has no AVX512-BF16; %d of %d sets were tried\n", tried, SETS);
}
#endif

TEST(test_it_is_described)
{
    char text[128];
    cpu_isa_describe(text, sizeof text);
    assert_non_null(strstr(text, "oneDNN "));
    assert_true(*text != ',');
}
