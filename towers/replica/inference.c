/* The ring of results of inference.h. Every buffer has a block of pinned host memory (loss, top-1, top-5, then the
 * probabilities, features and maps; with TTA_FLIP another such part for the mirror images) and a mark after the copies
 * that fill it. */
#include "towers/replica/inference.h"

#include "kernels/base/pause.h"
#include "towers/replica/temperature.h"

enum { BUFFERS = 2, LOSS = 0, CORRECT = 1, HEADER = 16 /* floats */ };
enum { RECORD_BYTES = IMAGE_RECORD * sizeof(int32_t) };

typedef struct InferenceBuffer {
    Inferred result;
    /* owned, each large enough for the largest batch */
    float *floats;
    int32_t *labels;
    int64_t *ids;
    BadSample *bad;
    uint8_t *pixels; /* only with maps, as the next */
    int32_t *augment;
} InferenceBuffer;

struct Inference {
    Replica *replica; /* borrowed, as the next */
    Loader *loader;
    bool prob;
    double temperature;
    size_t view;       /* floats of a view of the largest batch */
    size_t bytes;      /* of a buffer's floats */
    size_t image;      /* bytes of an image that is kept; 0 without maps */
    uint8_t *mirrored; /* owned: pixels of the largest batch; NULL without TTA_FLIP */
    int64_t begun, ended;
    InferenceBuffer buffer[BUFFERS];
};

/* Optional values that the file lacks keep their initial values, so both arenas are downloaded first. */
Status inference_weights(Replica *r, const ProgramConfig *program, const char *path, HeadUse use)
{
    Status st = OK;
    WeightMap map = weight_map(r->layout);
    const Backend *backend = r->device.backend;
    size_t params = r->layout->param_elements, running = r->layout->running_elements;
    float *host = calloc(params + running + 1, sizeof *host);
    if (!host)
        return FAIL(ERR_MEMORY, "no memory for the host copy of the weights (%zu MiB)", params * sizeof *host >> 20);
    TRY_OUT(backend->download(&r->device, host, r->arena[ARENA_PARAM], params * sizeof *host));
    TRY_OUT(backend->download(&r->device, host + params, r->eval_running, running * sizeof *host));
    TRY_OUT(backend->finish(&r->device, STREAM_COMPUTE));
    TRY_OUT(pretrained_read(&map, program, path, use, host, host + params, NULL));
    TRY_OUT(backend->upload(&r->device, r->arena[ARENA_PARAM], host, params * sizeof *host));
    TRY_OUT(backend->upload(&r->device, r->eval_running, host + params, running * sizeof *host));
    TRY_OUT(backend->finish(&r->device, STREAM_COMPUTE));
    replica_weights_changed(r);
out:
    free(host);
    return st;
}

/* The floats that the value takes, whatever its type; 0 for no value. */
static size_t value_floats(const Program *program, Value v)
{
    if (!v.id) return 0;
    Tensor t = plan_tensor(program->plan, v);
    return align_up((size_t)(shape_pixels(t.shape) * t.pitch) * dtype_bytes(t.dtype), sizeof(float)) / sizeof(float);
}

static Status buffers_create(Inference *q, Tta tta)
{
    Replica *r = q->replica;
    size_t most = 0, floats = 0;
    size_t side = (size_t)r->config.program.canvas, image = side * side * (size_t)r->config.program.data_channels;
    for (int i = 0; i < r->eval_count; i++) {
        const Program *program = &r->eval[i];
        size_t n = (size_t)program->n, needed = value_floats(program, program->features) +
                                                value_floats(program, program->maps) +
                                                value_floats(program, program->logits);
        if (q->prob) needed += value_floats(program, program->prob);
        if (n > most) most = n;
        if (needed > floats) floats = needed;
        if (program->maps.id) q->image = image;
    }
    q->view = HEADER + floats;
    q->bytes = (tta == TTA_FLIP ? 2 : 1) * q->view * sizeof(float);
    if (tta == TTA_FLIP) q->mirrored = malloc(most * image + 1);
    if (tta == TTA_FLIP && !q->mirrored)
        return FAIL(ERR_MEMORY, "no memory for the mirror images of %zu samples", most);
    for (int i = 0; i < BUFFERS; i++) {
        InferenceBuffer *buffer = &q->buffer[i];
        buffer->floats = pages_alloc(q->bytes);
        buffer->labels = malloc((most + 1) * sizeof *buffer->labels);
        buffer->ids = malloc((most + 1) * sizeof *buffer->ids);
        buffer->bad = malloc((most + 1) * sizeof *buffer->bad);
        buffer->pixels = malloc(most * q->image + 1);
        buffer->augment = malloc(most * RECORD_BYTES + 1);
        if (!buffer->floats || !buffer->labels || !buffer->ids || !buffer->bad || !buffer->pixels || !buffer->augment)
            return FAIL(ERR_MEMORY, "no memory for the results of %zu samples", most);
        if (r->device.backend->pin) r->device.backend->pin(&r->device, buffer->floats, q->bytes, PIN_DOWNLOADS);
    }
    return OK;
}

