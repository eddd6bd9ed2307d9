/* Transforms: plans are pure functions of (seed, epoch, sample), draw from the published distributions, and are
 * applied to the pixels that they name. Distributions by Kolmogorov-Smirnov: with n draws the largest distance between
 * the two cumulative functions is below 1.95 / sqrt(n) in all but 1 of 1,000 tests. */
#include "towers/data/images/transform.h"

#include "tests/support/unit.h"
#include "towers/data/sources/reader.h"

enum { DRAWS = 4000 };

static const ImageInfo photo = {.h = 375, .w = 500, .c = 3, .orientation = 1};

static Transform random_crop_of(int32_t side)
{
    return (Transform){
        .side = side, .crop = CROP_RANDOM, .area = {0.08, 1}, .ratio = {3.0 / 4, 4.0 / 3}, .flip = FLIP_RANDOM};
}

static SamplePlan plan_of(const Transform *t, int64_t epoch, int64_t id)
{
    SamplePlan plan;
    transform_plan(t, (SampleKey){11, epoch, id}, &photo, NULL, &plan);
    return plan;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The largest distance of the draws from a uniform distribution on [low, high]. */
static void expect_uniform(double *draws, size_t n, double low, double high)
{
    double most = 0;
    qsort(draws, n, sizeof *draws, by_value);
    for (size_t i = 0; i < n; i++) {
        double wanted = (draws[i] - low) / (high - low);
        most = fmax(most, fmax(fabs(wanted - (double)i / (double)n), fabs(wanted - (double)(i + 1) / (double)n)));
    }
    if (most * sqrt((double)n) > 1.95)
        fail_msg("distance %g of %zu draws from uniform on %g .. %g", most, n, low, high);
}

TEST(test_pure)
{
    Transform t = random_crop_of(299);
    t.policy = POLICY_TRIVIAL;
    t.brightness = t.contrast = t.saturation = 0.4;
    t.hue = 0.1;
    t.erase = 0.5;
    int same_next_epoch = 0;
    for (int64_t id = 0; id < 100; id++) {
        SamplePlan a = plan_of(&t, 3, id), b = plan_of(&t, 3, id), c = plan_of(&t, 4, id);
        assert_memory_equal(&a, &b, sizeof a);
        same_next_epoch += memcmp(&a, &c, sizeof a) == 0;
        assert_true(a.box.y >= 0 && a.box.x >= 0 && a.box.h >= 1 && a.box.w >= 1);
        assert_true(a.box.y + a.box.h <= photo.h && a.box.x + a.box.w <= photo.w);
        assert_true(a.erase.y + a.erase.h <= 299 && a.erase.x + a.erase.w <= 299);
    }
    assert_int_equal(same_next_epoch, 0);
    Transform plain = random_crop_of(299); /* switching colors on does not move the crop */
    SamplePlan a = plan_of(&t, 3, 7), b = plan_of(&plain, 3, 7);
    assert_memory_equal(&a.box, &b.box, sizeof a.box);
    assert_int_equal(a.flip, b.flip);
}

/* On a square image no draw is refused for its shape if areas are small, so areas and log ratios stay uniform. */
TEST(test_random_crop)
{
    static double area[DRAWS], ratio[DRAWS], y[DRAWS], x[DRAWS];
    const ImageInfo large = {.h = 20000, .w = 20000, .c = 3, .orientation = 1};
    Transform t = random_crop_of(224);
    t.area[1] = 0.5;
    for (int64_t id = 0; id < DRAWS; id++) {
        SamplePlan p;
        transform_plan(&t, (SampleKey){5, 0, id}, &large, NULL, &p);
        area[id] = (double)p.box.h * p.box.w / 4e8;
        ratio[id] = log((double)p.box.w / p.box.h);
        y[id] = (p.box.y + 0.5) / (20000 - p.box.h + 1);
        x[id] = (p.box.x + 0.5) / (20000 - p.box.w + 1);
    }
    expect_uniform(area, DRAWS, 0.08, 0.5);
    expect_uniform(ratio, DRAWS, log(3.0 / 4), log(4.0 / 3));
    expect_uniform(y, DRAWS, 0, 1);
    expect_uniform(x, DRAWS, 0, 1);
    const ImageInfo flat = {.h = 10, .w = 1000, .c = 3, .orientation = 1}; /* no try fits: the center */
    const ImageInfo tall = {.h = 1000, .w = 10, .c = 3, .orientation = 1};
    SamplePlan p;
    t.area[0] = t.area[1] = 1;
    transform_plan(&t, (SampleKey){5, 0, 1}, &flat, NULL, &p);
    assert_memory_equal(&p.box, &((Rect){0, 493, 10, 13}), sizeof(Rect));
    transform_plan(&t, (SampleKey){5, 0, 1}, &tall, NULL, &p);
    assert_memory_equal(&p.box, &((Rect){493, 0, 13, 10}), sizeof(Rect));
}

TEST(test_flips)
{
    Transform t = {.side = 8, .flip = FLIP_RANDOM}, alternate = {.side = 8, .flip = FLIP_ALTERNATE};
    int flips = 0, first = 0;
    for (int64_t id = 0; id < DRAWS; id++) {
        flips += plan_of(&t, id % 7, id).flip;
        bool even = plan_of(&alternate, 0, id).flip;
        first += even;
        assert_int_equal(plan_of(&alternate, 1, id).flip, !even);
        assert_int_equal(plan_of(&alternate, 2, id).flip, even);
    }
    assert_true(abs(flips - DRAWS / 2) < 2 * sqrt(DRAWS)); /* four deviations */
    assert_true(abs(first - DRAWS / 2) < 2 * sqrt(DRAWS));
    t.flip = FLIP_NONE;
    assert_false(plan_of(&t, 0, 1).flip);
}

TEST(test_jitter)
{
    static double amount[3][DRAWS], hue[DRAWS];
    int orders[4][4] = {{0}};
    Transform t = {.side = 8, .brightness = 0.4, .contrast = 1.5, .saturation = 0.2, .hue = 0.1};
    for (int64_t id = 0; id < DRAWS; id++) {
        SamplePlan p = plan_of(&t, 0, id);
        assert_int_equal(p.ops_count, 4);
        for (int i = 0; i < 4; i++) {
            AugmentKind kind = p.ops[i].kind;
            int which = kind == AUGMENT_BRIGHTNESS ? 0 : kind == AUGMENT_CONTRAST ? 1 : kind == AUGMENT_COLOR ? 2 : 3;
            orders[which][i]++;
            if (which == 3)
                hue[id] = (double)p.ops[i].amount;
            else
                amount[which][id] = (double)p.ops[i].amount;
        }
    }
    expect_uniform(amount[0], DRAWS, 0.6, 1.4);
    expect_uniform(amount[1], DRAWS, 0, 2.5);
    expect_uniform(amount[2], DRAWS, 0.8, 1.2);
    expect_uniform(hue, DRAWS, -0.1, 0.1);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) assert_true(abs(orders[i][k] - DRAWS / 4) < 4 * sqrt(DRAWS * 3.0 / 16));
}

