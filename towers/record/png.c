/* A PNG by libspng, whose rows have no filter: the images are grids and plots, which deflate well as they are; see png.h. */
#include "towers/record/png.h"

#include "towers/files/files.h"

#include <spng.h>

Status png_name_check(const char *option, const char *path)
{
    const char *end = strrchr(path, '.');
    if (!end || strchr(end, '/') || !strcasecmp(end, ".png")) return OK;
    return FAIL(ERR_ARG, "%s %s: a PNG is written; name the file .png", option, path);
}

Status png_encode(const uint8_t *pixels, int32_t width, int32_t height, int32_t channels, uint8_t **bytes,
                  size_t *count)
{
    enum { SIDE_MAX = 1 << 15 };
    if (width < 1 || height < 1 || width > SIDE_MAX || height > SIDE_MAX || (channels != 1 && channels != 3))
        return FAIL(ERR_ARG, "cannot write a PNG of %d x %d pixels with %d channels", width, height, channels);
    struct spng_ihdr header = {.width = (uint32_t)width,
                               .height = (uint32_t)height,
                               .bit_depth = 8,
                               .color_type = channels == 3 ? SPNG_COLOR_TYPE_TRUECOLOR : SPNG_COLOR_TYPE_GRAYSCALE};
    size_t size = (size_t)width * (size_t)height * (size_t)channels;
    spng_ctx *png = spng_ctx_new(SPNG_CTX_ENCODER);
    int code = png ? spng_set_option(png, SPNG_ENCODE_TO_BUFFER, 1) : SPNG_EMEM;
    if (!code) code = spng_set_option(png, SPNG_FILTER_CHOICE, SPNG_DISABLE_FILTERING);
    if (!code) code = spng_set_ihdr(png, &header);
    if (!code) code = spng_encode_image(png, pixels, size, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
    uint8_t *made = code ? NULL : spng_get_png_buffer(png, count, &code);
    spng_ctx_free(png);
    if (!made) return FAIL(ERR_MEMORY, "cannot make a PNG of %d x %d pixels: %s", width, height, spng_strerror(code));
    *bytes = made;
    return OK;
}

Status png_replace(const char *path, const uint8_t *pixels, int32_t width, int32_t height, int32_t channels)
{
    uint8_t *bytes;
    size_t count;
    TRY(png_encode(pixels, width, height, channels, &bytes, &count));
    Status st = file_replace(path, bytes, count);
    free(bytes);
    return st;
}
