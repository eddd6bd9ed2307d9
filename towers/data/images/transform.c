/* Plans and their execution; formulas in transform.h. Draws are Philox(seed; epoch, sample, stream, block): each
 * purpose has its own stream, so that enabling one augmentation does not change another. */
#include "towers/data/images/transform.h"

#include "kernels/base/array.h"
#include "kernels/base/clock.h"
#include "kernels/philox.h"

enum { STREAM_SHIFT = 0, STREAM_CROP, STREAM_ALTERNATE, STREAM_JITTER, STREAM_POLICY, STREAM_ERASE, STREAM_DISTORT };
enum { TRIES = 10, BOX_TRIES = 100, POLICY_KINDS = 14, TF_THREADS = 4 };

static const uint64_t AUGMENT_KEY = 0x63726f7000000000u; /* separates these draws from other uses of the seed */

static Philox draw(SampleKey key, uint32_t stream, uint32_t block)
{
    return philox(key.seed ^ AUGMENT_KEY, (uint32_t)key.epoch, (uint32_t)key.id, (uint32_t)((uint64_t)key.id >> 32),
                  stream << 8 | block);
}

/* A number in [0, 1) from 32 bits. */
static double unit(uint32_t word)
{
    return word * 0x1p-32;
}

static double between(double low, double high, uint32_t word)
{
    return low + (high - low) * unit(word);
}

static int32_t below(int64_t bound, uint32_t word)
{
    return (int32_t)((uint64_t)word * (uint64_t)bound >> 32);
}

Status transform_check(const Transform *t)
{
    if (t->side < 1 || t->side > IMAGE_SIDE_MAX || t->pad < 0 || t->pad > IMAGE_SIDE_MAX ||
        t->side + 2 * t->pad > IMAGE_SIDE_MAX)
        return FAIL(ERR_ARG, "side %d with padding %d: expected at most %d in all", t->side, t->pad, IMAGE_SIDE_MAX);
    bool random = t->crop == CROP_RANDOM || t->crop == CROP_BOX;
    if (random && !(t->area[0] > 0 && t->area[0] <= t->area[1] && t->area[1] <= 1))
        return FAIL(ERR_ARG, "random crops of %g to %g of the area: expected 0 < smallest <= largest <= 1", t->area[0],
                    t->area[1]);
    if (random && !(t->ratio[0] > 0 && t->ratio[0] <= t->ratio[1] && t->ratio[1] < 1e6))
        return FAIL(ERR_ARG, "random crops of aspect ratio %g to %g: expected 0 < smallest <= largest", t->ratio[0],
                    t->ratio[1]);
    if (t->crop == CROP_BOX && !(t->covered > 0 && t->covered <= 1))
        return FAIL(ERR_ARG, "crops with %g of an object: expected more than 0, at most 1", t->covered);
    if (t->crop == CROP_CENTER && (t->resize < t->side || t->resize > IMAGE_SIDE_MAX))
        return FAIL(ERR_ARG, "center crop of %d pixels after resizing to %d: expected at least %d", t->side, t->resize,
                    t->side);
    if (t->crop == CROP_FRACTION && !(t->fraction > 0 && t->fraction <= 1))
        return FAIL(ERR_ARG, "central crop of %g of each side: expected more than 0, at most 1", t->fraction);
    const double jitter[] = {t->brightness, t->contrast, t->saturation};
    for (int i = 0; i < 3; i++)
        if (!(jitter[i] >= 0 && jitter[i] < 1e3))
            return FAIL(ERR_ARG, "color jitter of %g: expected 0 or more", jitter[i]);
    if (!(t->hue >= 0 && t->hue <= 0.5)) return FAIL(ERR_ARG, "hue jitter of %g: expected 0 to 0.5", t->hue);
    if (t->policy_ops < 0 || t->policy_ops > POLICY_OPS_MAX || t->policy_magnitude < 0 ||
        t->policy_magnitude >= MAGNITUDE_BINS)
        return FAIL(ERR_ARG, "RandAugment of %d operations of magnitude %d: expected 0 to %d, and 0 to %d",
                    t->policy_ops, t->policy_magnitude, POLICY_OPS_MAX, MAGNITUDE_BINS - 1);
    if (!(t->erase >= 0 && t->erase <= 1))
        return FAIL(ERR_ARG, "random erasing with probability %g: expected 0 to 1", t->erase);
    return OK;
}

