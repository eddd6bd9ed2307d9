/* Growable buffers; see pixels.h. */
#include "towers/data/images/pixels.h"
#include "kernels/base/array.h"

Status bytes_reserve(Bytes *bytes, size_t room)
{
    if (room <= bytes->room && bytes->data) return OK;
    uint8_t *data = realloc(bytes->data, room + PIXELS_SLACK);
    if (!data) return FAIL(ERR_MEMORY, "no memory for a sample of %zu bytes", room);
    memset(data + room, 0, PIXELS_SLACK);
    bytes->data = data;
    bytes->room = room;
    return OK;
}

void bytes_rest(Bytes *bytes)
{
    if (bytes->room > LARGE_BYTES) bytes_free(bytes);
}

void bytes_free(Bytes *bytes)
{
    free(bytes->data);
    free(bytes->boxes.at);
    *bytes = (Bytes){0};
}

Status boxes_shape(Boxes *boxes, int count)
{
    TRY(array_reserve(&boxes->at, &boxes->room, (size_t)count, BOX_SIDES * sizeof *boxes->at, "bounding boxes"));
    boxes->count = count;
    for (int i = 0; i < count * BOX_SIDES; i++) boxes->at[i] = NAN;
    return OK;
}

Status pixels_shape(Pixels *pixels, int32_t h, int32_t w, int32_t c)
{
    size_t bytes = (size_t)h * (size_t)w * (size_t)c;
    if (bytes > pixels->room || !pixels->memory) {
        free(pixels->memory); /* the content is not kept, so it need not be copied */
        pixels->room = 0;
        pixels->memory = malloc(bytes + PIXELS_SLACK);
        if (!pixels->memory) return FAIL(ERR_MEMORY, "no memory for an image of %d x %d pixels", w, h);
        memset(pixels->memory + bytes, 0, PIXELS_SLACK);
        pixels->room = bytes;
    }
    pixels->at = pixels->memory;
    pixels->h = h;
    pixels->w = w;
    pixels->c = c;
    pixels->pitch = (size_t)w * (size_t)c;
    return OK;
}

void pixels_free(Pixels *pixels)
{
    free(pixels->memory);
    *pixels = (Pixels){0};
}

void pixels_to_gray(Pixels *pixels)
{
    if (pixels->c == 1) return;
    for (int32_t y = 0; y < pixels->h; y++) {
        uint8_t *row = pixels->at + (size_t)y * pixels->pitch;
        for (size_t x = 0; x < (size_t)pixels->w; x++) row[x] = luma_of(row + 3 * x);
    }
    pixels->c = 1;
}
