/* png: 8-bit images as PNG (ISO/IEC 15948), by libspng. Gray or RGB, no filter, no palette.
 * Writing only. */
#pragma once

#include "kernels/base/status.h"

/* ERR_ARG for the name of another format; `option` begins the message. */
NODISCARD Status png_name_check(const char *option, const char *path);
/* `pixels` [height][width][channels], channels 1 or 3. *bytes is the caller's. */
NODISCARD Status png_encode(const uint8_t *pixels, int32_t width, int32_t height, int32_t channels, uint8_t **bytes,
                            size_t *count);
/* Encodes them into a file, durably. */
NODISCARD Status png_replace(const char *path, const uint8_t *pixels, int32_t width, int32_t height, int32_t channels);
