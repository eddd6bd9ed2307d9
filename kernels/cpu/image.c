/* Pixels to activations: crop, mirror, normalize.
 *
 * A byte has 256 values, so (v / 255 - mean) / std is a table per channel, made once by prepare. Crop and mirror come
 * per image from in[1], IMAGE_RECORD words each; without it the crop is the centre. Offsets are clipped to the canvas. A
 * rectangle to erase becomes 0 after normalizing. */
#include "kernels/cpu/vector.h"

#include <stdlib.h>
#include <string.h>

enum { IMAGE_CHANNELS = 4 };

/* Values as they are stored in y: f32, or bf16. */
typedef struct ImageTable {
    float wide[IMAGE_CHANNELS][256];
    uint16_t half[IMAGE_CHANNELS][256];
} ImageTable;

typedef struct ImageOp {
    const Tensor *pixels, *y;
    const int32_t *augment; /* [n][IMAGE_RECORD] or NULL */
    const ImageTable *table;
} ImageOp;

static Status image_prepare(Device *device, OpCall *call)
{
    (void)device;
    const Tensor *x = &call->in[0], *y = &call->out[0];
    TRY(check_activation(call, y));
    if (x->dtype != DTYPE_U8)
        return FAIL(ERR_UNSUPPORTED, "image '%s': expected u8 pixels, found %s", call->name, dtype_name(x->dtype));
    bool fits = x->shape.n == y->shape.n && x->shape.h >= y->shape.h && x->shape.w >= y->shape.w &&
                (x->shape.c == y->shape.c || x->shape.c == 1) && y->shape.c <= IMAGE_CHANNELS;
    if (!fits)
        return FAIL(ERR_SHAPE,
                    "image '%s': cannot crop %s from %s: expected sides within the image, at most %d channels, and as "
                    "many in the image or one (grey)",
                    call->name, shape_text(y->shape), shape_text(x->shape), IMAGE_CHANNELS);
    ImageTable *table = malloc(sizeof *table);
    if (!table) return FAIL(ERR_MEMORY, "no memory for the table of image '%s'", call->name);
    for (int c = 0; c < call->out[0].shape.c; c++)
        for (int v = 0; v < 256; v++) {
            double unit = v / 255.0;
            table->wide[c][v] = (float)((unit - (double)call->attr.image.mean[c]) / (double)call->attr.image.std[c]);
            table->half[c][v] = bf16_from_f32(table->wide[c][v]);
        }
    call->state = table;
    return OK;
}

static void image_discard(Device *device, OpCall *call)
{
    (void)device;
    free(call->state);
    call->state = NULL;
}

/* One row of y; `step` is the way from one pixel to the next in the canvas, negative when mirrored. */
VECTOR_INLINE void image_row(Dtype dtype, const ImageTable *table, const uint8_t *pixel, int64_t step, int grey,
                             void *y, int64_t pitch, int32_t w, int32_t channels)
{
    for (int32_t j = 0; j < w; j++, pixel += step)
        for (int32_t c = 0; c < channels; c++) {
            uint8_t value = pixel[grey ? 0 : c];
            if (dtype == DTYPE_F32)
                ((float *)y)[j * pitch + c] = table->wide[c][value];
            else
                ((uint16_t *)y)[j * pitch + c] = table->half[c][value];
        }
}

static int64_t clipped(int64_t at, int64_t room)
{
    return at < 0 ? 0 : smaller(at, room);
}

/* Columns of row `y` of a picture that its record erases. */
static void erase_row(const ImageOp *op, const int32_t *record, int64_t row, int64_t y)
{
    Shape out = op->y->shape;
    int64_t from = clipped(record[IMAGE_ERASE_X], out.w), wide = record[IMAGE_ERASE_W];
    if (y < record[IMAGE_ERASE_Y] || y >= (int64_t)record[IMAGE_ERASE_Y] + record[IMAGE_ERASE_H] || wide <= 0) return;
    int64_t end = clipped(record[IMAGE_ERASE_X] + wide, out.w);
    size_t bytes = (size_t)out.c * dtype_bytes(op->y->dtype);
    for (int64_t x = from; x < end; x++) memset(element_at(op->y, (row * out.w + x) * op->y->pitch), 0, bytes);
}

/* Rows [first, end) of y of all images. */
static void image_chunk(void *context, int64_t first, int64_t end, int thread)
{
    (void)thread;
    const ImageOp *op = context;
    Shape in = op->pixels->shape, out = op->y->shape;
    int64_t room_h = in.h - out.h, room_w = in.w - out.w;
    for (int64_t row = first; row < end; row++) {
        int64_t n = row / out.h;
        const int32_t *a = op->augment ? op->augment + n * IMAGE_RECORD
                                       : (const int32_t[IMAGE_RECORD]){(int)(room_h / 2), (int)(room_w / 2)};
        int64_t line = (n * in.h + clipped(a[IMAGE_OY], room_h) + row % out.h) * in.w;
        int64_t start = clipped(a[IMAGE_OX], room_w) + (a[IMAGE_FLIP] ? out.w - 1 : 0);
        const uint8_t *pixel = element_at(op->pixels, (line + start) * op->pixels->pitch);
        BY_DTYPE(op->y->dtype, image_row, op->table, pixel, a[IMAGE_FLIP] ? -op->pixels->pitch : op->pixels->pitch,
                 in.c < out.c, element_at(op->y, row * out.w * op->y->pitch), op->y->pitch, out.w, out.c);
        if (a[IMAGE_ERASE_H] > 0) erase_row(op, a, row, row % out.h);
    }
}

static Status image_launch(Device *device, OpCall *call)
{
    ImageOp op = {&call->in[0], &call->out[0], call->in[1].data, call->state};
    Shape s = op.y->shape;
    chunks_run(device, (int64_t)s.n * s.h, chunk_pixels((int64_t)s.w * s.c * 2), image_chunk, &op);
    return OK;
}

const OpKernel cpu_image = {
    .prepare = image_prepare, .launch = image_launch, .discard = image_discard, .strided_in = 1, .strided_out = 1};
