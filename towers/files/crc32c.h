/* CRC-32C (Castagnoli; RFC 3720, B.4), by the processor's instruction if it has one. */
#pragma once

#include <stdint.h>

uint32_t crc32c(uint32_t crc, const void *bytes, uint64_t count);          /* Castagnoli; start with 0 */
uint32_t crc32c_portable(uint32_t crc, const void *bytes, uint64_t count); /* the same with tables, on any processor */
uint32_t crc32c_masked(const void *bytes, uint64_t count);                 /* TFRecord's mask */