/* Operation `kind` of the policy comes with this amount, and if it has a sign with the opposite one; with others only
 * between these and no effect, and RandAugment with none at all. */
static void expect_policy(const Transform *t, AugmentKind kind, double amount, bool both_signs)
{
    bool seen = false, seen_other = false, factor = kind >= AUGMENT_BRIGHTNESS && kind <= AUGMENT_SHARPNESS;
    double none = factor ? 1 : kind == AUGMENT_POSTERIZE ? 8 : kind == AUGMENT_SOLARIZE ? 255 : 0;
    double other = 2 * none - amount, end = both_signs ? other : none;
    for (int64_t id = 0; id < 1000 || (id < 30000 && !(seen && (seen_other || !both_signs))); id++) {
        SamplePlan p = plan_of(t, 0, id);
        for (int i = 0; i < p.ops_count; i++) {
            if (p.ops[i].kind != kind) continue;
            double found = (double)p.ops[i].amount;
            bool is_amount = fabs(found - amount) < 1e-4, is_other = both_signs && fabs(found - other) < 1e-4;
            bool between = found > fmin(amount, end) - 1e-4 && found < fmax(amount, end) + 1e-4;
            if (!is_amount && !is_other && (t->policy == POLICY_RAND || !between))
                fail_msg("augmentation %d by %g, expected %g", kind, found, amount);
            seen = seen || is_amount;
            seen_other = seen_other || is_other;
        }
    }
    if (!seen || (both_signs && !seen_other)) fail_msg("augmentation %d by %g does not come", kind, amount);
}

