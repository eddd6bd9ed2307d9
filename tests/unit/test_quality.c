/* Measures of generated images: KID and FID against numpy (golden_quality.h) and against Gaussians whose distance has a
 * closed form, class histograms, nearest neighbors, and sets of images. */

#include "inception/quality/coverage.h"
#include "inception/quality/frechet.h"
#include "inception/quality/images.h"
#include "inception/quality/kid.h"
#include "tests/support/unit.h"
#include "tests/unit/golden_quality.h"

static float hashed(int64_t i, uint32_t set)
{
    uint32_t h = (uint32_t)(((uint64_t)i + 1) * 2654435761u + (uint64_t)set * 40503u * 65536u) >> 8;
    return (float)h / 16777216.0f;
}

static FeatureSet features(int64_t count, int32_t d, uint32_t set)
{
    float *at = malloc((size_t)(count * d) * sizeof *at);
    assert_non_null(at);
    for (int64_t i = 0; i < count * d; i++) at[i] = (hashed(i, set) + hashed(i + 7919, set)) * (float)(1 + set);
    return (FeatureSet){at, count, d};
}

static void close_to(double found, double wanted, double tolerance)
{
    if (!(fabs(found - wanted) <= tolerance)) fail_msg("%.12g, but %.12g was expected", found, wanted);
}

TEST(as_numpy)
{
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        FeatureSet x = features(golden[i].n, golden[i].d, 0), y = features(golden[i].m, golden[i].d, 1);
        Moments a, b;
        Kid kid;
        double fid;
        KidConfig config = {.subsets = 1, .size = golden[i].n, .seed = 5};
        assert_int_equal(kid_compute(&x, &y, &config, &kid), OK);
        if (golden[i].n == golden[i].m) close_to(kid.mean, golden[i].kid, 2e-6 * (1 + fabs(golden[i].kid)));
        assert_int_equal(moments_compute(&x, &a), OK);
        assert_int_equal(moments_compute(&y, &b), OK);
        assert_int_equal(frechet_distance(&a, &b, &fid), OK);
        close_to(fid, golden[i].fid, 1e-6 * golden[i].fid); /* small eigenvalues of eigvals() are rough in a root */
        assert_int_equal(frechet_distance(&a, &a, &fid), OK);
        close_to(fid, 0, 1e-6);
        moments_free(&a);
        moments_free(&b);
        free((void *)x.at);
        free((void *)y.at);
    }
}

/* Two samples of one distribution: zero within the error of the mean. A shifted one: far outside. */
TEST(kid_of_subsets)
{
    FeatureSet x = features(900, 12, 0), y = x, other = features(900, 12, 1), same = {x.at + 450 * 12, 450, 12};
    Kid kid, again, elsewhere;
    KidConfig config = {.subsets = 50, .size = 100, .seed = 1};
    y.count = 450;
    assert_int_equal(kid_compute(&y, &same, &config, &kid), OK);
    assert_int_equal(kid.subsets, 50);
    assert_int_equal(kid.size, 100);
    assert_true(kid.deviation > 0);
    close_to(kid.mean, 0, kid.deviation);
    assert_int_equal(kid_compute(&y, &same, &config, &again), OK);
    assert_true(kid.mean == again.mean && kid.deviation == again.deviation);
    config.seed = 2;
    assert_int_equal(kid_compute(&y, &same, &config, &elsewhere), OK);
    assert_true(elsewhere.mean != kid.mean);
    close_to(elsewhere.mean, kid.mean, kid.deviation);
    assert_int_equal(kid_compute(&y, &other, &config, &again), OK);
    assert_true(again.mean > 20 * kid.deviation);
    free((void *)x.at);
    free((void *)other.at);
}

/* Each subset draws vectors of its own, of both sets. Where all vectors of one set are equal, what a subset adds to the mean
 * gives those of the other; the mean and the deviation are those of these numbers. */
TEST(kid_of_each_subset)
{
    enum { SUBSETS = 7, COUNT = 60, WIDTH = 12 };
    static float ones[COUNT * WIDTH];
    for (int i = 0; i < COUNT * WIDTH; i++) ones[i] = 1;
    FeatureSet drawn = features(COUNT, WIDTH, 1), equal = {ones, COUNT, WIDTH};
    for (int which = 0; which < 2; which++) {
        double value[SUBSETS], sum = 0, squares = 0;
        Kid kid = {0};
        for (int s = 0; s < SUBSETS; s++) {
            KidConfig config = {.subsets = s + 1, .size = 20, .seed = 3};
            assert_int_equal(kid_compute(which ? &equal : &drawn, which ? &drawn : &equal, &config, &kid), OK);
            value[s] = kid.mean * (s + 1) - sum;
            sum += value[s];
            for (int k = 0; k < s; k++) assert_true(fabs(value[s] - value[k]) > 1e-4 * fabs(value[k]));
        }
        for (int s = 0; s < SUBSETS; s++) squares += (value[s] - sum / SUBSETS) * (value[s] - sum / SUBSETS);
        close_to(kid.deviation, sqrt(squares / SUBSETS), 1e-9 * kid.mean);
    }
    free((void *)drawn.at);
}

/* Diagonal covariances commute: sum of (m1 - m2)^2 + (s1 - s2)^2. For any two of 2 x 2,
 * tr (S1 S2)^(1/2) = sqrt(tr(S1 S2) + 2 sqrt(det S1 det S2)). */
