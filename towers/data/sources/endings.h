/* The endings of the files that are read as images: one list for folders, labels files, tars and predictions. */
#pragma once

#include "kernels/status.h"

#define IMAGE_ENDINGS ".jpg .jpeg .jpe .jfif .png .webp .ppm .pgm"
enum { IMAGE_ENDINGS_COUNT = 8 };

extern const char *const image_endings[IMAGE_ENDINGS_COUNT]; /* each with its dot, lower case */
bool ending_is_image(const char *name);                      /* in any case */

/* ---- files that are not read: how many of each ending, and the first of them */

enum { IGNORED_KINDS = 12, IGNORED_ENDING_BYTES = 12, IGNORED_TEXT_BYTES = 512 };

typedef struct Ignored {
    int64_t count;
    struct {
        char ending[IGNORED_ENDING_BYTES]; /* lower case; "" for names without one or with a long one */
        int64_t count;
    } kind[IGNORED_KINDS]; /* if there are more, "" counts them too */
    int kinds;
    char *first; /* owned */
} Ignored;

NODISCARD Status ignored_add(Ignored *ignored, const char *folder, const char *name);
NODISCARD Status ignored_join(Ignored *ignored, const Ignored *more);
/* "5 .gif, 2 .bmp, 1 other". */
void ignored_text(const Ignored *ignored, char text[IGNORED_TEXT_BYTES]);
void ignored_free(Ignored *ignored);
