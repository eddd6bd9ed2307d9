/* Predicted classes, and nearest images by brute force. */
#include "inception/quality/coverage.h"

double chi_squared(const int64_t *a, const int64_t *b, int classes, int *freedom)
{
    double all_a = 0, all_b = 0, sum = 0;
    *freedom = -1;
    for (int c = 0; c < classes; c++) {
        all_a += (double)a[c];
        all_b += (double)b[c];
        *freedom += a[c] + b[c] > 0;
    }
    if (all_a <= 0 || all_b <= 0) return *freedom = 0;
    for (int c = 0; c < classes; c++) {
        double shift = sqrt(all_b / all_a) * (double)a[c] - sqrt(all_a / all_b) * (double)b[c];
        if (a[c] + b[c] > 0) sum += shift * shift / (double)(a[c] + b[c]);
    }
    return sum;
}

static int64_t square_distance(const uint8_t *a, const uint8_t *b, size_t bytes)
{
    enum { RUN = 4096 /* 4096 * 255^2 fits an int32_t */ };
    int64_t sum = 0;
    for (size_t first = 0; first < bytes; first += RUN) {
        size_t end = first + RUN < bytes ? first + RUN : bytes;
        int32_t part = 0;
        for (size_t i = first; i < end; i++) part += (a[i] - b[i]) * (a[i] - b[i]);
        sum += part;
    }
    return sum;
}

void neighbors_find(const Images *queries, const Images *candidates, Neighbour *nearest)
{
    size_t bytes = image_bytes(queries);
    for (int64_t i = 0; i < queries->count; i++) {
        int64_t least = INT64_MAX;
        nearest[i] = (Neighbour){-1, INFINITY};
        for (int64_t k = 0; k < candidates->count; k++) {
            int64_t square =
                square_distance(queries->at + (size_t)i * bytes, candidates->at + (size_t)k * bytes, bytes);
            if (square >= least) continue;
            least = square;
            nearest[i] = (Neighbour){k, sqrt((double)square / (double)bytes)};
        }
    }
}