TEST(test_policies)
{
    Transform rand = {.side = 331, .policy = POLICY_RAND, .policy_ops = 2, .policy_magnitude = 9};
    expect_policy(&rand, AUGMENT_SHEAR_X, 0.09, true);
    expect_policy(&rand, AUGMENT_TRANSLATE_Y, 45, true);
    expect_policy(&rand, AUGMENT_ROTATE, 9, true);
    expect_policy(&rand, AUGMENT_BRIGHTNESS, 1.27, true);
    expect_policy(&rand, AUGMENT_SHARPNESS, 1.27, true);
    expect_policy(&rand, AUGMENT_POSTERIZE, 7, false);
    expect_policy(&rand, AUGMENT_SOLARIZE, 178.5, false);
    expect_policy(&rand, AUGMENT_AUTOCONTRAST, 0, false);
    expect_policy(&rand, AUGMENT_EQUALIZE, 0, false);
    Transform wide = {.side = 299, .policy = POLICY_TRIVIAL};
    expect_policy(&wide, AUGMENT_SHEAR_Y, 0.99, true);
    expect_policy(&wide, AUGMENT_TRANSLATE_X, 32, true);
    expect_policy(&wide, AUGMENT_ROTATE, 135, true);
    expect_policy(&wide, AUGMENT_COLOR, 1.99, true);
    expect_policy(&wide, AUGMENT_POSTERIZE, 2, false);
    expect_policy(&wide, AUGMENT_SOLARIZE, 0, false);
    int identity = 0;
    for (int64_t id = 0; id < DRAWS; id++) identity += plan_of(&wide, 0, id).ops_count == 0;
    assert_true(abs(identity - DRAWS / 14) < 4 * sqrt(DRAWS / 14.0));
}

/* Areas below 0.29 are never refused for their shape, so those of them that come are as they were drawn. */
TEST(test_erase)
{
    static double area[DRAWS], ratio[DRAWS], y[DRAWS], x[DRAWS];
    int erased = 0, kept = 0;
    double most = 0;
    Transform t = {.side = 10000, .erase = 0.25};
    for (int64_t id = 0; id < 4 * DRAWS; id++) {
        Rect r = plan_of(&t, 0, id).erase;
        if (r.h == 0) continue;
        double part = r.h * (double)r.w / 1e8;
        assert_true(part > 0.0199 && part < 0.3301);
        erased++;
        most = fmax(most, part);
        if (part > 0.29 || kept == DRAWS) continue;
        area[kept] = part;
        ratio[kept] = log((double)r.h / r.w);
        y[kept] = (r.y + 0.5) / (10000 - r.h + 1);
        x[kept++] = (r.x + 0.5) / (10000 - r.w + 1);
    }
    assert_true(abs(erased - DRAWS) < 4 * sqrt(DRAWS));
    assert_true(most > 0.32);
    expect_uniform(area, (size_t)kept, 0.02, 0.29);
    expect_uniform(ratio, (size_t)kept, log(0.3), log(3.3));
    expect_uniform(y, (size_t)kept, 0, 1);
    expect_uniform(x, (size_t)kept, 0, 1);
}

