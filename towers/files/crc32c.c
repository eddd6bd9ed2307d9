/* CRC-32C (Castagnoli, reflected polynomial 0x82f63b78; test vectors in RFC 3720, appendix B.4), as used by TFRecord
 * and the checkpoint manifest. Uses the processor's CRC instruction if there is one (SSE4.2, ARMv8 CRC; detected at run
 * time), else eight tables that take eight bytes at a time. TFRecord masks its CRCs because the CRC of data that
 * contains CRCs is a weak check. */
#include <pthread.h>
#include <string.h>

#include "towers/files/crc32c.h"

#if defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <immintrin.h>
#endif

typedef uint32_t Update(uint32_t state, const unsigned char *at, uint64_t count);

static uint32_t table[8][256];
static Update *update;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Slicing by eight. Words are assembled byte by byte, so the result does not depend on the machine's byte order. */
static uint32_t update_table(uint32_t state, const unsigned char *at, uint64_t count)
{
    for (; count >= 8; at += 8, count -= 8) {
        uint32_t low = state ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        state = table[7][low & 255] ^ table[6][low >> 8 & 255] ^ table[5][low >> 16 & 255] ^ table[4][low >> 24] ^
                table[3][at[4]] ^ table[2][at[5]] ^ table[1][at[6]] ^ table[0][at[7]];
    }
    for (; count; at++, count--) state = table[0][(state ^ *at) & 255] ^ state >> 8;
    return state;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t update_hardware(uint32_t state, const unsigned char *at,
                                                                  uint64_t count)
{
    uint64_t wide = state, word;
    for (; count >= 8; at += 8, count -= 8) {
        memcpy(&word, at, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    for (state = (uint32_t)wide; count; at++, count--) state = _mm_crc32_u8(state, *at);
    return state;
}

static int hardware_present(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__)
__attribute__((target("+crc"))) static uint32_t update_hardware(uint32_t state, const unsigned char *at, uint64_t count)
{
    uint64_t word;
    for (; count >= 8; at += 8, count -= 8) {
        memcpy(&word, at, 8);
        state = __crc32cd(state, word);
    }
    for (; count; at++, count--) state = __crc32cb(state, *at);
    return state;
}

static int hardware_present(void)
{
    enum { HWCAP_CRC32_BIT = 1 << 7 };
    return (getauxval(AT_HWCAP) & HWCAP_CRC32_BIT) != 0;
}
#endif

static void prepare(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t state = byte;
        for (int bit = 0; bit < 8; bit++) state = state >> 1 ^ (state & 1 ? 0x82f63b78u : 0);
        table[0][byte] = state;
    }
    for (int slice = 1; slice < 8; slice++)
        for (int byte = 0; byte < 256; byte++)
            table[slice][byte] = table[0][table[slice - 1][byte] & 255] ^ table[slice - 1][byte] >> 8;
    update = update_table;
#if defined(__x86_64__) || defined(__aarch64__)
    if (hardware_present()) update = update_hardware;
#endif
}

uint32_t crc32c(uint32_t crc, const void *bytes, uint64_t count)
{
    pthread_once(&once, prepare);
    return ~update(~crc, bytes, count);
}

uint32_t crc32c_portable(uint32_t crc, const void *bytes, uint64_t count)
{
    pthread_once(&once, prepare);
    return ~update_table(~crc, bytes, count);
}

uint32_t crc32c_masked(const void *bytes, uint64_t count)
{
    uint32_t crc = crc32c(0, bytes, count);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}
