/* Exact numbers; see values.h. The grammar is checked by hand, because strtod alone would accept "0x1p3", "inf" and
 * leading blanks; strtoll and strtod_l do the conversion. */
#include "inception/options/values.h"
#include "kernels/base/text.h"

#include <errno.h>
#include <locale.h>
#include <strings.h>

static const char *skip_sign(const char *p)
{
    return *p == '+' || *p == '-' ? p + 1 : p;
}

static const char *skip_digits(const char *p)
{
    return p + strspn(p, "0123456789");
}

ValueVerdict text_to_int(const char *text, int64_t *value)
{
    const char *digits = skip_sign(text), *end = skip_digits(digits);
    if (end == digits || *end) return VALUE_MALFORMED;
    errno = 0;
    long long read = strtoll(text, NULL, 10);
    if (errno) return VALUE_TOO_LARGE;
    *value = read;
    return VALUE_OK;
}

/* [+-] digits [. digits] [e [+-] digits], with at least one digit before the exponent. */
static bool is_real(const char *text)
{
    const char *whole = skip_sign(text), *p = skip_digits(whole);
    ptrdiff_t digits = p - whole;
    if (*p == '.') {
        const char *fraction = p + 1;
        p = skip_digits(fraction);
        digits += p - fraction;
    }
    if (!digits) return false;
    if (*p == 'e' || *p == 'E') {
        const char *exponent = skip_sign(p + 1);
        p = skip_digits(exponent);
        if (p == exponent) return false;
    }
    return *p == 0;
}

enum { NUMBER_MOST = 128 /* characters: 17 digits count, and each value is printed with the settings */ };

ValueVerdict text_to_real(const char *text, double *value)
{
    if (strlen(text) > NUMBER_MOST || !is_real(text)) return VALUE_MALFORMED;
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    errno = 0;
    double read = strtod_l(text, NULL, plain);
    int error = errno;
    freelocale(plain);
    if (error == ERANGE) return VALUE_TOO_LARGE;
    *value = read + 0.0; /* -0 becomes 0 */
    return VALUE_OK;
}

ValueVerdict text_to_flag(const char *text, bool *value)
{
    static const char *const names[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        if (strcasecmp(text, names[k])) continue; /* True, as Python writes it */
        *value = k % 2;
        return VALUE_OK;
    }
    return VALUE_MALFORMED;
}

void real_to_text(double value, char *text, size_t bytes)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0), before = uselocale(plain);
    text_real(value, text, bytes);
    uselocale(before);
    freelocale(plain);
}
