/* Sheet: images of samples side by side, as the network sees them, in cells of equal size. */
#pragma once

#include "towers/data/loading/batch_image.h"

/* Size of the sheets in a run directory: small enough for a page with all of them. */
enum { SHEET_COLUMNS = 6, SHEET_IMAGES = 24, SHEET_CELL = 128 };

typedef struct Sheet {
    Pixels pixels; /* owned: [rows * cell][columns * cell][c], black where there is no image */
    int32_t columns, cell;
    Pixels image;     /* owned, as is the next */
    Resizer *resizer; /* NULL: images have the size of cells */
} Sheet;

/* Room for `count` images of side x side pixels with c channels, in cells of that size or of at most `cell`. */
NODISCARD Status sheet_open(Sheet *sheet, int32_t count, int32_t columns, int32_t side, int32_t cell, int32_t c);
/* Put image i of a batch into cell `place`, counted row by row; `mean` as for batch_image. */
NODISCARD Status sheet_put(Sheet *sheet, int32_t place, const Batch *batch, int32_t i, const float mean[3]);
void sheet_close(Sheet *sheet); /* also for one that is all zeros */

/* Put one sample of a source into cell `place`: read, decoded and transformed as in epoch 0 of an evaluation. */
NODISCARD Status sheet_put_sample(Sheet *sheet, int32_t place, const Source *source, int64_t id,
                                  const Transform *transform, TransformWorker *worker, const float mean[3]);
