/* Orientations, by the definition of the EXIF tag; see image_info.h. */
#include "towers/data/images/image_info.h"

/* ---- EXIF: TIFF 6.0 header, then IFD0: u16 entries of {u16 tag, u16 type, u32 count, u32 value} */

static uint32_t number(const uint8_t *at, int bytes, bool little)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint32_t)at[i] << 8 * (little ? i : bytes - 1 - i);
    return value;
}

int exif_orientation(const uint8_t *tiff, size_t size)
{
    enum { TAG = 0x0112, SHORT = 3, LONG = 4, ENTRY = 12 };
    if (size < 8 || (memcmp(tiff, "II*\0", 4) != 0 && memcmp(tiff, "MM\0*", 4) != 0)) return 1;
    bool little = tiff[0] == 'I';
    size_t first = number(tiff + 4, 4, little);
    if (first > size - 2) return 1;
    size_t entries = number(tiff + first, 2, little);
    for (size_t i = 0; i < entries; i++) {
        size_t at = first + 2 + i * ENTRY;
        if (at + ENTRY > size) return 1;
        if (number(tiff + at, 2, little) != TAG) continue;
        uint32_t type = number(tiff + at + 2, 2, little), value = number(tiff + at + 8, type == LONG ? 4 : 2, little);
        return (type == SHORT || type == LONG) && value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

/* How the pixel of an upright image is found in the stored image, by the tag's definition: first the axes are swapped
 * (5 to 8), then the stored row or column counts from the other end. */
typedef struct AxisTurn {
    bool swap, from_bottom, from_right;
} AxisTurn;

static AxisTurn turn_of(int orientation)
{
    static const AxisTurn turns[9] = {
        [2] = {false, false, true}, [3] = {false, true, true}, [4] = {false, true, false}, [5] = {true, false, false},
        [6] = {true, true, false},  [7] = {true, true, true},  [8] = {true, false, true},
    };
    return turns[orientation >= 1 && orientation <= 8 ? orientation : 1];
}

void orientation_size(int orientation, int32_t stored_h, int32_t stored_w, int32_t *h, int32_t *w)
{
    bool swap = turn_of(orientation).swap;
    *h = swap ? stored_w : stored_h;
    *w = swap ? stored_h : stored_w;
}

Rect orientation_stored(int orientation, int32_t stored_h, int32_t stored_w, Rect upright)
{
    AxisTurn t = turn_of(orientation);
    Rect r = upright;
    if (t.swap) r = (Rect){upright.x, upright.y, upright.w, upright.h};
    if (t.from_bottom) r.y = stored_h - r.y - r.h;
    if (t.from_right) r.x = stored_w - r.x - r.w;
    return r;
}

Status orientation_apply(int orientation, const Pixels *from, Pixels *to)
{
    AxisTurn t = turn_of(orientation);
    int32_t h, w;
    size_t c = (size_t)from->c;
    orientation_size(orientation, from->h, from->w, &h, &w);
    TRY(pixels_shape(to, h, w, from->c));
    for (int32_t y = 0; y < h; y++)
        for (int32_t x = 0; x < w; x++) {
            int32_t row = t.swap ? x : y, column = t.swap ? y : x;
            if (t.from_bottom) row = from->h - 1 - row;
            if (t.from_right) column = from->w - 1 - column;
            memcpy(to->at + (size_t)y * to->pitch + (size_t)x * c,
                   from->at + (size_t)row * from->pitch + (size_t)column * c, c);
        }
    return OK;
}
