/* The operations of augment.h. They round and truncate where Pillow does, so that results are equal, not only similar.
 * Sources: Pillow's definitions of blend, convert (L, HSV), transform (affine, nearest) and ImageOps. */
#include "towers/data/images/augment.h"

typedef struct ChannelCounts {
    int64_t of[3][256];
} ChannelCounts;

typedef struct Table {
    uint8_t of[3][256];
} Table;

static uint8_t *row_of(const Pixels *p, int32_t y)
{
    return p->at + (size_t)y * p->pitch;
}

/* ---- geometry: the source position of each pixel, in 16.16 fixed point, nearest neighbor */

static int64_t fixed(double value)
{
    return (int64_t)floor(value * 65536 + 0.5);
}

/* Pixel (x, y) comes from (a x + b y + c, d x + e y + f), pixel centers at halves. */
static Status affine(const double m[6], Pixels *p, Pixels *from)
{
    TRY(pixels_shape(from, p->h, p->w, p->c));
    for (int32_t y = 0; y < p->h; y++) memcpy(row_of(from, y), row_of(p, y), from->pitch);
    size_t c = (size_t)p->c;
    int64_t a = fixed(m[0]), b = fixed(m[1]), d = fixed(m[3]), e = fixed(m[4]);
    int64_t left = fixed(m[2] + 0.5 * m[0] + 0.5 * m[1]), top = fixed(m[5] + 0.5 * m[3] + 0.5 * m[4]);
    for (int32_t y = 0; y < p->h; y++, left += b, top += e) {
        uint8_t *to = row_of(p, y);
        int64_t u = left, v = top;
        for (int32_t x = 0; x < p->w; x++, u += a, v += d, to += c) {
            int64_t sx = u >> 16, sy = v >> 16;
            if (sx < 0 || sy < 0 || sx >= p->w || sy >= p->h)
                memset(to, 0, c);
            else
                memcpy(to, row_of(from, (int32_t)sy) + (size_t)sx * c, c);
        }
    }
    return OK;
}

static Status rotate(double degrees, Pixels *p, Pixels *scratch)
{
    double turn = -degrees * M_PI / 180, c = rint(cos(turn) * 1e15) / 1e15, s = rint(sin(turn) * 1e15) / 1e15;
    double x = p->w / 2.0, y = p->h / 2.0;
    const double m[6] = {c, s, x - c * x - s * y, -s, c, y + s * x - c * y};
    return affine(m, p, scratch);
}

void augment_mirror(Pixels *p)
{
    size_t c = (size_t)p->c;
    for (int32_t y = 0; y < p->h; y++) {
        uint8_t *left = row_of(p, y), *right = left + (size_t)(p->w - 1) * c;
        for (; left < right; left += c, right -= c)
            for (size_t k = 0; k < c; k++) {
                uint8_t kept = left[k];
                left[k] = right[k];
                right[k] = kept;
            }
    }
}

/* ---- blending with a degenerate image */

static uint8_t blended(int plain, int value, float amount)
{
    float sum = (float)plain + amount * (float)(value - plain);
    return (uint8_t)(sum <= 0 ? 0 : sum >= 255 ? 255 : sum);
}

static void table_apply(const Table *table, Pixels *p)
{
    for (int32_t y = 0; y < p->h; y++) {
        uint8_t *at = row_of(p, y);
        if (p->c == 3)
            for (int32_t x = 0; x < p->w; x++, at += 3) {
                at[0] = table->of[0][at[0]];
                at[1] = table->of[1][at[1]];
                at[2] = table->of[2][at[2]];
            }
        else
            for (int32_t x = 0; x < p->w; x++) at[x] = table->of[0][at[x]];
    }
}

/* Blend all channels with `plain`, by a table. */
static void blend_with(int plain, float amount, Pixels *p)
{
    Table table;
    for (int v = 0; v < 256; v++) table.of[0][v] = blended(plain, v, amount);
    memcpy(table.of[1], table.of[0], 256);
    memcpy(table.of[2], table.of[0], 256);
    table_apply(&table, p);
}

