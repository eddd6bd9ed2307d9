/* Sheet: pictures of samples side by side, as the network sees them, in cells of equal size; for people. */
#ifndef TOWERS_DATA_SHEET_H
#define TOWERS_DATA_SHEET_H

#include "towers/data/picture.h"

/* The sheets of a run directory: small enough for a page that holds them all. */
enum { SHEET_COLUMNS = 6, SHEET_PICTURES = 24, SHEET_CELL = 128 };

typedef struct Sheet {
    Pixels pixels; /* owned: [rows * cell][columns * cell][c], black where no picture has been put */
    int32_t columns, cell;
    Pixels picture;   /* owned, as is the next */
    Resizer *resizer; /* NULL: pictures are as large as cells */
} Sheet;

/* Room for `count` pictures of side x side pixels with c channels, in cells that are as large or at most `cell`. */
NODISCARD Status sheet_open(Sheet *sheet, int32_t count, int32_t columns, int32_t side, int32_t cell, int32_t c);
/* Picture i of a batch into cell `place`, row by row; `mean` as batch_picture. */
NODISCARD Status sheet_put(Sheet *sheet, int32_t place, const Batch *batch, int32_t i, const float mean[3]);
void sheet_close(Sheet *sheet); /* of one that is all zeros too */

/* One sample of a source into cell `place`: read, decoded and transformed by itself, as epoch 0 of an evaluation. */
NODISCARD Status sheet_put_sample(Sheet *sheet, int32_t place, const Source *source, int64_t id,
                                  const Transform *transform, TransformWorker *worker, const float mean[3]);

#endif
