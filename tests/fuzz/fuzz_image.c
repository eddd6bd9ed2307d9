/* libFuzzer target of the image decoders and of the parsers before them (headers, EXIF, limits), with arbitrary bytes.
 * An accepted image must have the size given by its header, decoded as a whole and in part. */
#include <zlib.h>

#include "towers/data/images/image.h"
#include "towers/data/images/image_memory.h"

/* Right checksums for the chunks of a PNG, which no mutation would find. */
static void png_repair(uint8_t *data, size_t size)
{
    for (size_t at = 8; at <= size && size - at >= 12;) {
        size_t length = (size_t)data[at] << 24 | (size_t)data[at + 1] << 16 | (size_t)data[at + 2] << 8 | data[at + 3];
        if (length > size - at - 12) break;
        uint32_t sum = (uint32_t)crc32(0, data + at + 4, (uInt)(length + 4));
        for (size_t i = 0; i < 4; i++) data[at + 8 + length + i] = (uint8_t)(sum >> (24 - 8 * i));
        at += length + 12;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static ImageDecoder *decoder;
    static Pixels pixels;
    static Bytes bytes;
    ImageInfo info;
    image_pixels_limit(1 << 20);
    if (!decoder && image_decoder_create(&decoder) != OK) abort();
    bytes.size = 0;
    if (bytes_reserve(&bytes, size) != OK) abort();
    if (size) memcpy(bytes.data, data, size);
    bytes.size = size;
    if (size > 8 && memcmp(data, "\x89PNG", 4) == 0) png_repair(bytes.data, size);
    int orientation = exif_orientation(data, size);
    if (orientation < 1 || orientation > 8) abort();
    if (image_probe(&bytes, &info) != OK) return 0;
    if (info.h < 1 || info.w < 1 || (int64_t)info.h * info.w > image_pixels_max()) abort();
    Rect parts[] = {{0, 0, info.h, info.w}, {info.h / 2, info.w / 3, 1 + info.h / 4, 1 + info.w / 4}};
    for (int i = 0; i < 2; i++) {
        if (parts[i].y + parts[i].h > info.h || parts[i].x + parts[i].w > info.w) continue;
        if (image_decode(decoder, &bytes, &info, parts[i], &pixels) != OK) continue;
        if (pixels.h != parts[i].h || pixels.w != parts[i].w || pixels.c != info.c) abort();
        unsigned sum = 0;
        for (int32_t y = 0; y < pixels.h; y++)
            for (int32_t x = 0; x < pixels.w * pixels.c; x++) sum += pixels.at[(size_t)y * pixels.pitch + (size_t)x];
        if (sum == 0xffffffff) abort();
    }
    return 0;
}
