/* The speed of our JPEG decoder, compared with libjpeg-turbo's own: bench_jpeg SECONDS FILE...
 *
 * Three methods take turns over all files, which are in memory: a bare loop over the library's scan lines; image_probe
 * and image_decode of the whole image; the same of the random part that RandomResizedCrop would take. The result is
 * the least processor time of all rounds of one thread, in microseconds per image, as a line of JSON. */
#include <time.h>

#include "towers/data/images/transform.h"
#include "towers/data/sources/reader.h"

#include <jpeglib.h> /* needs stdio.h and stddef.h before it */

enum { WAYS = 3 };

typedef struct Bench {
    Bytes *files;
    int count;
    ImageDecoder *decoder;
    Pixels pixels;
    uint8_t *memory; /* of the bare loop */
    size_t bytes;
} Bench;

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static Status decode_bare(Bench *b, const Bytes *file)
{
    struct jpeg_error_mgr errors;
    struct jpeg_decompress_struct info = {.err = jpeg_std_error(&errors)}; /* ends the program on damage */
    jpeg_create_decompress(&info);
    jpeg_mem_src(&info, file->data, file->size);
    (void)jpeg_read_header(&info, TRUE);
    info.out_color_space = JCS_RGB;
    (void)jpeg_start_decompress(&info);
    size_t row = (size_t)info.output_width * 3, needed = row * info.output_height;
    if (needed > b->bytes) {
        free(b->memory);
        b->memory = malloc(needed);
        b->bytes = b->memory ? needed : 0;
    }
    if (!b->memory) return FAIL(ERR_MEMORY, "no memory for %zu bytes of pixels", needed);
    while (info.output_scanline < info.output_height) {
        JSAMPROW at[16];
        for (size_t i = 0; i < 16; i++) at[i] = b->memory + (info.output_scanline + i) * row;
        JDIMENSION left = info.output_height - info.output_scanline;
        (void)jpeg_read_scanlines(&info, at, left < 16 ? left : 16);
    }
    (void)jpeg_finish_decompress(&info);
    jpeg_destroy_decompress(&info);
    return OK;
}

static Status decode_ours(Bench *b, const Bytes *file, bool crop, int64_t id)
{
    static const Transform t = {.side = 299, .crop = CROP_RANDOM, .area = {0.08, 1}, .ratio = {0.75, 4.0 / 3}};
    ImageInfo info;
    TRY(image_probe(file, &info));
    Rect part = {0, 0, info.h, info.w};
    if (crop) {
        SamplePlan plan;
        transform_plan(&t, (SampleKey){.seed = 1, .id = id}, &info, NULL, &plan);
        part = plan.box;
    }
    return image_decode(b->decoder, file, &info, part, &b->pixels);
}

static Status round_run(Bench *b, int way, int64_t round, double *seconds)
{
    double start = processor_seconds();
    for (int i = 0; i < b->count; i++)
        TRY(way == 0 ? decode_bare(b, &b->files[i]) : decode_ours(b, &b->files[i], way == 2, round * b->count + i));
    double took = processor_seconds() - start;
    if (round == 0 || took < *seconds) *seconds = took;
    return OK;
}

static Status bench_run(Bench *b, double seconds)
{
    double least[WAYS] = {0}, end = processor_seconds() + seconds;
    int64_t rounds = 0;
    for (; rounds < 2 || processor_seconds() < end; rounds++)
        for (int way = 0; way < WAYS; way++) TRY(round_run(b, way, rounds, &least[way]));
    double each = 1e6 / b->count;
    printf("{\"images\": %d, \"rounds\": %" PRId64 ", \"bare_us\": %.1f, \"whole_us\": %.1f, \"part_us\": %.1f}\n",
           b->count, rounds, least[0] * each, least[1] * each, least[2] * each);
    return OK;
}

int main(int count, char **arguments)
{
    Bench b = {.count = count - 2, .files = calloc((size_t)count, sizeof(Bytes))};
    Status st = count > 2 && b.files ? OK : FAIL(ERR_ARG, "usage: bench_jpeg SECONDS FILE...");
    for (int i = 0; st == OK && i < b.count; i++)
        st = bytes_read(arguments[i + 2], ANY_SIZE, SAMPLE_BYTES_MAX, &b.files[i]);
    if (st == OK) st = image_decoder_create(&b.decoder);
    if (st == OK) st = bench_run(&b, atof(arguments[1]));
    if (st != OK) fprintf(stderr, "bench_jpeg: %s\n", status_message());
    image_decoder_destroy(b.decoder);
    pixels_free(&b.pixels);
    for (int i = 0; b.files && i < b.count; i++) bytes_free(&b.files[i]);
    free(b.files);
    free(b.memory);
    return st == OK ? 0 : 1;
}
