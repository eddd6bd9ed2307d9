/* A PNG in three chunks: header, deflated rows, end; see png.h. */
#include "towers/record/png.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { SIDE_MAX = 1 << 15, SIGNATURE = 8, CHUNK_FRAME = 12, HEADER = 13, GREY = 0, RGB = 2 };

static void put_big(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++) to[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* Length, type, data, CRC of type and data. `data` may already be in place. */
static size_t chunk_put(uint8_t *to, const char type[4], const uint8_t *data, size_t count)
{
    put_big(to, (uint32_t)count);
    memcpy(to + 4, type, 4);
    if (count && data != to + 8) memcpy(to + 8, data, count);
    put_big(to + 8 + count, (uint32_t)crc32(0, to + 4, (uInt)(4 + count)));
    return CHUNK_FRAME + count;
}

/* Every row begins with the number of its filter: 0, none. */
static uint8_t *rows_make(const uint8_t *pixels, size_t row, size_t height)
{
    uint8_t *rows = malloc(height * (row + 1));
    for (size_t y = 0; rows && y < height; y++) {
        rows[y * (row + 1)] = 0;
        memcpy(rows + y * (row + 1) + 1, pixels + y * row, row);
    }
    return rows;
}

Status png_encode(const uint8_t *pixels, int32_t width, int32_t height, int32_t channels, uint8_t **bytes,
                  size_t *count)
{
    static const uint8_t signature[SIGNATURE] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    if (width < 1 || height < 1 || width > SIDE_MAX || height > SIDE_MAX || (channels != 1 && channels != 3))
        return FAIL(ERR_ARG, "cannot write a PNG of %d x %d pixels with %d channels", width, height, channels);
    size_t row = (size_t)width * (size_t)channels, raw = (size_t)height * (row + 1);
    uLongf packed = compressBound((uLong)raw);
    uint8_t *rows = rows_make(pixels, row, (size_t)height),
            *all = malloc(SIGNATURE + 3 * CHUNK_FRAME + HEADER + packed), header[HEADER] = {0};
    uint8_t *data = all + SIGNATURE + CHUNK_FRAME + HEADER;
    if (!rows || !all || compress2(data + 8, &packed, rows, (uLong)raw, Z_DEFAULT_COMPRESSION) != Z_OK) {
        free(rows);
        free(all);
        return FAIL(ERR_MEMORY, "no memory for a PNG of %d x %d pixels", width, height);
    }
    put_big(header, (uint32_t)width);
    put_big(header + 4, (uint32_t)height);
    header[8] = 8; /* bits */
    header[9] = channels == 3 ? RGB : GREY;
    memcpy(all, signature, SIGNATURE);
    chunk_put(all + SIGNATURE, "IHDR", header, HEADER);
    data += chunk_put(data, "IDAT", data + 8, packed);
    data += chunk_put(data, "IEND", NULL, 0);
    *bytes = all;
    *count = (size_t)(data - all);
    free(rows);
    return OK;
}
