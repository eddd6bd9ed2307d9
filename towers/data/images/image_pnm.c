/* PNM (netpbm): P2 and P5 gray, P3 and P6 color, text and binary, 8 or 16 bits. The header is the magic number, then
 * width, height and maximum value as text, possibly with comments from # to the end of a line; one white space; the
 * values. Values are scaled to 255, gray ones of 16 bits too (image.h). */
#include "towers/data/images/image_formats.h"

typedef struct Pnm {
    const uint8_t *data;
    size_t size, at;
    int kind; /* '2', '3', '5', '6' */
    int32_t w, h, most;
} Pnm;

static bool is_space(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static Status number_read(Pnm *p, const char *what, int32_t most, int32_t *value)
{
    for (; p->at < p->size; p->at++) {
        if (p->data[p->at] == '#')
            while (p->at < p->size && p->data[p->at] != '\n' && p->data[p->at] != '\r') p->at++;
        else if (!is_space(p->data[p->at]))
            break;
    }
    size_t start = p->at;
    int64_t sum = 0;
    while (p->at < p->size && p->data[p->at] >= '0' && p->data[p->at] <= '9' && sum <= most)
        sum = 10 * sum + (p->data[p->at++] - '0');
    if (p->at == start || sum > most)
        return FAIL(ERR_FORMAT, "PNM: expected the %s, a number up to %d, at offset %zu of %zu", what, most, start,
                    p->size);
    *value = (int32_t)sum;
    return OK;
}

static Status header_read(const uint8_t *data, size_t size, Pnm *p)
{
    *p = (Pnm){.data = data, .size = size, .at = 2, .kind = data[1]};
    if (!strchr("2356", p->kind))
        return FAIL(ERR_FORMAT, "PNM of kind P%c: expected P2, P3, P5 or P6 (gray or color)", p->kind);
    TRY(number_read(p, "width", INT32_MAX, &p->w));
    TRY(number_read(p, "height", INT32_MAX, &p->h));
    TRY(number_read(p, "largest value", 65535, &p->most));
    if (p->most < 1) return FAIL(ERR_FORMAT, "PNM: the largest value is 0");
    if (p->at >= size || !is_space(data[p->at])) return FAIL(ERR_FORMAT, "PNM: the file ends after its header");
    p->at++;
    return OK;
}

Status pnm_probe(const uint8_t *data, size_t size, ImageInfo *info)
{
    Pnm p;
    info->format = IMAGE_PNM;
    TRY(header_read(data, size, &p));
    info->h = p.h;
    info->w = p.w;
    info->deep_gray = p.most > 255 && (p.kind == '2' || p.kind == '5');
    return OK;
}

static uint8_t scaled(const Pnm *p, int32_t value)
{
    if (p->most == 255) return (uint8_t)(value > 255 ? 255 : value);
    double v = nearbyint((double)value / p->most * 255);
    return (uint8_t)(v > 255 ? 255 : v);
}

/* Value number `index` of the image; in text formats values must be read in order. */
static Status value_read(Pnm *p, size_t index, int32_t *value)
{
    if (p->kind == '2' || p->kind == '3') return number_read(p, "value of a pixel", 65535, value);
    const uint8_t *from = p->data + p->at + (p->most > 255 ? 2 * index : index);
    *value = p->most > 255 ? from[0] << 8 | from[1] : from[0];
    return OK;
}

Status pnm_decode(ImageDecoder *decoder, const Bytes *bytes, const ImageInfo *info, Rect part, Pixels *pixels)
{
    Pnm p;
    TRY(header_read(bytes->data, bytes->size, &p));
    bool gray = p.kind == '2' || p.kind == '5', binary = p.kind >= '5';
    size_t values = (size_t)info->h * (size_t)info->w * (gray ? 1 : 3), wanted = values * (p.most > 255 ? 2 : 1);
    if (binary && p.size - p.at < wanted)
        return FAIL(ERR_FORMAT, "PNM: expected %zu bytes of pixels, found %zu: the file is cut off", wanted,
                    p.size - p.at);
    image_hold(decoder, 3 * (int64_t)part.h * part.w);
    TRY(pixels_shape(pixels, part.h, part.w, 3));
    size_t per_row = (size_t)info->w * (gray ? 1 : 3);
    for (int32_t y = binary ? part.y : 0; y < part.y + part.h; y++)
        for (size_t k = 0; k < per_row; k++) {
            int32_t value = 0, x = (int32_t)(gray ? k : k / 3) - part.x;
            bool inside = y >= part.y && x >= 0 && x < part.w;
            if (binary && !inside) continue;
            TRY(value_read(&p, (size_t)y * per_row + k, &value));
            if (!inside) continue;
            uint8_t *to = pixels->at + (size_t)(y - part.y) * pixels->pitch + 3 * (size_t)x;
            if (gray)
                memset(to, scaled(&p, value), 3);
            else
                to[k % 3] = scaled(&p, value);
        }
    return OK;
}
