/* Column sums: for every channel, one or two sums over all pixels, equal to the bit for any number of threads.
 *
 * Pixels are cut into at most COLUMN_CHUNKS chunks by shape alone. Inside a chunk f32 sums of COLUMN_ROWS rows are
 * added into f64 (callers first add four rows to one another); the chunks are added in order. Packed tensors of few
 * channels are read as wider rows of `repeat` pixels, so that short rows do not waste the vector unit; the sums of the
 * copies are folded at the end. */
#pragma once

#include "kernels/cpu/vector.h"

enum { COLUMN_CHUNKS = 64, COLUMN_ROWS = 256 };

typedef struct Columns {
    int64_t pixels, c;
    int64_t repeat;        /* pixels in one wide row; 1 if a tensor is a slice */
    int64_t width;         /* repeat * c */
    int64_t chunk, chunks; /* pixels per chunk (a multiple of repeat), number of chunks */
} Columns;

/* Add `rows` rows of `width` elements, the first at `pixel`, to sum[width] (and square[width], if the user has two).
 * Rows are `repeat` pixels apart when width is c * repeat, else one. */
typedef void ColumnRows(void *context, int64_t pixel, int64_t rows, int64_t width, float *sum, float *square);

void columns_init(Columns *plan, int64_t pixels, int64_t c, bool packed);
size_t columns_bytes(const Columns *plan);
/* total[2 * c]: the sums, then the second sums. `workspace`: columns_bytes, aligned to 8 bytes. */
void columns_run(const Device *device, const Columns *plan, ColumnRows *rows, void *context, void *workspace,
                 double *total);
