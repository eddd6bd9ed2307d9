/* bf16, which is the upper half of an f32: conversions of one number. */
#pragma once

#include <stdint.h>
#include <string.h>

static inline float bf16_to_f32(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

/* Rounded to nearest even; NaN stays NaN. */
static inline uint16_t bf16_from_f32(float value)
{
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    uint32_t rounded = (word + 0x7FFFu + ((word >> 16) & 1u)) >> 16;
    return (uint16_t)(value != value ? (word >> 16) | 0x40u : rounded);
}