/* ---- the plan: geometry */

/* A rectangle of random area and aspect ratio, drawn as by RandomResizedCrop and RandomErasing. `strict`: smaller than
 * the image in both directions. */
static bool random_rect(SampleKey key, uint32_t stream, uint32_t block, int32_t h, int32_t w, const double area[2],
                        const double ratio[2], bool strict, Rect *rect)
{
    Philox words = draw(key, stream, block);
    double size = (double)h * w * between(area[0], area[1], words.v[0]);
    double aspect = exp(between(log(ratio[0]), log(ratio[1]), words.v[1]));
    double wide = stream == STREAM_ERASE ? sqrt(size / aspect) : sqrt(size * aspect);
    double high = stream == STREAM_ERASE ? sqrt(size * aspect) : sqrt(size / aspect);
    int32_t rh = (int32_t)fmin(rint(high), INT32_MAX), rw = (int32_t)fmin(rint(wide), INT32_MAX);
    if (rh < 1 || rw < 1 || rh > h - strict || rw > w - strict) return false;
    *rect = (Rect){below(h - rh + 1, words.v[2]), below(w - rw + 1, words.v[3]), rh, rw};
    return true;
}

static Rect center_rect(int32_t h, int32_t w, int32_t rh, int32_t rw)
{
    return (Rect){(h - rh) / 2, (w - rw) / 2, rh, rw};
}

static Rect random_crop(const Transform *t, SampleKey key, int32_t h, int32_t w)
{
    Rect rect;
    for (uint32_t i = 0; i < TRIES; i++)
        if (random_rect(key, STREAM_CROP, i, h, w, t->area, t->ratio, false, &rect)) return rect;
    double ratio = (double)w / h;
    int32_t rh = h, rw = w;
    if (ratio < t->ratio[0]) rh = (int32_t)rint(w / t->ratio[0]);
    if (ratio > t->ratio[1]) rw = (int32_t)rint(h * t->ratio[1]);
    return center_rect(h, w, rh < 1 ? 1 : rh > h ? h : rh, rw < 1 ? 1 : rw > w ? w : rw);
}

/* The whole image if no attempt covers enough of an object. Boxes are those of the stored image. */
static Rect box_crop(const Transform *t, SampleKey key, const ImageInfo *info, const Boxes *boxes, int32_t h, int32_t w)
{
    const float area[2] = {(float)t->area[0], (float)t->area[1]}, ratio[2] = {(float)t->ratio[0], (float)t->ratio[1]};
    for (uint32_t i = 0; i < BOX_TRIES; i++) {
        Philox words = draw(key, STREAM_CROP, i);
        Rect rect;
        if (!crop_attempt(area, ratio, h, w, words.v, &rect)) continue;
        Rect stored = orientation_stored(t->exif ? info->orientation : 1, info->h, info->w, rect);
        if (crop_covers(&stored, (float)t->covered, boxes, info->h, info->w)) return rect;
    }
    return (Rect){0, 0, h, w};
}

static Rect central_part(double fraction, int32_t h, int32_t w)
{
    int32_t y = (int32_t)((h - h * fraction) / 2), x = (int32_t)((w - w * fraction) / 2);
    return (Rect){y, x, h - 2 * y, w - 2 * x};
}

/* The box of the image, and how it is resized. */
static void plan_crop(const Transform *t, SampleKey key, const ImageInfo *info, const Boxes *boxes, SamplePlan *plan)
{
    int32_t h = info->h, w = info->w;
    if (t->exif) orientation_size(info->orientation, info->h, info->w, &h, &w);
    plan->box = (Rect){0, 0, h, w};
    plan->resize =
        (Resize){.filter = t->filter, .out_h = t->side, .out_w = t->side, .window = {0, 0, t->side, t->side}};
    if (t->crop == CROP_RANDOM) plan->box = random_crop(t, key, h, w);
    if (t->crop == CROP_BOX) plan->box = box_crop(t, key, info, boxes, h, w);
    if (t->crop == CROP_FRACTION) plan->box = central_part(t->fraction, h, w);
    if (t->crop == CROP_CENTER) {
        int64_t longer = h > w ? h : w, shorter = h > w ? w : h, resized = t->resize * longer / shorter;
        if (resized > INT32_MAX) resized = INT32_MAX;
        plan->resize.out_h = h > w ? (int32_t)resized : t->resize;
        plan->resize.out_w = h > w ? t->resize : (int32_t)resized;
        plan->resize.window.y = (int32_t)rint((plan->resize.out_h - t->side) / 2.0);
        plan->resize.window.x = (int32_t)rint((plan->resize.out_w - t->side) / 2.0);
    }
    plan->resize.in_h = plan->box.h;
    plan->resize.in_w = plan->box.w;
}

