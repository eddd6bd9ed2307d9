/* Boxes of crops and distortions of colors, by the formulas of TensorFlow's kernels. */
#include "towers/data/images/distort.h"

/* ---- crops */

static int32_t rounded(float value)
{
    return (int32_t)lrintf(value);
}

static int32_t below(int32_t bound, uint32_t word)
{
    return (int32_t)((uint64_t)word * (uint32_t)bound >> 32);
}

bool crop_attempt(const float area[2], const float ratio[2], int32_t h, int32_t w, const uint32_t words[4], Rect *crop)
{
    float aspect = (float)(words[0] >> 8) * 0x1p-24f * (ratio[1] - ratio[0]) + ratio[0];
    float least = area[0] * (float)w * (float)h, most = area[1] * (float)w * (float)h;
    int32_t high = rounded(sqrtf(least / aspect)), highest = rounded(sqrtf(most / aspect));
    if (rounded((float)highest * aspect) > w) {
        highest = (int32_t)((w + 0.5 - (double)1e-7f) / (double)aspect);
        if (rounded((float)highest * aspect) > w) highest--;
    }
    if (highest > h) highest = h;
    if (high > highest) high = highest;
    high += below(highest - high + 1, words[1]);
    int32_t wide = rounded((float)high * aspect);
    if ((float)((int64_t)wide * high) < least) wide = rounded((float)++high * aspect);
    if ((float)((int64_t)wide * high) > most) wide = rounded((float)--high * aspect);
    float got = (float)((int64_t)wide * high);
    if (got < least || got > most || wide > w || high > h || wide < 1 || high < 1) return false;
    /* The last place is never drawn, as in TensorFlow. */
    *crop = (Rect){high < h ? below(h - high, words[2]) : 0, wide < w ? below(w - wide, words[3]) : 0, high, wide};
    return true;
}

static bool is_inside(const Boxes *boxes, int i)
{
    for (int k = 0; k < BOX_SIDES; k++)
        if (!(boxes->at[k * boxes->count + i] >= 0 && boxes->at[k * boxes->count + i] <= 1)) return false;
    return true;
}

static float area_within(const Rect *crop, int32_t y0, int32_t x0, int32_t y1, int32_t x1)
{
    int32_t top = crop->y > y0 ? crop->y : y0, left = crop->x > x0 ? crop->x : x0;
    int32_t bottom = crop->y + crop->h < y1 ? crop->y + crop->h : y1;
    int32_t right = crop->x + crop->w < x1 ? crop->x + crop->w : x1;
    return top > bottom || left > right ? 0 : (float)((int64_t)(bottom - top) * (right - left));
}

bool crop_covers(const Rect *crop, float least, const Boxes *boxes, int32_t h, int32_t w)
{
    int count = boxes ? boxes->count : 0;
    if (count == 0) return (float)((int64_t)crop->h * crop->w) / (float)((int64_t)h * w) >= least;
    for (int i = 0; i < count; i++) {
        if (!is_inside(boxes, i)) continue;
        const float *side = boxes->at + i;
        int32_t y0 = (int32_t)(side[0] * (float)h), x0 = (int32_t)(side[count] * (float)w);
        int32_t y1 = (int32_t)(side[2 * count] * (float)h), x1 = (int32_t)(side[3 * count] * (float)w);
        float area = x1 < x0 || y1 < y0 ? 0 : (float)((int64_t)(x1 - x0) * (y1 - y0));
        if (area >= 1 && area_within(crop, y0, x0, y1, x1) / area >= least) return true;
    }
    return false;
}

Status boxes_check(const Boxes *boxes)
{
    for (int i = 0; i < boxes->count; i++)
        if (!is_inside(boxes, i))
            return FAIL(ERR_FORMAT,
                        "bounding box %d (image/object/bbox/) has ymin %g, xmin %g, ymax %g, xmax %g: expected four "
                        "numbers from 0 to 1",
                        i, (double)boxes->at[i], (double)boxes->at[boxes->count + i],
                        (double)boxes->at[2 * boxes->count + i], (double)boxes->at[3 * boxes->count + i]);
    return OK;
}

/* ---- colors */

/* fminf and fmaxf are calls, because of NaN. */
static inline float smaller(float a, float b)
{
    return a < b ? a : b;
}

static inline float larger(float a, float b)
{
    return a > b ? a : b;
}

static void contrast(float factor, float *x, size_t count, int32_t c)
{
    for (int32_t k = 0; k < c; k++) {
        double sum = 0;
        for (size_t i = 0; i < count; i++) sum += (double)x[i * (size_t)c + (size_t)k];
        float mean = (float)(sum / (double)count);
        for (size_t i = 0; i < count; i++) {
            float *value = &x[i * (size_t)c + (size_t)k];
            *value = (*value - mean) * factor + mean;
        }
    }
}

/* With V the largest and S = (V - smallest) / V, another saturation S' and the same hue and value is x' = V - (V - x)
 * S' / S. */
static void saturate(float factor, float *x, size_t count)
{
    for (size_t i = 0; i < count; i++, x += 3) {
        float most = larger(x[0], larger(x[1], x[2])), range = most - smaller(x[0], smaller(x[1], x[2]));
        if (range <= 0) continue;
        float saturation = most > 0 ? range / most : 0;
        float times = saturation > 0 ? smaller(1, larger(0, saturation * factor)) / saturation : 0;
        for (int k = 0; k < 3; k++) x[k] = most - (most - x[k]) * times;
    }
}

/* The value of a channel at a hue of h sixths of the circle: from the largest down by the range where the distance is 2 or
 * more from the hue of the channel. */
static float channel_at(float h, float hue, float most, float range)
{
    float far = fabsf(h - hue);
    if (far > 3) far = 6 - far;
    return most - range * smaller(1, larger(0, far - 1));
}

static void turn_hue(float delta, float *x, size_t count)
{
    for (size_t i = 0; i < count; i++, x += 3) {
        float r = x[0], g = x[1], b = x[2], most = larger(r, larger(g, b)), range = most - smaller(r, smaller(g, b));
        if (range <= 0) continue;
        float h = most == r ? (g - b) / range : most == g ? 2 + (b - r) / range : 4 + (r - g) / range;
        h += 6 * delta;
        while (h < 0) h += 6;
        while (h >= 6) h -= 6;
        x[0] = channel_at(h, 0, most, range);
        x[1] = channel_at(h, 2, most, range);
        x[2] = channel_at(h, 4, most, range);
    }
}

void colors_distort(const ColorDistortion *d, float *pixels, size_t count, int32_t c)
{
    for (size_t i = 0; i < count * (size_t)c; i++) pixels[i] += 255 * d->brightness;
    if (d->contrast_first) contrast(d->contrast, pixels, count, c);
    if (c == 3) saturate(d->saturation, pixels, count);
    if (c == 3) turn_hue(d->hue, pixels, count);
    if (!d->contrast_first) contrast(d->contrast, pixels, count, c);
    for (size_t i = 0; i < count * (size_t)c; i++) pixels[i] = smaller(255, larger(0, pixels[i]));
}
