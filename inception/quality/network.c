/* Building a network of fixed weights and running its forward pass. */
#include "inception/quality/network.h"

#include "towers/store/weights.h"

Status network_read(const Layout *layout, const char *what, SafeTensors *file, const char *path, float *params,
                    float *running)
{
    WeightMatch match;
    WeightMap map = weight_map(layout);
    WeightPart part;
    TRY(weights_narrow(&map, NULL, path, NULL, file, &part));
    TRY(weights_unpack(&map, "", file, NULL, params, running, &match));
    if (match.missing || match.mismatched)
        return FAIL(ERR_CHECKPOINT, "%s does not hold the weights of %s: %d missing, %d mismatched\n%s", path, what,
                    match.missing, match.mismatched, match.table);
    return match.spoiled ? weights_spoiled(path, &match) : OK;
}

static Status weights_load(Network *network, const char *what, const NetworkWeights *weights)
{
    Status st = OK;
    const Backend *backend = network->device->backend;
    size_t params = network->layout->param_elements, running = network->layout->running_elements;
    float *host = calloc(params + running + 1, sizeof *host);
    if (!host) return FAIL(ERR_MEMORY, "no memory for the weights of %s (%zu MiB)", what, params * sizeof *host >> 20);
    TRY_OUT(network_read(network->layout, what, weights->file, weights->path, host, host + params));
    TRY_OUT(backend->upload(network->device, network->arena[ARENA_PARAM], host, params * sizeof *host));
    TRY_OUT(backend->upload(network->device, network->arena[ARENA_RUNNING], host + params, running * sizeof *host));
    TRY_OUT(backend->finish(network->device, STREAM_COMPUTE));
out:
    free(host);
    return st;
}

Status network_open(Graph *graph, const char *what, const NetworkWeights *weights, Device *device, Network *network)
{
    Status st = OK;
    PlanOptions options = {0};
    const Layout *layout = weights->layout;
    *network = (Network){.device = device, .graph = graph};
    TRY_OUT(graph_finish(graph));
    if (weights->file) {
        TRY_OUT(layout_create(graph, &network->layout));
        layout = network->layout;
    }
    TRY_OUT(plan_create(graph, layout, device, &options, &network->plan));
    for (int a = 0; a < ARENA_COUNT; a++) {
        bool shared = !weights->file && (a == ARENA_PARAM || a == ARENA_RUNNING);
        size_t bytes = plan_bytes(network->plan, (Arena)a);
        if (a == ARENA_PARAM) bytes = layout->param_elements * sizeof(float);
        if (a == ARENA_RUNNING) bytes = layout->running_elements * sizeof(float);
        if (!shared) TRY_OUT(device->backend->alloc(device, bytes ? bytes : 64, &network->arena[a]));
        plan_bind(network->plan, (Arena)a,
                  !shared            ? network->arena[a]
                  : a == ARENA_PARAM ? (void *)weights->params
                                     : (void *)weights->running);
    }
    if (weights->file) TRY_OUT(weights_load(network, what, weights));
out:
    if (st != OK) network_close(network);
    return st;
}

void network_close(Network *network)
{
    plan_destroy(network->plan);
    for (int a = 0; a < ARENA_COUNT; a++)
        if (network->arena[a]) network->device->backend->release(network->device, network->arena[a]);
    layout_destroy(network->layout);
    graph_destroy(network->graph);
    free(network->staging);
    *network = (Network){0};
}

/* Host memory with the rows of a tensor on the device, which may have gaps between them. */
static Status staging_make(Network *network, const Tensor *t, size_t *bytes)
{
    *bytes = (size_t)(shape_pixels(t->shape) * t->pitch) * sizeof(float);
    if (*bytes <= network->staging_bytes) return OK;
    free(network->staging);
    network->staging_bytes = *bytes;
    network->staging = calloc(1, *bytes);
    return network->staging ? OK : FAIL(ERR_MEMORY, "no memory for a batch of images (%zu MiB)", *bytes >> 20);
}

Status network_run(Network *network, Value input, const float *values)
{
    Tensor t = plan_tensor(network->plan, input);
    const Backend *backend = network->device->backend;
    size_t bytes, row = (size_t)t.shape.c;
    TRY(staging_make(network, &t, &bytes));
    for (int64_t p = 0; p < shape_pixels(t.shape); p++)
        memcpy(network->staging + p * t.pitch, values + (size_t)p * row, row * sizeof(float));
    TRY(backend->upload(network->device, t.data, network->staging, bytes));
    TRY(backend->finish(network->device, STREAM_COMPUTE));
    return plan_run(network->plan, 0, plan_op_count(network->plan));
}

Status network_get(Network *network, Value result, float *values)
{
    Tensor t = plan_tensor(network->plan, result);
    const Backend *backend = network->device->backend;
    size_t bytes, row = (size_t)t.shape.c;
    TRY(staging_make(network, &t, &bytes));
    TRY(backend->download(network->device, network->staging, t.data, bytes));
    TRY(backend->finish(network->device, STREAM_COMPUTE));
    for (int64_t p = 0; p < shape_pixels(t.shape); p++)
        memcpy(values + (size_t)p * row, network->staging + p * t.pitch, row * sizeof(float));
    return OK;
}