static void contrast(float amount, Pixels *p)
{
    int64_t sum = 0;
    for (int32_t y = 0; y < p->h; y++) {
        const uint8_t *at = row_of(p, y);
        for (int32_t x = 0; x < p->w; x++, at += p->c) sum += p->c == 3 ? luma_of(at) : at[0];
    }
    double mean = (double)sum / ((double)p->h * p->w);
    blend_with((int)(mean + 0.5), amount, p);
}

static void saturate(float amount, Pixels *p)
{
    if (p->c != 3) return;
    for (int32_t y = 0; y < p->h; y++) {
        uint8_t *at = row_of(p, y);
        for (int32_t x = 0; x < p->w; x++, at += 3) {
            int gray = luma_of(at);
            for (int k = 0; k < 3; k++) at[k] = blended(gray, at[k], amount);
        }
    }
}

static Status sharpen(float amount, Pixels *p, Pixels *from)
{
    TRY(pixels_shape(from, p->h, p->w, p->c));
    for (int32_t y = 0; y < p->h; y++) memcpy(row_of(from, y), row_of(p, y), from->pitch);
    int32_t c = p->c;
    for (int32_t y = 1; y + 1 < p->h; y++) { /* border pixels are not smoothed, so blending leaves them unchanged */
        const uint8_t *up = row_of(from, y - 1), *mid = row_of(from, y), *down = row_of(from, y + 1);
        uint8_t *to = row_of(p, y);
        for (int32_t k = c; k < (p->w - 1) * c; k++) {
            int sum = up[k - c] + up[k] + up[k + c] + mid[k - c] + 5 * mid[k] + mid[k + c] + down[k - c] + down[k] +
                      down[k + c];
            to[k] = blended((2 * sum + 13) / 26, mid[k], amount);
        }
    }
    return OK;
}

/* ---- tables from a histogram */

