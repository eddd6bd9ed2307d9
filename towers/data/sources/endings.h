/* The endings of the files that are read as images: one list for folders, labels files, tars and predictions. */
#pragma once

#include "kernels/base/status.h"

#define IMAGE_ENDINGS ".jpg .jpeg .jpe .jfif .png .webp .ppm .pgm"
enum { IMAGE_ENDINGS_COUNT = 8 };

/* The endings of shards; a number of so many may follow, "-00000-of-00010", or stand alone. */
#define SHARD_ENDINGS ".tar .tfrecord .tfrecords .tfrec .record"

extern const char *const image_endings[IMAGE_ENDINGS_COUNT]; /* each with its dot, lower case */
bool ending_is_image(const char *name);                      /* in any case */