/* The corner of the crop in the canvas, and whether it is mirrored. */
static void plan_mirror(const Transform *t, SampleKey key, SamplePlan *plan)
{
    Philox words = draw(key, STREAM_SHIFT, 0);
    uint64_t places = 2 * (uint64_t)t->pad + 1;
    plan->shift_y = t->shift ? (int32_t)(words.v[0] * places >> 32) : t->pad;
    plan->shift_x = t->shift ? (int32_t)(words.v[1] * places >> 32) : t->pad;
    plan->flip = t->flip == FLIP_RANDOM && (words.v[2] & 1);
    if (t->flip == FLIP_ALTERNATE) {
        SampleKey first = {key.seed, 0, key.id};
        plan->flip = ((draw(first, STREAM_ALTERNATE, 0).v[0] ^ (uint32_t)key.epoch) & 1) != 0;
    }
}

static void plan_erasing(const Transform *t, SampleKey key, SamplePlan *plan)
{
    static const double area[2] = {0.02, 0.33}, ratio[2] = {0.3, 3.3};
    if (t->erase <= 0 || unit(draw(key, STREAM_ERASE, 0).v[0]) >= t->erase) return;
    for (uint32_t i = 1; i <= TRIES; i++)
        if (random_rect(key, STREAM_ERASE, i, t->side, t->side, area, ratio, true, &plan->erase)) return;
}

/* ---- the plan: colors */

static void plan_jitter(const Transform *t, SampleKey key, SamplePlan *plan)
{
    static const AugmentKind kinds[JITTER_OPS] = {AUGMENT_BRIGHTNESS, AUGMENT_CONTRAST, AUGMENT_COLOR, AUGMENT_HUE};
    const double reach[JITTER_OPS] = {t->brightness, t->contrast, t->saturation, t->hue};
    Philox order = draw(key, STREAM_JITTER, 0), amount = draw(key, STREAM_JITTER, 1);
    int left[JITTER_OPS] = {0, 1, 2, 3};
    for (int n = JITTER_OPS; n > 0; n--) {
        int at = below(n, order.v[n - 1]), which = left[at];
        left[at] = left[n - 1];
        if (reach[which] <= 0) continue;
        double low = which == 3 ? -reach[3] : fmax(0, 1 - reach[which]),
               high = which == 3 ? reach[3] : 1 + reach[which];
        plan->ops[plan->ops_count++] = (AugmentOp){kinds[which], (float)between(low, high, amount.v[which])};
    }
}

/* Bin k of 0 .. 30 for an operation; `wide` is TrivialAugmentWide's table, else RandAugment's. */
static double magnitude_of(AugmentKind kind, int k, bool wide, int32_t side)
{
    double part = k / (MAGNITUDE_BINS - 1.0);
    switch (kind) {
    case AUGMENT_SHEAR_X:
    case AUGMENT_SHEAR_Y: return part * (wide ? 0.99 : 0.3);
    case AUGMENT_TRANSLATE_X:
    case AUGMENT_TRANSLATE_Y: return part * (wide ? 32 : 150.0 / 331.0 * side);
    case AUGMENT_ROTATE: return part * (wide ? 135 : 30);
    case AUGMENT_POSTERIZE: return 8 - rint(k / (wide ? 5.0 : 7.5));
    case AUGMENT_SOLARIZE: return 255 * (1 - part);
    case AUGMENT_BRIGHTNESS:
    case AUGMENT_COLOR:
    case AUGMENT_CONTRAST:
    case AUGMENT_SHARPNESS: return part * (wide ? 0.99 : 0.9);
    default: return 0;
    }
}

