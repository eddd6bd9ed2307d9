/* A number that may be absent: not measured, no samples, not known.
 *
 * ABSENT is a NaN with a payload of its own, as R's NA is, so that a Number is a double in memory, sums with it are absent
 * too, and isfinite() is false. It is not "not a number", the result of a computation that failed: that one is written as
 * NaN (JSON: null) wherever ABSENT is left out, empty or "-". */
#pragma once

#include "kernels/base/status.h"

typedef double Number;

/* The largest prime below 2^32 in the payload: no computation makes it. */
#define ABSENT __builtin_nan("0xfffffffb")

static inline bool is_absent(Number number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return isnan(number) && (uint32_t)bits == 0xfffffffbu;
}

/* Measured, but no number: NaN or infinite. */
static inline bool is_not_finite(Number number)
{
    return !isfinite(number) && !is_absent(number);
}

/* The number as `format` prints it, "nan" and "inf" included; "-" if it is absent. */
enum { NUMBER_TEXT = 32 };
__attribute__((format(printf, 2, 0))) static inline const char *number_text(Number number, const char *format,
                                                                            char text[NUMBER_TEXT])
{
    if (is_absent(number))
        strcpy(text, "-");
    else
        snprintf(text, NUMBER_TEXT, format, number);
    return text;
}