Status inference_open(Replica *replica, Loader *loader, bool prob, Tta tta, double temperature, Inference **made)
{
    Inference *q = calloc(1, sizeof *q);
    if (!q) return FAIL(ERR_MEMORY, "no memory for the results of an evaluation");
    q->replica = replica;
    q->loader = loader;
    q->prob = prob;
    q->temperature = temperature;
    replica_pin(replica, loader, true);
    Status st = buffers_create(q, tta);
    if (st == OK) {
        *made = q;
        return OK;
    }
    inference_close(q);
    return st;
}

void inference_close(Inference *q)
{
    if (!q) return;
    Device *device = &q->replica->device;
    if (q->begun > q->ended)
        (void)!device->backend->finish(device, STREAM_COMPUTE); /* it still writes to the buffers */
    replica_pin(q->replica, q->loader, false);
    for (int i = 0; i < BUFFERS; i++) {
        InferenceBuffer *buffer = &q->buffer[i];
        if (buffer->floats && device->backend->pin) device->backend->pin(device, buffer->floats, q->bytes, PIN_NOT);
        free(buffer->floats);
        free(buffer->labels);
        free(buffer->ids);
        free(buffer->bad);
        free(buffer->pixels);
        free(buffer->augment);
    }
    free(q->mirrored);
    free(q);
}

/* Download a value, or nothing, to *place, which moves behind it. */
static Status value_send(const Inference *q, const Program *program, Value v, float **place, Tensor *result)
{
    Device *device = &q->replica->device;
    size_t floats = value_floats(program, v);
    *result = (Tensor){0};
    if (!v.id) return OK;
    *result = plan_tensor(program->plan, v);
    Status st = device->backend->download(device, *place, result->data, floats * sizeof(float));
    result->data = *place;
    *place += floats;
    return st;
}

/* Of the images, or of their mirror images. */
static Status results_send(const Inference *q, const Program *program, InferenceBuffer *buffer, bool mirror)
{
    float *to = buffer->floats + mirror * q->view;
    Device *device = &q->replica->device;
    const Backend *backend = device->backend;
    float *place = to + HEADER;
    Tensor prob;
    TRY(backend->download(device, to + LOSS, plan_tensor(program->plan, program->loss).data, sizeof(float)));
    TRY(backend->download(device, to + CORRECT, plan_tensor(program->plan, program->correct).data, 2 * sizeof(float)));
    TRY(value_send(q, program, q->prob ? program->prob : (Value){0}, &place, &prob));
    buffer->result.prob = prob.data;
    buffer->result.pitch = prob.pitch;
    TRY(value_send(q, program, program->features, &place, &buffer->result.features));
    TRY(value_send(q, program, program->maps, &place, &buffer->result.maps));
    return value_send(q, program, program->logits, &place, &buffer->result.logits[mirror]);
}

/* The images of a batch, each row from right to left. A border has equal sides, so that the central crop is mirrored. */
static void batch_mirror(const Batch *batch, uint8_t *to)
{
    size_t c = (size_t)batch->c, width = (size_t)batch->canvas, rows = (size_t)batch->n * width;
    for (size_t y = 0; y < rows; y++)
        for (size_t x = 0; x < width; x++)
            memcpy(to + (y * width + x) * c, batch->pixels + ((y + 1) * width - 1 - x) * c, c);
}