static void autocontrast_table(const int64_t count[256], uint8_t table[256])
{
    int low = 0, high = 255;
    while (low < 255 && !count[low]) low++;
    while (high > 0 && !count[high]) high--;
    double scale = high > low ? 255.0 / (high - low) : 1, offset = high > low ? -low * scale : 0;
    for (int v = 0; v < 256; v++) {
        int value = (int)(v * scale + offset);
        table[v] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
}

static void equalize_table(const int64_t count[256], uint8_t table[256])
{
    int64_t sum = 0, last = 0;
    int used = 0;
    for (int v = 0; v < 256; v++)
        if (count[v]) {
            sum += last = count[v];
            used++;
        }
    int64_t step = used > 1 ? (sum - last) / 255 : 0, n = step / 2;
    for (int v = 0; v < 256; v++) {
        int64_t value = step ? n / step : v;
        table[v] = (uint8_t)(value > 255 ? 255 : value);
        n += count[v];
    }
}

static void by_histogram(void (*fill)(const int64_t *, uint8_t *), Pixels *p)
{
    ChannelCounts h;
    Table table;
    memset(&h, 0, sizeof h);
    for (int32_t y = 0; y < p->h; y++) {
        const uint8_t *at = row_of(p, y);
        for (int32_t x = 0; x < p->w; x++)
            for (int32_t k = 0; k < p->c; k++) h.of[k][*at++]++;
    }
    for (int k = 0; k < p->c; k++) fill(h.of[k], table.of[k]);
    table_apply(&table, p);
}

/* ---- hue: conversion to 8-bit HSV and back */

static void hsv_of(const uint8_t *rgb, uint8_t hsv[3])
{
    int r = rgb[0], g = rgb[1], b = rgb[2];
    int most = r > g ? r : g, least = r < g ? r : g;
    if (b > most) most = b;
    if (b < least) least = b;
    hsv[2] = (uint8_t)most;
    hsv[0] = hsv[1] = 0;
    if (most == least) return;
    float range = (float)(most - least), h;
    float rc = (float)(most - r) / range, gc = (float)(most - g) / range, bc = (float)(most - b) / range;
    if (r == most)
        h = bc - gc;
    else if (g == most)
        h = (float)(2.0 + rc - bc);
    else
        h = (float)(4.0 + gc - rc);
    h = (float)fmod(h / 6.0 + 1.0, 1.0);
    hsv[0] = (uint8_t)(h * 255.0);
    hsv[1] = (uint8_t)(range / (float)most * 255.0);
}

static void rgb_of(const uint8_t hsv[3], uint8_t *rgb)
{
    double h = hsv[0] * 6.0 / 255.0;
    int sector = (int)floor(h);
    float v = hsv[2], s = (float)(hsv[1] / 255.0), f = (float)(h - sector);
    uint8_t p = (uint8_t)round(v * (1.0 - s)), q = (uint8_t)round(v * (1.0 - s * f)),
            t = (uint8_t)round(v * (1.0 - s * (1.0 - f))), m = hsv[2];
    const uint8_t sectors[6][3] = {{m, t, p}, {q, m, p}, {p, m, t}, {p, q, m}, {t, p, m}, {m, p, q}};
    memcpy(rgb, sectors[sector % 6], 3);
}

static void turn_hue(float amount, Pixels *p)
{
    if (p->c != 3) return;
    uint8_t shift = (uint8_t)(int)(amount * 255); /* modulo 256, like the addition below */
    for (int32_t y = 0; y < p->h; y++) {
        uint8_t *at = row_of(p, y);
        for (int32_t x = 0; x < p->w; x++, at += 3) {
            uint8_t hsv[3];
            hsv_of(at, hsv);
            hsv[0] = (uint8_t)(hsv[0] + shift);
            rgb_of(hsv, at);
        }
    }
}

/* ---- */

static void by_value(AugmentOp op, Pixels *p)
{
    Table table;
    int dropped = op.kind == AUGMENT_POSTERIZE ? 8 - (int)op.amount : 0; /* bits */
    for (int v = 0; v < 256; v++)
        table.of[0][v] = (uint8_t)(op.kind == AUGMENT_POSTERIZE ? v >> dropped << dropped
                                   : (float)v < op.amount       ? v
                                                                : 255 - v);
    memcpy(table.of[1], table.of[0], 256);
    memcpy(table.of[2], table.of[0], 256);
    table_apply(&table, p);
}

Status augment_apply(AugmentOp op, Pixels *p, Pixels *scratch)
{
    double m = (double)op.amount, whole = trunc(m);
    switch (op.kind) {
    case AUGMENT_SHEAR_X: return affine((const double[]){1, m, 0, 0, 1, 0}, p, scratch);
    case AUGMENT_SHEAR_Y: return affine((const double[]){1, 0, 0, m, 1, 0}, p, scratch);
    case AUGMENT_TRANSLATE_X: return affine((const double[]){1, 0, -whole, 0, 1, 0}, p, scratch);
    case AUGMENT_TRANSLATE_Y: return affine((const double[]){1, 0, 0, 0, 1, -whole}, p, scratch);
    case AUGMENT_ROTATE: return rotate(m, p, scratch);
    case AUGMENT_SHARPNESS: return sharpen(op.amount, p, scratch);
    case AUGMENT_BRIGHTNESS: blend_with(0, op.amount, p); break;
    case AUGMENT_COLOR: saturate(op.amount, p); break;
    case AUGMENT_CONTRAST: contrast(op.amount, p); break;
    case AUGMENT_POSTERIZE:
    case AUGMENT_SOLARIZE: by_value(op, p); break;
    case AUGMENT_AUTOCONTRAST: by_histogram(autocontrast_table, p); break;
    case AUGMENT_EQUALIZE: by_histogram(equalize_table, p); break;
    case AUGMENT_HUE: turn_hue(op.amount, p); break;
    default: break;
    }
    return OK;
}
