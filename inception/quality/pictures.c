/* Reading pictures of a data set or a folder. */
#include "inception/quality/pictures.h"

#include "kernels/philox.h"
#include "towers/data/loading/picture.h"

enum { READ_BATCH = 256, NOISE_STREAM = 0x6e6f6973 };

Status pictures_create(int64_t count, int32_t side, int32_t c, Pictures *pictures)
{
    *pictures = (Pictures){.count = count, .side = side, .c = c};
    size_t bytes = (size_t)count * picture_bytes(pictures);
    pictures->at = calloc(bytes + 1, 1);
    return pictures->at ? OK
                        : FAIL(ERR_MEMORY, "no memory for %" PRId64 " images of %d x %d pixels (%zu MiB)", count, side,
                               side, bytes >> 20);
}

void pictures_free(Pictures *pictures)
{
    free(pictures->at);
    *pictures = (Pictures){0};
}

Status pictures_read(const PicturesConfig *config, Pictures *pictures)
{
    static const float black[3] = {0};
    Status st = OK;
    Loader *loader = NULL;
    LoaderConfig reading = {.source = config->source,
                            .shares = {.towers = 1, .batch = {READ_BATCH}},
                            .local = 1,
                            .seed = config->seed,
                            .shuffle = true,
                            .transform = config->transform,
                            .workers = config->workers,
                            .depth = 4};
    int64_t available = source_info(config->source)->count,
            count = config->count < available ? config->count : available;
    reading.max_steps = shares_steps_per_epoch(&reading.shares, count);
    TRY(pictures_create(count, config->transform.side, source_info(config->source)->c, pictures));
    TRY_OUT(loader_create(&reading, &loader));
    for (int64_t done = 0; done < count;) {
        const Batch *batch;
        TRY_OUT(loader_next(loader, &batch));
        for (int32_t i = 0; i < batch->n && done < count; i++, done++)
            batch_picture(batch, i, pictures->side, black, pictures->at + (size_t)done * picture_bytes(pictures));
    }
out:
    loader_destroy(loader);
    if (st != OK) pictures_free(pictures);
    return st;
}

Status pictures_to_channels(Pictures *pictures, int32_t c)
{
    Pictures made;
    if (c == pictures->c) return OK;
    TRY(pictures_create(pictures->count, pictures->side, c, &made));
    size_t pixels = (size_t)pictures->count * (size_t)pictures->side * (size_t)pictures->side;
    for (size_t i = 0; i < pixels; i++) {
        if (c == 3) memset(made.at + 3 * i, pictures->at[i], 3);
        if (c == 1) made.at[i] = luma_of(pictures->at + 3 * i);
    }
    pictures_free(pictures);
    *pictures = made;
    return OK;
}

void pictures_noise(uint64_t seed, Pictures *pictures)
{
    size_t bytes = (size_t)pictures->count * picture_bytes(pictures);
    for (size_t i = 0; i < bytes; i += sizeof(Philox)) {
        Philox words = philox(seed, (uint32_t)(i / sizeof words), (uint32_t)(i / sizeof words >> 32), 0, NOISE_STREAM);
        memcpy(pictures->at + i, &words, bytes - i < sizeof words ? bytes - i : sizeof words);
    }
}

Status pictures_grid(const Pictures *pictures, int64_t first, int32_t columns, int32_t rows, uint8_t **pixels)
{
    size_t row = (size_t)pictures->side * (size_t)pictures->c, width = (size_t)columns * row;
    uint8_t *made = calloc((size_t)rows * (size_t)pictures->side * width + 1, 1);
    if (!made) return FAIL(ERR_MEMORY, "no memory for a grid of %d x %d images", columns, rows);
    for (int64_t i = 0; i < (int64_t)columns * rows && first + i < pictures->count; i++) {
        const uint8_t *from = pictures->at + (size_t)(first + i) * picture_bytes(pictures);
        uint8_t *corner = made + (size_t)(i / columns) * (size_t)pictures->side * width + (size_t)(i % columns) * row;
        for (int32_t y = 0; y < pictures->side; y++) memcpy(corner + (size_t)y * width, from + (size_t)y * row, row);
    }
    *pixels = made;
    return OK;
}
