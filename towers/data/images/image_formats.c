/* What several decoders need; see image_formats.h. */
#include "towers/data/images/image_formats.h"

#include <errno.h>

void image_hold(ImageDecoder *decoder, int64_t bytes)
{
    if (bytes > LARGE_BYTES) decoder->held = image_memory_take(bytes);
}

Status lack_report(Status st, const char *format)
{
    return errno == ENOMEM && st != ERR_MEMORY ? FAIL(ERR_MEMORY, "no memory to decode a %s", format) : st;
}

Status part_copy(const uint8_t *whole, int32_t w, int32_t c, Rect part, Pixels *pixels)
{
    TRY(pixels_shape(pixels, part.h, part.w, c));
    for (int32_t y = 0; y < part.h; y++)
        memcpy(pixels->at + (size_t)y * pixels->pitch,
               whole + ((size_t)(part.y + y) * (size_t)w + (size_t)part.x) * (size_t)c, pixels->pitch);
    return OK;
}