static void plan_policy(const Transform *t, SampleKey key, SamplePlan *plan)
{
    bool wide = t->policy == POLICY_TRIVIAL;
    int count = t->policy == POLICY_NONE ? 0 : wide ? 1 : t->policy_ops;
    for (int i = 0; i < count; i++) {
        Philox words = draw(key, STREAM_POLICY, (uint32_t)i);
        AugmentKind kind = (AugmentKind)below(POLICY_KINDS, words.v[0]);
        int k = wide ? below(MAGNITUDE_BINS, words.v[1]) : t->policy_magnitude;
        double amount = magnitude_of(kind, k, wide, t->side);
        bool has_sign = kind >= AUGMENT_SHEAR_X && kind <= AUGMENT_SHARPNESS;
        if (has_sign && (words.v[2] & 1)) amount = -amount;
        if (kind >= AUGMENT_BRIGHTNESS && kind <= AUGMENT_SHARPNESS) amount += 1;
        if (kind != AUGMENT_IDENTITY) plan->ops[plan->ops_count++] = (AugmentOp){kind, (float)amount};
    }
}

/* The original's preprocessing threads each have one resize method (number % 4) and one order of colors (number % 2); here
 * the sample draws the number. */
static void plan_distortion(const Transform *t, SampleKey key, SamplePlan *plan)
{
    Philox amount = draw(key, STREAM_DISTORT, 0);
    int32_t thread = below(TF_THREADS, draw(key, STREAM_DISTORT, 1).v[0]);
    if (t->filter == RESIZE_TF_MIXED) plan->resize.filter = (ResizeFilter)(RESIZE_TF_BILINEAR + thread);
    plan->distort = t->distort;
    plan->colors = (ColorDistortion){.contrast_first = thread & 1,
                                     .brightness = (float)between(-32.0 / 255, 32.0 / 255, amount.v[0]),
                                     .saturation = (float)between(0.5, 1.5, amount.v[1]),
                                     .hue = (float)between(-0.2, 0.2, amount.v[2]),
                                     .contrast = (float)between(0.5, 1.5, amount.v[3])};
}

void transform_plan(const Transform *t, SampleKey key, const ImageInfo *info, const Boxes *boxes, SamplePlan *plan)
{
    memset(plan, 0, sizeof *plan);
    plan_crop(t, key, info, boxes, plan);
    plan_mirror(t, key, plan);
    plan_distortion(t, key, plan);
    plan_jitter(t, key, plan);
    plan_policy(t, key, plan);
    plan_erasing(t, key, plan);
}

/* ---- execution */

Status transform_worker_init(TransformWorker *worker)
{
    memset(worker, 0, sizeof *worker);
    TRY(image_decoder_create(&worker->decoder));
    TRY(resizer_create(&worker->resizer));
    TRY(resizer_tf_create(&worker->resizer_tf));
    return OK;
}

void transform_worker_free(TransformWorker *worker)
{
    image_decoder_destroy(worker->decoder);
    resizer_destroy(worker->resizer);
    resizer_tf_destroy(worker->resizer_tf);
    free(worker->values);
    pixels_free(&worker->decoded);
    pixels_free(&worker->upright);
    pixels_free(&worker->resized);
    pixels_free(&worker->scratch);
    memset(worker, 0, sizeof *worker);
}

void transform_worker_rest(TransformWorker *worker)
{
    Pixels *buffers[] = {&worker->decoded, &worker->upright, &worker->resized, &worker->scratch};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        if (buffers[i]->room > LARGE_BYTES) pixels_free(buffers[i]);
    image_decoder_rest(worker->decoder);
}

/* Decode the pixels of the box that resizing reads, and turn them upright. */
static Status decode_support(const Transform *t, TransformWorker *worker, const Bytes *bytes, const ImageInfo *info,
                             const SamplePlan *plan, const Pixels **pixels)
{
    Rect part = resize_support(&plan->resize);
    int orientation = t->exif ? info->orientation : 1;
    part.y += plan->box.y;
    part.x += plan->box.x;
    part = orientation_stored(orientation, info->h, info->w, part);
    TRY(image_decode(worker->decoder, bytes, info, part, &worker->decoded));
    if (t->gray) pixels_to_gray(&worker->decoded);
    *pixels = &worker->decoded;
    if (orientation == 1) return OK;
    TRY(orientation_apply(orientation, &worker->decoded, &worker->upright));
    *pixels = &worker->upright;
    return OK;
}

static Status operations_run(TransformWorker *worker, const SamplePlan *plan, uint8_t *corner, size_t pitch)
{
    Pixels *image = &worker->resized;
    if (plan->flip) augment_mirror(image); /* before the geometric operations, because it changes their directions */
    for (int i = 0; i < plan->ops_count; i++) TRY(augment_apply(plan->ops[i], image, &worker->scratch));
    for (int32_t y = 0; y < image->h; y++)
        memcpy(corner + (size_t)y * pitch, image->at + (size_t)y * image->pitch, (size_t)image->w * (size_t)image->c);
    return OK;
}

