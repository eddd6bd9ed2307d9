/* Which files are images by their names; see endings.h. */
#include "towers/data/listing/endings.h"

#include <strings.h>

const char *const image_endings[IMAGE_ENDINGS_COUNT] = {
    ".jpg",  ".jpeg", ".jpe",  ".jfif", ".png", ".webp", ".ppm", ".pgm", ".bmp",
#ifdef TOWERS_HAVE_GIF
    ".gif",
#endif
#ifdef TOWERS_HAVE_TIFF
    ".tif",  ".tiff",
#endif
#ifdef TOWERS_HAVE_HEIF
    ".heic", ".heif", ".avif",
#endif
};

bool ending_is_image(const char *name)
{
    const char *dot = strrchr(name, '.');
    for (int i = 0; dot && i < IMAGE_ENDINGS_COUNT; i++)
        if (!strcasecmp(dot, image_endings[i])) return true;
    return false;
}
