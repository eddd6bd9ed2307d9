/* Drawing class activation maps; see class_maps.h. */
#include "inception/commands/class_maps.h"

#include "towers/data/loading/batch_image.h"
#include "towers/record/png.h"

enum { RGB = 3, NAME_BYTES_MAX = 100 };

/* One map: the value of place (y, x) is at[(y * w + x) * pitch]. */
typedef struct Map {
    const float *at;
    int64_t pitch;
    int32_t h, w;
    float least, most;
} Map;

static Map map_of(const Tensor *maps, int32_t image, int64_t class)
{
    Map map = {.pitch = maps->pitch, .h = maps->shape.h, .w = maps->shape.w, .least = INFINITY, .most = -INFINITY};
    map.at = (const float *)maps->data + (int64_t)image * map.h * map.w * map.pitch + class;
    for (int64_t place = 0; place < (int64_t)map.h * map.w; place++) {
        map.least = fminf(map.least, map.at[place * map.pitch]);
        map.most = fmaxf(map.most, map.at[place * map.pitch]);
    }
    return map;
}

/* The places on both sides of a pixel, and the share of the second. */
typedef struct Between {
    int32_t first, second;
    float share;
} Between;

static Between between(int32_t pixel, int32_t side, int32_t places)
{
    float at = ((float)pixel + 0.5f) * (float)places / (float)side - 0.5f;
    at = fmaxf(0, fminf(at, (float)(places - 1)));
    int32_t first = (int32_t)at;
    return (Between){first, first + 1 < places ? first + 1 : first, at - (float)first};
}

/* From 0 to 1; 0 everywhere if the map is constant or not finite. */
static float heat_at(const Map *map, Between y, Between x)
{
    const float *above = map->at + y.first * map->w * map->pitch, *below = map->at + y.second * map->w * map->pitch;
    float top = (1 - x.share) * above[x.first * map->pitch] + x.share * above[x.second * map->pitch];
    float bottom = (1 - x.share) * below[x.first * map->pitch] + x.share * below[x.second * map->pitch];
    float heat = ((1 - y.share) * top + y.share * bottom - map->least) / (map->most - map->least);
    return isfinite(heat) ? heat : 0;
}

static void pixel_draw(float heat, const uint8_t *image, int32_t channels, uint8_t *to)
{
    for (int k = 0; k < RGB; k++) {
        float level = fmaxf(0, fminf(1.5f - fabsf(4 * heat - (float)(3 - k)), 1));
        to[k] = (uint8_t)lrintf(((float)image[channels == RGB ? k : 0] + 255 * level) / 2);
    }
}

/* `to` is the upper left corner, in an image of `row` bytes a row. */
static void map_draw(const Map *map, const uint8_t *image, int32_t channels, int32_t side, uint8_t *to, size_t row)
{
    for (int32_t y = 0; y < side; y++)
        for (int32_t x = 0; x < side; x++)
            pixel_draw(heat_at(map, between(y, side, map->h), between(x, side, map->w)),
                       image + ((size_t)y * (size_t)side + (size_t)x) * (size_t)channels, channels,
                       to + (size_t)y * row + (size_t)x * RGB);
}

static Status path_of(const char *folder, int64_t number, const char *where, char path[PATH_BYTES])
{
    char name[NAME_BYTES_MAX + 32];
    const char *slash = strrchr(where, '/'), *base = slash ? slash + 1 : where, *end = strrchr(base, '.');
    int length = (int)(end ? end - base : (ptrdiff_t)strlen(base));
    Text to = text_start(name, sizeof name);
    text_add(&to, "%06" PRId64 "-", number);
    for (int i = 0; i < length && i < NAME_BYTES_MAX; i++) {
        bool plain = (base[i] >= 'a' && base[i] <= 'z') || (base[i] >= 'A' && base[i] <= 'Z') ||
                     (base[i] && strchr("0123456789.-_", base[i]));
        text_add(&to, "%c", plain ? base[i] : '_');
    }
    text_add(&to, ".png");
    return path_join(path, folder, name);
}

Status class_maps_write(const ClassMaps *maps, const char *folder, const char *where, char path[PATH_BYTES])
{
    const Batch *batch = &maps->found->batch;
    const ModelOptions *options = &maps->program->options;
    size_t side = (size_t)options->side, row = side * (size_t)maps->count * RGB;
    uint8_t *image = malloc(side * side * (size_t)batch->c), *pixels = malloc(side * row);
    Status st = OK;
    if (!image || !pixels) TRY_OUT(FAIL(ERR_MEMORY, "no memory for an image of %d maps", maps->count));
    batch_image(batch, maps->image, options->side, model_mean(maps->program->model, options), image);
    for (int k = 0; k < maps->count; k++) {
        Map map = map_of(&maps->found->maps, maps->image, maps->classes[k]);
        map_draw(&map, image, batch->c, options->side, pixels + (size_t)k * side * RGB, row);
    }
    TRY_OUT(path_of(folder, batch->ids[maps->image], where, path));
    TRY_OUT(png_replace(path, pixels, options->side * maps->count, options->side, RGB));
out:
    free(image);
    free(pixels);
    return st;
}