static Status view_run(Inference *q, Program *program, InferenceBuffer *buffer, const Batch *batch, bool mirror)
{
    Device *device = &q->replica->device;
    TRY(replica_feed(q->replica, program, batch, 0, &(RandomKey){0}, 0)); /* nothing random is evaluated */
    TRY(replica_fold(q->replica));
    TRY(plan_run(program->plan, program->fold_end, plan_op_count(program->plan)));
    TRY(results_send(q, program, buffer, mirror));
    return device->backend->uploaded ? device->backend->uploaded(device) : OK;
}

Status inference_begin(Inference *q, const Batch *batch)
{
    Device *device = &q->replica->device;
    const Backend *backend = device->backend;
    InferenceBuffer *buffer = &q->buffer[q->begun % BUFFERS];
    Program *program = replica_eval_program(q->replica, batch->n);
    if (!program) return FAIL(ERR_INTERNAL, "no evaluation program for a batch of %d", batch->n);
    if (inference_pending(q) == BUFFERS)
        return FAIL(ERR_INTERNAL, "a third batch was started while two were in progress");
    /* Copy the batch, because the loader will reuse its memory. */
    Batch *kept = &buffer->result.batch;
    *kept = *batch;
    kept->pixels = q->image ? memcpy(buffer->pixels, batch->pixels, (size_t)batch->n * q->image) : NULL;
    kept->augment = q->image ? memcpy(buffer->augment, batch->augment, (size_t)batch->n * RECORD_BYTES) : NULL;
    kept->targets = NULL;
    kept->labels = memcpy(buffer->labels, batch->labels, (size_t)batch->n * sizeof *buffer->labels);
    kept->ids = memcpy(buffer->ids, batch->ids, (size_t)batch->n * sizeof *buffer->ids);
    if (batch->skipped) memcpy(buffer->bad, batch->bad, (size_t)batch->skipped * sizeof *buffer->bad);
    kept->bad = buffer->bad;
    q->begun++;
    if (q->mirrored) {
        Batch view = *batch;
        batch_mirror(batch, q->mirrored);
        view.pixels = q->mirrored;
        TRY(view_run(q, program, buffer, &view, true));
    }
    TRY(view_run(q, program, buffer, batch, false));
    return backend->mark ? backend->mark(device, (int)((q->begun - 1) % BUFFERS)) : OK;
}

int inference_pending(const Inference *q)
{
    return (int)(q->begun - q->ended);
}

int inference_ahead(const Inference *q)
{
    return q->replica->device.backend->mark ? BUFFERS - 1 : 0;
}

static Status results_wait(const Inference *q, int mark)
{
    Device *device = &q->replica->device;
    bool reached = false;
    if (!device->backend->reached) return device->backend->finish(device, STREAM_COMPUTE);
    TRY(device->backend->reached(device, mark, &reached));
    while (!reached) {
        pause_ns(POLL_NS);
        TRY(device->backend->reached(device, mark, &reached));
    }
    return OK;
}

Status inference_end(Inference *q, const Inferred **result)
{
    InferenceBuffer *buffer = &q->buffer[q->ended % BUFFERS];
    TRY(results_wait(q, (int)(q->ended % BUFFERS)));
    q->ended++;
    buffer->result.loss = buffer->floats[LOSS];
    for (int k = 0; k < 2; k++) buffer->result.correct[k] = (int64_t)buffer->floats[CORRECT + k];
    size_t probs = q->mirrored && q->prob ? (size_t)(buffer->result.batch.n * buffer->result.pitch) : 0;
    for (size_t i = HEADER; i < HEADER + probs; i++)
        buffer->floats[i] = (buffer->floats[i] + buffer->floats[q->view + i]) / 2;
    for (int64_t i = 0; q->prob && q->temperature > 0 && i < buffer->result.batch.n; i++)
        temperature_apply(q->temperature, buffer->floats + HEADER + i * buffer->result.pitch,
                          q->replica->config.program.options.classes);
    *result = &buffer->result;
    return OK;
}
