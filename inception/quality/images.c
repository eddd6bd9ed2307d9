/* Reading images of a data set or a folder. */
#include "inception/quality/images.h"

#include "kernels/philox.h"
#include "towers/data/loading/batch_image.h"

enum { READ_BATCH = 256, NOISE_STREAM = 0x6e6f6973 };

Status images_create(int64_t count, int32_t side, int32_t c, Images *images)
{
    *images = (Images){.count = count, .side = side, .c = c};
    size_t bytes = (size_t)count * image_bytes(images);
    images->at = calloc(bytes + 1, 1);
    return images->at ? OK
                      : FAIL(ERR_MEMORY, "no memory for %" PRId64 " images of %d x %d pixels (%zu MiB)", count, side,
                             side, bytes >> 20);
}

void images_free(Images *images)
{
    free(images->at);
    *images = (Images){0};
}

Status images_read(const ImagesConfig *config, Images *images)
{
    static const float black[3] = {0};
    Status st = OK;
    Loader *loader = NULL;
    LoaderConfig reading = {.source = config->source,
                            .local_batches = {.towers = 1, .batch = (const int32_t[]){READ_BATCH}},
                            .local = 1,
                            .seed = config->seed,
                            .shuffle = true,
                            .transform = config->transform,
                            .workers = config->workers,
                            .depth = 4};
    int64_t available = source_info(config->source)->count,
            count = config->count < available ? config->count : available;
    reading.max_steps = steps_per_epoch_of(&reading.local_batches, count);
    TRY(images_create(count, config->transform.side, source_info(config->source)->c, images));
    TRY_OUT(loader_create(&reading, &loader));
    for (int64_t done = 0; done < count;) {
        const Batch *batch;
        TRY_OUT(loader_next(loader, &batch));
        for (int32_t i = 0; i < batch->n && done < count; i++, done++)
            batch_image(batch, i, images->side, black, images->at + (size_t)done * image_bytes(images));
    }
out:
    loader_destroy(loader);
    if (st != OK) images_free(images);
    return st;
}

Status images_to_channels(Images *images, int32_t c)
{
    Images made;
    if (c == images->c) return OK;
    TRY(images_create(images->count, images->side, c, &made));
    size_t pixels = (size_t)images->count * (size_t)images->side * (size_t)images->side;
    for (size_t i = 0; i < pixels; i++) {
        if (c == 3) memset(made.at + 3 * i, images->at[i], 3);
        if (c == 1) made.at[i] = luma_of(images->at + 3 * i);
    }
    images_free(images);
    *images = made;
    return OK;
}

void images_noise(uint64_t seed, Images *images)
{
    size_t bytes = (size_t)images->count * image_bytes(images);
    for (size_t i = 0; i < bytes; i += sizeof(Philox)) {
        Philox words = philox(seed, (uint32_t)(i / sizeof words), (uint32_t)(i / sizeof words >> 32), 0, NOISE_STREAM);
        memcpy(images->at + i, &words, bytes - i < sizeof words ? bytes - i : sizeof words);
    }
}

Status images_grid(const Images *images, int64_t first, int32_t columns, int32_t rows, uint8_t **pixels)
{
    size_t row = (size_t)images->side * (size_t)images->c, width = (size_t)columns * row;
    uint8_t *made = calloc((size_t)rows * (size_t)images->side * width + 1, 1);
    if (!made) return FAIL(ERR_MEMORY, "no memory for a grid of %d x %d images", columns, rows);
    for (int64_t i = 0; i < (int64_t)columns * rows && first + i < images->count; i++) {
        const uint8_t *from = images->at + (size_t)(first + i) * image_bytes(images);
        uint8_t *corner = made + (size_t)(i / columns) * (size_t)images->side * width + (size_t)(i % columns) * row;
        for (int32_t y = 0; y < images->side; y++) memcpy(corner + (size_t)y * width, from + (size_t)y * row, row);
    }
    *pixels = made;
    return OK;
}
