/* The distortions of the original Inception trainer against numpy (golden_distort.h, written from TensorFlow's sources and
 * compared with TensorFlow itself): crops exactly, resizing within the rounding of float, colors within half of one of 255
 * levels once they are rounded, distributions by Kolmogorov-Smirnov (test_transform.c). */
#include "towers/data/images/transform.h"

#include "tests/support/unit.h"
#include "tests/unit/golden_distort.h"

enum { DRAWS = 4000, OF_REFERENCE = 20000, QUANTILES = 100 };

static const float area[2] = {0.05f, 1}, ratio[2] = {0.75f, 1.33f};
static const ImageInfo photo = {.h = 375, .w = 500, .c = 3, .orientation = 1};

static Boxes two_boxes(void)
{
    static float sides[2 * BOX_SIDES];
    memcpy(sides, golden_boxes, sizeof sides);
    return (Boxes){.at = sides, .count = 2};
}

static Transform tf2016(int32_t side)
{
    return (Transform){.side = side,
                       .crop = CROP_BOX,
                       .area = {0.05, 1},
                       .ratio = {0.75, 1.33},
                       .covered = 0.1,
                       .filter = RESIZE_TF_MIXED,
                       .flip = FLIP_RANDOM,
                       .distort = true};
}

static Pixels pixels_of(int32_t h, int32_t w, int32_t c)
{
    Pixels p = {0};
    assert_int_equal(pixels_shape(&p, h, w, c), OK);
    for (size_t i = 0; i < (size_t)(h * w * c); i++) p.at[i] = (uint8_t)(i * 73 + i * i * 5 + i / 7);
    return p;
}

TEST(test_crops)
{
    Boxes boxes = two_boxes();
    for (size_t i = 0; i < sizeof golden_crops / sizeof *golden_crops; i++) {
        int32_t h = golden_crops[i].h, w = golden_crops[i].w;
        Rect r = {0};
        bool fits = crop_attempt(area, ratio, h, w, golden_crops[i].words, &r);
        if (fits != golden_crops[i].fits || r.y != golden_crops[i].y || r.x != golden_crops[i].x ||
            r.h != golden_crops[i].crop_h || r.w != golden_crops[i].crop_w)
            fail_msg("crop %zu of %d x %d: found %d, %d, %d, %d", i, h, w, r.y, r.x, r.h, r.w);
        if (!fits) continue;
        assert_int_equal(crop_covers(&r, 0.1f, NULL, h, w), golden_crops[i].covers[0]);
        assert_int_equal(crop_covers(&r, 0.1f, &boxes, h, w), golden_crops[i].covers[1]);
    }
}

