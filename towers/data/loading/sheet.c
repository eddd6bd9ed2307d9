/* Drawing a sheet of samples. */
#include "towers/data/loading/sheet.h"

Status sheet_open(Sheet *sheet, int32_t count, int32_t columns, int32_t side, int32_t cell, int32_t c)
{
    int32_t rows = (count + columns - 1) / columns;
    *sheet = (Sheet){.columns = columns, .cell = side < cell ? side : cell};
    TRY(pixels_shape(&sheet->pixels, rows * sheet->cell, columns * sheet->cell, c));
    memset(sheet->pixels.at, 0, (size_t)sheet->pixels.h * sheet->pixels.pitch);
    TRY(pixels_shape(&sheet->image, side, side, c));
    return side > sheet->cell ? resizer_create(&sheet->resizer) : OK;
}

Status sheet_put(Sheet *sheet, int32_t place, const Batch *batch, int32_t i, const float mean[3])
{
    Pixels *image = &sheet->image;
    size_t row = (size_t)sheet->cell * (size_t)sheet->pixels.c;
    uint8_t *corner = sheet->pixels.at + (size_t)(place / sheet->columns * sheet->cell) * sheet->pixels.pitch +
                      (size_t)(place % sheet->columns) * row;
    batch_image(batch, i, image->w, mean, image->at);
    if (sheet->resizer) {
        Resize smaller = {.in_h = image->h, .in_w = image->w, .out_h = sheet->cell, .out_w = sheet->cell};
        smaller.window = (Rect){0, 0, sheet->cell, sheet->cell};
        return resizer_run(sheet->resizer, &smaller, image, corner, sheet->pixels.pitch);
    }
    for (int32_t y = 0; y < sheet->cell; y++)
        memcpy(corner + (size_t)y * sheet->pixels.pitch, image->at + (size_t)y * image->pitch, row);
    return OK;
}

Status sheet_put_sample(Sheet *sheet, int32_t place, const Source *source, int64_t id, const Transform *transform,
                        TransformWorker *worker, const float mean[3])
{
    Status st = OK;
    Bytes bytes = {0};
    ImageInfo info;
    SamplePlan plan;
    int32_t label, record[IMAGE_RECORD], side = transform->side + 2 * transform->pad, c = sheet->pixels.c;
    uint8_t *canvas = malloc((size_t)side * (size_t)side * (size_t)c);
    Batch batch = {.n = 1, .canvas = side, .c = c, .pixels = canvas, .augment = record};
    if (!canvas) return FAIL(ERR_MEMORY, "no memory for an image of %d x %d pixels", side, side);
    TRY_OUT(source_read(source, id, &bytes, &label));
    TRY_OUT(image_probe(&bytes, &info));
    if (info.c != c) TRY_OUT(FAIL(ERR_FORMAT, "%d channels, but the data set has %d", info.c, c));
    transform_plan(transform, (SampleKey){0, 0, id}, &info, &bytes.boxes, &plan);
    TRY_OUT(transform_apply(transform, worker, &bytes, &info, &plan, canvas, record));
    TRY_OUT(sheet_put(sheet, place, &batch, 0, mean));
out:
    transform_worker_rest(worker);
    bytes_free(&bytes);
    free(canvas);
    return st;
}

void sheet_close(Sheet *sheet)
{
    pixels_free(&sheet->pixels);
    pixels_free(&sheet->image);
    resizer_destroy(sheet->resizer);
}