TEST(test_evaluation_crops)
{
    Transform center = {.side = 299, .crop = CROP_CENTER, .resize = 342},
              part = {.side = 299, .crop = CROP_FRACTION, .fraction = 0.875};
    SamplePlan p = plan_of(&center, 0, 0); /* 500 x 375: shorter side 342, longer int(342 * 500 / 375) = 456 */
    assert_int_equal(p.resize.out_h, 342);
    assert_int_equal(p.resize.out_w, 456);
    assert_int_equal(p.resize.window.y, 22); /* round half to even of 21.5 */
    assert_int_equal(p.resize.window.x, 78);
    p = plan_of(&part, 0, 0); /* int((375 - 328.125) / 2) = 23 */
    assert_int_equal(p.box.y, 23);
    assert_int_equal(p.box.h, 329);
    assert_int_equal(p.box.x, 31);
    assert_int_equal(p.box.w, 438);
    assert_int_equal(p.resize.out_w, 299);
}

/* ---- the work */

static Bytes image_of(int32_t h, int32_t w, int32_t c)
{
    Bytes b = {.raw_h = h, .raw_w = w, .raw_c = c};
    assert_int_equal(bytes_reserve(&b, (size_t)(h * w * c)), OK);
    b.size = (size_t)(h * w * c);
    for (size_t i = 0; i < b.size; i++) b.data[i] = (uint8_t)(1 + (i * 73 + i * i * 5 + i / 7) % 255);
    return b;
}

TEST(test_canvas_and_record)
{
    enum { SIDE = 6, PAD = 2, FULL = SIDE + 2 * PAD };
    Bytes b = image_of(SIDE, SIDE, 3);
    Transform t = {.side = SIDE, .pad = PAD, .shift = true, .flip = FLIP_RANDOM, .erase = 0.5};
    TransformWorker worker;
    ImageInfo info;
    uint8_t canvas[FULL * FULL * 3];
    int32_t record[IMAGE_RECORD];
    int moved = 0, erased = 0;
    assert_int_equal(transform_worker_init(&worker), OK);
    assert_int_equal(image_probe(&b, &info), OK);
    for (int64_t id = 0; id < 50; id++) {
        SamplePlan plan;
        transform_plan(&t, (SampleKey){1, 0, id}, &info, NULL, &plan);
        memset(canvas, 99, sizeof canvas);
        assert_int_equal(transform_apply(&t, &worker, &b, &info, &plan, canvas, record), OK);
        for (int y = 0; y < FULL; y++)
            for (int x = 0; x < FULL * 3; x++) {
                bool inside = y >= PAD && y < FULL - PAD && x >= 3 * PAD && x < 3 * (FULL - PAD);
                uint8_t wanted = inside ? b.data[((y - PAD) * SIDE) * 3 + x - 3 * PAD] : 0;
                assert_int_equal(canvas[y * FULL * 3 + x], wanted);
            }
        assert_int_equal(record[IMAGE_OY], plan.shift_y);
        assert_int_equal(record[IMAGE_OX], plan.shift_x);
        assert_int_equal(record[IMAGE_FLIP], plan.flip);
        Rect erase = {record[IMAGE_ERASE_Y], record[IMAGE_ERASE_X], record[IMAGE_ERASE_H], record[IMAGE_ERASE_W]};
        assert_memory_equal(&erase, &plan.erase, sizeof erase);
        moved += record[IMAGE_OY] != PAD || record[IMAGE_OX] != PAD;
        erased += erase.y > 0 && erase.x > 0 && erase.h > 0 && erase.w > 0 && erase.h != erase.w;
    }
    assert_true(moved > 30 && erased > 3);
    transform_worker_free(&worker);
    bytes_free(&b);
}

