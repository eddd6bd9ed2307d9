/* See json.h. */
#include "towers/files/json.h"

#include <math.h>

json_t *json_finite(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}