static void border_clear(const Transform *t, int32_t c, uint8_t *canvas)
{
    size_t pitch = (size_t)(t->side + 2 * t->pad) * (size_t)c, edge = (size_t)t->pad * (size_t)c;
    memset(canvas, 0, (size_t)t->pad * pitch);
    for (int32_t y = t->pad; y < t->side + t->pad; y++) {
        memset(canvas + (size_t)y * pitch, 0, edge);
        memset(canvas + (size_t)(y + 1) * pitch - edge, 0, edge);
    }
    memset(canvas + (size_t)(t->side + t->pad) * pitch, 0, (size_t)t->pad * pitch);
}

static uint8_t rounded_value(float value)
{
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value + 0.5f);
}

/* Resize to `to`; TensorFlow's filters, and colors that are distorted, in float, rounded to 8 bits only at the end. */
static Status resize_run(const Transform *t, TransformWorker *worker, const SamplePlan *plan, const Pixels *pixels,
                         uint8_t *to, size_t pitch)
{
    bool filter_tf = plan->resize.filter >= RESIZE_TF_BILINEAR;
    size_t row = (size_t)t->side * (size_t)pixels->c, count = (size_t)t->side * row;
    if (!filter_tf) TRY(resizer_run(worker->resizer, &plan->resize, pixels, to, pitch));
    if (!filter_tf && !plan->distort) return OK;
    TRY(array_reserve(&worker->values, &worker->values_room, count, sizeof *worker->values, "the floats of an image"));
    float *values = worker->values;
    for (size_t y = 0; y < (size_t)t->side && !filter_tf; y++)
        for (size_t x = 0; x < row; x++) values[y * row + x] = to[y * pitch + x];
    if (filter_tf) TRY(resizer_tf_run(worker->resizer_tf, &plan->resize, pixels, values));
    if (plan->distort) colors_distort(&plan->colors, values, (size_t)t->side * (size_t)t->side, pixels->c);
    for (size_t y = 0; y < (size_t)t->side; y++)
        for (size_t x = 0; x < row; x++) to[y * pitch + x] = rounded_value(values[y * row + x]);
    return OK;
}

Status transform_apply(const Transform *t, TransformWorker *worker, const Bytes *bytes, const ImageInfo *info,
                       const SamplePlan *plan, uint8_t *canvas, int32_t record[IMAGE_RECORD])
{
    const Pixels *pixels = NULL;
    int32_t channels = t->gray ? 1 : info->c;
    size_t c = (size_t)channels, pitch = (size_t)(t->side + 2 * t->pad) * c;
    uint8_t *corner = canvas + (size_t)t->pad * (pitch + c);
    int64_t start = clock_ns();
    if (t->crop == CROP_BOX) TRY(boxes_check(&bytes->boxes));
    TRY(decode_support(t, worker, bytes, info, plan, &pixels));
    int64_t decoded = clock_ns();
    if (t->pad > 0) border_clear(t, channels, canvas);
    if (plan->ops_count > 0) {
        TRY(pixels_shape(&worker->resized, t->side, t->side, channels));
        TRY(resize_run(t, worker, plan, pixels, worker->resized.at, worker->resized.pitch));
    } else {
        TRY(resize_run(t, worker, plan, pixels, corner, pitch));
    }
    int64_t resized = clock_ns();
    if (plan->ops_count > 0) TRY(operations_run(worker, plan, corner, pitch));
    worker->decode_ns += decoded - start;
    worker->resize_ns += resized - decoded;
    worker->augment_ns += clock_ns() - resized;
    memset(record, 0, IMAGE_RECORD * sizeof *record);
    record[IMAGE_OY] = plan->shift_y;
    record[IMAGE_OX] = plan->shift_x;
    record[IMAGE_FLIP] = plan->flip && plan->ops_count == 0;
    record[IMAGE_ERASE_Y] = plan->erase.y;
    record[IMAGE_ERASE_X] = plan->erase.x;
    record[IMAGE_ERASE_H] = plan->erase.h;
    record[IMAGE_ERASE_W] = plan->erase.w;
    return OK;
}
