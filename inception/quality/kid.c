/* Sums of the cubic kernel over all pairs of two subsets; see kid.h. The second subset is stored transposed, so that
 * each number of a vector is multiplied with the numbers of 32 other vectors at once. Products are summed in f32 over
 * 64 features at a time, and those sums in f64. */
#include "inception/quality/kid.h"

#include "towers/data/loading/order.h"

enum { WIDE = 32 /* vectors at a time */, RUN = 64 /* features between two additions to the f64 sums */ };

/* One subset: row by row, and transposed with rows of `pitch` numbers, a multiple of WIDE; the rest is zero. */
typedef struct Subset {
    float *rows, *columns; /* owned: [m][d] and [d][pitch] */
    int64_t m, pitch;
    int32_t d;
} Subset;

static Status subset_open(Subset *subset, int64_t m, int32_t d)
{
    *subset = (Subset){.m = m, .pitch = (m + WIDE - 1) / WIDE * WIDE, .d = d};
    subset->rows = malloc((size_t)m * (size_t)d * sizeof(float));
    subset->columns = calloc((size_t)subset->pitch * (size_t)d, sizeof(float));
    return subset->rows && subset->columns ? OK : FAIL(ERR_MEMORY, "no memory for %" PRId64 " features", m);
}

static void subset_close(Subset *subset)
{
    free(subset->rows);
    free(subset->columns);
}

/* Number `draw` of the subsets of a set: the first m vectors of a keyed permutation. */
static void subset_draw(Subset *subset, const FeatureSet *from, uint64_t seed, int64_t draw)
{
    for (int64_t i = 0; i < subset->m; i++) {
        const float *x = from->at + order_permute(seed, draw, from->count, i) * from->d;
        for (int32_t k = 0; k < subset->d; k++)
            subset->rows[i * subset->d + k] = subset->columns[k * subset->pitch + i] = x[k];
    }
}

/* products[j] = x . y_(first + j) for 32 vectors y. */
static void products_compute(const float *x, const Subset *y, int64_t first, double products[WIDE])
{
    for (int j = 0; j < WIDE; j++) products[j] = 0;
    for (int32_t begin = 0; begin < y->d; begin += RUN) {
        float sum[WIDE] = {0};
        int32_t end = begin + RUN < y->d ? begin + RUN : y->d;
        for (int32_t k = begin; k < end; k++) {
            const float *column = y->columns + k * y->pitch + first;
            for (int j = 0; j < WIDE; j++) sum[j] += x[k] * column[j];
        }
        for (int j = 0; j < WIDE; j++) products[j] += (double)sum[j];
    }
}

/* Sum of the kernel over all pairs of x and y. */
static double kernel_sum(const Subset *x, const Subset *y)
{
    double sum = 0, products[WIDE];
    for (int64_t i = 0; i < x->m; i++)
        for (int64_t first = 0; first < y->m; first += WIDE) {
            products_compute(x->rows + i * x->d, y, first, products);
            for (int64_t j = 0; j < WIDE && first + j < y->m; j++) {
                double base = products[j] / y->d + 1;
                sum += base * base * base;
            }
        }
    return sum;
}

/* The part of kernel_sum(x, x) that pairs each vector with itself, with the same rounding. */
static double diagonal_sum(const Subset *x)
{
    double sum = 0, products[WIDE];
    for (int64_t i = 0; i < x->m; i++) {
        products_compute(x->rows + i * x->d, x, i / WIDE * WIDE, products);
        double base = products[i % WIDE] / x->d + 1;
        sum += base * base * base;
    }
    return sum;
}

static Status sets_check(const FeatureSet *x, const FeatureSet *y)
{
    const FeatureSet *sets[] = {x, y};
    if (x->d != y->d)
        return FAIL(ERR_ARG, "KID: the features of one set have %d numbers, those of the other %d", x->d, y->d);
    for (int s = 0; s < 2; s++) {
        if (sets[s]->count < 2)
            return FAIL(ERR_ARG, "KID needs at least 2 images in each set, but one has %" PRId64, sets[s]->count);
        for (int64_t i = 0; i < sets[s]->count * sets[s]->d; i++)
            if (!isfinite(sets[s]->at[i]))
                return FAIL(ERR_NUMERIC, "feature %" PRId64 " of image %" PRId64 " is not finite", i % sets[s]->d,
                            i / sets[s]->d);
    }
    return OK;
}

Status kid_compute(const FeatureSet *x, const FeatureSet *y, const KidConfig *config, Kid *kid)
{
    Status st = OK;
    Subset a = {0}, b = {0};
    double sum = 0, square_sum = 0;
    TRY(sets_check(x, y));
    int64_t least = x->count < y->count ? x->count : y->count, m = config->size < least ? config->size : least;
    if (m < 2 || config->subsets < 1)
        return FAIL(ERR_ARG, "KID needs subsets of at least 2 images, but these have %" PRId64, m);
    TRY_OUT(subset_open(&a, m, x->d));
    TRY_OUT(subset_open(&b, m, x->d));
    for (int s = 0; s < config->subsets; s++) {
        subset_draw(&a, x, config->seed, 2 * s);
        subset_draw(&b, y, config->seed, 2 * s + 1);
        double within = kernel_sum(&a, &a) - diagonal_sum(&a) + kernel_sum(&b, &b) - diagonal_sum(&b);
        double mmd = within / ((double)m * (double)(m - 1)) - 2 * kernel_sum(&a, &b) / ((double)m * (double)m);
        sum += mmd;
        square_sum += mmd * mmd;
    }
    double mean = sum / config->subsets, variance = square_sum / config->subsets - mean * mean;
    *kid = (Kid){mean, sqrt(variance > 0 ? variance : 0), config->subsets, m};
out:
    subset_close(&a);
    subset_close(&b);
    return st;
}
