/* The budget of the decoders: how many pixels an image may have, and how much memory large images take at the same time,
 * over all threads and formats of a process.
 *
 * A file of a few hundred bytes may announce 178 million pixels. Decoders that need less than LARGE_BYTES (pixels.h) take their
 * memory freely. A larger image waits until its share of the budget is free: 16 bytes for each permitted pixel, which
 * is enough for one image of the largest size in any format. So nothing within the limit is refused, and eight threads
 * decode eight such images one after the other. */
#pragma once

#include <stdint.h>

/* Pixels that an image may have: 178,956,970, as for Pillow, unless set; 0 sets that again. Set it before threads
 * decode. */
void image_pixels_limit(int64_t pixels);
int64_t image_pixels_max(void);
const char *image_pixels_remedy(void); /* ": see --max-pixels" where it was set by this option; "" in a library */

/* Wait for `bytes` of the budget, or for all of it if they are more; returns what was taken, which is to be given
 * back. A thread that holds a part must not take another one. */
int64_t image_memory_take(int64_t bytes);
void image_memory_give(int64_t taken);
