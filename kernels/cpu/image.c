/* Pixels to activations: crop, mirror, normalize, mix.
 *
 * A byte has 256 values, so (v / 255 - mean) / std is a table per channel, made once by prepare. Crop and mirror come
 * per image from in[1], IMAGE_RECORD words each; without it the crop is the center. Offsets are clipped to the canvas. A
 * rectangle to erase becomes 0 after normalizing. Another image, with its own record, may be mixed in after that. */
#include "kernels/cpu/vector.h"
#include "kernels/image_record.h"

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
    TRY(cpu_check(device, call));
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

static int64_t clipped(int64_t at, int64_t room)
{
    return at < 0 ? 0 : smaller(at, room);
}

/* A row of one image after crop and mirroring. `step`: from one pixel to the next, negative when mirrored. Columns
 * [erased, erased_end) are 0 after normalizing. */
typedef struct ImageRow {
    const uint8_t *pixel;
    int64_t step, erased, erased_end;
} ImageRow;

static const int32_t *record_of(const ImageOp *op, int64_t n)
{
    return op->augment ? op->augment + n * IMAGE_RECORD : NULL;
}

static ImageRow row_of(const ImageOp *op, int64_t n, int64_t y)
{
    Shape in = op->pixels->shape, out = op->y->shape;
    int64_t pitch = op->pixels->pitch;
    const int32_t *record = record_of(op, n);
    ImageCrop crop = image_crop(record, in.h - out.h, in.w - out.w);
    ImageRectangle erased = image_erased(record);
    int64_t start = ((n * in.h + crop.y + y) * in.w + crop.x + (crop.flip ? out.w - 1 : 0)) * pitch;
    ImageRow row = {element_at(op->pixels, start), crop.flip ? -pitch : pitch, 0, 0};
    if (erased.w <= 0 || !image_within((int32_t)y, erased.y, erased.h)) return row;
    row.erased = clipped(erased.x, out.w);
    row.erased_end = clipped((int64_t)erased.x + erased.w, out.w);
    return row;
}

VECTOR_INLINE void image_row(Dtype dtype, const ImageTable *table, const ImageRow *row, int gray, void *y,
                             int64_t pitch, int32_t w, int32_t channels)
{
    const uint8_t *pixel = row->pixel;
    for (int32_t j = 0; j < w; j++, pixel += row->step)
        for (int32_t c = 0; c < channels; c++) {
            uint8_t value = pixel[gray ? 0 : c];
            if (dtype == DTYPE_F32)
                ((float *)y)[j * pitch + c] = table->wide[c][value];
            else
                ((uint16_t *)y)[j * pitch + c] = table->half[c][value];
        }
}

static float pixel_value(const ImageTable *table, const ImageRow *row, int gray, int64_t x, int32_t c)
{
    return x >= row->erased && x < row->erased_end ? 0 : table->wide[c][row->pixel[x * row->step + (gray ? 0 : c)]];
}

/* (1 - share) row + share partner; columns [cut, cut_end) are the partner's. */
typedef struct ImageMix {
    ImageRow partner;
    float share;
    int64_t cut, cut_end;
} ImageMix;

static void mixed_row(const ImageOp *op, const ImageRow *row, const ImageMix *mix, int gray, int64_t at)
{
    const Tensor *y = op->y;
    for (int64_t x = 0; x < y->shape.w; x++) {
        float share = x >= mix->cut && x < mix->cut_end ? 1 : mix->share;
        for (int32_t c = 0; c < y->shape.c; c++) {
            float own = pixel_value(op->table, row, gray, x, c),
                  other = pixel_value(op->table, &mix->partner, gray, x, c);
            store(y->dtype, y->data, at + x * y->pitch + c, image_mixed(own, other, share));
        }
    }
}

/* Rows [first, end) of y of all images. */
static void image_chunk(void *context, int64_t first, int64_t end)
{
    const ImageOp *op = context;
    Shape in = op->pixels->shape, out = op->y->shape;
    int gray = in.c < out.c;
    for (int64_t at = first; at < end; at++) {
        int64_t n = at / out.h, h = at % out.h, place = at * out.w * op->y->pitch;
        ImageRow row = row_of(op, n, h);
        const int32_t *a = record_of(op, n);
        int32_t partner = image_partner(a, in.n);
        if (partner >= 0) {
            ImageRectangle cut = image_cut(a);
            bool cuts = image_within((int32_t)h, cut.y, cut.h);
            ImageMix mix = {row_of(op, partner, h), image_share(a), cut.x, cuts ? (int64_t)cut.x + cut.w : 0};
            mixed_row(op, &row, &mix, gray, place);
            continue;
        }
        BY_DTYPE(op->y->dtype, image_row, op->table, &row, gray, element_at(op->y, place), op->y->pitch, out.w, out.c);
        for (int64_t x = row.erased; x < row.erased_end; x++)
            memset(element_at(op->y, place + x * op->y->pitch), 0, (size_t)out.c * dtype_bytes(op->y->dtype));
    }
}

static Status image_launch(Device *device, OpCall *call)
{
    ImageOp op = {&call->in[0], &call->out[0], call->in[1].data, call->state};
    Shape s = op.y->shape;
    chunks_run(device, (int64_t)s.n * s.h, chunk_pixels((int64_t)s.w * s.c * 2), image_chunk, &op);
    return OK;
}

const OpKernel cpu_image = {.prepare = image_prepare, .launch = image_launch, .discard = cpu_discard};
