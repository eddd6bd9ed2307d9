/* Contributions of towers to sums whose result depends on the order of the additions: numbers of very different size. */
#pragma once

#include <stddef.h>

/* Elements [first, first + count) of what a tower contributes in a round. */
void gifts(int tower, int round, size_t first, float *to, size_t count);
/* Element i of the sum over the towers, added from the left. */
float gifts_sum(int towers, int round, size_t i);