/* Boxes without area, turned around or outside count for nothing; those outside are refused when the image is made. */
TEST(test_odd_boxes)
{
    const Rect all = {0, 0, 100, 100};
    const struct {
        float sides[BOX_SIDES];
        bool valid, covered;
    } cases[] = {{{0.1f, 0.1f, 0.2f, 0.2f}, true, true},
                 {{0.1f, 0.1f, 0.1f, 0.9f}, true, false},
                 {{0.9f, 0.9f, 0.1f, 0.1f}, true, false},
                 {{0, 0, 0.009f, 1}, true, false},
                 {{0, 0, 1, 1}, true, true},
                 {{0, 0, 1.001f, 1}, false, false},
                 {{-0.001f, 0, 1, 1}, false, false},
                 {{0, NAN, 1, 1}, false, false},
                 {{0, 0, 1, INFINITY}, false, false},
                 {{0.2f, 0.9f, 0.3f, 0.1f}, true, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float sides[BOX_SIDES];
        memcpy(sides, cases[i].sides, sizeof sides);
        Boxes one = {.at = sides, .count = 1};
        if (crop_covers(&all, 0.1f, &one, 100, 100) != cases[i].covered) fail_msg("box %zu: covered or not", i);
        assert_int_equal(boxes_check(&one), cases[i].valid ? OK : ERR_FORMAT);
    }
}

static void resize_whole(const Resize *to, const Pixels *from, float *out)
{
    ResizerTf *r = NULL;
    assert_int_equal(resizer_tf_create(&r), OK);
    if (resizer_tf_run(r, to, from, out) != OK) fail_msg("%s", status_message());
    resizer_tf_destroy(r);
}

TEST(test_resize)
{
    for (size_t k = 0; k < sizeof golden_resize_tf / sizeof *golden_resize_tf; k++) {
        int32_t h = golden_resize_tf[k].out_h, w = golden_resize_tf[k].out_w, c = golden_resize_tf[k].c;
        Pixels in = pixels_of(golden_resize_tf[k].in_h, golden_resize_tf[k].in_w, c);
        for (int m = 0; m < 4; m++) {
            float out[320];
            Resize to = {(ResizeFilter)(RESIZE_TF_BILINEAR + m), in.h, in.w, h, w, {0, 0, h, w}};
            resize_whole(&to, &in, out);
            for (int i = 0; i < h * w * c; i++)
                if (!(fabsf(out[i] - golden_resize_tf[k].out[m][i]) < 0.01f))
                    fail_msg("case %zu, method %d, value %d: wanted %g, found %g", k, m, i,
                             (double)golden_resize_tf[k].out[m][i], (double)out[i]);
        }
        pixels_free(&in);
    }
}

/* A window is the same values of the whole, from no more of the input than resize_support names. */
TEST(test_window)
{
    enum { H = 61, W = 43, OUT_H = 30, OUT_W = 90 };
    static float whole[OUT_H * OUT_W * 3], part[OUT_H * OUT_W * 3];
    static const Rect windows[] = {{0, 0, 1, 1}, {7, 11, 20, 33}, {29, 89, 1, 1}, {0, 50, 30, 40}};
    Pixels in = pixels_of(H, W, 3);
    for (ResizeFilter filter = RESIZE_TF_BILINEAR; filter <= RESIZE_TF_AREA; filter++) {
        resize_whole(&(Resize){filter, H, W, OUT_H, OUT_W, {0, 0, OUT_H, OUT_W}}, &in, whole);
        for (size_t k = 0; k < sizeof windows / sizeof *windows; k++) {
            Rect w = windows[k];
            Resize some = {filter, H, W, OUT_H, OUT_W, w};
            Rect s = resize_support(&some);
            Pixels cut = {0};
            assert_int_equal(pixels_shape(&cut, s.h, s.w, 3), OK);
            for (int y = 0; y < s.h; y++)
                memcpy(cut.at + (size_t)y * cut.pitch, in.at + (size_t)(((s.y + y) * W + s.x) * 3), cut.pitch);
            resize_whole(&some, &cut, part);
            for (int y = 0; y < w.h; y++)
                assert_memory_equal(part + y * w.w * 3, whole + ((w.y + y) * OUT_W + w.x) * 3,
                                    (size_t)w.w * 3 * sizeof *part);
            pixels_free(&cut);
        }
    }
    pixels_free(&in);
}

TEST(test_colors)
{
    enum { COUNT = COLORS_H * COLORS_W };
    Pixels in = pixels_of(COLORS_H, COLORS_W, 3);
    for (size_t k = 0; k < sizeof golden_colors / sizeof *golden_colors; k++) {
        float values[COUNT * 3];
        ColorDistortion d = {golden_colors[k].contrast_first, golden_colors[k].brightness, golden_colors[k].saturation,
                             golden_colors[k].hue, golden_colors[k].contrast};
        for (int i = 0; i < COUNT * 3; i++) values[i] = in.at[i];
        colors_distort(&d, values, COUNT, 3);
        for (int i = 0; i < COUNT * 3; i++)
            if (!(fabsf(values[i] - golden_colors[k].out[i]) < 0.01f))
                fail_msg("case %zu, value %d: wanted %g, found %g", k, i, (double)golden_colors[k].out[i],
                         (double)values[i]);
    }
    float gray[4] = {10, 20, 30, 40}; /* mean 25, doubled about it; no hue, no saturation */
    colors_distort(&(ColorDistortion){.saturation = 7, .hue = 0.3f, .contrast = 2}, gray, 4, 1);
    assert_true(gray[0] == 0 && gray[1] == 15 && gray[2] == 35 && gray[3] == 55);
    pixels_free(&in);
}

/* ---- plans */

static void expect_quantiles(const double *draws, const float quantiles[QUANTILES], const char *what)
{
    double most = 1.95 * sqrt(1.0 / DRAWS + 1.0 / OF_REFERENCE);
    for (int k = 0; k < QUANTILES; k++) {
        int less = 0, at_most = 0;
        for (int i = 0; i < DRAWS; i++) {
            less += draws[i] < (double)quantiles[k] - 0.0005;
            at_most += draws[i] < (double)quantiles[k] + 0.0005;
        }
        if ((double)less / DRAWS > (k + 1.0) / QUANTILES + most ||
            (double)at_most / DRAWS < (double)k / QUANTILES - most)
            fail_msg("%s: %d or %d of %d draws below the reference's quantile %d of 100, %g", what, less, at_most,
                     DRAWS, k, (double)quantiles[k]);
    }
}

TEST(test_distribution)
{
    static const char *const names[4] = {"height", "width", "y", "x"};
    static double draws[4][DRAWS];
    Boxes boxes = two_boxes();
    Transform t = tf2016(299);
    assert_int_equal(transform_check(&t), OK);
    for (int with = 0; with < 2; with++) {
        for (int64_t id = 0; id < DRAWS; id++) {
            SamplePlan p, again;
            transform_plan(&t, (SampleKey){3, 1, id}, &photo, with ? &boxes : NULL, &p);
            transform_plan(&t, (SampleKey){3, 1, id}, &photo, with ? &boxes : NULL, &again);
            assert_memory_equal(&p, &again, sizeof p);
            draws[0][id] = p.box.h / 375.0;
            draws[1][id] = p.box.w / 500.0;
            draws[2][id] = p.box.y / 375.0;
            draws[3][id] = p.box.x / 500.0;
        }
        for (int k = 0; k < 4; k++) expect_quantiles(draws[k], golden_quantiles[with][k], names[k]);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void expect_uniform(double *draws, double low, double high)
{
    double most = 0;
    qsort(draws, DRAWS, sizeof *draws, by_value);
    for (int i = 0; i < DRAWS; i++) most = fmax(most, fabs((draws[i] - low) / (high - low) - (i + 0.5) / DRAWS));
    if (most * sqrt(DRAWS) > 1.95) fail_msg("distance %g from uniform on %g .. %g", most, low, high);
}

/* One number below 4 stands for the original's thread: method = number, order of colors = number % 2. */
TEST(test_threads_and_colors)
{
    static double draws[4][DRAWS];
    int count[4] = {0};
    Transform t = tf2016(299);
    for (int64_t id = 0; id < DRAWS; id++) {
        SamplePlan p;
        transform_plan(&t, (SampleKey){3, 0, id}, &photo, NULL, &p);
        int method = (int)p.resize.filter - RESIZE_TF_BILINEAR;
        assert_true(method >= 0 && method < 4 && p.distort && p.ops_count == 0);
        assert_int_equal(p.colors.contrast_first, method % 2);
        count[method]++;
        draws[0][id] = (double)p.colors.brightness;
        draws[1][id] = (double)p.colors.saturation;
        draws[2][id] = (double)p.colors.hue;
        draws[3][id] = (double)p.colors.contrast;
    }
    for (int m = 0; m < 4; m++) assert_true(abs(count[m] - DRAWS / 4) < 4 * sqrt(DRAWS / 4.0));
    expect_uniform(draws[0], -32.0 / 255, 32.0 / 255);
    expect_uniform(draws[1], 0.5, 1.5);
    expect_uniform(draws[2], -0.2, 0.2);
    expect_uniform(draws[3], 0.5, 1.5);
}

/* Boxes are those of the stored image: with --exif a crop of the upright image is turned back to be compared. */
TEST(test_turned)
{
    float sides[BOX_SIDES] = {0.8f, 0.1f, 0.95f, 0.3f}; /* at the lower left of the stored image */
    Boxes one = {.at = sides, .count = 1};
    ImageInfo info = {.h = 375, .w = 500, .c = 3, .orientation = 6};
    Transform t = tf2016(299);
    t.exif = true;
    t.area[1] = 0.2;
    t.covered = 0.9;
    for (int64_t id = 0; id < 50; id++) {
        SamplePlan p;
        transform_plan(&t, (SampleKey){3, 0, id}, &info, &one, &p);
        Rect stored = orientation_stored(6, info.h, info.w, p.box);
        assert_true(crop_covers(&stored, 0.9f, &one, info.h, info.w));
    }
}

/* The pixels of a plan: cut, resized in float, colors, and only then rounded. Mirroring is left to the network. */
TEST(test_applied)
{
    enum { SIDE = 21, H = 40, W = 50 };
    static float sides[BOX_SIDES] = {0.2f, 0.2f, 0.9f, 0.9f};
    Transform t = tf2016(SIDE);
    TransformWorker worker;
    Pixels all = pixels_of(H, W, 3), cut = {0};
    Bytes b = {.raw_h = H, .raw_w = W, .raw_c = 3, .size = H * W * 3};
    ImageInfo info;
    uint8_t canvas[SIDE * SIDE * 3];
    float values[SIDE * SIDE * 3];
    int32_t record[IMAGE_RECORD];
    int flips = 0;
    assert_int_equal(transform_worker_init(&worker), OK);
    assert_int_equal(bytes_reserve(&b, b.size), OK);
    memcpy(b.data, all.at, b.size);
    assert_int_equal(boxes_shape(&b.boxes, 1), OK);
    memcpy(b.boxes.at, sides, sizeof sides);
    assert_int_equal(image_probe(&b, &info), OK);
    for (int64_t id = 0; id < 40; id++) {
        SamplePlan p;
        transform_plan(&t, (SampleKey){1, 0, id}, &info, &b.boxes, &p);
        if (transform_apply(&t, &worker, &b, &info, &p, canvas, record) != OK) fail_msg("%s", status_message());
        assert_int_equal(pixels_shape(&cut, p.box.h, p.box.w, 3), OK);
        for (int y = 0; y < p.box.h; y++)
            memcpy(cut.at + (size_t)y * cut.pitch, all.at + (size_t)(((p.box.y + y) * W + p.box.x) * 3), cut.pitch);
        resize_whole(&p.resize, &cut, values);
        colors_distort(&p.colors, values, SIDE * SIDE, 3);
        for (int i = 0; i < SIDE * SIDE * 3; i++)
            if (!(fabsf((float)canvas[i] - values[i]) < 0.502f))
                fail_msg("image %d, value %d: wanted %g, found %d", (int)id, i, (double)values[i], canvas[i]);
        assert_int_equal(record[IMAGE_FLIP], p.flip);
        flips += p.flip;
    }
    assert_true(flips > 5 && flips < 35);
    /* filters of Pillow, colors of TensorFlow: the resized image is 8-bit before */
    t.filter = RESIZE_BILINEAR;
    t.crop = CROP_WHOLE;
    SamplePlan p;
    transform_plan(&t, (SampleKey){1, 0, 0}, &info, NULL, &p);
    assert_int_equal(transform_apply(&t, &worker, &b, &info, &p, canvas, record), OK);
    uint8_t plain[SIDE * SIDE * 3];
    assert_int_equal(resizer_run(worker.resizer, &p.resize, &all, plain, SIDE * 3), OK);
    for (int i = 0; i < SIDE * SIDE * 3; i++) values[i] = plain[i];
    colors_distort(&p.colors, values, SIDE * SIDE, 3);
    for (int i = 0; i < SIDE * SIDE * 3; i++) assert_true(fabsf((float)canvas[i] - values[i]) < 0.502f);
    /* a box outside of the image: named, and a bad sample */
    t = tf2016(SIDE);
    b.boxes.at[2] = 1.5f;
    transform_plan(&t, (SampleKey){1, 0, 0}, &info, &b.boxes, &p);
    assert_fails(transform_apply(&t, &worker, &b, &info, &p, canvas, record), ERR_FORMAT,
                 "bounding box 0 (image/object/bbox/) has ymin 0.2, xmin 0.2, ymax 1.5");
    t.crop = CROP_WHOLE; /* does not look at it */
    transform_plan(&t, (SampleKey){1, 0, 0}, &info, &b.boxes, &p);
    assert_int_equal(transform_apply(&t, &worker, &b, &info, &p, canvas, record), OK);
    pixels_free(&all);
    pixels_free(&cut);
    bytes_free(&b);
    transform_worker_free(&worker);
}

TEST(test_refused)
{
    Transform bad[] = {tf2016(8), tf2016(8), tf2016(8), tf2016(8)};
    bad[0].covered = 0;
    bad[1].covered = 1.1;
    bad[2].area[0] = 0;
    bad[3].ratio[1] = 0.5;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_int_equal(transform_check(&bad[i]), ERR_ARG);
    Pixels one = pixels_of(1, 1, 1);
    ResizerTf *tf = NULL;
    Resizer *plain = NULL;
    float value;
    uint8_t byte;
    assert_int_equal(resizer_tf_create(&tf), OK);
    assert_int_equal(resizer_create(&plain), OK);
    Resize to = {RESIZE_BICUBIC, 1, 1, 1, 1, {0, 0, 1, 1}};
    assert_int_equal(resizer_tf_run(tf, &to, &one, &value), ERR_ARG);
    to.filter = RESIZE_TF_MIXED;
    assert_int_equal(resizer_tf_run(tf, &to, &one, &value), ERR_ARG);
    to.filter = RESIZE_TF_NEAREST;
    assert_int_equal(resizer_run(plain, &to, &one, &byte, 1), ERR_ARG);
    to.in_h = 2;
    assert_int_equal(resizer_tf_run(tf, &to, &one, &value), OK); /* takes only row 0 */
    to.filter = RESIZE_TF_AREA;
    assert_int_equal(resizer_tf_run(tf, &to, &one, &value), ERR_ARG);
    resizer_destroy(plain);
    resizer_tf_destroy(tf);
    resizer_tf_destroy(NULL);
    pixels_free(&one);
}
