/* Arbitrary bytes as a MANIFEST, unchanged and with a correct hash line appended, because no mutation finds a hash. An
 * accepted manifest must be the same after formatting it again. */

#include "towers/store/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void parse(const char *text, size_t count)
{
    Manifest *manifest = NULL;
    char *again = NULL;
    size_t again_count = 0;
    if (manifest_parse(text, count, "fuzz", &manifest) != OK) return;
    if (manifest_format(manifest, &again, &again_count) != OK || again_count != count ||
        memcmp(again, text, count) != 0)
        __builtin_trap();
    free(again);
    manifest_destroy(manifest);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    FileSum sum;
    char *sealed = malloc(count + 64);
    if (!sealed) return 0;
    memcpy(sealed, bytes, count);
    parse(sealed, count);
    memory_sum(bytes, count, &sum);
    int more = snprintf(sealed + count, 64, "hash %016" PRIx64 "%016" PRIx64 "\n", sum.high, sum.low);
    parse(sealed, count + (size_t)more);
    free(sealed);
    return 0;
}
