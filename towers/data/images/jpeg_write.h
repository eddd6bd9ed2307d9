/* JPEG files from pixels: baseline, chroma at half the resolution (4:2:0), optimized Huffman tables. */
#pragma once

#include "towers/data/images/pixels.h"

/* *bytes is owned by the caller. Quality 1 to 100; pixels of 1 or 3 channels. */
NODISCARD Status jpeg_encode(const Pixels *pixels, int quality, uint8_t **bytes, size_t *count);
