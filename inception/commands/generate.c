/* towers generate RUN: a grid of images from the generator of a run, as a PNG. Image i of a seed is the same in every
 * grid that contains it. */
#include "inception/commands/commands.h"

#include "inception/commands/networks.h"
#include "inception/commands/result_file.h"
#include "inception/options/settle.h"
#include "inception/options/values.h"
#include "kernels/base/cores.h"
#include "towers/files/json.h"
#include "towers/record/png.h"

enum { USUAL_COUNT = 64, BATCH = 64, GRID_MAX = 1024 };

typedef struct Grid {
    int64_t columns, rows, count;
} Grid;

static bool grid_parse(const char *text, Grid *grid)
{
    char columns[16];
    const char *x = strchr(text, 'x');
    if (!x || x - text >= (int)sizeof columns) return false;
    snprintf(columns, sizeof columns, "%.*s", (int)(x - text), text);
    return text_to_int(columns, &grid->columns) == VALUE_OK && text_to_int(x + 1, &grid->rows) == VALUE_OK &&
           grid->columns > 0 && grid->rows > 0 && grid->columns <= GRID_MAX && grid->rows <= GRID_MAX;
}

/* Without --grid the grid is as square as possible; without --count it is filled. */
static Status grid_choose(const Options *o, Grid *grid)
{
    *grid = (Grid){.count = o->count > 0 ? o->count : USUAL_COUNT};
    if (o->grid) {
        if (!grid_parse(o->grid, grid))
            return FAIL(ERR_ARG, "--grid '%s': expected columns and rows of at most %d, e.g. 8x8", o->grid, GRID_MAX);
        if (o->count <= 0) grid->count = grid->columns * grid->rows;
        if (grid->count > grid->columns * grid->rows)
            return FAIL(ERR_ARG, "--grid %s has room for %" PRId64 " images, but --count is %" PRId64, o->grid,
                        grid->columns * grid->rows, grid->count);
        return OK;
    }
    while (grid->columns * grid->columns < grid->count) grid->columns++;
    grid->rows = (grid->count + grid->columns - 1) / grid->columns;
    return grid->columns <= GRID_MAX
               ? OK
               : FAIL(ERR_ARG, "--count %" PRId64 " is too large for one grid: expected at most %d", o->count,
                      GRID_MAX * GRID_MAX);
}

/* With --interpolate, every row leads from one image of the seed to the next but one. */
static Status noise_make(const Options *o, const Grid *grid, int32_t latent, float **made)
{
    float *z = malloc((size_t)grid->count * (size_t)latent * sizeof *z),
          *ends = malloc(2 * (size_t)latent * sizeof *ends);
    Status st = z && ends ? OK : FAIL(ERR_MEMORY, "no memory for the noise of %" PRId64 " images", grid->count);
    if (st == OK && !o->interpolate) noise_fill((uint64_t)o->seed, 0, grid->count, latent, z);
    for (int64_t row = 0; st == OK && o->interpolate && row < grid->rows; row++) {
        int64_t first = row * grid->columns, left = grid->count - first;
        noise_fill((uint64_t)o->seed, 2 * row, 2, latent, ends);
        if (left > 0)
            noise_walk(ends, ends + latent, latent, (int32_t)(left < grid->columns ? left : grid->columns),
                       z + first * latent);
    }
    free(ends);
    if (st != OK) free(z);
    if (st == OK) *made = z;
    return st;
}

/* Real images of the training data in the left half, the generated ones in the right half. */
static Status beside_real(const Options *o, const JobFiles *files, Grid *grid, Images *made)
{
    Status st = OK;
    Images real = {0}, both = {0};
    ImagesConfig config = {.source = files->train,
                           .transform = job_transform(&files->job, false),
                           .seed = (uint64_t)o->seed,
                           .count = grid->count,
                           .workers = cores_allowed()};
    TRY_OUT(images_read(&config, &real));
    TRY_OUT(images_to_channels(&real, made->c));
    TRY_OUT(images_create(2 * grid->columns * grid->rows, made->side, made->c, &both));
    for (int64_t i = 0; i < grid->count; i++) {
        int64_t place = i / grid->columns * 2 * grid->columns + i % grid->columns;
        size_t bytes = image_bytes(made);
        if (i < real.count) memcpy(both.at + (size_t)place * bytes, real.at + (size_t)i * bytes, bytes);
        memcpy(both.at + (size_t)(place + grid->columns) * bytes, made->at + (size_t)i * bytes, bytes);
    }
    images_free(made);
    *made = both;
    both = (Images){0};
    grid->columns *= 2;
out:
    images_free(&real);
    images_free(&both);
    return st;
}

static Status result_print(const Options *o, const Model *model, const char *weights, const Grid *grid, int64_t count,
                           FILE *to)
{
    if (!o->json) {
        text_printf(to, "%s: %" PRId64 " images of %s, seed %" PRId64 ", from %s\n", o->sheet, count, model->name,
                    o->seed, weights);
        return OK;
    }
    json_t *root = json_pack("{s:o, s:s, s:o, s:I, s:I, s:I, s:I}", "file", json_text(o->sheet), "model", model->name,
                             "weights", json_text(weights), "seed", (json_int_t)o->seed, "count", (json_int_t)count,
                             "columns", (json_int_t)grid->columns, "rows", (json_int_t)grid->rows);
    return json_emit(root, JSON_COMPACT, to);
}

static Status images_make(const Options *o, Grid *grid, const char *weights, JobFiles *files, FILE *to)
{
    Status st = OK;
    Device device = {0};
    Generator generator = {0};
    Images images = {0};
    float *z = NULL;
    uint8_t *pixels = NULL;
    const Model *model = files->job.program.model;
    int64_t count = grid->count;
    if (o->beside_real) TRY(job_data_open(o, 0, files));
    TRY_OUT(networks_device(&files->job, &device));
    TRY_OUT(generator_load(&files->job, weights, &device, (int32_t)(count < BATCH ? count : BATCH), &generator));
    TRY_OUT(noise_make(o, grid, model->latent, &z));
    TRY_OUT(images_create(count, generator.options.side, generator.options.channels, &images));
    TRY_OUT(generator_run(&generator, z, &images));
    if (o->beside_real) TRY_OUT(beside_real(o, files, grid, &images));
    int32_t columns = (int32_t)grid->columns, rows = (int32_t)grid->rows;
    TRY_OUT(images_grid(&images, 0, columns, rows, &pixels));
    TRY_OUT(png_replace(o->sheet, pixels, columns * images.side, rows * images.side, images.c));
    st = result_print(o, model, weights, grid, count, to);
out:
    free(pixels);
    images_free(&images);
    free(z);
    generator_close(&generator);
    if (device.backend) device.backend->close(&device);
    return st;
}

Status generate_run(const Options *given, JobFiles *files, FILE *to)
{
    char weights[PATH_BYTES];
    Grid grid;
    Options o; /* as the run says */
    if (given->argument_count < 1) return FAIL(ERR_ARG, "usage: towers generate RUN -o FILE.png");
    TRY(png_name_check("-o", given->sheet));
    TRY(result_file_check("-o", given->sheet, RESULT_PNG, NULL));
    TRY(grid_choose(given, &grid));
    TRY(options_copy(given, &o));
    Status st = generator_find(&o, files, weights);
    if (st == OK) st = images_make(&o, &grid, weights, files, to);
    options_close(&o);
    return st;
}