TEST(gaussians)
{
    double m1[] = {1, -2, 0.5}, m2[] = {0, 1, 0.5}, s1[9] = {4, 0, 0, 0, 9, 0, 0, 0, 1},
           s2[9] = {1, 0, 0, 0, 16, 0, 0, 0, 0}, distance;
    Moments a = {3, m1, s1}, b = {3, m2, s2};
    assert_int_equal(frechet_distance(&a, &b, &distance), OK);
    close_to(distance, 1 + 9 + 0 + (2 - 1) * (2 - 1) + (3 - 4) * (3 - 4) + 1, 1e-12);
    double p[] = {2, 1, 1, 3}, q[] = {5, -2, -2, 1}, zero[2] = {0};
    Moments c = {2, zero, p}, d = {2, zero, q};
    double trace_product = 2 * 5 + 1 * -2 + 1 * -2 + 3 * 1, determinants = (2 * 3 - 1) * (5 * 1 - 4);
    assert_int_equal(frechet_distance(&c, &d, &distance), OK);
    close_to(distance, 5 + 6 - 2 * sqrt(trace_product + 2 * sqrt(determinants)), 1e-12);
}

TEST(refusals)
{
    float bad[] = {1, 2, 3, NAN};
    FeatureSet x = features(4, 3, 0), y = features(4, 2, 0), one = {x.at, 1, 3}, spoiled = {bad, 2, 2};
    KidConfig config = {.subsets = 1, .size = 2};
    Kid kid;
    Moments moments;
    assert_int_equal(kid_compute(&x, &y, &config, &kid), ERR_ARG);
    assert_int_equal(kid_compute(&x, &one, &config, &kid), ERR_ARG);
    assert_int_equal(kid_compute(&y, &spoiled, &config, &kid), ERR_NUMERIC);
    config.size = 1; /* its estimator divides by the number of images less one */
    assert_int_equal(kid_compute(&x, &x, &config, &kid), ERR_ARG);
    assert_int_equal(moments_compute(&one, &moments), ERR_ARG);
    assert_int_equal(moments_compute(&spoiled, &moments), ERR_NUMERIC);
    free((void *)x.at);
    free((void *)y.at);
}

TEST(histograms)
{
    int freedom;
    int64_t even[] = {50, 50, 0}, odd[] = {30, 70, 0}, twice[] = {100, 100, 0}, none[] = {0, 0, 0};
    close_to(chi_squared(even, odd, 3, &freedom), 20.0 * 20 / 80 + 20.0 * 20 / 120, 1e-12);
    assert_int_equal(freedom, 1); /* the class that never occurs does not count */
    close_to(chi_squared(even, twice, 3, &freedom), 0, 1e-12);
    close_to(chi_squared(even, none, 3, &freedom), 0, 0);
    assert_int_equal(freedom, 0);
}

TEST(neighbors)
{
    Images real, made;
    Neighbour nearest[2];
    assert_int_equal(images_create(30, 40, 3, &real), OK);
    assert_int_equal(images_create(2, 40, 3, &made), OK);
    images_noise(1, &real);
    memcpy(made.at, real.at + 17 * image_bytes(&real), image_bytes(&real));
    memcpy(made.at + image_bytes(&real), real.at + 4 * image_bytes(&real), image_bytes(&real));
    for (size_t i = 0; i < image_bytes(&real); i++) { /* 4 levels away from number 4 */
        uint8_t *pixel = made.at + image_bytes(&real) + i;
        *pixel = (uint8_t)(*pixel < 128 ? *pixel + 4 : *pixel - 4);
    }
    neighbors_find(&made, &real, nearest);
    assert_int_equal(nearest[0].index, 17);
    close_to(nearest[0].distance, 0, 0);
    assert_int_equal(nearest[1].index, 4);
    close_to(nearest[1].distance, 4, 1e-12);
    images_free(&real);
    images_free(&made);
}

/* A grid row by row, with black cells at the end; noise that depends on the seed alone. */
TEST(grids)
{
    Images p, q;
    uint8_t *pixels;
    assert_int_equal(images_create(5, 2, 1, &p), OK);
    assert_int_equal(images_create(5, 2, 1, &q), OK);
    for (int i = 0; i < 20; i++) p.at[i] = (uint8_t)(10 * (i / 4) + i % 4);
    assert_int_equal(images_grid(&p, 1, 3, 2, &pixels), OK);
    static const uint8_t wanted[] = {10, 11, 20, 21, 30, 31, 12, 13, 22, 23, 32, 33,
                                     40, 41, 0,  0,  0,  0,  42, 43, 0,  0,  0,  0};
    assert_memory_equal(pixels, wanted, sizeof wanted);
    free(pixels);
    images_noise(7, &p);
    images_noise(7, &q);
    assert_memory_equal(p.at, q.at, 20);
    images_noise(8, &q);
    assert_memory_not_equal(p.at, q.at, 20);
    images_free(&p);
    images_free(&q);
}

/* Samples of a data set in an order that the seed determines, each once. */
TEST(read_images)
{
    Source *source;
    Images all, some;
    assert_int_equal(source_synthetic(600, 10, 6, 6, 1, 3, &source), OK);
    ImagesConfig config = {.source = source, .transform = {.side = 6}, .seed = 4, .count = 1000, .workers = 1};
    assert_int_equal(images_read(&config, &all), OK);
    assert_int_equal(all.count, 600);
    config.count = 300; /* more than one batch of the loader, and not the end of one */
    config.workers = 0;
    assert_int_equal(images_read(&config, &some), OK);
    assert_int_equal(some.count, 300);
    assert_memory_equal(all.at, some.at, 300 * 36);
    for (int64_t i = 0; i < 600; i++) { /* every sample of the source is there */
        Bytes bytes = {0};
        int32_t label;
        int found = 0;
        assert_int_equal(source_read(source, i, &bytes, &label), OK);
        for (int64_t k = 0; k < 600; k++) found += !memcmp(all.at + k * 36, bytes.data, 36);
        assert_int_equal(found, 1);
        bytes_free(&bytes);
    }
    images_free(&all);
    images_free(&some);
    source_close(source);
}
