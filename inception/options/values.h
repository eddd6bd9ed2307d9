/* Values: exact conversion between text and numbers, the same in every locale.
 *
 * The whole text must be one number: no blanks, no trailing characters, no hexadecimal, no "nan", no "inf", nothing out
 * of the type's range. Reals are written as the shortest decimal that reads back to the same bits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ValueVerdict { VALUE_OK = 0, VALUE_MALFORMED, VALUE_TOO_LARGE } ValueVerdict;

ValueVerdict text_to_int(const char *text, int64_t *value);
ValueVerdict text_to_real(const char *text, double *value); /* underflow counts as out of range */
ValueVerdict text_to_flag(const char *text, bool *value);   /* true false yes no on off 1 0 */

void real_to_text(double value, char *text, size_t bytes); /* needs 32 bytes */