/* With operations on the pixels, mirroring happens before them and not in the network. */
TEST(test_operations_mirror_first)
{
    enum { SIDE = 8 };
    Bytes b = image_of(SIDE, SIDE, 3);
    ImageInfo info = {.h = SIDE, .w = SIDE, .c = 3, .orientation = 1};
    SamplePlan plan = {
        .resize = {.in_h = SIDE, .in_w = SIDE, .out_h = SIDE, .out_w = SIDE, .window = {0, 0, SIDE, SIDE}},
        .box = {0, 0, SIDE, SIDE},
        .flip = true,
        .ops_count = 1,
        .ops = {{AUGMENT_TRANSLATE_X, 3}}};
    Transform t = {.side = SIDE};
    TransformWorker worker;
    uint8_t canvas[SIDE * SIDE * 3];
    int32_t record[IMAGE_RECORD];
    assert_int_equal(transform_worker_init(&worker), OK);
    assert_int_equal(transform_apply(&t, &worker, &b, &info, &plan, canvas, record), OK);
    assert_int_equal(record[IMAGE_FLIP], 0);
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++)
            assert_int_equal(canvas[(y * SIDE + x) * 3], x < 3 ? 0 : b.data[(y * SIDE + SIDE - 1 - (x - 3)) * 3]);
    transform_worker_free(&worker);
    bytes_free(&b);
}

/* The eight orientations of one image: stored turned, read upright, all crops are those of the upright image. */
TEST(test_orientation)
{
    enum { H = 5, W = 7 };
    Pixels upright = {0}, stored = {0}, again = {0}, part = {0}, turned = {0};
    Bytes b = image_of(H, W, 3);
    assert_int_equal(pixels_shape(&upright, H, W, 3), OK);
    memcpy(upright.at, b.data, b.size);
    const int inverse[9] = {0, 1, 2, 3, 4, 5, 8, 7, 6};
    for (int o = 1; o <= 8; o++) {
        assert_int_equal(orientation_apply(inverse[o], &upright, &stored), OK);
        assert_int_equal(orientation_apply(o, &stored, &again), OK);
        assert_int_equal(again.h, H);
        assert_memory_equal(again.at, upright.at, b.size);
        Rect want = {1, 2, 3, 4}, from = orientation_stored(o, stored.h, stored.w, want);
        assert_int_equal(pixels_shape(&part, from.h, from.w, 3), OK);
        for (int y = 0; y < from.h; y++)
            memcpy(part.at + (size_t)y * part.pitch, stored.at + (size_t)(from.y + y) * stored.pitch + from.x * 3,
                   part.pitch);
        assert_int_equal(orientation_apply(o, &part, &turned), OK);
        for (int y = 0; y < want.h; y++)
            assert_memory_equal(turned.at + (size_t)y * turned.pitch,
                                upright.at + (size_t)(want.y + y) * upright.pitch + want.x * 3, (size_t)want.w * 3);
    }
    pixels_free(&upright);
    pixels_free(&stored);
    pixels_free(&again);
    pixels_free(&part);
    pixels_free(&turned);
    bytes_free(&b);
}

