/* See gifts.h. */
#include "tests/support/gifts.h"

#include "kernels/philox.h"

static float gift(int tower, int round, size_t i)
{
    Philox random = philox(7, (uint32_t)tower, (uint32_t)round, (uint32_t)i, 0);
    float scale = (float)(1u << random.v[1] % 24);
    return ((float)(int32_t)random.v[0] / 2147483648.0f) * scale;
}

void gifts(int tower, int round, size_t first, float *to, size_t count)
{
    for (size_t i = 0; i < count; i++) to[i] = gift(tower, round, first + i);
}

float gifts_sum(int towers, int round, size_t i)
{
    float sum = gift(0, round, i);
    for (int t = 1; t < towers; t++) sum += gift(t, round, i);
    return sum;
}
