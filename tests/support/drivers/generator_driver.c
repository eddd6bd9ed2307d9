/* Images of a generator, for comparison with other programs: generator_driver MODEL N OUT writes OUT.safetensors
 * (random weights, none of them zero), OUT.z (f32 {N, latent}) and OUT.images (f32 NHWC, pixels in [0, 1]). */
#include "inception/models/models.h"
#include "inception/quality/generator.h"
#include "kernels/philox.h"
#include "towers/store/weights.h"

static Status file_write(const char *out, const char *ending, const void *bytes, size_t count)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.%s", out, ending);
    FILE *to = fopen(path, "wb");
    if (!to || fwrite(bytes, 1, count, to) != count || fclose(to) != 0) return FAIL(ERR_IO, "cannot write %s", path);
    return OK;
}

/* Initial weights, with up to 0.01 added to or taken from each parameter, and up to 0.1 added to each running average. */
static Status weights_write(const Model *model, const ModelOptions *options, const char *path)
{
    Graph *graph;
    Layout *layout;
    WeightList list = {0};
    StPair pairs[] = {{"model", model->name}};
    TRY(generator_graph(model, options, 1, &graph));
    TRY(layout_create(graph, &layout));
    WeightMap map = weight_map(layout);
    float *params = calloc(layout->param_elements + 1, sizeof *params),
          *states = calloc(layout->running_elements + 1, sizeof *states);
    if (!params || !states) return FAIL(ERR_MEMORY, "weights of %s", model->name);
    layout_init_params(layout, 1, params);
    layout_init_running(layout, states);
    for (size_t i = 0; i < layout->param_elements; i++)
        params[i] += 0.02f * philox_unit(philox(2, (uint32_t)i, 0, 0, 0).v[0]) - 0.01f;
    for (size_t i = 0; i < layout->running_elements; i++)
        states[i] += 0.1f * philox_unit(philox(3, (uint32_t)i, 0, 0, 0).v[0]);
    TRY(weights_pack(&map, "", params, &list));
    TRY(running_pack(&map, "", states, 0, &list));
    TRY(safetensors_write(path, list.tensor, list.count, pairs, 1, NULL));
    weight_list_clear(&list);
    layout_destroy(layout);
    graph_destroy(graph);
    free(params);
    free(states);
    return OK;
}

static Status run(char **argv)
{
    const Model *model;
    const Backend *backend;
    Device device;
    DeviceConfig config = {DEVICE_USUAL, .threads = 2};
    Generator generator;
    SafeTensors *file;
    char path[4096];
    int32_t n = atoi(argv[2]);
    TRY(model_find(argv[1], &model));
    ModelOptions options = {.classes = model->classes,
                            .side = model->side,
                            .channels = model->channels,
                            .dropout = model->dropout,
                            .drop_path = model->drop_path,
                            .variant = ""};
    snprintf(path, sizeof path, "%s.safetensors", argv[3]);
    TRY(weights_write(model, &options, path));
    TRY(backend_find("cpu", &backend, NULL, 0));
    TRY(backend->open(&config, &device));
    TRY(safetensors_open(path, &file));
    NetworkWeights weights = {.file = file, .path = path};
    TRY(generator_open(model, &options, &weights, &device, n, &generator));
    size_t numbers = (size_t)(n * model->latent), image = (size_t)(options.side * options.side * options.channels);
    noise_fill(1, 0, n, model->latent, generator.input);
    TRY(network_run(&generator.network, generator.z, generator.input));
    TRY(network_get(&generator.network, generator.images, generator.output));
    for (size_t i = 0; i < (size_t)n * image; i++) {
        size_t c = i % (size_t)options.channels;
        float pixel = generator.output[i] * model->std[c] + model->mean[c];
        generator.output[i] = pixel < 0 ? 0 : pixel > 1 ? 1 : pixel;
    }
    TRY(file_write(argv[3], "z", generator.input, numbers * sizeof(float)));
    TRY(file_write(argv[3], "images", generator.output, (size_t)n * image * sizeof(float)));
    generator_close(&generator);
    safetensors_close(file);
    backend->close(&device);
    return OK;
}

int main(int argc, char **argv)
{
    Status st = argc == 4 ? run(argv) : FAIL(ERR_ARG, "usage: %s MODEL N OUT", argv[0]);
    if (st != OK) status_print(stderr, st, true);
    return st == OK ? 0 : 1;
}