/* The box of a plan, cut out by hand, is transformed to the same pixels as by a crop, however the image is stored. */
TEST(test_crops_of_turned_images)
{
    enum { H = 23, W = 34, SIDE = 8, SAMPLES = 12 };
    const int inverse[9] = {0, 1, 2, 3, 4, 5, 8, 7, 6};
    Transform kinds[] = {random_crop_of(SIDE),
                         {.side = SIDE},
                         {.side = SIDE, .crop = CROP_CENTER, .resize = 9},
                         {.side = SIDE, .crop = CROP_FRACTION, .fraction = 0.7}};
    Bytes b = image_of(H, W, 3), turned = {0}, cut = {0};
    Pixels upright = {.at = b.data, .h = H, .w = W, .c = 3, .pitch = W * 3}, stored = {0};
    ImageInfo info = {.h = H, .w = W, .c = 3, .orientation = 1};
    TransformWorker worker;
    assert_int_equal(transform_worker_init(&worker), OK);
    for (int i = 0; i < SAMPLES * (int)(sizeof kinds / sizeof *kinds); i++) {
        Transform *t = &kinds[i / SAMPLES];
        SamplePlan plan;
        uint8_t wanted[SIDE * SIDE * 3], found[SIDE * SIDE * 3], pixels[H * W * 3];
        int32_t record[IMAGE_RECORD];
        t->exif = true;
        transform_plan(t, (SampleKey){3, 0, i}, &info, NULL, &plan);
        Rect box = plan.box;
        ImageInfo info_of_cut = {.h = box.h, .w = box.w, .c = 3, .orientation = 1};
        for (int32_t y = 0; y < box.h; y++)
            memcpy(pixels + y * box.w * 3, b.data + ((box.y + y) * W + box.x) * 3, (size_t)box.w * 3);
        assert_int_equal(bytes_raw(&cut, pixels, box.h, box.w, 3), OK);
        SamplePlan plan_of_cut = plan;
        plan_of_cut.box.y = plan_of_cut.box.x = 0;
        assert_int_equal(transform_apply(t, &worker, &cut, &info_of_cut, &plan_of_cut, wanted, record), OK);
        for (int o = 1; o <= 8; o++) {
            assert_int_equal(orientation_apply(inverse[o], &upright, &stored), OK);
            assert_int_equal(bytes_raw(&turned, stored.at, stored.h, stored.w, 3), OK);
            ImageInfo info_turned = {.h = stored.h, .w = stored.w, .c = 3, .orientation = o};
            SamplePlan again;
            transform_plan(t, (SampleKey){3, 0, i}, &info_turned, NULL, &again);
            assert_memory_equal(&again, &plan, sizeof plan);
            assert_int_equal(transform_apply(t, &worker, &turned, &info_turned, &plan, found, record), OK);
            assert_memory_equal(found, wanted, sizeof wanted);
        }
    }
    transform_worker_free(&worker);
    pixels_free(&stored);
    bytes_free(&turned);
    bytes_free(&cut);
    bytes_free(&b);
}

/* The longer side that a thin image is resized to is larger than that of any image, and more than 31 bits hold. */
TEST(test_thin)
{
    const int32_t longer[] = {300, 65500}, resize[] = {400, 65500};
    for (int i = 0; i < 2; i++) {
        Transform t = {.side = 8, .crop = CROP_CENTER, .resize = resize[i]};
        Bytes b = image_of(longer[i], 1, 3);
        ImageInfo info = {.h = longer[i], .w = 1, .c = 3, .orientation = 1};
        TransformWorker worker;
        SamplePlan plan;
        uint8_t canvas[8 * 8 * 3];
        int32_t record[IMAGE_RECORD];
        assert_int_equal(transform_check(&t), OK);
        assert_int_equal(transform_worker_init(&worker), OK);
        transform_plan(&t, (SampleKey){0, 0, 0}, &info, NULL, &plan);
        if (transform_apply(&t, &worker, &b, &info, &plan, canvas, record) != OK) fail_msg("%s", status_message());
        /* enlarged so much, the center lies between the two pixels in the middle, or with the longest side within one */
        for (size_t k = 0; i == 0 && k < sizeof canvas; k++) {
            int above = b.data[149 * 3 + k % 3], below = b.data[150 * 3 + k % 3];
            assert_in_range(canvas[k], above < below ? above : below, above < below ? below : above);
        }
        transform_worker_free(&worker);
        bytes_free(&b);
    }
}

TEST(test_refused)
{
    const Transform bad[] = {
        {.side = 0},
        {.side = 65500, .pad = 1},
        {.side = 8, .crop = CROP_RANDOM},
        {.side = 8, .crop = CROP_RANDOM, .area = {0.5, 0.1}, .ratio = {1, 1}},
        {.side = 8, .crop = CROP_RANDOM, .area = {0.5, 1}, .ratio = {2, 1}},
        {.side = 8, .crop = CROP_CENTER, .resize = 7},
        {.side = 8, .crop = CROP_FRACTION, .fraction = 1.1},
        {.side = 8, .hue = 0.6},
        {.side = 8, .contrast = -1},
        {.side = 8, .brightness = NAN},
        {.side = 8, .policy_magnitude = 31},
        {.side = 8, .policy_ops = 9},
        {.side = 8, .erase = 1.1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_int_equal(transform_check(&bad[i]), ERR_ARG);
    Transform good = random_crop_of(299);
    assert_int_equal(transform_check(&good), OK);
}
