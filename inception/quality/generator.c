/* Images from a generator. Normal numbers by Box & Muller 1958, as in kernels/cpu/random.c. */
#include "inception/quality/generator.h"

#include "kernels/philox.h"

enum { LATENT_STREAM = 0x6c617465 };

Status generator_graph(const Model *model, const ModelOptions *options, int32_t n, Graph **made)
{
    GraphOptions evaluation = {.training = false, .compute = DTYPE_F32};
    Value images;
    Graph *g;
    if (!model->generate)
        return FAIL(ERR_ARG, "%s is a classifier and generates no images; a model with a generator is expected",
                    model->name);
    TRY(graph_create(&evaluation, &g));
    Value z = graph_input(g, "z", (Shape){n, model->latent, 1, 1}, DTYPE_F32);
    model->generate(g, options, model->networks, z, &images);
    graph_scope(g, "");
    if (!graph_failed(g)) graph_result(g, images, "images");
    Status st = graph_finish(g);
    if (st == OK)
        *made = g;
    else
        graph_destroy(g);
    return st;
}

Status generator_open(const Model *model, const ModelOptions *options, const NetworkWeights *weights, Device *device,
                      int32_t batch, Generator *generator)
{
    Status st = OK;
    Graph *g = NULL;
    *generator = (Generator){.model = model, .options = *options, .n = batch};
    TRY(generator_graph(model, options, batch, &g));
    generator->z = graph_find(g, "z");
    generator->images = graph_find(g, "images");
    TRY_OUT(network_open(g, model->name, weights, device, &generator->network));
    Shape shape = graph_shape(generator->network.graph, generator->images);
    if (shape.c != options->channels || shape.h != options->side || shape.w != options->side)
        TRY_OUT(FAIL(ERR_INTERNAL, "the generator of %s makes %s, not %d x %d x %d", model->name, shape_text(shape),
                     options->channels, options->side, options->side));
    generator->input = calloc((size_t)(batch * model->latent), sizeof(float));
    generator->output = calloc((size_t)shape_count(shape), sizeof(float));
    if (!generator->input || !generator->output) TRY_OUT(FAIL(ERR_MEMORY, "no memory for %d images", batch));
out:
    if (st != OK) generator_close(generator);
    return st;
}

void generator_close(Generator *generator)
{
    network_close(&generator->network);
    free(generator->input);
    free(generator->output);
    *generator = (Generator){0};
}

void noise_fill(uint64_t seed, int64_t first, int64_t count, int32_t latent, float *z)
{
    for (int64_t i = 0; i < count; i++)
        for (int32_t k = 0; k < latent; k += 2) {
            uint64_t image = (uint64_t)(first + i);
            Philox words = philox(seed, (uint32_t)image, (uint32_t)(image >> 32), (uint32_t)k / 2, LATENT_STREAM);
            float r = sqrtf(-2 * logf(1 - philox_unit(words.v[0]))),
                  angle = 6.2831853071795865f * philox_unit(words.v[1]);
            z[i * latent + k] = r * cosf(angle);
            if (k + 1 < latent) z[i * latent + k + 1] = r * sinf(angle);
        }
}

void noise_walk(const float *a, const float *b, int32_t latent, int32_t count, float *z)
{
    double product = 0, a_square = 0, b_square = 0;
    for (int32_t k = 0; k < latent; k++) {
        product += (double)a[k] * (double)b[k];
        a_square += (double)a[k] * (double)a[k];
        b_square += (double)b[k] * (double)b[k];
    }
    double angle = acos(fmax(-1, fmin(1, product / sqrt(a_square * b_square))));
    for (int32_t i = 0; i < count; i++) {
        double t = count > 1 ? (double)i / (count - 1) : 0;
        bool parallel = !(sin(angle) > 1e-6);
        double from = parallel ? 1 - t : sin((1 - t) * angle) / sin(angle),
               to = parallel ? t : sin(t * angle) / sin(angle);
        for (int32_t k = 0; k < latent; k++) z[i * latent + k] = (float)(from * (double)a[k] + to * (double)b[k]);
    }
}

Status generator_run(Generator *generator, const float *z, Images *images)
{
    const Model *model = generator->model;
    size_t latent = (size_t)model->latent, image = image_bytes(images);
    for (int64_t first = 0; first < images->count; first += generator->n) {
        int64_t n = images->count - first < generator->n ? images->count - first : generator->n;
        memcpy(generator->input, z + (size_t)first * latent, (size_t)n * latent * sizeof(float));
        TRY(network_run(&generator->network, generator->z, generator->input));
        TRY(network_get(&generator->network, generator->images, generator->output));
        for (size_t i = 0; i < (size_t)n * image; i++) {
            size_t c = i % (size_t)images->c;
            if (!isfinite(generator->output[i]))
                return FAIL(ERR_NUMERIC, "the generator of %s makes values that are not finite", model->name);
            float level = 255 * (generator->output[i] * model->std[c] + model->mean[c]); /* the inverse of OP_IMAGE */
            images->at[(size_t)first * image + i] = (uint8_t)lrintf(level < 0 ? 0 : level > 255 ? 255 : level);
        }
    }
    return OK;
}

Status generator_images(Generator *generator, uint64_t seed, int64_t first, int64_t count, Images *images)
{
    Status st = OK;
    int32_t latent = generator->model->latent;
    float *z = malloc((size_t)count * (size_t)latent * sizeof *z);
    TRY_OUT(images_create(count, generator->options.side, generator->options.channels, images));
    if (!z) TRY_OUT(FAIL(ERR_MEMORY, "no memory for the noise of %" PRId64 " images", count));
    noise_fill(seed, first, count, latent, z);
    TRY_OUT(generator_run(generator, z, images));
out:
    free(z);
    if (st != OK) images_free(images);
    return st;
}
